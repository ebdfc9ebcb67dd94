//! A model folder, written.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use hapo_core::{Refusal, hex};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{ADAPTER, CONFIG, GENERATION, INDEX, SINGLE, is_plain_name, read::read_config};
use crate::config::dtype::{self, Dtype};
use crate::config::{Config, FileTensor, TensorSpec};
use crate::files::{
    Checksums, excerpt, in_file, io as io_error, is_there, malformed, refused, require_finite,
};
use crate::{config_json, families::family_of, gguf, text::chat};

/// Numbers converted at a time: their bytes stay in the cache until they are written.
const CHUNK: usize = 1 << 16;

#[derive(Clone, Copy, Debug)]
pub struct Layout<'a> {
    pub dtype: Dtype,
    /// Most bytes of weights in one file; a model above it is written in shards with an index. One tensor is never cut.
    pub shard_bytes: u64,
    /// Further files, name and bytes: `tokenizer.json`, `tokenizer_config.json`, …. Sampling defaults are kept from a
    /// `generation_config.json`, its special tokens are the configuration's.
    pub tokenizer_files: &'a [(&'static str, Vec<u8>)],
}

impl Default for Layout<'_> {
    /// bf16, shards of 5 GB, no further file.
    fn default() -> Self {
        Self { dtype: Dtype::Bf16, shard_bytes: 5_000_000_000, tokenizer_files: &[] }
    }
}

/// Writes a model folder that transformers 4 and 5 and vLLM load directly. `source` gives the values of a tensor, row
/// by row, and is called once for each of [`Config::tensors`] (in the order of the files, by name within a file). A
/// missing folder is created.
///
/// The same input gives the same bytes. Each file is written under a temporary name, flushed to the
/// disk and renamed, weights first and `config.json` last: a folder without it is an unfinished one
/// and is refused by [`open`](super::open()).
pub fn write(
    dir: &Path,
    config: &Config,
    layout: &Layout<'_>,
    mut source: impl FnMut(&TensorSpec) -> Result<Vec<f32>, Refusal>,
) -> Result<Checksums, Refusal> {
    let checked = config.check().and_then(|()| family_of(config));
    checked.map_err(|refusal| in_file(&dir.join(CONFIG), refusal))?;
    refuse_file_names(dir, layout.tokenizer_files)?;
    fs::create_dir_all(dir).map_err(io_error("create", dir))?;
    refuse_existing_weights(dir)?;

    let tensors = config.file_tensors();
    let shards = plan_shards(tensors.iter().map(|it| it.spec.clone()).collect(), layout);
    let mut whole = |spec: &TensorSpec| whole(&tensors, spec, &mut source);
    let n_shards = shards.len();
    let (mut weight_map, mut written) = (BTreeMap::new(), Checksums::new());
    let mut total_bytes = 0;
    for (i, specs) in shards.iter().enumerate() {
        let name = match n_shards {
            1 => SINGLE.to_owned(),
            _ => format!("model-{:05}-of-{n_shards:05}.safetensors", i + 1),
        };
        let sum = write_weights(&dir.join(&name), specs, layout.dtype, &[], &mut whole)?;
        written.insert(name.clone(), sum);
        for spec in specs {
            total_bytes += element_count(spec) * layout.dtype.size();
            weight_map.insert(spec.name.clone(), name.clone());
        }
    }
    if n_shards > 1 {
        let index = json!({
            "metadata": { "total_size": total_bytes },
            "weight_map": weight_map,
        });
        let sum = write_file(&dir.join(INDEX), |out| writeln!(out, "{index:#}"))?;
        written.insert(INDEX.to_owned(), sum);
    }
    write_companions(dir, config, layout.tokenizer_files, &mut written)?;
    let sum = write_file(&dir.join(CONFIG), |out| {
        out.write_all(config_json::render(config, layout.dtype).as_bytes())
    })?;
    written.insert(CONFIG.to_owned(), sum);
    sync_dir(dir)?;
    Ok(written)
}

pub(super) fn write_companions(
    dir: &Path,
    config: &Config,
    files: &[(&str, Vec<u8>)],
    written: &mut Checksums,
) -> Result<(), Refusal> {
    let (kept, files): (Vec<_>, Vec<_>) = files.iter().partition(|it| it.0 == GENERATION);
    for (name, bytes) in files {
        let sum = write_file(&dir.join(name), |out| out.write_all(bytes))?;
        written.insert((*name).to_owned(), sum);
    }
    let path = dir.join(GENERATION);
    let text = config_json::render_generation(config, kept.first().map(|it| it.1.as_slice()));
    let text = text.map_err(|refusal| in_file(&path, refusal))?;
    let sum = write_file(&path, |out| out.write_all(text.as_bytes()))?;
    written.insert(GENERATION.to_owned(), sum);
    Ok(())
}

