//! Numerals that the grammar does not know: with a base, with a period that repeats, mixed, and grouped by points.

use super::DOTS;
use crate::cursor::{Cursor, Rule, replaced};
use num_bigint::BigInt;

/// Longest numeral with a base, in digits.
const MAX_DIGITS: usize = 256;

/// Longest period and longest part before it, in digits.
const MAX_PERIOD: usize = 40;

/// Each reads one kind of numeral and gives what is written for it.
const RULES: [Rule; 7] = [repeating, unending, with_base, mixed, grouped, scientific, power_of_ten];

/// `text` with such numerals as integers and fractions.
pub(super) fn rewritten(text: &str) -> String {
    if !text.bytes().any(|b| b.is_ascii_digit()) {
        return text.to_owned();
    }
    replaced(text, |cursor, out| {
        // A digit that belongs to a name, or stands behind a point, begins no numeral.
        let goes_on = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '\\' | '^');
        if !cursor.peek()?.is_ascii_digit() || out.ends_with(goes_on) {
            return None;
        }
        out.push_str(&cursor.first_of(&RULES)?);
        Some(())
    })
}

/// `3.2 x 10^5`: the letter is a sign of multiplication.
fn power_of_ten(cursor: &mut Cursor<'_>) -> Option<String> {
    let mantissa = cursor.take_while(|c| c.is_ascii_digit() || c == '.');
    cursor.spaces();
    cursor.eat("x")?;
    cursor.spaces();
    cursor.rest().starts_with("10^").then(|| format!("{mantissa} \\cdot "))
}

/// `0.1\overline{6}`, `0.\bar 6`, `0.1(6)`.
fn repeating(cursor: &mut Cursor<'_>) -> Option<String> {
    let (whole, fixed) = decimal(cursor)?;
    period_as_fraction(whole, fixed, &period(cursor)?)
}

/// The digits before a point and behind it.
fn decimal<'a>(cursor: &mut Cursor<'a>) -> Option<(&'a str, &'a str)> {
    let whole = cursor.digits()?;
    cursor.eat(".")?;
    Some((whole, cursor.digits().unwrap_or_default()))
}

/// `a.b(c)` is `(abc - ab) / (99…900…0)`.
fn period_as_fraction(whole: &str, fixed: &str, period: &str) -> Option<String> {
    if period.is_empty() || period.len() > MAX_PERIOD || whole.len() + fixed.len() > MAX_PERIOD {
        return None;
    }
    let number = |it: String| it.parse::<BigInt>().ok();
    let numerator = number(format!("{whole}{fixed}{period}"))? - number(format!("{whole}{fixed}"))?;
    let denominator = format!("{}{}", "9".repeat(period.len()), "0".repeat(fixed.len()));
    Some(format!("\\frac{{{numerator}}}{{{denominator}}}"))
}

/// `0.333\ldots` and `0.1212\ldots`.
fn unending(cursor: &mut Cursor<'_>) -> Option<String> {
    let (whole, shown) = decimal(cursor)?;
    cursor.one_of(&DOTS)?;
    let (fixed, period) = shown_period(shown)?;
    period_as_fraction(whole, fixed, period)
}

/// The digits before those that repeat at the end of a decimal, and their period.
pub(crate) fn shown_period(shown: &str) -> Option<(&str, &str)> {
    (1..=6).find_map(|len| {
        let period = shown.get(shown.len().checked_sub(len)?..)?;
        let fixed = shown.trim_end_matches(period);
        let n_times = (shown.len() - fixed.len()) / len;
        // Twice is a chance where other digits stand before: e is 2.718281828….
        let is_period = n_times > 2 || n_times == 2 && len > 1 && fixed.is_empty();
        is_period.then_some((fixed, period))
    })
}

/// The digits that repeat.
fn period(cursor: &mut Cursor<'_>) -> Option<String> {
    if cursor.one_of(&["\\overline", "\\bar"]).is_some() {
        return braced_digits(cursor).map(str::to_owned);
    }
    cursor.eat("(")?;
    let digits = cursor.digits()?;
    cursor.eat(")").map(|()| digits.to_owned())
}

/// `{16}` or one digit, maybe after a space.
fn braced_digits<'a>(cursor: &mut Cursor<'a>) -> Option<&'a str> {
    cursor.spaces();
    if cursor.eat("{").is_none() {
        return cursor.digit();
    }
    let digits = cursor.digits()?;
    cursor.eat("}").map(|()| digits)
}

/// `1011_2`, `7_{10}`, `1A_{16}`: the integer. A digit beyond the base leaves the text as it is.
fn with_base(cursor: &mut Cursor<'_>) -> Option<String> {
    let digits = cursor.take_while(|c| c.is_ascii_alphanumeric());
    cursor.eat("_")?;
    let script = if cursor.rest().starts_with('{') { cursor.group() } else { cursor.digits() };
    let base = script?.trim().trim_start_matches("\\text{").trim_end_matches('}');
    let base = base.parse().ok().filter(|it| (2..=36).contains(it))?;
    // A small letter is a symbol with a subscript.
    if digits.len() > MAX_DIGITS || digits.bytes().any(|b| b.is_ascii_lowercase()) {
        return None;
    }
    BigInt::parse_bytes(digits.as_bytes(), base).map(|it| it.to_string())
}

/// The gaps between the parts of a mixed number.
const GAPS: [&str; 5] = ["\\ ", "\\,", "\\;", "~", " "];

/// `3 1/2` is three and a half where the fraction is a proper one.
fn mixed(cursor: &mut Cursor<'_>) -> Option<String> {
    let whole = cursor.digits()?;
    cursor.one_of(&GAPS)?;
    cursor.spaces();
    let n: u64 = cursor.digits()?.parse().ok()?;
    cursor.eat("/")?;
    let d: u64 = cursor.digits()?.parse().ok()?;
    let is_mixed = (1..d).contains(&n);
    is_mixed.then(|| format!("{whole}\\frac{{{n}}}{{{d}}}"))
}

/// `4.7e2` within a formula.
fn scientific(cursor: &mut Cursor<'_>) -> Option<String> {
    let start = *cursor;
    cursor.digits()?;
    if cursor.eat(".").is_some() {
        cursor.digits();
    }
    let mantissa = cursor.since(&start);
    cursor.one(|c| matches!(c, 'e' | 'E'))?;
    let minus = cursor.one(|c| matches!(c, '-' | '+')).filter(|it| *it == "-").unwrap_or_default();
    let exponent = cursor.digits().filter(|it| it.len() <= 4)?;
    let ends = !cursor.rest().starts_with(|c: char| c.is_alphanumeric());
    ends.then(|| format!("({mantissa} \\cdot 10^{{{minus}{exponent}}})"))
}

/// `1.000.000` is a million.
fn grouped(cursor: &mut Cursor<'_>) -> Option<String> {
    let mut number = cursor.digits().filter(|it| it.len() <= 3)?.to_owned();
    let mut n_marks = 0;
    while cursor.eat(".").is_some() {
        number.push_str(cursor.digits().filter(|it| it.len() == 3)?);
        n_marks += 1;
    }
    (n_marks > 1).then_some(number)
}
