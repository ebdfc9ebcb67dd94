//! Arrow IPC, record batch by record batch. A file is a stream with a prefix and a footer, and is
//! read as the stream that it is.
//!
//! Messages are taken apart here, so that no length is believed before its bytes have come; the Arrow
//! crate then reads whole messages.

use super::guard::fenced;
use super::{Failure, RawRow, broken, damage, damaged, read_up_to};
use crate::error::Error;
use crate::value::{Object, Value};
use arrow_array::builder::BufferBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, DecimalType,
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, RecordBatch};
use arrow_ipc::reader::StreamDecoder;
use arrow_schema::DataType;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};

/// Longest metadata of a message, in bytes.
const METADATA_LIMIT: u32 = 64 << 20;

/// The rows of a stream or file.
pub(super) fn rows<R: BufRead>(
    reader: R,
    path: &Path,
) -> impl Iterator<Item = Result<RawRow, Error>> + use<R> {
    Rows {
        reader,
        path: path.to_owned(),
        decoder: Some(StreamDecoder::new()),
        begun: false,
        batch: None,
        next: 0,
        row: 0,
    }
}

struct Rows<R> {
    reader: R,
    path: PathBuf,
    /// Gone after the last message and after an error.
    decoder: Option<StreamDecoder>,
    begun: bool,
    batch: Option<RecordBatch>,
    /// Row of the batch at hand.
    next: usize,
    row: u64,
}

impl<R: BufRead> Rows<R> {
    /// The next message: its metadata and body in one piece, with the length of the body. `None` at
    /// the end of the stream.
    fn message(&mut self) -> Result<Option<(Vec<u8>, u64)>, Failure> {
        if !self.begun {
            self.begun = true;
            if self.reader.fill_buf()?.starts_with(b"ARROW1") {
                self.reader.consume(6);
                // Zeros fill the prefix up to 8 bytes, or up to 64, as the writer likes.
                while let Some(0) = self.reader.fill_buf()?.first() {
                    self.reader.consume(1);
                }
            }
        }
        let mut head = [0; 8];
        let filled = read_up_to(&mut self.reader, &mut head)?;
        if filled == 0 {
            return Ok(None);
        }
        if filled < head.len() || head[..4] != [0xff; 4] {
            return broken("expected an Arrow IPC message, got other bytes");
        }
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        if length == 0 {
            // Reads the rest, at most a footer, so that a cut compressed file is noticed.
            io::copy(&mut self.reader, &mut io::sink())?;
            return Ok(None);
        }
        if length > METADATA_LIMIT {
            return broken(format!("a message of {length} bytes of metadata cannot be"));
        }
        let mut message = head.to_vec();
        self.take(u64::from(length), &mut message)?;
        let body = match arrow_ipc::root_as_message(&message[8..]) {
            Ok(it) => it.bodyLength(),
            Err(it) => return broken(format!("a message cannot be read: {it}")),
        };
        let Ok(body) = u64::try_from(body) else {
            return broken(format!("a message of {body} bytes cannot be"));
        };
        self.take(body, &mut message)?;
        Ok(Some((message, body)))
    }

    /// Exactly that many bytes; memory grows with the bytes read, not with the claimed length.
    fn take(&mut self, count: u64, into: &mut Vec<u8>) -> Result<(), Failure> {
        let got = self.reader.by_ref().take(count).read_to_end(into)?;
        if (got as u64) < count {
            return broken(format!("{count} bytes were announced and {got} are there"));
        }
        Ok(())
    }

    /// The next batch with rows.
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, Failure> {
        loop {
            let Some((message, body)) = self.message()? else {
                return Ok(None);
            };
            let Some(decoder) = &mut self.decoder else {
                return Ok(None);
            };
            let decoded = fenced(|| {
                let mut bytes = BufferBuilder::<u8>::new(message.len());
                bytes.append_slice(&message);
                let mut bytes = bytes.finish();
                let mut batch = None;
                while batch.is_none() && !bytes.is_empty() {
                    batch = decoder.decode(&mut bytes)?;
                }
                Ok::<_, arrow_schema::ArrowError>(batch)
            });
            let batch = match decoded {
                Ok(Ok(batch)) => batch,
                Ok(Err(it)) => return broken(it.to_string()),
                Err(it) => return Err(Failure::Damaged(it)),
            };
            if let Some(batch) = batch.filter(|it| it.num_rows() > 0) {
                // A row has a bit at least; columns of nulls alone could claim any number of rows.
                if batch.num_rows() as u64 > body.saturating_mul(8) {
                    let n = batch.num_rows();
                    return broken(format!("{n} rows cannot be in {body} bytes"));
                }
                return Ok(Some(batch));
            }
        }
    }
}

