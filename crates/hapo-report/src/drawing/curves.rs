//! The lines of a figure: numbers of runs, or of the seeds of a recipe, over the steps.

use std::collections::BTreeMap;

use super::Drawing;
use crate::figures::{Figure, Scale};
use crate::folder::{Run, group_names, lines};

const WINDOWS: [usize; 4] = [50, 20, 10, 5];

/// Runs drawn as one: a run, or the seeds of a recipe.
#[derive(Clone, Debug)]
pub(super) struct Set {
    pub(super) name: String,
    pub(super) runs: Vec<usize>,
}

pub(super) fn sets(all: &[Run]) -> Vec<Set> {
    let groups = lines(all);
    let named = group_names(all, &groups).into_iter().zip(groups).map(|(name, runs)| Set {
        name: match runs.iter().filter(|it| all[**it].continues.is_none()).count() {
            0 | 1 => name,
            many => format!("{name} ({many} seeds)"),
        },
        runs,
    });
    named.collect()
}

impl Drawing<'_> {
    /// The curves of a figure. A line that is zero throughout says nothing beside others that are not, but for a
    /// result: the reward of the policy alone, and evaluations.
    pub(super) fn curves(&self, figure: &Figure<'_>) -> Vec<Curve> {
        let is_zero = |it: &Point| it.values == [0.0; 3];
        let (sets, mut curves) = (&self.sets, Vec::new());
        for (at, set) in sets.iter().enumerate() {
            for (line, &(metric, label)) in figure.lines.iter().enumerate() {
                let points = self.points(set, metric);
                // A number that is another's under a second name, and the gate of a run that has none.
                let is_same = |it: &Curve| it.set == at && it.points == points;
                let has_no_gate = || set.runs.iter().all(|it| self.runs[*it].gate.is_none());
                let has_no_beta = || self.points(set, "gate/beta").iter().all(is_zero);
                let is_idle = figure.id == "gate" && has_no_gate() && has_no_beta();
                let stands = figure.scale != Scale::Stacked && curves.iter().any(is_same);
                if points.is_empty() || stands || is_idle {
                    continue;
                }
                // The metrics of one run are told apart by colour as well.
                let is_alone = sets.len() == 1;
                let bare = is_alone || figure.scale == Scale::Stacked;
                let label = if bare { label.to_owned() } else { format!("{}: {label}", set.name) };
                curves.push(Curve {
                    set: at,
                    runs: set.runs.clone(),
                    metric: metric.to_owned(),
                    label,
                    line,
                    colour: match figure.scale {
                        Scale::Stacked => COLOURS + line,
                        _ if is_alone => line % COLOURS,
                        _ => at % COLOURS,
                    },
                    smoothed: smoothed(&points, window(points.len())),
                    points,
                });
            }
        }
        let is_result =
            |it: &Curve| it.metric == "reward/policy_only" || it.metric.starts_with("eval/");
        let is_flat = |it: &Curve| it.points.iter().all(is_zero);
        if figure.scale != Scale::Stacked && !curves.iter().all(is_flat) {
            curves.retain(|it| !is_flat(it) || is_result(it));
        }
        curves
    }

    fn points(&self, set: &Set, metric: &str) -> Vec<Point> {
        let mut by_step: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for run in set.runs.iter().map(|it| &self.runs[*it]) {
            for (step, value) in run.points(metric) {
                by_step.entry((step + run.shift) as u64).or_default().push(value);
            }
        }
        let points = by_step.into_iter().map(|(step, values)| {
            let low = values.iter().copied().fold(f64::INFINITY, f64::min);
            let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            Point { step, values: [mean, low, high] }
        });
        points.collect()
    }
}

/// Colours and dashes of the style.
const COLOURS: usize = 7;
pub(super) const DASHES: usize = 4;

#[derive(Debug)]
pub(crate) struct Curve {
    pub(super) set: usize,
    pub(super) runs: Vec<usize>,
    pub(super) metric: String,
    pub(super) label: String,
    pub(super) line: usize,
    pub(super) colour: usize,
    pub(super) points: Vec<Point>,
    /// Means of the points' values over a few that end at each.
    pub(super) smoothed: Vec<[f64; 3]>,
}

