//! How the next token is drawn from a row of logits.

use std::fmt::Display;

use hapo_core::Refusal;
use hapo_kernels::DrawRow;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decoding {
    /// The most likely token; the lowest id on ties.
    Greedy,
    /// A draw at this temperature, restricted as `truncation` says.
    Sample { temperature: f32, truncation: Truncation },
}

/// Restrictions on the tokens that may be drawn, applied in the order of the fields. The recorded log-probabilities
/// stay those of the whole distribution (D25).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Truncation {
    /// Only the k most likely tokens; 0 = all.
    pub top_k: usize,
    /// Only the smallest set of most likely tokens whose probability reaches this; 1 = all.
    pub top_p: f32,
    /// Only tokens at least this fraction as likely as the most likely one; 0 = all.
    pub min_p: f32,
}

impl Truncation {
    pub const NONE: Self = Self { top_k: 0, top_p: 1.0, min_p: 0.0 };

    pub fn check(self) -> Result<(), BadField> {
        let top_p = self.top_p > 0.0 && self.top_p <= 1.0;
        let min_p = (0.0..=1.0).contains(&self.min_p);
        in_range(top_p, "top_p", "a number in (0, 1]", self.top_p)?;
        in_range(min_p, "min_p", "a number in [0, 1]", self.min_p)
    }
}

impl Decoding {
    /// Sampling at `temperature`, or greedy decoding at 0.
    pub fn at_temperature(temperature: f32, truncation: Truncation) -> Result<Self, BadField> {
        let valid = temperature.is_finite() && temperature >= 0.0;
        in_range(valid, "temperature", "a number from 0", temperature)?;
        truncation.check()?;
        Ok(if temperature == 0.0 { Self::Greedy } else { Self::Sample { temperature, truncation } })
    }

    pub fn check(self) -> Result<(), BadField> {
        let Self::Sample { temperature, truncation } = self else { return Ok(()) };
        let valid = temperature.is_finite() && temperature > 0.0;
        in_range(valid, "temperature", "a number above 0", temperature)?;
        truncation.check()
    }

    /// The same for a device; `uniform` is in [0, 1).
    pub fn row(self, uniform: f64) -> DrawRow {
        let greedy = DrawRow {
            uniform,
            row: 0,
            inverse_temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            unused: 0,
        };
        match self {
            Self::Greedy => greedy,
            Self::Sample { temperature, truncation } => DrawRow {
                inverse_temperature: 1.0 / temperature,
                // More than a vocabulary is all of it.
                top_k: u32::try_from(truncation.top_k).unwrap_or(0),
                top_p: truncation.top_p,
                min_p: truncation.min_p,
                ..greedy
            },
        }
    }
}

fn in_range(valid: bool, field: &'static str, expected: &str, got: f32) -> Result<(), BadField> {
    if valid { Ok(()) } else { refuse(field, expected, got) }
}

/// A refused field of a request, which a server names in its answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: expected {expected}, got {got}")]
pub struct BadField {
    pub field: &'static str,
    pub expected: String,
    pub got: String,
}

impl From<BadField> for Refusal {
    fn from(bad: BadField) -> Self {
        Self::because(bad)
    }
}

pub(crate) fn refuse(
    field: &'static str,
    expected: impl Display,
    got: impl Display,
) -> Result<(), BadField> {
    Err(BadField { field, expected: expected.to_string(), got: got.to_string() })
}

#[cfg(test)]
mod tests {
    use hapo_kernels::draw;

    use super::*;

    const SAMPLE: Decoding = Decoding::Sample { temperature: 1.0, truncation: Truncation::NONE };

    /// Logits whose softmax is 0.1, 0.2, 0.3, 0.4.
    fn row() -> [f32; 4] {
        [0.1_f32.ln(), 0.2_f32.ln(), 0.3_f32.ln(), 0.4_f32.ln()]
    }

    fn token(decoding: Decoding, uniform: f64) -> u32 {
        draw(&row(), decoding.row(uniform), 4).token
    }

    #[test]
    fn a_uniform_number_picks_the_interval_that_holds_it() {
        for (uniform, expected) in [
            (0.0, 0),
            (0.09, 0),
            (0.11, 1),
            (0.29, 1),
            (0.31, 2),
            (0.59, 2),
            (0.61, 3),
            (0.999_999, 3),
        ] {
            assert_eq!(token(SAMPLE, uniform), expected, "at {uniform}");
        }
        assert_eq!(token(Decoding::Greedy, 0.0), 3);
    }

    #[test]
    fn log_probabilities_are_those_of_the_whole_distribution() {
        let truncation = Truncation { top_k: 1, ..Truncation::NONE };
        let decoding = Decoding::Sample { temperature: 0.5, truncation };
        let it = draw(&row(), decoding.row(0.9), 4);
        // At temperature 0.5 the probabilities are proportional to their squares.
        let expected = (0.16_f32 / (0.01 + 0.04 + 0.09 + 0.16)).ln();
        assert_eq!(it.token, 3);
        assert!((it.log_prob - expected).abs() < 1e-6);
        assert!((it.log_prob_t1 - 0.4_f32.ln()).abs() < 1e-6);
    }

    #[test]
    fn truncation_keeps_the_most_likely() {
        let with = |truncation| Decoding::Sample { temperature: 1.0, truncation };
        let drawn = |truncation: Truncation| -> Vec<u32> {
            let mut all: Vec<u32> =
                (0..1000).map(|i| token(with(truncation), f64::from(i) / 1000.0)).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        assert_eq!(drawn(Truncation { top_k: 2, ..Truncation::NONE }), [2, 3]);
        assert_eq!(drawn(Truncation { top_p: 0.35, ..Truncation::NONE }), [3]);
        assert_eq!(drawn(Truncation { top_p: 0.65, ..Truncation::NONE }), [2, 3]);
        assert_eq!(drawn(Truncation { min_p: 0.6, ..Truncation::NONE }), [2, 3]);
    }

    #[test]
    fn a_truncated_row_is_inverted_in_id_order() {
        let with = |top_k| Decoding::Sample {
            temperature: 1.0,
            truncation: Truncation { top_k, ..Truncation::NONE },
        };
        // Of 0.2, 0.3 and 0.4 the tokens 1, 2, 3 have the intervals up to 2/9, 5/9 and 1.
        for (uniform, expected) in
            [(0.0, 1), (0.21, 1), (0.23, 2), (0.55, 2), (0.56, 3), (0.999, 3)]
        {
            assert_eq!(token(with(3), uniform), expected, "at {uniform}");
        }
    }

    #[test]
    fn padded_ids_are_never_drawn() {
        let logits = [0.0, 0.0, 50.0];
        assert_eq!(draw(&logits, SAMPLE.row(0.999), 2).token, 1);
        assert_eq!(draw(&logits, Decoding::Greedy.row(0.0), 2).token, 0);
    }

    #[test]
    fn frequencies_follow_the_softmax() {
        let mut counts = [0_u32; 4];
        for i in 0..10_000 {
            counts[token(SAMPLE, (f64::from(i) + 0.5) / 10_000.0) as usize] += 1;
        }
        assert_eq!(counts, [1000, 2000, 3000, 4000]);
    }
}
