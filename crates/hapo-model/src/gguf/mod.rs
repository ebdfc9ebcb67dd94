//! GGUF files, the format of llama.cpp, as model folders.
//!
//! Purpose: a file has what a folder has. Its keys become the fields of `config.json` and the files of a tokenizer, its
//! tensors those of the folder; nothing behind this module knows GGUF. Price: a tokenizer is built anew each time that
//! it is asked for, and some of what a folder says is not in the file; llama.cpp's own defaults stand in for it, and
//! what they would not cover is refused by name.

mod architecture;
mod blocks;
mod file;
mod tokens;
mod vocabulary;
mod write;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hapo_core::{Refusal, found_at};

use crate::config_json::{self, ParsedConfig};
use crate::files::{in_file, io, refused};
use crate::{config::Config, fields::from_value};
use architecture::Architecture;

pub(crate) use blocks::Encoding;
pub(crate) use file::Gguf;
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

impl Gguf {
    pub(crate) fn config(&self) -> Result<ParsedConfig, Refusal> {
        let fields = Architecture::of(self)?.fields(self)?;
        (from_value(&fields).and_then(config_json::read))
            .map_err(|refusal| in_file(&self.path, refusal))
    }

    /// The tensors under the names that they have in a folder, or under their own where they have none there.
    pub(crate) fn entries(&mut self, config: &Config) -> Result<BTreeMap<String, Entry>, Refusal> {
        let architecture = Architecture::of(self)?;
        let known = config.file_tensors().into_iter().map(|it| it.spec.name);
        let ours: BTreeMap<String, String> =
            known.map(|ours| (architecture::name(config, &ours), ours)).collect();
        let tensors = std::mem::take(&mut self.tensors).into_iter();
        let tensors = tensors.filter(|(name, _)| !architecture::is_rope(name));
        Ok(tensors
            .map(|(name, entry)| {
                let change = architecture.change(config, &name);
                (ours.get(&name).cloned().unwrap_or(name), Entry { change, ..entry })
            })
            .collect())
    }
}

/// A tensor of a header; the range counts from the start of the file.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The format as the file names it.
    pub(crate) dtype: String,
    pub(crate) encoding: Option<Encoding>,
    pub(crate) change: Change,
    /// Rows first.
    pub(crate) shape: Vec<u64>,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// What a file of this architecture does to a folder's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    None,
    /// In each head of as many rows, the two halves are interleaved.
    Interleaved(usize),
    PlusOne,
}

impl Change {
    /// Rows whose numbers depend on each other.
    pub(crate) fn together(self) -> usize {
        match self {
            Self::Interleaved(rows) => rows,
            Self::None | Self::PlusOne => 1,
        }
    }

    /// Makes the file's numbers of a folder's where `sign` is 1, and a folder's of the file's where it is −1.
    pub(crate) fn apply(self, values: &mut [f32], columns: usize, sign: f32) {
        let rows = match self {
            Self::None => return,
            Self::PlusOne => return values.iter_mut().for_each(|it| *it += sign),
            Self::Interleaved(rows) => rows,
        };
        for head in values.chunks_exact_mut(rows * columns) {
            let before = head.to_vec();
            for row in 0..rows {
                let (mut to, mut from) = (row, row % 2 * (rows / 2) + row / 2);
                if sign < 0.0 {
                    (to, from) = (from, to);
                }
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
        let (gguf, whole) = (Gguf::parse(path.clone()).unwrap(), std::fs::read(&path).unwrap());
        let values = |name: &str| {
            let (tensor, mut values) = (&gguf.tensors[name], Vec::new());
            let encoding = tensor.encoding.unwrap();
            encoding.decode(&whole[tensor.start..tensor.end], &mut values);
            values.into_iter().map(f32::to_bits).collect::<Vec<_>>()
        };
        let names = gguf.tensors.keys().filter(|it| !it.contains('.'));
        let mut count = 0;
        for name in names {
            assert_eq!(gguf.tensors[name].dtype, *name);
            assert_eq!(values(name), values(&format!("{name}.f32")), "{name}");
            assert!(values(name).len() >= 32);
            count += 1;
        }
        assert_eq!(count, 10);
    }
}
