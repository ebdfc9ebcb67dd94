//! Clean-up of an extracted answer before it is read: boxes opened, wrappers and units dropped, shorthand expanded.
//!
//! The rules and their order are those of latex2sympy2-extended 1.11 with Math-Verify 0.9.0's defaults, since a text
//! that cannot be read is compared as its normalised string. Every rule is one left-to-right scan; none backtracks
//! further than a constant. The price is a chain of small rewrites; each is skipped when its trigger does not occur.

use std::borrow::Cow;

/// Which boxes of a text form the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Boxes {
    /// The last one, and those before it that are close enough to be parts of one list.
    Last,
    /// All of them.
    All,
}

/// Longest answer that is rewritten, in bytes. A longer one is only compared as it stands.
const MAX_TEXT: usize = crate::parse::MAX_FORMULA;

/// The normalised form of `text`.
pub(crate) fn normalise(text: &str, boxes: Boxes) -> String {
    let text = open_boxes(text, boxes);
    // Digits alone are by far the commonest answer, and no rule touches them.
    let trimmed = text.trim();
    if !trimmed.is_empty() && trimmed.bytes().all(|b| b.is_ascii_digit()) {
        return trimmed.to_owned();
    }
    if text.len() > MAX_TEXT {
        return trimmed.to_owned();
    }
    let mut text = text.into_owned();
    basic_latex(&mut text);
    drop_units(&mut text);
    if text.starts_with('.') {
        text.insert(0, '0');
    }
    if text == "0.5" {
        "\\frac{1}{2}".clone_into(&mut text);
    }
    fix_operators(&mut text);
    let end = text.trim_end().len();
    text.truncate(end);
    let start = text.len() - text.trim_start().len();
    text.drain(..start);
    text
}

// ---- boxes --------------------------------------------------------------------------------------------------------

/// The content of the boxes of `text`, joined by commas; the text itself if it has none.
pub(crate) fn open_boxes(text: &str, boxes: Boxes) -> Cow<'_, str> {
    if !text.contains("\\boxed") && !text.contains("\\fbox") {
        return Cow::Borrowed(text);
    }
    let mut contents: Vec<&str> = Vec::new();
    let mut limit = text.len();
    let mut next_start = None;
    // Each command is looked for again only once its last place was used up, so that the text is searched once.
    let (mut boxed, mut framed) = (text.rfind("\\boxed"), text.rfind("\\fbox"));
    loop {
        if boxed.is_some_and(|it| it >= limit) {
            boxed = text[..limit].rfind("\\boxed");
        }
        if framed.is_some_and(|it| it >= limit) {
            framed = text[..limit].rfind("\\fbox");
        }
        let Some(start) = boxed.max(framed) else {
            break;
        };
        let command = if text[start..].starts_with("\\boxed") {
            6
        } else {
            5
        };
        let Some(space) = text[start + command..limit].find(|c: char| !c.is_whitespace()) else {
            break;
        };
        let open = start + command + space;
        if !text[open..].starts_with('{') {
            if contents.is_empty() {
                contents.push(&text[open..]);
            }
            break;
        }
        let Some(close) = closing_brace(text, open, limit) else {
            if contents.is_empty() {
                contents.push(&text[open..]);
            }
            break;
        };
        let content = text[open + 1..close].trim();
        if let (Boxes::Last, Some(next)) = (boxes, next_start)
            && !are_one_list(
                &text[close + 1..next],
                content,
                contents.last().copied().unwrap_or_default(),
            )
        {
            break;
        }
        if contents.last() != Some(&content) {
            contents.push(content);
        }
        next_start = Some(start);
        limit = start;
    }
    match contents.as_slice() {
        [] => Cow::Borrowed(text),
        [only] => Cow::Borrowed(only),
        _ => {
            contents.reverse();
            Cow::Owned(contents.join(","))
        }
    }
}

