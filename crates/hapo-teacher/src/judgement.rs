//! The outcome of one attempt, and the rules that choose traces.

use hapo_run::Span;
use hapo_verify::{Gold, Grader, Verdict};
use serde::Serialize;

use crate::journal::Attempt;
use crate::leak::leak;

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
    /// Never chosen.
    Never,
    /// Chosen like any other.
    Any,
}

/// Price of a million tokens, in whatever currency.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prices {
    /// Of the prompt.
    pub input: f64,
    /// Of the completion.
    pub output: f64,
}

impl Prices {
    pub(crate) fn cost(self, it: &Judged) -> Option<f64> {
        let (input, output) = (it.prompt_tokens?, it.completion_tokens?);
        Some((input as f64 * self.input + output as f64 * self.output) / 1e6)
    }
}

/// How long a trace may be (D9).
pub struct Length<'a> {
    /// Most tokens, the end token included.
    pub limit: usize,
    /// Tokens of a trace, the end token included (D10).
    pub tokens: &'a dyn Fn(&str) -> usize,
}

/// How completions are judged and chosen. None of it shapes the completions, so all of it may change between runs.
pub struct Rules<'a> {
    /// k: attempts at each prompt.
    pub attempts: u32,
    /// Which are chosen.
    pub rule: Rule,
    /// Use of leaked traces.
    pub leaked: Leaked,
    /// Who judges.
    pub grader: &'a dyn Grader,
    /// How long a trace may be, if there is a tokenizer to measure it.
    pub length: Option<Length<'a>>,
    /// The price of tokens.
    pub prices: Option<Prices>,
}

/// The outcome of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Correct, complete, short enough.
    Correct,
    /// An answer that is not the gold answer.
    Wrong,
    /// No answer that can be read.
    Unparsable,
    /// Cut off by the server's limit or its filter, whatever it says.
    Truncated,
    /// Correct and longer than the limit (D9).
    TooLong,
    /// No completion after all retries.
    Failed,
}

/// An attempt as memory holds it: everything but its text.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    pub(crate) outcome: Outcome,
    pub(crate) leak: Option<&'static str>,
    /// Tokens or characters.
    pub(crate) length: usize,
    pub(crate) prompt_tokens: Option<u64>,
    pub(crate) completion_tokens: Option<u64>,
    pub(crate) requests: u32,
    pub(crate) span: Span,
}

/// Servers' names for the end of an incomplete answer.
const CUT: [&str; 6] = ["length", "max_tokens", "content_filter", "abort", "error", "tool_calls"];

/// Judges an attempt. `conditioned_on` is the problem where the prompt had the gold answer: a prompt without it cannot
/// leak it.
pub(crate) fn judge(
    it: &Attempt,
    gold: &Gold,
    conditioned_on: Option<&str>,
    rules: &Rules<'_>,
    span: Span,
) -> Result<Judged, String> {
    let text = it.text.as_deref().map(clean);
    let length = text.map_or(0, |text| match &rules.length {
        Some(it) => (it.tokens)(text),
        None => text.chars().count(),
    });
    let outcome = match text {
        None => Outcome::Failed,
        Some(_) if it.finish_reason.as_deref().is_some_and(|it| CUT.contains(&it)) => {
            Outcome::Truncated
        }
        Some(text) => match judged(gold, text)? {
            Verdict::Correct if rules.length.as_ref().is_some_and(|it| length > it.limit) => {
                Outcome::TooLong
            }
            Verdict::Correct => Outcome::Correct,
            Verdict::Wrong => Outcome::Wrong,
            Verdict::Unparsable(_) => Outcome::Unparsable,
        },
    };
    Ok(Judged {
        outcome,
        leak: text.zip(conditioned_on).and_then(|(text, problem)| leak(text, problem)),
        length,
        prompt_tokens: it.prompt_tokens,
        completion_tokens: it.completion_tokens,
        requests: it.requests,
        span,
    })
}

/// The verdict on a trace, or why the grader has none.
fn judged(gold: &Gold, text: &str) -> Result<Verdict, String> {
    let judgement = gold.judge(text);
    match judgement.failure() {
        Some(it) => Err(it.to_owned()),
        None => Ok(judgement.verdict),
    }
}

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
