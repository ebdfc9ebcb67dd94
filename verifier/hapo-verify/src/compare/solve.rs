//! The reals that meet a relation in one unknown: what is linear or quadratic in it, or in its absolute value.

use super::reals::{complement, intersection, merged, pieces, simple};
use super::symbols::{plain_symbols, solve_linear};
use crate::expr::{Expr, Func, Interval, Op};
use crate::number::Rat;
use crate::numeric;
use std::cmp::Ordering;

/// Which relations are solved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Any,
    /// Those that say where the unknown lies, as `x > 1` or `|x - 2| < 3`: a condition that is still to be solved is
    /// no answer.
    Solved,
}

/// The subject of a condition.
#[derive(Clone, Debug)]
pub(super) enum Unknown {
    Real(Expr),
    /// The absolute value of an expression in a complex symbol.
    Modulus(Expr),
}

/// A set of reals, and the unknown that lies in it.
pub(super) type Solved = (Option<Unknown>, Vec<Interval>);

/// The reals that satisfy a relation (or chain) in one symbol, as a set.
pub(super) fn as_set(e: &Expr) -> Option<Expr> {
    simple(real_solutions(e)?)
}

/// The reals that satisfy a relation, its symbol taken for a real one.
fn real_solutions(e: &Expr) -> Option<Vec<Interval>> {
    let mut sets = e.links().iter().map(|link| match link {
        Expr::Rel(op, sides) => relation(*op, &sides.0, &sides.1, Form::Any).map(|it| it.1),
        _ => None,
    });
    let first = sets.next()??;
    sets.try_fold(first, |all, set| intersection(&all, &set?))
}

/// The unknown and its values for a relation, a chain or a set.
pub(super) fn solved(e: &Expr, form: Form) -> Option<Solved> {
    match e {
        Expr::Chain(links) => {
            let mut all = solved(links.first()?, form)?;
            for it in &links[1..] {
                let next = solved(it, form)?;
                all = (same_unknown(all.0, next.0)?, intersection(&all.1, &next.1)?);
            }
            Some(all)
        }
        Expr::Rel(op, sides) => {
            modulus(*op, sides).or_else(|| relation(*op, &sides.0, &sides.1, form))
        }
        it if it.is_set() => Some((None, pieces(it)?)),
        _ => None,
    }
}

/// The unknown that both conditions are about, where they are about one.
#[expect(clippy::option_option, reason = "whether they agree, and on what, which may be nothing")]
pub(super) fn same_unknown(a: Option<Unknown>, b: Option<Unknown>) -> Option<Option<Unknown>> {
    let same = match (&a, &b) {
        (
            Some(Unknown::Real(Expr::Sym { name, .. })),
            Some(Unknown::Real(Expr::Sym { name: other, .. })),
        ) => name == other,
        (Some(Unknown::Real(x)), Some(Unknown::Real(y))) => x == y,
        (Some(Unknown::Modulus(x)), Some(Unknown::Modulus(y))) => {
            numeric::same_value(x, y).is_same()
                || numeric::same_value(x, &y.clone().negated()).is_same()
        }
        // A set may be one of reals; where complex numbers are, it says nothing of them.
        (None, other) | (other, None) => !matches!(other, Some(Unknown::Modulus(_))),
        _ => false,
    };
    same.then_some(a.or(b))
}

/// `|E| op c` and `|E|^2 op c`, where `E` is complex.
fn modulus(op: Op, sides: &(Expr, Expr)) -> Option<Solved> {
    let (op, left, bound) = if sides.1.has_symbol() {
        (turned(op), &sides.1, &sides.0)
    } else {
        (op, &sides.0, &sides.1)
    };
    let (base, is_square) = match left {
        Expr::Pow(p) if p.1 == Expr::int(2) => (&p.0, true),
        it => (it, false),
    };
    let inner = absolute(base)?;
    let mut symbols = Vec::new();
    plain_symbols(inner, &mut symbols);
    let is_complex = |it: &Expr| matches!(it, Expr::Sym { name, complex } if *complex || matches!(&**name, "z" | "w"));
    if bound.has_symbol() || !symbols.iter().any(is_complex) {
        return None;
    }
    let (bound, zero) = (bound.clone(), Expr::int(0));
    let bound = match numeric::compare_real(&bound, &zero)? {
        Ordering::Less => Expr::int(-1),
        _ if is_square => Expr::pow(bound, Expr::Num(Rat::Small(1, 2))),
        _ => bound,
    };
    let not_negative = [Interval::above(&zero, false)];
    let all = intersection(&half_lines(op, &bound)?, &not_negative)?;
    Some((Some(Unknown::Modulus(inner.clone())), all))
}

/// The content of absolute bars.
fn absolute(e: &Expr) -> Option<&Expr> {
    match e {
        Expr::Call(Func::Abs, args) => args.first(),
        _ => None,
    }
}

/// The operator with its sides swapped; `≠` is its own.
pub(super) fn turned(op: Op) -> Op {
    op.flipped().unwrap_or(op)
}

