//! Equations and inequalities.

use super::symbols::plain_symbols;
use super::{Comparison, structurally_equal};
use crate::expr::{Expr, Func, Op};
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
