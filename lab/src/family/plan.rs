//! The plan of a study, and its observer.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use hapo_cli::support::machine;
use hapo_train::{Observer, Overrides};

use crate::family::arm::Section;
use crate::family::real::Real;
use crate::family::record::Record;

/// The plan of a study.
#[derive(Clone, Debug)]
pub(crate) struct StudyPlan {
    /// Its tables, of one study.
    pub(crate) sections: Vec<&'static Section>,
    /// The arms that are run; all of the tables where there is none.
    pub(crate) arms: Vec<String>,
    /// Seeds of each row, in place of the tables' own numbers.
    pub(crate) seeds: Option<u64>,
    /// Runs at a time; the threads are shared out among them.
    pub(crate) jobs: usize,
    /// Worker threads.
    pub(crate) threads: usize,
    /// Folder of the runs and tables.
    pub(crate) out: PathBuf,
    /// Held-out problems of each benchmark of the built-in task.
    pub(crate) problems: usize,
    /// The pretrained model, where the tables are of one.
    pub(crate) real: Option<Real>,
    /// Search learning rates; otherwise use the recipes' own.
    pub(crate) search: bool,
    /// Learning rates by the names of their searches, which are not made for them.
    pub(crate) rates: BTreeMap<String, f64>,
    /// Runs that were made elsewhere; they are not made again.
    pub(crate) record: Record,
    /// Overrides of every recipe.
    pub(crate) overrides: Overrides,
    /// Make missing runs; otherwise make the tables from finished runs.
    pub(crate) train: bool,
    /// The build that makes the runs.
    pub(crate) build: String,
    /// The name of the CPU, for the tables.
    pub(crate) cpu: String,
}

impl StudyPlan {
    /// The pretrained model of arms that start from one.
    pub(crate) fn pretrained(&self) -> &Real {
        self.real.as_ref().expect("a study of a pretrained model has one")
    }

    /// True if the study runs this arm.
    pub(crate) fn wants(&self, arm: &str) -> bool {
        self.arms.is_empty() || self.arms.iter().any(|it| it == arm)
    }

    /// Seeds of a table's rows.
    pub(crate) fn seeds_of(&self, section: &Section) -> u64 {
        self.seeds.unwrap_or(section.seeds)
    }

    /// Worker threads of one run.
    pub(crate) fn threads_of_a_run(&self) -> usize {
        (self.threads / self.jobs).max(1)
    }

    /// Runs of tables by the recipes' own rates, on this machine, one at a time.
    pub(crate) fn new(sections: Vec<&'static Section>, threads: usize, out: PathBuf) -> Self {
        Self {
            sections,
            arms: Vec::new(),
            seeds: None,
            jobs: 1,
            threads,
            out,
            problems: 200,
            real: None,
            record: Record::default(),
            search: false,
            rates: BTreeMap::new(),
            overrides: Overrides::default(),
            train: true,
            build: hapo_cli::VERSION.to_owned(),
            cpu: format!("{}, {}", machine::cpu_name(), machine::instructions()),
        }
    }

    /// As `hapo-lab family --jobs 2` makes it, in a folder without runs.
    #[cfg(test)]
    pub(crate) fn of_tests(sections: Vec<&'static Section>) -> Self {
        Self { jobs: 2, search: true, ..Self::new(sections, 2, PathBuf::from("out")) }
    }
}

/// Receives a study's progress and may stop it. Runs are made on several threads.
pub(crate) trait StudyObserver: Sync {
    /// Reports the cost of the missing runs before any starts.
    fn begins(&self, cost: &Cost);

    /// The observer of a run of `steps` steps that starts.
    fn observe(&self, arm: &str, steps: u64) -> Box<dyn Observer + '_>;

    /// A run is done.
    fn run_done(&self, done: &RunDone);

    /// True if no further run should start.
    fn stop_requested(&self) -> bool;
}

/// Cost of the missing runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cost {
    /// Base models to train.
    pub(crate) bases: usize,
    /// Runs of the search.
    pub(crate) searches: usize,
    /// Runs of the tables.
    pub(crate) runs: usize,
    /// Hours of all of them.
    pub(crate) hours: f64,
    /// Finished runs whose times scale the hours; without any, the times are those of the machine named in the
    /// documentation.
    pub(crate) measured: usize,
}

/// A run that is done.
#[derive(Clone, Debug)]
pub(crate) struct RunDone {
    /// How many are done, this one included.
    pub(crate) done: usize,
    /// How many were missing.
    pub(crate) total: usize,
    /// Its arm.
    pub(crate) arm: &'static str,
    /// Its seed.
    pub(crate) seed: u64,
    /// Its success on all benchmarks; `None` if another process has the run, or it was stopped.
    pub(crate) success: Option<f64>,
    /// How long it took.
    pub(crate) took: Duration,
}
