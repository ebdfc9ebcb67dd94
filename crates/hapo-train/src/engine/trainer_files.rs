//! A trainer's weights and moments in a folder: a model that others load, and beside it the buffers that a
//! resumed run needs, bit for bit.
//!
//! The price of both is that the weights are written twice, once in the folder's number format and once in f32.

use std::io::{ErrorKind, Read, Write};
use std::{convert::Infallible, fs, path::Path};

use hapo_kernels::Device;
use hapo_model::folder::{
    AdapterNote, CHECKSUMS, Checksums, DIFFERS, Layout, broken_checkpoint, checksums,
    write_adapter, write_file,
};
use hapo_model::{Dtype, Model, ParamLayout};
use sha2::{Digest, Sha256};

use crate::{Result, engine::trainer::Trainer};
use hapo_core::{Refusal, hex, if_there};

/// The contents of a folder besides the weights or the adapter.
#[derive(Clone, Debug)]
pub(crate) struct ModelFiles {
    /// Name, folder and fingerprint of the base of an adapter.
    pub(crate) base: [String; 3],
    pub(crate) dtype: Dtype,
    pub(crate) tokenizer_files: Vec<(&'static str, Vec<u8>)>,
}

/// Most bytes of weights in one file, as transformers has it.
const SHARD_BYTES: u64 = 5_000_000_000;

impl<D: Device> Trainer<D> {
    /// Writes the weights as a model folder, or the adapter as PEFT's, and beside it what [`Trainer::restore`] reads.
    pub(crate) fn save(&self, folder: &Path, files: &ModelFiles) -> Result<Checksums> {
        let (model, moments) = (&self.model, &self.moments);
        let write = || {
            let mut written = write_model(folder, model, files)?;
            let layout = model.trained_layout();
            let mut keep = |name: &str, read: &dyn Fn(usize, &mut [f32])| -> Result<()> {
                let sum = write_file(&folder.join(name), |out| {
                    each_piece(layout, read, |bytes| out.write_all(bytes))
                })?;
                written.insert(name.to_owned(), sum);
                Ok(())
            };
            // Trained weights in f32, whatever the folder's number format, and moments.
            keep(PARAMETERS, &|at, to| model.read_trained(at, to))?;
            for (moment, name) in MOMENTS.iter().enumerate() {
                keep(name, &|at, to| moments.read(model.device(), moment, at, to))?;
            }
            Ok(written)
        };
        let written = write();
        // A device that failed gave numbers that are none, whatever was made of them.
        model.device().check()?;
        written
    }

    /// Puts the state in `folder` back, bit for bit, as that after `updates` updates, and checks it on the way.
    pub fn restore(&mut self, folder: &Path, updates: u64) -> Result<()> {
        let (model, moments) = (&mut self.model, &mut self.moments);
        let (layout, sums) = (model.trained_layout().clone(), checksums_of(folder)?);
        let read = |name: &str, take: &mut dyn FnMut(usize, &[f32])| {
            let mut file = open_of(folder, name)?;
            let refuse = |problem: &str| broken_checkpoint(folder, &format!("{name}{problem}"));
            let mut hash = Sha256::new();
            for piece in layout.pieces(PIECE) {
                let mut values = vec![0.0_f32; piece.len];
                let bytes = bytemuck::cast_slice_mut(&mut values);
                file.read_exact(bytes).map_err(|it| match it.kind() {
                    ErrorKind::UnexpectedEof => {
                        refuse(&format!(": expected {} bytes, got less", layout.bytes()))
                    }
                    _ => Refusal::io("read", &folder.join(name))(it),
                })?;
                hash.update(bytes);
                turn_little_endian(&mut values);
                if values.iter().any(|it| !it.is_finite()) {
                    return Err(refuse(": a number is NaN or infinite"));
                }
                piece.out_of_files_order(&mut values);
                take(piece.first, &values);
            }
            let is_whole = sums.get(name).is_some_and(|sum| *sum == hex(hash.finalize()));
            if is_whole { Ok(()) } else { Err(refuse(DIFFERS)) }
        };
        read(PARAMETERS, &mut |at, part| model.write_trained(at, part))?;
        let device = model.device();
        for (moment, name) in MOMENTS.iter().enumerate() {
            read(name, &mut |at, part| moments.set(device, moment, at, part))?;
        }
        device.check()?;
        self.updates = updates;
        Ok(())
    }
}

pub(crate) fn write_model<D: Device>(
    folder: &Path,
    model: &Model<D>,
    files: &ModelFiles,
) -> Result<Checksums> {
    if model.adapter().is_some() {
        let [base, base_folder, fingerprint] = &files.base;
        let note = AdapterNote { base, folder: base_folder, fingerprint };
        return write_adapter(folder, model, note, &files.tokenizer_files);
    }
    let (dtype, shard_bytes) = (files.dtype, SHARD_BYTES);
    let layout = Layout { dtype, shard_bytes, tokenizer_files: &files.tokenizer_files };
    hapo_model::folder::write(folder, model.config(), &layout, |spec| model.tensor(&spec.name))
}

/// The file of the trained weights, and those of both moments, in f32 whatever they are held in.
pub(crate) const PARAMETERS: &str = "trainer_state/parameters.f32";
pub(crate) const MOMENTS: [&str; 2] =
    ["trainer_state/first_moments.f32", "trainer_state/second_moments.f32"];

/// Numbers of a buffer that are on their way to or from a file at a time: a copy of a whole one would be a quarter of
/// what training holds.
const PIECE: usize = 1 << 20;

/// Hands over a buffer as little-endian bytes in the order of files, piece by piece; `read` gives numbers from one on.
fn each_piece<E>(
    layout: &ParamLayout,
    read: impl Fn(usize, &mut [f32]),
    mut take: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    for piece in layout.pieces(PIECE) {
        let mut values = vec![0.0_f32; piece.len];
        read(piece.first, &mut values);
        piece.into_files_order(&mut values);
        turn_little_endian(&mut values);
        take(bytemuck::cast_slice(&values))?;
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
        add_to(&mut hash, model.layout(), |at, to| model.read_weights(at, to));
    }
    add_to(&mut hash, model.trained_layout(), |at, to| model.read_trained(at, to));
    hex(hash.finalize())
}

fn add_to(hash: &mut Sha256, layout: &ParamLayout, read: impl Fn(usize, &mut [f32])) {
    let Ok(()) = each_piece(layout, read, |bytes| {
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
    add_to(&mut hash, model.trained_layout(), |at, to| model.read_trained(at, to));
    hex(hash.finalize())
}

pub(crate) fn checksums_of(folder: &Path) -> Result<Checksums> {
    checksums(folder)?.ok_or_else(|| broken_checkpoint(folder, &format!("{CHECKSUMS} is missing")))
}

/// A file of a checkpoint. One that is not there is missing; one that cannot be opened may be whole.
pub(crate) fn open_of(folder: &Path, name: &str) -> Result<fs::File> {
    let path = folder.join(name);
    let missing = || broken_checkpoint(folder, &format!("{name} is missing"));
    if_there(&path, fs::File::open(&path))?.ok_or_else(missing)
}
