//! A study: its runs, several at a time, and its tables.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use hapo_data::task::Split;
use hapo_run::write_atomically;
use hapo_train::{BUILTIN_BASE, Observer, Overrides, Recipe, ResumePolicy};

use crate::arms::{ARMS, Arm, SEARCH_SEED, SEARCHED, SECTIONS, Section, find};
use crate::error::{Error, Result};
use crate::mini::model_name;
use crate::scores::{Scores, score_mini6};
use crate::tables::StudyResults;

/// What a study makes.
#[derive(Clone, Debug)]
pub struct StudyPlan {
    /// Its tables.
    pub sections: Vec<&'static Section>,
    /// Seeds of each row.
    pub seeds: u64,
    /// Runs at a time; the threads are shared out among them.
    pub jobs: usize,
    /// Worker threads.
    pub threads: usize,
    /// Folder of the runs and tables.
    pub out: PathBuf,
    /// Held-out problems of each benchmark.
    pub problems: usize,
    /// Whether learning rates are searched; otherwise runs have their recipes' own.
    pub search: bool,
    /// Overrides of every recipe.
    pub overrides: Overrides,
    /// Whether runs that are missing are made; otherwise the tables are of those that are done.
    pub train: bool,
    /// The build that makes the runs.
    pub build: String,
    /// The name of the CPU, for the tables.
    pub cpu: String,
}

/// Receives a study's progress and may stop it. Runs are made on several threads.
pub trait StudyObserver: Sync {
    /// The observer of a run of `steps` steps that starts.
    fn observe(&self, arm: &str, steps: u64) -> Box<dyn Observer + '_>;

    /// A run is done.
    fn run_done(&self, done: &RunDone);

    /// Whether no further run is to start.
    fn stop_requested(&self) -> bool;
}

/// A run that is done.
#[derive(Clone, Debug)]
pub struct RunDone {
    /// How many are done, this one included.
    pub done: usize,
    /// How many were missing.
    pub total: usize,
    /// Its arm.
    pub arm: &'static str,
    /// Its seed.
    pub seed: u64,
    /// Its success on all benchmarks; `None` if another process has the run, or it was stopped.
    pub success: Option<f64>,
    /// How long it took.
    pub took: Duration,
}

/// What a study came to.
#[derive(Debug)]
pub struct StudyOutcome {
    /// Its tables, which are in its folder too.
    pub results: StudyResults,
    /// Runs of the tables.
    pub runs: usize,
    /// Those of them that are missing.
    pub missing: usize,
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

/// The tables of those names; all of them for no names.
///
/// # Errors
/// [`Error::UnknownTable`].
pub fn sections(only: &[String]) -> Result<Vec<&'static Section>> {
    let is_known = |name: &String| SECTIONS.iter().any(|section| section.name == name);
    if let Some(name) = only.iter().find(|it| !is_known(it)) {
        let known: Vec<&str> = SECTIONS.iter().map(|it| it.name).collect();
        return Err(Error::UnknownTable { name: name.clone(), known: known.join(", ") });
    }
    let wanted = |it: &&Section| only.is_empty() || only.iter().any(|name| name == it.name);
    Ok(SECTIONS.iter().filter(wanted).collect())
}

/// Makes the runs of a study that are missing, and its tables from those that are done.
///
/// # Errors
/// Those of the runs; a folder that cannot be written.
pub fn study(plan: &StudyPlan, observer: &dyn StudyObserver) -> Result<StudyOutcome> {
    create_folder(&plan.out)?;
    let continues = || plan.train && !observer.stop_requested();
    let mut rates = BTreeMap::new();
    if plan.search {
        let jobs = search_jobs(&plan.sections, &plan.out);
        if plan.train {
            work(plan, &jobs, observer)?;
        }
        rates = best_rates(&jobs);
        if continues() {
            let json = serde_json::to_vec_pretty(&rates).expect("rates are plain data");
            write_atomically(&plan.out.join("learning-rates.json"), &json)?;
        }
    }
    let jobs = table_jobs(plan, &rates);
    if continues() {
        if plan.sections.iter().any(|it| it.arms.contains(&"base")) {
            score_base(plan)?;
        }
        work(plan, &jobs, observer)?;
    }
    let missing = jobs.iter().filter(|it| Scores::read(&it.folder).is_none()).count();
    let results = StudyResults::read(plan, &rates);
    results.write(&plan.out)?;
    Ok(StudyOutcome { results, runs: jobs.len(), missing })
}

fn create_folder(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|source| Error::Io { path: folder.to_owned(), source })
}

/// The runs of the search that the tables need.
fn search_jobs(sections: &[&Section], out: &Path) -> Vec<Job> {
    let needed = |name: &str| {
        let arms = sections.iter().flat_map(|it| it.arms.iter());
        arms.filter_map(|it| find(it))
            .any(|it| it.rate_of == name || (it.name == "sft-grpo" && name == "sft"))
    };
    let mut jobs = Vec::new();
    for (name, rates) in SEARCHED.iter().filter(|it| needed(it.0)) {
        for rate in *rates {
            jobs.push(Job {
                arm: find(name).expect("a searched arm exists"),
                seed: SEARCH_SEED,
                rate: Some(*rate),
                folder: out.join("search").join(format!("{name}-{rate:e}")),
                split: Split::Development,
            });
        }
    }
    jobs
}

/// The runs of the tables, seed by seed, so that a study that is stopped has complete seeds.
fn table_jobs(plan: &StudyPlan, rates: &BTreeMap<String, f64>) -> Vec<Job> {
    let mut jobs: Vec<Job> = Vec::new();
    for seed in 0..plan.seeds {
        for arm in ARMS {
            let mut sections = plan.sections.iter();
            let wanted = sections.any(|it| it.arms.contains(&arm.name) && seed < it.seeds);
            if wanted {
                jobs.push(Job {
                    arm,
                    seed,
                    rate: rates.get(arm.rate_of).copied(),
                    folder: folder_of(&plan.out, arm.name, seed),
                    split: Split::HeldOut,
                });
            }
        }
    }
    jobs
}

