//! The objective on one sequence's tokens: Eq. 3 for a rollout, Eq. 11 for the teacher.

mod sequence_surrogate;
mod token_surrogate;

use crate::{AdvantageRule, Mu, Operator, TeacherWeight};

pub use sequence_surrogate::sequence_surrogate;
pub use token_surrogate::{Clip, Surrogate, clipped_surrogate};

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
    /// Whose importance ratio is clipped: each token's, or the sequence's (GSPO).
    pub ratio: Ratio,
    /// Whether SRFT's entropy weights take the place of advantages and λ (D21).
    pub weights: Weights,
    /// What becomes of the rollouts of a group that the teacher enters.
    pub on_injection: OnInjection,
    /// How the two terms are mixed over the run; none adds them.
    pub mu: Option<Mu>,
    /// Factor of the on-policy term in the step at hand: 1 − μ, or 1.
    pub policy_scale: f64,
    /// Factor of the teacher's term in the step at hand: μ, or 1.
    pub teacher_scale: f64,
}

/// Whose importance ratio the trust region holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ratio {
    /// Each token's (Eq. 3).
    #[default]
    Token,
    /// The whole response's (GSPO).
    Sequence,
}

/// What a rollout's and a demonstration's tokens are weighted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weights {
    /// The advantage and λ.
    #[default]
    Plain,
    /// SRFT's own: 0.1·exp(H) for a correct rollout, −1 for any other, 0.5·exp(−H) times λ for the
    /// teacher, with H the mean entropy of the sequence at temperature 1, without a gradient (D21).
    Entropy,
}

/// What becomes of the rollouts of a group that the teacher enters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnInjection {
    /// They are trained on beside the teacher (Eq. 10).
    #[default]
    KeepRollouts,
    /// They are dropped; the group is the demonstration alone (HPT).
    DropRollouts,
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
    /// Each sequence by its own length, then by the number of sequences (GSPO, the first GRPO).
    SequenceMean,
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
            Self::SequenceMean => sequences.max(1) as f64,
        }
    }

    /// The divisor of one sequence's tokens, from that of the whole step.
    fn of_sequence(self, divisor: f64, tokens: usize) -> f64 {
        match self {
            Self::Constant { .. } | Self::TokenMean => divisor,
            Self::SequenceMean => divisor * tokens.max(1) as f64,
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
    /// Whether its verdict is Correct.
    pub correct: bool,
}

/// The teacher's tokens in the current policy's eyes.
#[derive(Clone, Copy, Debug)]
pub struct TeacherTokens<'a> {
    /// log π at temperature 1 (D25). \[tokens\]
    pub log_probs: &'a [f32],
    /// Entropy of each token's distribution at temperature 1. \[tokens\]
    pub entropies: &'a [f32],
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
    /// The objective of step `step`, counted from 1.
    pub fn at(mut self, step: u64) -> Self {
        if let Some(mu) = self.mu {
            self.teacher_scale = mu.at(step);
            self.policy_scale = 1.0 - self.teacher_scale;
        }
        self
    }

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
        let divisor = self.normaliser.of_sequence(divisor, tokens.log_probs.len());
        let advantage = self.policy_scale
            * match self.weights {
                Weights::Plain => tokens.advantage,
                Weights::Entropy if tokens.correct => 0.1 * mean(tokens.entropies).exp(),
                Weights::Entropy => -1.0,
            };
        // Tokens that the clip holds get no derivative; the buffer may hold an older batch's.
        d_log_probs.fill(0.0);
        let (new, old) = (tokens.log_probs, tokens.old_log_probs);
        let add = |i: usize, slope: f64| d_log_probs[i] = (-slope / divisor) as f32;
        let it = match self.ratio {
            Ratio::Token => clipped_surrogate(new, old, advantage, self.clip, add),
            Ratio::Sequence => sequence_surrogate(new, old, advantage, self.clip, add),
        };
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
        let divisor = self.normaliser.of_sequence(divisor, tokens.log_probs.len());
        let weight = self.teacher_scale
            * match self.weights {
                Weights::Plain => tokens.weight,
                Weights::Entropy => tokens.weight * 0.5 * (-mean(tokens.entropies)).exp(),
            };
        let scale = weight / divisor;
        let mut objective = 0.0;
        for (log_prob, slope) in tokens.log_probs.iter().zip(d_log_probs) {
            let log_pi = f64::from(*log_prob);
            objective += (self.operator.value)(log_pi, self.d);
            *slope = (-scale * (self.operator.weight)(log_pi, self.d)) as f32;
        }
        objective * scale
    }
}

