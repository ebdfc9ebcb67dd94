//! Hugging Face model folders, in and out: `config.json`, safetensors weights in one file or in
//! shards with an index, tokenizer files as they are.
//!
//! A folder is checked whole before a single weight is read: every tensor of
//! [`Config::tensors`] is there, once, with its shape and a known number format, and there is none
//! that the decoder would ignore. Headers are parsed here rather than by the `safetensors` crate so
//! that a refusal names the tensor and both numbers; that crate is the oracle of the tests.
//!
//! The price: files are mapped, so a file that another process shortens while it is being read ends
//! this process with a bus error, as it does for every reader of mapped weights.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use serde_json::{Map, Value, json};

use crate::chat;
use crate::config::{Config, TensorSpec};
use crate::config_json;
use crate::dtype::{self, Dtype};
use crate::error::{Error, excerpt};

/// Where a model's configuration ends and 16 MiB of something else begins.
const MAX_JSON_BYTES: u64 = 16 << 20;
/// A header of 1024 layers takes about 2 MB.
const MAX_HEADER_BYTES: u64 = 16 << 20;
/// A tokenizer of 250,000 entries takes about 20 MB.
const MAX_COMPANION_BYTES: u64 = 256 << 20;

/// Numbers converted at a time: their bytes stay in the cache until they are written.
const CHUNK: usize = 1 << 16;

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const CONFIG: &str = "config.json";
const GENERATION: &str = "generation_config.json";
const EMBEDDING: &str = "model.embed_tokens.weight";
const HEAD: &str = "lm_head.weight";

/// Files that belong to a model and are copied as they are, byte by byte.
pub const TOKENIZER_FILES: &[&str] = &[
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
];

/// A folder whose configuration and headers have been checked against each other.
#[derive(Debug)]
pub struct ModelFolder {
    /// The folder.
    pub dir: PathBuf,
    /// Shape of the decoder and its special tokens.
    pub config: Config,
    /// Number format that `config.json` declares, when it does; each tensor is read in its own.
    pub declared_dtype: Option<Dtype>,
    files: Vec<WeightFile>,
    /// Where each tensor of `config.tensors()` lies, in that order.
    stored: Vec<(TensorSpec, Stored)>,
}

/// Opens a model folder and checks everything but the values of the weights: fields of
/// `config.json`, headers, names, shapes, number formats, offsets and lengths.
///
/// `model.safetensors` is preferred to `model.safetensors.index.json`, as transformers does.
/// Buffers of rotary frequencies (`….rotary_emb.inv_freq`), which old folders carry, are passed
/// over: they follow from the configuration.
///
/// # Errors
/// [`Error::Io`] for a file that cannot be read, otherwise the variant of the first thing refused.
pub fn open(dir: &Path) -> Result<ModelFolder, Error> {
    let (config, declared_dtype) = read_config(dir)?;
    let mut files = Vec::new();
    for name in weight_files(dir)? {
        files.push(WeightFile::open(dir.join(name))?);
    }
    let stored = locate(dir, &config, &files)?;
    let folder = ModelFolder {
        dir: dir.to_owned(),
        config,
        declared_dtype,
        files,
        stored,
    };
    Ok(folder)
}

/// The shape of a folder's model and the number format it declares, from `config.json` and
/// `generation_config.json` alone; the weights need not be there.
///
/// # Errors
/// As [`open`], for these two files.
pub fn read_config(dir: &Path) -> Result<(Config, Option<Dtype>), Error> {
    let config_file = dir.join(CONFIG);
    let text = read_bounded(&config_file, MAX_JSON_BYTES)?;
    let generation_file = dir.join(GENERATION);
    let generation = if generation_file.exists() {
        Some(read_bounded(&generation_file, MAX_JSON_BYTES)?)
    } else {
        None
    };
    let generation = (generation.as_deref()).map(|text| (generation_file.as_path(), text));
    config_json::parse(&config_file, &text, generation)
}

