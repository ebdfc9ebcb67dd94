//! `hapo quickstart`: the built-in demonstration, end to end, no downloads.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use hapo_data::task::MINI6;
use hapo_eval::{Estimate, ProblemResult, average, benchmark, paired_difference};
use hapo_train::{BUILTIN_BASE, RawRecipe, Recipe};
use serde::Serialize;

use crate::commands::train::Shown;
use crate::mini;

/// The built-in demonstration: GRPO and HAPO from the same base model, compared on held-out problems.
///
/// The runs are kept; a demonstration that was stopped goes on where it was.
#[derive(clap::Args)]
#[command(before_help = "Example: hapo quickstart --minutes 5 --seed 1")]
pub(crate) struct Args {
    /// Roughly how long it may take on 2 cores; scales the number of steps
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    minutes: u64,
    /// Seed of the runs
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Folder of the runs
    #[arg(long, default_value = "runs/quickstart")]
    out: PathBuf,
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

/// A run of the demonstration.
struct Arm {
    name: &'static str,
    label: &'static str,
    recipe: &'static str,
}

const ARMS: &[Arm] = &[
    Arm {
        name: "grpo",
        label: "GRPO",
        recipe: include_str!("../../../../recipes/quickstart/grpo.toml"),
    },
    Arm {
        name: "sft",
        label: "SFT",
        recipe: include_str!("../../../../recipes/quickstart/sft.toml"),
    },
    Arm {
        name: "trapo-hapo",
        label: "TRAPO-HAPO",
        recipe: include_str!("../../../../recipes/quickstart/trapo-hapo.toml"),
    },
];

/// Minutes for which the recipes' own numbers of steps are made.
const NOMINAL_MINUTES: u64 = 5;
/// Held-out problems of each level.
const PROBLEMS: usize = 200;

pub(crate) fn run(args: &Args, threads: usize) -> Result<()> {
    let folder = args
        .out
        .join(format!("seed-{}-minutes-{}", args.seed, args.minutes));
    let arms = ARMS
        .iter()
        .map(|arm| Ok((arm, recipe_of(arm, args)?)))
        .collect::<Result<Vec<_>>>()?;
    let levels = hapo_train::levels(&arms[0].1.raw.data.levels)?;
    let say = |text: &str| {
        if !args.quiet {
            eprintln!("{text}");
        }
    };
    say(&plan(&arms, &levels, &folder, threads));
    let mut rows = vec![evaluate_row("base", BUILTIN_BASE, &levels, args, threads)?];
    for (arm, recipe) in &arms {
        let run_dir = folder.join(arm.name);
        let mut shown = Shown::new(arm.label, recipe.raw.steps, args.quiet)?;
        let outcome = hapo_train::train(recipe, &run_dir, true, threads, &mut shown)?;
        shown.progress.finish();
        if !outcome.finished {
            say(&format!(
                "stopped in {} after step {}; the same command goes on",
                arm.label, outcome.steps
            ));
            return Ok(());
        }
        let model = outcome
            .checkpoint
            .to_str()
            .context("the run folder's path is not UTF-8")?;
        rows.push(evaluate_row(arm.label, model, &levels, args, threads)?);
    }
    let table = table(&rows, &levels, &folder, args.seed);
    let json = serde_json::to_vec_pretty(&table)?;
    hapo_report::write_whole(&folder.join("table.json"), &json)?;
    let page = folder.join("report.html");
    let html = hapo_report::report(std::slice::from_ref(&folder))?;
    hapo_report::write_whole(&page, html.as_bytes())?;
    if args.json {
        outln!("{}", serde_json::to_string(&table)?);
    } else {
        outln!("{}", render(&table, &levels));
        outln!("runs: {}", folder.display());
        outln!("page: {}", page.display());
    }
    if args.open {
        super::report::open(&page);
    }
    Ok(())
}

/// The arm's recipe at the length and seed that were asked for. The gate closes at the same share of
/// the run, whatever its length.
fn recipe_of(arm: &Arm, args: &Args) -> Result<Recipe> {
    let origin = format!("built-in recipe {}", arm.name);
    let mut raw = RawRecipe::parse(arm.recipe, &origin, &[])?;
    raw.seed = args.seed;
    let scale = |it: u64| (it * args.minutes / NOMINAL_MINUTES).max(1);
    if let Some(hapo) = &mut raw.hapo {
        let steps_per_epoch = (raw.data.prompts / raw.sampling.prompts_per_step) as f64;
        let e_off = hapo
            .turn_off_epoch
            .expect("the built-in recipe says when the teacher leaves");
        let closes_at = scale((e_off * steps_per_epoch) as u64);
        hapo.turn_off_epoch = Some(closes_at as f64 / steps_per_epoch);
    }
    raw.steps = if arm.name == "sft" {
        raw.steps
    } else {
        scale(raw.steps)
    };
    Ok(Recipe::check(raw, &origin, arm.name)?)
}

fn plan(
    arms: &[(&Arm, Recipe)],
    levels: &[(String, u32)],
    folder: &Path,
    threads: usize,
) -> String {
    let names: Vec<String> = levels
        .iter()
        .map(|it| format!("{} with {} digits", it.0, it.1))
        .collect();
    let mut text = format!(
        "This trains a small model that is shipped with hapo on exact arithmetic ({}), on {threads} threads.\n\
         Most groups of 8 answers fail entirely at the start, so GRPO alone has little to learn from.\n",
        names.join(", ")
    );
    for (arm, recipe) in arms {
        let it = &recipe.raw;
        let what = match (&it.hapo, arm.name) {
            (Some(hapo), _) => format!(
                "the teacher enters groups that fail entirely, until epoch {}",
                hapo.turn_off_epoch.unwrap_or_default()
            ),
            (None, "sft") => "imitates the traces that HAPO may inject".to_owned(),
            _ => "on-policy only".to_owned(),
        };
        text += &format!(
            "  {:<11} {:>4} steps of {} prompts: {what}\n",
            arm.label, it.steps, it.sampling.prompts_per_step
        );
    }
    text + &format!(
        "Every {}th prompt has a teacher trace. Runs go to {}.",
        4,
        folder.display()
    )
}

/// One model's answers, by level.
struct Evaluated {
    label: String,
    model: String,
    answers: Vec<Vec<ProblemResult>>,
}

fn evaluate_row(
    label: &str,
    path: &str,
    levels: &[(String, u32)],
    args: &Args,
    threads: usize,
) -> Result<Evaluated> {
    let sets = levels
        .iter()
        .map(|(family, level)| {
            let set = MINI6
                .iter()
                .find(|it| it.family == family && it.level == *level);
            let set = set
                .and_then(|it| benchmark(it.name))
                .expect("the built-in recipes train on levels of mini6");
            Ok(set.problems(PROBLEMS)?)
        })
        .collect::<Result<Vec<_>>>()?;
    let answers = mini::answers(path, &sets, args.seed, threads)?;
    Ok(Evaluated {
        label: label.to_owned(),
        model: path.to_owned(),
        answers,
    })
}

#[derive(Serialize)]
struct Table {
    problems_per_level: usize,
    completions: usize,
    temperature: f32,
    levels: Vec<String>,
    rows: Vec<Row>,
    runs: PathBuf,
}

#[derive(Serialize)]
struct Row {
    model: String,
    checkpoint: String,
    by_level: Vec<f64>,
    average: Estimate,
    over_grpo: Option<Estimate>,
    response_length: f64,
}

fn table(rows: &[Evaluated], levels: &[(String, u32)], folder: &Path, seed: u64) -> Table {
    let successes = |it: &Evaluated| -> Vec<f64> {
        it.answers
            .iter()
            .flatten()
            .map(ProblemResult::success)
            .collect()
    };
    let grpo = rows.iter().find(|it| it.label == "GRPO").map(successes);
    let rows = rows
        .iter()
        .map(|it| {
            let all: Vec<&ProblemResult> = it.answers.iter().flatten().collect();
            let values = successes(it);
            let lengths: Vec<usize> = all
                .iter()
                .flat_map(|it| &it.completions)
                .filter_map(|it| it.tokens)
                .collect();
            Row {
                model: it.label.clone(),
                checkpoint: it.model.clone(),
                by_level: it
                    .answers
                    .iter()
                    .map(|it| average(it, seed).map_or(0.0, |it| it.mean))
                    .collect(),
                average: hapo_eval::estimate(&values, seed).expect("there are held-out problems"),
                over_grpo: match &grpo {
                    Some(grpo) if it.label != "GRPO" => paired_difference(&values, grpo, seed),
                    _ => None,
                },
                response_length: lengths.iter().sum::<usize>() as f64 / lengths.len().max(1) as f64,
            }
        })
        .collect();
    Table {
        problems_per_level: PROBLEMS,
        completions: mini::COMPLETIONS,
        temperature: mini::TEMPERATURE,
        levels: levels
            .iter()
            .map(|it| format!("{}:{}", it.0, it.1))
            .collect(),
        rows,
        runs: folder.to_owned(),
    }
}

fn render(table: &Table, levels: &[(String, u32)]) -> String {
    let mut text = format!(
        "\nSuccess on {} held-out problems, {} completions each at temperature {} (95 % interval over problems)\n\n{:<12}",
        table.problems_per_level * levels.len(),
        table.completions,
        table.temperature,
        "model"
    );
    for it in &table.levels {
        text += &format!(" {it:>11}");
    }
    text += &format!(" {:>22} {:>24} {:>7}\n", "average", "over GRPO", "tokens");
    for row in &table.rows {
        text += &format!("{:<12}", row.model);
        for it in &row.by_level {
            text += &format!(" {it:>11.3}");
        }
        let interval = |it: Estimate, sign: bool| {
            if sign {
                format!("{:+.3} [{:+.3}, {:+.3}]", it.mean, it.low, it.high)
            } else {
                format!("{:.3} [{:.3}, {:.3}]", it.mean, it.low, it.high)
            }
        };
        let over = row
            .over_grpo
            .map_or_else(String::new, |it| interval(it, true));
        text += &format!(
            " {:>22} {over:>24} {:>7.1}\n",
            interval(row.average, false),
            row.response_length
        );
    }
    text
}
