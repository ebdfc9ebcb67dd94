//! The sizes that a Parquet file claims, against the bytes that it has.
//!
//! Purpose: the Parquet crate reserves memory for a claim and recurses into a schema before it has seen the bytes, and a
//! reservation that fails ends the program. Everything else is left to that crate.

use super::broken;
use parquet::basic::{Compression, Encoding};
use parquet::column::page::{Page, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

pub(super) const MAGIC: &[u8] = b"PAR1";
/// Groups in groups of a schema.
const NESTING: usize = 32;
/// Most bytes of the values of a page.
const PAGE: i64 = 1 << 30;

/// Checks the length of the footer and the tree of its schema; gives the length of the file.
pub(super) fn check_footer(file: &mut File) -> io::Result<u64> {
    let length = file.seek(SeekFrom::End(0))?;
    let mut tail = [0; 8];
    read_at(file, length.saturating_sub(8), &mut tail)?;
    if &tail[4..] != MAGIC {
        return broken("the file does not end as Parquet files do: it is cut");
    }
    let claimed = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
    if claimed > length - 8 {
        return broken(format!("a footer of {claimed} bytes cannot be"));
    }
    let mut footer = vec![0; claimed as usize];
    read_at(file, length - 8 - claimed, &mut footer)?;
    let (mut open, mut elements, mut children, mut deepest) = (Vec::new(), 0_i64, 0_i64, 0);
    let read = numbers(&footer, &mut |path, number| match path {
        // The name of an element; the number of its children follows.
        [2, 4] => {
            while open.pop_if(|left| *left < 1).is_some() {}
            if let Some(left) = open.last_mut() {
                *left -= 1;
            }
            elements += 1;
        }
        [2, 5] => {
            open.push(number);
            children = children.saturating_add(number);
            deepest = deepest.max(open.len());
        }
        _ => {}
    });
    if read.is_none() || children >= elements || deepest > NESTING {
        return broken("the footer cannot be read, or its schema is nested too deeply");
    }
    Ok(length)
}

/// Walks the page headers of a column chunk; says whether a page has texts in a delta encoding.
pub(super) fn check_pages(
    file: &mut File,
    chunk: &ColumnChunkMetaData,
    length: u64,
) -> io::Result<bool> {
    let (mut place, size) = chunk.byte_range();
    let Some(end) = place.checked_add(size).filter(|end| *end <= length) else {
        return broken("it lies beyond the end of the file");
    };
    // The best compression of each kind, with a margin.
    let (ratio, margin) = match chunk.compression() {
        Compression::UNCOMPRESSED => (1, 0),
        Compression::SNAPPY => (64, 64 << 10),
        Compression::ZSTD(_) => (2048, 16 << 20),
        Compression::BROTLI(_) => {
            return broken("write the file with snappy or zstd: Brotli is not read");
        }
        _ => (1100, 64 << 10),
    };
    let (mut has_delta, mut header) = (false, Vec::new());
    while place < end {
        let (mut compressed, mut uncompressed, mut words, mut encoding) = (-1, -1, 0, 0);
        let mut see = |path: &[i16], number: i64| match path {
            [2] => uncompressed = number,
            [3] => compressed = number,
            [7, 1] => words = number,
            [5, 2] | [8, 4] => encoding = number,
            _ => {}
        };
        // Most headers are short; those with statistics of long texts are not.
        let mut rooms = [1 << 8, 1 << 14, 1 << 20].into_iter();
        let header_length = loop {
            let Some(room) = rooms.next() else { return broken("a page header cannot be read") };
            header.resize((end - place).min(room) as usize, 0);
            read_at(file, place, &mut header)?;
            if let Some(length) = numbers(&header, &mut see) {
                break length as u64;
            }
        };
        let body = place + header_length;
        let most = (compressed.max(0).saturating_mul(ratio) + margin).min(PAGE);
        if !(0..=(end - body) as i64).contains(&compressed)
            || !(0..=most).contains(&uncompressed)
            || !(0..=uncompressed).contains(&words)
        {
            let claim = format!("{uncompressed} bytes, {words} words");
            return broken(format!("a page of {compressed} bytes cannot hold {claim}"));
        }
        // PLAIN, its dictionaries, RLE, dictionary pages, deltas and split streams.
        if ![0, 2, 3, 5, 6, 7, 8, 9].contains(&encoding) {
            return broken(format!(
                "write the file with PLAIN pages: encoding {encoding} is not read"
            ));
        }
        has_delta |= [6, 7].contains(&encoding);
        place = body + compressed as u64;
    }
    Ok(has_delta)
}

/// Texts in a delta encoding claim their number and the length of what each repeats of the one before inside of the
/// page. `levels` are the lists of levels before the values of a page of version 1.
pub(super) fn check_deltas(mut pages: Box<dyn PageReader>, levels: u32) -> Result<()> {
    while let Some(page) = pages.get_next_page()? {
        let streams = match page.encoding() {
            Encoding::DELTA_LENGTH_BYTE_ARRAY => 1,
            Encoding::DELTA_BYTE_ARRAY => 2,
            _ => continue,
        };
        let mut bytes = page.buffer().clone();
        if let Page::DataPageV2 { def_levels_byte_len, rep_levels_byte_len, .. } = page {
            bytes = bytes.slice((def_levels_byte_len + rep_levels_byte_len) as usize..);
        } else {
            for _ in 0..levels {
                let length = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                bytes = bytes.slice(4 + length as usize..);
            }
        }
        // A page of nulls alone has none.
        let streams = if bytes.is_empty() { 0 } else { streams };
        let mut reader = Reader { bytes: &bytes, at: 0 };
        for _ in 0..streams {
            if reader.sum_of_deltas().is_none_or(|total| total > PAGE) {
                return Err(ParquetError::General("a page claims too many texts".to_owned()));
            }
        }
    }
    Ok(())
}

fn read_at(file: &mut File, place: u64, buffer: &mut [u8]) -> io::Result<()> {
    file.seek(SeekFrom::Start(place))?;
    file.read_exact(buffer).or_else(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => broken("the file ends too early"),
        _ => Err(error),
    })
}

