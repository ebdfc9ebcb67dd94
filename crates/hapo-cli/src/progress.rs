//! Progress of long work: a bar on a terminal, plain lines otherwise, JSON where it is asked for.

use std::cell::Cell;
use std::io::IsTerminal;
use std::time::Instant;

use hapo_train::{Metrics, Preflight};
use indicatif::{ProgressBar, ProgressStyle};

/// How progress and messages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Log {
    /// A bar on a terminal, lines otherwise
    Text,
    /// A JSON object a line: `{"event": "step" | "preflight" | "message" | "watch", …}`
    Json,
}

/// Shows a training run as it goes.
pub(crate) struct StepProgress {
    log: Log,
    bar: Option<ProgressBar>,
    /// The first step that was shown: an estimate counts from it.
    first: Cell<Option<u64>>,
    label: String,
    total: u64,
    started: Instant,
    every: u64,
}

impl StepProgress {
    pub(crate) fn new(label: &str, total: u64, quiet: bool) -> Self {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| bar(label, total));
        let every = if quiet { u64::MAX } else { (total / 10).max(1) };
        Self {
            log: Log::Text,
            bar,
            first: Cell::new(None),
            label: label.to_owned(),
            total,
            started: Instant::now(),
            every,
        }
    }

    /// Every step and message as a JSON object on a line of its own.
    pub(crate) fn json(label: &str, total: u64) -> Self {
        Self { log: Log::Json, ..Self::new(label, total, true) }
    }

    /// Seconds until the last step, by the mean of those done now.
    fn eta(&self, step: u64) -> f64 {
        let first = self.first.get().unwrap_or(step);
        self.first.set(Some(first));
        let mean = self.started.elapsed().as_secs_f64() / (step + 1 - first) as f64;
        mean * self.total.saturating_sub(step) as f64
    }

    pub(crate) fn step(&self, step: u64, metrics: &Metrics) {
        let eta = self.eta(step);
        if self.log == Log::Json {
            let (run, steps) = (serde_json::json!(self.label), self.total);
            eprintln!(
                "{{\"event\":\"step\",\"run\":{run},\"steps\":{steps},\"eta_seconds\":{eta:.1},\"metrics\":{}}}",
                metrics.to_json()
            );
            return;
        }
        let text = summary(metrics);
        match &self.bar {
            Some(bar) => {
                bar.set_position(step);
                bar.set_message(text);
            }
            None if self.every != u64::MAX
                && (step.is_multiple_of(self.every) || step == self.total) =>
            {
                eprintln!(
                    "{} {step}/{} {text} {:.0} s, eta {eta:.0} s",
                    self.label,
                    self.total,
                    self.started.elapsed().as_secs_f64()
                );
            }
            None => {}
        }
    }

    /// What was decided for the reader: a line, unless nothing is to be shown.
    pub(crate) fn note(&self, text: &str) {
        if self.log == Log::Json || self.every != u64::MAX {
            self.line(text);
        }
    }

    /// A line above the bar.
    pub(crate) fn line(&self, text: &str) {
        match &self.bar {
            _ if self.log == Log::Json => {
                let line =
                    serde_json::json!({ "event": "message", "run": self.label, "text": text });
                eprintln!("{line}");
            }
            Some(bar) => bar.println(text),
            None => eprintln!("{text}"),
        }
    }

    /// What was found before the first step: some lines, or one object.
    pub(crate) fn preflight(&self, found: &Preflight) {
        if self.log == Log::Json {
            let found = serde_json::json!({
                "event": "preflight", "run": self.label, "preflight": found,
            });
            eprintln!("{found}");
            return;
        }
        for it in found.lines() {
            self.line(&it);
        }
    }

    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A bar on standard error.
fn bar(label: &str, total: u64) -> ProgressBar {
    let bar = ProgressBar::new(total);
    let style = ProgressStyle::with_template("{prefix:>12} {bar:28} {pos}/{len} {msg} eta {eta}")
        .expect("the template is a constant")
        .progress_chars("━╸ ");
    bar.set_style(style);
    bar.set_prefix(label.to_owned());
    bar
}

/// Shows how many of many pieces of work are done.
pub(crate) struct CountProgress {
    bar: Option<ProgressBar>,
    label: String,
    unit: &'static str,
    total: u64,
    started: Instant,
}

impl CountProgress {
    pub(crate) fn new(label: &str, total: u64, unit: &'static str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| bar(label, total));
        Self { bar, label: label.to_owned(), unit, total, started: Instant::now() }
    }

    /// `done` pieces are done.
    pub(crate) fn at(&self, done: u64, text: &str) {
        let tenth = (self.total / 10).max(1);
        match &self.bar {
            Some(bar) => {
                bar.set_position(done);
                bar.set_message(text.to_owned());
            }
            None if done.is_multiple_of(tenth) || done == self.total => {
                let seconds = self.started.elapsed().as_secs_f64();
                eprintln!(
                    "{} {done}/{} {}, {text}, {seconds:.0} s",
                    self.label, self.total, self.unit
                );
            }
            None => {}
        }
    }

    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn summary(metrics: &Metrics) -> String {
    let get = |name: &str| metrics.get(name).unwrap_or(f64::NAN);
    let evaluated =
        metrics.get("eval/avg@k").map_or_else(String::new, |it| format!(" eval {it:.3}"));
    let text = if metrics.get("reward/policy_only").is_some() {
        format!(
            "reward {:.3} β {:.2} γ {:.3} {:.1}k tok/s",
            get("reward/policy_only"),
            get("gate/beta"),
            get("gate/threshold"),
            get("tokens_per_second/sample") / 1e3,
        )
    } else {
        format!("loss {:.4} {:.1}k tok/s", get("loss"), get("tokens_per_second/train") / 1e3)
    };
    text + &evaluated
}
