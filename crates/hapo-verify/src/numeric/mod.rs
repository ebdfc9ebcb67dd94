//! Decides whether two expressions have the same value, within a budget of steps.
//!
//! Three ways, in this order: exact rational arithmetic; for rational functions of symbols, values modulo a prime at
//! fixed points (an identity test, never wrong in practice on answers of this size); for everything else values at
//! fixed points, first in doubles with an error bound (a difference is then proven), then to at least 50 digits. A
//! value that would be too large is not computed, and two sides that cannot be decided are not equal.

mod analysis;
mod ball;
mod sums;

use crate::expr::{Expr, Func};
use crate::number::{MAX_BITS, Rat};
use ball::{Ball, Big, Double};
use num_bigint::BigInt;
use num_integer::Integer;
use std::cmp::Ordering;

/// Steps (nodes evaluated, with large ones counted more than once) that one side may take at one point.
const BUDGET: u32 = 20_000;

/// Most distinct symbols in a comparison.
const MAX_ATOMS: usize = 48;

/// Largest entry of a determinant that is expanded, in bits.
const MAX_ENTRY_BITS: u64 = 512;

/// Largest number whose roots and logarithms are looked for among the integers, in bits.
const MAX_ROOT_BITS: u64 = 4_096;

/// Longest sum or product that is added up.
const MAX_TERMS: i64 = 2_000;

/// How a comparison of values came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Same(&'static str),
    Different(&'static str),
    Unknown,
}

impl Decision {
    pub(crate) fn is_same(self) -> bool {
        matches!(self, Decision::Same(_))
    }
}

/// Whether `a` and `b` have the same value for all values of their symbols.
pub(crate) fn same_value(a: &Expr, b: &Expr) -> Decision {
    if let (Some(x), Some(y)) = (exact(a), exact(b)) {
        return decide(
            x == y,
            "equal as exact rationals",
            "different as exact rationals",
        );
    }
    if sums::concerns(a) || sums::concerns(b) {
        let (x, y) = (sums::closed(a), sums::closed(b));
        if x != *a || y != *b {
            return same_value(&x, &y);
        }
    }
    if analysis::concerns(a) || analysis::concerns(b) {
        return same_by_quadrature(a, b);
    }
    let mut atoms = Vec::new();
    if !collect_atoms(a, &mut atoms) || !collect_atoms(b, &mut atoms) {
        return Decision::Unknown;
    }
    if let Some(decision) = same_rational_function(a, b, &atoms) {
        return decision;
    }
    same_at_points(a, b, &atoms)
}

/// Compares constants with integrals, infinite sums or limits in them.
fn same_by_quadrature(a: &Expr, b: &Expr) -> Decision {
    let value = |e: &Expr| analysis::evaluated(e).and_then(|it| approximate(&it));
    match (value(a), value(b)) {
        (Some(x), Some(y)) => {
            let same = (x - y).abs() <= analysis::TOLERANCE * x.abs().max(y.abs()).max(1e-3);
            decide(
                same,
                "equal to nine digits by quadrature",
                "different values",
            )
        }
        _ => Decision::Unknown,
    }
}

fn decide(same: bool, yes: &'static str, no: &'static str) -> Decision {
    if same {
        Decision::Same(yes)
    } else {
        Decision::Different(no)
    }
}

/// Orders two real constants; `None` where there is no order or it is not known.
pub(crate) fn compare_real(a: &Expr, b: &Expr) -> Option<Ordering> {
    match (a, b) {
        (Expr::Infinity, Expr::Infinity) | (Expr::NegInfinity, Expr::NegInfinity) => {
            return Some(Ordering::Equal);
        }
        (Expr::Infinity, _) | (_, Expr::NegInfinity) => {
            return (!a.has_symbol() && !b.has_symbol()).then_some(Ordering::Greater);
        }
        (_, Expr::Infinity) | (Expr::NegInfinity, _) => {
            return (!a.has_symbol() && !b.has_symbol()).then_some(Ordering::Less);
        }
        _ => {}
    }
    if let (Some(x), Some(y)) = (exact(a), exact(b)) {
        return Some(x.cmp(&y));
    }
    if a.has_symbol() || b.has_symbol() {
        return None;
    }
    let difference = a.clone().plus(b.clone().negated());
    let mut budget = BUDGET;
    if let Some(it) = eval::<Double>(&difference, &[], &mut budget)
        && it.im.is_none()
        && let Some(sign) = it.re.sign()
    {
        return Some(sign);
    }
    let mut budget = BUDGET;
    let it = eval::<Big>(&difference, &[], &mut budget)?;
    if it.im.as_ref().is_some_and(|im| !im.is_negligible()) {
        return None;
    }
    it.re
        .sign()
        .or_else(|| it.re.is_negligible().then_some(Ordering::Equal))
}

