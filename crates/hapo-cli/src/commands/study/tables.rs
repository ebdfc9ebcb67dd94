//! The study's tables, from the runs that are done.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;
use hapo_eval::{Estimate, difference_over_seeds, estimate_over_seeds};
use serde::Serialize;

use super::{Args, Scores, Section, arms, chart, folder_of, scores_of};
use crate::mini;

/// Everything that the tables say.
#[derive(Serialize)]
pub(super) struct Done {
    /// The builds that made the runs.
    builds: Vec<String>,
    processor: String,
    problems: usize,
    completions: usize,
    temperature: f32,
    learning_rates: BTreeMap<String, f64>,
    benchmarks: Vec<String>,
    tables: Vec<Table>,
}

#[derive(Serialize)]
struct Table {
    name: &'static str,
    title: &'static str,
    rows: Vec<Row>,
    differences: Vec<Difference>,
}

#[derive(Serialize)]
struct Row {
    name: &'static str,
    label: &'static str,
    seeds: usize,
    learning_rate: f64,
    by_benchmark: Vec<f64>,
    average: Estimate,
    /// Averages of the single seeds.
    of_seeds: Vec<f64>,
    tokens: f64,
    seconds: f64,
    /// Means over the first, middle and last third of the steps, of the metrics in [`CURVES`].
    curves: Vec<[f64; 3]>,
    /// Means over the seeds, step by step, of the same metrics.
    #[serde(skip)]
    steps: Vec<Vec<f64>>,
}

#[derive(Serialize)]
struct Difference {
    row: &'static str,
    baseline: &'static str,
    seeds: usize,
    average: Option<Estimate>,
}

/// Metrics whose course the tables tell.
const CURVES: &[(&str, &str)] = &[
    ("reward/policy_only", "reward"),
    ("gate/beta", "β"),
    ("policy/entropy", "entropy, on-policy"),
    ("entropy/all", "entropy, all"),
    ("policy/kl_to_initial", "KL"),
    ("response_length/mean", "length"),
];

