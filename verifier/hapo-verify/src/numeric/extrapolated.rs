//! Infinite sums and limits: exact where their growth tells the value, else to twenty digits by extrapolation.
//!
//! A sum is extrapolated only where the leading term of its summand says that it converges, by Levin's u-transformation
//! of 256-bit partial sums; a limit by Richardson's method at points that halve their distance, from both sides. Each
//! is done at two lengths that have to agree to more digits than are asked. That is no proof, as no comparison to some
//! digits is; two different answers that people write do not agree to twenty digits.

use super::ball::{Ball, Big};
use super::budget::{BUDGET, spend};
use super::complex::Complex;
use super::eval::real_value;
use super::leading::{Series, leading};
use super::{analysis, compare_real, exact};
use crate::expr::{Expr, Func};
use crate::number::Rat;
use num_bigint::BigInt;
use std::cmp::Ordering;

/// Digits that two sides agree to.
const DIGITS: i64 = 20;

/// Decimals of a value that was extrapolated.
const PLACES: u32 = 30;

/// Steps that one extrapolation costs beside its values.
const STEPS: u32 = 1_500;

/// Compares constants with infinite sums or limits in them; `None` where one has no value here.
pub(crate) fn same_when_extrapolated(a: &Expr, b: &Expr) -> Option<bool> {
    if !analysis::concerns(a) && !analysis::concerns(b) {
        return None;
    }
    let value = |e: &Expr| real_value::<Big>(&evaluated(e)?, &[]);
    let (x, y) = (value(a)?, value(b)?);
    let size = if x.to_f64().abs() > y.to_f64().abs() { &x } else { &y };
    // What is very small is compared with nothing.
    let is_tiny = |it: &Big| it.to_f64().abs() < 1e-8;
    if is_tiny(size) {
        return (x.to_f64() == 0.0 && y.to_f64() == 0.0).then_some(true);
    }
    Some(agree(&x, &y, DIGITS))
}

/// `e` with the limits and the sums replaced whose value is exact or infinite.
pub(crate) fn tending(e: &Expr) -> Expr {
    let replaced = match e {
        Expr::Call(Func::Limit, parts) => limit_by_growth(parts),
        Expr::Call(Func::Sum, parts) => sum_by_growth(parts),
        it => return it.mapped(&mut tending),
    };
    replaced.unwrap_or_else(|| e.clone())
}

/// The limit of partial sums as an infinite sum.
fn sum_of_limit(parts: &[Expr]) -> Option<Expr> {
    let [Expr::Call(Func::Sum, sum), variable, Expr::Infinity] = parts else {
        return None;
    };
    let [body, index, first, last] = sum.as_slice() else {
        return None;
    };
    // An index of the same name hides it.
    let is_free = (index == variable || !body.any(&mut |it| it == variable))
        && !first.any(&mut |it| it == variable);
    (is_free && last == variable).then(|| {
        let parts = vec![body.clone(), index.clone(), first.clone(), Expr::Infinity];
        super::geometric_closed(&Expr::Call(Func::Sum, parts))
    })
}

fn limit_by_growth(parts: &[Expr]) -> Option<Expr> {
    if let Some(sum) = sum_of_limit(parts) {
        return Some(tending(&sum));
    }
    let [body, variable, to, ..] = parts else {
        return None;
    };
    if analysis::concerns(body) {
        return None;
    }
    let mut values = sides(parts)?.into_iter().map(|side| {
        let approached = body.substituted(variable, &at_distance(to, side, variable));
        let bare = flattened(&approached);
        tending_value(&bare, variable)
    });
    let first = values.next()??;
    let is_first = |it: Expr| it == first || compare_real(&it, &first) == Some(Ordering::Equal);
    let same = |it: Option<Expr>| it.is_some_and(is_first);
    values.all(same).then_some(first)
}

