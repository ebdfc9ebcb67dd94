//! The end of an answer behind its value: a unit, a factor in words, or words that refuse it.

use super::words::{TEXTS, changes_value, hedges, is_number};
use super::{DEGREES, Refusal};
use crate::cursor::{SPACES, is_among, without_spaces};
use crate::expr::Expr;
use crate::number::Rat;
use crate::work;

/// A product of powers of units, as a multiple of their bases.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Unit {
    /// In the order of their names.
    powers: Vec<(&'static str, i64)>,
    size: Rat,
}

/// Names of units, their bases, and sizes as fractions.
#[rustfmt::skip]
const UNITS: [(&[&str], &str, i64, i64); 29] = [
    (&["angstrom"], "m", 1, 10_000_000_000),
    (&["mm", "millimeter", "millimetre"], "m", 1, 1_000),
    (&["cm", "centimeter", "centimetre"], "m", 1, 100),
    (&["dm", "decimeter", "decimetre"], "m", 1, 10),
    (&["m", "meter", "metre"], "m", 1, 1),
    (&["km", "kilometer", "kilometre"], "m", 1_000, 1),
    (&["in", "inch", "inches"], "m", 254, 10_000),
    (&["ft", "foot", "feet"], "m", 3_048, 10_000),
    (&["yd", "yard"], "m", 9_144, 10_000),
    (&["mi", "mile"], "m", 1_609_344, 1_000),
    (&["ms", "millisecond"], "s", 1, 1_000),
    (&["s", "sec", "second"], "s", 1, 1),
    (&["min", "minute"], "s", 60, 1),
    (&["h", "hr", "hour"], "s", 3_600, 1),
    (&["day"], "s", 86_400, 1),
    (&["week"], "s", 604_800, 1),
    // No number of days: months differ.
    (&["month"], "month", 1, 1),
    (&["year", "yr"], "month", 12, 1),
    (&["decade"], "month", 120, 1),
    (&["century", "centurie"], "month", 1_200, 1),
    (&["mg", "milligram"], "g", 1, 1_000),
    (&["g", "gram"], "g", 1, 1),
    (&["kg", "kilogram"], "g", 1_000, 1),
    (&["lb", "pound"], "g", 45_359_237, 100_000),
    (&["oz", "ounce"], "g", 45_359_237, 1_600_000),
    (&["dollar", "usd", "$"], "dollar", 1, 1),
    (&["cent", "penny", "pennie", "¢"], "dollar", 1, 100),
    (&["rad", "radian"], RADIAN, 1, 1),
    // 180 degrees are π; the factor π is applied where the two meet.
    (&["degree", "deg"], RADIAN, 1, 180),
];

const RADIAN: &str = "radian";

/// Units that are compared by their names and not converted: each is met by itself alone.
#[rustfmt::skip]
const OTHERS: [&str; 28] = [
    "N", "J", "W", "Pa", "Hz", "newton", "joule", "watt", "pascal", "hertz", "kelvin", "ton", "tonne", "euro", "€", "£",
    "sterling", "rupee", "yen", "celsius", "fahrenheit", "gallon", "quart", "pint", "acre", "hectare", "knot", "mole",
];

/// Units that are made of others. A capital counts as one.
const DERIVED: [(&[&str], &str); 4] = [
    (&["l", "L", "liter", "litre"], "dm3"),
    (&["ml", "mL", "milliliter", "millilitre", "cc"], "cm3"),
    (&["mph"], "mi/h"),
    (&["kmh", "kph", "kmph"], "km/h"),
];

/// Factors in words, as fractions.
#[rustfmt::skip]
const FACTORS: [(&str, i64, i64); 19] = [
    ("hundred", 100, 1), ("thousand", 1_000, 1), ("million", 1_000_000, 1), ("billion", 1_000_000_000, 1),
    ("trillion", 1_000_000_000_000, 1), ("dozen", 12, 1), ("halve", 1, 2), ("third", 1, 3), ("fourth", 1, 4),
    ("quarter", 1, 4), ("fifth", 1, 5), ("sixth", 1, 6), ("seventh", 1, 7), ("eighth", 1, 8), ("ninth", 1, 9),
    ("tenth", 1, 10), ("twelfth", 1, 12), ("hundredth", 1, 100), ("thousandth", 1, 1_000),
];

