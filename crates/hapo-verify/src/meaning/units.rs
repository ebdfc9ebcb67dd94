//! What stands behind a value: a unit, a factor in words, or words that refuse it.

use super::Refusal;
use super::words::{TEXTS, hedges};
use crate::expr::{Expr, Func};
use crate::normalise::closing_brace;
use crate::number::Rat;

/// What a unit measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Length,
    Time,
    Mass,
    Volume,
    Money,
    Euro,
    Angle,
}

/// How many kinds there are.
const N_KINDS: usize = 7;

/// A product of powers of units, as a multiple of the bases: metre, second, gram, litre, dollar, euro, radian.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Unit {
    /// The power of each kind.
    powers: [i64; N_KINDS],
    size: Rat,
}

/// Names of units, their kinds, and sizes as fractions.
#[rustfmt::skip]
const UNITS: [(&[&str], Kind, i64, i64); 27] = [
    (&["mm", "millimeter", "millimetre"], Kind::Length, 1, 1_000),
    (&["cm", "centimeter", "centimetre"], Kind::Length, 1, 100),
    (&["dm", "decimeter", "decimetre"], Kind::Length, 1, 10),
    (&["m", "meter", "metre"], Kind::Length, 1, 1),
    (&["km", "kilometer", "kilometre"], Kind::Length, 1_000, 1),
    (&["in", "inch", "inches"], Kind::Length, 254, 10_000),
    (&["ft", "foot", "feet"], Kind::Length, 3_048, 10_000),
    (&["yd", "yard"], Kind::Length, 9_144, 10_000),
    (&["mi", "mile"], Kind::Length, 1_609_344, 1_000),
    (&["ms", "millisecond"], Kind::Time, 1, 1_000),
    (&["s", "sec", "second"], Kind::Time, 1, 1),
    (&["min", "minute"], Kind::Time, 60, 1),
    (&["h", "hr", "hour"], Kind::Time, 3_600, 1),
    (&["day"], Kind::Time, 86_400, 1),
    (&["week"], Kind::Time, 604_800, 1),
    (&["mg", "milligram"], Kind::Mass, 1, 1_000),
    (&["g", "gram"], Kind::Mass, 1, 1),
    (&["kg", "kilogram"], Kind::Mass, 1_000, 1),
    (&["lb", "pound"], Kind::Mass, 45_359_237, 100_000),
    (&["oz", "ounce"], Kind::Mass, 45_359_237, 1_600_000),
    (&["ml", "milliliter", "millilitre"], Kind::Volume, 1, 1_000),
    (&["l", "liter", "litre"], Kind::Volume, 1, 1),
    (&["dollar", "usd"], Kind::Money, 1, 1),
    (&["cent", "¢"], Kind::Money, 1, 100),
    (&["euro", "eur"], Kind::Euro, 1, 1),
    (&["rad", "radian"], Kind::Angle, 1, 1),
    // 180 degrees are π; the factor π is applied where the two meet.
    (&["degree", "deg"], Kind::Angle, 1, 180),
];

/// Factors in words.
const FACTORS: [(&str, i64); 6] = [
    ("hundred", 100),
    ("thousand", 1_000),
    ("million", 1_000_000),
    ("billion", 1_000_000_000),
    ("trillion", 1_000_000_000_000),
    ("dozen", 12),
];

/// A word that is applied to the value before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Times(i64),
    Power(i64),
    Factorial,
    Pi,
}

/// A value without what stands behind it.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) value: String,
    pub(super) unit: Option<Unit>,
    operations: Vec<Operation>,
}

impl Measured {
    /// Whether the words behind the value change it.
    pub(super) fn changes_value(&self) -> bool {
        !self.operations.is_empty()
    }

    /// The value with the words behind it applied.
    pub(super) fn applied(&self, value: Expr) -> Expr {
        self.operations.iter().rev().fold(value, |value, it| match it {
            Operation::Times(n) => value.times(Expr::int(*n)),
            Operation::Power(n) => Expr::pow(value, Expr::int(*n)),
            Operation::Factorial => Expr::call(Func::Factorial, value),
            Operation::Pi => value.times(Expr::Pi),
        })
    }
}

impl Unit {
    const NONE: Unit = Unit { powers: [0; N_KINDS], size: Rat::ONE };

    fn of(kind: Kind, size: Rat) -> Unit {
        let mut powers = [0; N_KINDS];
        powers[kind as usize] = 1;
        Unit { powers, size }
    }

    /// The product of this unit and a power of another.
    fn times(&self, other: &Unit, power: i64) -> Option<Unit> {
        let powers = std::array::from_fn(|kind| self.powers[kind] + power * other.powers[kind]);
        Some(Unit { powers, size: self.size.mul(&other.size.pow(power)?)? })
    }

