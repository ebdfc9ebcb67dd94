//! `hapo-lab evidence`: every table and picture of docs/results from the records alone, in seconds.
//!
//! Records are read as they are: the build that made a run stands beside its numbers, and nothing is trained.

mod first_round;
mod picture;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use hapo_run::write_atomically;

use crate::exact::{Count, SignFlips, Time, coverage, log_rank_p, median};
use crate::family::arm::Section;
use crate::family::record::Record;
use crate::family::scores::Scores;
use crate::family::tables::{Done, FOUND, LEVEL, StudyResults, found, p_value};
use crate::seeds::holm;

/// Every table and picture of docs/results, from its records.
#[derive(clap::Args)]
#[command(before_help = "Example: hapo-lab evidence")]
pub(crate) struct Args {
    /// Folder of the records
    #[arg(long, default_value = "docs/results")]
    records: PathBuf,
    /// Folder of tables.md and exposures.svg
    #[arg(long, default_value = "docs/results")]
    out: PathBuf,
}

/// The margin of equivalence.
const MARGIN: f64 = 0.02;
/// The baseline of the primary comparison: the plan's null hypothesis.
const PRIMARY: &str = "SFT, then GRPO";

pub(crate) fn run(args: &Args) -> Result<()> {
    let done = first_round::read(&args.records)?;
    let sections = first_round::sections();
    let all: Vec<&Section> = sections.iter().collect();
    let mut text = String::from(
        "# The tables\n\n`hapo-lab evidence` writes this page from the records beside it. *found*: seeds whose success at five-digit sums is at \
         least .5; an arm with found and missed seeds has no interval. *exposures*: gradient terms of a teacher's trajectory or of a \
         part of it; of SFT stages at most, since an early stop is not recorded. *traces*: distinct problems whose trace was shown, of 160; \
         a range where the record bounds the count (an epoch visits a prompt once). *tokens sampled*: with the prefixes that were shown. \
         *s*: wall seconds of one thread beside other work. In square brackets the 95 % interval over seeds and problems, of one seed in \
         round ones that over its problems alone.\n\n",
    );
    let results = StudyResults::of(&all, None, &BTreeMap::new(), &done)?;
    text += &results.markdown();
    text += &levels("Found or missed", &all, &done);
    let pools = pools(&all[..7], &["GRPO", "SFT, then GRPO", "TRAPO"], &done);
    text += &pooled("Pooled over regimes", &pools, None);
    text += &coverages(&done);
    hapo_run::create_folder(&args.out)?;
    let write = |name: &str, text: &str| write_atomically(&args.out.join(name), text.as_bytes());
    let family = args.records.join("family.runs.jsonl.zst");
    if family.exists() {
        let (tables, picture) = second_round(&family)?;
        text += &tables;
        write("second-round.svg", &picture)?;
    }
    let panels = ["0 %", "0.1 %", "exact", "ceiling"].map(|name| {
        results.tables.iter().find(|table| table.name == name).expect("the first round's tables")
    });
    write("exposures.svg", &picture::of_costs(&panels))?;
    crate::paper::write_results(&args.records, &args.out)?;
    Ok(write("tables.md", &text)?)
}

/// Its tables, and a panel for each cell of all twelve arms.
fn second_round(path: &Path) -> Result<(String, String)> {
    let done = Record::read(path)?.of_tables();
    let made = crate::family::sections_of(&done);
    let results = StudyResults::of(&made, None, &BTreeMap::new(), &done)?;
    let is_cell = |name: &str| name.ends_with("-exact") || name.ends_with("-repeated");
    let exact: Vec<&Section> =
        made.iter().copied().filter(|it| it.name.ends_with("-exact")).collect();
    let baselines = [PRIMARY, "5 steps of SFT, then GRPO", "TRAPO", "SuperRL", "GRPO"];
    let pools = pools(&exact, &baselines, &done);
    let panels: Vec<_> = results.tables.iter().filter(|table| is_cell(&table.name)).collect();
    let text = format!(
        "\n# The second round\n\n{}{}{}",
        results.markdown(),
        levels("The second round's levels, found or missed", &made, &done),
        pooled("Pooled over the cells with exact traces", &pools, Some(PRIMARY))
    );
    Ok((text, picture::of_costs(&panels)))
}

/// The runs of an arm, seed by seed.
fn runs_of<'a>(done: &'a Done, arm: &str) -> Vec<&'a Scores> {
    done.iter().filter(|((name, _), _)| name == arm).map(|(_, run)| run).collect()
}

/// A baseline's tables whose differences are pooled.
struct Pool {
    baseline: &'static str,
    /// Each table's name and differences, seed by seed.
    cells: Vec<(String, Vec<f64>)>,
    /// Names of tables in which seeds of either arm find the level and others miss it: their mean has two modes.
    mixed: Vec<String>,
}

