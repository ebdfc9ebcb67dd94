//! Problems with answers and teachers' solutions, read from files whose content says what they are.
//!
//! Purpose: one type for all layouts and all containers, row by row: [`open`] gives the rows of a file
//! of any size, [`load`] puts them into memory.
//!
//! Price: bad rows do not stop the reading; the caller decides what to do with [`Loaded::bad_rows`]
//! and must not forget to. Every row's id is remembered by its hash, 24 bytes each.

use crate::container::{self, Container, Lines, Opened, RawRow, RawRows};
use crate::layouts::{self, DATASET_LAYOUTS, Layout};
use crate::value::{Fault, Object, fault, shorten};
use crate::{BadRow, Error, Message, PromptTemplate, Row};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

/// A problem, its answer, and how teachers solve it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Example {
    /// Unique in its dataset.
    pub id: String,
    /// The text that goes into a template.
    pub problem: String,
    /// The gold answer, as the grader will read it. Empty where the file has none.
    pub answer: String,
    /// Further gold answers of which any counts as well; see [`Example::golds`]. Nearly always empty.
    pub other_answers: Vec<String>,
    /// The teachers' solutions, as the assistant would say them, without the end token. Often empty.
    pub teachers: Vec<String>,
    /// Where the problem comes from.
    pub source: Option<String>,
    /// How hard it is, in the words of its source.
    pub level: Option<String>,
    /// What it is about.
    pub subject: Option<String>,
    /// The system's text that the file puts before the problem. Templates bring their own.
    pub system: Option<String>,
    /// The prompt as a dialogue, where it is more than a system's text and one turn of the user.
    pub messages: Vec<Message>,
    /// The whole prompt, where the file holds it with a template already put around the problem.
    pub rendered: Option<String>,
    /// Where it stands in its file: the line or row, from 1. 0 for what comes from no file.
    pub row: u64,
    /// Further rows of the file that ask and answer the same: evaluation sets hold 32 copies of a
    /// problem where avg@32 is to be measured.
    pub copies: u32,
}

impl Example {
    /// k of avg@k: how often the file has this problem.
    pub fn k(&self) -> u32 {
        self.copies + 1
    }

    /// The gold answers, any of which counts.
    pub fn golds(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.answer.as_str()).chain(self.other_answers.iter().map(String::as_str))
    }
}

/// What a prompt is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptText<'a> {
    /// A problem; the template goes around it.
    Problem(&'a str),
    /// The whole prompt.
    Whole(&'a str),
    /// Several turns; the model's own template goes around them.
    Turns(&'a [Message]),
}

/// What the prompt of an example is made from under a template. A prompt that its file holds with a
/// template already around it is taken whole under the template `none`; under any other template it
/// must be, but for white space at its end, what that template makes of the problem. A dialogue of
/// several turns needs the model's own template.
///
/// # Errors
/// When the prompt is rendered with another template, is a dialogue that the template has no place for, or
/// is missing.
pub fn prompt_text<'a>(
    example: &'a Example,
    template: &PromptTemplate,
) -> Result<PromptText<'a>, Error> {
    let refuse = |problem: String| {
        Err(Error::Prompt {
            row: example.row,
            id: example.id.clone(),
            problem,
        })
    };
    let name = template.name();
    if let Some(whole) = &example.rendered {
        if name == "none" {
            return Ok(PromptText::Whole(whole));
        }
        if template.render(&example.problem)?.trim_end() != whole.trim_end() {
            return refuse(format!(
                "the prompt is already rendered, and not with template `{name}`"
            ));
        }
    } else if !example.messages.is_empty() {
        if let PromptTemplate::Chat(_) = template {
            return Ok(PromptText::Turns(&example.messages));
        }
        return refuse(format!(
            "the prompt is a dialogue of {} turns, for which template `{name}` has no place",
            example.messages.len()
        ));
    } else if example.problem.is_empty() {
        return refuse("a document without a problem".to_owned());
    }
    Ok(PromptText::Problem(&example.problem))
}

/// Examples in the order of their file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dataset {
    /// The examples; an index into them is a prompt's number within a run.
    pub examples: Vec<Example>,
}

