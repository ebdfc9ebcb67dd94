//! Equations and inequalities, and the reals that meet one which says where its unknown lies: `x > 1`,
//! `1 < x \\le 3`, `x \\in [1, 4]`.

use super::reals::{complement, intersection, merged, pieces, simple};
use super::symbols::plain_symbols;
use super::{Comparison, structurally_equal};
use crate::expr::{Expr, Func, Interval, Op};
use crate::numeric;
use std::cmp::Ordering;

impl Comparison<'_> {
    pub(super) fn relations(&mut self, gold: &Expr, answer: &Expr) -> bool {
        match (gold, answer) {
            (Expr::Chain(a), Expr::Chain(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| self.relations(a, b))
            }
            (Expr::Rel(op, a), Expr::Rel(other, b)) => {
                if op == other && self.same_collections(a, b) {
                    return self.because(true, "the same relation");
                }
                if a.0.is_set() || a.1.is_set() || b.0.is_set() || b.1.is_set() {
                    return false;
                }
                let gold_difference = a.0.clone().plus(a.1.clone().negated());
                let difference = b.0.clone().plus(b.1.clone().negated());
                if op == other && self.values(&gold_difference, &difference) {
                    return self.because(true, "the same relation, moved");
                }
                if op.flipped() == Some(*other)
                    && self.values(&gold_difference, &difference.clone().negated())
                {
                    return self.because(true, "the same relation, flipped");
                }
                *op == Op::Eq
                    && *other == Op::Eq
                    && self.same_solution(&gold_difference, &difference)
            }
            _ => false,
        }
    }

    fn same_collections(&mut self, a: &(Expr, Expr), b: &(Expr, Expr)) -> bool {
        let collection = |it: &Expr| it.is_set() || matches!(it, Expr::Tuple(_));
        (collection(&a.1) || collection(&b.1))
            && structurally_equal(&a.0, &b.0)
            && self.equal(&a.1, &b.1)
    }

    /// Equations in several symbols of which one is a multiple of the other.
    fn same_solution(&mut self, gold: &Expr, answer: &Expr) -> bool {
        let (ours, theirs) = (plain_symbols(gold), plain_symbols(answer));
        if ours.len() < 2
            || ours.len() != theirs.len()
            || !ours.iter().all(|it| theirs.contains(it))
            || ours.len() > 8
            || gold.any(&mut |it| matches!(it, Expr::Call(Func::Named(_), _)))
        {
            return false;
        }
        let same = proportional(gold, answer, &ours).is_some();
        self.because(same, "an equation and its multiple")
    }
}

/// The sign of the factor by which one is a constant multiple of the other, where neither is zero.
pub(super) fn proportional(a: &Expr, b: &Expr, symbols: &[Expr]) -> Option<Ordering> {
    // The values at one point give the factor.
    let at_point = |e: &Expr| {
        let points = [101, 211, 307, 401, 503, 601, 701, 809];
        symbols.iter().zip(points).fold(e.clone(), |e, (it, n)| e.substituted(it, &Expr::int(n)))
    };
    let (x, y) = (at_point(a), at_point(b));
    let sign = numeric::compare_real(&x.clone().times(y.clone()), &Expr::int(0))?;
    let same =
        sign.is_ne() && numeric::same_value(&a.clone().times(y), &b.clone().times(x)).is_same();
    same.then_some(sign)
}

/// A set of reals, and the unknown that lies in it.
pub(super) type Solved = (Option<Expr>, Vec<Interval>);

/// The reals that satisfy a relation (or chain) in one symbol, as a set.
pub(super) fn as_set(e: &Expr) -> Option<Expr> {
    simple(solved(e)?.1)
}

/// The unknown and its values for a relation, a chain or a set.
pub(super) fn solved(e: &Expr) -> Option<Solved> {
    match e {
        Expr::Chain(links) => {
            let mut all = solved(links.first()?)?;
            for it in &links[1..] {
                let next = solved(it)?;
                all = (same_unknown(all.0, next.0)?, intersection(&all.1, &next.1)?);
            }
            Some(all)
        }
        Expr::Rel(op, sides) => relation(*op, &sides.0, &sides.1),
        it if it.is_set() => Some((None, pieces(it)?)),
        _ => None,
    }
}

/// The unknown that both conditions are about, where they are about one.
#[expect(clippy::option_option, reason = "whether they agree, and on what, which may be nothing")]
pub(super) fn same_unknown(a: Option<Expr>, b: Option<Expr>) -> Option<Option<Expr>> {
    let same = match (&a, &b) {
        (Some(Expr::Sym { name, .. }), Some(Expr::Sym { name: other, .. })) => name == other,
        (Some(x), Some(y)) => x == y,
        _ => true,
    };
    same.then_some(a.or(b))
}

/// The operator with its sides swapped; `≠` is its own.
pub(super) fn turned(op: Op) -> Op {
    op.flipped().unwrap_or(op)
}

fn relation(op: Op, left: &Expr, right: &Expr) -> Option<Solved> {
    let (op, left, right) = match (left.has_symbol(), right.has_symbol()) {
        (true, false) => (op, left, right),
        (false, true) => (turned(op), right, left),
        _ => return None,
    };
    let (left, is_size) = match left {
        Expr::Call(Func::Abs, args) => (args.first()?, true),
        it => (it, false),
    };
    if !matches!(left, Expr::Sym { .. } | Expr::Call(Func::Named(_), _)) {
        return None;
    }
    let all = match op {
        Op::Eq if right.is_set() => pieces(right)?,
        Op::Ne if right.is_set() => complement(&pieces(right)?)?,
        _ if right.is_set() => return None,
        _ => half_lines(op, right)?,
    };
    if !is_size {
        return Some((Some(left.clone()), all));
    }
    // Both signs of the sizes that are not negative.
    let mut both = intersection(&all, &[Interval::above(&Expr::int(0), false)])?;
    let negated = both.iter().map(|it| Interval {
        start: it.end.clone().negated(),
        end: it.start.clone().negated(),
        left_open: it.right_open,
        right_open: it.left_open,
    });
    both.extend(negated.collect::<Vec<_>>());
    Some((Some(left.clone()), merged(both)?))
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
