//! Checkpoints: a Hugging Face folder that transformers and vLLM load as it is, or PEFT one of an adapter, and beside
//! it, in `trainer_state/`, what a resumed run needs to continue with the same bits.
//!
//! A checkpoint is written under another name, flushed and renamed, so a folder named
//! `step-000100` is complete. `checksums.json` holds the SHA-256 of every file; a checkpoint that does
//! not match is refused by name and the one before it is used.

pub(crate) mod resume;
pub(crate) mod stage_output;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use hapo_core::{Memory, PromptId, Refusal, hex};
use hapo_kernels::Device;
use hapo_run::{RunFolder, create_folder, sync_parent, write_atomically};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::Result;
use crate::engine::trainer::Trainer;
use crate::engine::trainer_files::ModelFiles;
use crate::engine::trainer_files::broken_checkpoint;
use crate::problems::inputs::Inputs;
use crate::recipe::{AUTO, Recipe};

/// Files without which a run cannot be resumed.
const ESSENTIAL: &[&str] = &[
    "trainer_state/state.json",
    "trainer_state/parameters.f32",
    "trainer_state/first_moments.f32",
    "trainer_state/second_moments.f32",
];

/// State of a resumed run besides weights and moments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainerState {
    pub step: u64,
    pub updates: u64,
    pub recipe: String,
    pub template_hash: String,
    /// By the metric of `checkpoint.best`; higher is better: its mean since the checkpoint before, or the evaluation of
    /// these weights.
    pub score: Option<f64>,
    /// Hashes of what the run reads besides its recipe.
    pub inputs: Inputs,
    /// Prompts whose trace was shown.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub shown: BTreeSet<PromptId>,
}

/// The complete checkpoint with the highest score, the earliest of equals.
pub fn best(run_dir: &Path) -> Option<(u64, PathBuf)> {
    best_scored(run_dir).map(|(_, step, folder)| (step, folder))
}

/// As [`best`], with its score.
pub(crate) fn best_scored(run_dir: &Path) -> Option<(f64, u64, PathBuf)> {
    let scored = RunFolder(run_dir).list_checkpoints().into_iter().filter_map(|(step, folder)| {
        let state = fs::read(folder.join("trainer_state/state.json")).ok()?;
        let state: TrainerState = serde_json::from_slice(&state).ok()?;
        Some((state.score.filter(|it| it.is_finite())?, step, folder))
    });
    scored.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrainedTemplate {
    pub name: String,
    pub system: Option<String>,
    /// The text after the problem in the user's turn.
    pub suffix: Option<String>,
    pub hash: String,
}

/// The prompt template that the model in `folder` was trained with. None for a folder that is not such
/// a checkpoint, or whose recipe cannot be read.
pub fn trained_template(folder: &Path) -> Option<TrainedTemplate> {
    let state = fs::read(folder.join("trainer_state/state.json")).ok()?;
    let state: TrainerState = serde_json::from_slice(&state).ok()?;
    let recipe = Recipe::parse_resolved(&state.recipe, "state.json").ok()?;
    let data = recipe.data();
    // The built-in corpus is written in its own and names none.
    let name = if data.template == AUTO { "chatml" } else { &data.template };
    Some(TrainedTemplate {
        name: name.to_owned(),
        system: data.template_system.clone(),
        suffix: data.template_suffix.clone(),
        hash: state.template_hash,
    })
}

pub(crate) struct Contents<'a, D: Device> {
    pub(crate) learner: &'a Trainer<D>,
    pub(crate) files: ModelFiles<'a>,
    pub(crate) state: &'a TrainerState,
    pub(crate) memory: Option<&'a Memory>,
}

/// The memory of a method between steps (D39).
const MEMORY: &str = "trainer_state/memory.json";

/// The memory of a checkpoint, without which a method that remembers cannot go on.
pub(crate) fn read_memory(folder: &Path) -> Result<Memory> {
    let refuse = |problem: &dyn Display| {
        let problem = format!("{MEMORY}, which the recipe needs between steps: {problem}");
        broken_checkpoint(folder, &problem)
    };
    let text = fs::read(folder.join(MEMORY)).map_err(|it| refuse(&it))?;
    serde_json::from_slice(&text).map_err(|it| refuse(&it))
}

pub(crate) struct CheckpointStore {
    run_dir: PathBuf,
    /// How many of the latest stay, beside the best.
    keep: usize,
    /// Those that were written or verified here. Only they count.
    complete: BTreeSet<u64>,
}

impl CheckpointStore {
    /// The checkpoints of a run that starts, or resumes from one that was verified.
    pub(crate) fn new(run_dir: &Path, keep: usize, resumed_from: Option<u64>) -> Self {
        let complete = resumed_from.into_iter().collect();
        Self { run_dir: run_dir.to_owned(), keep, complete }
    }

