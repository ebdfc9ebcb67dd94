//! GGUF files, the format of llama.cpp, as model folders.
//!
//! Purpose: a file has what a folder has. Its keys become the fields of `config.json` and the files of a tokenizer, its
//! tensors those of the folder; nothing behind this module knows GGUF.
//!
//! Price: a tokenizer is built anew each time that it is asked for, and some of what a folder says is not in the file;
//! llama.cpp's own defaults stand in for it, and what they would not cover is refused by name.

mod architecture;
mod blocks;
mod file;
mod keys;
mod tokens;
mod vocabulary;
mod write;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use hapo_core::{Refusal, found_at};

use crate::config::TensorSpec;
use crate::config_json::{self, ParsedConfig};
use crate::files::{Companions, io, malformed, refused};
use architecture::Architecture;
use file::Gguf;

pub(crate) use blocks::Encoding;
pub(crate) use write::header;

/// The GGUF file that a path names: itself, or the only one of a folder without safetensors.
pub(crate) fn find(path: &Path) -> Result<Option<PathBuf>, Refusal> {
    let is_gguf = |path: &Path| path.extension().is_some_and(|it| it == "gguf");
    let Some(found) = found_at(path)? else { return Ok(None) };
    if !found.is_dir() {
        return Ok((found.is_file() && is_gguf(path)).then(|| path.to_owned()));
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(io("read", path))? {
        let file = entry.map_err(io("read", path))?.path();
        if file.extension().is_some_and(|it| it == "safetensors") {
            return Ok(None);
        }
        files.extend(is_gguf(&file).then_some(file));
    }
    files.sort_unstable();
    match files.as_slice() {
        [one, another, ..] => {
            let got = format!("{} and {}", one.display(), another.display());
            Err(refused(path, "", "one GGUF file", got).hint("name one of the files as the model"))
        }
        _ => Ok(files.pop()),
    }
}

/// As [`read_config`](crate::folder::read_config).
pub(crate) fn read_config(path: &Path) -> Result<ParsedConfig, Refusal> {
    parsed(&Gguf::parse(path, &source(path)?)?)
}

/// Name and bytes of the tokenizer's files, as they would be in a folder.
pub(crate) fn tokenizer_files(path: &Path) -> Result<Companions, Refusal> {
    tokens::files(&Gguf::parse(path, &source(path)?)?)
}

/// The same without the tokenizer.
pub(crate) fn chat_files(path: &Path) -> Result<Companions, Refusal> {
    let source = source(path)?;
    let gguf = Gguf::parse(path, &source)?;
    tokens::chat_files(&gguf, &tokens::Tokens::read(&gguf)?)
}

/// A tensor under the name that it has in a folder, or under its own where it has none there.
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) encoding: Encoding,
    pub(crate) shape: Vec<u64>,
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) change: Change,
}

/// What a file of this architecture does to a folder's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    None,
    /// In each head of as many rows, the two halves are interleaved.
    Interleaved(usize),
    /// 1 is added.
    PlusOne,
}

/// The configuration of a file, the file, and its tensors.
pub(crate) fn open(path: &Path) -> Result<(ParsedConfig, File, Vec<Entry>), Refusal> {
    let source = source(path)?;
    let gguf = Gguf::parse(path, &source)?;
    let parsed = parsed(&gguf)?;
    let (architecture, config) = (Architecture::of(&gguf)?, &parsed.config);
    let known = config.file_tensors().into_iter().map(|it| it.spec);
    let ours: BTreeMap<String, TensorSpec> =
        known.map(|spec| (architecture::name(config, &spec.name), spec)).collect();
    let entries = gguf.tensors.iter().filter(|(name, _)| !architecture::is_rope(name));
    let entries = entries.map(|(name, tensor)| {
        let spec = ours.get(*name);
        Entry {
            name: spec.map_or_else(|| (*name).to_owned(), |it| it.name.clone()),
            encoding: tensor.encoding,
            shape: tensor.shape.clone(),
            start: tensor.start,
            end: tensor.end,
            change: architecture.change(config, name),
        }
    });
    let entries = entries.collect();
    Ok((parsed, source.file, entries))
}

fn parsed(gguf: &Gguf<'_>) -> Result<ParsedConfig, Refusal> {
    let fields = Architecture::of(gguf)?.fields(gguf)?;
    let text = serde_json::to_vec(&fields).expect("a JSON value has a text");
    config_json::parse(gguf.path, &text, None)
}

/// A file and its first bytes, in which its header is. Read rather than mapped: a file that is shortened meanwhile is an
/// error and not a signal.
#[derive(Debug)]
struct Source {
    file: File,
    length: u64,
    head: Vec<u8>,
}

fn source(path: &Path) -> Result<Source, Refusal> {
    /// Four times what the largest vocabulary takes.
    const MOST: u64 = 64 << 20;
    let file = crate::files::open(path)?;
    let (length, mut head) = (file.metadata().map_err(io("read", path))?.len(), Vec::new());
    if length == 0 {
        return Err(malformed(path, "a GGUF file", "an empty one"));
    }
    (&file).take(MOST).read_to_end(&mut head).map_err(io("read", path))?;
    Ok(Source { file, length, head })
}

impl Change {
    /// Rows whose numbers depend on each other.
    pub(crate) fn together(self) -> usize {
        match self {
            Self::Interleaved(rows) => rows,
            Self::None | Self::PlusOne => 1,
        }
    }

    /// Makes a folder's numbers of those of the file.
    pub(crate) fn undo(self, values: &mut [f32], columns: usize) {
        self.shift(values, -1.0);
        self.move_rows(values, columns, |row, half| (row % 2 * half + row / 2, row));
    }

    /// Makes the file's numbers of those of a folder.
    pub(crate) fn apply(self, values: &mut [f32], columns: usize) {
        self.shift(values, 1.0);
        self.move_rows(values, columns, |row, half| (row, row % 2 * half + row / 2));
    }

    fn shift(self, values: &mut [f32], by: f32) {
        if self == Self::PlusOne {
            for it in values {
                *it += by;
            }
        }
    }

    /// Moves the rows of each head: `places` says where to and where from, of the file's row and half a head.
    fn move_rows(
        self,
        values: &mut [f32],
        columns: usize,
        places: impl Fn(usize, usize) -> (usize, usize),
    ) {
        let Self::Interleaved(rows) = self else { return };
        for head in values.chunks_exact_mut(rows * columns) {
            let before = head.to_vec();
            for row in 0..rows {
                let (to, from) = places(row, rows / 2);
                head[to * columns..][..columns]
                    .copy_from_slice(&before[from * columns..][..columns]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_each_format_have_the_bits_of_the_package_gguf() {
        let path = hapo_testing::repository("testdata/gguf/blocks.gguf");
        let (source, whole) = (source(&path).unwrap(), std::fs::read(&path).unwrap());
        let gguf = Gguf::parse(&path, &source).unwrap();
        let values = |name: &str| {
            let (tensor, mut values) = (&gguf.tensors[name], Vec::new());
            tensor.encoding.decode(&whole[tensor.start..tensor.end], &mut values);
            values.into_iter().map(f32::to_bits).collect::<Vec<_>>()
        };
        let names = gguf.tensors.keys().filter(|it| !it.contains('.'));
        let mut count = 0;
        for name in names {
            assert_eq!(gguf.tensors[name].encoding.to_string(), *name);
            assert_eq!(values(name), values(&format!("{name}.f32")), "{name}");
            assert!(values(name).len() >= 32);
            count += 1;
        }
        assert_eq!(count, 10);
    }
}
