//! Degrees inside of trigonometric functions, and `cis`.

use super::FRACTIONS;
use crate::normalise::closing_brace;
use std::borrow::Cow;

const DEGREES: [&str; 6] = ["^{\\circ}", "^\\circ", "^\\degree", "^°", "°", "˚"];

/// `30^\circ 15'` as degrees and a part of one.
pub(super) fn with_minutes(text: &str) -> Option<String> {
    let whole = text.bytes().take_while(u8::is_ascii_digit).count();
    let sign = DEGREES.iter().find(|it| text[whole..].starts_with(**it))?;
    let after = text[whole + sign.len()..].trim_start().trim_start_matches("\\,").trim_start();
    let minutes = after.bytes().take_while(u8::is_ascii_digit).count();
    let rest = &after[minutes..];
    let is_minutes = ["'", "′", "^{\\prime}", "^\\prime"].contains(&rest);
    let n: u64 = after[..minutes].parse().ok().filter(|it| *it < 60)?;
    let degrees: u64 = text[..whole].parse().ok().filter(|it| *it < 100_000)?;
    is_minutes.then(|| format!("\\frac{{{}}}{{60}}^\\circ", degrees * 60 + n))
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
    let sign = |rest: &str| DEGREES.iter().find(|it| rest.starts_with(**it)).map(|it| it.len());
    if !DEGREES.iter().any(|it| text.contains(it)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let number = rest.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
        if number > 0 {
            let digits = &rest[..number];
            let after = &rest[number..];
            if let Some(len) = sign(after) {
                out.extend(["{\\frac{", digits, "\\pi}{180}}"]);
                rest = &after[len..];
            } else {
                out.push_str(digits);
                rest = after;
            }
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    Cow::Owned(out)
}

/// `2 \operatorname{cis} \theta` as `2 (\cos \theta + i \sin \theta)`.
fn without_cis(text: &str) -> Option<String> {
    const NAMES: [&str; 5] =
        ["\\operatorname{cis}", "\\mathrm{cis}", "\\text{cis}", "\\cis", "cis"];
    let (at, len) = NAMES.iter().find_map(|it| text.find(it).map(|at| (at, it.len())))?;
    let after = text[at + len..].trim_start();
    let after =
        ["\\,", "\\;", "\\ ", "\\!"].iter().find_map(|it| after.strip_prefix(it)).unwrap_or(after);
    let end = argument(after)?;
    let (angle, rest) = after.split_at(end);
    if rest.contains("cis") {
        return None;
    }
    Some(format!("{}(\\cos({angle})+i\\sin({angle})){rest}", &text[..at]))
}

/// Where the argument at the beginning of `text` ends.
fn argument(text: &str) -> Option<usize> {
    if text.starts_with('{') {
        return closing_brace(text, 0, text.len()).map(|it| it + 1);
    }
    if text.starts_with('(') || text.starts_with("\\left(") {
        let mut level = 0_i32;
        for (at, c) in text.char_indices() {
            match c {
                '(' => level += 1,
                ')' => level -= 1,
                _ => continue,
            }
            if level == 0 {
                return Some(at + 1);
            }
        }
        return None;
    }
    if let Some(open) =
        FRACTIONS.iter().find_map(|it| text.starts_with(&format!("{it}{{")).then_some(it.len()))
    {
        let middle = closing_brace(text, open, text.len())? + 1;
        let end = text[middle..].starts_with('{').then_some(middle)?;
        return closing_brace(text, end, text.len()).map(|it| it + 1);
    }
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '\\' || c == '/'));
    end.or(Some(text.len())).filter(|it| *it > 0)
}
