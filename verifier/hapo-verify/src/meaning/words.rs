//! Answers that are words, and words that take an answer back.

use crate::cursor::{Cursor, is_among, replaced};

/// Commands whose argument is text.
#[rustfmt::skip]
pub(super) const TEXTS: [&str; 8] = [
    "\\text", "\\textrm", "\\textbf", "\\textit", "\\textnormal", "\\mbox", "\\mathrm", "\\operatorname",
];

/// Names of functions and constants, which begin words of formulas.
const NAMES: [&str; 36] = [
    "sin", "cos", "tan", "cot", "sec", "csc", "arc", "log", "ln", "exp", "sqrt", "lim", "max",
    "min", "gcd", "lcm", "mod", "det", "inf", "alpha", "beta", "gamma", "delta", "theta", "lambda",
    "sigma", "omega", "kappa", "epsilon", "rank", "trace", "floor", "ceil", "asin", "acos", "atan",
];

/// Words of a text that offers more than one value, or takes one back.
#[rustfmt::skip]
const HEDGES: [&str; 41] = [
    "or", "either", "neither", "nor", "maybe", "perhaps", "possibly", "probably", "not", "isn't", "isnt", "never",
    "wrong", "false", "incorrect", "impossible", "except", "unless", "unknown", "invalid", "anything", "cannot",
    "can't", "guess", "alternatively", "rather", "instead", "otherwise", "doubt", "unsure", "unclear", "between",
    "likely", "presumably", "supposedly", "plus/minus", "at least", "at most", "more than", "less than", "other than",
];

/// Words that make another number of the value before them, or a clause that says something of it.
#[rustfmt::skip]
const CHANGES: [&str; 26] = [
    "plus", "minus", "doubled", "tripled", "halved", "a half", "one half", "reject", "rejected", "extraneous",
    "excluded", "discarded", "is", "are", "if", "when", "but", "fewer", "off", "minimum", "maximum", "per dozen",
    "per hundred", "per thousand", "per million", "below",
];

/// Words that are applied to the value before them where they stand alone, and are not read.
const OPERATIONS: &str = "squared cubed factorial pi quadrillion lakh crore permille mn mln mil bn";

const NUMBERS: &str = "\
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen \
    eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety";

/// The number below a hundred of that name: 0 to 19 and the tens.
fn named_number(word: &str) -> Option<usize> {
    let at = NUMBERS.split(' ').position(|it| it.eq_ignore_ascii_case(word))?;
    Some(if at < 20 { at } else { 10 * (at - 18) })
}

pub(super) fn is_number(word: &str) -> bool {
    named_number(word).is_some()
}

/// The numeral of a text that is the name of a number below a hundred: `twelve`, `forty-two`.
pub(crate) fn numeral(text: &str) -> Option<String> {
    let is_named = |c: char| c.is_ascii_alphabetic() || matches!(c, '-' | ' ');
    let mut names = words(Some(text).filter(|it| it.len() < 20 && it.chars().all(is_named))?);
    let first = named_number(names.next()?)?;
    let last = names.next().map_or(Some(0), named_number)?;
    let is_one = last == 0 || first >= 20 && (1..10).contains(&last);
    (is_one && names.next().is_none()).then(|| (first + last).to_string())
}

/// Words that join two numbers to one, or to a range.
const JOINTS: [&str; 9] = ["times", "over", "divided", "by", "to", "base", "and", "less", "out"];

pub(crate) fn is_function(word: &str) -> bool {
    NAMES.contains(&word)
}

/// True if words behind a value change it.
pub(super) fn changes_value(text: &str) -> bool {
    // "3 negative numbers" are three.
    let is_negative = text.split(' ').next_back() == Some("negative");
    is_negative || names_one_of(text, &CHANGES) || is_among(OPERATIONS, text)
}

/// Words before a number that make another one of it.
const MODIFIERS: &str = "\
    half third quarter double twice triple thrice negative minus plus times under above below than log ln sqrt root \
    without except least most between until sin cos roughly nearly almost";

/// Quantities of which "of" gives the value, as in "a total of 12".
const QUANTITIES: &str = "total sum value area volume length width height distance perimeter cost \
    price profit amount average mean probability speed age answer weight balance";

