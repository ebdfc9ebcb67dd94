//! Weights on their way from a folder to a device.
//!
//! Purpose: on a GPU a start is bound by what the host does with every number: it is decoded, checked, hashed, put into the
//! device's order and copied. Tensors do not depend on each other, so a thread takes one after the other. On a CPU all
//! threads fill one matrix, each from a few of its rows, so that nobody holds another copy of it.
//!
//! Price: for a GPU a thread holds a tensor in f32. On a CPU nothing is hashed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use hapo_kernels::Device;
use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::read::{Fingerprint, ModelFolder, require_equal_head};
use super::weight_file::Stored;
use crate::config::TensorSpec;
use crate::files::require_finite;
use crate::linear::TensorMut;
use crate::model::{Model, fill as fill_tensor};
use crate::param_layout::Param;
use hapo_core::Refusal;

pub(super) struct Filled {
    pub(super) fingerprint: Fingerprint,
    /// SHA-256 of each tensor's name and of the hash of its numbers, in the published order; none on a CPU.
    pub(super) hash: Option<String>,
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

pub(super) fn fill<D: Device>(
    model: &mut Model<D>,
    folder: &ModelFolder,
) -> Result<Filled, Refusal> {
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
    /// The hash that a folder's weights have when they are read onto a GPU, of those that the model has now; an adapter's
    /// numbers follow.
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
