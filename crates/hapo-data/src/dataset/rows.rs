//! The rows of a file, or of several one after the other, under the layout that their content has.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{Example, first_bytes};
use crate::container::{self, Container, Opened, RawRow, RawRows};
use crate::layouts::{self, Columns, DATASET_LAYOUTS, Layout, NamedColumns};
use crate::refuse::of_file;
use crate::row::{BadRow, Row};
use crate::value::{Fault, Value, fault, shorten, without_exponent};
use hapo_core::Refusal;

/// Rows that are read to find the layout.
const HEAD_ROWS: usize = 64;

/// The rows of one or several files, one by one, in their order. An error ends them, a bad row does not.
pub struct Rows<'a> {
    file: String,
    /// Files that come after this one.
    further: VecDeque<PathBuf>,
    /// Named by the user; without them a file is recognised by its first rows.
    columns: Option<Columns>,
    /// Rows, or lines, of the files before this one.
    base: u64,
    /// The last row of this file that was read.
    last: u64,
    /// The layout of the file; of several, of the one at hand.
    pub layout: &'static Layout,
    pub container: Container,
    /// `gzip` or `zstd`, where the whole file is compressed.
    pub compression: Option<&'static str>,
    head: VecDeque<Result<RawRow, Refusal>>,
    rest: RawRows<'a>,
    ended: bool,
    keeps_fields: bool,
    ids: HashMap<u128, u64>,
    /// Fields that were ignored so far, with the number of rows that had them.
    pub ignored_fields: BTreeMap<String, u64>,
    /// Ignored fields that seem to hold worked solutions, with the number of rows that have them.
    pub unread_solutions: BTreeMap<String, u64>,
    /// Gold answers that were a number in e-notation and are plain digits now.
    pub e_notation: u64,
    /// The columns that are named, and what the rows so far have.
    pub named_columns: NamedColumns,
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
    pub(crate) fn new(
        path: &Path,
        layout: &'static Layout,
        head: VecDeque<Result<RawRow, Refusal>>,
        opened: Opened<'a>,
    ) -> Self {
        let Opened { container, compression, rows: rest } = opened;
        Rows {
            file: path.display().to_string(),
            further: VecDeque::new(),
            columns: None,
            base: 0,
            last: 0,
            layout,
            container,
            compression,
            head,
            rest,
            ended: false,
            keeps_fields: false,
            ids: HashMap::new(),
            ignored_fields: BTreeMap::new(),
            unread_solutions: BTreeMap::new(),
            e_notation: 0,
            named_columns: NamedColumns::default(),
        }
    }

    /// The rows of files, one after the other; each has a layout of its own.
    pub(super) fn of_files(
        files: Vec<PathBuf>,
        columns: Option<Columns>,
    ) -> Result<Rows<'static>, Refusal> {
        let mut further = VecDeque::from(files);
        let first = further.pop_front().expect("a data set has a file");
        let mut rows = Rows::begin(container::open(&first)?, &first, columns)?;
        rows.further = further;
        Ok(rows)
    }

    /// The same, with every row's fields kept as JSON in [`Example::fields`], for a custom reward.
    pub fn keeping_fields(mut self) -> Self {
        self.keeps_fields = true;
        self
    }

    /// Looks at the first rows and finds the layout that fits them best, unless one is given.
    pub(super) fn begin(
        mut opened: Opened<'static>,
        path: &Path,
        columns: Option<Columns>,
    ) -> Result<Rows<'static>, Refusal> {
        let mut head = VecDeque::new();
        while columns.is_none() && head.len() < HEAD_ROWS {
            let Some(row) = opened.rows.next() else { break };
            let ends = row.is_err();
            head.push_back(row);
            if ends {
                break;
            }
        }
        let layout = match &columns {
            Some(_) => &layouts::COLUMNS,
            None => recognise(&mut head, opened.container, path)?,
        };
        let named_columns = columns.as_ref().map(NamedColumns::of).unwrap_or_default();
        Ok(Rows { columns, named_columns, ..Rows::new(path, layout, head, opened) })
    }

    /// Opens the next file; `false` when there is none.
    fn next_file(&mut self) -> Result<bool, Refusal> {
        let Some(path) = self.further.pop_front() else {
            return Ok(false);
        };
        let next = Rows::begin(container::open(&path)?, &path, self.columns.clone())?;
        self.base += self.last;
        self.last = 0;
        self.file = next.file;
        self.layout = next.layout;
        self.container = next.container;
        self.compression = next.compression;
        self.head = next.head;
        self.rest = next.rest;
        Ok(true)
    }

    /// A row of this file as a bad one, for callers that refuse it: a gold answer that no grader can read.
    pub fn bad_row(&self, row: u64, field: &str, expected: &str, got: &str) -> BadRow {
        self.bad(row, fault(field, expected, got))
    }

    fn bad(&self, row: u64, fault: Fault) -> BadRow {
        bad_row(self.file.clone(), row, self.container, fault)
    }

    fn read(&mut self, raw: RawRow) -> Result<Example, Fault> {
        self.last = raw.number;
        let fields = raw.fields?;
        let columns = self.columns.as_ref();
        if columns.is_some() {
            self.named_columns.add(&fields);
        }
        // The plain layout reads names in any case; no other does.
        let folds = self.layout.folds;
        let keys = self.layout.keys;
        let is_known = |name: &str| match columns {
            Some(columns) => columns.reads(name),
            None if folds => keys.iter().copied().flatten().any(|it| it.eq_ignore_ascii_case(name)),
            None => keys.iter().any(|it| it.contains(&name)),
        };
        for (index, (name, _)) in fields.0.iter().enumerate() {
            if is_known(name) && fields.0[..index].iter().any(|it| it.0 == *name) {
                return Err(fault(name, "the field once", "it twice"));
            }
        }
        let mut example = match columns {
            Some(columns) => columns.read(&fields)?,
            None => self.layout.read(&fields)?,
        };
        example.row = raw.number;
        for gold in std::iter::once(&mut example.answer).chain(&mut example.other_answers) {
            if let Some(digits) = without_exponent(gold) {
                *gold = digits;
                self.e_notation += 1;
            }
        }
        if self.keeps_fields {
            let fields = serde_json::Value::from(fields.clone().into_json());
            example.fields = Some(fields.to_string());
        }
        let ignored = fields.0.iter().filter(|it| !is_known(&it.0));
        let ignored: Vec<_> =
            ignored.map(|(name, it)| (shorten(name), looks_like_solutions(name, it))).collect();
        self.set_id(&mut example)?;
        for (name, is_solution) in ignored {
            let count = |counts: &mut BTreeMap<String, u64>, name: String| {
                if counts.len() < 64 || counts.contains_key(&name) {
                    *counts.entry(name).or_default() += 1;
                }
            };
            if is_solution {
                count(&mut self.unread_solutions, name.clone());
            }
            count(&mut self.ignored_fields, name);
        }
        Ok(example)
    }

    /// An id belongs to one row. A row without an id gets the number of its row; one with the id of another row gets that
    /// number behind it, but in a file of the native layout, where it is a fault.
    fn set_id(&mut self, example: &mut Example) -> Result<(), Fault> {
        let is_own = self.layout.name == layouts::OWN.name;
        let number = self.base + example.row;
        if example.id.is_empty() {
            example.id = format!("row-{number}");
        }
        let hash = |id: &str| first_bytes(&Sha256::digest(id));
        match self.ids.entry(hash(&example.id)) {
            Entry::Vacant(entry) => {
                entry.insert(number);
            }
            Entry::Occupied(entry) if is_own && *entry.get() > self.base => {
                let unit = match self.container {
                    Container::JsonLines => "line",
                    _ => "row",
                };
                let row = entry.get() - self.base;
                let expected = format!("an id of its own ({unit} {row} has this one)");
                let got = shorten(&format!("{:?}", example.id));
                return Err(fault("id", &expected, &got));
            }
            Entry::Occupied(_) => {
                example.id = format!("{}#{number}", example.id);
                self.ids.insert(hash(&example.id), number);
            }
        }
        Ok(())
    }
}

