//! An answer as its writer means it: read as a whole, or refused with a reason.
//!
//! Used by the policies `training` and `benchmark`. Notation that Math-Verify cannot read, or reads as something else,
//! is rewritten ([`markup`], [`signs`], [`numerals`]); what stands behind a value is a unit, a factor, or a reason to
//! refuse it ([`units`]); words are compared as words. The price is that an answer in which anything is left over has no
//! meaning: no number is picked out of it.

mod clock;
mod markup;
mod numerals;
mod signs;
mod units;
mod words;

use crate::expr::Expr;
use crate::normalise::{Boxes, CleanUp, normalise};
use crate::parse::{self, ParseResult, Style};
pub(crate) use clock::{Clock, clock, is_date};
pub(crate) use signs::as_meant;
use std::borrow::Cow;
pub(crate) use units::Unit;
pub(crate) use words::{announced_part, as_words, capital, hedges, names_nothing, same_words};

/// Longest answer that is rewritten, in bytes.
const MAX_TEXT: usize = 8_192;

/// Why an answer is refused, whatever its value.
pub(crate) type Refusal = &'static str;

/// The content of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Meaning {
    /// The text without marks, in the notation that is read.
    pub(crate) text: String,
    pub(crate) value: ParseResult<Expr>,
    /// The unit of the value, where it is a known one.
    pub(crate) unit: Option<Unit>,
    /// A unit or a noun stands beside the value.
    pub(crate) is_counted: bool,
    /// The answer as words, where it is made of words.
    pub(crate) words: Option<String>,
}

/// Reads an answer without the box or the announcement around it.
///
/// # Errors
/// Why no value of it counts.
pub(crate) fn read(text: &str) -> Result<Meaning, Refusal> {
    if text.len() > MAX_TEXT {
        let value = parse::latex(&normalise(text, CleanUp::KEEPS_UNITS), Style::Meant);
        let text = text.trim().to_owned();
        return Ok(Meaning { text, value, unit: None, is_counted: false, words: None });
    }
    let plain = markup::plain(text);
    if let Some(why) = dangling(&plain) {
        return Err(why);
    }
    let words = words::only_words(&plain);
    let measured = if words.is_some() { units::bare(&plain) } else { units::split(&plain)? };
    let normal = notation(&measured.value);
    let value = match parse::scientific(&normal) {
        Some(it) => Ok(it),
        None => parse::latex(&normal, Style::Meant).map(crate::compare::complex),
    };
    let value = value.map(|it| measured.applied(it));
    let (unit, is_counted) = (measured.unit, measured.is_counted);
    Ok(Meaning { text: normal, value, unit, is_counted, words })
}

/// Reads an answer to a gold answer with a unit: letters glued to its number are one, where they name one.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_measured(text: &str) -> Result<Meaning, Refusal> {
    let parted = units::parted(text).map(|it| read(&it));
    match parted {
        Some(Ok(meaning)) if meaning.unit.is_some() => Ok(meaning),
        _ => read(text),
    }
}

/// True for a ratio of three or more parts.
pub(crate) fn is_ratio(text: &str) -> bool {
    signs::ratios(text).is_some()
}

/// True if words around the first number of an announcement change it.
pub(crate) fn changes_number(text: &str) -> bool {
    words::changes_number(text, units::is_operation)
}

/// True if Math-Verify reads an answer in its own way, or pays for it where the policies refuse it.
pub(crate) fn is_read_otherwise(text: &str) -> bool {
    let text = text.trim();
    let is_plain = |b: u8| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+');
    if text.len() > MAX_TEXT || text.bytes().all(is_plain) {
        return false;
    }
    let plain = markup::plain(text);
    if plain != text || dangling(&plain).is_some() || hedges(&plain) {
        return true;
    }
    match units::split(&plain) {
        Err(_) => true,
        Ok(measured) => {
            measured.changes_value() || notation(&measured.value) != as_before(&measured.value)
        }
    }
}

/// `text` in the notation that the grammar reads.
fn notation(text: &str) -> String {
    let text = numerals::rewritten(text);
    let text = signs::residues(&text)
        .or_else(|| signs::ratios(&text))
        .or_else(|| signs::sets(&text))
        .unwrap_or(text);
    normalise(&as_meant(&signs::commands(&text)), CleanUp::KEEPS_UNITS)
}

fn as_before(text: &str) -> String {
    normalise(text, CleanUp::KEEPS_UNITS)
}

/// The refusal of a sign without its operand: a relation without its left side, a prime behind a number.
fn dangling(text: &str) -> Option<Refusal> {
    const SIGNS: [&str; 18] = [
        "<", ">", "=", "≤", "≥", "≠", "¬", "\\leq", "\\geq", "\\le", "\\ge", "\\lt", "\\gt",
        "\\ne", "\\neg", "\\not", "\\lnot", "\\sim",
    ];
    let is_command = |rest: &str| rest.starts_with(|c: char| c.is_ascii_alphabetic());
    let starts = |sign: &&str| {
        let rest = text.strip_prefix(*sign);
        rest.is_some_and(|rest| !sign.starts_with('\\') || !is_command(rest))
    };
    if SIGNS.iter().any(starts) {
        return Some("a relation without its left side");
    }
    let prime = text.match_indices(['\'', '′', '’']).map(|it| it.0);
    let of_number = |at: usize| text[..at].ends_with(|c: char| c.is_ascii_digit());
    if prime.into_iter().any(of_number) || text.contains("\\prime") && !text.contains('(') {
        return Some("a prime behind a number");
    }
    None
}

/// The content of the boxes of an answer: of one, or of several joined to a list.
pub(crate) fn opened(passage: &str) -> Cow<'_, str> {
    crate::normalise::open_boxes(passage, Boxes::Last)
}
