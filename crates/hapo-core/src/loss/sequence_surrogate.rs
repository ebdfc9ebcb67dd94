//! GSPO's clipped surrogate: one importance ratio for a whole response. s = exp(mean over tokens of (log π − log
//! `π_old`)) ("Group Sequence Policy Optimization", Eq. 6–7, <https://arxiv.org/abs/2507.18071>). The sum over a
//! response's tokens is |y|·min(s·A, clip(s)·A), so that the normaliser means the same as for the token-level ratio;
//! with the mean over sequences it is GSPO's own objective. The paper's trust region is far narrower: 3e-4 and 4e-4.

use super::{Bound, SpanTerms};

/// `L = −|y|·min(s·A, clip(s, 1 − ε_low, 1 + ε_high)·A) / divisor`: as [`token_surrogate`](super::token_surrogate), with
/// the ratio of the sequence. The slices have one length.
pub fn sequence_surrogate(
    log_probs: &[f32],
    old_log_probs: &[f32],
    bound: Bound,
    d_log_probs: &mut [f32],
) -> SpanTerms {
    assert_eq!(log_probs.len(), old_log_probs.len(), "one old log-probability per token");
    let n = log_probs.len();
    if n == 0 {
        return SpanTerms::default();
    }
    let pairs = log_probs.iter().zip(old_log_probs);
    let log_ratios = pairs.map(|(new, old)| f64::from(*new) - f64::from(*old));
    let log_ratio = log_ratios.sum::<f64>() / n as f64;
    let Bound { advantage, clip, divisor } = bound;
    let ratio = libm::exp(log_ratio);
    let unclipped = ratio * advantage;
    let clipped = ratio.clamp(1.0 - clip.low, 1.0 + clip.high) * advantage;
    let inside = unclipped <= clipped;
    // d(|y|·s·A)/d log π of one token is |y|·s·A/|y|.
    d_log_probs.fill(if inside { (-unclipped / divisor) as f32 } else { 0.0 });
    SpanTerms {
        objective: n as f64 * unclipped.min(clipped),
        clipped: if inside { 0 } else { n },
        ratio_sum: n as f64 * ratio,
        ratio_max: ratio,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Clip;
    use super::*;

    const CLIP: Clip = Clip { low: 0.1, high: 0.2 };

    fn bound(advantage: f64) -> Bound {
        Bound { advantage, clip: CLIP, divisor: 1.0 }
    }

    #[test]
    fn value_and_slope_are_those_of_the_mean_ratio() {
        // Ratios e^0.3 and e^-0.1: s = e^0.1 = 1.10517.
        let mut slopes = [0.0_f32; 2];
        let it = sequence_surrogate(&[-1.0, -2.0], &[-1.3, -1.9], bound(0.5), &mut slopes);
        let s = 0.1_f64.exp();
        assert!((it.objective - 2.0 * 0.5 * s).abs() < 1e-6, "{it:?}");
        assert!(slopes.iter().all(|g| (f64::from(*g) + 0.5 * s).abs() < 1e-6), "{slopes:?}");
        assert!((it.ratio_sum - 2.0 * s).abs() < 1e-6 && it.clipped == 0);
        // A single token far outside does not matter; the sequence does: s = e^0.5 is clipped at 1.2.
        let it = sequence_surrogate(&[0.0, 0.0], &[-1.0, 0.0], bound(0.5), &mut slopes);
        assert_eq!(slopes, [0.0, 0.0]);
        assert!((it.objective - 2.0 * 1.2 * 0.5).abs() < 1e-12 && it.clipped == 2);
    }
}
