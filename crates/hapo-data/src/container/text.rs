//! Rows of texts: lines of JSON, one JSON array, CSV and TSV. One reader cuts all three at the ends of their rows, so
//! that only the row at hand is in memory, and of a row that is too long only its length.
//!
//! Price: every cell of a CSV is a text. An empty one is nothing, and a number is read as one where a number is
//! expected.

use super::{RawRow, RawRows, damage, damaged, rows_of};
use crate::value::{Fault, Object, Value, fault, parse_row};
use crate::{refuse::of_file, row::LINE_LIMIT};
use hapo_core::Refusal;
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};

struct Pieces<R> {
    reader: R,
    path: PathBuf,
    limit: usize,
    /// Of the row at hand, from 1; 0 before the first.
    row: u64,
    buffer: Vec<u8>,
    /// Of the piece; the buffer has no more than the limit.
    length: u64,
}

impl<R: BufRead> Pieces<R> {
    fn new(reader: R, path: &Path, limit: usize) -> Self {
        Self { reader, path: path.to_owned(), limit, row: 0, buffer: Vec::new(), length: 0 }
    }

    /// Reads up to the next byte that ends a piece and gives that byte; nothing where the text ends before.
    fn next(&mut self, mut ends: impl FnMut(u8) -> bool) -> Result<Option<u8>, Refusal> {
        self.buffer.clear();
        self.length = 0;
        loop {
            let bytes = match self.reader.fill_buf() {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(damage(&self.path, Some(self.row + 1), &error)),
            };
            if bytes.is_empty() {
                return Ok(None);
            }
            let end = bytes.iter().position(|byte| ends(*byte));
            let content = end.unwrap_or(bytes.len());
            self.length += content as u64;
            if self.length <= self.limit as u64 {
                self.buffer.extend_from_slice(&bytes[..content]);
            }
            let last = end.map(|at| bytes[at]);
            self.reader.consume(content + usize::from(last.is_some()));
            if last.is_some() {
                return Ok(last);
            }
        }
    }

    fn is_too_long(&self) -> bool {
        self.length > self.limit as u64
    }

    fn is_blank(&self) -> bool {
        !self.is_too_long() && self.buffer.trim_ascii().is_empty()
    }

    /// The row of a piece; `first` allows a byte order mark before it.
    fn object(&self, unit: &str, first: bool) -> RawRow {
        let fields = if self.is_too_long() {
            let expected = format!("at most {} bytes in a {unit}", self.limit);
            Err(fault("row", &expected, &format!("{} bytes", self.length)))
        } else {
            parse_row(&self.buffer, first)
        };
        RawRow { number: self.row, fields }
    }
}

/// One JSON object per line; blank lines are passed over.
pub(crate) fn lines<'a>(reader: impl BufRead + 'a, path: &Path, limit: usize) -> RawRows<'a> {
    let mut pieces = Pieces::new(reader, path, limit);
    rows_of(move || {
        loop {
            if pieces.next(|byte| byte == b'\n')?.is_none() && pieces.length == 0 {
                return Ok(None);
            }
            pieces.row += 1;
            if !pieces.is_blank() {
                return Ok(Some(pieces.object("line", pieces.row == 1)));
            }
        }
    })
}

/// True of the beginning of one object over several lines.
pub(super) fn is_one_object(head: &[u8]) -> bool {
    let Some(end) = head.trim_ascii_start().iter().position(|byte| *byte == b'\n') else {
        return false;
    };
    let first = head.trim_ascii_start()[..end].trim_ascii();
    let read = serde_json::from_slice::<serde::de::IgnoredAny>(first);
    let is_open = matches!(first.last(), Some(b'{' | b'[' | b',' | b':'));
    is_open && read.is_err_and(|error| error.is_eof())
}

pub(super) fn one<'a>(reader: impl BufRead + 'a, path: &Path) -> RawRows<'a> {
    let mut pieces = Pieces::new(reader, path, LINE_LIMIT);
    rows_of(move || {
        pieces.next(|_| false)?;
        pieces.row = 1;
        Ok((pieces.length > 0).then(|| pieces.object("file", true)))
    })
}

pub(super) fn elements<'a>(reader: impl BufRead + 'a, path: &Path) -> RawRows<'a> {
    let (mut pieces, mut is_closed) = (Pieces::new(reader, path, LINE_LIMIT), false);
    rows_of(move || {
        if pieces.row == 0 {
            pieces.next(|byte| byte == b'[')?;
        }
        if !is_closed {
            let (mut depth, mut in_text, mut is_escaped) = (0_u64, false, false);
            let end = pieces.next(|byte| {
                if in_text {
                    in_text = is_escaped || byte != b'"';
                    is_escaped = !is_escaped && byte == b'\\';
                    return false;
                }
                match byte {
                    b'"' => in_text = true,
                    b'[' | b'{' => depth += 1,
                    b']' | b',' if depth == 0 => return true,
                    b']' | b'}' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                false
            });
            let Some(end) = end? else {
                let problem = "the JSON array ends before its closing bracket";
                return Err(damaged(&pieces.path, Some(pieces.row + 1), problem));
            };
            is_closed = end == b']';
            let is_empty_array = pieces.row == 0 && is_closed && pieces.is_blank();
            if !is_empty_array {
                pieces.row += 1;
                return Ok(Some(pieces.object("row", false)));
            }
        }
        // Reading on also shows whether a compressed file is cut.
        if pieces.next(|byte| !byte.is_ascii_whitespace())?.is_none() {
            return Ok(None);
        }
        let problem = "something follows the closing bracket of the JSON array";
        Err(damaged(&pieces.path, Some(pieces.row + 1), problem))
    })
}

