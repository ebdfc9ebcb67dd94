//! Tables of runs that are done, as Markdown and as JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;
use hapo_run::write_atomically;
use serde::Serialize;

use crate::exact::{Count, fisher};
use crate::family::arm::Section;
use crate::family::scores::{Cost, Scores, mean};
use crate::seeds::{SeedEstimate, difference_over_seeds, estimate_over_seeds, holm};

/// The scores of runs that are done, by arm and seed.
pub(crate) type Done = BTreeMap<(String, u64), Scores>;

/// The level that no base of the 0 % rung ever solves: a run finds it or misses it.
pub(crate) const LEVEL: &str = "add-5";
/// Success from which a level is found.
pub(crate) const FOUND: f64 = 0.5;

/// The tables of a study.
#[derive(Debug, Serialize)]
pub(crate) struct StudyResults {
    /// The builds that made the runs.
    pub(crate) builds: Vec<String>,
    /// The machines; nothing of runs whose record does not say it.
    pub(crate) cpus: Vec<String>,
    /// Values that the searches chose, or the user gave.
    pub(crate) values: BTreeMap<String, f64>,
    pub(crate) tables: Vec<Table>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) title: String,
    /// Seeds of each row, where none is missing.
    pub(crate) planned_seeds: u64,
    pub(crate) benchmarks: Vec<String>,
    pub(crate) rows: Vec<Row>,
    /// Labels of the rows that have no run.
    pub(crate) not_made: Vec<String>,
    pub(crate) differences: Vec<Difference>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) arm: String,
    pub(crate) label: String,
    /// Its seeds; `average` has the means over them.
    pub(crate) seeds: Vec<u64>,
    pub(crate) by_benchmark: Vec<f64>,
    /// Of the checkpoint that was best on the development split.
    pub(crate) average: SeedEstimate,
    /// Seeds that find [`LEVEL`]; `None` of runs that are not scored on it.
    pub(crate) found: Option<Count>,
    /// Mean step of the checkpoint that is read.
    pub(crate) step: f64,
    /// Mean success of the last checkpoint.
    pub(crate) last: f64,
    /// Rewards of rollouts without help in the first and the last five steps of the last stage.
    pub(crate) reward: [Option<f64>; 2],
    /// Means over the seeds, but the largest memory.
    pub(crate) cost: Cost,
    /// Means over the seeds of the least and the most distinct problems whose trace was shown.
    pub(crate) traces: Option<[f64; 2]>,
    pub(crate) seconds: f64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Difference {
    pub(crate) row: String,
    pub(crate) baseline: String,
    /// Seeds that both have.
    pub(crate) seeds: usize,
    /// `None` without a common seed.
    pub(crate) average: Option<SeedEstimate>,
    /// The p-value after Holm's correction over the pairs of the table; `None` where seeds are bimodal.
    pub(crate) p_holm: Option<f64>,
    /// Fisher's exact test on seeds that find the level.
    pub(crate) p_found: Option<f64>,
}

impl StudyResults {
    /// The tables of the runs that are done; `seeds` in place of the tables' own numbers.
    pub(crate) fn of(
        sections: &[&Section],
        seeds: Option<u64>,
        values: &BTreeMap<String, f64>,
        done: &Done,
    ) -> Result<Self> {
        let distinct = |of: fn(&Scores) -> &String| -> Vec<String> {
            let all: BTreeSet<&String> =
                done.values().map(of).filter(|text| !text.is_empty()).collect();
            all.into_iter().cloned().collect()
        };
        let tables = sections.iter().map(|it| table(it, seeds.unwrap_or(it.seeds), done));
        Ok(Self {
            builds: distinct(|scores| &scores.build),
            cpus: distinct(|scores| &scores.cpu),
            values: values.clone(),
            tables: tables.collect::<Result<_>>()?,
        })
    }

    /// Writes `family.md` and `family.json`.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let json = serde_json::to_vec_pretty(self).expect("tables are plain data");
        write_atomically(&folder.join("family.md"), self.markdown().as_bytes())?;
        Ok(write_atomically(&folder.join("family.json"), &json)?)
    }

    pub(crate) fn markdown(&self) -> String {
        let machine = match &self.cpus[..] {
            [] => "a machine that the record does not name".to_owned(),
            all => all.join(" and "),
        };
        let mut text = format!("Runs by hapo {}, on {machine}.", self.builds.join(" and "));
        if self.builds.len() > 1 {
            text += " These tables mix builds.";
        }
        if !self.values.is_empty() {
            let values = self.values.iter().map(|(name, value)| format!("{name} {value}"));
            let _ = write!(text, " Searched values: {}.", values.collect::<Vec<_>>().join(", "));
        }
        text += "\n";
        for table in &self.tables {
            let _ = write!(text, "\n## {}\n\n{}", table.title, table.markdown());
        }
        text
    }
}

