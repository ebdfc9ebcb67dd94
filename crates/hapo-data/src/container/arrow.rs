//! Arrow IPC, record batch by record batch. A file is a stream with a prefix and a footer, and is read as the stream
//! that it is.
//!
//! Purpose: no length is believed before its bytes have come, and no place is read that the bytes do not have. The
//! `arrow` crates would be the longest of all dependencies to compile, and take what a batch claims. Price: batches
//! that are compressed within, categories, unions and big-endian numbers are refused.

use super::flatbuffer::{Found, Table, part, signed};
use super::{RawRow, RawRows, broken, damage, read_up_to, rows_of};
use crate::value::{Object, Value};
use std::io::{self, BufRead, Read};
use std::{ops::Range, path::Path};

/// Longest metadata of a message, in bytes.
const METADATA_LIMIT: u32 = 64 << 20;
/// Columns in columns of a schema.
const NESTING: usize = 64;

pub(super) fn rows<'a>(reader: impl BufRead + 'a, path: &Path) -> RawRows<'a> {
    let mut rows = Rows { reader, fields: None, batch: None, next: 0 };
    let (path, mut number) = (path.to_owned(), 0);
    rows_of(move || {
        number += 1;
        let row = rows.next_row().map_err(|error| damage(&path, Some(number), &error))?;
        Ok(row.map(|fields| RawRow { number, fields: Ok(fields) }))
    })
}

struct Rows<R> {
    reader: R,
    fields: Option<Vec<Field>>,
    batch: Option<Batch>,
    next: usize,
}

struct Field {
    name: String,
    kind: Kind,
    children: Vec<Field>,
}

/// A type. Widths are in bytes.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Null,
    Bool,
    Int(usize),
    Unsigned(usize),
    Float(usize),
    /// Its width, and its digits behind the point.
    Decimal(usize, i64),
    /// The width of its offsets, as of a list.
    Text(usize),
    TextView,
    List(usize),
    /// Elements of each.
    FixedList(usize),
    Struct,
    /// A type that no layout reads, with its number of buffers.
    Other(usize),
    OtherView,
}

/// Where the numbers of a column lie in the body of its batch.
struct Column {
    len: usize,
    buffers: Vec<Range<usize>>,
    children: Vec<Column>,
}

struct Batch {
    rows: usize,
    columns: Vec<Column>,
    body: Vec<u8>,
}

