//! `hapo study`: the paper in miniature, by one command.

mod arms;
mod chart;
mod tables;

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::{Context, Result};
use hapo_data::Dataset;
use hapo_data::task::{MINI6, Split, TaskSet, make_set};
use hapo_eval::{BENCHMARKS, ProblemResult};
use hapo_report::write_whole;
use hapo_train::{BUILTIN_BASE, Begin, Recipe};
use serde::{Deserialize, Serialize};

use crate::commands::train::Shown;
use crate::failure::bad_input;
use crate::mini;
use arms::{ARMS, Arm, SEARCH_SEED, SEARCHED, SECTIONS, Section};

/// The paper's tables at the size of one small machine: every method, several seeds, intervals.
///
/// Each run is a folder; what is done is never done again, so the command goes on where it was stopped,
/// and two of them may work on one folder. Each method gets the learning rate that was best on the
/// development split among the rates tried for it.
#[derive(clap::Args)]
#[command(before_help = "Example: hapo study mini --seeds 5 --only table1")]
pub(crate) struct Args {
    /// The study
    #[arg(value_enum)]
    study: Study,
    /// Seeds of each row
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: u64,
    /// Only these tables: table1, ablation, sensitivity, stability, coverage, beyond
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Runs at a time; the threads are shared out among them
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Folder of the runs and tables
    #[arg(long, default_value = "runs/study-mini")]
    out: PathBuf,
    /// Held-out problems of each benchmark
    #[arg(long, default_value_t = 200)]
    problems: usize,
    /// Train with the recipes' own learning rates
    #[arg(long)]
    no_search: bool,
    /// Override a key of every recipe: section.key=value
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Make the tables from the runs that are done, and start none
    #[arg(long)]
    tables: bool,
    /// No progress
    #[arg(long)]
    quiet: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Study {
    Mini,
}

/// A run to make.
#[derive(Clone)]
struct Job {
    arm: &'static Arm,
    seed: u64,
    /// The learning rate, where it is not the recipe's.
    rate: Option<f64>,
    folder: PathBuf,
    split: Split,
}

/// What a run came to: `scores.json` in its folder.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Scores {
    arm: String,
    seed: u64,
    learning_rate: f64,
    build: String,
    seconds: f64,
    benchmarks: Vec<BenchmarkScores>,
}

/// One benchmark of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct BenchmarkScores {
    name: String,
    /// Share of correct completions of each problem.
    problems: Vec<f64>,
    /// Mean length of a completion in tokens.
    tokens: f64,
    /// Share of completions without an end token.
    truncated: f64,
}

impl Scores {
    /// All problems of all benchmarks, which are of one size.
    fn all(&self) -> Vec<f64> {
        self.benchmarks
            .iter()
            .flat_map(|it| it.problems.clone())
            .collect()
    }

    fn mean(&self) -> f64 {
        let all = self.all();
        all.iter().sum::<f64>() / all.len().max(1) as f64
    }
}

pub(crate) fn run(args: &Args, threads: usize) -> Result<()> {
    let Study::Mini = args.study;
    if args.problems == 0 || args.jobs == 0 {
        return Err(bad_input(
            "--problems and --jobs: expected at least 1, got 0",
            "ask for one",
        ));
    }
    let sections = sections(&args.only)?;
    std::fs::create_dir_all(&args.out).with_context(|| format!("create {}", args.out.display()))?;
    let stop = crate::interrupt::flag()?;
    let started = Instant::now();
    let mut rates = BTreeMap::new();
    if !args.no_search {
        let jobs = search_jobs(&sections, &args.out);
        if !args.tables {
            work(args, &jobs, threads)?;
        }
        rates = best_rates(&jobs)?;
        if !args.tables && !stop.load(Ordering::Relaxed) {
            let json = serde_json::to_vec_pretty(&rates)?;
            write_whole(&args.out.join("learning-rates.json"), &json)?;
        }
    }
    let jobs = table_jobs(&sections, args, &rates);
    if !args.tables && !stop.load(Ordering::Relaxed) {
        if sections.iter().any(|it| it.arms.contains(&"base")) {
            base(args, threads)?;
        }
        work(args, &jobs, threads)?;
    }
    let missing = jobs
        .iter()
        .filter(|it| scores_of(&it.folder).is_none())
        .count();
    let done = tables::Done::read(args, &sections, &rates)?;
    write_whole(&args.out.join("results.md"), done.markdown().as_bytes())?;
    write_whole(
        &args.out.join("results.json"),
        &serde_json::to_vec_pretty(&done)?,
    )?;
    write_whole(&args.out.join("results.html"), done.html().as_bytes())?;
    if stop.load(Ordering::Relaxed) {
        eprintln!("stopped; the same command goes on");
    } else {
        outln!("{}", done.markdown());
    }
    if !args.quiet {
        eprintln!(
            "results.md, results.html and results.json in {}; {missing} of {} runs are missing; {:.0} min",
            args.out.display(),
            jobs.len(),
            started.elapsed().as_secs_f64() / 60.0
        );
    }
    Ok(())
}