fn table(section: &Section, seeds: u64, done: &Done) -> Result<Table> {
    let of = |arm: &str| -> Vec<&Scores> {
        (0..seeds).filter_map(|seed| done.get(&(arm.to_owned(), seed))).collect()
    };
    let (mut rows, mut not_made, mut benchmarks) = (Vec::new(), Vec::new(), Vec::new());
    for name in &section.rows {
        let scores = of(&name.arm);
        if let (true, Some(first)) = (benchmarks.is_empty(), scores.first()) {
            benchmarks = first.benchmarks.iter().map(|it| it.name.clone()).collect();
        }
        match row(&name.arm, &name.label, &scores)? {
            Some(row) => rows.push(row),
            None => not_made.push(name.label.clone()),
        }
    }
    let label = |arm: &str| {
        let row = section.rows.iter().find(|row| row.arm == arm);
        row.map_or_else(|| arm.to_owned(), |row| row.label.clone())
    };
    let mut differences = Vec::with_capacity(section.pairs.len());
    for (row, baseline) in &section.pairs {
        let (ours, theirs) = paired(&of(row), &of(baseline));
        let counts = [row, baseline].map(|arm| found(&of(arm)));
        let bimodal = counts.iter().flatten().any(|count| count.is_mixed());
        let mut average = difference_over_seeds(&ours, &theirs)?;
        if let (true, Some(average)) = (bimodal, &mut average) {
            (average.interval, average.p) = (None, None);
        }
        differences.push(Difference {
            row: label(row),
            baseline: label(baseline),
            seeds: ours.len(),
            p_found: counts[0].zip(counts[1]).map(|(ours, theirs)| fisher(ours, theirs)),
            average,
            p_holm: None,
        });
    }
    let p: Vec<_> = differences.iter().map(|it| it.average.as_ref()?.p).collect();
    for (it, p) in differences.iter_mut().zip(holm(&p)) {
        it.p_holm = p;
    }
    Ok(Table {
        name: section.name.clone(),
        title: section.title.clone(),
        planned_seeds: seeds,
        benchmarks,
        rows,
        not_made,
        differences,
    })
}

/// Runs that find the level at the checkpoint that is read; `None` of none, or of runs that are not scored on it.
pub(crate) fn found(scores: &[&Scores]) -> Option<Count> {
    let at_level: Option<Vec<f64>> = scores.iter().map(|run| run.at_level(LEVEL)).collect();
    let at_level = at_level.filter(|all| !all.is_empty())?;
    let found = at_level.iter().filter(|success| **success >= FOUND).count() as u64;
    Some(Count { found, of: at_level.len() as u64 })
}

/// The row of an arm; `None` without a run that is done.
fn row(arm: &str, label: &str, scores: &[&Scores]) -> Result<Option<Row>> {
    let Some(first) = scores.first() else {
        return Ok(None);
    };
    let all: Vec<Sets> = scores.iter().map(|run| run.sets()).collect();
    let Some(mut average) = estimate_over_seeds(&all)? else {
        return Ok(None);
    };
    let found = found(scores);
    if found.is_some_and(Count::is_mixed) {
        (average.interval, average.p) = (None, None);
    }
    // A share: t may give bounds beyond 0 and 1, which are impossible.
    for interval in [&mut average.interval, &mut average.over_problems] {
        *interval = interval.map(|(low, high)| (low.max(0.0), high.min(1.0)));
    }
    let of_runs = |of: &dyn Fn(&Scores) -> f64| {
        scores.iter().map(|run| of(run)).sum::<f64>() / scores.len() as f64
    };
    let of_benchmark = |n: usize| of_runs(&|run| mean(&run.benchmarks[n].problems));
    let memory = scores.iter().map(|run| run.took().memory).fold(0.0, f64::max);
    Ok(Some(Row {
        arm: arm.to_owned(),
        label: label.to_owned(),
        seeds: scores.iter().map(|run| run.seed).collect(),
        by_benchmark: (0..first.benchmarks.len()).map(of_benchmark).collect(),
        average,
        found,
        step: of_runs(&|run| run.step as f64),
        last: of_runs(&|run| run.last.success),
        reward: [0, 1].map(|end| reward(scores, end)),
        cost: Cost {
            exposures: of_runs(&|run| run.took().exposures),
            distinct: None,
            sampled: of_runs(&|run| run.took().sampled),
            memory,
        },
        traces: traces(scores),
        seconds: of_runs(&|run| run.seconds),
    }))
}

