//! Numbers and formulas, by value.

use super::Comparison;
use crate::expr::Expr;
use crate::number::Rat;
use crate::numeric;
use num_traits::Zero;

/// 2^-54: what the reference's numerical comparison takes for zero.
const LAST_DIGIT: f64 = 5.551_115_123_125_783e-17;

impl Comparison<'_> {
    pub(super) fn values(&mut self, gold: &Expr, answer: &Expr) -> bool {
        if let (Expr::Matrix { cols, cells }, Expr::Matrix { cols: other, cells: theirs }) =
            (gold, answer)
        {
            return cols == other
                && cells.len() == theirs.len()
                && cells.iter().zip(theirs).all(|(a, b)| self.values(a, b));
        }
        if self.pairs_left == 0 {
            return false;
        }
        self.pairs_left -= 1;
        let holds_matrix = |it: &Expr| it.any(&mut |it| matches!(it, Expr::Matrix { .. }));
        if holds_matrix(gold) && holds_matrix(answer) {
            return match (gold.as_matrix(), answer.as_matrix()) {
                (Some(a), Some(b)) if &a != gold || &b != answer => self.values(&a, &b),
                _ => self.decided(numeric::same_value(gold, answer)),
            };
        }
        let atomic = |it: &Expr| matches!(bare(it), Expr::Num(_) | Expr::Float(_));
        let is_decimal = |it: &Expr| matches!(bare(it), Expr::Float(_));
        if atomic(gold) || atomic(answer) {
            if is_decimal(gold) || is_decimal(answer) {
                if self.rounded_equal(gold, answer) {
                    return self.because(true, "equal when rounded");
                }
            } else if let (Some(a), Some(b)) =
                (integer_or_percent(gold), integer_or_percent(answer))
                && a == b
            {
                return self.because(true, "equal integers, percent signs aside");
            }
        }
        if gold.has_float() || answer.has_float() {
            return self.inexact(gold, answer);
        }
        self.decided(numeric::same_value(gold, answer))
    }

    /// A literal decimal against a number: both to the same number of decimals. Not for integers: there 7.0000001 is not 7.
    fn rounded_equal(&self, gold: &Expr, answer: &Expr) -> bool {
        if is_exact_integer(gold) || is_exact_integer(answer) {
            return false;
        }
        let places = self.options.float_rounding;
        // A short decimal is what it says.
        let is_short = |it: &Expr| {
            let scaled = literal(it).zip(Rat::ten_pow(i64::from(places) - 1));
            scaled.and_then(|(n, scale)| n.mul(&scale)).is_some_and(|it| it.is_integer())
        };
        let literals = literal(gold).is_some() && literal(answer).is_some();
        if self.options.policy.reads_meaning() && literals && (is_short(gold) || is_short(answer)) {
            return literal(gold) == literal(answer);
        }
        match (numeric::rounded(gold, places), numeric::rounded(answer, places)) {
            // What rounds to nothing says nothing.
            (Some(a), Some(b))
                if self.options.policy.reads_meaning() && a.is_zero() && b.is_zero() =>
            {
                numeric::exact(gold) == numeric::exact(answer)
            }
            (Some(a), Some(b)) => a == b && self.agree_in_digits(gold, answer),
            _ => false,
        }
    }

    /// True if two values below one that are equal to six decimals agree in six digits too: 0.000002 is not 0.0000015.
    fn agree_in_digits(&self, gold: &Expr, answer: &Expr) -> bool {
        if !self.options.policy.reads_meaning() {
            return true;
        }
        let size = numeric::approximate(gold).map_or(1.0, f64::abs);
        let places = self.options.float_rounding + (-size.log10()).clamp(0.0, 300.0) as u32;
        numeric::rounded(gold, places) == numeric::rounded(answer, places)
    }

    /// A decimal that took part in a computation carries the error of double arithmetic.
    fn inexact(&mut self, gold: &Expr, answer: &Expr) -> bool {
        if let (Some(a), Some(b)) = (literal(gold), literal(answer))
            && a.is_integer()
            && b.is_integer()
            && a.bits().max(b.bits()) > 53
        {
            return self.because(a == b, "equal integers");
        }
        if let (Some(a), Some(b)) = (numeric::exact(gold), numeric::exact(answer))
            && a == b
            && self.options.policy.reads_meaning()
        {
            return self.because(true, "equal as exact rationals");
        }
        if self.options.policy.pays_for_doubles()
            && let (Some(a), Some(b)) = (numeric::in_doubles(gold), numeric::in_doubles(answer))
        {
            let atomic = |it: &Expr| matches!(it, Expr::Num(_) | Expr::Float(_) | Expr::Percent(_));
            // Where neither side is one literal the reference drops what is below its last digit.
            // Unlike there, the digit counts from the numbers' own size when they are small.
            let slack = if atomic(gold) || atomic(answer) {
                0.0
            } else {
                LAST_DIGIT.min(a.abs().max(b.abs()) * 4.0 * f64::EPSILON)
            };
            let near = if gold.has_float() == answer.has_float() {
                (a - b).abs() <= slack
            } else {
                // One side is exact: the other's rounding shows.
                let (exact, double) = if gold.has_float() { (answer, a) } else { (gold, b) };
                numeric::is_within(exact, double, slack)
            };
            // What is below the smallest double is neither zero nor another such number.
            let vanishes = a == 0.0 || b == 0.0;
            let near = near && (!vanishes || numeric::exact(gold) == numeric::exact(answer));
            // The root of a decimal is what it is, however doubles round it. A decimal power is the reference's.
            let reads_meaning = self.options.policy.reads_meaning();
            let is_power = |it: &Expr| {
                !reads_meaning && it.any(&mut |it| matches!(it, Expr::Pow(p) if p.1.has_float()))
            };
            let is_double = |it: &Expr| numeric::exact(it).is_some() || is_power(it);
            if near || is_double(gold) || is_double(answer) {
                return self.because(near, "equal in double arithmetic");
            }
        }
        self.decided(numeric::same_value(gold, answer))
    }

    pub(super) fn symbols(&mut self, gold: &Expr, answer: &Expr) -> bool {
        let same = match (gold.symbol(), answer.symbol()) {
            (Some(a), Some(b)) => a == b,
            (Some(a), None) => same_letters(a, answer) || is_written(answer, a),
            (None, Some(b)) => same_letters(b, gold) || is_written(gold, b),
            (None, None) => false,
        };
        self.because(same, "the same symbol")
    }
}