impl<R: BufRead> Iterator for Rows<R> {
    type Item = Result<RawRow, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.decoder.as_ref()?;
        if self.batch.as_ref().is_none_or(|it| self.next >= it.num_rows()) {
            self.next = 0;
            self.batch = match self.next_batch() {
                Ok(it) => it,
                Err(failure) => {
                    self.decoder = None;
                    return Some(Err(match failure {
                        Failure::Io(it) => damage(&self.path, self.row + 1, &it),
                        Failure::Damaged(it) => damaged(&self.path, Some(self.row + 1), it),
                    }));
                }
            };
            if self.batch.is_none() {
                self.decoder = None;
            }
        }
        let batch = self.batch.as_ref()?;
        let (next, row) = (self.next, self.row + 1);
        let read = fenced(|| {
            let schema = batch.schema_ref();
            let fields = schema.fields().iter().zip(batch.columns());
            Object(
                fields.map(|(field, column)| (field.name().clone(), value(column, next))).collect(),
            )
        });
        self.next += 1;
        self.row = row;
        Some(match read {
            Ok(fields) => Ok(RawRow { number: row, fields: Ok(fields) }),
            Err(problem) => {
                self.decoder = None;
                Err(damaged(&self.path, Some(row), problem))
            }
        })
    }
}

fn value(array: &dyn Array, row: usize) -> Value {
    fn number<T: ArrowPrimitiveType>(array: &dyn Array, row: usize) -> T::Native {
        array.as_primitive::<T>().value(row)
    }
    fn decimal<T: DecimalType>(array: &dyn Array, row: usize) -> Value {
        Value::Number(array.as_primitive::<T>().value_as_string(row))
    }
    fn list(items: &dyn Array) -> Value {
        Value::List((0..items.len()).map(|it| value(items, it)).collect())
    }
    if array.is_null(row) {
        return Value::Null;
    }
    match array.data_type() {
        DataType::Null => Value::Null,
        DataType::Boolean => Value::Bool(array.as_boolean().value(row)),
        DataType::Int8 => Value::int(number::<Int8Type>(array, row)),
        DataType::Int16 => Value::int(number::<Int16Type>(array, row)),
        DataType::Int32 => Value::int(number::<Int32Type>(array, row)),
        DataType::Int64 => Value::int(number::<Int64Type>(array, row)),
        DataType::UInt8 => Value::int(number::<UInt8Type>(array, row)),
        DataType::UInt16 => Value::int(number::<UInt16Type>(array, row)),
        DataType::UInt32 => Value::int(number::<UInt32Type>(array, row)),
        DataType::UInt64 => Value::int(number::<UInt64Type>(array, row)),
        DataType::Float32 => Value::float(number::<Float32Type>(array, row)),
        DataType::Float64 => Value::float(number::<Float64Type>(array, row)),
        DataType::Decimal32(..) => decimal::<Decimal32Type>(array, row),
        DataType::Decimal64(..) => decimal::<Decimal64Type>(array, row),
        DataType::Decimal128(..) => decimal::<Decimal128Type>(array, row),
        DataType::Decimal256(..) => decimal::<Decimal256Type>(array, row),
        DataType::Utf8 => Value::Text(array.as_string::<i32>().value(row).to_owned()),
        DataType::LargeUtf8 => Value::Text(array.as_string::<i64>().value(row).to_owned()),
        DataType::Utf8View => Value::Text(array.as_string_view().value(row).to_owned()),
        DataType::List(_) => list(&array.as_list::<i32>().value(row)),
        DataType::LargeList(_) => list(&array.as_list::<i64>().value(row)),
        DataType::FixedSizeList(..) => list(&array.as_fixed_size_list().value(row)),
        DataType::Struct(fields) => {
            let columns = fields.iter().zip(array.as_struct().columns());
            Value::Object(Object(
                columns.map(|(field, column)| (field.name().clone(), value(column, row))).collect(),
            ))
        }
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let key = dictionary.normalized_keys()[row];
            value(dictionary.values(), key)
        }
        _ => Value::Other("a value of a type that is not read"),
    }
}
