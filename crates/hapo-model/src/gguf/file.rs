//! The parts of a GGUF file: keys with their values as JSON, and where its tensors are.
//!
//! See <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

use std::path::{Path, PathBuf};
use std::{collections::BTreeMap, fmt::Display, fs::File, io::Read};

use hapo_core::Refusal;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use super::{Change, Entry, blocks::Encoding, find};
use crate::fields::shown;
use crate::files::{RELOAD, excerpt, io, malformed, read_exact_at, refused};

/// Tensors start at multiples of this, unless `general.alignment` says otherwise.
pub(super) const ALIGNMENT: usize = 32;

/// A file whose parts lie within it.
#[derive(Debug)]
pub(crate) struct Gguf {
    pub(crate) path: PathBuf,
    pub(crate) file: File,
    pub(super) keys: Map<String, Json>,
    pub(super) tensors: BTreeMap<String, Entry>,
}

impl Gguf {
    /// The file that a path names, if it names one.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>, Refusal> {
        find(path)?.map(Self::parse).transpose()
    }

    pub(super) fn parse(path: PathBuf) -> Result<Self, Refusal> {
        /// Four times what the largest vocabulary takes.
        const MOST: u64 = 64 << 20;
        let file = crate::files::open(&path)?;
        let (length, mut head) = (file.metadata().map_err(io("read", &path))?.len(), Vec::new());
        if length == 0 {
            return Err(malformed(&path, "a GGUF file", "an empty one"));
        }
        (&file).take(MOST).read_to_end(&mut head).map_err(io("read", &path))?;
        let mut cursor = Cursor { path: &path, bytes: &head, at: 0, values: 0 };
        if cursor.take(4, "the magic number")? != b"GGUF" {
            return Err(malformed(&path, "a GGUF file", "another magic number"));
        }
        let version = cursor.u32("the version")?;
        if !matches!(version, 2 | 3) {
            let got = if version.swap_bytes() < 8 { "a big-endian file" } else { "another" };
            let got = if version < 8 { format!("version {version}") } else { got.to_owned() };
            return Err(refused(&path, "", "GGUF of version 2 or 3, little-endian", got));
        }
        let (n_tensors, n_keys) = (cursor.u64("tensor_count")?, cursor.u64("kv_count")?);
        let mut keys = Map::new();
        for _ in 0..n_keys {
            let key = cursor.text("a key")?;
            let kind = cursor.u32(key)?;
            let value = cursor.value(kind, key)?;
            if keys.insert(key.to_owned(), value).is_some() {
                return Err(malformed(&path, "every key once", excerpt(key)));
            }
        }
        let mut infos = Vec::new();
        for _ in 0..n_tensors {
            infos.push(cursor.tensor()?);
        }
        let alignment = keys.get("general.alignment").map_or(Some(ALIGNMENT as u64), Json::as_u64);
        let is_fit = |it: &u64| (1..=1 << 20).contains(it) && it.is_multiple_of(8);
        let Some(alignment) = alignment.filter(is_fit) else {
            let expected = "a multiple of 8 of at most 1 MiB";
            return Err(refused(&path, "general.alignment", expected, "another value"));
        };
        let data = (cursor.at as u64).next_multiple_of(alignment);
        let tensors = place(&path, infos, data, length, alignment)?;
        Ok(Self { path, file, keys, tensors })
    }

    pub(super) fn refuse(&self, key: &str, expected: &str, got: &str) -> Refusal {
        refused(&self.path, excerpt(key), expected, excerpt(got))
    }

    /// The value of a key; `expected` says what it must be.
    pub(super) fn get<'a, T: Deserialize<'a>>(
        &'a self,
        key: &str,
        expected: &str,
    ) -> Result<Option<T>, Refusal> {
        let value = self.keys.get(key).map(|it| T::deserialize(it).map_err(|_| it)).transpose();
        value.map_err(|other| self.refuse(key, expected, &shown(other)))
    }

    pub(super) fn numbers(&self, name: &str) -> Result<Option<Vec<f64>>, Refusal> {
        let Some(tensor) = self.tensors.get(name) else { return Ok(None) };
        let (mut bytes, mut values) = (vec![0; tensor.end - tensor.start], Vec::new());
        read_exact_at(&self.file, &self.path, tensor.start, &mut bytes)?;
        tensor.encoding.iter().for_each(|it| it.decode(&bytes, &mut values));
        Ok(Some(values.into_iter().map(exact).collect()))
    }
}

/// A tensor as it is named in the file: with its offset among the tensors' bytes.
type Info<'a> = (&'a str, Encoding, Vec<u64>, u64);

