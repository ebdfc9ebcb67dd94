//! What a run measures, its time and progress too, and what that decides: alarms, early stopping, the best checkpoint.

pub(crate) mod best;
pub(crate) mod guard;
pub mod memory;
pub(crate) mod stats;
pub(crate) mod tensorboard;

use std::sync::{Arc, atomic::AtomicU64, atomic::Ordering};
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

/// Where engines tell, between two pieces of their work, how far they are; by default nobody listens. The price is that
/// each holds a handle to whoever does.
#[derive(Clone, Default)]
pub struct Meter(Option<Arc<Inner>>);

struct Inner {
    tell: Box<dyn Fn(&'static str, f64) + Send + Sync>,
    /// The part at hand and the number of parts.
    part: AtomicU64,
    parts: AtomicU64,
}

impl Meter {
    /// Hands the activity (`sampling`, `training`) and the share of it that is done, from 0 to 1, to `tell`.
    pub fn new(tell: impl Fn(&'static str, f64) + Send + Sync + 'static) -> Self {
        let (part, parts) = (AtomicU64::new(0), AtomicU64::new(1));
        Self(Some(Arc::new(Inner { tell: Box::new(tell), part, parts })))
    }

    /// Begins a part of several that look alike to the engine; `index` counts from 0.
    pub fn part(&self, index: u64, parts: u64) {
        if let Some(it) = &self.0 {
            it.part.store(index, Ordering::Relaxed);
            it.parts.store(parts.max(1), Ordering::Relaxed);
        }
    }

    /// Reports the share of the part at hand that is done.
    pub fn tell(&self, doing: &'static str, share: f64) {
        if let Some(it) = &self.0 {
            let part = it.part.load(Ordering::Relaxed) as f64;
            let parts = it.parts.load(Ordering::Relaxed) as f64;
            (it.tell)(doing, ((part + share.clamp(0.0, 1.0)) / parts).min(1.0));
        }
    }
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Meter(listening)" } else { "Meter" })
    }
}
