//! Scores of repeated samples, and how sure one can be of them.
//!
//! The unit of resampling is the problem, not the completion: k completions of one problem say
//! little about the next problem.

use hapo_core::{Draws, Place, Purpose};

/// A mean with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of the 95 % interval.
    pub high: f64,
}

/// Resamples behind every interval.
const RESAMPLES: u64 = 2000;

/// Mean of the values, one per problem, with the percentile-bootstrap interval over problems.
/// `None` when there are none.
pub fn estimate(values: &[f64], seed: u64) -> Option<Estimate> {
    if values.is_empty() {
        return None;
    }
    let n = values.len();
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|resample| {
            let place = Place {
                step: resample,
                prompt: 0,
                rollout: 0,
                position: 0,
            };
            let mut draws = Draws::new(seed, Purpose::Bootstrap, place);
            (0..n)
                .map(|_| values[draws.below(n as u64) as usize])
                .sum::<f64>()
                / n as f64
        })
        .collect();
    means.sort_by(f64::total_cmp);
    let at = |q: f64| means[(q * (RESAMPLES - 1) as f64).round() as usize];
    Some(Estimate {
        mean: values.iter().sum::<f64>() / n as f64,
        low: at(0.025),
        high: at(0.975),
    })
}

/// Difference of two models on the same problems, with its interval over problems: paired, so the
/// problems' own difficulty cancels. `None` when there are none.
///
/// # Panics
/// When the two do not have one value for each problem.
pub fn paired_difference(values: &[f64], baseline: &[f64], seed: u64) -> Option<Estimate> {
    assert_eq!(
        values.len(),
        baseline.len(),
        "both models answered the same problems"
    );
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
    let all_wrong = (0..k)
        .map(|i| (n - c - i) as f64 / (n - i) as f64)
        .product::<f64>();
    Some(1.0 - all_wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pass_at_k_is_the_share_of_subsets_with_a_success() {
        // Counted by enumeration of all k-subsets of n completions of which the first c are correct.
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
                    assert!(
                        (pass_at_k(n, c, k).unwrap() - expected).abs() < 1e-12,
                        "{n} {c} {k}"
                    );
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
