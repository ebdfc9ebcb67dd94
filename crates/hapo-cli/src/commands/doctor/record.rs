//! What a run has left, whoever trained it: numbers by the names of `docs/metrics.md`, completions, settings, files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use hapo_core::{Refusal, found_at};
use hapo_run::Columns;
use serde_json::{Map, Value};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Framework {
    #[default]
    Hapo,
    Trl,
    Verl,
}

/// Names of numbers, and words of our sentences, in the three frameworks.
const NAMES: &str = include_str!("names.tsv");
const WORDS: &str = include_str!("words.tsv");

/// Columns in which data sets and reward functions keep gold answers, the likeliest first.
pub(super) const GOLDS: [&str; 6] =
    ["answer", "ground_truth", "solution", "gold", "target", "label"];

/// The least and the largest of some numbers; without any the least is the larger one.
pub(super) fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let bounds = (f64::INFINITY, f64::NEG_INFINITY);
    values.fold(bounds, |(low, high), it| (it.min(low), it.max(high)))
}

pub(super) fn rows(table: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    table.lines().filter(|it| !it.starts_with('#')).map(|it| it.split('\t').collect())
}

impl Framework {
    pub(super) fn name(self) -> &'static str {
        ["hapo", "trl", "verl"][self as usize]
    }

    /// A sentence, or a key of a recipe, in this framework's words.
    pub(super) fn says(self, ours: &str) -> String {
        rows(WORDS).fold(ours.to_owned(), |text, row| text.replace(row[0], row[self as usize]))
    }
}

/// The completions in a file: the names of prompt and completion, those of gold answers, of which the first that there is
/// counts, and the reward of a row.
pub(super) fn answers(
    file: &Path,
    [prompt, completion]: [&str; 2],
    golds: &[&str],
    mut reward: impl FnMut(&Map<String, Value>) -> Option<f64>,
) -> Result<Vec<Answer>, Refusal> {
    let rows = hapo_data::json_rows(file)?.take(ROWS);
    let rows = rows.filter_map(|it| it.map(Result::ok).transpose());
    let mut answer = |row: Map<String, Value>| Answer {
        step: row.get("step").and_then(Value::as_u64).unwrap_or_default(),
        prompt: text_of(row.get(prompt)).unwrap_or_default(),
        completion: text_of(row.get(completion)).unwrap_or_default(),
        gold: golds.iter().find_map(|it| text_of(row.get(*it))),
        reward: reward(&row),
        place: file.display().to_string(),
    };
    rows.map(|row| row.map(&mut answer)).collect()
}

#[derive(Clone, Debug, Default)]
pub(super) struct Answer {
    pub(super) step: u64,
    pub(super) prompt: String,
    pub(super) completion: String,
    pub(super) gold: Option<String>,
    /// NaN where the run paid none; `None` where it keeps no rewards.
    pub(super) reward: Option<f64>,
    pub(super) place: String,
}

#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) framework: Framework,
    pub(super) path: PathBuf,
    pub(super) columns: Columns,
    /// Metrics of what the run started from.
    pub(super) start: BTreeMap<String, f64>,
    pub(super) answers: Vec<Answer>,
    pub(super) held_out: Vec<Answer>,
    /// By the framework's own names.
    pub(super) settings: BTreeMap<String, String>,
    pub(super) data: Vec<PathBuf>,
    pub(super) eval_data: Vec<PathBuf>,
    /// A folder with the tokenizer's files.
    pub(super) model: Option<PathBuf>,
    pub(super) first_problem: Option<String>,
    /// The prompts are texts that no template was put around.
    pub(super) plain_prompts: bool,
    /// Questions without an answer.
    pub(super) open: Vec<String>,
}

impl Record {
    pub(super) fn new(framework: Framework) -> Self {
        Self { framework, ..Self::default() }
    }

    /// A setting by the framework's name, or by ours.
    pub(super) fn setting(&self, key: &str) -> Option<&str> {
        let found = self.settings.get(key).or_else(|| self.settings.get(&self.framework.says(key)));
        found.map(|it| it.trim_matches('"')).filter(|it| *it != "null")
    }

    pub(super) fn number(&self, key: &str) -> Option<f64> {
        self.setting(key)?.parse().ok()
    }

    /// What was read, or a question without an answer.
    pub(super) fn take<T>(&mut self, read: Result<T, Refusal>) -> Option<T> {
        read.map_err(|it| self.open.push(format!("left out: {it}"))).ok()
    }

    /// A path, if there is something at it.
    pub(super) fn existing(&mut self, path: PathBuf) -> Option<PathBuf> {
        let found = found_at(&path);
        self.take(found).flatten().map(|_| path)
    }
}

/// Most files of completions that are read, the first and the last among them.
const FILES: usize = 24;
pub(super) const ROWS: usize = 2_000;
pub(super) fn name(path: &Path) -> String {
    path.file_name().map(|it| it.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Some of many files, the first and the last among them.
pub(super) fn thinned<T>(all: Vec<T>) -> Vec<T> {
    let (n, last) = (FILES.min(all.len()), all.len().saturating_sub(1));
    let kept: BTreeSet<usize> = (0..n).map(|it| it * last / (n - 1).max(1)).collect();
    all.into_iter().enumerate().filter(|it| kept.contains(&it.0)).map(|it| it.1).collect()
}

/// Numbers by step, each under our name for it.
#[derive(Default)]
pub(super) struct Steps(pub(super) BTreeMap<u64, Map<String, Value>>);

impl Steps {
    pub(super) fn add(&mut self, step: u64, line: Map<String, Value>, of: Framework) {
        let of_step = self.0.entry(step).or_default();
        for (name, value) in line {
            let row = rows(NAMES).find(|row| row[of as usize] == name);
            of_step.insert(row.map_or(name, |it| it[0].to_owned()), value);
        }
    }

    pub(super) fn columns(self) -> Columns {
        Columns::of(self.0.into_iter().map(|(step, line)| (step as f64, line)))
    }
}

/// A text, or that of the last of several messages.
fn text_of(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(it) => Some(it.clone()),
        Value::Number(it) => Some(it.to_string()),
        Value::Array(turns) => text_of(turns.last()?.get("content")),
        _ => None,
    }
}
