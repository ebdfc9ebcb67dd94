//! Problems with answers and teachers' solutions, read from files whose layout their content says.
//!
//! Purpose: one type for all layouts, and one table of layouts. A layout is a file of this crate and
//! an entry in [`DATASET_LAYOUTS`]; nobody names it, since the beginning of the file does.
//!
//! Price: bad rows do not stop the reading; the caller decides what to do with [`Loaded::bad_rows`]
//! and must not forget to.

use crate::{BadRow, Error, jsonl};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// A problem, its answer, and how teachers solve it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Example {
    /// Unique in its dataset.
    pub id: String,
    /// The text that goes into a template.
    pub problem: String,
    /// The gold answer, as the grader will read it.
    pub answer: String,
    /// The teachers' solutions, as the assistant would say them, without the end token. Often empty.
    pub teachers: Vec<String>,
    /// Where the problem comes from.
    pub source: Option<String>,
    /// How hard it is, in the words of its source.
    pub level: Option<String>,
    /// What it is about.
    pub subject: Option<String>,
}

/// Examples in the order of their file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dataset {
    /// The examples; an index into them is a prompt's number within a run.
    pub examples: Vec<Example>,
}

/// What a file held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The good rows.
    pub dataset: Dataset,
    /// Name of the layout.
    pub layout: &'static str,
    /// The first bad rows, at most 1,000 of them.
    pub bad_rows: Vec<BadRow>,
    /// How many bad rows there were.
    pub bad_row_count: u64,
    /// Fields that no part of this program reads, with the number of rows that have them: a
    /// misspelt `teacher` shows up here. At most 64 names.
    pub ignored_fields: BTreeMap<String, u64>,
}

/// A way in which problems are laid out in a file.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// Its name in `hapo list layouts` and in statistics.
    pub name: &'static str,
    /// Its keys, in one line.
    pub summary: &'static str,
    /// Whether a file that begins with these bytes (the first 256 KiB) has this layout.
    pub recognises: fn(&[u8]) -> bool,
    /// Reads the file.
    pub read: fn(&Path) -> Result<Loaded, Error>,
}

/// The layouts, in the order in which they are tried.
pub const DATASET_LAYOUTS: &[Layout] = &[jsonl::LAYOUT];

const HEAD: u64 = 256 << 10;

/// Reads a file in whatever known layout its content has.
pub fn load(path: &Path) -> Result<Loaded, Error> {
    let mut head = Vec::new();
    File::open(path)
        .and_then(|file| file.take(HEAD).read_to_end(&mut head))
        .map_err(|source| Error::Io {
            path: path.to_owned(),
            source,
        })?;
    match DATASET_LAYOUTS
        .iter()
        .find(|layout| (layout.recognises)(&head))
    {
        Some(layout) => (layout.read)(path),
        None => Err(Error::UnknownLayout {
            path: path.to_owned(),
            known: DATASET_LAYOUTS
                .iter()
                .map(|layout| format!("{} ({})", layout.name, layout.summary))
                .collect::<Vec<_>>()
                .join("; "),
        }),
    }
}

/// Reads a file in the layout of that name, for files that [`load`] cannot recognise.
pub fn load_as(path: &Path, layout: &str) -> Result<Loaded, Error> {
    match DATASET_LAYOUTS.iter().find(|known| known.name == layout) {
        Some(known) => (known.read)(path),
        None => Err(Error::UnknownName {
            kind: "layout",
            name: layout.to_owned(),
            known: DATASET_LAYOUTS
                .iter()
                .map(|known| known.name)
                .collect::<Vec<_>>()
                .join(", "),
        }),
    }
}
