//! The grader `oat`: OAT's `boxed_reward_fn(completion, gold, fast = False)`.
//!
//! The last `\boxed{…}` counts and nothing else. It is correct if one of three comparisons says so: Hendrycks' string
//! normalisation; a plain-text flattening compared element by element; or Math-Verify. The first two are forgiving in
//! ways that are plainly wrong at times (roots lose their index, fractions their brackets); they are followed because
//! rewards are compared with published runs. Its unlimited evaluation of what a model wrote is not.

use super::math::{self, MathGold};
use crate::error::GoldError;
use crate::expr::Expr;
use crate::grader::{Grader, PreparedGold};
use crate::last_box::{LastBox, last_box};
use crate::normalise::is_plain_integer;
use crate::numeric;
use crate::options::{Fallback, MathOptions};
use crate::parse::python;
use crate::verdict::{Judgement, Reason, Verdict};
use std::borrow::Cow;

/// Longest answer that is flattened; a longer one only meets the other comparisons.
const MAX_ANSWER: usize = 8_192;

/// The OAT grader's judgement.
pub static OAT: Oat = Oat::new(MathOptions::DEFAULT);

/// The grader of [`OAT`], with the options of its third comparison.
#[derive(Clone, Debug)]
pub struct Oat {
    options: MathOptions,
}

impl Oat {
    /// The grader with these options. Boxes always come first and unreadable answers never count, as in OAT.
    pub const fn new(options: MathOptions) -> Oat {
        Oat { options }
    }
}

impl Grader for Oat {
    fn name(&self) -> &'static str {
        "oat"
    }

    fn summary(&self) -> &'static str {
        "the OAT grader's judgement: the last closed box, by its three comparisons"
    }

    fn prepare(&self, gold: &str) -> Result<Box<dyn PreparedGold>, GoldError> {
        let text = match last_box(gold) {
            LastBox::Content(it) => it,
            _ => gold,
        };
        if text.trim().is_empty() {
            return Err(GoldError::Empty);
        }
        let mut options = self.options.clone();
        options.fallback = Fallback::Nothing;
        options.targets.boxed_priority = Some(0);
        options.gold_targets.boxed_priority = Some(0);
        Ok(Box::new(OatGold {
            hendrycks: hendrycks(text),
            flat: flatten(text),
            text: text.to_owned(),
            math: MathGold::read(&in_dollars(text), text, &options).ok(),
        }))
    }

    fn counterpart(&self) -> Option<&'static str> {
        Some("math")
    }
}

/// A gold answer, normalised once in each way.
#[derive(Debug)]
struct OatGold {
    hendrycks: String,
    flat: String,
    text: String,
    math: Option<MathGold>,
}

impl PreparedGold for OatGold {
    fn judge(&self, completion: &str) -> Judgement {
        numeric::refuel();
        let answer = match last_box(completion) {
            LastBox::Content(it) if !later_box(completion) => it,
            LastBox::None => return Judgement::unparsable(Reason::NoAnswer, self.text.clone()),
            _ => return Judgement::unparsable(Reason::UnclosedBox, self.text.clone()),
        };
        let judgement = |verdict, read: String, reason| Judgement {
            verdict,
            extracted: Some(math::reported(answer.to_owned())),
            gold_read: self.text.clone(),
            answer_read: read,
            reason: Cow::Borrowed(reason),
        };
        if answer.len() <= MAX_ANSWER {
            let normal = hendrycks(answer);
            if normal == self.hendrycks {
                let rule = "equal once normalised (MATH rules)";
                return judgement(Verdict::Correct, normal, rule);
            }
            let flat = flatten(answer);
            if let Some(rule) = flat_equal(&self.flat, &flat) {
                return judgement(Verdict::Correct, flat, rule);
            }
        }
        let Some(math) = &self.math else {
            return judgement(Verdict::Wrong, String::new(), "different");
        };
        let mut by_math = math.judge(&in_dollars(answer));
        by_math.extracted = Some(math::reported(answer.to_owned()));
        if let Verdict::Unparsable(Reason::NoAnswer) = by_math.verdict {
            by_math.verdict = Verdict::Unparsable(Reason::Unreadable);
        }
        by_math
    }
}

fn in_dollars(text: &str) -> String {
    if text.contains('$') {
        text.to_owned()
    } else {
        format!("${text}$")
    }
}