fn traces(scores: &[&Scores]) -> Option<[f64; 2]> {
    let all: Vec<[f64; 2]> = scores.iter().map(|run| run.traces()).collect::<Option<_>>()?;
    Some([0, 1].map(|end| mean(&all.iter().map(|range| range[end]).collect::<Vec<_>>())))
}

/// Mean reward of rollouts without help in the first five steps, or in the last; `None` where there was none.
fn reward(scores: &[&Scores], end: usize) -> Option<f64> {
    let steps = scores.iter().flat_map(|run| {
        let all = run.curves.metric("reward/policy_only");
        [&all[..all.len().min(5)], &all[all.len().saturating_sub(5)..]][end]
    });
    let rewards: Vec<f64> = steps.flatten().copied().collect();
    (!rewards.is_empty()).then(|| mean(&rewards))
}

/// Scores of each problem, by benchmark.
type Sets = Vec<Vec<f64>>;

/// The problems of the seeds that both have.
pub(crate) fn paired(ours: &[&Scores], theirs: &[&Scores]) -> (Vec<Sets>, Vec<Sets>) {
    let both = ours.iter().filter_map(|run| {
        let other = theirs.iter().find(|other| other.seed == run.seed)?;
        Some((run.sets(), other.sets()))
    });
    both.unzip()
}

impl Table {
    pub(crate) fn markdown(&self) -> String {
        let mut text = format!(
            "| | seeds | {} | average | {LEVEL} found | at the end | reward, first and last 5 steps | exposures | traces | thousand tokens sampled | s | GB | single seeds |\n",
            self.benchmarks.join(" | ")
        );
        text += &format!("|---|{}\n", "---|".repeat(self.benchmarks.len() + 11));
        for row in &self.rows {
            let levels = row.by_benchmark.iter().map(|it| format!("{it:.3}")).collect::<Vec<_>>();
            let seeds: Vec<String> =
                row.average.of_seeds.iter().map(|it| format!("{it:.3}")).collect();
            let found = row.found.map_or_else(|| "–".to_owned(), |count| count.to_string());
            let traces = match row.traces.map(|range| range.map(|end| format!("{end:.0}"))) {
                None => "–".to_owned(),
                Some([least, most]) if least == most => least,
                Some([least, most]) => format!("{least}–{most}"),
            };
            let memory = match row.cost.memory {
                0.0 => "–".to_owned(),
                bytes => format!("{:.1}", bytes / 1e9),
            };
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {found} | {:.3} | {} | {:.0} | {traces} | {:.0} | {:.0} | {memory} | {} |",
                row.label,
                row.seeds.len(),
                levels.join(" | "),
                estimated(&row.average, false),
                row.last,
                row.reward.map(share).join(" → "),
                row.cost.exposures,
                row.cost.sampled / 1e3,
                row.seconds,
                seeds.join(" ")
            );
        }
        for label in &self.not_made {
            let cells = " not made |".repeat(self.benchmarks.len() + 10);
            let _ = writeln!(text, "| {label} | 0 |{cells}");
        }
        text += "\n| difference | seeds | average | p (Holm) | p (found, Fisher) | single seeds |\n|---|---|---|---|---|---|\n";
        for it in &self.differences {
            let average = it.average.as_ref();
            let seeds = average.iter().flat_map(|average| &average.of_seeds);
            let seeds: Vec<String> = seeds.map(|value| format!("{value:+.3}")).collect();
            let _ = writeln!(
                text,
                "| {} over {} | {} | {} | {} | {} | {} |",
                it.row,
                it.baseline,
                it.seeds,
                average.map_or_else(|| "not made".to_owned(), |average| estimated(average, true)),
                p_value(it.p_holm),
                p_value(it.p_found),
                seeds.join(" ")
            );
        }
        text
    }
}

pub(crate) fn p_value(p: Option<f64>) -> String {
    match p {
        Some(p) if p < 0.001 => "< 0.001".to_owned(),
        Some(p) => format!("{p:.3}"),
        None => "–".to_owned(),
    }
}

fn share(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.2}"))
}

/// A mean with its interval; of one seed with that over its problems, in other brackets, since seeds differ by more.
pub(crate) fn estimated(it: &SeedEstimate, signed: bool) -> String {
    let number = |value: f64| if signed { format!("{value:+.3}") } else { format!("{value:.3}") };
    let mean = number(it.mean);
    match (it.interval, it.over_problems) {
        (Some((low, high)), _) => format!("{mean} [{}, {}]", number(low), number(high)),
        (None, Some((low, high))) => format!("{mean} ({}, {})", number(low), number(high)),
        (None, None) => mean,
    }
}