/// Whether a constant is infinite, and with which sign.
pub(crate) fn infinite_sign(e: &Expr) -> Option<Ordering> {
    match e {
        Expr::Infinity => Some(Ordering::Greater),
        Expr::NegInfinity => Some(Ordering::Less),
        Expr::Add(v) => {
            let mut found = None;
            for it in v {
                match infinite_sign(it) {
                    None => {
                        approximate(it)?;
                    }
                    sign if found.is_none() || found == sign => found = sign,
                    _ => return None,
                }
            }
            found
        }
        Expr::Mul(v) => {
            let (mut negative, mut infinite) = (false, false);
            for it in v {
                let sign = match infinite_sign(it) {
                    Some(sign) => {
                        infinite = true;
                        sign
                    }
                    None => compare_real(it, &Expr::int(0)).filter(|it| it.is_ne())?,
                };
                negative ^= sign.is_lt();
            }
            infinite.then_some(if negative {
                Ordering::Less
            } else {
                Ordering::Greater
            })
        }
        Expr::Pow(p) => {
            let growing =
                infinite_sign(&p.0)?.is_gt() && compare_real(&p.1, &Expr::int(0))?.is_gt();
            growing.then_some(Ordering::Greater)
        }
        _ => None,
    }
}

/// A real constant as a double, for sorting.
pub(crate) fn approximate(e: &Expr) -> Option<f64> {
    if let Some(it) = exact(e) {
        return Some(it.to_f64());
    }
    match e {
        Expr::Infinity => return Some(f64::INFINITY),
        Expr::NegInfinity => return Some(f64::NEG_INFINITY),
        _ => {}
    }
    let mut budget = BUDGET;
    let it = eval::<Double>(e, &[], &mut budget)?;
    it.im.is_none().then_some(it.re.value)
}

/// A real constant rounded to `places` decimals, as an integer multiple of `10^-places`.
pub(crate) fn rounded(e: &Expr, places: u32) -> Option<BigInt> {
    if let Some(it) = exact(e) {
        return Some(it.round_scaled(places));
    }
    if e.has_symbol() {
        return None;
    }
    let mut budget = BUDGET;
    let it = eval::<Big>(e, &[], &mut budget)?;
    match &it.im {
        Some(im) if !im.is_negligible() => None,
        _ => it.re.round_scaled(places),
    }
}

/// A constant in double arithmetic, operation by operation in the order written: what a decimal that took part in a
/// computation has become. `None` unless every part is a real number.
pub(crate) fn in_doubles(e: &Expr) -> Option<f64> {
    let value = match e {
        Expr::Num(n) | Expr::Float(n) => n.to_f64(),
        Expr::Percent(a) => in_doubles(a)? / 100.0,
        Expr::Add(v) => v
            .iter()
            .try_fold(0.0, |sum, it| in_doubles(it).map(|x| sum + x))?,
        Expr::Mul(v) => {
            // Exact factors are multiplied exactly up to the first decimal.
            let mut product = Rat::ONE;
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
        Expr::Call(..) | Expr::Pi | Expr::E | Expr::EulerGamma => approximate(e)?,
        _ => return None,
    };
    value.is_finite().then_some(value)
}

/// Whether a real constant is at most `slack` away from a double.
pub(crate) fn is_within(e: &Expr, double: f64, slack: f64) -> bool {
    if let Some(it) = exact(e) {
        return (it.to_f64() - double).abs() <= slack;
    }
    let Some(double) = Rat::from_f64(double) else {
        return false;
    };
    if slack == 0.0 {
        // An irrational number is no double.
        return false;
    }
    let mut budget = BUDGET;
    match eval::<Big>(&e.clone().plus(Expr::Num(double.neg())), &[], &mut budget) {
        Some(it) if it.im.as_ref().is_none_or(Ball::is_negligible) => it.re.to_f64().abs() <= slack,
        _ => false,
    }
}

fn exact_without_decimals(e: &Expr) -> Option<Rat> {
    if e.has_float() { None } else { exact(e) }
}

// ---- exact --------------------------------------------------------------------------------------------------------

/// The exact rational value of a constant, if it has one of bounded size that takes few steps.
pub(crate) fn exact(e: &Expr) -> Option<Rat> {
    match e {
        Expr::Num(n) | Expr::Float(n) => Some(n.clone()),
        Expr::Sym { .. } | Expr::Pi | Expr::E | Expr::I | Expr::EulerGamma => None,
        _ => {
            let mut budget = BUDGET;
            exact_in(e, &[], &mut budget)
        }
    }
}

/// A bound variable and its value.
type Bound<'a> = (&'a Expr, Rat);

fn spend(budget: &mut u32, steps: u32) -> Option<()> {
    *budget = budget.checked_sub(steps)?;
    FUEL.with(|fuel| {
        let left = fuel.get().checked_sub(steps);
        fuel.set(left.unwrap_or(0));
        left.map(|_| ())
    })
}

