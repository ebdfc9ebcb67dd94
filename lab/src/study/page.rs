//! A study's tables as Markdown and as a page.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::seeds::SeedEstimate;
use crate::study::arm::StudyName;
use crate::study::arms::SECTIONS;
use crate::study::chart;
use crate::study::html::escaped;
use crate::study::scores::CURVES;
use crate::study::tables::{Difference, Row, StudyResults, Table, label};
use crate::study::teachers::CLAIMS;

/// Before the tables of the page.
const HEAD: &str = "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
    <title>hapo-lab study</title><style>:root{color-scheme:light dark;font:15px system-ui}\
    body{max-width:80rem;margin:2rem auto;padding:0 1rem}.scroll{overflow-x:auto}.charts{display:flex;flex-wrap:wrap;gap:1rem}figure{margin:0}\
    table{border-collapse:collapse;font-variant-numeric:tabular-nums}\
    td,th{padding:.25rem .6rem;text-align:right;border-bottom:1px solid #8885;white-space:nowrap}\
    td:first-child,th:first-child{text-align:left}</style><h1>hapo-lab study</h1>\n";

impl StudyResults {
    /// The tables as Markdown.
    pub(crate) fn markdown(&self) -> String {
        let mut text = format!(
            "Runs by hapo {}, on {}. Success on {} held-out problems of each benchmark, {} completions each at temperature {}, \
             of {}; in square brackets the 95 % interval over seeds (t) \
             and problems, of one seed in round ones that over its problems alone; p after Holm's correction over the pairs of its table. Steps and curves of a \
             run of two stages are those of its second.\n",
            self.builds.join(" and "),
            match &self.cpus[..] {
                [] => "a machine that their record does not name".to_owned(),
                all => all.join(" and "),
            },
            self.problems,
            self.completions,
            self.temperature,
            if self.reads_the_best {
                "the checkpoint that was best on the development split"
            } else {
                "the last checkpoint"
            }
        );
        if self.builds.len() > 1 {
            text += "These tables mix builds.\n";
        }
        if self.cpus.len() > 1 {
            text += "These tables mix machines.\n";
        }
        for (how, rates) in [
            ("chosen on the development split", &self.learning_rates),
            ("given, not chosen", &self.given_rates),
        ] {
            if !rates.is_empty() {
                let rates: Vec<String> =
                    rates.iter().map(|(name, rate)| format!("{name} {rate:e}")).collect();
                text += &format!("Learning rates, {how}: {}.\n", rates.join(", "));
            }
        }
        text += &self.ladder();
        text += &self.verdicts();
        for table in &self.tables {
            text += &format!("\n## {}\n\n", table.title);
            text += &scores(table);
            text += &of_seeds(table);
            text += &differences(table);
            text += &curves(table);
            text += &examples(table);
        }
        text
    }

    /// The ladder in one table: HAPO's gain over each row, against the share of groups that fail entirely at the start.
    fn ladder(&self) -> String {
        let Some(first) = self.tables.iter().find(|it| it.study == StudyName::Ladder) else {
            return String::new();
        };
        let mut text = String::from(
            "\n## Gain against the share of groups that fail entirely at the start\n\n| | fail entirely |",
        );
        for it in &first.differences {
            let _ = write!(text, " over {} |", without_rung(label(it.baseline)));
        }
        text += &format!("\n|---|---|{}\n", "---|".repeat(first.differences.len()));
        for section in SECTIONS.iter().filter(|it| it.study == StudyName::Ladder) {
            let rung = self.tables.iter().find(|it| it.name == section.name);
            let share = rung.and_then(|it| it.all_fail_at_start);
            let share = share.map_or_else(|| NOT_MADE.to_owned(), |it| format!("{it:.2}"));
            let _ = write!(text, "| {} | {share} |", section.title);
            for n in 0..first.differences.len() {
                let average = rung.and_then(|it| it.differences[n].average.as_ref());
                let _ = write!(text, " {} |", estimated(average, true));
            }
            text += "\n";
        }
        text
    }

    /// The same as a figure; `None` of another study.
    pub(crate) fn ladder_figure(&self) -> Option<String> {
        let rungs: Vec<&Table> =
            self.tables.iter().filter(|it| it.study == StudyName::Ladder).collect();
        let points = |n: usize| {
            let of_rung = |it: &&Table| {
                let average = it.differences[n].average.as_ref()?;
                let (mean, interval) = (average.mean, average.interval);
                Some(chart::Difference { x: it.all_fail_at_start?, mean, interval })
            };
            rungs.iter().filter_map(of_rung).collect::<Vec<_>>()
        };
        let baselines = rungs.first()?.differences.iter().enumerate();
        let series: Vec<_> =
            baselines.map(|(n, it)| (without_rung(label(it.baseline)), points(n))).collect();
        let across = "share of groups that fail entirely in the first step";
        chart::differences((across, "success of HAPO over"), &series)
    }

    /// The paper's claims in every regime.
    fn verdicts(&self) -> String {
        let regimes: Vec<&Table> =
            self.tables.iter().filter(|it| it.study == StudyName::Teachers).collect();
        if regimes.is_empty() {
            return String::new();
        }
        let mut text = String::from("\n## What the paper says of HAPO, in every regime\n\n| |");
        for (claim, ..) in CLAIMS {
            let _ = write!(text, " {claim} |");
        }
        text += &format!("\n|---|{}\n", "---|".repeat(CLAIMS.len()));
        for title in crate::study::teachers::titles() {
            let _ = write!(text, "| {title} |");
            let regime = regimes.iter().find(|it| it.title == title);
            for n in 0..CLAIMS.len() {
                let verdict = regime.map_or_else(
                    || NOT_MADE.to_owned(),
                    |it| verdict(&it.differences[n], it.planned_seeds),
                );
                let _ = write!(text, " {verdict} |");
            }
            text += "\n";
        }
        text
    }

    /// The tables as a page, with charts.
    pub(crate) fn html(&self) -> String {
        let mut body = String::new();
        let markdown = self.markdown();
        let mut in_table = false;
        for line in markdown.lines().chain([""]) {
            if line.starts_with("|---") {
                continue;
            }
            if line.starts_with('|') {
                body += if in_table { "" } else { "<div class=scroll><table>\n" };
                body += &table_row(line, if in_table { "td" } else { "th" });
                in_table = true;
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
        format!("{HEAD}{body}</html>\n")
    }

    /// The curves of a table's rows over the steps.
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
        format!("{}<div class=charts>{charts}</div>\n", chart::legend(&labels))
    }
}

/// A line of a Markdown table as a row of a page's.
fn table_row(line: &str, tag: &str) -> String {
    let mut row = String::from("<tr>");
    for it in line.trim_matches('|').split('|') {
        let _ = write!(row, "<{tag}>{}</{tag}>", escaped(it.trim()));
    }
    row + "</tr>\n"
}

/// The text of a cell without a run.
const NOT_MADE: &str = "not made";

/// A claim that HAPO is better than its baseline, at 5 % after Holm's correction; no verdict before every seed is there.
fn verdict(it: &Difference, planned_seeds: u64) -> String {
    let Some(average) = &it.average else {
        return NOT_MADE.to_owned();
    };
    let n = it.seeds.len();
    if (n as u64) < planned_seeds {
        return format!("{:+.3} so far, n = {n} of {planned_seeds}", average.mean);
    }
    let verdict = match it.p_holm {
        Some(p) if p < 0.05 && average.mean > 0.0 => "supported",
        Some(p) if p < 0.05 => "contradicted",
        _ => "undecided",
    };
    format!("{verdict}, {:+.3}, n = {n}", average.mean)
}

fn without_rung(label: &str) -> &str {
    label.rsplit_once(", ").map_or(label, |it| it.0)
}

fn scores(table: &Table) -> String {
    let mut text = String::from("| | seeds |");
    for it in &table.benchmarks {
        let _ = write!(text, " {it} |");
    }
    text += " average | at step | at the end | collapsed | teacher's style | tokens | cut off | s |\n|---|---|";
    text += &"---|".repeat(table.benchmarks.len() + 8);
    text += "\n";
    for row in &table.rows {
        let _ = write!(text, "| {} | {} |", row.label, row.seeds.len());
        for it in &row.by_benchmark {
            let _ = write!(text, " {it:.3} |");
        }
        let Row { step, last, collapsed, tokens, truncated, seconds, .. } = row;
        let style = row.teacher_style.map_or_else(|| "–".to_owned(), |it| format!("{it:.2}"));
        let average = estimated(Some(&row.average), false);
        let _ = writeln!(
            text,
            " {average} | {step:.0} | {last:.3} | {collapsed} | {style} | {tokens:.0} | {truncated:.3} | {seconds:.0} |"
        );
    }
    for label in &table.not_made {
        let _ = writeln!(
            text,
            "| {label} | 0 |{}",
            format!(" {NOT_MADE} |").repeat(table.benchmarks.len() + 8)
        );
    }
    text
}

/// Every seed's own average.
fn of_seeds(table: &Table) -> String {
    let seeds: BTreeSet<u64> = table.rows.iter().flat_map(|it| it.seeds.iter().copied()).collect();
    let mut text = String::from("\nAverages of the single seeds:\n\n| |");
    for seed in &seeds {
        text += &format!(" {seed} |");
    }
    text += &format!("\n|---|{}\n", "---|".repeat(seeds.len()));
    for row in &table.rows {
        let _ = write!(text, "| {} |", row.label);
        for seed in &seeds {
            let value = row.seeds.iter().position(|it| it == seed);
            let value = value.map(|it| format!("{:.3}", row.average.of_seeds[it]));
            let _ = write!(text, " {} |", value.as_deref().unwrap_or("–"));
        }
        text += "\n";
    }
    text
}

fn differences(table: &Table) -> String {
    let mut text = String::from(
        "\n| difference | seeds | average | p (Holm) | single seeds |\n|---|---|---|---|---|\n",
    );
    for it in &table.differences {
        let average = estimated(it.average.as_ref(), true);
        let p = match it.p_holm {
            Some(p) if p < 0.001 => "< 0.001".to_owned(),
            Some(p) => format!("{p:.3}"),
            None => "–".to_owned(),
        };
        let values = it.average.iter().flat_map(|it| &it.of_seeds).zip(&it.seeds);
        // A seed is named where one is missing.
        let is_whole = it.seeds.len() as u64 == table.planned_seeds;
        let shown = |(value, seed): (&f64, &u64)| {
            if is_whole { format!("{value:+.3}") } else { format!("{seed}: {value:+.3}") }
        };
        let seeds: Vec<String> = values.map(shown).collect();
        let (row, baseline) = (label(it.row), label(it.baseline));
        let _ = writeln!(
            text,
            "| {row} over {baseline} | {} | {average} | {p} | {} |",
            it.seeds.len(),
            seeds.join(" ")
        );
    }
    text
}

fn curves(table: &Table) -> String {
    let mut text =
        String::from("\nMeans over the first, middle and last third of the steps:\n\n| |");
    for (_, name) in CURVES {
        let _ = write!(text, " {name} |");
    }
    let _ = writeln!(text, "\n|---|{}", "---|".repeat(CURVES.len()));
    for row in table
        .rows
        .iter()
        .filter(|it| it.average.mean.is_finite() && it.steps.iter().any(|it| !it.is_empty()))
    {
        let curves: Vec<String> = row.curves.iter().map(|it| curve(*it)).collect();
        let _ = writeln!(text, "| {} | {} |", row.label, curves.join(" | "));
    }
    text
}

/// Each row's answers to the first held-out problems, one per line.
fn examples(table: &Table) -> String {
    const MOST: usize = 400;
    let mut text = String::new();
    for row in &table.rows {
        for (n, it) in row.examples.iter().enumerate() {
            let mut shown: String = it.chars().take(MOST).collect();
            if it.chars().count() > MOST {
                shown.push('…');
            }
            let line = shown.split_whitespace().collect::<Vec<_>>().join(" ");
            let _ = writeln!(text, "\n{}, held-out problem {}: {line}", row.label, n + 1);
        }
    }
    text
}

/// A mean with its interval; of one seed with that over its problems, in other brackets, since seeds differ by more.
fn estimated(it: Option<&SeedEstimate>, signed: bool) -> String {
    let Some(it) = it else {
        return NOT_MADE.to_owned();
    };
    let number = |it: f64| if signed { format!("{it:+.3}") } else { format!("{it:.3}") };
    let mean = number(it.mean);
    match (it.interval, it.over_problems) {
        (Some((low, high)), _) => format!("{mean} [{}, {}]", number(low), number(high)),
        (None, Some((low, high))) => format!("{mean} ({}, {})", number(low), number(high)),
        (None, None) => mean,
    }
}

fn curve(thirds: [f64; 3]) -> String {
    let texts = thirds.map(|it| match it {
        it if it.is_nan() => "–".to_owned(),
        it if it.abs() >= 10.0 => format!("{it:.0}"),
        it => format!("{it:.2}"),
    });
    if texts.iter().all(|it| it == "–") { "–".to_owned() } else { texts.join(" → ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::arm::StudyName;
    use crate::study::make::sections;
    use crate::study::plan::StudyPlan;
    use crate::study::tables::Done;

    /// Seeds 0 and 2 of five: their values stand under their names, and nothing is decided yet.
    #[test]
    fn values_stand_under_their_seeds_and_a_verdict_waits_for_all() {
        let plan =
            StudyPlan::of_tests(sections(StudyName::Teachers, &["ceiling".to_owned()]).unwrap());
        let mut done = Done::new();
        for (arm, seed, success) in [
            ("exact-grpo", 0, 0.1),
            ("exact-grpo", 2, 0.2),
            ("ceiling-hapo", 0, 0.5),
            ("ceiling-hapo", 2, 0.9),
        ] {
            let job = crate::study::job::Job {
                arm: crate::study::arms::find(arm),
                seed,
                rate: None,
                folder: "out".into(),
                split: hapo_data::task::Split::HeldOut,
            };
            done.insert((arm.to_owned(), seed), job.scores_of_tests(&plan, success));
        }
        done.insert(("ceiling-hapo".to_owned(), 1), done[&("ceiling-hapo".to_owned(), 0)].clone());
        done.get_mut(&("ceiling-hapo".to_owned(), 1)).unwrap().seed = 1;
        let text =
            StudyResults::of(&plan, &std::collections::BTreeMap::new(), &done).unwrap().markdown();
        assert!(text.contains("| GRPO | 0.100 | – | 0.200 |"), "{text}");
        assert!(text.contains("0: +0.400 2: +0.700"), "{text}");
        assert!(text.contains("| A style that finishes 58 % of the problems | +0.550 so far, n = 2 of 5 | not made |"), "{text}");
        // GRPO was scored by the exact teacher's style, HAPO by this regime's.
        let style = |row: &str| {
            text.lines().find(|it| it.starts_with(row)).unwrap().split(" | ").nth(7).unwrap()
        };
        assert_eq!((style("| GRPO | 2"), style("| HAPO, annealed | 3")), ("–", "0.00"));
        assert!(text.contains("a machine that their record does not name"), "{text}");
    }
}
