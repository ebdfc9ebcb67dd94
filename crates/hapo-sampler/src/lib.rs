//! Problems to prompts, prompts to completions.
//!
//! [`Engine`] serves requests that come at any time, a token of each per step; [`sample`] is a loop over it for requests
//! that are all known. Each draw is a pure function of (seed, purpose, step, prompt, rollout, position), and a row's
//! arithmetic does not depend on the other rows, so the completions are the same bits whatever the batch size and the
//! number of threads.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod chat_format;
mod draw;
mod engine;
mod kv_memory;
mod local;
mod request;
mod score;
mod text;

pub use chat_format::{ChatFormat, choose_template};
pub use draw::{BadField, Decoding, Truncation};
pub use engine::{Engine, MAX_PREFILL_PROMPTS};
pub use kv_memory::{KvMemory, Longest, TooLittleKvMemory};
pub use local::{
    Details, GroupRequest, InGroup, SampleSettings, Sampled, Watch, cache_tokens, sample,
    sample_each,
};
pub use request::{
    EngineLimits, Event, EventKind, FinishReason, NewToken, Request, RequestId, RngKey,
    SpecialTokens,
};
pub use score::{ScoredToken, Scoring, score};
