//! Parquet, row by row: one page of each column is in memory at a time.
//!
//! Purpose: the Parquet crate reads. Before that, this module checks the footer and every page header, because that
//! crate reserves memory for a header's claims and recurses into a schema. A claim that the file's own bytes cannot
//! support is an error that names the column.
//!
//! A page with a checksum is compared with it.
//!
//! Price: the headers are read twice. Brotli and delta encodings, whose claims lie inside the compressed bytes, are
//! refused.

use super::guard::fenced;
use super::thrift::{self, Thrift};
use super::{Failure, RawRow, RawRows, broken, damaged, read_up_to};
use crate::value::{Object, Value};
use hapo_core::Refusal;
use parquet::file::reader::SerializedFileReader;
use parquet::record::Field;
use parquet::record::reader::RowIter;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// The bytes at both ends of a Parquet file.
pub(super) const MAGIC: &[u8] = b"PAR1";

/// Longest footer that is read, in bytes.
const FOOTER_LIMIT: u64 = 64 << 20;

/// Groups in groups of a schema.
const NESTING: usize = 32;

/// The rows of a file.
pub(super) fn rows(mut file: File, path: &Path) -> Result<RawRows<'static>, Refusal> {
    check(&mut file).map_err(|fault| match fault {
        Failure::Io(source) => Refusal::io("read", path)(source),
        Failure::Damaged(problem) => damaged(path, None, problem),
    })?;
    let opened = fenced(|| {
        SerializedFileReader::new(file).map(Box::new).map(|it| RowIter::from_file_into(it))
    });
    let iterator = flatten(opened).map_err(|it| damaged(path, None, it))?;
    Ok(Box::new(Rows { iterator: Some(iterator), path: path.to_owned(), row: 0 }))
}

struct Rows {
    iterator: Option<RowIter<'static>>,
    path: PathBuf,
    row: u64,
}

impl Iterator for Rows {
    type Item = Result<RawRow, Refusal>;

    fn next(&mut self) -> Option<Self::Item> {
        let iterator = self.iterator.as_mut()?;
        self.row += 1;
        match flatten(fenced(|| iterator.next().transpose())) {
            Ok(row) => Some(Ok(RawRow { number: self.row, fields: Ok(object(row?)) })),
            Err(problem) => {
                self.iterator = None;
                Some(Err(damaged(&self.path, Some(self.row), problem)))
            }
        }
    }
}

fn flatten<T>(read: Result<parquet::errors::Result<T>, String>) -> Result<T, String> {
    read.and_then(|it| it.map_err(|it| it.to_string()))
}

fn object(row: parquet::record::Row) -> Object {
    let fields = row.into_columns().into_iter();
    Object(fields.map(|(name, it)| (name, value(it))).collect())
}

fn value(field: Field) -> Value {
    match field {
        Field::Null => Value::Null,
        Field::Bool(it) => Value::Bool(it),
        Field::Byte(it) => Value::int(it),
        Field::Short(it) => Value::int(it),
        Field::Int(it) => Value::int(it),
        Field::Long(it) => Value::int(it),
        Field::UByte(it) => Value::int(it),
        Field::UShort(it) => Value::int(it),
        Field::UInt(it) => Value::int(it),
        Field::ULong(it) => Value::int(it),
        Field::Float16(it) => Value::float(it),
        Field::Float(it) => Value::float(it),
        Field::Double(it) => Value::float(it),
        Field::Str(it) => Value::Text(it),
        Field::Bytes(it) => match std::str::from_utf8(it.data()) {
            Ok(text) => Value::Text(text.to_owned()),
            Err(_) => Value::Other("bytes that are no text"),
        },
        Field::Group(row) => Value::Object(object(row)),
        Field::ListInternal(list) => {
            Value::List(list.elements().iter().cloned().map(value).collect())
        }
        Field::Decimal(ref it) if (0..=it.precision()).contains(&it.scale()) => {
            Value::Number(field.to_string())
        }
        Field::Decimal(_) => Value::Other("a decimal whose point lies outside its digits"),
        Field::MapInternal(_) => Value::Other("a map"),
        Field::Date(_)
        | Field::TimeMillis(_)
        | Field::TimeMicros(_)
        | Field::TimestampMillis(_)
        | Field::TimestampMicros(_) => Value::Other("a date or a time"),
    }
}

