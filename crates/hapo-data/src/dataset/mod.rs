//! Problems with answers and teachers' solutions, read from files that are recognised by content.
//!
//! Purpose: one type for all layouts and all containers, row by row: [`open_all`] gives the rows of a file of any size,
//! [`load`] puts them into memory. Price: bad rows do not stop the reading; the caller decides what to do with
//! [`Loaded::bad_rows`] and must not forget to. Every row's id is remembered by its hash: some 50 bytes a row, in a
//! table that doubles as it fills.

mod reading;
mod rows;
mod sources;
mod unread;

use crate::container::{self, Container, RawRow, lines};
use crate::example::{Example, THINK, THOUGHT};
use crate::layouts::{self, NamedColumns};
use crate::row::{BadRow, LINE_LIMIT, Row};
use crate::{refuse::Result, template::PromptTemplate, value::Object};
use sha2::{Digest, Sha256};
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};
use std::{borrow::Cow, collections::HashMap, collections::hash_map::Entry};

pub use reading::{Only, Reading};
pub use rows::Rows;
pub use sources::data_files;
pub use unread::Unread;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dataset {
    /// The examples; an index into them is a prompt's number within a run.
    pub examples: Vec<Example>,
}

impl Dataset {
    /// The same for a template's prompts. Thoughts of solutions stand in the tags that the model's own template writes,
    /// and where a prompt ends in `<think>` and a line break, a solution does not begin with it once more.
    pub fn under(&self, template: &PromptTemplate) -> Result<Cow<'_, Dataset>> {
        let thinks = |it: &String| it.starts_with(THINK);
        if !self.examples.iter().any(|it| it.teachers.iter().any(thinks)) {
            return Ok(Cow::Borrowed(self));
        }
        let tags = match template {
            PromptTemplate::Chat(chat) => chat.template.thought_tags()?,
            PromptTemplate::Named(_) => None,
        };
        let opens = template.render("a problem")?.ends_with(THINK);
        let mut dataset = self.clone();
        let teachers = dataset.examples.iter_mut().flat_map(|it| &mut it.teachers);
        for teacher in teachers.filter(|it| thinks(it)) {
            let rest = teacher.split_off(THINK.len());
            *teacher = match (&tags, rest.split_once(THOUGHT)) {
                (Some((open, close)), Some((thought, text))) => {
                    [open, thought, close, text].concat()
                }
                _ if opens => rest,
                _ => [THINK, &rest].concat(),
            };
        }
        Ok(Cow::Owned(dataset))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The good rows. Rows that ask and answer the same are one example with its
    /// [`copies`](Example::copies), except in the native layout, where each has an id of its own.
    pub dataset: Dataset,
    pub layout: &'static str,
    pub container: Container,
    /// The first bad rows, at most 1,000 of them.
    pub bad_rows: Vec<BadRow>,
    /// How many bad rows there were.
    pub bad_row_count: u64,
    pub named_columns: NamedColumns,
    /// Fields that no part of this program reads.
    pub unread: Unread,
}

/// Opens data sets one after the other, as the user says that they are read, in whatever known containers and layouts
/// their content has: each a file, a folder as `datasets` and the hub leave them, or a pattern of file names.
pub fn open_all(paths: &[PathBuf], reading: &Reading) -> Result<Rows<'static>> {
    let mut files = Vec::new();
    for it in paths {
        files.extend(data_files(it)?);
    }
    if let Some(columns) = &reading.columns {
        columns.check(false)?;
    }
    Rows::of_files(files, reading)
}

/// Opens a reader; `path` is its name in messages. Parquet, which is read from its end, is copied into a temporary file.
pub fn open_reader(reader: impl Read + 'static, path: &Path) -> Result<Rows<'static>> {
    Rows::begin(container::open_reader(reader, path)?, path, &Reading::default())
}

/// Reads a whole file into memory, as [`load_rows`] does.
pub fn load(path: &Path) -> Result<Loaded> {
    load_rows(open_all(&[path.to_owned()], &Reading::default())?)
}

/// Reads rows whole into memory. Damage found on the way is an error, bad rows are none.
pub fn load_rows(mut rows: Rows<'_>) -> Result<Loaded> {
    let mut dataset = Dataset::default();
    let mut bad_rows = Vec::new();
    let mut bad_row_count = 0;
    let mut seen: HashMap<u128, usize> = HashMap::new();
    let groups = rows.layout.name != layouts::OWN.name;
    for row in rows.by_ref() {
        match row? {
            Row::Good(example) if groups => match seen.entry(question_hash(&example)) {
                Entry::Vacant(entry) => {
                    entry.insert(dataset.examples.len());
                    dataset.examples.push(example);
                }
                Entry::Occupied(entry) => {
                    let first: &mut Example = &mut dataset.examples[*entry.get()];
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
        named_columns: rows.named_columns.clone(),
        unread: rows.unread.clone(),
    })
}

/// A hash of question and answer: two rows with the same one are copies.
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

pub(super) fn first_bytes(digest: &[u8]) -> u128 {
    let first: [u8; 16] = digest[..16].try_into().expect("a digest has 32 bytes");
    u128::from_le_bytes(first)
}

/// A row of any layout, or its fault.
type JsonRow = Result<serde_json::Map<String, serde_json::Value>, String>;

/// The rows of any file as JSON objects, for a reader with other fields. Values that JSON cannot express become null,
/// numbers with more digits than a double has become texts of them.
pub fn json_rows(path: &Path) -> Result<impl Iterator<Item = Result<JsonRow>> + use<>> {
    Ok(container::open(path)?.rows.map(as_json))
}

/// The same of lines of JSON, each as soon as it has arrived; `name` is the reader's in messages.
pub fn json_lines(
    reader: impl BufRead + 'static,
    name: &str,
) -> impl Iterator<Item = Result<JsonRow>> {
    lines(reader, Path::new(name), LINE_LIMIT).map(as_json)
}

fn as_json(row: Result<RawRow>) -> Result<JsonRow> {
    Ok(row?
        .fields
        .map(Object::into_json)
        .map_err(|it| format!("{}: expected {}, got {}", it.field, it.expected, it.got)))
}
