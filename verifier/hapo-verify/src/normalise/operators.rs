//! Malformed roots, fractions and powers.

use super::replace_all;
use crate::work;

pub(super) fn fix_operators(text: &mut String) {
    if text.contains('^') {
        bracket_argument(text, "^", "^{");
    }
    if text.contains("sqrt") {
        bracket_argument(text, "sqrt", "\\sqrt{");
    }
    if text.contains("\\frac") {
        two_digits(text, "\\frac");
    }
    if text.contains("\\log_") {
        two_digits(text, "\\log_");
    }
    if text.contains("\\frac") {
        brace_then_digit(text);
        digit_then_brace(text);
    }
    if text.contains("sqrt") {
        root_digit(text);
        replace_all(text, " sqrt", "\\sqrt");
        wrap_roots(text);
    }
    if text.contains("\\frac") {
        wrap_fractions(text);
    }
    if text.contains('/') {
        slash_fraction(text);
    }
}

fn one_space(rest: &str) -> usize {
    rest.chars().next().filter(|c| c.is_whitespace()).map_or(0, char::len_utf8)
}

/// `op(…)` becomes `op{…}`, up to the first closing parenthesis.
fn bracket_argument(text: &mut String, op: &str, new: &str) {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    let mut more = true;
    while let Some(at) = rest.find(op) {
        work::count(at);
        out.push_str(&rest[..at]);
        let after = &rest[at + op.len()..];
        let after = &after[one_space(after)..];
        let close = if more { after.strip_prefix('(').map(|inner| inner.find(')')) } else { None };
        work::count(close.flatten().unwrap_or(0));
        if close == Some(None) {
            more = false;
        }
        if let Some(Some(close)) = close {
            out.push_str(new);
            out.push_str(&after[1..=close]);
            out.push('}');
            rest = &after[close + 2..];
        } else {
            out.push_str(op);
            rest = &rest[at + op.len()..];
        }
    }
    out.push_str(rest);
    *text = out;
}

/// `\frac12` and `\log_28`: the first digit, then the rest of the number.
fn two_digits(text: &mut String, command: &str) {
    rewrite(text, command, |rest, out| {
        let start = one_space(rest);
        let first = rest[start..].bytes().next().filter(u8::is_ascii_digit)?;
        let second = start + 1 + one_space(&rest[start + 1..]);
        let n_digits = rest[second..].bytes().take_while(u8::is_ascii_digit).count();
        if n_digits == 0 {
            return None;
        }
        out.push_str(command);
        out.push('{');
        out.push(first as char);
        out.push_str("}{");
        out.push_str(&rest[second..second + n_digits]);
        out.push('}');
        Some(second + n_digits)
    });
}

/// `\frac{…}3`: the digit after any later closing brace is wrapped.
fn brace_then_digit(text: &mut String) {
    let mut none_left = false;
    rewrite(text, "\\frac", |rest, out| {
        let open = one_space(rest);
        if none_left || !rest[open..].starts_with('{') {
            return None;
        }
        for (at, _) in rest[open + 1..].match_indices('}') {
            work::count(1);
            let close = open + 1 + at;
            let digit = close + 1 + one_space(&rest[close + 1..]);
            if rest[digit..].starts_with(|c: char| c.is_ascii_digit()) {
                out.push_str("\\frac");
                out.push_str(&rest[open..=close]);
                out.push('{');
                out.push_str(&rest[digit..=digit]);
                out.push('}');
                return Some(digit + 1);
            }
        }
        none_left = true;
        None
    });
}

/// `\frac3{…}`: the digit is wrapped.
fn digit_then_brace(text: &mut String) {
    rewrite(text, "\\frac", |rest, out| {
        let start = one_space(rest);
        let digit = rest[start..].bytes().next().filter(u8::is_ascii_digit)?;
        let open = start + 1 + one_space(&rest[start + 1..]);
        if !rest[open..].starts_with('{') || !rest[open..].contains('}') {
            return None;
        }
        out.push_str("\\frac{");
        out.push(digit as char);
        out.push('}');
        Some(open)
    });
}

fn root_digit(text: &mut String) {
    rewrite(text, "\\sqrt", |rest, out| {
        let start = one_space(rest);
        let digit = rest[start..].bytes().next().filter(u8::is_ascii_digit)?;
        out.push_str("\\sqrt{");
        out.push(digit as char);
        out.push('}');
        Some(start + 1)
    });
}

/// Runs `rule` on the text after each `command`; it writes its result and returns how much it used, or nothing.
fn rewrite(
    text: &mut String,
    command: &str,
    mut rule: impl FnMut(&str, &mut String) -> Option<usize>,
) {
    let mut out = String::with_capacity(text.len() + 8);
    let mut rest = text.as_str();
    while let Some(at) = rest.find(command) {
        out.push_str(&rest[..at]);
        let after = &rest[at + command.len()..];
        if let Some(used) = rule(after, &mut out) {
            rest = &after[used..];
        } else {
            out.push_str(command);
            rest = after;
        }
    }
    out.push_str(rest);
    *text = out;
}

/// `\sqrt x` becomes `\sqrt{x}`.
fn wrap_roots(text: &mut String) {
    if !text.contains("\\sqrt") {
        return;
    }
    let mut parts = text.split("\\sqrt");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let part = part.trim_start();
        out.push_str("\\sqrt");
        match part.chars().next() {
            Some(c) if c != '{' && c != '[' => {
                out.push('{');
                out.push(c);
                out.push('}');
                out.push_str(&part[c.len_utf8()..]);
            }
            _ => out.push_str(part),
        }
    }
    *text = out;
}

/// `\frac ab` becomes `\frac{a}{b}`; a fraction with less than two characters after it leaves the text as it was.
fn wrap_fractions(text: &mut String) {
    let mut parts = text.split("\\frac");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let part = part.trim_start();
        out.push_str("\\frac");
        if part.starts_with('{') {
            out.push_str(part);
            continue;
        }
        let mut chars = part.chars();
        let (Some(a), Some(b)) = (chars.next(), chars.next()) else {
            return;
        };
        out.push('{');
        out.push(a);
        out.push('}');
        if b == '{' {
            out.push_str(&part[a.len_utf8()..]);
        } else {
            out.push('{');
            out.push(b);
            out.push('}');
            out.push_str(chars.as_str());
        }
    }
    *text = out;
}

/// `a/b` of two plain integers becomes a fraction.
fn slash_fraction(text: &mut String) {
    let Some((a, b)) = text.split_once('/') else {
        return;
    };
    if is_plain_integer(a) && is_plain_integer(b) {
        *text = format!("\\frac{{{a}}}{{{b}}}");
    }
}

/// One digit or more, and nothing else.
pub(crate) fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
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
