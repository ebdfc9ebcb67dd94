//! Scores of repeated samples, and how sure one can be of them.
//!
//! The unit of resampling is the problem, not the completion: k completions of one problem say
//! little about the next problem.

use hapo_core::{CounterRng, RngCounter, RngStream};

/// A mean with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Estimate {
    pub mean: f64,
    pub low: f64,
    pub high: f64,
}

pub(crate) const RESAMPLES: u64 = 2000;

/// Mean of the shares of correct completions, one per problem, with its interval over problems: the percentile bootstrap.
/// Problems that all score alike have nothing to resample; their interval is that of Clopper and Pearson. `None` when
/// there are none.
///
/// # Panics
/// When a value is no share, from 0 to 1.
pub fn estimate(shares: &[f64], seed: u64) -> Option<Estimate> {
    estimate_mean_of(&[shares], seed)
}

/// Mean of the means of several sets, each weighing the same, as the average over benchmarks; problems are resampled
/// within their sets. `None` when there is no set or one of them is empty.
pub fn estimate_mean_of(sets: &[&[f64]], seed: u64) -> Option<Estimate> {
    let are_shares = sets.iter().copied().flatten().all(|it| (0.0..=1.0).contains(it));
    assert!(are_shares, "shares are from 0 to 1");
    let estimate = bootstrap(sets, seed)?;
    if sets.iter().any(|values| values.iter().any(|it| *it != values[0])) {
        return Some(estimate);
    }
    let [low, high] = ends_of_equals(sets);
    Some(Estimate { low, high, ..estimate })
}

/// Ends of the 95 % interval where all problems of a set scored alike. For one set in which none or every problem is
/// solved they are those of Clopper and Pearson (Biometrika 26, 1934): 0 to 1 − 0.025^(1/n), or its mirror image.
///
/// A share of mean μ is v with a chance of at most (1 − μ)/(1 − v), where v < μ. So n problems all score v with a chance of
/// at most that to the power n, which is 2.5 % at the upper end. The mean of several sets is bounded by the set with the
/// fewest problems for its weight, as the logarithm is concave.
fn ends_of_equals(sets: &[&[f64]]) -> [f64; 2] {
    let end = |distance: fn(f64) -> f64| {
        let all: f64 = sets.iter().map(|values| distance(values[0])).sum();
        if all == 0.0 {
            return 0.0;
        }
        let powers = sets.iter().map(|values| distance(values[0]) / all / values.len() as f64);
        let power = powers.fold(0.0, f64::max);
        all / sets.len() as f64 * 0.025_f64.powf(power)
    };
    [end(|v| v), 1.0 - end(|v| 1.0 - v)]
}

/// Mean of the means of several sets, with the percentile bootstrap over problems. `None` when there is no set or one of
/// them is empty.
fn bootstrap(sets: &[&[f64]], seed: u64) -> Option<Estimate> {
    if sets.is_empty() || sets.iter().any(|it| it.is_empty()) {
        return None;
    }
    let mean_of = |mean: &dyn Fn(usize, &[f64]) -> f64| {
        let means = sets.iter().enumerate().map(|(n, values)| mean(n, values));
        means.sum::<f64>() / sets.len() as f64
    };
    let resampled = |step| {
        mean_of(&|set, values| {
            let counter = RngCounter { step, prompt: set as u64, rollout: 0, position: 0 };
            let mut rng = CounterRng::new(seed, RngStream::Bootstrap, counter);
            let drawn = values.iter().map(|_| values[rng.below(values.len() as u64) as usize]);
            drawn.sum::<f64>() / values.len() as f64
        })
    };
    let mut means: Vec<f64> = (0..RESAMPLES).map(resampled).collect();
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
/// problems' own difficulty cancels. Models that never differ have a difference of exactly 0. `None` when there are none.
///
/// # Panics
/// When the two do not have one value for each problem.
pub fn paired_difference(values: &[f64], baseline: &[f64], seed: u64) -> Option<Estimate> {
    mean_paired_difference(&[(values, baseline)], seed)
}

/// Mean of the differences of several sets, each weighing the same. `None` when there is no set or one of them is empty.
pub(crate) fn mean_paired_difference(sets: &[(&[f64], &[f64])], seed: u64) -> Option<Estimate> {
    let of = |(values, baseline): &(&[f64], &[f64])| -> Vec<f64> {
        assert_eq!(values.len(), baseline.len(), "both models answered the same problems");
        values.iter().zip(*baseline).map(|(a, b)| a - b).collect()
    };
    let differences: Vec<Vec<f64>> = sets.iter().map(of).collect();
    bootstrap(&differences.iter().map(Vec::as_slice).collect::<Vec<_>>(), seed)
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
    let Some(most) = counts.values().max() else { return 0.0 };
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

    /// Clopper and Pearson's ends for none and all of n, by `scipy.stats.binomtest(0, n).proportion_ci(method="exact")`;
    /// those of 10, 20 and 100 are also in tables of exact binomial intervals (.308, .168, .036).
    #[test]
    fn an_interval_of_equal_shares_is_that_of_clopper_and_pearson() {
        let published = [
            (1, 0.975),
            (8, 0.369_416_647_552_81),
            (10, 0.308_497_107_818_76),
            (20, 0.168_433_470_983_08),
            (100, 0.036_216_692_645_18),
        ];
        for (n, high) in published {
            let none = estimate(&vec![0.0; n], 3).unwrap();
            assert_eq!((none.mean, none.low), (0.0, 0.0));
            assert!((none.high - high).abs() < 1e-12, "{n}: {none:?}");
            let all = estimate(&vec![1.0; n], 3).unwrap();
            assert_eq!((all.mean, all.high), (1.0, 1.0));
            assert!((all.low - (1.0 - high)).abs() < 1e-12, "{n}: {all:?}");
        }
    }

    /// The ends between 0 and 1 hold for every distribution: the mean that equal scores leave possible is maximal for
    /// problems that score `v` or 1.
    #[test]
    fn equal_shares_between_none_and_all_have_an_interval_too() {
        let half = estimate(&[0.5; 8], 3).unwrap();
        let chance = 0.025_f64.powf(1.0 / 8.0);
        let worst = chance * 0.5 + (1.0 - chance);
        assert!((half.high - worst).abs() < 1e-12 && (half.low - (1.0 - worst)).abs() < 1e-12);
        // Two sets of 8 say as much of their mean as one of 16; of a set of 4 and one of 400 the small one decides.
        let two = estimate_mean_of(&[&[0.0; 8], &[0.0; 8]], 3).unwrap();
        assert!((two.high - estimate(&[0.0; 16], 3).unwrap().high).abs() < 1e-12, "{two:?}");
        let uneven = estimate_mean_of(&[&[0.0; 4], &[0.0; 400]], 3).unwrap();
        let all_in_the_small_one = estimate(&[0.0; 4], 3).unwrap().high / 2.0;
        assert!(uneven.high > all_in_the_small_one && uneven.high < 2.0 * all_in_the_small_one);
        let both = estimate_mean_of(&[&[0.0; 8], &[1.0; 8]], 3).unwrap();
        assert!(both.low < both.mean && both.mean < both.high, "{both:?}");
    }

    #[test]
    fn pairing_removes_what_both_models_share() {
        let hard: Vec<f64> = (0..200).map(|i| f64::from(u8::from(i % 2 == 0))).collect();
        let same = paired_difference(&hard, &hard, 1).unwrap();
        assert_eq!((same.mean, same.low, same.high), (0.0, 0.0, 0.0));
    }
}
