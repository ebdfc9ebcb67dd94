//! Values of definite integrals, in doubles. Quadrature cannot prove an equality, so these are the last resort: two
//! independent step sizes must agree to ten digits, or there is no value. The price of a wrong acceptance is bounded by
//! that; the cost by a fixed number of points.

use super::complex::Complex;
use super::eval::real_value;
use crate::expr::{Expr, Func};
use crate::number::Rat;

/// Relative agreement that counts as a value.
pub(crate) const TOLERANCE: f64 = 1e-9;

/// `e` with every closed integral replaced by its value; `None` where one has none.
pub(crate) fn evaluated(e: &Expr) -> Option<Expr> {
    let all = |v: &[Expr]| v.iter().map(evaluated).collect::<Option<Vec<_>>>();
    Some(match e {
        Expr::Call(Func::Integral, parts) => {
            let [body, variable, from, to] = parts.as_slice() else { return None };
            decimal(integral(&evaluated(body)?, variable, end(from)?, end(to)?)?)?
        }
        Expr::Add(v) => Expr::Add(all(v)?),
        Expr::Mul(v) => Expr::Mul(all(v)?),
        Expr::Call(f, v) => Expr::Call(f.clone(), all(v)?),
        Expr::Pow(p) => Expr::pow(evaluated(&p.0)?, evaluated(&p.1)?),
        it => it.clone(),
    })
}

/// True if `e` has an integral between limits.
pub(crate) fn concerns(e: &Expr) -> bool {
    e.any(&mut |it| matches!(it, Expr::Call(Func::Integral, parts) if parts.len() == 4))
}

fn decimal(value: f64) -> Option<Expr> {
    Rat::from_f64(value).map(Expr::Float)
}

fn end(e: &Expr) -> Option<f64> {
    super::approximate(e)
}

/// The body at `x`; `None` where it has no finite real value.
fn at(body: &Expr, variable: &Expr, x: f64) -> Option<f64> {
    let point = Complex::rat(&Rat::from_f64(x)?);
    let value = real_value(body, &[(variable, point)])?.to_f64();
    value.is_finite().then_some(value)
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
