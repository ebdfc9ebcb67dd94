//! What a study makes, and who hears of it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use hapo_train::{Observer, Overrides};

use crate::arm::Section;
use crate::real::Real;
use crate::record::Record;

/// What a study makes.
#[derive(Clone, Debug)]
pub struct StudyPlan {
    /// Its tables, of one study.
    pub sections: Vec<&'static Section>,
    /// Seeds of each row.
    pub seeds: u64,
    /// Runs at a time; the threads are shared out among them.
    pub jobs: usize,
    /// Worker threads.
    pub threads: usize,
    /// Folder of the runs and tables.
    pub out: PathBuf,
    /// Held-out problems of each benchmark of the built-in task.
    pub problems: usize,
    /// The pretrained model, where the tables are of one.
    pub real: Option<Real>,
    /// Whether learning rates are searched; otherwise runs have their recipes' own.
    pub search: bool,
    /// Learning rates by the names of their searches, which are not made for them.
    pub rates: BTreeMap<String, f64>,
    /// Runs that were made elsewhere; they are not made again.
    pub record: Record,
    /// Overrides of every recipe.
    pub overrides: Overrides,
    /// Whether runs that are missing are made; otherwise the tables are of those that are done.
    pub train: bool,
    /// The build that makes the runs.
    pub build: String,
    /// The name of the CPU, for the tables.
    pub cpu: String,
}

impl StudyPlan {
    /// The pretrained model of arms that start from one.
    pub(crate) fn pretrained(&self) -> &Real {
        self.real.as_ref().expect("a study of a pretrained model has one")
    }

    /// Worker threads of one run.
    pub(crate) fn threads_of_a_run(&self) -> usize {
        (self.threads / self.jobs).max(1)
    }

    /// As the command makes it without options, in a folder without runs.
    #[cfg(test)]
    pub(crate) fn of_tests(sections: Vec<&'static Section>) -> Self {
        Self {
            sections,
            seeds: 5,
            jobs: 2,
            threads: 2,
            out: PathBuf::from("out"),
            problems: 200,
            real: None,
            record: Record::default(),
            search: true,
            rates: BTreeMap::new(),
            overrides: Overrides::default(),
            train: true,
            build: String::new(),
            cpu: String::new(),
        }
    }
}

/// Receives a study's progress and may stop it. Runs are made on several threads.
pub trait StudyObserver: Sync {
    /// What the runs that are missing will take; nothing was started yet.
    fn begins(&self, cost: &Cost);

    /// The observer of a run of `steps` steps that starts.
    fn observe(&self, arm: &str, steps: u64) -> Box<dyn Observer + '_>;

    /// A run is done.
    fn run_done(&self, done: &RunDone);

    /// Whether no further run is to start.
    fn stop_requested(&self) -> bool;
}

/// What the runs that are missing will take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Base models to train.
    pub bases: usize,
    /// Runs of the search.
    pub searches: usize,
    /// Runs of the tables.
    pub runs: usize,
    /// Hours of all of them.
    pub hours: f64,
    /// Runs that are done, whose times the hours are scaled by; of none, the times are those of the machine named in the
    /// documentation.
    pub measured: usize,
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
