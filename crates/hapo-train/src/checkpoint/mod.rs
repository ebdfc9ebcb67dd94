//! Checkpoints: a Hugging Face folder that transformers and vLLM load as it is, or PEFT one of an adapter, and beside
//! it, in `trainer_state/`, what a resumed run needs to continue with the same bits.
//!
//! A checkpoint is written under another name, flushed and renamed, so a folder named
//! `step-000100` is complete. `checksums.json` holds the SHA-256 of every file; a checkpoint that does
//! not match is refused by name and the one before it is used.

pub(crate) mod resume;
pub(crate) mod stage_output;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::{cmp::Ordering, fs};

use hapo_core::{Memory, PromptId, Refusal, found_at, hex, if_there};
use hapo_kernels::Device;
use hapo_model::folder::{CHECKSUMS, DIFFERS, broken_checkpoint, is_there, read_file, write_file};
use hapo_run::{RunFolder, create_folder, entries, sync_parent};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::engine::trainer_files::{MOMENTS, ModelFiles, PARAMETERS, checksums_of, open_of};
use crate::{Result, engine::trainer::Trainer, problems::inputs::Inputs};

pub(crate) const STATE: &str = "trainer_state/state.json";
/// Files without which a run cannot be resumed.
const ESSENTIAL: [&str; 4] = [STATE, PARAMETERS, MOMENTS[0], MOMENTS[1]];

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
    pub inputs: Inputs,
    /// Prompts whose trace was shown.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub shown: BTreeSet<PromptId>,
}

/// The complete checkpoint with the highest score, the earliest of equals.
pub fn best(run_dir: &Path) -> Result<Option<(u64, PathBuf)>> {
    Ok(best_scored(run_dir)?.map(|(_, step, folder)| (step, folder)))
}

pub(crate) fn best_scored(run_dir: &Path) -> Result<Option<(f64, u64, PathBuf)>> {
    let mut scored = Vec::new();
    for (step, folder) in RunFolder(run_dir).list_checkpoints()? {
        let score = state_of(&folder)?.and_then(|it| it.score).filter(|it| it.is_finite());
        scored.extend(score.map(|score| (score, step, folder)));
    }
    Ok(scored.into_iter().max_by(|a, b| by_score((a.0, a.1), (b.0, b.1))))
}

/// The order of checkpoints by score and step: of equal scores the earlier step is the better one.
fn by_score(a: (f64, u64), b: (f64, u64)) -> Ordering {
    a.0.total_cmp(&b.0).then(b.1.cmp(&a.1))
}

/// The state in a folder, as it was written; none where there is none, or one of another version.
pub(crate) fn state_of(folder: &Path) -> Result<Option<TrainerState>> {
    let path = folder.join(STATE);
    let text = if is_there(&path)? { read_file(&path)? } else { return Ok(None) };
    Ok(serde_json::from_slice(&text).ok())
}

pub(crate) struct Contents<'a, D: Device> {
    pub(crate) learner: &'a Trainer<D>,
    pub(crate) files: &'a ModelFiles,
    pub(crate) state: &'a TrainerState,
    pub(crate) memory: Option<&'a Memory>,
}

/// The memory of a method between steps (D39).
const MEMORY: &str = "trainer_state/memory.json";

/// The memory of a checkpoint, without which a method that remembers cannot go on.
pub(crate) fn read_memory(folder: &Path) -> Result<Memory> {
    serde_json::from_slice(&read_file(&folder.join(MEMORY))?).map_err(|it| {
        broken_checkpoint(folder, &format!("{MEMORY}, which the recipe needs between steps: {it}"))
    })
}

pub(crate) struct CheckpointStore {
    run_dir: PathBuf,
    /// How many of the latest stay, beside the best.
    keep: usize,
    /// Those that were written or verified here, with their scores. Only they count.
    complete: BTreeMap<u64, Option<f64>>,
}

impl CheckpointStore {
    /// The checkpoints of a run that starts, or resumes from one that was verified.
    pub(crate) fn new(run_dir: &Path, keep: usize, resumed_from: Option<&TrainerState>) -> Self {
        let complete = resumed_from.map(|it| (it.step, it.score)).into_iter().collect();
        Self { run_dir: run_dir.to_owned(), keep, complete }
    }

    /// Writes the checkpoint after `state.step`, then prunes. It is there whatever becomes of the others.
    pub(crate) fn write<D: Device>(
        &mut self,
        contents: &Contents<D>,
    ) -> Result<(PathBuf, Vec<String>)> {
        let folder = RunFolder(&self.run_dir).checkpoint_of(contents.state.step);
        write_folder(&folder, contents)?;
        self.complete.insert(contents.state.step, contents.state.score);
        let mut warnings = Vec::new();
        if let Err(problem) = self.prune(&mut warnings) {
            warnings.push(format!("old checkpoints are left as they are: {problem}"));
        }
        Ok((folder, warnings))
    }

