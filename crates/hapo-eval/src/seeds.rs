//! Scores of a method over several seeds.
//!
//! Both the seeds and the problems are samples, so both are resampled: a method that is lucky on one
//! seed, or on one problem, gets a wide interval.

use hapo_core::{CounterRng, RngCounter, RngStream};

use crate::statistics::{Estimate, RESAMPLES, quantile};

/// Mean of `values[seed][problem]` with its 95 % interval: percentile bootstrap over seeds and, within
/// them, over problems (the same problems for every seed of a resample). `None` when there are none.
///
/// # Panics
/// When the seeds have different numbers of problems.
pub fn estimate_over_seeds(values: &[Vec<f64>], seed: u64) -> Option<Estimate> {
    let problems = values.first()?.len();
    if problems == 0 {
        return None;
    }
    assert!(values.iter().all(|it| it.len() == problems), "every seed answered the same problems");
    let seeds = values.len();
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|resample| {
            let counter = RngCounter { step: resample, ..RngCounter::default() };
            let mut rng = CounterRng::new(seed, RngStream::Bootstrap, counter);
            let mut draw = |n: usize| rng.below(n as u64) as usize;
            let chosen: Vec<usize> = (0..seeds).map(|_| draw(seeds)).collect();
            let sum: f64 = (0..problems)
                .map(|_| {
                    let problem = draw(problems);
                    chosen.iter().map(|it| values[*it][problem]).sum::<f64>()
                })
                .sum();
            sum / (seeds * problems) as f64
        })
        .collect();
    means.sort_by(f64::total_cmp);
    let all = values.iter().flatten();
    Some(Estimate {
        mean: all.sum::<f64>() / (seeds * problems) as f64,
        low: quantile(&means, 0.025),
        high: quantile(&means, 0.975),
    })
}

/// Difference of two methods, paired by seed and by problem, with its interval. Seeds that one of them
/// does not have are left out. `None` when none is left.
///
/// # Panics
/// As [`estimate_over_seeds`].
pub fn difference_over_seeds(
    values: &[Vec<f64>],
    baseline: &[Vec<f64>],
    seed: u64,
) -> Option<Estimate> {
    let differences: Vec<Vec<f64>> = values
        .iter()
        .zip(baseline)
        .map(|(a, b)| {
            assert_eq!(a.len(), b.len(), "both methods answered the same problems");
            a.iter().zip(b).map(|(a, b)| a - b).collect()
        })
        .collect();
    estimate_over_seeds(&differences, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_scores_have_no_width_and_a_lucky_seed_has() {
        let same = vec![vec![0.5; 40]; 5];
        let it = estimate_over_seeds(&same, 1).unwrap();
        assert_eq!((it.mean, it.low, it.high), (0.5, 0.5, 0.5));
        // One seed of five learned: the mean is 0.2, and 0 of 5 to 3 of 5 are all likely.
        let mut lucky = vec![vec![0.0; 40]; 5];
        lucky[2] = vec![1.0; 40];
        let it = estimate_over_seeds(&lucky, 1).unwrap();
        assert!((it.mean - 0.2).abs() < 1e-12);
        assert!(it.low.abs() < 1e-12 && it.high >= 0.6 - 1e-12, "{it:?}");
        assert!(estimate_over_seeds(&[], 1).is_none());
        assert!(estimate_over_seeds(&[vec![]], 1).is_none());
    }

    #[test]
    fn pairing_takes_the_problems_own_difficulty_away() {
        let hard: Vec<f64> = (0..50).map(|it| f64::from(it) / 50.0).collect();
        let better: Vec<f64> = hard.iter().map(|it| it + 0.1).collect();
        let it =
            difference_over_seeds(&[better.clone(), better], &[hard.clone(), hard], 3).unwrap();
        assert!((it.mean - 0.1).abs() < 1e-12 && it.high - it.low < 1e-12);
    }
}
