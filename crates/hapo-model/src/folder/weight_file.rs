//! One file of weights, safetensors or GGUF: its header, checked, and the numbers of its tensors.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::path::{Path, PathBuf};
use std::{collections::BTreeMap, fs::File, ops::Range};

use hapo_core::{Refusal, UniqueFields, hex};
use hapo_kernels::nearest_bf16;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::files::{
    DIFFERS, RELOAD, broken, checksum_of, excerpt, io, malformed, read_exact_at, refused,
};
use crate::gguf::{Change, Encoding, Entry, Gguf};
use crate::{config::Config, config::dtype::Dtype};

/// A header of 1024 layers takes about 2 MB.
const MAX_HEADER_BYTES: u64 = 16 << 20;

/// Bytes of a file that have a hash of their own where the file has a checksum.
const BLOCK: usize = 1 << 14;

#[derive(Debug)]
pub(super) struct WeightFile {
    pub(super) path: PathBuf,
    file: File,
    length: usize,
    /// Of each block when the file was compared with its checksum, for all later reads; empty where it has none.
    blocks: Vec<u64>,
    pub(super) tensors: BTreeMap<String, Entry>,
    pub(super) metadata: BTreeMap<String, String>,
}

/// A tensor that has been checked against the configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored {
    pub(super) file: usize,
    /// The format of the numbers: blocks are read as bf16, unless f32 was asked for.
    pub(super) dtype: Dtype,
    pub(super) encoding: Encoding,
    pub(super) change: Change,
    pub(super) columns: usize,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Entry {
    /// Where its numbers are, and how they are read; none if its format is not.
    pub(super) fn stored(&self, file: usize, columns: usize) -> Option<Stored> {
        let (encoding, &Self { change, start, end, .. }) = (self.encoding?, self);
        let dtype = encoding.plain().unwrap_or(Dtype::Bf16);
        Some(Stored { file, dtype, encoding, change, columns, start, end })
    }
}

impl Stored {
    pub(super) fn read(&self, file: &WeightFile, values: &mut Vec<f32>) -> Result<(), Refusal> {
        self.read_rows(file, 0..1, 1, values)
    }

    /// The same of some rows of `of`, [`Change::together`].
    pub(super) fn read_rows(
        &self,
        file: &WeightFile,
        rows: Range<usize>,
        of: usize,
        values: &mut Vec<f32>,
    ) -> Result<(), Refusal> {
        const PIECE: usize = 1 << 16;
        let (numbers, bytes) = self.encoding.block();
        let (numbers, bytes) = (numbers as usize, bytes as usize);
        let row = |row: usize| self.start + (self.end - self.start) / bytes * row / of * bytes;
        let (start, end) = (row(rows.start), row(rows.end));
        values.clear();
        values.reserve_exact((end - start) / bytes * numbers);
        let piece = PIECE / numbers * bytes;
        let mut read = vec![0; piece.min(end - start)];
        for start in (start..end).step_by(piece) {
            let read = &mut read[..piece.min(end - start)];
            file.read_at(start, read)?;
            self.encoding.decode(read, values);
        }
        self.change.apply(values, self.columns, -1.0);
        if self.encoding.plain().is_none() && self.dtype == Dtype::Bf16 {
            for it in values.iter_mut() {
                *it = nearest_bf16(*it);
            }
        }
        Ok(())
    }
}

impl WeightFile {
    /// As [`read_exact_at`]. Where the file has a checksum, the bytes are those that it was compared with.
    fn read_at(&self, place: usize, bytes: &mut [u8]) -> Result<(), Refusal> {
        if self.blocks.is_empty() {
            return read_exact_at(&self.file, &self.path, place, bytes);
        }
        let (first, end) = (place / BLOCK, place + bytes.len());
        let mut whole = vec![0; end.next_multiple_of(BLOCK).min(self.length) - first * BLOCK];
        read_exact_at(&self.file, &self.path, first * BLOCK, &mut whole)?;
        let found = whole.chunks(BLOCK).map(hash_of_block);
        if !found.eq(self.blocks[first..end.div_ceil(BLOCK)].iter().copied()) {
            return Err(broken(&self.path, DIFFERS));
        }
        bytes.copy_from_slice(&whole[place - first * BLOCK..][..bytes.len()]);
        Ok(())
    }

    fn verify(&mut self) -> Result<(), Refusal> {
        const PIECE: usize = 64 * BLOCK;
        let Some(sum) = checksum_of(&self.path)? else { return Ok(()) };
        let (mut hash, mut blocks) = (Sha256::new(), Vec::new());
        for start in (0..self.length).step_by(PIECE) {
            let mut piece = vec![0; PIECE.min(self.length - start)];
            self.read_at(start, &mut piece)?;
            blocks.extend(piece.chunks(BLOCK).map(hash_of_block));
            hash.update(piece);
        }
        self.blocks = blocks;
        if sum == hex(hash.finalize()) { Ok(()) } else { Err(broken(&self.path, DIFFERS)) }
    }

