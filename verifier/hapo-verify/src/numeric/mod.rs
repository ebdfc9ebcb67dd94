//! Decides whether two expressions have the same value, within a budget of steps.
//!
//! Two ways, in this order: exact rational arithmetic; for everything else values at fixed points with an error
//! bound: a difference is proven, and an equality holds to at least 50 digits. A value that would be too large is not
//! computed, and two sides that cannot be decided are not equal.

mod analysis;
mod big;
mod complex;
mod eval;
mod exact;
mod fixed;
mod points;

use crate::expr::{Expr, Func};
use crate::number::Rat;
use eval::real_value;
pub(crate) use exact::{exact, refuel};
use num_bigint::BigInt;
use points::{same_at_points, same_at_real_points};
use std::cmp::Ordering;

/// Most distinct symbols in a comparison.
const MAX_ATOMS: usize = 48;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Same(&'static str),
    /// The same as far as double arithmetic shows.
    Near(&'static str),
    Different(&'static str),
    Unknown,
}

impl Decision {
    pub(crate) fn is_same(self) -> bool {
        matches!(self, Decision::Same(_) | Decision::Near(_))
    }
}

/// Decides whether `a` and `b` have the same value for all values of their symbols.
pub(crate) fn same_value(a: &Expr, b: &Expr) -> Decision {
    if let (Some(x), Some(y)) = (exact(a), exact(b)) {
        return if x == y {
            Decision::Same("equal as exact rationals")
        } else {
            Decision::Different("different as exact rationals")
        };
    }
    if analysis::concerns(a) || analysis::concerns(b) {
        return same_by_quadrature(a, b);
    }
    let mut atoms = Vec::new();
    if !collect_atoms(a, &mut atoms) || !collect_atoms(b, &mut atoms) {
        return Decision::Unknown;
    }
    // The points of an atom do not depend on which side names it first.
    atoms.sort_by_cached_key(ToString::to_string);
    same_at_points(a, b, &atoms)
}

/// True if roots or logarithms of symbols are equal wherever both sides are real. Absolute values say that signs count.
pub(crate) fn same_where_real(a: &Expr, b: &Expr) -> bool {
    let is_partial = |it: &Expr| match it {
        Expr::Call(Func::Log, _) => it.has_symbol(),
        Expr::Pow(sides) => {
            sides.0.has_symbol() && exact(&sides.1).is_some_and(|it| !it.is_integer())
        }
        _ => false,
    };
    let has = |test: &dyn Fn(&Expr) -> bool| [a, b].iter().any(|it| it.any(&mut |it| test(it)));
    let is_other =
        |it: &Expr| matches!(it, Expr::Call(Func::Abs, _)) || it.is_relation() || it.is_set();
    let mut atoms = Vec::new();
    if !has(&is_partial)
        || has(&is_other)
        || !collect_atoms(a, &mut atoms)
        || !collect_atoms(b, &mut atoms)
    {
        return false;
    }
    atoms.sort_by_cached_key(ToString::to_string);
    same_at_real_points(a, b, &atoms)
}

/// Compares constants with integrals in them.
fn same_by_quadrature(a: &Expr, b: &Expr) -> Decision {
    let value = |e: &Expr| analysis::evaluated(e).and_then(|it| approximate(&it));
    let (Some(x), Some(y)) = (value(a), value(b)) else { return Decision::Unknown };
    if (x - y).abs() <= analysis::TOLERANCE * x.abs().max(y.abs()).max(1e-3) {
        Decision::Near("equal to nine digits by quadrature")
    } else {
        Decision::Different("different values")
    }
}

/// Orders two real constants; `None` where there is no order or it is not known.
pub(crate) fn compare_real(a: &Expr, b: &Expr) -> Option<Ordering> {
    let infinite = |it: &Expr| match it {
        Expr::NegInfinity => -1,
        it => i32::from(*it == Expr::Infinity),
    };
    if infinite(a) != 0 || infinite(b) != 0 {
        return (!a.has_symbol() && !b.has_symbol()).then(|| infinite(a).cmp(&infinite(b)));
    }
    if let (Some(x), Some(y)) = (exact(a), exact(b)) {
        return Some(x.cmp(&y));
    }
    if a.has_symbol() || b.has_symbol() {
        return None;
    }
    let difference = a.clone().plus(b.clone().negated());
    let it = real_value(&difference, &[])?;
    it.sign().or_else(|| it.is_negligible().then_some(Ordering::Equal))
}

/// A real constant as a double, for sorting.
pub(crate) fn approximate(e: &Expr) -> Option<f64> {
    if let Some(it) = exact(e) {
        return Some(it.to_f64());
    }
    match e {
        Expr::Infinity => Some(f64::INFINITY),
        Expr::NegInfinity => Some(f64::NEG_INFINITY),
        _ => real_value(e, &[]).map(|it| it.to_f64()),
    }
}

/// A real constant rounded to `places` decimals, as an integer multiple of `10^-places`.
pub(crate) fn rounded(e: &Expr, places: u32) -> Option<BigInt> {
    if let Some(it) = exact(e) {
        return Some(it.round_scaled(places));
    }
    real_value(e, &[])?.round_scaled(places)
}

/// A constant in double arithmetic, operation by operation in the order written: what a decimal that took part in a
/// computation has become. `None` unless every part is a real number.
pub(crate) fn in_doubles(e: &Expr) -> Option<f64> {
    let value = match e {
        Expr::Num(n) | Expr::Float(n) => n.to_f64(),
        Expr::Percent(a) => in_doubles(a)? / 100.0,
        Expr::Add(v) => v.iter().try_fold(0.0, |sum, it| in_doubles(it).map(|x| sum + x))?,
        Expr::Mul(v) => {
            // Exact factors are multiplied exactly up to the first decimal.
            let mut product = Rat::int(1);
            let mut inexact: Option<f64> = None;
            for it in v {
                match (exact_without_decimals(it), inexact) {
                    (Some(x), None) => product = product.mul(&x)?,
                    (Some(x), Some(y)) => inexact = Some(y * x.to_f64()),
                    (None, None) => inexact = Some(product.to_f64() * in_doubles(it)?),
                    (None, Some(y)) => inexact = Some(y * in_doubles(it)?),
                }
            }
            inexact.unwrap_or_else(|| product.to_f64())
        }
        Expr::Pow(p) => match exact_without_decimals(e) {
            Some(it) => it.to_f64(),
            None => in_doubles(&p.0)?.powf(in_doubles(&p.1)?),
        },
        Expr::Call(..) | Expr::Pi | Expr::E => approximate(e)?,
        _ => return None,
    };
    value.is_finite().then_some(value)
}

/// True for a real constant at most `slack` away from a double.
pub(crate) fn is_within(e: &Expr, double: f64, slack: f64) -> bool {
    if let Some(it) = exact(e) {
        return (it.to_f64() - double).abs() <= slack;
    }
    let Some(double) = Rat::from_f64(double) else { return false };
    if slack == 0.0 {
        // An irrational number is no double.
        return false;
    }
    let difference = e.clone().plus(Expr::Num(double.neg()));
    real_value(&difference, &[]).is_some_and(|it| it.to_f64().abs() <= slack)
}

fn exact_without_decimals(e: &Expr) -> Option<Rat> {
    if e.has_float() { None } else { exact(e) }
}

/// Symbols, unknown functions, and γ, whose value is not computed. `false` if there are too many.
fn collect_atoms<'a>(e: &'a Expr, atoms: &mut Vec<&'a Expr>) -> bool {
    match e {
        Expr::Sym { .. } | Expr::Call(Func::Named(_), _) | Expr::EulerGamma => {
            if !atoms.contains(&e) {
                atoms.push(e);
            }
            atoms.len() <= MAX_ATOMS
        }
        it => it.children().into_iter().all(|child| collect_atoms(child, atoms)),
    }
}
