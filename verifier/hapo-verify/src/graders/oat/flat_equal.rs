//! Comparison of flattened texts.

use super::flatten::{near_integer, python_float, without_separators};
use crate::expr::Expr;
use crate::meaning::plain_formula;
use crate::numeric;
use crate::parse::{self, Style};

pub(super) fn flat_equal(gold: &str, answer: &str) -> Option<&'static str> {
    if gold == answer {
        return Some("equal as plain text");
    }
    if answer.is_empty() {
        return None;
    }
    let (gold_parts, answer_parts) = (split_tuple(gold), split_tuple(answer));
    let ends = |it: &str| (it.chars().next(), it.chars().next_back());
    let may_be = gold_parts.len() == answer_parts.len()
        && !gold_parts.is_empty()
        && (gold_parts.len() == 1 || ends(gold) == ends(answer));
    let mut parts = gold_parts.iter().zip(&answer_parts);
    (may_be && parts.all(|(a, b)| flat_element_equal(a, b))).then_some("equal element by element")
}

fn flat_element_equal(gold: &str, answer: &str) -> bool {
    if is_fraction(gold) && is_fraction(answer) {
        return gold == answer;
    }
    let is_integer =
        |it: &str| python_float(&without_separators(it)).and_then(near_integer).is_some();
    if is_integer(gold) != is_integer(answer) || !may_be_evaluated(gold, answer) {
        return false;
    }
    evaluated(gold).zip(evaluated(answer)).is_some_and(|(a, b)| same(&a, &b))
}

/// The value of Python's arithmetic with products that are not written, as in `2x + sqrt(3)/2`.
fn evaluated(text: &str) -> Option<Expr> {
    let is_sign = |c: char| c.is_alphanumeric() || "_+-*/^!(). ".contains(c);
    let formula =
        || parse::arithmetic(&plain_formula(text), parse::Products::Implied, Style::Meant).ok();
    text.chars().all(is_sign).then(|| parse::scientific(text).or_else(formula))?
}

fn same(a: &Expr, b: &Expr) -> bool {
    if (a.has_float() || b.has_float())
        && let (Some(x), Some(y)) = (numeric::in_doubles(a), numeric::in_doubles(b))
    {
        return match (a.has_float(), b.has_float()) {
            (true, true) => x == y,
            // One side is exact: the other's rounding shows.
            (true, false) => numeric::is_within(b, x, 0.0),
            _ => numeric::is_within(a, y, 0.0),
        };
    }
    a == b || numeric::same_value(a, b).is_same()
}

fn split_tuple(s: &str) -> Vec<String> {
    let s = without_separators(s);
    let bracket = |c: char| matches!(c, '(' | ')' | '[' | ']');
    let mut chars = s.chars();
    if s.chars().count() > 2
        && chars.next().is_some_and(bracket)
        && chars.next_back().is_some_and(bracket)
        && !chars.as_str().contains(bracket)
    {
        return chars.as_str().split(',').map(|it| it.trim().to_owned()).collect();
    }
    if s.is_empty() { Vec::new() } else { vec![s] }
}

/// `-?digits.?/digits.?` with one free character at each end.
fn is_fraction(s: &str) -> bool {
    let digits = s.strip_prefix('-').unwrap_or(s);
    let Some((upper, lower)) = digits.split_once('/') else { return false };
    let mut free = upper.trim_start_matches(|c: char| c.is_ascii_digit()).chars();
    let upper_ok = upper.starts_with(|c: char| c.is_ascii_digit())
        && (free.next().is_none() || free.next().is_none());
    let lower = lower.trim_start_matches('0');
    let mut free = lower.trim_start_matches(|c: char| c.is_ascii_digit()).chars();
    upper_ok
        && lower.starts_with(|c: char| c.is_ascii_digit())
        && (free.next().is_none() || free.next().is_none())
}

/// At most two unknown letters, and no power that the original refuses to evaluate.
fn may_be_evaluated(gold: &str, answer: &str) -> bool {
    let text = format!("({gold})-({answer})");
    if text.contains("^(") {
        return false;
    }
    let bytes = text.as_bytes();
    for (at, _) in text.match_indices('^') {
        let n_digits = bytes[at + 1..].iter().take_while(|b| b.is_ascii_digit()).count();
        if n_digits > 1 || n_digits == 1 && bytes.get(at + 2) == Some(&b'^') {
            return false;
        }
    }
    let plain = text.replace("sqrt", "").replace("frac", "");
    let mut letters: Vec<char> = Vec::new();
    for c in plain.chars().filter(|c| c.is_alphabetic()) {
        if !letters.contains(&c) {
            letters.push(c);
            if letters.len() > 2 {
                return false;
            }
        }
    }
    true
}
