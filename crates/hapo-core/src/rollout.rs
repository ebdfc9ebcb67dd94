//! Sampled responses, teachers' solutions, and verdicts. Text stays outside: the core decides on counts, lengths and
//! verdicts only. The price is that reports must keep the prompt id to find the words again.

use serde::{Deserialize, Serialize};

use crate::refusal::{Refusal, expected};

/// Index of a token in the vocabulary.
pub type TokenId = u32;

/// Identity of a prompt: stable over epochs and resumes, and part of the key of every random draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PromptId(pub u64);

/// An optimiser-side training step `t` of Algorithm 1, counted from 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Step(pub u64);

/// One response τ of the policy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rollout {
    /// The response, with the end token if it ended.
    pub tokens: Vec<TokenId>,
    /// The length of the given prefix that it continues (D22, D36), else 0.
    pub prefix: usize,
    /// log `π_old`, natural, at the sampling temperature, of the last tokens: those that the policy wrote (D19, D25).
    pub log_probs: Vec<f32>,
    /// Those of the engine that sampled the last tokens, where `log_probs` are the trainer's own (D41); else empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sampler_log_probs: Vec<f32>,
    /// False when the response was truncated: no end token within the limit.
    pub ended: bool,
    /// The part of its group that it was sampled in, from 0 (D35).
    pub part: usize,
    /// The rendering of the prompt that it was sampled behind (D36).
    pub context: Context,
    /// The tokens of that rendering; empty for the plain one.
    pub privileged: Vec<TokenId>,
}

impl Rollout {
    /// log `π_old` of the tokens that have a log-probability of another engine (D41).
    pub fn corrected(&self) -> &[f32] {
        &self.log_probs[self.log_probs.len() - self.sampler_log_probs.len()..]
    }

    /// Whether the policy wrote all of it behind the plain prompt (D35).
    pub fn is_unaided(&self) -> bool {
        self.prefix == 0 && self.context == Context::Plain
    }
}

/// A rendering of a prompt (D36).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Context {
    /// The prompt as the data have it.
    #[default]
    Plain,
    /// With the hint of this level, from 0, as the recipe makes hints.
    Hint(usize),
    /// With a response of the group as a solution, by the number of its rollout.
    Response(usize),
}

impl Context {
    /// Most hints of one prompt.
    pub const MOST_HINTS: usize = 16;
}

/// What the verifier says of a response, never an error. Recorded as `{"verdict": "unparsable", "reason": "…"}`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", content = "reason", rename_all = "snake_case")]
pub enum Verdict {
    /// The final answer equals the gold answer.
    Correct,
    /// The final answer was read and is another one.
    #[default]
    Wrong,
    /// No answer could be read, and why.
    Unparsable(String),
}

/// The rule for a response without its end token (D27).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Truncated {
    /// It is wrong, whatever it contains (D31).
    #[default]
    Wrong,
    /// It is wrong and left out of the loss (D32).
    Mask,
    /// It is judged like any other.
    Grade,
}

impl Truncated {
    /// Whether a response is judged.
    pub fn is_judged(self, ended: bool) -> bool {
        ended || self == Self::Grade
    }

    /// Whether a response is left out of the loss.
    pub fn is_masked(self, ended: bool) -> bool {
        !ended && self == Self::Mask
    }
}

impl Verdict {
    /// The verdict on an answer that was compared, or the reason why there is none to compare.
    pub fn of<R: ToString>(compared: Result<bool, R>) -> Self {
        match compared {
            Ok(true) => Self::Correct,
            Ok(false) => Self::Wrong,
            Err(reason) => Self::Unparsable(reason.to_string()),
        }
    }

    /// Whether the verdict is [`Verdict::Correct`].
    pub fn is_correct(&self) -> bool {
        matches!(self, Self::Correct)
    }

    /// The binary reward R(τ): 1 for a correct answer, else 0.
    pub fn reward(&self) -> f64 {
        if self.is_correct() { 1.0 } else { 0.0 }
    }
}

/// A rollout of an earlier step, as it is remembered (D39).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredTrace {
    /// The response, its end token included.
    pub tokens: Vec<TokenId>,
    /// log π of the weights that sampled it, at the sampling temperature.
    pub log_probs: Vec<f32>,
    /// R(τ).
    pub reward: f64,
    /// S of the group that it was sampled in.
    pub successes: usize,
    /// The step that sampled it.
    pub step: Step,
}

/// A verified teacher trajectory τ*: whole, within the response limit, ending with the end token of the
/// chat template, which is part of the loss (D9, D10). [`admit_teacher`] is the only way to get one.
#[derive(Debug, Clone, PartialEq)]
pub struct TeacherTrajectory {
    tokens: Vec<TokenId>,
    reward: f64,
}

impl TeacherTrajectory {
    /// The tokens, the end token last; never empty.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// R(τ*): what the verifier said of it (D11, D28).
    pub fn reward(&self) -> f64 {
        self.reward
    }
}

const UNVERIFIED: &str = "teacher trajectory is not verified";

/// Admits a teacher's response, or says why not (D9). The end token is appended unless the response already ends with
/// it (D10), and it counts against `response_limit`, in tokens. A trajectory that is too long is refused, never
/// truncated, and so is one that continues after its end. `stop` are the tokens that end a response, at least one, the
/// end token of the chat template first.
pub fn admit_teacher(
    tokens: Vec<TokenId>,
    stop: &[TokenId],
    verdict: &Verdict,
    response_limit: usize,
) -> Result<TeacherTrajectory, Refusal> {
    let got = match verdict {
        Verdict::Correct => return admit_graded_teacher(tokens, stop, 1.0, 1.0, response_limit),
        Verdict::Wrong => "a wrong one".to_owned(),
        Verdict::Unparsable(reason) => format!("none: {reason}"),
    };
    Err(expected("a correct answer").got(got).about(UNVERIFIED))
}

/// As [`admit_teacher`], by a reward and what counts as success: a reward of at least `success_at` is admitted and
/// enters groups as it is (D28).
pub fn admit_graded_teacher(
    mut tokens: Vec<TokenId>,
    stop: &[TokenId],
    reward: f64,
    success_at: f64,
    response_limit: usize,
) -> Result<TeacherTrajectory, Refusal> {
    if reward.is_nan() || reward < success_at {
        let least = format!("a reward of at least {success_at}");
        return Err(expected(least).got(reward).about(UNVERIFIED));
    }
    if tokens.last() != Some(&stop[0]) {
        tokens.push(stop[0]);
    }
    let inside = &tokens[..tokens.len() - 1];
    if let Some(position) = inside.iter().position(|it| stop.contains(it)) {
        let got = format!("one as token {} of {}", position + 1, tokens.len());
        let what = "teacher trajectory continues after its end";
        return Err(expected("an end token at its end alone").got(got).about(what));
    }
    if tokens.len() > response_limit {
        let most = format!("at most {response_limit} tokens with the end token");
        return Err(expected(most).got(tokens.len()).about("teacher trajectory is too long"));
    }
    Ok(TeacherTrajectory { tokens, reward })
}
