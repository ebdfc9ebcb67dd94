//! Training: the tape of a batch, and the optimiser.

mod moments;
mod tape;

pub use moments::Moments;
pub use tape::{ActivationCheckpointing, Reading, Tape};
