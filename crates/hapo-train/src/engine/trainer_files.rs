//! A trainer's weights and moments in a folder: a model that others load, and beside it the buffers that a
//! resumed run needs, bit for bit.
//!
//! The price of both is that the weights are written twice, once in the folder's number format and once in f32.

use std::convert::Infallible;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;

use hapo_kernels::Device;
use hapo_model::folder::{AdapterNote, Layout, write_adapter};
use hapo_model::{Dtype, Model, Moments};
use hapo_run::write_atomically_with;
use sha2::{Digest, Sha256};

use crate::Result;
use hapo_core::Remedy;
use hapo_core::{Refusal, hex};

/// The contents of a folder besides the weights or the adapter.
#[derive(Clone, Copy, Debug)]
pub struct ModelFiles<'a> {
    pub base: AdapterNote<'a>,
    pub dtype: Dtype,
    /// Files of the tokenizer: name and bytes.
    pub tokenizer_files: &'a [(&'static str, Vec<u8>)],
}

/// Most bytes of weights in one file, as transformers has it.
const SHARD_BYTES: u64 = 5_000_000_000;

/// Writes the weights as a model folder, or the adapter as PEFT's, and the trainer's buffers beside it.
pub(crate) fn write_state<D: Device>(
    folder: &Path,
    (model, moments): (&Model<D>, &Moments<D>),
    files: ModelFiles<'_>,
) -> Result<()> {
    let write = || {
        write_model(folder, model, files)?;
        // Trained weights in f32, whatever the folder's number format, and moments.
        let state = folder.join("trainer_state");
        let len = model.trained_len();
        write_numbers(&state.join("parameters.f32"), len, |at, to| model.read_trained(at, to))?;
        MOMENTS.iter().enumerate().try_for_each(|(moment, name)| {
            let read = |at, to: &mut [f32]| moments.read(model.device(), moment, at, to);
            write_numbers(&state.join(name), len, read)
        })
    };
    let written = write();
    // A device that failed gave numbers that are none, whatever was made of them.
    model.device().check()?;
    written
}

/// Writes the weights as a model folder, or the adapter as PEFT's.
pub(crate) fn write_model<D: Device>(
    folder: &Path,
    model: &Model<D>,
    files: ModelFiles<'_>,
) -> Result<()> {
    let tokenizer_files: Vec<(&str, &[u8])> =
        files.tokenizer_files.iter().map(|it| (it.0, it.1.as_slice())).collect();
    if model.adapter().is_some() {
        return write_adapter(folder, model, files.base, &tokenizer_files);
    }
    let (dtype, shard_bytes) = (files.dtype, SHARD_BYTES);
    let layout = Layout { dtype, shard_bytes, tokenizer_files: &tokenizer_files };
    hapo_model::folder::write(folder, model.config(), &layout, |spec| model.tensor(&spec.name))
}

/// The files of both moments, in f32 whatever they are held in.
const MOMENTS: [&str; 2] = ["first_moments.f32", "second_moments.f32"];

/// Numbers of a buffer that are on their way to or from a file at a time: a copy of a whole one would be a quarter of
/// what training holds.
const PIECE: usize = 1 << 20;

fn write_numbers(path: &Path, len: usize, read: impl Fn(usize, &mut [f32])) -> Result<()> {
    write_atomically_with(path, |file| {
        each_piece(len, &read, |bytes| file.write_all(bytes).map_err(Refusal::io("write", path)))
    })
}

/// Hands over `len` numbers as little-endian bytes, piece by piece; `read` gives those from one on.
fn each_piece<E>(
    len: usize,
    read: impl Fn(usize, &mut [f32]),
    mut take: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut values = vec![0.0_f32; PIECE.min(len)];
    for start in (0..len).step_by(PIECE) {
        let values = &mut values[..PIECE.min(len - start)];
        read(start, values);
        turn_little_endian(values);
        take(bytemuck::cast_slice(values))?;
    }
    Ok(())
}

/// From the machine's byte order to that of files, or back.
fn turn_little_endian(values: &mut [f32]) {
    for it in values {
        *it = f32::from_bits(it.to_bits().to_le());
    }
}

/// SHA-256 of a model's weights in f32, its adapter's last.
pub(crate) fn hash_of_weights<D: Device>(model: &Model<D>) -> String {
    let mut hash = Sha256::new();
    if model.adapter().is_some() {
        add_to(&mut hash, model.layout().len(), |at, to| model.read_weights(at, to));
    }
    add_to(&mut hash, model.trained_len(), |at, to| model.read_trained(at, to));
    hex(hash.finalize())
}

fn add_to(hash: &mut Sha256, len: usize, read: impl Fn(usize, &mut [f32])) {
    let Ok(()) = each_piece(len, read, |bytes| {
        hash.update(bytes);
        Ok::<_, Infallible>(())
    });
}

/// The same, of each tensor by itself: a hash of the base's that was known while it was read, else of the numbers that the
/// model has now, and an adapter's behind it.
pub(crate) fn published_hash_of<D: Device>(model: &Model<D>, known: Option<String>) -> String {
    let base = known.unwrap_or_else(|| model.published_hash());
    if model.adapter().is_none() {
        return base;
    }
    let mut hash = Sha256::new();
    hash.update(base);
    add_to(&mut hash, model.trained_len(), |at, to| model.read_trained(at, to));
    hex(hash.finalize())
}

/// Reads a file of exactly `count` numbers, piece by piece, each with its offset.
fn read_pieces(
    path: &Path,
    count: usize,
    mut take: impl FnMut(usize, &[f32]),
) -> std::io::Result<()> {
    let (length, expected) = (fs::metadata(path)?.len(), 4 * count as u64);
    if length != expected {
        let problem = format!("expected {expected} bytes, got {length}");
        return Err(std::io::Error::other(problem));
    }
    let mut file = fs::File::open(path)?;
    let mut values = vec![0.0_f32; PIECE.min(count)];
    for start in (0..count).step_by(PIECE) {
        let values = &mut values[..PIECE.min(count - start)];
        file.read_exact(bytemuck::cast_slice_mut(values))?;
        turn_little_endian(values);
        take(start, values);
    }
    Ok(())
}

/// Puts a checkpoint's weights and moments back, bit for bit.
pub(crate) fn read_state<D: Device>(
    folder: &Path,
    (model, moments): (&mut Model<D>, &mut Moments<D>),
) -> Result<()> {
    let refuse = |problem: String| broken_checkpoint(folder, &problem);
    let n = model.trained_len();
    let read = |name: &str, take: &mut dyn FnMut(usize, &[f32])| {
        let mut finite = true;
        let mut checked = |at: usize, part: &[f32]| {
            finite &= part.iter().all(|it| it.is_finite());
            take(at, part);
        };
        read_pieces(&folder.join("trainer_state").join(name), n, &mut checked)
            .map_err(|it| refuse(format!("{name}: {it}")))?;
        if finite { Ok(()) } else { Err(refuse(format!("{name}: a number is NaN or infinite"))) }
    };
    read("parameters.f32", &mut |at, part| {
        model.write_trained(at, part);
    })?;
    let device = model.device();
    for (moment, name) in MOMENTS.iter().enumerate() {
        read(name, &mut |at, part| moments.set(device, moment, at, part))?;
    }
    Ok(device.check()?)
}

/// The refusal of a checkpoint that is incomplete, altered or of another run.
pub(crate) fn broken_checkpoint(folder: &Path, problem: &str) -> Refusal {
    let problem = format!("checkpoint {}: {problem}", folder.display());
    Refusal::input(problem).hint(Remedy::RestoreCheckpoint)
}