impl Dataset {
    /// The same for prompts that end like this: where they end in `<think>\n`, a teacher's solution does
    /// not begin with it once more.
    pub fn after_prompts_ending(&self, end: &str) -> Cow<'_, Dataset> {
        const OPENING: &str = "<think>\n";
        let repeats = |it: &String| it.starts_with(OPENING);
        if !end.ends_with(OPENING)
            || !self
                .examples
                .iter()
                .any(|it| it.teachers.iter().any(repeats))
        {
            return Cow::Borrowed(self);
        }
        let mut dataset = self.clone();
        for teacher in dataset.examples.iter_mut().flat_map(|it| &mut it.teachers) {
            if repeats(teacher) {
                teacher.drain(..OPENING.len());
            }
        }
        Cow::Owned(dataset)
    }
}

/// What a file held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The good rows. Rows that ask and answer the same are one example with its
    /// [`copies`](Example::copies), except in our own layout, where each has an id of its own.
    pub dataset: Dataset,
    /// Name of the layout.
    pub layout: &'static str,
    /// What the file is made of.
    pub container: Container,
    /// The first bad rows, at most 1,000 of them.
    pub bad_rows: Vec<BadRow>,
    /// How many bad rows there were.
    pub bad_row_count: u64,
    /// Fields that no part of this program reads, with the number of rows that have them: a
    /// misspelt `teacher` shows up here. At most 64 names.
    pub ignored_fields: BTreeMap<String, u64>,
}

/// Rows that are looked at to find the layout, and their bytes.
const HEAD_ROWS: usize = 64;

/// Opens a file in whatever known container and layout its content has.
///
/// # Errors
/// When it cannot be opened, is damaged, or has no known layout.
pub fn open(path: &Path) -> Result<Rows<'static>, Error> {
    Rows::begin(container::open(path)?, path, None)
}

/// Opens what a reader gives, standard input for instance; `path` is its name in messages. Parquet,
/// which is read from its end, is put aside into a temporary file.
///
/// # Errors
/// Those of [`open`].
pub fn open_reader(reader: impl Read + 'static, path: &Path) -> Result<Rows<'static>, Error> {
    Rows::begin(container::open_reader(reader, path)?, path, None)
}

/// The rows of any file as JSON objects, for who looks for fields of another kind: whatever a container
/// holds that JSON has no word for is null. Each comes as its object or as what is wrong with it.
///
/// # Errors
/// When the file cannot be opened, or is damaged.
pub fn json_rows(path: &Path) -> Result<JsonRows, Error> {
    let opened = container::open(path)?;
    Ok(JsonRows {
        container: opened.container,
        compression: opened.compression,
        rows: opened.rows,
    })
}

/// See [`json_rows`].
pub struct JsonRows {
    /// What the file is made of.
    pub container: Container,
    /// `gzip` or `zstd`, where the whole file is compressed.
    pub compression: Option<&'static str>,
    rows: RawRows<'static>,
}

impl std::fmt::Debug for JsonRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JsonRows")
            .field("container", &self.container)
            .finish_non_exhaustive()
    }
}

impl Iterator for JsonRows {
    type Item = Result<Result<serde_json::Map<String, serde_json::Value>, String>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = match self.rows.next()? {
            Ok(row) => row,
            Err(error) => return Some(Err(error)),
        };
        Some(Ok(row.fields.map(Object::into_json).map_err(|it| {
            format!("{}: expected {}, got {}", it.field, it.expected, it.got)
        })))
    }
}

/// Rows of our own layout out of lines. `file` is the name used in messages; lines longer than
/// `line_limit` bytes are skipped and reported.
pub fn read_rows<'a>(reader: impl BufRead + 'a, file: &str, line_limit: usize) -> Rows<'a> {
    let path = PathBuf::from(file);
    let lines = Lines::new(reader, &path, line_limit);
    Rows::new(
        &path,
        &layouts::OWN,
        Container::JsonLines,
        None,
        VecDeque::new(),
        Box::new(lines),
    )
}

/// Reads a whole file into memory.
///
/// # Errors
/// Those of [`open`], and damage found on the way. Bad rows are no errors.
pub fn load(path: &Path) -> Result<Loaded, Error> {
    collect(open(path)?)
}

