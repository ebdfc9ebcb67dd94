//! Numerals that the grammar does not know: with a base, with a period that repeats, mixed, and grouped by points.

use super::{DOTS, FRACTIONS};
use num_bigint::BigInt;

/// Longest numeral with a base, in digits.
const MAX_DIGITS: usize = 256;

/// Longest period and longest part before it, in digits.
const MAX_PERIOD: usize = 40;

/// `text` with such numerals as integers and fractions.
pub(super) fn rewritten(text: &str) -> String {
    if !text.bytes().any(|b| b.is_ascii_digit()) {
        return text.to_owned();
    }
    // Letters begin a numeral only where it is the whole text, and more than a symbol.
    if text.len() > 3
        && text.as_bytes()[1].is_ascii_alphanumeric()
        && let Some((len, new)) = with_base(text)
        && len == text.len()
    {
        return new;
    }
    let mut out = String::with_capacity(text.len() + 8);
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        // A digit that belongs to a name, or stands behind a point, begins no numeral.
        let begins =
            !out.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '\\' | '^'));
        let rule = if begins { numeral(rest) } else { None };
        if let Some((len, new)) = rule {
            out.push_str(&new);
            rest = &rest[len..];
        } else {
            let run = rest.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'.').count();
            out.push_str(&rest[..run]);
            rest = &rest[run..];
        }
    }
    out.push_str(rest);
    out
}

/// How much of `text` is such a numeral, and what it is rewritten to.
fn numeral(text: &str) -> Option<(usize, String)> {
    repeating(text)
        .or_else(|| unending(text))
        .or_else(|| with_base(text))
        .or_else(|| with_prefix(text))
        .or_else(|| quoted(text))
        .or_else(|| mixed(text))
        .or_else(|| mixed_fraction(text))
        .or_else(|| grouped(text))
        .or_else(|| scientific(text))
        .or_else(|| power_of_ten(text))
}

