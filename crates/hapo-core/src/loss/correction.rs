//! The correction of rollouts of an engine that is not ours (D41). Such an engine samples from another distribution
//! than the one that is trained, at equal weights: kernels and number formats differ. The ratio's `π_old` is then the
//! trainer's own forward pass, and `w = π_old/π_sampler` is a factor of each token's surrogate without a gradient.

use serde::{Deserialize, Serialize};

use crate::{Rollout, Span};

/// How w is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CorrectionKind {
    /// Each token's ratio, at most C.
    TokenTruncate,
    /// Each token's ratio; a token with one outside [1/C, C] is masked.
    TokenMask,
    /// The product of the ratios of a response, at most C.
    SequenceTruncate,
    /// The product of the ratios of a response; a response with one outside [1/C, C] is masked.
    SequenceMask,
    /// 1.
    None,
}

impl CorrectionKind {
    /// Whether tokens of one response may differ in w.
    pub fn is_by_token(self) -> bool {
        matches!(self, Self::TokenTruncate | Self::TokenMask)
    }
}

/// A kind and its bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Correction {
    /// How w is bounded.
    pub kind: CorrectionKind,
    /// C, at least 1.
    pub cap: f64,
}

impl Correction {
    /// w of each token of a response: 0 where it is masked, and nowhere else. The slices have one length.
    pub fn weights(self, old_log_probs: &[f32], sampler_log_probs: &[f32]) -> Vec<f32> {
        let mut log_ratios = gaps(old_log_probs, sampler_log_probs);
        if !self.kind.is_by_token() {
            let sum = log_ratios.iter().sum::<f64>();
            log_ratios.fill(sum);
        }
        log_ratios.into_iter().map(|it| self.weight(libm::exp(it))).collect()
    }

    fn weight(self, ratio: f64) -> f32 {
        match self.kind {
            CorrectionKind::None => 1.0,
            CorrectionKind::TokenTruncate | CorrectionKind::SequenceTruncate => {
                (ratio.min(self.cap) as f32).max(f32::MIN_POSITIVE)
            }
            CorrectionKind::TokenMask | CorrectionKind::SequenceMask => {
                let is_inside = (1.0 / self.cap..=self.cap).contains(&ratio);
                if is_inside { ratio as f32 } else { 0.0 }
            }
        }
    }

    /// Gives the policy's spans of a rollout their weights. Tokens that were given to the rollout, and rollouts whose
    /// log-probabilities are the sampler's own, have weight 1.
    pub fn attach(self, spans: &mut [Span], rollout: &Rollout) {
        if rollout.sampler_log_probs.is_empty() || self.kind == CorrectionKind::None {
            return;
        }
        let weights = self.weights(rollout.corrected(), &rollout.sampler_log_probs);
        let given = rollout.tokens.len() - weights.len();
        for span in spans.iter_mut().filter(|span| !span.is_teacher()) {
            let weight = |at: usize| at.checked_sub(given).map_or(1.0, |at| weights[at]);
            span.weights = Some(span.tokens.clone().map(weight).collect());
        }
    }
}

/// log `π_old` − log `π_sampler` of each token.
fn gaps(old_log_probs: &[f32], sampler_log_probs: &[f32]) -> Vec<f64> {
    assert_eq!(old_log_probs.len(), sampler_log_probs.len(), "one log-probability of each");
    let pairs = old_log_probs.iter().zip(sampler_log_probs);
    pairs.map(|(old, sampler)| f64::from(*old) - f64::from(*sampler)).collect()
}

/// Sums over the sampled tokens of a batch of how far sampler and trainer are apart.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mismatch {
    tokens: usize,
    gap_sum: f64,
    gap_max: f64,
    kl_sum: f64,
    bounded: usize,
    weight_sum: f64,
    square_sum: f64,
}

impl Mismatch {
    /// Adds the tokens of a rollout; none where its log-probabilities are the sampler's own.
    pub fn add(&mut self, correction: Correction, rollout: &Rollout) {
        let (old, sampler) = (rollout.corrected(), &rollout.sampler_log_probs);
        let weights = correction.weights(old, sampler);
        for (gap, weight) in gaps(old, sampler).into_iter().zip(weights) {
            self.tokens += 1;
            self.gap_sum += gap.abs();
            self.gap_max = self.gap_max.max(gap.abs());
            self.kl_sum += libm::expm1(gap) - gap;
            self.bounded += usize::from(weight == 0.0 || weight == correction.cap as f32);
            let weight = f64::from(weight);
            self.weight_sum += weight;
            self.square_sum += weight * weight;
        }
    }

