//! The page of the paper's tables: ours beside the printed numbers, and whether they point the same way.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;

use super::figures::{looks, runs_of};
use crate::exact::{Count, fisher};
use crate::family::paper::{HOSTS, Printed, SECTIONS, STABILITY, TABLE_1, TABLE_2};
use crate::family::scores::{Scores, mean};
use crate::family::tables::{Difference, Done, StudyResults, Table, estimated, p_value};
use crate::seeds::holm;

const HEAD: &str = "# The paper at CPU size

`hapo-lab paper --jobs 2` makes the runs, `hapo-lab paper --tables` this page and its figures from `paper.runs.jsonl`.

Every row is a recipe of `recipes/mini`: a model of 1.6 million parameters, exact arithmetic, a trace for a quarter of the prompts, 60 steps, five seeds planned; each row says how many there are. Ours is success on six levels, by the checkpoint that was best on the development split, with the 95 % interval over seeds; an arm whose seeds find or miss five-digit sums has none. The paper's columns are its average accuracy over six benchmarks in per cent, of one run each. What can be compared is the direction, not the size: *as printed* and *the reverse* need an interval, or Fisher's test on seeds that find the level, that excludes no difference.
";

/// Looks whose mean is compared, for a collapse.
const WINDOW: usize = 4;

pub(super) fn of(done: &Done) -> Result<String> {
    let sections: Vec<_> = SECTIONS.iter().collect();
    let results = StudyResults::of(&sections, None, &BTreeMap::new(), done)?;
    let [first, second, ..] = &results.tables[..] else { unreachable!("the tables are fixed") };
    let mut text = HEAD.to_owned();
    let _ = writeln!(
        text,
        "\nRuns by hapo {}, on {}.",
        results.builds.join(" and "),
        results.cpus.join(" and ")
    );
    text += "\n## Table 1\n\n";
    text += &printed(first, TABLE_1);
    text += "\n## Table 2, in both readings\n\nThe text gives row 3 m = 0, the appendix γ0 = .3 ([paper-rows.md](../paper-rows.md)).\n\n";
    text += &printed(second, TABLE_2);
    text += "\n## Figure 2\n\n![Validation success over steps, three hosts](paper-figure-2.svg)\n";
    text += &stability(done);
    text += "\n## Figure 4\n\n![Gradient magnitude over the probability](paper-figure-4.svg)\n";
    text += &sensitivity(done);
    Ok(text)
}

/// A table's rows and differences beside the paper's.
fn printed(table: &Table, rows: &[Printed]) -> String {
    let paper = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |it| format!("{it:.2}"));
    let mut text =
        "| | seeds | ours | add-5 found | the paper, 3B | 7B |\n|---|---|---|---|---|---|\n"
            .to_owned();
    for row in rows {
        let [three, seven] = row.paper.map(paper);
        let ours = table.rows.iter().find(|it| it.label == row.label);
        let ours = ours.map_or_else(
            || "0 | not made | –".to_owned(),
            |it| {
                let found = it.found.map_or_else(|| "–".to_owned(), |it| it.to_string());
                format!("{} | {} | {found}", it.seeds.len(), estimated(&it.average, false))
            },
        );
        let _ = writeln!(text, "| {} | {ours} | {three} | {seven} |", row.label);
    }
    text += "\n| difference | ours | p (Holm) | p (found) | the paper, 3B | direction |\n|---|---|---|---|---|---|\n";
    for it in &table.differences {
        let of = |label: &str| rows.iter().find(|row| row.label == label)?.paper[0];
        let of_paper = of(&it.row).zip(of(&it.baseline)).map(|(row, baseline)| row - baseline);
        let ours =
            it.average.as_ref().map_or_else(|| "not made".to_owned(), |it| estimated(it, true));
        let _ = writeln!(
            text,
            "| {} over {} | {ours} | {} | {} | {} | {} |",
            it.row,
            it.baseline,
            p_value(it.p_holm),
            p_value(it.p_found),
            of_paper.map_or_else(|| "–".to_owned(), |it| format!("{it:+.2}")),
            of_paper.map_or("–", |paper| direction(it, paper))
        );
    }
    text
}

/// Whether a difference points as the paper's does, where it is one.
fn direction(ours: &Difference, paper: f64) -> &'static str {
    let Some(average) = &ours.average else { return "not made" };
    let decided = match average.interval {
        Some((low, high)) => low > 0.0 || high < 0.0,
        None => ours.p_found.is_some_and(|p| p < 0.05),
    };
    pointing(decided, (average.mean > 0.0) == (paper > 0.0))
}

