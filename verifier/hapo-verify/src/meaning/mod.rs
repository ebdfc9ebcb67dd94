//! An answer as its writer means it: read as a whole, or refused with a reason. Used by the policies `training` and
//! `benchmark`. Notation that Math-Verify cannot read, or reads as something else, is rewritten ([`markup`], [`signs`],
//! [`numerals`]); what stands behind a value is a unit, a factor, or a reason to refuse it ([`units`]); words are
//! compared as words. The price is that an answer in which anything is left over has no meaning.

mod dates;
mod letters;
mod markup;
mod numerals;
mod shapes;
mod signs;
mod units;
mod words;

use crate::cursor::{Cursor, is_digits};
use crate::expr::{Expr, Op};
use crate::normalise::{Boxes, CleanUp, is_value, normalise};
use crate::parse::{self, ParseResult, Style};
pub(crate) use dates::{is_date, is_time, same_date, same_time};
pub(crate) use letters::{as_letter, labelled, lists_letters};
pub(crate) use markup::plain;
pub(crate) use numerals::shown_period;
pub(crate) use shapes::condition;
pub(crate) use signs::as_meant;
use std::borrow::Cow;
use units::Measured;
pub(crate) use units::{Unit, is_counted_noun};
pub(crate) use words::{
    announced_part, as_words, begins_with_decision, hedges, is_function, names_nothing, numeral,
    same_words, words,
};

/// Dots of what goes on.
pub(crate) const DOTS: [&str; 5] = ["\\ldots", "\\dots", "\\cdots", "...", "…"];

#[rustfmt::skip]
pub(crate) const DEGREES: [&str; 8] = [
    "^{\\circ}", "^\\circ", "^°", "^\\degree", "°", "˚", "^{\\degree}", "\\degree",
];

/// Longest answer that is rewritten, in bytes.
const MAX_TEXT: usize = 8_192;

/// Why an answer is refused, whatever its value.
pub(crate) type Refusal = &'static str;

#[derive(Clone, Debug)]
pub(crate) struct Meaning {
    /// The text without marks, in the notation that is read.
    pub(crate) text: String,
    pub(crate) value: ParseResult<Expr>,
    /// The unit of the value, where it is a known one.
    pub(crate) unit: Option<Unit>,
    /// A unit or a noun stands beside the value.
    pub(crate) is_counted: bool,
    /// The one word beside the value, where it is no known unit.
    pub(crate) noun: Option<String>,
    /// The answer as words, where it is made of words.
    pub(crate) words: Option<String>,
}

/// Reads an answer without the box or the announcement around it, or says why no value of it counts.
pub(crate) fn read(text: &str) -> Result<Meaning, Refusal> {
    if text.len() > MAX_TEXT {
        let value = parse::latex(&normalise(text, CleanUp::KEEPS_UNITS), Style::Meant);
        let text = text.trim().to_owned();
        return Ok(Meaning { text, value, unit: None, is_counted: false, noun: None, words: None });
    }
    let plain = markup::plain(text);
    let plain = signs::with_radians(&plain);
    let plain = condition(shapes::without_parameters(&plain));
    if let Some(why) = dangling(plain) {
        return Err(why);
    }
    let is_value = units::is_measured_formula(plain);
    let words = if is_value { None } else { words::only_words(plain) };
    let measured = if words.is_some() { units::bare(plain) } else { units::split(plain)? };
    let normal = notation(&measured.value);
    let value = match parse::scientific(&normal) {
        Some(it) => Ok(it),
        None => formula(&normal),
    };
    let value = value.map(|it| measured.applied(it));
    let Measured { unit, is_counted, noun, .. } = measured;
    Ok(Meaning { text: normal, value, unit, is_counted, noun, words })
}

/// The value of a formula, or of both signs where it has one.
fn formula(text: &str) -> ParseResult<Expr> {
    let read = |text: &str| parse::latex(text, Style::Meant).map(crate::compare::complex);
    let both = |[plus, minus]: [String; 2]| Ok(Expr::Set(vec![read(&plus)?, read(&minus)?]));
    if let Some(points) = signs::both_points(text) {
        return both(points);
    }
    read(text).or_else(|error| {
        if let Some((name, value)) = text.split_once('=')
            && let Ok(name @ Expr::Sym { .. }) = read(name.trim())
        {
            let values = both(signs::both_signs(value).ok_or(error)?)?;
            return Ok(Expr::rel(Op::Eq, name, values));
        }
        both(signs::both_signs(text).ok_or(error)?)
    })
}

