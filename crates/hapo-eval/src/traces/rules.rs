//! The outcome of one attempt, and the rules that choose traces.

use crate::completions::Progress;

/// Which of the good traces are taken. Ties go to the earlier attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The shortest, in tokens where a tokenizer is given, else in characters.
    ShortestCorrect,
    /// The first; later attempts are not made once there is one.
    FirstCorrect,
    /// All, in the order of the attempts.
    AllCorrect,
}

/// Use of correct traces that reveal the gold answer in the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaked {
    /// Chosen only when no other is correct.
    Last,
    Never,
    Any,
}

/// Price of a million tokens, in whatever currency.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prices {
    pub input: f64,
    pub output: f64,
}

impl Prices {
    pub(crate) fn cost(self, attempt: &Attempt) -> Option<f64> {
        let (input, output) = (attempt.prompt_tokens?, attempt.completion_tokens?);
        Some((input as f64 * self.input + output as f64 * self.output) / 1e6)
    }
}

/// How long a trace may be (D9).
pub struct Length<'a> {
    /// Most tokens, the end token included.
    pub limit: usize,
    /// Tokens of a trace, the end token included (D10).
    pub tokens: &'a dyn Fn(&str) -> Result<usize, hapo_core::Refusal>,
}

/// How traces are chosen. None of it shapes the completions, so all of it may change between runs.
pub struct Rules<'a> {
    pub rule: Rule,
    pub leaked: Leaked,
    /// How long a trace may be, if there is a tokenizer to measure it.
    pub length: Option<Length<'a>>,
    pub prices: Option<Prices>,
}

impl Rules<'_> {
    /// Whether [`Rule::FirstCorrect`] stops at an attempt.
    pub(crate) fn takes_first(&self, attempt: &Attempt) -> bool {
        attempt.outcome == Outcome::Correct
            && (attempt.leak.is_none() || self.leaked == Leaked::Any)
    }

    pub(crate) fn chosen<'t>(
        &self,
        attempts: &(impl Iterator<Item = (&'t u32, &'t Attempt)> + Clone),
    ) -> Vec<u32> {
        let correct = |leaked: bool| -> Vec<(usize, u32)> {
            let attempts = attempts.clone().filter(|(_, attempt)| {
                attempt.outcome == Outcome::Correct && (leaked || attempt.leak.is_none())
            });
            attempts.map(|(number, attempt)| (attempt.length, *number)).collect()
        };
        let mut good = correct(self.leaked == Leaked::Any);
        if good.is_empty() && self.leaked == Leaked::Last {
            good = correct(true);
        }
        if self.rule == Rule::ShortestCorrect {
            good.sort_unstable();
        }
        if self.rule != Rule::AllCorrect {
            good.truncate(1);
        }
        good.into_iter().map(|(_, number)| number).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Correct,
    Wrong,
    Unparsable,
    /// Cut off by the server's limit or its filter, whatever it says.
    Truncated,
    /// Correct and longer than the limit (D9).
    TooLong,
    /// No completion after all retries.
    Failed,
}

impl Outcome {
    pub(crate) fn progress(self) -> Progress {
        let is = |outcome| usize::from(self == outcome);
        Progress { completions: 1, correct: is(Self::Correct), failed: is(Self::Failed) }
    }
}

/// An attempt as memory holds it: everything but its text.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) outcome: Outcome,
    pub(crate) leak: Option<&'static str>,
    /// Tokens or characters.
    pub(crate) length: usize,
    pub(crate) prompt_tokens: Option<u64>,
    pub(crate) completion_tokens: Option<u64>,
    pub(crate) requests: u32,
    pub(crate) span: hapo_run::Span,
}

/// Servers' names for the end of an incomplete answer.
pub(crate) const CUT: [&str; 6] =
    ["length", "max_tokens", "content_filter", "abort", "error", "tool_calls"];

/// A trace without white space around it and without the end token that some servers leave in: the template adds its
/// own (D10).
pub(crate) fn clean(text: &str) -> &str {
    const ENDS: [&str; 5] = ["<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|return|>", "</s>"];
    let mut text = text.trim();
    while let Some(it) = ENDS.iter().find_map(|it| text.strip_suffix(it)) {
        text = it.trim_end();
    }
    text
}
