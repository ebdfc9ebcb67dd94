//! Commands that change nothing about the meaning, and words that are signs: `and`, `percent`, `infinity`.

use super::replace_all;
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

/// Replaces synonyms in one pass, at each position by the first rule that fits.
fn replace_words(text: &mut String) {
    let triggers = |b: u8| b"\\.{~ \t\n\raoip,".contains(&b) || b >= 0x80;
    if !text.bytes().any(triggers) {
        return;
    }
    let mut space_end = 0;
    *text = replaced(text, |cursor, out| {
        let c = cursor.peek()?;
        if c.is_ascii_alphanumeric() && !matches!(c, 'a' | 'o' | 'i' | 'p') {
            return None;
        }
        let (at, rest) = (cursor.before().len(), cursor.rest());
        if at >= space_end {
            space_end = at + rest.len() - rest.trim_start().len();
        }
        let (len, new) = replacement(cursor, c, space_end.max(at) - at)?;
        cursor.take(len);
        out.push_str(new);
        Some(())
    });
}

/// Commands that are spelled another way.
#[rustfmt::skip]
const COMMANDS: [(&str, &str); 14] = [
    ("\\mathrm", "\\text"), ("\\mathit", "\\text"), ("\\mathbf", "\\text"), ("\\textnormal", "\\text"),
    ("\\textbf", "\\text"), ("\\textit", "\\text"), ("\\textrm", "\\text"),
    ("\\dfrac", "\\frac"), ("\\tfrac", "\\frac"), ("\\cfrac", "\\frac"),
    ("\\ldots", " "), ("\\text{percentage}", "%"), ("\\text{percent}", "%"), ("\\text{pct}", "%"),
];

type Replacement = (usize, &'static str);

/// The rule that fits at the character `c`, behind which white space lasts for `n_spaces`.
fn replacement(cursor: &Cursor<'_>, c: char, n_spaces: usize) -> Option<Replacement> {
    let (rest, before) = (cursor.rest(), cursor.before().chars().next_back());
    if c == '\\' {
        return command_replacement(rest, before);
    }
    if c.is_whitespace() && rest[c.len_utf8()..].starts_with('.') {
        return Some((c.len_utf8() + 1, " 0."));
    }
    let after_space = &rest[n_spaces..];
    if let Some(len) = braced_comma(after_space) {
        return Some((n_spaces + len, ","));
    }
    let list_rest = match rest.strip_prefix(',') {
        Some(tail) => tail.trim_start(),
        None => after_space,
    };
    let letter_before = before.is_some_and(|c| c.is_ascii_alphabetic());
    if let Some(len) = joining_word(list_rest, letter_before) {
        return Some((rest.len() - list_rest.len() + len, ","));
    }
    for (word, new) in [("infinity", "\\infty"), (",\\ldots", " ")] {
        if rest.starts_with(word) {
            return Some((word.len(), new));
        }
    }
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    for word in ["percentage", "percent", "pct"] {
        if let Some(after) = after_space.strip_prefix(word)
            && (n_spaces > 0 || !is_word(before))
            && !is_word(after.chars().next())
        {
            return Some((n_spaces + word.len(), "\\%"));
        }
    }
    if rest.starts_with("inf") && before != Some('\\') {
        return Some((3, "\\infty"));
    }
    rest.starts_with(" sqrt").then_some((5, "\\sqrt"))
}

fn command_replacement(rest: &str, before: Option<char>) -> Option<Replacement> {
    if let Some((command, new)) = COMMANDS.iter().find(|it| rest.starts_with(it.0)) {
        return Some((command.len(), new));
    }
    if let Some(len) = and_or_text(rest) {
        return Some((len, ","));
    }
    let space = rest[1..].chars().next().filter(|c| c.is_whitespace() && before != Some('\\'))?;
    Some((1 + space.len_utf8(), " "))
}

fn braced_comma(text: &str) -> Option<usize> {
    let after = text.strip_prefix('{')?.trim_start().strip_prefix(',')?;
    let after = after.trim_start().strip_prefix('}')?;
    Some(text.len() - after.len())
}

/// Length of a word that joins the elements of a list.
fn joining_word(text: &str, letter_before: bool) -> Option<usize> {
    let is_whole = |word: &&str| {
        let after = text.strip_prefix(*word);
        after.is_some_and(|it| !it.starts_with(|c: char| c.is_ascii_alphabetic()))
    };
    let word = ["and", "or"].iter().find(|it| is_whole(it));
    match word {
        Some(word) if !letter_before => Some(word.len()),
        _ => and_or_text(text),
    }
}

/// Length of `\text{ and }` or `\text{or}`.
fn and_or_text(rest: &str) -> Option<usize> {
    let inner = rest.strip_prefix("\\text{")?.trim_start();
    let inner = inner.strip_prefix("and").or_else(|| inner.strip_prefix("or"))?.trim_start();
    inner.starts_with('}').then_some(rest.len() - inner.len() + 1)
}
