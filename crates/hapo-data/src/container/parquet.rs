//! Parquet, row by row: one page of each column is in memory at a time.
//!
//! The Parquet crate reads, once the sizes that the file claims are checked ([`super::claims`]). A page with a checksum
//! is compared with it.

use super::claims::{check_deltas, check_footer, check_pages};
use super::{RawRow, RawRows, broken, damage, rows_of};
use crate::value::{Object, Value};
use hapo_core::{Refusal, fenced};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use parquet::record::reader::RowIter;
use std::{fs::File, io, path::Path};

pub(super) fn rows(mut file: File, path: &Path) -> Result<RawRows<'static>, Refusal> {
    let reader = checked(&mut file).map_err(|error| damage(path, None, &error))?;
    let mut rows = RowIter::from_file_into(Box::new(reader));
    let (path, mut number) = (path.to_owned(), 0);
    Ok(rows_of(move || {
        number += 1;
        let row = flatten(fenced(|| rows.next().transpose()));
        let row = row.map_err(|error| damage(&path, Some(number), &error))?;
        Ok(row.map(|row| RawRow { number, fields: Ok(object(row)) }))
    }))
}

/// A reader of a file whose claims fit its bytes.
fn checked(file: &mut File) -> io::Result<SerializedFileReader<File>> {
    let length = check_footer(file)?;
    let copy = file.try_clone()?;
    let reader = flatten(fenced(|| SerializedFileReader::new(copy)))?;
    for (number, group) in reader.metadata().row_groups().iter().enumerate() {
        for (column, chunk) in group.columns().iter().enumerate() {
            let descriptor = chunk.column_descr();
            let levels = u32::from(descriptor.max_rep_level() > 0)
                + u32::from(descriptor.max_def_level() > 0);
            let checked = fenced(|| check_pages(file, chunk, length)).map_err(io::Error::other);
            let checked = checked.flatten().and_then(|has_delta| {
                if !has_delta {
                    return Ok(());
                }
                flatten(fenced(|| {
                    let group = reader.get_row_group(number)?;
                    check_deltas(group.get_column_page_reader(column)?, levels)
                }))
            });
            checked.map_err(|error| {
                if error.raw_os_error().is_some() {
                    return error;
                }
                let place = format!("row group {}, column {}", number + 1, column + 1);
                io::Error::other(format!("{place}: {error}"))
            })?;
            // A column has a value, if only a null, for every row.
            if !(0..=chunk.num_values()).contains(&group.num_rows()) {
                let rows = group.num_rows();
                return broken(format!("row group {}: {rows} rows cannot be", number + 1));
            }
        }
    }
    Ok(reader)
}

fn flatten<T>(read: Result<parquet::errors::Result<T>, String>) -> io::Result<T> {
    read.map_err(io::Error::other)?.map_err(|error| io::Error::other(error.to_string()))
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
