//! The KL term to a reference model, by the three usual estimators (D18: none unless a recipe or a method has one).

use super::SpanTokens;
use crate::credit::Kl;

impl Kl {
    /// coef·Σ k / divisor over a span's tokens; adds its derivatives to the loss's.
    pub(super) fn add(self, tokens: SpanTokens<'_>, divisor: f64, d_log_probs: &mut [f32]) -> f64 {
        assert_eq!(tokens.log_probs.len(), tokens.reference.len(), "one reference per token");
        let mut sum = 0.0;
        let pairs = tokens.log_probs.iter().zip(tokens.reference);
        for ((log_prob, reference), slope) in pairs.zip(d_log_probs) {
            let (value, derivative) =
                self.estimator.at(f64::from(*reference) - f64::from(*log_prob));
            sum += value;
            *slope = (f64::from(*slope) + self.coef * derivative / divisor) as f32;
        }
        self.coef * sum / divisor
    }
}

#[cfg(test)]
mod tests {
    use crate::credit::KlEstimator;

    /// KDRL's example: log π = −1, log `π_T` = −3, so q = −2.
    #[test]
    fn values_and_derivatives_by_hand() {
        assert_eq!(KlEstimator::K1.at(-2.0), (2.0, 1.0));
        assert_eq!(KlEstimator::K2.at(-2.0), (2.0, 2.0));
        let (value, slope) = KlEstimator::K3.at(-2.0);
        let e = (-2.0_f64).exp();
        assert!((value - (e + 1.0)).abs() < 1e-15 && (slope - (1.0 - e)).abs() < 1e-15);
    }

    #[test]
    fn derivatives_are_those_of_the_values() {
        for estimator in [KlEstimator::K1, KlEstimator::K2, KlEstimator::K3] {
            for reference in [-6.0, -1.3, -0.2] {
                for log_prob in [-5.0, -1.3, -0.01] {
                    let at = |log_prob: f64| estimator.at(reference - log_prob).0;
                    let slope = (at(log_prob + 1e-6) - at(log_prob - 1e-6)) / 2e-6;
                    let written = estimator.at(reference - log_prob).1;
                    let close = 1e-7 * (1.0 + slope.abs());
                    assert!((slope - written).abs() < close, "{estimator:?} {slope} {written}");
                }
            }
        }
    }
}
