//! The KL term to a reference model, by the three usual estimators (D18: none unless a recipe or a method has one).

use serde::{Deserialize, Serialize};

use super::{SpanTerms, SpanTokens};

/// A KL term: the loss gains coef·Σ k over a span's tokens, under the span's divisor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kl {
    /// Its weight; at 0 there is no term.
    pub coef: f64,
    /// k.
    pub estimator: KlEstimator,
}

/// An estimator of KL(π ‖ `π_ref`) on one token, a function of q = log `π_ref` − log π, both at the sampling
/// temperature ("Approximating KL divergence", <http://joschu.net/blog/kl-approx.html>). On the policy's own tokens k1
/// and k3 have the KL as their mean; the gradient of k2 is the KL's, that of k1 is 0 in the mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KlEstimator {
    /// −q.
    K1,
    /// q²/2.
    K2,
    /// exp(q) − 1 − q, as in GRPO.
    #[default]
    K3,
}

impl KlEstimator {
    /// k, and its derivative by log π.
    pub fn at(self, q: f64) -> (f64, f64) {
        match self {
            Self::K1 => (-q, 1.0),
            Self::K2 => (0.5 * q * q, -q),
            Self::K3 => (q.exp_m1() - q, -q.exp_m1()),
        }
    }
}

impl Kl {
    /// Adds the term to a span's part of the objective and to the loss's derivatives.
    pub(super) fn add(
        self,
        tokens: SpanTokens<'_>,
        divisor: f64,
        terms: &mut SpanTerms,
        d_log_probs: &mut [f32],
    ) {
        assert_eq!(tokens.log_probs.len(), tokens.reference.len(), "one reference per token");
        let mut sum = 0.0;
        let pairs = tokens.log_probs.iter().zip(tokens.reference);
        for ((log_prob, reference), slope) in pairs.zip(d_log_probs) {
            let (value, derivative) =
                self.estimator.at(f64::from(*reference) - f64::from(*log_prob));
            sum += value;
            *slope = (f64::from(*slope) + self.coef * derivative / divisor) as f32;
        }
        terms.objective -= self.coef * sum / divisor;
        terms.kl_sum = Some(sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
