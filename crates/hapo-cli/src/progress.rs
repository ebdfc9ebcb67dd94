//! Progress of long work: a bar on a terminal, plain lines otherwise, JSON with `--log json`.

use std::cell::Cell;
use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use hapo_run::duration;
use hapo_train::{Meter, Metrics, Preflight};
use indicatif::{ProgressBar, ProgressState, ProgressStyle};

/// True if every line on standard error is JSON.
static JSON: AtomicBool = AtomicBool::new(false);

/// From here on everything that is said is JSON.
pub(crate) fn speak_json() {
    JSON.store(true, Ordering::Relaxed);
}

pub(crate) fn speaks_json() -> bool {
    JSON.load(Ordering::Relaxed)
}

/// A line on standard error, wherever there is no progress to write above.
pub(crate) fn tell(text: &str) {
    if speaks_json() {
        errln!("{}", serde_json::json!({ "event": "message", "text": text.trim_start() }));
    } else {
        errln!("{text}");
    }
}

/// How progress and messages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Log {
    /// A bar on a terminal, lines otherwise
    Text,
    /// A JSON object a line: `{"event": "step" | "progress" | "preflight" | "message" | "end" | "error", …}`
    Json,
}

pub(crate) struct StepProgress {
    log: Log,
    bar: Option<ProgressBar>,
    label: String,
    total: u64,
    started: Instant,
    every: u64,
    /// When the first step of this call began, and the steps done since.
    begun: Cell<Option<(Instant, u64)>>,
    /// When the last step is expected to end.
    end: Arc<Mutex<Option<Instant>>>,
    inside: Arc<Mutex<Inside>>,
}

/// The step at hand.
#[derive(Debug)]
struct Inside {
    step: u64,
    /// The numbers of the last one.
    text: String,
    said: Instant,
}

