//! GSPO's clipped surrogate: one importance ratio for a whole response.
//!
//! s = exp(mean over tokens of (log π − log `π_old`)) ("Group Sequence Policy Optimization", Eq. 6–7,
//! <https://arxiv.org/abs/2507.18071>). The sum over a response's tokens is |y|·min(s·A, clip(s)·A), so
//! that `loss.normaliser` means the same as for the token-level ratio; with `sequence_mean` it is
//! GSPO's own objective. Its trust region is far narrower than a token's: 3e-4 and 4e-4 in the paper.

use crate::{Clip, Surrogate};

/// As [`clipped_surrogate`](crate::clipped_surrogate), with the ratio of the sequence.
///
/// # Panics
/// When the slices differ in length.
pub fn sequence_surrogate(
    log_probs: &[f32],
    old_log_probs: &[f32],
    advantage: f64,
    clip: Clip,
    mut add: impl FnMut(usize, f64),
) -> Surrogate {
    assert_eq!(
        log_probs.len(),
        old_log_probs.len(),
        "one old log-probability per token"
    );
    let n = log_probs.len();
    if n == 0 {
        return Surrogate::default();
    }
    let log_ratio = log_probs
        .iter()
        .zip(old_log_probs)
        .map(|(new, old)| f64::from(*new) - f64::from(*old))
        .sum::<f64>()
        / n as f64;
    let ratio = log_ratio.exp();
    let free = ratio * advantage;
    let held = ratio.clamp(1.0 - clip.low, 1.0 + clip.high) * advantage;
    let inside = free <= held;
    if inside {
        for i in 0..n {
            // d(|y|·s·A)/d log π of one token is |y|·s·A/|y|.
            add(i, free);
        }
    }
    Surrogate {
        objective: n as f64 * free.min(held),
        clipped: if inside { 0 } else { n },
        ratio_sum: n as f64 * ratio,
        ratio_max: ratio,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIP: Clip = Clip {
        low: 0.1,
        high: 0.2,
    };

    #[test]
    fn value_and_slope_are_those_of_the_mean_ratio() {
        // Ratios e^0.3 and e^-0.1: s = e^0.1 = 1.10517.
        let mut slopes = [0.0; 2];
        let it = sequence_surrogate(&[-1.0, -2.0], &[-1.3, -1.9], 0.5, CLIP, |i, g| {
            slopes[i] = g;
        });
        let s = 0.1_f64.exp();
        assert!((it.objective - 2.0 * 0.5 * s).abs() < 1e-6, "{it:?}");
        assert!(
            slopes.iter().all(|g| (g - 0.5 * s).abs() < 1e-6),
            "{slopes:?}"
        );
        assert!((it.ratio_sum - 2.0 * s).abs() < 1e-6 && it.clipped == 0);
        // A single token far outside does not matter; the sequence does: s = e^0.5 is clipped at 1.2.
        let it = sequence_surrogate(&[0.0, 0.0], &[-1.0, 0.0], 0.5, CLIP, |_, _| {
            panic!("the clip holds")
        });
        assert!((it.objective - 2.0 * 1.2 * 0.5).abs() < 1e-12 && it.clipped == 2);
    }

    #[test]
    fn slope_is_the_derivative() {
        let old = [-0.7_f32, -1.1, -0.2];
        for advantage in [-0.8, 0.6] {
            let at = |shift: f64| {
                let mean = (0.02 + shift + 0.01 - 0.04) / 3.0;
                let s: f64 = f64::exp(mean);
                3.0 * (s * advantage).min(s.clamp(0.9, 1.2) * advantage)
            };
            let new = [-0.68_f32, -1.09, -0.24];
            let mut slope = 0.0;
            sequence_surrogate(&new, &old, advantage, CLIP, |i, g| {
                if i == 0 {
                    slope = g;
                }
            });
            let expected = (at(1e-6) - at(-1e-6)) / 2e-6;
            assert!((slope - expected).abs() < 1e-5, "{slope} {expected}");
        }
    }
}
