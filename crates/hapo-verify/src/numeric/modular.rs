//! Rational functions of symbols, compared by their values modulo a prime.

use super::Decision;
use super::budget::{BUDGET, spend};
use super::exact::exact_in;
use super::points::spread;
use crate::expr::{Expr, Func};
use crate::number::Rat;
use num_bigint::BigInt;
use num_integer::Integer;

/// 2^61 − 1.
const PRIME: u64 = (1 << 61) - 1;

fn mul_mod(a: u64, b: u64) -> u64 {
    (u128::from(a) * u128::from(b) % u128::from(PRIME)) as u64
}

fn pow_mod(mut base: u64, mut exponent: u64) -> u64 {
    let mut result = 1;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = mul_mod(result, base);
        }
        base = mul_mod(base, base);
        exponent >>= 1;
    }
    result
}

/// Compares as rational functions, where both are; `None` where one is not, or no point was good.
pub(super) fn same_rational_function(a: &Expr, b: &Expr, atoms: &[&Expr]) -> Option<Decision> {
    let mut n_good = 0;
    for probe in 0..6 {
        let (mut budget_a, mut budget_b) = (BUDGET, BUDGET);
        let x = eval_mod(a, atoms, probe, &mut budget_a);
        let y = eval_mod(b, atoms, probe, &mut budget_b);
        match (x, y) {
            (Modular::Value(x), Modular::Value(y)) if x != y => {
                return Some(Decision::Different("different as rational functions"));
            }
            (Modular::Value(_), Modular::Value(_)) => {
                n_good += 1;
                if n_good == 2 {
                    return Some(Decision::Same("equal as rational functions"));
                }
            }
            (Modular::Pole, _) | (_, Modular::Pole) => {}
            _ => return None,
        }
    }
    None
}

enum Modular {
    Value(u64),
    /// A division by zero at this point.
    Pole,
    /// Not a rational function.
    Other,
}

fn eval_mod(e: &Expr, atoms: &[&Expr], probe: u64, budget: &mut u32) -> Modular {
    if spend(budget, 1).is_none() {
        return Modular::Other;
    }
    let atom = |idx: usize| Modular::Value(spread(idx, probe) % PRIME);
    match e {
        Expr::Num(n) | Expr::Float(n) => {
            let reduce = |x: i64| (i128::from(x).rem_euclid(i128::from(PRIME))) as u64;
            let (n, d) = match n {
                Rat::Small(n, d) => (reduce(*n), reduce(*d)),
                Rat::Big(_) => {
                    let (n, d) = n.parts();
                    let prime = BigInt::from(PRIME);
                    let word = |x: BigInt| u64::try_from(x.mod_floor(&prime)).unwrap_or(0);
                    (word(n), word(d))
                }
            };
            if d == 0 {
                Modular::Pole
            } else {
                Modular::Value(if d == 1 { n } else { mul_mod(n, pow_mod(d, PRIME - 2)) })
            }
        }
        // π and e are transcendental; no rational relation between them is known or tested for.
        Expr::Pi => atom(1_000),
        Expr::E => atom(1_001),
        Expr::Percent(a) => match eval_mod(a, atoms, probe, budget) {
            Modular::Value(x) => Modular::Value(mul_mod(x, pow_mod(100, PRIME - 2))),
            it => it,
        },
        Expr::Sym { .. } | Expr::Call(Func::Named(_), _) => {
            atoms.iter().position(|it| *it == e).map_or(Modular::Other, atom)
        }
        Expr::Add(v) => {
            let mut sum = 0;
            for it in v {
                match eval_mod(it, atoms, probe, budget) {
                    Modular::Value(x) => sum = (sum + x) % PRIME,
                    it => return it,
                }
            }
            Modular::Value(sum)
        }
        Expr::Mul(v) => {
            let mut product = 1;
            for it in v {
                match eval_mod(it, atoms, probe, budget) {
                    Modular::Value(x) => product = mul_mod(product, x),
                    it => return it,
                }
            }
            Modular::Value(product)
        }
        Expr::Pow(p) => {
            let Some(exponent) = exact_in(&p.1, &[], budget).and_then(|it| it.to_i64()) else {
                return Modular::Other;
            };
            match eval_mod(&p.0, atoms, probe, budget) {
                Modular::Value(0) if exponent < 0 => Modular::Pole,
                Modular::Value(x) => {
                    let power = pow_mod(x, exponent.unsigned_abs());
                    Modular::Value(if exponent < 0 { pow_mod(power, PRIME - 2) } else { power })
                }
                it => it,
            }
        }
        _ => Modular::Other,
    }
}
