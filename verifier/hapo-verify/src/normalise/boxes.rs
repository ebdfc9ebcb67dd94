//! Opens boxes.

use super::Boxes;
use crate::cursor::closing;
use crate::verdict::Reason;
use std::borrow::Cow;
use std::ops::Range;

/// The content of the boxes of `text`, joined by commas; the text itself if it has none.
pub(crate) fn open_boxes(text: &str, boxes: Boxes) -> Cow<'_, str> {
    if !text.contains("\\boxed") && !text.contains("\\fbox") {
        return Cow::Borrowed(text);
    }
    let mut contents: Vec<&str> = Vec::new();
    let mut limit = text.len();
    let mut next_start = None;
    // Each command is looked for again only once its last occurrence was used, so that the text is searched once.
    let (mut boxed, mut framed) = (text.rfind("\\boxed"), text.rfind("\\fbox"));
    loop {
        if boxed.is_some_and(|it| it >= limit) {
            boxed = text[..limit].rfind("\\boxed");
        }
        if framed.is_some_and(|it| it >= limit) {
            framed = text[..limit].rfind("\\fbox");
        }
        let Some(start) = boxed.max(framed) else { break };
        let Some(content) = content_of(&text[..limit], start) else {
            let rest = text[start + command_len(text, start)..limit].trim_start();
            if contents.is_empty() && !rest.is_empty() {
                contents.push(&text[limit - rest.len()..]);
            }
            break;
        };
        let (close, content) = (content.end, text[content].trim());
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

pub(crate) fn last_command(text: &str) -> Option<usize> {
    text.rfind("\\boxed").max(text.rfind("\\fbox"))
}

fn command_len(text: &str, start: usize) -> usize {
    if text[start..].starts_with("\\boxed") { 6 } else { 5 }
}

/// The content of the box that begins at `start`, if it is closed.
pub(crate) fn content_of(text: &str, start: usize) -> Option<Range<usize>> {
    let open = text[start + command_len(text, start)..].trim_start();
    let at = text.len() - open.len();
    let close = open.starts_with('{').then(|| closing(open, [b'{', b'}']))??;
    Some(at + 1..at + close)
}

/// The content of the last `\boxed{…}`, as the graders `oat`, `exact` and `format` take it.
pub(crate) fn last_box(text: &str) -> Result<&str, Reason> {
    let start = text.rfind("\\boxed{").ok_or(Reason::NoAnswer)?;
    content_of(text, start).map(|it| &text[it]).ok_or(Reason::UnclosedBox)
}

/// True for two boxes with `between` in the middle that are parts of one list.
pub(crate) fn are_one_list(between: &str, content: &str, next: &str) -> bool {
    let n_chars = between.chars().take(70).count();
    if n_chars < 10 {
        return true;
    }
    next != content
        && n_chars < 70
        && (between.contains([',', ';']) || has_word(between, "and") || has_word(between, "or"))
}

/// True for a text between or around boxes that says that the next one is another case, and no correction.
pub(crate) fn offers_another(text: &str) -> bool {
    const WORDS: [&str; 5] = ["case", "alternatively", "otherwise", "option", "else"];
    let text = text.to_lowercase();
    WORDS.iter().any(|it| has_word(&text, it))
}

fn has_word(text: &str, word: &str) -> bool {
    let boundary = |c: Option<char>| c.is_none_or(|c| !(c.is_alphanumeric() || c == '_'));
    text.match_indices(word).any(|(at, _)| {
        boundary(text[..at].chars().next_back()) && boundary(text[at + word.len()..].chars().next())
    })
}

/// An announced answer without the marks of the text around it.
pub(crate) fn bare(content: &str) -> &str {
    let marks = |c: char| c.is_whitespace() || "*_$`".contains(c);
    let text = content.trim_matches(marks);
    let end = text.trim_end_matches(['.', ',', ';']);
    // `0.333...` goes on; one point ends the sentence.
    let is_decimal = end.trim_end_matches(|c: char| c.is_ascii_digit()).ends_with('.');
    let goes_on = is_decimal && text[end.len()..].starts_with("...");
    text[..end.len() + 3 * usize::from(goes_on)].trim_matches(marks)
}

/// True for a text that begins with a value: a number, a formula, or one letter.
pub(crate) fn is_value(text: &str) -> bool {
    let text = text.trim_start_matches(|c: char| c.is_whitespace() || "*_([{\"'`~".contains(c));
    let text = ["Option ", "option ", "Choice ", "choice "]
        .iter()
        .find_map(|it| text.strip_prefix(it))
        .unwrap_or(text);
    let text = text.trim_start_matches(['(', '*']);
    let unsigned = text.trim_start_matches(['-', '+', '−', '±', '.', ' ']);
    let mut chars = unsigned.chars();
    let Some(first) = chars.next() else { return false };
    let next = chars.next();
    let is_letter = first.is_ascii_alphabetic()
        && !next.is_some_and(|c| c.is_alphanumeric() || c == '\'')
        && !(matches!(first, 'a' | 'A' | 'I')
            && text[1..].trim_start().starts_with(|c: char| c.is_ascii_lowercase()));
    first.is_numeric()
        || matches!(first, '\\' | '$' | '€' | '£' | '¥' | '√' | '∞' | 'π' | '∅' | '|')
        || is_letter
}
