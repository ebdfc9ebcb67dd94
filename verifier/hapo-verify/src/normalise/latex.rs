//! Commands that change nothing about the meaning.

use super::replace_all;
use super::words::replace_words;

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
    if text.contains("\\\\") && !text.contains("matrix") {
        let mut out = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some(at) = rest.find("\\\\") {
            let letter = rest.as_bytes().get(at + 2).is_some_and(u8::is_ascii_alphabetic);
            out.push_str(&rest[..at]);
            // Where no letter follows only the first backslash is settled: the second may start another pair.
            out.push('\\');
            rest = &rest[if letter { at + 2 } else { at + 1 }..];
            if !letter && !rest.starts_with("\\\\") {
                out.push('\\');
                rest = &rest[1..];
            }
        }
        out.push_str(rest);
        *text = out;
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
    if !text.contains(side) {
        return;
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let word = rest[1..].strip_prefix('m').unwrap_or(&rest[1..]);
        let after = word.strip_prefix(side);
        let delimiter = after.and_then(|it| delimiters.iter().find(|d| it.starts_with(**d)));
        if let (Some(after), Some(delimiter)) = (after, delimiter) {
            // The delimiter is part of the match, so its own backslash starts nothing.
            out.push_str(delimiter);
            rest = &after[delimiter.len()..];
        } else {
            out.push('\\');
            rest = &rest[1..];
        }
    }
    out.push_str(rest);
    *text = out;
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
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    let mut before = None;
    while let Some(c) = rest.chars().next() {
        let len = match c {
            '\\' => removed_command(rest),
            '$' => Some(1),
            '"' | '\'' if before != Some('\\') => Some(1),
            _ => None,
        };
        if let Some(len) = len {
            before = rest[..len].chars().next_back();
            rest = &rest[len..];
        } else {
            out.push(c);
            before = Some(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    *text = out;
}

fn removed_command(rest: &str) -> Option<usize> {
    let spaces = |from: usize| rest[from..].len() - rest[from..].trim_start().len();
    if rest.starts_with("\\mathrm{th}") {
        return Some(11);
    }
    if rest.starts_with("\\!") {
        return Some(2 + spaces(2));
    }
    if rest.starts_with("\\text") {
        let open = 5 + spaces(5);
        if rest[open..].starts_with('{') {
            let close = open + 1 + spaces(open + 1);
            return rest[close..].starts_with('}').then_some(close + 1);
        }
        return None;
    }
    if rest.starts_with("\\$") {
        return Some(2);
    }
    rest.starts_with("\\displaystyle").then_some(13)
}
