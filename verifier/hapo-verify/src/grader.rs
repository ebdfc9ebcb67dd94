//! Graders, their problems and their completions.

use crate::around::Around;
use crate::{GoldError, Judgement};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// A row of a data set, for graders that are shown more than its gold answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Problem<'a> {
    /// The problem as written.
    pub text: &'a str,
    /// The gold answers, any of which counts.
    pub golds: &'a [&'a str],
    /// The whole row, as a JSON object, where it was kept.
    pub row: Option<&'a str>,
}

/// A completion, for graders that are shown more than its text.
#[derive(Clone, Copy, Debug)]
pub struct Completion<'a> {
    /// Its text.
    pub text: &'a str,
    /// True if it was cut off before its end token.
    pub truncated: bool,
}

impl<'a> From<&'a str> for Completion<'a> {
    fn from(text: &'a str) -> Self {
        Completion { text, truncated: false }
    }
}

/// Where an answer was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AnswerForm {
    /// In a closed box.
    Boxed,
    /// Behind words that announce it.
    Announced,
    /// The whole text is it.
    Whole,
}

/// An answer that a completion gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundAnswer<'a> {
    /// Where it was found.
    pub form: AnswerForm,
    /// The part of the completion that holds it, box or announcement included; boxes that form a list are together.
    pub passage: Cow<'a, str>,
    /// The answer alone, without the marks of a text around it.
    pub answer: Cow<'a, str>,
    /// What stands around it.
    pub(crate) around: Around<'a>,
    /// It ends a sentence with an exclamation mark, which is no factorial.
    pub(crate) is_exclaimed: bool,
}

/// A way to judge completions against gold answers.
///
/// A grader only says how one gold answer is read and one completion judged; [`crate::Gold`], [`crate::grade`] and
/// [`crate::grade_batch`] work with any. What differs between runs (an option, a list of units) is a field of the
/// grader.
///
/// The crate's README has an example.
pub trait Grader: fmt::Debug + Send + Sync {
    /// Its name in recipes, records and messages.
    fn name(&self) -> &'static str;

    /// One line for lists of graders.
    fn summary(&self) -> &'static str;

    /// Reads a gold answer, once for any number of completions; an error where it is empty or cannot be read.
    fn prepare(&self, gold: &str) -> Result<Box<dyn PreparedGold>, GoldError>;

    /// Reads a whole row, for a grader that is shown more than gold answers. `None`, unless a grader says otherwise:
    /// each gold answer is read by itself.
    fn prepare_problem(
        &self,
        _problem: &Problem<'_>,
    ) -> Option<Result<Box<dyn PreparedGold>, GoldError>> {
        None
    }

    /// How many completions are judged at once, where that is not a matter of the CPU's cores.
    fn workers(&self) -> Option<usize> {
        None
    }

    /// The name of the grader that judges the same kind of answer by another rule, if any. An evaluation shows both.
    fn counterpart(&self) -> Option<&'static str> {
        None
    }

    /// True if it compares an answer, which an [`crate::Extraction`] can look for. A grader of shapes sees all text.
    fn reads_answers(&self) -> bool {
        true
    }

    /// Ends whatever it runs, once nothing more is judged, or says why its judgements cannot be trusted.
    fn finish(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A gold answer that a [`Grader`] has read.
pub trait PreparedGold: fmt::Debug + Send + Sync {
    /// Judges one completion. Model output is data: it gives a verdict, never a panic.
    fn judge(&self, completion: &str) -> Judgement;

    /// Judges one completion of which more is known than its text.
    fn judge_completion(&self, completion: Completion<'_>) -> Judgement {
        self.judge(completion.text)
    }

    /// Whether a box that is a part of a formula, as in `\boxed{3}^2`, is no answer. Math-Verify reads such a box.
    fn wants_whole_answers(&self) -> bool {
        false
    }

    /// Judges an answer that was found in a completion.
    fn judge_answer(&self, found: &FoundAnswer<'_>) -> Judgement {
        self.judge(&found.passage)
    }
}
