//! A model folder, checked and read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use hapo_core::Refusal;
use serde_json::Value;

use super::weight_file::{Stored, WeightFile};
use super::{ADAPTER, CONFIG, GENERATION, INDEX, SINGLE, TOKENIZER_FILES, is_plain_name};
use crate::config::{Config, FileTensor, TensorSpec};
use crate::config_json::{self, ParsedConfig};
use crate::files::{
    Companions, MAX_JSON_BYTES, excerpt, is_there, malformed, read_bounded, read_file, refused,
    require_finite,
};
use crate::gguf::{self, Gguf};
use crate::param_layout::{EMBEDDING, HEAD};
use crate::{config::dtype::Dtype, text::chat};

/// A folder whose configuration and headers have been checked against each other.
#[derive(Debug)]
pub struct ModelFolder {
    pub dir: PathBuf,
    /// Shape of the decoder and its special tokens.
    pub config: Config,
    /// Number format that `config.json` declares, when it does; each tensor is read in its own.
    pub declared_dtype: Option<Dtype>,
    pub warnings: Vec<String>,
    pub(super) files: Vec<WeightFile>,
    /// Location of each tensor of `config.tensors()`, in that order.
    pub(super) stored: Vec<(TensorSpec, Stored)>,
}

/// Opens a model folder and checks everything but the values of the weights: fields of
/// `config.json`, headers, names, shapes, number formats, offsets and lengths.
///
/// `model.safetensors` is preferred to `model.safetensors.index.json`, as transformers does. `dir` may also be a GGUF
/// file, or a folder with one and without safetensors. Buffers of rotary frequencies (`….rotary_emb.inv_freq`), which
/// old folders carry, are passed over: they follow from the configuration.
pub fn open(dir: &Path) -> Result<ModelFolder, Refusal> {
    let (parsed, files) = if let Some(gguf) = Gguf::open(dir)? {
        let parsed = gguf.config()?;
        let file = WeightFile::of_gguf(gguf, &parsed.config)?;
        (parsed, vec![file])
    } else {
        let (parsed, names) = (read_config(dir)?, weight_files(dir)?);
        let files = names.into_iter().map(|name| WeightFile::open(dir.join(name)));
        (parsed, files.collect::<Result<_, _>>()?)
    };
    let ParsedConfig { config, dtype: declared_dtype, unread } = parsed;
    let stored = locate(dir, &config, &files)?;
    let warnings = warnings(dir, &unread)?;
    Ok(ModelFolder { dir: dir.to_owned(), config, declared_dtype, warnings, files, stored })
}

fn warnings(dir: &Path, unread: &[String]) -> Result<Vec<String>, Refusal> {
    let mut all = Vec::new();
    if !unread.is_empty() {
        let names = unread.join(", ");
        all.push(format!("{}: unknown fields are not read: {names}", dir.join(CONFIG).display()));
    }
    let adapter = dir.join(ADAPTER);
    if is_there(&adapter)? {
        all.push(format!(
            "{} is not applied: the weights are taken as they are",
            adapter.display()
        ));
    }
    Ok(all)
}

/// True for a folder of a model, whatever else is in it, and for a GGUF file.
pub fn is_model(path: &Path) -> Result<bool, Refusal> {
    Ok(is_there(&path.join(CONFIG))? || gguf::find(path)?.is_some())
}

/// The shape of a folder's model and the number format it declares, from `config.json` and
/// `generation_config.json` alone; the weights need not be there. Those of a GGUF file are in its keys.
pub fn read_config(dir: &Path) -> Result<ParsedConfig, Refusal> {
    if let Some(gguf) = Gguf::open(dir)? {
        return gguf.config();
    }
    let config_file = dir.join(CONFIG);
    if !is_there(&config_file)? && is_there(&dir.join(ADAPTER))? {
        return Err(refused(dir, "", "a model", "an adapter of one")
            .hint("name its base as the model and this folder as the adapter, or merge the two"));
    }
    let text = read_bounded(&config_file, MAX_JSON_BYTES)?;
    let generation_file = dir.join(GENERATION);
    let read = || read_bounded(&generation_file, MAX_JSON_BYTES);
    let generation = is_there(&generation_file)?.then(read).transpose()?;
    let generation = (generation.as_deref()).map(|text| (generation_file.as_path(), text));
    config_json::parse(&config_file, &text, generation)
}