impl Done {
    pub(super) fn read(
        args: &Args,
        sections: &[&'static Section],
        rates: &BTreeMap<String, f64>,
    ) -> Result<Self> {
        let mut benchmarks = Vec::new();
        let mut builds = BTreeSet::new();
        let mut tables = Vec::new();
        for section in sections {
            let seeds = args.seeds.min(section.seeds);
            let of = |name: &str| -> Vec<Scores> {
                (0..seeds)
                    .filter_map(|seed| scores_of(&folder_of(&args.out, name, seed)))
                    .collect()
            };
            let mut rows = Vec::new();
            for &name in section.arms {
                let scores = of(name);
                let Some(first) = scores.first() else {
                    continue;
                };
                builds.extend(scores.iter().map(|it| it.build.clone()));
                if benchmarks.is_empty() {
                    benchmarks = first.benchmarks.iter().map(|it| it.name.clone()).collect();
                }
                rows.push(row(name, &scores, args)?);
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
            tables.push(Table {
                name: section.name,
                title: section.title,
                rows,
                differences: differences.collect(),
            });
        }
        Ok(Self {
            builds: builds.into_iter().collect(),
            processor: crate::machine::processor(),
            problems: args.problems,
            completions: mini::COMPLETIONS,
            temperature: mini::TEMPERATURE,
            learning_rates: rates.clone(),
            benchmarks,
            tables,
        })
    }

    pub(super) fn markdown(&self) -> String {
        let mut text = format!(
            "Runs by hapo {}, on {}. Success on {} held-out problems of each benchmark, {} completions each at temperature {}; \
             in brackets the 95 % interval over seeds and problems, which one seed does not give.\n",
            self.builds.join(" and "),
            self.processor,
            self.problems,
            self.completions,
            self.temperature
        );
        if !self.learning_rates.is_empty() {
            let rates: Vec<String> = self
                .learning_rates
                .iter()
                .map(|(name, rate)| format!("{name} {rate:e}"))
                .collect();
            text += &format!(
                "Learning rates, chosen on the development split: {}.\n",
                rates.join(", ")
            );
        }
        for table in &self.tables {
            text += &format!("\n## {}\n\n| | seeds |", table.title);
            for it in &self.benchmarks {
                text += &format!(" {it} |");
            }
            text += " average | tokens | s |\n|---|---|";
            text += &"---|".repeat(self.benchmarks.len() + 3);
            text += "\n";
            for row in &table.rows {
                text += &format!("| {} | {} |", row.label, row.seeds);
                for it in &row.by_benchmark {
                    text += &format!(" {it:.3} |");
                }
                text += &format!(
                    " {} | {:.0} | {:.0} |\n",
                    interval(row.average, row.seeds, false),
                    row.tokens,
                    row.seconds
                );
            }
            text += "\n| difference | seeds | average |\n|---|---|---|\n";
            for it in &table.differences {
                let said = it
                    .average
                    .map_or_else(|| "–".to_owned(), |all| interval(all, it.seeds, true));
                text += &format!(
                    "| {} over {} | {} | {said} |\n",
                    label(it.row),
                    label(it.baseline),
                    it.seeds
                );
            }
            text += "\nMeans over the first, middle and last third of the steps:\n\n| |";
            for (_, name) in CURVES {
                text += &format!(" {name} |");
            }
            text += &format!("\n|---|{}\n", "---|".repeat(CURVES.len()));
            for row in table.rows.iter().filter(|it| it.name != "base") {
                text += &format!("| {} |", row.label);
                for it in &row.curves {
                    text += &format!(" {} |", course(*it));
                }
                text += "\n";
            }
        }
        text
    }

    /// The same as a page.
    pub(super) fn html(&self) -> String {
        let mut body = String::new();
        let mut lines = self
            .markdown()
            .lines()
            .map(ToOwned::to_owned)
            .collect::<Vec<_>>();
        lines.push(String::new());
        let mut in_table = false;
        for line in &lines {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            if line.starts_with("|---") {
                continue;
            }
            if line.starts_with('|') {
                let tag = if in_table { "td" } else { "th" };
                if !in_table {
                    body += "<div class=scroll><table>\n";
                    in_table = true;
                }
                body += "<tr>";
                for it in cells {
                    body += &format!("<{tag}>{}</{tag}>", escaped(it));
                }
                body += "</tr>\n";
                continue;
            }
            if in_table {
                body += "</table></div>\n";
                in_table = false;
            }
            match line.strip_prefix("## ") {
                Some(title) => {
                    body += &format!("<h2>{}</h2>\n", escaped(title));
                    body += &self.charts(title);
                }
                None if line.is_empty() => {}
                None => body += &format!("<p>{}</p>\n", escaped(line)),
            }
        }
        format!(
            "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
             <title>hapo study mini</title><style>:root{{color-scheme:light dark;font:15px system-ui}}\
             body{{max-width:80rem;margin:2rem auto;padding:0 1rem}}.scroll{{overflow-x:auto}}.charts{{display:flex;flex-wrap:wrap;gap:1rem}}figure{{margin:0}}\
             table{{border-collapse:collapse;font-variant-numeric:tabular-nums}}\
             td,th{{padding:.25rem .6rem;text-align:right;border-bottom:1px solid #8885;white-space:nowrap}}\
             td:first-child,th:first-child{{text-align:left}}</style><h1>The paper in miniature</h1>\n{body}</html>\n"
        )
    }
}

impl Done {
    /// The courses of a table's rows over the steps.
    fn charts(&self, title: &str) -> String {
        let Some(table) = self.tables.iter().find(|it| it.title == title) else {
            return String::new();
        };
        let rows: Vec<&Row> = (table.rows.iter())
            .filter(|it| it.steps.iter().flatten().any(|it| it.is_finite()))
            .collect();
        let labels: Vec<&str> = rows.iter().map(|it| it.label).collect();
        let charts = CURVES.iter().enumerate().filter_map(|(n, (_, name))| {
            let lines: Vec<&[f64]> = rows.iter().map(|it| &*it.steps[n]).collect();
            chart::chart(name, &lines)
        });
        let charts: String = charts.collect();
        if charts.is_empty() {
            return charts;
        }
        format!(
            "{}<div class=charts>{charts}</div>\n",
            chart::legend(&labels)
        )
    }
}

fn row(name: &'static str, scores: &[Scores], args: &Args) -> Result<Row> {
    let all: Vec<Vec<f64>> = scores.iter().map(Scores::all).collect();
    let n = scores.len() as f64;
    let benchmarks = scores[0].benchmarks.len();
    let by_benchmark = (0..benchmarks).map(|b| {
        let values = scores.iter().flat_map(|it| &it.benchmarks[b].problems);
        let count: usize = scores
            .iter()
            .map(|it| it.benchmarks[b].problems.len())
            .sum();
        values.sum::<f64>() / count.max(1) as f64
    });
    let tokens = scores
        .iter()
        .flat_map(|it| &it.benchmarks)
        .map(|it| it.tokens);
    let runs: Vec<Vec<serde_json::Value>> = scores
        .iter()
        .map(|it| metrics_of(&folder_of(&args.out, name, it.seed)))
        .collect();
    let steps: Vec<Vec<f64>> = CURVES.iter().map(|it| over_seeds(&runs, it.0)).collect();
    let curves = steps.iter().map(|it| thirds(it)).collect();
    Ok(Row {
        name,
        label: label(name),
        seeds: scores.len(),
        learning_rate: scores[0].learning_rate,
        by_benchmark: by_benchmark.collect(),
        average: estimate_over_seeds(&all, 0)
            .ok_or_else(|| anyhow::anyhow!("{name} answered no problem"))?,
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
    let text = read(folder)
        .or_else(|| read(&folder.join("grpo")))
        .unwrap_or_default();
    text.lines()
        .filter_map(|it| serde_json::from_str(it).ok())
        .collect()
}

/// A metric's mean over the runs that logged it in a step; NaN where none did.
fn over_seeds(runs: &[Vec<serde_json::Value>], key: &str) -> Vec<f64> {
    let steps = runs.iter().map(Vec::len).max().unwrap_or(0);
    (0..steps)
        .map(|step| {
            mean(
                runs.iter()
                    .filter_map(|it| it.get(step)?.get(key)?.as_f64()),
            )
        })
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

fn label(name: &str) -> &'static str {
    arms::find(name).map_or("base", |it| it.label)
}

/// A mean with its interval; of one seed without, since seeds differ by more than problems.
fn interval(it: Estimate, seeds: usize, signed: bool) -> String {
    match (seeds, signed) {
        (0 | 1, true) => format!("{:+.3}", it.mean),
        (0 | 1, false) => format!("{:.3}", it.mean),
        (_, true) => format!("{:+.3} [{:+.3}, {:+.3}]", it.mean, it.low, it.high),
        (_, false) => format!("{:.3} [{:.3}, {:.3}]", it.mean, it.low, it.high),
    }
}

fn course(thirds: [f64; 3]) -> String {
    let said = thirds.map(|it| match it {
        it if it.is_nan() => "–".to_owned(),
        it if it.abs() >= 10.0 => format!("{it:.0}"),
        it => format!("{it:.2}"),
    });
    if said.iter().all(|it| it == "–") {
        "–".to_owned()
    } else {
        said.join(" → ")
    }
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