    /// `value` of this unit as a value of `other`; `None` where the units measure different things.
    pub(crate) fn convert(&self, other: &Unit, value: Expr) -> Option<Expr> {
        if self.powers != other.powers {
            return None;
        }
        let factor = self.size.div(&other.size)?;
        if factor.is_one() {
            return Some(value);
        }
        let pi = match (self.powers[Kind::Angle as usize], self.size == Rat::ONE) {
            (0, _) => Expr::int(1),
            (_, false) => Expr::Pi,
            (_, true) => Expr::pow(Expr::Pi, Expr::int(-1)),
        };
        Some(value.times(Expr::Num(factor)).times(pi))
    }

    /// Degrees, where they are.
    pub(crate) fn is_degrees(&self) -> bool {
        self.powers == Unit::radians().powers && self.size != Rat::ONE
    }

    /// Radians.
    pub(crate) fn radians() -> Unit {
        Unit::of(Kind::Angle, Rat::ONE)
    }
}

/// An answer that has no unit.
pub(super) fn bare(text: &str) -> Measured {
    Measured { value: text.to_owned(), unit: None, operations: Vec::new() }
}

/// Parts an answer into its value and what stands around it.
///
/// # Errors
/// Why the words behind the value refuse it.
pub(super) fn split(text: &str) -> Result<Measured, Refusal> {
    let mut found = bare("");
    let mut rest = text;
    let (mut unit, mut n_units) = (Some(Unit::NONE), 0);
    for (sign, name) in
        [("\\$", "dollar"), ("$", "dollar"), ("\\pounds", ""), ("€", "euro"), ("£", "")]
    {
        if let Some(after) = rest.strip_prefix(sign) {
            (rest, unit, n_units) = (after, known(name), 1);
        }
    }
    while let Some((before, word, power)) = trailing(rest) {
        let before = trimmed(before);
        if before.is_empty() || before.ends_with(['=', '^', '_', '(', '<', '>', ',']) {
            break;
        }
        if hedges(&word) {
            return Err("words behind the value take it back");
        }
        if word.bytes().any(|b| b.is_ascii_digit()) && power == 1 {
            return Err("another number behind the value");
        }
        match operation(&word) {
            Some(Kinds::Percent) => {
                found.value = format!("{before}\\%");
                return Ok(found);
            }
            Some(Kinds::Operation(it)) => found.operations.push(it),
            None => {
                let power = if before.ends_with('/') { -power } else { power };
                n_units += 1;
                unit = unit.zip(compound(&word)).and_then(|(all, it)| all.times(&it, power));
            }
        }
        rest = before
            .strip_suffix(['/', '·'])
            .or_else(|| before.strip_suffix("\\cdot"))
            .unwrap_or(before);
        rest = trimmed(rest);
    }
    rest.clone_into(&mut found.value);
    found.unit = unit.filter(|_| n_units > 0);
    Ok(found)
}

/// What words behind a value do to it.
enum Kinds {
    Percent,
    Operation(Operation),
}

fn operation(word: &str) -> Option<Kinds> {
    if matches!(word, "percent" | "percentage" | "pct" | "per cent") {
        return Some(Kinds::Percent);
    }
    let operation = match word {
        "squared" => Operation::Power(2),
        "cubed" => Operation::Power(3),
        "factorial" => Operation::Factorial,
        "pi" => Operation::Pi,
        _ => Operation::Times(FACTORS.iter().find(|it| it.0 == word.trim_end_matches('s'))?.1),
    };
    Some(Kinds::Operation(operation))
}

/// `square cm`, `cm squared`, `sq ft`: the name, and the power.
fn without_power(word: &str) -> (&str, i64) {
    for (mark, power) in [("square ", 2), ("sq ", 2), ("sq. ", 2), ("cubic ", 3), ("cu ", 3)] {
        if let Some(name) = word.strip_prefix(mark) {
            return (name.trim(), power);
        }
    }
    for (mark, power) in [(" squared", 2), (" cubed", 3), ("2", 2), ("3", 3), ("²", 2), ("³", 3)]
    {
        if let Some(name) = word.strip_suffix(mark) {
            return (name.trim(), power);
        }
    }
    (word, 1)
}

/// `km/h`, `miles per hour` and `square cm`.
fn compound(words: &str) -> Option<Unit> {
    let mut parts =
        words.split('/').flat_map(|it| it.split(" per ")).map(str::trim).map(without_power);
    let (name, power) = parts.next()?;
    let first = Unit::NONE.times(&known(name)?, power);
    parts.try_fold(first?, |all, (name, power)| all.times(&known(name)?, -power))
}

