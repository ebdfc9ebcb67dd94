//! Tests that do not assume normal seeds: Fisher's, the log-rank test by permutation, stratified sign flips.
//!
//! Draws come from the project's counted generator, so that a table has the same digits on every machine.

use std::fmt;

use hapo_core::{CounterRng, RngCounter, RngStream};
use serde::Serialize;

use crate::seeds::{average, bisect, t_quantile, variance_of};

/// Draws of a permutation test.
const DRAWS: u64 = 20_000;
const SEED: u64 = 47;

/// Runs that found a level, of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Count {
    pub(crate) found: u64,
    pub(crate) of: u64,
}

impl Count {
    /// True if some found it and some missed it: the mean of such seeds has two modes.
    pub(crate) fn is_mixed(self) -> bool {
        0 < self.found && self.found < self.of
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.found, self.of)
    }
}

/// Fisher's exact test, two-sided: the probability of all tables with these margins that are no likelier.
pub(crate) fn fisher(a: Count, b: Count) -> f64 {
    let (found, of) = (a.found + b.found, a.of + b.of);
    let weight = |k: u64| choose(a.of, k) * choose(b.of, found - k);
    let (low, high) = (found.saturating_sub(b.of), found.min(a.of));
    let observed = weight(a.found);
    // Equal weights may differ in their last bits.
    let as_rare = (low..=high).map(weight).filter(|it| *it <= observed * (1.0 + 1e-7));
    (as_rare.sum::<f64>() / choose(of, found)).min(1.0)
}

fn choose(n: u64, k: u64) -> f64 {
    (0..k).map(|i| (n - i) as f64 / (i + 1) as f64).product()
}

/// The time until an event, or until the end of a run without one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Time {
    pub(crate) step: u64,
    pub(crate) happened: bool,
}

/// Steps with events, and the share of runs without one after each, by Kaplan and Meier.
pub(crate) fn survival(times: &[Time]) -> Vec<(u64, f64)> {
    let mut left = 1.0;
    let of_step = event_steps(times).into_iter().map(|step| {
        let at_risk = times.iter().filter(|time| time.step >= step).count() as f64;
        left *= 1.0 - events(times, step) / at_risk;
        (step, left)
    });
    of_step.collect()
}

/// The first step after which at most half of the runs are without an event.
pub(crate) fn median(times: &[Time]) -> Option<u64> {
    survival(times).into_iter().find(|(_, left)| *left <= 0.5).map(|(step, _)| step)
}

fn event_steps(times: &[Time]) -> Vec<u64> {
    let mut steps: Vec<u64> =
        times.iter().filter(|time| time.happened).map(|time| time.step).collect();
    steps.sort_unstable();
    steps.dedup();
    steps
}

fn events(times: &[Time], step: u64) -> f64 {
    times.iter().filter(|time| time.happened && time.step == step).count() as f64
}

/// The log-rank statistic of two groups, χ² of one degree of freedom; 0 where it is not defined.
pub(crate) fn log_rank(a: &[Time], b: &[Time]) -> f64 {
    let all = [a, b].concat();
    let (mut excess, mut variance) = (0.0, 0.0);
    for step in event_steps(&all) {
        let at_risk = |times: &[Time]| times.iter().filter(|it| it.step >= step).count() as f64;
        let (of_a, n, d) = (at_risk(a), at_risk(&all), events(&all, step));
        excess += events(a, step) - d * of_a / n;
        if n > 1.0 {
            variance += d * (of_a / n) * (1.0 - of_a / n) * (n - d) / (n - 1.0);
        }
    }
    if variance > 0.0 { excess * excess / variance } else { 0.0 }
}

/// The log-rank test by permutation of the groups.
pub(crate) fn log_rank_p(a: &[Time], b: &[Time]) -> f64 {
    let observed = log_rank(a, b);
    let mut all = [a, b].concat();
    let mut rng = CounterRng::new(SEED, RngStream::Bootstrap, RngCounter::default());
    let mut as_large = 0;
    for _ in 0..DRAWS {
        rng.shuffle(&mut all);
        let (ours, theirs) = all.split_at(a.len());
        as_large += u64::from(log_rank(ours, theirs) >= observed * (1.0 - 1e-9));
    }
    (as_large + 1) as f64 / (DRAWS + 1) as f64
}