fn mean(values: &[f32]) -> f64 {
    values.iter().map(|it| f64::from(*it)).sum::<f64>() / values.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator;

    fn objective() -> Objective {
        Objective {
            clip: Clip {
                low: 0.2,
                high: 0.2,
            },
            operator: operator("srft").unwrap(),
            d: 0.1,
            teacher_weight: TeacherWeight::One,
            normaliser: Normaliser::TokenMean,
            entropy_coef: 0.0,
            advantage: AdvantageRule::default(),
            ratio: Ratio::Token,
            weights: Weights::Plain,
            on_injection: OnInjection::KeepRollouts,
            mu: None,
            policy_scale: 1.0,
            teacher_scale: 1.0,
        }
    }

    fn policy(objective: &Objective, advantage: f64, correct: bool) -> (f64, [f32; 2]) {
        let (mut d, mut e) = ([0.0; 2], [0.0; 2]);
        let tokens = PolicyTokens {
            log_probs: &[-1.0, -2.0],
            old_log_probs: &[-1.0, -2.0],
            entropies: &[0.5, 1.5],
            advantage,
            correct,
        };
        let it = objective.policy_terms(tokens, 10.0, &mut d, &mut e);
        (it.objective, d)
    }

    fn teacher(objective: &Objective) -> (f64, [f32; 2]) {
        let mut d = [0.0; 2];
        let tokens = TeacherTokens {
            log_probs: &[-1.0, -2.0],
            entropies: &[0.5, 1.5],
            weight: 1.0,
        };
        (objective.teacher_terms(tokens, 10.0, &mut d), d)
    }

    /// D21: with mean entropy 1, 0.1·e for a correct rollout, −1 for a wrong one, 0.5/e for the teacher.
    #[test]
    fn d21_entropy_weights_replace_advantages() {
        let it = Objective {
            weights: Weights::Entropy,
            ..objective()
        };
        let e = std::f64::consts::E;
        assert!((policy(&it, 0.875, true).0 - 2.0 * 0.1 * e / 10.0).abs() < 1e-12);
        assert!((policy(&it, -0.125, false).0 + 2.0 / 10.0).abs() < 1e-12);
        assert!((teacher(&it).0 - -3.0 * 0.5 / e / 10.0).abs() < 1e-12);
        assert_eq!(policy(&objective(), 0.5, true).0, 2.0 * 0.5 / 10.0);
    }

    /// D16: the three normalisers of a response of 2 tokens among 3 sequences of 10 tokens in all.
    #[test]
    fn d16_normalisers_divide_by_their_counts() {
        let lengths = || [2_usize, 3, 5].into_iter();
        let constant = Normaliser::Constant { max_response: 7 };
        assert_eq!(constant.divisor(lengths()), 21.0);
        assert_eq!(Normaliser::TokenMean.divisor(lengths()), 10.0);
        assert_eq!(Normaliser::SequenceMean.divisor(lengths()), 3.0);
        assert_eq!(Normaliser::SequenceMean.of_sequence(3.0, 2), 6.0);
        assert_eq!(Normaliser::TokenMean.of_sequence(10.0, 2), 10.0);
    }

    #[test]
    fn mu_mixes_the_two_terms() {
        let mu = Mu {
            start: 0.75,
            end: 0.25,
            steps: 2,
        };
        let it = Objective {
            mu: Some(mu),
            ..objective()
        };
        let (first, last) = (it.at(1), it.at(9));
        let plain = (policy(&objective(), 0.5, true).0, teacher(&objective()).0);
        assert!((policy(&first, 0.5, true).0 - 0.25 * plain.0).abs() < 1e-12);
        assert!((teacher(&first).0 - 0.75 * plain.1).abs() < 1e-12);
        assert!((policy(&last, 0.5, true).0 - 0.75 * plain.0).abs() < 1e-12);
        assert_eq!(objective().at(5), objective());
    }

    /// With the clip off every ratio keeps its slope, however far it is from 1 (`luffy-original`).
    #[test]
    fn clip_off_holds_no_token() {
        let it = Objective {
            clip: Clip::OFF,
            ..objective()
        };
        let (mut d, mut e) = ([0.0], [0.0]);
        for (log_ratio, advantage) in [(3.0_f32, 0.5), (-3.0, -0.5)] {
            let tokens = PolicyTokens {
                log_probs: &[log_ratio - 4.0],
                old_log_probs: &[-4.0],
                entropies: &[0.0],
                advantage,
                correct: true,
            };
            let got = it.policy_terms(tokens, 1.0, &mut d, &mut e);
            let free = f64::from(log_ratio).exp() * advantage;
            assert!((got.objective - free).abs() < 1e-12 && got.clipped == 0);
            assert!((f64::from(d[0]) + free).abs() < 1e-6);
        }
    }
}
