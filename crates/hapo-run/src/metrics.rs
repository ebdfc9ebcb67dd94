//! One line of numbers per step: `metrics.jsonl`. Names are those of the metrics list in the documentation,
//! `section/name`. Lines of two equal runs are equal byte for byte but for columns of time or memory ([`is_clock`]).

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use hapo_core::{Refusal, found_at, if_there};

use crate::files::write_atomically;

/// The numbers of one step, in the order in which they were set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    entries: Vec<(Cow<'static, str>, f64)>,
}

impl Metrics {
    /// Adds a number, where there is one.
    pub fn set(&mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Option<f64>>) {
        let name = name.into();
        debug_assert!(self.get(&name).is_none(), "{name} is set twice");
        self.entries.extend(value.into().map(|it| (name, it)));
    }

    pub fn get(&self, name: &str) -> Option<f64> {
        self.entries.iter().find(|it| it.0 == name).map(|it| it.1)
    }
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.entries.retain(|it| keep(&it.0));
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.entries.iter().map(|it| (&*it.0, it.1))
    }

    /// The line of `metrics.jsonl`, without its newline. Numbers that are not finite are `null`.
    pub fn to_json(&self) -> String {
        let field = |(name, value): (&str, f64)| {
            let number = if !value.is_finite() {
                "null".to_owned()
            } else if value.fract() == 0.0 && value.abs() < 1e15 {
                (value as i64).to_string()
            } else {
                serde_json::Value::from(value).to_string()
            };
            format!("{}:{number}", serde_json::Value::from(name))
        };
        format!("{{{}}}", self.iter().map(field).collect::<Vec<_>>().join(","))
    }
}

/// Prefix of the metrics of a reward's parts, before the part's name.
pub const REWARD_PARTS: &str = "reward/parts/";

/// Responses that a reward program gave no answer to.
pub const REWARD_FAILED: &str = "reward/failed";

/// Responses whose reward is below that of an answer without a verdict (D31).
pub const REWARD_BELOW_WRONG: &str = "reward/below_wrong";

/// Every name, in the order of the documentation; but for those of reward programs: [`REWARD_FAILED`],
/// [`REWARD_BELOW_WRONG`] and names that begin with [`REWARD_PARTS`].
pub fn metrics() -> impl Iterator<Item = &'static str> {
    "step epoch loss grad_norm lr reward/mean reward/policy_only \
     groups/all_fail groups/all_solved groups/partially_solved groups/without_signal groups/dropped \
     groups/refilled \
     selected/without_signal selected/reward_mean selected/reward_policy_only selected/beta \
     gate/threshold gate/success_limit gate/open gate/beta gate/beta_trajectories gate/open_no_teacher \
     teacher/distinct teacher/token_share teacher/mean_prob teacher/loss teacher/grad_norm teacher/entropy \
     policy/loss policy/entropy entropy/all \
     policy/clip_fraction policy/ratio_mean policy/ratio_max policy/kl_to_initial policy/kl_to_reference \
     response_length/mean response_length/p95 response_length/truncated \
     sampler/logprob_gap_max sampler/logprob_gap_mean sampler/kl sampler/bounded sampler/effective \
     verify/correct verify/wrong verify/unparsable verify/boxed verify/announced verify/ms \
     eval/avg@k eval/pass@k eval/reward eval/truncated \
     time/sample time/verify time/train time/step time/unix time/eval \
     tokens_per_second/sample tokens_per_second/train memory/rss"
        .split(' ')
}

/// The metric of a set of `[eval]`, where there are several.
pub fn metric_of_set(metric: &str, set: &str) -> String {
    format!("{metric}/{set}")
}