/// Hands every tensor of the folder to `sink` in the order of [`Config::tensors`], as f32, row by
/// row (`[out, in]` for linear weights). One tensor is in memory at a time, and none at all where
/// the file already holds f32.
///
/// A tied model may carry `lm_head.weight`; it must equal the embedding.
///
/// # Errors
/// [`Error::Tensor`] when a weight is NaN or infinite, or when the copy of a tied head differs.
pub fn read_weights(
    folder: &ModelFolder,
    mut sink: impl FnMut(&TensorSpec, &[f32]),
) -> Result<(), Error> {
    let mut buffer = Vec::new();
    for (spec, stored) in &folder.stored {
        let file = &folder.files[stored.file];
        let values = stored.values(file, &mut buffer);
        require_finite(&file.path, &spec.name, values)?;
        sink(spec, values);
    }
    if folder.config.tied {
        require_equal_head(folder)?;
    }
    Ok(())
}

impl ModelFolder {
    /// Number format of most of the weights' tensors, the one to write a trained copy in.
    pub fn stored_dtype(&self) -> Dtype {
        [Dtype::F32, Dtype::F16, Dtype::Bf16]
            .into_iter()
            .max_by_key(|dtype| {
                let of_dtype = (self.stored.iter()).filter(|(_, stored)| stored.dtype == *dtype);
                of_dtype.count()
            })
            .expect("the list of formats is not empty")
    }

    /// Name and bytes of the files of [`TOKENIZER_FILES`] that the folder holds, in that order; pass them
    /// to [`write()`] to keep the tokenizer and its chat template as they are.
    ///
    /// # Errors
    /// [`Error::Io`], or [`Error::Malformed`] for a file of more than 256 MiB.
    pub fn tokenizer_files(&self) -> Result<Vec<(&'static str, Vec<u8>)>, Error> {
        let mut found = Vec::new();
        for name in TOKENIZER_FILES {
            let file = self.dir.join(name);
            if file.exists() {
                found.push((*name, read_bounded(&file, MAX_COMPANION_BYTES)?));
            }
        }
        Ok(found)
    }
}

impl ModelFolder {
    /// The model's own chat template (Jinja text): `chat_template.jinja`, else the field of
    /// `tokenizer_config.json`, there the one named `default` when it holds several. `None` when the
    /// folder has none, as base models often do.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Malformed`] for a file that is no text or no JSON, and
    /// [`Error::Config`] for a field that is neither a text nor a list with a default.
    pub fn chat_template(&self) -> Result<Option<String>, Error> {
        let mut found = Vec::new();
        for name in [chat::JINJA, chat::TOKENIZER_CONFIG] {
            let file = self.dir.join(name);
            if file.exists() {
                found.push((name, read_bounded(&file, MAX_JSON_BYTES)?));
            }
        }
        chat::template(&found, &self.dir)
    }
}

/// How a folder is written.
#[derive(Clone, Copy, Debug)]
pub struct Layout<'a> {
    /// Number format of the weights.
    pub dtype: Dtype,
    /// Most bytes of weights in one file; a model above it is written in shards with an index. One
    /// tensor is never cut.
    pub shard_bytes: u64,
    /// Further files, name and bytes: `tokenizer.json`, `tokenizer_config.json`, ….
    pub tokenizer_files: &'a [(&'a str, &'a [u8])],
}

impl Default for Layout<'_> {
    /// bf16, shards of 5 GB, no further file.
    fn default() -> Self {
        Self {
            dtype: Dtype::Bf16,
            shard_bytes: 5_000_000_000,
            tokenizer_files: &[],
        }
    }
}