/// Whether `\boxed` occurs after the last `\boxed{`: that one counts, and has no brace.
fn later_box(text: &str) -> bool {
    text.rfind("\\boxed") > text.rfind("\\boxed{")
}

// ---- Hendrycks' normalisation -------------------------------------------------------------------------------------

/// The MATH benchmark's string normalisation with OAT's list of units.
fn hendrycks(answer: &str) -> String {
    let answer = answer.trim();
    let answer = whole_text(answer).map_or(answer, str::trim);
    strip_string(answer).unwrap_or_else(|| answer.to_owned())
}

/// The content of a text that is `\text{…}` from end to end.
fn whole_text(text: &str) -> Option<&str> {
    text.strip_prefix("\\text{")?
        .strip_suffix('}')
        .filter(|it| !it.is_empty())
}

/// `None` where the original raises an exception and so leaves the answer as it is.
fn strip_string(text: &str) -> Option<String> {
    let mut s = text
        .replace('\n', "")
        .replace("\\!", "")
        .replace("\\\\", "\\");
    if s.contains("array") {
        while let Some(start) = s.find("\\begin{array}{") {
            let close = s[start + 14..].find('}')?;
            s.replace_range(start..=start + 14 + close, "\\begin{pmatrix}");
        }
        s = s.replace("\\end{array}", "\\end{pmatrix}");
    }
    for (from, to) in [
        ("bmatrix", "pmatrix"),
        ("tfrac", "frac"),
        ("dfrac", "frac"),
        ("\\neq", "\\ne"),
        ("\\leq", "\\le"),
        ("\\geq", "\\ge"),
        ("\\left", ""),
        ("\\right", ""),
    ] {
        if s.contains(from) {
            s = s.replace(from, to);
        }
    }
    if let Some(start) = s.find("\\text{")
        && s.ends_with('}')
    {
        let kept = s[..start].trim();
        if !kept.is_empty() {
            s = String::from(kept);
        }
    } else if s.trim() != s && !s.trim().is_empty() {
        s = String::from(s.trim());
    }
    s = without_units(&s);
    s = s
        .replace("^{\\circ}", "")
        .replace("^\\circ", "")
        .replace("\\$", "");
    if s.contains("\\text{ ") {
        if s.matches("\\text{ ").count() != 1 {
            return None;
        }
        s.truncate(s.find("\\text{ ")?);
    }
    s = s
        .replace("\\%", "")
        .replace(" .", " 0.")
        .replace("{.", "{0.");
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
    if s.contains("\\sqrt") {
        let mut parts = s.split("\\sqrt");
        let mut out = parts.next()?.to_owned();
        for part in parts {
            let first = part.chars().next()?;
            out.push_str("\\sqrt");
            if first == '{' {
                out.push_str(part);
            } else {
                out.push('{');
                out.push(first);
                out.push('}');
                out.push_str(&part[first.len_utf8()..]);
            }
        }
        s = out;
    }
    s = s.replace(' ', "");
    if s.contains("\\frac") {
        s = brace_fractions(&s)?;
    }
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

fn brace_fractions(s: &str) -> Option<String> {
    let mut parts = s.split("\\frac");
    let mut out = parts.next()?.to_owned();
    for part in parts {
        out.push_str("\\frac");
        let mut chars = part.chars();
        let first = chars.next()?;
        if first == '{' {
            out.push_str(part);
            continue;
        }
        let Some(second) = chars.next() else {
            return Some(s.to_owned());
        };
        out.push('{');
        out.push(first);
        out.push('}');
        if second == '{' {
            out.push_str(&part[first.len_utf8()..]);
        } else {
            out.push('{');
            out.push(second);
            out.push('}');
            out.push_str(chars.as_str());
        }
    }
    Some(out)
}

/// Units that stand alone between non-word characters; each also with an `s`.
const UNITS: [&str; 118] = [
    "east",
    "degree",
    "mph",
    "kmph",
    "ft",
    "deg",
    "mile",
    "monkey",
    "prime",
    "ratio",
    "rd",
    "o",
    "gm",
    "lb",
    "tile",
    "per",
    "dm",
    "lt",
    "gain",
    "ab",
    "way",
    "west",
    "t",
    "a",
    "h",
    "men",
    "soldier",
    "pie",
    "bc",
    "excess",
    "st",
    "inches",
    "noon",
    "percent",
    "by",
    "gal",
    "kmh",
    "c",
    "acre",
    "rise",
    "th",
    "sq",
    "mark",
    "l",
    "toy",
    "coin",
    "gallon",
    "profit",
    "minw",
    "yr",
    "women",
    "feet",
    "am",
    "pm",
    "hr",
    "square",
    "are",
    "rupee",
    "rounds",
    "cubic",
    "cc",
    "mtr",
    "s",
    "ohm",
    "number",
    "day",
    "hour",
    "minute",
    "min",
    "second",
    "man",
    "woman",
    "sec",
    "cube",
    "mt",
    "mp",
    "hectare",
    "more",
    "unit",
    "rs",
    "kg",
    "g",
    "month",
    "km",
    "m",
    "cm",
    "mm",
    "apple",
    "liter",
    "loss",
    "yard",
    "pure",
    "year",
    "increase",
    "decrease",
    "d",
    "less",
    "Surface",
    "litre",
    "metre",
    "meter",
    "inch",
    "no change",
    "m sqaure",
    " m east",
    "sq m",
    "profit of rs",
    "cu cm",
    "sq inch",
    "cm 2",
    "pi sq m",
    "q ?",
    "p ? m",
    "a ? m",
    "sq ? m",
    "cu ? m",
    "rs ?",
    "s ?",
];

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
        let fits = pattern
            .iter()
            .zip(&chars[at..])
            .all(|(p, c)| *p == '?' || *p == c.1);
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

// ---- flattening ---------------------------------------------------------------------------------------------------

/// OAT's `_normalize`: LaTeX as plain text, lower case, without spaces, braces, percent signs and some units.
fn flatten(text: &str) -> String {
    let text = text
        .strip_suffix('\n')
        .and_then(whole_text)
        .or_else(|| whole_text(text))
        .unwrap_or(text);
    if text.len() > MAX_ANSWER {
        return text.to_owned();
    }
    let mut s = text
        .replace("\\%", "")
        .replace("\\$", "")
        .replace(['$', '%'], "");
    s = s.replace(" or ", " , ").replace(" and ", " , ");
    s = s
        .replace("million", "*10^6")
        .replace("billion", "*10^9")
        .replace("trillion", "*10^12");
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

/// What Python's `float()` reads, apart from the infinities.
fn python_float(s: &str) -> Option<f64> {
    let text: String = s
        .trim()
        .chars()
        .map(|c| digit_value(c).map_or(c, |d| (b'0' + d) as char))
        .collect();
    let valid = text
        .bytes()
        .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    if !valid || !text.bytes().any(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse::<f64>().ok().filter(|it| it.is_finite())
}

/// Decimal digits of the mathematical alphabets count as digits.
fn digit_value(c: char) -> Option<u8> {
    let code = c as u32;
    if (0x1D7CE..=0x1D7FF).contains(&code) {
        Some(((code - 0x1D7CE) % 10) as u8)
    } else {
        None
    }
}

/// The integer within 1e-7 of a float.
fn near_integer(x: f64) -> Option<String> {
    let nearest = x.round_ties_even();
    ((x - nearest).abs() <= 1e-7)
        .then(|| format!("{:.0}", if nearest == 0.0 { 0.0 } else { nearest }))
}

/// `1,234` as `1234`; commas that separate anything else stay.
fn without_separators(s: &str) -> String {
    if !s.contains(',') {
        return s.to_owned();
    }
    let chars: Vec<char> = s.chars().collect();
    let digit = |at: usize| chars.get(at).is_some_and(char::is_ascii_digit);
    let separates = |at: usize| {
        at > 0 && digit(at - 1) && digit(at + 1) && digit(at + 2) && digit(at + 3) && !digit(at + 4)
    };
    // A separator further left becomes one when the groups to its right are joined.
    let mut drop = vec![false; chars.len()];
    for at in (0..chars.len()).rev() {
        if chars[at] == ',' {
            drop[at] = separates(at);
        }
    }
    chars
        .iter()
        .enumerate()
        .filter(|(at, _)| !drop[*at])
        .map(|it| it.1)
        .collect()
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

/// LaTeX as the text that a reader of the source would type: `\frac{a}{b}` is `a/b` and `\sqrt[3]{x}` is `sqrt(x)`,
/// brackets and index lost.
fn plain_text(s: &str) -> String {
    let s = s
        .replace("\\tfrac", "\\frac")
        .replace("\\dfrac", "\\frac")
        .replace("\\frac", " \\frac");
    let mut out = String::with_capacity(s.len());
    write_plain(&s, &mut out, 0);
    out.trim().to_owned()
}

const MAX_NESTING: usize = 48;

fn write_plain(s: &str, out: &mut String, depth: usize) {
    if depth > MAX_NESTING {
        out.push_str(s);
        return;
    }
    let mut rest = s;
    while let Some(c) = rest.chars().next() {
        match c {
            '\\' => rest = write_command(rest, out, depth),
            '{' | '}' => rest = &rest[1..],
            '~' => {
                out.push(' ');
                rest = &rest[1..];
            }
            '&' => {
                out.push_str("   ");
                rest = &rest[1..];
            }
            _ => {
                out.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
}

/// The argument at the start of `rest`: a group, a command, or one character; and what follows it.
fn argument(rest: &str) -> (&str, &str) {
    let rest = rest.trim_start();
    let Some(first) = rest.chars().next() else {
        return ("", "");
    };
    if first == '{' {
        return match crate::normalise::closing_brace(rest, 0, rest.len()) {
            Some(close) => (&rest[1..close], &rest[close + 1..]),
            None => (&rest[1..], ""),
        };
    }
    if first == '\\' {
        let letters = rest[1..]
            .bytes()
            .take_while(u8::is_ascii_alphabetic)
            .count()
            .max(1);
        let end = (1 + letters).min(rest.len());
        let end = (end..=rest.len())
            .find(|it| rest.is_char_boundary(*it))
            .unwrap_or(rest.len());
        return rest.split_at(end);
    }
    rest.split_at(first.len_utf8())
}

fn write_command<'a>(rest: &'a str, out: &mut String, depth: usize) -> &'a str {
    let letters = rest[1..]
        .bytes()
        .take_while(u8::is_ascii_alphabetic)
        .count();
    if letters == 0 {
        let Some(c) = rest[1..].chars().next() else {
            return "";
        };
        match c {
            ',' | ';' | ':' | ' ' => out.push(' '),
            '\\' => out.push(';'),
            '!' => {}
            _ => out.push(c),
        }
        return &rest[1 + c.len_utf8()..];
    }
    let name = &rest[1..=letters];
    let after = &rest[1 + letters..];
    // White space after a command belongs to it.
    let next = after.trim_start();
    match name {
        "frac" | "cfrac" => {
            let (upper, after) = argument(after);
            let (lower, after) = argument(after);
            write_plain(upper, out, depth + 1);
            out.push('/');
            write_plain(lower, out, depth + 1);
            return after;
        }
        "sqrt" => {
            let after = match next.strip_prefix('[').and_then(|it| it.split_once(']')) {
                Some((_, after)) => after,
                None => after,
            };
            let (inner, after) = argument(after);
            out.push_str("sqrt(");
            write_plain(inner, out, depth + 1);
            out.push(')');
            return after;
        }
        "mathbf" => {
            let (inner, after) = argument(after);
            for c in inner.chars() {
                let bold = match c {
                    '0'..='9' => char::from_u32(0x1D7CE + (c as u32 - '0' as u32)),
                    'a'..='z' => char::from_u32(0x1D41A + (c as u32 - 'a' as u32)),
                    'A'..='Z' => char::from_u32(0x1D400 + (c as u32 - 'A' as u32)),
                    _ => None,
                };
                out.push(bold.unwrap_or(c));
            }
            return after;
        }
        "left" | "right" | "displaystyle" | "limits" | "big" | "Big" | "bigg" | "Bigg"
        | "mathrm" | "text" | "textbf" | "textit" | "mbox" | "operatorname" | "rm"
        | "textnormal" | "textrm" | "mathit" | "boxed" | "fbox" => {}
        "begin" | "end" => {
            let (_, after) = argument(after);
            out.push(if name == "begin" { '[' } else { ']' });
            return after;
        }
        "quad" | "qquad" => out.push(' '),
        "pi" => out.push_str("pi"),
        "infty" => out.push_str("inf"),
        "cup" => out.push('U'),
        "cdot" | "times" => out.push('*'),
        "div" => out.push('÷'),
        "le" | "leq" => out.push('≤'),
        "ge" | "geq" => out.push('≥'),
        "ne" | "neq" => out.push('≠'),
        "pm" => out.push('±'),
        "in" => out.push('∈'),
        "circ" => out.push('∘'),
        "sin" | "cos" | "tan" | "cot" | "sec" | "csc" | "log" | "ln" | "exp" | "arcsin"
        | "arccos" | "arctan" | "sinh" | "cosh" | "tanh" | "max" | "min" | "lim" | "gcd"
        | "det" | "deg" => out.push_str(name),
        // Any other symbol is one sign of its own.
        _ => {
            out.push('\u{1}');
            out.push_str(name);
            out.push('\u{1}');
        }
    }
    next
}

// ---- comparison of flattened texts --------------------------------------------------------------------------------

fn flat_equal(gold: &str, answer: &str) -> Option<&'static str> {
    if gold == answer {
        return Some("equal as plain text");
    }
    if answer.is_empty() {
        return None;
    }
    let (golds, answers) = (split_tuple(gold), split_tuple(answer));
    let (first, last) = (gold.chars().next(), gold.chars().next_back());
    if golds.len() > 1 && (first != answer.chars().next() || last != answer.chars().next_back()) {
        return None;
    }
    if golds.len() != answers.len() || golds.is_empty() {
        return None;
    }
    golds
        .iter()
        .zip(&answers)
        .all(|(a, b)| flat_element_equal(a, b))
        .then_some("equal element by element")
}

fn flat_element_equal(gold: &str, answer: &str) -> bool {
    if is_fraction(gold) && is_fraction(answer) {
        return gold == answer;
    }
    let is_integer = |it: &str| {
        python_float(&without_separators(it))
            .and_then(near_integer)
            .is_some()
    };
    if is_integer(gold) != is_integer(answer) {
        return false;
    }
    if !may_be_evaluated(gold, answer) {
        return false;
    }
    match (python::parse(gold), python::parse(answer)) {
        (Ok(a), Ok(b)) => same(&a, &b),
        _ => false,
    }
}

fn same(a: &Expr, b: &Expr) -> bool {
    if (a.has_float() || b.has_float())
        && let (Some(x), Some(y)) = (numeric::in_doubles(a), numeric::in_doubles(b))
    {
        return match (a.has_float(), b.has_float()) {
            (true, true) => x == y,
            // One side is exact: the other's rounding shows.
            (true, false) => numeric::is_within(b, x, 0.0),
            _ => numeric::is_within(a, y, 0.0),
        };
    }
    a == b || numeric::same_value(a, b).is_same()
}

fn split_tuple(s: &str) -> Vec<String> {
    let s = without_separators(s);
    let bracket = |c: char| matches!(c, '(' | ')' | '[' | ']');
    let mut chars = s.chars();
    if s.chars().count() > 2
        && chars.next().is_some_and(bracket)
        && chars.next_back().is_some_and(bracket)
        && !chars.as_str().contains(bracket)
    {
        return chars
            .as_str()
            .split(',')
            .map(|it| it.trim().to_owned())
            .collect();
    }
    if s.is_empty() { Vec::new() } else { vec![s] }
}

/// `-?digits.?/digits.?` with one free character at each end.
fn is_fraction(s: &str) -> bool {
    let digits = s.strip_prefix('-').unwrap_or(s);
    let Some((upper, lower)) = digits.split_once('/') else {
        return false;
    };
    let mut free = upper
        .trim_start_matches(|c: char| c.is_ascii_digit())
        .chars();
    let upper_ok = upper.starts_with(|c: char| c.is_ascii_digit())
        && (free.next().is_none() || free.next().is_none());
    let lower = lower.trim_start_matches('0');
    let mut free = lower
        .trim_start_matches(|c: char| c.is_ascii_digit())
        .chars();
    upper_ok
        && lower.starts_with(|c: char| c.is_ascii_digit())
        && (free.next().is_none() || free.next().is_none())
}

/// At most two unknown letters, and no power that the original refuses to evaluate.
fn may_be_evaluated(gold: &str, answer: &str) -> bool {
    let text = format!("({gold})-({answer})");
    if text.contains("^{") || text.contains("^(") {
        return false;
    }
    let bytes = text.as_bytes();
    for (at, _) in text.match_indices('^') {
        let n_digits = bytes[at + 1..]
            .iter()
            .take_while(|b| b.is_ascii_digit())
            .count();
        if n_digits > 1 || n_digits == 1 && bytes.get(at + 2) == Some(&b'^') {
            return false;
        }
    }
    let plain = text.replace("sqrt", "").replace("frac", "");
    let mut letters: Vec<char> = Vec::new();
    for c in plain.chars().filter(|c| c.is_alphabetic()) {
        if !letters.contains(&c) {
            letters.push(c);
            if letters.len() > 2 {
                return false;
            }
        }
    }
    true
}
