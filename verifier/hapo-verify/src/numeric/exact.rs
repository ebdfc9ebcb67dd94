//! Exact rational values, and the steps that a judgement may take.

use crate::expr::{Expr, Func};
use crate::number::{MAX_BITS, Rat};
use crate::work;
use num_bigint::BigInt;
use num_integer::Integer;
use num_traits::ToPrimitive;
use std::cell::Cell;

/// Largest number whose roots and logarithms are looked for among the integers, in bits.
const MAX_ROOT_BITS: u64 = 4_096;

/// The exact rational value of a constant, if it has one of bounded size that takes few steps.
pub(crate) fn exact(e: &Expr) -> Option<Rat> {
    match e {
        Expr::Num(n) | Expr::Float(n) => Some(n.clone()),
        Expr::Sym { .. } | Expr::Pi | Expr::E | Expr::I | Expr::EulerGamma => None,
        _ => {
            let mut budget = BUDGET;
            exact_in(e, &mut budget)
        }
    }
}

pub(super) fn exact_in(e: &Expr, budget: &mut u32) -> Option<Rat> {
    spend(budget, 1)?;
    let result = match e {
        Expr::Num(n) | Expr::Float(n) => return Some(n.clone()),
        Expr::Percent(a) => exact_in(a, budget)?.mul(&Rat::ratio(1, 100)),
        Expr::Add(v) => v.iter().try_fold(Rat::int(0), |total, it| {
            let term = exact_in(it, budget)?;
            spend(budget, cost(&total, &term))?;
            total.add(&term)
        }),
        Expr::Mul(v) => v.iter().try_fold(Rat::int(1), |total, it| {
            let factor = exact_in(it, budget)?;
            spend(budget, cost(&total, &factor))?;
            total.mul(&factor)
        }),
        Expr::Pow(p) => exact_pow(&exact_in(&p.0, budget)?, &exact_in(&p.1, budget)?),
        Expr::Call(func, args) => exact_call(func, args, budget),
        _ => None,
    };
    let result = result?;
    // Large numbers cost in proportion to their size.
    spend(budget, (result.bits() / 64) as u32)?;
    Some(result)
}

fn exact_pow(base: &Rat, exponent: &Rat) -> Option<Rat> {
    if let Some(n) = exponent.to_i64() {
        return base.pow(n);
    }
    if exponent.is_integer() {
        // Beyond a word, of ±1 alone.
        let is_odd = exponent.parts().0.is_odd();
        return base.pow(if is_odd { 1 } else { 2 }).filter(|it| it.bits() == 1 && !it.is_zero());
    }
    // A perfect root of a non-negative number.
    let (p, q) = exponent.parts();
    let (p, q) = (p.to_i64()?, q.to_u32().filter(|it| *it <= 64)?);
    if base.is_negative() || base.bits() > MAX_ROOT_BITS {
        return None;
    }
    let (n, d) = base.parts();
    let root = |x: &BigInt| {
        let r = x.nth_root(q);
        (r.pow(q) == *x).then_some(r)
    };
    Rat::new(root(n)?, root(d)?)?.pow(p)
}

pub(super) fn exact_call(func: &Func, args: &[Expr], budget: &mut u32) -> Option<Rat> {
    let values: Vec<Rat> = args.iter().map(|it| exact_in(it, budget)).collect::<Option<_>>()?;
    match (func, values.as_slice()) {
        (Func::Abs, [x]) => Some(if x.is_negative() { x.neg() } else { x.clone() }),
        (Func::Floor, [x]) => Some(x.floor()),
        (Func::Ceil, [x]) => Some(x.neg().floor().neg()),
        (Func::Factorial, [n]) => factorial(n.to_i64()?, budget),
        (Func::Gamma, [n]) => factorial(n.to_i64()?.checked_sub(1)?, budget),
        (Func::Binomial, [n, k]) => binomial(n, k.to_i64()?, budget),
        (Func::Mod, [x, m]) => x.sub(&x.div(m)?.floor().mul(m)?),
        _ => None,
    }
}

fn factorial(n: i64, budget: &mut u32) -> Option<Rat> {
    if !(0..=5_000).contains(&n) {
        return None;
    }
    spend(budget, (n as u32) / 2)?;
    Some(Rat::whole((1..=n).fold(BigInt::from(1), |product, k| product * k)))
}

fn binomial(n: &Rat, k: i64, budget: &mut u32) -> Option<Rat> {
    if k < 0 {
        return Some(Rat::int(0));
    }
    let k = match n.to_i64() {
        Some(n) if n >= 0 && k > n => return Some(Rat::int(0)),
        Some(n) if n >= 0 => k.min(n - k),
        _ => k,
    };
    if k > 5_000 || !n.is_integer() {
        return None;
    }
    spend(budget, k as u32)?;
    // Every partial product is an integer, so nothing needs to be reduced.
    let (n, _) = n.parts();
    let mut value = BigInt::from(1);
    for j in 0..k {
        value = value * (n - j) / (j + 1);
        if value.bits() > MAX_BITS {
            return None;
        }
        spend(budget, (value.bits() / 1_024) as u32)?;
    }
    Some(Rat::whole(value))
}

/// Steps (nodes evaluated, with large ones counted more than once) that one side may take at one point.
pub(super) const BUDGET: u32 = 20_000;

pub(super) fn spend(budget: &mut u32, steps: u32) -> Option<()> {
    work::count(1);
    *budget = budget.checked_sub(steps)?;
    FUEL.with(|fuel| {
        let left = fuel.get().checked_sub(steps);
        fuel.set(left.unwrap_or(0));
        left.map(|_| ())
    })
}

/// The cost of adding or multiplying two numbers, in steps, which is spent before the operation.
fn cost(a: &Rat, b: &Rat) -> u32 {
    let words = ((a.bits() + b.bits()) / 64) as u32;
    // Fractions are reduced, which is quadratic.
    if a.is_integer() && b.is_integer() { words } else { words * words / 2 }
}

/// Steps of one judgement, all comparisons in it together.
const FUEL_PER_JUDGEMENT: u32 = 100_000;

thread_local! {
    static FUEL: Cell<u32> = const { Cell::new(FUEL_PER_JUDGEMENT) };
}

/// Grants a new judgement its steps.
pub(crate) fn refuel() {
    FUEL.with(|fuel| fuel.set(FUEL_PER_JUDGEMENT));
}
