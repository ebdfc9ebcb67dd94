//! OAT's `_normalize`, and the comparison of flattened texts.

use super::{MAX_ANSWER, whole_text};
use crate::cursor::{Cursor, is_among, replace_at, replaced};
use crate::expr::Expr;
use crate::meaning::plain_formula;
use crate::numeric;
use crate::parse::{self, Style};

/// OAT's `_normalize`: LaTeX as plain text, lower case, without spaces, braces, percent signs and some units.
pub(super) fn flatten(text: &str) -> String {
    let text =
        text.strip_suffix('\n').and_then(whole_text).or_else(|| whole_text(text)).unwrap_or(text);
    if text.len() > MAX_ANSWER {
        return text.to_owned();
    }
    let mut s = text.replace("\\%", "").replace("\\$", "").replace(['$', '%'], "");
    s = s.replace(" or ", " , ").replace(" and ", " , ");
    s = s.replace("million", "*10^6").replace("billion", "*10^9").replace("trillion", "*10^12");
    for unit in MEASURES.split(' ') {
        replace_at(&mut s, unit, |cursor, _| {
            without_measure(cursor);
            Some(())
        });
    }
    replace_at(&mut s, "^", |cursor, _| {
        blanks(cursor);
        cursor.eat("\\circ")
    });
    if let Some(inner) = s.strip_prefix('{').and_then(|it| it.strip_suffix('}')) {
        s = String::from(inner);
    }
    replace_at(&mut s, ",\\!", |cursor, _| {
        blanks(cursor);
        Some(())
    });
    if let Some(integer) = python_float(&s).and_then(near_integer) {
        s = integer;
    }
    if s.contains('\\') {
        s = plain_text(&s);
    }
    replace_at(&mut s, "-", |cursor, out| {
        out.push('-');
        blanks(cursor);
        Some(())
    });
    // `7 3/4` is `7+3/4`.
    s = replaced(&s, |cursor, out| {
        let whole = cursor.digit()?;
        cursor.one(|c| c == ' ')?;
        blanks(cursor);
        out.extend([whole, "+", cursor.digit()?]);
        Some(())
    });
    s.retain(|c| !matches!(c, ' ' | '{' | '}'));
    s = s.to_lowercase();
    if let Some(integer) = python_float(&without_separators(&s)).and_then(near_integer) {
        // The value is computed without any comma at all.
        s = python_float(&s.replace(',', "")).map_or(integer, |it| format!("{:.0}", it.trunc()));
    }
    s
}

/// Units that are dropped, in this order.
const MEASURES: &str = "degree cm centimeter meter mile second minute hour day week month year foot \
                        feet inch yard";

fn without_measure(cursor: &mut Cursor<'_>) {
    cursor.eat("es");
    cursor.eat("s");
    blanks(cursor);
    let mut power = *cursor;
    if power.eat("^").is_some() && power.digits().is_some() {
        *cursor = power;
    }
}

fn blanks(cursor: &mut Cursor<'_>) {
    cursor.take_while(|c| c == ' ');
}

