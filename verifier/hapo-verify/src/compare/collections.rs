//! Sets, tuples and intervals, element by element.

use super::Comparison;
use super::reals::{pieces, same_pieces};
use crate::expr::{Expr, Op};
use crate::numeric;
use std::cmp::Ordering;

impl Comparison<'_> {
    pub(super) fn sets(&mut self, gold: &Expr, answer: &Expr) -> bool {
        if let (Expr::Interval(a), Expr::Interval(b)) = (gold, answer) {
            return a.left_open == b.left_open
                && a.right_open == b.right_open
                && self.equal(&a.start, &b.start)
                && self.equal(&a.end, &b.end);
        }
        let lists = matches!((gold, answer), (Expr::Set(_), Expr::Set(_)));
        if gold.is_set()
            && answer.is_set()
            && !(lists && self.options.policy.reads_meaning())
            && let (Some(a), Some(b)) = (pieces(gold), pieces(answer))
            && same_pieces(&a, &b)
        {
            return self.because(true, "the same set of reals");
        }
        match (gold, answer) {
            (Expr::Set(a), Expr::Set(b)) => self.unordered(&self.listed(a), &self.listed(b)),
            // A set drops repetitions, so a list with some never has a tuple's length.
            (Expr::Set(a), Expr::Tuple(b)) => self.listed(a).len() == a.len() && self.ordered(a, b),
            (Expr::Tuple(a), Expr::Set(b)) => self.listed(b).len() == b.len() && self.ordered(a, b),
            (Expr::Tuple(a), Expr::Tuple(b)) => self.ordered(a, b),
            (Expr::Interval(i), Expr::Set(b) | Expr::Tuple(b)) if i.left_open && i.right_open => {
                self.ordered(&[i.start.clone(), i.end.clone()], b)
            }
            (Expr::Set(a), Expr::Interval(i)) if i.left_open && i.right_open => {
                self.unordered(&self.listed(a), &[i.start.clone(), i.end.clone()])
            }
            (Expr::Tuple(a), Expr::Interval(i)) if i.left_open && i.right_open => {
                self.ordered(a, &[i.start.clone(), i.end.clone()])
            }
            (Expr::Set(a), it) if !it.is_set() => {
                self.unordered(&self.listed(a), std::slice::from_ref(it))
            }
            (it, Expr::Set(b)) if !it.is_set() => {
                self.unordered(std::slice::from_ref(it), &self.listed(b))
            }
            (Expr::Union(a), Expr::Union(b)) => a.len() == b.len() && self.unordered(a, b),
            _ => false,
        }
    }

    /// The elements of a list: without repetition for Math-Verify, as they are written where meaning counts.
    fn listed(&self, items: &[Expr]) -> Vec<Expr> {
        if self.options.policy.reads_meaning() { items.to_vec() } else { distinct(items) }
    }

    fn ordered(&mut self, gold: &[Expr], answer: &[Expr]) -> bool {
        gold.len() == answer.len() && gold.iter().zip(answer).all(|(a, b)| self.equal(a, b))
    }

    /// Pairs the elements by size; where that fails, each with the first that is equal and still free.
    fn unordered(&mut self, gold: &[Expr], answer: &[Expr]) -> bool {
        if gold.len() != answer.len() {
            return false;
        }
        if gold.len() == 1 {
            return self.equal(&gold[0], &answer[0]);
        }
        let (a, b) = (sorted(gold), sorted(answer));
        if a.iter().zip(&b).all(|(a, b)| self.equal(a, b)) {
            return true;
        }
        // Relations among the elements are compared by their positions alone.
        let has_relation = |v: &[Expr]| v.iter().any(Expr::is_relation);
        if gold.len() > 16 || has_relation(gold) != has_relation(answer) {
            return false;
        }
        let mut free: Vec<&Expr> = answer.iter().collect();
        gold.iter().all(|it| {
            let found = free.iter().position(|other| self.equal(it, other));
            found.map(|at| free.swap_remove(at)).is_some()
        })
    }
}

fn distinct(items: &[Expr]) -> Vec<Expr> {
    let mut out: Vec<Expr> = Vec::with_capacity(items.len());
    for it in items {
        // Long lists are compared as they are: looking for repetitions in them is not worth the square of their length.
        if items.len() > 128 || !out.contains(it) {
            out.push(it.clone());
        }
    }
    out
}

fn sorted(items: &[Expr]) -> Vec<&Expr> {
    let value = |it: &Expr| match it {
        Expr::Rel(Op::Eq, sides) if sides.0.is_only_symbols() => numeric::approximate(&sides.1),
        it => numeric::approximate(it),
    };
    let mut keyed: Vec<(Option<f64>, &Expr)> = items.iter().map(|it| (value(it), it)).collect();
    keyed.sort_by(|a, b| match (a.0, b.0) {
        (Some(x), Some(y)) => x.total_cmp(&y),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    });
    keyed.into_iter().map(|it| it.1).collect()
}
