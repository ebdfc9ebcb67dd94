//! Clean-up of an extracted answer before it is read: boxes opened, wrappers and units dropped, shorthand expanded. The
//! rules and their order are those of latex2sympy2-extended 1.11 with Math-Verify 0.9.0's defaults, since a text that
//! cannot be read is compared as its normalised string. Every rule is one left-to-right scan; none backtracks further
//! than a constant. The price is a chain of small rewrites; each is skipped when its trigger does not occur.

mod boxes;
mod latex;
mod operators;
mod units;

use crate::work;
pub(crate) use boxes::{
    are_one_list, bare, content_of, is_value, last_box, last_command, offers_another, open_boxes,
};
use latex::basic_latex;
use operators::fix_operators;
pub(crate) use operators::{brace_first, brace_pair, is_plain_integer};
use std::borrow::Cow;
pub(crate) use units::UNITS;
use units::drop_units;

/// Which boxes of a text form the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boxes {
    /// The last one, and those before it that are close enough to be parts of one list.
    Last,
    /// All of them.
    All,
}

/// The clean-up before a formula is read: the switches of latex2sympy2-extended's `NormalizationConfig`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct CleanUp {
    /// Commands that change nothing about the meaning are removed.
    pub basic_latex: bool,
    /// A unit, or a text, at the end is dropped.
    pub units: bool,
    /// A leading point gets its zero.
    pub nits: bool,
    /// `\frac12`, `\sqrt3` and the like get their braces.
    pub malformed_operators: bool,
    /// The boxes that are opened, if any.
    pub boxes: Option<Boxes>,
}

impl CleanUp {
    /// Math-Verify 0.9.0's.
    pub const DEFAULT: CleanUp = CleanUp {
        basic_latex: true,
        units: true,
        nits: true,
        malformed_operators: true,
        boxes: Some(Boxes::All),
    };
    pub(crate) const KEEPS_UNITS: CleanUp = CleanUp { units: false, ..CleanUp::DEFAULT };
}

/// Longest answer that is rewritten, in bytes. A longer one is only compared as it stands.
const MAX_TEXT: usize = crate::parse::MAX_FORMULA;

pub(crate) fn normalise(text: &str, clean_up: CleanUp) -> String {
    let text = clean_up.boxes.map_or(Cow::Borrowed(text), |boxes| open_boxes(text, boxes));
    // Digits alone are by far the commonest answer, and no rule touches them.
    let trimmed = text.trim();
    if !trimmed.is_empty() && trimmed.bytes().all(|b| b.is_ascii_digit()) {
        return trimmed.to_owned();
    }
    if text.len() > MAX_TEXT {
        return trimmed.to_owned();
    }
    work::count(text.len());
    let mut text = text.into_owned();
    if clean_up.basic_latex {
        basic_latex(&mut text);
    }
    if clean_up.units {
        drop_units(&mut text);
    }
    if clean_up.nits && text.starts_with('.') {
        text.insert(0, '0');
    }
    if clean_up.nits && text == "0.5" {
        "\\frac{1}{2}".clone_into(&mut text);
    }
    if clean_up.malformed_operators {
        fix_operators(&mut text);
    }
    let end = text.trim_end().len();
    text.truncate(end);
    let start = text.len() - text.trim_start().len();
    text.drain(..start);
    text
}

pub(crate) fn replace_all(text: &mut String, from: &str, to: &str) {
    if text.contains(from) {
        *text = text.replace(from, to);
    }
}