fn bad_row(file: String, row: u64, container: Container, fault: Fault) -> BadRow {
    let Fault { field, expected, got } = fault;
    BadRow { file, row, is_line: container == Container::JsonLines, field, expected, got }
}

/// True if an unread field holds worked solutions, by its name or by the end of its text.
fn looks_like_solutions(name: &str, value: &Value) -> bool {
    const NAMES: [&str; 10] = [
        "solution",
        "generation",
        "completion",
        "response",
        "rationale",
        "reasoning",
        "teacher",
        "explanation",
        "trace",
        "thought",
    ];
    /// Shorter texts are answers.
    const SHORT: usize = 40;
    match value {
        Value::Text(text) => {
            let name = name.to_lowercase();
            let is_named = NAMES.iter().any(|it| name.contains(it));
            text.len() > SHORT && (is_named || text.contains("\\boxed") || text.contains("\n####"))
        }
        Value::List(items) => items.iter().any(|it| looks_like_solutions(name, it)),
        Value::Object(turn) => turn.get("content").is_some_and(|it| looks_like_solutions(name, it)),
        _ => false,
    }
}

impl Iterator for Rows<'_> {
    type Item = Result<Row, Refusal>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let raw = loop {
            let next = match self.head.pop_front().or_else(|| self.rest.next()) {
                Some(it) => it,
                None => match self.next_file() {
                    Ok(true) => continue,
                    Ok(false) => return None,
                    Err(error) => Err(error),
                },
            };
            match next {
                Ok(raw) => break raw,
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
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
    head: &mut VecDeque<Result<RawRow, Refusal>>,
    container: Container,
    path: &Path,
) -> Result<&'static Layout, Refusal> {
    let objects = || {
        let rows = head.iter().filter_map(|it| it.as_ref().ok());
        rows.filter_map(|it| it.fields.as_ref().ok())
    };
    let mut best: Option<(&Layout, u64)> = None;
    for layout in DATASET_LAYOUTS {
        let fit = objects().map(|it| u64::from(layout.fit(it, container))).sum();
        if fit > best.map_or(0, |it| it.1) {
            best = Some((layout, fit));
        }
    }
    if let Some((layout, _)) = best {
        return Ok(layout);
    }
    let columns = objects().next().map(|row| {
        let keys: Vec<_> = row.0.iter().map(|it| it.0.as_str()).collect();
        shorten(&keys.join(", "))
    });
    // Where no row can be read, the reason of the first says more than the list of layouts.
    match head.pop_front() {
        Some(Err(error)) => Err(error),
        Some(Ok(RawRow { number, fields: Err(fault) })) => {
            let first = bad_row(path.display().to_string(), number, container, fault);
            let refusal = Refusal::input(format!("{first}; no row can be read"));
            Err(refusal.hint("`hapo list layouts` says what the rows of each layout have"))
        }
        _ => {
            let Some(found) = columns else {
                let hint = "a row has a problem and its answer: docs/guides/your-own-data.md";
                return Err(of_file(path, "expected rows, got none", hint));
            };
            let problem = format!("no known dataset layout has these columns: {found}");
            let hint = "name them: --columns problem=NAME,answer=NAME, in a recipe data.columns; `hapo list layouts` has the layouts";
            Err(of_file(path, problem, hint))
        }
    }
}