type See<'a> = dyn FnMut(&[i16], i64) + 'a;

/// Hands the numbers of a structure of Thrift's compact protocol to `see`, with the fields that lead to each; a text
/// counts as its length. Gives the length of the structure, nothing for bytes that are none.
fn numbers(bytes: &[u8], see: &mut See<'_>) -> Option<usize> {
    let mut reader = Reader { bytes, at: 0 };
    reader.structure(&mut Vec::new(), see)?;
    Some(reader.at)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = self.bytes.get(self.at).copied();
        self.at += 1;
        byte
    }

    fn unsigned(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn signed(&mut self) -> Option<i64> {
        let number = self.unsigned()?;
        Some((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    fn take(&mut self, count: usize) -> Option<&[u8]> {
        let part = self.bytes.get(self.at..self.at.checked_add(count)?);
        self.at += count;
        part
    }

    /// The sum of numbers in Parquet's `DELTA_BINARY_PACKED`, where that is of a length that its bytes can hold.
    fn sum_of_deltas(&mut self) -> Option<i64> {
        let (block, parts) = (self.unsigned()?, usize::try_from(self.unsigned()?).ok()?);
        let mut left = usize::try_from(self.unsigned()?).ok()?;
        let size = usize::try_from(block).ok()?.checked_div(parts)?;
        // Writers put at most 64 numbers into a byte.
        if left > self.bytes.len().saturating_mul(64) {
            return None;
        }
        let mut number = self.signed()? as i32;
        let mut total = i64::from(number);
        left = left.saturating_sub(1);
        while left > 0 {
            let least = self.signed()? as i32;
            for width in self.take(parts)?.to_vec() {
                let width = usize::from(width).min(32);
                let count = size.min(left);
                let packed =
                    if count == 0 { &[] } else { self.take(width.checked_mul(size)? / 8)? };
                for bit in (0..count).map(|index| index * width) {
                    let mut window = [0; 8];
                    let part = &packed[bit / 8..];
                    let part = &part[..part.len().min(8)];
                    window[..part.len()].copy_from_slice(part);
                    let delta = u64::from_le_bytes(window) >> (bit % 8) & ((1 << width) - 1);
                    number = number.wrapping_add(least).wrapping_add(delta as i32);
                    total += i64::from(number);
                }
                left -= count;
            }
        }
        Some(total)
    }

    fn structure(&mut self, path: &mut Vec<i16>, see: &mut See<'_>) -> Option<()> {
        let mut id = 0_i16;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Some(());
            }
            id = match head >> 4 {
                0 => i16::try_from(self.signed()?).ok()?,
                delta => id.checked_add(delta.into())?,
            };
            path.push(id);
            // A boolean field has its value in its type.
            if !matches!(head & 0x0f, 1 | 2) {
                self.value(head & 0x0f, path, see)?;
            }
            path.pop();
        }
    }

    fn value(&mut self, kind: u8, path: &mut Vec<i16>, see: &mut See<'_>) -> Option<()> {
        match kind {
            1..=3 => drop(self.byte()?),
            4..=6 => see(path, self.signed()?),
            7 => drop(self.take(8)?),
            8 => {
                let length = self.unsigned()?;
                see(path, length as i64);
                self.take(usize::try_from(length).ok()?)?;
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = if head >> 4 == 15 { self.unsigned()? } else { u64::from(head >> 4) };
                for _ in 0..count {
                    // Parquet has no lists of lists.
                    let kind = Some(head & 0x0f).filter(|it| !matches!(it, 9 | 10))?;
                    self.value(kind, path, see)?;
                }
            }
            12 if path.len() < NESTING => self.structure(path, see)?,
            _ => return None,
        }
        Some(())
    }
}
