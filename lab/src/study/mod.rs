//! `hapo-lab study`: the paper in miniature, a ladder of base models, regimes of teachers, a pretrained model.
//!
//! [`study`] trains and scores the runs of the tables, each in its own folder. A run that is done is not repeated, so a
//! study resumes where it was stopped. The arms are fixed at compile time, recipes included, so that a table means the
//! same in every checkout.

mod arm;
mod arms;
mod chart;
mod html;
mod job;
mod ladder;
mod make;
mod page;
mod plan;
mod rates;
mod real;
mod record;
mod scores;
mod tables;
mod teachers;
mod training;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::Result;
use clap::ValueEnum as _;
use hapo_cli::ProgressObserver;
use hapo_cli::failure::bad_input;
use hapo_cli::outln;
use hapo_cli::support::overrides::OverrideArgs;
use hapo_cli::support::{arguments, hub, interrupt, machine};
use hapo_train::{Observer, ReadAs};

use self::arm::StudyName;
use self::make::{sections, study};
use self::plan::{Cost, RunDone, StudyObserver, StudyPlan};
use self::real::Real;
use self::record::Record;

/// The paper's tables at the size of one small machine: every method, several seeds, intervals.
///
/// Each run is a folder and is made once, so the command resumes where it stopped, and two processes may work on one
/// folder. Scores made with other settings are refused. Each method gets the best of three learning rates on the
/// development split, and each run is read at the best of six checkpoints there.
#[derive(clap::Args)]
#[command(
    before_help = "Examples: hapo-lab study mini --seeds 5 --only table1\n          hapo-lab study teachers --jobs 2 --only exact,ceiling"
)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(crate) struct Args {
    /// The study
    #[arg(value_enum)]
    study: Study,
    /// Seeds of each row
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: u64,
    /// Only these tables. mini: table1, ablation, sensitivity, stability, coverage, beyond; ladder: rung-0, rung-0.1,
    /// rung-0.5, rung-1, rung-5; teachers: exact, ceiling, coverage-10, coverage-50, coverage-100, unfollowable, flawed,
    /// limit, flips-5, flips-15; real: real
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Runs at a time; the threads are shared out among them
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Folder of the runs and tables [default: runs/study-STUDY]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Held-out problems of each benchmark of the built-in task
    #[arg(long, default_value_t = 200)]
    problems: usize,
    /// real: the model, a folder or a name of the hub
    #[arg(long)]
    model: Option<String>,
    /// real: the file of problems, whose solutions are the teacher's
    #[arg(long)]
    data: Option<PathBuf>,
    /// real: number of the file's last problems to hold out
    #[arg(long, value_name = "N", default_value_t = 319)]
    held_out: usize,
    /// real: steps of each run, 4 or more; the gate closes for good after half of them
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(4..))]
    steps: u64,
    /// Runs that were made elsewhere: the file STUDY.runs.jsonl of their study; they are not made again
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Train with the recipes' own learning rates
    #[arg(long)]
    no_search: bool,
    /// Train an arm with this learning rate, which is not searched; may be given several times
    #[arg(long, value_name = "SEARCH=RATE", value_parser = named_rate)]
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

#[derive(Clone, Copy, clap::ValueEnum)]
enum Study {
    /// The paper's tables in miniature
    Mini,
    /// Base models that use the teacher's style more and more often: GRPO, SFT-GRPO, TRAPO and HAPO from each
    Ladder,
    /// Teachers that are not perfect: GRPO, SFT-GRPO, TRAPO, HAPO annealed and not annealed in ten regimes
    Teachers,
    /// A pretrained model on a file's problems, with its solutions as the teacher: SFT, GRPO, SFT-GRPO, TRAPO and HAPO
    Real,
}

impl Study {
    fn name(self) -> StudyName {
        match self {
            Self::Mini => StudyName::Mini,
            Self::Ladder => StudyName::Ladder,
            Self::Teachers => StudyName::Teachers,
            Self::Real => StudyName::Real,
        }
    }
}

pub(crate) fn run(args: &Args, threads: usize) -> Result<()> {
    let plan = args.plan(threads)?;
    let observer = StudyProgress {
        quiet: args.quiet,
        one_at_a_time: args.jobs == 1,
        stop: interrupt::flag()?,
    };
    let started = Instant::now();
    let outcome = study(&plan, &observer)?;
    let stem = outcome.results.file_stem();
    if observer.stop_requested() {
        eprintln!("stopped; the same command resumes");
    } else if args.json {
        outln!("{}", std::fs::read_to_string(plan.out.join(format!("{stem}.json")))?.trim_end());
    } else {
        outln!("{}", outcome.results.markdown());
    }
    if !args.quiet {
        eprintln!(
            "{stem}.md, {stem}.html and {stem}.json in {}; {} of {} runs are missing; {:.0} min",
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
        let out = self.out.clone().unwrap_or_else(|| {
            let study = self.study.to_possible_value().expect("no study is hidden");
            PathBuf::from(format!("runs/study-{}", study.get_name()))
        });
        Ok(StudyPlan {
            real: self.real(&out)?,
            sections: sections(self.study.name(), &self.only)?,
            seeds: self.seeds,
            jobs: self.jobs,
            threads,
            out,
            problems: self.problems,
            record: match &self.record {
                Some(it) => Record::read(it)?,
                None => Record::default(),
            },
            search: !self.no_search,
            rates: self.rate.iter().cloned().collect(),
            overrides: self.overrides.overrides(),
            train: !self.tables,
            build: hapo_cli::VERSION.to_owned(),
            cpu: format!("{}, {}", machine::cpu_name(), machine::instructions()),
        })
    }

    /// The pretrained model and its problems.
    fn real(&self, out: &Path) -> Result<Option<Real>> {
        let hint = "hapo-lab study real --model DIR --data FILE";
        match (self.study, &self.model, &self.data) {
            (Study::Real, Some(model), Some(data)) => {
                arguments::at_least_one(&[("--held-out", self.held_out)], hint)?;
                let model = hub::model_folder(model)?;
                let dataset = hapo_train::load_file(&hub::data_file(data)?, ReadAs::default())?;
                Ok(Some(Real::prepare(model, self.steps, dataset, self.held_out, out)?))
            }
            (Study::Real, ..) => Err(bad_input("real: expected --model and --data", hint)),
            (_, None, None) => Ok(None),
            _ => Err(bad_input("--model and --data are of the study `real`", hint)),
        }
    }
}

/// A learning rate with the name of its search, such as `ladder-grpo=1e-4`.
fn named_rate(text: &str) -> std::result::Result<(String, f64), String> {
    let expected = || format!("expected SEARCH=RATE, such as ladder-grpo=1e-4, got `{text}`");
    let (name, rate) = text.split_once('=').ok_or_else(expected)?;
    let rate: f64 =
        rate.parse().ok().filter(|it: &f64| it.is_finite() && *it > 0.0).ok_or_else(expected)?;
    Ok((name.to_owned(), rate))
}

/// Shows the runs of a study and passes on the user's wish to stop.
struct StudyProgress {
    quiet: bool,
    one_at_a_time: bool,
    stop: Arc<AtomicBool>,
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
