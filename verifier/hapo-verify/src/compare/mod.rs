//! The comparison of two readings: numbers, formulas, relations, sets, tuples, intervals, matrices. The order of the
//! questions is that of Math-Verify 0.9.0's `sympy_expr_eq`, because it decides which of two differently shaped answers
//! meet. Where it calls a computer algebra system, [`crate::numeric`] is called here.

mod collections;
mod conditions;
mod reals;
mod relations;
mod symbols;
mod values;

use crate::expr::Expr;
use crate::numeric::Decision;
use crate::options::MathOptions;
pub(crate) use conditions::{are_joined_otherwise, is_list_for_inequality, same_condition};
use relations::as_set;
pub(crate) use symbols::{complex, renamed, with_imaginary_unit, without_case};

/// Most pairs of elements that one comparison looks at.
const MAX_PAIRS: u32 = 4_000;

/// Compares readings and keeps the rule that decided last.
pub(crate) struct Comparison<'a> {
    options: &'a MathOptions,
    pairs_left: u32,
    /// The rule that accepted, or why nothing could be decided.
    pub(crate) reason: &'static str,
}

impl<'a> Comparison<'a> {
    pub(crate) fn new(options: &'a MathOptions) -> Comparison<'a> {
        Comparison { options, pairs_left: MAX_PAIRS, reason: "different" }
    }

    fn because(&mut self, same: bool, reason: &'static str) -> bool {
        if same {
            self.reason = reason;
        }
        same
    }

    fn decided(&mut self, decision: Decision) -> bool {
        let (same, reason) = match decision {
            Decision::Same(reason) => (true, reason),
            Decision::Near(reason) => (self.options.policy.pays_for_doubles(), reason),
            Decision::Different(reason) => (false, reason),
            Decision::Unknown => (false, "not decided within the bounds"),
        };
        self.reason = reason;
        same
    }

    pub(crate) fn equal(&mut self, gold: &Expr, answer: &Expr) -> bool {
        let Some(left) = self.pairs_left.checked_sub(1) else { return false };
        self.pairs_left = left;
        if let (Expr::Num(a), Expr::Num(b)) = (gold, answer) {
            return self.because(a == b, "equal numbers");
        }
        let (gold, answer) = self.unwrap_assignments(gold.clone(), answer.clone());
        if gold == Expr::Undefined {
            return false;
        }
        if structurally_equal(&gold, &answer) {
            return self.because(true, "the same expression");
        }
        if gold.is_relation() && answer.is_relation() {
            return self.relations(&gold, &answer);
        }
        let is_collection = |it: &Expr| it.is_set() || matches!(it, Expr::Tuple(_));
        if is_collection(&gold) || is_collection(&answer) {
            return self.sets(&gold, &answer);
        }
        if matches!(gold, Expr::Sym { .. }) || matches!(answer, Expr::Sym { .. }) {
            return self.symbols(&gold, &answer);
        }
        if gold.is_relation() || answer.is_relation() {
            return false;
        }
        self.values(&gold, &answer)
    }

    /// `x = 5` against `5`, `a = b = c` as `a = c`, a relation against a set.
    fn unwrap_assignments(&mut self, mut gold: Expr, mut answer: Expr) -> (Expr, Expr) {
        let (gold_assigns, answer_assigns) = (gold.is_assignment(), answer.is_assignment());
        let (gold_equates, answer_equates) = (gold.is_equation(), answer.is_equation());
        if gold_assigns {
            gold = shorten(gold);
        }
        if answer_assigns {
            answer = shorten(answer);
        }
        if answer_equates && !gold_equates {
            answer = last_right_side(answer);
        } else if gold_assigns && !answer_equates {
            gold = last_right_side(gold);
        }
        if gold.is_relation()
            && answer.is_set()
            && let Some(it) = as_set(&gold)
        {
            gold = it;
        }
        if self.options.allow_set_relation
            && answer.is_relation()
            && gold.is_set()
            && let Some(it) = as_set(&answer)
        {
            answer = it;
        }
        (gold, answer)
    }
}

/// The same expression; sets whatever their order.
fn structurally_equal(a: &Expr, b: &Expr) -> bool {
    match (a, b) {
        (Expr::Rel(op, x), Expr::Rel(other, y)) => {
            op == other && structurally_equal(&x.0, &y.0) && structurally_equal(&x.1, &y.1)
        }
        (Expr::Set(x), Expr::Set(y)) => {
            x.len() == y.len()
                && x.len() <= 64
                && x.iter().all(|it| y.contains(it))
                && y.iter().all(|it| x.contains(it))
        }
        _ => a == b,
    }
}

fn shorten(e: Expr) -> Expr {
    match e {
        Expr::Chain(links) => match links.as_slice() {
            [Expr::Rel(op, first), .., Expr::Rel(_, last)] => {
                Expr::rel(*op, first.0.clone(), last.1.clone())
            }
            links => links.last().cloned().unwrap_or(Expr::Undefined),
        },
        it => it,
    }
}

fn last_right_side(e: Expr) -> Expr {
    match e {
        Expr::Chain(mut links) => links.pop().map_or(Expr::Undefined, last_right_side),
        Expr::Rel(_, sides) => sides.1,
        it => it,
    }
}
