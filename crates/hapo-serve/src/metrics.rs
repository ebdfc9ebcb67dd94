//! The server's counters, in the text format of Prometheus.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::{collections::BTreeMap, fmt::Write, time::Instant};

use crate::fields::Endpoint;

#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) running: AtomicUsize,
    pub(crate) waiting: AtomicUsize,
    pub(crate) is_dead: AtomicBool,
    pub(crate) prompt_tokens: AtomicU64,
    pub(crate) completion_tokens: AtomicU64,
    /// Answered requests, by endpoint and status.
    answered: Mutex<BTreeMap<(&'static str, u16), u64>>,
    /// Times from the head of a request to the end of its answer, by endpoint.
    times: Mutex<BTreeMap<&'static str, Times>>,
}

const BOUNDS: [f64; 12] = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];

#[derive(Clone, Debug, Default)]
struct Times {
    /// How many were at most as long as each bound.
    within: [u64; BOUNDS.len()],
    count: u64,
    sum: f64,
}

/// The status of a request whose client was gone before the answer was whole.
const CLIENT_GONE: u16 = 499;

/// One request while it is answered; counted when it is dropped.
#[derive(Debug)]
pub(crate) struct Counted {
    stats: Arc<Stats>,
    endpoint: Endpoint,
    begun: Instant,
    status: AtomicU16,
}

impl Counted {
    pub(crate) fn begin(stats: &Arc<Stats>, endpoint: Endpoint) -> Self {
        let (begun, status) = (Instant::now(), AtomicU16::new(CLIENT_GONE));
        Self { stats: stats.clone(), endpoint, begun, status }
    }

    pub(crate) fn ended_with(&self, status: axum::http::StatusCode) {
        self.status.store(status.as_u16(), Ordering::Relaxed);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let (status, time) = (self.status.load(Ordering::Relaxed), self.begun.elapsed());
        self.stats.answered(self.endpoint.name(), status, time.as_secs_f64());
    }
}

impl Stats {
    fn answered(&self, endpoint: &'static str, status: u16, seconds: f64) {
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        *answered.entry((endpoint, status)).or_default() += 1;
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let times = times.entry(endpoint).or_default();
        times.count += 1;
        times.sum += seconds;
        for (bound, within) in BOUNDS.iter().zip(&mut times.within) {
            *within += u64::from(seconds <= *bound);
        }
    }

    pub(crate) fn prometheus(&self) -> String {
        let mut text = String::new();
        head(&mut text, "hapo_requests_total", "counter", "Requests answered.");
        let answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        for ((endpoint, status), n) in answered.iter() {
            let labels = format!("endpoint=\"{endpoint}\",status=\"{status}\"");
            let _ = writeln!(text, "hapo_requests_total{{{labels}}} {n}");
        }
        let size = |it: &AtomicUsize| it.load(Ordering::Relaxed) as u64;
        let count = |it: &AtomicU64| it.load(Ordering::Relaxed);
        let (prompts, completions) = (count(&self.prompt_tokens), count(&self.completion_tokens));
        let (running, waiting) = (size(&self.running), size(&self.waiting));
        let up = u64::from(!self.is_dead.load(Ordering::Relaxed));
        for (name, kind, help, value) in [
            ("prompt_tokens_total", "counter", "Tokens of the prompts of requests.", prompts),
            ("completion_tokens_total", "counter", "Tokens generated.", completions),
            ("sequences_running", "gauge", "Sequences that get a token per step.", running),
            ("sequences_waiting", "gauge", "Sequences that wait for a slot.", waiting),
            ("up", "gauge", "Whether the engine works.", up),
        ] {
            let name = format!("hapo_{name}");
            head(&mut text, &name, kind, help);
            let _ = writeln!(text, "{name} {value}");
        }
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let name = "hapo_request_seconds";
        let help = "Time from the head of a request to the end of its answer.";
        head(&mut text, name, "histogram", help);
        for (endpoint, it) in times.iter() {
            let label = format!("endpoint=\"{endpoint}\"");
            for (bound, within) in BOUNDS.iter().zip(it.within) {
                let _ = writeln!(text, "{name}_bucket{{{label},le=\"{bound}\"}} {within}");
            }
            let _ = writeln!(text, "{name}_bucket{{{label},le=\"+Inf\"}} {}", it.count);
            let _ = writeln!(text, "{name}_sum{{{label}}} {}", it.sum);
            let _ = writeln!(text, "{name}_count{{{label}}} {}", it.count);
        }
        text
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}
