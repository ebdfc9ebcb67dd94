//! Words as signs: `and`, `percent`, `infinity`.

/// Synonyms, in one pass: at each place the first rule that fits.
pub(super) fn replace_words(text: &mut String) {
    let triggers = |b: u8| {
        matches!(
            b,
            b'\\'
                | b'.'
                | b'{'
                | b'~'
                | b' '
                | b'\t'
                | b'\n'
                | b'\r'
                | b'a'
                | b'o'
                | b'i'
                | b'p'
                | b','
        ) || b >= 0x80
    };
    if !text.bytes().any(triggers) {
        return;
    }
    let mut out = String::with_capacity(text.len() + 8);
    let source = text.as_str();
    let mut at = 0;
    let mut space_end = 0;
    while let Some(c) = source[at..].chars().next() {
        if c.is_ascii_alphanumeric() && !matches!(c, 'a' | 'o' | 'i' | 'p') {
            out.push(c);
            at += 1;
            continue;
        }
        if at >= space_end {
            space_end = at + (source[at..].len() - source[at..].trim_start().len());
        }
        if let Some((len, new)) = replacement(source, at, c, space_end) {
            out.push_str(new);
            at += len;
        } else {
            out.push(c);
            at += c.len_utf8();
        }
    }
    *text = out;
}

/// The rule that fits at `at`, where white space lasts to `space_end`: how much it replaces, and by what.
fn replacement(text: &str, at: usize, c: char, space_end: usize) -> Option<(usize, &'static str)> {
    let rest = &text[at..];
    let before = text[..at].chars().next_back();
    let after_space = &text[space_end.max(at)..];
    let n_spaces = space_end.max(at) - at;
    let letter_before = before.is_some_and(|c| c.is_ascii_alphabetic());
    if c == '\\' {
        for (command, new) in [
            ("\\mathrm", "\\text"),
            ("\\mathit", "\\text"),
            ("\\mathbf", "\\text"),
            ("\\textnormal", "\\text"),
            ("\\textbf", "\\text"),
            ("\\textit", "\\text"),
            ("\\textrm", "\\text"),
            ("\\dfrac", "\\frac"),
            ("\\tfrac", "\\frac"),
            ("\\cfrac", "\\frac"),
        ] {
            if rest.starts_with(command) {
                return Some((command.len(), new));
            }
        }
        if let Some(len) = and_or_text(rest) {
            return Some((len, ","));
        }
        if before != Some('\\') && rest[1..].starts_with(char::is_whitespace) {
            let len = rest[1..].chars().next().map_or(0, char::len_utf8);
            return Some((1 + len, " "));
        }
        if rest.starts_with("\\ldots") {
            return Some((6, " "));
        }
        for word in ["\\text{percentage}", "\\text{percent}", "\\text{pct}"] {
            if rest.starts_with(word) {
                return Some((word.len(), "%"));
            }
        }
        return None;
    }
    if c.is_whitespace() && rest[c.len_utf8()..].starts_with('.') {
        return Some((c.len_utf8() + 1, " 0."));
    }
    if rest.starts_with("{.") {
        return Some((2, "{0."));
    }
    if rest.starts_with("~=") {
        return Some((2, "\\approx"));
    }
    if let Some(inner) = after_space.strip_prefix('{') {
        let inner_trimmed = inner.trim_start();
        if let Some(after) = inner_trimmed.strip_prefix(',') {
            let after = after.trim_start();
            if after.starts_with('}') {
                return Some((text.len() - at - after.len() + 1, ","));
            }
        }
    }
    let comma = usize::from(c == ',');
    let (list_rest, list_len) = if comma == 1 {
        let tail = rest[1..].trim_start();
        (tail, rest.len() - tail.len())
    } else {
        (after_space, n_spaces)
    };
    if !letter_before {
        for word in ["and", "or"] {
            if let Some(after) = list_rest.strip_prefix(word)
                && !after.starts_with(|c: char| c.is_ascii_alphabetic())
            {
                return Some((list_len + word.len(), ","));
            }
        }
    }
    if let Some(len) = and_or_text(list_rest) {
        return Some((list_len + len, ","));
    }
    if rest.starts_with("infinity") {
        return Some((8, "\\infty"));
    }
    if rest.starts_with(",\\ldots") {
        return Some((7, " "));
    }
    for word in ["percentage", "percent", "pct"] {
        if let Some(after) = after_space.strip_prefix(word) {
            let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
            let start_boundary = n_spaces > 0 || !is_word(before);
            if start_boundary && !is_word(after.chars().next()) {
                return Some((n_spaces + word.len(), "\\%"));
            }
        }
    }
    if rest.starts_with("inf") && before != Some('\\') {
        return Some((3, "\\infty"));
    }
    if rest.starts_with(" sqrt") {
        return Some((5, "\\sqrt"));
    }
    None
}

/// Length of `\text{ and }` or `\text{or}`.
fn and_or_text(rest: &str) -> Option<usize> {
    let inner = rest.strip_prefix("\\text{")?.trim_start();
    let inner = inner
        .strip_prefix("and")
        .or_else(|| inner.strip_prefix("or"))?
        .trim_start();
    inner
        .starts_with('}')
        .then_some(rest.len() - inner.len() + 1)
}
