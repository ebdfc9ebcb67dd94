//! OAT's `_normalize`.

use super::floats::{near_integer, python_float, without_separators};
use super::plain_text::plain_text;
use super::{MAX_ANSWER, whole_text};

/// OAT's `_normalize`: LaTeX as plain text, lower case, without spaces, braces, percent signs and some units.
pub(super) fn flatten(text: &str) -> String {
    let text =
        text.strip_suffix('\n').and_then(whole_text).or_else(|| whole_text(text)).unwrap_or(text);
    if text.len() > MAX_ANSWER {
        return text.to_owned();
    }
    let mut s = text.replace("\\%", "").replace("\\$", "").replace(['$', '%'], "");
    s = s.replace(" or ", " , ").replace(" and ", " , ");
    s = s.replace("million", "*10^6").replace("billion", "*10^9").replace("trillion", "*10^12");
    for unit in [
        "degree",
        "cm",
        "centimeter",
        "meter",
        "mile",
        "second",
        "minute",
        "hour",
        "day",
        "week",
        "month",
        "year",
        "foot",
        "feet",
        "inch",
        "yard",
    ] {
        if s.contains(unit) {
            s = without_measure(&s, unit);
        }
    }
    s = without_circles(&s);
    if let Some(inner) = s.strip_prefix('{').and_then(|it| it.strip_suffix('}')) {
        s = String::from(inner);
    }
    if s.contains(",\\!") {
        let mut out = String::new();
        let mut parts = s.split(",\\!");
        out.push_str(parts.next().unwrap_or_default());
        for part in parts {
            out.push_str(part.trim_start_matches(' '));
        }
        s = out;
    }
    if let Some(integer) = python_float(&s).and_then(near_integer) {
        s = integer;
    }
    if s.contains('\\') {
        s = plain_text(&s);
    }
    s = joined_minus(&s);
    s = mixed_numbers(&s);
    s.retain(|c| !matches!(c, ' ' | '{' | '}'));
    s = s.to_lowercase();
    if let Some(integer) = python_float(&without_separators(&s)).and_then(near_integer) {
        // The value is computed without any comma at all.
        s = python_float(&s.replace(',', "")).map_or(integer, |it| format!("{:.0}", it.trunc()));
    }
    s
}

fn without_measure(s: &str, unit: &str) -> String {
    let mut out = String::with_capacity(s.len());
    let mut rest = s;
    while let Some(at) = rest.find(unit) {
        out.push_str(&rest[..at]);
        rest = &rest[at + unit.len()..];
        rest = rest.strip_prefix("es").unwrap_or(rest);
        rest = rest.strip_prefix('s').unwrap_or(rest);
        rest = rest.trim_start_matches(' ');
        if let Some(power) = rest.strip_prefix('^') {
            let after = power.trim_start_matches(|c: char| c.is_ascii_digit());
            if after.len() < power.len() {
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

fn without_circles(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    let mut rest = s;
    while let Some(at) = rest.find('^') {
        out.push_str(&rest[..at]);
        let after = rest[at + 1..].trim_start_matches(' ');
        if let Some(after) = after.strip_prefix("\\circ") {
            rest = after;
        } else {
            out.push('^');
            rest = &rest[at + 1..];
        }
    }
    out.push_str(rest);
    out
}

fn joined_minus(s: &str) -> String {
    if !s.contains("- ") {
        return s.to_owned();
    }
    let mut out = String::with_capacity(s.len());
    for (idx, part) in s.split('-').enumerate() {
        if idx > 0 {
            out.push('-');
            out.push_str(part.trim_start_matches(' '));
        } else {
            out.push_str(part);
        }
    }
    out
}

/// `7 3/4` as `7+3/4`.
fn mixed_numbers(s: &str) -> String {
    let bytes = s.as_bytes();
    let mut out = String::with_capacity(s.len());
    let mut at = 0;
    let mut taken = 0;
    while at < bytes.len() {
        if bytes[at].is_ascii_digit() && at >= taken {
            let spaces = bytes[at + 1..].iter().take_while(|b| **b == b' ').count();
            if spaces > 0 && bytes.get(at + 1 + spaces).is_some_and(u8::is_ascii_digit) {
                out.push(bytes[at] as char);
                out.push('+');
                out.push(bytes[at + 1 + spaces] as char);
                at += 2 + spaces;
                taken = at;
                continue;
            }
        }
        let c = s[at..].chars().next().unwrap_or(' ');
        out.push(c);
        at += c.len_utf8();
    }
    out
}
