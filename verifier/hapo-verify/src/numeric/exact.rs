//! Exact rational values.

use super::MAX_TERMS;
use super::budget::{BUDGET, cost, spend};
use crate::expr::{Expr, Func};
use crate::number::{MAX_BITS, Rat};
use num_bigint::BigInt;
use num_integer::Integer;
use std::cmp::Ordering;

/// Largest entry of a determinant that is expanded, in bits.
const MAX_ENTRY_BITS: u64 = 512;

/// Largest number whose roots and logarithms are looked for among the integers, in bits.
const MAX_ROOT_BITS: u64 = 4_096;

/// The exact rational value of a constant, if it has one of bounded size that takes few steps.
pub(crate) fn exact(e: &Expr) -> Option<Rat> {
    match e {
        Expr::Num(n) | Expr::Float(n) => Some(n.clone()),
        Expr::Sym { .. } | Expr::Pi | Expr::E | Expr::I | Expr::EulerGamma => None,
        _ => {
            let mut budget = BUDGET;
            exact_in(e, &[], &mut budget)
        }
    }
}

type Bound<'a> = (&'a Expr, Rat);

pub(super) fn exact_in(e: &Expr, bound: &[Bound<'_>], budget: &mut u32) -> Option<Rat> {
    spend(budget, 1)?;
    let result = match e {
        Expr::Num(n) | Expr::Float(n) => return Some(n.clone()),
        Expr::Percent(a) => exact_in(a, bound, budget)?.mul(&Rat::Small(1, 100)),
        Expr::Sym { .. } => bound.iter().rev().find(|it| it.0 == e).map(|it| it.1.clone()),
        Expr::Add(v) => folded(&Func::Sum, v, bound, budget),
        Expr::Mul(v) => folded(&Func::Product, v, bound, budget),
        Expr::Pow(p) => exact_pow(&exact_in(&p.0, bound, budget)?, &exact_in(&p.1, bound, budget)?),
        Expr::Call(func, args) => exact_call(func, args, bound, budget),
        _ => None,
    };
    let result = result?;
    // Large numbers cost in proportion to their size.
    spend(budget, (result.bits() / 64) as u32)?;
    Some(result)
}

/// Parts added up, or multiplied.
fn folded<'a>(
    by: &Func,
    parts: impl IntoIterator<Item = &'a Expr>,
    bound: &[Bound<'_>],
    budget: &mut u32,
) -> Option<Rat> {
    let neutral = Rat::int(i64::from(*by == Func::Product));
    parts.into_iter().try_fold(neutral, |total, part| {
        joined(by, &total, &exact_in(part, bound, budget)?, budget)
    })
}

fn joined(by: &Func, total: &Rat, part: &Rat, budget: &mut u32) -> Option<Rat> {
    spend(budget, cost(total, part))?;
    if *by == Func::Sum { total.add(part) } else { total.mul(part) }
}

fn exact_pow(base: &Rat, exponent: &Rat) -> Option<Rat> {
    if let Some(n) = exponent.to_i64() {
        return base.pow(n);
    }
    if base.is_one() && exponent.is_integer() {
        return Some(Rat::ONE);
    }
    if *base == Rat::MINUS_ONE && exponent.is_integer() {
        let (n, _) = exponent.parts();
        return Some(if n.is_even() { Rat::ONE } else { Rat::MINUS_ONE });
    }
    // A perfect root of a non-negative number.
    let Rat::Small(p, q @ 2..=64) = exponent else {
        return None;
    };
    if base.is_negative() || base.bits() > MAX_ROOT_BITS {
        return None;
    }
    let (n, d) = base.parts();
    let root = |x: &BigInt| {
        let r = x.nth_root(*q as u32);
        (r.pow(*q as u32) == *x).then_some(r)
    };
    let (n, d) = (root(&n)?, root(&d)?);
    Rat::from_big(n, d)?.pow(*p)
}

pub(super) fn exact_call(
    func: &Func,
    args: &[Expr],
    bound: &[Bound<'_>],
    budget: &mut u32,
) -> Option<Rat> {
    match func {
        Func::Sum | Func::Product => return exact_series(func, args, bound, budget),
        Func::Det | Func::Trace => return exact_of_matrix(func, args, bound, budget),
        _ => {}
    }
    let values: Vec<Rat> =
        args.iter().map(|it| exact_in(it, bound, budget)).collect::<Option<_>>()?;
    match (func, values.as_slice()) {
        (Func::Abs, [x]) => Some(if x.is_negative() { x.neg() } else { x.clone() }),
        (Func::Floor, [x]) => Some(x.floor()),
        (Func::Ceil, [x]) => Some(x.neg().floor().neg()),
        (Func::Factorial, [n]) => factorial(n.to_i64()?, budget),
        (Func::Gamma, [n]) => factorial(n.to_i64()?.checked_sub(1)?, budget),
        (Func::Binomial, [n, k]) => binomial(n, k.to_i64()?, budget),
        (Func::Max, [first, rest @ ..]) => Some(rest.iter().fold(first, |m, it| m.max(it)).clone()),
        (Func::Min, [first, rest @ ..]) => Some(rest.iter().fold(first, |m, it| m.min(it)).clone()),
        (Func::Mod, [x, m]) => {
            let turns = x.div(m)?.floor();
            x.sub(&turns.mul(m)?)
        }
        (Func::Gcd, all) => all.iter().try_fold(Rat::ZERO, |g, it| rational_gcd(&g, it)),
        (Func::Lcm, all) => all.iter().try_fold(Rat::ONE, |l, it| rational_lcm(&l, it)),
        (Func::Log, [x, base]) => exact_log(x, base),
        _ => None,
    }
}

fn exact_series(func: &Func, args: &[Expr], bound: &[Bound<'_>], budget: &mut u32) -> Option<Rat> {
    let [body, variable, first, last] = args else {
        return None;
    };
    let first = exact_in(first, bound, budget)?.to_i64()?;
    let last = exact_in(last, bound, budget)?.to_i64()?;
    if last.checked_sub(first)? >= MAX_TERMS {
        return None;
    }
    let mut total = Rat::int(i64::from(*func == Func::Product));
    let mut inner = bound.to_vec();
    inner.push((variable, Rat::ZERO));
    for k in first..=last {
        inner.last_mut()?.1 = Rat::int(k);
        let term = exact_in(body, &inner, budget)?;
        total = joined(func, &total, &term, budget)?;
    }
    Some(total)
}

/// The determinant or trace of a matrix of bounded size.
fn exact_of_matrix(
    func: &Func,
    args: &[Expr],
    bound: &[Bound<'_>],
    budget: &mut u32,
) -> Option<Rat> {
    let Some(Expr::Matrix { cols, cells }) = args.first() else {
        return None;
    };
    if *func == Func::Trace {
        return folded(&Func::Sum, cells.iter().step_by(cols + 1).take(*cols), bound, budget);
    }
    if cells.len() != cols * cols || *cols > 8 {
        return None;
    }
    let mut values = Vec::with_capacity(cells.len());
    for it in cells {
        let value = exact_in(it, bound, budget)?;
        if value.bits() > MAX_ENTRY_BITS {
            return None;
        }
        values.push(value);
    }
    determinant(values, *cols)
}

/// `log_base x` when it is a small integer.
fn exact_log(x: &Rat, base: &Rat) -> Option<Rat> {
    if x.is_one() {
        return Some(Rat::ZERO);
    }
    if !base.is_integer()
        || *base <= Rat::ONE
        || x.is_negative()
        || x.is_zero()
        || x.bits() > MAX_ROOT_BITS
    {
        return None;
    }
    let (target, sign) = if *x < Rat::ONE { (x.recip()?, -1) } else { (x.clone(), 1) };
    let mut power = Rat::ONE;
    for k in 1..=256 {
        power = power.mul(base)?;
        match power.cmp(&target) {
            Ordering::Equal => return Some(Rat::int(k * sign)),
            Ordering::Greater => return None,
            Ordering::Less => {}
        }
    }
    None
}

fn rational_gcd(a: &Rat, b: &Rat) -> Option<Rat> {
    let ((an, ad), (bn, bd)) = (a.parts(), b.parts());
    let n = (&an * &bd).gcd(&(&bn * &ad));
    let d = ad * bd;
    Rat::from_big(n, d)
}

fn rational_lcm(a: &Rat, b: &Rat) -> Option<Rat> {
    let gcd = rational_gcd(a, b)?;
    if gcd.is_zero() {
        return Some(Rat::ZERO);
    }
    let lcm = a.mul(b)?.div(&gcd)?;
    Some(if lcm.is_negative() { lcm.neg() } else { lcm })
}

fn factorial(n: i64, budget: &mut u32) -> Option<Rat> {
    if !(0..=5_000).contains(&n) {
        return None;
    }
    spend(budget, (n as u32) / 2)?;
    Rat::from_big(product_of_range(1, n), BigInt::from(1))
}

/// `from · (from + 1) · … · to`, halves first, so that the factors stay of one size.
fn product_of_range(from: i64, to: i64) -> BigInt {
    if to - from < 12 {
        return (from..=to).fold(BigInt::from(1), |product, k| product * k);
    }
    let middle = i64::midpoint(from, to);
    product_of_range(from, middle) * product_of_range(middle + 1, to)
}

fn binomial(n: &Rat, k: i64, budget: &mut u32) -> Option<Rat> {
    if k < 0 {
        return Some(Rat::ZERO);
    }
    let k = match n.to_i64() {
        Some(n) if n >= 0 && k > n => return Some(Rat::ZERO),
        Some(n) if n >= 0 => k.min(n - k),
        _ => k,
    };
    if k > 5_000 || !n.is_integer() && k > 64 {
        return None;
    }
    spend(budget, k as u32)?;
    if n.is_integer() {
        // Every partial product is an integer, so nothing needs to be reduced.
        let (n, _) = n.parts();
        let mut value = BigInt::from(1);
        for j in 0..k {
            value = value * (&n - j) / (j + 1);
            if value.bits() > MAX_BITS {
                return None;
            }
            spend(budget, (value.bits() / 1_024) as u32)?;
        }
        return Rat::from_big(value, BigInt::from(1));
    }
    let mut value = Rat::ONE;
    for j in 0..k {
        value = value.mul(&n.sub(&Rat::int(j))?)?.div(&Rat::int(j + 1))?;
        if value.bits() > MAX_BITS / 2 {
            return None;
        }
    }
    Some(value)
}

/// By elimination; the first non-zero pivot will do since the arithmetic is exact.
fn determinant(mut m: Vec<Rat>, n: usize) -> Option<Rat> {
    let mut det = Rat::ONE;
    for col in 0..n {
        let Some(pivot) = (col..n).find(|row| !m[row * n + col].is_zero()) else {
            return Some(Rat::ZERO);
        };
        if pivot != col {
            for k in 0..n {
                m.swap(pivot * n + k, col * n + k);
            }
            det = det.neg();
        }
        let head = m[col * n + col].clone();
        det = det.mul(&head)?;
        for row in col + 1..n {
            let factor = m[row * n + col].div(&head)?;
            for k in col..n {
                m[row * n + k] = m[row * n + k].sub(&factor.mul(&m[col * n + k])?)?;
            }
        }
    }
    Some(det)
}
