//! The three-valued verdict, what a person needs to see why it came out, and the errors of gold answers and graders:
//! model output is never one.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// A grader's verdict on one answer.
///
/// Model output is data: an answer that cannot be read is a verdict, never an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The answer means the gold answer.
    Correct,
    /// An answer was found and does not mean the gold answer.
    Wrong,
    /// No verdict on the answer's meaning; worth no reward. The reason says what was missing.
    Unparsable(Reason),
}

impl Verdict {
    /// The reward of the paper: 1 for [`Verdict::Correct`], else 0.
    pub fn reward(self) -> f64 {
        if self.is_correct() { 1.0 } else { 0.0 }
    }

    /// True if this is [`Verdict::Correct`].
    pub fn is_correct(self) -> bool {
        self == Verdict::Correct
    }

    /// `correct`, `wrong` or `unparsable`: the word in records and reports. It never changes.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Correct => "correct",
            Verdict::Wrong => "wrong",
            Verdict::Unparsable(_) => "unparsable",
        }
    }

    /// `true` for a correct answer, `false` for a wrong one, or why there is no verdict.
    pub fn compared(self) -> Result<bool, Reason> {
        match self {
            Verdict::Correct => Ok(true),
            Verdict::Wrong => Ok(false),
            Verdict::Unparsable(reason) => Err(reason),
        }
    }

    /// Why there is no verdict, if there is none.
    pub fn reason(self) -> Option<Reason> {
        self.compared().err()
    }
}

/// Why an answer has no verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The completion holds nothing that looks like an answer.
    NoAnswer,
    /// A final box was opened and never closed.
    UnclosedBox,
    /// A thought was opened with `<think>` and never closed; nothing came after it.
    UnclosedThink,
    /// An answer was found, could not be read, and is not the gold answer's text either.
    Unreadable,
    /// The answer is nested, long or large beyond the stated bounds.
    TooLarge,
    /// The gold answer itself cannot be read; [`crate::check_gold`] finds these when data are loaded.
    Gold,
    /// The grader is a program or a server, and it gave no judgement.
    Grader,
}

impl Reason {
    /// The reason in words.
    pub fn text(self) -> &'static str {
        match self {
            Reason::NoAnswer => "no answer found",
            Reason::UnclosedBox => "the last box is not closed",
            Reason::UnclosedThink => "the thought is not closed",
            Reason::Unreadable => "the answer cannot be read",
            Reason::TooLarge => "the answer exceeds the bounds",
            Reason::Gold => "the gold answer cannot be read",
            Reason::Grader => "the grader gave no judgement",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// A verdict with what led to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// The part of the completion that was taken for the answer, normalised; `None` if there was none.
    pub extracted: Option<String>,
    /// The gold answer as it was read.
    pub gold_read: String,
    /// The answer as it was read; empty if it was not.
    pub answer_read: String,
    /// The rule that decided, in words.
    pub reason: Cow<'static, str>,
    /// The reward, where it is not that of the verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward: Option<f64>,
    /// The parts of the reward, by name; most graders have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<(String, f64)>,
}

impl Judgement {
    /// The completion's reward: the one that the grader names, or else that of its verdict.
    pub fn reward(&self) -> f64 {
        self.reward.unwrap_or(self.verdict.reward())
    }

    /// Why there is no judgement at all. Whoever asked stops then: this is not an answer that is worth nothing.
    pub fn failure(&self) -> Option<&str> {
        let failed = self.verdict == Verdict::Unparsable(Reason::Grader) && self.reward.is_none();
        failed.then_some(&*self.reason)
    }

    /// The verdict on `answer`, which was read as it stands in the completion, and the rule that decided.
    pub fn new(
        verdict: Verdict,
        answer: &str,
        gold_read: String,
        rule: impl Into<Cow<'static, str>>,
    ) -> Judgement {
        Judgement {
            verdict,
            extracted: Some(answer.to_owned()),
            gold_read,
            answer_read: answer.to_owned(),
            reason: rule.into(),
            reward: None,
            parts: Vec::new(),
        }
    }

    /// No verdict, because no answer was found or read.
    pub fn unparsable(reason: Reason, gold_read: String) -> Judgement {
        let verdict = Verdict::Unparsable(reason);
        Judgement { extracted: None, ..Judgement::new(verdict, "", gold_read, reason.text()) }
    }
}

/// Longest extracted answer that a judgement repeats, in characters.
const MAX_REPORTED: usize = 1_000;

pub(crate) fn reported(mut text: String) -> String {
    if let Some((at, _)) = text.char_indices().nth(MAX_REPORTED) {
        text.truncate(at);
        text.push('…');
    }
    text
}

/// A fault of a gold answer; reported when data are loaded, with file and line by the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GoldError {
    /// There is nothing in it.
    #[error("empty gold answer, expected an expression or a text")]
    Empty,
    /// It holds nothing that this grader can compare.
    #[error("unreadable gold answer `{gold}`, grader {grader} expected {expected}")]
    Unreadable {
        /// The gold answer, cut to 80 characters.
        gold: String,
        /// The grader's name.
        grader: &'static str,
        /// The answers that the grader can compare.
        expected: &'static str,
    },
    /// The grader's name is unknown.
    #[error("unknown grader `{got}`, expected one of {expected}")]
    UnknownGrader {
        /// The name that was given.
        got: String,
        /// The names there are.
        expected: String,
    },
}

impl GoldError {
    /// A gold answer that `grader` cannot compare, and what it can.
    pub fn unreadable(gold: &str, grader: &'static str, expected: &'static str) -> GoldError {
        GoldError::Unreadable { gold: gold.chars().take(80).collect(), grader, expected }
    }

    /// The judgement on any completion: none.
    pub fn judgement(&self) -> Judgement {
        let nothing = Judgement::unparsable(Reason::Gold, String::new());
        Judgement { reason: self.to_string().into(), ..nothing }
    }
}
