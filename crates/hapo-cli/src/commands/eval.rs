//! `hapo eval`: a model on held-out problems.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use hapo_data::Dataset;
use hapo_data::task::{Split, TaskSet, make_set};
use hapo_eval::{
    Answers, BENCHMARKS, Estimate, EvalSettings, average, benchmark, evaluate, pass_at_k,
};

use crate::commands::generate::decoding;
use crate::failure::bad_input;
use crate::model;

/// Evaluate a model on the built-in task's held-out sets or on a file of problems.
#[derive(clap::Args)]
#[command(before_help = "Example: hapo eval --model builtin:base --suite mini6 --k 4")]
pub(crate) struct Args {
    /// Hugging Face folder, org/name[@revision] of the hub, or builtin:base
    #[arg(long)]
    model: String,
    /// mini6, names of `hapo list benchmarks`, or family:level of the built-in task, separated by commas
    #[arg(long, default_value = "mini6", conflicts_with = "data")]
    suite: String,
    /// A file of problems instead of a suite
    #[arg(long)]
    data: Option<PathBuf>,
    /// Problems of each benchmark of the built-in task
    #[arg(long, default_value_t = 200)]
    problems: usize,
    /// Split of the built-in task for family:level; choose settings on `development`
    #[arg(long, value_enum, default_value_t = EvalSplit::HeldOut)]
    split: EvalSplit,
    /// Completions of each problem
    #[arg(long, default_value_t = 2)]
    k: usize,
    /// Sampling temperature; 0 takes the most likely token
    #[arg(long, default_value_t = 0.6)]
    temperature: f32,
    /// Longest completion in tokens
    #[arg(long, default_value_t = 96)]
    max_tokens: usize,
    /// Prompt template; `chat` is the model's own
    #[arg(long, default_value = "chatml")]
    template: String,
    /// System text, with --template chat
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// What follows the problem in the user's turn, with --template chat
    #[arg(long, value_name = "TEXT")]
    suffix: Option<String>,
    /// Grader
    #[arg(long, default_value = "math")]
    grader: String,
    /// Seed of the draws and of the intervals
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Write every completion to this file, as JSONL
    #[arg(long)]
    out: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum EvalSplit {
    Development,
    HeldOut,
}

pub(crate) fn run(args: &Args, threads: usize) -> Result<()> {
    let decoding = decoding(args.temperature, hapo_sampler::Truncation::NONE)?;
    let template = hapo_data::TemplateChoice {
        name: &args.template,
        system: args.system.as_deref(),
        suffix: args.suffix.as_deref(),
    };
    template.check()?;
    let grader = hapo_verify::grader(&args.grader)
        .map_err(|it| bad_input(it.to_string(), "`hapo list graders` names them"))?;
    if args.k == 0 || args.problems == 0 {
        return Err(bad_input(
            "--k and --problems: expected at least 1, got 0",
            "ask for one",
        ));
    }
    let sets = sets(args)?;
    let (model, dialogue) = model::open(&args.model, template, args.max_tokens, threads)?;
    model::warn_of_another_template(&args.model, &dialogue);
    let settings = EvalSettings {
        completions: args.k,
        decoding,
        max_new_tokens: args.max_tokens,
        max_sequences: 256,
        seed: args.seed,
    };
    let mut results = Vec::new();
    for (name, dataset) in &sets {
        results.push((
            name.clone(),
            evaluate(&model, &dialogue, grader, dataset, settings)?,
        ));
    }
    if let Some(path) = &args.out {
        let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
        for (name, answers) in &results {
            for it in answers {
                writeln!(
                    file,
                    "{}",
                    serde_json::json!({ "benchmark": name, "answers": it })
                )?;
            }
        }
        file.flush()?;
    }
    let rows: Vec<Row> = results
        .iter()
        .filter_map(|(name, answers)| row(name, answers, args))
        .collect();
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&rows)?)?;
        return Ok(());
    }
    writeln!(
        out,
        "{:<14} {:>8} {:>22} {:>8} {:>9} {:>7}",
        "benchmark",
        "problems",
        format!("avg@{} [95 %]", args.k),
        "pass@k",
        "truncated",
        "length"
    )?;
    for it in &rows {
        let score = format!(
            "{:.3} [{:.3}, {:.3}]",
            it.average.mean, it.average.low, it.average.high
        );
        writeln!(
            out,
            "{:<14} {:>8} {score:>22} {:>8.3} {:>9.3} {:>7.1}",
            it.benchmark, it.problems, it.pass_at_k, it.truncated, it.length
        )?;
    }
    Ok(())
}

fn sets(args: &Args) -> Result<Vec<(String, Dataset)>> {
    if let Some(file) = &args.data {
        return Ok(vec![(
            file.display().to_string(),
            hapo_train::load_file(&crate::hub::data_file(file)?)?,
        )]);
    }
    let names: Vec<&str> = if args.suite == "mini6" {
        BENCHMARKS.iter().map(|it| it.name).collect()
    } else {
        args.suite.split(',').collect()
    };
    names
        .into_iter()
        .map(|name| Ok((name.to_owned(), problems_of(name, args)?)))
        .collect()
}

fn problems_of(name: &str, args: &Args) -> Result<Dataset> {
    if let Some(it) = benchmark(name) {
        return Ok(it.problems(args.problems)?);
    }
    let (family, level) = name
        .split_once(':')
        .and_then(|it| Some((it.0, it.1.parse().ok()?)))
        .ok_or_else(|| {
            bad_input(
                format!("unknown benchmark `{name}`"),
                "`hapo list benchmarks` names them",
            )
        })?;
    let split = match args.split {
        EvalSplit::Development => Split::Development,
        EvalSplit::HeldOut => Split::HeldOut,
    };
    let levels = vec![(family.to_owned(), level)];
    Ok(make_set(&TaskSet {
        seed: 0,
        levels,
        split,
        count: args.problems,
        teacher_coverage: 0.0,
    })?)
}

#[derive(serde::Serialize)]
struct Row {
    benchmark: String,
    problems: usize,
    k: usize,
    average: Estimate,
    pass_at_k: f64,
    truncated: f64,
    no_answer: f64,
    length: f64,
}

fn row(name: &str, answers: &[Answers], args: &Args) -> Option<Row> {
    let all = || answers.iter().flat_map(|it| &it.completions);
    let n = all().count().max(1) as f64;
    let solved = answers.iter().filter_map(|it| {
        let correct = it
            .completions
            .iter()
            .filter(|it| it.verdict == "correct")
            .count();
        pass_at_k(it.completions.len(), correct, args.k)
    });
    Some(Row {
        benchmark: name.to_owned(),
        problems: answers.len(),
        k: args.k,
        average: average(answers, args.seed)?,
        pass_at_k: solved.sum::<f64>() / answers.len() as f64,
        truncated: all().filter(|it| !it.ended).count() as f64 / n,
        no_answer: all().filter(|it| it.verdict == "unparsable").count() as f64 / n,
        length: all().map(|it| it.tokens).sum::<usize>() as f64 / n,
    })
}
