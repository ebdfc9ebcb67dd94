//! The paper in miniature: every method on the built-in task, several seeds, tables with intervals.
//!
//! [`study`] trains and scores the runs of the tables, each in a folder of its own; a run that is done is not repeated, so
//! a study resumes where it was stopped. [`Demonstration`] is the three runs of the quickstart. The crate prints nothing:
//! an observer receives progress.
//!
//! Price: the arms are fixed at compile time, recipes included, so that a table means the same in every checkout.

mod arms;
mod chart;
mod demonstration;
mod error;
mod html;
mod mini;
mod page;
mod scores;
mod study;
mod tables;

pub use arms::{SECTIONS, Section};
pub use demonstration::{Demonstration, DemonstrationTable, Stopped};
pub use error::{Error, Result};
pub use study::{RunDone, StudyObserver, StudyOutcome, StudyPlan, sections, study};
pub use tables::StudyResults;