fn bare(e: &Expr) -> &Expr {
    match e {
        Expr::Percent(inner) => inner,
        it => it,
    }
}

fn literal(e: &Expr) -> Option<&Rat> {
    match e {
        Expr::Num(n) | Expr::Float(n) => Some(n),
        _ => None,
    }
}

/// An integer that was computed without decimals.
fn is_exact_integer(e: &Expr) -> bool {
    !e.has_float() && numeric::exact(e).is_some_and(|it| it.is_integer())
}

/// The value of an integer, or of an integral percentage without its sign.
fn integer_or_percent(e: &Expr) -> Option<&Rat> {
    match bare(e) {
        Expr::Num(n) if n.is_integer() => Some(n),
        _ => None,
    }
}

/// True if an exact number is written as `text`, as in `\\text{10}`.
fn is_written(number: &Expr, text: &str) -> bool {
    matches!(number, Expr::Num(n) if n.bits() <= 128 && n.to_string() == text)
}

/// True if a product of single symbols spells `name`.
fn same_letters(name: &str, product: &Expr) -> bool {
    match product {
        Expr::E => name == "e",
        Expr::Mul(factors) => {
            let letters = factors.iter().map(|it| match it {
                Expr::E => Some("e"),
                it => it.symbol(),
            });
            letters.collect::<Option<String>>().is_some_and(|it| it == name)
        }
        _ => false,
    }
}
