//! Matrices, vectors and sets in other notations than the grammar's.

use super::DOTS;
use crate::cursor::{is_digits, replaced_at};
use std::borrow::Cow;

/// `text` in the grammar's notation.
pub(super) fn rewritten(text: &str) -> Cow<'_, str> {
    if let Some(it) = nested_rows(text).or_else(|| parted_rows(text)).or_else(|| transposed(text)) {
        return Cow::Owned(it);
    }
    if let Some(it) = combinations(text) {
        return Cow::Owned(it);
    }
    half_lines(without_parameters(text))
}

/// `[[1,2],[3,4]]` is a matrix.
fn nested_rows(text: &str) -> Option<String> {
    let inner = text.strip_prefix('[')?.strip_suffix(']')?.trim();
    let inner = inner.strip_prefix('[')?.strip_suffix(']')?;
    let row = |(idx, row)| match idx {
        0 => Some(row),
        _ => str::trim_start(row).strip_prefix([',', ';'])?.trim_start().strip_prefix('['),
    };
    let rows: Vec<&str> = inner.split(']').enumerate().map(row).collect::<Option<_>>()?;
    matrix(&rows)
}

/// `[1,2;3,4]` is a matrix too.
fn parted_rows(text: &str) -> Option<String> {
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    let rows: Vec<&str> = inner.split(';').collect();
    matrix(&rows).filter(|_| rows.len() > 1 && inner.contains(','))
}

/// `(1,2)^T` is a column.
fn transposed(text: &str) -> Option<String> {
    const MARKS: [&str; 5] = ["^T", "^{T}", "^\\top", "^{\\top}", "^{\\mathsf{T}}"];
    let list = MARKS.iter().find_map(|it| text.strip_suffix(it))?.trim_end();
    let list = list.strip_prefix("\\left").unwrap_or(list);
    let inner = list.strip_prefix(['(', '['])?.strip_suffix([')', ']'])?;
    let inner = inner.strip_suffix("\\right").unwrap_or(inner);
    let is_list = inner.contains(',') && !inner.contains([')', ']']);
    matrix(&inner.split(',').collect::<Vec<_>>()).filter(|_| is_list)
}

/// Rows of as many cells, which commas part.
fn matrix(rows: &[&str]) -> Option<String> {
    let width = rows.first()?.matches(',').count();
    let is_flat =
        |row: &&str| row.matches(',').count() == width && !row.contains(['[', '(', '{', '&']);
    let rows = rows.iter().all(is_flat).then(|| rows.join("\\\\ "))?.replace(',', "&");
    Some(format!("\\begin{{pmatrix}}{rows}\\end{{pmatrix}}"))
}

/// `\mathbb{R}^+` and its kin as intervals.
fn half_lines(text: &str) -> Cow<'_, str> {
    const SETS: [(&[&str], &str); 4] = [
        (&["^{+}", "^+", "_{+}", "_+", "_{>0}"], "(0,\\infty)"),
        (&["^{-}", "^-", "_{<0}"], "(-\\infty,0)"),
        (&["_{\\geq0}", "_{\\ge0}"], "[0,\\infty)"),
        (&["_{\\leq0}", "_{\\le0}"], "(-\\infty,0]"),
    ];
    let parted = |name: &&str| text.split_once(name);
    for (before, after) in ["\\mathbb{R}", "\\mathbb R", "ℝ"].iter().filter_map(parted) {
        let script = after.replace(' ', "");
        let set = SETS.iter().find_map(|(marks, interval)| {
            let rest = marks.iter().find_map(|it| script.strip_prefix(it));
            rest.map(|it| (*interval, it))
        });
        // What follows may be another set, and no second script.
        if let Some((interval, rest)) = set.filter(|it| !it.1.contains(['^', '_'])) {
            return Cow::Owned(format!("{before}{interval}{rest}"));
        }
    }
    Cow::Borrowed(text)
}

/// A general solution without the remark that its parameter is an integer.
fn without_parameters(text: &str) -> &str {
    const MARKS: [&str; 7] =
        ["\\text{ for", "\\text{for", "\\text{ where", "\\text{where", "(", ",", ";"];
    let Some(at) = MARKS.iter().filter_map(|it| text.rfind(it)).filter(|at| *at > 0).min_by_key(
        // The longest remark that is one.
        |at| if is_remark(&text[*at..]) { *at } else { usize::MAX },
    ) else {
        return text;
    };
    if is_remark(&text[at..]) { text[..at].trim_end_matches([',', ';', ' ']) } else { text }
}

