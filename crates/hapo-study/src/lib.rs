//! Studies on the built-in task, several seeds each, tables with intervals: the paper in miniature, a ladder of base models,
//! teachers that are not perfect, a pretrained model.
//!
//! [`study`] trains and scores the runs of the tables, each in a folder of its own; a run that is done is not repeated, so
//! a study resumes where it was stopped. [`Demonstration`] is the three runs of the quickstart. The crate prints nothing:
//! an observer receives progress.
//!
//! Price: the arms are fixed at compile time, recipes included, so that a table means the same in every checkout.

mod arm;
mod arms;
mod chart;
mod demonstration;
mod error;
mod html;
mod job;
mod ladder;
mod mini;
mod page;
mod plan;
mod rates;
mod real;
mod record;
mod scores;
mod study;
mod tables;
mod teachers;

pub use arm::{Section, StudyName};
pub use arms::SECTIONS;
pub use demonstration::{Demonstration, DemonstrationTable, Stopped};
pub use error::{Error, Result};
pub use plan::{Cost, RunDone, StudyObserver, StudyPlan};
pub use real::Real;
pub use record::Record;
pub use study::{StudyOutcome, sections, study};
pub use tables::StudyResults;