/// A word that is applied to the value before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Percent,
    Times(i64, i64),
}

/// A value without what stands behind it.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) value: String,
    pub(super) unit: Option<Unit>,
    /// A unit or a noun stands beside the value.
    pub(super) is_counted: bool,
    /// The one word beside the value, where it is no known unit.
    pub(super) noun: Option<String>,
    operations: Vec<Operation>,
}

impl Measured {
    /// The value with the words behind it applied.
    pub(super) fn applied(&self, value: Expr) -> Expr {
        self.operations.iter().rev().fold(value, |value, it| match it {
            Operation::Percent => Expr::Percent(Box::new(value)),
            Operation::Times(n, d) => value.times(Expr::int(*n).over(Expr::int(*d))),
        })
    }
}

impl Unit {
    fn none() -> Unit {
        Unit { powers: Vec::new(), size: Rat::int(1) }
    }

    fn of(base: &'static str, size: Rat) -> Unit {
        Unit { powers: vec![(base, 1)], size }
    }

    /// The product of this unit and a power of another.
    fn times(&self, other: &Unit, power: i64) -> Option<Unit> {
        let mut powers = self.powers.clone();
        for (base, n) in &other.powers {
            match powers.iter_mut().find(|it| it.0 == *base) {
                Some(it) => it.1 += power * n,
                None => powers.push((base, power * n)),
            }
        }
        powers.retain(|it| it.1 != 0);
        powers.sort_unstable();
        Some(Unit { powers, size: self.size.mul(&other.size.pow(power)?)? })
    }

    /// `value` of this unit as a value of `other`; `None` where the units measure different things.
    pub(crate) fn convert(&self, other: &Unit, value: Expr) -> Option<Expr> {
        if self.powers != other.powers {
            return None;
        }
        let factor = self.size.div(&other.size)?;
        if factor == Rat::int(1) {
            return Some(value);
        }
        let pi = match (self.has(RADIAN), self.size == Rat::int(1)) {
            (false, _) => Expr::int(1),
            (_, false) => Expr::Pi,
            (_, true) => Expr::pow(Expr::Pi, Expr::int(-1)),
        };
        Some(value.times(Expr::Num(factor)).times(pi))
    }

    fn has(&self, base: &str) -> bool {
        self.powers.iter().any(|it| it.0 == base)
    }

    pub(crate) fn is_degrees(&self) -> bool {
        self.powers == Unit::radians().powers && self.size != Rat::int(1)
    }

    pub(crate) fn radians() -> Unit {
        Unit::of(RADIAN, Rat::int(1))
    }
}

/// Most words of what a value counts.
const MAX_WORDS: usize = 16;

pub(super) fn bare(text: &str) -> Measured {
    Measured { value: text.to_owned(), ..Measured::default() }
}

