//! A model folder in memory: weights on their way to a device, tokenizer, and the files that travel with them.
//!
//! Purpose: on a GPU a start is bound by what the host does with every number: it is decoded, checked, hashed, put into
//! the device's order and copied. Tensors do not depend on each other, so a thread takes one after the other. On a CPU
//! all threads fill one matrix, each from a few of its rows, so that nobody holds another copy of it. Price: for a GPU
//! a thread holds a tensor in f32. On a CPU nothing is hashed.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{path::Path, time::Instant};

use hapo_core::{Fault, Refusal};
use hapo_kernels::{Device, Held, NumberFormat};
use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::read::{Fingerprint, ModelFolder, open, require_equal_head};
use super::weight_file::Stored;
use crate::config::{Config, TensorSpec};
use crate::files::{Companions, require_finite};
use crate::model::{Model, fill as fill_tensor};
use crate::{linear::TensorMut, param_layout::Param, text::tokenizer::Tokenizer};

#[derive(Debug)]
pub struct LoadedModel<D: Device> {
    pub model: Model<D>,
    pub tokenizer: Tokenizer,
    /// Tokenizer files and the like, name and bytes, for folders that are written from this one.
    pub tokenizer_files: Companions,
    pub warnings: Vec<String>,
    /// Name of the weights, by which an adapter knows its base.
    pub fingerprint: String,
    /// [`Model::published_hash`] of the base, where it was known while reading.
    pub hash: Option<String>,
    /// Seconds of the parts of the reading, of which the tokenizer's lie within those of the weights.
    pub seconds: Vec<(&'static str, f64)>,
}

/// Opens a Hugging Face folder on a device, for sequences of at most `context` tokens, prompt
/// included. A tokenizer that names ids beyond the embedding is refused.
pub fn load<D: Device>(
    dir: &Path,
    device: D,
    context: impl Fn(&Config) -> usize,
) -> Result<LoadedModel<D>, Refusal> {
    load_held(dir, device, context, |_| Held::Trained)
}

/// As [`load`], for weights that do not change: matrices are held in bf16 where the folder has them so.
pub fn load_frozen<D: Device>(
    dir: &Path,
    device: D,
    context: impl Fn(&Config) -> usize,
) -> Result<LoadedModel<D>, Refusal> {
    load_held(dir, device, context, |it| {
        if it.matrices_are_bf16() { Held::Frozen(NumberFormat::Bf16) } else { Held::Trained }
    })
}

fn load_held<D: Device>(
    dir: &Path,
    device: D,
    context: impl Fn(&Config) -> usize,
    held: impl Fn(&ModelFolder) -> Held,
) -> Result<LoadedModel<D>, Refusal> {
    let opened = open(dir)?;
    let context = context(&opened.config);
    let mut model = Model::held(device, opened.config.clone(), context, held(&opened))
        .map_err(|refusal| refusal.with_fault(Fault::Input))?;
    let started = Instant::now();
    let read_tokenizer = || {
        let files = opened.tokenizer_files()?;
        let tokenizer = Tokenizer::of_files(dir, &files)?;
        tokenizer.check_fits(opened.config.vocab_size)?;
        Ok::<_, Refusal>((tokenizer, files, started.elapsed().as_secs_f64()))
    };
    // One thread is all that a tokenizer takes; where none can be started, it is read afterwards.
    let (read, filled) = std::thread::scope(|scope| {
        let read = std::thread::Builder::new().spawn_scoped(scope, read_tokenizer);
        let filled = fill(&mut model, &opened);
        let joined = |it: std::thread::ScopedJoinHandle<'_, _>| {
            it.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        (read.map_or_else(|_| read_tokenizer(), joined), filled)
    });
    let (tokenizer, tokenizer_files, of_tokenizer) = read?;
    let Filled { fingerprint, hash } = filled?;
    let of_weights = started.elapsed().as_secs_f64();
    Ok(LoadedModel {
        seconds: vec![("weights", of_weights), ("tokenizer beside them", of_tokenizer)],
        model,
        tokenizer,
        tokenizer_files,
        warnings: opened.warnings,
        fingerprint: fingerprint.to_string(),
        hash,
    })
}

struct Filled {
    fingerprint: Fingerprint,
    /// SHA-256 of each tensor's name and of the hash of its numbers, in the published order; none on a CPU.
    hash: Option<String>,
}

struct Job<'a, D: Device> {
    spec: &'a TensorSpec,
    stored: &'a Stored,
    param: Param,
    tensor: TensorMut<'a, D>,
}

