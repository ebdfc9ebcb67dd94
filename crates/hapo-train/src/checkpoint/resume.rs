//! The contents of a run folder whose run is resumed, and whether it is the same run.

use std::path::{Path, PathBuf};
use std::{collections::BTreeMap, fs};

use hapo_core::{Refusal, if_there};
use hapo_model::folder::broken_checkpoint;
use hapo_run::{
    MetricsFile, RecipeDifference, RunFolder, read_json, recipe_differences, recipe_entries,
};

use crate::checkpoint::{self, TrainerState};
use crate::{Result, problems::inputs::Inputs, recipe::Recipe};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumePolicy {
    /// From the start; a folder that holds a run is refused.
    Fresh,
    /// As [`ResumePolicy::Fresh`], and no checkpoint is written: a measurement.
    Measure,
    /// From the latest complete checkpoint, if there is one; a run of another recipe or other inputs is refused.
    Resume,
    /// As [`ResumePolicy::Resume`], and a changed recipe or input is taken as it is.
    ResumeWithRecipe,
}

#[derive(Default)]
pub(crate) struct Found {
    pub(crate) checkpoint: Option<(TrainerState, PathBuf)>,
    /// Later ones that are not complete, and why.
    incomplete: Vec<(u64, Refusal)>,
    /// The inputs of the run when it began; `None` where there was no run.
    pub(crate) inputs: Option<Inputs>,
}

pub(crate) fn find(
    run_dir: &Path,
    recipe: &Recipe,
    resolved: &str,
    policy: ResumePolicy,
    warn: &mut dyn FnMut(&str),
) -> Result<Found> {
    let files = RunFolder(run_dir);
    let found = files.list_checkpoints()?;
    let Some((_, latest)) = found.first() else {
        return begin_again(files, recipe, resolved, policy, warn);
    };
    let mut incomplete = Vec::new();
    for (step, folder) in &found {
        match checkpoint::verify(folder) {
            Ok(state) => {
                require_same_recipe(&state.recipe, resolved, folder, policy, warn)?;
                let inputs = Some(state.inputs.clone());
                let checkpoint = Some((state, folder.clone()));
                return Ok(Found { checkpoint, incomplete, inputs });
            }
            Err(it) if checkpoint::is_unread(&it) => return Err(it),
            Err(it) => incomplete.push((*step, it)),
        }
    }
    // Going back to step 0 would silently throw the run away.
    let all: Vec<String> = incomplete.iter().map(|it| it.1.to_string()).collect();
    let problem = format!("no checkpoint of the run is complete: {}", all.join("; "));
    Err(broken_checkpoint(latest, &problem))
}

/// A run that was ended before its first checkpoint begins again, another one does not, and neither does one whose
/// checkpoints are gone.
fn begin_again(
    files: RunFolder,
    recipe: &Recipe,
    resolved: &str,
    policy: ResumePolicy,
    warn: &mut dyn FnMut(&str),
) -> Result<Found> {
    let before = if_there(&files.recipe(), fs::read_to_string(files.recipe()))?;
    if let Some(before) = &before {
        require_same_recipe(before, resolved, files.0, policy, warn)?;
    }
    let before = before.and_then(|it| Recipe::parse_resolved(&it, "recipe.toml").ok());
    let of = before.as_ref().unwrap_or(recipe);
    let every = of.checkpoint.every;
    let due = if every == 0 { of.steps } else { every.min(of.steps) };
    let logged = MetricsFile::last_step(&files.metrics())?;
    if logged > due {
        let problem = format!(
            "{}: {logged} steps are logged and no checkpoint is there, though the first was due after step {due}",
            files.0.display()
        );
        return Err(Refusal::input(problem)
            .hint("restore the folder `checkpoints` from a copy, or choose another --run-dir"));
    }
    let again = match logged {
        0 => "it begins with step 1".to_owned(),
        1 => "step 1 is computed again".to_owned(),
        _ => format!("steps 1 to {logged} are computed again"),
    };
    if files.holds_run()? {
        warn(&format!("the run ended before its first checkpoint: {again}"));
    }
    let inputs = read_json(&files.inputs())?;
    if logged > 0 && inputs.is_none() {
        warn(&format!(
            "{} is missing: whether data and base model are still those that the run began with is not known",
            files.inputs().display()
        ));
    }
    Ok(Found { inputs, ..Found::default() })
}