    /// Removes the checkpoints that are neither among the latest nor the best. Incomplete ones are set aside and told;
    /// where one cannot be read, none is removed.
    pub(crate) fn prune(&mut self, warnings: &mut Vec<String>) -> Result<()> {
        let run = RunFolder(&self.run_dir);
        let mut listed = run.list_checkpoints()?;
        for (step, it) in &listed {
            if self.complete.contains_key(step) {
                continue;
            }
            match verify(it) {
                Ok(state) => drop(self.complete.insert(*step, state.score)),
                Err(problem) if is_unread(&problem) => return Err(problem),
                Err(problem) => warnings.push(set_aside(run, *step, &problem)?),
            }
        }
        listed.retain(|it| self.complete.contains_key(&it.0));
        let score = |it: &&(u64, PathBuf)| self.complete[&it.0].filter(|it| it.is_finite());
        let scored = listed.iter().filter_map(|it| Some((score(&it)?, it.0)));
        let best = scored.max_by(|a, b| by_score(*a, *b)).map(|it| it.1);
        for (step, old) in listed.iter().skip(self.keep) {
            if Some(*step) != best {
                remove(old)?;
            }
        }
        Ok(())
    }
}

/// Removes what a killed process has left in the folder of a finished run, and reads no checkpoint where all are to stay.
pub(crate) fn clean_up(run_dir: &Path, keep: usize, last: &TrainerState) -> Result<Vec<String>> {
    let (run, mut warnings) = (RunFolder(run_dir), Vec::new());
    run.remove_leftovers()?;
    let best = best(run_dir)?.map(|it| it.0);
    if run.list_checkpoints()?.iter().skip(keep).any(|it| Some(it.0) != best) {
        CheckpointStore::new(run_dir, keep, Some(last)).prune(&mut warnings)?;
    }
    Ok(warnings)
}

/// True of a checkpoint that could not be read: what the disk does not give is not damaged.
pub(crate) fn is_unread(problem: &Refusal) -> bool {
    problem.cause::<io::Error>().is_some()
}

/// Renames an incomplete checkpoint so that nothing takes it for one, and says so.
pub(crate) fn set_aside(run: RunFolder, step: u64, problem: &Refusal) -> Result<String> {
    let (folder, aside) = (run.checkpoint_of(step), run.incomplete_checkpoint_of(step));
    if_there(&aside, fs::remove_dir_all(&aside))?;
    fs::rename(&folder, &aside).map_err(Refusal::io("rename", &folder))?;
    Ok(format!("{problem}; set aside as {}", aside.display()))
}

/// Writes a checkpoint as `folder`, which appears complete or not at all.
pub(crate) fn write_folder<D: Device>(folder: &Path, contents: &Contents<D>) -> Result<()> {
    let aside = folder.with_extension("partial");
    let written = fill(&aside, contents);
    if written.is_err() {
        // A full disk needs the space back; the first cause is the one to report.
        let _ = fs::remove_dir_all(&aside);
        return written;
    }
    // A folder of this name was refused as incomplete, or this would be another step.
    if found_at(folder)?.is_some() {
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

fn fill<D: Device>(aside: &Path, contents: &Contents<D>) -> Result<()> {
    if_there(aside, fs::remove_dir_all(aside))?;
    create_folder(&aside.join("trainer_state"))?;
    let mut written = contents.learner.save(aside, contents.files)?;
    let keep =
        |name: &str, bytes: Vec<u8>| write_file(&aside.join(name), |out| out.write_all(&bytes));
    let state = serde_json::to_vec_pretty(contents.state).expect("a trainer state is plain data");
    written.insert(STATE.to_owned(), keep(STATE, state)?);
    if let Some(memory) = contents.memory {
        let memory = serde_json::to_vec(memory).expect("a memory is plain data");
        written.insert(MEMORY.to_owned(), keep(MEMORY, memory)?);
    }
    keep(CHECKSUMS, serde_json::to_vec_pretty(&written).expect("checksums are plain data"))?;
    [STATE, CHECKSUMS].iter().try_for_each(|name| sync_parent(&aside.join(name)))
}

fn sha256_of(folder: &Path, name: &str) -> Result<String> {
    let (file, mut hash, mut piece) = (open_of(folder, name)?, Sha256::new(), Vec::new());
    loop {
        piece.clear();
        // `read_to_end` repeats what a signal has interrupted.
        let read = (&file).take(1 << 20).read_to_end(&mut piece);
        if read.map_err(Refusal::io("read", &folder.join(name)))? == 0 {
            return Ok(hex(hash.finalize()));
        }
        hash.update(&piece);
    }
}

pub fn verify(folder: &Path) -> Result<TrainerState> {
    let refuse = |problem: String| broken_checkpoint(folder, &problem);
    let sums = checksums_of(folder)?;
    let adapter = sums.contains_key("adapter_model.safetensors");
    let config = if adapter { "adapter_config.json" } else { "config.json" };
    for name in ESSENTIAL.iter().chain([&config]) {
        if !sums.contains_key(*name) {
            return Err(refuse(format!("{CHECKSUMS} does not list {name}")));
        }
    }
    for (name, sum) in &sums {
        if sha256_of(folder, name)? != *sum {
            return Err(refuse(format!("{name}{DIFFERS}")));
        }
    }
    for path in entries(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(".safetensors") && !sums.contains_key(&*name) {
            return Err(refuse(format!("{CHECKSUMS} does not list {name}")));
        }
    }
    let state: TrainerState = serde_json::from_slice(&read_file(&folder.join(STATE))?)
        .map_err(|it| refuse(format!("{STATE}: {it}")))?;
    let name = folder.file_name().and_then(|it| it.to_str()?.strip_prefix("step-"));
    if let Some(step) = name.and_then(|it| it.parse::<u64>().ok()).filter(|it| *it != state.step) {
        let got = state.step;
        let what = format!("{STATE}: expected step {step}, as the folder is named, got {got}");
        return Err(refuse(what));
    }
    Ok(state)
}
