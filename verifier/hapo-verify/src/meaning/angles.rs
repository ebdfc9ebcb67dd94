//! Degrees inside of trigonometric functions, and `cis`.

use super::{DEGREES, FRACTIONS};
use crate::cursor::{Cursor, closing, replaced};
use std::borrow::Cow;

/// `30^\circ 15'` as degrees and a part of one.
pub(super) fn with_minutes(text: &str) -> Option<String> {
    let mut cursor = Cursor::new(text);
    let degrees: u64 = cursor.digits()?.parse().ok().filter(|it| *it < 100_000)?;
    cursor.one_of(&DEGREES[..6])?;
    cursor.spaces();
    while cursor.eat("\\,").is_some() {}
    cursor.spaces();
    let minutes: u64 = cursor.digits()?.parse().ok().filter(|it| *it < 60)?;
    let is_minutes = ["'", "′", "^{\\prime}", "^\\prime"].contains(&cursor.rest());
    is_minutes.then(|| format!("\\frac{{{}}}{{60}}^\\circ", degrees * 60 + minutes))
}

/// `text` with the degrees under trigonometric functions as multiples of π.
pub(super) fn rewritten(text: &str) -> Cow<'_, str> {
    const FUNCTIONS: [&str; 7] = ["sin", "cos", "tan", "cot", "sec", "csc", "cis"];
    let has_function = FUNCTIONS.iter().any(|it| text.contains(it));
    // An inverse function gives an angle and takes none.
    if !has_function || text.contains("arc") || text.contains("^{-1}") {
        return Cow::Borrowed(text);
    }
    let text = in_radians(text);
    if text.contains("cis") { without_cis(&text).map_or(text, Cow::Owned) } else { text }
}

fn in_radians(text: &str) -> Cow<'_, str> {
    if !DEGREES[..6].iter().any(|it| text.contains(it)) {
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

/// `2 \operatorname{cis} \theta` as `2 (\cos \theta + i \sin \theta)`.
fn without_cis(text: &str) -> Option<String> {
    const NAMES: [&str; 5] =
        ["\\operatorname{cis}", "\\mathrm{cis}", "\\text{cis}", "\\cis", "cis"];
    let (before, after) = NAMES.iter().find_map(|it| text.split_once(it))?;
    let mut cursor = Cursor::new(after.trim_start());
    cursor.one_of(&["\\,", "\\;", "\\ ", "\\!"]);
    let start = cursor;
    argument(&mut cursor)?;
    let (angle, rest) = (cursor.since(&start), cursor.rest());
    (!rest.contains("cis")).then(|| format!("{before}(\\cos({angle})+i\\sin({angle})){rest}"))
}

/// Moves over an argument: a group, a fraction, or a run of letters and digits.
fn argument(cursor: &mut Cursor<'_>) -> Option<()> {
    let rest = cursor.rest();
    if rest.starts_with('{') {
        return cursor.group().map(|_| ());
    }
    if rest.starts_with('(') || rest.starts_with("\\left(") {
        cursor.take(rest.find('(')?);
        let close = closing(cursor.rest(), [b'(', b')'])?;
        cursor.take(close + 1);
        return Some(());
    }
    let mut fraction = *cursor;
    if fraction.one_of(&FRACTIONS).is_some() && fraction.rest().starts_with('{') {
        fraction.group()?;
        fraction.eat("{")?;
        cursor.take(rest.len() - fraction.rest().len() - 1);
        return cursor.group().map(|_| ());
    }
    let run = |c: char| c.is_ascii_alphanumeric() || c == '\\' || c == '/';
    (!cursor.take_while(run).is_empty()).then_some(())
}