/// A mean over strata of paired differences, by sign flips within each pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pooled {
    /// The mean of the strata's means.
    pub(crate) mean: f64,
    /// Two-sided, of no difference.
    pub(crate) p: f64,
    /// 95 %, by inversion of the test.
    pub(crate) interval: (f64, f64),
}

/// Sign flips of every pair, drawn once for all hypotheses.
pub(crate) struct SignFlips {
    mean: f64,
    /// The largest difference of a pair, without its sign.
    largest: f64,
    draws: Vec<Flipped>,
}

/// A draw: the flipped mean of the pairs, and what a shift of 1 of all pairs adds to it.
struct Flipped {
    mean: f64,
    shift: f64,
}

impl SignFlips {
    /// Strata must not be empty. Strata weigh the same.
    pub(crate) fn new(strata: &[Vec<f64>]) -> Self {
        let weighted = strata.iter().flat_map(|pairs| {
            let weight = 1.0 / (pairs.len() * strata.len()) as f64;
            pairs.iter().map(move |pair| (weight, weight * pair))
        });
        let weighted: Vec<(f64, f64)> = weighted.collect();
        let mut rng = CounterRng::new(SEED, RngStream::Bootstrap, RngCounter::default());
        let mut flip = |_| {
            let mut draw = Flipped { mean: 0.0, shift: 0.0 };
            for (weight, pair) in &weighted {
                let sign = if rng.below(2) == 0 { 1.0 } else { -1.0 };
                draw.mean += sign * pair;
                draw.shift += sign * weight;
            }
            draw
        };
        let draws = (0..DRAWS).map(&mut flip).collect();
        let largest = strata.iter().flatten().fold(0.0_f64, |most, pair| most.max(pair.abs()));
        Self { mean: weighted.iter().map(|(_, pair)| pair).sum(), largest, draws }
    }

    /// The mean, its test and its interval.
    pub(crate) fn pooled(&self) -> Pooled {
        let end = |sign: f64| {
            let outside = self.mean + sign * 2.0 * (self.largest + 1e-9);
            // One-sided, against a true difference nearer to the mean.
            bisect((self.mean, outside), |shift| self.above(shift, -sign) > 0.025)
        };
        let p = 2.0 * self.above(0.0, 1.0).min(self.above(0.0, -1.0));
        Pooled { mean: self.mean, p: p.min(1.0), interval: (end(-1.0), end(1.0)) }
    }

    /// p of equivalence within ±`margin`: the larger of the two one-sided tests.
    pub(crate) fn equivalence(&self, margin: f64) -> f64 {
        self.above(-margin, 1.0).max(self.above(margin, -1.0))
    }

    /// One-sided p of a true difference of `shift`, against a larger one (`side` 1) or a smaller one (−1).
    fn above(&self, shift: f64, side: f64) -> f64 {
        let observed = side * (self.mean - shift) - 1e-12;
        let is_as_large = |draw: &&Flipped| side * (draw.mean - shift * draw.shift) >= observed;
        (self.draws.iter().filter(is_as_large).count() + 1) as f64 / (DRAWS + 1) as f64
    }
}

