//! Rational functions of symbols, and long sums and products of them, compared by their values modulo primes.
//!
//! A value is a fraction of two residues, so nothing is inverted; two primes near 2^61 take turns, so that constants
//! which agree are equal for every purpose. The price is that a value is never shown, only compared.

use super::Decision;
use super::MAX_LONG_TERMS;
use super::budget::{BUDGET, spend};
use super::exact::exact_in;
use super::points::spread;
use crate::expr::{Expr, Func};
use crate::number::Rat;
use crate::work;
use num_bigint::BigInt;
use num_integer::Integer;

/// The gaps between 2^61 and the two largest primes below it.
const GAPS: [u64; 2] = [1, 31];

/// Largest factorial that is taken modulo a prime.
const MAX_FACTORIAL: i64 = MAX_LONG_TERMS;

/// Steps inside of a sum or product that count as one.
const STEPS_IN_SERIES: u32 = 16;

/// The same inside of a sum or product within another.
const STEPS_IN_NESTED: u32 = 2;

/// Compares as rational functions, where both are; `None` where one is not, or no point was good.
pub(super) fn same_rational_function(a: &Expr, b: &Expr, atoms: &[&Expr]) -> Option<Decision> {
    let mut n_good = 0;
    for probe in 0..6 {
        let x = Walk::new(atoms, probe).fraction(a);
        let y = Walk::new(atoms, probe).fraction(b);
        match (x, y) {
            (Ok((a, b)), Ok((c, d))) => {
                let field = Field::of(probe);
                if field.mul(a, d) != field.mul(b, c) {
                    return Some(Decision::Different("different as rational functions"));
                }
                n_good += 1;
                if n_good == 2 {
                    return Some(Decision::Same("equal as rational functions"));
                }
            }
            (Err(Stop::Pole), _) | (_, Err(Stop::Pole)) => {}
            _ => return None,
        }
    }
    None
}

/// The integers modulo 2^61 less a gap.
#[derive(Clone, Copy)]
struct Field {
    gap: u64,
}

impl Field {
    fn of(probe: u64) -> Field {
        Field { gap: GAPS[(probe % 2) as usize] }
    }

    fn prime(self) -> u64 {
        (1 << 61) - self.gap
    }

    fn mul(self, a: u64, b: u64) -> u64 {
        let fold = |x: u128| (x >> 61) * u128::from(self.gap) + (x & u128::from((1_u64 << 61) - 1));
        let x = fold(fold(u128::from(a) * u128::from(b))) as u64;
        if x >= self.prime() { x - self.prime() } else { x }
    }

    fn add(self, a: u64, b: u64) -> u64 {
        let sum = a + b;
        if sum >= self.prime() { sum - self.prime() } else { sum }
    }

    fn pow(self, mut base: u64, mut exponent: u64) -> u64 {
        let mut result = 1;
        while exponent > 0 {
            if exponent & 1 == 1 {
                result = self.mul(result, base);
            }
            base = self.mul(base, base);
            exponent >>= 1;
        }
        result
    }

    fn integer(self, n: i64) -> u64 {
        (i128::from(n).rem_euclid(i128::from(self.prime()))) as u64
    }

    fn big(self, n: &BigInt) -> u64 {
        u64::try_from(n.mod_floor(&BigInt::from(self.prime()))).unwrap_or(0)
    }
}

enum Stop {
    /// A division by zero at this point.
    Pole,
    /// Not a rational function, or too long.
    Other,
}

/// A numerator and a denominator that is not zero.
type Fraction = (u64, u64);

/// One evaluation at one point.
struct Walk<'a> {
    atoms: &'a [&'a Expr],
    probe: u64,
    field: Field,
    /// The variables of the sums and products around, and their values.
    bound: Vec<(&'a Expr, i64)>,
    budget: u32,
    steps_in_series: u32,
}

