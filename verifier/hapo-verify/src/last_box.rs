//! The last `\boxed{…}` of a text, as the graders `oat`, `exact` and `format` take it.

use crate::normalise::closing_brace;
use crate::verdict::Reason;

pub(crate) fn last_box(text: &str) -> Result<&str, Reason> {
    let start = text.rfind("\\boxed{").ok_or(Reason::NoAnswer)?;
    let close = closing_brace(text, start + 6, text.len()).ok_or(Reason::UnclosedBox)?;
    Ok(&text[start + 7..close])
}
