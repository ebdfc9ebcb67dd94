//! The reals that meet a relation which says where its unknown lies: `x > 1`, `1 < x \\le 3`, `x \\in [1, 4]`.

use super::reals::{complement, intersection, merged, pieces, simple};
use crate::expr::{Expr, Func, Interval, Op};

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
