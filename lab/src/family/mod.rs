//! `hapo-lab family`: ways of using a teacher side by side: arms × bases × teachers × seeds.
//!
//! [`study`] trains and scores the runs of the tables, each in its own folder. A run that is done is not repeated, so
//! the command continues where it was stopped. The arms are fixed at compile time, recipes included, so that a table
//! means the same in every checkout.

pub(crate) mod arm;
pub(crate) mod arms;
mod job;
mod ladder;
pub(crate) mod make;
pub(crate) mod paper;
pub(crate) mod plan;
mod rates;
mod real;
pub(crate) mod record;
pub(crate) mod scores;
pub(crate) mod tables;
mod training;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::Result;
use hapo_cli::ProgressObserver;
use hapo_cli::failure::bad_input;
use hapo_cli::outln;
use hapo_cli::support::arguments::{OverrideArgs, count};
use hapo_cli::support::{hub, interrupt};
use hapo_data::Reading;
use hapo_train::Observer;

use self::arm::Section;
use self::arms::SECTIONS;
use self::make::{drop_to, require_arms, sections, study};
use self::plan::{Cost, RunDone, StudyObserver, StudyPlan};
use self::real::Real;
use self::record::Record;
use self::tables::Done;

/// Ways of using a teacher side by side: methods, bases and teachers, several seeds each.
///
/// Each run is a folder and is made once, so the command continues where it stopped, and two processes may work on one
/// folder. Scores made with other settings are refused. Each method gets the best of three values on the development
/// split, and each run is read at the best of six checkpoints there.
#[derive(clap::Args)]
#[command(
    before_help = "Examples: hapo-lab family --jobs 2 --hours 24\n          hapo-lab family --only 0-exact --seeds 5"
)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(crate) struct Args {
    /// Seeds of each row, in place of the tables' own numbers
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: Option<u64>,
    /// Only these tables: 0-exact, 0-repeated, 0.1-exact, controls, when, flawed, 0.1-repeated, 5-exact, 5-repeated,
    /// others, budgets; 0-repeated-tuned, 0.1-repeated-tuned, pilot and methods only where they are named
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only these arms of the tables, such as 0-exact-trapo
    #[arg(long, value_delimiter = ',')]
    arms: Vec<String>,
    /// Drop tables from the end until the estimate fits
    #[arg(long, value_name = "H")]
    hours: Option<f64>,
    /// Runs at a time; the threads are shared out among them
    #[arg(long, default_value_t = 1, value_parser = count(1 << 32))]
    jobs: usize,
    /// Folder of the runs and tables
    #[arg(long, default_value = "runs/family")]
    out: PathBuf,
    /// Held-out problems of each benchmark of the built-in task
    #[arg(long, default_value_t = 200, value_parser = count(1 << 32))]
    problems: usize,
    /// A pretrained model in place of the bases: a folder or a name of the hub
    #[arg(long)]
    model: Option<String>,
    /// Its file of problems, whose solutions are the teacher's
    #[arg(long)]
    data: Option<PathBuf>,
    /// Number of the file's last problems to hold out
    #[arg(long, value_name = "N", default_value_t = 319, value_parser = count(1 << 32))]
    held_out: usize,
    /// Steps of its runs, 4 or more; the gate closes for good after half of them
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(4..))]
    steps: u64,
    /// Runs that were made elsewhere: the file family.runs.jsonl of their folder; they are not made again
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Train with the recipes' own values
    #[arg(long)]
    no_search: bool,
    /// Train a method with this value, which is not searched; may be given several times
    #[arg(long, value_name = "METHOD=VALUE", value_parser = named_rate)]
    rate: Vec<(String, f64)>,
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

/// The tables that runs were made for: those with an arm that has runs and is in no table before.
pub(crate) fn sections_of(done: &Done) -> Vec<&'static Section> {
    let mut arms: BTreeSet<&str> = done.keys().map(|(arm, _)| arm.as_str()).collect();
    let is_made = |section: &&Section| {
        section.rows.iter().filter(|row| arms.remove(row.arm.as_str())).count() > 0
    };
    SECTIONS.iter().filter(is_made).collect()
}

