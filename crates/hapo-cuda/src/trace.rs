//! Times by kernel, product and copy.
//!
//! Price: with it every operation is waited for, so that a step takes longer than without: launches do not overlap.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Set to 1 to have a table of times.
pub(crate) const VARIABLE: &str = "HAPO_CUDA_TRACE";

/// How often, and how long.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    count: u64,
    time: Duration,
}

/// The times since it was made.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    times: Mutex<BTreeMap<String, Times>>,
}

impl Trace {
    /// A trace, where the environment asks for one.
    pub(crate) fn asked() -> Option<Self> {
        let is_on = std::env::var_os(VARIABLE).is_some_and(|it| !it.is_empty() && it != "0");
        is_on.then(Self::default)
    }

    pub(crate) fn add(&self, name: String, since: Instant) {
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let it = times.entry(name).or_default();
        it.count += 1;
        it.time += since.elapsed();
    }

    /// One line for each name, the longest time first.
    pub(crate) fn table(&self) -> String {
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rows: Vec<(&String, &Times)> = times.iter().collect();
        rows.sort_by_key(|it| std::cmp::Reverse(it.1.time));
        let all: Duration = times.values().map(|it| it.time).sum();
        let mut text = format!("{:>10} {:>8} {:>10}  operation\n", "ms", "count", "us each");
        for (name, it) in rows {
            let ms = it.time.as_secs_f64() * 1e3;
            let each = ms * 1e3 / it.count as f64;
            let _ = writeln!(text, "{ms:>10.3} {:>8} {each:>10.1}  {name}", it.count);
        }
        let _ =
            writeln!(text, "{:>10.3} in all, each operation waited for", all.as_secs_f64() * 1e3);
        text
    }
}