    /// A GGUF file, whose tensors have the names of a folder.
    pub(super) fn of_gguf(mut gguf: Gguf, config: &Config) -> Result<Self, Refusal> {
        let tensors = gguf.entries(config)?;
        let (length, blocks, metadata) = (0, Vec::new(), BTreeMap::new());
        Ok(Self { path: gguf.path, file: gguf.file, length, blocks, tensors, metadata })
    }

    pub(super) fn open(path: PathBuf) -> Result<Self, Refusal> {
        let file = crate::files::open(&path)?;
        let length = file.metadata().map_err(io("read", &path))?.len();
        let (tensors, metadata, blocks) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let mut it = Self { path, file, length: length as usize, blocks, tensors, metadata };
        it.verify()?;
        if length < 8 {
            let expected = "a safetensors file of at least 8 bytes";
            return Err(malformed(&it.path, expected, format!("{length} bytes")));
        }
        let mut size = [0; 8];
        it.read_at(0, &mut size)?;
        let (size, most) = (u64::from_le_bytes(size), MAX_HEADER_BYTES.min(length - 8));
        if size > most {
            let expected = format!("a header of at most {most} bytes");
            let got = format!("a header length of {size}");
            return Err(malformed(&it.path, expected, got));
        }
        let mut header = vec![0; size as usize];
        it.read_at(8, &mut header)?;
        (it.tensors, it.metadata) = parse_header(&it.path, &header, length)?;
        Ok(it)
    }
}

fn hash_of_block(bytes: &[u8]) -> u64 {
    BuildHasherDefault::<DefaultHasher>::new().hash_one(bytes)
}

type Header = (BTreeMap<String, Entry>, BTreeMap<String, String>);

/// The tensors of a safetensors file, which follow each other from the end of the header to the end of the file.
fn parse_header(path: &Path, header: &[u8], length: u64) -> Result<Header, Refusal> {
    let data_start = 8 + header.len();
    let header: UniqueFields<Value> = serde_json::from_slice(header)
        .map_err(|cause| malformed(path, "a JSON object as header", cause.to_string()))?;

    let (mut entries, mut metadata) = (Vec::new(), BTreeMap::new());
    for (name, value) in header.0 {
        let got = || excerpt(&value.to_string());
        if name == "__metadata__" {
            metadata = BTreeMap::deserialize(&value)
                .map_err(|_| malformed(path, "strings in __metadata__", got()))?;
            continue;
        }
        let entry = RawEntry::deserialize(&value).map_err(|_| {
            let expected = "a header entry with dtype, shape and two data_offsets";
            refused(path, excerpt(&name), expected, got()).hint(RELOAD)
        })?;
        entries.push((entry.data_offsets, name, entry));
    }
    entries.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));

    let last_end = entries.last().map_or(0, |it| it.0[1]);
    let mut tensors = BTreeMap::new();
    let mut previous_end = 0_u64;
    for ([start, end], name, RawEntry { dtype, shape, .. }) in entries {
        let refuse = |expected: String, got: String| {
            Err(refused(path, excerpt(&name), expected, got).hint(RELOAD))
        };
        if start != previous_end || end < start {
            return refuse(
                format!("bytes from {previous_end} on, where the tensor before ends"),
                format!("bytes {start} to {end}"),
            );
        }
        if end > length - data_start as u64 {
            return refuse(
                format!("a file of {} bytes", last_end.saturating_add(data_start as u64)),
                format!("{length} bytes"),
            );
        }
        let known = Dtype::from_safetensors_name(&dtype);
        if let Some(dtype) = known {
            let elements =
                (shape.iter()).try_fold(1_u64, |product, size| product.checked_mul(*size));
            let size = elements.and_then(|elements| elements.checked_mul(dtype.size() as u64));
            if size != Some(end - start) {
                return refuse(
                    format!("as many bytes as {} {shape:?} takes", dtype.safetensors_name()),
                    format!("{} bytes", end - start),
                );
            }
        }
        previous_end = end;
        let entry = Entry {
            dtype,
            encoding: known.map(Encoding::Plain),
            change: Change::None,
            shape,
            start: data_start + start as usize,
            end: data_start + end as usize,
        };
        tensors.insert(name, entry);
    }
    let end = data_start as u64 + previous_end;
    if end != length {
        let expected = format!("{end} bytes, where the last tensor ends");
        return Err(malformed(path, expected, format!("{length} bytes")));
    }
    Ok((tensors, metadata))
}

#[derive(Deserialize)]
struct RawEntry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}
