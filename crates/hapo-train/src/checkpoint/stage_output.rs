//! Which weights a stage hands on to the next (D33).

use std::path::Path;

use hapo_core::if_there;
use hapo_model::folder::broken_checkpoint;
use hapo_run::{RunFolder, write_atomically};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Result;
use crate::checkpoint::{self, STATE};
use crate::recipe::{Recipe, StageCheckpoint, wrong_stage};

/// The model that a run with `[eval]` starts from, and its evaluation: `start.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    /// The model's folder; none for random weights.
    pub(crate) model: Option<String>,
    pub(crate) metrics: Value,
}

impl Start {
    pub(crate) fn read(run_dir: &Path) -> Result<Option<Self>> {
        let path = RunFolder(run_dir).start();
        let Some(text) = if_there(&path, std::fs::read(&path))? else { return Ok(None) };
        let start = serde_json::from_slice(&text);
        start.map_err(|it| broken_checkpoint(run_dir, &format!("start.json: {it}"))).map(Some)
    }

    pub(crate) fn write(&self, run_dir: &Path) -> Result<()> {
        let json = serde_json::to_vec_pretty(self).expect("numbers are plain data");
        write_atomically(&RunFolder(run_dir).start(), &json)
    }
}

pub(crate) struct HandedOn {
    pub(crate) model: String,
    pub(crate) because: String,
}

pub(crate) fn stage_output(run_dir: &Path, which: StageCheckpoint) -> Result<HandedOn> {
    let name = run_dir.file_name().unwrap_or_default().to_string_lossy();
    let last = RunFolder(run_dir).list_checkpoints()?.into_iter().next();
    let judged = |it: &Recipe| {
        which == StageCheckpoint::Best || (which == StageCheckpoint::Settled && it.eval.is_some())
    };
    // As its last checkpoint has it, which has checksums.
    let state = last.as_ref().map(|(_, folder)| checkpoint::state_of(folder)).transpose()?;
    let recipe = state.flatten().and_then(|it| Recipe::parse_resolved(&it.recipe, STATE).ok());
    let best = recipe.filter(judged).map(|it| best_of(run_dir, &it)).transpose()?.flatten();
    let last = last.map(|(step, folder)| (folder, format!("step {step}, its last")));
    let (model, because) = match (best, which) {
        (Some(it), _) => it,
        (None, StageCheckpoint::Best) => {
            return Err(wrong_stage(format!("stage {name} has no checkpoint with a score")));
        }
        (None, _) => last.map(|(it, why)| (it.display().to_string(), why)).ok_or_else(|| {
            let run_dir = run_dir.display();
            wrong_stage(format!("stage {name} has no checkpoint in {run_dir}"))
        })?,
    };
    Ok(HandedOn { model, because: format!("from stage {name}: {because}") })
}

/// The checkpoint with the highest score, or what the run started from where no score is higher.
fn best_of(run_dir: &Path, recipe: &Recipe) -> Result<Option<(String, String)>> {
    let (metric, sign) = recipe.best_metric();
    let Some((score, step, folder)) = checkpoint::best_scored(run_dir)? else { return Ok(None) };
    let start = Start::read(run_dir)?;
    let start = start.and_then(|it| Some((it.model?, it.metrics.get(metric)?.as_f64()?)));
    Ok(Some(match start {
        Some((model, value)) if value * sign >= score => {
            (model, format!("step 0, what it started from, as no {metric} beats {value:.4}"))
        }
        _ => {
            let value = score * sign;
            (folder.display().to_string(), format!("step {step}, its best {metric}, {value:.4}"))
        }
    }))
}

/// The recipe that the run of a folder settled when it began.
pub(crate) fn kept_recipe(run_dir: &Path) -> Result<Option<Recipe>> {
    let path = RunFolder(run_dir).recipe();
    let text = if_there(&path, std::fs::read_to_string(&path))?;
    // A recipe of another version settles nothing.
    Ok(text.and_then(|it| Recipe::parse_resolved(&it, "recipe.toml").ok()))
}
