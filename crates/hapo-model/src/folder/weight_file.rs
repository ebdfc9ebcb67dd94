//! One file of weights, safetensors or GGUF: its header, checked, and the bytes of its tensors.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hapo_core::Refusal;
use hapo_core::UniqueFields;
use memmap2::Mmap;
use serde_json::Value;

use crate::config::dtype::Dtype;
use crate::config_json::ParsedConfig;
use crate::files::{RELOAD, excerpt, io, malformed, refused};
use crate::gguf::{self, Change, Encoding};

/// A header of 1024 layers takes about 2 MB.
const MAX_HEADER_BYTES: u64 = 16 << 20;

/// One file: its bytes and its header.
#[derive(Debug)]
pub(super) struct WeightFile {
    pub(super) path: PathBuf,
    map: Mmap,
    pub(super) tensors: BTreeMap<String, Entry>,
    /// The writer's notes beside the tensors.
    pub(super) metadata: BTreeMap<String, String>,
}

/// A tensor of a header; the range counts from the start of the file.
#[derive(Debug)]
pub(super) struct Entry {
    /// The format as the file names it.
    pub(super) dtype: String,
    pub(super) encoding: Option<Encoding>,
    pub(super) change: Change,
    pub(super) shape: Vec<u64>,
    pub(super) start: usize,
    pub(super) end: usize,
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
    pub(super) fn bytes<'a>(&self, file: &'a WeightFile) -> &'a [u8] {
        &file.map[self.start..self.end]
    }

    pub(super) fn values<'a>(&self, file: &'a WeightFile, buffer: &'a mut Vec<f32>) -> &'a [f32] {
        let bytes = self.bytes(file);
        // Nearly every writer pads the header, so that f32 needs no copy.
        if self.encoding == Encoding::Plain(Dtype::F32)
            && self.change == Change::None
            && cfg!(target_endian = "little")
            && let Ok(values) = bytemuck::try_cast_slice(bytes)
        {
            return values;
        }
        self.encoding.decode(bytes, buffer);
        self.change.undo(buffer, self.columns);
        if self.encoding.plain().is_none() && self.dtype == Dtype::Bf16 {
            for it in buffer.iter_mut() {
                *it = half::bf16::from_f32(*it).to_f32();
            }
        }
        buffer
    }
}

impl WeightFile {
    /// Gives back the memory that a tensor's bytes took while they were read.
    #[cfg(unix)]
    pub(super) fn forget(&self, read: &Stored) {
        let (start, len) = (read.start, read.end - read.start);
        // SAFETY: the map is read-only and backed by the file: dropped pages are read from the file again.
        let advice = unsafe {
            self.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, len)
        };
        // Only advice: without it the pages stay until they are needed elsewhere.
        let _ = advice;
    }

    #[cfg(not(unix))]
    pub(super) fn forget(&self, _: &Stored) {}

    /// A GGUF file, whose tensors have the names of a folder, and its configuration.
    pub(super) fn of_gguf(path: PathBuf) -> Result<(ParsedConfig, Self), Refusal> {
        let (parsed, map, entries) = gguf::open(&path)?;
        let entry = |it: gguf::Entry| {
            let gguf::Entry { name, encoding, shape, start, end, change } = it;
            let dtype = encoding.to_string();
            (name, Entry { dtype, encoding: Some(encoding), change, shape, start, end })
        };
        let tensors = entries.into_iter().map(entry).collect();
        Ok((parsed, Self { path, map, tensors, metadata: BTreeMap::new() }))
    }

    pub(super) fn open(path: PathBuf) -> Result<Self, Refusal> {
        let file = crate::files::open(&path)?;
        let length = file.metadata().map_err(io("read", &path))?.len();
        if length < 8 {
            let expected = "a safetensors file of at least 8 bytes";
            return Err(malformed(&path, expected, format!("{length} bytes")));
        }
        // SAFETY: the map is only read, and every value of its bytes is valid. Another process
        // that shortens the file meanwhile ends this one with a bus error, which the module header
        // admits; it cannot make these reads touch other memory.
        let map = unsafe { Mmap::map(&file) }.map_err(io("map", &path))?;
        let (tensors, metadata) = parse_header(&path, &map)?;
        Ok(Self { path, map, tensors, metadata })
    }
}

/// The tensors of a file, and its metadata.
type Header = (BTreeMap<String, Entry>, BTreeMap<String, String>);

/// The tensors of a safetensors file, which follow each other from the end of the header to
/// the end of the file.
fn parse_header(path: &Path, bytes: &[u8]) -> Result<Header, Refusal> {
    let (length, rest) = bytes.split_first_chunk::<8>().expect("the caller has seen 8 bytes");
    let header_bytes = u64::from_le_bytes(*length);
    if header_bytes > MAX_HEADER_BYTES || header_bytes > rest.len() as u64 {
        let most = MAX_HEADER_BYTES.min(rest.len() as u64);
        let expected = format!("a header of at most {most} bytes");
        return Err(malformed(path, expected, format!("a header length of {header_bytes}")));
    }
    let data_start = 8 + header_bytes as usize;
    let header: UniqueFields<Value> = serde_json::from_slice(&rest[..header_bytes as usize])
        .map_err(|cause| malformed(path, "a JSON object as header", cause.to_string()))?;

    let (mut entries, mut metadata) = (Vec::new(), BTreeMap::new());
    for (name, value) in header.0 {
        if name != "__metadata__" {
            let entry = parse_entry(path, &name, &value)?;
            entries.push((name, entry));
            continue;
        }
        let got = excerpt(&value.to_string());
        metadata = serde_json::from_value(value)
            .map_err(|_| malformed(path, "strings in __metadata__", got))?;
    }
    entries.sort_by(|(left, a), (right, b)| (a.0, a.1, left).cmp(&(b.0, b.1, right)));

    let last_end = entries.last().map_or(0, |(_, (_, end, ..))| *end);
    let mut tensors = BTreeMap::new();
    let mut previous_end = 0_u64;
    for (name, (start, end, dtype, shape)) in entries {
        let refuse = |expected: String, got: String| {
            Err(refused(path, excerpt(&name), expected, got).hint(RELOAD))
        };
        if start != previous_end || end < start {
            return refuse(
                format!("bytes from {previous_end} on, where the tensor before ends"),
                format!("bytes {start} to {end}"),
            );
        }
        if end > (bytes.len() - data_start) as u64 {
            return refuse(
                format!("a file of {} bytes", last_end.saturating_add(data_start as u64)),
                format!("{} bytes", bytes.len()),
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
    if end != bytes.len() as u64 {
        let expected = format!("{end} bytes, where the last tensor ends");
        return Err(malformed(path, expected, format!("{} bytes", bytes.len())));
    }
    Ok((tensors, metadata))
}

type RawEntry = (u64, u64, String, Vec<u64>);

fn parse_entry(path: &Path, name: &str, value: &Value) -> Result<RawEntry, Refusal> {
    let parsed = || -> Option<RawEntry> {
        let entry = value.as_object()?;
        let dtype = entry.get("dtype")?.as_str()?.to_owned();
        let shape = entry.get("shape")?.as_array()?;
        let shape = shape.iter().map(Value::as_u64).collect::<Option<_>>()?;
        let [start, end] = entry.get("data_offsets")?.as_array()?.as_slice() else {
            return None;
        };
        Some((start.as_u64()?, end.as_u64()?, dtype, shape))
    };
    parsed().ok_or_else(|| {
        let expected = "a header entry with dtype, shape and two data_offsets";
        refused(path, excerpt(name), expected, excerpt(&value.to_string())).hint(RELOAD)
    })
}