/// The bytes of each tensor, which lie in the file and do not overlap.
fn place(
    path: &Path,
    mut infos: Vec<Info<'_>>,
    data: u64,
    file: u64,
    alignment: u64,
) -> Result<BTreeMap<String, Entry>, Refusal> {
    infos.sort_by_key(|(_, _, _, offset)| *offset);
    let (mut tensors, mut free) = (BTreeMap::new(), 0);
    for (name, encoding, shape, offset) in infos {
        let refuse = |expected: String, got: String| Err(malformed_at(path, name, expected, got));
        let elements = shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size));
        let (per_block, block_bytes) = encoding.block();
        let blocks = elements.map(|it| it / per_block);
        let Some(size) = blocks.and_then(|it| it.checked_mul(block_bytes)) else {
            return refuse("a tensor of less than 2^64 bytes".to_owned(), format!("{shape:?}"));
        };
        if !shape.last().is_some_and(|row| row.is_multiple_of(per_block)) {
            let expected = format!("rows of whole blocks of {per_block}, as {encoding} has");
            return refuse(expected, format!("shape {shape:?}"));
        }
        if offset < free || !offset.is_multiple_of(alignment) {
            let expected = format!("bytes from {free} on, at a multiple of {alignment}");
            return refuse(expected, format!("offset {offset}"));
        }
        let end = offset.checked_add(size).and_then(|it| it.checked_add(data));
        let Some(end) = end.filter(|end| *end <= file) else {
            let expected = format!("bytes within the file of {file}");
            return refuse(expected, format!("{size} bytes at offset {offset}"));
        };
        free = offset + size;
        let (start, end) = ((data + offset) as usize, end as usize);
        let (dtype, encoding) = (encoding.to_string(), Some(encoding));
        let entry = Entry { dtype, encoding, change: Change::None, shape, start, end };
        if tensors.insert(name.to_owned(), entry).is_some() {
            return refuse("every tensor once".to_owned(), "it twice".to_owned());
        }
    }
    Ok(tensors)
}

fn malformed_at(path: &Path, name: &str, expected: impl Display, got: impl Display) -> Refusal {
    refused(path, excerpt(name), expected, got).hint(RELOAD)
}

/// A number by its shortest decimal: 1e-6 and not 9.999999974752427e-7.
fn exact(number: f32) -> f64 {
    number.to_string().parse().expect("the decimal of an f32 is a number")
}

struct Cursor<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    at: usize,
    values: u32,
}

impl<'a> Cursor<'a> {
    /// The next bytes; `what` is named where they are missing.
    fn take(&mut self, n: usize, what: &str) -> Result<&'a [u8], Refusal> {
        let rest = &self.bytes[self.at..];
        let Some(taken) = rest.get(..n) else {
            let got = format!("the file's last {}", rest.len());
            return Err(malformed_at(self.path, what, format!("{n} bytes"), got));
        };
        self.at += n;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Refusal> {
        Ok(self.take(N, what)?.try_into().expect("as many as asked for"))
    }

    fn u32(&mut self, what: &str) -> Result<u32, Refusal> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    fn u64(&mut self, what: &str) -> Result<u64, Refusal> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    fn text(&mut self, what: &str) -> Result<&'a str, Refusal> {
        let length = self.u64(what)?;
        let bytes = self.take(usize::try_from(length).unwrap_or(usize::MAX), what)?;
        let refuse = |cause| malformed_at(self.path, what, "UTF-8 text", cause);
        std::str::from_utf8(bytes).map_err(refuse)
    }

    /// A value of a type of the format: its numbers are those of `gguf_type`.
    fn value(&mut self, kind: u32, key: &str) -> Result<Json, Refusal> {
        /// In all lists together; the largest vocabulary has a quarter. One takes 32 bytes, whatever it has in the file.
        const MOST: u32 = 4 << 20;
        self.values += 1;
        if self.values > MOST {
            return Err(malformed_at(self.path, key, format!("at most {MOST} values"), "more"));
        }
        Ok(match kind {
            0 => json!(self.array::<1>(key)?[0]),
            1 => json!(i8::from_le_bytes(self.array(key)?)),
            2 => json!(u16::from_le_bytes(self.array(key)?)),
            3 => json!(i16::from_le_bytes(self.array(key)?)),
            4 => json!(self.u32(key)?),
            5 => json!(i32::from_le_bytes(self.array(key)?)),
            6 => json!(exact(f32::from_le_bytes(self.array(key)?))),
            7 => json!(self.array::<1>(key)? != [0]),
            8 => json!(self.text(key)?),
            9 => {
                let (kind, len) = (self.u32(key)?, self.u64(key)?);
                if kind == 9 {
                    return Err(self.unknown(kind, key));
                }
                (0..len).map(|_| self.value(kind, key)).collect::<Result<_, _>>()?
            }
            10 => json!(self.u64(key)?),
            11 => json!(i64::from_le_bytes(self.array(key)?)),
            12 => json!(f64::from_le_bytes(self.array(key)?)),
            _ => return Err(self.unknown(kind, key)),
        })
    }

    fn unknown(&self, kind: u32, key: &str) -> Refusal {
        let expected = "a scalar, a text or a list of either";
        malformed_at(self.path, key, expected, format!("type {kind}"))
    }

    fn tensor(&mut self) -> Result<Info<'a>, Refusal> {
        let name = self.text("the name of a tensor")?;
        let n = self.u32(name)?;
        if !(1..=4).contains(&n) {
            return Err(malformed_at(self.path, name, "1 to 4 dimensions", n));
        }
        let mut shape = (0..n).map(|_| self.u64(name)).collect::<Result<Vec<_>, _>>()?;
        shape.reverse();
        let encoding = Encoding::of(self.u32(name)?)
            .map_err(|kind| refused(self.path, excerpt(name), Encoding::KNOWN, kind))?;
        Ok((name, encoding, shape, self.u64(name)?))
    }
}
