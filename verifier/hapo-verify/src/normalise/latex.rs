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