/// A relation in one unknown that is taken for real.
fn relation(op: Op, left: &Expr, right: &Expr, form: Form) -> Option<Solved> {
    let (op, left, right) = match (left.has_symbol(), right.has_symbol()) {
        (true, false) => (op, left, right),
        (false, true) => (turned(op), right, left),
        _ if form == Form::Any => {
            let difference = left.clone().plus(right.clone().negated());
            return of_polynomial(op, &difference);
        }
        _ => return None,
    };
    if matches!(left, Expr::Sym { .. } | Expr::Call(Func::Named(_), _)) {
        let all = if right.is_set() {
            match op {
                Op::Eq => pieces(right)?,
                Op::Ne => complement(&pieces(right)?)?,
                _ => return None,
            }
        } else {
            half_lines(op, right)?
        };
        return Some((Some(Unknown::Real(left.clone())), all));
    }
    if form == Form::Solved && op == Op::Eq {
        return None;
    }
    if let Some(inner) = absolute(left) {
        return of_distance(op, inner, right, form);
    }
    if form == Form::Solved {
        return None;
    }
    of_polynomial(op, &left.clone().plus(right.clone().negated()))
}

/// The reals `x` with `x op bound`.
fn half_lines(op: Op, bound: &Expr) -> Option<Vec<Interval>> {
    merged(match op {
        Op::Eq => vec![Interval::point(bound)],
        Op::Ne => vec![Interval::below(bound, true), Interval::above(bound, true)],
        Op::Lt | Op::Le => vec![Interval::below(bound, op == Op::Lt)],
        Op::Gt | Op::Ge => vec![Interval::above(bound, op == Op::Gt)],
    })
}

/// `|a x + b| op c`.
fn of_distance(op: Op, inner: &Expr, bound: &Expr, form: Form) -> Option<Solved> {
    let symbol = only_symbol(inner)?;
    if numeric::degree(inner, &symbol)? != 1 {
        return None;
    }
    let at = |n: i64| inner.substituted(&symbol, &Expr::int(n));
    let slope = numeric::exact(&at(1).plus(at(0).negated()))?;
    let is_unit = slope == Rat::ONE || slope == Rat::MINUS_ONE;
    if slope.is_zero() || form == Form::Solved && !is_unit {
        return None;
    }
    let root =
        |c: Expr| c.plus(at(0).negated()).times(Expr::pow(Expr::Num(slope.clone()), Expr::int(-1)));
    let all = if numeric::compare_real(bound, &Expr::int(0))?.is_lt() {
        without_roots(op)
    } else {
        let (a, b) = (root(bound.clone().negated()), root(bound.clone()));
        between_or_outside(op, if slope.is_negative() { (b, a) } else { (a, b) })?
    };
    Some((Some(Unknown::Real(symbol)), all))
}

/// `p(x) op 0` for a polynomial of degree one or two, or for what is linear with other coefficients.
fn of_polynomial(op: Op, p: &Expr) -> Option<Solved> {
    let symbol = only_symbol(p)?;
    let at = |n: i64| numeric::exact(&p.substituted(&symbol, &Expr::int(n)));
    let zero = at(0)?;
    if numeric::degree(p, &symbol).is_none_or(|it| it > 2) {
        let root = numeric::exact(&solve_linear(p, &symbol)?)?;
        let falling = at(1)?.sub(&zero)?.is_negative();
        let op = if falling { turned(op) } else { op };
        return Some((Some(Unknown::Real(symbol)), half_lines(op, &Expr::Num(root))?));
    }
    // p = a x² + b x + c by its values at -1, 0 and 1.
    let (below, above, half) = (at(-1)?, at(1)?, Rat::Small(1, 2));
    let a = above.add(&below)?.mul(&half)?.sub(&zero)?;
    let b = above.sub(&below)?.mul(&half)?;
    let lead = if a.is_zero() { &b } else { &a };
    if lead.is_zero() {
        return None;
    }
    let op = if lead.is_negative() { turned(op) } else { op };
    let all = if a.is_zero() {
        half_lines(op, &Expr::Num(zero.div(&b)?.neg()))?
    } else {
        // x = m ± √d.
        let m = b.div(&a)?.mul(&half)?.neg();
        let d = m.mul(&m)?.sub(&zero.div(&a)?)?;
        if d.is_negative() {
            without_roots(op)
        } else {
            let root = Expr::pow(Expr::Num(d), Expr::Num(half));
            let m = Expr::Num(m);
            between_or_outside(op, (m.clone().plus(root.clone().negated()), m.plus(root)))?
        }
    };
    Some((Some(Unknown::Real(symbol)), all))
}

/// Where a function that is positive everywhere is `op 0`.
fn without_roots(op: Op) -> Vec<Interval> {
    match op {
        Op::Lt | Op::Le | Op::Eq => Vec::new(),
        Op::Gt | Op::Ge | Op::Ne => vec![Interval::above(&Expr::NegInfinity, true)],
    }
}

/// Where a function that is negative between two roots alone is `op 0`.
fn between_or_outside(op: Op, (low, high): (Expr, Expr)) -> Option<Vec<Interval>> {
    let is_double = numeric::compare_real(&low, &high)?.is_eq();
    merged(match op {
        Op::Eq => vec![Interval::point(&low), Interval::point(&high)],
        Op::Ne => {
            let points = merged(vec![Interval::point(&low), Interval::point(&high)])?;
            complement(&points)?
        }
        Op::Lt if is_double => Vec::new(),
        Op::Lt | Op::Le => {
            vec![Interval {
                start: low,
                end: high,
                left_open: op == Op::Lt,
                right_open: op == Op::Lt,
            }]
        }
        Op::Gt | Op::Ge => {
            vec![Interval::below(&low, op == Op::Gt), Interval::above(&high, op == Op::Gt)]
        }
    })
}

pub(crate) fn only_symbol(e: &Expr) -> Option<Expr> {
    let mut symbols = Vec::new();
    plain_symbols(e, &mut symbols);
    if symbols.len() == 1 { symbols.pop() } else { None }
}
