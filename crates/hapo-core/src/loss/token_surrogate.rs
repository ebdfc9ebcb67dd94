//! The clipped surrogate of Eq. 3 on one rollout's tokens, and its derivative.

use super::SpanTerms;

/// Half-widths of the trust region around an importance ratio of 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clip {
    /// ε below: ratios under 1 − low stop pulling a bad token down.
    pub low: f64,
    /// ε above: ratios over 1 + high stop pushing a good token up.
    pub high: f64,
}

/// The bounds of a rollout's surrogate, and the divisor of its derivative.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// A.
    pub advantage: f64,
    /// The trust region.
    pub clip: Clip,
    /// The sequence's divisor: the loss is −objective / divisor.
    pub divisor: f64,
}

/// `L = −Σ min(r·A, clip(r, 1 − ε_low, 1 + ε_high)·A) / divisor` with r = exp(log π − log `π_old`) of each token, both
/// at the sampling temperature (Eq. 3, D25).
///
/// Writes d L / d log π of each token: −r·A / divisor where the unclipped branch is the smaller one, 0 where the
/// clipped one is. The slices have one length.
pub fn token_surrogate(
    log_probs: &[f32],
    old_log_probs: &[f32],
    bound: Bound,
    d_log_probs: &mut [f32],
) -> SpanTerms {
    assert_eq!(log_probs.len(), old_log_probs.len(), "one old log-probability per token");
    let Bound { advantage, clip, divisor } = bound;
    let mut total = SpanTerms::default();
    for ((new, old), slope) in log_probs.iter().zip(old_log_probs).zip(d_log_probs) {
        let ratio = libm::exp(f64::from(*new) - f64::from(*old));
        let unclipped = ratio * advantage;
        let clipped = ratio.clamp(1.0 - clip.low, 1.0 + clip.high) * advantage;
        if unclipped <= clipped {
            total.objective += unclipped;
            *slope = (-unclipped / divisor) as f32;
        } else {
            total.objective += clipped;
            *slope = 0.0;
            total.clipped += 1;
        }
        total.ratio_sum += ratio;
        total.ratio_max = total.ratio_max.max(ratio);
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(ratio: f64, advantage: f64) -> (f64, f64, usize) {
        let mut slope = [7.0];
        let bound = Bound { advantage, clip: Clip { low: 0.2, high: 0.3 }, divisor: 1.0 };
        let it = token_surrogate(&[ratio.ln() as f32], &[0.0], bound, &mut slope);
        (it.objective, -f64::from(slope[0]), it.clipped)
    }

    #[test]
    fn each_branch_has_its_value_and_its_slope() {
        // (ratio, advantage) → (objective, slope, clipped), by hand from Eq. 3.
        for ((ratio, advantage), (objective, slope, clipped)) in [
            ((1.0, 0.5), (0.5, 0.5, 0)),
            ((1.25, 0.5), (0.625, 0.625, 0)),
            ((1.5, 0.5), (0.65, 0.0, 1)),
            ((0.5, 0.5), (0.25, 0.25, 0)),
            ((0.5, -0.5), (-0.4, 0.0, 1)),
            ((1.5, -0.5), (-0.75, -0.75, 0)),
            ((1.5, 0.0), (0.0, 0.0, 0)),
        ] {
            let got = run(ratio, advantage);
            assert!((got.0 - objective).abs() < 1e-6, "objective at {ratio}, {advantage}: {got:?}");
            assert!((got.1 - slope).abs() < 1e-6, "slope at {ratio}, {advantage}: {got:?}");
            assert_eq!(got.2, clipped, "clip at {ratio}, {advantage}");
        }
    }
}
