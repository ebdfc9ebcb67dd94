//! Clean-up of an extracted answer before it is read: boxes opened, wrappers and units dropped, shorthand expanded.
//!
//! The rules and their order are those of latex2sympy2-extended 1.11 with Math-Verify 0.9.0's defaults, since a text
//! that cannot be read is compared as its normalised string. Every rule is one left-to-right scan; none backtracks
//! further than a constant. The price is a chain of small rewrites; each is skipped when its trigger does not occur.

mod boxes;
mod latex;
mod operators;
mod units;
mod words;

pub(crate) use boxes::{are_one_list, closing_brace, open_boxes};
use latex::basic_latex;
use operators::fix_operators;
pub(crate) use operators::is_plain_integer;
use units::drop_units;

/// Which boxes of a text form the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Boxes {
    /// The last one, and those before it that are close enough to be parts of one list.
    Last,
    /// All of them.
    All,
}

/// What becomes of a unit, or of text, at the end of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trailing {
    /// Dropped, as the reference drops it.
    Dropped,
    Kept,
}

/// Longest answer that is rewritten, in bytes. A longer one is only compared as it stands.
const MAX_TEXT: usize = crate::parse::MAX_FORMULA;

/// The normalised form of `text`.
pub(crate) fn normalise(text: &str, boxes: Boxes, trailing: Trailing) -> String {
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
    if trailing == Trailing::Dropped {
        drop_units(&mut text);
    }
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

fn replace_all(text: &mut String, from: &str, to: &str) {
    if text.contains(from) {
        *text = text.replace(from, to);
    }
}
