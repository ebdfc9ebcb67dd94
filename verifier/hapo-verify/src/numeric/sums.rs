//! Sums of polynomials over long or symbolic ranges, by Newton's forward differences.
//!
//! Exact for any bound, in time that depends on the degree alone.

use super::budget::{BUDGET, spend};
use super::exact::exact_in;
use crate::expr::{Expr, Func};
use crate::number::Rat;
use std::cmp::Ordering;

/// Highest degree of a summand.
const MAX_DEGREE: i64 = 16;

/// `e` with every such sum in closed form; everything else as it is.
pub(crate) fn closed(e: &Expr) -> Expr {
    match e {
        Expr::Call(Func::Sum, parts) => {
            let [body, variable, first, last] = parts.as_slice() else {
                return e.clone();
            };
            closed_sum(body, variable, first, last).unwrap_or_else(|| e.clone())
        }
        it => it.mapped(&mut closed),
    }
}

/// `e` with every infinite geometric series in closed form, where its ratio is between -1 and 1, or a symbol's.
pub(crate) fn geometric_closed(e: &Expr) -> Expr {
    match e {
        Expr::Call(Func::Sum, parts) => {
            let sum = match parts.as_slice() {
                [body, variable, first, Expr::Infinity] => geometric_sum(body, variable, first)
                    .or_else(|| exponential_sum(body, variable, first)),
                _ => None,
            };
            sum.unwrap_or_else(|| e.clone())
        }
        it => it.mapped(&mut geometric_closed),
    }
}

/// The sum of `c r^n / n!` from zero on.
fn exponential_sum(body: &Expr, variable: &Expr, first: &Expr) -> Option<Expr> {
    let Expr::Mul(factors) = body else {
        return None;
    };
    let inverse = Expr::pow(Expr::call(Func::Factorial, variable.clone()), Expr::int(-1));
    let at = factors.iter().position(|it| *it == inverse)?;
    let mut powers = factors.clone();
    powers.remove(at);
    if !powers.iter().all(|it| is_geometric(it, variable)) || !super::exact(first)?.is_zero() {
        return None;
    }
    let powers = Expr::Mul(powers);
    let term = |k: i64| powers.substituted(variable, &Expr::int(k));
    let ratio = term(1).times(Expr::pow(term(0), Expr::int(-1)));
    Some(term(0).times(Expr::pow(Expr::E, ratio)))
}

/// The sum of a geometric series, its terms multiplied by a polynomial.
fn geometric_sum(body: &Expr, variable: &Expr, first: &Expr) -> Option<Expr> {
    let factors = match body {
        Expr::Mul(factors) => factors.as_slice(),
        it => std::slice::from_ref(it),
    };
    let (powers, polynomial): (Vec<Expr>, Vec<Expr>) =
        factors.iter().cloned().partition(|it| is_geometric(it, variable));
    let (body, polynomial) = (Expr::Mul(powers), Expr::Mul(polynomial));
    let degree = degree(&polynomial, variable)?;
    let first = super::exact(first)?.to_i64()?;
    let term = |k: i64| body.substituted(variable, &Expr::int(k));
    let ratio = term(first.checked_add(1)?).times(Expr::pow(term(first), Expr::int(-1)));
    let lies = |bound: i64| super::compare_real(&ratio, &Expr::int(bound));
    let converges = lies(1) == Some(Ordering::Less) && lies(-1) == Some(Ordering::Greater);
    let rest = Expr::int(1).plus(ratio.clone().negated());
    if !converges && !ratio.has_symbol() {
        return None;
    }
    // Σ p(k) r^k = Σ_j Δ^j p(0) r^j / (1 - r)^(j + 1).
    first.checked_add(degree)?;
    let mut budget = BUDGET;
    let row = (0..=degree).map(|k| Rat::int(first).add(&Rat::int(k)));
    let mut total = Vec::new();
    for (j, difference) in (0..).zip(differences(&polynomial, variable, row, &mut budget)?) {
        let scale = Expr::pow(ratio.clone(), Expr::int(j))
            .times(Expr::pow(rest.clone(), Expr::int(-j - 1)));
        total.push(term(first).times(Expr::Num(difference)).times(scale));
    }
    Some(Expr::Add(total))
}