/// A sentence from the value on that it gives: the only number of it, or the one behind its last verb.
pub(crate) fn from_value(text: &str) -> Option<&str> {
    const VERBS: [&str; 9] =
        [" is ", " are ", " was ", " were ", " be ", " equals ", " = ", " total of ", " is: "];
    let start = |at: usize| {
        let head = text[..at].trim_end_matches(['.', '-', '$', '\\', '(', '*', '−', '€', '£']);
        &text[head.len()..]
    };
    let is_digit = |c: char| c.is_ascii_digit();
    let first = text.find(is_digit)?;
    let number =
        text[first..].find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | ',' | '/' | '%')));
    let rest = number.map_or("", |len| &text[first + len..]);
    if !rest.contains(is_digit) {
        return Some(start(first));
    }
    let verb = VERBS.iter().filter_map(|it| text.rfind(it).map(|at| at + it.len())).max()?;
    let value = &text[verb..];
    let at = value.find(is_digit).filter(|at| *at < 24)?;
    Some(start(verb + at))
}

/// True if words around the value at the end of a sentence change it. `value` is the end of `text`.
pub(super) fn changes_number(text: &str, value: &str, is_operation: fn(&str) -> bool) -> bool {
    let is_digit = |c: char| c.is_ascii_digit();
    let before = text[..text.len() - value.len()].to_lowercase();
    let rest = &value[value.find(is_digit).unwrap_or(value.len())..];
    let after = rest.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | ','));
    let factor = words(after).next().is_some_and(|it| is_operation(&it.to_lowercase()));
    let changing =
        CHANGES.iter().filter(|it| !matches!(**it, "is" | "are" | "if" | "when" | "off"));
    let changing: Vec<&str> = changing.copied().collect();
    let mut last = words(&before).collect::<Vec<_>>().into_iter().rev();
    let is_modified = match last.next() {
        Some("of") => !last.next().is_some_and(|it| is_among(QUANTITIES, it)),
        word => word.is_some_and(|it| is_among(MODIFIERS, it)),
    };
    factor
        || is_modified
        || names_one_of(&before, &["twice", "double", "thrice", "not"])
        || after.starts_with(char::is_alphabetic)
        || names_one_of(after, &changing)
        || after.contains(is_digit) && names_one_of(after, &JOINTS)
}

/// True for a text that says that nothing is a solution.
pub(crate) fn names_nothing(text: &str) -> bool {
    same_words(text, "no solution")
}

/// True if a text has one of these words or phrases.
fn names_one_of(text: &str, phrases: &[&str]) -> bool {
    phrases.iter().any(|phrase| {
        phrase.contains(' ') && text.contains(phrase)
            || words(text).any(|word| word.eq_ignore_ascii_case(phrase))
    })
}

/// True if the words of a text, outside of formulas, offer alternatives or take its value back.
pub(crate) fn hedges(text: &str) -> bool {
    names_one_of(text, &HEDGES)
}

/// The words of a text: runs of letters that are no command.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_alphabetic() || matches!(c, '\'' | '’');
    let mut cursor = Cursor::new(text);
    std::iter::from_fn(move || {
        loop {
            cursor.take_while(|c| !c.is_alphabetic() && c != '\\');
            if cursor.eat("\\").is_none() {
                return Some(cursor.take_while(is_part)).filter(|word| !word.is_empty());
            }
            if cursor.letters().is_empty() {
                cursor.one(|c| c.is_ascii())?;
            }
        }
    })
}

/// The words of an answer that is made of words, in lower case and without marks: `\text{East}` and `east`.
pub(super) fn only_words(text: &str) -> Option<String> {
    let is_text = TEXTS[..6]
        .iter()
        .any(|it| text.strip_prefix(it).is_some_and(|it| it.trim_start().starts_with('{')));
    // What begins with a number is a value and its unit.
    let inner = text.trim_start_matches(|c: char| c != '{').trim_start_matches(['{', ' ', '(']);
    let has_digit = text.bytes().any(|b| b.is_ascii_digit());
    if has_digit && !(is_text && text.ends_with('}') && inner.starts_with(char::is_alphabetic)) {
        return None;
    }
    let is_formula = |word: &str| NAMES.iter().any(|it| word.starts_with(it));
    let is_word = |word: &str| word.chars().count() >= 4 && !is_formula(word);
    let has_sign = text.contains(['=', '<', '>', '^', '_', '+', '(', '/']);
    if is_text || !has_sign && words(text).any(is_word) { as_words(text) } else { None }
}

