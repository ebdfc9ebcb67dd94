//! How the sum over tokens becomes a mean. The price of a divisor that is global over the optimiser step is that
//! lengths must be known before anything is run.

use serde::{Deserialize, Serialize};

/// What the sum over tokens is divided by, over the whole optimiser step (D16): no cut of a batch changes the loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Normaliser {
    /// Which divisor.
    pub kind: NormaliserKind,
    /// Longest response allowed, in tokens.
    pub max_response: usize,
}

/// A [`Normaliser`] by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NormaliserKind {
    /// Number of sequences × longest response allowed (Dr. GRPO).
    #[default]
    Constant,
    /// Longest response allowed, whatever the number of sequences (LUFFY's and HPT's code).
    Length,
    /// Number of response tokens, the teacher's included (Eq. 3, Eq. 10).
    TokenMean,
    /// Each sequence by its own length, then by the number of sequences (GSPO, the first GRPO).
    SequenceMean,
}

impl NormaliserKind {
    /// The normaliser of responses of at most `max_response` tokens.
    pub fn of(self, max_response: usize) -> Normaliser {
        Normaliser { kind: self, max_response }
    }
}

impl Normaliser {
    /// That of the number of response tokens.
    pub const TOKEN_MEAN: Self = Self { kind: NormaliserKind::TokenMean, max_response: 0 };

    /// The divisor for an optimiser step over sequences of these response lengths; at least 1.
    pub fn divisor(self, response_lengths: impl IntoIterator<Item = usize>) -> f64 {
        let (mut sequences, mut tokens) = (0_usize, 0_usize);
        for it in response_lengths {
            sequences += 1;
            tokens += it;
        }
        let divisor = match self.kind {
            NormaliserKind::Constant => sequences * self.max_response,
            NormaliserKind::Length => self.max_response,
            NormaliserKind::TokenMean => tokens,
            NormaliserKind::SequenceMean => sequences,
        };
        divisor.max(1) as f64
    }

    /// The divisor of the tokens of a sequence of `tokens` tokens, from that of the whole step.
    pub fn of_sequence(self, divisor: f64, tokens: usize) -> f64 {
        match self.kind {
            NormaliserKind::SequenceMean => divisor * tokens.max(1) as f64,
            _ => divisor,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D16: the three normalisers of a response of 2 tokens among 3 sequences of 10 tokens in all.
    #[test]
    fn d16_normalisers_divide_by_their_counts() {
        let lengths = || [2_usize, 3, 5].into_iter();
        let constant = NormaliserKind::Constant.of(7);
        assert_eq!(constant.divisor(lengths()), 21.0);
        assert_eq!(NormaliserKind::Length.of(7).divisor(lengths()), 7.0);
        assert_eq!(Normaliser::TOKEN_MEAN.divisor(lengths()), 10.0);
        assert_eq!(NormaliserKind::SequenceMean.of(0).divisor(lengths()), 3.0);
        assert_eq!(NormaliserKind::SequenceMean.of(0).of_sequence(3.0, 2), 6.0);
        assert_eq!(Normaliser::TOKEN_MEAN.of_sequence(10.0, 2), 10.0);
    }
}