#[derive(Debug, PartialEq)]
pub(super) struct Point {
    pub(super) step: u64,
    /// Mean, lowest and highest.
    pub(super) values: [f64; 3],
}

impl Curve {
    pub(super) fn window(&self) -> usize {
        window(self.points.len())
    }

    pub(super) fn is_band(&self) -> bool {
        self.points.iter().any(|it| it.values[1] < it.values[2])
    }

    /// The step, and mean, lowest and highest, of each point, smoothed.
    pub(super) fn drawn(&self) -> impl DoubleEndedIterator<Item = (f64, [f64; 3])> {
        self.points.iter().map(|point| point.step as f64).zip(self.smoothed.iter().copied())
    }
}

/// Points over whose mean a curve of `n` points is drawn.
fn window(n: usize) -> usize {
    WINDOWS.into_iter().find(|it| n / 40 >= *it).unwrap_or(1)
}

fn smoothed(points: &[Point], window: usize) -> Vec<[f64; 3]> {
    let means = |at: usize| {
        let part = &points[(at + 1).saturating_sub(window)..=at];
        [0, 1, 2].map(|k| part.iter().map(|it| it.values[k]).sum::<f64>() / part.len() as f64)
    };
    (0..points.len()).map(means).collect()
}

/// Which points `columns` columns can show: the lowest and the highest of each, the first and the last, and one of each gap.
pub(super) fn thinned(points: &[(f64, Option<f64>)], columns: usize) -> Vec<usize> {
    if points.len() <= 2 * columns {
        return (0..points.len()).collect();
    }
    let column = |at: usize| ((points[at].0 * columns as f64) as usize, points[at].1.is_some());
    let by = |a: &&usize, b: &&usize| points[**a].1.partial_cmp(&points[**b].1).expect("finite");
    let mut kept = vec![0, points.len() - 1];
    let all: Vec<usize> = (0..points.len()).collect();
    for part in all.chunk_by(|a, b| column(*a) == column(*b)) {
        kept.extend(part.iter().min_by(by));
        kept.extend(part.iter().max_by(by));
    }
    kept.sort_unstable();
    kept.dedup();
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten thousand points with one spike and one gap, for a hundred columns.
    #[test]
    fn what_is_thinned_keeps_its_extremes() {
        let value = |it: usize| match it {
            1234 => 7.0,
            5678 => -7.0,
            _ => (it % 10) as f64 / 10.0,
        };
        let mut points: Vec<(f64, Option<f64>)> =
            (0..10_000).map(|it| (it as f64 / 10_000.0, Some(value(it)))).collect();
        for it in &mut points[8000..8100] {
            it.1 = None;
        }
        let kept = thinned(&points, 100);
        assert!(kept.contains(&1234) && kept.contains(&5678));
        assert!(kept.is_sorted() && kept[0] == 0 && kept[kept.len() - 1] == 9999);
        assert!(kept.iter().any(|it| points[*it].1.is_none()));
        // Two of each column, the ends among them, and the gap's.
        assert!((198..=203).contains(&kept.len()), "{}", kept.len());
        for column in (0..80).chain(81..100) {
            let all = || points[column * 100..][..100].iter().filter_map(|it| it.1);
            let left =
                || kept.iter().filter(|it| **it / 100 == column).filter_map(|it| points[*it].1);
            for fold in [f64::min, f64::max] {
                assert_eq!(all().reduce(fold), left().reduce(fold), "column {column}");
            }
        }
        assert_eq!(thinned(&points[..200], 100).len(), 200);
    }

    #[test]
    fn long_curves_are_drawn_as_means() {
        assert_eq!([1, 199, 200, 400, 800, 2000, 1 << 20].map(window), [1, 1, 5, 10, 20, 50, 50]);
        let point = |it: u64| Point { step: it, values: [it as f64; 3] };
        let points: Vec<Point> = [1, 2, 3, 4].map(point).into();
        let means: Vec<f64> = smoothed(&points, 2).iter().map(|it| it[0]).collect();
        assert_eq!(means, [1.0, 1.5, 2.5, 3.5]);
    }
}