/// What is said to converge, to diverge or not to exist.
const SUBJECTS: [&str; 6] =
    ["the series ", "the sequence ", "the integral ", "the limit ", "the sum ", "it "];

/// True for the same words and signs, the number of their nouns and common synonyms aside.
pub(crate) fn same_words(a: &str, b: &str) -> bool {
    const SYNONYMS: [(&str, &str); 12] = [
        ("dne", "does not exist"),
        ("divergent", "diverge"),
        ("convergent", "converge"),
        ("no solution exist", "no solution"),
        ("there is no solution", "no solution"),
        ("there are no solution", "no solution"),
        ("empty set", "no solution"),
        ("no real solution", "no solution"),
        ("no real root", "no solution"),
        ("no root", "no solution"),
        ("infinitely many solution", "infinitely many"),
        ("there are infinitely many solution", "infinitely many"),
    ];
    let plain = |text: &str| {
        let singular = |word: &str| match word.strip_suffix('s') {
            Some(it) if it.len() > 3 && !it.ends_with('s') => it.to_owned(),
            _ => word.to_owned(),
        };
        let all = with_signs(text)?;
        let subject = SUBJECTS.iter().find_map(|it| all.strip_prefix(it)).unwrap_or(&all);
        let bare = ["a ", "an ", "the "].iter().find_map(|it| subject.strip_prefix(it));
        let bare = bare.unwrap_or(subject);
        let words = bare.split(' ').map(singular).collect::<Vec<_>>().join(" ");
        let synonym = SYNONYMS.iter().find(|(name, _)| *name == words);
        Some(synonym.map_or(words, |(_, same)| (*same).to_owned()))
    };
    plain(a).is_some_and(|it| plain(b) == Some(it))
}

/// True for a sentence that begins with the one word that is asked, as `Yes, it is`.
pub(crate) fn begins_with_decision(gold: &str, text: &str) -> bool {
    const DECISIONS: [&str; 4] = ["yes", "no", "true", "false"];
    let (Some(gold), Some(all)) = (as_words(gold), as_words(text)) else { return false };
    let text = text.trim_start_matches("\\text").trim_start_matches(['{', ' ']).to_lowercase();
    let begins =
        text.strip_prefix(gold.as_str()).is_some_and(|it| it.starts_with([',', '.', ';', ':']));
    let n_decisions = all.split(' ').filter(|it| DECISIONS.contains(it)).count();
    let is_short = all.split(' ').count() < 8;
    DECISIONS.contains(&gold.as_str()) && begins && n_decisions == 1 && is_short && !hedges(&all)
}

/// The words of a text, whatever else it may be.
pub(crate) fn as_words(text: &str) -> Option<String> {
    let has_word = words(text).next().is_some();
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '\'' | '\\');
    let all =
        text.split(|c: char| !is_part(c)).filter(|it| !it.is_empty() && !it.starts_with('\\'));
    has_word.then(|| all.map(str::to_lowercase).collect::<Vec<_>>().join(" "))
}

/// Signs of formulas among words.
const SIGNS: &str = "+=<>^_*/|%≤≥≠±∞×÷√∪∩≈→";

/// Commands of a text that are no signs.
const SPACES: [&str; 7] =
    ["\\quad", "\\qquad", "\\left", "\\right", "\\displaystyle", "\\ldots", "\\dots"];

/// The words of a text in lower case, and the signs, commands and brackets of formulas among them.
fn with_signs(text: &str) -> Option<String> {
    words(text).next()?;
    let mut in_remark = false;
    let out = replaced(text, |cursor, out| {
        let start = *cursor;
        let c = cursor.one(|_| true)?.chars().next()?;
        let is_sign = match c {
            '\\' => {
                cursor.letters();
                let command = cursor.since(&start);
                command.len() > 1 && !TEXTS.contains(&command) && !SPACES.contains(&command)
            }
            '-' => !is_hyphen(start.before(), cursor.rest()),
            '.' | ':' => {
                let is_digit = |c: char| c.is_ascii_digit();
                start.before().ends_with(is_digit) && cursor.rest().starts_with(is_digit)
            }
            // Words in brackets are a remark.
            '(' | '[' => {
                in_remark = is_remark(cursor.rest());
                !in_remark
            }
            ')' | ']' => !std::mem::take(&mut in_remark),
            _ => SIGNS.contains(c),
        };
        if is_sign {
            out.extend([" ", cursor.since(&start), " "]);
        } else {
            out.push(if c.is_alphanumeric() || c == '\'' { c } else { ' ' });
        }
        Some(())
    });
    let all: Vec<&str> = out.split_whitespace().collect();
    Some(all.join(" ").to_lowercase())
}