fn tending_value(e: &Expr, n: &Expr) -> Option<Expr> {
    let varies = |it: &Expr| it.any(&mut |it| it == n);
    if let Expr::Pow(p) = e
        && varies(&p.0)
        && varies(&p.1)
    {
        let exponent = p.1.clone().times(Expr::Call(Func::Log, vec![p.0.clone(), Expr::E]));
        return Some(match leading(&exponent, n)?.limit()? {
            Expr::Infinity => Expr::Infinity,
            Expr::NegInfinity => Expr::int(0),
            it if exact(&it).is_some_and(|it| it.is_zero()) => Expr::int(1),
            it => Expr::pow(Expr::E, it),
        });
    }
    // What vanishes does so whatever wave it is multiplied by.
    let is_wave = |it: &Expr| matches!(it, Expr::Call(Func::Sin | Func::Cos, args) if !args.iter().any(Expr::has_imaginary));
    if let Expr::Mul(factors) = e {
        let (waves, rest): (Vec<Expr>, Vec<Expr>) =
            factors.iter().cloned().partition(|it| is_wave(it) && varies(it));
        if !waves.is_empty() {
            let limit = leading(&Expr::Mul(rest), n)?.limit()?;
            return exact(&limit).filter(Rat::is_zero).map(Expr::Num);
        }
    }
    leading(e, n)?.limit()
}

/// The sides from which a limit is approached.
fn sides(parts: &[Expr]) -> Option<Vec<i64>> {
    match parts {
        [_, _, Expr::Infinity] => Some(vec![1]),
        [_, _, Expr::NegInfinity] => Some(vec![-1]),
        [_, _, to] if !to.has_infinity() => Some(vec![1, -1]),
        [_, _, _, side] => Some(vec![exact(side)?.to_i64()?]),
        _ => None,
    }
}

/// A point that comes near `to` as `n` grows.
fn at_distance(to: &Expr, side: i64, n: &Expr) -> Expr {
    match to {
        Expr::Infinity | Expr::NegInfinity if side < 0 => n.clone().negated(),
        Expr::Infinity | Expr::NegInfinity => n.clone(),
        to => to.clone().plus(Expr::int(side).times(Expr::pow(n.clone(), Expr::int(-1)))),
    }
}

/// `e` with the numbers of each sum added up, and a sum of one part as that part.
fn flattened(e: &Expr) -> Expr {
    let terms = match e.mapped(&mut flattened) {
        Expr::Add(terms) => terms,
        it => return it,
    };
    let (mut constant, mut rest) = (Rat::ZERO, Vec::new());
    let parts = terms.into_iter().flat_map(|it| match it {
        Expr::Add(parts) => parts,
        it => vec![it],
    });
    for it in parts {
        match exact(&it).and_then(|it| constant.add(&it)) {
            Some(sum) => constant = sum,
            None => rest.push(it),
        }
    }
    if !constant.is_zero() || rest.is_empty() {
        rest.push(Expr::Num(constant));
    }
    if rest.len() == 1 { rest.swap_remove(0) } else { Expr::Add(rest) }
}

fn sum_by_growth(parts: &[Expr]) -> Option<Expr> {
    let [body, variable, first, Expr::Infinity] = parts else {
        return None;
    };
    let first = exact(first)?;
    match leading(body, variable)?.series()? {
        Series::Grows(to) if first.is_integer() => Some(to),
        _ => None,
    }
}

/// `e` with every infinite sum and limit replaced by its value to [`PLACES`] decimals.
fn evaluated(e: &Expr) -> Option<Expr> {
    match e {
        Expr::Call(Func::Sum, parts) if parts.get(3) == Some(&Expr::Infinity) => {
            let [body, variable, first, _] = parts.as_slice() else {
                return None;
            };
            if analysis::concerns(body) || leading(body, variable)?.series()? != Series::Converges {
                return None;
            }
            decimal(&infinite_sum(body, variable, exact(first)?.to_i64()?)?)
        }
        Expr::Call(Func::Limit, parts) => {
            let [body, variable, to, ..] = parts.as_slice() else {
                return None;
            };
            if analysis::concerns(body) {
                return None;
            }
            let mut values = sides(parts)?.into_iter().map(|side| limit(body, variable, to, side));
            let first = values.next()??;
            values.all(|it| it.is_some_and(|it| agree(&it, &first, DIGITS))).then_some(())?;
            decimal(&first)
        }
        Expr::Call(Func::Integral, _) => None,
        it => {
            let mut failed = false;
            let mapped = it.mapped(&mut |part| {
                evaluated(part).unwrap_or_else(|| {
                    failed = true;
                    part.clone()
                })
            });
            (!failed).then_some(mapped)
        }
    }
}