/// True for `, k \in \mathbb{Z}` and `\text{ for some integer } k`.
fn is_remark(text: &str) -> bool {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, '\\' | 'ℤ');
    let plain: String =
        text.replace("\\text", "").replace("\\quad", "").chars().filter(kept).collect();
    let plain = plain.trim_start_matches("where").trim_start_matches("for");
    let is_symbol = |it: &str| it.len() == 1 && it.bytes().all(|b| b.is_ascii_lowercase());
    let before = [
        "\\in\\mathbbR",
        "isaconstant",
        "isanyconstant",
        "isrealconstant",
        "isanyrealnumber",
        "isanarbitraryconstant",
        "\\in\\mathbbZ",
        "\\inℤ",
        "isaninteger",
        "isanyinteger",
        "anyinteger",
        "integer",
    ];
    let behind = [
        "anyrealnumber",
        "anyreal",
        "allreal",
        "allrealnumbers",
        "somereal",
        "somerealnumber",
        "anyconstant",
        "someconstant",
        "areal",
        "aconstant",
        "someinteger",
        "anyinteger",
        "integer",
        "allintegers",
        "integers",
        "eachinteger",
    ];
    before.iter().any(|it| plain.strip_suffix(it).is_some_and(is_symbol))
        || behind.iter().any(|it| plain.strip_prefix(it).is_some_and(is_symbol))
}

/// `text` with the dots of what goes on, which the clean-up drops, as a command that it keeps. Behind a decimal they
/// say that it was cut, and are dropped.
pub(super) fn with_dots(text: &str) -> Cow<'_, str> {
    const DOTS: &str = "\\ldots";
    if !text.contains(DOTS) {
        return Cow::Borrowed(text);
    }
    let is_decimal = |before: &str| {
        let number = before.trim_end_matches(|c: char| c.is_ascii_digit());
        number.len() < before.len() && number.ends_with('.')
    };
    Cow::Owned(replaced_at(text, DOTS, |_, out| {
        out.push_str(if is_decimal(out) { " " } else { "\\dots " });
        Some(())
    }))
}

/// The written terms of a sum that goes on.
pub(super) fn head_of_series(text: &str) -> Option<&str> {
    let before = DOTS.iter().find_map(|it| text.trim_end().strip_suffix(it))?;
    Some(before.trim_end().strip_suffix('+')?.trim_end())
}

/// `C(8,3)` as a binomial coefficient.
fn choices(text: &str) -> Option<String> {
    let (before, inner) = text.split_once("C(")?;
    let (inner, rest) = inner.split_once(')')?;
    let (n, k) = inner.split_once(',')?;
    let (n, k) = (n.trim(), k.trim());
    let begins = !before.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '\\' | '_'));
    (begins && is_digits(n) && is_digits(k)).then(|| format!("{before}\\binom{{{n}}}{{{k}}}{rest}"))
}

/// `{}_{10}C_3` as a binomial coefficient.
fn combinations(text: &str) -> Option<String> {
    if let Some(it) = choices(text) {
        return Some(it);
    }
    let (upper, lower) = text.split_once("C_")?;
    let upper = upper.trim_end();
    let (before, n) = match upper.strip_suffix('}') {
        Some(inner) => inner.rsplit_once('{')?,
        None => {
            upper.split_at(upper.len() - usize::from(upper.ends_with(|c: char| c.is_ascii_digit())))
        }
    };
    let before = before.strip_suffix(['_', '^'])?;
    let before = before.strip_suffix("{}").unwrap_or(before);
    let (k, rest) = match lower.strip_prefix('{') {
        Some(inner) => inner.split_once('}')?,
        None => lower.split_at_checked(1)?,
    };
    let is_number = |it: &str| !it.is_empty() && it.bytes().all(|b| b.is_ascii_alphanumeric());
    (is_number(n) && is_number(k) && !before.ends_with(|c: char| c.is_alphanumeric()))
        .then(|| format!("{before}\\binom{{{n}}}{{{k}}}{rest}"))
}
