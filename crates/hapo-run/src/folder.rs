//! Where things are in a run folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use hapo_core::{Refusal, found_at, if_there};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::files::write_atomically;

/// A run folder by its path. It need not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunFolder<'a>(pub &'a Path);

impl RunFolder<'_> {
    pub fn recipe(self) -> PathBuf {
        self.0.join("recipe.toml")
    }

    pub fn metrics(self) -> PathBuf {
        self.0.join("metrics.jsonl")
    }

    /// The gate over the steps, a [`hapo_core::ScheduleTable`].
    pub fn gate(self) -> PathBuf {
        self.0.join("gate.json")
    }

    /// Hashes of the run's inputs other than its recipe.
    pub fn inputs(self) -> PathBuf {
        self.0.join("inputs.json")
    }

    /// The measurements of the dry run before the first step, a [`crate::Preflight`].
    pub fn preflight(self) -> PathBuf {
        self.0.join("preflight.json")
    }

    /// The output that a custom reward printed beside its answers.
    pub fn reward_log(self) -> PathBuf {
        self.0.join("reward.log")
    }

    /// The start of a run with evaluations, and its evaluation.
    pub fn start(self) -> PathBuf {
        self.0.join("start.json")
    }

    /// The metrics of what the run starts from; none where it was not evaluated.
    pub fn start_metrics(self) -> Result<BTreeMap<String, f64>, Refusal> {
        let start = read_json::<serde_json::Value>(&self.start())?.unwrap_or_default();
        let metrics = start["metrics"].as_object().into_iter().flatten();
        Ok(metrics.filter_map(|(name, value)| Some((name.clone(), value.as_f64()?))).collect())
    }

    /// Why the run has ended before its last step, an [`EarlyEnd`].
    pub fn early_end(self) -> PathBuf {
        self.0.join("ended.json")
    }

    /// The file that the writing process locks.
    pub fn lock(self) -> PathBuf {
        self.0.join("run.lock")
    }

    pub fn rollouts(self) -> PathBuf {
        self.0.join("rollouts")
    }

    /// The rollouts of a step, lines of [`crate::RolloutLine`].
    pub fn rollouts_of(self, step: u64) -> PathBuf {
        self.rollouts().join(format!("step-{step:06}.jsonl.zst"))
    }

    pub fn checkpoints(self) -> PathBuf {
        self.0.join("checkpoints")
    }

    pub fn checkpoint_of(self, step: u64) -> PathBuf {
        self.checkpoints().join(format!("step-{step:06}"))
    }

    /// The state saved when a step fails after its first update; no run can resume from it.
    pub fn halted_in(self, step: u64) -> PathBuf {
        self.checkpoints().join(format!("halted-step-{step:06}"))
    }

    /// A checkpoint that is not whole, out of the way of those that are.
    pub fn incomplete_checkpoint_of(self, step: u64) -> PathBuf {
        self.checkpoint_of(step).with_extension("incomplete")
    }

    /// The recipe of a run of several stages, in the folder above theirs.
    pub fn stages(self) -> PathBuf {
        self.0.join("stages.toml")
    }

    /// True if training started in this folder.
    pub fn holds_run(self) -> Result<bool, Refusal> {
        let is_there = |path: PathBuf| Ok(found_at(&path)?.is_some());
        Ok(is_there(self.recipe())?
            || is_there(self.metrics())?
            || !self.list_checkpoints()?.is_empty())
    }

    pub fn rollout_steps(self) -> Result<Vec<u64>, Refusal> {
        let all = entries(&self.rollouts())?.into_iter();
        let mut steps: Vec<u64> = all.filter_map(|it| step_of(&it, ".jsonl.zst")).collect();
        steps.sort_unstable();
        Ok(steps)
    }

    /// The checkpoints by their names, the latest first.
    pub fn list_checkpoints(self) -> Result<Vec<(u64, PathBuf)>, Refusal> {
        let all = entries(&self.checkpoints())?.into_iter();
        let mut found: Vec<_> = all.filter_map(|it| Some((step_of(&it, "")?, it))).collect();
        found.sort_unstable_by_key(|it| std::cmp::Reverse(it.0));
        Ok(found)
    }

    /// Removes unfinished files of a killed process, and nothing that others put there.
    pub fn remove_leftovers(self) -> Result<(), Refusal> {
        for folder in [self.0.to_owned(), self.checkpoints(), self.rollouts()] {
            for path in entries(&folder)? {
                let is_dir = if_there(&path, path.symlink_metadata())?.map(|it| it.is_dir());
                let name = path.file_name().unwrap_or_default().as_encoded_bytes();
                let is_tmp = name.starts_with(b".hapo-") && name.ends_with(b".tmp");
                let is_partial = folder != self.0 && name.ends_with(b".partial");
                let removed = match is_dir {
                    Some(true) if is_partial => fs::remove_dir_all(&path),
                    Some(false) if is_tmp => fs::remove_file(&path),
                    _ => continue,
                };
                removed.map_err(Refusal::io("remove", &path))?;
            }
        }
        Ok(())
    }
}

