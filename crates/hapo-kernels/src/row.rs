//! Log-softmax of one row, for the sampler and the trainer alike.
//!
//! Purpose: both sides call these functions, so equal logits give equal bits of log-probability. Price: sums run over
//! sixteen lanes and blocks of 256 in f32, then f64; a row is read twice.

use crate::lanes::{Lanes, fma, kernel};

/// Lanes of every reduction over a row.
pub(crate) const LANES: usize = 16;
const BLOCK: usize = 256;

/// Statistics of a row of logits at one temperature, relative to the largest logit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowStats {
    /// Largest logit, before the temperature.
    pub max: f32,
    /// ln Σ exp((z − max) / T).
    pub log_sum: f32,
    /// Entropy in nats of softmax(z / T).
    pub entropy: f32,
}

/// Statistics of `logits` at temperature `1 / inverse_temperature`.
pub fn row_stats(logits: &[f32], inverse_temperature: f32) -> RowStats {
    let max = max(logits);
    let (sum, weighted) = sums(logits, max, inverse_temperature);
    let log_sum = libm::log(sum);
    RowStats { max, log_sum: log_sum as f32, entropy: (log_sum - weighted / sum).max(0.0) as f32 }
}

/// Log-probability of a token with logit `logit` in a row with these statistics.
pub fn log_prob(stats: RowStats, inverse_temperature: f32, logit: f32) -> f32 {
    (logit - stats.max) * inverse_temperature - stats.log_sum
}

/// Entropy in nats of softmax(z / T).
pub fn entropy(logits: &[f32], inverse_temperature: f32) -> f32 {
    row_stats(logits, inverse_temperature).entropy
}

/// Σ exp((z − max) / T) in f64 of blocks in f32.
pub fn exp_sum(logits: &[f32], max: f32, inverse_temperature: f32) -> f64 {
    sums(logits, max, inverse_temperature).0
}

/// eˣ to one unit in the last place, denormals included.
pub fn exp(x: f32) -> f32 {
    let mut one = [x];
    exp_in_place(&mut one);
    one[0]
}

/// ln x, rounded once from f64.
pub(crate) fn ln(x: f32) -> f32 {
    libm::log(f64::from(x)) as f32
}

kernel! {
    fn exp_in_place<V>(x: &mut [f32]) {
        for v in x {
            *v = exp_of::<V>(*v);
        }
    }
}

/// The polynomial behind every exponential here (Cephes' coefficients of degree 6, ln 2 split for fused multiply-adds).
#[inline(always)]
pub(crate) fn exp_of<V: Lanes>(x: f32) -> f32 {
    // Adding 1.5·2²³ rounds to an integer and leaves it in the low bits.
    const MAGIC: f32 = 12_582_912.0;
    let below = if x < -104.0 { -104.0 } else { x };
    let clamped = if below > 89.0 { 89.0 } else { below };
    let shifted = fma::<V>(clamped, std::f32::consts::LOG2_E, MAGIC);
    let n = shifted - MAGIC;
    let r = fma::<V>(n, -std::f32::consts::LN_2, clamped);
    let r = fma::<V>(n, 1.904_654_3e-9, r);
    let p = 1.987_569_1e-4;
    let p = fma::<V>(p, r, 1.398_199_9e-3);
    let p = fma::<V>(p, r, 8.333_452e-3);
    let p = fma::<V>(p, r, 4.166_579_6e-2);
    let p = fma::<V>(p, r, 1.666_666_5e-1);
    let p = fma::<V>(p, r, 5e-1);
    let p = fma::<V>(fma::<V>(p, r, 1.0), r, 1.0);
    // Two factors, since 2ⁿ alone may be no normal number.
    let n = shifted.to_bits().wrapping_sub(MAGIC.to_bits()).cast_signed();
    let power = |n: i32| f32::from_bits((n.wrapping_add(127) << 23).cast_unsigned());
    p * power(n >> 1) * power(n - (n >> 1))
}

