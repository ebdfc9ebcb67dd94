//! Hendrycks' string normalisation of the MATH benchmark.

use super::whole_text;
use crate::cursor::behind_each;
use crate::normalise::{UNITS, brace_first, brace_pair, is_plain_integer, replace_all};

/// The MATH benchmark's string normalisation with OAT's list of units.
pub(super) fn hendrycks(answer: &str) -> String {
    let answer = answer.trim();
    let answer = whole_text(answer).map_or(answer, str::trim);
    strip_string(answer).unwrap_or_else(|| answer.to_owned())
}

/// Commands and environments that are spelled another way.
#[rustfmt::skip]
const SPELLINGS: [(&str, &str); 8] = [
    ("bmatrix", "pmatrix"), ("tfrac", "frac"), ("dfrac", "frac"), ("\\neq", "\\ne"), ("\\leq", "\\le"),
    ("\\geq", "\\ge"), ("\\left", ""), ("\\right", ""),
];

/// Is `None` where the original raises an exception, which leaves the answer as it is.
fn strip_string(text: &str) -> Option<String> {
    let mut s = without_dressing(text)?;
    if s.is_empty() {
        return Some(s);
    }
    if s.starts_with('.') {
        s.insert(0, '0');
    }
    if s.matches('=').count() == 1
        && let Some((left, right)) = s.split_once('=')
        && left.chars().count() <= 2
    {
        s = String::from(right);
    }
    s = behind_each(&s, "\\sqrt", |part, out| brace_first(part, &['{'], out))?.replace(' ', "");
    s = behind_each(&s, "\\frac", brace_pair)?;
    if s == "0.5" {
        return Some("\\frac{1}{2}".to_owned());
    }
    if let Some((a, b)) = s.split_once('/')
        && is_plain_integer(a)
        && is_plain_integer(b)
    {
        s = format!("\\frac{{{a}}}{{{b}}}");
    }
    Some(s)
}

/// Uniform spellings, without trailing text, units, degrees and signs.
fn without_dressing(text: &str) -> Option<String> {
    let mut s = text.replace('\n', "").replace("\\!", "").replace("\\\\", "\\");
    if s.contains("array") {
        while let Some(start) = s.find("\\begin{array}{") {
            let close = s[start + 14..].find('}')?;
            s.replace_range(start..=start + 14 + close, "\\begin{pmatrix}");
        }
        s = s.replace("\\end{array}", "\\end{pmatrix}");
    }
    for (from, to) in SPELLINGS {
        replace_all(&mut s, from, to);
    }
    if let Some(start) = s.find("\\text{")
        && s.ends_with('}')
    {
        let kept = s[..start].trim();
        if !kept.is_empty() {
            s = String::from(kept);
        }
    }
    s = without_units(&s).replace("^{\\circ}", "").replace("^\\circ", "").replace("\\$", "");
    match s.matches("\\text{ ").count() {
        0 => {}
        1 => s.truncate(s.find("\\text{ ")?),
        _ => return None,
    }
    let s = s.replace("\\%", "").replace(" .", " 0.");
    Some(s.replace("{.", "{0."))
}

/// Drops units, in the order of the list, twice over; never everything.
fn without_units(text: &str) -> String {
    let has_letters = text.bytes().any(|b| b.is_ascii_alphabetic());
    if !has_letters {
        return text.to_owned();
    }
    let mut s = text.to_owned();
    for _ in 0..2 {
        for plural in ["", "s"] {
            for unit in UNITS {
                if !unit.contains([' ', '?']) && !s.contains(unit) {
                    continue;
                }
                if let Some(it) = without_unit(&s, unit, plural)
                    && !it.is_empty()
                {
                    s = it;
                }
            }
        }
    }
    s
}

fn without_unit(s: &str, unit: &str, plural: &str) -> Option<String> {
    let chars: Vec<(usize, char)> = s.char_indices().collect();
    let pattern: Vec<char> = unit.chars().chain(plural.chars()).collect();
    if pattern.len() > chars.len() {
        return None;
    }
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut out = String::new();
    let mut copied = 0;
    let mut at = 0;
    let mut floor = 0;
    while at + pattern.len() <= chars.len() {
        let fits = pattern.iter().zip(&chars[at..]).all(|(p, c)| *p == '?' || *p == c.1);
        // The character before must not belong to the match before, which took its neighbours along.
        let before = at == 0 || at > floor && !is_word(chars[at - 1].1);
        let after = at + pattern.len();
        if fits && before && chars.get(after).is_none_or(|c| !is_word(c.1)) {
            out.push_str(&s[copied..chars[at].0]);
            copied = chars.get(after).map_or(s.len(), |c| c.0);
            floor = after + 1;
            at = after + 1;
        } else {
            at += 1;
        }
    }
    if copied == 0 {
        return None;
    }
    out.push_str(&s[copied..]);
    Some(out)
}