/// The sum of a geometric series of which the first terms are written.
pub(crate) fn geometric_continued(terms: &[Expr]) -> Option<Expr> {
    let terms: Vec<Rat> = terms.iter().map(super::exact).collect::<Option<_>>()?;
    let [first, second, _, ..] = terms.as_slice() else {
        return None;
    };
    let ratio = second.div(first)?;
    let falls = Rat::MINUS_ONE < ratio && ratio < Rat::ONE && !ratio.is_zero();
    let is_geometric = terms.windows(2).all(|pair| pair[1].div(&pair[0]).as_ref() == Some(&ratio));
    (falls && is_geometric).then_some(())?;
    first.div(&Rat::ONE.sub(&ratio)?).map(Expr::Num)
}

/// True if the quotient of two neighbouring terms is a constant, by their form.
fn is_geometric(e: &Expr, variable: &Expr) -> bool {
    let is_free = |it: &Expr| !it.any(&mut |it| it == variable);
    is_free(e)
        || match e {
            Expr::Mul(factors) => factors.iter().all(|it| is_geometric(it, variable)),
            Expr::Pow(p) if is_free(&p.0) => degree(&p.1, variable).is_some_and(|it| it < 2),
            Expr::Pow(p) => {
                super::exact(&p.1).is_some_and(|it| it.is_integer()) && is_geometric(&p.0, variable)
            }
            _ => false,
        }
}

/// True if a sum here is not simply added up.
pub(crate) fn concerns(e: &Expr) -> bool {
    e.any(&mut |it| matches!(it, Expr::Call(Func::Sum, parts) if parts.len() == 4 && parts[3] != Expr::Infinity))
}

/// The forward differences of `f` at the first of some points.
fn differences(
    f: &Expr,
    variable: &Expr,
    points: impl Iterator<Item = Option<Rat>>,
    budget: &mut u32,
) -> Option<Vec<Rat>> {
    let value = |at: Option<Rat>| exact_in(f, &[(variable, at?)], budget);
    let mut row: Vec<Rat> = points.map(value).collect::<Option<_>>()?;
    let mut all = Vec::with_capacity(row.len());
    while let Some(first) = row.first() {
        all.push(first.clone());
        row = row.windows(2).map(|pair| pair[1].sub(&pair[0])).collect::<Option<_>>()?;
    }
    Some(all)
}

fn closed_sum(body: &Expr, variable: &Expr, first: &Expr, last: &Expr) -> Option<Expr> {
    let degree = degree(body, variable)?;
    let start = super::exact(first)?;
    if let Some(end) = super::exact(last)
        && end < start
    {
        return Some(Expr::int(0));
    }
    let mut budget = BUDGET;
    let row = (0..=degree).map(|k| start.add(&Rat::int(k)));
    let differences = differences(body, variable, row, &mut budget)?;
    // Σ f = Σ_j Δ^j f(first) · C(n, j + 1), where n is the number of terms.
    let n = last.clone().plus(first.clone().negated()).plus(Expr::int(1));
    let mut binomial = n.clone();
    let mut total = Vec::new();
    for (j, difference) in (0..).zip(differences) {
        spend(&mut budget, 1)?;
        total.push(Expr::Num(difference).times(binomial.clone()));
        let next = n.clone().plus(Expr::int(-(j + 1)));
        binomial = binomial.times(next).times(Expr::Num(Rat::new(1, i128::from(j + 2))?));
    }
    Some(Expr::Add(total))
}

/// A bound of the degree of `e` as a polynomial in `variable` alone.
pub(crate) fn degree(e: &Expr, variable: &Expr) -> Option<i64> {
    let bound = match e {
        _ if e == variable => 1,
        Expr::Num(_) | Expr::Float(_) => 0,
        Expr::Add(v) => v.iter().try_fold(0, |d, it| degree(it, variable).map(|it| it.max(d)))?,
        Expr::Mul(v) => v.iter().try_fold(0_i64, |d, it| degree(it, variable).map(|it| it + d))?,
        Expr::Pow(p) => {
            let exponent = super::exact(&p.1)?.to_i64()?;
            let base = degree(&p.0, variable)?;
            if base == 0 {
                0
            } else if (0..=MAX_DEGREE).contains(&exponent) {
                base * exponent
            } else {
                return None;
            }
        }
        _ => return None,
    };
    (bound <= MAX_DEGREE).then_some(bound)
}