/// Writes a model folder that transformers 4 and 5 and vLLM load as it is. `source` gives the
/// values of a tensor, row by row, and is called once for each of [`Config::tensors`] (in the order
/// of the files, by name within a file). The folder is made when it does not exist.
///
/// The same input gives the same bytes. Each file is written under a temporary name, flushed to the
/// disk and renamed, weights first and `config.json` last: a folder without it is an unfinished one
/// and is refused by [`open`].
///
/// # Errors
/// [`Error::Config`] for a configuration whose numbers disagree, [`Error::Tensor`] when `source`
/// gives the wrong number of values, a NaN, an infinity, or a number beyond the range of f16,
/// [`Error::Malformed`] when the folder already holds weights or a name of a tokenizer_file is no plain
/// file name, [`Error::Io`] for everything the file system refuses.
pub fn write(
    dir: &Path,
    config: &Config,
    layout: &Layout<'_>,
    mut source: impl FnMut(&TensorSpec) -> Vec<f32>,
) -> Result<(), Error> {
    config_json::check(&dir.join(CONFIG), config)?;
    refuse_companion_names(dir, layout.tokenizer_files)?;
    fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
    refuse_existing_weights(dir)?;

    let shards = plan_shards(config.tensors(), layout);
    let n_shards = shards.len();
    let mut weight_map = BTreeMap::new();
    let mut total_bytes = 0;
    for (i, specs) in shards.iter().enumerate() {
        let name = match n_shards {
            1 => SINGLE.to_owned(),
            _ => format!("model-{:05}-of-{n_shards:05}.safetensors", i + 1),
        };
        write_weights(&dir.join(&name), specs, layout.dtype, &mut source)?;
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
        write_file(&dir.join(INDEX), |out| writeln!(out, "{index:#}"))?;
    }
    for (name, bytes) in layout.tokenizer_files {
        write_file(&dir.join(name), |out| out.write_all(bytes))?;
    }
    write_file(&dir.join(GENERATION), |out| {
        out.write_all(config_json::render_generation(config).as_bytes())
    })?;
    write_file(&dir.join(CONFIG), |out| {
        out.write_all(config_json::render(config, layout.dtype).as_bytes())
    })?;
    sync_dir(dir)
}

/// One safetensors file: its bytes and what its header says of them.
#[derive(Debug)]
struct WeightFile {
    path: PathBuf,
    map: Mmap,
    tensors: BTreeMap<String, Entry>,
}

/// A tensor of a header; the range counts from the start of the file.
#[derive(Debug)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    start: usize,
    end: usize,
}

/// A tensor that has been checked against the configuration.
#[derive(Clone, Copy, Debug)]
struct Stored {
    file: usize,
    dtype: Dtype,
    start: usize,
    end: usize,
}

impl Stored {
    fn bytes<'a>(&self, file: &'a WeightFile) -> &'a [u8] {
        &file.map[self.start..self.end]
    }

    fn values<'a>(&self, file: &'a WeightFile, buffer: &'a mut Vec<f32>) -> &'a [f32] {
        let bytes = self.bytes(file);
        // Nearly every writer pads the header, so that f32 needs no copy.
        if self.dtype == Dtype::F32
            && cfg!(target_endian = "little")
            && let Ok(values) = bytemuck::try_cast_slice(bytes)
        {
            return values;
        }
        dtype::decode(self.dtype, bytes, buffer);
        buffer
    }
}

impl WeightFile {
    fn open(path: PathBuf) -> Result<Self, Error> {
        let file = File::open(&path).map_err(Error::io("open", &path))?;
        let length = file.metadata().map_err(Error::io("read", &path))?.len();
        if length < 8 {
            return Err(malformed(
                &path,
                "a safetensors file of at least 8 bytes",
                format!("{length} bytes"),
            ));
        }
        // SAFETY: the map is only read, and every value of its bytes is valid. Another process
        // that shortens the file meanwhile ends this one with a bus error, which the module header
        // admits; it cannot make these reads touch other memory.
        let map = unsafe { Mmap::map(&file) }.map_err(Error::io("map", &path))?;
        let tensors = parse_header(&path, &map)?;
        Ok(Self { path, map, tensors })
    }
}

