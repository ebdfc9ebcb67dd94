//! Log-probabilities that a method asks for besides those recorded while sampling (D38).

use crate::rollout::TokenId;

/// What a model says of the tokens of one response.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenScores {
    /// log π of each token, at the temperature that was asked for.
    pub log_probs: Vec<f32>,
    /// Entropy of the distribution in each token's place at temperature 1.
    pub entropies: Vec<f32>,
    /// The likeliest tokens in each token's place with their log-probabilities at temperature 1, best first; empty
    /// unless asked for.
    pub top: Vec<Vec<(TokenId, f32)>>,
}

/// The scores of a group, in the order of its members; empty for a method that asks for none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores {
    /// Under the reference model, at the sampling temperature.
    pub reference: Vec<TokenScores>,
}

impl Scores {
    /// No scores.
    pub const NONE: &Self = &Self { reference: Vec::new() };
}