/// Looks at everything that the file claims about its sizes.
fn check(file: &mut File) -> Result<(), Failure> {
    let length = file.seek(SeekFrom::End(0))?;
    if length < 12 {
        return broken("a Parquet file has 12 bytes at least");
    }
    let mut tail = [0; 8];
    read_at(file, length - 8, &mut tail)?;
    if &tail[4..] != MAGIC {
        return broken("the file does not end as Parquet files do: it is cut");
    }
    let footer_length = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
    if footer_length > (length - 8).min(FOOTER_LIMIT) {
        return broken(format!("a footer of {footer_length} bytes cannot be"));
    }
    let mut footer = vec![0; footer_length as usize];
    read_at(file, length - 8 - footer_length, &mut footer)?;
    let (footer, _) = thrift::structure(&footer)
        .map_err(|it| Failure::Damaged(format!("the footer cannot be read: {it}")))?;
    check_schema(footer.list(2).unwrap_or_default())?;
    let mut n_values_of_group = Vec::new();
    for (number, group) in footer.list(4).unwrap_or_default().iter().enumerate() {
        let columns = group.list(1).unwrap_or_default();
        n_values_of_group.clear();
        for (column, chunk) in columns.iter().enumerate() {
            let Some(chunk) = chunk.field(3) else {
                return broken(format!("row group {number}, column {column}: no metadata"));
            };
            check_pages(file, chunk, length).map_err(|it| match it {
                Failure::Damaged(it) => Failure::Damaged(format!(
                    "row group {}, column {}: {it}",
                    number + 1,
                    column + 1
                )),
                io @ Failure::Io(_) => io,
            })?;
            n_values_of_group.push(chunk.int(5).unwrap_or(0));
        }
        let n_rows = group.int(3).unwrap_or(-1);
        // A column has a value, if only a null, for every row.
        if n_rows < 0 || n_values_of_group.iter().any(|it| *it < n_rows) {
            return broken(format!("row group {}: {n_rows} rows cannot be", number + 1));
        }
    }
    Ok(())
}

/// Checks the tree of the schema's elements: not too deep, not cut, and with a column.
fn check_schema(elements: &[Thrift]) -> Result<(), Failure> {
    let mut open: Vec<i64> = Vec::new();
    for (number, element) in elements.iter().enumerate() {
        while open.last() == Some(&0) {
            open.pop();
        }
        match open.last_mut() {
            Some(left) => *left -= 1,
            None if number == 0 => {}
            None => return broken("the schema has columns outside its root"),
        }
        let is_leaf = element.field(1).is_some();
        let children = element.int(5).unwrap_or(0);
        if is_leaf {
            continue;
        }
        if children < 1 || children > elements.len() as i64 {
            return broken(format!("a group of {children} columns cannot be"));
        }
        open.push(children);
        if open.len() > NESTING {
            return broken("the schema is nested too deeply");
        }
    }
    if elements.len() < 2 || open.iter().any(|it| *it != 0) {
        return broken("the schema is incomplete");
    }
    Ok(())
}

/// Walks the page headers of a column chunk.
fn check_pages(file: &mut File, chunk: &Thrift, file_length: u64) -> Result<(), Failure> {
    let offset = |id| chunk.int(id).map(u64::try_from);
    let (Some(Ok(start)), Some(Ok(size))) = (offset(11).or(offset(9)), offset(7)) else {
        return broken("no place in the file");
    };
    let Some(end) = start.checked_add(size).filter(|it| *it <= file_length) else {
        return broken("it lies beyond the end of the file");
    };
    let codec = chunk.int(4).unwrap_or(0);
    if codec == 4 {
        return broken("write the file with snappy or zstd: Brotli is not read");
    }
    let mut place = start;
    let mut header = Vec::new();
    while place < end {
        // Most headers are short; those with statistics of long texts are not.
        let mut parsed = Err("");
        for room in [256, 1 << 14, 1 << 20] {
            header.resize((end - place).min(room) as usize, 0);
            read_at(file, place, &mut header)?;
            parsed = thrift::structure(&header);
            if parsed.is_ok() {
                break;
            }
        }
        let (page, header_length) =
            parsed.map_err(|it| Failure::Damaged(format!("a page header cannot be read: {it}")))?;
        let compressed = page.int(3).unwrap_or(-1);
        let uncompressed = page.int(2).unwrap_or(-1);
        let body = place + header_length as u64;
        if compressed < 0 || compressed as u64 > end - body {
            return broken(format!("a page of {compressed} bytes cannot be"));
        }
        // The best compression of each kind, with a margin.
        let most = match codec {
            0 => compressed,
            1 => compressed * 64 + (64 << 10),
            6 => compressed * 2048 + (16 << 20),
            _ => compressed * 1100 + (64 << 10),
        };
        if !(0..=most.min(1 << 30)).contains(&uncompressed) {
            return broken(format!("a page of {compressed} bytes cannot hold {uncompressed}"));
        }
        let n_values = |header: &Thrift| header.int(1).unwrap_or(-1);
        if let Some(dictionary) = page.field(7)
            && !(0..=uncompressed).contains(&n_values(dictionary))
        {
            let n = n_values(dictionary);
            return broken(format!(
                "{n} words do not fit into a dictionary of {uncompressed} bytes"
            ));
        }
        for (header, encoding) in [(page.field(5), 2), (page.field(8), 4)] {
            let Some(header) = header else { continue };
            let encoding = header.int(encoding).unwrap_or(-1);
            // PLAIN, its dictionaries, RLE and dictionary pages.
            if ![0, 2, 3, 8].contains(&encoding) {
                // The useful part first: a message is cut at its end.
                let problem = format!("encoding {encoding} is not read");
                return broken(format!("write the file with PLAIN pages: {problem}"));
            }
            if n_values(header) < 0 {
                return broken(format!("a page of {} values cannot be", n_values(header)));
            }
        }
        place = body + compressed as u64;
    }
    Ok(())
}

fn read_at(file: &mut File, place: u64, buffer: &mut [u8]) -> Result<(), Failure> {
    file.seek(SeekFrom::Start(place))?;
    if read_up_to(file, buffer)? < buffer.len() {
        return broken("the file ends too early");
    }
    Ok(())
}
