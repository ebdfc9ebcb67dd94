//! The grader `format`: whether the completion has the shape that was asked for, whatever it says.
//!
//! The gold names the shape: `boxed`, `tags` (`<think>…</think>` and then `<answer>…</answer>`), or `one of: A, B, C`.

use crate::exact::{LastBox, last_box};
use crate::verdict::{GoldError, Judgement, Verdict};
use std::borrow::Cow;

/// A shape that a completion can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Boxed,
    Tags,
    OneOf(Vec<String>),
}

pub(crate) fn prepare(gold: &str) -> Result<Shape, GoldError> {
    let gold = gold.trim();
    match gold {
        "" => return Err(GoldError::Empty),
        "boxed" => return Ok(Shape::Boxed),
        "tags" => return Ok(Shape::Tags),
        _ => {}
    }
    let options: Vec<String> = gold
        .strip_prefix("one of:")
        .map(|list| {
            list.split(',')
                .map(|it| it.trim().to_owned())
                .filter(|it| !it.is_empty())
                .collect()
        })
        .unwrap_or_default();
    if options.is_empty() {
        return Err(GoldError::Unreadable {
            gold: gold.chars().take(80).collect(),
            grader: "format",
            expected: "`boxed`, `tags` or `one of: A, B, …`",
        });
    }
    Ok(Shape::OneOf(options))
}

pub(crate) fn judge(shape: &Shape, completion: &str) -> Judgement {
    let found = match shape {
        Shape::Boxed => match last_box(completion) {
            LastBox::Content(it) if !it.trim().is_empty() => Some(it),
            _ => None,
        },
        Shape::Tags => tagged(completion),
        Shape::OneOf(options) => {
            let answer = match last_box(completion) {
                LastBox::Content(it) => it,
                _ => completion.trim().lines().next_back().unwrap_or_default(),
            };
            options
                .iter()
                .any(|it| it == answer.trim())
                .then_some(answer)
        }
    };
    let verdict = if found.is_some() {
        Verdict::Correct
    } else {
        Verdict::Wrong
    };
    Judgement {
        verdict,
        extracted: found.map(|it| it.trim().to_owned()),
        gold_read: format!("{shape:?}"),
        answer_read: found.unwrap_or_default().trim().to_owned(),
        reason: Cow::Borrowed(if found.is_some() {
            "has the shape"
        } else {
            "lacks the shape"
        }),
    }
}

/// The content of `<answer>` after a closed `<think>`; each tag exactly once.
fn tagged(text: &str) -> Option<&str> {
    for tag in ["<think>", "</think>", "<answer>", "</answer>"] {
        if text.matches(tag).count() != 1 {
            return None;
        }
    }
    let (thought, rest) = text.split_once("</think>")?;
    thought.trim_start().starts_with("<think>").then_some(())?;
    let answer = rest.trim_start().strip_prefix("<answer>")?;
    let (answer, after) = answer.split_once("</answer>")?;
    after.trim().is_empty().then_some(answer)
}
