//! `hapo study`: the paper in miniature, by one command.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::Result;
use hapo_study::{RunDone, StudyObserver, StudyPlan, sections, study};
use hapo_train::Observer;

use crate::commands::train::ProgressObserver;
use crate::support::overrides::OverrideArgs;
use crate::support::{arguments, interrupt, machine};

/// The paper's tables at the size of one small machine: every method, several seeds, intervals.
///
/// Each run is a folder; what is done is never done again, so the command resumes where it was stopped,
/// and two of them may work on one folder. Each method gets the learning rate that was best on the
/// development split among the rates tried for it.
#[derive(clap::Args)]
#[command(before_help = "Example: hapo study mini --seeds 5 --only table1")]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
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
    #[command(flatten)]
    overrides: OverrideArgs,
    /// Make the tables from the runs that are done, and start none
    #[arg(long)]
    tables: bool,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
    /// No progress
    #[arg(long)]
    quiet: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Study {
    Mini,
}

pub(crate) fn run(args: &Args, threads: usize) -> Result<()> {
    let Study::Mini = args.study;
    let plan = args.plan(threads)?;
    let observer = StudyProgress {
        quiet: args.quiet,
        one_at_a_time: args.jobs == 1,
        stop: interrupt::flag()?,
    };
    let started = Instant::now();
    let outcome = study(&plan, &observer)?;
    if observer.stop_requested() {
        eprintln!("stopped; the same command resumes");
    } else if args.json {
        outln!("{}", std::fs::read_to_string(plan.out.join("results.json"))?.trim_end());
    } else {
        outln!("{}", outcome.results.markdown());
    }
    if !args.quiet {
        eprintln!(
            "results.md, results.html and results.json in {}; {} of {} runs are missing; {:.0} min",
            plan.out.display(),
            outcome.missing,
            outcome.runs,
            started.elapsed().as_secs_f64() / 60.0
        );
    }
    Ok(())
}

impl Args {
    fn plan(&self, threads: usize) -> Result<StudyPlan> {
        arguments::at_least_one(
            &[("--problems", self.problems), ("--jobs", self.jobs)],
            "ask for one",
        )?;
        Ok(StudyPlan {
            sections: sections(&self.only)?,
            seeds: self.seeds,
            jobs: self.jobs,
            threads,
            out: self.out.clone(),
            problems: self.problems,
            search: !self.no_search,
            overrides: self.overrides.overrides(),
            train: !self.tables,
            build: crate::VERSION.to_owned(),
            cpu: machine::cpu_name(),
        })
    }
}

/// Shows the runs of a study and passes on the user's wish to stop.
struct StudyProgress {
    quiet: bool,
    one_at_a_time: bool,
    stop: Arc<AtomicBool>,
}

impl StudyObserver for StudyProgress {
    fn observe(&self, arm: &str, steps: u64) -> Box<dyn Observer + '_> {
        let quiet = self.quiet || !self.one_at_a_time;
        Box::new(ProgressObserver::new(arm, steps, quiet, self.stop.clone()))
    }

    fn run_done(&self, it: &RunDone) {
        if self.quiet {
            return;
        }
        let success = match it.success {
            Some(it) => format!("{it:.3}"),
            None => "left to another process, or stopped".to_owned(),
        };
        eprintln!(
            "{}/{} {} seed {}: {success}, {:.0} s",
            it.done,
            it.total,
            it.arm,
            it.seed,
            it.took.as_secs_f64()
        );
    }

    fn stop_requested(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
