//! Marks that change how an answer looks and not what it means.

use crate::normalise::closing_brace;
use std::borrow::Cow;

/// Commands of which the last argument alone is kept, with the number of arguments before it.
#[rustfmt::skip]
const DRESS: [(&str, usize); 22] = [
    ("\\textcolor", 1), ("\\colorbox", 1), ("\\color", 1), ("\\underline", 0), ("\\bold", 0), ("\\boldsymbol", 0),
    ("\\bm", 0), ("\\pmb", 0), ("\\emph", 0), ("\\boxed", 0), ("\\fbox", 0), ("\\mathbf", 0), ("\\mathit", 0),
    ("\\textbf", 0), ("\\textit", 0), ("\\ensuremath", 0), ("\\cancelto", 1), ("\\mathsf", 0), ("\\mathtt", 0),
    ("\\displaystyle", 0), ("\\textstyle", 0), ("\\large", 0),
];

/// Commands whose argument is not seen, or struck out.
const UNSEEN: [&str; 6] =
    ["\\phantom", "\\hphantom", "\\vphantom", "\\cancel", "\\bcancel", "\\xcancel"];

/// Labels before an answer.
const LABELS: [&str; 4] = ["final answer", "the answer is", "answer", "ans"];

/// `text` without marks, labels and invisible characters, its dashes and wide characters plain.
pub(super) fn plain(text: &str) -> String {
    let text = undelimited(text);
    let mut out: String = text.chars().filter(|c| !is_invisible(*c)).map(plain_character).collect();
    if out.contains('\\') {
        out = undressed(&out);
    }
    if out.contains("\\begin {") || out.contains("\\end {") {
        out = out.replace("\\begin {", "\\begin{").replace("\\end {", "\\end{");
    }
    if out.contains("\\langle") && out.contains(',') {
        out = out.replace("\\langle", "(").replace("\\rangle", ")");
    }
    for (from, to) in [
        ("\\limits", ""),
        ("\\nicefrac", "\\frac"),
        ("\\sfrac", "\\frac"),
        ("\\mathrm{e}", "e"),
        ("^{\\text{th}}", ""),
        ("^{\\text{st}}", ""),
        ("^{\\text{nd}}", ""),
        ("^{\\text{rd}}", ""),
        ("smallmatrix", "matrix"),
        ("Bmatrix", "bmatrix"),
        ("\\cr ", "\\\\ "),
        ("\\hline", ""),
        ("\\\\ \\\\", "\\\\"),
        ("\\\\\\\\", "\\\\"),
        ("\\varnothing", "\\emptyset"),
        ("...", "\\ldots "),
        ("…", "\\ldots "),
    ] {
        if out.contains(from) {
            out = out.replace(from, to);
        }
    }
    if out.contains("\\mathbb ") {
        for letter in ["N", "Z", "Q", "R", "C"] {
            out = out.replace(&format!("\\mathbb {letter}"), &format!("\\mathbb{{{letter}}}"));
        }
    }
    if out.contains("{}") {
        out = without_empty_groups(&out);
    }
    if out.contains("\\\\[") {
        out = without_row_gaps(&out);
    }
    let marks = |c: char| c.is_whitespace() || matches!(c, '$' | '*' | '`' | '~');
    let mut rest = out.trim_matches(marks);
    for space in ["\\,", "\\;", "\\:", "\\!", "\\ "] {
        rest = rest.strip_prefix(space).unwrap_or(rest).trim_start();
    }
    let rest = without_label(rest);
    // A full stop or a comma ends the sentence around the answer.
    let rest = rest.trim_matches(marks).trim_end_matches(['.', ',', ';']).trim_matches(marks);
    // An empty box before this one leaves a comma.
    let rest = rest.trim_start_matches(',').trim_start();
    let rest = rest.strip_suffix("\\").unwrap_or(rest).trim_end();
    let rest = MARKS.iter().find_map(|it| rest.strip_suffix(it)).unwrap_or(rest).trim_end();
    without_text(ungrouped(rest)).into_owned()
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

/// A numeral in upright letters before its base: `\text{FF}_{16}`.
fn without_text(text: &str) -> Cow<'_, str> {
    let numeral = ["\\text", "\\mathrm"].iter().find_map(|it| argument(text.strip_prefix(it)?));
    match numeral {
        Some((digits, rest))
            if rest.starts_with('_')
                && digits.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_uppercase()) =>
        {
            Cow::Owned(format!("{digits}{rest}"))
        }
        _ => Cow::Borrowed(text),
    }
}

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
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{3000}' => ' ',
        _ => c,
    }
}

