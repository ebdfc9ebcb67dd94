//! `hapo quickstart`: the built-in demonstration, end to end, no downloads: GRPO, SFT and TRAPO-HAPO from the same base
//! model, compared on held-out problems.

use std::path::{Path, PathBuf};

use anyhow::Result;
use hapo_data::task::MINI6;
use hapo_eval::{Estimate, ProblemResult, average, benchmark, paired_difference};
use hapo_train::{BUILTIN_BASE, Overrides, Recipe, ResumePolicy, RunPlan, Sources};
use serde::Serialize;

use crate::scoring::{
    COMPLETIONS, DrawKeys, EvalFormat, ScoringLimits, TEMPERATURE, evaluate_sets, model_name,
};
use crate::{commands::train::ProgressObserver, support::device::ComputeArg, support::interrupt};

/// The built-in demonstration: GRPO and HAPO from the same base model, compared on held-out problems.
///
/// The runs are kept; a demonstration that was stopped resumes where it was.
#[derive(clap::Args)]
#[command(before_help = "Example: hapo quickstart --minutes 5 --seed 1")]
pub(crate) struct Args {
    /// Roughly how long it may take on 2 cores; scales the steps of every run
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    minutes: u64,
    /// Seed of the runs
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Folder of the runs
    #[arg(long, default_value = "runs/quickstart")]
    out: PathBuf,
    #[command(flatten)]
    compute: ComputeArg,
    /// Print the table as JSON
    #[arg(long)]
    json: bool,
    /// No progress
    #[arg(long)]
    quiet: bool,
    /// Open the page of the runs in a browser at the end
    #[arg(long)]
    open: bool,
}

struct Arm {
    name: &'static str,
    label: &'static str,
    recipe: &'static str,
}

const ARMS: &[Arm] = &[
    Arm { name: "grpo", label: "GRPO", recipe: include_str!("../../recipes/quickstart/grpo.toml") },
    Arm { name: "sft", label: "SFT", recipe: include_str!("../../recipes/quickstart/sft.toml") },
    Arm {
        name: "trapo-hapo",
        label: "TRAPO-HAPO",
        recipe: include_str!("../../recipes/quickstart/trapo-hapo.toml"),
    },
];

/// Minutes for which the recipes' own numbers of steps are made.
const NOMINAL_MINUTES: u64 = 5;
/// Held-out problems of each level.
const PROBLEMS: usize = 200;

pub(crate) fn run(args: &Args, threads: usize) -> Result<()> {
    let (seed, minutes) = (args.seed, args.minutes);
    let mut name = format!("seed-{seed}-minutes-{minutes}");
    let compute = args.compute.set();
    if compute.is_some() {
        name += &format!("-{}", args.compute.or_f32());
    }
    let folder = args.out.join(name);
    let sets: Vec<String> = compute.into_iter().collect();
    let recipe = |arm| Ok((arm, recipe_of(arm, minutes, seed, &sets)?));
    let arms: Vec<(&Arm, Recipe)> = ARMS.iter().map(recipe).collect::<Result<_>>()?;
    let levels = hapo_train::levels(&arms[0].1.data.levels)?;
    let say = |text: &str| {
        if !args.quiet {
            errln!("{text}");
        }
    };
    say(&introduction(&arms, &levels, &folder, threads));
    let set = |(family, level): &(String, u32)| {
        let set = MINI6.iter().find(|it| it.family == family && it.level == *level);
        let set = set.and_then(|it| benchmark(it.name));
        Ok(set.expect("the built-in recipes train on levels of mini6").problems(PROBLEMS)?)
    };
    let sets: Vec<hapo_data::Dataset> = levels.iter().map(set).collect::<Result<_>>()?;
    let evaluate = |model: &str| {
        let max_new_tokens = hapo_data::task::RESPONSE_LIMIT;
        let limits = ScoringLimits { max_new_tokens, seed, threads };
        evaluate_sets(model, EvalFormat::BUILT_IN, &sets, DrawKeys::Shared, limits)
    };
    let mut results: Vec<Scored> = vec![("base", BUILTIN_BASE.to_owned(), evaluate(BUILTIN_BASE)?)];
    let stop = interrupt::flag()?;
    for (arm, recipe) in &arms {
        let run_dir = folder.join(arm.name);
        let mut observer = ProgressObserver::new(arm.label, recipe.steps, args.quiet, stop.clone());
        let plan = RunPlan::settle_in(&run_dir, recipe, Sources::default())?;
        let (resume, observer_of) = (ResumePolicy::Resume, &mut observer);
        let outcome = hapo_train::train(&plan, &run_dir, resume, threads, observer_of)?;
        drop(observer);
        if !outcome.finished {
            let (label, step) = (arm.label, outcome.steps);
            say(&format!("stopped in {label} after step {step}; the same command resumes"));
            return Ok(());
        }
        let checkpoint = outcome.checkpoint.expect("a resumable run is saved");
        let model = model_name(&checkpoint)?;
        results.push((arm.label, model.to_owned(), evaluate(model)?));
    }
    let grpo = successes(&results[1].2);
    let table = DemonstrationTable {
        problems_per_level: PROBLEMS,
        completions: COMPLETIONS,
        temperature: TEMPERATURE,
        levels: levels.iter().map(|it| format!("{}:{}", it.0, it.1)).collect(),
        rows: results.iter().map(|it| row(it, &grpo, seed)).collect(),
        runs: folder.display().to_string(),
    };
    let json = serde_json::to_vec_pretty(&table).expect("a table is plain data");
    hapo_run::write_atomically(&folder.join("table.json"), &json)?;
    let page = folder.join("report.html");
    let html = hapo_report::report(std::slice::from_ref(&folder))?;
    hapo_run::write_atomically(&page, html.as_bytes())?;
    if args.json {
        outln!("{}", serde_json::to_string(&table)?);
    } else {
        outln!("{}", table.render());
        outln!("runs: {}", folder.display());
        outln!("page: {}", page.display());
    }
    if args.open {
        super::report::open(&page);
    }
    Ok(())
}

