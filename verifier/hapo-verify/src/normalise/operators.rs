//! Malformed roots, fractions and powers.

use super::replace_all;
use crate::cursor::{Cursor, behind_each, replace_at};
use crate::work;

pub(super) fn fix_operators(text: &mut String) {
    bracket_argument(text, "^", "^{");
    bracket_argument(text, "sqrt", "\\sqrt{");
    two_digits(text, "\\frac");
    two_digits(text, "\\log_");
    brace_then_digit(text);
    digit_then_brace(text);
    if text.contains("sqrt") {
        replace_at(text, "\\sqrt", |cursor, out| {
            one_space(cursor);
            out.extend(["\\sqrt{", cursor.digit()?, "}"]);
            Some(())
        });
        replace_all(text, " sqrt", "\\sqrt");
        wrap_roots(text);
    }
    if text.contains("\\frac")
        && let Some(it) =
            behind_each(text, "\\frac", |part, out| brace_pair(part.trim_start(), out))
    {
        *text = it;
    }
    slash_fraction(text);
}

fn one_space(cursor: &mut Cursor<'_>) {
    cursor.one(char::is_whitespace);
}

/// `op(…)` becomes `op{…}`, up to the first closing parenthesis.
fn bracket_argument(text: &mut String, op: &str, new: &str) {
    let mut more = true;
    replace_at(text, op, |cursor, out| {
        one_space(cursor);
        cursor.eat("(").filter(|()| more)?;
        let close = cursor.rest().find(')');
        more = close.is_some();
        work::count(close.unwrap_or(0));
        out.extend([new, cursor.take(close?), "}"]);
        cursor.eat(")")
    });
}

/// `\frac12` and `\log_28`: the first digit, then the rest of the number.
fn two_digits(text: &mut String, command: &str) {
    replace_at(text, command, |cursor, out| {
        one_space(cursor);
        let first = cursor.digit()?;
        one_space(cursor);
        out.extend([command, "{", first, "}{", cursor.digits()?, "}"]);
        Some(())
    });
}

/// `\frac{…}3`: the digit after any later closing brace is wrapped.
fn brace_then_digit(text: &mut String) {
    let mut none_left = false;
    replace_at(text, "\\frac", |cursor, out| {
        one_space(cursor);
        let rest = cursor.rest();
        if none_left || !rest.starts_with('{') {
            return None;
        }
        for (close, _) in rest.match_indices('}') {
            work::count(1);
            let mut behind = *cursor;
            behind.take(close + 1);
            one_space(&mut behind);
            if let Some(digit) = behind.digit() {
                out.extend(["\\frac", &rest[..=close], "{", digit, "}"]);
                *cursor = behind;
                return Some(());
            }
        }
        none_left = true;
        None
    });
}

/// `\frac3{…}`: the digit is wrapped.
fn digit_then_brace(text: &mut String) {
    replace_at(text, "\\frac", |cursor, out| {
        one_space(cursor);
        let digit = cursor.digit()?;
        one_space(cursor);
        let is_braced = cursor.rest().starts_with('{') && cursor.rest().contains('}');
        is_braced.then(|| out.extend(["\\frac{", digit, "}"]))
    });
}

/// `\sqrt x` becomes `\sqrt{x}`.
fn wrap_roots(text: &mut String) {
    let wrapped = behind_each(text, "\\sqrt", |part, out| {
        brace_first(part.trim_start(), &['{', '['], out).or(Some(()))
    });
    *text = wrapped.unwrap_or_default();
}

/// `a` behind a root as `{a}`, unless it is a bracket that is kept; `None` for nothing.
pub(crate) fn brace_first(part: &str, kept: &[char], out: &mut String) -> Option<()> {
    let mut part = Cursor::new(part);
    part.peek()?;
    if let Some(c) = part.one(|c| !kept.contains(&c)) {
        out.extend(["{", c, "}"]);
    }
    out.push_str(part.rest());
    Some(())
}

/// `ab` behind a fraction as `{a}{b}`; `None` for less than two characters.
pub(crate) fn brace_pair(part: &str, out: &mut String) -> Option<()> {
    let mut part = Cursor::new(part);
    if let Some(upper) = part.one(|c| c != '{') {
        out.extend(["{", upper, "}"]);
        match part.one(|c| c != '{') {
            Some(lower) => out.extend(["{", lower, "}"]),
            None => part.peek().map(|_| ())?,
        }
    } else if part.rest().is_empty() {
        return None;
    }
    out.push_str(part.rest());
    Some(())
}

/// `a/b` of two plain integers becomes a fraction.
fn slash_fraction(text: &mut String) {
    if let Some((a, b)) = text.split_once('/')
        && is_plain_integer(a)
        && is_plain_integer(b)
    {
        *text = format!("\\frac{{{a}}}{{{b}}}");
    }
}

/// Written as a computer prints it: no sign but a minus, no leading zero.
pub(crate) fn is_plain_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    match digits.as_bytes() {
        [b'0'] => !text.starts_with('-'),
        [] | [b'0', ..] => false,
        all => all.iter().all(u8::is_ascii_digit),
    }
}
