//! The rows of a file as JSON, without a layout.

use std::io::BufRead;
use std::path::Path;

use crate::container::{self, RawRows, lines};
use crate::row::LINE_LIMIT;
use crate::value::Object;
use hapo_core::Refusal;

/// The rows of any file as JSON objects, for a reader with other fields. Values that JSON cannot express become null,
/// numbers with more digits than a double has become texts of them. Each row is its object or its fault.
pub fn json_rows(path: &Path) -> Result<JsonRows, Refusal> {
    Ok(JsonRows { rows: container::open(path)?.rows })
}

/// The same of lines of JSON, each as soon as it has arrived; `name` is the reader's in messages.
pub fn json_lines(reader: impl BufRead + 'static, name: &str) -> JsonRows {
    JsonRows { rows: lines(reader, Path::new(name), LINE_LIMIT) }
}

/// See [`json_rows`].
pub struct JsonRows {
    rows: RawRows<'static>,
}

impl std::fmt::Debug for JsonRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JsonRows").finish_non_exhaustive()
    }
}

impl Iterator for JsonRows {
    type Item = Result<Result<serde_json::Map<String, serde_json::Value>, String>, Refusal>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = match self.rows.next()? {
            Ok(row) => row,
            Err(error) => return Some(Err(error)),
        };
        Some(Ok(row
            .fields
            .map(Object::into_json)
            .map_err(|it| format!("{}: expected {}, got {}", it.field, it.expected, it.got))))
    }
}
