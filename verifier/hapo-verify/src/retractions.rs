//! The text behind a statement, to its end: what takes it back, what is said in its place, what is offered beside it.
//! The price is that a remark on another value (`If n is odd, it is 13`) makes the answer none.

use crate::around::Around;
use crate::cursor::{head, is_among};
use crate::meaning::announced_part;
use crate::normalise::is_value;
use std::borrow::Cow;

/// Most bytes behind a statement that are read.
const MAX_BEHIND: usize = 65_536;

/// Most other values that are kept.
const MAX_ALTERNATIVES: usize = 4;

/// Reads the text behind a statement into what is around it; the value that is said in its place.
pub(crate) fn read_behind<'a>(text: &'a str, around: &mut Around<'a>) -> Option<&'a str> {
    let (mut restating, mut has_doubt, mut is_taken_back) = (None, false, false);
    let mut alternatives: Vec<&str> = joined(text).into_iter().collect();
    for sentence in sentences(head(text, MAX_BEHIND)) {
        let lower = sentence.to_lowercase().replace('’', "'");
        has_doubt |= DOUBTS.iter().any(|it| is_led_by(&lower, it));
        is_taken_back |= takes_back(&lower);
        if (is_taken_back || has_doubt)
            && let Some(value) = restated(sentence)
        {
            (restating, is_taken_back) = (Some(value), true);
        } else if !is_taken_back
            && alternatives.len() < MAX_ALTERNATIVES
            && let Some(value) = offered(sentence)
        {
            alternatives.push(value);
        }
    }
    around.is_denied |= is_taken_back;
    around.alternatives.extend(alternatives.into_iter().map(Cow::Borrowed));
    restating
}

/// The value that a comma or "and" joins to the statement before it: `, 8`. Behind more words it is another clause.
fn joined(text: &str) -> Option<&str> {
    let line = text.lines().next()?.trim_start_matches([' ', '$', '}', '*', ')', '\\']);
    let value = line.strip_prefix(',').or_else(|| line.strip_prefix("and "))?.trim();
    let value = value.strip_prefix("and ").unwrap_or(value).trim_end_matches(['.', '$', '*', ')']);
    (is_value(value) && !value.contains([' ', '\\'])).then_some(value)
}

/// The sentences of a text, without marks before them.
fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let marks = |c: char| c.is_whitespace() || "*_#>-–—.()]}$\\,;".contains(c);
    let ends = |text: &str| {
        text.match_indices(['\n', '.', '!', '?', ';']).find_map(|(at, mark)| match mark {
            "\n" => Some(at + 1),
            _ => text[at + 1..].starts_with(' ').then_some(at + 2),
        })
    };
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (sentence, after) = rest.split_at(ends(rest).unwrap_or(rest.len()));
        rest = after;
        Some(sentence.trim_start_matches(marks).trim_end())
    })
    .filter(|it| !it.is_empty())
}

/// Words that begin a second thought, which may confirm the first.
const DOUBTS: [&str; 6] = ["wait", "hmm", "hold on", "actually", "oops", "sorry"];

fn is_led_by(lower: &str, lead: &str) -> bool {
    lower.strip_prefix(lead).is_some_and(|it| !it.starts_with(char::is_alphanumeric))
}

/// True for a sentence, in lower case, that takes back what was said.
fn takes_back(lower: &str) -> bool {
    const LEADS: [&str; 5] = ["no", "nope", "scratch that", "correction", "strike that"];
    #[rustfmt::skip]
    const PHRASES: [&str; 24] = [
        "misread", "miscalculated", "miscounted", "scratch that", "i made a mistake", "i made an error",
        "made a mistake", "made an error", "i take that back", "isn't right", "isn't correct", "is not right",
        "is not correct", "not the right answer", "not the correct answer", "can't be right", "cannot be right",
        "disregard", "ignore that", "ignore the", "wait, no", "on second thought", "just a guess", "i am guessing",
    ];
    const SELF: [&str; 10] =
        ["this", "that", "that's", "it", "it's", "answer", "above", "result", "my", "value"];
    const OTHERS: [&str; 7] = ["not", "if", "option", "choice", "would", "any", "other"];
    let words: Vec<&str> = lower.split(|c: char| !(c.is_alphanumeric() || c == '\'')).collect();
    let wrong = words.iter().position(|it| matches!(*it, "wrong" | "incorrect" | "mistaken"));
    let is_wrong = wrong.is_some_and(|at| {
        let before = &words[..at];
        !before.iter().any(|it| OTHERS.contains(it)) && before.iter().any(|it| SELF.contains(it))
    });
    let is_no = LEADS.iter().any(|it| is_led_by(lower, it)) && !is_innocent(lower);
    is_no || is_wrong || PHRASES.iter().any(|it| lower.contains(it))
}

