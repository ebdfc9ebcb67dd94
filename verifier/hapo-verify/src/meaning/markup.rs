//! Marks that change how an answer looks and not what it means.

use crate::cursor::{Cursor, SPACES, replace_at, replaced_at};
use crate::normalise::replace_all;

/// Commands of which the last argument alone is kept, with the number of arguments before it.
#[rustfmt::skip]
const DRESS: [(&str, usize); 22] = [
    ("textcolor", 1), ("colorbox", 1), ("color", 1), ("underline", 0), ("bold", 0), ("boldsymbol", 0),
    ("bm", 0), ("pmb", 0), ("emph", 0), ("boxed", 0), ("fbox", 0), ("mathbf", 0), ("mathit", 0),
    ("textbf", 0), ("textit", 0), ("ensuremath", 0), ("cancelto", 1), ("mathsf", 0), ("mathtt", 0),
    ("displaystyle", 0), ("textstyle", 0), ("large", 0),
];

/// Commands whose argument is not seen, or struck out.
const UNSEEN: [&str; 6] = ["phantom", "hphantom", "vphantom", "cancel", "bcancel", "xcancel"];

/// Labels before an answer.
const LABELS: [&str; 4] = ["final answer", "the answer is", "answer", "ans"];

/// `text` without marks, labels and invisible characters, its dashes and wide characters plain.
pub(crate) fn plain(text: &str) -> String {
    let text = undelimited(text);
    let mut out: String = text.chars().filter(|c| !is_invisible(*c)).map(plain_character).collect();
    if out.contains('\\') {
        out = undressed(&out);
    }
    if out.contains("\\langle") && out.contains(',') {
        out = out.replace("\\langle", "(").replace("\\rangle", ")");
    }
    for (from, to) in [
        ("\\nicefrac", "\\frac"),
        ("\\mathrm{e}", "e"),
        ("^{\\text{th}}", ""),
        ("^{\\text{st}}", ""),
        ("^{\\text{nd}}", ""),
        ("^{\\text{rd}}", ""),
        ("Bmatrix", "bmatrix"),
        ("\\varnothing", "\\emptyset"),
        ("\\text{infinity}", "\\infty"),
        ("\\sqrt(", "sqrt("),
        ("\\mathbb R", "\\mathbb{R}"),
        ("\\AA", " angstrom"),
        ("Å", " angstrom"),
        ("\\mathring{A}", " angstrom"),
        ("~", " "),
        ("...", "\\ldots "),
        ("…", "\\ldots "),
    ] {
        replace_all(&mut out, from, to);
    }
    // `2{}\frac{3}{4}` needs no group between the digits; elsewhere it is an argument.
    replace_at(&mut out, "{}", |_, out| out.ends_with(|c: char| c.is_ascii_digit()).then_some(()));
    // `\\[2pt]` ends a row as `\\` does.
    replace_at(&mut out, "\\\\[", |cursor, out| {
        let gap = cursor.take_while(|c| c != ']');
        cursor.eat("]")?;
        let is_gap = ["pt", "em", "ex", "mm"].iter().any(|it| gap.ends_with(it));
        is_gap.then(|| out.push_str("\\\\"))
    });
    let marks = |c: char| c.is_whitespace() || matches!(c, '$' | '*' | '`' | '~');
    let mut rest = out.trim_matches(marks);
    for space in &SPACES[..5] {
        rest = rest.strip_prefix(*space).unwrap_or(rest).trim_start();
    }
    let rest = without_label(rest);
    // A full stop or a comma ends the sentence around the answer.
    let rest = rest.trim_matches(marks).trim_end_matches(['.', ',', ';']).trim_matches(marks);
    // An empty box before this one leaves a comma.
    let rest = rest.trim_start_matches(',').trim_start();
    let rest = rest.strip_suffix("\\").unwrap_or(rest).trim_end();
    let rest = MARKS.iter().find_map(|it| rest.strip_suffix(it)).unwrap_or(rest).trim_end();
    let rest = ungrouped(rest);
    with_noun(rest).unwrap_or_else(|| rest.to_owned())
}