impl StepProgress {
    pub(crate) fn new(label: &str, total: u64, quiet: bool) -> Self {
        let end = Arc::default();
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| step_bar(label, total, &end));
        let every = if quiet { u64::MAX } else { (total / 10).max(1) };
        let started = Instant::now();
        Self {
            log: Log::Text,
            bar,
            label: label.to_owned(),
            total,
            started,
            every,
            begun: Cell::new(None),
            end,
            inside: Arc::new(Mutex::new(Inside { step: 1, text: String::new(), said: started })),
        }
    }

    /// Every step and message as a JSON object on a line of its own.
    pub(crate) fn json(label: &str, total: u64) -> Self {
        Self { log: Log::Json, ..Self::new(label, total, true) }
    }

    /// The first step begins: what came before it says nothing of how long the others take.
    pub(crate) fn steps_begin(&self) {
        self.begun.set(Some((Instant::now(), 0)));
    }

    /// Seconds until the last step, by the mean of those done now.
    fn eta(&self, step: u64) -> f64 {
        let (begun, done) = self.begun.get().unwrap_or((self.started, 0));
        self.begun.set(Some((begun, done + 1)));
        let mean = begun.elapsed().as_secs_f64() / (done + 1) as f64;
        mean * self.total.saturating_sub(step) as f64
    }

    pub(crate) fn step(&self, step: u64, metrics: &Metrics) {
        let eta = self.eta(step);
        let left = Duration::try_from_secs_f64(eta).unwrap_or_default();
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now().checked_add(left);
        let text = summary(metrics);
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        *inside = Inside { step: step + 1, text: text.clone(), said: Instant::now() };
        drop(inside);
        if self.log == Log::Json {
            let (run, steps) = (serde_json::json!(self.label), self.total);
            let seconds = self.started.elapsed().as_secs_f64();
            errln!(
                "{{\"event\":\"step\",\"run\":{run},\"steps\":{steps},\"seconds\":{seconds:.1},\"eta_seconds\":{eta:.1},\"metrics\":{}}}",
                metrics.to_json()
            );
            return;
        }
        match &self.bar {
            Some(bar) => {
                bar.set_position(step);
                bar.set_message(text);
            }
            None if self.every != u64::MAX
                && (step.is_multiple_of(self.every) || step == self.total) =>
            {
                errln!(
                    "{} {step}/{} {text} {}, eta {}",
                    self.label,
                    self.total,
                    duration(self.started.elapsed().as_secs_f64()),
                    duration(eta)
                );
            }
            None => {}
        }
    }

    /// Shows how far the step at hand is: in the bar at once, in lines where it takes long.
    pub(crate) fn meter(&self) -> Meter {
        if self.log == Log::Text && self.every == u64::MAX {
            return Meter::default();
        }
        let pause = Duration::from_secs(if self.log == Log::Json { 10 } else { 30 });
        let (log, bar, inside) = (self.log, self.bar.clone(), self.inside.clone());
        let (label, total) = (self.label.clone(), self.total);
        Meter::new(move |doing, share| {
            let mut inside = inside.lock().unwrap_or_else(PoisonError::into_inner);
            let percent = share * 100.0;
            if let Some(bar) = &bar {
                bar.set_message(format!("{doing} {percent:.0} %  {}", inside.text));
                return;
            }
            if inside.said.elapsed() < pause {
                return;
            }
            inside.said = Instant::now();
            let step = inside.step.min(total);
            match log {
                Log::Json => errln!(
                    "{}",
                    serde_json::json!({
                        "event": "progress", "run": label, "step": step, "steps": total, "doing": doing,
                        "share": share,
                    })
                ),
                Log::Text => errln!("{label} step {step} of {total}: {doing} {percent:.0} %"),
            }
        })
    }

    /// A line about a default that was chosen, unless nothing is to be shown.
    pub(crate) fn note(&self, text: &str) {
        if self.log == Log::Json || self.every != u64::MAX {
            self.line(text);
        }
    }

    pub(crate) fn line(&self, text: &str) {
        match &self.bar {
            _ if self.log == Log::Json => {
                let line =
                    serde_json::json!({ "event": "message", "run": self.label, "text": text });
                errln!("{line}");
            }
            Some(bar) => bar.println(text),
            None => errln!("{text}"),
        }
    }

    /// The preflight's numbers: some lines, or one object.
    pub(crate) fn preflight(&self, found: &Preflight) {
        if self.log == Log::Json {
            let found = serde_json::json!({
                "event": "preflight", "run": self.label, "preflight": found,
            });
            errln!("{found}");
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

/// A bar of steps on standard error, whose clock moves inside a step too.
fn step_bar(label: &str, total: u64, end: &Arc<Mutex<Option<Instant>>>) -> ProgressBar {
    let end = end.clone();
    let left = move |_: &ProgressState, to: &mut dyn Write| {
        let end = *end.lock().unwrap_or_else(PoisonError::into_inner);
        // Nothing is known before a step is done.
        let _ = match end {
            None => Ok(()),
            Some(it) => {
                let left = it.saturating_duration_since(Instant::now());
                write!(to, " eta {}", duration(left.as_secs_f64()))
            }
        };
    };
    let bar = bar(label, total, |it| it.with_key("left", left), "{took}{left}");
    bar.enable_steady_tick(Duration::from_secs(1));
    bar
}

fn bar(
    label: &str,
    total: u64,
    with: impl FnOnce(ProgressStyle) -> ProgressStyle,
    clock: &str,
) -> ProgressBar {
    let bar = ProgressBar::new(total);
    // The message takes the rest of the line and is cut there.
    let template = format!("{{prefix:>12}} {{bar:20}} {{pos}}/{{len}} {clock} {{wide_msg}}");
    let took = |state: &ProgressState, to: &mut dyn Write| {
        let _ = write!(to, "{}", duration(state.elapsed().as_secs_f64()));
    };
    let style = ProgressStyle::with_template(&template)
        .expect("the template is a constant")
        .progress_chars("━╸ ");
    bar.set_style(with(style.with_key("took", took)));
    bar.set_prefix(label.to_owned());
    bar
}

pub(crate) struct CountProgress {
    bar: Option<ProgressBar>,
    label: String,
    unit: &'static str,
    total: u64,
    started: Instant,
}

impl CountProgress {
    pub(crate) fn new(label: &str, total: u64, unit: &'static str) -> Self {
        let left = |state: &ProgressState, to: &mut dyn Write| {
            let _ = write!(to, "eta {}", duration(state.eta().as_secs_f64()));
        };
        let bar = std::io::stderr()
            .is_terminal()
            .then(|| bar(label, total, |it| it.with_key("left", left), "{took} {left}"));
        Self { bar, label: label.to_owned(), unit, total, started: Instant::now() }
    }

    pub(crate) fn at(&self, done: u64, text: &str) {
        let tenth = (self.total / 10).max(1);
        match &self.bar {
            Some(bar) => {
                bar.set_position(done);
                bar.set_message(text.to_owned());
            }
            None if done.is_multiple_of(tenth) || done == self.total => {
                let seconds = self.started.elapsed().as_secs_f64();
                let left = seconds / done.max(1) as f64 * self.total.saturating_sub(done) as f64;
                errln!(
                    "{} {done}/{} {}, {text}, {}, eta {}",
                    self.label,
                    self.total,
                    self.unit,
                    duration(seconds),
                    duration(left)
                );
            }
            None => {}
        }
    }

    /// Shows the share of what is done in a bar, whose pieces are hundredths; without a terminal nothing.
    pub(crate) fn meter(&self) -> Meter {
        let bar = self.bar.clone();
        Meter::new(move |doing, share| {
            if let Some(bar) = &bar {
                bar.set_message(doing);
                bar.set_position((share * 100.0) as u64);
            }
        })
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
    let teacher = metrics.get("gate/beta").filter(|it| *it > 0.0);
    let teacher = teacher
        .map_or_else(String::new, |it| format!(" teacher in {:.0} % of the groups", it * 100.0));
    let text = if metrics.get("reward/policy_only").is_some() {
        format!(
            "reward {:.3}{teacher} {:.1}k tok/s",
            get("reward/policy_only"),
            get("tokens_per_second/sample") / 1e3,
        )
    } else {
        format!("loss {:.4} {:.1}k tok/s", get("loss"), get("tokens_per_second/train") / 1e3)
    };
    text + &evaluated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_says_in_words_how_often_the_teacher_helped() {
        let of = |beta: f64| {
            let mut metrics = Metrics::default();
            metrics.set("reward/policy_only", 0.25);
            metrics.set("tokens_per_second/sample", 4e3);
            metrics.set("gate/beta", beta);
            summary(&metrics)
        };
        assert_eq!(of(0.0), "reward 0.250 4.0k tok/s");
        assert_eq!(of(0.75), "reward 0.250 teacher in 75 % of the groups 4.0k tok/s");
    }
}
