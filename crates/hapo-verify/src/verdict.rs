//! The three-valued verdict and what a person needs to see why it came out.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// What a grader says of one answer.
///
/// Model output is data: an answer that cannot be read is a verdict, never an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The answer means the gold.
    Correct,
    /// An answer was found and does not mean the gold.
    Wrong,
    /// No verdict on the answer's meaning; worth no reward. The reason says what was missing.
    Unparsable(Reason),
}

impl Verdict {
    /// The reward of the paper: 1 for [`Verdict::Correct`], else 0.
    pub fn reward(self) -> f64 {
        match self {
            Verdict::Correct => 1.0,
            Verdict::Wrong | Verdict::Unparsable(_) => 0.0,
        }
    }

    /// Whether this is [`Verdict::Correct`].
    pub fn is_correct(self) -> bool {
        self == Verdict::Correct
    }

    /// `correct`, `wrong` or `unparsable`.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Correct => "correct",
            Verdict::Wrong => "wrong",
            Verdict::Unparsable(_) => "unparsable",
        }
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
    /// An answer was found, could not be read, and is not the gold's text either.
    Unreadable,
    /// The answer is nested, long or large beyond the stated bounds.
    TooLarge,
    /// The gold itself cannot be read; [`crate::check_gold`] finds these when data are loaded.
    Gold,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::NoAnswer => "no answer found",
            Reason::UnclosedBox => "the last box is not closed",
            Reason::Unreadable => "the answer cannot be read",
            Reason::TooLarge => "the answer exceeds the bounds",
            Reason::Gold => "the gold cannot be read",
        })
    }
}

/// A verdict with what led to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// The part of the completion that was taken for the answer, normalised; `None` if there was none.
    pub extracted: Option<String>,
    /// The gold as it was read.
    pub gold_read: String,
    /// The answer as it was read; empty if it was not.
    pub answer_read: String,
    /// The rule that decided, in words.
    pub reason: Cow<'static, str>,
}

/// What can be wrong with a gold answer; reported when data are loaded, with file and line by the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GoldError {
    /// There is nothing in it.
    #[error("empty gold answer, expected an expression or a text")]
    Empty,
    /// It holds nothing that this grader can compare.
    #[error("unreadable gold answer `{gold}`, grader {grader} expected {expected}")]
    Unreadable {
        /// The gold, cut to 80 characters.
        gold: String,
        /// The grader's name.
        grader: &'static str,
        /// What the grader can compare.
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