/// The tensors of a safetensors file, which lie one after the other from the end of the header to
/// the end of the file.
fn parse_header(path: &Path, bytes: &[u8]) -> Result<BTreeMap<String, Entry>, Error> {
    let (length, rest) = bytes
        .split_first_chunk::<8>()
        .expect("the caller has seen 8 bytes");
    let header_bytes = u64::from_le_bytes(*length);
    if header_bytes > MAX_HEADER_BYTES || header_bytes > rest.len() as u64 {
        return Err(malformed(
            path,
            format!(
                "a header of at most {} bytes",
                MAX_HEADER_BYTES.min(rest.len() as u64)
            ),
            format!("a header length of {header_bytes}"),
        ));
    }
    let data_start = 8 + header_bytes as usize;
    let header: Map<String, Value> = serde_json::from_slice(&rest[..header_bytes as usize])
        .map_err(|cause| malformed(path, "a JSON object as header", cause.to_string()))?;

    let mut entries = Vec::new();
    for (name, value) in header {
        if name != "__metadata__" {
            let entry = parse_entry(path, &name, &value)?;
            entries.push((name, entry));
            continue;
        }
        let strings = value
            .as_object()
            .filter(|map| map.values().all(Value::is_string));
        if strings.is_none() {
            let got = excerpt(&value.to_string());
            return Err(malformed(path, "strings in __metadata__", got));
        }
    }
    entries.sort_by(|(left, a), (right, b)| (a.0, a.1, left).cmp(&(b.0, b.1, right)));

    let last_end = entries.last().map_or(0, |(_, (_, end, ..))| *end);
    let mut tensors = BTreeMap::new();
    let mut previous_end = 0_u64;
    for (name, (start, end, dtype, shape)) in entries {
        let refuse = |expected: String, got: String| {
            Err(Error::Tensor {
                file: path.to_owned(),
                tensor: excerpt(&name),
                expected,
                got,
                hint: RELOAD,
            })
        };
        if start != previous_end || end < start {
            return refuse(
                format!("bytes from {previous_end} on, where the tensor before ends"),
                format!("bytes {start} to {end}"),
            );
        }
        if end > (bytes.len() - data_start) as u64 {
            return refuse(
                format!(
                    "a file of {} bytes",
                    last_end.saturating_add(data_start as u64)
                ),
                format!("{} bytes", bytes.len()),
            );
        }
        if let Some(dtype) = Dtype::from_safetensors_name(&dtype) {
            let elements =
                (shape.iter()).try_fold(1_u64, |product, size| product.checked_mul(*size));
            let size = elements.and_then(|elements| elements.checked_mul(dtype.size() as u64));
            if size != Some(end - start) {
                return refuse(
                    format!(
                        "as many bytes as {} {shape:?} takes",
                        dtype.safetensors_name()
                    ),
                    format!("{} bytes", end - start),
                );
            }
        }
        previous_end = end;
        let entry = Entry {
            dtype,
            shape,
            start: data_start + start as usize,
            end: data_start + end as usize,
        };
        tensors.insert(name, entry);
    }
    let end = data_start as u64 + previous_end;
    if end != bytes.len() as u64 {
        return Err(malformed(
            path,
            format!("{end} bytes, where the last tensor ends"),
            format!("{} bytes", bytes.len()),
        ));
    }
    Ok(tensors)
}

type RawEntry = (u64, u64, String, Vec<u64>);

fn parse_entry(path: &Path, name: &str, value: &Value) -> Result<RawEntry, Error> {
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
    parsed().ok_or_else(|| Error::Tensor {
        file: path.to_owned(),
        tensor: excerpt(name),
        expected: "a header entry with dtype, shape and two data_offsets".to_owned(),
        got: excerpt(&value.to_string()),
        hint: RELOAD,
    })
}

const RELOAD: Option<&str> = Some("the file is damaged or incomplete; fetch or write it again");

