//! The paper's figures 2 to 5 from the runs' looks and curves.

use std::collections::BTreeMap;

use hapo_core::operator;

use crate::chart::{self, Line, Panel, Point};
use crate::family::paper::{HOSTS, STABILITY, arm_name};
use crate::family::scores::{Scores, mean};
use crate::family::tables::Done;

const COLOURS: [&str; 4] = ["#aa3377", "#4477aa", "#228833", "#999999"];
/// d of the operators, as in the paper.
const D: f64 = 0.1;

/// The figures with their files' names; without those that no run is there for.
pub(super) fn all(done: &Done) -> Vec<(&'static str, String)> {
    let figures = [
        ("paper-figure-2.svg", validation(done), 3),
        ("paper-figure-3.svg", stability(done), 3),
        ("paper-figure-4.svg", operators(), 1),
        ("paper-figure-5.svg", sensitivity(done), 3),
    ];
    let drawn = |panels: &[Panel]| panels.iter().any(|it| !it.lines.is_empty());
    let figures = figures.into_iter().filter(|(_, panels, _)| drawn(panels));
    figures.map(|(name, panels, columns)| (name, chart::svg(&panels, columns))).collect()
}

/// The runs of a row, seed by seed.
pub(super) fn runs_of<'a>(done: &'a Done, row: &str) -> Vec<&'a Scores> {
    let arm = arm_name(row);
    done.iter().filter(|((name, _), _)| *name == arm).map(|(_, run)| run).collect()
}

/// Mean success over the levels at each look of a run, by step.
pub(super) fn looks(run: &Scores) -> Vec<(f64, f64)> {
    let of_look =
        |levels: &BTreeMap<String, f64>| mean(&levels.values().copied().collect::<Vec<_>>());
    run.looks.iter().map(|it| (it.step as f64, of_look(&it.levels))).collect()
}

/// A metric of a run where it was logged, by step of the last stage.
fn curve(run: &Scores, metric: &str) -> Vec<(f64, f64)> {
    let values = run.curves.metric(metric).iter().enumerate();
    values.filter_map(|(n, value)| Some(((n + 1) as f64, (*value)?))).collect()
}

/// The line of a row: means over its seeds, from the lowest to the highest as a band.
fn line(
    runs: &[&Scores],
    (label, colour): (&'static str, &'static str),
    of: impl Fn(&Scores) -> Vec<(f64, f64)>,
) -> Option<Line> {
    let mut steps: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for (step, value) in runs.iter().flat_map(|run| of(run)) {
        steps.entry(step as u64).or_default().push(value);
    }
    let points: Vec<Point> =
        steps.iter().filter_map(|(step, values)| Point::of(*step as f64, values)).collect();
    (!points.is_empty()).then_some(Line { label, colour, points })
}

fn panel(title: &str, lines: impl IntoIterator<Item = Option<Line>>) -> Panel {
    let lines = lines.into_iter().flatten().collect();
    Panel { title: title.to_owned(), x: "step", log: false, lines }
}

/// Figure 2: success on the development split.
fn validation(done: &Done) -> Vec<Panel> {
    let of_host = |(name, host, gamma0, _): &(&str, &str, [&str; 3], _)| {
        let rows = [("HAPO on it", gamma0[0]), ("the host", *host), ("GRPO", "grpo")];
        let lines = rows
            .iter()
            .zip(COLOURS)
            .map(|((label, row), colour)| line(&runs_of(done, row), (label, colour), looks));
        panel(&format!("{name}: validation success"), lines)
    };
    HOSTS.iter().map(of_host).collect()
}

/// Figure 3: the long runs.
fn stability(done: &Done) -> Vec<Panel> {
    let of = |title: &str, values: &dyn Fn(&Scores) -> Vec<(f64, f64)>| {
        let lines = STABILITY
            .iter()
            .zip(COLOURS)
            .map(|((row, label, ..), colour)| line(&runs_of(done, row), (label, colour), values));
        panel(title, lines)
    };
    let metrics = [
        ("γ, the threshold", "gate/threshold"),
        ("β, share of groups with a teacher", "gate/beta"),
        ("entropy, all tokens", "entropy/all"),
        ("entropy, the policy's tokens", "policy/entropy"),
        ("KL to the start", "policy/kl_to_initial"),
    ];
    let mut panels = vec![of("success on the solvable levels", &looks)];
    panels.extend(metrics.map(|(title, metric)| of(title, &|run| curve(run, metric))));
    panels
}

/// Figure 4: |dF/dπ| of the operators, which is (dF/dlog π) / π.
fn operators() -> Vec<Panel> {
    let names = [("LUFFY", "luffy"), ("SRFT", "srft"), ("TRAPO", "trapo")];
    let lines = names.into_iter().zip(COLOURS).filter_map(|((label, name), colour)| {
        let operator = operator(name)?;
        let at = |n: i32| {
            let pi = 0.01 * f64::from(n);
            Point::alone(pi, (operator.weight)(pi.ln(), D) / pi)
        };
        Some(Line { label, colour, points: (1..=100).map(at).collect() })
    });
    let title = "gradient magnitude |dF/dπ|, d = .1".to_owned();
    vec![Panel {
        title,
        x: "π, probability of the teacher's token",
        log: true,
        lines: lines.collect(),
    }]
}

/// Figure 5: γ0 on three hosts.
fn sensitivity(done: &Done) -> Vec<Panel> {
    let gamma0 = ["γ0 = .3", "γ0 = .5", "γ0 = .7"];
    let of = |title: &str, values: &dyn Fn(&Scores) -> Vec<(f64, f64)>| {
        let of_host = |(name, _, rows, _): &(&str, &str, [&str; 3], &str)| {
            let lines =
                rows.iter().zip(gamma0).zip(COLOURS).map(|((row, label), colour)| {
                    line(&runs_of(done, row), (label, colour), values)
                });
            panel(&format!("{name}: {title}"), lines)
        };
        HOSTS.iter().map(of_host).collect::<Vec<_>>()
    };
    [
        of("β", &|run| curve(run, "gate/beta")),
        of("validation success", &looks),
        of("response length, tokens", &|run| curve(run, "response_length/mean")),
    ]
    .into_iter()
    .flatten()
    .collect()
}
