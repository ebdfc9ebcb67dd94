//! The rows of a file as JSON, without a layout.

use std::path::Path;

use crate::container::{self, Container, RawRows};
use crate::error::Error;
use crate::value::Object;

/// The rows of any file as JSON objects, for a reader with other fields. Values that JSON cannot express become null.
/// Each row is its object or its fault.
///
/// # Errors
/// When the file cannot be opened, or is damaged.
pub fn json_rows(path: &Path) -> Result<JsonRows, Error> {
    let opened = container::open(path)?;
    Ok(JsonRows { container: opened.container, compression: opened.compression, rows: opened.rows })
}

/// See [`json_rows`].
pub struct JsonRows {
    /// The file's container.
    pub container: Container,
    /// `gzip` or `zstd`, where the whole file is compressed.
    pub compression: Option<&'static str>,
    rows: RawRows<'static>,
}

impl std::fmt::Debug for JsonRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JsonRows").field("container", &self.container).finish_non_exhaustive()
    }
}

impl Iterator for JsonRows {
    type Item = Result<Result<serde_json::Map<String, serde_json::Value>, String>, Error>;

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
