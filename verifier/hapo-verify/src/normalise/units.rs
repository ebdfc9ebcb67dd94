//! Units that are dropped at the end.

use crate::cursor::is_digits;

/// Units that are dropped, as the references list them; a `?` stands for any one character (the dots there are not
/// escaped). OAT drops all of these, in this order.
#[rustfmt::skip]
pub(crate) const UNITS: [&str; 118] = [
    "east", "degree", "mph", "kmph", "ft", "deg", "mile", "monkey", "prime", "ratio", "rd", "o", "gm", "lb", "tile",
    "per", "dm", "lt", "gain", "ab", "way", "west", "t", "a", "h", "men", "soldier", "pie", "bc", "excess", "st",
    "inches", "noon", "percent", "by", "gal", "kmh", "c", "acre", "rise", "th", "sq", "mark", "l", "toy", "coin",
    "gallon", "profit", "minw", "yr", "women", "feet", "am", "pm", "hr", "square", "are", "rupee", "rounds", "cubic",
    "cc", "mtr", "s", "ohm", "number", "day", "hour", "minute", "min", "second", "man", "woman", "sec", "cube", "mt",
    "mp", "hectare", "more", "unit", "rs", "kg", "g", "month", "km", "m", "cm", "mm", "apple", "liter", "loss", "yard",
    "pure", "year", "increase", "decrease", "d", "less", "Surface", "litre", "metre", "meter", "inch", "no change",
    "m sqaure", " m east", "sq m", "profit of rs", "cu cm", "sq inch", "cm 2", "pi sq m", "q ?", "p ? m", "a ? m",
    "sq ? m", "cu ? m", "rs ?", "s ?",
];

/// Units of that list that Math-Verify does not drop.
const ONLY_OAT: [&str; 3] = ["a", "percent", "m sqaure"];

/// Units that Math-Verify drops too.
#[rustfmt::skip]
const MORE_UNITS: [&str; 23] = [
    "integerpoint", "sue", "digit", "pound", "meal", "edge", "student", "children ticket", "multiple", "m square",
    "a ?", "b ?", "c ?", "d ?", "e ?", "f ?", "g ?", "h ?", "cent", "π r 2", "° f", "v â € ™", "∏ cm ³",
];

pub(super) fn drop_units(text: &mut String) {
    if let Some(start) = trailing_text(text) {
        let kept = text[..start].trim();
        if !kept.is_empty() {
            *text = kept.to_owned();
        }
    } else if text.trim().len() != text.len() && !text.trim().is_empty() {
        *text = text.trim().to_owned();
    }
    // A bare number, as most boxes hold, has no unit.
    if is_digits(text) {
        return;
    }
    for _ in 0..2 {
        let Some(end) = unit_start(text) else { return };
        text.truncate(end);
    }
}

/// Where a trailing `\text{…}` or `\mbox{…}` starts (with a power of one digit after it, maybe). The first such
/// command counts, whatever stands between it and the closing brace at the end.
fn trailing_text(text: &str) -> Option<usize> {
    let start = match (text.find("\\text{"), text.find("\\mbox{")) {
        (Some(a), Some(b)) => a.min(b),
        (a, b) => a.or(b)?,
    };
    let power = text.strip_suffix(|c: char| c.is_ascii_digit());
    let body_end = match power.and_then(|it| it.strip_suffix("}^")) {
        Some(body) => body.len(),
        None => text.strip_suffix('}')?.len(),
    };
    (body_end >= start + 6).then_some(start)
}

/// Where the text ends once a trailing unit is dropped. A unit counts after a digit, a closing brace or white space.
fn unit_start(text: &str) -> Option<usize> {
    let trimmed = text.trim_end();
    let mut earliest: Option<usize> = None;
    for plural in ["", "s", "es"] {
        let Some(stem) = trimmed.strip_suffix(plural) else { continue };
        for unit in UNITS.iter().filter(|it| !ONLY_OAT.contains(*it)).chain(&MORE_UNITS) {
            let Some(start) = ends_with_unit(stem, unit) else { continue };
            // One letter right after a digit is a variable: 2t is no time, whatever the reference makes of it.
            if trimmed.len() - start == 1
                && trimmed[..start].ends_with(|c: char| c.is_ascii_digit())
            {
                continue;
            }
            let head = &trimmed[..start];
            let bare = head.trim_end();
            let kept = if bare.ends_with(|c: char| c.is_ascii_digit() || c == '}') {
                bare.len()
            } else if bare.len() < head.len() {
                bare.len() + head[bare.len()..].chars().next().map_or(0, char::len_utf8)
            } else {
                continue;
            };
            earliest = Some(earliest.map_or(kept, |it| it.min(kept)));
        }
    }
    earliest.filter(|it| *it < text.len())
}

/// Where `unit` starts at the end of `text`, if it is there.
fn ends_with_unit(text: &str, unit: &str) -> Option<usize> {
    if !unit.contains('?') {
        return text.strip_suffix(unit).map(str::len);
    }
    let mut at = text.len();
    for c in unit.chars().rev() {
        let last = text[..at].chars().next_back()?;
        if c != '?' && c != last {
            return None;
        }
        at -= last.len_utf8();
    }
    Some(at)
}
