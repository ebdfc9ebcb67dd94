//! The parts of a GGUF file: keys with their values, and where its tensors are.
//!
//! See <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>. Nothing is copied but names: a text is a part of
//! the bytes that were read, and a list is read each time that it is asked for, so that a count in a file reserves no memory.

use std::collections::BTreeMap;
use std::path::Path;

use hapo_core::Refusal;

use super::Source;
use super::blocks::Encoding;
use crate::config::check::MAX_LAYERS;
use crate::files::{RELOAD, excerpt, malformed, read_exact_at, refused};

/// Tensors start at multiples of this, unless `general.alignment` says otherwise.
pub(super) const ALIGNMENT: usize = 32;

/// A file whose parts lie within it.
#[derive(Debug)]
pub(super) struct Gguf<'a> {
    pub(super) path: &'a Path,
    source: &'a Source,
    pub(super) keys: BTreeMap<&'a str, Value<'a>>,
    pub(super) tensors: BTreeMap<&'a str, Tensor>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    Integer(i128),
    /// By its shortest decimal: 1e-6 and not 9.999999974752427e-7.
    Float(f64),
    Bool(bool),
    Text(&'a str),
    List(List<'a>),
}

/// A list of values of one type.
#[derive(Clone, Copy, Debug)]
pub(super) struct List<'a> {
    kind: u32,
    len: usize,
    bytes: &'a [u8],
}

/// Where a tensor is, from the start of the file.
#[derive(Debug)]
pub(super) struct Tensor {
    pub(super) encoding: Encoding,
    /// Rows first, as in safetensors.
    pub(super) shape: Vec<u64>,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl<'a> Gguf<'a> {
    pub(super) fn parse(path: &'a Path, source: &'a Source) -> Result<Self, Refusal> {
        let mut cursor = Cursor { path, bytes: &source.head, at: 0 };
        if cursor.take(4, "the magic number")? != b"GGUF" {
            return Err(malformed(path, "a GGUF file", "another magic number"));
        }
        let version = cursor.u32("the version")?;
        if !matches!(version, 2 | 3) {
            let got = if version.swap_bytes() < 8 { "a big-endian file" } else { "another" };
            let got = if version < 8 { format!("version {version}") } else { got.to_owned() };
            return Err(refused(path, "", "GGUF of version 2 or 3, little-endian", got));
        }
        let (n_tensors, n_keys) = (cursor.u64("tensor_count")?, cursor.u64("kv_count")?);
        let mut keys = BTreeMap::new();
        for _ in 0..n_keys {
            let key = cursor.text("a key")?;
            let kind = cursor.u32(key)?;
            let value = cursor.value(kind, key)?;
            if keys.insert(key, value).is_some() {
                return Err(malformed(path, "every key once", excerpt(key)));
            }
        }
        let mut infos = Vec::new();
        for _ in 0..n_tensors {
            infos.push(cursor.tensor()?);
        }
        let alignment = match keys.get("general.alignment") {
            None => ALIGNMENT as u64,
            Some(Value::Integer(it @ 1..=0x10_0000)) if *it % 8 == 0 => *it as u64,
            Some(_) => {
                let expected = "a multiple of 8 of at most 1 MiB";
                return Err(refused(path, "general.alignment", expected, "another value"));
            }
        };
        let data = (cursor.at as u64).next_multiple_of(alignment);
        let tensors = place(path, infos, data, source.length, alignment)?;
        Ok(Self { path, source, keys, tensors })
    }

    pub(super) fn refuse(&self, key: &str, expected: &str, got: &str) -> Refusal {
        refused(self.path, excerpt(key), expected, excerpt(got))
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, Refusal> {
        match self.keys.get(key) {
            None => Ok(None),
            Some(Value::Text(it)) => Ok(Some(it)),
            Some(other) => Err(self.refuse(key, "a text", other.name())),
        }
    }

    pub(super) fn bool(&self, key: &str) -> Result<Option<bool>, Refusal> {
        match self.keys.get(key) {
            None => Ok(None),
            Some(Value::Bool(it)) => Ok(Some(*it)),
            Some(other) => Err(self.refuse(key, "true or false", other.name())),
        }
    }

    /// The numbers of a plain tensor.
    pub(super) fn numbers(&self, name: &str) -> Result<Option<Vec<f64>>, Refusal> {
        let Some(tensor) = self.tensors.get(name) else { return Ok(None) };
        let (mut bytes, mut values) = (vec![0; tensor.end - tensor.start], Vec::new());
        read_exact_at(&self.source.file, self.path, tensor.start, &mut bytes)?;
        tensor.encoding.decode(&bytes, &mut values);
        Ok(Some(values.into_iter().map(exact).collect()))
    }

    /// A list's values, each as `read` takes it.
    pub(super) fn list<T>(
        &self,
        key: &str,
        read: impl Fn(Value<'a>) -> Option<T>,
    ) -> Result<Option<Vec<T>>, Refusal> {
        let list = match self.keys.get(key) {
            None => return Ok(None),
            Some(Value::List(it)) => *it,
            Some(other) => return Err(self.refuse(key, "a list", other.name())),
        };
        let mut all = Vec::new();
        for (at, value) in list.values().enumerate() {
            let place = || format!("{key}[{at}]");
            all.push(read(value).ok_or_else(|| {
                self.refuse(&place(), "the type of this list's values", value.name())
            })?);
        }
        Ok(Some(all))
    }
}

/// A tensor as it is named in the file: with its offset among the tensors' bytes.
type Info<'a> = (&'a str, Encoding, Vec<u64>, u64);

/// The bytes of each tensor, which lie in the file and do not overlap.
fn place<'a>(
    path: &Path,
    mut infos: Vec<Info<'a>>,
    data: u64,
    file: u64,
    alignment: u64,
) -> Result<BTreeMap<&'a str, Tensor>, Refusal> {
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
            return refuse(
                format!("bytes within the file of {file}"),
                format!("{size} bytes at offset {offset}"),
            );
        };
        free = offset + size;
        let (start, end) = ((data + offset) as usize, end as usize);
        if tensors.insert(name, Tensor { encoding, shape, start, end }).is_some() {
            return refuse("every tensor once".to_owned(), "it twice".to_owned());
        }
    }
    Ok(tensors)
}

