//! Rows of CSV and TSV: the first row names the columns.
//!
//! Price: every cell is a text. An empty one is nothing, and a number is read as one where a number is
//! expected.

use super::{RawRow, damage};
use crate::refuse::of_file;
use crate::value::{Fault, Object, Value, fault};
use ::csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder};
use hapo_core::Refusal;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The rows of a reader, which may have `limit` bytes each.
pub(super) fn rows<R: Read>(reader: R, path: &Path, delimiter: u8, limit: usize) -> Rows<R> {
    let reader = Limited { reader, limit, taken: 0, place: Place::FileStart, delimiter };
    Rows {
        reader: ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .delimiter(delimiter)
            .from_reader(reader),
        path: path.to_owned(),
        names: None,
        record: ByteRecord::new(),
        row: 0,
        ended: false,
    }
}

pub(super) struct Rows<R> {
    reader: Reader<Limited<R>>,
    path: PathBuf,
    /// Of the columns, once they are known.
    names: Option<Vec<String>>,
    record: ByteRecord,
    row: u64,
    ended: bool,
}

impl<R: Read> Rows<R> {
    /// Puts the next row into the record; `false` at the end.
    fn advance(&mut self) -> Result<bool, Refusal> {
        self.reader.get_mut().taken = 0;
        let (row, path) = (self.row + 1, &self.path);
        self.reader.read_byte_record(&mut self.record).map_err(|error| match error.into_kind() {
            ErrorKind::Io(it) if it.to_string().ends_with(UNCLOSED) => {
                let hint = "close it, or write a quote inside of quotes twice";
                of_file(path, format!("row {row}: {it}"), hint)
            }
            ErrorKind::Io(it) => damage(path, row, &it),
            other => super::damaged(path, Some(row), format!("{other:?}")),
        })
    }

    fn next_row(&mut self) -> Result<Option<RawRow>, Refusal> {
        if self.names.is_none() {
            if !self.advance()? {
                return Ok(None);
            }
            let name = |it: &[u8]| {
                let name = String::from_utf8_lossy(it);
                name.trim_start_matches('\u{feff}').trim().to_owned()
            };
            self.names = Some(self.record.iter().map(name).collect());
        }
        if !self.advance()? {
            return Ok(None);
        }
        self.row += 1;
        let names = self.names.as_deref().unwrap_or_default();
        Ok(Some(RawRow { number: self.row, fields: object(names, &self.record) }))
    }
}

impl<R: Read> Iterator for Rows<R> {
    type Item = Result<RawRow, Refusal>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let row = self.next_row().transpose();
        self.ended = !matches!(row, Some(Ok(_)));
        row
    }
}

fn object(names: &[String], record: &ByteRecord) -> Result<Object, Fault> {
    if record.len() != names.len() {
        let expected = format!("{} cells, one for each column", names.len());
        return Err(fault("row", &expected, &record.len().to_string()));
    }
    let cell = |(name, cell): (&String, &[u8])| match std::str::from_utf8(cell) {
        Ok("") => Ok((name.clone(), Value::Null)),
        Ok(text) => Ok((name.clone(), Value::Text(text.to_owned()))),
        Err(error) => {
            let got = format!("an invalid byte at position {}", error.valid_up_to() + 1);
            Err(fault(name, "UTF-8", &got))
        }
    };
    names.iter().zip(record).map(cell).collect::<Result<_, _>>().map(Object)
}

const UNCLOSED: &str = "a quote is not closed";

/// A reader that stops where one row takes too many bytes, as it does after a quote that is never closed, and where the
/// file ends inside of quotes: the parser takes all that follows such a quote for one cell.
struct Limited<R> {
    reader: R,
    limit: usize,
    /// Bytes since the start of the last row, without those read ahead.
    taken: usize,
    /// Behind the last byte.
    place: Place,
    delimiter: u8,
}

/// A place in a text of cells, as the parser sees it.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    FileStart,
    CellStart,
    Bare,
    Quoted,
    QuoteInQuoted,
}

impl Place {
    fn after(self, byte: u8, delimiter: u8) -> Self {
        match (self, byte) {
            // A byte order mark.
            (Place::FileStart, 0xef | 0xbb | 0xbf) => Place::FileStart,
            (Place::Quoted, b'"') => Place::QuoteInQuoted,
            (Place::Quoted, _)
            | (Place::FileStart | Place::CellStart | Place::QuoteInQuoted, b'"') => Place::Quoted,
            (_, b'\n' | b'\r') => Place::CellStart,
            (_, it) if it == delimiter => Place::CellStart,
            _ => Place::Bare,
        }
    }
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.taken > self.limit {
            let problem = format!("a row of more than {} bytes: {UNCLOSED}", self.limit);
            return Err(io::Error::other(problem));
        }
        let count = self.reader.read(buffer)?;
        if count == 0 && self.place == Place::Quoted {
            return Err(io::Error::other(UNCLOSED));
        }
        self.taken += count;
        let delimiter = self.delimiter;
        self.place = buffer[..count].iter().fold(self.place, |it, byte| it.after(*byte, delimiter));
        Ok(count)
    }
}

/// The delimiter of a text that begins with a row of column names, where it has one.
pub(super) fn delimiter(head: &[u8], path: &Path) -> Option<u8> {
    let first = head.split(|it| *it == b'\n').next().unwrap_or_default();
    let name = path.file_name().map(|it| it.to_string_lossy().to_lowercase()).unwrap_or_default();
    let is_named = |ending: &str| {
        let name = name.trim_end_matches(".gz").trim_end_matches(".zst");
        name.ends_with(ending)
    };
    if is_named(".tsv") {
        return Some(b'\t');
    }
    let names_a_problem = || {
        let text = String::from_utf8_lossy(first).to_lowercase();
        let mut names = text.split([',', '\t', ';']);
        names.any(|it| ["problem", "question", "prompt"].contains(&it.trim().trim_matches('"')))
    };
    if !is_named(".csv") && (first.contains(&b'{') || !names_a_problem()) {
        return None;
    }
    let count = |it: u8| first.split(|byte| *byte == it).count();
    // Of equals the comma, which a file of one column has none of either.
    [b'\t', b';', b','].into_iter().max_by_key(|it| count(*it))
}
