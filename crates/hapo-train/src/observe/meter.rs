//! How far a step is, for somebody who waits. The engines tell it between two pieces of their work; the price is that
//! each holds a handle to whoever listens.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where engines tell how far they are; by default nobody listens.
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
