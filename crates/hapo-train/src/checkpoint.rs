//! Checkpoints: a Hugging Face folder that transformers and vLLM load as it is, and beside it, in
//! `trainer_state/`, what a resumed run needs to continue with the same bits.
//!
//! A checkpoint is written under another name, flushed and renamed, so a folder named
//! `step-000100` is complete. `checksums.json` holds the SHA-256 of every file; a checkpoint that does
//! not match is refused by name and the one before it is used.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use hapo_kernels::{Buffer, Device};
use hapo_model::folder::Layout;
use hapo_model::{ComputeError, Model};
use hapo_run::{RunFolder, create_folder, sync_parent, write_atomically, write_atomically_with};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::engines::{Learner, ModelFiles};
use crate::error::{Error, Result};
use crate::trainer::Trainer;

/// Most bytes of weights in one file, as transformers has it.
const SHARD_BYTES: u64 = 5_000_000_000;

/// Files without which a run cannot be resumed.
const ESSENTIAL: &[&str] = &[
    "config.json",
    "trainer_state/state.json",
    "trainer_state/parameters.f32",
    "trainer_state/first_moments.f32",
    "trainer_state/second_moments.f32",
];

/// What a resumed run needs besides weights and moments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainerState {
    /// Steps done.
    pub step: u64,
    /// Updates made.
    pub updates: u64,
    /// The resolved recipe of the run.
    pub recipe: String,
    /// Hash of the prompt template.
    pub template_hash: String,
    /// Mean of the `checkpoint.best` metric since the checkpoint before; higher is better.
    pub score: Option<f64>,
}

/// The complete checkpoint with the highest score, the earliest of equals.
pub fn best(run_dir: &Path) -> Option<(u64, PathBuf)> {
    let scored = RunFolder(run_dir)
        .list_checkpoints()
        .into_iter()
        .filter_map(|(step, folder)| {
            let state = fs::read(folder.join("trainer_state/state.json")).ok()?;
            let state: TrainerState = serde_json::from_slice(&state).ok()?;
            Some((state.score.filter(|it| it.is_finite())?, step, folder))
        });
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)))?;
    Some((best.1, best.2))
}

/// The prompt template that the model in `folder` was trained with: its name and its hash. None for
/// a folder that is not such a checkpoint.
pub fn trained_template(folder: &Path) -> Option<(String, String)> {
    let state = fs::read(folder.join("trainer_state/state.json")).ok()?;
    let state: TrainerState = serde_json::from_slice(&state).ok()?;
    let recipe = crate::Recipe::parse_resolved(&state.recipe, "state.json");
    let name = recipe.map_or_else(|_| "another".to_owned(), |it| it.data().template.clone());
    Some((name, state.template_hash))
}

/// What a checkpoint is made of.
pub(crate) struct Contents<'a, L: Learner> {
    pub(crate) learner: &'a L,
    pub(crate) files: ModelFiles<'a>,
    pub(crate) state: &'a TrainerState,
}

/// Writes the checkpoint after `state.step` and removes those that are neither among the `keep`
/// latest nor the best.
pub(crate) fn write<L: Learner>(
    run_dir: &Path,
    contents: &Contents<'_, L>,
    keep: usize,
) -> Result<PathBuf> {
    let folder = RunFolder(run_dir).checkpoint_of(contents.state.step);
    write_folder(&folder, contents)?;
    let best = best(run_dir).map(|it| it.0);
    for (step, old) in RunFolder(run_dir).list_checkpoints().into_iter().skip(keep) {
        if Some(step) != best {
            remove(&old)?;
        }
    }
    Ok(folder)
}

/// Writes a checkpoint as `folder`, which appears complete or not at all.
pub(crate) fn write_folder<L: Learner>(folder: &Path, contents: &Contents<'_, L>) -> Result<()> {
    let aside = folder.with_extension("partial");
    let written = fill(&aside, contents);
    if written.is_err() {
        // A full disk needs the space back; the first cause is the one to report.
        let _ = fs::remove_dir_all(&aside);
        return written;
    }
    // A folder of this name was refused as incomplete, or this would be another step.
    if folder.exists() {
        remove(folder)?;
    }
    fs::rename(&aside, folder).map_err(io("rename", &aside))?;
    Ok(sync_parent(folder)?)
}

/// Removes a checkpoint: renamed first, so that a kill on the way leaves no incomplete one behind.
fn remove(folder: &Path) -> Result<()> {
    let aside = folder.with_extension("removed.partial");
    fs::rename(folder, &aside).map_err(io("remove", folder))?;
    fs::remove_dir_all(&aside).map_err(io("remove", &aside))
}

fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io {
        action,
        path,
        source,
    }
}

fn fill<L: Learner>(aside: &Path, contents: &Contents<'_, L>) -> Result<()> {
    if aside.exists() {
        fs::remove_dir_all(aside).map_err(io("remove", aside))?;
    }
    create_folder(&aside.join("trainer_state"))?;
    contents.learner.save(aside, contents.files)?;
    let state = serde_json::to_vec_pretty(contents.state).expect("a trainer state is plain data");
    write_atomically(&aside.join("trainer_state/state.json"), &state)?;
    let checksums =
        serde_json::to_vec_pretty(&checksums(aside)?).expect("checksums are plain data");
    Ok(write_atomically(&aside.join("checksums.json"), &checksums)?)
}

