//! What a run measures and what it does about it: the numbers of a step, alarms, early stopping, TensorBoard.

pub(crate) mod early_stopping;
pub(crate) mod guard;
pub mod memory;
pub(crate) mod meter;
pub(crate) mod score;
pub(crate) mod stats;
pub(crate) mod tensorboard;
