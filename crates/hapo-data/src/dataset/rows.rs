//! The rows of a file under the layout that its content has.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::{Example, first_bytes};
use crate::container::{Container, Opened, RawRow, RawRows};
use crate::layouts::{self, DATASET_LAYOUTS, Layout};
use crate::value::{Fault, fault, shorten};
use crate::{BadRow, Error, Row};

/// Rows that are read to find the layout.
const HEAD_ROWS: usize = 64;

/// The rows of a file, one by one, in its order. An error ends them, a bad row does not.
pub struct Rows<'a> {
    file: String,
    layout: &'static Layout,
    container: Container,
    compression: Option<&'static str>,
    head: VecDeque<Result<RawRow, Error>>,
    rest: RawRows<'a>,
    ended: bool,
    ids: HashMap<u128, u64>,
    ignored_fields: BTreeMap<String, u64>,
}

impl std::fmt::Debug for Rows<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rows")
            .field("file", &self.file)
            .field("layout", &self.layout.name)
            .field("container", &self.container)
            .finish_non_exhaustive()
    }
}

impl<'a> Rows<'a> {
    pub(super) fn new(
        path: &Path,
        layout: &'static Layout,
        container: Container,
        compression: Option<&'static str>,
        head: VecDeque<Result<RawRow, Error>>,
        rest: RawRows<'a>,
    ) -> Self {
        Rows {
            file: path.display().to_string(),
            layout,
            container,
            compression,
            head,
            rest,
            ended: false,
            ids: HashMap::new(),
            ignored_fields: BTreeMap::new(),
        }
    }

    /// Looks at the first rows and finds the layout that fits them best, unless one is given.
    pub(super) fn begin(
        opened: Opened,
        path: &Path,
        layout: Option<&'static Layout>,
    ) -> Result<Rows<'static>, Error> {
        let Opened { container, compression, mut rows } = opened;
        let mut head = VecDeque::new();
        while layout.is_none() && head.len() < HEAD_ROWS {
            let Some(row) = rows.next() else { break };
            let ends = row.is_err();
            head.push_back(row);
            if ends {
                break;
            }
        }
        let layout = match layout {
            Some(layout) => layout,
            None => recognise(&mut head, container, path)?,
        };
        Ok(Rows::new(path, layout, container, compression, head, rows))
    }

    /// The layout of the file.
    pub fn layout(&self) -> &'static Layout {
        self.layout
    }

    /// What the file is made of.
    pub fn container(&self) -> Container {
        self.container
    }

    /// `gzip` or `zstd`, where the whole file is compressed.
    pub fn compression(&self) -> Option<&'static str> {
        self.compression
    }

    /// Fields that were ignored so far, with the number of rows that had them.
    pub fn ignored_fields(&self) -> &BTreeMap<String, u64> {
        &self.ignored_fields
    }

    /// A row of this file as a bad one, for callers that refuse it: a gold answer that no grader can read.
    pub fn bad_row(&self, row: u64, field: &str, expected: &str, got: &str) -> BadRow {
        self.bad(row, fault(field, expected, got))
    }

    fn bad(&self, row: u64, fault: Fault) -> BadRow {
        BadRow {
            file: self.file.clone(),
            row,
            is_line: self.container == Container::JsonLines,
            field: fault.field,
            expected: fault.expected,
            got: fault.got,
        }
    }

    fn read(&mut self, raw: RawRow) -> Result<Example, Fault> {
        let fields = raw.fields?;
        let keys = self.layout.keys;
        for (index, (name, _)) in fields.0.iter().enumerate() {
            let is_known = keys.contains(&name.as_str());
            if is_known && fields.0[..index].iter().any(|it| it.0 == *name) {
                return Err(fault(name, "the field once", "it twice"));
            }
        }
        let mut example = (self.layout.read)(&fields)?;
        example.row = raw.number;
        self.set_id(&mut example)?;
        for (name, _) in fields.0 {
            if keys.contains(&name.as_str()) {
                continue;
            }
            let name = shorten(&name);
            if self.ignored_fields.len() < 64 || self.ignored_fields.contains_key(&name) {
                *self.ignored_fields.entry(name).or_default() += 1;
            }
        }
        Ok(example)
    }

    /// An id belongs to one row. In other layouts than the native one, a row without an id, or with the id of
    /// another row, gets the number of its row.
    fn set_id(&mut self, example: &mut Example) -> Result<(), Fault> {
        let is_own = self.layout.name == layouts::OWN.name;
        if example.id.is_empty() {
            example.id = format!("row-{}", example.row);
        }
        let hash = |id: &str| first_bytes(&Sha256::digest(id));
        match self.ids.entry(hash(&example.id)) {
            Entry::Vacant(entry) => {
                entry.insert(example.row);
            }
            Entry::Occupied(entry) if is_own => {
                let unit = match self.container {
                    Container::JsonLines => "line",
                    _ => "row",
                };
                let expected = format!("an id of its own ({unit} {} has this one)", entry.get());
                let got = shorten(&format!("{:?}", example.id));
                return Err(fault("id", &expected, &got));
            }
            Entry::Occupied(_) => {
                example.id = format!("{}#{}", example.id, example.row);
                self.ids.insert(hash(&example.id), example.row);
            }
        }
        Ok(())
    }
}

impl Iterator for Rows<'_> {
    type Item = Result<Row, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let raw = match self.head.pop_front().or_else(|| self.rest.next())? {
            Ok(raw) => raw,
            Err(error) => {
                self.ended = true;
                return Some(Err(error));
            }
        };
        let number = raw.number;
        Some(Ok(match self.read(raw) {
            Ok(example) => Row::Good(example),
            Err(fault) => Row::Bad(self.bad(number, fault)),
        }))
    }
}

/// The layout that fits the first rows of a file best.
fn recognise(
    head: &mut VecDeque<Result<RawRow, Error>>,
    container: Container,
    path: &Path,
) -> Result<&'static Layout, Error> {
    let objects = || {
        let rows = head.iter().filter_map(|it| it.as_ref().ok());
        rows.filter_map(|it| it.fields.as_ref().ok())
    };
    let mut best: Option<(&Layout, u64)> = None;
    for layout in DATASET_LAYOUTS {
        let fit = objects().map(|it| u64::from((layout.fit)(it, container))).sum();
        if fit > best.map_or(0, |it| it.1) {
            best = Some((layout, fit));
        }
    }
    if let Some((layout, _)) = best {
        return Ok(layout);
    }
    let found = match objects().next() {
        Some(row) => {
            let keys: Vec<_> = row.0.iter().map(|it| it.0.as_str()).collect();
            format!("rows with {}", shorten(&keys.join(", ")))
        }
        None => "no rows".to_owned(),
    };
    // Where no row can be read, the reason of the first says more than the list of layouts.
    match head.pop_front() {
        Some(Err(error)) => Err(error),
        Some(Ok(RawRow { number, fields: Err(fault) })) => Err(Error::NoRows {
            first: BadRow {
                file: path.display().to_string(),
                row: number,
                is_line: container == Container::JsonLines,
                field: fault.field,
                expected: fault.expected,
                got: fault.got,
            },
        }),
        _ => Err(Error::UnknownLayout {
            path: path.to_owned(),
            found,
            known: DATASET_LAYOUTS
                .iter()
                .map(|layout| format!("{} ({})", layout.name, layout.summary))
                .collect::<Vec<_>>()
                .join("; "),
        }),
    }
}
