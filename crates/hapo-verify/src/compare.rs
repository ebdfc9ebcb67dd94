//! Whether two readings mean the same: numbers, formulas, relations, sets, tuples, intervals, matrices.
//!
//! The order of the questions is that of Math-Verify 0.9.0's `sympy_expr_eq`, because it decides which of two
//! differently shaped answers meet. What it asks a computer algebra system is asked of [`crate::numeric`] here.

use crate::expr::{Domain, Expr, Func, Interval, Op};

use crate::number::Rat;
use crate::numeric::{self, Decision};
use crate::options::{MathOptions, Percent, Strictness};
use num_traits::Zero;
use std::cmp::Ordering;

/// 2^-54: what the reference's numerical comparison takes for zero.
const LAST_DIGIT: f64 = 5.551_115_123_125_783e-17;

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
        Comparison {
            options,
            pairs_left: MAX_PAIRS,
            reason: "different",
        }
    }

    fn because(&mut self, same: bool, reason: &'static str) -> bool {
        if same {
            self.reason = reason;
        }
        same
    }

    fn decided(&mut self, decision: Decision) -> bool {
        match decision {
            Decision::Same(reason) => {
                self.reason = reason;
                true
            }
            Decision::Different(reason) => {
                self.reason = reason;
                false
            }
            Decision::Unknown => {
                self.reason = "not decided within the bounds";
                false
            }
        }
    }

    /// Whether `answer` means `gold`.
    pub(crate) fn equal(&mut self, gold: &Expr, answer: &Expr) -> bool {
        let Some(left) = self.pairs_left.checked_sub(1) else {
            return false;
        };
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

    // ---- values ---------------------------------------------------------------------------------------------------

    fn values(&mut self, gold: &Expr, answer: &Expr) -> bool {
        if let (
            Expr::Matrix { cols, cells },
            Expr::Matrix {
                cols: other,
                cells: theirs,
            },
        ) = (gold, answer)
        {
            if cols != other || cells.len() != theirs.len() {
                return false;
            }
            return cells.iter().zip(theirs).all(|(a, b)| self.values(a, b));
        }
        if self.pairs_left == 0 {
            return false;
        }
        self.pairs_left -= 1;
        let holds_matrix = |it: &Expr| it.any(&mut |it| matches!(it, Expr::Matrix { .. }));
        if holds_matrix(gold) && holds_matrix(answer) {
            return match (gold.as_matrix(), answer.as_matrix()) {
                (Some(a), Some(b)) if &a != gold || &b != answer => self.values(&a, &b),
                _ => {
                    let decision = numeric::same_value(gold, answer);
                    self.decided(decision)
                }
            };
        }
        if gold.has_infinity() || answer.has_infinity() {
            let (a, b) = (numeric::infinite_sign(gold), numeric::infinite_sign(answer));
            if a.is_some() || b.is_some() {
                return self.because(a == b, "the same infinity");
            }
        }
        let number = |it: &Expr| matches!(it, Expr::Num(_) | Expr::Float(_));
        let atomic = |it: &Expr| number(it) || matches!(it, Expr::Percent(inner) if number(inner));
        if atomic(gold) || atomic(answer) {
            if is_decimal(gold) || is_decimal(answer) {
                if self.rounded_equal(gold, answer) {
                    return self.because(true, "equal when rounded");
                }
            } else if let (Some(a), Some(b)) =
                (integer_or_percent(gold), integer_or_percent(answer))
                && self.options.percent == Percent::V09
            {
                return self.because(a == b, "equal integers, percent signs aside");
            }
        }
        if gold.has_float() || answer.has_float() {
            return self.inexact(gold, answer);
        }
        let decision = numeric::same_value(gold, answer);
        self.decided(decision)
    }

    /// A literal decimal against a number: both to the same number of decimals. Not for integers: there 7.0000001 is
    /// not 7.
    fn rounded_equal(&self, gold: &Expr, answer: &Expr) -> bool {
        if is_exact_integer(gold) || is_exact_integer(answer) {
            return false;
        }
        let places = self.options.float_rounding;
        match (
            numeric::rounded(gold, places),
            numeric::rounded(answer, places),
        ) {
            // What rounds to nothing says nothing.
            (Some(a), Some(b))
                if self.options.strict == Strictness::Truth && a.is_zero() && b.is_zero() =>
            {
                numeric::exact(gold) == numeric::exact(answer)
            }
            (Some(a), Some(b)) => a == b,
            _ => false,
        }
    }

    /// A decimal that took part in a computation carries the error of double arithmetic.
    fn inexact(&mut self, gold: &Expr, answer: &Expr) -> bool {
        if let (Some(a), Some(b)) = (numeric::exact(gold), numeric::exact(answer))
            && a == b
            && self.options.strict == Strictness::Truth
        {
            return self.because(true, "equal as exact rationals");
        }
        if let (Some(a), Some(b)) = (numeric::in_doubles(gold), numeric::in_doubles(answer)) {
            let atomic = |it: &Expr| matches!(it, Expr::Num(_) | Expr::Float(_) | Expr::Percent(_));
            // Where neither side is one literal the reference drops what is below its last digit.
            // Unlike there, the digit counts from the numbers' own size when they are small.
            let slack = if atomic(gold) || atomic(answer) {
                0.0
            } else {
                LAST_DIGIT.min(a.abs().max(b.abs()) * 4.0 * f64::EPSILON)
            };
            if gold.has_float() != answer.has_float() {
                // One side is exact: the other's rounding shows.
                let (exact, double) = if gold.has_float() {
                    (answer, a)
                } else {
                    (gold, b)
                };
                let near = numeric::is_within(exact, double, slack);
                return self.because(near, "equal in double arithmetic");
            }
            return self.because((a - b).abs() <= slack, "equal in double arithmetic");
        }
        let decision = numeric::same_value(gold, answer);
        self.decided(decision)
    }

    fn symbols(&mut self, gold: &Expr, answer: &Expr) -> bool {
        let name = |it: &Expr| match it {
            Expr::Sym { name, .. } => Some(name.to_string()),
            _ => None,
        };
        let same = match (name(gold), name(answer)) {
            (Some(a), Some(b)) => a == b,
            (Some(a), None) => same_letters(&a, answer) || is_written(answer, &a),
            (None, Some(b)) => same_letters(&b, gold) || is_written(gold, &b),
            (None, None) => false,
        };
        self.because(same, "the same symbol")
    }

    // ---- relations ------------------------------------------------------------------------------------------------

    fn relations(&mut self, gold: &Expr, answer: &Expr) -> bool {
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
                    return self.because(true, "the same relation, turned around");
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

    // ---- sets -----------------------------------------------------------------------------------------------------

    fn sets(&mut self, gold: &Expr, answer: &Expr) -> bool {
        if let (Expr::Interval(a), Expr::Interval(b)) = (gold, answer) {
            return a.left_open == b.left_open
                && a.right_open == b.right_open
                && self.equal(&a.start, &b.start)
                && self.equal(&a.end, &b.end);
        }
        if gold.is_set()
            && answer.is_set()
            && let (Some(a), Some(b)) = (pieces(gold), pieces(answer))
            && same_pieces(&a, &b)
        {
            return self.because(true, "the same set of reals");
        }
        match (gold, answer) {
            (Expr::Set(a), Expr::Set(b)) => self.unordered(&distinct(a), &distinct(b)),
            // A set drops repetitions, so a list with some never has a tuple's length.
            (Expr::Set(a), Expr::Tuple(b)) => distinct(a).len() == a.len() && self.ordered(a, b),
            (Expr::Tuple(a), Expr::Set(b)) => distinct(b).len() == b.len() && self.ordered(a, b),
            (Expr::Tuple(a), Expr::Tuple(b)) => self.ordered(a, b),
            (Expr::Interval(i), Expr::Set(b) | Expr::Tuple(b)) if i.left_open && i.right_open => {
                self.ordered(&[i.start.clone(), i.end.clone()], b)
            }
            (Expr::Set(a), Expr::Interval(i)) if i.left_open && i.right_open => {
                self.unordered(&distinct(a), &[i.start.clone(), i.end.clone()])
            }
            (Expr::Tuple(a), Expr::Interval(i)) if i.left_open && i.right_open => {
                self.ordered(a, &[i.start.clone(), i.end.clone()])
            }
            (Expr::Set(a), it) if !it.is_set() => {
                self.unordered(&distinct(a), std::slice::from_ref(it))
            }
            (it, Expr::Set(b)) if !it.is_set() => {
                self.unordered(std::slice::from_ref(it), &distinct(b))
            }
            (Expr::Union(a), Expr::Union(b)) => a.len() == b.len() && self.unordered(a, b),
            _ => false,
        }
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
        // Relations among the elements are only met by their place.
        let has_relation = |v: &[Expr]| v.iter().any(Expr::is_relation);
        if gold.len() > 16 || has_relation(gold) != has_relation(answer) {
            return false;
        }
        let mut free: Vec<&Expr> = answer.iter().collect();
        gold.iter().all(
            |it| match free.iter().position(|other| self.equal(it, other)) {
                Some(at) => {
                    free.swap_remove(at);
                    true
                }
                None => false,
            },
        )
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
        Expr::Chain(mut links) => {
            let last = links.pop();
            let first = links.into_iter().next();
            match (first, last) {
                (Some(Expr::Rel(op, first)), Some(Expr::Rel(_, last))) => {
                    Expr::rel(op, first.0, last.1)
                }
                (_, last) => last.unwrap_or(Expr::Undefined),
            }
        }
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

fn is_decimal(e: &Expr) -> bool {
    matches!(e, Expr::Float(_))
        || matches!(e, Expr::Percent(inner) if matches!(**inner, Expr::Float(_)))
}

/// An integer that was computed without decimals.
fn is_exact_integer(e: &Expr) -> bool {
    !e.has_float() && numeric::exact(e).is_some_and(|it| it.is_integer())
}

/// The value of an integer, or of an integral percentage without its sign.
fn integer_or_percent(e: &Expr) -> Option<&Rat> {
    match e {
        Expr::Num(n) if n.is_integer() => Some(n),
        Expr::Percent(inner) => match &**inner {
            Expr::Num(n) if n.is_integer() => Some(n),
            _ => None,
        },
        _ => None,
    }
}

/// Whether an exact number is written as `text`, as in `\\text{10}`.
fn is_written(number: &Expr, text: &str) -> bool {
    matches!(number, Expr::Num(n) if n.bits() <= 128 && n.to_string() == text)
}

/// Whether a product of single symbols spells `name`.
fn same_letters(name: &str, product: &Expr) -> bool {
    match product {
        Expr::E => name == "e",
        Expr::Mul(factors) => {
            let mut spelled = String::new();
            for it in factors {
                match it {
                    Expr::Sym { name, .. } => spelled.push_str(name),
                    Expr::E => spelled.push('e'),
                    _ => return false,
                }
            }
            spelled == name
        }
        _ => false,
    }
}

fn plain_symbols(e: &Expr, out: &mut Vec<Expr>) {
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

/// `x` with every `from` replaced.
fn substitute(e: &Expr, from: &Expr, to: &Expr) -> Expr {
    if e == from {
        return to.clone();
    }
    let all = |v: &[Expr]| {
        v.iter()
            .map(|it| substitute(it, from, to))
            .collect::<Vec<_>>()
    };
    match e {
        Expr::Add(v) => Expr::Add(all(v)),
        Expr::Mul(v) => Expr::Mul(all(v)),
        Expr::Call(f, v) => Expr::Call(f.clone(), all(v)),
        Expr::Pow(p) => Expr::pow(substitute(&p.0, from, to), substitute(&p.1, from, to)),
        Expr::Percent(a) => Expr::Percent(Box::new(substitute(a, from, to))),
        it => it.clone(),
    }
}

/// The solution of `e = 0` for `symbol`, where `e` is linear in it.
fn solve_linear(e: &Expr, symbol: &Expr) -> Option<Expr> {
    let at = |n: i64| substitute(e, symbol, &Expr::int(n));
    let (zero, one, two) = (at(0), at(1), at(2));
    let minus = |a: &Expr, b: &Expr| a.clone().plus(b.clone().negated());
    let slope = minus(&one, &zero);
    // Linear means that two steps cost twice one step, and that the slope is not zero.
    if !numeric::same_value(&minus(&two, &zero), &Expr::int(2).times(slope.clone())).is_same() {
        return None;
    }
    if !matches!(
        numeric::same_value(&slope, &Expr::int(0)),
        Decision::Different(_)
    ) {
        return None;
    }
    Some(zero.negated().times(Expr::pow(slope, Expr::int(-1))))
}

/// The elements without repetition.
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

// ---- sets of reals ------------------------------------------------------------------------------------------------

/// One interval of a set of reals, maybe a single point.
#[derive(Clone)]
struct Piece {
    start: Expr,
    end: Expr,
    left_open: bool,
    right_open: bool,
}

impl Piece {
    fn of(i: &Interval) -> Piece {
        Piece {
            start: i.start.clone(),
            end: i.end.clone(),
            left_open: i.left_open,
            right_open: i.right_open,
        }
    }

    fn point(at: &Expr) -> Piece {
        Piece {
            start: at.clone(),
            end: at.clone(),
            left_open: false,
            right_open: false,
        }
    }
}

/// The set as disjoint intervals in order, where every end is a known real.
fn pieces(e: &Expr) -> Option<Vec<Piece>> {
    let all = match e {
        Expr::Interval(i) => vec![Piece::of(i)],
        Expr::Set(v) if v.len() <= 64 => v.iter().map(Piece::point).collect(),
        Expr::Domain(Domain::Reals) => vec![Piece {
            start: Expr::NegInfinity,
            end: Expr::Infinity,
            left_open: true,
            right_open: true,
        }],
        Expr::Domain(Domain::Empty) => Vec::new(),
        Expr::Union(v) => {
            let mut all = Vec::new();
            for it in v {
                all.extend(pieces(it)?);
            }
            all
        }
        Expr::Intersection(v) => {
            let mut parts = v.iter();
            let mut all = pieces(parts.next()?)?;
            for it in parts {
                all = intersection(&all, &pieces(it)?)?;
            }
            all
        }
        Expr::Complement(p) => intersection(&pieces(&p.0)?, &complement(&pieces(&p.1)?)?)?,
        _ => return None,
    };
    merged(all)
}

fn merged(mut all: Vec<Piece>) -> Option<Vec<Piece>> {
    if all.len() > 24 {
        return None;
    }
    for it in &all {
        numeric::compare_real(&it.start, &it.end)?;
    }
    let mut undecided = false;
    all.sort_by(|a, b| {
        let order = numeric::compare_real(&a.start, &b.start);
        undecided |= order.is_none();
        order
            .unwrap_or(Ordering::Equal)
            .then(a.left_open.cmp(&b.left_open))
    });
    if undecided {
        return None;
    }
    let mut out: Vec<Piece> = Vec::with_capacity(all.len());
    for it in all {
        let Some(last) = out.last_mut() else {
            out.push(it);
            continue;
        };
        let touch = numeric::compare_real(&it.start, &last.end)?;
        let joined = touch.is_lt() || touch.is_eq() && !(it.left_open && last.right_open);
        if !joined {
            out.push(it);
            continue;
        }
        match numeric::compare_real(&it.end, &last.end)? {
            Ordering::Greater => {
                last.end = it.end;
                last.right_open = it.right_open;
            }
            Ordering::Equal => last.right_open &= it.right_open,
            Ordering::Less => {}
        }
    }
    Some(out)
}

fn complement(set: &[Piece]) -> Option<Vec<Piece>> {
    let mut out = Vec::with_capacity(set.len() + 1);
    let (mut start, mut open) = (Expr::NegInfinity, true);
    for it in set {
        let before = Piece {
            start: start.clone(),
            end: it.start.clone(),
            left_open: open,
            right_open: !it.left_open,
        };
        if is_inhabited(&before)? {
            out.push(before);
        }
        start = it.end.clone();
        open = !it.right_open;
    }
    let last = Piece {
        start,
        end: Expr::Infinity,
        left_open: open,
        right_open: true,
    };
    if is_inhabited(&last)? {
        out.push(last);
    }
    Some(out)
}

fn is_inhabited(it: &Piece) -> Option<bool> {
    Some(match numeric::compare_real(&it.start, &it.end)? {
        Ordering::Less => true,
        Ordering::Equal => !it.left_open && !it.right_open,
        Ordering::Greater => false,
    })
}

fn intersection(a: &[Piece], b: &[Piece]) -> Option<Vec<Piece>> {
    let mut out = Vec::new();
    for x in a {
        for y in b {
            let (start, left_open) = match numeric::compare_real(&x.start, &y.start)? {
                Ordering::Greater => (&x.start, x.left_open),
                Ordering::Less => (&y.start, y.left_open),
                Ordering::Equal => (&x.start, x.left_open || y.left_open),
            };
            let (end, right_open) = match numeric::compare_real(&x.end, &y.end)? {
                Ordering::Less => (&x.end, x.right_open),
                Ordering::Greater => (&y.end, y.right_open),
                Ordering::Equal => (&x.end, x.right_open || y.right_open),
            };
            let piece = Piece {
                start: start.clone(),
                end: end.clone(),
                left_open,
                right_open,
            };
            if is_inhabited(&piece)? {
                out.push(piece);
            }
        }
    }
    Some(out)
}

fn same_pieces(a: &[Piece], b: &[Piece]) -> bool {
    let same = |x: &Expr, y: &Expr| numeric::compare_real(x, y) == Some(Ordering::Equal);
    a.len() == b.len()
        && a.iter().zip(b).all(|(x, y)| {
            x.left_open == y.left_open
                && x.right_open == y.right_open
                && same(&x.start, &y.start)
                && same(&x.end, &y.end)
        })
}

/// The reals that satisfy a relation (or chain) in one symbol, where it is linear.
fn as_set(e: &Expr) -> Option<Expr> {
    let parts = match e {
        Expr::Chain(links) => {
            let mut sets = Vec::with_capacity(links.len());
            for it in links {
                sets.push(as_set(it)?);
            }
            return Some(Expr::Intersection(sets)).and_then(|it| simple(pieces(&it)?));
        }
        Expr::Rel(op, sides) => (*op, sides),
        _ => return None,
    };
    let (op, sides) = parts;
    let is_unknown = |it: &Expr| matches!(it, Expr::Sym { .. } | Expr::Call(Func::Named(_), _));
    let (op, bound) = if is_unknown(&sides.0) && !sides.1.has_symbol() {
        (op, sides.1.clone())
    } else if is_unknown(&sides.1) && !sides.0.has_symbol() {
        (op.flipped().unwrap_or(op), sides.0.clone())
    } else {
        let difference = sides.0.clone().plus(sides.1.clone().negated());
        let mut symbols = Vec::new();
        plain_symbols(&difference, &mut symbols);
        let [symbol] = symbols.as_slice() else {
            return None;
        };
        let root = numeric::exact(&solve_linear(&difference, symbol)?)?;
        let at = |n: i64| numeric::exact(&substitute(&difference, symbol, &Expr::int(n)));
        let falling = at(1)?.sub(&at(0)?)?.is_negative();
        (
            if falling {
                op.flipped().unwrap_or(op)
            } else {
                op
            },
            Expr::Num(root),
        )
    };
    let below = |open| Interval {
        start: Expr::NegInfinity,
        end: bound.clone(),
        left_open: true,
        right_open: open,
    };
    let above = |open| Interval {
        start: bound.clone(),
        end: Expr::Infinity,
        left_open: open,
        right_open: true,
    };
    Some(match op {
        Op::Eq => Expr::Set(vec![bound]),
        Op::Ne => Expr::Union(vec![
            Expr::Interval(Box::new(below(true))),
            Expr::Interval(Box::new(above(true))),
        ]),
        Op::Lt => Expr::Interval(Box::new(below(true))),
        Op::Le => Expr::Interval(Box::new(below(false))),
        Op::Gt => Expr::Interval(Box::new(above(true))),
        Op::Ge => Expr::Interval(Box::new(above(false))),
    })
}

/// Pieces as a set expression again.
fn simple(all: Vec<Piece>) -> Option<Expr> {
    let mut sets: Vec<Expr> = Vec::with_capacity(all.len());
    for it in all {
        if numeric::compare_real(&it.start, &it.end)?.is_eq() {
            sets.push(Expr::Set(vec![it.start]));
        } else {
            let (start, end) = (it.start, it.end);
            sets.push(Expr::Interval(Box::new(Interval {
                start,
                end,
                left_open: it.left_open,
                right_open: it.right_open,
            })));
        }
    }
    Some(match sets.len() {
        0 => Expr::Set(Vec::new()),
        1 => sets.swap_remove(0),
        _ => Expr::Union(sets),
    })
}

/// `answer` with its symbols renamed to those of `gold` in order, where there are as many.
pub(crate) fn renamed(gold: &Expr, answer: &Expr) -> Expr {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    plain_symbols(gold, &mut ours);
    plain_symbols(answer, &mut theirs);
    if ours.len() != theirs.len() || ours.is_empty() {
        return answer.clone();
    }
    let mut out = answer.clone();
    // In two steps, so that a swap of names does not collide.
    for (idx, from) in theirs.iter().enumerate() {
        out = substitute(
            &out,
            from,
            &Expr::Sym {
                name: format!("\u{0}{idx}").into(),
                complex: false,
            },
        );
    }
    for (idx, to) in ours.iter().enumerate() {
        out = substitute(
            &out,
            &Expr::Sym {
                name: format!("\u{0}{idx}").into(),
                complex: false,
            },
            to,
        );
    }
    out
}

/// `e` with the symbol `i` read as the imaginary unit; not where it may count something.
pub(crate) fn complex(e: Expr) -> Expr {
    let i = Expr::Sym {
        name: "i".into(),
        complex: false,
    };
    let counts = e.any(&mut |it| {
        matches!(
            it,
            Expr::Call(Func::Sum | Func::Product | Func::Integral, _)
        )
    });
    if counts || !e.any(&mut |it| *it == i) {
        e
    } else {
        substitute(&e, &i, &Expr::I)
    }
}

/// `e` with the symbol `i` read as the imaginary unit, where that is its only symbol.
pub(crate) fn with_imaginary_unit(e: &Expr) -> Option<Expr> {
    let mut symbols = Vec::new();
    plain_symbols(e, &mut symbols);
    let [only] = symbols.as_slice() else {
        return None;
    };
    matches!(only, Expr::Sym { name, .. } if &**name == "i").then(|| substitute(e, only, &Expr::I))
}
