//! Values of definite integrals, infinite sums and limits, in doubles.
//!
//! Quadrature cannot prove an equality, so these are the last resort: two independent step sizes must agree to ten
//! digits, or there is no value. The price of a wrong acceptance is bounded by that; the cost by a fixed number of
//! points.

use super::ball::Double;
use super::complex::Complex;
use super::eval::Point;
use crate::expr::{Expr, Func};
use crate::number::Rat;

/// Steps that one evaluation of a body may take.
const POINT_BUDGET: u32 = 2_000;

/// Relative agreement that counts as a value.
pub(crate) const TOLERANCE: f64 = 1e-9;

/// `e` with every closed integral, infinite sum and limit replaced by its value; `None` where one has none.
pub(crate) fn evaluated(e: &Expr) -> Option<Expr> {
    let all = |v: &[Expr]| v.iter().map(evaluated).collect::<Option<Vec<_>>>();
    Some(match e {
        Expr::Call(Func::Integral, parts) => {
            let [body, variable, from, to] = parts.as_slice() else {
                return None;
            };
            decimal(integral(&evaluated(body)?, variable, end(from)?, end(to)?)?)?
        }
        Expr::Call(Func::Sum, parts) if parts.get(3) == Some(&Expr::Infinity) => {
            let [body, variable, from, _] = parts.as_slice() else {
                return None;
            };
            decimal(infinite_sum(&evaluated(body)?, variable, super::exact(from)?.to_i64()?)?)?
        }
        Expr::Call(Func::Limit, parts) => {
            let [body, variable, to] = parts.as_slice() else {
                return None;
            };
            let (body, to) = (evaluated(body)?, end(to)?);
            decimal([11, 13].iter().find_map(|last| limit(&body, variable, to, *last))?)?
        }
        Expr::Add(v) => Expr::Add(all(v)?),
        Expr::Mul(v) => Expr::Mul(all(v)?),
        Expr::Call(f, v) => Expr::Call(f.clone(), all(v)?),
        Expr::Pow(p) => Expr::pow(evaluated(&p.0)?, evaluated(&p.1)?),
        it => it.clone(),
    })
}

/// True if `e` has an integral, an infinite sum or a limit.
pub(crate) fn concerns(e: &Expr) -> bool {
    e.any(&mut |it| match it {
        Expr::Call(Func::Integral, parts) => parts.len() == 4,
        Expr::Call(Func::Sum, parts) => parts.get(3) == Some(&Expr::Infinity),
        Expr::Call(Func::Limit, _) => true,
        _ => false,
    })
}

fn decimal(value: f64) -> Option<Expr> {
    Rat::from_f64(value).map(Expr::Float)
}

fn end(e: &Expr) -> Option<f64> {
    super::approximate(e)
}

/// The body at `x`; `None` where it has no finite real value.
fn at(body: &Expr, variable: &Expr, x: f64) -> Option<f64> {
    let point = Complex { re: Double { value: x, error: 0.0 }, im: None };
    let mut budget = POINT_BUDGET;
    let it = Point { values: vec![(variable, point)], budget: &mut budget }.eval(body)?;
    (it.im.is_none() && it.re.value.is_finite()).then_some(it.re.value)
}

