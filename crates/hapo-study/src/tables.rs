//! The study's tables, computed from the runs that are done.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use hapo_eval::{Estimate, difference_over_seeds, estimate_over_seeds};
use hapo_run::write_atomically;
use serde::Serialize;

use crate::arms::{Section, find};
use crate::error::Result;
use crate::mini;
use crate::scores::Scores;
use crate::study::{StudyPlan, folder_of};

/// The tables of a study.
#[derive(Debug, Serialize)]
pub struct StudyResults {
    /// The builds that made the runs.
    pub(crate) builds: Vec<String>,
    pub(crate) cpu: String,
    pub(crate) problems: usize,
    pub(crate) completions: usize,
    pub(crate) temperature: f32,
    pub(crate) learning_rates: BTreeMap<String, f64>,
    pub(crate) benchmarks: Vec<String>,
    pub(crate) tables: Vec<Table>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) rows: Vec<Row>,
    pub(crate) differences: Vec<Difference>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) label: &'static str,
    pub(crate) seeds: usize,
    pub(crate) learning_rate: f64,
    pub(crate) by_benchmark: Vec<f64>,
    pub(crate) average: Estimate,
    /// Averages of the single seeds.
    pub(crate) of_seeds: Vec<f64>,
    pub(crate) tokens: f64,
    pub(crate) seconds: f64,
    /// Means over the first, middle and last third of the steps, of the metrics in [`CURVES`].
    pub(crate) curves: Vec<[f64; 3]>,
    /// Means over the seeds, step by step, of the same metrics.
    #[serde(skip)]
    pub(crate) steps: Vec<Vec<f64>>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Difference {
    pub(crate) row: &'static str,
    pub(crate) baseline: &'static str,
    pub(crate) seeds: usize,
    pub(crate) average: Option<Estimate>,
}

/// Metrics whose curves are in the tables.
pub(crate) const CURVES: &[(&str, &str)] = &[
    ("reward/policy_only", "reward"),
    ("gate/beta", "β"),
    ("policy/entropy", "entropy, on-policy"),
    ("entropy/all", "entropy, all"),
    ("policy/kl_to_initial", "KL"),
    ("response_length/mean", "length"),
];

impl StudyResults {
    /// The tables of the runs that are done.
    pub(crate) fn read(plan: &StudyPlan, rates: &BTreeMap<String, f64>) -> Self {
        let (mut benchmarks, mut builds) = (Vec::new(), BTreeSet::new());
        let mut tables = Vec::new();
        for section in &plan.sections {
            let (table, scores) = table(plan, section);
            builds.extend(scores.iter().map(|it| it.build.clone()));
            if let (true, Some(first)) = (benchmarks.is_empty(), scores.first()) {
                benchmarks = first.benchmarks.iter().map(|it| it.name.clone()).collect();
            }
            tables.push(table);
        }
        Self {
            builds: builds.into_iter().collect(),
            cpu: plan.cpu.clone(),
            problems: plan.problems,
            completions: mini::COMPLETIONS,
            temperature: mini::TEMPERATURE,
            learning_rates: rates.clone(),
            benchmarks,
            tables,
        }
    }

    /// Writes the tables as `results.md`, `results.json` and `results.html`.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let json = serde_json::to_vec_pretty(self).expect("tables are plain data");
        write_atomically(&folder.join("results.md"), self.markdown().as_bytes())?;
        write_atomically(&folder.join("results.json"), &json)?;
        Ok(write_atomically(&folder.join("results.html"), self.html().as_bytes())?)
    }
}

