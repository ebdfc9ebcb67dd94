//! Our own layout: one JSON object per line.
//!
//! `{"id": "a-1", "problem": "1+1?", "answer": "2", "teacher": "1+1:2, \\boxed{2}", "source": "…", "level": 1,
//! "subject": "…"}`. `id` (a string or a whole number), `problem` and `answer` are required; `teacher`
//! is a string or a list of strings, without end token; `level` is a string or a number; optional fields may
//! be null. Other fields are ignored and counted. Empty lines and a byte order mark are skipped.
//!
//! Purpose: a reader that streams, says file, line, field, expected and got of every row it
//! cannot use, and is bounded in memory whatever the file holds.
//!
//! Price: a row is parsed into a tree of values before its fields are looked at, about twice the time of
//! a direct parse, which buys messages about fields and the discovery of repeated keys.

use crate::{Dataset, Error, Example, Layout, Loaded};
use serde::Serialize;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;

/// This layout's entry in [`DATASET_LAYOUTS`](crate::DATASET_LAYOUTS).
pub(crate) const LAYOUT: Layout = Layout {
    name: "jsonl",
    summary: "JSON lines: id, problem, answer, teacher?, source?, level?, subject?",
    recognises,
    read,
};

/// Longest line that is read, in bytes; a longer one is a bad row.
pub const LINE_LIMIT: usize = 16 << 20;

/// One line of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Row {
    /// A row that can be used.
    Good(Example),
    /// A row that cannot, and why.
    Bad(BadRow),
}

/// Why a row of a file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
    /// The field, or `row` for the whole line.
    pub field: String,
    /// What should be there.
    pub expected: String,
    /// What is there, shortened.
    pub got: String,
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BadRow {
            file,
            line,
            field,
            expected,
            got,
        } = self;
        write!(f, "{file}:{line}: {field}: expected {expected}, got {got}")
    }
}

/// Rows of a reader, one by one. `file` is the name used in messages; lines longer than `line_limit`
/// bytes are skipped and reported.
pub fn read_rows<R: BufRead>(reader: R, file: &str, line_limit: usize) -> Rows<R> {
    Rows {
        reader,
        file: file.to_owned(),
        line_limit,
        line: 0,
        buffer: Vec::new(),
        ids: HashMap::new(),
        ignored_fields: BTreeMap::new(),
    }
}

/// An iterator over the rows of a file; see [`read_rows`]. An error of the operating system ends the
/// use of the reader, a bad row does not.
#[derive(Debug)]
pub struct Rows<R> {
    reader: R,
    file: String,
    line_limit: usize,
    line: u64,
    buffer: Vec<u8>,
    ids: HashMap<String, u64>,
    ignored_fields: BTreeMap<String, u64>,
}

impl<R: BufRead> Iterator for Rows<R> {
    type Item = io::Result<Row>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let line = match self.next_line() {
                Ok(line) => line?,
                Err(error) => return Some(Err(error)),
            };
            let parsed = match line {
                Line::Whole if self.buffer.trim_ascii().is_empty() => continue,
                Line::Whole => self.row(),
                Line::TooLong(bytes) => Err(Fault {
                    field: "row".to_owned(),
                    expected: format!("at most {} bytes in a line", self.line_limit),
                    got: format!("{bytes} bytes"),
                }),
            };
            return Some(Ok(match parsed {
                Ok(example) => Row::Good(example),
                Err(Fault {
                    field,
                    expected,
                    got,
                }) => Row::Bad(BadRow {
                    file: self.file.clone(),
                    line: self.line,
                    field,
                    expected,
                    got,
                }),
            }));
        }
    }
}

enum Line {
    Whole,
    TooLong(u64),
}

struct Fault {
    field: String,
    expected: String,
    got: String,
}

impl<R: BufRead> Rows<R> {
    /// Fields that were ignored so far, with the number of rows that had them.
    pub fn ignored_fields(&self) -> &BTreeMap<String, u64> {
        &self.ignored_fields
    }