/// The brace that closes the one at `open`, before `limit`.
pub(crate) fn closing_brace(text: &str, open: usize, limit: usize) -> Option<usize> {
    let mut level = 1_usize;
    for (idx, byte) in text.as_bytes()[..limit].iter().enumerate().skip(open + 1) {
        match byte {
            b'{' => level += 1,
            b'}' => {
                level -= 1;
                if level == 0 {
                    return Some(idx);
                }
            }
            _ => {}
        }
    }
    None
}

/// Whether two boxes with `between` in the middle are parts of one list.
fn are_one_list(between: &str, content: &str, next: &str) -> bool {
    let n_chars = between.chars().take(70).count();
    if n_chars < 10 {
        return true;
    }
    next != content
        && n_chars < 70
        && (between.contains([',', ';']) || has_word(between, "and") || has_word(between, "or"))
}

fn has_word(text: &str, word: &str) -> bool {
    let boundary = |c: Option<char>| c.is_none_or(|c| !(c.is_alphanumeric() || c == '_'));
    text.match_indices(word).any(|(at, _)| {
        boundary(text[..at].chars().next_back()) && boundary(text[at + word.len()..].chars().next())
    })
}

// ---- basic LaTeX --------------------------------------------------------------------------------------------------

fn replace_all(text: &mut String, from: &str, to: &str) {
    if text.contains(from) {
        *text = text.replace(from, to);
    }
}

