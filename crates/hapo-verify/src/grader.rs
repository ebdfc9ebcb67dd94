//! What a grader is.

use crate::error::GoldError;
use crate::verdict::Judgement;
use std::fmt;

/// A way to judge completions against gold answers.
///
/// A grader only says how one gold answer is read and one completion judged; [`crate::Gold`], [`crate::grade`] and
/// [`crate::grade_batch`] work with any. What differs between runs (an option, a list of units) is a field of the
/// grader.
///
/// # Example
///
/// ```
/// use hapo_verify::{Gold, GoldError, Grader, Judgement, PreparedGold, Reason, Verdict, grade};
///
/// /// The completion ends with the gold word.
/// #[derive(Debug)]
/// struct LastWord;
///
/// impl Grader for LastWord {
///     fn name(&self) -> &'static str {
///         "last-word"
///     }
///
///     fn summary(&self) -> &'static str {
///         "the completion ends with the gold word"
///     }
///
///     fn prepare(&self, gold: &str) -> Result<Box<dyn PreparedGold>, GoldError> {
///         match gold.trim() {
///             "" => Err(GoldError::Empty),
///             word if word.contains(' ') => Err(GoldError::unreadable(word, self.name(), "one word")),
///             word => Ok(Box::new(Word(word.to_owned()))),
///         }
///     }
/// }
///
/// #[derive(Debug)]
/// struct Word(String);
///
/// impl PreparedGold for Word {
///     fn judge(&self, completion: &str) -> Judgement {
///         let Some(answer) = completion.split_whitespace().next_back() else {
///             return Judgement::unparsable(Reason::NoAnswer, self.0.clone());
///         };
///         let verdict = if answer == self.0 { Verdict::Correct } else { Verdict::Wrong };
///         Judgement::new(verdict, answer, self.0.clone(), "the last word")
///     }
/// }
///
/// assert_eq!(grade(&LastWord, "yes", "I say yes").verdict, Verdict::Correct);
/// let either = Gold::any(&LastWord, ["yes", "true"])?;
/// assert_eq!(either.judge("it is true").verdict, Verdict::Correct);
/// # Ok::<(), GoldError>(())
/// ```
pub trait Grader: fmt::Debug + Send + Sync {
    /// Its name in recipes, records and messages.
    fn name(&self) -> &'static str;

    /// One line for lists of graders.
    fn summary(&self) -> &'static str;

    /// Reads a gold answer, once for any number of completions.
    ///
    /// # Errors
    /// When the gold answer is empty or cannot be read.
    fn prepare(&self, gold: &str) -> Result<Box<dyn PreparedGold>, GoldError>;

    /// The name of the grader that judges the same kind of answer by another rule, if there is one. An evaluation
    /// shows both.
    fn counterpart(&self) -> Option<&'static str> {
        None
    }
}

/// A gold answer that a [`Grader`] has read.
pub trait PreparedGold: fmt::Debug + Send + Sync {
    /// Judges one completion. Model output is data: it gives a verdict, never a panic.
    fn judge(&self, completion: &str) -> Judgement;
}