/// Reads a file in the layout of that name, for files that [`load`] cannot recognise.
///
/// # Errors
/// Those of [`load`], and a name that no layout has.
pub fn load_as(path: &Path, layout: &str) -> Result<Loaded, Error> {
    let Some(layout) = DATASET_LAYOUTS.iter().find(|known| known.name == layout) else {
        return Err(Error::UnknownName {
            kind: "layout",
            name: layout.to_owned(),
            known: DATASET_LAYOUTS
                .iter()
                .map(|known| known.name)
                .collect::<Vec<_>>()
                .join(", "),
        });
    };
    collect(Rows::begin(container::open(path)?, path, Some(layout))?)
}

fn collect(mut rows: Rows<'_>) -> Result<Loaded, Error> {
    let mut dataset = Dataset::default();
    let mut bad_rows = Vec::new();
    let mut bad_row_count = 0;
    let mut seen: HashMap<u128, usize> = HashMap::new();
    let groups = rows.layout.name != layouts::OWN.name;
    for row in rows.by_ref() {
        match row? {
            Row::Good(example) if groups => match seen.entry(question_hash(&example)) {
                Entry::Vacant(place) => {
                    place.insert(dataset.examples.len());
                    dataset.examples.push(example);
                }
                Entry::Occupied(place) => {
                    let first: &mut Example = &mut dataset.examples[*place.get()];
                    first.copies += 1;
                    for solution in example.teachers {
                        if !first.teachers.contains(&solution) {
                            first.teachers.push(solution);
                        }
                    }
                }
            },
            Row::Good(example) => dataset.examples.push(example),
            Row::Bad(bad) => {
                bad_row_count += 1;
                if bad_rows.len() < 1000 {
                    bad_rows.push(bad);
                }
            }
        }
    }
    Ok(Loaded {
        dataset,
        layout: rows.layout.name,
        container: rows.container,
        bad_rows,
        bad_row_count,
        ignored_fields: rows.ignored_fields,
    })
}

/// A hash of all that is asked and answered: two rows with the same one are copies.
pub fn question_hash(example: &Example) -> u128 {
    let mut hash = Sha256::new();
    let mut part = |text: &str| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    };
    part(&example.problem);
    part(&example.answer);
    for it in &example.other_answers {
        part(it);
    }
    part(example.source.as_deref().unwrap_or_default());
    part(example.system.as_deref().unwrap_or_default());
    part(example.rendered.as_deref().unwrap_or_default());
    for it in &example.messages {
        part(&it.role);
        part(&it.content);
    }
    // A document without a problem is its own question.
    if example.problem.is_empty() {
        for it in &example.teachers {
            part(it);
        }
    }
    first_bytes(&hash.finalize())
}

fn first_bytes(digest: &[u8]) -> u128 {
    let first: [u8; 16] = digest[..16].try_into().expect("a digest has 32 bytes");
    u128::from_le_bytes(first)
}

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
    fn new(
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
    fn begin(
        opened: Opened,
        path: &Path,
        layout: Option<&'static Layout>,
    ) -> Result<Rows<'static>, Error> {
        let Opened {
            container,
            compression,
            mut rows,
        } = opened;
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

    /// A bad row of this file that someone else found bad: a gold that no grader can read.
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
        for (place, (name, _)) in fields.0.iter().enumerate() {
            let is_known = keys.contains(&name.as_str());
            if is_known && fields.0[..place].iter().any(|it| it.0 == *name) {
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

    /// An id belongs to one row. Rows of others that bring none, or one that was there, get the
    /// number of their row.
    fn set_id(&mut self, example: &mut Example) -> Result<(), Fault> {
        let is_own = self.layout.name == layouts::OWN.name;
        if example.id.is_empty() {
            example.id = format!("row-{}", example.row);
        }
        let hash = |id: &str| first_bytes(&Sha256::digest(id));
        match self.ids.entry(hash(&example.id)) {
            Entry::Vacant(place) => {
                place.insert(example.row);
            }
            Entry::Occupied(place) if is_own => {
                let unit = match self.container {
                    Container::JsonLines => "line",
                    _ => "row",
                };
                let expected = format!("an id of its own ({unit} {} has this one)", place.get());
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
        let fit = objects()
            .map(|it| u64::from((layout.fit)(it, container)))
            .sum();
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
        Some(Ok(RawRow {
            number,
            fields: Err(fault),
        })) => Err(Error::NoRows {
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
