//! Constants and functions in fixed point.

use num_bigint::BigInt;
use num_traits::{One, Zero};

thread_local! {
    static CONSTANTS: std::cell::RefCell<Vec<(i64, BigInt, BigInt)>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// π and ln 2 at a scale; there are three scales, so they are kept.
fn constants(scale: i64) -> (BigInt, BigInt) {
    CONSTANTS.with_borrow_mut(|known| {
        if let Some(it) = known.iter().find(|it| it.0 == scale) {
            return (it.1.clone(), it.2.clone());
        }
        let wide = scale + 32;
        let one = BigInt::one() << wide as u64;
        // Machin: π = 16 atan(1/5) − 4 atan(1/239).
        let pi = inverse_atan(5, -1, &one) * 16 - inverse_atan(239, -1, &one) * 4;
        // ln 2 = 2 atanh(1/3).
        let ln2 = inverse_atan(3, 1, &one) * 2;
        let [pi, ln2]: [BigInt; 2] = [pi >> 32_u32, ln2 >> 32_u32];
        known.push((scale, pi.clone(), ln2.clone()));
        (pi, ln2)
    })
}

/// atan(1/n), or atanh(1/n) where the terms keep their sign.
fn inverse_atan(n: i32, sign: i32, one: &BigInt) -> BigInt {
    let mut power: BigInt = one / n;
    let mut sum = power.clone();
    let mut k = 1_u32;
    while !power.is_zero() {
        power = power / (n * n) * sign;
        sum += &power / (2 * k + 1);
        k += 1;
    }
    sum
}

pub(super) fn fixed_pi(scale: i64) -> BigInt {
    constants(scale).0
}

pub(super) fn fixed_ln2(scale: i64) -> BigInt {
    constants(scale).1
}

/// ln m for m in [1/2, 1], by ln m = 2^k ln(m^(1/2^k)) and the series of atanh.
pub(super) fn fixed_ln(m: &BigInt, scale: i64) -> BigInt {
    const ROOTS: u32 = 6;
    let wide = scale + 16;
    let one = BigInt::one() << wide as u64;
    let mut x = m << 16_u32;
    for _ in 0..ROOTS {
        x = (x << wide as u64).sqrt();
    }
    let z = ((&x - &one) << wide as u64) / (&x + &one);
    let square: BigInt = (&z * &z) >> wide as u64;
    let mut power = z.clone();
    let mut sum = z;
    for k in 1..120_u32 {
        power = (power * &square) >> wide as u64;
        let term = &power / (2 * k + 1);
        if term.is_zero() {
            break;
        }
        sum += term;
    }
    (sum << (ROOTS + 1)) >> 16_u32
}

/// sin and cos of x in [0, π/2].
pub(super) fn fixed_sin_cos(x: &BigInt, scale: i64) -> (BigInt, BigInt) {
    const HALVINGS: u32 = 8;
    let one = BigInt::one() << scale as u64;
    let small: BigInt = x >> HALVINGS;
    let square: BigInt = (&small * &small) >> scale as u64;
    // Series of sin and of 1 − cos, which keeps its digits under doubling.
    let mut sin = small.clone();
    let mut term = small;
    for k in 1..60_u32 {
        term = -((&term * &square) >> scale as u64) / ((2 * k) * (2 * k + 1));
        if term.is_zero() {
            break;
        }
        sin += &term;
    }
    let mut versine: BigInt = &square >> 1_u32;
    let mut term = versine.clone();
    for k in 2..60_u32 {
        term = -((&term * &square) >> scale as u64) / ((2 * k - 1) * (2 * k));
        if term.is_zero() {
            break;
        }
        versine += &term;
    }
    let mut cos = &one - versine;
    for _ in 0..HALVINGS {
        let double_sin = (&sin * &cos) >> (scale - 1) as u64;
        cos = ((&cos * &cos) >> (scale - 1) as u64) - &one;
        sin = double_sin;
    }
    (sin, cos)
}