/// What adding or multiplying two numbers costs, in steps; asked before it is done.
fn cost(a: &Rat, b: &Rat) -> u32 {
    let words = ((a.bits() + b.bits()) / 64) as u32;
    // Fractions are reduced, which is quadratic.
    if a.is_integer() && b.is_integer() {
        words
    } else {
        words * words / 2
    }
}

/// Steps of one judgement, all comparisons in it together.
const FUEL_PER_JUDGEMENT: u32 = 100_000;

thread_local! {
    static FUEL: std::cell::Cell<u32> = const { std::cell::Cell::new(FUEL_PER_JUDGEMENT) };
}

/// Grants a new judgement its steps.
pub(crate) fn refuel() {
    FUEL.with(|fuel| fuel.set(FUEL_PER_JUDGEMENT));
}

fn exact_in(e: &Expr, bound: &[Bound<'_>], budget: &mut u32) -> Option<Rat> {
    spend(budget, 1)?;
    let result = match e {
        Expr::Num(n) | Expr::Float(n) => return Some(n.clone()),
        Expr::Percent(a) => exact_in(a, bound, budget)?.mul(&Rat::Small(1, 100)),
        Expr::Sym { .. } => bound
            .iter()
            .rev()
            .find(|it| it.0 == e)
            .map(|it| it.1.clone()),
        Expr::Add(v) => {
            let mut sum = Rat::ZERO;
            for it in v {
                let term = exact_in(it, bound, budget)?;
                spend(budget, cost(&sum, &term))?;
                sum = sum.add(&term)?;
            }
            Some(sum)
        }
        Expr::Mul(v) => {
            let mut product = Rat::ONE;
            for it in v {
                let factor = exact_in(it, bound, budget)?;
                spend(budget, cost(&product, &factor))?;
                product = product.mul(&factor)?;
            }
            Some(product)
        }
        Expr::Pow(p) => exact_pow(
            &exact_in(&p.0, bound, budget)?,
            &exact_in(&p.1, bound, budget)?,
        ),
        Expr::Call(func, args) => exact_call(func, args, bound, budget),
        _ => None,
    };
    let result = result?;
    // Large numbers cost in proportion to their size.
    spend(budget, (result.bits() / 64) as u32)?;
    Some(result)
}

fn exact_pow(base: &Rat, exponent: &Rat) -> Option<Rat> {
    if let Some(n) = exponent.to_i64() {
        return base.pow(n);
    }
    if base.is_one() && exponent.is_integer() {
        return Some(Rat::ONE);
    }
    // A perfect root of a non-negative number.
    let Rat::Small(p, q @ 2..=64) = exponent else {
        return None;
    };
    if base.is_negative() || base.bits() > MAX_ROOT_BITS {
        return None;
    }
    let (n, d) = base.parts();
    let root = |x: &BigInt| {
        let r = x.nth_root(*q as u32);
        (r.pow(*q as u32) == *x).then_some(r)
    };
    let (n, d) = (root(&n)?, root(&d)?);
    Rat::from_big(n, d)?.pow(*p)
}

fn exact_call(func: &Func, args: &[Expr], bound: &[Bound<'_>], budget: &mut u32) -> Option<Rat> {
    match func {
        Func::Sum | Func::Product => {
            let [body, variable, first, last] = args else {
                return None;
            };
            let (first, last) = (
                exact_in(first, bound, budget)?.to_i64()?,
                exact_in(last, bound, budget)?.to_i64()?,
            );
            if last.checked_sub(first)? > MAX_TERMS {
                return None;
            }
            let mut total = if *func == Func::Sum {
                Rat::ZERO
            } else {
                Rat::ONE
            };
            let mut inner = bound.to_vec();
            inner.push((variable, Rat::ZERO));
            for k in first..=last {
                inner.last_mut()?.1 = Rat::int(k);
                let term = exact_in(body, &inner, budget)?;
                spend(budget, cost(&total, &term))?;
                total = if *func == Func::Sum {
                    total.add(&term)?
                } else {
                    total.mul(&term)?
                };
            }
            return Some(total);
        }
        Func::Det => {
            let Some(Expr::Matrix { cols, cells }) = args.first() else {
                return None;
            };
            if cells.len() != cols * cols || *cols > 8 {
                return None;
            }
            let mut values = Vec::with_capacity(cells.len());
            for it in cells {
                let value = exact_in(it, bound, budget)?;
                if value.bits() > MAX_ENTRY_BITS {
                    return None;
                }
                values.push(value);
            }
            return determinant(values, *cols);
        }
        Func::Trace => {
            let Some(Expr::Matrix { cols, cells }) = args.first() else {
                return None;
            };
            let mut sum = Rat::ZERO;
            for it in cells.iter().step_by(cols + 1).take(*cols) {
                let term = exact_in(it, bound, budget)?;
                spend(budget, cost(&sum, &term))?;
                sum = sum.add(&term)?;
            }
            return Some(sum);
        }
        _ => {}
    }
    let mut values = Vec::with_capacity(args.len());
    for it in args {
        values.push(exact_in(it, bound, budget)?);
    }
    match (func, values.as_slice()) {
        (Func::Abs, [x]) => Some(if x.is_negative() { x.neg() } else { x.clone() }),
        (Func::Floor, [x]) => Some(x.floor()),
        (Func::Ceil, [x]) => Some(x.neg().floor().neg()),
        (Func::Factorial, [n]) => factorial(n.to_i64()?, budget),
        (Func::Gamma, [n]) => factorial(n.to_i64()?.checked_sub(1)?, budget),
        (Func::Binomial, [n, k]) => binomial(n, k.to_i64()?, budget),
        (Func::Max, [first, rest @ ..]) => Some(rest.iter().fold(first, |m, it| m.max(it)).clone()),
        (Func::Min, [first, rest @ ..]) => Some(rest.iter().fold(first, |m, it| m.min(it)).clone()),
        (Func::Mod, [x, m]) => {
            let turns = x.div(m)?.floor();
            x.sub(&turns.mul(m)?)
        }
        (Func::Gcd, all) => all.iter().try_fold(Rat::ZERO, |g, it| rational_gcd(&g, it)),
        (Func::Lcm, all) => all.iter().try_fold(Rat::ONE, |l, it| {
            let g = rational_gcd(&l, it)?;
            if g.is_zero() {
                Some(Rat::ZERO)
            } else {
                l.mul(it)?
                    .div(&g)
                    .map(|it| if it.is_negative() { it.neg() } else { it })
            }
        }),
        (Func::Log, [x, base]) => exact_log(x, base),
        _ => None,
    }
}

/// `log_base x` when it is a small integer.
fn exact_log(x: &Rat, base: &Rat) -> Option<Rat> {
    if x.is_one() {
        return Some(Rat::ZERO);
    }
    if !base.is_integer()
        || *base <= Rat::ONE
        || x.is_negative()
        || x.is_zero()
        || x.bits() > MAX_ROOT_BITS
    {
        return None;
    }
    let (target, sign) = if *x < Rat::ONE {
        (x.recip()?, -1)
    } else {
        (x.clone(), 1)
    };
    let mut power = Rat::ONE;
    for k in 1..=256 {
        power = power.mul(base)?;
        match power.cmp(&target) {
            Ordering::Equal => return Some(Rat::int(k * sign)),
            Ordering::Greater => return None,
            Ordering::Less => {}
        }
    }
    None
}

fn rational_gcd(a: &Rat, b: &Rat) -> Option<Rat> {
    let ((an, ad), (bn, bd)) = (a.parts(), b.parts());
    let n = (&an * &bd).gcd(&(&bn * &ad));
    let d = ad * bd;
    Rat::from_big(n, d)
}

fn factorial(n: i64, budget: &mut u32) -> Option<Rat> {
    if !(0..=5_000).contains(&n) {
        return None;
    }
    spend(budget, (n as u32) / 2)?;
    Rat::from_big(product_of_range(1, n), BigInt::from(1))
}

/// `from · (from + 1) · … · to`, halves first, so that the factors stay of one size.
fn product_of_range(from: i64, to: i64) -> BigInt {
    if to - from < 12 {
        return (from..=to).fold(BigInt::from(1), |product, k| product * k);
    }
    let middle = i64::midpoint(from, to);
    product_of_range(from, middle) * product_of_range(middle + 1, to)
}

fn binomial(n: &Rat, k: i64, budget: &mut u32) -> Option<Rat> {
    if k < 0 {
        return Some(Rat::ZERO);
    }
    let k = match n.to_i64() {
        Some(n) if n >= 0 && k > n => return Some(Rat::ZERO),
        Some(n) if n >= 0 => k.min(n - k),
        _ => k,
    };
    if k > 5_000 || !n.is_integer() && k > 64 {
        return None;
    }
    spend(budget, k as u32)?;
    if n.is_integer() {
        // Every partial product is an integer, so nothing needs to be reduced.
        let (n, _) = n.parts();
        let mut value = BigInt::from(1);
        for j in 0..k {
            value = value * (&n - j) / (j + 1);
            if value.bits() > MAX_BITS {
                return None;
            }
            spend(budget, (value.bits() / 2_048) as u32)?;
        }
        return Rat::from_big(value, BigInt::from(1));
    }
    let mut value = Rat::ONE;
    for j in 0..k {
        value = value.mul(&n.sub(&Rat::int(j))?)?.div(&Rat::int(j + 1))?;
        if value.bits() > MAX_BITS / 2 {
            return None;
        }
    }
    Some(value)
}

/// By elimination; the first non-zero pivot will do since the arithmetic is exact.
fn determinant(mut m: Vec<Rat>, n: usize) -> Option<Rat> {
    let mut det = Rat::ONE;
    for col in 0..n {
        let Some(pivot) = (col..n).find(|row| !m[row * n + col].is_zero()) else {
            return Some(Rat::ZERO);
        };
        if pivot != col {
            for k in 0..n {
                m.swap(pivot * n + k, col * n + k);
            }
            det = det.neg();
        }
        let head = m[col * n + col].clone();
        det = det.mul(&head)?;
        for row in col + 1..n {
            let factor = m[row * n + col].div(&head)?;
            for k in col..n {
                m[row * n + k] = m[row * n + k].sub(&factor.mul(&m[col * n + k])?)?;
            }
        }
    }
    Some(det)
}

// ---- rational functions modulo a prime ----------------------------------------------------------------------------

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

/// Fixed, well-spread value of the `idx`-th atom at the `probe`-th point.
fn spread(idx: usize, probe: u64) -> u64 {
    let mut z = (idx as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
        ^ (probe + 1).wrapping_mul(0xD1B5_4A32_D192_ED03);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Symbols, unknown functions, and the constants that satisfy no polynomial equation. `false` if there are too many.
fn collect_atoms<'a>(e: &'a Expr, atoms: &mut Vec<&'a Expr>) -> bool {
    match e {
        Expr::Sym { .. } | Expr::Call(Func::Named(_), _) => {
            if !atoms.contains(&e) {
                atoms.push(e);
            }
            atoms.len() <= MAX_ATOMS
        }
        it => it
            .children()
            .into_iter()
            .all(|child| collect_atoms(child, atoms)),
    }
}

/// Compares as rational functions, where both are; `None` where one is not, or no point was good.
fn same_rational_function(a: &Expr, b: &Expr, atoms: &[&Expr]) -> Option<Decision> {
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
                Modular::Value(if d == 1 {
                    n
                } else {
                    mul_mod(n, pow_mod(d, PRIME - 2))
                })
            }
        }
        // π and e are transcendental; no rational relation between them is known or tested for.
        Expr::Pi => atom(1_000),
        Expr::E => atom(1_001),
        Expr::Percent(a) => match eval_mod(a, atoms, probe, budget) {
            Modular::Value(x) => Modular::Value(mul_mod(x, pow_mod(100, PRIME - 2))),
            it => it,
        },
        Expr::Sym { .. } | Expr::Call(Func::Named(_), _) => atoms
            .iter()
            .position(|it| *it == e)
            .map_or(Modular::Other, atom),
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
                    Modular::Value(if exponent < 0 {
                        pow_mod(power, PRIME - 2)
                    } else {
                        power
                    })
                }
                it => it,
            }
        }
        _ => Modular::Other,
    }
}