/// A logit of −∞ has no weight. One that is NaN stays it, and all statistics with it.
#[inline(always)]
fn above_least(d: f32) -> f32 {
    if d < -1e4 { -1e4 } else { d }
}

/// Sum of the lanes in a fixed tree.
#[inline(always)]
pub(crate) fn reduce(lanes: [f32; LANES]) -> f32 {
    let mut l = lanes;
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            l[i] += l[i + width];
        }
        width /= 2;
    }
    l[0]
}

kernel! {
    /// Largest element; −∞ for none. NaN is skipped.
    pub fn max<V>(x: &[f32]) -> f32 {
        let mut lanes = [f32::NEG_INFINITY; LANES];
        let (chunks, rest) = x.as_chunks::<LANES>();
        for chunk in chunks {
            for (l, &v) in lanes.iter_mut().zip(chunk) {
                *l = if v > *l { v } else { *l };
            }
        }
        let mut max = f32::NEG_INFINITY;
        for &v in lanes.iter().chain(rest) {
            max = if v > max { v } else { max };
        }
        max
    }
}

kernel! {
    /// Σ e and Σ e·d with d = (x − max)·factor, e = exp(d).
    pub(crate) fn sums<V>(x: &[f32], max: f32, factor: f32) -> (f64, f64) {
        let (mut sum, mut weighted) = (0.0_f64, 0.0_f64);
        for block in x.chunks(BLOCK) {
            let (mut s, mut w) = ([0.0_f32; LANES], [0.0_f32; LANES]);
            let (chunks, rest) = block.as_chunks::<LANES>();
            for chunk in chunks {
                for i in 0..LANES {
                    let d = above_least((chunk[i] - max) * factor);
                    let e = exp_of::<V>(d);
                    s[i] += e;
                    w[i] = fma::<V>(e, d, w[i]);
                }
            }
            for (i, &v) in rest.iter().enumerate() {
                let d = above_least((v - max) * factor);
                let e = exp_of::<V>(d);
                s[i] += e;
                w[i] = fma::<V>(e, d, w[i]);
            }
            sum += f64::from(reduce(s));
            weighted += f64::from(reduce(w));
        }
        (sum, weighted)
    }
}

#[cfg(test)]
mod tests {
    use super::{exp, ln};

    /// Distance from the exact value in units of the last place of the nearest number.
    fn units(got: f32, exact: f64) -> f64 {
        let nearest = (exact as f32).abs();
        let unit = f64::from(f32::from_bits(nearest.to_bits() + 1)) - f64::from(nearest);
        (f64::from(got) - exact).abs() / unit
    }

    /// Every 997th number, or all 2³² if `HAPO_ALL_NUMBERS` is set.
    fn numbers() -> impl Iterator<Item = f32> {
        let step = if std::env::var_os("HAPO_ALL_NUMBERS").is_some() { 1 } else { 997 };
        (0..=u32::MAX).step_by(step).map(f32::from_bits)
    }

    #[test]
    fn exp_and_ln_are_exact_to_one_unit_in_the_last_place() {
        for x in numbers() {
            let (got, exact) = (exp(x), libm::exp(f64::from(x)));
            if x.is_nan() || (exact as f32).is_infinite() || exact as f32 == 0.0 {
                let same = got.to_bits() == (exact as f32).to_bits() || x.is_nan() && got.is_nan();
                assert!(same, "exp {x:e}: {got:e}");
            } else {
                assert!(units(got, exact) < 0.9, "exp {x:e}: {got:e}, not {exact:e}");
            }
            // `ln` rounds a logarithm in f64 to nearest; the platform's is the reference.
            let (got, exact) = (ln(x), f64::from(x).ln());
            if exact.is_finite() && exact != 0.0 {
                assert!(units(got, exact) < 0.51, "ln {x:e}: {got:e}, not {exact:e}");
            } else {
                assert!(got == exact as f32 || got.is_nan() && exact.is_nan(), "ln {x:e}: {got:e}");
            }
        }
    }
}
