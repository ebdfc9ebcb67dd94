//! Spellings that the gold answer decides: what a comma, a name or a remark is depends on what is asked.

use crate::compare::{Comparison, same_condition};
use crate::cursor::{begins, is_among, is_digits};
use crate::meaning::{hedges, is_counted_noun, read, said_value};
use crate::options::MathOptions;
use crate::parse::Style;

/// The text with a decimal point for its only comma, where one number with decimals is asked: `2,5\text{ cm}`.
pub(super) fn decimal_comma(text: &str) -> Option<String> {
    let text = text.trim().trim_matches('$').replace("{,}", ",");
    let (before, after) = text.split_once(',').filter(|it| !it.1.contains(','))?;
    let n_whole = before.bytes().rev().take_while(|it| it.is_ascii_digit() || *it == b'.').count();
    let (head, whole) = before.split_at(before.len() - n_whole);
    let n_decimals = after.bytes().take_while(u8::is_ascii_digit).count();
    let is_group = n_decimals == 3 && !whole.starts_with('0') && !whole.contains('.');
    let mut groups = whole.split('.').skip(1);
    let is_number =
        whole.starts_with(|c: char| c.is_ascii_digit()) && groups.all(|it| it.len() == 3);
    let is_alone = !head.contains(['(', '[']) && !after[n_decimals..].contains([')', ']', '.']);
    (is_number && is_alone && n_decimals > 0 && !is_group)
        .then(|| format!("{head}{}.{after}", whole.replace('.', "")))
}

/// What stands behind the name of one value: `P(X=7)=\frac16`, `f(2)=12`, `\text{Area}=12`, `x = 12`.
pub(super) fn behind_name(text: &str) -> Option<&str> {
    let text = text.trim().trim_matches('$');
    let (mut level, mut bars) = (0_i32, 0_i32);
    let at = text.char_indices().find_map(|(at, c)| {
        match c {
            '(' | '[' | '{' => level += 1,
            ')' | ']' | '}' => level -= 1,
            '|' => bars += 1,
            _ => {}
        }
        (c == '=' && level == 0 && bars % 2 == 0).then_some(at)
    })?;
    let (name, value) = (text[..at].trim(), text[at + 1..].trim());
    let symbol = (name.len() == 1).then_some(name);
    let is_recursive =
        symbol.is_some_and(|it| value.split(|c: char| !c.is_alphanumeric()).any(|word| word == it));
    (is_name(name) && !is_recursive && !value.starts_with(['=', '>', '<'])).then_some(value)
}

/// True for one letter, a function or a set of something, or words.
fn is_name(name: &str) -> bool {
    #[rustfmt::skip]
    const DRESS: [&str; 10] = [
        "\\angle", "\\triangle", "\\overline", "\\vec", "\\Pr", "\\mathbb", "\\mathrm", "\\text", "\\operatorname",
        "m\\angle",
    ];
    let plain = DRESS.iter().fold(name.to_owned(), |name, it| name.replace(it, " "));
    let head = plain.find(['(', '[', '|']).map_or(plain.as_str(), |at| &plain[..at]);
    let is_set = plain.starts_with('|') && plain.ends_with('|');
    let is_called = head.len() < plain.len() && plain.ends_with([')', ']', '|']);
    let head = head.replace(['{', '}', '\'', ' '], "");
    let (base, index) = head.split_once('_').unwrap_or((&head, ""));
    let greek = base.strip_prefix('\\').filter(|it| is_among(GREEK, it));
    let base = greek.unwrap_or(base);
    let is_word = !base.is_empty() && base.bytes().all(|b| b.is_ascii_alphabetic());
    let is_long =
        base.len() > 1 && !name.starts_with('\\') && base.bytes().all(|b| b.is_ascii_lowercase());
    let is_product = is_long && !name.contains("\\text") && base.len() < 4;
    let fits =
        is_word && !is_product && index.bytes().all(|b| b.is_ascii_alphanumeric()) && !hedges(name);
    fits && (is_called || head.len() == plain.replace(['{', '}', '\'', ' '], "").len()) || is_set
}

const GREEK: &str = "alpha beta gamma delta theta lambda mu phi rho sigma tau omega Delta Gamma \
    Omega Phi ell varphi";

/// The values of a list without the labels of its parts and the nouns that they count: `9 \text{ boys and } 12 \text{
/// girls}`, `\text{(a) } 9, \text{(b) } 12`.
pub(super) fn listed(text: &str) -> Option<String> {
    if !text.contains("\\text") && !text.contains("(a)") && !text.contains(" and ") {
        return None;
    }
    let mut text = text
        .replace("\\text{and}", ",")
        .replace("\\text{ and }", ",")
        .replace(" and }", "},")
        .replace(" and ", ",");
    for label in [
        "(a)", "(b)", "(c)", "(d)", "(i)", "(ii)", "(iii)", "a)", "b)", "c)", "Part A:", "Part B:",
        "Part 1:", "Part 2:",
    ] {
        for label in [format!("\\text{{{label} }}"), format!("\\text{{{label}}}"), label.to_owned()]
        {
            text = text.replace(&label, "");
        }
    }
    let elements = text.split([',', ';']).map(|it| {
        let it = it.trim().trim_end_matches(['\\', ' ']);
        let Some((value, noun)) = it.split_once("\\text{") else { return Some(it.to_owned()) };
        let noun = noun.strip_suffix('}')?.trim();
        is_counted_noun(noun).then(|| value.trim().trim_end_matches(['\\', ' ', '~']).to_owned())
    });
    let elements: Vec<String> = elements.collect::<Option<_>>()?;
    (elements.len() > 1 && elements.iter().all(|it| !it.is_empty())).then(|| elements.join(", "))
}