// ---- values at points ---------------------------------------------------------------------------------------------

/// A complex number; without an imaginary part it is exactly real.
#[derive(Clone)]
struct Complex<T> {
    re: T,
    im: Option<T>,
}

/// The value of the `idx`-th atom at the `probe`-th point: between 0.3 and 3 at the first two points and between 2 and
/// 18 at the others (where floors and steps have more than one value); of mixed sign at odd ones.
fn point(idx: usize, probe: u64) -> Rat {
    let z = spread(idx, probe);
    let scale = if probe < 2 { 1 } else { 6 };
    let size = (300 + (z % 2_689) as i64) * scale;
    let negative = probe % 2 == 1 && !(z >> 40).is_multiple_of(3);
    Rat::new(i128::from(if negative { -size } else { size }), 997).unwrap_or(Rat::ONE)
}

fn same_at_points(a: &Expr, b: &Expr, atoms: &[&Expr]) -> Decision {
    let n_points = if atoms.is_empty() { 1 } else { 4 };
    let mut n_good = 0;
    for probe in 0..n_points {
        let points: Vec<Rat> = (0..atoms.len()).map(|idx| point(idx, probe)).collect();
        if let Some((x, y)) = pair::<Double>(a, b, atoms, &points)
            && (differ(&x.re, &y.re) || differ_imaginary(&x, &y))
        {
            return Decision::Different("different values");
        }
        let Some((x, y)) = pair::<Big>(a, b, atoms, &points) else {
            continue;
        };
        let zero = || Big::from_rat(&Rat::ZERO);
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
    if n_good >= n_points.min(3) {
        Decision::Same("equal to 50 digits")
    } else {
        Decision::Unknown
    }
}

fn pair<T: Ball>(
    a: &Expr,
    b: &Expr,
    atoms: &[&Expr],
    points: &[Rat],
) -> Option<(Complex<T>, Complex<T>)> {
    let values: Vec<(&Expr, Complex<T>)> = atoms
        .iter()
        .zip(points)
        .map(|(atom, at)| {
            (
                *atom,
                Complex {
                    re: T::from_rat(at),
                    im: None,
                },
            )
        })
        .collect();
    let (mut budget_a, mut budget_b) = (BUDGET, BUDGET);
    Some((
        eval(a, &values, &mut budget_a)?,
        eval(b, &values, &mut budget_b)?,
    ))
}

fn differ(a: &Double, b: &Double) -> bool {
    a.add(&b.neg()).sign().is_some_and(Ordering::is_ne)
}

fn differ_imaginary(a: &Complex<Double>, b: &Complex<Double>) -> bool {
    let zero = Double {
        value: 0.0,
        error: 0.0,
    };
    differ(&a.im.unwrap_or(zero), &b.im.unwrap_or(zero))
}

impl<T: Ball> Complex<T> {
    fn real(re: T) -> Complex<T> {
        Complex { re, im: None }
    }

    fn rat(value: &Rat) -> Complex<T> {
        Complex::real(T::from_rat(value))
    }

    fn int(n: i64) -> Complex<T> {
        Complex::rat(&Rat::int(n))
    }

    fn i() -> Complex<T> {
        Complex {
            re: T::from_rat(&Rat::ZERO),
            im: Some(T::from_rat(&Rat::ONE)),
        }
    }

    fn add(&self, other: &Self) -> Self {
        let im = match (&self.im, &other.im) {
            (Some(a), Some(b)) => Some(a.add(b)),
            (a, b) => a.as_ref().or(b.as_ref()).cloned(),
        };
        Complex {
            re: self.re.add(&other.re),
            im,
        }
    }

    fn neg(&self) -> Self {
        Complex {
            re: self.re.neg(),
            im: self.im.as_ref().map(T::neg),
        }
    }

    fn sub(&self, other: &Self) -> Self {
        self.add(&other.neg())
    }

    fn mul(&self, other: &Self) -> Self {
        match (&self.im, &other.im) {
            (None, None) => Complex::real(self.re.mul(&other.re)),
            (Some(b), None) => Complex {
                re: self.re.mul(&other.re),
                im: Some(b.mul(&other.re)),
            },
            (None, Some(d)) => Complex {
                re: self.re.mul(&other.re),
                im: Some(d.mul(&self.re)),
            },
            (Some(b), Some(d)) => Complex {
                re: self.re.mul(&other.re).add(&b.mul(d).neg()),
                im: Some(self.re.mul(d).add(&b.mul(&other.re))),
            },
        }
    }

    fn recip(&self) -> Option<Self> {
        match &self.im {
            None => Some(Complex::real(self.re.recip()?)),
            Some(b) => {
                let size = self.re.mul(&self.re).add(&b.mul(b)).recip()?;
                Some(Complex {
                    re: self.re.mul(&size),
                    im: Some(b.neg().mul(&size)),
                })
            }
        }
    }

    fn abs(&self) -> Option<T> {
        match &self.im {
            None => match self.re.sign() {
                Some(Ordering::Less) => Some(self.re.neg()),
                Some(_) => Some(self.re.clone()),
                None => self.re.mul(&self.re).sqrt(),
            },
            Some(b) => self.re.mul(&self.re).add(&b.mul(b)).sqrt(),
        }
    }

    fn exp(&self) -> Option<Self> {
        let size = self.re.exp()?;
        match &self.im {
            None => Some(Complex::real(size)),
            Some(b) => {
                let (sin, cos) = b.sin_cos()?;
                Some(Complex {
                    re: size.mul(&cos),
                    im: Some(size.mul(&sin)),
                })
            }
        }
    }

    /// Principal branch. An imaginary part that may be zero counts as zero on the negative axis.
    fn ln(&self) -> Option<Self> {
        let im = self.im.as_ref().filter(|b| !b.is_negligible());
        match im {
            None => match self.re.sign()? {
                Ordering::Greater => Some(Complex::real(self.re.ln()?)),
                Ordering::Less => Some(Complex {
                    re: self.re.neg().ln()?,
                    im: Some(T::pi()),
                }),
                Ordering::Equal => None,
            },
            Some(b) => {
                let size = self.re.mul(&self.re).add(&b.mul(b)).ln()?;
                let half = T::from_rat(&Rat::Small(1, 2));
                // arg = ±(π/2 − atan(re / |im|)), which has no cut off the axis.
                let upper = b.sign()? == Ordering::Greater;
                let height = if upper { b.clone() } else { b.neg() };
                let arg = T::pi()
                    .mul(&half)
                    .add(&self.re.mul(&height.recip()?).atan().neg());
                Some(Complex {
                    re: size.mul(&half),
                    im: Some(if upper { arg } else { arg.neg() }),
                })
            }
        }
    }

    fn sqrt(&self) -> Option<Self> {
        if self.im.as_ref().is_none_or(Ball::is_negligible) {
            return match self.re.sign() {
                Some(Ordering::Less) => Some(Complex {
                    re: T::from_rat(&Rat::ZERO),
                    im: Some(self.re.neg().sqrt()?),
                }),
                _ => Some(Complex::real(self.re.sqrt()?)),
            };
        }
        self.ln()?.mul(&Complex::rat(&Rat::Small(1, 2))).exp()
    }

    fn powi(&self, exponent: i64) -> Option<Self> {
        let mut result: Complex<T> = Complex::int(1);
        let mut base = self.clone();
        let mut n = exponent.unsigned_abs();
        while n > 0 {
            if n & 1 == 1 {
                result = result.mul(&base);
            }
            n >>= 1;
            if n > 0 {
                base = base.mul(&base);
            }
        }
        if exponent < 0 {
            result.recip()
        } else {
            Some(result)
        }
    }

    fn is_zero(&self) -> bool {
        self.re.sign() == Some(Ordering::Equal)
            && self
                .im
                .as_ref()
                .is_none_or(|b| b.sign() == Some(Ordering::Equal))
    }

    fn sin_cos(&self) -> Option<(Self, Self)> {
        let Some(b) = &self.im else {
            let (sin, cos) = self.re.sin_cos()?;
            return Some((Complex::real(sin), Complex::real(cos)));
        };
        let (sin, cos) = self.re.sin_cos()?;
        let (up, down) = (b.exp()?, b.neg().exp()?);
        let half = T::from_rat(&Rat::Small(1, 2));
        let cosh = up.add(&down).mul(&half);
        let sinh = up.add(&down.neg()).mul(&half);
        Some((
            Complex {
                re: sin.mul(&cosh),
                im: Some(cos.mul(&sinh)),
            },
            Complex {
                re: cos.mul(&cosh),
                im: Some(sin.mul(&sinh).neg()),
            },
        ))
    }

    fn sinh_cosh(&self) -> Option<(Self, Self)> {
        let (up, down) = (self.exp()?, self.neg().exp()?);
        let half = Complex::rat(&Rat::Small(1, 2));
        Some((up.sub(&down).mul(&half), up.add(&down).mul(&half)))
    }

    fn asin(&self) -> Option<Self> {
        let one = Complex::int(1);
        let rest = one.sub(&self.mul(self));
        if self.im.is_none() {
            let half_pi = T::pi().mul(&T::from_rat(&Rat::Small(1, 2)));
            if rest.re.is_negligible() || rest.is_zero() {
                let negative = self.re.sign()? == Ordering::Less;
                return Some(Complex::real(if negative {
                    half_pi.neg()
                } else {
                    half_pi
                }));
            }
            if rest.re.sign()? == Ordering::Greater {
                return Some(Complex::real(self.re.mul(&rest.re.sqrt()?.recip()?).atan()));
            }
        }
        let inner = Complex::i().mul(self).add(&rest.sqrt()?);
        Some(Complex::i().neg().mul(&inner.ln()?))
    }

    fn acos(&self) -> Option<Self> {
        let half_pi = Complex::real(T::pi().mul(&T::from_rat(&Rat::Small(1, 2))));
        Some(half_pi.sub(&self.asin()?))
    }

    fn atan(&self) -> Option<Self> {
        if self.im.is_none() {
            return Some(Complex::real(self.re.atan()));
        }
        let one = Complex::int(1);
        let turned = Complex::i().mul(self);
        let difference = one.sub(&turned).ln()?.sub(&one.add(&turned).ln()?);
        Some(
            Complex::i()
                .mul(&Complex::rat(&Rat::Small(1, 2)))
                .mul(&difference),
        )
    }
}

fn eval<T: Ball>(e: &Expr, values: &[(&Expr, Complex<T>)], budget: &mut u32) -> Option<Complex<T>> {
    spend(budget, 1)?;
    match e {
        Expr::Num(n) | Expr::Float(n) => Some(Complex::rat(n)),
        Expr::Percent(a) => Some(eval(a, values, budget)?.mul(&Complex::rat(&Rat::Small(1, 100)))),
        Expr::Sym { .. } | Expr::Call(Func::Named(_), _) => values
            .iter()
            .rev()
            .find(|it| it.0 == e)
            .map(|it| it.1.clone()),
        Expr::Pi => Some(Complex::real(T::pi())),
        Expr::E => Complex::int(1).exp(),
        Expr::EulerGamma => Some(Complex::real(T::euler_gamma())),
        Expr::I => Some(Complex::i()),
        Expr::Add(v) => {
            let mut sum = Complex::int(0);
            for it in v {
                sum = sum.add(&eval(it, values, budget)?);
            }
            Some(sum)
        }
        Expr::Mul(v) => {
            let mut product = Complex::int(1);
            for it in v {
                product = product.mul(&eval(it, values, budget)?);
            }
            Some(product)
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
    if let Some(n) = exact_in(exponent, &[], budget) {
        if let Some(n) = n.to_i64() {
            let base = eval(base, values, budget)?;
            spend(budget, 64)?;
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
        if n.is_integer() {
            // Beyond a word: only the size decides, through the logarithm.
            return base.ln()?.mul(&Complex::rat(&n)).exp();
        }
        return base.ln()?.mul(&Complex::rat(&n)).exp();
    }
    spend(budget, 2 * T::COST)?;
    let base = eval(base, values, budget)?;
    let exponent = eval(exponent, values, budget)?;
    base.ln()?.mul(&exponent).exp()
}

fn eval_call<T: Ball>(
    func: &Func,
    args: &[Expr],
    values: &[(&Expr, Complex<T>)],
    budget: &mut u32,
) -> Option<Complex<T>> {
    spend(budget, T::COST)?;
    match func {
        Func::Sum | Func::Product => {
            let [body, variable, first, last] = args else {
                return None;
            };
            let (first, last) = (exact(first)?.to_i64()?, exact(last)?.to_i64()?);
            if last.checked_sub(first)? > MAX_TERMS {
                return None;
            }
            let mut total = Complex::int(i64::from(*func == Func::Product));
            let mut inner = values.to_vec();
            inner.push((variable, Complex::int(0)));
            for k in first..=last {
                inner.last_mut()?.1 = Complex::int(k);
                let term = eval(body, &inner, budget)?;
                total = if *func == Func::Sum {
                    total.add(&term)
                } else {
                    total.mul(&term)
                };
            }
            return Some(total);
        }
        Func::Factorial
        | Func::Binomial
        | Func::Gamma
        | Func::Gcd
        | Func::Lcm
        | Func::Mod
        | Func::Trace => {
            let value = exact_call(func, args, &[], budget)?;
            return Some(Complex::rat(&value));
        }
        Func::Norm => {
            let Some(Expr::Matrix { cells, .. }) = args.first() else {
                return None;
            };
            let mut sum = T::from_rat(&Rat::ZERO);
            for it in cells {
                let size = eval(it, values, budget)?.abs()?;
                sum = sum.add(&size.mul(&size));
            }
            return Some(Complex::real(sum.sqrt()?));
        }
        Func::Det => {
            let Some(Expr::Matrix { cols, cells }) = args.first() else {
                return None;
            };
            let mut entries = Vec::with_capacity(cells.len());
            for it in cells {
                entries.push(eval(it, values, budget)?);
            }
            return laplace(&entries, *cols);
        }
        Func::Limit | Func::Integral | Func::Derivative | Func::Transpose | Func::Named(_) => {
            return None;
        }
        _ => {}
    }
    let x = eval(args.first()?, values, budget)?;
    let half = || Complex::rat(&Rat::Small(1, 2));
    let one = || Complex::<T>::int(1);
    Some(match func {
        Func::Sin => x.sin_cos()?.0,
        Func::Cos => x.sin_cos()?.1,
        Func::Tan => {
            let (sin, cos) = x.sin_cos()?;
            sin.mul(&cos.recip()?)
        }
        Func::Csc => x.sin_cos()?.0.recip()?,
        Func::Sec => x.sin_cos()?.1.recip()?,
        Func::Cot => {
            let (sin, cos) = x.sin_cos()?;
            cos.mul(&sin.recip()?)
        }
        Func::Asin => x.asin()?,
        Func::Acos => x.acos()?,
        Func::Atan => x.atan()?,
        Func::Acsc => x.recip()?.asin()?,
        Func::Asec => x.recip()?.acos()?,
        Func::Acot if x.is_zero() => Complex::real(T::pi()).mul(&half()),
        Func::Acot => x.recip()?.atan()?,
        Func::Sinh => x.sinh_cosh()?.0,
        Func::Cosh => x.sinh_cosh()?.1,
        Func::Tanh => {
            let (sinh, cosh) = x.sinh_cosh()?;
            sinh.mul(&cosh.recip()?)
        }
        Func::Asinh => x.add(&x.mul(&x).add(&one()).sqrt()?).ln()?,
        Func::Acosh => x
            .add(&x.sub(&one()).sqrt()?.mul(&x.add(&one()).sqrt()?))
            .ln()?,
        Func::Atanh => one().add(&x).ln()?.sub(&one().sub(&x).ln()?).mul(&half()),
        Func::Log => {
            let base = args.get(1)?;
            if *base == Expr::E {
                x.ln()?
            } else {
                let base = eval(base, values, budget)?;
                x.ln()?.mul(&base.ln()?.recip()?)
            }
        }
        Func::Abs => Complex::real(x.abs()?),
        Func::Floor if x.im.is_none() => Complex::rat(&x.re.floor()?),
        Func::Ceil if x.im.is_none() => Complex::rat(&x.neg().re.floor()?.neg()),
        Func::Max | Func::Min => {
            let mut best = x;
            for it in &args[1..] {
                let next = eval(it, values, budget)?;
                let order = next.sub(&best).re.sign()?;
                let wanted = if *func == Func::Max {
                    Ordering::Greater
                } else {
                    Ordering::Less
                };
                if order == wanted {
                    best = next;
                }
            }
            best
        }
        _ => return None,
    })
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
        sum = if col % 2 == 0 {
            sum.add(&term)
        } else {
            sum.sub(&term)
        };
    }
    Some(sum)
}