fn sections(only: &[String]) -> Result<Vec<&'static Section>> {
    for it in only {
        if !SECTIONS.iter().any(|section| section.name == it) {
            let names: Vec<&str> = SECTIONS.iter().map(|it| it.name).collect();
            return Err(bad_input(
                format!("--only: expected a table of the study, got `{it}`"),
                format!("tables are {}", names.join(", ")),
            ));
        }
    }
    let wanted = |it: &&Section| only.is_empty() || only.iter().any(|name| name == it.name);
    Ok(SECTIONS.iter().filter(wanted).collect())
}

/// The runs of the search that the tables need.
fn search_jobs(sections: &[&Section], out: &Path) -> Vec<Job> {
    let needed = |name: &str| {
        let arms = sections.iter().flat_map(|it| it.arms.iter());
        arms.filter_map(|it| arms::find(it))
            .any(|it| it.rate_of == name || (it.name == "sft-grpo" && name == "sft"))
    };
    let mut jobs = Vec::new();
    for (name, rates) in SEARCHED.iter().filter(|it| needed(it.0)) {
        for rate in *rates {
            jobs.push(Job {
                arm: arms::find(name).expect("a searched arm exists"),
                seed: SEARCH_SEED,
                rate: Some(*rate),
                folder: out.join("search").join(format!("{name}-{rate:e}")),
                split: Split::Development,
            });
        }
    }
    jobs
}

/// The runs of the tables, seed by seed, so that a study that is stopped has whole seeds.
fn table_jobs(sections: &[&Section], args: &Args, rates: &BTreeMap<String, f64>) -> Vec<Job> {
    let mut jobs: Vec<Job> = Vec::new();
    for seed in 0..args.seeds {
        for arm in ARMS {
            let wanted = sections
                .iter()
                .any(|it| it.arms.contains(&arm.name) && seed < it.seeds);
            if wanted {
                jobs.push(Job {
                    arm,
                    seed,
                    rate: rates.get(arm.rate_of).copied(),
                    folder: folder_of(&args.out, arm.name, seed),
                    split: Split::HeldOut,
                });
            }
        }
    }
    jobs
}

fn folder_of(out: &Path, arm: &str, seed: u64) -> PathBuf {
    out.join("runs").join(arm).join(format!("seed-{seed}"))
}

/// The best rate of each searched arm that is done.
fn best_rates(jobs: &[Job]) -> Result<BTreeMap<String, f64>> {
    let mut best: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for job in jobs {
        let Some(scores) = scores_of(&job.folder) else {
            continue;
        };
        let rate = job.rate.context("a searched run has a rate")?;
        let entry = best
            .entry(job.arm.name.to_owned())
            .or_insert((rate, f64::NEG_INFINITY));
        if scores.mean() > entry.1 {
            *entry = (rate, scores.mean());
        }
    }
    Ok(best.into_iter().map(|(name, it)| (name, it.0)).collect())
}

/// Makes the runs, `args.jobs` at a time.
fn work(args: &Args, jobs: &[Job], threads: usize) -> Result<()> {
    let stop = crate::interrupt::flag()?;
    let waiting: Mutex<VecDeque<&Job>> = Mutex::new(
        jobs.iter()
            .filter(|it| scores_of(&it.folder).is_none())
            .collect(),
    );
    let total = waiting
        .lock()
        .expect("no worker panics with the lock")
        .len();
    let done = Mutex::new(0_usize);
    let each = (threads / args.jobs).max(1);
    let worker = || -> Result<()> {
        loop {
            let next = waiting
                .lock()
                .expect("no worker panics with the lock")
                .pop_front();
            let Some(job) = next else {
                return Ok(());
            };
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let started = Instant::now();
            let scores = make(args, job, each)?;
            let mut done = done.lock().expect("no worker panics with the lock");
            *done += 1;
            if !args.quiet {
                let said = match scores {
                    Some(it) => format!("{:.3}", it.mean()),
                    None => "left to another process, or stopped".to_owned(),
                };
                eprintln!(
                    "{}/{total} {} seed {}: {said}, {:.0} s",
                    *done,
                    job.arm.name,
                    job.seed,
                    started.elapsed().as_secs_f64()
                );
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..args.jobs).map(|_| scope.spawn(worker)).collect();
        let results = workers
            .into_iter()
            .map(|it| it.join().expect("a worker does not panic"));
        results.collect::<Result<()>>()
    })
}

