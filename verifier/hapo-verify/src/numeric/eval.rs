//! Values of expressions in complex numbers.

use super::ball::Ball;
use super::budget::{BUDGET, long_series, spend};
use super::complex::Complex;
use super::exact::{exact, exact_call, exact_in};
use super::{MAX_LONG_TERMS, MAX_TERMS};
use crate::expr::{Expr, Func};
use crate::number::Rat;
use std::cmp::Ordering;

/// The value of an expression within the steps that one side has.
pub(super) fn value<T: Ball>(e: &Expr, values: &[(&Expr, Complex<T>)]) -> Option<Complex<T>> {
    let mut budget = BUDGET;
    eval(e, values, &mut budget)
}

/// As [`value`], where it is real up to rounding.
pub(super) fn real_value<T: Ball>(e: &Expr, values: &[(&Expr, Complex<T>)]) -> Option<T> {
    value(e, values).filter(|it| it.im.as_ref().is_none_or(Ball::is_negligible)).map(|it| it.re)
}

pub(super) fn eval<T: Ball>(
    e: &Expr,
    values: &[(&Expr, Complex<T>)],
    budget: &mut u32,
) -> Option<Complex<T>> {
    spend(budget, 1)?;
    match e {
        Expr::Num(n) | Expr::Float(n) => {
            // A fraction is divided out, which takes an eighth of a function.
            spend(budget, if n.is_integer() { 0 } else { T::COST / 8 })?;
            Some(Complex::rat(n))
        }
        Expr::Percent(a) => Some(eval(a, values, budget)?.mul(&Complex::rat(&Rat::Small(1, 100)))),
        Expr::Sym { .. } | Expr::Call(Func::Named(_), _) => {
            values.iter().rev().find(|it| it.0 == e).map(|it| it.1.clone())
        }
        Expr::Pi => Some(Complex::real(T::pi())),
        Expr::E => Some(Complex::real(T::e())),
        Expr::EulerGamma => Some(Complex::real(T::euler_gamma())),
        Expr::I => Some(Complex::i()),
        Expr::Add(v) => {
            v.iter().try_fold(Complex::int(0), |sum, it| Some(sum.add(&eval(it, values, budget)?)))
        }
        Expr::Mul(v) => {
            v.iter().try_fold(Complex::int(1), |all, it| Some(all.mul(&eval(it, values, budget)?)))
        }
        Expr::Pow(p) => eval_pow(&p.0, &p.1, values, budget),
        Expr::Call(func, args) => eval_call(func, args, values, budget),
        _ => None,
    }
}

fn eval_pow<T: Ball>(
    base: &Expr,
    exponent: &Expr,
    values: &[(&Expr, Complex<T>)],
    budget: &mut u32,
) -> Option<Complex<T>> {
    if *base == Expr::E {
        spend(budget, T::COST)?;
        return eval(exponent, values, budget)?.exp();
    }
    let bound = integers(values);
    let or_bound = |budget: &mut u32| {
        if bound.is_empty() { None } else { exact_in(exponent, &bound, budget) }
    };
    if let Some(n) = exact_in(exponent, &[], budget).or_else(|| or_bound(budget)) {
        if let Some(n) = n.to_i64() {
            let base = eval(base, values, budget)?;
            spend(budget, 2 * n.unsigned_abs().checked_ilog2().unwrap_or(0))?;
            return base.powi(n);
        }
        spend(budget, T::COST)?;
        let base = eval(base, values, budget)?;
        if base.is_zero() {
            return (!n.is_negative()).then(|| Complex::int(0));
        }
        if let Rat::Small(p, 2) = n {
            return base.sqrt()?.powi(p);
        }
        return base.ln()?.mul(&Complex::rat(&n)).exp();
    }
    spend(budget, 2 * T::COST)?;
    let base = eval(base, values, budget)?;
    let exponent = eval(exponent, values, budget)?;
    base.ln()?.mul(&exponent).exp()
}

/// The atoms that are integers, as the variable of a sum is.
fn integers<'a, T: Ball>(values: &[(&'a Expr, Complex<T>)]) -> Vec<(&'a Expr, Rat)> {
    let integer = |x: &Complex<T>| x.re.integer().filter(|_| x.im.is_none());
    values.iter().filter_map(|(atom, x)| Some((*atom, integer(x)?))).collect()
}

