//! Datasets out: our own layout, verl's and TRL's, row by row.
//!
//! Purpose: a file appears whole or not at all: it is written beside its place under another name,
//! flushed, and renamed.
//!
//! Price: a row that the layout has no place for is an error, not a loss; only further teachers, of
//! which TRL takes one, are counted and left out.

pub(crate) mod columns;
mod own;
mod trl;
mod verl;

pub use own::{write_file, write_row};

use crate::{Error, Example};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A layout that can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Our own: one JSON object per line.
    Own,
    /// verl's Parquet.
    Verl {
        /// The most teachers that a row has: one needs LUFFY's column `target`, more `target_lst` too.
        teachers: usize,
    },
    /// TRL's JSON lines: `prompt`, `solution` and, for a teacher, `completion`.
    Trl,
}

/// A dataset that is being written.
pub struct Writer {
    path: PathBuf,
    aside: PathBuf,
    sink: Sink,
    rows: u64,
    teachers_left_out: u64,
    finished: bool,
}

enum Sink {
    Own(BufWriter<File>),
    Trl(BufWriter<File>),
    Verl(Box<verl::Table>),
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer")
            .field("path", &self.path)
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Rows.
    pub rows: u64,
    /// Teachers' solutions beyond the first of their row that the layout has no place for.
    pub teachers_left_out: u64,
}

impl Writer {
    /// Begins a file beside `path`, which changes only when all is written.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn create(path: &Path, format: Format) -> Result<Self, Error> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.tmp", std::process::id()));
        let aside = path.with_file_name(name);
        let io = |source| Error::Io { path: path.to_owned(), source };
        let file = File::create(&aside).map_err(io)?;
        let sink = match format {
            Format::Own => Sink::Own(BufWriter::new(file)),
            Format::Trl => Sink::Trl(BufWriter::new(file)),
            Format::Verl { teachers } => {
                Sink::Verl(Box::new(verl::Table::new(file, teachers).map_err(io)?))
            }
        };
        Ok(Writer {
            path: path.to_owned(),
            aside,
            sink,
            rows: 0,
            teachers_left_out: 0,
            finished: false,
        })
    }

    /// Writes one row.
    ///
    /// # Errors
    /// When the disk refuses, and for a row that the layout has no place for.
    pub fn write(&mut self, example: &Example) -> Result<(), Error> {
        let unwritable = |field, problem: &str| {
            Err(Error::Unwritable {
                path: self.path.clone(),
                row: example.row,
                field,
                problem: problem.to_owned(),
            })
        };
        if example.problem.is_empty() {
            return unwritable("problem", "a document without a problem");
        }
        if example.answer.is_empty() && matches!(self.sink, Sink::Own(_)) {
            return unwritable("answer", "a row without a gold answer");
        }
        if !example.messages.is_empty() && matches!(self.sink, Sink::Own(_)) {
            return unwritable("prompt", "a dialogue of several turns");
        }
        if !example.other_answers.is_empty() && !matches!(self.sink, Sink::Trl(_)) {
            return unwritable("answer", "several gold answers");
        }
        let written = match &mut self.sink {
            Sink::Own(file) => write_row(file, example),
            Sink::Trl(file) => {
                self.teachers_left_out += (example.teachers.len() as u64).saturating_sub(1);
                trl::write_row(file, example)
            }
            Sink::Verl(table) => table.push(example),
        };
        self.rows += 1;
        written.map_err(|source| self.io(source))
    }

    /// Puts the file in its place.
    ///
    /// # Errors
    /// When the disk refuses; what was at the place before is then untouched.
    pub fn finish(mut self) -> Result<Written, Error> {
        let flushed = match &mut self.sink {
            Sink::Own(file) | Sink::Trl(file) => file.flush(),
            Sink::Verl(table) => table.close(),
        };
        flushed
            .and_then(|()| File::open(&self.aside)?.sync_all())
            .and_then(|()| fs::rename(&self.aside, &self.path))
            .map_err(|source| self.io(source))?;
        self.finished = true;
        Ok(Written { rows: self.rows, teachers_left_out: self.teachers_left_out })
    }

    fn io(&self, source: io::Error) -> Error {
        Error::Io { path: self.path.clone(), source }
    }
}

/// A file that was not finished is removed.
impl Drop for Writer {
    fn drop(&mut self) {
        if !self.finished {
            let _ = fs::remove_file(&self.aside);
        }
    }
}
