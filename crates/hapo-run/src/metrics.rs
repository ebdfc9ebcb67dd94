//! One line of numbers per step: `metrics.jsonl`.
//!
//! Names are those of the metrics list in the documentation, `section/name`. Lines of two equal
//! runs are equal byte for byte except for the columns that hold wall-clock time or memory
//! ([`is_clock`]). A name of an earlier version is read as its successor ([`current_name`]).

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::files::write_atomically;

/// The numbers of one step, in the order in which they were set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    entries: Vec<(&'static str, f64)>,
}

impl Metrics {
    /// Sets a number; a name is set once.
    pub fn set(&mut self, name: &'static str, value: f64) {
        debug_assert!(self.get(name).is_none(), "{name} is set twice");
        self.entries.push((name, value));
    }

    /// The number of that name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.entries.iter().find(|it| it.0 == name).map(|it| it.1)
    }

    /// Names and numbers in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, f64)> {
        self.entries.iter().copied()
    }

    /// The line of `metrics.jsonl`, without its newline. Numbers that are not finite are `null`.
    pub fn to_json(&self) -> String {
        let mut line = String::from("{");
        for (i, (name, value)) in self.entries.iter().enumerate() {
            if i > 0 {
                line.push(',');
            }
            let number = if !value.is_finite() {
                "null".to_owned()
            } else if value.fract() == 0.0 && value.abs() < 1e15 {
                format!("{}", *value as i64)
            } else {
                serde_json::Value::from(*value).to_string()
            };
            line.push_str(&format!("\"{name}\":{number}"));
        }
        line.push('}');
        line
    }
}

/// Names of earlier versions and what they are called now.
const RENAMED: &[(&str, &str)] =
    &[("groups/mixed", "groups/partially_solved"), ("gate/open_up_to", "gate/success_limit")];

/// The present name of a recorded metric.
pub fn current_name(recorded: &str) -> &str {
    let renamed = RENAMED.iter().find(|it| it.0 == recorded);
    renamed.map_or(recorded, |it| it.1)
}

/// Whether a column holds time, speed or memory, and so differs between two equal runs.
pub fn is_clock(name: &str) -> bool {
    name.starts_with("time/")
        || name.starts_with("tokens_per_second/")
        || name.starts_with("memory/")
        || name == "verify/ms"
}

/// The open `metrics.jsonl` of a run.
#[derive(Debug)]
pub struct MetricsFile {
    file: File,
    path: PathBuf,
    lines: u64,
}

impl MetricsFile {
    /// Opens the file of a run that has done `steps_done` steps: lines of later steps, which a
    /// killed run may have left behind its last checkpoint, are cut off.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn open(path: &Path, steps_done: u64) -> Result<Self> {
        let (mut kept, mut lines) = (Vec::new(), 0);
        if path.exists() {
            let mut reader = BufReader::new(File::open(path).map_err(Error::io("read", path))?);
            while lines < steps_done {
                let start = kept.len();
                reader.read_until(b'\n', &mut kept).map_err(Error::io("read", path))?;
                if kept.len() == start || kept.last() != Some(&b'\n') {
                    kept.truncate(start);
                    break;
                }
                lines += 1;
            }
        }
        write_atomically(path, &kept)?;
        let file = OpenOptions::new().append(true).open(path).map_err(Error::io("open", path))?;
        Ok(Self { file, path: path.to_owned(), lines })
    }

    /// The lines of the file, for what looks back over steps.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn history(&self) -> Result<Vec<serde_json::Value>> {
        let text = std::fs::read_to_string(&self.path).map_err(Error::io("read", &self.path))?;
        Ok(text.lines().filter_map(|it| serde_json::from_str(it).ok()).collect())
    }

    /// Steps whose lines the file holds.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Waits until the lines are on the disk: a checkpoint must not be ahead of them.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(Error::io("write", &self.path))
    }

    /// Appends a step; the line is handed to the system before this returns.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn append(&mut self, metrics: &Metrics) -> Result<()> {
        let line = metrics.to_json() + "\n";
        self.file.write_all(line.as_bytes()).map_err(Error::io("write", &self.path))?;
        self.lines += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn reopening_drops_what_came_after_the_last_checkpoint() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        std::fs::write(&path, "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"st").unwrap();
        let mut file = MetricsFile::open(&path, 2).unwrap();
        let mut it = Metrics::default();
        it.set("step", 3.0);
        file.append(&it).unwrap();
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
            assert_eq!(file.lines(), complete as u64, "{cut}");
            assert_eq!(std::fs::read(&path).unwrap(), &whole[..11 * complete]);
            assert_eq!(file.history().unwrap().len(), complete);
        }
    }

    #[test]
    fn old_names_are_read_as_the_present_ones() {
        assert_eq!(current_name("gate/open_up_to"), "gate/success_limit");
        assert_eq!(current_name("gate/success_limit"), "gate/success_limit");
    }
}