fn decimal(value: &Big) -> Option<Expr> {
    let scale = Rat::ten_pow(i64::from(PLACES))?.parts().0;
    Rat::from_big(value.round_scaled(PLACES)?, scale).map(Expr::Num)
}

/// True if two values differ by less than their last asked digit, the error of both included.
fn agree(a: &Big, b: &Big, digits: i64) -> bool {
    let size = a.to_f64().abs().max(b.to_f64().abs()).max(1e-8).log2();
    let difference = a.add(&b.neg());
    let bound = size - digits as f64 * std::f64::consts::LOG2_10;
    difference.log_bound() < bound
}

/// Terms that an infinite sum is taken to, at the two lengths.
const N_TERMS: [usize; 2] = [30, 36];

/// Terms at the beginning that may be zero.
const MAX_ZEROS: i64 = 4;

/// Levin's u-transformation.
fn infinite_sum(body: &Expr, variable: &Expr, first: i64) -> Option<Big> {
    let term = |k: i64| real_value::<Big>(body, &[(variable, Complex::int(k))]);
    let start = (first..first.checked_add(MAX_ZEROS)?)
        .find(|k| term(*k).is_some_and(|it| it.sign().is_some_and(Ordering::is_ne)))?;
    // What is left out before is zero, and has a value.
    (first..start).map(term).collect::<Option<Vec<_>>>()?;
    let longest = N_TERMS[1] as i64;
    let terms: Vec<Big> = (start..=start + longest).map(term).collect::<Option<_>>()?;
    let mut sum = Big::from_rat(&Rat::ZERO);
    let partial: Vec<Big> = terms
        .iter()
        .map(|it| {
            sum = sum.add(it);
            sum.clone()
        })
        .collect();
    let mut budget = BUDGET;
    let [short, long] = N_TERMS.map(|n| {
        spend(&mut budget, STEPS)?;
        let (mut upper, mut lower) = (Big::from_rat(&Rat::ZERO), Big::from_rat(&Rat::ZERO));
        let mut binomial = BigInt::from(1);
        for j in 0..=n {
            let from_one = BigInt::from(j + 1);
            let sign = if j % 2 == 0 { 1 } else { -1 };
            let weight = &binomial * from_one.pow(n as u32 - 2) * sign;
            let weight = Big::from_rat(&Rat::from_big(weight, BigInt::from(1))?);
            let weight = weight.mul(&terms[j].recip()?);
            upper = upper.add(&weight.mul(&partial[j]));
            lower = lower.add(&weight);
            binomial = binomial * (n - j) / (j + 1);
        }
        Some(upper.mul(&lower.recip()?))
    });
    let (short, long) = (short?, long?);
    agree(&short, &long, DIGITS + 1).then_some(long)
}

/// Halvings of the distance to a point, at the longer length.
const N_HALVINGS: i64 = 18;

/// Richardson's extrapolation of values that approach the point from one side.
fn limit(body: &Expr, variable: &Expr, to: &Expr, side: i64) -> Option<Big> {
    let mut budget = BUDGET;
    spend(&mut budget, STEPS)?;
    let mut row = Vec::new();
    for k in 3..3 + N_HALVINGS {
        let point = at_distance(to, side, &Expr::int(1 << k));
        let point = match exact(&point) {
            Some(it) => Complex::rat(&it),
            None => Complex::real(real_value::<Big>(&point, &[])?),
        };
        row.push(real_value::<Big>(body, &[(variable, point)])?);
    }
    let mut before = row.last()?.clone();
    for level in 1..row.len() {
        let power = Big::from_rat(&Rat::int(1 << level));
        let rest = Big::from_rat(&Rat::new(1, (1_i128 << level) - 1)?);
        for j in 0..row.len() - level {
            row[j] = power.mul(&row[j + 1]).add(&row[j].neg()).mul(&rest);
        }
        let now = row[row.len() - level - 1].clone();
        if agree(&now, &before, DIGITS + 2) {
            return Some(now);
        }
        before = now;
    }
    None
}