/// Names of the safetensors files of a folder.
fn weight_files(dir: &Path) -> Result<Vec<String>, Error> {
    if dir.join(SINGLE).exists() {
        return Ok(vec![SINGLE.to_owned()]);
    }
    let index_file = dir.join(INDEX);
    if !index_file.exists() {
        return Err(Error::Malformed {
            file: dir.to_owned(),
            expected: format!("{SINGLE} or {INDEX}"),
            got: "neither".to_owned(),
            hint: Some(
                "weights in another format (pytorch_model.bin) are to be saved as safetensors first",
            ),
        });
    }
    let text = read_bounded(&index_file, MAX_JSON_BYTES)?;
    let index: Value = serde_json::from_slice(&text)
        .map_err(|cause| malformed(&index_file, "a JSON object", cause.to_string()))?;
    let Some(map) = index.get("weight_map").and_then(Value::as_object) else {
        return Err(malformed(
            &index_file,
            "an object weight_map from tensor to file",
            "none",
        ));
    };
    let mut names = BTreeSet::new();
    for (tensor, file) in map {
        match file.as_str() {
            Some(name) if is_plain_name(name) => names.insert(name.to_owned()),
            _ => {
                return Err(Error::Tensor {
                    file: index_file,
                    tensor: excerpt(tensor),
                    expected: "the name of a file of this folder".to_owned(),
                    got: excerpt(&file.to_string()),
                    hint: None,
                });
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
) -> Result<Vec<(TensorSpec, Stored)>, Error> {
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for (i, file) in files.iter().enumerate() {
        for name in file.tensors.keys() {
            if let Some(other) = places.insert(name, i) {
                return Err(Error::Tensor {
                    file: file.path.clone(),
                    tensor: excerpt(name),
                    expected: "a tensor in one file only".to_owned(),
                    got: format!("another in {}", files[other].path.display()),
                    hint: None,
                });
            }
        }
    }
    let mut located = Vec::new();
    for spec in config.tensors() {
        let Some(i) = places.remove(spec.name.as_str()) else {
            return Err(Error::Tensor {
                file: match files {
                    [one] => one.path.clone(),
                    _ => dir.to_owned(),
                },
                expected: format!("a tensor of shape {:?}", spec.shape),
                got: "none".to_owned(),
                hint: (spec.name == HEAD).then_some(
                    "set tie_word_embeddings to true in config.json when the head is the embedding",
                ),
                tensor: spec.name,
            });
        };
        let stored = accept(&files[i], i, &spec)?;
        located.push((spec, stored));
    }
    if config.tied
        && let Some(i) = places.remove(HEAD)
    {
        let head = TensorSpec {
            name: HEAD.to_owned(),
            shape: vec![config.vocab_size, config.hidden],
        };
        accept(&files[i], i, &head)?;
    }
    match places.iter().find(|(name, _)| !is_rotary_buffer(name)) {
        None => Ok(located),
        Some((name, i)) => Err(Error::Tensor {
            file: files[*i].path.clone(),
            tensor: excerpt(name),
            expected: "no such tensor in this architecture".to_owned(),
            got: format!("one of shape {:?}", files[*i].tensors[*name].shape),
            hint: Some(
                "adapters are to be merged into the weights, and quantised weights restored, first",
            ),
        }),
    }
}

/// Checks one tensor of a header against its shape in the configuration.
fn accept(file: &WeightFile, index: usize, spec: &TensorSpec) -> Result<Stored, Error> {
    let entry = &file.tensors[&spec.name];
    let refuse = |expected: String, got: String, hint| {
        Err(Error::Tensor {
            file: file.path.clone(),
            tensor: spec.name.clone(),
            expected,
            got: excerpt(&got),
            hint,
        })
    };
    let same_shape = (entry.shape.iter().copied()).eq(spec.shape.iter().map(|size| *size as u64));
    let Some(dtype) = Dtype::from_safetensors_name(&entry.dtype) else {
        return refuse(
            "dtype F32, BF16 or F16".to_owned(),
            entry.dtype.clone(),
            Some("use the folder of the model before quantisation, in bf16, f16 or f32"),
        );
    };
    if !same_shape {
        return refuse(
            format!("shape {:?}", spec.shape),
            format!("{:?}", entry.shape),
            Some("config.json and the weights are of different models"),
        );
    }
    Ok(Stored {
        file: index,
        dtype,
        start: entry.start,
        end: entry.end,
    })
}

fn is_rotary_buffer(name: &str) -> bool {
    name.starts_with("model.") && name.ends_with("rotary_emb.inv_freq")
}

fn require_finite(file: &Path, tensor: &str, values: &[f32]) -> Result<(), Error> {
    match values.iter().position(|value| !value.is_finite()) {
        None => Ok(()),
        Some(i) => Err(Error::Tensor {
            file: file.to_owned(),
            tensor: tensor.to_owned(),
            expected: "finite numbers".to_owned(),
            got: format!("{} at position {i}", values[i]),
            hint: None,
        }),
    }
}

/// The head of a tied model, when the folder carries one, must be the embedding.
fn require_equal_head(folder: &ModelFolder) -> Result<(), Error> {
    let files = folder.files.iter().enumerate();
    let mut heads = files.filter(|(_, file)| file.tensors.contains_key(HEAD));
    let Some((i, file)) = heads.next() else {
        return Ok(());
    };
    let (embedding, at) = (folder.stored.iter())
        .find(|(spec, _)| spec.name == EMBEDDING)
        .expect("every model has an embedding");
    let head = accept(
        file,
        i,
        &TensorSpec {
            name: HEAD.to_owned(),
            shape: embedding.shape.clone(),
        },
    )?;
    let other = &folder.files[at.file];
    if head.dtype == at.dtype && head.bytes(file) == at.bytes(other) {
        return Ok(());
    }
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let (head, embedding) = (head.values(file, &mut left), at.values(other, &mut right));
    let mut pairs = head.iter().zip(embedding.iter());
    match pairs.position(|(one, two)| one != two) {
        None => Ok(()),
        Some(at) => Err(Error::Tensor {
            file: file.path.clone(),
            tensor: HEAD.to_owned(),
            expected: format!("a copy of {EMBEDDING}, as tie_word_embeddings is true"),
            got: format!("{} for {} at position {at}", head[at], embedding[at]),
            hint: Some("set tie_word_embeddings to false in config.json to use both"),
        }),
    }
}

/// Cuts the tensors into files of at most `shard_bytes`, in order; within a file they are sorted by
/// name, as the published ones are.
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

fn write_weights(
    path: &Path,
    specs: &[TensorSpec],
    dtype: Dtype,
    source: &mut impl FnMut(&TensorSpec) -> Vec<f32>,
) -> Result<(), Error> {
    let mut refused = None;
    let written = write_file(path, |out| {
        let header = header_bytes(specs, dtype);
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(&header)?;
        let mut bytes = Vec::new();
        for spec in specs {
            let values = source(spec);
            if let Err(error) = require_writable(path, spec, dtype, &values) {
                refused = Some(error);
                return Err(std::io::ErrorKind::InvalidData.into());
            }
            for chunk in values.chunks(CHUNK) {
                dtype::encode(dtype, chunk, &mut bytes);
                out.write_all(&bytes)?;
            }
        }
        Ok(())
    });
    match refused {
        Some(error) => Err(error),
        None => written,
    }
}

/// The header as the `safetensors` package writes it: metadata first, then tensors in the order of
/// their bytes, spaces up to a multiple of 8.
fn header_bytes(specs: &[TensorSpec], dtype: Dtype) -> Vec<u8> {
    let mut header = String::from("{\"__metadata__\":{\"format\":\"pt\"}");
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

/// Checks that a tensor's values are as many as its shape says and have a nearest finite number.
fn require_writable(
    path: &Path,
    spec: &TensorSpec,
    dtype: Dtype,
    values: &[f32],
) -> Result<(), Error> {
    let refuse = |expected: String, got: String, hint| {
        Err(Error::Tensor {
            file: path.to_owned(),
            tensor: spec.name.clone(),
            expected,
            got,
            hint,
        })
    };
    if values.len() != element_count(spec) {
        return refuse(
            format!("{} values for shape {:?}", element_count(spec), spec.shape),
            values.len().to_string(),
            None,
        );
    }
    require_finite(path, &spec.name, values)?;
    // The first value of the upper half of the last step rounds away from the format.
    let limit = match dtype {
        Dtype::F32 => f32::INFINITY,
        Dtype::Bf16 => f32::from_bits(0x7f7f_8000),
        Dtype::F16 => 65520.0,
    };
    if let Some(i) = values.iter().position(|value| value.abs() >= limit) {
        return refuse(
            format!("numbers within the range of {dtype}"),
            format!("{} at position {i}", values[i]),
            Some("write the model in bf16 or f32"),
        );
    }
    Ok(())
}

/// Writes a file under a temporary name beside it, flushes it to the disk and renames it.
fn write_file(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
) -> Result<(), Error> {
    let mut name = path
        .file_name()
        .expect("every file written has a name")
        .to_owned();
    name.push(".partial");
    let temporary = path.with_file_name(name);
    let write = || {
        let mut out = BufWriter::with_capacity(1 << 20, File::create(&temporary)?);
        fill(&mut out)?;
        let file = out
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|cause| {
        // Nothing to add when this fails too: the first cause is the one to report.
        let _ = fs::remove_file(&temporary);
        Error::io("write", path)(cause)
    })
}

/// A rename is on the disk only when its folder is.
fn sync_dir(dir: &Path) -> Result<(), Error> {
    if cfg!(unix) {
        let handle = File::open(dir).map_err(Error::io("open", dir))?;
        handle.sync_all().map_err(Error::io("flush", dir))?;
    }
    Ok(())
}

fn refuse_existing_weights(dir: &Path) -> Result<(), Error> {
    for entry in fs::read_dir(dir).map_err(Error::io("read", dir))? {
        let name = entry.map_err(Error::io("read", dir))?.file_name();
        let name = name.to_string_lossy();
        if name == CONFIG || name == INDEX || name.ends_with(".safetensors") {
            return Err(Error::Malformed {
                file: dir.to_owned(),
                expected: "a folder without a model".to_owned(),
                got: name.into_owned(),
                hint: Some("write into a new folder; an old model is never replaced file by file"),
            });
        }
    }
    Ok(())
}

fn refuse_companion_names(dir: &Path, tokenizer_files: &[(&str, &[u8])]) -> Result<(), Error> {
    let ours =
        |name: &str| [CONFIG, GENERATION, INDEX].contains(&name) || name.ends_with(".safetensors");
    match (tokenizer_files.iter()).find(|(name, _)| !is_plain_name(name) || ours(name)) {
        None => Ok(()),
        Some((name, _)) => Err(malformed(
            dir,
            "a tokenizer_file with a plain file name of its own",
            excerpt(name),
        )),
    }
}

/// Whether a name stays inside its folder on every system.
fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', ':', '\0'])
}

pub(crate) fn read_bounded(file: &Path, limit: u64) -> Result<Vec<u8>, Error> {
    let handle = File::open(file).map_err(Error::io("open", file))?;
    let mut bytes = Vec::new();
    (handle.take(limit + 1).read_to_end(&mut bytes)).map_err(Error::io("read", file))?;
    if bytes.len() as u64 > limit {
        return Err(malformed(
            file,
            format!("at most {limit} bytes"),
            "more".to_owned(),
        ));
    }
    Ok(bytes)
}

fn malformed(file: &Path, expected: impl Into<String>, got: impl Into<String>) -> Error {
    Error::Malformed {
        file: file.to_owned(),
        expected: expected.into(),
        got: got.into(),
        hint: RELOAD,
    }
}
