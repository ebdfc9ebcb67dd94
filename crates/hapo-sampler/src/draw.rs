//! One draw from a row of logits.
//!
//! The draw is by inversion: one uniform number from the counter-based generator picks the token
//! whose interval of the cumulative distribution holds it, tokens in id order. The price against
//! Gumbel noise is one pass more; in return a draw is one number and can be replayed by hand.

use hapo_kernels::{DrawRow, DrawnToken, exp, exp_sum, log_prob, max, row_stats};

/// How the next token is chosen from the logits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decoding {
    /// The most likely token; the lowest id on ties.
    Greedy,
    /// A draw at this temperature, restricted as `truncation` says.
    Sample {
        /// Divides the logits; above zero.
        temperature: f32,
        /// Which tokens may be drawn.
        truncation: Truncation,
    },
}

/// Restrictions on the tokens that may be drawn, applied in the order of the fields. The
/// log-probabilities that are recorded stay those of the whole distribution (D25).
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
    /// Every token may be drawn.
    pub const NONE: Self = Self { top_k: 0, top_p: 1.0, min_p: 0.0 };

    /// Whether every field is in its range.
    ///
    /// # Errors
    /// The first field out of its range.
    pub fn check(self) -> Result<(), OutOfRange> {
        let top_p = self.top_p > 0.0 && self.top_p <= 1.0;
        let min_p = (0.0..=1.0).contains(&self.min_p);
        in_range(top_p, "top_p", "a number in (0, 1]", self.top_p)?;
        in_range(min_p, "min_p", "a number in [0, 1]", self.min_p)
    }
}

impl Decoding {
    /// Sampling at `temperature`, or greedy decoding at 0.
    ///
    /// # Errors
    /// The first setting out of its range.
    pub fn at_temperature(temperature: f32, truncation: Truncation) -> Result<Self, OutOfRange> {
        let valid = temperature.is_finite() && temperature >= 0.0;
        in_range(valid, "temperature", "a number from 0", temperature)?;
        truncation.check()?;
        Ok(if temperature == 0.0 { Self::Greedy } else { Self::Sample { temperature, truncation } })
    }

    /// Whether temperature and truncation are in their ranges.
    ///
    /// # Errors
    /// The first setting out of its range.
    pub fn check(self) -> Result<(), OutOfRange> {
        let Self::Sample { temperature, truncation } = self else {
            return Ok(());
        };
        let valid = temperature.is_finite() && temperature > 0.0;
        in_range(valid, "temperature", "a number above 0", temperature)?;
        truncation.check()
    }

