//! The training of a stage in its folder.

use std::path::Path;

use anyhow::Result;
use hapo_run::Busy;
use hapo_train::{Observer, Outcome, Recipe, ResumePolicy, RunPlan, Sources};

/// Trains a stage, or resumes it. `None` if another process is running it.
pub(crate) fn train(
    folder: &Path,
    recipe: &Recipe,
    sources: Sources,
    threads: usize,
    observer: &mut dyn Observer,
) -> Result<Option<Outcome>> {
    let plan = RunPlan::settle_in(folder, recipe, sources)?;
    match hapo_train::train(&plan, folder, ResumePolicy::Resume, threads, observer) {
        Err(refusal) if refusal.cause::<Busy>().is_some() => Ok(None),
        other => Ok(Some(other?)),
    }
}