fn basic_latex(text: &mut String) {
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
    if text
        .bytes()
        .any(|b| matches!(b, b'\\' | b'$' | b'"' | b'\''))
    {
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
            let letter = rest
                .as_bytes()
                .get(at + 2)
                .is_some_and(u8::is_ascii_alphabetic);
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

const LEFT_DELIMITERS: [&str; 17] = [
    "\\{",
    "{",
    "\\|",
    "|",
    "[",
    "(",
    "\\rbracl",
    "\\lgroup",
    "\\lbrace",
    "\\lbrack",
    "\\vert",
    "\\lvert",
    "\\lceil",
    "\\lfloor",
    "\\langle",
    "\\llcorner",
    "\\ulcorner",
];

const RIGHT_DELIMITERS: [&str; 16] = [
    "\\}",
    "}",
    "\\|",
    "|",
    "]",
    ")",
    "\\rbrack",
    "\\rgroup",
    "\\rbrace",
    "\\vert",
    "\\rvert",
    "\\rceil",
    "\\rfloor",
    "\\rangle",
    "\\lrcorner",
    "\\urcorner",
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
        let open = (at - left)
            .checked_sub(1)
            .filter(|it| bytes[*it] == b'(' && left > 0);
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

/// Synonyms, in one pass: at each place the first rule that fits.
fn replace_words(text: &mut String) {
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

// ---- units --------------------------------------------------------------------------------------------------------

/// Units that are dropped at the end, as the reference lists them; a `?` here stands for any one character (the
/// reference's dots are not escaped).
const UNITS: [&str; 132] = [
    "integerpoint",
    "feet",
    "sue",
    "digit",
    "pound",
    "meal",
    "edge",
    "student",
    "children ticket",
    "multiple",
    "east",
    "degree",
    "mph",
    "kmph",
    "ft",
    "m square",
    " m east",
    "sq m",
    "deg",
    "mile",
    "q ?",
    "monkey",
    "prime",
    "ratio",
    "profit of rs",
    "rd",
    "o",
    "gm",
    "p ? m",
    "lb",
    "tile",
    "per",
    "dm",
    "lt",
    "gain",
    "ab",
    "way",
    "west",
    "a ?",
    "b ?",
    "c ?",
    "d ?",
    "e ?",
    "f ?",
    "g ?",
    "h ?",
    "t",
    "h",
    "no change",
    "men",
    "soldier",
    "pie",
    "bc",
    "excess",
    "st",
    "inches",
    "noon",
    "cent",
    "by",
    "gal",
    "kmh",
    "c",
    "acre",
    "rise",
    "a ? m",
    "th",
    "π r 2",
    "sq",
    "mark",
    "l",
    "toy",
    "coin",
    "sq ? m",
    "gallon",
    "° f",
    "profit",
    "minw",
    "yr",
    "women",
    "am",
    "pm",
    "hr",
    "cu cm",
    "square",
    "v â € ™",
    "are",
    "rupee",
    "rounds",
    "cubic",
    "cc",
    "mtr",
    "s",
    "ohm",
    "number",
    "day",
    "hour",
    "minute",
    "min",
    "second",
    "man",
    "woman",
    "sec",
    "cube",
    "mt",
    "sq inch",
    "mp",
    "∏ cm ³",
    "hectare",
    "more",
    "unit",
    "cu ? m",
    "cm 2",
    "rs ?",
    "rs",
    "kg",
    "g",
    "month",
    "km",
    "m",
    "cm",
    "mm",
    "apple",
    "liter",
    "loss",
    "yard",
    "pure",
    "year",
    "increase",
    "decrease",
    "d",
    "less",
    "Surface",
];

const MORE_UNITS: [&str; 7] = ["litre", "pi sq m", "s ?", "metre", "meter", "inch", "kmph"];

fn drop_units(text: &mut String) {
    if let Some(start) = trailing_text(text) {
        let kept = text[..start].trim();
        if !kept.is_empty() {
            *text = kept.to_owned();
        }
    } else if text.trim().len() != text.len() && !text.trim().is_empty() {
        *text = text.trim().to_owned();
    }
    for _ in 0..2 {
        let Some(end) = unit_start(text) else { return };
        if end == 0 {
            return;
        }
        text.truncate(end);
    }
}

/// Where a trailing `\text{…}` or `\mbox{…}` starts (with a power of one digit after it, maybe). The first such
/// command counts, whatever stands between it and the closing brace at the end.
fn trailing_text(text: &str) -> Option<usize> {
    let start = match (text.find("\\text{"), text.find("\\mbox{")) {
        (Some(a), Some(b)) => a.min(b),
        (a, b) => a.or(b)?,
    };
    let bytes = text.as_bytes();
    let n = bytes.len();
    let digit = |back: usize| n >= back && bytes[n - back].is_ascii_digit();
    let body_end = if text.ends_with('}')
        && n >= 5
        && text[..n - 1].ends_with(|c: char| c.is_ascii_digit())
        && text.is_char_boundary(n - 4)
        && &text[n - 4..n - 2] == "{^"
        && bytes[n - 5] == b'}'
    {
        n - 5
    } else if digit(1) && n >= 3 && bytes[n - 2] == b'^' && bytes[n - 3] == b'}' {
        n - 3
    } else if text.ends_with('}') {
        n - 1
    } else {
        return None;
    };
    (body_end >= start + 6).then_some(start)
}

/// Where the text ends once a trailing unit is dropped. A unit counts after a digit, a closing brace or white space.
fn unit_start(text: &str) -> Option<usize> {
    let trimmed = text.trim_end();
    // Every unit ends in a letter or a listed sign; a bare number or formula leaves at once.
    let last = trimmed.chars().next_back()?;
    if last.is_ascii_digit() && !trimmed.ends_with('2')
        || matches!(last, '}' | ')' | ']') && !text.ends_with(' ')
    {
        let wild = trimmed.chars().rev().nth(1).is_some_and(|c| c == ' ');
        if !wild {
            return None;
        }
    }
    let mut earliest: Option<usize> = None;
    for plural in ["", "s", "es"] {
        let Some(stem) = trimmed.strip_suffix(plural) else {
            continue;
        };
        for unit in UNITS.iter().chain(&MORE_UNITS) {
            let Some(start) = ends_with_unit(stem, unit) else {
                continue;
            };
            // One letter right after a digit is a variable: 2t is no time, whatever the reference makes of it.
            if trimmed.len() - start == 1
                && trimmed[..start].ends_with(|c: char| c.is_ascii_digit())
            {
                continue;
            }
            let head = &trimmed[..start];
            let bare = head.trim_end();
            let kept = if bare.ends_with(|c: char| c.is_ascii_digit() || c == '}') {
                bare.len()
            } else if bare.len() < head.len() {
                bare.len() + head[bare.len()..].chars().next().map_or(0, char::len_utf8)
            } else {
                continue;
            };
            earliest = Some(earliest.map_or(kept, |it| it.min(kept)));
        }
    }
    // A wildcard at the very end may stand for white space that was trimmed above.
    if trimmed.len() < text.len() {
        for unit in UNITS
            .iter()
            .chain(&MORE_UNITS)
            .filter(|it| it.ends_with(" ?"))
        {
            let letters = &unit[..unit.len() - 2];
            if let Some(head) = trimmed.strip_suffix(letters)
                && text.len() - trimmed.len() >= 2
            {
                let bare = head.trim_end();
                if bare.ends_with(|c: char| c.is_ascii_digit() || c == '}') {
                    earliest = Some(earliest.map_or(bare.len(), |it| it.min(bare.len())));
                }
            }
        }
    }
    earliest.filter(|it| *it < text.len())
}

/// Where `unit` starts at the end of `text`, if it is there.
fn ends_with_unit(text: &str, unit: &str) -> Option<usize> {
    if !unit.contains('?') {
        return text.strip_suffix(unit).map(str::len);
    }
    let mut at = text.len();
    for c in unit.chars().rev() {
        let last = text[..at].chars().next_back()?;
        if c != '?' && c != last {
            return None;
        }
        at -= last.len_utf8();
    }
    Some(at)
}

// ---- malformed operators ------------------------------------------------------------------------------------------

fn fix_operators(text: &mut String) {
    if text.contains('^') {
        bracket_argument(text, "^", "^{");
    }
    if text.contains("sqrt") {
        bracket_argument(text, "sqrt", "\\sqrt{");
    }
    if text.contains("\\frac") {
        two_digits(text, "\\frac");
    }
    if text.contains("\\log_") {
        two_digits(text, "\\log_");
    }
    if text.contains("\\frac") {
        brace_then_digit(text);
        digit_then_brace(text);
    }
    if text.contains("sqrt") {
        root_digit(text);
        replace_all(text, " sqrt", "\\sqrt");
        wrap_roots(text);
    }
    if text.contains("\\frac") {
        wrap_fractions(text);
    }
    if text.contains('/') {
        slash_fraction(text);
    }
}

fn one_space(rest: &str) -> usize {
    rest.chars()
        .next()
        .filter(|c| c.is_whitespace())
        .map_or(0, char::len_utf8)
}

/// `op(…)` becomes `op{…}`, up to the first closing parenthesis.
fn bracket_argument(text: &mut String, op: &str, new: &str) {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    let mut more = true;
    while let Some(at) = rest.find(op) {
        out.push_str(&rest[..at]);
        let after = &rest[at + op.len()..];
        let after = &after[one_space(after)..];
        let close = if more {
            after.strip_prefix('(').map(|inner| inner.find(')'))
        } else {
            None
        };
        if close == Some(None) {
            more = false;
        }
        if let Some(Some(close)) = close {
            out.push_str(new);
            out.push_str(&after[1..=close]);
            out.push('}');
            rest = &after[close + 2..];
        } else {
            out.push_str(op);
            rest = &rest[at + op.len()..];
        }
    }
    out.push_str(rest);
    *text = out;
}

/// `\frac12` and `\log_28`: the first digit, then the rest of the number.
fn two_digits(text: &mut String, command: &str) {
    rewrite(text, command, |rest, out| {
        let start = one_space(rest);
        let first = rest[start..].bytes().next().filter(u8::is_ascii_digit)?;
        let second = start + 1 + one_space(&rest[start + 1..]);
        let n_digits = rest[second..]
            .bytes()
            .take_while(u8::is_ascii_digit)
            .count();
        if n_digits == 0 {
            return None;
        }
        out.push_str(command);
        out.push('{');
        out.push(first as char);
        out.push_str("}{");
        out.push_str(&rest[second..second + n_digits]);
        out.push('}');
        Some(second + n_digits)
    });
}

/// `\frac{…}3`: the digit after any later closing brace is wrapped.
fn brace_then_digit(text: &mut String) {
    let mut none_left = false;
    rewrite(text, "\\frac", |rest, out| {
        let open = one_space(rest);
        if none_left || !rest[open..].starts_with('{') {
            return None;
        }
        for (at, _) in rest[open + 1..].match_indices('}') {
            let close = open + 1 + at;
            let digit = close + 1 + one_space(&rest[close + 1..]);
            if rest[digit..].starts_with(|c: char| c.is_ascii_digit()) {
                out.push_str("\\frac");
                out.push_str(&rest[open..=close]);
                out.push('{');
                out.push_str(&rest[digit..=digit]);
                out.push('}');
                return Some(digit + 1);
            }
        }
        none_left = true;
        None
    });
}

/// `\frac3{…}`: the digit is wrapped.
fn digit_then_brace(text: &mut String) {
    rewrite(text, "\\frac", |rest, out| {
        let start = one_space(rest);
        let digit = rest[start..].bytes().next().filter(u8::is_ascii_digit)?;
        let open = start + 1 + one_space(&rest[start + 1..]);
        if !rest[open..].starts_with('{') || !rest[open..].contains('}') {
            return None;
        }
        out.push_str("\\frac{");
        out.push(digit as char);
        out.push('}');
        Some(open)
    });
}

fn root_digit(text: &mut String) {
    rewrite(text, "\\sqrt", |rest, out| {
        let start = one_space(rest);
        let digit = rest[start..].bytes().next().filter(u8::is_ascii_digit)?;
        out.push_str("\\sqrt{");
        out.push(digit as char);
        out.push('}');
        Some(start + 1)
    });
}

/// Runs `rule` on the text after each `command`; it writes its result and returns how much it used, or nothing.
fn rewrite(
    text: &mut String,
    command: &str,
    mut rule: impl FnMut(&str, &mut String) -> Option<usize>,
) {
    let mut out = String::with_capacity(text.len() + 8);
    let mut rest = text.as_str();
    while let Some(at) = rest.find(command) {
        out.push_str(&rest[..at]);
        let after = &rest[at + command.len()..];
        if let Some(used) = rule(after, &mut out) {
            rest = &after[used..];
        } else {
            out.push_str(command);
            rest = after;
        }
    }
    out.push_str(rest);
    *text = out;
}

/// `\sqrt x` becomes `\sqrt{x}`.
fn wrap_roots(text: &mut String) {
    if !text.contains("\\sqrt") {
        return;
    }
    let mut parts = text.split("\\sqrt");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let part = part.trim_start();
        out.push_str("\\sqrt");
        match part.chars().next() {
            Some(c) if c != '{' && c != '[' => {
                out.push('{');
                out.push(c);
                out.push('}');
                out.push_str(&part[c.len_utf8()..]);
            }
            _ => out.push_str(part),
        }
    }
    *text = out;
}

/// `\frac ab` becomes `\frac{a}{b}`; a fraction with less than two characters after it leaves the text as it was.
fn wrap_fractions(text: &mut String) {
    let mut parts = text.split("\\frac");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let part = part.trim_start();
        out.push_str("\\frac");
        if part.starts_with('{') {
            out.push_str(part);
            continue;
        }
        let mut chars = part.chars();
        let (Some(a), Some(b)) = (chars.next(), chars.next()) else {
            return;
        };
        out.push('{');
        out.push(a);
        out.push('}');
        if b == '{' {
            out.push_str(&part[a.len_utf8()..]);
        } else {
            out.push('{');
            out.push(b);
            out.push('}');
            out.push_str(chars.as_str());
        }
    }
    *text = out;
}

/// `a/b` of two plain integers becomes a fraction.
fn slash_fraction(text: &mut String) {
    let Some((a, b)) = text.split_once('/') else {
        return;
    };
    if is_plain_integer(a) && is_plain_integer(b) {
        *text = format!("\\frac{{{a}}}{{{b}}}");
    }
}

/// Written as a computer prints it: no sign but a minus, no leading zero.
pub(crate) fn is_plain_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    match digits.as_bytes() {
        [b'0'] => !text.starts_with('-'),
        [] | [b'0', ..] => false,
        all => all.iter().all(u8::is_ascii_digit),
    }
}
