//! Datasets out: our own layout, verl's and TRL's, row by row.
//!
//! Purpose: a file appears whole or not at all: it is written under another name, flushed, and renamed. Its ending
//! decides the form: JSON lines, one JSON array or Parquet. Price: a row that the layout cannot hold is an error, not a
//! loss. TRL takes one teacher: further ones are counted and left out.

pub(crate) mod columns;
mod own;
mod trl;
mod verl;

pub use own::write_row;
pub use verl::SOURCE as VERL_SOURCE;

use crate::example::Example;
use crate::refuse::{Result, of_file, unwritten};
use hapo_core::{TokenId, is_among};
use hapo_run::{Contents, NewFile};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Own,
    Verl {
        /// The most teachers that a row has: one needs LUFFY's column `target`, more `target_lst` too.
        teachers: usize,
        /// Write a column `hapo_teacher_ids`: the tokens of the admitted solution.
        tokens: bool,
    },
    /// TRL's: `prompt`, `solution` and, for a teacher, `completion`.
    Trl,
}

pub struct Writer {
    path: PathBuf,
    new: NewFile,
    format: Format,
    sink: Sink,
    written: Written,
}

enum Sink {
    Lines(BufWriter<Contents>),
    /// One JSON array, an element on each line.
    Array(BufWriter<Contents>),
    Table(Box<columns::Table<Contents>>),
}

/// Endings of names that ask for another form.
const OTHERS: &str = "csv tsv arrow feather gz zst xlsx txt";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    pub rows: u64,
    /// Teachers' solutions beyond the first of their row that the layout has no place for.
    pub teachers_left_out: u64,
    /// System texts that the layout has no place for.
    pub systems_left_out: u64,
    /// Rows without a source, which in verl's layout have [`VERL_SOURCE`] instead.
    pub without_source: u64,
}

impl Writer {
    /// Begins a file beside `path`, which changes only when all is written.
    pub fn create(path: &Path, format: Format) -> Result<Self> {
        let io = |source| unwritten(path, source);
        let ending = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
        if is_among(OTHERS, &ending) {
            let problem = "expected a name that ends in .jsonl, .json or .parquet";
            return Err(of_file(path, problem, "the ending says how the rows are written"));
        }
        let (new, file) = NewFile::create(path).map_err(io)?;
        let sink = match (ending.as_str(), format) {
            ("json", _) => Sink::Array(BufWriter::new(file)),
            ("jsonl" | "ndjson", _) => Sink::Lines(BufWriter::new(file)),
            (other, _)
                if matches!(other, "parquet" | "pq") || matches!(format, Format::Verl { .. }) =>
            {
                let schema = match format {
                    Format::Own => own::SCHEMA.to_owned(),
                    Format::Trl => trl::SCHEMA.to_owned(),
                    Format::Verl { teachers, tokens } => verl::schema(teachers, tokens),
                };
                let table = columns::Table::new(file, &schema, columns::Compression::SNAPPY);
                Sink::Table(Box::new(table.map_err(|it| io(it.into()))?))
            }
            _ => Sink::Lines(BufWriter::new(file)),
        };
        Ok(Writer { path: path.to_owned(), new, format, sink, written: Written::default() })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.written.rows == 0
    }

    pub fn write(&mut self, example: &Example) -> Result<()> {
        self.write_with(example, None)
    }

    /// Writes one row, and the tokens of its admitted solution where the layout has a column for them.
    pub fn write_with(&mut self, example: &Example, solution: Option<&[TokenId]>) -> Result<()> {
        let (is_own, is_table) = (self.format == Format::Own, matches!(self.sink, Sink::Table(_)));
        let holds_several = matches!(self.format, Format::Trl | Format::Own) && !is_table;
        let unwritable = [
            ("problem", "a document without a problem", example.problem.is_empty()),
            ("answer", "a row without a gold answer", is_own && example.answer.is_empty()),
            ("prompt", "a dialogue of several turns", is_own && !example.messages.is_empty()),
            ("answer", "several gold answers", !example.other_answers.is_empty() && !holds_several),
        ];
        if let Some((field, found, _)) = unwritable.into_iter().find(|it| it.2) {
            let problem =
                format!("row {}: {field}: {found} has no place in this layout", example.row);
            let hint = "`hapo data check --drop-bad` leaves bad rows out";
            return Err(of_file(&self.path, problem, hint));
        }
        let mut line = Vec::new();
        let written = match self.format {
            Format::Own => {
                self.written.systems_left_out += u64::from(example.system.is_some());
                write_row(&mut line, example)
            }
            Format::Trl => {
                self.written.teachers_left_out += (example.teachers.len() as u64).saturating_sub(1);
                writeln!(line, "{}", trl::row(example))
            }
            Format::Verl { teachers, tokens } => {
                self.written.without_source += u64::from(example.source.is_none());
                let solution = tokens.then(|| solution.unwrap_or_default());
                writeln!(line, "{}", verl::row(example, self.written.rows, teachers, solution))
            }
        };
        let written = written.and_then(|()| match &mut self.sink {
            Sink::Lines(file) => file.write_all(&line),
            Sink::Array(file) => {
                file.write_all(if self.written.rows == 0 { b"[\n" } else { b",\n" })?;
                file.write_all(line.trim_ascii_end())
            }
            Sink::Table(table) => Ok(table.push(&columns::row(&line)?)?),
        });
        self.written.rows += 1;
        written.map_err(|source| unwritten(&self.path, source))
    }

    /// Puts the file in its place; where the disk refuses, what was at the place before is untouched.
    pub fn finish(mut self) -> Result<Written> {
        let flushed = match &mut self.sink {
            Sink::Lines(file) => file.flush(),
            Sink::Array(file) => {
                let end: &[u8] = if self.written.rows == 0 { b"[]\n" } else { b"\n]\n" };
                file.write_all(end).and_then(|()| file.flush())
            }
            Sink::Table(table) => table.close().map_err(io::Error::from),
        };
        let in_place = flushed.and_then(|()| self.new.finish());
        in_place.map_err(|source| unwritten(&self.path, source))?;
        Ok(self.written)
    }
}