/// True if a bracket that opens before `text` holds words alone.
fn is_remark(text: &str) -> bool {
    let inner = text.split(['(', '[', ')', ']']).next().unwrap_or_default();
    let is_sign = |c: char| c.is_ascii_digit() || SIGNS.contains(c);
    let has_word = words(inner).any(|it| it.chars().count() > 2);
    text[inner.len()..].starts_with([')', ']'])
        && !inner.contains(is_sign)
        && (has_word || !inner.contains(','))
}

/// True for a hyphen between two words, one of which is more than a symbol.
fn is_hyphen(before: &str, after: &str) -> bool {
    let n_before = before.chars().rev().take_while(|c| c.is_alphabetic()).count();
    let n_after = after.chars().take_while(|c| c.is_alphabetic()).count();
    n_before > 0 && n_after > 0 && n_before + n_after > 2
}

/// The part of an announced answer that says it: up to the end of the sentence, or to a word that begins a reason.
#[rustfmt::skip]
pub(crate) fn announced_part(text: &str) -> &str {
    const ENDS: [&str; 14] = [
        ". ", "! ", "? ", ".\n", ".*", "; ", " because", " since", " (since", " as ", ", since", ", so ", ", because",
        ", which",
    ];
    // What it is not: `15, not 16`.
    const DENIALS: [&str; 5] = [", not ", " (not ", " and not ", " rather than ", " instead of "];
    let denied = DENIALS.iter().filter_map(|it| text.find(it)).min();
    let text = denied.map_or(text, |at| text[..at].trim_end_matches([',', '$', '*', ' ']));
    let end =
        |text: &str| ENDS.iter().filter_map(|it| text.find(it).map(|at| (at, it.len()))).min();
    let Some((at, len)) = end(text) else { return text.trim() };
    if let Some(mut value) = outcome(text, at) {
        let comma = |text: &str| text.find(", ").filter(|at| end(&text[..*at]).is_none());
        while let Some(next) = comma(value).and_then(|at| outcome(value, at)) {
            value = next;
        }
        return announced_part(value);
    }
    let rest = &text[at + len..];
    let next = &rest[..end(rest).map_or(rest.len(), |it| it.0)];
    let is_reason = text[at..at + len].contains(char::is_alphabetic);
    let at = if !is_reason && is_more_values(next) { at + len + next.len() } else { at };
    text[..at].trim()
}

/// `22 shells` of `42 - 18, which is 22 shells`: what was reckoned counts, and not what is right of it.
fn outcome(text: &str, at: usize) -> Option<&str> {
    let leads = [", which is ", ", which equals ", ", which gives ", ", which makes ", ", so "];
    let value = leads.iter().find_map(|it| text[at..].strip_prefix(it))?;
    let sum = text[..at].replace("\\times", "×").replace("\\cdot", "×");
    let sum = sum.trim_matches(|c: char| !c.is_ascii_digit());
    let is_reckoned = sum.contains(['+', '-', '−', '*', '×', '÷'])
        && !sum.contains(char::is_alphabetic)
        && !sum.contains(", ");
    let says_number =
        value.trim_start_matches(['$', '\\', '(']).starts_with(|c: char| c.is_ascii_digit());
    let clause = value.split(['.', ',']).next().unwrap_or_default();
    let is_short = words(clause).count() < 3 && !clause.contains(" than");
    (is_reckoned && says_number && is_short).then_some(value)
}

/// True for values without a sentence around them, as in `12; 13`: they belong to the answer before them.
fn is_more_values(text: &str) -> bool {
    let is_prose = |word: &str| word.chars().count() > 2 && word != "and";
    let is_letter = |it: &str| it.len() == 1 && it.bytes().all(|b| b.is_ascii_uppercase());
    // What is in brackets is a remark.
    (text.contains(|c: char| c.is_ascii_digit()) || is_letter(text.trim()))
        && !text.trim_start().starts_with(['(', '['])
        && !words(text).any(is_prose)
}
