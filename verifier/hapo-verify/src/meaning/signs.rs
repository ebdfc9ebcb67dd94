//! Spellings that the reference graders cannot read, rewritten as LaTeX. One pass over the characters; the price is
//! that a spaced list of three-digit numbers (`1 200`) reads as one number.

use super::DEGREES;
use crate::cursor::{Cursor, closing, replaced, replaced_at};
use std::borrow::Cow;

/// `text` with signs as commands and thousands groups joined.
pub(crate) fn as_meant(text: &str) -> String {
    let out = replaced(text, |cursor, out| {
        let c = cursor.peek()?;
        cursor.take(c.len_utf8());
        match c {
            '√' => root(cursor, out),
            '∞' => out.push_str("\\infty "),
            '°' | '˚' => out.push_str("^\\circ"),
            '·' => out.push_str("\\cdot "),
            '⁄' => out.push('/'),
            '\u{a0}' | '\u{2009}' | '\u{202f}' => out.push(' '),
            '\u{202a}'..='\u{202e}' | '\u{200b}'..='\u{200f}' => {}
            _ => {
                if let Some((_, n, d)) = FRACTIONS.iter().find(|it| it.0 == c) {
                    out.extend(["\\frac{", n, "}{", d, "}"]);
                } else if let Some(digit) = superscript(c) {
                    let more = cursor.take_while(|c| superscript(c).is_some());
                    out.extend(["^{", digit]);
                    out.extend(more.chars().filter_map(superscript));
                    out.push('}');
                } else {
                    out.push(c);
                }
            }
        }
        Some(())
    });
    joined_thousands(&out.replace("\\mathrm{i}", "i").replace("\\text{i}", "i"))
}

/// The radicand behind a root's sign, in braces.
fn root(cursor: &mut Cursor<'_>, out: &mut String) {
    // A superscript just before the sign is its index.
    let cubic = out.strip_suffix("^{3}").filter(|it| !it.ends_with(char::is_alphanumeric));
    let index = cubic.map(str::len);
    out.truncate(index.unwrap_or(out.len()));
    out.push_str(if index.is_some() { "\\sqrt[3]" } else { "\\sqrt" });
    let radicand = match cursor.peek() {
        Some('{') | None => return,
        // The parenthesis bounds the radicand.
        Some('(') => {
            let rest = cursor.rest();
            let end = closing(rest, [b'(', b')']);
            cursor.take(end.map_or(rest.len(), |it| it + 1));
            &rest[1..end.unwrap_or(rest.len())]
        }
        Some(c) if c.is_ascii_digit() => cursor.take_while(|c| c.is_ascii_digit() || c == '.'),
        Some(c) => cursor.take(c.len_utf8()),
    };
    out.extend(["{", radicand, "}"]);
}

/// Fractions that are one character, with their numerators and denominators.
#[rustfmt::skip]
const FRACTIONS: [(char, &str, &str); 18] = [
    ('½', "1", "2"), ('⅓', "1", "3"), ('⅔', "2", "3"), ('¼', "1", "4"), ('¾', "3", "4"), ('⅕', "1", "5"), ('⅖', "2", "5"), ('⅗', "3", "5"),
    ('⅘', "4", "5"), ('⅙', "1", "6"), ('⅚', "5", "6"), ('⅐', "1", "7"), ('⅛', "1", "8"), ('⅜', "3", "8"), ('⅝', "5", "8"), ('⅞', "7", "8"),
    ('⅑', "1", "9"), ('⅒', "1", "10"),
];

fn superscript(c: char) -> Option<&'static str> {
    const SIGNS: [char; 11] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹', '⁻'];
    const PLAIN: &str = "0123456789-";
    let at = SIGNS.iter().position(|it| *it == c)?;
    Some(&PLAIN[at..=at])
}

/// `1\,625` and `1 625` as `1625`.
fn joined_thousands(text: &str) -> String {
    // Digits of the number that was read last, while it may still be a first group.
    let mut n_digits = 0_usize;
    replaced(text, |cursor, out| {
        let mut group = *cursor;
        if (1..=3).contains(&n_digits)
            && group.one_of(&["{\\,}", "\\,", "\\;", "\\ ", "~", " "]).is_some()
            && let Some(digits) = group.digits().filter(|it| it.len() == 3)
        {
            out.push_str(digits);
            (*cursor, n_digits) = (group, 3);
            return Some(());
        }
        n_digits = match cursor.peek()? {
            c if c.is_ascii_digit() => n_digits + 1,
            // After a decimal point nothing is grouped.
            '.' if n_digits > 0 => 4,
            _ => 0,
        };
        None
    })
}