    /// Puts the next line into the buffer. Of a line that is too long only the beginning is kept.
    fn next_line(&mut self) -> io::Result<Option<Line>> {
        self.buffer.clear();
        let mut length = 0_u64;
        loop {
            let piece = match self.reader.fill_buf() {
                Ok(piece) => piece,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if piece.is_empty() && length == 0 {
                return Ok(None);
            }
            let end = piece.iter().position(|byte| *byte == b'\n');
            let used = end.map_or(piece.len(), |end| end + 1);
            let content = end.unwrap_or(piece.len());
            if length + content as u64 <= self.line_limit as u64 {
                self.buffer.extend_from_slice(&piece[..content]);
            }
            let finished = end.is_some() || piece.is_empty();
            length += used as u64;
            self.reader.consume(used);
            if finished {
                self.line += 1;
                let content_length = length - u64::from(end.is_some());
                let fits = content_length <= self.line_limit as u64;
                return Ok(Some(if fits {
                    Line::Whole
                } else {
                    Line::TooLong(content_length)
                }));
            }
        }
    }

    /// The example in the buffer.
    fn row(&mut self) -> Result<Example, Fault> {
        let bytes = self
            .buffer
            .strip_prefix(b"\xEF\xBB\xBF")
            .filter(|_| self.line == 1)
            .unwrap_or(&self.buffer);
        let text = std::str::from_utf8(bytes).map_err(|error| Fault {
            field: "row".to_owned(),
            expected: "UTF-8".to_owned(),
            got: format!("an invalid byte at position {}", error.valid_up_to() + 1),
        })?;
        let Fields(fields) = serde_json::from_str(text).map_err(|error| Fault {
            field: "row".to_owned(),
            expected: "one JSON object".to_owned(),
            got: if error.is_data() {
                shorten(text.trim())
            } else {
                // A row is one line; serde's "at line 1" beside the line of the file would mislead.
                let reason = error.to_string();
                let reason = reason.split(" at line ").next().unwrap_or_default();
                format!(
                    "{reason} at column {} of {}",
                    error.column(),
                    shorten(text.trim())
                )
            },
        })?;
        let (example, ignored) = example(fields)?;
        if let Some(line) = self.ids.get(&example.id) {
            return Err(Fault {
                field: "id".to_owned(),
                expected: format!("an id of its own (line {line} has this one)"),
                got: shorten(&format!("{:?}", example.id)),
            });
        }
        self.ids.insert(example.id.clone(), self.line);
        for name in ignored {
            if self.ignored_fields.len() < 64 || self.ignored_fields.contains_key(&name) {
                *self.ignored_fields.entry(name).or_default() += 1;
            }
        }
        Ok(example)
    }
}

/// The keys and values of an object in their order, repeated keys included.
struct Fields(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Fields;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    fields.push(entry);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

const KEYS: [&str; 7] = [
    "id", "problem", "answer", "teacher", "source", "level", "subject",
];

/// The example of a row, and the names of the fields that were ignored.
fn example(fields: Vec<(String, Value)>) -> Result<(Example, Vec<String>), Fault> {
    let mut known: [Option<Value>; KEYS.len()] = Default::default();
    let mut ignored = Vec::new();
    for (name, value) in fields {
        match KEYS.iter().position(|key| *key == name) {
            Some(place) if known[place].is_some() => {
                return Err(fault(KEYS[place], "the field once", "it twice"));
            }
            Some(place) => known[place] = Some(value),
            None => ignored.push(shorten(&name)),
        }
    }
    let [id, problem, answer, teacher, source, level, subject] = known;
    let example = Example {
        id: match id {
            Some(Value::Number(number)) if number.is_u64() => number.to_string(),
            Some(Value::String(text)) if !text.is_empty() => text,
            other => {
                return Err(unexpected(
                    "id",
                    "a string or a whole number",
                    other.as_ref(),
                ));
            }
        },
        problem: required("problem", problem)?,
        answer: required("answer", answer)?,
        teachers: teachers(teacher)?,
        source: optional("source", source)?,
        level: match level {
            Some(Value::Number(number)) => Some(number.to_string()),
            Some(Value::String(text)) => Some(text),
            None | Some(Value::Null) => None,
            other => return Err(unexpected("level", "a string or a number", other.as_ref())),
        },
        subject: optional("subject", subject)?,
    };
    Ok((example, ignored))
}

fn required(field: &'static str, value: Option<Value>) -> Result<String, Fault> {
    match value {
        Some(Value::String(text)) if !text.trim().is_empty() => Ok(text),
        other => Err(unexpected(
            field,
            "a string that is not empty",
            other.as_ref(),
        )),
    }
}

fn optional(field: &'static str, value: Option<Value>) -> Result<Option<String>, Fault> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        other => Err(unexpected(field, "a string", other.as_ref())),
    }
}

fn teachers(value: Option<Value>) -> Result<Vec<String>, Fault> {
    const EXPECTED: &str = "a string or a list of strings, none empty";
    let texts = match value {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(values)) => values
            .into_iter()
            .map(|value| match value {
                Value::String(text) => Ok(text),
                other => Err(unexpected("teacher", EXPECTED, Some(&other))),
            })
            .collect::<Result<_, _>>()?,
        other => return Err(unexpected("teacher", EXPECTED, other.as_ref())),
    };
    for text in &texts {
        if text.trim().is_empty() {
            return Err(fault("teacher", EXPECTED, "an empty string"));
        }
        // The template adds the end token; a second one would be trained on.
        if let Some(end) = ["<|im_end|>", "<|endoftext|>"]
            .into_iter()
            .find(|end| text.trim_end().ends_with(end))
        {
            return Err(fault(
                "teacher",
                "a solution without its end token",
                &format!("one that ends in {end}"),
            ));
        }
    }
    Ok(texts)
}

