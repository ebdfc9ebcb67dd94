//! Remarks on a parameter, and dots of what goes on.

use super::words::words;
use crate::cursor::replaced_at;
use std::borrow::Cow;

/// A general solution without the remark that its parameter is an integer.
pub(super) fn without_parameters(text: &str) -> &str {
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

/// The condition of a set that is built by one: `x > 3` of `\{x \mid x > 3\}` and `\{x \in \mathbb{R} : x > 3\}`.
pub(crate) fn condition(text: &str) -> &str {
    const BARS: [&str; 4] = ["\\mid", "\\,|\\,", "|", ":"];
    let set = text.trim().trim_start_matches("\\left").trim_end_matches("\\right\\}");
    let inner = set.strip_prefix("\\{").map(|it| it.trim_end_matches("\\}"));
    let parts = inner.and_then(|it| BARS.iter().find_map(|bar| it.split_once(bar)));
    let is_name = |it: &str| {
        let name = it.trim().trim_end_matches(['}', 'R']).trim_end_matches(['{', ' ']);
        let name = name
            .strip_suffix("\\in\\mathbb")
            .or(name.strip_suffix("\\in \\mathbb"))
            .unwrap_or(name);
        matches!(name.trim().as_bytes(), [b'a'..=b'z'])
    };
    parts.filter(|it| is_name(it.0) && !it.1.contains(['|', ':'])).map_or(text, |it| it.1.trim())
}

/// True for `, k \in \mathbb{Z}` and `\text{ for some integer } k`: a small letter and a set, and nothing else.
fn is_remark(text: &str) -> bool {
    const NOUNS: [&str; 6] = ["integer", "integers", "constant", "real", "number", "numbers"];
    const WORDS: [&str; 10] =
        ["where", "for", "any", "all", "some", "each", "is", "an", "arbitrary", "quad"];
    let is_symbol = |it: &str| it.len() == 1 && it.bytes().all(|b| b.is_ascii_alphabetic());
    let has_small =
        words(text).any(|it| is_symbol(it) && it.bytes().all(|b| b.is_ascii_lowercase()));
    let is_said = |it: &str| is_symbol(it) || WORDS.contains(&it) || NOUNS.contains(&it);
    (text.contains("\\in") || words(text).any(|it| NOUNS.contains(&it)))
        && has_small
        && words(text).all(is_said)
        && !text.contains(|c: char| c.is_ascii_digit() || "=<>+^".contains(c))
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