/// `text` with the commands of [`DRESS`] and [`UNSEEN`] taken off.
fn undressed(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let name = 1 + rest[1..].bytes().take_while(u8::is_ascii_alphabetic).count();
        let (command, after) = rest.split_at(name);
        if UNSEEN.contains(&command)
            && let Some((_, left)) = argument(after)
        {
            rest = left;
        } else if let Some((_, skipped)) = DRESS.iter().find(|it| it.0 == command)
            && let Some(left) = after_arguments(after, *skipped)
        {
            match argument(left) {
                Some((inner, left)) => {
                    // Braces stay where a script or a command may claim what is inside.
                    let needs_group = inner.chars().nth(1).is_some();
                    let dressed = undressed(inner);
                    let (open, close) =
                        if needs_group && !left.is_empty() || out.ends_with(['^', '_']) {
                            ("{", "}")
                        } else {
                            ("", "")
                        };
                    out.extend([open, dressed.trim(), close]);
                    rest = left;
                }
                None if matches!(
                    command,
                    "\\displaystyle" | "\\textstyle" | "\\large" | "\\color"
                ) =>
                {
                    rest = left;
                }
                None => {
                    out.push_str(command);
                    rest = after;
                }
            }
        } else if command.len() == 1 {
            // A spacing, a delimiter or another backslash: it and the next character stand together.
            let next = after.chars().next().map_or(0, char::len_utf8);
            out.push_str(&rest[..=next]);
            rest = &after[next..];
        } else {
            out.push_str(command);
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

/// The braced argument at the beginning of `text`, and what follows it.
fn argument(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    if !text.starts_with('{') {
        return None;
    }
    let close = closing_brace(text, 0, text.len())?;
    Some((&text[1..close], &text[close + 1..]))
}

fn after_arguments(text: &str, n: usize) -> Option<&str> {
    (0..n).try_fold(text, |text, _| argument(text).map(|it| it.1))
}

/// `2{}\frac{3}{4}` without the group between the digits.
fn without_empty_groups(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut parts = text.split("{}");
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        // Elsewhere the group is an argument.
        if !out.ends_with(|c: char| c.is_ascii_digit()) {
            out.push_str("{}");
        }
        out.push_str(part);
    }
    out
}

/// `\\[2pt]` ends a row as `\\` does.
fn without_row_gaps(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("\\\\[") {
        out.push_str(&rest[..at + 2]);
        let inner = &rest[at + 3..];
        let is_gap = |it: &str| {
            it.ends_with("pt") || it.ends_with("em") || it.ends_with("ex") || it.ends_with("mm")
        };
        match inner.find(']').filter(|end| is_gap(&inner[..*end])) {
            Some(end) => rest = &inner[end + 1..],
            None => rest = &rest[at + 2..],
        }
    }
    out.push_str(rest);
    out
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
    let Some(label) = label else {
        return text;
    };
    let rest = inner[label.len()..].trim_start();
    let rest = rest.strip_prefix([':', '=']).or_else(|| label.ends_with(" is").then_some(rest));
    match (rest.map(str::trim), after) {
        (Some(""), Some(after)) => after,
        (Some(rest), Some("")) if rest.bytes().any(|b| b.is_ascii_digit()) => rest,
        (Some(rest), None) if !rest.is_empty() => rest,
        _ => text,
    }
}
