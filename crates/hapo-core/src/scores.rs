//! Log-probabilities that a method asks for besides those recorded while sampling (D38).

use crate::{Advantage, Credit, Member, MixedGroup, Ratio, Span, Term, TokenId};

/// A model's scores of the tokens of one response.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenScores {
    /// log π of each token, at the temperature that was asked for.
    pub log_probs: Vec<f32>,
    /// Entropy of the distribution in each token's place at temperature 1.
    pub entropies: Vec<f32>,
    /// The likeliest tokens in each place with log-probabilities at temperature 1, best first; empty unless asked.
    pub top: Vec<Vec<(TokenId, f32)>>,
}

impl TokenScores {
    /// The mean entropy of the tokens, 0 of none.
    pub fn mean_entropy(&self) -> f64 {
        let sum: f64 = self.entropies.iter().map(|it| f64::from(*it)).sum();
        sum / self.entropies.len().max(1) as f64
    }
}

/// The scores of a group, in the order of its members; empty for a method that asks for none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores {
    /// Under the reference model, at the sampling temperature.
    pub reference: Vec<TokenScores>,
    /// Under the weights before the step's first update, at the sampling temperature, behind the prompt that the method
    /// names for each member; empty for a member that is not scored.
    pub own: Vec<TokenScores>,
}

impl Scores {
    /// No scores.
    pub const NONE: &Self = &Self { reference: Vec::new(), own: Vec::new() };

    /// The credit of distillation: each token of a rollout has log `π_ref` − log `π_old`, within ±`clamp`, as its
    /// advantage (D38). Other members have none. Every member must be scored.
    pub fn gaps(&self, group: &MixedGroup, clamp: f32) -> Credit {
        assert_eq!(self.reference.len(), group.members().len(), "every member is scored");
        let of = |(member, teacher): (&Member, &TokenScores)| match member {
            Member::Policy(it) => vec![gap(&it.rollout.log_probs, &teacher.log_probs, clamp)],
            _ => Vec::new(),
        };
        group.members().iter().zip(&self.reference).map(of).collect()
    }
}

/// A span whose tokens have log `π_teacher` − log `π_own`, within ±`clamp`, as their advantages.
pub(crate) fn gap(own: &[f32], teacher: &[f32], clamp: f32) -> Span {
    assert_eq!(own.len(), teacher.len(), "every token is scored");
    let gaps = teacher.iter().zip(own).map(|(teacher, own)| (teacher - own).clamp(-clamp, clamp));
    let advantage = Advantage::Tokens(gaps.collect());
    Span::new(0..own.len(), Term::Policy { advantage, ratio: Ratio::Recorded })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: `log π_old = −1, −2, −0.5` and `log π_T = −0.5, −3, −0.5`.
    #[test]
    fn d38_the_advantage_is_the_gap_of_log_probabilities() {
        let of = |clamp| match gap(&[-1.0, -2.0, -0.5], &[-0.5, -3.0, -0.5], clamp).term {
            Term::Policy { advantage: Advantage::Tokens(it), ratio: Ratio::Recorded } => {
                it.to_vec()
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(of(f32::INFINITY), [0.5, -1.0, 0.0]);
        assert_eq!(of(0.75), [0.5, -0.75, 0.0]);
    }
}
