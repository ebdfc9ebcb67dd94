//! Errors of gold answers and graders. Model output is never one.

use crate::verdict::{Judgement, Reason};

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