/// True for a column of time, speed or memory, which differs between two equal runs.
pub fn is_clock(name: &str) -> bool {
    name.starts_with("time/")
        || name.starts_with("tokens_per_second/")
        || name.starts_with("memory/")
        || name == "verify/ms"
}
#[derive(Debug)]
pub struct MetricsFile {
    file: File,
    path: PathBuf,
    pub lines: u64,
    /// Where the file is as it was found, with lines that hold no step.
    pub set_aside: Option<PathBuf>,
}

impl MetricsFile {
    /// Opens the file of a run that has done `steps_done` steps: lines of later steps, which a killed run may have
    /// left, are cut off. A file with lines that hold no step is set aside as it was, and the others are kept.
    pub fn open(path: &Path, steps_done: u64) -> Result<Self, Refusal> {
        let found = contents(path)?;
        let (mut kept, mut lines, mut set_aside) = (Vec::new(), 0, None);
        for line in found.split_inclusive(|it| *it == b'\n').filter(|it| it.ends_with(b"\n")) {
            match step_of(line) {
                Some((step, _)) if step > steps_done => break,
                Some(_) => {
                    kept.extend_from_slice(line);
                    lines += 1;
                }
                None => set_aside = Some(path.with_extension("jsonl.unreadable")),
            }
        }
        if let Some(aside) = &set_aside {
            std::fs::rename(path, aside).map_err(Refusal::io("rename", path))?;
        }
        write_atomically(path, &kept)?;
        Ok(Self { file: opened(path)?, path: path.to_owned(), lines, set_aside })
    }

    /// The last step that a file logs, 0 for none and for no file.
    pub fn last_step(path: &Path) -> Result<u64, Refusal> {
        let found = contents(path)?;
        Ok(found.split(|byte| *byte == b'\n').filter_map(step_of).map(|it| it.0).max().unwrap_or(0))
    }

    /// The lines of a file up to step `last`; none if there is no file.
    pub fn history_until(path: &Path, last: u64) -> Result<Vec<serde_json::Value>, Refusal> {
        let found = contents(path)?;
        let lines = found.split(|it| *it == b'\n').filter_map(step_of);
        Ok(lines.filter(|it| it.0 <= last).map(|it| it.1).collect())
    }

    pub fn history(&self) -> Result<Vec<serde_json::Value>, Refusal> {
        Self::history_until(&self.path, u64::MAX)
    }

    /// Waits until the lines are on the disk: a checkpoint must not be ahead of them.
    pub fn sync(&self) -> Result<(), Refusal> {
        self.file.sync_data().map_err(Refusal::io("write", &self.path))
    }

    /// Hands the line of a step to the system. A file that somebody removed is written again, with all that it held.
    pub fn append(&mut self, metrics: &Metrics) -> Result<(), Refusal> {
        if found_at(&self.path)?.is_none() {
            self.restore()?;
        }
        let line = metrics.to_json() + "\n";
        self.file.write_all(line.as_bytes()).map_err(Refusal::io("write", &self.path))?;
        self.lines += 1;
        Ok(())
    }

    pub fn add_to_last(&mut self, metrics: &Metrics) -> Result<(), Refusal> {
        let mut text = std::fs::read(&self.path).map_err(Refusal::io("read", &self.path))?;
        let whole = text.trim_ascii_end().len().saturating_sub(1);
        text.truncate(whole);
        let more = metrics.to_json();
        text.extend_from_slice(format!(",{}\n", &more[1..]).as_bytes());
        self.rewrite(&text)
    }

    /// Writes the lines of a removed file back; its contents live on while it is open.
    fn restore(&mut self) -> Result<(), Refusal> {
        let mut held = Vec::new();
        self.file.rewind().map_err(Refusal::io("read", &self.path))?;
        self.file.read_to_end(&mut held).map_err(Refusal::io("read", &self.path))?;
        self.rewrite(&held)
    }

    fn rewrite(&mut self, text: &[u8]) -> Result<(), Refusal> {
        write_atomically(&self.path, text)?;
        self.file = opened(&self.path)?;
        Ok(())
    }
}

