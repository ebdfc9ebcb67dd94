//! Prompts to groups of rollouts.
//!
//! Every group's prompt is read once and shared by its rollouts; a sequence that ends frees its
//! place at once, and the next one takes it. Each draw is a pure function of (seed, purpose, step,
//! prompt, rollout, position), and a row's arithmetic does not depend on the rows beside it, so the
//! rollouts are the same bits whatever the batch size and the number of threads.

mod draw;
mod local;

pub use draw::{Decoding, Drawn, Truncation, draw};
pub use local::{Completion, GroupRequest, SampleSettings, sample};

/// Why sampling cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model refused a token or has no room.
    #[error(transparent)]
    Model(#[from] hapo_model::Error),
    /// A request that cannot be served.
    #[error("{0}")]
    Request(String),
}
