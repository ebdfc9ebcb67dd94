//! Rows of a Parquet file as JSON objects, a batch at a time.

use std::io::Read;
use std::path::Path;

use anyhow::Result;
use parquet::file::reader::SerializedFileReader;
use parquet::record::reader::RowIter;
use serde_json::{Map, Value};

use crate::commands::grade::{Row, open};
use crate::failure::bad_input;

/// Whether a file begins as Parquet files do.
pub(crate) fn is_parquet(file: &Path) -> Result<bool> {
    let mut head = [0; 4];
    Ok(open(file)?.read_exact(&mut head).is_ok() && &head == b"PAR1")
}

/// Batches of at most `size` rows. A row that the reader refuses ends the file: what comes after it cannot be found.
pub(crate) fn read(file: &Path, size: usize) -> Result<impl Iterator<Item = Result<Vec<Row>>>> {
    let place = file.display().to_string();
    let damaged = move |it: parquet::errors::ParquetError| {
        bad_input(
            format!("{place}: {it}"),
            "the file is damaged or of a kind that is not read",
        )
    };
    let reader = SerializedFileReader::new(open(file)?).map_err(&damaged)?;
    let mut rows = RowIter::from_file_into(Box::new(reader));
    Ok(std::iter::from_fn(move || {
        let mut batch = Vec::new();
        while batch.len() < size {
            match rows.next() {
                Some(Ok(row)) => batch.push(object(row.to_json_value())),
                Some(Err(it)) => return Some(Err(damaged(it))),
                None => break,
            }
        }
        (!batch.is_empty()).then_some(Ok(batch))
    }))
}

fn object(value: Value) -> Result<Map<String, Value>, String> {
    match value {
        Value::Object(it) => Ok(it),
        other => Err(format!("expected an object, got {other}")),
    }
}
