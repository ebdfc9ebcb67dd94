//! Numbers in words: `\text{seven}`.

use super::words::text_command;
use crate::cursor::{replaced, replaced_at};

/// Most words of a number.
const MAX_WORDS: usize = 12;

#[rustfmt::skip]
const SMALL: [&str; 20] = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
];

#[rustfmt::skip]
const TENS: [&str; 8] = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];

const GROUPS: [(&str, u64); 3] =
    [("thousand", 1_000), ("million", 1_000_000), ("billion", 1_000_000_000)];

/// The numeral for an answer that is a number in words.
pub(super) fn numeral(text: &str) -> Option<String> {
    if text.len() > 160 || text.contains(['=', '<', '>', '^', '_', '+', '$']) {
        return None;
    }
    let plain = without_hyphens(&without_texts(text)?.to_lowercase());
    if let Some(reals) = reals(plain.trim()) {
        return Some(reals);
    }
    let signed = ["-", "minus ", "negative "].iter().find_map(|it| plain.trim().strip_prefix(it));
    let (sign, plain) = match signed {
        Some(rest) => ("-", rest.trim_start()),
        None => ("", plain.trim()),
    };
    let is_word = |c: char| c.is_ascii_alphabetic() || c == ' ';
    if !plain.chars().all(is_word) {
        return None;
    }
    let positive = ["positive ", "plus "].iter().find_map(|it| plain.strip_prefix(it));
    match positive.unwrap_or(plain) {
        "infinity" => return Some(format!("{sign}\\infty")),
        it if sign.is_empty() && it != plain => return None,
        _ => {}
    }
    match plain.strip_suffix(" percent") {
        Some(plain) => Some(format!("{sign}{}\\%", value(plain)?)),
        None => Some(format!("{sign}{}", value(plain)?)),
    }
}

/// The number below twenty of that name.
pub(super) fn small(name: &str) -> Option<u32> {
    SMALL.iter().position(|it| *it == name).map(|it| it as u32)
}

/// True for the name of a number below a hundred.
pub(super) fn is_number(word: &str) -> bool {
    SMALL.iter().chain(&TENS).any(|it| it.eq_ignore_ascii_case(word))
}

/// A text without the hyphens between letters; any other is a sign.
fn without_hyphens(text: &str) -> String {
    replaced_at(text, "-", |cursor, out| {
        let joins = out.ends_with(char::is_alphabetic) && cursor.peek()?.is_alphabetic();
        joins.then(|| out.push(' '))
    })
}

/// `all real numbers except 2`.
fn reals(text: &str) -> Option<String> {
    let rest = ["all real numbers", "all reals", "the real numbers", "the set of all real numbers"]
        .iter()
        .find_map(|it| text.strip_prefix(it))?
        .trim();
    if rest.is_empty() {
        return Some("\\mathbb{R}".to_owned());
    }
    let left_out = rest.strip_prefix("except")?.trim_start_matches(" for").trim();
    let is_list = left_out.starts_with(|c: char| c.is_ascii_digit())
        && left_out.bytes().all(|b| b.is_ascii_digit() || matches!(b, b',' | b'.' | b'/' | b' '));
    is_list.then(|| format!("\\mathbb{{R}}\\setminus\\{{{left_out}\\}}"))
}

/// The value of words such as `three hundred and five thousand`.
fn value(text: &str) -> Option<u64> {
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.is_empty() || words.len() > MAX_WORDS {
        return None;
    }
    let (mut total, mut group, mut scale, mut room) = (0_u64, 0_u64, u64::MAX, 1_000_u64);
    for (idx, word) in words.iter().enumerate() {
        if let Some(n) = small(word).map(u64::from) {
            // Units stand behind a ten or a hundred, or alone.
            if n >= room.min(20) || n == 0 && words.len() > 1 {
                return None;
            }
            group += n;
            room = 1;
        } else if let Some(n) = TENS.iter().position(|it| it == word) {
            if room < 100 {
                return None;
            }
            group += 10 * (n as u64 + 2);
            room = 10;
        } else if *word == "hundred" && (1..10).contains(&group) && room == 1 {
            group *= 100;
            room = 100;
        } else if *word == "and" && room == 100 && idx + 1 < words.len() {
        } else if let Some((_, n)) = GROUPS.iter().find(|it| it.0 == *word)
            && group > 0
            && *n < scale
        {
            total += group * n;
            (group, scale, room) = (0, *n, 1_000);
        } else {
            return None;
        }
    }
    Some(total + group)
}

/// A text with its text commands opened.
fn without_texts(text: &str) -> Option<String> {
    let mut is_closed = true;
    let plain = replaced(text, |cursor, out| {
        text_command(cursor)?;
        cursor.rest().starts_with('{').then_some(())?;
        let inner = cursor.group();
        is_closed &= inner.is_some();
        out.push_str(inner?);
        Some(())
    });
    is_closed.then_some(plain)
}
