//! The rows of a file as JSON, without a layout.

use std::io::BufRead;
use std::path::Path;

use crate::container::{self, RawRow, lines};
use crate::row::LINE_LIMIT;
use crate::value::Object;
use hapo_core::Refusal;

type JsonRow = Result<serde_json::Map<String, serde_json::Value>, String>;

/// The rows of any file as JSON objects, for a reader with other fields. Values that JSON cannot express become null,
/// numbers with more digits than a double has become texts of them.
pub fn json_rows(
    path: &Path,
) -> Result<impl Iterator<Item = Result<JsonRow, Refusal>> + use<>, Refusal> {
    Ok(container::open(path)?.rows.map(as_json))
}

/// The same of lines of JSON, each as soon as it has arrived; `name` is the reader's in messages.
pub fn json_lines(
    reader: impl BufRead + 'static,
    name: &str,
) -> impl Iterator<Item = Result<JsonRow, Refusal>> {
    lines(reader, Path::new(name), LINE_LIMIT).map(as_json)
}

fn as_json(row: Result<RawRow, Refusal>) -> Result<JsonRow, Refusal> {
    Ok(row?
        .fields
        .map(Object::into_json)
        .map_err(|it| format!("{}: expected {}, got {}", it.field, it.expected, it.got)))
}