fn eval_call<T: Ball>(
    func: &Func,
    args: &[Expr],
    values: &[(&Expr, Complex<T>)],
    budget: &mut u32,
) -> Option<Complex<T>> {
    spend(budget, T::COST)?;
    match func {
        Func::Sum | Func::Product => eval_series(func, args, values, budget),
        Func::Factorial
        | Func::Binomial
        | Func::Gamma
        | Func::Gcd
        | Func::Lcm
        | Func::Mod
        | Func::Trace => Some(Complex::rat(&exact_call(func, args, &integers(values), budget)?)),
        Func::Norm => {
            let mut sum = T::from_rat(&Rat::ZERO);
            for it in eval_matrix(args, values, budget)?.0 {
                let size = it.abs()?;
                sum = sum.add(&size.mul(&size));
            }
            Some(Complex::real(sum.sqrt()?))
        }
        Func::Det => {
            let (entries, cols) = eval_matrix(args, values, budget)?;
            laplace(&entries, cols)
        }
        Func::Limit | Func::Integral | Func::Derivative | Func::Transpose | Func::Named(_) => None,
        Func::Log => {
            let x = eval(args.first()?, values, budget)?;
            let base = args.get(1)?;
            if *base == Expr::E {
                return x.ln();
            }
            // A second logarithm.
            spend(budget, T::COST)?;
            let base = eval(base, values, budget)?;
            Some(x.ln()?.mul(&base.ln()?.recip()?))
        }
        Func::Max | Func::Min => {
            let wanted = if *func == Func::Max { Ordering::Greater } else { Ordering::Less };
            let mut best = eval(args.first()?, values, budget)?;
            for it in &args[1..] {
                let next = eval(it, values, budget)?;
                if next.sub(&best).re.sign()? == wanted {
                    best = next;
                }
            }
            Some(best)
        }
        _ => elementary(func, &eval(args.first()?, values, budget)?),
    }
}

fn eval_series<T: Ball>(
    func: &Func,
    args: &[Expr],
    values: &[(&Expr, Complex<T>)],
    budget: &mut u32,
) -> Option<Complex<T>> {
    let [body, variable, first, last] = args else {
        return None;
    };
    let (first, last) = (exact(first)?.to_i64()?, exact(last)?.to_i64()?);
    let mut inner = values.to_vec();
    inner.push((variable, Complex::int(0)));
    let mut add_up = |budget: &mut u32| {
        let mut total = Complex::int(i64::from(*func == Func::Product));
        for k in first..=last {
            inner.last_mut()?.1 = Complex::int(k);
            let term = eval(body, &inner, budget)?;
            total = if *func == Func::Sum { total.add(&term) } else { total.mul(&term) };
        }
        Some(total)
    };
    match last.checked_sub(first)? {
        ..MAX_TERMS => add_up(budget),
        MAX_TERMS..MAX_LONG_TERMS => long_series(add_up),
        _ => None,
    }
}

/// The entries of the matrix that is the first argument, and its number of columns.
fn eval_matrix<T: Ball>(
    args: &[Expr],
    values: &[(&Expr, Complex<T>)],
    budget: &mut u32,
) -> Option<(Vec<Complex<T>>, usize)> {
    let Some(Expr::Matrix { cols, cells }) = args.first() else {
        return None;
    };
    let entries: Option<Vec<_>> = cells.iter().map(|it| eval(it, values, budget)).collect();
    Some((entries?, *cols))
}

/// A function of one argument.
fn elementary<T: Ball>(func: &Func, x: &Complex<T>) -> Option<Complex<T>> {
    let half = || Complex::rat(&Rat::Small(1, 2));
    let one = || Complex::<T>::int(1);
    let ratio = |(upper, lower): (Complex<T>, Complex<T>)| Some(upper.mul(&lower.recip()?));
    match func {
        Func::Sin => Some(x.sin_cos()?.0),
        Func::Cos => Some(x.sin_cos()?.1),
        Func::Tan => ratio(x.sin_cos()?),
        Func::Csc => x.sin_cos()?.0.recip(),
        Func::Sec => x.sin_cos()?.1.recip(),
        Func::Cot => {
            let (sin, cos) = x.sin_cos()?;
            ratio((cos, sin))
        }
        Func::Asin => x.asin(),
        Func::Acos => x.acos(),
        Func::Atan => x.atan(),
        Func::Acsc => x.recip()?.asin(),
        Func::Asec => x.recip()?.acos(),
        Func::Acot if x.is_zero() => Some(Complex::real(T::pi()).mul(&half())),
        Func::Acot => x.recip()?.atan(),
        Func::Sinh => Some(x.sinh_cosh()?.0),
        Func::Cosh => Some(x.sinh_cosh()?.1),
        Func::Tanh => ratio(x.sinh_cosh()?),
        Func::Asinh => x.add(&x.mul(x).add(&one()).sqrt()?).ln(),
        Func::Acosh => {
            let root = x.sub(&one()).sqrt()?.mul(&x.add(&one()).sqrt()?);
            x.add(&root).ln()
        }
        Func::Atanh => Some(one().add(x).ln()?.sub(&one().sub(x).ln()?).mul(&half())),
        Func::Abs => Some(Complex::real(x.abs()?)),
        Func::Floor if x.im.is_none() => Some(Complex::rat(&x.re.floor()?)),
        Func::Ceil if x.im.is_none() => Some(Complex::rat(&x.neg().re.floor()?.neg())),
        _ => None,
    }
}

fn laplace<T: Ball>(m: &[Complex<T>], n: usize) -> Option<Complex<T>> {
    if m.len() != n * n || n == 0 || n > 5 {
        return None;
    }
    if n == 1 {
        return m.first().cloned();
    }
    let mut sum = Complex::int(0);
    for col in 0..n {
        let minor: Vec<Complex<T>> = (1..n)
            .flat_map(|row| (0..n).filter(move |c| *c != col).map(move |c| row * n + c))
            .map(|it| m[it].clone())
            .collect();
        let term = m[col].mul(&laplace(&minor, n - 1)?);
        sum = if col % 2 == 0 { sum.add(&term) } else { sum.sub(&term) };
    }
    Some(sum)
}
