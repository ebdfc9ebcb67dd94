//! Scores of repeated samples, and how sure one can be of them.
//!
//! The unit of resampling is the problem, not the completion: k completions of one problem say
//! little about the next problem.

use hapo_core::{CounterRng, RngCounter, RngStream};

/// A mean with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of the 95 % interval.
    pub high: f64,
}

/// Resamples behind every interval.
pub(crate) const RESAMPLES: u64 = 2000;

/// Mean of the values, one per problem, with the percentile-bootstrap interval over problems.
/// `None` when there are none.
pub fn estimate(values: &[f64], seed: u64) -> Option<Estimate> {
    estimate_mean_of(&[values], seed)
}

/// Mean of the means of several sets, each weighing the same, as the average over benchmarks; problems are resampled
/// within their sets. `None` when there is no set or one of them is empty.
pub fn estimate_mean_of(sets: &[&[f64]], seed: u64) -> Option<Estimate> {
    if sets.is_empty() || sets.iter().any(|it| it.is_empty()) {
        return None;
    }
    let mean_of = |mean: &dyn Fn(usize, &[f64]) -> f64| {
        let means = sets.iter().enumerate().map(|(n, values)| mean(n, values));
        means.sum::<f64>() / sets.len() as f64
    };
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|resample| {
            mean_of(&|set, values| {
                let counter =
                    RngCounter { step: resample, prompt: set as u64, rollout: 0, position: 0 };
                let mut rng = CounterRng::new(seed, RngStream::Bootstrap, counter);
                let drawn = values.iter().map(|_| values[rng.below(values.len() as u64) as usize]);
                drawn.sum::<f64>() / values.len() as f64
            })
        })
        .collect();
    means.sort_by(f64::total_cmp);
    Some(Estimate {
        mean: mean_of(&|_, values| values.iter().sum::<f64>() / values.len() as f64),
        low: quantile(&means, 0.025),
        high: quantile(&means, 0.975),
    })
}

/// Quantile of sorted values, linear between neighbours (definition 7 of Hyndman and Fan, numpy's default).
pub(crate) fn quantile(sorted: &[f64], q: f64) -> f64 {
    let place = q * (sorted.len() - 1) as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (place - below as f64) * (sorted[above] - sorted[below])
}

/// Difference of two models on the same problems, with its interval over problems: paired, so the
/// problems' own difficulty cancels. `None` when there are none.
///
/// # Panics
/// When the two do not have one value for each problem.
pub fn paired_difference(values: &[f64], baseline: &[f64], seed: u64) -> Option<Estimate> {
    assert_eq!(values.len(), baseline.len(), "both models answered the same problems");
    let differences: Vec<f64> = values.iter().zip(baseline).map(|(a, b)| a - b).collect();
    estimate(&differences, seed)
}

/// Chance that at least one of k completions is correct, unbiased, from c correct ones of n:
/// 1 − C(n−c, k)/C(n, k) (Chen et al. 2021, eq. 1). `None` when k is 0 or above n.
pub fn pass_at_k(n: usize, c: usize, k: usize) -> Option<f64> {
    if k == 0 || k > n || c > n {
        return None;
    }
    if n - c < k {
        return Some(1.0);
    }
    let all_wrong = (0..k).map(|i| (n - c - i) as f64 / (n - i) as f64).product::<f64>();
    Some(1.0 - all_wrong)
}

