//! A completion before it is graded.

use hapo_core::Rollout;
use hapo_sampler::Details;
use serde::{Deserialize, Serialize};

/// One completion as its source gave it, or why there is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RawCompletion {
    pub text: Option<String>,
    /// What a server's parser took out of the text.
    #[serde(skip)]
    pub thought: Option<String>,
    /// Why there is no text.
    pub failed: Option<String>,
    /// Why it ended: `stop`, `length` and others.
    pub finish_reason: Option<String>,
    pub served_by: Option<String>,
    pub prompt_tokens: Option<u64>,
    pub completion_tokens: Option<u64>,
    pub requests: u32,
    pub milliseconds: u64,
    /// When it ended, in seconds since 1970.
    pub at: u64,
    /// The server was given up on.
    #[serde(skip)]
    pub(crate) given_up: bool,
    /// Of a local model, its tokens.
    #[serde(skip)]
    pub(crate) drawn: Option<(Rollout, Details)>,
}

impl RawCompletion {
    pub(crate) fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    /// Whether it is whole.
    pub(crate) fn ended(&self) -> bool {
        self.finish_reason.as_deref() != Some("length")
    }

    pub(crate) fn local(text: String, tokens: usize, ended: bool) -> Self {
        let finish_reason = if ended { "stop" } else { "length" };
        Self {
            text: Some(text),
            finish_reason: Some(finish_reason.to_owned()),
            completion_tokens: Some(tokens as u64),
            ..Self::default()
        }
    }
}