fn fault(field: &str, expected: &str, got: &str) -> Fault {
    Fault {
        field: field.to_owned(),
        expected: expected.to_owned(),
        got: got.to_owned(),
    }
}

fn unexpected(field: &str, expected: &str, got: Option<&Value>) -> Fault {
    let got = match got {
        None => "nothing".to_owned(),
        Some(Value::Array(values)) => format!("a list of {}", values.len()),
        Some(Value::Object(_)) => "an object".to_owned(),
        Some(Value::String(text)) => shorten(&format!("{text:?}")),
        Some(value) => shorten(&value.to_string()),
    };
    fault(field, expected, &got)
}

/// At most 80 characters and no control character, so that a bad row never garbles a terminal.
fn shorten(text: &str) -> String {
    let mut characters = text
        .chars()
        .map(|it| if it.is_control() { '\u{fffd}' } else { it });
    let mut short: String = characters.by_ref().take(80).collect();
    if characters.next().is_some() {
        short.push('…');
    }
    short
}

/// A file is ours when it begins with an object and one of its first lines has a problem.
fn recognises(head: &[u8]) -> bool {
    let head = head
        .strip_prefix(b"\xEF\xBB\xBF")
        .unwrap_or(head)
        .trim_ascii_start();
    head.starts_with(b"{")
        && head
            .windows(b"\"problem\"".len())
            .any(|window| window == b"\"problem\"")
}

fn read(path: &Path) -> Result<Loaded, Error> {
    let error = |source| Error::Io {
        path: path.to_owned(),
        source,
    };
    let reader = BufReader::with_capacity(1 << 16, File::open(path).map_err(error)?);
    let mut rows = read_rows(reader, &path.display().to_string(), LINE_LIMIT);
    let mut dataset = Dataset::default();
    let mut bad_rows = Vec::new();
    let mut bad_row_count = 0;
    for row in rows.by_ref() {
        match row.map_err(error)? {
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
        layout: LAYOUT.name,
        bad_rows,
        bad_row_count,
        ignored_fields: rows.ignored_fields,
    })
}

/// Writes one example as one line, fields in the order of the layout, absent ones left out.
pub fn write_row(writer: &mut impl Write, example: &Example) -> io::Result<()> {
    let fields = WrittenRow {
        id: &example.id,
        problem: &example.problem,
        answer: &example.answer,
        teacher: match &example.teachers[..] {
            [] => None,
            [teacher] => Some(WrittenTeacher::One(teacher)),
            several => Some(WrittenTeacher::Several(several)),
        },
        source: example.source.as_deref(),
        level: example.level.as_deref(),
        subject: example.subject.as_deref(),
    };
    serde_json::to_writer(&mut *writer, &fields)?;
    writer.write_all(b"\n")
}

#[derive(Serialize)]
struct WrittenRow<'a> {
    id: &'a str,
    problem: &'a str,
    answer: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    teacher: Option<WrittenTeacher<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum WrittenTeacher<'a> {
    One(&'a str),
    Several(&'a [String]),
}

/// Writes a dataset; an existing file is replaced.
pub fn write_file(path: &Path, dataset: &Dataset) -> Result<(), Error> {
    let write = || {
        let mut writer = BufWriter::new(File::create(path)?);
        for example in &dataset.examples {
            write_row(&mut writer, example)?;
        }
        writer.flush()
    };
    write().map_err(|source| Error::Io {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests;
