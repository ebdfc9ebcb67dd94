//! The record of a study: the scores of its runs in one file, a line each, from which its tables are made without the runs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use hapo_cli::failure::bad_input;
use hapo_run::write_atomically;
use serde::{Deserialize, Serialize};

use crate::family::scores::Scores;
use crate::family::tables::Done;

/// Scores by the folder of their run within its study's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
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
    /// Reads the file that a study wrote, as it is or compressed by zstd.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let refuse = |what: String| bad_input(what, "give a file like family.runs.jsonl");
        let text = text_of(path)
            .map_err(|error| refuse(format!("cannot read {}: {error}", path.display())))?;
        let mut record = Self { path: path.to_owned(), ..Self::default() };
        for (index, text) in text.lines().enumerate() {
            let refuse = |problem: String| {
                let (path, line) = (path.display(), index + 1);
                refuse(format!("{path}:{line}: expected the scores of a run: {problem}"))
            };
            let line: Line =
                serde_json::from_str(text).map_err(|error| refuse(error.to_string()))?;
            if record.get(&line.run).is_some() {
                return Err(refuse(format!("{} stands before it as well", line.run)));
            }
            record.add(line.run, line.scores);
        }
        Ok(record)
    }

    pub(crate) fn add(&mut self, run: String, scores: Scores) {
        self.runs.insert(run, scores);
    }

    /// Adds missing runs from an earlier file, if they are `wanted`.
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

    /// The runs of tables, not of searches, by arm and seed.
    pub(crate) fn of_tables(self) -> Done {
        let of_tables = self.runs.into_iter().filter(|(run, _)| run.starts_with("runs/"));
        of_tables.map(|(_, scores)| ((scores.arm.clone(), scores.seed), scores)).collect()
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

/// The text of a file, decompressed where it begins as a zstd frame does.
fn text_of(path: &Path) -> std::io::Result<String> {
    const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
    let mut bytes = std::fs::read(path)?;
    if bytes.starts_with(&ZSTD) {
        bytes = zstd::decode_all(&*bytes)?;
    }
    String::from_utf8(bytes).map_err(std::io::Error::other)
}