/// Parts an answer into its value and what stands around it, or says why the words behind the value refuse it.
pub(super) fn split(text: &str) -> Result<Measured, Refusal> {
    let mut found = bare("");
    let mut rest = text;
    let (mut unit, mut n_units) = (Some(Unit::none()), 0);
    for sign in ["$", "€", "£"] {
        if let Some(after) = rest.strip_prefix('\\').unwrap_or(rest).strip_prefix(sign) {
            (rest, unit, n_units) = (after, known(sign), 1);
        }
    }
    // The grammar reads the percent sign of a plain number.
    let quotient = rest.strip_suffix('%').map(|it| trimmed(it.strip_suffix('\\').unwrap_or(it)));
    let is_fraction =
        |it: &str| it.ends_with(['}', ')']) || it.contains("frac") || it.contains('/');
    if let Some(before) = quotient.filter(|it| is_fraction(it)) {
        found.operations.push(Operation::Percent);
        rest = before;
    }
    let mut is_counted = n_units > 0;
    let mut noun = None;
    let mut count = |name: &str, power: i64| {
        n_units += 1;
        noun = (n_units == 1 && !name.contains(' ')).then(|| name.to_owned());
        // The whole behind "of" is no unit.
        is_counted |= !name.starts_with("of ");
        unit = unit.take().zip(compound(name)).and_then(|(all, it)| all.times(&it, power));
    };
    let mut n_words = 0;
    while let Some((before, word, power)) = trailing(rest) {
        let before = trimmed(before);
        if before.is_empty() || before.ends_with(['=', '^', '_', '(', '<', '>', ',']) {
            break;
        }
        n_words += word.split(' ').count();
        if n_words > MAX_WORDS {
            return Err("a sentence behind the value");
        }
        if hedges(&word) {
            return Err("words behind the value take it back");
        }
        let is_unit = compound(&word).is_some();
        if !is_unit && (changes_value(&word) || has_number(&word)) {
            return Err("words behind the value change it");
        }
        if word.bytes().any(|b| b.is_ascii_digit()) && power == 1 && !is_unit {
            return Err("another number behind the value");
        }
        let mut name = word.as_str();
        while !is_unit && let Some((factor, after)) = leading_factor(name) {
            found.operations.push(factor);
            name = after;
        }
        match operation(name) {
            Some(it) => found.operations.push(it),
            None => count(name, if before.ends_with('/') { -power } else { power }),
        }
        rest = before
            .strip_suffix(['/', '·'])
            .or_else(|| before.strip_suffix("\\cdot"))
            .unwrap_or(before);
        rest = trimmed(rest);
    }
    rest.clone_into(&mut found.value);
    found.unit = unit.filter(|_| n_units > 0);
    found.noun = noun.filter(|it| found.unit.is_none() && !is_among(REMARKS, it));
    found.is_counted = is_counted;
    Ok(found)
}

/// True for words behind a value that neither measure nor change it.
pub(crate) fn is_counted_noun(words: &str) -> bool {
    let lower = words.to_lowercase();
    compound(words).is_none()
        && operation(&lower).is_none()
        && leading_factor(&lower).is_none()
        && !hedges(&lower)
        && !changes_value(&lower)
        && !has_number(&lower)
        && lower.split(' ').count() < 4
}

/// Words behind a value that are neither a unit nor what is counted.
const REMARKS: &str = "unit units each total altogether more left long old wide tall high deep \
    away apart ago later only exactly approximately profit remaining extra apiece";

/// True if a word behind a value is a number, as in `20 \text{ over three}`.
fn has_number(words: &str) -> bool {
    words.split([' ', ',']).any(|word| word.split('-').all(is_number))
}

/// True for a formula that begins with a command and has a known unit behind it, as `\pi\text{ radians}`.
pub(super) fn is_measured_formula(text: &str) -> bool {
    let rest = text.trim_start_matches(['-', ' ']);
    rest.starts_with('\\')
        && !TEXTS.iter().any(|it| rest.starts_with(it))
        && split(text).is_ok_and(|it| it.unit.is_some())
}

fn operation(word: &str) -> Option<Operation> {
    if matches!(word, "percent" | "percentage" | "pct" | "per cent") {
        return Some(Operation::Percent);
    }
    let singular = word.trim_end_matches('s');
    let (_, n, d) = FACTORS.iter().find(|(name, ..)| *name == singular)?;
    Some(Operation::Times(*n, *d))
}

pub(super) fn is_operation(word: &str) -> bool {
    operation(word).is_some()
}

/// A factor before the things that are counted: `million people`, `hundredths of a second`.
fn leading_factor(words: &str) -> Option<(Operation, &str)> {
    let (first, after) = words.split_once(' ')?;
    let factor = operation(first).filter(|it| match it {
        Operation::Times(_, d) => *d == 1 || first.ends_with('s'),
        Operation::Percent => true,
    })?;
    Some((factor, after))
}