pub(crate) fn run(args: &Args, threads: usize) -> Result<()> {
    let mut plan = args.plan(threads)?;
    let observer = StudyProgress::new(args.quiet, args.jobs == 1)?;
    let dropped = args.hours.map_or_else(|| Ok(Vec::new()), |hours| drop_to(&mut plan, hours))?;
    if !dropped.is_empty() {
        eprintln!("dropped, since they do not fit into the hours: {}", dropped.join(", "));
    }
    let started = Instant::now();
    let outcome = study(&plan, &observer)?;
    if observer.stop_requested() {
        eprintln!("stopped; the same command continues");
    } else if args.json {
        outln!("{}", std::fs::read_to_string(plan.out.join("family.json"))?.trim_end());
    } else {
        outln!("{}", outcome.results.markdown());
    }
    if !args.quiet {
        eprintln!(
            "family.md, family.json and family.runs.jsonl in {}; {} of {} runs are missing; {:.0} min",
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
        let real = self.real()?;
        let sections = sections(&self.only, real.is_some())?;
        require_arms(&self.arms, &sections)?;
        Ok(StudyPlan {
            arms: self.arms.clone(),
            real,
            seeds: self.seeds,
            jobs: self.jobs,
            problems: self.problems,
            record: match &self.record {
                Some(it) => Record::read(it)?,
                None => Record::default(),
            },
            search: !self.no_search,
            rates: self.rate.iter().cloned().collect(),
            overrides: self.overrides.overrides(),
            train: !self.tables,
            ..StudyPlan::new(sections, threads, self.out.clone())
        })
    }

    /// The pretrained model and its problems.
    fn real(&self) -> Result<Option<Real>> {
        let hint = "hapo-lab family --model DIR --data FILE";
        let (model, data) = match (&self.model, &self.data) {
            (Some(model), Some(data)) => (model, data),
            (None, None) => return Ok(None),
            _ => return Err(bad_input("expected --model and --data together", hint)),
        };
        let model = hub::model_folder(model)?;
        let dataset = hapo_train::load_file(&hub::data_file(data)?, &Reading::default())?;
        Ok(Some(Real::prepare(model, self.steps, dataset, self.held_out, &self.out)?))
    }
}

/// A searched value with its method's name, such as `grpo=1e-4`.
fn named_rate(text: &str) -> std::result::Result<(String, f64), String> {
    let expected = || format!("expected METHOD=VALUE, such as grpo=1e-4, got `{text}`");
    let (name, rate) = text.split_once('=').ok_or_else(expected)?;
    let rate: f64 =
        rate.parse().ok().filter(|it: &f64| it.is_finite() && *it > 0.0).ok_or_else(expected)?;
    Ok((name.to_owned(), rate))
}

/// Shows the runs of a study and passes on the user's wish to stop.
pub(crate) struct StudyProgress {
    quiet: bool,
    one_at_a_time: bool,
    stop: Arc<AtomicBool>,
}

impl StudyProgress {
    pub(crate) fn new(quiet: bool, one_at_a_time: bool) -> Result<Self> {
        Ok(Self { quiet, one_at_a_time, stop: interrupt::flag()? })
    }
}

impl StudyObserver for StudyProgress {
    fn begins(&self, it: &Cost) {
        if self.quiet || it.bases + it.searches + it.runs == 0 {
            return;
        }
        let by = match it.measured {
            0 => "by the times of two idle cores of an AMD EPYC".to_owned(),
            n => format!("by the times of the {n} that are done"),
        };
        eprintln!(
            "{} base models, {} runs of the search and {} of the tables are missing: about {:.1} hours, {by}",
            it.bases, it.searches, it.runs, it.hours
        );
    }

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