/// `x_1 = -4, x_2 = 7` with one name for all roots.
pub(super) fn without_indices(text: &str) -> Option<String> {
    let parts: Vec<&str> =
        text.split([',', ';']).map(|it| it.trim().trim_start_matches(['\\', ' '])).collect();
    let values = parts.iter().enumerate().map(|(idx, part)| {
        let (name, value) = part.split_once('=')?;
        let (base, index) = name.trim().split_once('_')?;
        let index = index.trim_matches(['{', '}']);
        (base.len() == 1 && index == (idx + 1).to_string())
            .then(|| format!("{base} = {}", value.trim()))
    });
    let values: Vec<String> = values.collect::<Option<_>>()?;
    (values.len() > 1).then(|| values.join(", "))
}

/// A value without a remark in brackets that repeats its number: `57\text{ (there are 57 such pairs)}`.
pub(super) fn without_remark(text: &str) -> Option<&str> {
    let (value, remark) = text.split_once("\\text{ (").or_else(|| text.split_once(" ("))?;
    let remark = remark.trim_end().trim_end_matches(['}', '$']).strip_suffix(')')?;
    let number = value.trim().trim_matches('$');
    let mut numbers = remark.split(|c: char| !c.is_ascii_digit()).filter(|it| !it.is_empty());
    let repeats = numbers.next() == Some(number) && numbers.next().is_none();
    (is_digits(number) && repeats && !hedges(remark)).then_some(value)
}

/// A number without the sentence around it: `\text{Tom is } 57 \text{ years old}`.
pub(super) fn in_sentence(text: &str) -> Option<String> {
    if !text.starts_with("\\text{") || text.len() > 160 {
        return None;
    }
    let plain = text.replace("\\text{", "").replace(['{', '}', '$'], "");
    let has_verb = [" is ", " has ", " are ", " have "].iter().any(|it| plain.contains(it));
    let value = said_value(&plain).filter(|_| has_verb && !hedges(&plain))?;
    let digits =
        value.bytes().take_while(|b| b.is_ascii_digit() || matches!(b, b'.' | b',' | b'-')).count();
    (digits > 0).then(|| value[..digits].trim_end_matches(['.', ',']).to_owned())
}

/// The digits of an answer that leaves out the base of the gold answer's numeral.
pub(super) fn without_base(gold: &str) -> Option<&str> {
    let (digits, base) = gold.trim().trim_matches('$').split_once('_')?;
    let base = base.trim_matches(['{', '}']);
    (is_digits(digits) && is_digits(base)).then_some(digits)
}

/// True for an answer that is said to be rounded and has the gold answer's decimals: `approximately 0.532` for 0.53.
pub(super) fn rounds_to(gold: &str, answer: &str) -> bool {
    let is_rounded = begins(answer.trim_start(), &["approximately ", "\\approx", "≈"]);
    let Some(from) = answer.find(|c: char| c.is_ascii_digit() || c == '-') else { return false };
    let number = answer[from..].split(|c: char| !"-.0123456789".contains(c)).next();
    let number = number.unwrap_or_default().trim_end_matches('.');
    let n_decimals = |it: &str| it.split_once('.').map_or(0, |it| it.1.len());
    let wanted = n_decimals(gold.trim());
    let n_significant = gold.trim().trim_start_matches(['0', '.', '-']).len();
    let rounded = || number.parse::<f64>().is_ok_and(|it| format!("{it:.wanted$}") == gold.trim());
    is_rounded && wanted > 0 && n_decimals(number) > wanted && n_significant > 1 && rounded()
}

/// True for the same rows of value and condition, in any order.
pub(super) fn same_cases(gold: &str, answer: &str, options: &MathOptions) -> bool {
    let (Some(gold), Some(mut answer)) = (cases(gold), cases(answer)) else { return false };
    let same_value =
        |a: &str, b: &str| match (read(a).map(|it| it.value), read(b).map(|it| it.value)) {
            (Ok(Ok(a)), Ok(Ok(b))) => Comparison::new(options).equal(&a, &b),
            _ => false,
        };
    gold.len() == answer.len()
        && gold.iter().all(|(value, condition)| {
            let found = answer.iter().position(|(other, otherwise)| {
                same_value(value, other)
                    && (condition == otherwise
                        || same_condition(condition, otherwise, Style::Meant))
            });
            found.map(|at| answer.swap_remove(at)).is_some()
        })
}

/// The values and conditions of a function by cases.
fn cases(text: &str) -> Option<Vec<(String, String)>> {
    let inner = text.split_once("\\begin{cases}")?.1.split_once("\\end{cases}")?.0;
    let rows = inner.split("\\\\").map(str::trim).filter(|it| !it.is_empty()).take(MAX_CASES);
    let row = |row: &str| {
        let (value, condition) = match row.split_once('&') {
            Some(it) => it,
            None => row.split_once("\\text{if").or_else(|| row.split_once(','))?,
        };
        let mut condition = condition.replace(['&', ',', '}', '{', '.', ';'], " ");
        for word in [
            "\\text", "\\mbox", "\\quad", "\\le ", "\\leq ", "\\ge ", "\\geq ", "if ", "for ",
            "when ",
        ] {
            let sign = match word {
                "\\le " | "\\leq " => "\\le ",
                "\\ge " | "\\geq " => "\\ge ",
                _ => " ",
            };
            condition = condition.replace(word, sign);
        }
        let condition = condition.split_whitespace().collect::<Vec<_>>().join(" ");
        Some((value.trim().trim_end_matches([',', ' ']).to_owned(), condition))
    };
    rows.map(row).collect()
}

/// Most rows of a function by cases.
const MAX_CASES: usize = 16;
