//! One JSON array, element by element: only the element at hand is in memory.

use super::{RawRow, damage, damaged};
use crate::value::{fault, parse_row};
use hapo_core::Refusal;
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};

/// The elements of the array that a reader holds.
#[derive(Debug)]
pub(crate) struct Elements<R> {
    reader: R,
    path: PathBuf,
    limit: usize,
    row: u64,
    buffer: Vec<u8>,
    position: Position,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Position {
    Before,
    Inside,
    After,
    Ended,
}

/// The sign after an element's bytes.
enum End {
    Comma,
    Bracket,
    File,
}

impl<R: BufRead> Elements<R> {
    pub(crate) fn new(reader: R, path: &Path, limit: usize) -> Self {
        Elements {
            reader,
            path: path.to_owned(),
            limit,
            row: 0,
            buffer: Vec::new(),
            position: Position::Before,
        }
    }

    /// Puts the bytes up to the next comma or bracket of the array itself into the buffer; gives
    /// their number, which counts those beyond the limit too.
    fn next_element(&mut self) -> io::Result<(u64, End)> {
        self.buffer.clear();
        let (mut depth, mut in_text, mut escaped, mut length) = (0_u64, false, false, 0_u64);
        loop {
            let piece = match self.reader.fill_buf() {
                Ok(piece) => piece,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if piece.is_empty() {
                return Ok((length, End::File));
            }
            let mut end = None;
            let mut used = 0;
            for byte in piece {
                used += 1;
                if in_text {
                    in_text = escaped || *byte != b'"';
                    escaped = !escaped && *byte == b'\\';
                    continue;
                }
                match byte {
                    b'"' => in_text = true,
                    b'[' | b'{' => depth += 1,
                    b']' if depth == 0 => end = Some(End::Bracket),
                    b',' if depth == 0 => end = Some(End::Comma),
                    b']' | b'}' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                if end.is_some() {
                    break;
                }
            }
            let content = used - usize::from(end.is_some());
            length += content as u64;
            if length <= self.limit as u64 {
                self.buffer.extend_from_slice(&piece[..content]);
            }
            self.reader.consume(used);
            if let Some(end) = end {
                return Ok((length, end));
            }
        }
    }

    /// Skips up to and over the bracket that opens the array.
    fn enter(&mut self) -> io::Result<()> {
        let mut skipped = Vec::new();
        self.reader.read_until(b'[', &mut skipped).map(drop)
    }

    /// Nothing may follow the array. Reading on also shows whether a compressed file is cut.
    fn rest(&mut self) -> io::Result<Option<Result<RawRow, Refusal>>> {
        loop {
            let piece = self.reader.fill_buf()?;
            if piece.is_empty() {
                return Ok(None);
            }
            if !piece.trim_ascii().is_empty() {
                let problem = "something follows the closing bracket of the JSON array";
                let row = self.row + 1;
                return Ok(Some(Err(damaged(&self.path, Some(row), problem))));
            }
            let length = piece.len();
            self.reader.consume(length);
        }
    }

    fn element(&mut self) -> io::Result<Option<Result<RawRow, Refusal>>> {
        if self.position == Position::Before {
            self.enter()?;
            self.position = Position::Inside;
        }
        if self.position == Position::After {
            self.position = Position::Ended;
            return self.rest();
        }
        if self.position == Position::Ended {
            return Ok(None);
        }
        let (length, end) = self.next_element()?;
        self.row += 1;
        match end {
            End::Comma => {}
            End::Bracket => self.position = Position::After,
            End::File => {
                self.position = Position::Ended;
                let problem = "the JSON array ends before its closing bracket";
                return Ok(Some(Err(damaged(&self.path, Some(self.row), problem))));
            }
        }
        if self.row == 1 && self.position == Position::After && self.buffer.trim_ascii().is_empty()
        {
            return self.element();
        }
        let fields = if length > self.limit as u64 {
            let expected = format!("at most {} bytes in a row", self.limit);
            Err(fault("row", &expected, &format!("{length} bytes")))
        } else {
            parse_row(self.buffer.trim_ascii(), false)
        };
        Ok(Some(Ok(RawRow { number: self.row, fields })))
    }
}

impl<R: BufRead> Iterator for Elements<R> {
    type Item = Result<RawRow, Refusal>;

    fn next(&mut self) -> Option<Self::Item> {
        self.element().unwrap_or_else(|error| {
            self.position = Position::Ended;
            Some(Err(damage(&self.path, self.row + 1, &error)))
        })
    }
}