/// As [`read`], of an answer to a gold answer with a unit: letters glued to its number are one, where they name one.
pub(crate) fn read_measured(text: &str) -> Result<Meaning, Refusal> {
    let parted = units::parted(text).map(|it| read(&it));
    match parted {
        Some(Ok(meaning)) if meaning.unit.is_some() => Ok(meaning),
        _ => read(text),
    }
}

/// True for a ratio of three or more parts.
pub(crate) fn is_ratio(text: &str) -> bool {
    text.len() < 60 && text.matches(':').count() > 1 && !text.contains('=')
}

/// True for a ratio of two whole numbers.
pub(crate) fn is_integer_ratio(text: &str) -> bool {
    let text = text.trim().trim_matches('$');
    text.split_once(':').is_some_and(|(a, b)| is_digits(a.trim()) && is_digits(b.trim()))
}

/// The end of an announced sentence from its value on, where no words change it, without an aside behind it:
/// `17 (the smallest prime above 13)`.
pub(crate) fn said_value(text: &str) -> Option<&str> {
    let is_aside = |it: &str| {
        let n_words = words(it).filter(|it| it.len() > 2 && !is_function(it)).count();
        let n_least = if it.contains(|c: char| c.is_ascii_digit()) { 3 } else { 1 };
        it.starts_with(char::is_alphabetic) && n_words >= n_least
    };
    let aside = text.split_once(" (").filter(|it| is_aside(it.1));
    let text = aside.map_or(text, |it| it.0);
    let value = if is_value(text) { text } else { words::from_value(text)? };
    (!is_worked_on(value) && !words::changes_number(text, value, units::is_operation))
        .then_some(value)
}

/// True if a number goes on as a formula: `4.4 \times 10^{14} Hz`.
fn is_worked_on(value: &str) -> bool {
    let is_digit = |c: char| c.is_ascii_digit();
    let rest = &value[value.find(is_digit).unwrap_or(value.len())..];
    let rest = rest.trim_start_matches(|c: char| is_digit(c) || matches!(c, '.' | ',' | '/' | ' '));
    rest.starts_with(|c: char| "\\^_=+-*×·({".contains(c)) && !rest.starts_with("\\%")
        || rest.starts_with("x 10")
}

/// The only formula of a sentence, where no words around it change it.
pub(crate) fn said_formula(text: &str) -> Option<&str> {
    let (before, rest) = text.split_once('$')?;
    let (inner, after) = rest.split_once('$').filter(|it| !it.1.contains('$'))?;
    let sentence = format!("{before}1{after}");
    let is_prose = words(inner).any(|it| it.len() > 1 && !is_function(it));
    let has_number = before.contains(|c: char| c.is_ascii_digit()) || inner.trim().is_empty();
    let value = &sentence[before.len()..];
    let changes = is_prose
        || has_number
        || after.starts_with(|c: char| c.is_alphanumeric())
        || words::changes_number(&sentence, value, units::is_operation);
    (!changes).then_some(inner)
}

/// A formula without LaTeX's commands, as `2*sqrt(3)/x**2`, with them.
pub(crate) fn plain_formula(text: &str) -> String {
    normalise(&signs::commands(&signs::exponents(text)), CleanUp::KEEPS_UNITS)
}

/// `text` in the notation that the grammar reads.
fn notation(text: &str) -> String {
    let text = numerals::rewritten(&signs::exponents(text));
    let text = shapes::with_dots(&text);
    normalise(&as_meant(&signs::commands(&text)), CleanUp::KEEPS_UNITS)
}

/// The refusal of a sign without its operand: a relation without its left side, a prime behind a number.
fn dangling(text: &str) -> Option<Refusal> {
    const SIGNS: [&str; 18] = [
        "<", ">", "=", "≤", "≥", "≠", "¬", "\\leq", "\\geq", "\\le", "\\ge", "\\lt", "\\gt",
        "\\ne", "\\neg", "\\not", "\\lnot", "\\sim",
    ];
    let mut rest = Cursor::new(text);
    let starts = |sign: &&str| {
        text.starts_with(*sign) && (!sign.starts_with('\\') || rest.command(sign).is_some())
    };
    if SIGNS.iter().any(starts) {
        return Some("a relation without its left side");
    }
    if text.starts_with("[[") {
        return Some("brackets in brackets");
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
