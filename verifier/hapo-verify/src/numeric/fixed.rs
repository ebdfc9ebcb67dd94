//! Constants and functions in fixed point: integers that count 2^−384.

use num_bigint::BigInt;
use num_traits::{One, Zero};
use std::sync::LazyLock;

/// Bits behind the point.
pub(super) const SCALE: u32 = 384;

/// π and ln 2.
static CONSTANTS: LazyLock<(BigInt, BigInt)> = LazyLock::new(|| {
    // Machin: π = 16 atan(1/5) − 4 atan(1/239); ln 2 = 2 atanh(1/3).
    (inverse_atan(5, -1) * 16 - inverse_atan(239, -1) * 4, inverse_atan(3, 1) * 2)
});

pub(super) fn pi() -> &'static BigInt {
    &CONSTANTS.0
}

pub(super) fn ln2() -> &'static BigInt {
    &CONSTANTS.1
}

pub(super) fn one() -> BigInt {
    BigInt::one() << SCALE
}

fn product(a: &BigInt, b: &BigInt) -> BigInt {
    (a * b) >> SCALE
}

/// The sum of terms that follow from one another, each over its divisor, until nothing is left of them.
fn series(first: BigInt, next: impl Fn(&BigInt, u32) -> BigInt, divisor: fn(u32) -> u32) -> BigInt {
    let (mut sum, mut term) = (first.clone(), first);
    for k in 1..400 {
        term = next(&term, k);
        let part = &term / divisor(k);
        if part.is_zero() {
            break;
        }
        sum += part;
    }
    sum
}

/// 3, 5, 7, …: the divisors in the series of atan and atanh.
fn odd(k: u32) -> u32 {
    2 * k + 1
}

/// atan(1/n), or atanh(1/n) where the terms keep their sign.
fn inverse_atan(n: i32, sign: i32) -> BigInt {
    series(one() / n, |power, _| power / (n * n) * sign, odd)
}

/// e^x for |x| at most ln 2, by e^x = (e^(x/2^k))^(2^k).
pub(super) fn exp(x: &BigInt) -> BigInt {
    const HALVINGS: u32 = 12;
    let small: BigInt = x >> HALVINGS;
    let mut sum = series(one(), |term, k| product(term, &small) / k, |_| 1);
    for _ in 0..HALVINGS {
        sum = product(&sum, &sum);
    }
    sum
}

/// ln m for m in [1/2, 1], by ln m = 2^k ln(m^(1/2^k)) and the series of atanh.
pub(super) fn ln(m: &BigInt) -> BigInt {
    const ROOTS: u32 = 6;
    let mut x = m.clone();
    for _ in 0..ROOTS {
        x = (x << SCALE).sqrt();
    }
    let z = ((&x - one()) << SCALE) / (&x + one());
    let square = product(&z, &z);
    series(z, |power, _| product(power, &square), odd) << (ROOTS + 1)
}

/// atan y for |y| at most 1, by atan y = 2 atan(y / (1 + sqrt(1 + y²))).
pub(super) fn atan(mut y: BigInt) -> BigInt {
    const HALVINGS: u32 = 3;
    for _ in 0..HALVINGS {
        let root = ((one() << SCALE) + &y * &y).sqrt();
        y = (y << SCALE) / (one() + root);
    }
    let square = product(&y, &y);
    series(y, |power, _| -product(power, &square), odd) << HALVINGS
}

/// sin and cos of x in [0, π/2].
pub(super) fn sin_cos(x: &BigInt) -> (BigInt, BigInt) {
    const HALVINGS: u32 = 8;
    let small: BigInt = x >> HALVINGS;
    let square = product(&small, &small);
    let next = |term: &BigInt, n: u32| -product(term, &square) / (n * (n + 1));
    // The series of sin and of 1 − cos, which keeps its digits under doubling.
    let mut sin = series(small, |term, k| next(term, 2 * k), |_| 1);
    let versine = series(&square >> 1_u32, |term, k| next(term, 2 * k + 1), |_| 1);
    let mut cos = one() - versine;
    for _ in 0..HALVINGS {
        sin = product(&sin, &cos) << 1_u32;
        cos = (product(&cos, &cos) << 1_u32) - one();
    }
    (sin, cos)
}
