//! The KL term to a reference model, by the three usual estimators (D18: none unless a recipe or a method has one).

use super::SpanTokens;
use crate::credit::{Kl, Span};

impl Kl {
    /// coef·Σ k / divisor over a span's tokens; adds its derivatives to the loss's.
    pub(super) fn add(
        self,
        tokens: SpanTokens<'_>,
        span: &Span,
        divisor: f64,
        d_log_probs: &mut [f32],
    ) -> f64 {
        assert_eq!(tokens.log_probs.len(), tokens.reference.len(), "one reference per token");
        let mut sum = 0.0;
        let pairs = tokens.log_probs.iter().zip(tokens.reference);
        let all = pairs.zip(d_log_probs).enumerate();
        for (_, ((log_prob, reference), slope)) in all.filter(|(at, _)| span.weight(*at) != 0.0) {
            let (value, derivative) =
                self.estimator.at(f64::from(*reference) - f64::from(*log_prob));
            sum += value;
            *slope = (f64::from(*slope) + self.coef * derivative / divisor) as f32;
        }
        self.coef * sum / divisor
    }
}