/// HAPO against each baseline over the tables that have both rows.
fn pools(sections: &[&Section], baselines: &[&'static str], done: &Done) -> Vec<Pool> {
    let pool = |&baseline: &&'static str| {
        let mut pool = Pool { baseline, cells: Vec::new(), mixed: Vec::new() };
        for section in sections {
            let arms = arm_of(section, "HAPO").zip(arm_of(section, baseline));
            let Some((ours, theirs)) =
                arms.map(|(hapo, baseline)| (runs_of(done, hapo), runs_of(done, baseline)))
            else {
                continue;
            };
            let of_seed = |run: &&Scores| {
                let other = theirs.iter().find(|other| other.seed == run.seed)?;
                Some(run.mean() - other.mean())
            };
            let differences: Vec<f64> = ours.iter().filter_map(of_seed).collect();
            if [&ours, &theirs].iter().any(|runs| found(runs).is_some_and(Count::is_mixed)) {
                pool.mixed.push(section.name.clone());
            } else if !differences.is_empty() {
                pool.cells.push((section.name.clone(), differences));
            }
        }
        pool
    };
    baselines.iter().map(pool).filter(|pool| pool.cells.len() > 1).collect()
}

impl Pool {
    /// Its differences, without the table of that place.
    fn flips(&self, without: Option<usize>) -> SignFlips {
        let cells = self.cells.iter().enumerate().filter(|(place, _)| Some(*place) != without);
        SignFlips::new(&cells.map(|(_, (_, pairs))| pairs.clone()).collect::<Vec<_>>())
    }

    /// The difference without each table, and its p, where that p is the largest.
    fn without_one(&self) -> String {
        let without = self.cells.iter().enumerate().map(|(place, (name, _))| {
            let rest = self.flips(Some(place)).pooled();
            (rest.p, format!("{:+.4}, p {}, without {name}", rest.mean, p_value(Some(rest.p))))
        });
        without.max_by(|a, b| a.0.total_cmp(&b.0)).map_or_else(String::new, |(_, text)| text)
    }
}

/// The arm of a table's row.
fn arm_of<'a>(section: &'a Section, label: &str) -> Option<&'a str> {
    section.rows.iter().find(|row| row.label == label).map(|row| row.arm.as_str())
}

/// Counts of seeds that find the level, and the time until they do.
fn levels(title: &str, sections: &[&Section], done: &Done) -> String {
    let mut text = format!(
        "\n## {title}: {LEVEL}\n\nTime to find, in steps of all stages: the first look at which success at the level is at least .5; of runs without looks by \
         level the first step at which the policy's reward, averaged over five steps, is above .7, which the two other levels cannot give. Median by Kaplan and Meier; p by the log-rank statistic, groups permuted.\n\n\
         | | | found | median steps | HAPO against it: p (found, Fisher) | p (time) |\n|---|---|---|---|---|---|\n"
    );
    for section in sections.iter().filter(|it| it.name != first_round::REAL) {
        let hapo = arm_of(section, "HAPO").map_or_else(Vec::new, |hapo| runs_of(done, hapo));
        let of_hapo: Vec<Time> = hapo.iter().map(|run| time_to_find(run)).collect();
        for row in section.rows.iter().filter(|row| !row.label.starts_with("base")) {
            let runs = runs_of(done, &row.arm);
            let (Some(count), Some(ours)) = (found(&runs), found(&hapo)) else { continue };
            let times: Vec<Time> = runs.iter().map(|run| time_to_find(run)).collect();
            let steps =
                median(&times).map_or_else(|| "not reached".to_owned(), |it| it.to_string());
            let other = runs.first().is_some_and(|run| run.arm != hapo[0].arm);
            let p = |p: f64| p_value(other.then_some(p));
            let _ = writeln!(
                text,
                "| {} | {} | {count} | {steps} | {} | {} |",
                section.name,
                row.label,
                p(crate::exact::fisher(ours, count)),
                p(log_rank_p(&of_hapo, &times))
            );
        }
    }
    text
}

/// When a run finds the level. The first round has no looks by level: its sampled reward tells.
fn time_to_find(run: &Scores) -> Time {
    const SMOOTHED: usize = 5;
    const REWARD_WITH_LEVEL: f64 = 0.7;
    let before: u64 = run.made.imitation_steps();
    let rewards: Vec<f64> =
        run.curves.metric("reward/policy_only").iter().map(|it| it.unwrap_or(0.0)).collect();
    let end = before + rewards.len() as u64;
    let is_found = run.at_level(LEVEL).is_some_and(|success| success >= FOUND);
    let by_look =
        run.looks.iter().find(|look| look.levels.get(LEVEL).is_some_and(|it| *it >= FOUND));
    let by_reward = rewards
        .windows(SMOOTHED)
        .position(|window| window.iter().sum::<f64>() > REWARD_WITH_LEVEL * SMOOTHED as f64);
    let by_reward = by_reward.map(|at| before + (at + SMOOTHED) as u64);
    let at = by_look.map(|look| look.step).or(by_reward.filter(|_| run.looks.is_empty()));
    Time { step: if is_found { at.unwrap_or(end) } else { end }, happened: is_found }
}