    /// The same for a device that draws.
    pub(crate) fn row(self, uniform: f64) -> DrawRow {
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

impl From<DrawnToken> for Drawn {
    fn from(it: DrawnToken) -> Self {
        let DrawnToken { token, log_prob, log_prob_t1, entropy } = it;
        Self { token, log_prob, log_prob_t1, entropy }
    }
}

/// A setting of [`Decoding`] or [`Truncation`] out of its range.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{field}: expected {expected}, got {got}")]
pub struct OutOfRange {
    /// `temperature`, `top_p` or `min_p`.
    pub field: &'static str,
    /// The range.
    pub expected: &'static str,
    /// The value.
    pub got: f32,
}

fn in_range(
    valid: bool,
    field: &'static str,
    expected: &'static str,
    got: f32,
) -> Result<(), OutOfRange> {
    if valid {
        return Ok(());
    }
    Err(OutOfRange { field, expected, got })
}

/// A token and its log-probabilities under the whole distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drawn {
    /// Token id.
    pub token: u32,
    /// At the sampling temperature: what the importance ratio needs (D19, D25).
    pub log_prob: f32,
    /// At temperature 1.
    pub log_prob_t1: f32,
    /// Entropy in nats of the distribution at temperature 1.
    pub entropy: f32,
}

/// Draws the next token from a row of logits. `uniform` is in [0, 1); it is not read by
/// [`Decoding::Greedy`]. Only tokens below `usable_vocab` are drawn: a model's vocabulary may be
/// padded beyond its tokenizer's.
///
/// # Panics
/// When the row or `usable_vocab` is empty.
pub fn draw(logits: &[f32], decoding: Decoding, uniform: f64, usable_vocab: usize) -> Drawn {
    let usable = &logits[..usable_vocab.min(logits.len())];
    assert!(!usable.is_empty(), "a row of logits holds at least one usable token");
    let (token, inverse_temperature) = match decoding {
        Decoding::Greedy => (argmax(usable), 1.0),
        Decoding::Sample { temperature, truncation } => {
            let inverse = 1.0 / temperature;
            let token = if truncation == Truncation::NONE {
                invert(usable, inverse, uniform)
            } else {
                invert_truncated(usable, inverse, truncation, uniform)
            };
            (token, inverse)
        }
    };
    let chosen = logits[token];
    let plain = row_stats(logits, 1.0);
    let log_prob_t1 = log_prob(plain, 1.0, chosen);
    let at_temperature = if inverse_temperature == 1.0 {
        log_prob_t1
    } else {
        log_prob(row_stats(logits, inverse_temperature), inverse_temperature, chosen)
    };
    Drawn { token: token as u32, log_prob: at_temperature, log_prob_t1, entropy: plain.entropy }
}

/// Index of the largest value, the lowest one on ties.
fn argmax(values: &[f32]) -> usize {
    let mut best = 0;
    for (i, it) in values.iter().enumerate() {
        if *it > values[best] {
            best = i;
        }
    }
    best
}

/// The token whose interval of the cumulative distribution holds `uniform`.
///
/// Weights are summed block by block, with the exponential of the kernels. In a short row the sum over
/// single tokens has the last word: where `uniform` is too close to the edge of an interval for the
/// rounding of the blocks, [`invert_slowly`] decides.
fn invert(logits: &[f32], inverse_temperature: f32, uniform: f64) -> usize {
    /// Tokens of a block.
    const BLOCK: usize = 256;
    /// Tokens of a short row.
    const SHORT: usize = 4096;
    /// Far above the rounding of a sum of blocks, as a share of the whole.
    const DOUBT: f64 = 1e-5;
    let max = max(logits);
    let sums: Vec<f64> =
        logits.chunks(BLOCK).map(|it| exp_sum(it, max, inverse_temperature)).collect();
    let total: f64 = sums.iter().sum();
    let target = uniform * total;
    let mut before = 0.0;
    let mut block = 0;
    while block + 1 < sums.len() && before + sums[block] <= target {
        before += sums[block];
        block += 1;
    }
    let mut found = None;
    let first = block * BLOCK;
    for (i, it) in logits[first..].iter().take(BLOCK).enumerate() {
        let weight = f64::from(exp((it - max) * inverse_temperature));
        if weight > 0.0 {
            let sure = (target - before).min(before + weight - target) > DOUBT * total;
            found = Some((first + i, sure));
            before += weight;
            if before > target {
                break;
            }
        }
    }
    match found {
        Some((token, sure)) if sure || logits.len() > SHORT => token,
        _ => invert_slowly(logits, inverse_temperature, uniform),
    }
}

/// One token after the other, in f64.
fn invert_slowly(logits: &[f32], inverse_temperature: f32, uniform: f64) -> usize {
    let max = logits[argmax(logits)];
    let weight = |it: f32| f64::from(((it - max) * inverse_temperature).exp());
    let total: f64 = logits.iter().map(|it| weight(*it)).sum();
    let target = uniform * total;
    let mut cumulative = 0.0;
    let mut last_possible = 0;
    for (i, it) in logits.iter().enumerate() {
        let w = weight(*it);
        if w > 0.0 {
            last_possible = i;
            cumulative += w;
            if cumulative > target {
                return i;
            }
        }
    }
    // Rounding can leave the last interval a hair short of 1.
    last_possible
}

fn invert_truncated(
    logits: &[f32],
    inverse_temperature: f32,
    truncation: Truncation,
    uniform: f64,
) -> usize {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
    if truncation.top_k > 0 {
        order.truncate(truncation.top_k);
    }
    let max = logits[order[0]];
    let weights: Vec<f64> = order
        .iter()
        .map(|it| f64::from(((logits[*it] - max) * inverse_temperature).exp()))
        .collect();
    let total: f64 = weights.iter().sum();
    let mut mass = 0.0;
    let mut kept = 0;
    for w in &weights {
        let inside = kept == 0
            || (mass < f64::from(truncation.top_p) * total && *w >= f64::from(truncation.min_p));
        if !inside {
            break;
        }
        mass += w;
        kept += 1;
    }
    let mut kept: Vec<(usize, f64)> = order.into_iter().zip(weights).take(kept).collect();
    kept.sort_unstable_by_key(|it| it.0);
    let target = uniform * kept.iter().map(|it| it.1).sum::<f64>();
    let mut cumulative = 0.0;
    let found = kept.iter().find(|it| {
        cumulative += it.1;
        cumulative > target
    });
    // Rounding can leave the last interval a hair short of 1.
    found.or(kept.last()).expect("the most likely token is kept").0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_draw_the_token_that_the_sum_over_tokens_draws() {
        for (n, spread) in [(1, 1.0), (5, 3.0), (255, 0.1), (257, 20.0), (1000, 4.0), (4095, 1.5)] {
            let logits: Vec<f32> =
                (0..n).map(|i| ((i * 7919 % 1013) as f32 / 1013.0 - 0.5) * spread).collect();
            for k in 0..500 {
                let uniform = (f64::from(k) + 0.37) / 500.0;
                for inverse in [1.0, 1.7] {
                    assert_eq!(
                        invert(&logits, inverse, uniform),
                        invert_slowly(&logits, inverse, uniform),
                        "{n} tokens, {uniform}"
                    );
                }
            }
            for uniform in [0.0, 1.0 - f64::EPSILON] {
                assert_eq!(invert(&logits, 1.0, uniform), invert_slowly(&logits, 1.0, uniform));
            }
        }
    }

    #[test]
    fn frequencies_in_a_long_row_follow_the_softmax() {
        // Tokens 100, 5,000 and 9,999 have probabilities 1/2, 1/4 and 1/4, the others next to none.
        let mut logits = vec![-40.0; 10_000];
        (logits[100], logits[5_000], logits[9_999]) = (2.0_f32.ln(), 0.0, 0.0);
        let mut counts = [0; 3];
        for i in 0..1000 {
            let token = invert(&logits, 1.0, (f64::from(i) + 0.5) / 1000.0);
            let index = [100, 5_000, 9_999].iter().position(|it| *it == token);
            counts[index.expect("one of the three")] += 1;
        }
        assert_eq!(counts, [500, 250, 250]);
    }

    const SAMPLE: Decoding = Decoding::Sample { temperature: 1.0, truncation: Truncation::NONE };

    /// Logits whose softmax is 0.1, 0.2, 0.3, 0.4.
    fn row() -> [f32; 4] {
        [0.1_f32.ln(), 0.2_f32.ln(), 0.3_f32.ln(), 0.4_f32.ln()]
    }

    fn token(decoding: Decoding, uniform: f64) -> u32 {
        draw(&row(), decoding, uniform, 4).token
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
        let it = draw(
            &row(),
            Decoding::Sample {
                temperature: 0.5,
                truncation: Truncation { top_k: 1, ..Truncation::NONE },
            },
            0.9,
            4,
        );
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
        assert_eq!(draw(&logits, SAMPLE, 0.999, 2).token, 1);
        assert_eq!(draw(&logits, Decoding::Greedy, 0.0, 2).token, 0);
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