fn pointing(is_decided: bool, is_as_printed: bool) -> &'static str {
    match (is_decided, is_as_printed) {
        (false, _) => "not decided",
        (true, true) => "as printed",
        (true, false) => "the reverse",
    }
}

/// The last four looks below half of the best four in a row: declared before the runs.
fn has_collapsed(run: &Scores) -> bool {
    let success: Vec<f64> = looks(run).into_iter().map(|it| it.1).collect();
    let means: Vec<f64> = success.windows(WINDOW).map(mean).collect();
    let best = means.iter().copied().fold(0.0, f64::max);
    means.last().is_some_and(|last| *last < best / 2.0)
}

fn stability(done: &Done) -> String {
    let count = |row: &str| {
        let runs = runs_of(done, row);
        let found = runs.iter().filter(|run| has_collapsed(run)).count() as u64;
        Count { found, of: runs.len() as u64 }
    };
    let mut text = "\n## Figure 3: does a teacher that stays end in a collapse?\n\nHalf of the prompts have no right answer, so a gate that never closes stays open for them. *Collapsed*: the mean success of the last four looks is below half of the best four in a row.\n\n".to_owned();
    if STABILITY.iter().all(|it| count(it.0).of == 0) {
        return text + "Not made: `hapo-lab paper --only stability --jobs 2`.\n";
    }
    text += "| | seeds | collapsed | last four looks |\n|---|---|---|---|\n";
    for (row, label, ..) in STABILITY {
        let runs = runs_of(done, row);
        let last: Vec<f64> = runs
            .iter()
            .map(|run| {
                let looks: Vec<f64> = looks(run).into_iter().map(|it| it.1).collect();
                mean(&looks[looks.len().saturating_sub(WINDOW)..])
            })
            .collect();
        let seeds: Vec<String> = last.iter().map(|it| format!("{it:.3}")).collect();
        let _ = writeln!(
            text,
            "| {label} | {} | {} | {} |",
            runs.len(),
            count(row).found,
            seeds.join(" ")
        );
    }
    let [open, annealed, _, policy_only] = STABILITY.map(|it| count(it.0));
    let planned = [annealed, policy_only].map(|it| (it.of > 0).then(|| fisher(open, it)));
    let p = holm(&planned);
    let is_more = open.found * annealed.of > annealed.found * open.of;
    let direction = pointing(p[0].is_some_and(|p| p < 0.05), is_more);
    let _ = writeln!(
        text,
        "\nOpen against annealed: p = {}; open against policy-only advantages: p = {} (Fisher, two-sided, Holm over the two; – where an arm was not made). In the paper the open gate collapses and the annealed one does not; here: {direction}.\n\n![The stability study](paper-figure-3.svg)",
        p_value(p[0]),
        p_value(p[1])
    );
    text
}

fn sensitivity(done: &Done) -> String {
    let mut text = "\n## Figure 5: γ0 on three hosts\n\n| | γ0 | seeds | β, mean over the run | validation at the end | response length at the end |\n|---|---|---|---|---|---|\n".to_owned();
    for (host, _, rows, _) in HOSTS {
        for (row, gamma0) in rows.iter().zip([".3", ".5", ".7"]) {
            let runs = runs_of(done, row);
            if runs.is_empty() {
                let _ =
                    writeln!(text, "| {host} | {gamma0} | 0 | not made | not made | not made |");
                continue;
            }
            let mean_of = |of: &dyn Fn(&Scores) -> f64| {
                mean(&runs.iter().map(|run| of(run)).collect::<Vec<_>>())
            };
            let logged = |run: &Scores, metric: &str| -> Vec<f64> {
                run.curves.metric(metric).iter().flatten().copied().collect()
            };
            let _ = writeln!(
                text,
                "| {host} | {gamma0} | {} | {:.3} | {:.3} | {:.1} |",
                runs.len(),
                mean_of(&|run| mean(&logged(run, "gate/beta"))),
                mean_of(&|run| looks(run).last().map_or(0.0, |it| it.1)),
                mean_of(&|run| logged(run, "response_length/mean").last().copied().unwrap_or(0.0))
            );
        }
    }
    text + "\n![γ0 on three hosts](paper-figure-5.svg)\n"
}
