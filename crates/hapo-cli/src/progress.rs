//! Progress of long work: a bar on a terminal, plain lines otherwise, JSON with `--log json`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt::Write, io::IsTerminal};

pub(crate) use hapo_run::duration;
use hapo_train::{Meter, Metrics, Preflight};
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use serde_json::json;

/// True if every line on standard error is JSON.
static JSON: AtomicBool = AtomicBool::new(false);

pub(crate) fn speak_json() {
    JSON.store(true, Ordering::Relaxed);
}

pub(crate) fn speaks_json() -> bool {
    JSON.load(Ordering::Relaxed)
}

/// A line on standard error, wherever there is no progress to write above.
pub(crate) fn tell(text: &str) {
    if speaks_json() {
        errln!("{}", json!({ "event": "message", "text": text.trim_start() }));
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
    /// None where nothing is shown but warnings.
    log: Option<Log>,
    bar: Option<ProgressBar>,
    label: String,
    total: u64,
    started: Instant,
    inside: Arc<Mutex<Inside>>,
}

struct Inside {
    step: u64,
    /// The numbers of the last one.
    text: String,
    said: Instant,
    /// When the first step of this call began, and the steps done since.
    begun: (Instant, u64),
    /// When the last step is expected to end; nothing is known before one is done.
    end: Option<Instant>,
}

fn locked(inside: &Mutex<Inside>) -> MutexGuard<'_, Inside> {
    inside.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StepProgress {
    pub(crate) fn new(label: &str, total: u64, log: Option<Log>) -> Self {
        let started = Instant::now();
        let inside =
            Inside { step: 1, text: String::new(), said: started, begun: (started, 0), end: None };
        let inside = Arc::new(Mutex::new(inside));
        let of_bar = inside.clone();
        let left = move |_: &ProgressState| {
            locked(&of_bar).end.map(|it| it.saturating_duration_since(Instant::now()))
        };
        let bar = if log == Some(Log::Text) { bar(label, total, left) } else { None };
        if let Some(it) = &bar {
            // The clock moves inside a step too.
            it.enable_steady_tick(Duration::from_secs(1));
        }
        Self { log, bar, label: label.to_owned(), total, started, inside }
    }

    /// The first step begins: what came before it says nothing of how long the others take.
    pub(crate) fn steps_begin(&self) {
        locked(&self.inside).begun = (Instant::now(), 0);
    }

    pub(crate) fn step(&self, step: u64, metrics: &Metrics) {
        let (text, now) = (summary(metrics), Instant::now());
        let mut inside = locked(&self.inside);
        inside.begun.1 += 1;
        let mean = inside.begun.0.elapsed().as_secs_f64() / inside.begun.1 as f64;
        let eta = mean * self.total.saturating_sub(step) as f64;
        let left = Duration::try_from_secs_f64(eta).unwrap_or_default();
        let (begun, end) = (inside.begun, now.checked_add(left));
        *inside = Inside { step: step + 1, text: text.clone(), said: now, begun, end };
        drop(inside);
        let seconds = self.started.elapsed().as_secs_f64();
        match (&self.bar, self.log) {
            (_, Some(Log::Json)) => {
                let (run, steps) = (json!(self.label), self.total);
                errln!(
                    "{{\"event\":\"step\",\"run\":{run},\"steps\":{steps},\"seconds\":{seconds:.1},\"eta_seconds\":{eta:.1},\"metrics\":{}}}",
                    metrics.to_json()
                );
            }
            (Some(bar), _) => {
                bar.set_position(step);
                bar.set_message(text);
            }
            (None, Some(Log::Text)) if is_told(step, self.total) => {
                let (label, total) = (&self.label, self.total);
                let (took, left) = (duration(seconds), duration(eta));
                errln!("{label} {step}/{total} {text} {took}, eta {left}");
            }
            _ => {}
        }
    }

    /// Shows how far the step at hand is: in the bar at once, in lines where it takes long.
    pub(crate) fn meter(&self) -> Meter {
        let Some(log) = self.log else { return Meter::default() };
        let pause = Duration::from_secs(if log == Log::Json { 10 } else { 30 });
        let (bar, inside) = (self.bar.clone(), self.inside.clone());
        let (label, total) = (self.label.clone(), self.total);
        Meter::new(move |doing, share| {
            let mut inside = locked(&inside);
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
            if log == Log::Text {
                return errln!("{label} step {step} of {total}: {doing} {percent:.0} %");
            }
            let json = serde_json::json!({
                "event": "progress", "run": label, "step": step, "steps": total, "doing": doing, "share": share,
            });
            errln!("{json}");
        })
    }

    /// A line about a default that was chosen, unless nothing is to be shown.
    pub(crate) fn note(&self, text: &str) {
        if self.log.is_some() {
            self.line(text);
        }
    }

    pub(crate) fn line(&self, text: &str) {
        match &self.bar {
            _ if self.log == Some(Log::Json) => {
                errln!("{}", json!({ "event": "message", "run": self.label, "text": text }));
            }
            Some(bar) => bar.println(text),
            None => errln!("{text}"),
        }
    }

    /// The preflight's numbers: some lines, or one object.
    pub(crate) fn preflight(&self, found: &Preflight) {
        if self.log == Some(Log::Json) {
            errln!("{}", json!({ "event": "preflight", "run": self.label, "preflight": found }));
            return;
        }
        found.lines().iter().for_each(|it| self.line(it));
    }
}

impl Drop for StepProgress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// True for ten of all, and the last: without a terminal these are told.
fn is_told(done: u64, total: u64) -> bool {
    done.is_multiple_of((total / 10).max(1)) || done == total
}

/// A bar on standard error where that is a terminal, with the time taken and, where known, left.
fn bar(
    label: &str,
    total: u64,
    left: impl Fn(&ProgressState) -> Option<Duration> + Clone + Send + Sync + 'static,
) -> Option<ProgressBar> {
    if !std::io::stderr().is_terminal() {
        return None;
    }
    let clock = move |state: &ProgressState, to: &mut dyn Write| {
        let _ = write!(to, "{}", duration(state.elapsed().as_secs_f64()));
        if let Some(it) = left(state) {
            let _ = write!(to, " eta {}", duration(it.as_secs_f64()));
        }
    };
    // The message takes the rest of the line and is cut there.
    let style =
        ProgressStyle::with_template("{prefix:>12} {bar:20} {pos}/{len} {clock} {wide_msg}");
    let style = style.expect("the template is a constant").progress_chars("━╸ ");
    let bar = ProgressBar::new(total).with_style(style.with_key("clock", clock));
    // Shows it at once.
    bar.set_prefix(label.to_owned());
    Some(bar)
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
        let bar = bar(label, total, |state| Some(state.eta()));
        Self { bar, label: label.to_owned(), unit, total, started: Instant::now() }
    }

    pub(crate) fn at(&self, done: u64, text: &str) {
        match &self.bar {
            Some(bar) => {
                bar.set_position(done);
                bar.set_message(text.to_owned());
            }
            None if is_told(done, self.total) => {
                let Self { label, unit, total, .. } = self;
                let seconds = self.started.elapsed().as_secs_f64();
                let left = seconds / done.max(1) as f64 * total.saturating_sub(done) as f64;
                let (took, left) = (duration(seconds), duration(left));
                errln!("{label} {done}/{total} {unit}, {text}, {took}, eta {left}");
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
    let evaluated = metrics.get("eval/avg@k").map(|it| format!(" eval {it:.3}"));
    let teacher = metrics.get("gate/beta").filter(|it| *it > 0.0);
    let teacher = teacher.map(|it| format!(" teacher in {:.0} % of the groups", it * 100.0));
    let text = if let Some(reward) = metrics.get("reward/policy_only") {
        let (teacher, speed) = (teacher.unwrap_or_default(), get("tokens_per_second/sample") / 1e3);
        format!("reward {reward:.3}{teacher} {speed:.1}k tok/s")
    } else {
        format!("loss {:.4} {:.1}k tok/s", get("loss"), get("tokens_per_second/train") / 1e3)
    };
    text + &evaluated.unwrap_or_default()
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
