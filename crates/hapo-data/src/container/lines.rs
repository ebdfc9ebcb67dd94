//! One JSON object per line.

use super::{RawRow, damage};
use crate::value::{fault, parse_row};
use hapo_core::Refusal;
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};

/// The lines of a reader that are not empty. Of a line that is too long only the length is kept.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    reader: R,
    path: PathBuf,
    limit: usize,
    line: u64,
    buffer: Vec<u8>,
    ended: bool,
}

enum Line {
    Whole,
    TooLong(u64),
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(reader: R, path: &Path, limit: usize) -> Self {
        Lines { reader, path: path.to_owned(), limit, line: 0, buffer: Vec::new(), ended: false }
    }

    /// Puts the next line into the buffer.
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
            if length + content as u64 <= self.limit as u64 {
                self.buffer.extend_from_slice(&piece[..content]);
            }
            let finished = end.is_some() || piece.is_empty();
            length += used as u64;
            self.reader.consume(used);
            if finished {
                self.line += 1;
                let content_length = length - u64::from(end.is_some());
                let fits = content_length <= self.limit as u64;
                return Ok(Some(if fits { Line::Whole } else { Line::TooLong(content_length) }));
            }
        }
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = Result<RawRow, Refusal>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        loop {
            let fields = match self.next_line() {
                Ok(Some(Line::Whole)) if self.buffer.trim_ascii().is_empty() => continue,
                Ok(Some(Line::Whole)) => parse_row(&self.buffer, self.line == 1),
                Ok(Some(Line::TooLong(bytes))) => Err(fault(
                    "row",
                    &format!("at most {} bytes in a line", self.limit),
                    &format!("{bytes} bytes"),
                )),
                Ok(None) => return None,
                Err(error) => {
                    self.ended = true;
                    return Some(Err(damage(&self.path, self.line + 1, &error)));
                }
            };
            return Some(Ok(RawRow { number: self.line, fields }));
        }
    }
}
