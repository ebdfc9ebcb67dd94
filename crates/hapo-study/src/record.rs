//! The record of a study: the scores of its runs in one file, a line each, from which its tables are made without the runs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use hapo_run::write_atomically;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::scores::Scores;

/// Scores by the folder of their run within its study's.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// The file that they are of.
    pub(crate) path: PathBuf,
    runs: BTreeMap<String, Scores>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    run: String,
    scores: Scores,
}

impl Record {
    /// Reads the file that a study wrote.
    ///
    /// # Errors
    /// A file that cannot be read; [`Error::Record`] with the line that is no run's scores, or another of a run before it.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| Error::Read { path: path.to_owned(), source })?;
        let mut record = Self { path: path.to_owned(), ..Self::default() };
        for (index, line) in text.lines().enumerate() {
            let it: Line = serde_json::from_str(line).map_err(|error| Error::Record {
                path: path.to_owned(),
                line: index + 1,
                problem: error.to_string(),
            })?;
            if record.get(&it.run).is_some() {
                return Err(Error::Record {
                    path: path.to_owned(),
                    line: index + 1,
                    problem: format!("{} stands before it as well", it.run),
                });
            }
            record.add(it.run, it.scores);
        }
        Ok(record)
    }

    pub(crate) fn add(&mut self, run: String, scores: Scores) {
        self.runs.insert(run, scores);
    }

    /// Adds what a file that was written before has of runs that it lacks and that are `wanted`.
    pub(crate) fn add_others(&mut self, path: &Path, wanted: impl Fn(&str) -> bool) -> Result<()> {
        if path.exists() {
            for (run, scores) in Self::read(path)?.runs {
                if wanted(&run) {
                    self.runs.entry(run).or_insert(scores);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn get(&self, run: &str) -> Option<&Scores> {
        self.runs.get(run)
    }

    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let mut text = String::new();
        for (run, scores) in &self.runs {
            let line = Line { run: run.clone(), scores: scores.clone() };
            let _ = writeln!(text, "{}", serde_json::to_string(&line).expect("plain data"));
        }
        Ok(write_atomically(path, text.as_bytes())?)
    }
}
