//! How a formula grows: the leading term of an expression in one variable that grows without bound.
//!
//! Found by rules on the form of the expression, with exact exponents; where leading terms cancel there is none. The
//! price is that a limit which needs the next term has to be found in another way.

use super::{compare_real, exact, sums};
use crate::expr::{Expr, Func};
use crate::number::Rat;
use std::cmp::Ordering;

/// `c · (n!)^f · b^n · n^a · (ln n)^l`, with the sign of `(-1)^n` where it alternates.
#[derive(Clone, Debug)]
pub(super) struct Leading {
    coefficient: Expr,
    factorials: Rat,
    base: Expr,
    power: Rat,
    logarithms: Rat,
    alternates: bool,
}

/// Most nodes of an expression whose growth is looked for.
const MAX_NODES: usize = 200;

/// The leading term of `e` as `n` grows.
pub(super) fn leading(e: &Expr, n: &Expr) -> Option<Leading> {
    let mut nodes = 0;
    let too_large = e.any(&mut |_| {
        nodes += 1;
        nodes > MAX_NODES
    });
    if too_large { None } else { leading_of(e, n) }
}

fn leading_of(e: &Expr, n: &Expr) -> Option<Leading> {
    if is_free(e, n) {
        let is_zero = compare_real(e, &Expr::int(0))?.is_eq();
        return (!is_zero).then(|| Leading::constant(e.clone()));
    }
    if e == n {
        return Some(Leading { power: Rat::ONE, ..Leading::constant(Expr::int(1)) });
    }
    match e {
        Expr::Add(terms) => sum(terms, n),
        Expr::Mul(factors) => {
            let mut product = Leading::constant(Expr::int(1));
            for it in factors {
                product = product.times(&leading_of(it, n)?)?;
            }
            Some(product)
        }
        Expr::Pow(p) if is_free(&p.1, n) => leading_of(&p.0, n)?.raised(&exact(&p.1)?),
        Expr::Pow(p) if is_free(&p.0, n) => exponential(&p.0, &p.1, n),
        // Stirling's formula again.
        Expr::Pow(p) if p.0 == *n && p.1 == *n => {
            let half = Rat::Small(-1, 2);
            let coefficient = Expr::pow(Expr::int(2).times(Expr::Pi), Expr::Num(half.clone()));
            let (base, factorials) = (Expr::E, Rat::ONE);
            Some(Leading { base, factorials, power: half, ..Leading::constant(coefficient) })
        }
        Expr::Call(Func::Factorial, args) => factorial(args.first()?, n),
        Expr::Call(Func::Binomial, args) => {
            let [upper, lower] = args.as_slice() else {
                return None;
            };
            let inverse = |it: Expr| Expr::pow(Expr::call(Func::Factorial, it), Expr::int(-1));
            let rest = upper.clone().plus(lower.clone().negated());
            let quotient = Expr::call(Func::Factorial, upper.clone())
                .times(inverse(lower.clone()))
                .times(inverse(rest));
            leading_of(&quotient, n)
        }
        Expr::Call(Func::Log, args) => {
            let [inner, base] = args.as_slice() else {
                return None;
            };
            let of_base = Expr::Call(Func::Log, vec![base.clone(), Expr::E]);
            let scale = Expr::pow(of_base, Expr::int(-1));
            Some(leading_of(inner, n)?.logarithm()?.scaled(&scale))
        }
        _ => None,
    }
}

fn is_free(e: &Expr, n: &Expr) -> bool {
    !e.any(&mut |it| it == n)
}

/// The terms that grow fastest, added up.
fn sum(terms: &[Expr], n: &Expr) -> Option<Leading> {
    let mut fastest: Option<Leading> = None;
    for it in terms {
        if exact(it).is_some_and(|it| it.is_zero()) {
            continue;
        }
        let next = leading_of(it, n)?;
        fastest = Some(match fastest {
            None => next,
            Some(before) => match before.growth(&next)? {
                Ordering::Greater => before,
                Ordering::Less => next,
                Ordering::Equal if before.alternates == next.alternates => {
                    let coefficient = before.coefficient.plus(next.coefficient);
                    Leading { coefficient, ..before }
                }
                Ordering::Equal => return None,
            },
        });
    }
    // What cancels says nothing of the next term.
    fastest.filter(|it| compare_real(&it.coefficient, &Expr::int(0)).is_some_and(Ordering::is_ne))
}

/// `slope · n + offset`, where `e` is that.
pub(crate) fn linear(e: &Expr, n: &Expr) -> Option<(Rat, Rat)> {
    if sums::degree(e, n)? != 1 {
        return None;
    }
    let at = |k: i64| exact(&e.substituted(n, &Expr::int(k)));
    let offset = at(0)?;
    Some((at(1)?.sub(&offset)?, offset))
}

/// `base^(slope · n + offset)`.
fn exponential(base: &Expr, exponent: &Expr, n: &Expr) -> Option<Leading> {
    let (slope, offset) = linear(exponent, n)?;
    let coefficient = Expr::pow(base.clone(), Expr::Num(offset.clone()));
    let (size, alternates) = match compare_real(base, &Expr::int(0))? {
        Ordering::Greater => (base.clone(), false),
        Ordering::Less if slope.is_integer() && offset.is_integer() => {
            (base.clone().negated(), slope.to_i64()? % 2 != 0)
        }
        _ => return None,
    };
    let base = Expr::pow(size, Expr::Num(slope));
    Some(Leading { base, alternates, ..Leading::constant(coefficient) })
}

