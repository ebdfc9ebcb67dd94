//! The last `\boxed{…}` of a text, as the graders `oat`, `exact` and `format` take it.

use crate::normalise::closing_brace;

/// The last `\boxed{…}` of a text.
pub(crate) enum LastBox<'a> {
    Content(&'a str),
    Unclosed,
    None,
}

pub(crate) fn last_box(text: &str) -> LastBox<'_> {
    let Some(start) = text.rfind("\\boxed{") else {
        return LastBox::None;
    };
    match closing_brace(text, start + 6, text.len()) {
        Some(close) => LastBox::Content(&text[start + 7..close]),
        None => LastBox::Unclosed,
    }
}
