//! Real numbers as floats of 256 bits with an error bound. Every operation carries a bound of its error along, so that
//! "differ" is a proof and "equal" means equal to at least 50 digits. The bounds are generous rather than tight.

use super::fixed::{self, SCALE};
use crate::number::Rat;
use num_bigint::{BigInt, Sign};
use num_integer::Integer;
use num_traits::{One, Signed, ToPrimitive, Zero};
use std::cmp::Ordering;

/// Bits of precision of a [`Big`].
const BITS: u64 = 256;

/// `mantissa · 2^exponent`, with the logarithm (base 2) of its absolute error.
#[derive(Clone, Debug)]
pub(crate) struct Big {
    mantissa: BigInt,
    exponent: i64,
    log_error: f64,
}

/// Largest exponent that is computed with: beyond it a number has no value here.
const MAX_EXPONENT: i64 = 1 << 40;

fn log_add(a: f64, b: f64) -> f64 {
    let (high, low) = if a > b { (a, b) } else { (b, a) };
    if high == f64::NEG_INFINITY || high - low > 60.0 {
        return high + f64::from(u8::from(low > f64::NEG_INFINITY)) * 1e-9;
    }
    high + (low - high).exp2().ln_1p() * std::f64::consts::LOG2_E
}

impl Big {
    fn zero() -> Big {
        Big { mantissa: BigInt::zero(), exponent: 0, log_error: f64::NEG_INFINITY }
    }

    /// Rounds to [`BITS`] bits, adding the rounding to the error.
    pub(super) fn rounded(mantissa: BigInt, exponent: i64, log_error: f64) -> Big {
        let bits = mantissa.bits();
        if bits <= BITS {
            return Big { mantissa, exponent, log_error };
        }
        let drop = bits - BITS;
        let exponent = exponent.saturating_add(drop as i64);
        Big { mantissa: mantissa >> drop, exponent, log_error: log_add(log_error, exponent as f64) }
    }

    /// Logarithm (base 2) of the absolute value, rounded up; −∞ for zero.
    fn log_size(&self) -> f64 {
        if self.mantissa.is_zero() {
            return f64::NEG_INFINITY;
        }
        (self.mantissa.bits() as i64).saturating_add(self.exponent) as f64
    }

    /// As an integer multiple of 2^−[`SCALE`].
    fn fixed(&self) -> BigInt {
        let shift = self.exponent + i64::from(SCALE);
        if shift >= 0 {
            &self.mantissa << shift as u64
        } else {
            &self.mantissa >> shift.unsigned_abs()
        }
    }

    /// A value of a function in fixed point, whose argument adds `log_error` to the error.
    fn of_fixed(value: BigInt, log_error: f64) -> Big {
        Big::rounded(value, -i64::from(SCALE), log_add(log_error, -(BITS as f64) - 8.0))
    }

    pub(super) fn checked(self) -> Option<Big> {
        (self.exponent.abs() < MAX_EXPONENT && self.log_error < 1e12).then_some(self)
    }

    /// The nearest double, for choosing a branch.
    pub(crate) fn to_f64(&self) -> f64 {
        let bits = self.mantissa.bits();
        let drop = bits.saturating_sub(62);
        let top = (&self.mantissa >> drop).to_f64().unwrap_or(f64::NAN);
        let exponent = self.exponent.saturating_add(drop as i64).clamp(-2_000, 2_000) as i32;
        top * 2_f64.powi(exponent / 2) * 2_f64.powi(exponent - exponent / 2)
    }

    /// `self · 10^places` rounded half to even.
    pub(crate) fn round_scaled(&self, places: u32) -> Option<BigInt> {
        if self.exponent > 4_096 || self.exponent < -70_000 {
            return (self.exponent < 0).then(BigInt::zero);
        }
        let scaled = &self.mantissa * BigInt::from(10).pow(places);
        if self.exponent >= 0 {
            return Some(scaled << self.exponent as u64);
        }
        let shift = self.exponent.unsigned_abs();
        Some((scaled + (BigInt::one() << (shift - 1))) >> shift)
    }