/// Stirling's formula for `(slope · n + offset)!` in terms of `n!`.
fn factorial(arg: &Expr, n: &Expr) -> Option<Leading> {
    let (slope, offset) = linear(arg, n)?;
    let half = Rat::Small(1, 2);
    if !slope.is_integer() || slope.is_negative() || !offset.is_integer() {
        return None;
    }
    let lower = Rat::ONE.sub(&slope)?.mul(&half)?;
    let times = Expr::Num(slope.clone());
    let two_pi = Expr::int(2).times(Expr::Pi);
    let coefficient = Expr::pow(times.clone(), Expr::Num(offset.add(&half)?))
        .times(Expr::pow(two_pi, Expr::Num(lower.clone())));
    Some(Leading {
        factorials: slope.clone(),
        base: Expr::pow(times, Expr::Num(slope)),
        power: offset.add(&lower)?,
        ..Leading::constant(coefficient)
    })
}

impl Leading {
    fn constant(coefficient: Expr) -> Leading {
        Leading {
            coefficient,
            factorials: Rat::ZERO,
            base: Expr::int(1),
            power: Rat::ZERO,
            logarithms: Rat::ZERO,
            alternates: false,
        }
    }

    fn scaled(self, factor: &Expr) -> Leading {
        Leading { coefficient: self.coefficient.times(factor.clone()), ..self }
    }

    fn times(&self, other: &Leading) -> Option<Leading> {
        Some(Leading {
            coefficient: self.coefficient.clone().times(other.coefficient.clone()),
            factorials: self.factorials.add(&other.factorials)?,
            base: self.base.clone().times(other.base.clone()),
            power: self.power.add(&other.power)?,
            logarithms: self.logarithms.add(&other.logarithms)?,
            alternates: self.alternates != other.alternates,
        })
    }

    fn raised(&self, exponent: &Rat) -> Option<Leading> {
        let to = |it: &Expr| Expr::pow(it.clone(), Expr::Num(exponent.clone()));
        let is_positive = compare_real(&self.coefficient, &Expr::int(0))?.is_gt();
        if !exponent.is_integer() && (!is_positive || self.alternates) {
            return None;
        }
        let is_odd = exponent.to_i64().is_none_or(|it| it % 2 != 0);
        Some(Leading {
            coefficient: to(&self.coefficient),
            factorials: self.factorials.mul(exponent)?,
            base: to(&self.base),
            power: self.power.mul(exponent)?,
            logarithms: self.logarithms.mul(exponent)?,
            alternates: self.alternates && is_odd,
        })
    }

    fn logarithm(&self) -> Option<Leading> {
        let is_positive = compare_real(&self.coefficient, &Expr::int(0))?.is_gt();
        if !is_positive || self.alternates || !self.factorials.is_zero() {
            return None;
        }
        let ln = |it: &Expr| Expr::Call(Func::Log, vec![it.clone(), Expr::E]);
        if compare_real(&self.base, &Expr::int(1))?.is_ne() {
            return Some(Leading { power: Rat::ONE, ..Leading::constant(ln(&self.base)) });
        }
        if !self.power.is_zero() {
            let power = Expr::Num(self.power.clone());
            return Some(Leading { logarithms: Rat::ONE, ..Leading::constant(power) });
        }
        let is_one = compare_real(&self.coefficient, &Expr::int(1))?.is_eq();
        (!is_one && self.logarithms.is_zero()).then(|| Leading::constant(ln(&self.coefficient)))
    }

    /// Which of two terms outgrows the other.
    fn growth(&self, other: &Leading) -> Option<Ordering> {
        Some(
            self.factorials
                .cmp(&other.factorials)
                .then(compare_real(&self.base, &other.base)?)
                .then(self.power.cmp(&other.power))
                .then(self.logarithms.cmp(&other.logarithms)),
        )
    }

    /// What the term tends to.
    pub(super) fn limit(&self) -> Option<Expr> {
        match self.growth(&Leading::constant(Expr::int(1)))? {
            Ordering::Less => Some(Expr::int(0)),
            _ if self.alternates => None,
            Ordering::Equal => Some(self.coefficient.clone()),
            Ordering::Greater => Some(self.infinity()?),
        }
    }

    fn infinity(&self) -> Option<Expr> {
        match compare_real(&self.coefficient, &Expr::int(0))? {
            Ordering::Greater => Some(Expr::Infinity),
            Ordering::Less => Some(Expr::NegInfinity),
            Ordering::Equal => None,
        }
    }

    /// Whether the infinite sum of such terms has a value.
    pub(super) fn series(&self) -> Option<Series> {
        let order = self.factorials.cmp(&Rat::ZERO).then(compare_real(&self.base, &Expr::int(1))?);
        let converges = match order {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal if self.alternates => self.power.is_negative(),
            Ordering::Equal if self.power == Rat::MINUS_ONE => {
                // The sum of 1/(n ln² n) has a value, which partial sums do not tell.
                if self.logarithms < Rat::MINUS_ONE {
                    return None;
                }
                false
            }
            Ordering::Equal => self.power < Rat::MINUS_ONE,
        };
        Some(match converges {
            true => Series::Converges,
            false if self.alternates => return None,
            false => Series::Grows(self.infinity()?),
        })
    }
}

/// Whether an infinite sum has a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Series {
    Converges,
    /// It tends to an infinity.
    Grows(Expr),
}