impl<R: BufRead> Rows<R> {
    /// The metadata of the next message. `None` at the end of the stream.
    fn metadata(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.fields.is_none() && self.reader.fill_buf()?.starts_with(b"ARROW1") {
            self.reader.consume(6);
            // Zeros fill the prefix up to 8 bytes, or up to 64, as the writer likes.
            while let Some(0) = self.reader.fill_buf()?.first() {
                self.reader.consume(1);
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
        self.take(u64::from(length)).map(Some)
    }

    /// Exactly that many bytes; memory grows with what comes, not with what was claimed.
    fn take(&mut self, count: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let got = self.reader.by_ref().take(count).read_to_end(&mut bytes)?;
        if (got as u64) < count {
            return broken(format!("{count} bytes were announced and {got} are there"));
        }
        Ok(bytes)
    }

    fn next_batch(&mut self) -> io::Result<Option<Batch>> {
        while let Some(metadata) = self.metadata()? {
            let length = Table::root(&metadata).and_then(|it| size(it.number(3, 8, 0)?));
            let body = self.take(length.map_err(io::Error::other)? as u64)?;
            let batch = self.message(&metadata, body).map_err(io::Error::other)?;
            if batch.is_some() {
                return Ok(batch);
            }
        }
        Ok(None)
    }

    /// A batch; nothing of the schema, or of a batch without rows.
    fn message(&mut self, metadata: &[u8], body: Vec<u8>) -> Found<Option<Batch>> {
        const SCHEMA: i64 = 1;
        const BATCH: i64 = 3;
        let message = Table::root(metadata)?;
        let header = message.table(2)?.ok_or("an empty message")?;
        match (message.number(1, 1, 0)?, &self.fields) {
            (SCHEMA, None) => self.fields = Some(schema(header)?),
            (BATCH, Some(fields)) => {
                return Ok(Some(Batch::read(header, fields, body)?).filter(|it| it.rows > 0));
            }
            (SCHEMA | BATCH, _) => return Err("messages in a wrong order"),
            _ => return Err("a message of an unknown kind"),
        }
        Ok(None)
    }

    fn next_row(&mut self) -> io::Result<Option<Object>> {
        if self.batch.as_ref().is_none_or(|it| self.next >= it.rows) {
            (self.next, self.batch) = (0, self.next_batch()?);
        }
        let (Some(batch), Some(fields)) = (&self.batch, &self.fields) else { return Ok(None) };
        let row = self.next;
        self.next += 1;
        object(fields, &batch.columns, &batch.body, row).map(Some).map_err(io::Error::other)
    }
}

fn schema(header: Table) -> Found<Vec<Field>> {
    if header.number(0, 2, 0)? != 0 {
        return Err("numbers in big-endian order are not read");
    }
    let room = &mut (METADATA_LIMIT as usize);
    header.tables(1)?.map(|it| Field::read(it?, NESTING, room)).collect()
}

impl Field {
    /// `room` is for all columns: in a hostile schema many lead to the same columns within, and to the same name.
    fn read(table: Table, depth: usize, room: &mut usize) -> Found<Self> {
        let depth = depth.checked_sub(1).ok_or("the schema is nested too deeply")?;
        let name = table.text(0)?;
        let left = room.checked_sub(name.len() + size_of::<Self>());
        *room = left.ok_or("the schema has too many columns")?;
        if table.table(4)?.is_some() {
            return Err("columns of categories are not read: write the file as Parquet");
        }
        let kind = kind(table)?;
        let children = table.tables(5)?.map(|it| Self::read(it?, depth, room));
        let field = Self { name: name.to_owned(), kind, children: children.collect::<Found<_>>()? };
        let is_list = matches!(field.kind, Kind::List(_) | Kind::FixedList(_));
        if is_list && field.children.len() != 1 {
            return Err("a list has elements of one type");
        }
        Ok(field)
    }
}

/// The type of a field, by its number in Arrow's list of types.
fn kind(table: Table) -> Found<Kind> {
    let parts = || table.table(3)?.ok_or("a column has no type");
    Ok(match table.number(2, 1, 0)? {
        1 => Kind::Null,
        2 => match (parts()?.number(0, 4, 0)?, parts()?.number(1, 1, 0)?) {
            (bits @ (8 | 16 | 32 | 64), 0) => Kind::Unsigned(bits as usize / 8),
            (bits @ (8 | 16 | 32 | 64), _) => Kind::Int(bits as usize / 8),
            _ => return Err("an integer has 8, 16, 32 or 64 bits"),
        },
        3 => match parts()?.number(0, 2, 0)? {
            1 => Kind::Float(4),
            2 => Kind::Float(8),
            _ => Kind::Other(2),
        },
        5 => Kind::Text(4),
        6 => Kind::Bool,
        7 => match (parts()?.number(2, 4, 128)?, parts()?.number(1, 4, 0)?) {
            (bits @ (32 | 64 | 128), scale @ -1000..=1000) => {
                Kind::Decimal(bits as usize / 8, scale)
            }
            _ => Kind::Other(2),
        },
        // Dates, times and intervals; bytes of a fixed length; maps, whose keys and values lie in a structure within.
        8..=11 | 15 | 17 | 18 => Kind::Other(2),
        12 => Kind::List(4),
        13 => Kind::Struct,
        14 => return Err("columns of unions are not read: write the file as Parquet"),
        16 => Kind::FixedList(size(parts()?.number(0, 4, 0)?)?),
        // Bytes, and lists by views.
        4 | 19 | 25 | 26 => Kind::Other(3),
        20 => Kind::Text(8),
        21 => Kind::List(8),
        22 => Kind::Other(0),
        23 => Kind::OtherView,
        24 => Kind::TextView,
        _ => return Err("a column has an unknown type"),
    })
}

impl Batch {
    fn read(header: Table, fields: &[Field], body: Vec<u8>) -> Found<Self> {
        if header.table(3)?.is_some() {
            return Err(
                "write the file with compression=\"uncompressed\", or as Parquet: compressed batches are not read",
            );
        }
        let (nodes, buffers) = (&mut header.words(1, 2)?, &mut header.words(2, 2)?);
        let mut places =
            Places { nodes, buffers, views: &mut header.words(4, 1)?, len: body.len() };
        let columns = fields.iter().map(|it| places.column(it)).collect::<Found<Vec<_>>>()?;
        let rows = size(header.number(0, 8, 0)?)?;
        // A row has a bit at least: a batch without columns could claim any number of them.
        if rows > body.len().saturating_mul(8) || columns.iter().any(|it| it.len < rows) {
            return Err(FEWER_BYTES);
        }
        Ok(Self { rows, columns, body })
    }
}

fn size(number: i64) -> Found<usize> {
    usize::try_from(number).map_err(|_| "a length is negative")
}

/// What a batch says of where columns lie, in the order of the columns.
struct Places<'a> {
    /// The length of each column and the number of its nulls.
    nodes: &'a mut dyn Iterator<Item = i64>,
    /// The start and the length of each buffer.
    buffers: &'a mut dyn Iterator<Item = i64>,
    /// The number of further buffers of each column of views.
    views: &'a mut dyn Iterator<Item = i64>,
    len: usize,
}

fn next(words: &mut dyn Iterator<Item = i64>) -> Found<usize> {
    size(words.next().ok_or("a batch has fewer buffers than its columns need")?)
}

impl Places<'_> {
    fn column(&mut self, field: &Field) -> Found<Column> {
        let len = next(self.nodes)?;
        self.nodes.next();
        // An element has a bit at least; lists of nulls alone could claim any number of them.
        if len > self.len.saturating_mul(8) {
            return Err(FEWER_BYTES);
        }
        let (mut count, views) = match field.kind {
            Kind::Null => (0, false),
            Kind::FixedList(_) | Kind::Struct => (1, false),
            Kind::Text(_) => (3, false),
            Kind::TextView | Kind::OtherView => (2, true),
            Kind::Other(buffers) => (buffers, false),
            _ => (2, false),
        };
        if views {
            count += next(self.views)?;
        }
        let buffers = (0..count).map(|_| self.buffer()).collect::<Found<_>>()?;
        let children = field.children.iter().map(|it| self.column(it));
        Ok(Column { len, buffers, children: children.collect::<Found<_>>()? })
    }