/// `3.2 x 10^5`: the letter is a sign of multiplication.
fn power_of_ten(text: &str) -> Option<(usize, String)> {
    let mantissa = text.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let after = text[mantissa..].trim_start().strip_prefix('x')?.trim_start();
    let end = text.len() - after.len();
    after.starts_with("10^").then(|| (end, format!("{} \\cdot ", &text[..mantissa])))
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// `0.1\overline{6}`, `0.\bar 6`, `0.1\dot{6}`, `0.\dot{1}4285\dot{7}`, `0.1(6)`.
fn repeating(text: &str) -> Option<(usize, String)> {
    let whole = digits(text);
    let after = text[whole..].strip_prefix('.')?;
    let fixed = digits(after);
    let start = whole + 1 + fixed;
    let (period, len) = period(&text[start..])?;
    if period.is_empty() || period.len() > MAX_PERIOD || whole + fixed > MAX_PERIOD {
        return None;
    }
    // a.b(c) is (abc - ab) / (99…900…0).
    let head = format!("{}{}", &text[..whole], &after[..fixed]);
    let number = |it: &str| it.parse::<BigInt>().ok();
    let numerator = number(&format!("{head}{period}"))? - number(&head)?;
    let denominator = format!("{}{}", "9".repeat(period.len()), "0".repeat(fixed));
    Some((start + len, format!("\\frac{{{numerator}}}{{{denominator}}}")))
}

/// `0.333\ldots` and `0.1212\ldots`: the digits before the dots repeat.
fn unending(text: &str) -> Option<(usize, String)> {
    let whole = digits(text);
    let after = text[whole..].strip_prefix('.')?;
    let decimals = digits(after);
    let dots = DOTS.iter().find(|it| after[decimals..].starts_with(**it))?;
    let shown = &after[..decimals];
    let fixed = (1..=6).find_map(|len| {
        let period = shown.get(shown.len().checked_sub(len)?..)?;
        let mut fixed = shown;
        let mut n_times = 0;
        while let Some(before) = fixed.strip_suffix(period) {
            (fixed, n_times) = (before, n_times + 1);
        }
        // Twice is a chance where other digits stand before: e is 2.718281828….
        let is_period = n_times > 2 || n_times == 2 && len > 1 && fixed.is_empty();
        is_period.then_some((fixed, period))
    });
    let (fixed, period) = fixed?;
    let numeral = format!("{}.{fixed}\\overline{{{period}}}", &text[..whole]);
    let (_, fraction) = repeating(&numeral)?;
    Some((whole + 1 + decimals + dots.len(), fraction))
}

/// The digits that repeat, and how long they and their marks are.
fn period(text: &str) -> Option<(String, usize)> {
    for command in ["\\overline", "\\bar"] {
        if let Some(after) = text.strip_prefix(command) {
            let (inner, len) = braced_digits(after)?;
            return Some((inner.to_owned(), command.len() + len));
        }
    }
    if let Some(after) = text.strip_prefix("\\dot") {
        let (first, mut len) = braced_digits(after)?;
        let middle = digits(&after[len..]);
        let last = after[len + middle..].strip_prefix("\\dot");
        let mut period = first.to_owned();
        if let Some((last, closing)) = last.and_then(braced_digits) {
            period.push_str(&after[len..len + middle]);
            period.push_str(last);
            len += middle + 4 + closing;
        }
        return Some((period, 4 + len));
    }
    let inner = text.strip_prefix('(')?;
    let n = digits(inner);
    (n > 0 && inner[n..].starts_with(')')).then(|| (inner[..n].to_owned(), n + 2))
}

/// `{16}` or one digit, maybe after a space.
fn braced_digits(text: &str) -> Option<(&str, usize)> {
    let space = text.len() - text.trim_start().len();
    let inner = &text[space..];
    if let Some(inner) = inner.strip_prefix('{') {
        let n = digits(inner);
        return (n > 0 && inner[n..].starts_with('}')).then(|| (&inner[..n], space + n + 2));
    }
    (digits(inner) > 0).then(|| (&inner[..1], space + 1))
}

/// `1011_2`, `7_{10}`, `1A_{16}`, `31_{\text{five}}`: the integer. A digit beyond the base leaves the text as it is.
fn with_base(text: &str) -> Option<(usize, String)> {
    let len = text.bytes().take_while(u8::is_ascii_alphanumeric).count();
    let (inner, script) = script(text[len..].strip_prefix('_')?)?;
    let base = base_named(inner)?;
    // A small letter is a symbol with a subscript.
    if len > MAX_DIGITS || text[..len].bytes().any(|b| b.is_ascii_lowercase()) {
        return None;
    }
    let value = BigInt::parse_bytes(&text.as_bytes()[..len], base)?;
    Some((len + 1 + script, value.to_string()))
}

/// `0b1101` and `0xFF` as in programs.
fn with_prefix(text: &str) -> Option<(usize, String)> {
    let (base, after) = [("0b", 2), ("0x", 16), ("0o", 8)]
        .iter()
        .find_map(|(mark, base)| text.strip_prefix(mark).map(|it| (*base, it)))?;
    let len = after.bytes().take_while(u8::is_ascii_alphanumeric).count();
    let value = BigInt::parse_bytes(&after.as_bytes()[..len.min(MAX_DIGITS)], base)?;
    (len <= MAX_DIGITS).then(|| (len + 2, value.to_string()))
}

/// `1'234'567`: groups of three digits.
fn quoted(text: &str) -> Option<(usize, String)> {
    let first = digits(text);
    let mut len = first;
    while text[len..].starts_with('\'') && digits(&text[len + 1..]) == 3 {
        len += 4;
    }
    let ends = !text[len..].starts_with(['\'', '.']);
    (len > first && (1..=3).contains(&first) && ends).then(|| (len, text[..len].replace('\'', "")))
}

/// The content of a subscript, and its length with its braces.
fn script(text: &str) -> Option<(&str, usize)> {
    if text.starts_with('{') {
        let close = crate::normalise::closing_brace(text, 0, text.len())?;
        return Some((&text[1..close], close + 1));
    }
    let n = digits(text);
    if n > 0 {
        return Some((&text[..n], n));
    }
    let inner = text.strip_prefix("\\text{")?;
    let close = inner.find('}')?;
    Some((&text[..close + 7], close + 7))
}

fn base_named(text: &str) -> Option<u32> {
    const NAMES: [(&str, u32); 17] = [
        ("two", 2),
        ("three", 3),
        ("four", 4),
        ("five", 5),
        ("six", 6),
        ("seven", 7),
        ("eight", 8),
        ("nine", 9),
        ("ten", 10),
        ("eleven", 11),
        ("twelve", 12),
        ("thirteen", 13),
        ("fourteen", 14),
        ("fifteen", 15),
        ("sixteen", 16),
        ("twenty", 20),
        ("hex", 16),
    ];
    let name = text.trim();
    let name =
        name.strip_prefix("\\text{").and_then(|it| it.strip_suffix('}')).unwrap_or(name).trim();
    let name = ["base ", "\\text{base }", "\\text{base}", "\\text{ base }"]
        .iter()
        .find_map(|it| name.strip_prefix(it))
        .unwrap_or(name)
        .trim();
    let named = NAMES.iter().find(|it| it.0 == name).map(|it| it.1);
    named.or_else(|| name.parse().ok()).filter(|it| (2..=36).contains(it))
}

/// The gaps between the parts of a mixed number.
const GAPS: [&str; 5] = ["\\ ", "\\,", "\\;", "~", " "];

/// `3 1/2` is three and a half where the fraction is a proper one.
fn mixed(text: &str) -> Option<(usize, String)> {
    let whole = digits(text);
    let after = &text[whole..];
    let gap = GAPS.iter().find(|it| after.starts_with(**it))?;
    let start =
        whole + gap.len() + (after[gap.len()..].len() - after[gap.len()..].trim_start().len());
    let upper = digits(&text[start..]);
    let lower_at = start + upper + 1;
    if upper == 0 || !text[start + upper..].starts_with('/') {
        return None;
    }
    let lower = digits(&text[lower_at..]);
    let end = lower_at + lower;
    let (n, d) =
        (text[start..start + upper].parse::<u64>().ok()?, text[lower_at..end].parse::<u64>().ok()?);
    if n == 0 || n >= d || text[end..].starts_with(['^', '!', '_']) {
        return None;
    }
    Some((end, format!("{}\\frac{{{n}}}{{{d}}}", &text[..whole])))
}

/// `4.7e2` within a formula.
fn scientific(text: &str) -> Option<(usize, String)> {
    let whole = digits(text);
    let fraction = text[whole..].strip_prefix('.').map_or(0, |it| 1 + digits(it));
    let mantissa = whole + fraction;
    let after = text[mantissa..].strip_prefix(['e', 'E'])?;
    let sign = usize::from(after.starts_with(['-', '+']));
    let exponent = digits(&after[sign..]);
    let end = mantissa + 1 + sign + exponent;
    if !(1..=4).contains(&exponent) || text[end..].starts_with(|c: char| c.is_alphanumeric()) {
        return None;
    }
    let power = after[..sign + exponent].trim_start_matches('+');
    Some((end, format!("({} \\cdot 10^{{{power}}})", &text[..mantissa])))
}

/// `3\frac{1}{2}` is three and a half, whatever it is multiplied by.
fn mixed_fraction(text: &str) -> Option<(usize, String)> {
    let whole = digits(text);
    let after = &text[whole..];
    let after = GAPS.iter().find_map(|gap| after.strip_prefix(gap)).unwrap_or(after).trim_start();
    let after = FRACTIONS.iter().find_map(|it| after.strip_prefix(it))?;
    let (n, upper) = braced_digits(after)?;
    let (d, lower) = braced_digits(&after[upper..])?;
    let rest = &after[upper + lower..];
    let number = |it: &str| it.parse::<u32>().ok().map(u64::from);
    let (w, n, d) = (number(&text[..whole])?, number(n)?, number(d)?);
    let is_mixed = (1..d).contains(&n) && !rest.starts_with(['^', '!', '_']);
    is_mixed.then(|| (text.len() - rest.len(), format!("\\frac{{{}}}{{{d}}}", w * d + n)))
}

/// `1.000.000` is a million.
fn grouped(text: &str) -> Option<(usize, String)> {
    let first = digits(text);
    let mut len = first;
    let mut groups = 0;
    while text[len..].starts_with('.') && digits(&text[len + 1..]) == 3 {
        len += 4;
        groups += 1;
    }
    let ends = !text[len..].starts_with(|c: char| c.is_ascii_digit() || c == '.');
    (groups >= 2 && (1..=3).contains(&first) && ends).then(|| (len, text[..len].replace('.', "")))
}
