//! The first questions of a reader, a sentence each: does it learn, is the gate closed, how fast is it.

use hapo_run::{ResponseShares, duration, metric_of_set, nothing_learned};
use hapo_verify::{Extraction, Grader};
use serde::Serialize;

use crate::figures::TIME_PARTS;
use crate::folder::{Run, State};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Fact {
    pub(crate) label: &'static str,
    pub(crate) text: String,
}

pub(crate) fn facts(run: &Run) -> Vec<Fact> {
    let mut all = Vec::new();
    let mut add = |label, text: Option<String>| all.extend(text.map(|text| Fact { label, text }));
    add("steps", Some(steps(run)));
    add("learned", nothing_learned(&run.columns).map(|why| format!("nothing: {why}")));
    for it in run.changes() {
        add(it.name, Some(it.text()));
    }
    add("answers", answers(run));
    add("by set", by_set(run));
    add("gate", gate(run));
    add("length", change(run, "response_length/mean", "tokens"));
    add("time", time(run));
    add("model", model(run));
    add("build", run.build.clone());
    all
}

/// The base model: its folder or name, or the shape of a new one.
fn model(run: &Run) -> Option<String> {
    if let Some(path) = run.text("model.path") {
        return Some(path.to_owned());
    }
    let layers = run.text("model.init.layers")?;
    let hidden = run.text("model.init.hidden").map(|it| format!(", hidden size {it}"));
    Some(format!("new, {layers} layers{}", hidden.unwrap_or_default()))
}

fn steps(run: &Run) -> String {
    let logged = run.columns.steps().last().copied().unwrap_or(0.0);
    let of = run.planned().map_or_else(String::new, |it| format!(" of {it}"));
    let state = match run.state {
        State::Finished => "finished",
        State::Running => "running",
        State::Unfinished => "not finished, no process trains here",
    };
    let early = run.ended_early.as_ref().map(|because| format!("ended early: {because}"));
    format!("{logged:.0}{of}, {}", early.as_deref().unwrap_or(state))
}

fn change(run: &Run, name: &str, what: &str) -> Option<String> {
    let ([first, last], n) = run.columns.ends(name)?;
    let over = match n {
        1 => "first and last step".to_owned(),
        n => format!("means of the first and last {n} steps"),
    };
    Some(format!("{} → {} ({what}; {over})", short(first), short(last)))
}

/// How the responses of the last tenth of the steps end, and the key to change where that keeps the reward flat.
fn answers(run: &Run) -> Option<String> {
    let limit = run.text("sampling.max_new_tokens").and_then(|it| it.parse().ok()).unwrap_or(0);
    let rule = run.text("data.grader").zip(run.text("data.extraction"));
    let seeks = rule.is_some_and(|(grader, extraction)| seeks_answers(grader, extraction));
    let shares = ResponseShares::of_last_steps(&run.columns, limit, seeks)?;
    let percent = |it: f64| format!("{:.0} %", it * 100.0);
    let mut marks = String::new();
    if shares.seeks_answers {
        let [boxed, announced] = [shares.boxed, shares.announced].map(percent);
        marks = format!("boxed {boxed}, announced {announced}, ");
    }
    let (cut, equal) = (percent(shares.truncated), percent(shares.without_signal));
    let said = format!("{marks}cut off {cut}, equal rewards in {equal} of the groups");
    Some(shares.causes().first().map_or(said.clone(), |it| format!("{said}; {}", it.text)))
}

/// True if an answer counts only in a box or behind words that announce it.
pub fn seeks_answers(grader: &str, extraction: &str) -> bool {
    let marks = [Extraction::Boxed, Extraction::Announced].map(Extraction::name);
    hapo_verify::grader(grader).is_ok_and(Grader::reads_answers) && marks.contains(&extraction)
}

/// The first and the last evaluation of each set, where there are several.
fn by_set(run: &Run) -> Option<String> {
    let prefix = metric_of_set("eval/avg@k", "");
    let of_set = |name: &str| {
        let set = name.strip_prefix(&prefix)?;
        let made = run.columns.finite(name);
        Some(format!("{set} {} → {}", short(*made.first()?), short(*made.last()?)))
    };
    let sets: Vec<String> = run.columns.names().iter().filter_map(|it| of_set(it)).collect();
    (!sets.is_empty()).then(|| sets.join("; "))
}

pub(crate) fn short(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        "0".to_owned()
    } else if !(1e-3..1e6).contains(&size) {
        format!("{value:.2e}")
    } else {
        let digits = (2 - size.log10().floor() as i32).max(0) as usize;
        format!("{value:.digits$}")
    }
}

fn gate(run: &Run) -> Option<String> {
    let Some(open) = run.columns.get("gate/success_limit") else { return last_opened(run) };
    let open = *open.last()?;
    let at = run.columns.steps().last().copied().unwrap_or(0.0);
    let beta = run.columns.get("gate/beta").and_then(|it| it.last());
    let beta = beta.map_or_else(String::new, |it| format!("; β {} at the last step", short(*it)));
    let extinct = run.gate.as_ref().and_then(|it| it.extinct_at_step).map(|it| it.0);
    let helps = run.gate.as_ref().zip(run.planned());
    let helps =
        helps.map_or_else(String::new, |(gate, steps)| format!("; {}", gate.teacher_helps(steps)));
    Some(match (&run.gate, extinct) {
        (None, _) if open < 0.0 => "no teacher enters".to_owned(),
        (_, Some(step)) if at >= step as f64 => format!("closed for good since step {step}{helps}"),
        (_, Some(step)) if open >= 0.0 => {
            format!(
                "open for groups with at most {open:.0} correct; closes at step {step}{helps}{beta}"
            )
        }
        (_, Some(step)) => format!("closes for good at step {step}{helps}{beta}"),
        (_, None) if open < 0.0 => "closed".to_owned(),
        (_, None) => {
            format!("open for groups with at most {open:.0} correct, and never closes{beta}")
        }
    })
}

/// When a gate that is no table last opened.
fn last_opened(run: &Run) -> Option<String> {
    let steps = run.columns.get("gate/open")?.iter().zip(run.columns.steps());
    let opened: Vec<_> = steps.filter(|it| *it.0 > 0.0).collect();
    let name = run.text("hapo.gate")?;
    let Some((_, last)) = opened.last() else {
        return Some(format!("`{name}` has opened for no group"));
    };
    let groups: f64 = opened.iter().map(|it| it.0).sum();
    Some(format!("`{name}` has opened for {groups:.0} groups, the last time in step {last:.0}"))
}

fn time(run: &Run) -> Option<String> {
    let sum = |name: &str| run.columns.finite(name).iter().sum::<f64>();
    let (total, n) = (sum("time/step"), run.columns.finite("time/step").len());
    let shares = TIME_PARTS.iter().filter(|it| run.columns.get(it.0).is_some());
    let shares =
        shares.map(|(metric, label)| format!(", {label} {:.0} %", 100.0 * sum(metric) / total));
    (n > 0).then(|| {
        let each = duration(total / n as f64);
        format!("{} in all, {each} a step{}", duration(total), shares.collect::<String>())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let all = [0.0, 0.12345, 1.5, 12.345, 1234.5, 1.2e-5, -0.5, 2.5e7].map(short);
        assert_eq!(all, ["0", "0.123", "1.50", "12.3", "1234", "1.20e-5", "-0.500", "2.50e7"]);
    }
}