/// maj@k: the score of the most frequent answer. `votes` holds one answer per completion, equal numbers for equal
/// answers and `None` for a completion without one, which does not vote; `correct` is the number of the correct answer.
/// Tied answers count alike: the score is the share of correct ones among them, the mean of a fair draw.
pub fn majority(votes: &[Option<usize>], correct: Option<usize>) -> f64 {
    let mut counts = std::collections::BTreeMap::new();
    for it in votes.iter().flatten() {
        *counts.entry(*it).or_insert(0_usize) += 1;
    }
    let Some(most) = counts.values().max() else {
        return 0.0;
    };
    let winners = counts.values().filter(|it| *it == most).count();
    let right = correct.is_some_and(|it| counts.get(&it) == Some(most));
    f64::from(u8::from(right)) / winners as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Reference {
        pass_at_k: Vec<(usize, usize, usize, f64)>,
        majority: Vec<Voted>,
        intervals: Vec<Interval>,
    }

    #[derive(serde::Deserialize)]
    struct Voted {
        votes: Vec<i64>,
        score: f64,
    }

    #[derive(serde::Deserialize)]
    struct Interval {
        seed: u64,
        values: Vec<f64>,
        baseline: Vec<f64>,
        single: [f64; 3],
        paired: [f64; 3],
    }

    /// `testdata/eval/make_reference.py` computed the values with scipy.
    #[test]
    fn scores_and_intervals_are_those_of_scipy() {
        let text = include_str!("../../../testdata/eval/reference.json");
        let it: Reference = serde_json::from_str(text).unwrap();
        let near = |got: f64, expected: f64| (got - expected).abs() < 1e-9;
        assert!(it.pass_at_k.len() > 100 && it.majority.len() == 60 && it.intervals.len() == 4);
        for (n, c, k, expected) in it.pass_at_k {
            let got = pass_at_k(n, c, k).unwrap();
            assert!(near(got, expected), "{n} {c} {k}: {got} {expected}");
        }
        for it in it.majority {
            let votes: Vec<Option<usize>> =
                it.votes.iter().map(|it| usize::try_from(*it).ok()).collect();
            assert!(near(majority(&votes, Some(0)), it.score), "{votes:?}");
        }
        for it in it.intervals {
            let check = |got: Estimate, expected: [f64; 3]| {
                for (got, expected) in [got.mean, got.low, got.high].into_iter().zip(expected) {
                    assert!(near(got, expected), "{got} {expected}");
                }
            };
            check(estimate(&it.values, it.seed).unwrap(), it.single);
            let paired = paired_difference(&it.values, &it.baseline, it.seed);
            check(paired.unwrap(), it.paired);
        }
    }

    #[test]
    fn a_tied_majority_counts_by_its_share() {
        assert_eq!(majority(&[Some(0), Some(0), Some(1)], Some(0)), 1.0);
        assert_eq!(majority(&[Some(0), Some(1), Some(2)], Some(1)), 1.0 / 3.0);
        assert_eq!(majority(&[Some(0), Some(0), Some(1)], Some(1)), 0.0);
        assert_eq!(majority(&[None, None, Some(1)], Some(1)), 1.0);
        assert_eq!(majority(&[None, None], Some(1)), 0.0);
        assert_eq!(majority(&[Some(3)], None), 0.0);
    }

    #[test]
    fn pass_at_k_is_the_share_of_subsets_with_a_success() {
        // Enumerates all k-subsets of n completions, the first c of which are correct.
        for n in 1_usize..=10 {
            for c in 0..=n {
                for k in 1..=n {
                    let (mut hit, mut all) = (0_u32, 0_u32);
                    for subset in 0_u32..1 << n {
                        if subset.count_ones() as usize == k {
                            all += 1;
                            hit += u32::from(subset & ((1 << c) - 1) != 0);
                        }
                    }
                    let expected = f64::from(hit) / f64::from(all);
                    assert!((pass_at_k(n, c, k).unwrap() - expected).abs() < 1e-12, "{n} {c} {k}");
                }
            }
        }
        assert_eq!(pass_at_k(4, 1, 0), None);
        assert_eq!(pass_at_k(4, 1, 5), None);
    }

    #[test]
    fn interval_of_a_coin_is_that_of_the_normal_approximation() {
        let values: Vec<f64> = (0..400).map(|i| f64::from(u8::from(i % 4 == 0))).collect();
        let it = estimate(&values, 7).unwrap();
        let half = 1.96 * (0.25_f64 * 0.75 / 400.0).sqrt();
        assert_eq!(it.mean, 0.25);
        assert!(
            (it.low - (0.25 - half)).abs() < 0.006 && (it.high - (0.25 + half)).abs() < 0.006,
            "{it:?}"
        );
        assert_eq!(estimate(&[], 7), None);
    }

    #[test]
    fn pairing_removes_what_both_models_share() {
        let hard: Vec<f64> = (0..200).map(|i| f64::from(u8::from(i % 2 == 0))).collect();
        let same = paired_difference(&hard, &hard, 1).unwrap();
        assert_eq!((same.mean, same.low, same.high), (0.0, 0.0, 0.0));
    }
}
