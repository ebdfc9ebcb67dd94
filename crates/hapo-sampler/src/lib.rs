//! Problems to prompts, prompts to completions.
//!
//! [`Engine`] serves requests that come at any time, a token of each per step; [`sample`] is a loop
//! over it for requests that are all known. Every group's prompt is read once and shared by its
//! completions; a sequence that finishes frees its pages at once for the next one. Each draw is a pure function of (seed, purpose, step,
//! prompt, rollout, position), and a row's arithmetic does not depend on the other rows, so the
//! completions are the same bits whatever the batch size and the number of threads.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod chat_format;
mod draw;
mod engine;
mod kv_memory;
mod local;
mod request;
mod score;
mod text;

use hapo_core::Explain;

pub use chat_format::{ChatFormat, choose_template};
pub use draw::{Decoding, OutOfRange, Truncation, draw};
pub use engine::{Engine, MAX_PREFILL_PROMPTS};
pub use kv_memory::{KvMemory, Longest};
pub use local::{
    Details, GroupRequest, SampleSettings, Sampled, Watch, cache_tokens, sample, sample_each,
    sample_until, sample_watched,
};
pub use request::{
    EngineLimits, Event, EventKind, FinishReason, NewToken, Request, RequestId, RngKey,
};
pub use score::{ScoredToken, Scoring, score};

/// Why sampling failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The tokenizer refused a text or an id.
    #[error(transparent)]
    Tokenizer(#[from] hapo_model::Error),
    /// The decoder refused.
    #[error(transparent)]
    Compute(#[from] hapo_model::ComputeError),
    /// A template that is unknown, or a prompt that does not go with it.
    #[error(transparent)]
    Data(#[from] hapo_data::Error),
    /// A template that does not go with the model.
    #[error("template `{template}` does not fit the model: {missing}")]
    Template {
        /// Its name.
        template: &'static str,
        /// The missing part.
        missing: String,
    },
    /// A request that cannot be served.
    #[error("{field}: expected {expected}, got {got}")]
    Request {
        /// The field that forbids it.
        field: &'static str,
        /// The expected value.
        expected: String,
        /// The value found.
        got: String,
    },
    /// One of several requests.
    #[error("request {index}: {source}")]
    InGroup {
        /// Its index.
        index: usize,
        /// Why it cannot be served.
        source: Box<Error>,
    },
    /// Too little memory for the keys and values of one sequence.
    #[error(
        "kv_memory: one sequence of {prompt} + {completion} tokens needs {:.3} MB of keys and values, there are {:.3} MB",
        *needed as f64 / 1e6, *bytes as f64 / 1e6
    )]
    KvMemory {
        /// Bytes that it needs.
        needed: u64,
        /// Tokens of the longest prompt.
        prompt: usize,
        /// Tokens of the longest completion.
        completion: usize,
        /// Bytes that there are.
        bytes: u64,
    },
    /// A limit of an engine.
    #[error("{name}: expected at least 1, got 0")]
    Limit {
        /// Its name.
        name: &'static str,
    },
}

impl From<OutOfRange> for Error {
    fn from(error: OutOfRange) -> Self {
        Self::Request {
            field: error.field,
            expected: error.expected.to_owned(),
            got: error.got.to_string(),
        }
    }
}

impl Error {
    /// True if memory ran out.
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Self::Compute(it) => it.is_out_of_memory(),
            Self::InGroup { source, .. } => source.is_out_of_memory(),
            _ => false,
        }
    }

    fn of_group(self, index: usize) -> Self {
        Self::InGroup { index, source: Box::new(self) }
    }
}

impl Explain for Error {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Tokenizer(it) => it.hint(),
            Self::Compute(it) => it.hint(),
            Self::Data(it) => it.hint(),
            Self::InGroup { source, .. } => source.hint(),
            Self::KvMemory { .. } => {
                Some("give keys and values more memory, or ask for shorter completions".to_owned())
            }
            _ => None,
        }
    }

    fn is_bad_input(&self) -> bool {
        match self {
            Self::Data(_)
            | Self::Template { .. }
            | Self::Tokenizer(_)
            | Self::Request { .. }
            | Self::KvMemory { .. } => true,
            Self::InGroup { source, .. } => source.is_bad_input(),
            Self::Compute(_) | Self::Limit { .. } => false,
        }
    }
}
