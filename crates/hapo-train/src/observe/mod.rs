//! The numbers that a run measures, and what they decide: alarms, early stopping, the best checkpoint, event files.

pub(crate) mod best;
pub(crate) mod guard;
pub mod memory;
pub(crate) mod meter;
pub(crate) mod stats;
pub(crate) mod tensorboard;

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

pub(crate) fn logged(line: &Value) -> impl Fn(&str) -> Option<f64> {
    |name| line.get(name)?.as_f64()
}

/// Seconds since 1970 in UTC, to the millisecond; negative before.
pub(crate) fn unix_seconds() -> f64 {
    let seconds = match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(it) => it.as_secs_f64(),
        Err(it) => -it.duration().as_secs_f64(),
    };
    (seconds * 1e3).round() / 1e3
}

/// Seconds spent in each part of a step.
pub(crate) struct Clock {
    started: Instant,
    last: Instant,
    pub(crate) laps: Vec<(&'static str, f64)>,
}

/// Starts now.
impl Default for Clock {
    fn default() -> Self {
        let now = Instant::now();
        Self { started: now, last: now, laps: Vec::new() }
    }
}

impl Clock {
    /// Ends a part; parts of one name are added up.
    pub(crate) fn lap(&mut self, name: &'static str) {
        self.laps.push((name, self.last.elapsed().as_secs_f64()));
        self.last = Instant::now();
    }

    pub(crate) fn seconds(&self, name: &str) -> f64 {
        self.laps.iter().filter(|it| it.0 == name).map(|it| it.1).sum()
    }

    pub(crate) fn total(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }
}