fn malformed_at(path: &Path, name: &str, expected: String, got: String) -> Refusal {
    refused(path, excerpt(name), expected, got).hint(RELOAD)
}

/// A number by its shortest decimal.
fn exact(number: f32) -> f64 {
    number.to_string().parse().expect("the decimal of an f32 is a number")
}

impl<'a> List<'a> {
    fn values(self) -> impl Iterator<Item = Value<'a>> {
        let mut cursor = Cursor { path: Path::new(""), bytes: self.bytes, at: 0 };
        (0..self.len).map(move |_| cursor.value(self.kind, "").expect("a list that was read once"))
    }

    /// The list as JSON where it is one of booleans, else a word for it: the others are read where they are needed.
    pub(super) fn json(self) -> serde_json::Value {
        if self.kind != 7 || self.len > MAX_LAYERS {
            return "a list".into();
        }
        self.values().map(|it| matches!(it, Value::Bool(true))).collect()
    }
}

impl Value<'_> {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Integer(_) => "an integer",
            Self::Float(_) => "a number",
            Self::Bool(_) => "a boolean",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
        }
    }
}

/// A place in the file's bytes.
struct Cursor<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// The next bytes; `what` is named where they are missing.
    fn take(&mut self, n: usize, what: &str) -> Result<&'a [u8], Refusal> {
        let rest = &self.bytes[self.at..];
        let Some(taken) = rest.get(..n) else {
            let (expected, got) = (format!("{n} bytes"), format!("the file's last {}", rest.len()));
            return Err(malformed_at(self.path, what, expected, got));
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
        let refuse = |cause: std::str::Utf8Error| {
            malformed_at(self.path, what, "UTF-8 text".to_owned(), cause.to_string())
        };
        std::str::from_utf8(bytes).map_err(refuse)
    }

    /// A value of a type of the format: its numbers are those of `gguf_type`.
    fn value(&mut self, kind: u32, key: &str) -> Result<Value<'a>, Refusal> {
        Ok(match kind {
            0 => Value::Integer(self.array::<1>(key)?[0].into()),
            1 => Value::Integer(i8::from_le_bytes(self.array(key)?).into()),
            2 => Value::Integer(u16::from_le_bytes(self.array(key)?).into()),
            3 => Value::Integer(i16::from_le_bytes(self.array(key)?).into()),
            4 => Value::Integer(self.u32(key)?.into()),
            5 => Value::Integer(i32::from_le_bytes(self.array(key)?).into()),
            6 => Value::Float(exact(f32::from_le_bytes(self.array(key)?))),
            7 => Value::Bool(self.array::<1>(key)? != [0]),
            8 => Value::Text(self.text(key)?),
            9 => {
                let (kind, len) = (self.u32(key)?, self.u64(key)?);
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                let start = self.at;
                match scalar_bytes(kind) {
                    Some(size) => {
                        self.take(len.saturating_mul(size), key)?;
                    }
                    None if kind == 8 => {
                        for _ in 0..len {
                            self.text(key)?;
                        }
                    }
                    None => return Err(self.unknown(kind, key)),
                }
                Value::List(List { kind, len, bytes: &self.bytes[start..self.at] })
            }
            10 => Value::Integer(self.u64(key)?.into()),
            11 => Value::Integer(i64::from_le_bytes(self.array(key)?).into()),
            12 => Value::Float(f64::from_le_bytes(self.array(key)?)),
            _ => return Err(self.unknown(kind, key)),
        })
    }

    fn unknown(&self, kind: u32, key: &str) -> Refusal {
        let expected = "a scalar, a text or a list of either";
        malformed_at(self.path, key, expected.to_owned(), format!("type {kind}"))
    }

    fn tensor(&mut self) -> Result<Info<'a>, Refusal> {
        let name = self.text("the name of a tensor")?;
        let n = self.u32(name)?;
        if !(1..=4).contains(&n) {
            let expected = "1 to 4 dimensions".to_owned();
            return Err(malformed_at(self.path, name, expected, n.to_string()));
        }
        let mut shape = (0..n).map(|_| self.u64(name)).collect::<Result<Vec<_>, _>>()?;
        shape.reverse();
        let encoding = Encoding::of(self.u32(name)?)
            .map_err(|kind| refused(self.path, excerpt(name), Encoding::KNOWN, kind))?;
        Ok((name, encoding, shape, self.u64(name)?))
    }
}

/// Bytes of a value of a type that is no text and no list.
fn scalar_bytes(kind: u32) -> Option<usize> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}
