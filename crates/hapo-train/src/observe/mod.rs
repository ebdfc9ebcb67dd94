//! The numbers that a run measures, and what they decide: alarms, early stopping, the best checkpoint, event files.

pub(crate) mod best;
pub(crate) mod guard;
pub mod memory;
pub(crate) mod meter;
pub(crate) mod stats;
pub(crate) mod tensorboard;

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

pub(crate) fn logged(line: &Value) -> impl Fn(&str) -> Option<f64> {
    |name| line.get(name)?.as_f64()
}

/// Seconds since 1970 in UTC, to the millisecond; negative before.
pub(crate) fn unix_seconds() -> f64 {
    let now = SystemTime::now();
    let seconds = match now.duration_since(UNIX_EPOCH) {
        Ok(it) => it.as_secs_f64(),
        Err(it) => -it.duration().as_secs_f64(),
    };
    (seconds * 1e3).round() / 1e3
}
