//! The study's tables, computed from the runs that are done.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;
use hapo_cli::scoring;
use hapo_data::task::Split;
use hapo_run::write_atomically;
use serde::Serialize;

use crate::seeds::{SeedEstimate, difference_over_seeds, estimate_over_seeds, holm};
use crate::study::arm::{Base, Section, StudyName};
use crate::study::arms::find;
use crate::study::plan::StudyPlan;
use crate::study::scores::{CURVES, Scores};
use crate::study::{ladder, real};

/// The scores of runs that are done, by arm and seed.
pub(crate) type Done = BTreeMap<(String, u64), Scores>;

/// The tables of a study.
#[derive(Debug, Serialize)]
pub(crate) struct StudyResults {
    /// The builds that made the runs.
    pub(crate) builds: Vec<String>,
    /// The machines; nothing of runs whose record does not say it.
    pub(crate) cpus: Vec<String>,
    pub(crate) problems: usize,
    pub(crate) completions: usize,
    pub(crate) temperature: f32,
    /// Runs are read at the best checkpoint on the development split; otherwise at their last.
    pub(crate) reads_the_best: bool,
    /// As they were chosen, by the names of the searches.
    pub(crate) learning_rates: BTreeMap<String, f64>,
    /// As they were given in the place of a search.
    pub(crate) given_rates: BTreeMap<String, f64>,
    pub(crate) tables: Vec<Table>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) study: StudyName,
    /// Seeds of each row, where none is missing.
    pub(crate) planned_seeds: u64,
    pub(crate) benchmarks: Vec<String>,
    pub(crate) rows: Vec<Row>,
    /// Labels of the rows that have no run.
    pub(crate) not_made: Vec<&'static str>,
    pub(crate) differences: Vec<Difference>,
    /// Share of groups that fail entirely in the first step, of a ladder's rung.
    pub(crate) all_fail_at_start: Option<f64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) label: &'static str,
    /// Its seeds; `average` has the means over them.
    pub(crate) seeds: Vec<u64>,
    pub(crate) learning_rate: f64,
    pub(crate) by_benchmark: Vec<f64>,
    /// Of the checkpoint that was best on the development split.
    pub(crate) average: SeedEstimate,
    /// Mean step of that checkpoint.
    pub(crate) step: f64,
    /// Mean success of the last checkpoint.
    pub(crate) last: f64,
    /// Seeds whose last checkpoint has lost a fifth of its best one's success, or ends no response in half of the cases.
    pub(crate) collapsed: usize,
    /// Share of completions without an end token.
    pub(crate) truncated: f64,
    /// Share of completions in the teacher's style. Nothing of runs that were scored by another teacher's, and of text.
    pub(crate) teacher_style: Option<f64>,
    pub(crate) tokens: f64,
    pub(crate) seconds: f64,
    /// Means over the first, middle and last third of the steps, of the metrics in [`CURVES`].
    pub(crate) curves: Vec<[f64; 3]>,
    /// Means over the seeds, step by step, of the same metrics.
    #[serde(skip)]
    pub(crate) steps: Vec<Vec<f64>>,
    /// Completions of the first seed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) examples: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Difference {
    pub(crate) row: &'static str,
    pub(crate) baseline: &'static str,
    /// The seeds that both have; `average` has the differences.
    pub(crate) seeds: Vec<u64>,
    pub(crate) average: Option<SeedEstimate>,
    /// The p-value after Holm's correction over the pairs of the table.
    pub(crate) p_holm: Option<f64>,
}

impl StudyResults {
    /// The tables of the runs that are done.
    pub(crate) fn of(plan: &StudyPlan, rates: &BTreeMap<String, f64>, done: &Done) -> Result<Self> {
        let distinct = |of: fn(&Scores) -> &String| -> Vec<String> {
            let all: BTreeSet<&String> =
                done.values().map(of).filter(|it| !it.is_empty()).collect();
            all.into_iter().cloned().collect()
        };
        let tables = plan.sections.iter().map(|it| table(plan, it, done));
        Ok(Self {
            builds: distinct(|it| &it.build),
            cpus: distinct(|it| &it.cpu),
            problems: plan
                .real
                .as_ref()
                .map_or(plan.problems, |it| it.problems(Split::HeldOut).examples.len()),
            completions: plan.real.as_ref().map_or(scoring::COMPLETIONS, |_| real::COMPLETIONS),
            temperature: scoring::TEMPERATURE,
            reads_the_best: !done.values().any(|it| it.made.is_read_at_its_last()),
            learning_rates: rates
                .iter()
                .filter(|it| !plan.rates.contains_key(it.0))
                .map(|(name, rate)| (name.clone(), *rate))
                .collect(),
            given_rates: plan.rates.clone(),
            tables: tables.collect::<Result<_>>()?,
        })
    }

    /// Writes the tables as `results.md`, `results.json` and `results.html`; other studies' files carry the study's
    /// name, since all may lie in one folder. The ladder has a figure, `ladder.svg`.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let json = serde_json::to_vec_pretty(self).expect("tables are plain data");
        let file = |suffix: &str| folder.join(format!("{}.{suffix}", self.file_stem()));
        write_atomically(&file("md"), self.markdown().as_bytes())?;
        write_atomically(&file("json"), &json)?;
        if let Some(svg) = self.ladder_figure() {
            write_atomically(&file("svg"), svg.as_bytes())?;
        }
        Ok(write_atomically(&file("html"), self.html().as_bytes())?)
    }

    /// Name of its files, without suffix.
    pub(crate) fn file_stem(&self) -> &'static str {
        match self.tables.first().map(|it| it.study) {
            Some(StudyName::Ladder) => "ladder",
            Some(StudyName::Teachers) => "teachers",
            Some(StudyName::Real) => "real",
            _ => "results",
        }
    }
}

