//! Rows of values as the columns of a Parquet file.
//!
//! Every value goes to its leaf column with two levels: how much of its path is defined, and which
//! list on its path continues ("Dremel: Interactive Analysis of Web-Scale Datasets", 2010).

use crate::value::{Object, Value};
pub(crate) use parquet::basic::Compression;
use parquet::basic::{ConvertedType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::Type;
use std::{io::Write, str::FromStr, sync::Arc};

/// A row out of its line of JSON; a single solution is a list of one in a column.
pub(super) fn row(line: &[u8]) -> std::io::Result<Object> {
    let mut row: Object = serde_json::from_slice(line)?;
    for (name, value) in &mut row.0 {
        if name == "teacher" && matches!(value, Value::Text(_)) {
            *value = Value::List(vec![std::mem::replace(value, Value::Null)]);
        }
    }
    Ok(row)
}

/// Bytes of text after which a row group is written.
const GROUP_BYTES: usize = 64 << 20;

pub(crate) struct Table<W: Write + Send> {
    schema: Arc<Type>,
    writer: SerializedFileWriter<W>,
    columns: Vec<Column>,
    bytes: usize,
}

#[derive(Default)]
struct Column {
    values: Vec<Value>,
    definition: Vec<i16>,
    repetition: Vec<i16>,
}

impl<W: Write + Send> Table<W> {
    /// `schema` is in Parquet's own notation.
    pub(crate) fn new(file: W, schema: &str, compression: Compression) -> Result<Self> {
        let schema = Arc::new(parse_message_type(schema)?);
        let properties = WriterProperties::builder()
            .set_compression(compression)
            .set_created_by("hapo".to_owned())
            .build();
        let writer = SerializedFileWriter::new(file, schema.clone(), Arc::new(properties))?;
        let columns = (0..leaves(&schema)).map(|_| Column::default()).collect();
        Ok(Table { schema, writer, columns, bytes: 0 })
    }

    /// Adds a row. Fields that the schema does not have are left out, those that the row does not have are null.
    pub(crate) fn push(&mut self, row: &Object) -> Result<()> {
        self.bytes += shred_fields(&self.schema, row, Levels::default(), &mut self.columns)?;
        if self.bytes >= GROUP_BYTES {
            self.write_group()?;
        }
        Ok(())
    }

    pub(crate) fn close(&mut self) -> Result<()> {
        self.write_group()?;
        self.writer.finish().map(drop)
    }

    fn write_group(&mut self) -> Result<()> {
        if self.columns.iter().all(|it| it.definition.is_empty()) {
            return Ok(());
        }
        let mut group = self.writer.next_row_group()?;
        for column in &mut self.columns {
            let Column { values, definition, repetition } = std::mem::take(column);
            let mut writer = group
                .next_column()?
                .ok_or_else(|| ParquetError::General("the schema has fewer columns".into()))?;
            let levels = (Some(&definition[..]), Some(&repetition[..]));
            macro_rules! put {
                ($kind:ty, $convert:expr) => {{
                    let values = values.iter().map($convert).collect::<Result<Vec<_>>>()?;
                    writer.typed::<$kind>().write_batch(&values, levels.0, levels.1)?;
                }};
            }
            match writer.untyped() {
                ColumnWriter::BoolColumnWriter(_) => put!(BoolType, |value| match value {
                    Value::Bool(it) => Ok(*it),
                    _ => Err(wrong(value)),
                }),
                ColumnWriter::Int32ColumnWriter(_) => put!(Int32Type, number),
                ColumnWriter::Int64ColumnWriter(_) => put!(Int64Type, number),
                ColumnWriter::DoubleColumnWriter(_) => put!(DoubleType, number),
                _ => put!(ByteArrayType, |value| match value {
                    Value::Text(text) => Ok(ByteArray::from(text.as_bytes().to_vec())),
                    _ => Err(wrong(value)),
                }),
            }
            writer.close()?;
        }
        self.bytes = 0;
        group.close().map(drop)
    }
}

fn number<T: FromStr>(value: &Value) -> Result<T> {
    match value {
        Value::Number(digits) => digits.parse().map_err(|_| wrong(value)),
        _ => Err(wrong(value)),
    }
}

fn wrong(value: &Value) -> ParquetError {
    ParquetError::General(format!("{value} does not go into this column"))
}

fn leaves(field: &Type) -> usize {
    if field.is_primitive() { 1 } else { field.get_fields().iter().map(|it| leaves(it)).sum() }
}

#[derive(Clone, Copy, Default)]
struct Levels {
    definition: i16,
    /// Of the value at hand.
    repetition: i16,
    /// Lists around it.
    lists: i16,
}

/// Takes a value apart into its columns; gives the bytes of its texts.
fn shred(field: &Type, value: &Value, levels: Levels, columns: &mut [Column]) -> Result<usize> {
    let mut levels = levels;
    if field.get_basic_info().repetition() == Repetition::OPTIONAL {
        if *value == Value::Null {
            absent(levels, columns);
            return Ok(0);
        }
        levels.definition += 1;
    }
    if field.is_primitive() {
        let [column] = columns else { return Err(wrong(value)) };
        column.definition.push(levels.definition);
        column.repetition.push(levels.repetition);
        column.values.push(value.clone());
        let is_text = field.get_physical_type() == Physical::BYTE_ARRAY;
        return match value {
            Value::Text(it) if is_text => Ok(it.len()),
            it if is_text || *it == Value::Null => Err(wrong(it)),
            _ => Ok(8),
        };
    }
    match value {
        Value::List(items) if field.get_basic_info().converted_type() == ConvertedType::LIST => {
            let element = &field.get_fields()[0].get_fields()[0];
            if items.is_empty() {
                absent(levels, columns);
            }
            let mut bytes = 0;
            for (number, item) in items.iter().enumerate() {
                let levels = Levels {
                    definition: levels.definition + 1,
                    repetition: if number == 0 { levels.repetition } else { levels.lists + 1 },
                    lists: levels.lists + 1,
                };
                bytes += shred(element, item, levels, columns)?;
            }
            Ok(bytes)
        }
        Value::Object(object) => shred_fields(field, object, levels, columns),
        other => Err(wrong(other)),
    }
}

fn shred_fields(
    group: &Type,
    object: &Object,
    levels: Levels,
    mut columns: &mut [Column],
) -> Result<usize> {
    let mut bytes = 0;
    for child in group.get_fields() {
        let (own, others) = columns.split_at_mut(leaves(child));
        let value = object.get(child.name()).unwrap_or(&Value::Null);
        bytes += shred(child, value, levels, own)?;
        columns = others;
    }
    Ok(bytes)
}

fn absent(levels: Levels, columns: &mut [Column]) {
    for column in columns {
        column.definition.push(levels.definition);
        column.repetition.push(levels.repetition);
    }
}
