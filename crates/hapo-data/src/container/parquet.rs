//! Parquet, row by row: one page of each column is in memory at a time.
//!
//! Purpose: the Parquet crate reads. Before that, this module checks the footer and every page header, because that
//! crate reserves memory for a header's claims and recurses into a schema. A claim that the file's own bytes cannot
//! support is an error that names the column.
//!
//! A page with a checksum is compared with it.
//!
//! Price: the headers are read twice, and so are Brotli pages and those of delta encodings, whose
//! claims lie inside the compressed bytes.

use super::delta;
use super::guard::fenced;
use super::thrift::{self, Thrift};
use super::{Failure, RawRow, RawRows, broken, damaged, read_up_to};
use crate::error::Error;
use crate::value::{Object, Value};
use parquet::column::page::Page;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use parquet::record::reader::RowIter;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// The bytes at both ends of a Parquet file.
pub(super) const MAGIC: &[u8] = b"PAR1";

/// Longest footer that is read, in bytes.
const FOOTER_LIMIT: u64 = 64 << 20;

/// Groups in groups of a schema.
const NESTING: usize = 32;

/// The rows of a file.
pub(super) fn rows(mut file: File, path: &Path) -> Result<RawRows<'static>, Error> {
    let deltas = check(&mut file).map_err(|fault| match fault {
        Failure::Io(source) => Error::Io { path: path.to_owned(), source },
        Failure::Damaged(problem) => damaged(path, None, problem),
    })?;
    let opened = fenced(|| {
        let reader = SerializedFileReader::new(file)?;
        for (group, column) in deltas {
            check_deltas(&reader, group, column)?;
        }
        Ok(RowIter::from_file_into(Box::new(reader)))
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
    type Item = Result<RawRow, Error>;

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

/// Looks at everything that the file claims about its sizes; gives the row group and column of every
/// chunk with a delta encoding, whose claims are inside its pages.
fn check(file: &mut File) -> Result<Vec<(usize, usize)>, Failure> {
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
    let mut deltas = Vec::new();
    for (number, group) in footer.list(4).unwrap_or_default().iter().enumerate() {
        let columns = group.list(1).unwrap_or_default();
        n_values_of_group.clear();
        for (column, chunk) in columns.iter().enumerate() {
            let Some(chunk) = chunk.field(3) else {
                return broken(format!("row group {number}, column {column}: no metadata"));
            };
            let has_delta = check_pages(file, chunk, length).map_err(|it| match it {
                Failure::Damaged(it) => Failure::Damaged(format!(
                    "row group {}, column {}: {it}",
                    number + 1,
                    column + 1
                )),
                io @ Failure::Io(_) => io,
            })?;
            deltas.extend(has_delta.then_some((number, column)));
            n_values_of_group.push(chunk.int(5).unwrap_or(0));
        }
        let n_rows = group.int(3).unwrap_or(-1);
        // A column has a value, if only a null, for every row.
        if n_rows < 0 || n_values_of_group.iter().any(|it| *it < n_rows) {
            return broken(format!("row group {}: {n_rows} rows cannot be", number + 1));
        }
    }
    Ok(deltas)
}

/// Checks the claims of a column chunk's delta-encoded pages.
fn check_deltas(
    reader: &SerializedFileReader<File>,
    group: usize,
    column: usize,
) -> parquet::errors::Result<()> {
    let metadata = reader.metadata().row_group(group);
    let levels = metadata.column(column).column_descr();
    let levels = [levels.max_rep_level(), levels.max_def_level()];
    let row_group = reader.get_row_group(group)?;
    let mut pages = row_group.get_column_page_reader(column)?;
    while let Some(page) = pages.get_next_page()? {
        let (values, encoding, n_values) = match &page {
            Page::DataPage { buf, encoding, num_values, .. } => {
                let mut values = &buf[..];
                for _ in levels.iter().filter(|it| **it > 0) {
                    let length = values.get(..4).and_then(|it| it.try_into().ok());
                    let length = length.map_or(usize::MAX, |it| u32::from_le_bytes(it) as usize);
                    values = length
                        .checked_add(4)
                        .and_then(|it| values.get(it..))
                        .ok_or_else(|| ParquetError::General("a page ends in its levels".into()))?;
                }
                (values, *encoding, *num_values)
            }
            Page::DataPageV2 {
                buf,
                encoding,
                num_values,
                def_levels_byte_len,
                rep_levels_byte_len,
                ..
            } => {
                let levels = u64::from(*def_levels_byte_len) + u64::from(*rep_levels_byte_len);
                let values = buf.get(levels as usize..).unwrap_or_default();
                (values, *encoding, *num_values)
            }
            Page::DictionaryPage { .. } => continue,
        };
        delta::check(values, encoding, n_values as usize).map_err(|it| {
            let place = format!("row group {}, column {}", group + 1, column + 1);
            ParquetError::General(format!("{place}: {it}"))
        })?;
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

/// Walks the page headers of a column chunk, and says whether a page has a delta encoding.
fn check_pages(file: &mut File, chunk: &Thrift, file_length: u64) -> Result<bool, Failure> {
    let offset = |id| chunk.int(id).map(u64::try_from);
    let (Some(Ok(start)), Some(Ok(size))) = (offset(11).or(offset(9)), offset(7)) else {
        return broken("no place in the file");
    };
    let Some(end) = start.checked_add(size).filter(|it| *it <= file_length) else {
        return broken("it lies beyond the end of the file");
    };
    let codec = chunk.int(4).unwrap_or(0);
    let mut has_delta = false;
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
            // Brotli's best has no bound worth the name: its pages are read through below.
            BROTLI => i64::MAX,
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
            if ![0, 2, 3, 5, 6, 7, 8].contains(&encoding) {
                // The useful part first: a message is cut at its end.
                return broken(format!(
                    "write the file with PLAIN or dictionary pages: encoding {} is not read",
                    encoding_name(encoding)
                ));
            }
            has_delta |= (5..=7).contains(&encoding);
            if n_values(header) < 0 {
                return broken(format!("a page of {} values cannot be", n_values(header)));
            }
        }
        if codec == BROTLI {
            let levels = page.field(8).map_or(0, |it| {
                let length = |id| it.int(id).unwrap_or(0).max(0);
                length(5).saturating_add(length(6)).min(compressed)
            });
            check_brotli(file, body + levels as u64, compressed - levels, uncompressed - levels)?;
        }
        place = body + compressed as u64;
    }
    Ok(has_delta)
}

/// Brotli's number among the codecs.
const BROTLI: i64 = 4;

/// A page that unpacks to more than it says would be unpacked whole by the Parquet crate.
fn check_brotli(file: &mut File, at: u64, compressed: i64, says: i64) -> Result<(), Failure> {
    file.seek(SeekFrom::Start(at))?;
    let page = file.take(compressed.max(0) as u64);
    let mut unpacked = brotli::Decompressor::new(page, 1 << 16).take(says.max(0) as u64 + 1);
    match io::copy(&mut unpacked, &mut io::sink()) {
        Ok(length) if length > says.max(0) as u64 => {
            broken(format!("a page holds more than the {says} bytes it says"))
        }
        // The reader of the page notices invalid Brotli.
        _ => Ok(()),
    }
}

fn encoding_name(encoding: i64) -> String {
    match encoding {
        9 => "BYTE_STREAM_SPLIT".to_owned(),
        other => format!("{other}"),
    }
}

fn read_at(file: &mut File, place: u64, buffer: &mut [u8]) -> Result<(), Failure> {
    file.seek(SeekFrom::Start(place))?;
    if read_up_to(file, buffer)? < buffer.len() {
        return broken("the file ends too early");
    }
    Ok(())
}