/// Hands every tensor of the folder to `sink` in the order of [`Config::tensors`], as f32, row by
/// row (`[out, in]` for linear weights). One tensor is in memory at a time.
///
/// A tied model may carry `lm_head.weight`; it must equal the embedding.
pub fn read_weights(
    folder: &ModelFolder,
    mut sink: impl FnMut(&TensorSpec, &[f32]),
) -> Result<(), Refusal> {
    let mut buffer = Vec::new();
    for (spec, stored) in &folder.stored {
        let file = &folder.files[stored.file];
        stored.read(file, &mut buffer)?;
        require_finite(&file.path, &spec.name, 0, &buffer)?;
        sink(spec, &buffer);
    }
    if folder.config.tied {
        require_equal_head(folder)?;
    }
    Ok(())
}

/// A short name of a model's weights, by which an adapter knows its base: FNV-1a over names, shapes and 64 numbers
/// of every tensor. It depends on the numbers alone, not on the format that they are stored in.
#[derive(Clone, Copy, Debug)]
pub struct Fingerprint(u64);

impl Default for Fingerprint {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fingerprint {
    pub fn add(&mut self, spec: &TensorSpec, values: &[f32]) {
        self.add_sampled(spec, &Self::sampled(values).collect::<Vec<_>>());
    }

    pub(super) fn add_sampled(&mut self, spec: &TensorSpec, sampled: &[f32]) {
        self.add_bytes(spec.name.as_bytes());
        for size in &spec.shape {
            self.add_bytes(&(*size as u64).to_le_bytes());
        }
        for value in sampled {
            self.add_bytes(&value.to_bits().to_le_bytes());
        }
    }

    /// The numbers of a tensor that are added.
    pub(super) fn sampled(values: &[f32]) -> impl Iterator<Item = f32> {
        values.iter().step_by(Self::stride(values.len())).copied()
    }

    /// From one of them to the next in a tensor of `len` numbers.
    pub(super) fn stride(len: usize) -> usize {
        len.div_ceil(64).max(1)
    }