impl<'a> Walk<'a> {
    fn new(atoms: &'a [&'a Expr], probe: u64) -> Walk<'a> {
        let field = Field::of(probe);
        Walk { atoms, probe, field, bound: Vec::new(), budget: BUDGET, steps_in_series: 0 }
    }

    fn step(&mut self) -> Result<(), Stop> {
        if !self.bound.is_empty() {
            work::count(1);
            self.steps_in_series += 1;
            // Sums within sums multiply, so less of them is given away.
            let given = if self.bound.len() == 1 { STEPS_IN_SERIES } else { STEPS_IN_NESTED };
            if !self.steps_in_series.is_multiple_of(given) {
                return Ok(());
            }
        }
        spend(&mut self.budget, 1).ok_or(Stop::Other)
    }

    fn atom(&self, idx: usize) -> Fraction {
        (spread(idx, self.probe) % self.field.prime(), 1)
    }

    fn fraction(&mut self, e: &'a Expr) -> Result<Fraction, Stop> {
        self.step()?;
        match e {
            Expr::Num(n) | Expr::Float(n) => self.rational(n),
            // π and e are transcendental; no rational relation between them is known or tested for.
            Expr::Pi => Ok(self.atom(1_000)),
            Expr::E => Ok(self.atom(1_001)),
            Expr::Percent(a) => {
                let (n, d) = self.fraction(a)?;
                Ok((n, self.field.mul(d, 100)))
            }
            // An unknown function may change with the variable of a sum.
            Expr::Call(Func::Named(_), _) if !self.bound.is_empty() => Err(Stop::Other),
            Expr::Sym { .. } | Expr::Call(Func::Named(_), _) => {
                if let Some((_, value)) = self.bound.iter().rev().find(|it| it.0 == e) {
                    return Ok((self.field.integer(*value), 1));
                }
                let idx = self.atoms.iter().position(|it| *it == e).ok_or(Stop::Other)?;
                Ok(self.atom(idx))
            }
            Expr::Add(v) => v.iter().try_fold((0, 1), |sum, it| self.plus(sum, it)),
            Expr::Mul(v) => v.iter().try_fold((1, 1), |product, it| self.times(product, it)),
            Expr::Pow(p) => self.power(&p.0, &p.1),
            Expr::Call(func @ (Func::Sum | Func::Product), args) => self.series(func, args),
            Expr::Call(Func::Factorial, args) => self.factorial(args),
            _ => Err(Stop::Other),
        }
    }

    fn plus(&mut self, (a, b): Fraction, term: &'a Expr) -> Result<Fraction, Stop> {
        let (c, d) = self.fraction(term)?;
        let it = self.field;
        Ok((it.add(it.mul(a, d), it.mul(c, b)), it.mul(b, d)))
    }

    fn times(&mut self, (a, b): Fraction, factor: &'a Expr) -> Result<Fraction, Stop> {
        let (c, d) = self.fraction(factor)?;
        Ok((self.field.mul(a, c), self.field.mul(b, d)))
    }

    fn rational(&self, n: &Rat) -> Result<Fraction, Stop> {
        let (n, d) = match n {
            Rat::Small(n, d) => (self.field.integer(*n), self.field.integer(*d)),
            Rat::Big(_) => {
                let (n, d) = n.parts();
                (self.field.big(&n), self.field.big(&d))
            }
        };
        if d == 0 { Err(Stop::Pole) } else { Ok((n, d)) }
    }

    fn power(&mut self, base: &'a Expr, exponent: &'a Expr) -> Result<Fraction, Stop> {
        let exponent = self.integer(exponent).ok_or(Stop::Other)?;
        let (n, d) = self.fraction(base)?;
        let power = |x| self.field.pow(x, exponent.unsigned_abs());
        match exponent {
            0.. => Ok((power(n), power(d))),
            _ if n == 0 => Err(Stop::Pole),
            _ => Ok((power(d), power(n))),
        }
    }

    /// An exponent or a limit: an integer that may depend on the variables around.
    fn integer(&mut self, e: &Expr) -> Option<i64> {
        if self.bound.is_empty() {
            return exact_in(e, &[], &mut self.budget)?.to_i64();
        }
        self.step().ok()?;
        match e {
            Expr::Num(n) => n.to_i64(),
            Expr::Sym { .. } => self.bound.iter().rev().find(|it| it.0 == e).map(|it| it.1),
            Expr::Add(v) => v.iter().try_fold(0_i64, |sum, it| sum.checked_add(self.integer(it)?)),
            Expr::Mul(v) => v.iter().try_fold(1_i64, |all, it| all.checked_mul(self.integer(it)?)),
            Expr::Pow(p) => {
                let exponent = u32::try_from(self.integer(&p.1)?).ok()?;
                self.integer(&p.0)?.checked_pow(exponent)
            }
            _ => None,
        }
    }

    fn series(&mut self, func: &Func, args: &'a [Expr]) -> Result<Fraction, Stop> {
        let [body, variable, first, last] = args else {
            return Err(Stop::Other);
        };
        let first = self.integer(first).ok_or(Stop::Other)?;
        let last = self.integer(last).ok_or(Stop::Other)?;
        if last.checked_sub(first).is_none_or(|it| it >= MAX_LONG_TERMS) {
            return Err(Stop::Other);
        }
        let mut total = (u64::from(*func == Func::Product), 1);
        for k in first..=last {
            self.bound.push((variable, k));
            let next =
                if *func == Func::Sum { self.plus(total, body) } else { self.times(total, body) };
            self.bound.pop();
            total = next?;
        }
        Ok(total)
    }

    fn factorial(&mut self, args: &'a [Expr]) -> Result<Fraction, Stop> {
        let n = args.first().and_then(|it| self.integer(it)).ok_or(Stop::Other)?;
        if !(0..=MAX_FACTORIAL).contains(&n) {
            return Err(Stop::Other);
        }
        spend(&mut self.budget, n as u32 / STEPS_IN_SERIES).ok_or(Stop::Other)?;
        Ok(((1..=n as u64).fold(1, |product, k| self.field.mul(product, k)), 1))
    }
}