pub(crate) fn folder_of(out: &Path, arm: &str, seed: u64) -> PathBuf {
    out.join("runs").join(arm).join(format!("seed-{seed}"))
}

/// The best rate of each searched arm that is done.
fn best_rates(jobs: &[Job]) -> BTreeMap<String, f64> {
    let mut best: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for job in jobs {
        let (Some(rate), Some(scores)) = (job.rate, Scores::read(&job.folder)) else {
            continue;
        };
        let entry = best.entry(job.arm.name.to_owned()).or_insert((rate, f64::NEG_INFINITY));
        if scores.mean() > entry.1 {
            *entry = (rate, scores.mean());
        }
    }
    best.into_iter().map(|(name, it)| (name, it.0)).collect()
}

/// Makes the runs that are missing, `plan.jobs` at a time.
fn work(plan: &StudyPlan, jobs: &[Job], observer: &dyn StudyObserver) -> Result<()> {
    let waiting: VecDeque<&Job> =
        jobs.iter().filter(|it| Scores::read(&it.folder).is_none()).collect();
    let total = waiting.len();
    let (waiting, done) = (Mutex::new(waiting), Mutex::new(0));
    let lock = "no worker panics with the lock";
    let worker = || -> Result<()> {
        loop {
            let next = waiting.lock().expect(lock).pop_front();
            let Some(job) = next.filter(|_| !observer.stop_requested()) else {
                return Ok(());
            };
            let started = Instant::now();
            let scores = make(plan, job, observer)?;
            let mut done = done.lock().expect(lock);
            *done += 1;
            observer.run_done(&RunDone {
                done: *done,
                total,
                arm: job.arm.name,
                seed: job.seed,
                success: scores.map(|it| it.mean()),
                took: started.elapsed(),
            });
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..plan.jobs).map(|_| scope.spawn(worker)).collect();
        let results = workers.into_iter().map(|it| it.join().expect("a worker does not panic"));
        results.collect()
    })
}

impl StudyPlan {
    /// Worker threads of one run.
    fn threads_of_a_run(&self) -> usize {
        (self.threads / self.jobs).max(1)
    }
}

/// The stages of a run's recipe.
fn stages_of(plan: &StudyPlan, job: &Job) -> Result<Vec<Recipe>> {
    let mut overrides = plan.overrides.clone();
    overrides.for_many = true;
    let own = job.arm.sets.iter().map(|it| (*it).to_owned());
    let own = own.chain([format!("seed={}", job.seed)]);
    overrides.set.splice(0..0, own);
    // Nothing but the last checkpoint is read.
    let lean = ["checkpoint.best=", "checkpoint.keep=1", "metrics.rollouts_every=0"];
    overrides.set.extend(lean.map(ToOwned::to_owned));
    let origin = format!("study recipe {}", job.arm.name);
    let mut stages = Recipe::parse_stages(job.arm.recipe, &origin, job.arm.name, &overrides)?;
    let Some(rate) = job.rate else {
        return Ok(stages);
    };
    // The search is about the method; an earlier stage of imitation keeps its recipe's rate.
    if let Some(last) = stages.last_mut() {
        *last = last.with(&Overrides::set([format!("optim.lr={rate:e}")]))?;
    }
    Ok(stages)
}

/// Trains a run, or resumes it, and scores it. `None` if another process has it, or it was stopped.
fn make(plan: &StudyPlan, job: &Job, observer: &dyn StudyObserver) -> Result<Option<Scores>> {
    let started = Instant::now();
    let threads = plan.threads_of_a_run();
    let stages = stages_of(plan, job)?;
    let (mut checkpoint, mut learning_rate) = (PathBuf::new(), 0.0);
    for recipe in &stages {
        let folder = hapo_train::stage_folder(&job.folder, recipe);
        let mut of_run = observer.observe(job.arm.name, recipe.steps());
        let outcome =
            hapo_train::train(recipe, &folder, ResumePolicy::Resume, threads, &mut *of_run);
        let outcome = match outcome {
            Err(hapo_train::Error::Run(hapo_run::Error::Busy { .. })) => return Ok(None),
            other => other?,
        };
        if !outcome.finished {
            return Ok(None);
        }
        (checkpoint, learning_rate) = (outcome.checkpoint, recipe.optim().lr);
    }
    let model = model_name(&checkpoint)?;
    let scores = Scores {
        arm: job.arm.name.to_owned(),
        seed: job.seed,
        learning_rate,
        build: plan.build.clone(),
        seconds: started.elapsed().as_secs_f64(),
        benchmarks: score_mini6(model, plan.problems, job.split, job.seed, threads)?,
    };
    scores.write(&job.folder)?;
    Ok(Some(scores))
}

/// Scores the model that every arm starts from.
fn score_base(plan: &StudyPlan) -> Result<()> {
    for seed in 0..plan.seeds {
        let folder = folder_of(&plan.out, "base", seed);
        if Scores::read(&folder).is_some() {
            continue;
        }
        create_folder(&folder)?;
        let (problems, threads) = (plan.problems, plan.threads);
        let scores = Scores {
            arm: "base".to_owned(),
            seed,
            learning_rate: 0.0,
            build: plan.build.clone(),
            seconds: 0.0,
            benchmarks: score_mini6(BUILTIN_BASE, problems, Split::HeldOut, seed, threads)?,
        };
        scores.write(&folder)?;
    }
    Ok(())
}