struct Done {
    /// Numbers that the fingerprint is of.
    sampled: Vec<f32>,
    hash: Option<[u8; 32]>,
}

fn fill<D: Device>(model: &mut Model<D>, folder: &ModelFolder) -> Result<Filled, Refusal> {
    let device = model.device().clone();
    let is_cpu = device.caps().is_cpu();
    let params = model.layout().params().to_vec();
    let tensors = params.into_iter().zip(model.tensors_mut());
    let jobs: Vec<Job<'_, D>> = (folder.stored.iter().zip(tensors))
        .map(|((spec, stored), (param, tensor))| {
            assert_eq!(spec.name, param.name, "a folder's tensors in the order of the layout");
            Job { spec, stored, param, tensor }
        })
        .collect();
    // Memory for the numbers of a thread.
    let rooms = Mutex::default();
    let put = |job| put(&device, job, folder, &rooms);
    let done: Vec<Done> = if is_cpu {
        jobs.into_iter().map(put).collect::<Result<_, _>>()?
    } else {
        jobs.into_par_iter().with_max_len(1).map(put).collect::<Result<_, _>>()?
    };
    let (mut fingerprint, mut hash) = (Fingerprint::default(), Sha256::new());
    for ((spec, _), Done { sampled, hash: of_tensor }) in folder.stored.iter().zip(done) {
        fingerprint.add_sampled(spec, &sampled);
        hash.update(&spec.name);
        hash.update(of_tensor.unwrap_or_default());
    }
    if folder.config.tied {
        require_equal_head(folder)?;
    }
    let hash = (!is_cpu).then(|| hapo_core::hex(hash.finalize()));
    Ok(Filled { fingerprint, hash })
}

/// Reads a tensor, checks it and puts it where it goes, some rows at a time.
fn put<D: Device>(
    device: &D,
    job: Job<'_, D>,
    folder: &ModelFolder,
    rooms: &Mutex<Vec<Vec<f32>>>,
) -> Result<Done, Refusal> {
    let Job { spec, stored, param, mut tensor } = job;
    let (file, rows_of_tensor) = (&folder.files[stored.file], spec.shape[0]);
    let (stride, together) = (Fingerprint::stride(param.len), stored.change.together());
    let done = Done { sampled: vec![0.0; param.len.div_ceil(stride)], hash: None };
    let done = Mutex::new(done);
    fill_tensor(device, &param, &mut tensor, together, &|rows, take| {
        let mut values = lock(rooms).pop().unwrap_or_default();
        let first = param.len / rows_of_tensor * rows.start;
        stored.read_rows(file, rows, rows_of_tensor, &mut values)?;
        require_finite(&file.path, &spec.name, first, &values)?;
        // On a GPU the rows are all of them.
        let hash = (!device.caps().is_cpu()).then(|| hash_of(&values));
        take(&values);
        let mut done = lock(&done);
        done.hash = hash;
        for at in (first.next_multiple_of(stride)..first + values.len()).step_by(stride) {
            done.sampled[at / stride] = values[at - first];
        }
        lock(rooms).push(values);
        Ok(())
    })?;
    Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn lock<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

fn hash_of(values: &[f32]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in values.chunks(1 << 16) {
        if cfg!(target_endian = "little") {
            hash.update(bytemuck::cast_slice::<f32, u8>(part));
        } else {
            for value in part {
                hash.update(value.to_le_bytes());
            }
        }
    }
    hash.finalize().into()
}

impl<D: Device> Model<D> {
    /// The hash of the model's weights as if they were read onto a GPU from a folder; an adapter's numbers follow.
    pub fn published_hash(&self) -> String {
        let mut hash = Sha256::new();
        for param in self.layout().params() {
            let values = self.tensor(&param.name).expect("a tensor of the layout");
            hash.update(&param.name);
            hash.update(hash_of(&values));
        }
        hapo_core::hex(hash.finalize())
    }
}