    fn buffer(&mut self) -> Found<Range<usize>> {
        let (start, len) = (next(self.buffers)?, next(self.buffers)?);
        let end = start.checked_add(len).filter(|it| *it <= self.len);
        Ok(start..end.ok_or("a column lies beyond the end of its batch")?)
    }
}

const FEWER_BYTES: &str = "a batch has fewer bytes than its rows need";
const SHORT: &str = "a column ends before its rows";

impl Column {
    /// Element `row` of `width` bytes in buffer `of`.
    fn element<'b>(&self, body: &'b [u8], of: usize, width: usize, row: usize) -> Found<&'b [u8]> {
        let bytes = &body[self.buffers[of].clone()];
        row.checked_mul(width).and_then(|at| part(bytes, at, width)).ok_or(SHORT)
    }

    fn bit(&self, body: &[u8], buffer: usize, row: usize) -> Found<bool> {
        Ok(self.element(body, buffer, 1, row / 8)?[0] >> (row % 8) & 1 == 1)
    }

    /// Elements of the buffer or child that belong to a row, by two offsets.
    fn range(&self, body: &[u8], width: usize, row: usize) -> Found<Range<usize>> {
        let offset = |row| size(signed(self.element(body, 1, width, row)?) as i64);
        let range = offset(row)?..offset(row + 1)?;
        if range.start > range.end { Err("a list ends before it begins") } else { Ok(range) }
    }

    fn view<'b>(&self, body: &'b [u8], row: usize) -> Found<&'b [u8]> {
        let view = self.element(body, 1, 16, row)?;
        let word = |at: usize| signed(&view[at..at + 4]) as i64;
        let len = size(word(0))?;
        if len <= 12 {
            return Ok(&view[4..4 + len]);
        }
        let buffer = self.buffers.get(size(word(8))?.saturating_add(2)).ok_or(SHORT)?;
        part(&body[buffer.clone()], size(word(12))?, len).ok_or(SHORT)
    }
}