/// Trains a run, or goes on with it, and scores it. None where another process has it, or it was stopped.
fn make(args: &Args, job: &Job, threads: usize) -> Result<Option<Scores>> {
    let started = Instant::now();
    let mut sets: Vec<String> = job.arm.sets.iter().map(|it| (*it).to_owned()).collect();
    sets.push(format!("seed={}", job.seed));
    sets.extend(args.overrides.iter().cloned());
    let origin = format!("study recipe {}", job.arm.name);
    let mut stages = Recipe::parse_stages(job.arm.recipe, &origin, job.arm.name, &sets)?;
    let last = stages.len() - 1;
    for (index, it) in stages.iter_mut().enumerate() {
        // The search is about the method; an earlier stage of imitation keeps its recipe's rate.
        if index == last
            && let Some(rate) = job.rate
        {
            it.raw.optim.lr = rate;
        }
        it.raw.checkpoint.best = String::new();
        it.raw.checkpoint.keep = 1;
        it.raw.metrics.rollouts_every = 0;
    }
    let mut checkpoint = None;
    for recipe in &stages {
        let folder = hapo_train::stage_folder(&job.folder, recipe);
        let mut shown = Shown::new(job.arm.name, recipe.raw.steps, args.quiet || args.jobs > 1)?;
        let outcome = hapo_train::train(recipe, &folder, Begin::Resume, threads, &mut shown);
        shown.progress.finish();
        let outcome = match outcome {
            Err(hapo_train::Error::Busy { .. }) => return Ok(None),
            other => other?,
        };
        if !outcome.finished {
            return Ok(None);
        }
        checkpoint = Some(outcome.checkpoint);
    }
    let checkpoint = checkpoint.context("a recipe has a stage")?;
    let model = checkpoint
        .to_str()
        .context("the run folder's path is not UTF-8")?;
    let scores = Scores {
        arm: job.arm.name.to_owned(),
        seed: job.seed,
        learning_rate: stages[last].raw.optim.lr,
        build: crate::VERSION.to_owned(),
        seconds: started.elapsed().as_secs_f64(),
        benchmarks: score(model, args, job.split, job.seed, threads)?,
    };
    write_whole(
        &job.folder.join("scores.json"),
        &serde_json::to_vec(&scores)?,
    )?;
    Ok(Some(scores))
}

/// Scores the model that every arm starts from.
fn base(args: &Args, threads: usize) -> Result<()> {
    for seed in 0..args.seeds {
        let folder = folder_of(&args.out, "base", seed);
        if scores_of(&folder).is_some() {
            continue;
        }
        std::fs::create_dir_all(&folder)?;
        let scores = Scores {
            arm: "base".to_owned(),
            seed,
            learning_rate: 0.0,
            build: crate::VERSION.to_owned(),
            seconds: 0.0,
            benchmarks: score(BUILTIN_BASE, args, Split::HeldOut, seed, threads)?,
        };
        write_whole(&folder.join("scores.json"), &serde_json::to_vec(&scores)?)?;
    }
    Ok(())
}

/// A model on the six levels of `mini6`, of the held-out or of the development split.
fn score(
    path: &str,
    args: &Args,
    split: Split,
    seed: u64,
    threads: usize,
) -> Result<Vec<BenchmarkScores>> {
    let sets = BENCHMARKS
        .iter()
        .zip(MINI6)
        .map(|(benchmark, set)| {
            Ok(match split {
                Split::HeldOut => benchmark.problems(args.problems)?,
                other => make_set(&TaskSet {
                    seed: 0,
                    levels: vec![(set.family.to_owned(), set.level)],
                    split: other,
                    count: args.problems,
                    teacher_coverage: 0.0,
                })?,
            })
        })
        .collect::<Result<Vec<Dataset>>>()?;
    let answers = mini::answers(path, &sets, seed, threads)?;
    let scores = BENCHMARKS.iter().zip(answers).map(|(benchmark, answers)| {
        let all = || answers.iter().flat_map(|it| &it.completions);
        let n = all().count().max(1) as f64;
        BenchmarkScores {
            name: benchmark.name.to_owned(),
            problems: answers.iter().map(ProblemResult::success).collect(),
            tokens: all().filter_map(|it| it.tokens).sum::<usize>() as f64 / n,
            truncated: all().filter(|it| !it.ended).count() as f64 / n,
        }
    });
    Ok(scores.collect())
}

/// The scores of a run that is done; a file that cannot be read is made again.
fn scores_of(folder: &Path) -> Option<Scores> {
    let text = std::fs::read_to_string(folder.join("scores.json")).ok()?;
    serde_json::from_str(&text).ok()
}
