//! Decides whether two expressions have the same value, within a budget of steps. Two ways, in this order: exact
//! rational arithmetic; for everything else values at fixed points with an error bound: a difference is proven, and an
//! equality holds to at least 50 digits. What would be too large is not computed, and what is undecided is not equal.

mod analysis;
mod big;
mod complex;
mod eval;
mod exact;
mod fixed;

use crate::expr::{Expr, Func};
use crate::number::Rat;
use big::Big;
use complex::Complex;
use eval::{real_value, value};
pub(crate) use exact::{exact, refuel};
use num_bigint::BigInt;
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

/// Fixed, well-spread value of the `idx`-th atom at the `probe`-th point.
fn spread(idx: usize, probe: u64) -> u64 {
    let mut z = (idx as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
        ^ (probe + 1).wrapping_mul(0xD1B5_4A32_D192_ED03);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The value of the `idx`-th atom at the `probe`-th point: between 0.3 and 3 at the first two points and between 2 and
/// 18 at the others (where floors and steps have more than one value); of mixed sign at odd ones.
fn point(idx: usize, probe: u64) -> Rat {
    let z = spread(idx, probe);
    let scale = if probe < 2 { 1 } else { 6 };
    let size = (300 + (z % 2_689) as i64) * scale;
    let negative = probe % 2 == 1 && !(z >> 40).is_multiple_of(3);
    Rat::ratio(if negative { -size } else { size }, 997)
}

fn same_at_points(a: &Expr, b: &Expr, atoms: &[&Expr]) -> Decision {
    let n_points = if atoms.is_empty() { 1 } else { 4 };
    let mut n_good = 0;
    for (x, y) in pairs(a, b, atoms, n_points) {
        let zero = || Big::from_rat(&Rat::int(0));
        let real = x.re.same(&y.re);
        let imaginary = match (&x.im, &y.im) {
            (None, None) => Some(true),
            _ => x.im.unwrap_or_else(zero).same(&y.im.unwrap_or_else(zero)),
        };
        match (real, imaginary) {
            (Some(false), _) | (_, Some(false)) => return Decision::Different("different values"),
            (Some(true), Some(true)) => n_good += 1,
            _ => {}
        }
    }
    match atoms {
        _ if n_good < n_points.min(3) => Decision::Unknown,
        [] => Decision::Same("equal to 50 digits"),
        _ => Decision::Same("equal to 50 digits at four points"),
    }
}

/// True if `a` and `b` have the same value wherever both are real, at three points or more.
fn same_at_real_points(a: &Expr, b: &Expr, atoms: &[&Expr]) -> bool {
    let mut n_good = 0;
    for (x, y) in pairs(a, b, atoms, 6) {
        let zero = || Big::from_rat(&Rat::int(0));
        let is_real = |it: &Complex| it.im.as_ref().is_none_or(|it| it.same(&zero()) == Some(true));
        if is_real(&x) && is_real(&y) {
            match x.re.same(&y.re) {
                Some(true) => n_good += 1,
                _ => return false,
            }
        }
    }
    n_good > 2
}

/// The values of both at the first points where both have one.
fn pairs<'e>(
    a: &'e Expr,
    b: &'e Expr,
    atoms: &'e [&'e Expr],
    n_points: u64,
) -> impl Iterator<Item = (Complex, Complex)> {
    (0..n_points).filter_map(move |probe| {
        let at = |idx| Complex::rat(&point(idx, probe));
        let values: Vec<_> = atoms.iter().enumerate().map(|(idx, atom)| (*atom, at(idx))).collect();
        Some((value(a, &values)?, value(b, &values)?))
    })
}