fn object(fields: &[Field], columns: &[Column], body: &[u8], row: usize) -> Found<Object> {
    let pairs = fields.iter().zip(columns);
    let pairs = pairs.map(|(field, it)| Ok((field.name.clone(), value(field, it, body, row)?)));
    pairs.collect::<Found<_>>().map(Object)
}

fn value(field: &Field, column: &Column, body: &[u8], row: usize) -> Found<Value> {
    if row >= column.len {
        return Err(SHORT);
    }
    let has_nulls = column.buffers.first().is_some_and(|it| !it.is_empty());
    let is_plain = !matches!(field.kind, Kind::Null | Kind::Other(_) | Kind::OtherView);
    if is_plain && has_nulls && !column.bit(body, 0, row)? {
        return Ok(Value::Null);
    }
    let text = |bytes: &[u8]| match std::str::from_utf8(bytes) {
        Ok(text) => Ok(Value::Text(text.to_owned())),
        Err(_) => Err("a text is no UTF-8"),
    };
    let list = |rows: Range<usize>| {
        let (element, child) = (&field.children[0], &column.children[0]);
        if rows.end > child.len {
            return Err("a list has more elements than there are");
        }
        let items = rows.map(|it| value(element, child, body, it));
        items.collect::<Found<_>>().map(Value::List)
    };
    let number = |width: usize| column.element(body, 1, width, row).map(signed);
    match field.kind {
        Kind::Null => Ok(Value::Null),
        Kind::Bool => column.bit(body, 1, row).map(Value::Bool),
        Kind::Int(width) => number(width).map(Value::int),
        Kind::Unsigned(width) => Ok(Value::int(number(width)? & ((1 << (8 * width)) - 1))),
        Kind::Float(4) => Ok(Value::float(f32::from_bits(number(4)? as u32))),
        Kind::Float(_) => Ok(Value::float(f64::from_bits(number(8)? as u64))),
        Kind::Decimal(width, scale) => Ok(Value::Number(decimal(number(width)?, scale))),
        Kind::Text(offsets) => {
            let range = column.range(body, offsets, row)?;
            let bytes = &body[column.buffers[2].clone()];
            text(bytes.get(range).ok_or(SHORT)?)
        }
        Kind::TextView => text(column.view(body, row)?),
        Kind::List(offsets) => list(column.range(body, offsets, row)?),
        Kind::FixedList(length) => {
            let start = row.checked_mul(length).ok_or(SHORT)?;
            list(start..start.checked_add(length).ok_or(SHORT)?)
        }
        Kind::Struct => object(&field.children, &column.children, body, row).map(Value::Object),
        Kind::Other(_) | Kind::OtherView => Ok(Value::Other("a value of a type that is not read")),
    }
}

/// The digits of a whole number, with `scale` of them behind the point.
fn decimal(number: i128, scale: i64) -> String {
    let sign = if number < 0 { "-" } else { "" };
    let behind = usize::try_from(scale).unwrap_or(0);
    let zeros = usize::try_from(-scale).unwrap_or(0);
    let digits = format!("{:0>1$}{2}", number.unsigned_abs(), behind + 1, "0".repeat(zeros));
    let (whole, fraction) = digits.split_at(digits.len() - behind);
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{whole}{point}{fraction}")
}