/// Writes a model as one GGUF file for llama.cpp: matrices as `layout.dtype`, vectors as f32, the tokenizer and the chat
/// template of `layout` as keys. `source` is as in [`write()`].
pub fn write_gguf(
    path: &Path,
    config: &Config,
    layout: &Layout<'_>,
    mut source: impl FnMut(&TensorSpec) -> Result<Vec<f32>, Refusal>,
) -> Result<(), Refusal> {
    config.check().map_err(|refusal| in_file(path, refusal))?;
    if is_there(path)? {
        let hint = "write into a new file; an old model is never replaced";
        return Err(refused(path, "", "no file of this name", "one").hint(hint));
    }
    let template = chat::template(layout.tokenizer_files, path)?;
    let files = (layout.tokenizer_files, template.as_deref());
    let header = gguf::header(path, config, layout.dtype, files)?;
    let files = config.file_tensors();
    write_file(path, |out| {
        out.write_all(&header.bytes)?;
        let mut bytes = Vec::new();
        for it in &header.tensors {
            let mut values = match &it.values {
                Some(values) => values.clone(),
                None => whole(&files, &it.spec, &mut source).map_err(io::Error::other)?,
            };
            let columns = it.spec.shape.get(1).copied().unwrap_or(1);
            require_writable(path, &it.spec, it.dtype, &values).map_err(io::Error::other)?;
            it.change.apply(&mut values, columns, 1.0);
            dtype::encode(it.dtype, &values, &mut bytes);
            bytes.resize(it.padded(), 0);
            out.write_all(&bytes)?;
        }
        Ok(())
    })?;
    require_same_shape(path, config).inspect_err(|_| {
        // Nothing to add when this fails too: the first cause is the one to report.
        let _ = fs::remove_file(path);
    })
}

/// Checks that a file says what `config.json` would: not every field has a key, and what llama.cpp takes for the others
/// is what reading takes.
fn require_same_shape(path: &Path, config: &Config) -> Result<(), Refusal> {
    let fields = |config: &Config| -> Map<String, Value> {
        let text = config_json::render(config, Dtype::F32);
        serde_json::from_str(&text).expect("an object was written")
    };
    let mut read = read_config(path)?.config;
    (read.eos, read.bos, read.pad) = (config.eos.clone(), config.bos, config.pad);
    if read.family == "llama" && config.family == "mistral" {
        read.family = config.family;
    }
    let (read, wanted) = (fields(&read), fields(config));
    let differs = |(key, value): &(&String, &Value)| read.get(*key) != Some(value);
    match wanted.iter().find(differs) {
        None => Ok(()),
        Some((key, value)) => {
            let expected = read.get(key).unwrap_or(&Value::Null);
            let expected = format!("{expected}, which is what GGUF stands for");
            Err(refused(path, key, expected, excerpt(&value.to_string())))
        }
    }
}

/// The values of a file's tensor, whose parts may be several of the decoder's.
fn whole(
    tensors: &[FileTensor],
    spec: &TensorSpec,
    source: &mut impl FnMut(&TensorSpec) -> Result<Vec<f32>, Refusal>,
) -> Result<Vec<f32>, Refusal> {
    let it = tensors.iter().find(|it| it.spec == *spec).expect("a file has known tensors");
    match &it.parts[..] {
        [one] => source(one),
        parts => Ok(parts.iter().map(source).collect::<Result<Vec<_>, _>>()?.concat()),
    }
}

/// Cuts the tensors into files of at most `shard_bytes`, in order; in a file they are sorted by name, as published.
fn plan_shards(specs: Vec<TensorSpec>, layout: &Layout<'_>) -> Vec<Vec<TensorSpec>> {
    let mut shards: Vec<Vec<TensorSpec>> = vec![Vec::new()];
    let mut bytes = 0_u64;
    for spec in specs {
        let size = (element_count(&spec) * layout.dtype.size()) as u64;
        if bytes > 0 && bytes + size > layout.shard_bytes {
            shards.push(Vec::new());
            bytes = 0;
        }
        bytes += size;
        let last = shards.last_mut().expect("there is always an open shard");
        last.push(spec);
    }
    for shard in &mut shards {
        shard.sort_by(|left, right| left.name.cmp(&right.name));
    }
    shards
}

fn element_count(spec: &TensorSpec) -> usize {
    spec.shape.iter().product()
}

pub(super) fn write_weights(
    path: &Path,
    specs: &[TensorSpec],
    dtype: Dtype,
    notes: &[(&str, &str)],
    source: &mut impl FnMut(&TensorSpec) -> Result<Vec<f32>, Refusal>,
) -> Result<String, Refusal> {
    write_file(path, |out| {
        let header = header_bytes(specs, dtype, notes);
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(&header)?;
        let mut bytes = Vec::new();
        for spec in specs {
            let values = source(spec).map_err(io::Error::other)?;
            require_writable(path, spec, dtype, &values).map_err(io::Error::other)?;
            for chunk in values.chunks(CHUNK) {
                dtype::encode(dtype, chunk, &mut bytes);
                out.write_all(&bytes)?;
            }
        }
        Ok(())
    })
}

