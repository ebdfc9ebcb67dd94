//! OAT's `_normalize`.

use super::floats::{near_integer, python_float, without_separators};
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