/// One table, and the scores that it is made of.
fn table(plan: &StudyPlan, section: &Section) -> (Table, Vec<Scores>) {
    let seeds = plan.seeds.min(section.seeds);
    let of = |name: &str| -> Vec<Scores> {
        (0..seeds).filter_map(|seed| Scores::read(&folder_of(&plan.out, name, seed))).collect()
    };
    let (mut rows, mut all) = (Vec::new(), Vec::new());
    for &name in section.arms {
        let scores = of(name);
        rows.extend(row(name, &scores, &plan.out));
        all.extend(scores);
    }
    let differences = section.pairs.iter().map(|&(row, baseline)| {
        let (ours, theirs) = paired(&of(row), &of(baseline));
        Difference {
            row,
            baseline,
            seeds: ours.len(),
            average: difference_over_seeds(&ours, &theirs, 0),
        }
    });
    let table = Table {
        name: section.name,
        title: section.title,
        rows,
        differences: differences.collect(),
    };
    (table, all)
}

/// The row of an arm; `None` without a run that is done.
fn row(name: &'static str, scores: &[Scores], out: &Path) -> Option<Row> {
    let first = scores.first()?;
    let all: Vec<Vec<f64>> = scores.iter().map(Scores::all).collect();
    let n = scores.len() as f64;
    let benchmarks = first.benchmarks.len();
    let by_benchmark = (0..benchmarks).map(|b| {
        let values = scores.iter().flat_map(|it| &it.benchmarks[b].problems);
        let count: usize = scores.iter().map(|it| it.benchmarks[b].problems.len()).sum();
        values.sum::<f64>() / count.max(1) as f64
    });
    let tokens = scores.iter().flat_map(|it| &it.benchmarks).map(|it| it.tokens);
    let runs: Vec<Vec<serde_json::Value>> =
        scores.iter().map(|it| metrics_of(&folder_of(out, name, it.seed))).collect();
    let steps: Vec<Vec<f64>> = CURVES.iter().map(|it| over_seeds(&runs, it.0)).collect();
    let curves = steps.iter().map(|it| thirds(it)).collect();
    Some(Row {
        name,
        label: label(name),
        seeds: scores.len(),
        learning_rate: first.learning_rate,
        by_benchmark: by_benchmark.collect(),
        average: estimate_over_seeds(&all, 0)?,
        of_seeds: scores.iter().map(Scores::mean).collect(),
        tokens: tokens.sum::<f64>() / (n * benchmarks.max(1) as f64),
        seconds: scores.iter().map(|it| it.seconds).sum::<f64>() / n,
        curves,
        steps,
    })
}

/// What a run logged, step by step; of its last stage, where it has several.
fn metrics_of(folder: &Path) -> Vec<serde_json::Value> {
    let read = |folder: &Path| std::fs::read_to_string(folder.join("metrics.jsonl")).ok();
    let text = read(folder).or_else(|| read(&folder.join("grpo"))).unwrap_or_default();
    text.lines().filter_map(|it| serde_json::from_str(it).ok()).collect()
}

/// A metric's mean over the runs that logged it in a step; NaN where none did.
fn over_seeds(runs: &[Vec<serde_json::Value>], key: &str) -> Vec<f64> {
    let steps = runs.iter().map(Vec::len).max().unwrap_or(0);
    (0..steps)
        .map(|step| mean(runs.iter().filter_map(|it| it.get(step)?.get(key)?.as_f64())))
        .collect()
}

/// Means over the first, middle and last third of the steps that were logged.
fn thirds(steps: &[f64]) -> [f64; 3] {
    let third = steps.len().div_ceil(3).max(1);
    [0, 1, 2].map(|part| {
        let steps = steps.iter().skip(part * third).take(third);
        mean(steps.copied().filter(|it| !it.is_nan()))
    })
}

/// NaN of nothing.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), it| (sum + it, count + 1));
    sum / f64::from(count)
}

/// The scores of the seeds that both have.
fn paired(ours: &[Scores], theirs: &[Scores]) -> (Vec<Vec<f64>>, Vec<Vec<f64>>) {
    ours.iter()
        .filter_map(|it| {
            let other = theirs.iter().find(|other| other.seed == it.seed)?;
            Some((it.all(), other.all()))
        })
        .unzip()
}

pub(crate) fn label(name: &str) -> &'static str {
    find(name).map_or("base", |it| it.label)
}
