//! Seconds spent in each part of a step.

use std::time::Instant;

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
        let laps = self.laps.iter().filter(|it| it.0 == name);
        laps.map(|it| it.1).sum()
    }

    pub(crate) fn total(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }
}