fn table(plan: &StudyPlan, section: &'static Section, done: &Done) -> Result<Table> {
    let seeds = plan.seeds.min(section.seeds);
    let of = |name: &str| -> Vec<&Scores> {
        (0..seeds).filter_map(|seed| done.get(&(name.to_owned(), seed))).collect()
    };
    let (mut rows, mut not_made, mut benchmarks) = (Vec::new(), Vec::new(), Vec::new());
    for name in &section.arms {
        let scores = of(name);
        if let (true, Some(first)) = (benchmarks.is_empty(), scores.first()) {
            benchmarks = first.benchmarks.iter().map(|it| it.name.clone()).collect();
        }
        match row(name, section, &scores)? {
            Some(it) => rows.push(it),
            None => not_made.push(label(name)),
        }
    }
    let mut differences = Vec::with_capacity(section.pairs.len());
    for (row, baseline) in &section.pairs {
        let (seeds, ours, theirs) = paired(&of(row), &of(baseline));
        let average = difference_over_seeds(&ours, &theirs)?;
        differences.push(Difference { row, baseline, seeds, average, p_holm: None });
    }
    let p: Vec<_> = differences.iter().map(|it| it.average.as_ref()?.p).collect();
    for (it, p) in differences.iter_mut().zip(holm(&p)) {
        it.p_holm = p;
    }
    let starts = ladder::starts_of(&section.name);
    Ok(Table {
        name: &section.name,
        title: &section.title,
        study: section.study,
        planned_seeds: seeds,
        benchmarks,
        rows,
        not_made,
        differences,
        all_fail_at_start: starts.and_then(|it| all_fail_at_start(&of(&it))),
    })
}

/// Share of the first step's groups, over seeds, in which no rollout succeeds.
fn all_fail_at_start(scores: &[&Scores]) -> Option<f64> {
    let groups = |n: usize| scores.iter().map(|it| it.curves.first_groups[n]).sum::<f64>();
    let all: f64 = (0..3).map(groups).sum();
    (all > 0.0).then(|| groups(0) / all)
}

/// The row of an arm; `None` without a run that is done.
fn row(name: &'static str, section: &Section, scores: &[&Scores]) -> Result<Option<Row>> {
    let Some(first) = scores.first() else {
        return Ok(None);
    };
    let all: Vec<Sets> = scores.iter().map(|it| it.sets()).collect();
    let Some(mut average) = estimate_over_seeds(&all)? else {
        return Ok(None);
    };
    // A share: t may give bounds beyond 0 and 1, which are impossible.
    for it in [&mut average.interval, &mut average.over_problems] {
        *it = it.map(|(low, high)| (low.max(0.0), high.min(1.0)));
    }
    let of_runs = |of: &dyn Fn(&Scores) -> f64| mean(scores.iter().map(|it| of(it)));
    let of_benchmarks = |of: &dyn Fn(&crate::study::scores::BenchmarkScores) -> f64| {
        of_runs(&|it: &Scores| mean(it.benchmarks.iter().map(of)))
    };
    let by_benchmark = (0..first.benchmarks.len())
        .map(|n| mean(scores.iter().flat_map(|it| it.benchmarks[n].problems.iter().copied())));
    let arm = find(name);
    // A pretrained model seldom ends within its limit, before a run as after it.
    let ends = arm.base != Base::Pretrained;
    let teacher = section.arms.last().map(|it| find(it).teacher);
    let has_style = ends && teacher == Some(arm.teacher);
    let collapsed =
        |it: &&&Scores| it.last.success < 0.8 * it.mean() || (ends && it.last.truncated > 0.5);
    let steps: Vec<Vec<f64>> = (0..CURVES.len()).map(|it| over_seeds(scores, it)).collect();
    Ok(Some(Row {
        name,
        label: label(name),
        seeds: scores.iter().map(|it| it.seed).collect(),
        learning_rate: first.learning_rate,
        by_benchmark: by_benchmark.collect(),
        average,
        step: of_runs(&|it| it.step as f64),
        last: of_runs(&|it| it.last.success),
        collapsed: scores.iter().filter(collapsed).count(),
        truncated: of_benchmarks(&|it| it.truncated),
        teacher_style: has_style.then(|| of_benchmarks(&|it| it.teacher_style)),
        tokens: of_benchmarks(&|it| it.tokens),
        seconds: of_runs(&|it| it.seconds),
        curves: steps.iter().map(|it| thirds(it)).collect(),
        steps,
        examples: first.benchmarks.iter().flat_map(|it| it.examples.clone()).collect(),
    }))
}

/// A metric's mean over the runs that logged it in a step; NaN where none did.
fn over_seeds(scores: &[&Scores], metric: usize) -> Vec<f64> {
    let steps = scores.iter().map(|it| it.curves.metric(metric).len()).max().unwrap_or(0);
    let value = |it: &&Scores, step: usize| *it.curves.metric(metric).get(step)?;
    (0..steps).map(|step| mean(scores.iter().filter_map(|it| value(it, step)))).collect()
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

/// Scores of each problem, by benchmark.
type Sets = Vec<Vec<f64>>;

/// The seeds that both have, and their problems.
fn paired(ours: &[&Scores], theirs: &[&Scores]) -> (Vec<u64>, Vec<Sets>, Vec<Sets>) {
    let both = ours.iter().filter_map(|it| {
        let other = theirs.iter().find(|other| other.seed == it.seed)?;
        Some((it.seed, it.sets(), other.sets()))
    });
    both.collect()
}

pub(crate) fn label(name: &str) -> &'static str {
    &find(name).label
}