fn contents(path: &Path) -> Result<Vec<u8>, Refusal> {
    if_there(path, std::fs::read(path)).map(Option::unwrap_or_default)
}

fn opened(path: &Path) -> Result<File, Refusal> {
    OpenOptions::new().read(true).append(true).open(path).map_err(Refusal::io("open", path))
}

fn step_of(line: &[u8]) -> Option<(u64, serde_json::Value)> {
    let line: serde_json::Value = serde_json::from_slice(line).ok()?;
    Some((line.get("step")?.as_u64()?, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(name: &'static str, value: f64) -> Metrics {
        let mut it = Metrics::default();
        it.set(name, value);
        it
    }

    #[test]
    fn a_line_is_ordered_json_and_non_finite_is_null() {
        let mut it = Metrics::default();
        it.set("step", 3.0);
        it.set("reward/mean", 0.1);
        it.set("grad_norm", f64::NAN);
        assert_eq!(it.to_json(), r#"{"step":3,"reward/mean":0.1,"grad_norm":null}"#);
        assert!(serde_json::from_str::<serde_json::Value>(&it.to_json()).is_ok());
    }

    #[test]
    fn numbers_are_added_to_the_last_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        std::fs::write(&path, "{\"step\":1}\n{\"step\":2}\n").unwrap();
        let mut file = MetricsFile::open(&path, 2).unwrap();
        file.add_to_last(&metrics("eval/avg@k", 0.5)).unwrap();
        file.append(&metrics("step", 3.0)).unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "{\"step\":1}\n{\"step\":2,\"eval/avg@k\":0.5}\n{\"step\":3}\n"
        );
    }

    #[test]
    fn reopening_drops_what_came_after_the_last_checkpoint() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        std::fs::write(&path, "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"st").unwrap();
        let mut file = MetricsFile::open(&path, 2).unwrap();
        file.append(&metrics("step", 3.0)).unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n"
        );
    }

    #[test]
    fn a_file_cut_anywhere_is_reopened_at_its_last_complete_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        let whole = b"{\"step\":1}\n{\"step\":2}\n";
        for cut in 0..=whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let file = MetricsFile::open(&path, 9).unwrap();
            let complete = whole[..cut].split(|it| *it == b'\n').count() - 1;
            assert_eq!(file.lines, complete as u64, "{cut}");
            assert_eq!(std::fs::read(&path).unwrap(), &whole[..11 * complete]);
            assert_eq!(file.history().unwrap().len(), complete);
        }
    }

    #[test]
    fn lines_that_hold_no_step_are_set_aside_and_the_others_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        let damaged = b"{\"step\":1}\n{\"step\":2\xff}\n{\"step\":3}\n{\"step\":4}\n";
        std::fs::write(&path, damaged).unwrap();
        assert_eq!(MetricsFile::last_step(&path).unwrap(), 4);
        let file = MetricsFile::open(&path, 3).unwrap();
        assert_eq!((file.lines, file.history().unwrap().len()), (2, 2));
        assert_eq!(std::fs::read(&path).unwrap(), b"{\"step\":1}\n{\"step\":3}\n");
        assert_eq!(std::fs::read(file.set_aside.unwrap()).unwrap(), damaged);
        assert_eq!(MetricsFile::last_step(&dir.path().join("none")).unwrap(), 0);
    }

    #[cfg(unix)]
    #[test]
    fn a_removed_file_is_written_again_with_all_its_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        let mut file = MetricsFile::open(&path, 0).unwrap();
        for step in 1..=3 {
            let mut it = Metrics::default();
            it.set("step", f64::from(step));
            file.append(&it).unwrap();
            std::fs::remove_file(&path).unwrap();
        }
        let mut it = Metrics::default();
        it.set("step", 4.0);
        file.append(&it).unwrap();
        let expected = "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"step\":4}\n";
        assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
        assert_eq!(file.lines, 4);
    }
}
