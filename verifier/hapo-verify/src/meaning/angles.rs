//! Degrees inside of trigonometric functions.

use super::DEGREES;
use crate::cursor::replaced;
use std::borrow::Cow;

/// `text` with the degrees under trigonometric functions as multiples of π.
pub(super) fn rewritten(text: &str) -> Cow<'_, str> {
    const FUNCTIONS: [&str; 6] = ["sin", "cos", "tan", "cot", "sec", "csc"];
    let has_function = FUNCTIONS.iter().any(|it| text.contains(it));
    let has_degrees = DEGREES[..6].iter().any(|it| text.contains(it));
    // An inverse function gives an angle and takes none.
    if !has_function || !has_degrees || text.contains("arc") || text.contains("^{-1}") {
        return Cow::Borrowed(text);
    }
    Cow::Owned(replaced(text, |cursor, out| {
        cursor.peek().filter(|c| c.is_ascii_digit() || *c == '.')?;
        let number = cursor.take_while(|c| c.is_ascii_digit() || c == '.');
        match cursor.one_of(&DEGREES[..6]) {
            Some(_) => out.extend(["{\\frac{", number, "\\pi}{180}}"]),
            None => out.push_str(number),
        }
        Some(())
    }))
}