/// Share of five-seed intervals by t that hold the mean of a level that a seed finds with probability `p`: its success
/// is then one of `found`, otherwise one of `missed`, all as they were recorded.
pub(crate) fn coverage(p: f64, found: &[f64], missed: &[f64]) -> f64 {
    const SEEDS: usize = 5;
    let truth = p * average(found) + (1.0 - p) * average(missed);
    let mut rng = CounterRng::new(SEED, RngStream::Bootstrap, RngCounter::default());
    let t = t_quantile(0.05, SEEDS as u32 - 1);
    let held = (0..DRAWS).filter(|_| {
        let seeds: [f64; SEEDS] = std::array::from_fn(|_| {
            let values = if rng.uniform() < p { found } else { missed };
            values[rng.below(values.len() as u64) as usize]
        });
        let half = t * (variance_of(&seeds) / SEEDS as f64).sqrt();
        (average(&seeds) - truth).abs() <= half + 1e-12
    });
    held.count() as f64 / DRAWS as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(got: f64, expected: f64, within: f64) {
        assert!((got - expected).abs() <= within, "{got}, expected {expected}");
    }

    /// testdata/statistics.py, by scipy and lifelines.
    fn recorded() -> serde_json::Value {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/statistics.json");
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    fn times(of: &serde_json::Value) -> Vec<Time> {
        let time = |it: &serde_json::Value| Time {
            step: it[0].as_u64().unwrap(),
            happened: it[1].as_u64() == Some(1),
        };
        of.as_array().unwrap().iter().map(time).collect()
    }

    #[test]
    fn fishers_test_is_scipys() {
        let cases = recorded()["fisher"].as_array().unwrap().clone();
        assert_eq!(cases.len(), 12);
        for case in cases {
            let n = |i: usize| case["table"][i].as_u64().unwrap();
            let (a, b) = (Count { found: n(0), of: n(1) }, Count { found: n(2), of: n(3) });
            close(fisher(a, b), case["p"].as_f64().unwrap(), 1e-12);
        }
    }

    #[test]
    fn survival_and_log_rank_are_lifelines() {
        let cases = recorded()["survival"].as_array().unwrap().clone();
        assert_eq!(cases.len(), 3);
        for case in cases {
            let (a, b) = (times(&case["a"]), times(&case["b"]));
            close(log_rank(&a, &b), case["chi2"].as_f64().unwrap(), 1e-9);
            let expected: Vec<(u64, f64)> =
                serde_json::from_value(case["survival"].clone()).unwrap();
            let got = survival(&a);
            assert_eq!(got.len(), expected.len());
            for ((step, left), (at, expected)) in got.iter().zip(expected) {
                assert_eq!(*step, at);
                close(*left, expected, 1e-12);
            }
            assert_eq!(median(&a), case["median"].as_u64());
            // All divisions of the runs into two groups, by the script.
            close(log_rank_p(&a, &b), case["p"].as_f64().unwrap(), 0.012);
        }
    }

    /// All 2^n sign flips, by the script; 20,000 draws of them have a standard error of at most .0036.
    #[test]
    fn stratified_sign_flips_are_the_exact_test() {
        let case = recorded()["flips"].clone();
        let strata: Vec<Vec<f64>> = serde_json::from_value(case["strata"].clone()).unwrap();
        let flips = SignFlips::new(&strata);
        let pooled = flips.pooled();
        close(pooled.mean, case["mean"].as_f64().unwrap(), 1e-12);
        close(pooled.p, case["p"].as_f64().unwrap(), 0.012);
        close(flips.equivalence(0.02), case["equivalence"].as_f64().unwrap(), 0.012);
        for (got, n) in [(pooled.interval.0, 0), (pooled.interval.1, 1)] {
            close(got, case["interval"][n].as_f64().unwrap(), 0.001);
        }
    }

    /// Five seeds that all find the level, or all miss it, have no width: .5^5 twice never hold the mean.
    #[test]
    fn intervals_of_a_level_that_is_found_or_missed_cover_too_little() {
        close(coverage(0.5, &[1.0], &[0.0]), 1.0 - 2.0 / 32.0, 0.006);
        // Found by four of five or by fewer than two: t's interval around .8 reaches .9, that around 1 does not.
        let exact: f64 = (1..5_i32)
            .map(|k| {
                let mean = f64::from(k) / 5.0;
                let half = 2.776_445 * (mean * (1.0 - mean) / 4.0).sqrt();
                let holds = (mean - 0.9).abs() <= half;
                f64::from(u8::from(holds))
                    * choose(5, k.unsigned_abs().into())
                    * 0.9_f64.powi(k)
                    * 0.1_f64.powi(5 - k)
            })
            .sum();
        close(coverage(0.9, &[1.0], &[0.0]), exact, 0.01);
    }
}
