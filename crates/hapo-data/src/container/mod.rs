//! The container of a file, recognised by its first bytes: lines of JSON, one JSON array, Parquet, Arrow IPC, CSV or
//! TSV, and each of them inside gzip or zstd.
//!
//! Purpose: every container gives rows one by one as the same [`Object`], numbered, with the fault of a row beside the
//! good ones. No container is read whole, and no length in a file is trusted before the file has shown the bytes.
//! Price: a row is a tree of values before a layout looks at it.

mod arrow;
mod claims;
mod flatbuffer;
mod parquet;
mod text;

use crate::refuse::{DAMAGED, Result, of_file};
use crate::row::LINE_LIMIT;
use crate::value::{Fault, Object};
use hapo_core::Refusal;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::{fs::File, path::Path};

pub(crate) use text::lines;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Container {
    /// One JSON object per line.
    JsonLines,
    /// One JSON array of objects.
    JsonArray,
    Parquet,
    /// Arrow IPC, as a stream or as a file.
    Arrow,
    /// CSV, TSV, or another separator.
    Csv,
}

impl Container {
    pub fn name(self) -> &'static str {
        match self {
            Container::JsonLines => "JSON lines",
            Container::JsonArray => "JSON array",
            Container::Parquet => "Parquet",
            Container::Arrow => "Arrow IPC",
            Container::Csv => "CSV",
        }
    }
}

#[derive(Debug)]
pub(crate) struct RawRow {
    /// From 1; the line in a file of lines.
    pub(crate) number: u64,
    pub(crate) fields: Result<Object, Fault>,
}

/// The rows of a file. An error ends them: later rows cannot be found.
pub(crate) type RawRows<'a> = Box<dyn Iterator<Item = Result<RawRow>> + 'a>;

pub(crate) struct Opened<'a> {
    pub(crate) container: Container,
    /// `gzip` or `zstd`, where the whole file is compressed.
    pub(crate) compression: Option<&'static str>,
    pub(crate) rows: RawRows<'a>,
}

pub(crate) fn open(path: &Path) -> Result<Opened<'static>> {
    let io = |source| Refusal::io("read", path)(source);
    let mut file = File::open(path).map_err(io)?;
    let mut magic = [0; 4];
    let whole = read_up_to(&mut file, &mut magic).map_err(io)?;
    file.rewind().map_err(io)?;
    if &magic[..whole] == claims::MAGIC {
        return Ok(Opened {
            container: Container::Parquet,
            compression: None,
            rows: parquet::rows(file, path)?,
        });
    }
    open_reader(file, path)
}

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Bytes that suffice to recognise a file; they include the names of a CSV's columns.
const HEAD: u64 = 4096;

/// Files that are none of these, by their first bytes: what they are, and the way out.
const OTHERS: &[(&[u8], &str, &str)] = &[
    (b"\xfd7zXZ\0", "an xz file", "unpack it first: xz -dk FILE"),
    (b"PK\x03\x04", "a zip file", "unpack it first: unzip FILE"),
    (b"BZh", "a bzip2 file", "unpack it first: bunzip2 -k FILE"),
    (b"7z\xbc\xaf", "a 7z file", "unpack it first: 7z x FILE"),
    (b"version https://git-lfs", "the pointer of a Git LFS file", "fetch the file: git lfs pull"),
    (b"FEA1", "a Feather file of version 1", "write it again as Parquet: to_parquet"),
];

pub(crate) fn open_reader(reader: impl Read + 'static, path: &Path) -> Result<Opened<'static>> {
    let io = |source| Refusal::io("read", path)(source);
    let mut reader: Box<dyn BufRead> = Box::new(BufReader::with_capacity(1 << 16, reader));
    let compression = match reader.fill_buf().map_err(io)? {
        [0x1f, 0x8b, ..] => Some("gzip"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some("zstd"),
        _ => None,
    };
    reader = match compression {
        Some("gzip") => Box::new(BufReader::new(flate2::bufread::MultiGzDecoder::new(reader))),
        Some(_) => {
            Box::new(BufReader::new(zstd::stream::read::Decoder::with_buffer(reader).map_err(io)?))
        }
        None => reader,
    };
    // A decoder may give its first bytes one by one.
    let mut head = Vec::new();
    reader.by_ref().take(HEAD).read_to_end(&mut head).map_err(|it| damage(path, Some(1), &it))?;
    if let Some((_, what, hint)) = OTHERS.iter().find(|it| head.starts_with(it.0)) {
        return Err(of_file(path, format!("expected rows, got {what}"), hint));
    }
    let delimiter = text::delimiter(&head, path);
    let container = match &head[..] {
        [b'P', b'A', b'R', b'1', ..] => Container::Parquet,
        [0xff, 0xff, 0xff, 0xff, ..] | [b'A', b'R', b'R', b'O', b'W', b'1', ..] => Container::Arrow,
        text => {
            let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
            match text.trim_ascii_start().first() {
                Some(b'[') => Container::JsonArray,
                Some(it) if *it != b'{' && delimiter.is_some() => Container::Csv,
                _ => Container::JsonLines,
            }
        }
    };
    let is_one = container == Container::JsonLines && text::is_one_object(&head);
    let mark = if head.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
    let reader = io::Cursor::new(head.split_off(mark)).chain(reader);
    let rows: RawRows<'static> = match container {
        Container::JsonLines if is_one => text::one(reader, path),
        Container::JsonLines => lines(reader, path, LINE_LIMIT),
        Container::JsonArray => text::elements(reader, path),
        Container::Arrow => arrow::rows(reader, path),
        Container::Csv => text::csv(reader, path, delimiter.unwrap_or(b',')),
        Container::Parquet => {
            // Parquet is read from its end; a stream without seeking goes to a temporary file.
            let mut aside = tempfile::tempfile().map_err(io)?;
            let mut reader = reader;
            io::copy(&mut reader, &mut aside).map_err(|it| damage(path, Some(1), &it))?;
            parquet::rows(aside, path)?
        }
    };
    Ok(Opened { container, compression, rows })
}

/// An error of reading: the system's, or of compressed bytes that are damaged.
fn damage(path: &Path, row: Option<u64>, error: &io::Error) -> Refusal {
    match error.raw_os_error() {
        Some(code) => Refusal::io("read", path)(io::Error::from_raw_os_error(code)),
        None => damaged(path, row, error.to_string()),
    }
}

/// A container that is broken at a row, or as a whole.
fn damaged(path: &Path, row: Option<u64>, problem: impl AsRef<str>) -> Refusal {
    let row = row.map_or_else(String::new, |it| format!("row {it}: "));
    let problem = crate::value::shorten(problem.as_ref());
    let hint = if problem.contains("write the file with") {
        "the file is whole, but this program cannot read all of its format"
    } else {
        DAMAGED
    };
    of_file(path, format!("{row}{problem}"), hint)
}

/// A fault of the bytes rather than of the system: see [`damage`].
fn broken<T>(problem: impl Into<String>) -> io::Result<T> {
    Err(io::Error::other(problem.into()))
}

/// Rows until there is none or an error.
fn rows_of<'a>(next: impl FnMut() -> Result<Option<RawRow>> + 'a) -> RawRows<'a> {
    let mut next = Some(next);
    Box::new(std::iter::from_fn(move || {
        let row = next.as_mut()?().transpose();
        if !matches!(row, Some(Ok(_))) {
            next = None;
        }
        row
    }))
}

/// Fills as much of a buffer as there is.
fn read_up_to(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