/// HAPO's pooled differences, and whether they are equivalent to none, corrected over the table.
fn pooled(title: &str, pools: &[Pool], primary: Option<&str>) -> String {
    let named = primary.map_or_else(String::new, |baseline| {
        format!(" HAPO over {baseline} is the primary comparison.")
    });
    let mut text = format!(
        "\n## {title}\n\nMean over cells of paired differences; signs are flipped within seeds (20,000 draws), the interval is the test's inversion. \
         Cells in which some seeds of either arm find the level and others miss it have two modes and are left out; their counts stand above. \
         *p (Holm)* is corrected over the rows of this table.{named} *equivalent*: p that the true difference is ±.02 or more, the larger of two \
         one-sided tests, corrected over its column. *without one cell*: that with the largest p.\n\n\
         | | cells | left out | pairs | difference | p | p (Holm) | equivalent within ±.02, p (Holm) | without one cell |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    let flips: Vec<SignFlips> = pools.iter().map(|pool| pool.flips(None)).collect();
    let of_rows: Vec<_> = flips.iter().map(SignFlips::pooled).collect();
    let corrected = holm(&of_rows.iter().map(|row| Some(row.p)).collect::<Vec<_>>());
    let equivalent = holm(&flips.iter().map(|it| Some(it.equivalence(MARGIN))).collect::<Vec<_>>());
    for (((pool, row), p_holm), equivalent) in
        pools.iter().zip(&of_rows).zip(corrected).zip(equivalent)
    {
        let names: Vec<&str> = pool.cells.iter().map(|(name, _)| name.as_str()).collect();
        let _ = writeln!(
            text,
            "| HAPO over {} | {} | {} | {} | {:+.4} [{:+.4}, {:+.4}] | {} | {} | {} | {} |",
            pool.baseline,
            names.join(", "),
            pool.mixed.join(", "),
            pool.cells.iter().map(|(_, pairs)| pairs.len()).sum::<usize>(),
            row.mean,
            row.interval.0,
            row.interval.1,
            p_value(Some(row.p)),
            p_value(p_holm),
            p_value(equivalent),
            pool.without_one()
        );
    }
    text
}

/// Coverage of five-seed intervals where a level is found or missed.
fn coverages(done: &Done) -> String {
    let at_level = |run: &Scores| run.at_level(LEVEL);
    let all: Vec<f64> = done.values().filter(|run| run.step > 0).filter_map(at_level).collect();
    let (found, missed): (Vec<f64>, Vec<f64>) = all.iter().partition(|success| **success >= FOUND);
    let mut text = format!(
        "\n## Coverage of five-seed intervals\n\nOf the {} trained runs {} find {LEVEL} ({}) and {} miss it ({}): nothing lies between. \
         A level that a seed finds with probability p, its success drawn from these runs: share of nominal 95 % intervals by t that hold the true mean.\n\n",
        all.len(),
        found.len(),
        range(&found),
        missed.len(),
        range(&missed)
    );
    let ps = [0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];
    let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    text += &row(std::iter::once("p".to_owned()).chain(ps.map(|p| format!("{p}"))).collect());
    text += &format!("|---|{}\n", "---|".repeat(ps.len()));
    let covered = ps.map(|p| format!("{:.2}", coverage(p, &found, &missed)));
    text + &row(std::iter::once("covered".to_owned()).chain(covered).collect())
}

fn range(values: &[f64]) -> String {
    let end = |from: f64, of: fn(f64, f64) -> f64| values.iter().copied().fold(from, of);
    format!("{:.3} to {:.3}", end(f64::INFINITY, f64::min), end(f64::NEG_INFINITY, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pooled_number_says_what_one_cell_does_to_it() {
        let cells = vec![("one".to_owned(), vec![0.1; 8]), ("two".to_owned(), vec![0.0; 8])];
        let pool = Pool { baseline: "TRAPO", cells, mixed: vec!["three".to_owned()] };
        assert_eq!(pool.without_one(), "+0.0000, p 1.000, without one");
        let text = pooled("Pooled", &[pool], None);
        let row = "| HAPO over TRAPO | one, two | three | 16 | +0.0500 [";
        assert!(text.contains(row), "{text}");
    }
}
