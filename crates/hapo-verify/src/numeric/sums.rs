//! Sums of polynomials over long or symbolic ranges, by Newton's forward differences.
//!
//! Exact for any bound, in time that depends on the degree alone.

use super::budget::spend;
use super::exact::exact_in;
use crate::expr::{Expr, Func};
use crate::number::Rat;

/// Highest degree of a summand.
const MAX_DEGREE: i64 = 16;

/// Steps that the values of a summand may take.
const BUDGET: u32 = 20_000;

/// `e` with every such sum in closed form; everything else as it is.
pub(crate) fn closed(e: &Expr) -> Expr {
    let all = |v: &[Expr]| v.iter().map(closed).collect::<Vec<_>>();
    match e {
        Expr::Call(Func::Sum, parts) => {
            let [body, variable, first, last] = parts.as_slice() else {
                return e.clone();
            };
            closed_sum(body, variable, first, last).unwrap_or_else(|| e.clone())
        }
        Expr::Add(v) => Expr::Add(all(v)),
        Expr::Mul(v) => Expr::Mul(all(v)),
        Expr::Call(f, v) => Expr::Call(f.clone(), all(v)),
        Expr::Pow(p) => Expr::pow(closed(&p.0), closed(&p.1)),
        it => it.clone(),
    }
}

/// Whether a sum here is not simply added up.
pub(crate) fn concerns(e: &Expr) -> bool {
    e.any(&mut |it| matches!(it, Expr::Call(Func::Sum, parts) if parts.len() == 4 && parts[3] != Expr::Infinity))
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
    let mut differences = Vec::new();
    for k in 0..=degree {
        let at = start.add(&Rat::int(k))?;
        differences.push(exact_in(body, &[(variable, at)], &mut budget)?);
    }
    // Σ f = Σ_j Δ^j f(first) · C(n, j + 1), where n is the number of terms.
    let n = last.clone().plus(first.clone().negated()).plus(Expr::int(1));
    let mut binomial = n.clone();
    let mut total = Vec::new();
    for j in 0..=degree {
        spend(&mut budget, 1)?;
        total.push(Expr::Num(differences.first()?.clone()).times(binomial.clone()));
        let next = n.clone().plus(Expr::int(-(j + 1)));
        binomial = binomial.times(next).times(Expr::Num(Rat::new(1, i128::from(j + 2))?));
        for idx in 0..differences.len() - 1 {
            differences[idx] = differences[idx + 1].sub(&differences[idx])?;
        }
        differences.pop();
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