    /// The metrics by their names, none of no tokens: mean and largest |log `π_old` − log `π_sampler`|, k3 of
    /// KL(sampler ‖ trainer), the share of tokens at the bound or masked, and the effective share of tokens
    /// (Σw)²/(n·Σw²).
    pub fn entries(self) -> Vec<(&'static str, f64)> {
        if self.tokens == 0 {
            return Vec::new();
        }
        let n = self.tokens as f64;
        let spread = if self.square_sum > 0.0 { n * self.square_sum } else { 1.0 };
        vec![
            ("sampler/logprob_gap_mean", self.gap_sum / n),
            ("sampler/logprob_gap_max", self.gap_max),
            ("sampler/kl", self.kl_sum / n),
            ("sampler/bounded", self.bounded as f64 / n),
            ("sampler/effective", self.weight_sum * self.weight_sum / spread),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: ratios e^0.5 = 1.64872, e^-1 = 0.36788, e^1 = 2.71828 and their product e^0.5.
    #[test]
    fn d41_each_kind_has_its_weights() {
        let (old, sampler) = ([-0.5, -2.0, -1.0], [-1.0, -1.0, -2.0]);
        for (kind, expected) in [
            (CorrectionKind::TokenTruncate, [1.648_721, 0.367_879, 2.0]),
            (CorrectionKind::TokenMask, [1.648_721, 0.0, 0.0]),
            (CorrectionKind::SequenceTruncate, [1.648_721; 3]),
            (CorrectionKind::SequenceMask, [1.648_721; 3]),
            (CorrectionKind::None, [1.0; 3]),
        ] {
            let got = Correction { kind, cap: 2.0 }.weights(&old, &sampler);
            let close = got.iter().zip(expected).all(|(got, it)| (got - it).abs() < 1e-6);
            assert!(close, "{kind:?}: {got:?}");
        }
        let cap = 1.5;
        let of = |kind| Correction { kind, cap }.weights(&old, &sampler);
        assert_eq!(of(CorrectionKind::SequenceTruncate), [1.5; 3]);
        assert_eq!(of(CorrectionKind::SequenceMask), [0.0; 3]);
    }

    /// A truncated weight is never 0, however far the sampler is away, so that 0 means masked.
    #[test]
    fn d41_only_a_mask_is_zero() {
        let truncate = Correction { kind: CorrectionKind::TokenTruncate, cap: 2.0 };
        assert_eq!(truncate.weights(&[-9999.0, -1.0], &[-1.0, -1.0]), [f32::MIN_POSITIVE, 1.0]);
    }

    /// By hand: gaps 0.5 and −1; w = e^0.5 and e^-1 under C = 2, and C = 1.5 bounds the first.
    #[test]
    fn d41_metrics_of_two_tokens() {
        let rollout = Rollout {
            tokens: vec![1, 2, 3],
            log_probs: vec![-7.0, -0.5, -2.0],
            sampler_log_probs: vec![-1.0, -1.0],
            ..Rollout::default()
        };
        let of = |cap| {
            let mut mismatch = Mismatch::default();
            mismatch.add(Correction { kind: CorrectionKind::TokenTruncate, cap }, &rollout);
            mismatch.entries().into_iter().map(|it| it.1).collect::<Vec<_>>()
        };
        let (a, b) = (0.5_f64.exp(), (-1.0_f64).exp());
        let kl = ((a - 1.5) + (b + 0.0)) / 2.0;
        let effective = (a + b).powi(2) / (2.0 * (a * a + b * b));
        let close = |got: Vec<f64>, expected: [f64; 5]| {
            assert!(got.iter().zip(expected).all(|(got, it)| (got - it).abs() < 1e-6), "{got:?}");
        };
        close(of(2.0), [0.75, 1.0, kl, 0.0, effective]);
        let effective = (1.5 + b).powi(2) / (2.0 * (2.25 + b * b));
        close(of(1.5), [0.75, 1.0, kl, 0.5, effective]);
        assert!(Mismatch::default().entries().is_empty());
    }
}