/// `15개` with its noun as text: a letter that is neither Latin nor Greek is no symbol.
fn with_noun(text: &str) -> Option<String> {
    let is_noun = |c: char| c.is_alphabetic() && !matches!(c as u32, 0..0x400);
    let value = text.trim_end_matches(|c: char| is_noun(c) || c == ' ').trim_end();
    let noun = text[value.len()..].trim();
    let is_behind = value.ends_with(|c: char| c.is_ascii_digit() || matches!(c, '}' | ')' | '%'));
    (!noun.is_empty() && is_behind).then(|| format!("{value}\\text{{ {noun}}}"))
}

/// An answer without the delimiters of a formula around it.
fn undelimited(text: &str) -> &str {
    let inner = [("\\[", "\\]"), ("\\(", "\\)")].iter().find_map(|(open, close)| {
        text.trim().strip_prefix(open)?.strip_suffix(close).filter(|it| !it.contains(close))
    });
    inner.unwrap_or(text)
}

/// Signs behind an answer that say that it is one.
const MARKS: [&str; 8] = ["\\checkmark", "✓", "✔", "\\blacksquare", "\\square", "\\qed", "■", "∎"];

/// The content of a group around the whole answer, which is no set of one element and no binomial coefficient.
fn ungrouped(mut text: &str) -> &str {
    for _ in 0..MAX_GROUPS {
        match argument(text) {
            Some((inner, "")) if !inner.contains([',', ';']) && !inner.contains("\\choose") => {
                text = inner.trim();
            }
            _ => break,
        }
    }
    text
}

/// Most groups around an answer that are opened here; the grammar reads more of them around a number.
const MAX_GROUPS: usize = 4;

/// Characters that direct the text or join letters and are not seen.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{feff}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2064}'
        | '\u{2066}'..='\u{206f}')
}

fn plain_character(c: char) -> char {
    match c {
        '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{fe58}' | '\u{fe63}' | '\u{ff0d}' => '-',
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(c as u32 - 0xfee0).unwrap_or(c),
        '\u{1d7ce}'..='\u{1d7ff}' => char::from(b'0' + ((c as u32 - 0x1d7ce) % 10) as u8),
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{3000}' => ' ',
        _ => c,
    }
}

/// `text` with the commands of [`DRESS`] and [`UNSEEN`] taken off.
fn undressed(text: &str) -> String {
    replaced_at(text, "\\", |cursor, out| {
        let command = cursor.letters();
        let mut behind = *cursor;
        if UNSEEN.contains(&command) && behind.group().is_some() {
            *cursor = behind;
            return Some(());
        }
        behind = *cursor;
        let dress = DRESS.iter().find(|it| it.0 == command);
        if dress.is_some_and(|(_, skipped)| (0..*skipped).all(|_| behind.group().is_some())) {
            if let Some(inner) = behind.group() {
                // Braces stay where a script or a command may claim what is inside.
                let needs_group = inner.chars().nth(1).is_some() && !behind.rest().is_empty();
                let (open, close) =
                    if needs_group || out.ends_with(['^', '_']) { ("{", "}") } else { ("", "") };
                out.extend([open, undressed(inner).trim(), close]);
                *cursor = behind;
                return Some(());
            }
            if matches!(command, "displaystyle" | "textstyle" | "large") {
                return Some(());
            }
        }
        // A spacing, a delimiter or another backslash and the next character stand together.
        let next = if command.is_empty() { cursor.one(|_| true) } else { None };
        out.extend(["\\", command, next.unwrap_or_default()]);
        Some(())
    })
}

/// The braced argument at the beginning of `text`, and what follows it.
fn argument(text: &str) -> Option<(&str, &str)> {
    let mut cursor = Cursor::new(text);
    Some((cursor.group()?, cursor.rest()))
}

/// `\text{Answer: }7` and `Final answer: 7` are 7.
fn without_label(text: &str) -> &str {
    let (inner, after) = match text.strip_prefix("\\text").and_then(argument) {
        Some((inner, after)) => (inner, Some(after)),
        None => (text, None),
    };
    let label = LABELS
        .iter()
        .find(|it| inner.get(..it.len()).is_some_and(|head| head.eq_ignore_ascii_case(it)));
    let Some(label) = label else { return text };
    let rest = inner[label.len()..].trim_start();
    let rest = rest.strip_prefix([':', '=']).or_else(|| label.ends_with(" is").then_some(rest));
    match (rest.map(str::trim), after) {
        (Some(""), Some(after)) => after,
        (Some(rest), Some("")) if rest.bytes().any(|b| b.is_ascii_digit()) => rest,
        (Some(rest), None) if !rest.is_empty() => rest,
        _ => text,
    }
}
