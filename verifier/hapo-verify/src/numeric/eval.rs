//! Values of expressions in complex numbers.

use super::big::Big;
use super::complex::Complex;
use super::exact::{BUDGET, exact_call, exact_in, spend};
use crate::expr::{Expr, Func};
use crate::number::Rat;

/// Steps that an elementary function costs.
const COST: u32 = 40;

/// The value of an expression within the steps that one side has.
pub(super) fn value(e: &Expr, values: &[(&Expr, Complex)]) -> Option<Complex> {
    let mut budget = BUDGET;
    Point { values: values.to_vec(), budget: &mut budget }.eval(e)
}

/// As [`value`], where it is real up to rounding.
pub(super) fn real_value(e: &Expr, values: &[(&Expr, Complex)]) -> Option<Big> {
    value(e, values).filter(|it| it.im.as_ref().is_none_or(Big::is_negligible)).map(|it| it.re)
}

/// The values of the atoms, and the steps that are left.
pub(super) struct Point<'e, 'b> {
    pub(super) values: Vec<(&'e Expr, Complex)>,
    pub(super) budget: &'b mut u32,
}

impl<'e> Point<'e, '_> {
    fn spend(&mut self, steps: u32) -> Option<()> {
        spend(self.budget, steps)
    }

    pub(super) fn eval(&mut self, e: &'e Expr) -> Option<Complex> {
        self.spend(1)?;
        match e {
            Expr::Num(n) | Expr::Float(n) => {
                // A fraction is divided out, which takes an eighth of a function.
                self.spend(if n.is_integer() { 0 } else { COST / 8 })?;
                Some(Complex::rat(n))
            }
            Expr::Percent(a) => Some(self.eval(a)?.mul(&Complex::rat(&Rat::ratio(1, 100)))),
            Expr::Sym { .. } | Expr::Call(Func::Named(_), _) | Expr::EulerGamma => {
                self.values.iter().rev().find(|it| it.0 == e).map(|it| it.1.clone())
            }
            Expr::Pi => Some(Complex::real(Big::pi())),
            Expr::E => {
                self.spend(COST)?;
                Complex::int(1).exp()
            }
            Expr::I => Some(Complex::i()),
            Expr::Add(v) => {
                v.iter().try_fold(Complex::int(0), |sum, it| Some(sum.add(&self.eval(it)?)))
            }
            Expr::Mul(v) => {
                v.iter().try_fold(Complex::int(1), |product, it| Some(product.mul(&self.eval(it)?)))
            }
            Expr::Pow(p) => self.power(&p.0, &p.1),
            Expr::Call(func, args) => self.call(func, args),
            _ => None,
        }
    }

    fn power(&mut self, base: &'e Expr, exponent: &'e Expr) -> Option<Complex> {
        if *base == Expr::E {
            self.spend(COST)?;
            return self.eval(exponent)?.exp();
        }
        let constant = exact_in(exponent, self.budget);
        let Some(n) = constant else {
            self.spend(2 * COST)?;
            let base = self.eval(base)?;
            let exponent = self.eval(exponent)?;
            return base.ln()?.mul(&exponent).exp();
        };
        if let Some(n) = n.to_i64() {
            let base = self.eval(base)?;
            self.spend(2 * n.unsigned_abs().checked_ilog2().unwrap_or(0))?;
            return base.powi(n);
        }
        self.spend(COST)?;
        let base = self.eval(base)?;
        if let Some(twice) = n.mul(&Rat::int(2))?.to_i64() {
            return base.sqrt()?.powi(twice);
        }
        base.ln()?.mul(&Complex::rat(&n)).exp()
    }

    fn call(&mut self, func: &Func, args: &'e [Expr]) -> Option<Complex> {
        self.spend(COST)?;
        match func {
            Func::Factorial | Func::Binomial | Func::Gamma | Func::Mod => {
                Some(Complex::rat(&exact_call(func, args, self.budget)?))
            }
            Func::Log => {
                let x = self.eval(args.first()?)?;
                let base = args.get(1)?;
                if *base == Expr::E {
                    return x.ln();
                }
                // A second logarithm.
                self.spend(COST)?;
                let base = self.eval(base)?;
                Some(x.ln()?.mul(&base.ln()?.recip()?))
            }
            _ => elementary(func, &self.eval(args.first()?)?),
        }
    }
}

/// A function of one argument.
fn elementary(func: &Func, x: &Complex) -> Option<Complex> {
    let ratio = |(upper, lower): (Complex, Complex)| Some(upper.mul(&lower.recip()?));
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
        Func::Abs => Some(Complex::real(x.abs()?)),
        Func::Floor if x.im.is_none() => Some(Complex::rat(&x.re.floor()?)),
        Func::Ceil if x.im.is_none() => Some(Complex::rat(&x.neg().re.floor()?.neg())),
        _ => None,
    }
}
