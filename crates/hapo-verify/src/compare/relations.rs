//! Equations and inequalities.

use super::symbols::solve_linear;
use super::{Comparison, structurally_equal};
use crate::expr::{Expr, Func, Op};
use crate::numeric;

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

    /// Equations in several symbols that say the same of one of them.
    fn same_solution(&mut self, gold: &Expr, answer: &Expr) -> bool {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        plain_symbols(gold, &mut ours);
        plain_symbols(answer, &mut theirs);
        if ours.len() < 2
            || ours.len() != theirs.len()
            || !ours.iter().all(|it| theirs.contains(it))
            || ours.len() > 8
        {
            return false;
        }
        if gold.any(&mut |it| matches!(it, Expr::Call(Func::Named(_), _))) {
            return false;
        }
        ours.sort_by_key(ToString::to_string);
        for symbol in &ours {
            if let (Some(a), Some(b)) = (solve_linear(gold, symbol), solve_linear(answer, symbol)) {
                let same = numeric::same_value(&a, &b).is_same();
                return self.because(same, "equations with the same solution");
            }
        }
        false
    }
}

pub(super) fn plain_symbols(e: &Expr, out: &mut Vec<Expr>) {
    if matches!(e, Expr::Sym { .. }) {
        if !out.contains(e) {
            out.push(e.clone());
        }
        return;
    }
    for it in e.children() {
        plain_symbols(it, out);
    }
}
