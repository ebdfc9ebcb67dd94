//! Opens boxes.

use super::Boxes;
use crate::work;
use std::borrow::Cow;

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
        let Some(start) = boxed.max(framed) else {
            break;
        };
        let command = if text[start..].starts_with("\\boxed") { 6 } else { 5 };
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

/// The contents of the boxes that stand beside each other.
pub(crate) fn contents(text: &str) -> Vec<&str> {
    let (mut all, mut at) = (Vec::new(), 0);
    while let Some(start) = ["\\boxed", "\\fbox"].iter().filter_map(|it| text[at..].find(it)).min()
    {
        let Some(open) = text[at + start..].find('{').map(|it| at + start + it) else {
            break;
        };
        let Some(close) = closing_brace(text, open, text.len()) else {
            break;
        };
        all.push(text[open + 1..close].trim());
        at = close + 1;
    }
    all
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
                    work::count(idx - open);
                    return Some(idx);
                }
            }
            _ => {}
        }
    }
    work::count(limit.saturating_sub(open));
    None
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
    content.trim_matches(marks).trim_end_matches(['.', ',', ';']).trim_matches(marks)
}