/// True for a sentence that begins with "no" and denies something else: `No other values work`.
fn is_innocent(lower: &str) -> bool {
    lower
        .strip_prefix("no ")
        .is_some_and(|it| !it.starts_with(|c: char| c.is_ascii_digit()) && !it.starts_with("it"))
}

/// Words between the beginning of a sentence and the value that it names.
const FILLERS: &str = "\
    no wait so it it's the correct right actual real true value result answer is should be must actually that this \
    means gives we get then instead rather sorry make final i meant mean correction therefore could might would may \
    also maybe perhaps possibly or even now thus";

/// The rest of a sentence behind words that lead to a value.
fn behind_fillers(sentence: &str) -> Option<&str> {
    let mut rest = sentence;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || ",:—–*_".contains(c));
        if is_value(rest) {
            return Some(announced_part(rest));
        }
        let len = rest
            .find(|c: char| !(c.is_alphabetic() || matches!(c, '\'' | '’')))
            .unwrap_or(rest.len());
        let word = rest[..len].to_lowercase().replace('’', "'");
        if len == 0 || !is_among(FILLERS, &word) {
            return None;
        }
        rest = &rest[len..];
    }
}

/// The value that a sentence puts in the place of one before.
fn restated(sentence: &str) -> Option<&str> {
    // A formula that goes on checks a step.
    let is_prose =
        |it: &str| it.split(|c: char| !c.is_alphabetic()).filter(|it| it.len() > 2).count() > 2;
    behind_fillers(sentence).filter(|it| !it.contains(['=', '≠']) && !is_prose(it))
}

/// Words that begin the offer of another value.
#[rustfmt::skip]
const OFFERS: [&str; 14] = [
    "alternatively", "or", "or maybe", "or else", "maybe", "perhaps", "possibly", "otherwise", "actually", "rather",
    "instead", "it could be", "it might be", "it could also be",
];

/// Words that begin a condition.
#[rustfmt::skip]
const CONDITIONS: [&str; 11] = [
    "for odd", "for even", "for other", "for negative", "for positive", "for all other", "if", "when", "in case",
    "otherwise", "but if",
];

/// The other value that a sentence offers.
fn offered(sentence: &str) -> Option<&str> {
    let lower = sentence.to_lowercase();
    if lower.len() != sentence.len() {
        return None;
    }
    if OFFERS.iter().any(|it| is_led_by(&lower, it))
        && let Some(value) =
            behind_fillers(sentence.trim_start_matches(|c: char| c.is_alphabetic()))
    {
        return Some(value);
    }
    for phrase in [
        "could also be ",
        "might also be ",
        "may also be ",
        "another answer is ",
        "another possible answer is ",
        "other answer is ",
    ] {
        if let Some(at) = lower.find(phrase) {
            return behind_fillers(&sentence[at + phrase.len()..]);
        }
    }
    let plain = lower.strip_prefix("however, ").unwrap_or(&lower);
    if !CONDITIONS.iter().any(|it| is_led_by(plain, it)) {
        return None;
    }
    let verbs = [
        " it is ",
        " it's ",
        " it would be ",
        " it becomes ",
        "answer is ",
        "answer would be ",
        "answer becomes ",
    ];
    let said = verbs.iter().filter_map(|it| lower.rfind(it).map(|at| at + it.len())).max();
    let listed =
        || sentence.rfind(", ").map(|at| at + 2).filter(|at| !sentence[*at..].contains('='));
    behind_fillers(&sentence[said.or_else(listed)?..])
}

/// True if the sentence that a text ends with begins another case: `If n is odd, the`.
pub(crate) fn is_another_case(between: &str) -> bool {
    let last = between.rsplit(['\n']).next().unwrap_or_default();
    let last = last.rsplit(". ").next().unwrap_or_default().trim_start().to_lowercase();
    let last = last.strip_prefix("however, ").unwrap_or(&last);
    CONDITIONS.iter().chain(&OFFERS[..8]).any(|it| is_led_by(last, it))
}