    pub(super) fn from_rat(value: &Rat) -> Big {
        let (n, d) = value.parts();
        if d.is_one() {
            return Big::rounded(n.clone(), 0, f64::NEG_INFINITY);
        }
        if n.is_zero() {
            return Big::zero();
        }
        let shift = (BITS + d.bits()) as i64 - n.bits() as i64 + 1;
        let quotient =
            if shift >= 0 { (n << shift as u64) / d } else { n / (d << shift.unsigned_abs()) };
        Big::rounded(quotient, -shift, -shift as f64)
    }

    pub(super) fn pi() -> Big {
        Big::of_fixed(fixed::pi().clone(), f64::NEG_INFINITY)
    }

    pub(super) fn add(&self, other: &Big) -> Big {
        let log_error = log_add(self.log_error, other.log_error);
        if self.mantissa.is_zero() {
            return Big { log_error, ..other.clone() };
        }
        if other.mantissa.is_zero() {
            return Big { log_error, ..self.clone() };
        }
        let (high, low) =
            if self.exponent >= other.exponent { (self, other) } else { (other, self) };
        let shift = high.exponent.saturating_sub(low.exponent);
        if shift as u64 > 4 * BITS {
            // The lower one is far below the last bit of the higher one, or is a short exact number; either way its
            // size bounds the error of leaving it out.
            return Big { log_error: log_add(log_error, low.log_size()), ..high.clone() };
        }
        Big::rounded((&high.mantissa << shift as u64) + &low.mantissa, low.exponent, log_error)
    }

    pub(super) fn neg(&self) -> Big {
        Big { mantissa: -&self.mantissa, ..self.clone() }
    }

    pub(super) fn mul(&self, other: &Big) -> Big {
        let cross = log_add(self.log_error + other.log_size(), other.log_error + self.log_size());
        let cross = if cross.is_nan() { f64::NEG_INFINITY } else { cross };
        let log_error = log_add(cross, self.log_error + other.log_error);
        let exponent = self.exponent.saturating_add(other.exponent);
        Big::rounded(&self.mantissa * &other.mantissa, exponent, log_error)
    }

    pub(super) fn recip(&self) -> Option<Big> {
        if self.mantissa.is_zero() || self.log_error > self.log_size() - 3.0 {
            return None;
        }
        let scale = self.mantissa.bits() + BITS + 1;
        let quotient = (BigInt::one() << scale) / &self.mantissa;
        let exponent = (-(scale as i64)).checked_sub(self.exponent)?;
        // |δ(1/x)| ≤ δ / (|x|(|x|−δ)), and |x| is at least half of 2^log_size.
        let log_error = log_add(self.log_error - 2.0 * self.log_size() + 3.0, exponent as f64);
        Big::rounded(quotient, exponent, log_error).checked()
    }

    pub(super) fn sqrt(&self) -> Option<Big> {
        match self.sign() {
            Some(Ordering::Less) => return None,
            Some(Ordering::Equal) => return Some(Big::zero()),
            _ => {}
        }
        if self.mantissa.sign() != Sign::Plus {
            return Some(Big { log_error: self.log_error / 2.0 + 1.0, ..Big::zero() });
        }
        let mut shift = (2 * BITS).saturating_sub(self.mantissa.bits()) as i64;
        if (self.exponent - shift) % 2 != 0 {
            shift += 1;
        }
        let root = (&self.mantissa << shift as u64).sqrt();
        let exponent = (self.exponent - shift) / 2;
        let half_size = self.log_size() / 2.0;
        let spread = if self.log_error < self.log_size() - 3.0 {
            self.log_error - half_size + 1.0
        } else {
            self.log_error / 2.0 + 2.0
        };
        Big::rounded(root, exponent, log_add(spread, exponent as f64)).checked()
    }

    pub(super) fn exp(&self) -> Option<Big> {
        if self.log_size() > 38.0 || self.log_error > -1.0 {
            return None;
        }
        let x = self.fixed();
        let n_twos = (&x / fixed::ln2()).to_i64()?;
        let sum = fixed::exp(&(x - fixed::ln2() * n_twos));
        let exponent = n_twos - i64::from(SCALE);
        let size = (sum.bits() as i64 + exponent) as f64;
        let log_error = log_add(self.log_error + 1.0 + size, size - BITS as f64 - 8.0);
        Big::rounded(sum, exponent, log_error).checked()
    }