/// The early end of a run that needs no further step: `ended.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlyEnd {
    pub step: u64,
    pub because: String,
}

impl EarlyEnd {
    pub fn write(&self, folder: RunFolder<'_>) -> Result<(), Refusal> {
        let json = serde_json::to_vec_pretty(self).expect("a step and a sentence are plain data");
        write_atomically(&folder.early_end(), &json)
    }
}

/// The entries of a folder; none where there is none.
pub fn entries(folder: &Path) -> Result<Vec<PathBuf>, Refusal> {
    let Some(found) = if_there(folder, fs::read_dir(folder))? else { return Ok(Vec::new()) };
    let paths = found.map(|it| it.map(|it| it.path()));
    paths.collect::<Result<_, _>>().map_err(Refusal::io("read", folder))
}

/// The record in a file; `None` where there is no file, or none of this form in it.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Refusal> {
    let text = if_there(path, fs::read(path))?;
    Ok(text.and_then(|text| serde_json::from_slice(&text).ok()))
}

/// 12 for `step-000012` and `ending`.
fn step_of(path: &Path, ending: &str) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    name.strip_prefix("step-")?.strip_suffix(ending)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_and_read_alike() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunFolder(dir.path());
        assert!(
            run.rollout_steps().unwrap().is_empty() && run.list_checkpoints().unwrap().is_empty()
        );
        fs::create_dir_all(run.rollouts()).unwrap();
        for step in [12, 3, 1_234_567] {
            fs::write(run.rollouts_of(step), "").unwrap();
            fs::create_dir_all(run.checkpoint_of(step)).unwrap();
        }
        fs::create_dir_all(run.halted_in(13)).unwrap();
        fs::write(run.rollouts().join("step-x.jsonl.zst"), "").unwrap();
        assert_eq!(run.rollout_steps().unwrap(), [3, 12, 1_234_567]);
        let found = run.list_checkpoints().unwrap();
        assert_eq!(found.iter().map(|it| it.0).collect::<Vec<_>>(), [1_234_567, 12, 3]);
        assert_eq!(found[1].1, run.checkpoint_of(12));
    }

    /// A link in a circle is there, and no system says what it leads to.
    #[cfg(unix)]
    #[test]
    fn what_cannot_be_read_is_not_taken_for_absent() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunFolder(dir.path());
        for path in [run.checkpoints(), run.rollouts(), run.start(), run.early_end()] {
            std::os::unix::fs::symlink(&path, &path).unwrap();
        }
        let all = [
            run.list_checkpoints().map(drop),
            run.holds_run().map(drop),
            run.rollout_steps().map(drop),
            run.start_metrics().map(drop),
            run.remove_leftovers(),
            read_json::<crate::EarlyEnd>(&run.early_end()).map(drop),
        ];
        for it in all {
            let refusal = it.unwrap_err();
            assert!(!refusal.is_bad_input(), "{refusal}");
            assert!(refusal.to_string().starts_with("cannot read "), "{refusal}");
        }
    }

    #[test]
    fn the_evaluation_of_the_start_is_read_where_there_is_one() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunFolder(dir.path());
        assert!(run.start_metrics().unwrap().is_empty());
        fs::write(run.start(), r#"{"model":null,"metrics":{"eval/avg@k":0.105}}"#).unwrap();
        assert_eq!(run.start_metrics().unwrap()["eval/avg@k"], 0.105);
    }

    #[test]
    fn leftovers_are_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunFolder(dir.path());
        let partial = run.checkpoint_of(2).with_extension("partial");
        for it in [run.rollouts(), run.checkpoint_of(1), partial.clone()] {
            fs::create_dir_all(it).unwrap();
        }
        for it in
            [run.rollouts_of(1), run.rollouts().join(".hapo-1-0.tmp"), run.0.join(".hapo-2-9.tmp")]
        {
            fs::write(it, "").unwrap();
        }
        let notes = [run.0.join("notes.tmp"), run.0.join("mine.partial")];
        fs::write(&notes[0], "").unwrap();
        fs::create_dir(&notes[1]).unwrap();
        run.remove_leftovers().unwrap();
        assert!(!partial.exists() && run.checkpoint_of(1).is_dir());
        assert_eq!(entries(&run.rollouts()).unwrap().len(), 1);
        assert!(!run.0.join(".hapo-2-9.tmp").exists());
        assert!(notes.iter().all(|it| it.exists()));
    }
}