/// Exponents of a unit.
#[rustfmt::skip]
const EXPONENTS: [(&str, i64); 8] = [
    ("^2", 2), ("^{2}", 2), ("²", 2), ("^3", 3), ("^{3}", 3), ("³", 3), ("^{-1}", -1), ("^{-2}", -2),
];

/// Other marks of a power behind a unit, where nothing else may stand.
const POWERS: [(&str, i64); 6] =
    [("^-1", -1), ("^-2", -2), (" squared", 2), (" cubed", 3), ("2", 2), ("3", 3)];

/// `square cm`, `cm squared`, `sq ft`: the name, and the power.
fn without_power(word: &str) -> (&str, i64) {
    for (mark, power) in [("square ", 2), ("sq ", 2), ("sq. ", 2), ("cubic ", 3), ("cu ", 3)] {
        if let Some(name) = word.strip_prefix(mark) {
            return (name.trim(), power);
        }
    }
    let mut marks = EXPONENTS.iter().chain(&POWERS);
    let found = marks.find_map(|(mark, power)| word.strip_suffix(mark).map(|it| (it, *power)));
    let (name, power) = found.unwrap_or((word, 1));
    (name.trim(), power)
}

/// `km/h`, `miles per hour`, `kg*m/s^2` and `square cm`.
fn compound(words: &str) -> Option<Unit> {
    let mut unit = Unit::none();
    let parts = words.split('/').flat_map(|it| it.split(" per "));
    for (idx, part) in parts.enumerate() {
        let times = |unit: Unit, (name, power): (&str, i64)| {
            unit.times(&known(name)?, if idx == 0 { power } else { -power })
        };
        for part in part.split(['*', '·']).map(str::trim) {
            unit = match times(unit.clone(), without_power(part)) {
                Some(it) => it,
                // `m s^{-2}` is a product.
                None => part.split_whitespace().map(without_power).try_fold(unit, times)?,
            };
        }
    }
    Some(unit)
}

fn is_of_unit(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '/' | '^' | '{' | '}' | '*' | '²' | '³')
}

/// An answer whose unit is parted from the number before it: `5h` is `5 h` where a unit is asked.
pub(super) fn parted(text: &str) -> Option<String> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic())?);
    let is_glued = number.ends_with(|c: char| c.is_ascii_digit()) && unit.chars().all(is_of_unit);
    is_glued.then(|| format!("{number} {unit}"))
}

/// `km/h` or `m/s^2` behind a number: known units in one piece. One letter glued to a number is a variable.
fn quotient(text: &str) -> Option<(&str, &str)> {
    let run = text.trim_end_matches(is_of_unit).len();
    let digits = text[run..].bytes().take_while(u8::is_ascii_digit).count();
    let (before, unit) = text.split_at(run + digits);
    let is_unit = unit.contains('/') && compound(unit).is_some();
    let n_letters = unit.bytes().take_while(u8::is_ascii_alphabetic).count();
    let is_behind = trimmed(before).ends_with(|c: char| c.is_ascii_digit() || c == '}');
    (is_unit && is_behind && (digits == 0 || n_letters > 1)).then_some((before, unit))
}

fn known(name: &str) -> Option<Unit> {
    let singular = name.strip_suffix('s').filter(|it| it.len() > 1);
    let is_one = |it: &&str| *it == name || singular == Some(*it);
    if let Some((_, of)) = DERIVED.iter().find(|it| it.0.iter().any(&is_one)) {
        return compound(of);
    }
    if let Some(base) = OTHERS.iter().find(|it| is_one(it)) {
        return Some(Unit::of(base, Rat::int(1)));
    }
    let (_, base, n, d) = UNITS.iter().find(|it| it.0.iter().any(&is_one))?;
    Some(Unit::of(base, Rat::ratio(*n, *d)))
}

fn trimmed(text: &str) -> &str {
    let text = without_spaces(text.trim(), &SPACES);
    // The backslash of `\ ` whose space was trimmed.
    text.strip_suffix('\\').filter(|it| !it.ends_with('\\')).unwrap_or(text).trim_end()
}