/// The header as the package `safetensors` has it: metadata, tensors in the order of their bytes, padded to 8 bytes.
fn header_bytes(specs: &[TensorSpec], dtype: Dtype, notes: &[(&str, &str)]) -> Vec<u8> {
    let mut metadata = BTreeMap::from([("format", "pt")]);
    metadata.extend(notes.iter().copied());
    let mut header = format!("{{\"__metadata__\":{}", json!(metadata));
    let mut start = 0;
    for spec in specs {
        let end = start + element_count(spec) * dtype.size();
        let (name, shape) = (json!(spec.name), json!(spec.shape));
        let dtype = dtype.safetensors_name();
        // Writing to a string does not fail.
        let _ = write!(
            header,
            ",{name}:{{\"dtype\":\"{dtype}\",\"shape\":{shape},\"data_offsets\":[{start},{end}]}}"
        );
        start = end;
    }
    header.push('}');
    let mut header = header.into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    header
}

fn require_writable(
    path: &Path,
    spec: &TensorSpec,
    dtype: Dtype,
    values: &[f32],
) -> Result<(), Refusal> {
    let refuse = |expected: String, got: String| refused(path, &spec.name, expected, got);
    if values.len() != element_count(spec) {
        let expected = format!("{} values for shape {:?}", element_count(spec), spec.shape);
        return Err(refuse(expected, values.len().to_string()));
    }
    require_finite(path, &spec.name, 0, values)?;
    // The first value of the upper half of the last step rounds away from the format.
    let limit = match dtype {
        Dtype::F32 => f32::INFINITY,
        Dtype::Bf16 => f32::from_bits(0x7f7f_8000),
        Dtype::F16 => 65520.0,
    };
    if let Some(i) = values.iter().position(|value| value.abs() >= limit) {
        let got = format!("{} at position {i}", values[i]);
        return Err(refuse(format!("numbers within the range of {dtype}"), got)
            .hint("write the model in bf16 or f32"));
    }
    Ok(())
}

/// Writes a file under a temporary name in the same folder, flushes it to the disk and renames it; gives the SHA-256 of
/// what it wrote. Where the file has fewer bytes than were handed over, it does not appear. A refusal that `fill` gives as
/// an error is the result.
pub fn write_file(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<Summed>) -> io::Result<()>,
) -> Result<String, Refusal> {
    let mut name = path.file_name().expect("every file written has a name").to_owned();
    name.push(".partial");
    let temporary = path.with_file_name(name);
    let write = || {
        let file = File::create(&temporary)?;
        let mut out =
            BufWriter::with_capacity(1 << 20, Summed { file, hash: Sha256::default(), length: 0 });
        fill(&mut out)?;
        let Summed { file, hash, length } =
            out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        let found = file.metadata()?.len();
        if found != length {
            let lost = format!("{length} bytes were written and {found} are there");
            return Err(io::Error::other(lost));
        }
        fs::rename(&temporary, path)?;
        Ok(hex(hash.finalize()))
    };
    write().map_err(|cause| {
        // Nothing to add when this fails too: the first cause is the one to report.
        let _ = fs::remove_file(&temporary);
        // What refuses a tensor comes as it is.
        cause.downcast::<Refusal>().unwrap_or_else(io_error("write", path))
    })
}

/// A file whose bytes are hashed and counted on their way: what is read back is what the disk made of them.
#[derive(Debug)]
pub struct Summed {
    file: File,
    hash: Sha256,
    length: u64,
}

impl Write for Summed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.length += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A rename is on the disk only when its folder is.
pub(super) fn sync_dir(dir: &Path) -> Result<(), Refusal> {
    if cfg!(unix) {
        let handle = File::open(dir).map_err(io_error("open", dir))?;
        handle.sync_all().map_err(io_error("flush", dir))?;
    }
    Ok(())
}

fn refuse_existing_weights(dir: &Path) -> Result<(), Refusal> {
    for entry in fs::read_dir(dir).map_err(io_error("read", dir))? {
        let name = entry.map_err(io_error("read", dir))?.file_name();
        let name = name.to_string_lossy();
        if name == CONFIG || name == INDEX || name.ends_with(".safetensors") {
            return Err(refused(dir, "", "a folder without a model", name)
                .hint("write into a new folder; an old model is never replaced file by file"));
        }
    }
    Ok(())
}

pub(super) fn refuse_file_names(
    dir: &Path,
    tokenizer_files: &[(&str, Vec<u8>)],
) -> Result<(), Refusal> {
    let reserved =
        |name: &str| [CONFIG, INDEX, ADAPTER].contains(&name) || name.ends_with(".safetensors");
    match (tokenizer_files.iter()).find(|(name, _)| !is_plain_name(name) || reserved(name)) {
        None => Ok(()),
        Some((name, _)) => {
            Err(malformed(dir, "a tokenizer file with a plain file name of its own", excerpt(name)))
        }
    }
}
