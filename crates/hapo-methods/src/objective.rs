//! The objective on one sequence's tokens: Eq. 3 for a rollout, Eq. 11 for the teacher.

use hapo_core::{AdvantageRule, TeacherWeight};

use crate::{Clip, Operator, clipped_surrogate};

/// What tokens are worth: everything of the loss that is not a decision about groups.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objective {
    /// Trust region of the on-policy term (Eq. 3).
    pub clip: Clip,
    /// F on the teacher's tokens (Eq. 11, D14).
    pub operator: &'static Operator,
    /// The operator's d.
    pub d: f64,
    /// λ (D15).
    pub teacher_weight: TeacherWeight,
    /// How the sum over tokens becomes a mean (D16).
    pub normaliser: Normaliser,
    /// Weight of Σ H over on-policy tokens, under the same normaliser (D17).
    pub entropy_coef: f64,
    /// How advantages are taken within a group (D12, D13).
    pub advantage: AdvantageRule,
}

/// What the sum over tokens is divided by. Both are global over the optimiser step (D16), so the
/// loss does not depend on how a batch is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normaliser {
    /// Number of sequences × longest response allowed (Dr. GRPO).
    Constant {
        /// Longest response allowed, in tokens.
        max_response: usize,
    },
    /// Number of response tokens, the teacher's included (Eq. 3, Eq. 10).
    TokenMean,
}

impl Normaliser {
    /// The divisor for an optimiser step over sequences of these response lengths; at least 1.
    pub fn divisor(self, response_lengths: impl IntoIterator<Item = usize>) -> f64 {
        let (mut sequences, mut tokens) = (0_usize, 0_usize);
        for it in response_lengths {
            sequences += 1;
            tokens += it;
        }
        match self {
            Self::Constant { max_response } => (sequences * max_response).max(1) as f64,
            Self::TokenMean => tokens.max(1) as f64,
        }
    }
}

/// A rollout's tokens in the current policy's eyes.
#[derive(Clone, Copy, Debug)]
pub struct PolicyTokens<'a> {
    /// log π at the sampling temperature (D25). \[tokens\]
    pub log_probs: &'a [f32],
    /// log `π_old` as recorded while sampling (D19). \[tokens\]
    pub old_log_probs: &'a [f32],
    /// Entropy of each token's distribution at temperature 1. \[tokens\]
    pub entropies: &'a [f32],
    /// A of the rollout.
    pub advantage: f64,
}

/// The teacher's tokens in the current policy's eyes.
#[derive(Clone, Copy, Debug)]
pub struct TeacherTokens<'a> {
    /// log π at temperature 1 (D25). \[tokens\]
    pub log_probs: &'a [f32],
    /// λ.
    pub weight: f64,
}

/// One sequence's part of the objective (to be maximised, divided by the normaliser) and what the
/// logs want to know of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SequenceTerms {
    /// Its part of the objective.
    pub objective: f64,
    /// Σ H over on-policy tokens.
    pub entropy_sum: f64,
    /// On-policy tokens outside the trust region.
    pub clipped: usize,
    /// Σ r over on-policy tokens.
    pub ratio_sum: f64,
    /// Largest r.
    pub ratio_max: f64,
}

impl Objective {
    /// The on-policy term of one rollout (Eq. 3, D17). Writes the derivative of the *loss* (the
    /// negative objective over `divisor`) by each log-probability and entropy.
    ///
    /// # Panics
    /// When the slices differ in length.
    pub fn policy_terms(
        &self,
        tokens: PolicyTokens<'_>,
        divisor: f64,
        d_log_probs: &mut [f32],
        d_entropies: &mut [f32],
    ) -> SequenceTerms {
        assert_eq!(
            tokens.log_probs.len(),
            d_log_probs.len(),
            "one derivative per token"
        );
        assert_eq!(
            tokens.entropies.len(),
            d_entropies.len(),
            "one derivative per entropy"
        );
        // Tokens that the clip holds get no derivative; the buffer may hold an older batch's.
        d_log_probs.fill(0.0);
        let it = clipped_surrogate(
            tokens.log_probs,
            tokens.old_log_probs,
            tokens.advantage,
            self.clip,
            |i, slope| {
                d_log_probs[i] = (-slope / divisor) as f32;
            },
        );
        d_entropies.fill((-self.entropy_coef / divisor) as f32);
        let entropy_sum = tokens
            .entropies
            .iter()
            .map(|it| f64::from(*it))
            .sum::<f64>();
        SequenceTerms {
            objective: (it.objective + self.entropy_coef * entropy_sum) / divisor,
            entropy_sum,
            clipped: it.clipped,
            ratio_sum: it.ratio_sum,
            ratio_max: it.ratio_max,
        }
    }

    /// The teacher's term λ·Σ F(π) (Eq. 11). Writes the derivative of the *loss* by each
    /// log-probability and returns the term's part of the objective.
    ///
    /// # Panics
    /// When the slices differ in length.
    pub fn teacher_terms(
        &self,
        tokens: TeacherTokens<'_>,
        divisor: f64,
        d_log_probs: &mut [f32],
    ) -> f64 {
        assert_eq!(
            tokens.log_probs.len(),
            d_log_probs.len(),
            "one derivative per token"
        );
        let scale = tokens.weight / divisor;
        let mut objective = 0.0;
        for (log_prob, slope) in tokens.log_probs.iter().zip(d_log_probs) {
            let log_pi = f64::from(*log_prob);
            objective += (self.operator.value)(log_pi, self.d);
            *slope = (-scale * (self.operator.weight)(log_pi, self.d)) as f32;
        }
        objective * scale
    }
}