/// The rows of a CSV; the first one names the columns.
pub(super) fn csv<'a>(reader: impl BufRead + 'a, path: &Path, delimiter: u8) -> RawRows<'a> {
    let mut pieces = Pieces::new(reader, path, LINE_LIMIT);
    let mut names: Option<Vec<String>> = None;
    rows_of(move || {
        loop {
            let mut place = Place::CellStart;
            let end = pieces.next(|byte| {
                place = place.after(byte, delimiter);
                place != Place::Quoted && matches!(byte, b'\n' | b'\r')
            })?;
            // All that follows a quote which is never closed is one cell.
            if pieces.is_too_long() {
                let problem = format!("a row of more than {LINE_LIMIT} bytes: {UNCLOSED}");
                return Err(unclosed(&pieces.path, pieces.row + 1, &problem));
            }
            if end.is_none() && place == Place::Quoted {
                return Err(unclosed(&pieces.path, pieces.row + 1, UNCLOSED));
            }
            if pieces.length == 0 {
                match end {
                    Some(_) => continue,
                    None => return Ok(None),
                }
            }
            let cells = cells(&pieces.buffer, delimiter);
            let Some(names) = &names else {
                let name = |cell: &Vec<u8>| String::from_utf8_lossy(cell).trim().to_owned();
                names = Some(cells.iter().map(name).collect());
                continue;
            };
            pieces.row += 1;
            return Ok(Some(RawRow { number: pieces.row, fields: object(names, cells) }));
        }
    })
}

const UNCLOSED: &str = "a quote is not closed";

fn unclosed(path: &Path, row: u64, problem: &str) -> Refusal {
    let hint = "close it, or write a quote inside of quotes twice";
    of_file(path, format!("row {row}: {problem}"), hint)
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    CellStart,
    Bare,
    Quoted,
    QuoteInQuoted,
}

impl Place {
    fn after(self, byte: u8, delimiter: u8) -> Self {
        match (self, byte) {
            (Place::Quoted, b'"') => Place::QuoteInQuoted,
            (Place::Quoted, _) | (Place::CellStart | Place::QuoteInQuoted, b'"') => Place::Quoted,
            (_, other) if other == delimiter => Place::CellStart,
            _ => Place::Bare,
        }
    }
}

/// The cells of a row. Inside of quotes two quotes are one; what follows the closing quote belongs to the cell.
fn cells(row: &[u8], delimiter: u8) -> Vec<Vec<u8>> {
    let mut cells = vec![Vec::new()];
    let mut place = Place::CellStart;
    for byte in row {
        let before = place;
        place = place.after(*byte, delimiter);
        match (before, place) {
            (_, Place::CellStart) => cells.push(Vec::new()),
            (Place::CellStart, Place::Quoted) | (_, Place::QuoteInQuoted) => {}
            _ => cells.last_mut().expect("a row has a cell").push(*byte),
        }
    }
    cells
}

fn object(names: &[String], cells: Vec<Vec<u8>>) -> Result<Object, Fault> {
    if cells.len() != names.len() {
        let expected = format!("{} cells, one for each column", names.len());
        return Err(fault("row", &expected, &cells.len().to_string()));
    }
    let cell = |(name, cell): (&String, Vec<u8>)| match String::from_utf8(cell) {
        Ok(text) if text.is_empty() => Ok((name.clone(), Value::Null)),
        Ok(text) => Ok((name.clone(), Value::Text(text))),
        Err(error) => {
            let at = error.utf8_error().valid_up_to() + 1;
            Err(fault(name, "UTF-8", &format!("an invalid byte at position {at}")))
        }
    };
    names.iter().zip(cells).map(cell).collect::<Result<_, _>>().map(Object)
}

/// The delimiter of a text that begins with a row of column names, where it has one.
pub(super) fn delimiter(head: &[u8], path: &Path) -> Option<u8> {
    let first = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase());
    let name = name.unwrap_or_default();
    let name = name.trim_end_matches(".gz").trim_end_matches(".zst");
    let ending = name.rsplit('.').next().unwrap_or_default();
    if ending == "tsv" {
        return Some(b'\t');
    }
    let names_a_problem = || {
        let text = String::from_utf8_lossy(first).to_lowercase();
        let mut names = text.split([',', '\t', ';']);
        names.any(|name| ["problem", "question", "prompt"].contains(&name.trim().trim_matches('"')))
    };
    if ending != "csv" && (first.contains(&b'{') || !names_a_problem()) {
        return None;
    }
    let count = |delimiter: &u8| first.split(|byte| byte == delimiter).count();
    // Of equals the comma, which a file of one column has none of either.
    [b'\t', b';', b','].into_iter().max_by_key(count)
}
