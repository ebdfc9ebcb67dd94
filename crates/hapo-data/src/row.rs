//! One row of a file: an example, or its fault.

use crate::example::Example;
use std::fmt;

/// Longest line, or element of a JSON array, that is read, in bytes; a longer one is a bad row.
pub const LINE_LIMIT: usize = 16 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "nearly every row is good")]
pub enum Row {
    Good(Example),
    Bad(BadRow),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    pub file: String,
    /// From 1.
    pub row: u64,
    /// The file has lines, and `row` is the line.
    pub is_line: bool,
    /// The field, or `row` for the whole line.
    pub field: String,
    pub expected: String,
    /// The contents found, shortened.
    pub got: String,
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BadRow { file, row, is_line, field, expected, got } = self;
        let place = if *is_line { ":" } else { ": row " };
        write!(f, "{file}{place}{row}: {field}: expected {expected}, got {got}")
    }
}