    fn add_bytes(&mut self, bytes: &[u8]) {
        for it in bytes {
            self.0 = (self.0 ^ u64::from(*it)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl ModelFolder {
    /// The same folder, whose blocks of small integers are read as f32.
    #[must_use]
    pub fn in_f32(mut self) -> Self {
        let blocks = self.stored.iter_mut().filter(|it| it.1.encoding.plain().is_none());
        blocks.for_each(|it| it.1.dtype = Dtype::F32);
        self
    }

    /// True if every matrix is stored in bf16, so that bf16 in memory loses nothing.
    pub fn matrices_are_bf16(&self) -> bool {
        let mut matrices = self.stored.iter().filter(|(spec, _)| spec.shape.len() == 2);
        matrices.all(|(_, stored)| stored.dtype == Dtype::Bf16)
    }

    /// A tensor of the folder as f32, row by row, where it has one of this name.
    pub fn tensor(&self, name: &str) -> Result<Option<Vec<f32>>, Refusal> {
        let Some((spec, stored)) = self.stored.iter().find(|it| it.0.name == name) else {
            return Ok(None);
        };
        let (file, mut values) = (&self.files[stored.file], Vec::new());
        stored.read(file, &mut values)?;
        require_finite(&file.path, &spec.name, 0, &values)?;
        Ok(Some(values))
    }

    /// Number format of most of the weights' tensors, the one to write a trained copy in.
    pub fn stored_dtype(&self) -> Dtype {
        let count = |dtype: &Dtype| self.stored.iter().filter(|it| it.1.dtype == *dtype).count();
        let most = [Dtype::F32, Dtype::F16, Dtype::Bf16].into_iter().max_by_key(count);
        most.expect("the list of formats is not empty")
    }

    pub fn tokenizer_files(&self) -> Result<Companions, Refusal> {
        read_tokenizer_files(&self.dir)
    }

    /// The model's own chat template (Jinja text): `chat_template.jinja`, else the field of `tokenizer_config.json`,
    /// there the one named `default` when it holds several. `None` when the folder has none, as base models often do.
    pub fn chat_template(&self) -> Result<Option<String>, Refusal> {
        chat::template(&read_chat_files(&self.dir)?, &self.dir)
    }
}

/// Name and bytes of the files of [`TOKENIZER_FILES`] that a folder holds, in that order; pass them to
/// [`write`](super::write()) to keep the tokenizer and its chat template as they are.
pub fn read_tokenizer_files(dir: &Path) -> Result<Companions, Refusal> {
    if let Some(gguf) = Gguf::open(dir)? {
        return gguf.tokenizer_files();
    }
    let mut found = Vec::new();
    for name in TOKENIZER_FILES {
        let file = dir.join(name);
        if is_there(&file)? {
            found.push((*name, read_file(&file)?));
        }
    }
    Ok(found)
}

/// As [`read_tokenizer_files`], without the tokenizer itself, which takes a while to make of a GGUF file.
pub fn read_chat_files(dir: &Path) -> Result<Companions, Refusal> {
    match Gguf::open(dir)? {
        Some(gguf) => gguf.chat_files(),
        None => read_tokenizer_files(dir),
    }
}

fn weight_files(dir: &Path) -> Result<Vec<String>, Refusal> {
    if is_there(&dir.join(SINGLE))? {
        return Ok(vec![SINGLE.to_owned()]);
    }
    let index_file = dir.join(INDEX);
    if !is_there(&index_file)? {
        let expected = format!("{SINGLE} or {INDEX}");
        return Err(refused(dir, "", expected, "neither").hint(
            "weights in another format (pytorch_model.bin) are to be saved as safetensors first",
        ));
    }
    let text = read_bounded(&index_file, MAX_JSON_BYTES)?;
    let index: Value = serde_json::from_slice(&text)
        .map_err(|cause| malformed(&index_file, "a JSON object", cause.to_string()))?;
    let Some(map) = index.get("weight_map").and_then(Value::as_object) else {
        return Err(malformed(&index_file, "an object weight_map from tensor to file", "none"));
    };
    let mut names = BTreeSet::new();
    for (tensor, file) in map {
        match file.as_str() {
            Some(name) if is_plain_name(name) => names.insert(name.to_owned()),
            _ => {
                let (expected, got) = ("the name of a file of this folder", file.to_string());
                return Err(refused(&index_file, excerpt(tensor), expected, excerpt(&got)));
            }
        };
    }
    Ok(names.into_iter().collect())
}

/// Finds every tensor of the configuration in the headers, and nothing else in them.
fn locate(
    dir: &Path,
    config: &Config,
    files: &[WeightFile],
) -> Result<Vec<(TensorSpec, Stored)>, Refusal> {
    let mut owners: BTreeMap<&str, usize> = BTreeMap::new();
    for (i, file) in files.iter().enumerate() {
        for name in file.tensors.keys() {
            if let Some(other) = owners.insert(name, i) {
                let got = format!("another in {}", files[other].path.display());
                let expected = "a tensor in one file only";
                return Err(refused(&file.path, excerpt(name), expected, got));
            }
        }
    }
    let mut located = Vec::new();
    for FileTensor { spec, parts } in config.file_tensors() {
        let Some(i) = owners.remove(spec.name.as_str()) else {
            let file = if let [one] = files { &one.path } else { dir };
            let expected = format!("a tensor of shape {:?}", spec.shape);
            let refusal = refused(file, &spec.name, expected, "none");
            return Err(if spec.name == HEAD {
                refusal.hint(
                    "set tie_word_embeddings to true in config.json when the head is the embedding",
                )
            } else {
                refusal
            });
        };
        let whole = accept(&files[i], i, &spec)?;
        let mut start = whole.start;
        for part in parts {
            let end = start + (whole.end - whole.start) / spec.shape[0] * part.shape[0];
            located.push((part, Stored { start, end, ..whole }));
            start = end;
        }
    }
    if config.tied
        && let Some(i) = owners.remove(HEAD)
    {
        let head =
            TensorSpec { name: HEAD.to_owned(), shape: vec![config.vocab_size, config.hidden] };
        accept(&files[i], i, &head)?;
    }
    let is_rotary = |it: &str| it.starts_with("model.") && it.ends_with("rotary_emb.inv_freq");
    match owners.iter().find(|(name, _)| !is_rotary(name)) {
        None => Ok(located),
        Some((name, i)) => {
            let got = format!("one of shape {:?}", files[*i].tensors[*name].shape);
            let expected = "no such tensor in this architecture";
            Err(refused(&files[*i].path, excerpt(name), expected, got).hint(
                "adapters are to be merged into the weights, and quantised weights restored, first",
            ))
        }
    }
}

fn accept(file: &WeightFile, index: usize, spec: &TensorSpec) -> Result<Stored, Refusal> {
    let entry = &file.tensors[&spec.name];
    let refuse = |expected: String, got: &str, hint| {
        Err(refused(&file.path, &spec.name, expected, excerpt(got)).hint(hint))
    };
    let same_shape = (entry.shape.iter().copied()).eq(spec.shape.iter().map(|size| *size as u64));
    let columns = spec.shape.get(1).copied().unwrap_or(1);
    let Some(stored) = entry.stored(index, columns) else {
        let hint = "use the folder of the model before quantisation, in bf16, f16 or f32";
        return refuse("dtype F32, BF16 or F16".to_owned(), &entry.dtype, hint);
    };
    if !same_shape {
        let hint = "config.json and the weights are of different models";
        return refuse(format!("shape {:?}", spec.shape), &format!("{:?}", entry.shape), hint);
    }
    Ok(stored)
}

/// The head of a tied model, when the folder carries one, must be the embedding.
pub(super) fn require_equal_head(folder: &ModelFolder) -> Result<(), Refusal> {
    let files = folder.files.iter().enumerate();
    let mut heads = files.filter(|(_, file)| file.tensors.contains_key(HEAD));
    let Some((i, file)) = heads.next() else { return Ok(()) };
    let (embedding, at) = (folder.stored.iter())
        .find(|(spec, _)| spec.name == EMBEDDING)
        .expect("every model has an embedding");
    let head =
        accept(file, i, &TensorSpec { name: HEAD.to_owned(), shape: embedding.shape.clone() })?;
    let other = &folder.files[at.file];
    let (mut left, mut right, n) = (Vec::new(), Vec::new(), folder.config.vocab_size);
    let at_once = 64 * at.change.together().max(head.change.together());
    for first in (0..n).step_by(at_once) {
        let rows = first..n.min(first + at_once);
        head.read_rows(file, rows.clone(), n, &mut left)?;
        at.read_rows(other, rows, n, &mut right)?;
        if let Some(i) = left.iter().zip(&right).position(|(one, two)| one != two) {
            let at = first * folder.config.hidden + i;
            let expected = format!("a copy of {EMBEDDING}, as tie_word_embeddings is true");
            let got = format!("{} for {} at position {at}", left[i], right[i]);
            return Err(refused(&file.path, HEAD, expected, got)
                .hint("set tie_word_embeddings to false in config.json to use both"));
        }
    }
    Ok(())
}