/// The last unit or word of a text, in lower case, its power, and what stands before it.
fn trailing(text: &str) -> Option<(&str, String, i64)> {
    let text = trimmed(text);
    if let Some((before, name)) = degrees(text) {
        return Some((before, name.to_owned(), 1));
    }
    if let Some((before, unit)) = quotient(text) {
        return Some((before, unit.to_owned(), 1));
    }
    let (bare, power) = without_exponent(text);
    if let Some(open) = text_command(bare) {
        let inner = bare[open..].split_once('{')?.1.strip_suffix('}')?;
        let word = inner.replace('~', " ").trim().trim_start_matches("\\ ").to_owned();
        let is_unit = compound(&word).is_some();
        let word = if is_unit || word.len() == 1 { word } else { word.to_lowercase() };
        // A power behind a quotient is that of its last unit.
        return Some(match power {
            2.. if word.contains('/') => (&bare[..open], format!("{word}{power}"), 1),
            2.. | ..0 if is_unit && word.contains(' ') => {
                (&bare[..open], format!("{word}^{{{power}}}"), 1)
            }
            _ => (&bare[..open], word, power),
        });
    }
    let start = bare
        .rfind(|c: char| !(c.is_ascii_alphabetic() || c == '¢'))
        .map_or(0, |at| at + bare[at..].chars().next().map_or(0, char::len_utf8));
    let (before, word) = bare.split_at(start);
    if word.is_empty() || before.ends_with('\\') || before.is_empty() {
        return None;
    }
    // A capital names another unit than a small letter.
    let lower = if word.len() == 1 { word.to_owned() } else { word.to_lowercase() };
    let glued = before.ends_with(|c: char| c.is_ascii_digit() || matches!(c, '}' | ')' | '/'));
    let spaced = trimmed(before)
        .ends_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '}' | ')' | '%'));
    let is_unit = known(&lower).is_some();
    let counts = match word.len() {
        // One letter is a variable, unless a number and a space stand before it.
        1 => is_unit && !glued && trimmed(before).ends_with(|c: char| c.is_ascii_digit()),
        2 => is_unit && (glued || spaced),
        _ => glued && (is_unit || operation(&lower).is_some()) || spaced && !glued,
    };
    let is_function = super::words::only_words(word).is_none() && !is_unit && word.len() > 3;
    (counts && !is_function).then_some((before, lower, power))
}

/// `^\circ` and its kin, and the scale of a temperature behind them.
fn degrees(text: &str) -> Option<(&str, &'static str)> {
    let before = |text| DEGREES.iter().find_map(|it| str::strip_suffix(text, *it));
    let scaled = [("C", "celsius"), ("F", "fahrenheit")].iter().find_map(|(letter, name)| {
        let upright = |it: &&str| text.strip_suffix(format!("{it}{{{letter}}}").as_str());
        let rest = TEXTS.iter().find_map(upright).or_else(|| text.strip_suffix(letter))?;
        Some((before(trimmed(rest))?, *name))
    });
    scaled.or_else(|| Some((before(text)?, "degree")))
}

/// A text without an exponent at its end, which belongs to a unit.
fn without_exponent(text: &str) -> (&str, i64) {
    for (mark, power) in EXPONENTS {
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
    let open = opening_brace(text)?;
    let command = TEXTS.iter().find(|it| text[..open].ends_with(**it))?;
    // One upright letter is a symbol, unless it is a unit.
    let inner = text[open + 1..text.len() - 1].trim_matches(['~', ' ']);
    let is_symbol = inner.chars().count() == 1 && inner.chars().all(|c| (c as u32) < 0x400);
    (!is_symbol || known(inner).is_some()).then(|| open - command.len())
}

/// The brace that opens the group at the end of a text.
fn opening_brace(text: &str) -> Option<usize> {
    let mut level = 0_usize;
    for (at, byte) in text.bytes().enumerate().rev() {
        work::count(1);
        match byte {
            b'}' => level += 1,
            b'{' => level = level.checked_sub(1)?,
            _ => {}
        }
        if level == 0 {
            return (at + 1 < text.len()).then_some(at);
        }
    }
    None
}
