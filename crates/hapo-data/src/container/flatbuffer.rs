//! Tables of `FlatBuffers`, just enough to read what Arrow's messages say. Every place is checked before it is read.

use std::ops::Range;

pub(super) type Found<T> = Result<T, &'static str>;

const CUT: &str = "a message is cut, or points outside itself";

#[derive(Clone, Copy)]
pub(super) struct Table<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// A little-endian number of up to 16 bytes, with its sign.
pub(super) fn signed(bytes: &[u8]) -> i128 {
    let fill = if bytes.last().is_some_and(|it| it & 0x80 != 0) { 0xff } else { 0 };
    let mut all = [fill; 16];
    all[..bytes.len()].copy_from_slice(bytes);
    i128::from_le_bytes(all)
}

pub(super) fn part(bytes: &[u8], at: usize, len: usize) -> Option<&[u8]> {
    bytes.get(at..at.checked_add(len)?)
}

impl<'a> Table<'a> {
    pub(super) fn root(bytes: &'a [u8]) -> Found<Self> {
        Table { bytes, at: 0 }.follow(0)
    }

    fn number_at(&self, at: usize, len: usize) -> Found<i64> {
        part(self.bytes, at, len).map(|it| signed(it) as i64).ok_or(CUT)
    }

    fn follow(&self, at: usize) -> Found<Self> {
        let offset = self.number_at(at, 4)? as u32 as usize;
        Ok(Table { bytes: self.bytes, at: at.checked_add(offset).ok_or(CUT)? })
    }

    fn field(&self, index: usize) -> Found<Option<usize>> {
        let to_fields = self.number_at(self.at, 4)?;
        let fields = usize::try_from(self.at as i64 - to_fields).map_err(|_| CUT)?;
        let slot = 4 + 2 * index;
        if slot + 2 > self.number_at(fields, 2)? as u16 as usize {
            return Ok(None);
        }
        let offset = self.number_at(fields + slot, 2)? as u16 as usize;
        Ok((offset > 0).then_some(self.at + offset))
    }

    /// A number of `len` bytes, or what it is where it is left out.
    pub(super) fn number(&self, index: usize, len: usize, default: i64) -> Found<i64> {
        self.field(index)?.map_or(Ok(default), |at| self.number_at(at, len))
    }

    pub(super) fn table(&self, index: usize) -> Found<Option<Table<'a>>> {
        self.field(index)?.map(|at| self.follow(at)).transpose()
    }

    /// The place of elements of `size` bytes; an empty one where the field is left out.
    fn vector(&self, index: usize, size: usize) -> Found<Range<usize>> {
        let Some(at) = self.field(index)? else { return Ok(0..0) };
        let at = self.follow(at)?.at;
        let length = (self.number_at(at, 4)? as u32 as usize).saturating_mul(size);
        part(self.bytes, at + 4, length).ok_or(CUT)?;
        Ok(at + 4..at + 4 + length)
    }

    pub(super) fn tables(self, index: usize) -> Found<impl Iterator<Item = Found<Self>>> {
        Ok(self.vector(index, 4)?.step_by(4).map(move |at| self.follow(at)))
    }

    /// The words of all elements, which have `count` of 8 bytes each.
    pub(super) fn words(&self, index: usize, count: usize) -> Found<impl Iterator<Item = i64>> {
        let all = self.bytes[self.vector(index, 8 * count)?].chunks_exact(8);
        Ok(all.map(|it| signed(it) as i64))
    }

    pub(super) fn text(&self, index: usize) -> Found<&'a str> {
        let bytes = &self.bytes[self.vector(index, 1)?];
        std::str::from_utf8(bytes).map_err(|_| "a name is no UTF-8")
    }
}