    pub(super) fn ln(&self) -> Option<Big> {
        if self.sign() != Some(Ordering::Greater) {
            return None;
        }
        // x = m · 2^k with m in [1/2, 1).
        let bits = self.mantissa.bits() as i64;
        let k = self.exponent + bits;
        let m = Big { exponent: -bits, ..self.clone() }.fixed();
        let log = fixed::ln(&m) + fixed::ln2() * k;
        let spread = self.log_error - self.log_size() + 2.0;
        // The error of ln 2 counts k times.
        let log_error =
            log_add(spread, (k.unsigned_abs().max(1) as f64).log2() - BITS as f64 - 8.0);
        Big::of_fixed(log, log_error).checked()
    }

    pub(super) fn sin_cos(&self) -> Option<(Big, Big)> {
        if self.log_size() > 60.0 || self.log_error > -1.0 {
            return None;
        }
        let x = self.fixed();
        let half_pi: BigInt = fixed::pi() >> 1_u32;
        let mut quadrant: BigInt = &x / &half_pi;
        let mut rest = &x - &half_pi * &quadrant;
        if rest.is_negative() {
            rest += &half_pi;
            quadrant -= 1;
        }
        let (sin, cos) = fixed::sin_cos(&rest);
        let quarter: BigInt = quadrant.mod_floor(&BigInt::from(4));
        let (sin, cos) = match quarter.to_u8() {
            Some(1) => (cos, -sin),
            Some(2) => (-sin, -cos),
            Some(3) => (-cos, sin),
            _ => (sin, cos),
        };
        Some((Big::of_fixed(sin, self.log_error), Big::of_fixed(cos, self.log_error)))
    }

    pub(super) fn atan(&self) -> Big {
        let half_pi: BigInt = fixed::pi() >> 1_u32;
        if self.log_size() > 300.0 {
            let value = if self.mantissa.is_negative() { -half_pi } else { half_pi };
            return Big::of_fixed(value, 1.0 - BITS as f64);
        }
        let x = self.fixed();
        if x.abs() <= fixed::one() {
            return Big::of_fixed(fixed::atan(x), self.log_error + 1.0);
        }
        let rest = fixed::atan((fixed::one() << SCALE) / &x);
        let value = if x.is_negative() { -half_pi - rest } else { half_pi - rest };
        let spread = self.log_error - 2.0 * self.log_size() + 3.0;
        Big::of_fixed(value, spread.min(self.log_error + 1.0))
    }

    pub(super) fn sign(&self) -> Option<Ordering> {
        if self.mantissa.is_zero() {
            return (self.log_error == f64::NEG_INFINITY).then_some(Ordering::Equal);
        }
        // |value| is at least 2^(log_size − 1).
        if self.log_error >= self.log_size() - 1.0 {
            return None;
        }
        Some(if self.mantissa.is_negative() { Ordering::Less } else { Ordering::Greater })
    }

    pub(super) fn floor(&self) -> Option<Rat> {
        if self.log_size() > 62.0 || self.log_error > -4.0 {
            return None;
        }
        let value = self.fixed();
        let margin = BigInt::one() << (self.log_error + f64::from(SCALE) + 1.0).max(0.0) as u64;
        let (low, high) = ((&value - &margin) >> SCALE, (&value + &margin) >> SCALE);
        if low == high {
            return low.to_i64().map(Rat::int);
        }
        // An integer up to the error is that integer: the ball is tiny.
        (self.log_error < -160.0).then(|| high.to_i64().map(Rat::int)).flatten()
    }

    pub(super) fn is_negligible(&self) -> bool {
        self.sign().is_none_or(Ordering::is_eq) && self.log_error < -166.0
    }

    /// `Some(false)` is a proof that they differ, `Some(true)` is agreement to at least 50 digits, `None` is neither.
    pub(crate) fn same(&self, other: &Big) -> Option<bool> {
        let difference = self.add(&other.neg());
        match difference.sign() {
            Some(Ordering::Equal) => Some(true),
            Some(_) => Some(false),
            None => {
                let size = self.log_size().max(other.log_size());
                (difference.log_error < (size - 170.0).max(-200.0)).then_some(true)
            }
        }
    }
}
