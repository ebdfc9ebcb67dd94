//! The contents of a teacher's journal: the settings that shape the completions, and one line per finished attempt.

use hapo_run::JournalFormat;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::prompt_kind::PromptKind;

/// The settings that shape the completions. A journal belongs to one set of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// The endpoint, without secrets.
    pub endpoint: String,
    /// The model's name.
    pub model: String,
    /// The form of the prompt.
    pub prompt: PromptKind,
    /// The system turn, if any.
    pub system: Option<String>,
    /// Sampling temperature.
    pub temperature: f64,
    /// Nucleus mass.
    pub top_p: f64,
    /// Longest answer in tokens.
    pub max_tokens: Option<u64>,
    /// Seed of the answers.
    pub seed: u64,
    /// Further fields of the request.
    pub extra: Map<String, Value>,
    /// SHA-256 of the prompts and their answers.
    pub input: String,
}

/// One finished attempt at one prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// The answer, as it came; `None` if there was none.
    pub text: Option<String>,
    /// Why there is none.
    pub failed: Option<String>,
    /// Why the answer ended: `stop`, `length` and others.
    pub finish_reason: Option<String>,
    /// The name under which the server answered.
    pub served_by: Option<String>,
    /// Tokens of the question, if they were counted.
    pub prompt_tokens: Option<u64>,
    /// Tokens of the answer, if they were counted.
    pub completion_tokens: Option<u64>,
    /// Requests that were sent for it.
    pub requests: u32,
    /// Milliseconds from the first request to the end.
    pub milliseconds: u64,
    /// When it ended, in seconds since 1970.
    pub at: u64,
}

/// A line after the first, for reading.
#[derive(Deserialize)]
pub(crate) struct Line {
    pub(crate) prompt: usize,
    pub(crate) attempt: u32,
    #[serde(flatten)]
    pub(crate) it: Attempt,
}

/// The same, for writing.
#[derive(Serialize)]
pub(crate) struct WrittenLine<'a> {
    pub(crate) prompt: usize,
    pub(crate) attempt: u32,
    #[serde(flatten)]
    pub(crate) it: &'a Attempt,
}

pub(crate) const FORMAT: JournalFormat = JournalFormat {
    name: "hapo_teacher_journal",
    version: 1,
    settings: "asked",
    first_line: "the head of a teacher's journal",
    line: "one finished attempt at one of the prompts",
};
