//! Where things are in a run folder.

use std::fs;
use std::path::{Path, PathBuf};

use hapo_core::Refusal;

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

    /// A metric of the evaluation of what the run starts from; `None` where it was not evaluated.
    pub fn start_metric(self, name: &str) -> Option<f64> {
        let start = fs::read(self.start()).ok()?;
        let start: serde_json::Value = serde_json::from_slice(&start).ok()?;
        start["metrics"][name].as_f64()
    }

    /// Why the run has ended before its last step, an [`crate::EarlyEnd`].
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
    pub fn holds_run(self) -> bool {
        self.recipe().exists() || self.metrics().exists() || !self.list_checkpoints().is_empty()
    }

    /// Steps whose rollouts are stored, in order.
    pub fn rollout_steps(self) -> Vec<u64> {
        let mut steps: Vec<u64> =
            entries(&self.rollouts()).filter_map(|it| step_of(&it, ".jsonl.zst")).collect();
        steps.sort_unstable();
        steps
    }

    /// The checkpoints by their names, the latest first.
    pub fn list_checkpoints(self) -> Vec<(u64, PathBuf)> {
        let mut found: Vec<(u64, PathBuf)> =
            entries(&self.checkpoints()).filter_map(|it| Some((step_of(&it, "")?, it))).collect();
        found.sort_unstable_by_key(|it| std::cmp::Reverse(it.0));
        found
    }

    /// Removes unfinished files of a killed process.
    pub fn remove_leftovers(self) -> Result<(), Refusal> {
        for folder in [self.0.to_owned(), self.checkpoints(), self.rollouts()] {
            for path in entries(&folder) {
                let removed = match path.extension().and_then(|it| it.to_str()) {
                    Some("partial") if path.is_dir() => fs::remove_dir_all(&path),
                    Some("tmp") if path.is_file() => fs::remove_file(&path),
                    _ => continue,
                };
                removed.map_err(Refusal::io("remove", &path))?;
            }
        }
        Ok(())
    }
}

/// The entries of a folder; none of one that cannot be read.
fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let found = fs::read_dir(folder).into_iter().flatten();
    found.filter_map(Result::ok).map(|it| it.path())
}

/// 12 for `step-000012` and `ending`.
fn step_of(path: &Path, ending: &str) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    let digits = name.strip_prefix("step-")?.strip_suffix(ending)?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_and_read_alike() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunFolder(dir.path());
        assert!(run.rollout_steps().is_empty() && run.list_checkpoints().is_empty());
        fs::create_dir_all(run.rollouts()).unwrap();
        for step in [12, 3, 1_234_567] {
            fs::write(run.rollouts_of(step), "").unwrap();
            fs::create_dir_all(run.checkpoint_of(step)).unwrap();
        }
        fs::create_dir_all(run.halted_in(13)).unwrap();
        fs::write(run.rollouts().join("step-x.jsonl.zst"), "").unwrap();
        assert_eq!(run.rollout_steps(), [3, 12, 1_234_567]);
        let found = run.list_checkpoints();
        assert_eq!(found.iter().map(|it| it.0).collect::<Vec<_>>(), [1_234_567, 12, 3]);
        assert_eq!(found[1].1, run.checkpoint_of(12));
    }

    #[test]
    fn the_evaluation_of_the_start_is_read_where_there_is_one() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunFolder(dir.path());
        assert_eq!(run.start_metric("eval/avg@k"), None);
        fs::write(run.start(), r#"{"model":null,"metrics":{"eval/avg@k":0.105}}"#).unwrap();
        assert_eq!(run.start_metric("eval/avg@k"), Some(0.105));
    }

    #[test]
    fn leftovers_are_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunFolder(dir.path());
        let partial = run.checkpoint_of(2).with_extension("partial");
        for it in [run.rollouts(), run.checkpoint_of(1), partial.clone()] {
            fs::create_dir_all(it).unwrap();
        }
        for it in [run.rollouts_of(1), run.rollouts().join(".hapo-1-0.tmp"), run.0.join("a.tmp")] {
            fs::write(it, "").unwrap();
        }
        run.remove_leftovers().unwrap();
        assert!(!partial.exists() && run.checkpoint_of(1).is_dir());
        assert_eq!(entries(&run.rollouts()).count(), 1);
        assert!(!run.0.join("a.tmp").exists());
    }
}
