//! The numbers that a run measures, and what they decide: alarms, early stopping, the best checkpoint, event files.

pub(crate) mod best;
pub(crate) mod guard;
pub mod memory;
pub(crate) mod meter;
pub(crate) mod stats;
pub(crate) mod tensorboard;

use serde_json::Value;

pub(crate) fn logged(line: &Value) -> impl Fn(&str) -> Option<f64> {
    |name| line.get(name)?.as_f64()
}
