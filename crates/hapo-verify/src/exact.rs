//! The grader `exact`: the last box, or else the last line that is not empty, equals the gold once white space is
//! trimmed. No meaning is read; the price is that `1/2` is not `0.5`.

use crate::normalise::closing_brace;
use crate::verdict::{GoldError, Judgement, Reason, Verdict};
use std::borrow::Cow;

pub(crate) fn prepare(gold: &str) -> Result<String, GoldError> {
    let gold = gold.trim();
    if gold.is_empty() {
        Err(GoldError::Empty)
    } else {
        Ok(gold.to_owned())
    }
}

pub(crate) fn judge(gold: &str, completion: &str) -> Judgement {
    let (verdict, answer, reason) = match last_box(completion) {
        LastBox::Content(answer) => compare(gold, answer),
        LastBox::Unclosed => (
            Verdict::Unparsable(Reason::UnclosedBox),
            None,
            Cow::Owned(Reason::UnclosedBox.to_string()),
        ),
        LastBox::None => match completion.trim().lines().next_back() {
            Some(line) => compare(gold, line),
            None => (
                Verdict::Unparsable(Reason::NoAnswer),
                None,
                Cow::Owned(Reason::NoAnswer.to_string()),
            ),
        },
    };
    Judgement {
        verdict,
        answer_read: answer.unwrap_or_default().to_owned(),
        extracted: answer.map(str::to_owned),
        gold_read: gold.to_owned(),
        reason,
    }
}

fn compare<'a>(gold: &str, answer: &'a str) -> (Verdict, Option<&'a str>, Cow<'static, str>) {
    let answer = answer.trim();
    if answer == gold {
        (
            Verdict::Correct,
            Some(answer),
            Cow::Borrowed("the same text"),
        )
    } else {
        (
            Verdict::Wrong,
            Some(answer),
            Cow::Borrowed("different text"),
        )
    }
}

/// The last `\boxed{…}` of a text.
pub(crate) enum LastBox<'a> {
    Content(&'a str),
    Unclosed,
    None,
}

pub(crate) fn last_box(text: &str) -> LastBox<'_> {
    let Some(start) = text.rfind("\\boxed{") else {
        return LastBox::None;
    };
    match closing_brace(text, start + 6, text.len()) {
        Some(close) => LastBox::Content(&text[start + 7..close]),
        None => LastBox::Unclosed,
    }
}
