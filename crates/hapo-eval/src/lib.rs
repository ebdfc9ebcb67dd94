//! How good a model is, and how sure one can be.

mod statistics;

pub use statistics::{Estimate, estimate, paired_difference, pass_at_k};