/// An answer whose last letters are parted from the number before them: `5h` is `5 h` where a unit is asked.
pub(super) fn parted(text: &str) -> Option<String> {
    let (number, letters) =
        text.split_at(text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len());
    let is_glued = number.ends_with(|c: char| c.is_ascii_digit()) && !letters.is_empty();
    is_glued.then(|| format!("{number} {letters}"))
}

fn known(name: &str) -> Option<Unit> {
    let singular = name.strip_suffix('s').filter(|it| it.len() > 1);
    let is_it =
        |names: &[&str]| names.contains(&name) || singular.is_some_and(|it| names.contains(&it));
    let (_, kind, n, d) = UNITS.iter().find(|it| is_it(it.0))?;
    Some(Unit::of(*kind, Rat::new(i128::from(*n), i128::from(*d))?))
}

/// A text without spaces at its end, of any kind.
fn trimmed(text: &str) -> &str {
    let mut text = text.trim();
    while let Some(shorter) = ["\\,", "\\;", "\\:", "\\!", "\\ ", "~", "\\quad"]
        .iter()
        .find_map(|it| text.strip_suffix(it))
    {
        text = shorter.trim_end();
    }
    // The backslash of `\ ` whose space was trimmed.
    text.strip_suffix('\\').filter(|it| !it.ends_with('\\')).unwrap_or(text).trim_end()
}

/// The last unit or word of a text, in lower case, its power, and what stands before it.
fn trailing(text: &str) -> Option<(&str, String, i64)> {
    let text = trimmed(text);
    for degree in ["^\\circ", "^{\\circ}", "^\\degree", "°", "˚", "^°", "^{\\degree}", "\\degree"]
    {
        if let Some(before) = text.strip_suffix(degree) {
            return Some((before, "degree".to_owned(), 1));
        }
    }
    let (bare, power) = without_exponent(text);
    if let Some(open) = text_command(bare) {
        let inner = bare[open..].split_once('{')?.1.strip_suffix('}')?;
        let word = inner.replace('~', " ").trim().trim_start_matches("\\ ").to_lowercase();
        return Some((&bare[..open], word, power));
    }
    let start = bare
        .rfind(|c: char| !(c.is_ascii_alphabetic() || c == '¢'))
        .map_or(0, |at| at + bare[at..].chars().next().map_or(0, char::len_utf8));
    let (before, word) = bare.split_at(start);
    if word.is_empty() || before.ends_with('\\') || before.is_empty() {
        return None;
    }
    let lower = word.to_lowercase();
    let glued = before.ends_with(|c: char| c.is_ascii_digit() || matches!(c, '}' | ')' | '/'));
    let spaced = trimmed(before)
        .ends_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '}' | ')' | '%'));
    let is_unit = known(&lower).is_some();
    let counts = match word.len() {
        // One letter is a variable, unless a number and a space stand before it.
        1 => is_unit && !glued && trimmed(before).ends_with(|c: char| c.is_ascii_digit()),
        2 => is_unit && (glued || spaced) || lower == "pi" && !glued,
        _ => glued && (is_unit || operation(&lower).is_some()) || spaced && !glued,
    };
    let is_function = super::words::only_words(word).is_none() && !is_unit && word.len() > 3;
    (counts && !is_function).then_some((before, lower, power))
}

/// A text without an exponent at its end, which belongs to a unit.
fn without_exponent(text: &str) -> (&str, i64) {
    for (mark, power) in
        [("^2", 2), ("^{2}", 2), ("²", 2), ("^3", 3), ("^{3}", 3), ("³", 3), ("^{-1}", -1)]
    {
        if let Some(before) = text.strip_suffix(mark)
            && (before.ends_with(|c: char| c.is_ascii_alphabetic())
                || text_command(before).is_some())
            && trailing(before).is_some()
        {
            return (before, power);
        }
    }
    (text, 1)
}

/// Where a text command begins whose braces end the text.
fn text_command(text: &str) -> Option<usize> {
    if !text.ends_with('}') {
        return None;
    }
    let starts =
        TEXTS.iter().filter_map(|it| text.rfind(&format!("{it}{{")).map(|at| (at, at + it.len())));
    let (start, open) = starts.max()?;
    // One upright letter is a symbol, unless it is a unit.
    let inner = text[open + 1..text.len() - 1].trim_matches(['~', ' ']);
    let names = inner.chars().count() != 1 || known(&inner.to_lowercase()).is_some();
    (closing_brace(text, open, text.len()) == Some(text.len() - 1) && names).then_some(start)
}
