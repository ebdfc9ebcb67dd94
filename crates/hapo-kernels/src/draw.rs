//! One draw from a row of logits.
//!
//! The draw is by inversion: one uniform number from the counter-based generator picks the token
//! whose interval of the cumulative distribution holds it, tokens in id order. The price against
//! Gumbel noise is one pass more; in return a draw is one number and can be replayed by hand.

use crate::row::{exp, exp_sum, log_prob, max, row_stats};
use crate::shapes::{DrawRow, DrawnToken};

/// Draws a token with an id below `usable` from a row of logits, as [`Device::draw`](crate::Device::draw) does for
/// every row; ignores [`DrawRow::row`]. The log-probabilities are those of the whole distribution (D19, D25).
///
/// # Panics
/// When the row or `usable` is empty.
pub fn draw(logits: &[f32], how: DrawRow, usable: usize) -> DrawnToken {
    let usable = &logits[..usable.min(logits.len())];
    assert!(!usable.is_empty(), "a row of logits holds at least one usable token");
    let (token, inverse_temperature) = if how.inverse_temperature == 0.0 {
        (argmax(usable), 1.0)
    } else if how.keeps_all() {
        (invert(usable, how.inverse_temperature, how.uniform), how.inverse_temperature)
    } else {
        (invert_truncated(usable, how), how.inverse_temperature)
    };
    let chosen = logits[token];
    let plain = row_stats(logits, 1.0);
    let log_prob_t1 = log_prob(plain, 1.0, chosen);
    let log_prob = if inverse_temperature == 1.0 {
        log_prob_t1
    } else {
        log_prob(row_stats(logits, inverse_temperature), inverse_temperature, chosen)
    };
    DrawnToken { token: token as u32, log_prob, log_prob_t1, entropy: plain.entropy }
}

/// Index of the largest value, the lowest one on ties.
fn argmax(values: &[f32]) -> usize {
    (0..values.len()).fold(0, |best, i| if values[i] > values[best] { i } else { best })
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
    let weight = |it: f32| f64::from(exp((it - max) * inverse_temperature));
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

fn invert_truncated(logits: &[f32], how: DrawRow) -> usize {
    let DrawRow { uniform, inverse_temperature, top_k, top_p, min_p, .. } = how;
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
    if top_k > 0 {
        order.truncate(top_k as usize);
    }
    let max = logits[order[0]];
    let weights: Vec<f64> =
        order.iter().map(|it| f64::from(exp((logits[*it] - max) * inverse_temperature))).collect();
    let total: f64 = weights.iter().sum();
    let mut mass = 0.0;
    let is_kept = |(_, weight): &(usize, f64)| {
        let before = mass;
        mass += weight;
        // The most likely token, of weight 1, is kept in any case.
        before == 0.0 || before < f64::from(top_p) * total && *weight >= f64::from(min_p)
    };
    let mut kept: Vec<(usize, f64)> = order.into_iter().zip(weights).take_while(is_kept).collect();
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
}