/// The numbers that Python's `float()` reads, apart from the infinities.
fn python_float(s: &str) -> Option<f64> {
    let text = s.trim();
    let valid = text.bytes().all(|b| b.is_ascii_digit() || b".eE+-".contains(&b));
    if !valid || !text.bytes().any(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse::<f64>().ok().filter(|it| it.is_finite())
}

/// The integer within 1e-7 of a float.
fn near_integer(x: f64) -> Option<String> {
    let nearest = x.round_ties_even();
    ((x - nearest).abs() <= 1e-7)
        .then(|| format!("{:.0}", if nearest == 0.0 { 0.0 } else { nearest }))
}

/// `1,234` as `1234`; commas that separate anything else stay.
fn without_separators(s: &str) -> String {
    let groups: Vec<&str> = s.split(',').collect();
    let mut out = String::new();
    for (idx, group) in groups.iter().enumerate() {
        out.push_str(group);
        let Some(next) = groups.get(idx + 1) else { break };
        let digits = next.bytes().take_while(u8::is_ascii_digit).count();
        let separates = digits == 3 && out.ends_with(|c: char| c.is_ascii_digit());
        out.push_str(if separates { "" } else { "," });
    }
    out
}

/// LaTeX as a reader would type it: `\frac{a}{b}` is `a/b` and `\sqrt[3]{x}` is `sqrt(x)`, brackets and index lost.
fn plain_text(s: &str) -> String {
    let s =
        s.replace("\\tfrac", "\\frac").replace("\\dfrac", "\\frac").replace("\\frac", " \\frac");
    let mut out = String::with_capacity(s.len());
    write_plain(&s, &mut out, 0);
    out.trim().to_owned()
}

const MAX_NESTING: usize = 48;

fn write_plain(s: &str, out: &mut String, depth: usize) {
    if depth > MAX_NESTING {
        out.push_str(s);
        return;
    }
    let mut cursor = Cursor::new(s);
    while let Some(c) = cursor.peek() {
        cursor.take(c.len_utf8());
        match c {
            '\\' => write_command(&mut cursor, out, depth),
            '{' | '}' => {}
            '~' => out.push(' '),
            '&' => out.push_str("   "),
            _ => out.push(c),
        }
    }
}

/// The argument here: a group, a command, or one character.
fn argument<'a>(cursor: &mut Cursor<'a>) -> &'a str {
    cursor.spaces();
    let start = *cursor;
    match cursor.peek() {
        None => "",
        Some('{') => match cursor.group() {
            Some(inner) => inner,
            None => &cursor.take(cursor.rest().len())[1..],
        },
        Some('\\') => {
            cursor.take(1);
            if cursor.letters().is_empty() {
                cursor.one(|_| true);
            }
            cursor.since(&start)
        }
        Some(c) => cursor.take(c.len_utf8()),
    }
}

/// Writes the command whose backslash was read.
fn write_command(cursor: &mut Cursor<'_>, out: &mut String, depth: usize) {
    match cursor.letters() {
        "" => match cursor.one(|_| true) {
            Some("," | ";" | ":" | " ") => out.push(' '),
            Some("\\") => out.push(';'),
            Some("!") | None => {}
            Some(sign) => out.push_str(sign),
        },
        "frac" | "cfrac" => {
            write_plain(argument(cursor), out, depth + 1);
            out.push('/');
            write_plain(argument(cursor), out, depth + 1);
        }
        "sqrt" => {
            let mut index = *cursor;
            index.spaces();
            if index.eat("[").is_some()
                && let Some(len) = index.rest().find(']')
            {
                index.take(len + 1);
                *cursor = index;
            }
            out.push_str("sqrt(");
            write_plain(argument(cursor), out, depth + 1);
            out.push(')');
        }
        name @ ("begin" | "end") => {
            out.push(if name == "begin" { '[' } else { ']' });
            argument(cursor);
        }
        name => {
            if is_among(FUNCTIONS, name) {
                out.push_str(name);
            } else if let Some((_, sign)) = SIGNS.iter().find(|it| it.0.contains(&name)) {
                out.push_str(sign);
            } else {
                // Any other symbol is a sign different from all others.
                out.extend(["\u{1}", name, "\u{1}"]);
            }
            // White space after a command belongs to it.
            cursor.spaces();
        }
    }
}

/// Commands that are written as their name.
const FUNCTIONS: &str = "pi sin cos tan cot sec csc log ln exp arcsin arccos arctan sinh cosh tanh \
    max min lim gcd det deg";

/// Commands that are written as a sign, or not at all.
#[rustfmt::skip]
const SIGNS: [(&[&str], &str); 13] = [
    (&["cdot", "times"], "*"), (&["div"], "÷"), (&["pm"], "±"), (&["infty"], "inf"), (&["cup"], "U"), (&["in"], "∈"),
    (&["le", "leq"], "≤"), (&["ge", "geq"], "≥"), (&["ne", "neq"], "≠"), (&["circ"], "∘"), (&["quad", "qquad"], " "),
    (&["left", "right", "displaystyle", "limits", "big", "Big", "bigg", "Bigg", "operatorname", "boxed", "fbox"], ""),
    (&["mathbf", "mathrm", "mathit", "text", "textbf", "textit", "textnormal", "textrm", "mbox", "rm"], ""),
];

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