/// Writes the weights as a model folder, and the trainer's buffers beside it.
pub(crate) fn save<D: Device>(
    folder: &Path,
    trainer: &Trainer<D>,
    files: ModelFiles<'_>,
) -> Result<()> {
    let model = &trainer.model;
    let tokenizer_files: Vec<(&str, &[u8])> = files
        .tokenizer_files
        .iter()
        .map(|it| (it.0, it.1.as_slice()))
        .collect();
    let layout = Layout {
        dtype: files.dtype,
        shard_bytes: SHARD_BYTES,
        tokenizer_files: &tokenizer_files,
    };
    hapo_model::folder::write(folder, model.config(), &layout, |spec| {
        model
            .tensor(&spec.name)
            .expect("the folder's tensors are those of the decoder")
    })?;
    for (name, buffer) in buffers(trainer) {
        write_buffer(&folder.join("trainer_state").join(name), model, buffer)?;
    }
    Ok(())
}

/// The raw buffers of the trainer's state: weights in f32, whatever the folder's dtype, and moments.
fn buffers<D: Device>(trainer: &Trainer<D>) -> [(&'static str, &D::Buf); 3] {
    [
        ("parameters.f32", trainer.model.params()),
        ("first_moments.f32", &trainer.moments.first),
        ("second_moments.f32", &trainer.moments.second),
    ]
}

/// Numbers of a buffer that are on their way to or from a file at a time: a copy of a whole one would be a quarter of
/// what training holds.
const PIECE: usize = 1 << 20;

fn write_buffer<D: Device>(path: &Path, model: &Model<D>, buffer: &D::Buf) -> Result<()> {
    let mut values = vec![0.0_f32; PIECE.min(buffer.len())];
    let mut bytes = Vec::with_capacity(4 * values.len());
    write_atomically_with(path, |file| {
        for start in (0..buffer.len()).step_by(PIECE) {
            let values = &mut values[..PIECE.min(buffer.len() - start)];
            model
                .device()
                .download(buffer.at(start, values.len()), values);
            bytes.clear();
            bytes.extend(values.iter().flat_map(|it| it.to_le_bytes()));
            file.write_all(&bytes).map_err(io("write", path))?;
        }
        Ok(())
    })
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
    let mut bytes = vec![0; 4 * PIECE.min(count)];
    let mut values = Vec::with_capacity(PIECE.min(count));
    for start in (0..count).step_by(PIECE) {
        let bytes = &mut bytes[..4 * PIECE.min(count - start)];
        file.read_exact(bytes)?;
        values.clear();
        let numbers = bytes.as_chunks::<4>().0.iter();
        values.extend(numbers.map(|it| f32::from_le_bytes(*it)));
        take(start, &values);
    }
    Ok(())
}

/// SHA-256 of every file below `folder` but the list itself, by relative path.
fn checksums(folder: &Path) -> Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(at) = folders.pop() {
        let io = |source| Error::Io {
            action: "read",
            path: at.clone(),
            source,
        };
        for entry in fs::read_dir(&at).map_err(io)? {
            let path = entry.map_err(io)?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path
                .strip_prefix(folder)
                .expect("a file of the folder")
                .to_string_lossy()
                .into_owned();
            if name != "checksums.json" {
                all.insert(name, sha256_of(&path)?);
            }
        }
    }
    Ok(all)
}

fn sha256_of(path: &Path) -> Result<String> {
    let io = |source| Error::Io {
        action: "read",
        path: path.to_owned(),
        source,
    };
    let mut file = fs::File::open(path).map_err(io)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let n = file.read(&mut buffer).map_err(io)?;
        if n == 0 {
            break;
        }
        hash.update(&buffer[..n]);
    }
    let digest = hash.finalize();
    Ok(digest.iter().fold(String::new(), |mut hex, byte| {
        hex.push_str(&format!("{byte:02x}"));
        hex
    }))
}

/// Checks a checkpoint against its checksums and reads its state.
pub fn verify(folder: &Path) -> Result<TrainerState> {
    let refuse = |problem: String| Error::Checkpoint {
        folder: folder.to_owned(),
        problem,
    };
    let read =
        |name: &str| fs::read(folder.join(name)).map_err(|it| refuse(format!("{name}: {it}")));
    let expected: BTreeMap<String, String> = serde_json::from_slice(&read("checksums.json")?)
        .map_err(|it| refuse(format!("checksums.json: {it}")))?;
    for name in ESSENTIAL {
        if !expected.contains_key(*name) {
            return Err(refuse(format!("checksums.json does not list {name}")));
        }
    }
    for (name, expected) in &expected {
        let path = folder.join(name);
        if !path.exists() {
            return Err(refuse(format!("{name} is missing")));
        }
        if sha256_of(&path)? != *expected {
            return Err(refuse(format!("{name} differs from its checksum")));
        }
    }
    serde_json::from_slice(&read("trainer_state/state.json")?)
        .map_err(|it| refuse(format!("trainer_state/state.json: {it}")))
}

/// Puts a checkpoint's weights and moments back, bit for bit.
pub(crate) fn restore<D: Device>(folder: &Path, trainer: &mut Trainer<D>) -> Result<()> {
    let refuse = |problem: String| Error::Checkpoint {
        folder: folder.to_owned(),
        problem,
    };
    let n = trainer.model.params().len();
    let read = |name: &str, take: &mut dyn FnMut(usize, &[f32])| {
        read_pieces(&folder.join("trainer_state").join(name), n, take)
            .map_err(|it| refuse(format!("{name}: {it}")))
    };
    let model = &mut trainer.model;
    read("parameters.f32", &mut |at, part| {
        model.set_params_at(at, part);
    })?;
    let (device, moments) = (trainer.model.device(), &mut trainer.moments);
    let (first, second) = (&mut moments.first, &mut moments.second);
    read("first_moments.f32", &mut |at, part| {
        device.upload(part, first.at_mut(at, part.len()));
    })?;
    read("second_moments.f32", &mut |at, part| {
        device.upload(part, second.at_mut(at, part.len()));
    })?;
    Ok(device.check().map_err(ComputeError::from)?)
}
