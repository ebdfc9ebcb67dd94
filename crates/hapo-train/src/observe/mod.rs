//! The numbers that a run measures, and what they decide: alarms, early stopping, the best checkpoint, event files.

pub(crate) mod early_stopping;
pub(crate) mod guard;
pub mod memory;
pub(crate) mod meter;
pub(crate) mod score;
pub(crate) mod stats;
pub(crate) mod tensorboard;
