//! `scores.json`: the scores of a run, in its folder.

use std::path::Path;

use hapo_data::Dataset;
use hapo_data::task::{MINI6, Split, TaskSet, make_set};
use hapo_eval::{BENCHMARKS, ProblemResult};
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::mini::evaluate_sets;

/// The scores of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Scores {
    pub(crate) arm: String,
    pub(crate) seed: u64,
    pub(crate) learning_rate: f64,
    pub(crate) build: String,
    pub(crate) seconds: f64,
    pub(crate) benchmarks: Vec<BenchmarkScores>,
}

/// One benchmark of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BenchmarkScores {
    pub(crate) name: String,
    /// Share of correct completions of each problem.
    pub(crate) problems: Vec<f64>,
    /// Mean length of a completion in tokens.
    pub(crate) tokens: f64,
    /// Share of completions without an end token.
    truncated: f64,
}

impl Scores {
    /// The scores in a run's folder; a file that cannot be read is made again.
    pub(crate) fn read(folder: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(folder.join("scores.json")).ok()?;
        serde_json::from_str(&text).ok()
    }

    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let json = serde_json::to_vec(self).expect("scores are plain data");
        Ok(hapo_run::write_atomically(&folder.join("scores.json"), &json)?)
    }

    /// All problems of all benchmarks, which are of one size.
    pub(crate) fn all(&self) -> Vec<f64> {
        self.benchmarks.iter().flat_map(|it| it.problems.clone()).collect()
    }

    pub(crate) fn mean(&self) -> f64 {
        let all = self.all();
        all.iter().sum::<f64>() / all.len().max(1) as f64
    }
}

/// A model on the six levels of `mini6`, `problems` of each, of the held-out or of the development split.
pub(crate) fn score_mini6(
    model: &str,
    problems: usize,
    split: Split,
    seed: u64,
    threads: usize,
) -> Result<Vec<BenchmarkScores>> {
    let sets = BENCHMARKS
        .iter()
        .zip(MINI6)
        .map(|(benchmark, set)| {
            Ok(match split {
                Split::HeldOut => benchmark.problems(problems)?,
                other => make_set(&TaskSet {
                    seed: 0,
                    levels: vec![(set.family.to_owned(), set.level)],
                    split: other,
                    count: problems,
                    teacher_coverage: 0.0,
                })?,
            })
        })
        .collect::<Result<Vec<Dataset>>>()?;
    let results = evaluate_sets(model, &sets, seed, threads)?;
    let scores = BENCHMARKS.iter().zip(results).map(|(benchmark, results)| {
        let all = || results.iter().flat_map(|it| &it.completions);
        let n = all().count().max(1) as f64;
        BenchmarkScores {
            name: benchmark.name.to_owned(),
            problems: results.iter().map(ProblemResult::success).collect(),
            tokens: all().filter_map(|it| it.tokens).sum::<usize>() as f64 / n,
            truncated: all().filter(|it| !it.ended).count() as f64 / n,
        }
    });
    Ok(scores.collect())
}
