//! Commands that change nothing about the meaning.

use super::replace_all;
use super::words::replace_words;
use crate::cursor::{Cursor, replace_at, replaced};

pub(super) fn basic_latex(text: &mut String) {
    if text.contains('\\') {
        replace_all(text, "\\mathrm{T}", "T");
        replace_all(text, "\\mathrm{d}", "d");
        replace_all(text, "{\\rm d}", "d");
        replace_all(text, "\\left[\\begin{matrix}", "\\begin{bmatrix}");
        replace_all(text, "\\end{matrix}\\right]", "\\end{bmatrix}");
        drop_sizes(text, "left", &LEFT_DELIMITERS);
        drop_sizes(text, "right", &RIGHT_DELIMITERS);
    }
    if text.contains(")_{") {
        permutations(text);
    }
    if text.bytes().any(|b| matches!(b, b'\\' | b'$' | b'"' | b'\'')) {
        remove_commands(text);
    }
    replace_words(text);
    if text.bytes().any(|b| matches!(b, b'\n' | b'\t')) {
        *text = text.replace(['\n', '\t'], " ");
    }
    if !text.contains("matrix") {
        // Where no letter follows only the first backslash is settled: the second may start another pair.
        replace_at(text, "\\", |cursor, out| {
            cursor.eat("\\")?;
            cursor.peek()?.is_ascii_alphabetic().then(|| out.push('\\'))
        });
    }
}

#[rustfmt::skip]
const LEFT_DELIMITERS: [&str; 17] = [
    "\\{", "{", "\\|", "|", "[", "(", "\\rbracl", "\\lgroup", "\\lbrace", "\\lbrack", "\\vert", "\\lvert", "\\lceil",
    "\\lfloor", "\\langle", "\\llcorner", "\\ulcorner",
];

#[rustfmt::skip]
const RIGHT_DELIMITERS: [&str; 16] = [
    "\\}", "}", "\\|", "|", "]", ")", "\\rbrack", "\\rgroup", "\\rbrace", "\\vert", "\\rvert", "\\rceil", "\\rfloor",
    "\\rangle", "\\lrcorner", "\\urcorner",
];

/// Drops `\left` and `\mleft` (or `\right`) before a delimiter.
fn drop_sizes(text: &mut String, side: &str, delimiters: &[&str]) {
    if text.contains(side) {
        replace_at(text, "\\", |cursor, out| {
            cursor.eat("m");
            cursor.eat(side)?;
            out.push_str(cursor.one_of(delimiters)?);
            Some(())
        });
    }
}

/// `(n)_{k}` is the number of permutations.
fn permutations(text: &mut String) {
    let inner =
        |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'*' | b'/' | b'\\' | b' ');
    let mut from = 0;
    while let Some(at) = text[from..].find(")_{").map(|it| it + from) {
        let bytes = text.as_bytes();
        let left = bytes[..at].iter().rev().take_while(|b| inner(**b)).count();
        let right = bytes[at + 3..].iter().take_while(|b| inner(**b)).count();
        let open = (at - left).checked_sub(1).filter(|it| bytes[*it] == b'(' && left > 0);
        let closed = right > 0 && bytes.get(at + 3 + right) == Some(&b'}');
        if let (Some(open), true) = (open, closed) {
            let (n, k) = (&text[open + 1..at], &text[at + 3..at + 3 + right]);
            let new = format!("\\frac{{({n})!}}{{(({n})-({k}))!}}");
            text.replace_range(open..=at + 3 + right, &new);
            from = open + new.len();
        } else {
            from = at + 3;
        }
    }
}

/// Dollar signs, quotes, negative spaces, empty texts and display style.
fn remove_commands(text: &mut String) {
    *text = replaced(text, |cursor, _| {
        let is_escaped = cursor.before().ends_with('\\');
        if cursor.eat("\\").is_some() {
            return removed_command(cursor);
        }
        cursor.one(|c| c == '$' || matches!(c, '"' | '\'') && !is_escaped).map(|_| ())
    });
}

fn removed_command(cursor: &mut Cursor<'_>) -> Option<()> {
    if cursor.one_of(&["mathrm{th}", "$", "displaystyle"]).is_some() {
        return Some(());
    }
    if cursor.eat("!").is_some() {
        cursor.spaces();
        return Some(());
    }
    cursor.eat("text")?;
    cursor.spaces();
    cursor.eat("{")?;
    cursor.spaces();
    cursor.eat("}")
}
