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

use crate::exact::{SignFlips, Time, coverage, log_rank_p, median};
use crate::family::arm::Section;
use crate::family::record::Record;
use crate::family::scores::Scores;
use crate::family::tables::{Done, FOUND, LEVEL, StudyResults, found, p_value};

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

pub(crate) fn run(args: &Args) -> Result<()> {
    let done = first_round::read(&args.records)?;
    let sections = first_round::sections();
    let all: Vec<&Section> = sections.iter().collect();
    let mut text = String::from(
        "# The tables\n\n`hapo-lab evidence` writes this page from the records beside it. *found*: seeds whose success at five-digit sums is at \
         least .5; an arm with found and missed seeds has no interval. *exposures*: gradient terms of a teacher's trajectory or of a \
         part of it; of SFT stages at most, since an early stop is not recorded. *tokens sampled*: with the prefixes that were shown. \
         *s*: wall seconds of one thread beside other work. In square brackets the 95 % interval over seeds and problems, of one seed in \
         round ones that over its problems alone.\n\n",
    );
    let results = StudyResults::of(&all, None, &BTreeMap::new(), &done)?;
    text += &results.markdown();
    text += &levels("Found or missed", &all, &done);
    let groups = [
        ("the ladder", all[..5].to_vec()),
        ("the ladder, exact", all[..6].to_vec()),
        ("the ladder, exact, ceiling", all[..7].to_vec()),
    ];
    let pools = pools(&groups, &["GRPO", "SFT, then GRPO", "TRAPO"]);
    text += &pooled("Pooled over regimes", &pools, &done);
    text += &coverages(&done);
    hapo_run::create_folder(&args.out)?;
    let write = |name: &str, text: &str| write_atomically(&args.out.join(name), text.as_bytes());
    let family = args.records.join("family.runs.jsonl");
    if family.exists() {
        let (tables, picture) = second_round(&family)?;
        text += &tables;
        write("second-round.svg", &picture)?;
    }
    let panels = ["0 %", "0.1 %", "exact", "ceiling"].map(|name| {
        results.tables.iter().find(|table| table.name == name).expect("the first round's tables")
    });
    write("exposures.svg", &picture::exposures(&panels))?;
    Ok(write("tables.md", &text)?)
}

/// Its tables, and a panel for each cell of all twelve arms.
fn second_round(path: &Path) -> Result<(String, String)> {
    let done = Record::read(path)?.of_tables();
    let made = crate::family::sections_of(&done);
    let results = StudyResults::of(&made, None, &BTreeMap::new(), &done)?;
    let is_cell = |name: &str| name.ends_with("-exact") || name.ends_with("-repeated");
    let cells: Vec<&Section> = made.iter().copied().filter(|it| is_cell(&it.name)).collect();
    let of = |teacher| cells.iter().copied().filter(|it| it.name.ends_with(teacher)).collect();
    let groups = [
        ("exact traces", of("-exact")),
        ("a style that imitation does not learn", of("-repeated")),
        ("both", of("")),
    ];
    let baselines = ["SFT, then GRPO", "5 steps of SFT, then GRPO", "TRAPO", "SuperRL", "GRPO"];
    let pools = pools(&groups, &baselines);
    let panels: Vec<_> = results.tables.iter().filter(|table| is_cell(&table.name)).collect();
    let text = format!(
        "\n# The second round\n\n{}{}{}",
        results.markdown(),
        levels("The second round's levels, found or missed", &made, &done),
        pooled("Pooled over cells", &pools, &done)
    );
    Ok((text, picture::exposures(&panels)))
}

/// The runs of an arm, seed by seed.
fn runs_of<'a>(done: &'a Done, arm: &str) -> Vec<&'a Scores> {
    done.iter().filter(|((name, _), _)| name == arm).map(|(_, run)| run).collect()
}

/// Regimes whose differences are pooled.
struct Pool {
    baseline: &'static str,
    regimes: &'static str,
    /// HAPO's arm and the baseline's, a pair a regime.
    pairs: Vec<(String, String)>,
}

/// HAPO against each baseline over each group of tables that all have both rows.
fn pools(groups: &[(&'static str, Vec<&Section>)], baselines: &[&'static str]) -> Vec<Pool> {
    let mut pools = Vec::new();
    for &baseline in baselines {
        for (regimes, sections) in groups {
            let pair = |section: &&Section| {
                Some((arm_of(section, "HAPO")?.to_owned(), arm_of(section, baseline)?.to_owned()))
            };
            let pairs: Option<Vec<_>> = sections.iter().map(pair).collect();
            let pairs = pairs.filter(|pairs| pairs.len() > 1);
            pools.extend(pairs.map(|pairs| Pool { baseline, regimes, pairs }));
        }
    }
    pools
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

/// HAPO's differences over all regimes, and whether they are equivalent to none.
fn pooled(title: &str, pools: &[Pool], done: &Done) -> String {
    let mut text = format!(
        "\n## {title}\n\nMean over regimes of paired differences; signs are flipped within seeds (20,000 draws), the interval is the test's inversion. \
         *equivalent*: p that the true difference is ±.02 or more, the larger of two one-sided tests.\n\n\
         | | regimes | pairs | difference | p | equivalent within ±.02, p |\n|---|---|---|---|---|---|\n",
    );
    for pool in pools {
        let differences = |(hapo, baseline): &(String, String)| -> Vec<f64> {
            let theirs = runs_of(done, baseline);
            let of_seed = |run: &&Scores| {
                let other = theirs.iter().find(|other| other.seed == run.seed)?;
                Some(run.mean() - other.mean())
            };
            runs_of(done, hapo).iter().filter_map(of_seed).collect()
        };
        let strata: Vec<Vec<f64>> =
            pool.pairs.iter().map(differences).filter(|pairs| !pairs.is_empty()).collect();
        let flips = SignFlips::new(&strata);
        let it = flips.pooled();
        let _ = writeln!(
            text,
            "| HAPO over {} | {} | {} | {:+.4} [{:+.4}, {:+.4}] | {} | {} |",
            pool.baseline,
            pool.regimes,
            strata.iter().map(Vec::len).sum::<usize>(),
            it.mean,
            it.interval.0,
            it.interval.1,
            p_value(Some(it.p)),
            p_value(Some(flips.equivalence(MARGIN)))
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