/// Double-exponential quadrature at two step sizes.
fn integral(body: &Expr, variable: &Expr, from: f64, to: f64) -> Option<f64> {
    if from > to {
        return integral(body, variable, to, from).map(|it| -it);
    }
    let half_pi = std::f64::consts::FRAC_PI_2;
    // The substitution x(t) and its derivative.
    let map = |t: f64| -> (f64, f64) {
        let s = half_pi * t.sinh();
        let ds = half_pi * t.cosh();
        match (from.is_finite(), to.is_finite()) {
            (true, true) => {
                let (middle, radius) = (from.midpoint(to), (to - from) / 2.0);
                (middle + radius * s.tanh(), radius * ds / s.cosh().powi(2))
            }
            (true, false) => (from + s.exp(), ds * s.exp()),
            (false, true) => (to - s.exp(), ds * s.exp()),
            (false, false) => (s.sinh(), ds * s.cosh()),
        }
    };
    let rule = |n: i32| -> Option<f64> {
        let step = 4.0 / f64::from(n);
        let mut sum = 0.0;
        let mut n_holes = 0;
        for k in -n..=n {
            let (x, weight) = map(f64::from(k) * step);
            if !x.is_finite() || weight < 1e-280 || x <= from || x >= to {
                continue;
            }
            match at(body, variable, x) {
                Some(y) => sum += y * weight,
                None => n_holes += 1,
            }
        }
        // Underflow far out leaves holes; a hole anywhere else would show as disagreement.
        (n_holes < n).then_some(sum * step)
    };
    let (coarse, fine) = (rule(64)?, rule(128)?);
    ((coarse - fine).abs() <= 1e-10 * fine.abs().max(1e-3)).then_some(fine)
}

/// Terms that an infinite sum is taken to.
const N_TERMS: usize = 1_600;

/// Partial sums, extrapolated where they converge slowly.
fn infinite_sum(body: &Expr, variable: &Expr, from: i64) -> Option<f64> {
    let mut partial = Vec::with_capacity(N_TERMS);
    let (mut sum, mut last, mut n_turns) = (0.0, 0.0, 0);
    for k in 0..N_TERMS {
        let term = at(body, variable, (from + k as i64) as f64)?;
        sum += term;
        partial.push(sum);
        n_turns += usize::from(term * last < 0.0);
        last = term;
        if k > 20 && term.abs() < 1e-17 * sum.abs() {
            return Some(sum);
        }
        if k == ALTERNATING && n_turns == k {
            return alternating(&partial);
        }
    }
    // Richardson in 1/n, for terms that fall like a power of n.
    let richardson = |count: usize| {
        let mut row: Vec<f64> = (0..count).map(|j| partial[(25 << j) - 1]).collect();
        for level in 1..count {
            let power = 2_f64.powi(level as i32);
            for j in 0..count - level {
                row[j] = (power * row[j + 1] - row[j]) / (power - 1.0);
            }
        }
        row[0]
    };
    let (short, long) = (richardson(6), richardson(7));
    ((short - long).abs() < TOLERANCE * long.abs()).then_some(long)
}

/// Terms of an alternating sum.
const ALTERNATING: usize = 60;

/// Partial sums of terms that alternate in sign, by repeated means of neighbours (Euler's transformation).
fn alternating(partial: &[f64]) -> Option<f64> {
    // Terms that do not fall have no sum, whatever their means are.
    let term = |k: usize| (partial[k] - partial[k - 1]).abs();
    if term(partial.len() - 1) > 0.95 * term(partial.len() / 2) {
        return None;
    }
    let mut row = partial[partial.len() - 40..].to_vec();
    let mut before = f64::NAN;
    while row.len() > 1 {
        before = row[0];
        row = row.windows(2).map(|pair| f64::midpoint(pair[0], pair[1])).collect();
    }
    ((row[0] - before).abs() < 1e-10 * row[0].abs()).then_some(row[0])
}

/// Values that approach the point up to `2^-last`, extrapolated; from above (or below, towards −∞).
fn limit(body: &Expr, variable: &Expr, to: f64, last: i32) -> Option<f64> {
    let near = |h: f64| match (to.is_finite(), to > 0.0) {
        (true, _) => to + h,
        (false, true) => 1.0 / h,
        (false, false) => -1.0 / h,
    };
    let mut row: Vec<f64> = Vec::new();
    for k in 3..last {
        row.push(at(body, variable, near(2_f64.powi(-k)))?);
    }
    let mut before = *row.last()?;
    for level in 1..row.len() {
        let power = 2_f64.powi(level as i32);
        for j in 0..row.len() - level {
            row[j] = (power * row[j + 1] - row[j]) / (power - 1.0);
        }
        let now = row[row.len() - level - 1];
        if (now - before).abs() < 1e-11 * now.abs().max(1e-3) {
            return Some(now);
        }
        before = now;
    }
    None
}