    /// Writes the checkpoint after `state.step` and removes those that are neither among the latest nor the best.
    /// Incomplete ones are set aside and told.
    pub(crate) fn write<D: Device>(
        &mut self,
        contents: &Contents<'_, D>,
    ) -> Result<(PathBuf, Vec<String>)> {
        let run = RunFolder(&self.run_dir);
        let folder = run.checkpoint_of(contents.state.step);
        write_folder(&folder, contents)?;
        self.complete.insert(contents.state.step);
        let mut warnings = Vec::new();
        for (step, it) in run.list_checkpoints() {
            if self.complete.contains(&step) {
                continue;
            }
            match verify(&it) {
                Ok(_) => drop(self.complete.insert(step)),
                Err(problem) => warnings.push(set_aside(run, step, &problem)?),
            }
        }
        let best = best(&self.run_dir).map(|it| it.0);
        for (step, old) in run.list_checkpoints().into_iter().skip(self.keep) {
            if Some(step) != best {
                remove(&old)?;
            }
        }
        Ok((folder, warnings))
    }
}

/// Renames an incomplete checkpoint so that nothing takes it for one, and says so.
pub(crate) fn set_aside(run: RunFolder<'_>, step: u64, problem: &Refusal) -> Result<String> {
    let (folder, aside) = (run.checkpoint_of(step), run.incomplete_checkpoint_of(step));
    if aside.exists() {
        fs::remove_dir_all(&aside).map_err(Refusal::io("remove", &aside))?;
    }
    fs::rename(&folder, &aside).map_err(Refusal::io("rename", &folder))?;
    Ok(format!("{problem}; set aside as {}", aside.display()))
}

/// Writes a checkpoint as `folder`, which appears complete or not at all.
pub(crate) fn write_folder<D: Device>(folder: &Path, contents: &Contents<'_, D>) -> Result<()> {
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
    fs::rename(&aside, folder).map_err(Refusal::io("rename", &aside))?;
    sync_parent(folder)
}

/// Removes a checkpoint: renamed first, so that a kill on the way leaves no incomplete one behind.
fn remove(folder: &Path) -> Result<()> {
    let aside = folder.with_extension("removed.partial");
    fs::rename(folder, &aside).map_err(Refusal::io("remove", folder))?;
    fs::remove_dir_all(&aside).map_err(Refusal::io("remove", &aside))
}

fn fill<D: Device>(aside: &Path, contents: &Contents<'_, D>) -> Result<()> {
    if aside.exists() {
        fs::remove_dir_all(aside).map_err(Refusal::io("remove", aside))?;
    }
    create_folder(&aside.join("trainer_state"))?;
    contents.learner.save(aside, contents.files)?;
    let state = serde_json::to_vec_pretty(contents.state).expect("a trainer state is plain data");
    write_atomically(&aside.join("trainer_state/state.json"), &state)?;
    if let Some(memory) = contents.memory {
        let memory = serde_json::to_vec(memory).expect("a memory is plain data");
        write_atomically(&aside.join(MEMORY), &memory)?;
    }
    let checksums =
        serde_json::to_vec_pretty(&checksums(aside)?).expect("checksums are plain data");
    write_atomically(&aside.join("checksums.json"), &checksums)
}

/// SHA-256 of every file below `folder` but the list itself, by relative path.
fn checksums(folder: &Path) -> Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(&at).map_err(Refusal::io("read", &at))? {
            let path = entry.map_err(Refusal::io("read", &at))?.path();
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
    let mut file = fs::File::open(path).map_err(Refusal::io("read", path))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let n = file.read(&mut buffer).map_err(Refusal::io("read", path))?;
        if n == 0 {
            break;
        }
        hash.update(&buffer[..n]);
    }
    Ok(hex(hash.finalize()))
}

/// Checks a checkpoint against its checksums and reads its state.
pub fn verify(folder: &Path) -> Result<TrainerState> {
    let refuse = |problem: String| broken_checkpoint(folder, &problem);
    let read =
        |name: &str| fs::read(folder.join(name)).map_err(|it| refuse(format!("{name}: {it}")));
    let expected: BTreeMap<String, String> = serde_json::from_slice(&read("checksums.json")?)
        .map_err(|it| refuse(format!("checksums.json: {it}")))?;
    let adapter = expected.contains_key("adapter_model.safetensors");
    let config = if adapter { "adapter_config.json" } else { "config.json" };
    for name in ESSENTIAL.iter().chain([&config]) {
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
    let unlisted = fs::read_dir(folder).into_iter().flatten().flatten().find(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.ends_with(".safetensors") && !expected.contains_key(&*name)
    });
    if let Some(entry) = unlisted {
        let name = entry.file_name();
        return Err(refuse(format!("checksums.json does not list {}", name.display())));
    }
    let state: TrainerState = serde_json::from_slice(&read("trainer_state/state.json")?)
        .map_err(|it| refuse(format!("trainer_state/state.json: {it}")))?;
    let name = folder.file_name().and_then(|it| it.to_str()?.strip_prefix("step-"));
    if let Some(step) = name.and_then(|it| it.parse::<u64>().ok()).filter(|it| *it != state.step) {
        return Err(refuse(format!(
            "trainer_state/state.json: expected step {step}, as the folder is named, got {}",
            state.step
        )));
    }
    Ok(state)
}