impl Found {
    pub(crate) fn require_same_inputs(
        &self,
        run_dir: &Path,
        now: &Inputs,
        policy: ResumePolicy,
        warn: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let differences = self.inputs.as_ref().map_or_else(Vec::new, |it| it.differences(now));
        if differences.is_empty() {
            return Ok(());
        }
        let differences = differences.join(", ");
        if policy != ResumePolicy::ResumeWithRecipe {
            let folder = run_dir.display();
            let problem = format!("{folder} was begun with other inputs: {differences}");
            return Err(Refusal::input(problem).hint("put them back, choose another --run-dir, or resume with what is there now by --resume --force-recipe"));
        }
        warn(&format!("resuming with other inputs: {differences}"));
        Ok(())
    }

    pub(crate) fn set_incomplete_aside(
        &self,
        run_dir: &Path,
        warn: &mut dyn FnMut(&str),
    ) -> Result<()> {
        for (step, problem) in &self.incomplete {
            let aside = checkpoint::set_aside(RunFolder(run_dir), *step, problem)?;
            warn(&format!("{aside}; using the one before"));
        }
        Ok(())
    }
}

pub(crate) fn require_same_recipe(
    before: &str,
    resolved: &str,
    folder: &Path,
    policy: ResumePolicy,
    warn: &mut dyn FnMut(&str),
) -> Result<()> {
    let changed = changed_keys(before, resolved);
    let longer = changed.iter().any(|it| it.key == "steps");
    let before = Recipe::parse_resolved(before, "recipe.toml").ok().filter(|_| longer);
    let schedules = before.map_or_else(Vec::new, |it| it.schedules_of_steps());
    // Without a schedule over the run, more steps are the same run.
    if changed.len() == usize::from(longer) && schedules.is_empty() {
        return Ok(());
    }
    let changed = changed.iter().map(|it| {
        let [before, after] = it.values();
        format!("{}: {before} → {after}", it.key)
    });
    let mut differences = changed.collect::<Vec<_>>().join("; ");
    if !schedules.is_empty() {
        differences += &format!(" ({} depend on steps)", schedules.join(", "));
    }
    if policy != ResumePolicy::ResumeWithRecipe {
        let problem = format!("{} is of another recipe: {differences}", folder.display());
        return Err(Refusal::input(problem).hint("choose another --run-dir, or resume with the changed recipe by --resume --force-recipe"));
    }
    warn(&format!("resuming with another recipe: {differences}"));
    Ok(())
}

/// Keys on which no result depends: a run may be resumed with others.
const OF_THE_MACHINE: [&str; 2] = ["sampling.kv_memory", "track"];

/// The keys in which two resolved recipes differ so that a run by the one is no run by the other; `recipe` for a text that
/// is no TOML.
pub fn changed_keys(before: &str, after: &str) -> Vec<RecipeDifference> {
    let [before, after] = [before, after].map(|text| {
        recipe_entries(text).unwrap_or_else(|it| {
            BTreeMap::from([("recipe".to_owned(), format!("unreadable: {it}"))])
        })
    });
    let mut changed = recipe_differences(&[&before, &after]);
    changed.retain(|it| !OF_THE_MACHINE.contains(&it.key.as_str()));
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_name_keys_and_both_values() {
        let before = "# resolved by hapo 0.1.0\nsteps = 10\n[optim]\nlr = 1e-4\n";
        let after =
            "# resolved by hapo 0.2.0\nsteps = 10\n[optim]\nlr = 2e-4\n[hapo]\ngate = \"never\"\n";
        let changed = changed_keys(before, after);
        let changed: Vec<_> = changed.iter().map(|it| (&*it.key, it.values())).collect();
        let expected = [("hapo.gate", ["absent", "\"never\""]), ("optim.lr", ["0.0001", "0.0002"])];
        assert_eq!(changed, expected);
        assert!(changed_keys(before, "steps = 10\noptim.lr = 1e-4").is_empty());
        let memory = "steps = 10\noptim.lr = 1e-4\nsampling.kv_memory = \"6GB\"";
        assert!(changed_keys(before, memory).is_empty(), "nothing depends on it");
    }
}