/// A formula with ± inside of it as the two that it stands for.
pub(super) fn both_signs(text: &str) -> Option<[String; 2]> {
    let (both, n_signs) = with_signs(text);
    (n_signs > 0 && !text.contains([',', ';', '='])).then_some(both)
}

/// A point with one ± inside of it, as `(\pm 3, 0)`, as the two that it stands for.
pub(super) fn both_points(text: &str) -> Option<[String; 2]> {
    let inner = text.strip_prefix("\\left").unwrap_or(text).strip_prefix('(')?.strip_suffix(')')?;
    if !inner.contains(',') || inner.contains(['(', '[', ';', '=']) {
        return None;
    }
    let (both, n_signs) = with_signs(text);
    (n_signs == 1).then_some(both)
}

/// A text with the upper and with the lower of its signs ±, and how many there are.
fn with_signs(text: &str) -> ([String; 2], usize) {
    let mut n_signs = 0;
    let mut signed = |upper, lower| {
        n_signs = 0;
        replaced(text, |cursor, out| {
            let is_upper = cursor.eat("±").or_else(|| cursor.command("\\pm")).is_some();
            if !is_upper {
                cursor.command("\\mp")?;
            }
            n_signs += 1;
            out.push(if is_upper { upper } else { lower });
            Some(())
        })
    };
    let both = [signed('+', '-'), signed('-', '+')];
    (both, n_signs)
}

/// Names of functions that are often written without their backslash; a longer name before a shorter one.
const FUNCTIONS: [&str; 15] = [
    "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "sin", "cos", "tan", "cot", "sec", "csc",
    "log", "ln", "exp",
];

/// `10^-3` and `10**3` with their exponents in braces.
pub(super) fn exponents(text: &str) -> Cow<'_, str> {
    if !text.contains("^-") && !text.contains("**") {
        return Cow::Borrowed(text);
    }
    let text = replaced_at(text, "**", |cursor, out| {
        match cursor.take_while(|c| c.is_ascii_alphanumeric()) {
            "" => out.push('^'),
            exponent => out.extend(["^{", exponent, "}"]),
        }
        Some(())
    });
    Cow::Owned(replaced_at(&text, "^-", |cursor, out| {
        out.extend(["^{-", cursor.digits()?, "}"]);
        Some(())
    }))
}

/// `text` with the functions of plain text as commands: `sin(x)` and `sin x`.
pub(super) fn commands(text: &str) -> String {
    replaced(text, |cursor, out| {
        // The letters of a command or a longer word are no function.
        if out.ends_with(|c: char| c.is_ascii_alphabetic() || c == '\\' || c == '{') {
            return None;
        }
        let rest = cursor.rest();
        let is_pi = |it: &str| !it.starts_with(|c: char| c.is_alphanumeric());
        if rest.strip_prefix("pi").is_some_and(is_pi) {
            out.push_str("\\pi ");
            return cursor.eat("pi");
        }
        let name = cursor.one_of(&FUNCTIONS)?;
        cursor.rest().starts_with(['(', ' ', '^', '_', '\\']).then(|| out.extend(["\\", name]))
    })
}

/// `text` with the degrees under trigonometric functions as multiples of π.
pub(super) fn with_radians(text: &str) -> Cow<'_, str> {
    const FUNCTIONS: [&str; 6] = ["sin", "cos", "tan", "cot", "sec", "csc"];
    let has_function = FUNCTIONS.iter().any(|it| text.contains(it));
    let has_degrees = DEGREES[..6].iter().any(|it| text.contains(it));
    // An inverse function gives an angle and takes none.
    if !has_function || !has_degrees || text.contains("arc") || text.contains("^{-1}") {
        return Cow::Borrowed(text);
    }
    Cow::Owned(replaced(text, |cursor, out| {
        cursor.peek().filter(|c| c.is_ascii_digit() || *c == '.')?;
        let number = cursor.take_while(|c| c.is_ascii_digit() || c == '.');
        match cursor.one_of(&DEGREES[..6]) {
            Some(_) => out.extend(["{\\frac{", number, "\\pi}{180}}"]),
            None => out.push_str(number),
        }
        Some(())
    }))
}