/// A model's label, its path and its results.
type Scored = (&'static str, String, Vec<Vec<ProblemResult>>);

fn successes(results: &[Vec<ProblemResult>]) -> Vec<f64> {
    results.iter().flatten().map(ProblemResult::success).collect()
}

fn row((label, model, results): &Scored, grpo: &[f64], seed: u64) -> DemonstrationRow {
    let values = successes(results);
    let completions = results.iter().flatten().flat_map(|it| &it.completions);
    let lengths: Vec<usize> = completions.filter_map(|it| it.tokens).collect();
    let mean = |it: &Vec<ProblemResult>| average(it, seed).map_or(0.0, |it| it.mean);
    DemonstrationRow {
        model: label,
        checkpoint: model.clone(),
        by_level: results.iter().map(mean).collect(),
        average: hapo_eval::estimate(&values, seed).expect("there are held-out problems"),
        over_grpo: paired_difference(&values, grpo, seed).filter(|_| *label != "GRPO"),
        response_length: lengths.iter().sum::<usize>() as f64 / lengths.len().max(1) as f64,
    }
}

fn introduction(
    arms: &[(&Arm, Recipe)],
    levels: &[(String, u32)],
    folder: &Path,
    threads: usize,
) -> String {
    let names: Vec<String> =
        levels.iter().map(|it| format!("{} with {} digits", it.0, it.1)).collect();
    let mut text = format!(
        "This trains a small model that is shipped with hapo on exact arithmetic ({}), on {threads} threads.\n\
         Most groups of 8 answers fail entirely at the start, so GRPO alone has little to learn from.\n",
        names.join(", "),
    );
    for (arm, recipe) in arms {
        let what = match (turn_off_epoch(recipe), arm.name) {
            (Some(e_off), _) => {
                format!("the teacher enters groups that fail entirely, until epoch {e_off}")
            }
            (None, "sft") => "imitates the traces that HAPO may inject".to_owned(),
            _ => "on-policy only".to_owned(),
        };
        let (label, steps, prompts) = (arm.label, recipe.steps, recipe.sampling.prompts_per_step);
        text += &format!("  {label:<11} {steps:>4} steps of {prompts} prompts: {what}\n");
    }
    text + &format!("Every 4th prompt has a teacher trace. Runs go to {}.", folder.display())
}

/// The arm's recipe at the length and seed that were asked for. The gate closes at the same share of
/// the run, whatever its length.
fn recipe_of(arm: &Arm, minutes: u64, seed: u64, sets: &[String]) -> Result<Recipe> {
    let origin = format!("built-in recipe {}", arm.name);
    let nominal = Recipe::parse(arm.recipe, &origin, &Overrides::default())?;
    let scale = |it: u64| (it * minutes / NOMINAL_MINUTES).max(1);
    let steps = format!("steps={}", scale(nominal.steps));
    let mut sets = [sets, &[format!("seed={seed}"), steps]].concat();
    if let Some(e_off) = turn_off_epoch(&nominal) {
        let steps_per_epoch = nominal.data.prompts / nominal.sampling.prompts_per_step;
        let steps_per_epoch = steps_per_epoch as f64;
        let closes_at = scale((e_off * steps_per_epoch) as u64) as f64 / steps_per_epoch;
        sets.push(format!("hapo.turn_off_epoch={closes_at:?}"));
    }
    Ok(nominal.with(&Overrides::set(sets))?)
}

fn turn_off_epoch(recipe: &Recipe) -> Option<f64> {
    let hapo = recipe.hapo.as_ref()?;
    Some(hapo.turn_off_epoch?.to_f64())
}

#[derive(Debug, Serialize)]
struct DemonstrationTable {
    problems_per_level: usize,
    completions: usize,
    temperature: f32,
    levels: Vec<String>,
    rows: Vec<DemonstrationRow>,
    /// As text: a path that is no UTF-8 has no JSON.
    runs: String,
}

#[derive(Debug, Serialize)]
struct DemonstrationRow {
    model: &'static str,
    checkpoint: String,
    by_level: Vec<f64>,
    average: Estimate,
    over_grpo: Option<Estimate>,
    response_length: f64,
}

impl DemonstrationTable {
    fn render(&self) -> String {
        let Self { completions, temperature, .. } = self;
        let problems = self.problems_per_level * self.levels.len();
        let mut text = format!(
            "\nSuccess on {problems} held-out problems, {completions} completions each at temperature {temperature} (95 % interval over problems)\n\nmodel       "
        );
        for it in &self.levels {
            text += &format!(" {it:>11}");
        }
        text += &format!(" {:>22} {:>24} {:>7}\n", "average", "over GRPO", "tokens");
        for row in &self.rows {
            text += &format!("{:<12}", row.model);
            for it in &row.by_level {
                text += &format!(" {it:>11.3}");
            }
            let Estimate { mean, low, high } = row.average;
            let average = format!("{mean:.3} [{low:.3}, {high:.3}]");
            let over = row.over_grpo.map_or_else(String::new, |it| {
                format!("{:+.3} [{:+.3}, {:+.3}]", it.mean, it.low, it.high)
            });
            text += &format!(" {average:>22} {over:>24} {:>7.1}\n", row.response_length);
        }
        text
    }
}
