//! OAT's `_normalize`.

use super::plain_text::plain_text;
use super::{MAX_ANSWER, whole_text};
use crate::cursor::{Cursor, replace_at, replaced};

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
    for unit in MEASURES.split(' ') {
        replace_at(&mut s, unit, |cursor, _| {
            without_measure(cursor);
            Some(())
        });
    }
    replace_at(&mut s, "^", |cursor, _| {
        blanks(cursor);
        cursor.eat("\\circ")
    });
    if let Some(inner) = s.strip_prefix('{').and_then(|it| it.strip_suffix('}')) {
        s = String::from(inner);
    }
    replace_at(&mut s, ",\\!", |cursor, _| {
        blanks(cursor);
        Some(())
    });
    if let Some(integer) = python_float(&s).and_then(near_integer) {
        s = integer;
    }
    if s.contains('\\') {
        s = plain_text(&s);
    }
    replace_at(&mut s, "-", |cursor, out| {
        out.push('-');
        blanks(cursor);
        Some(())
    });
    // `7 3/4` is `7+3/4`.
    s = replaced(&s, |cursor, out| {
        let whole = cursor.digit()?;
        cursor.one(|c| c == ' ')?;
        blanks(cursor);
        out.extend([whole, "+", cursor.digit()?]);
        Some(())
    });
    s.retain(|c| !matches!(c, ' ' | '{' | '}'));
    s = s.to_lowercase();
    if let Some(integer) = python_float(&without_separators(&s)).and_then(near_integer) {
        // The value is computed without any comma at all.
        s = python_float(&s.replace(',', "")).map_or(integer, |it| format!("{:.0}", it.trunc()));
    }
    s
}

/// Units that are dropped, in this order.
const MEASURES: &str = "degree cm centimeter meter mile second minute hour day week month year foot \
                        feet inch yard";

fn without_measure(cursor: &mut Cursor<'_>) {
    cursor.eat("es");
    cursor.eat("s");
    blanks(cursor);
    let mut power = *cursor;
    if power.eat("^").is_some() && power.digits().is_some() {
        *cursor = power;
    }
}

fn blanks(cursor: &mut Cursor<'_>) {
    cursor.take_while(|c| c == ' ');
}

/// The numbers that Python's `float()` reads, apart from the infinities.
pub(super) fn python_float(s: &str) -> Option<f64> {
    let text = s.trim();
    let valid =
        text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    if !valid || !text.bytes().any(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse::<f64>().ok().filter(|it| it.is_finite())
}

/// The integer within 1e-7 of a float.
pub(super) fn near_integer(x: f64) -> Option<String> {
    let nearest = x.round_ties_even();
    ((x - nearest).abs() <= 1e-7)
        .then(|| format!("{:.0}", if nearest == 0.0 { 0.0 } else { nearest }))
}

/// `1,234` as `1234`; commas that separate anything else stay.
pub(super) fn without_separators(s: &str) -> String {
    let groups: Vec<&str> = s.split(',').collect();
    let mut out = String::new();
    for (idx, group) in groups.iter().enumerate() {
        out.push_str(group);
        let Some(next) = groups.get(idx + 1) else { break };
        let digits = next.bytes().take_while(u8::is_ascii_digit).count();
        let separates = digits == 3 && out.ends_with(|c: char| c.is_ascii_digit());
        out.push_str(if separates { "" } else { "," });
    }
    out
}
