//! How good a model is, and how sure one can be.

mod benchmark;
mod evaluate;
mod seeds;
mod statistics;

pub use benchmark::{BENCHMARKS, Benchmark, benchmark};
pub use evaluate::{Answer, Answers, Error, EvalSettings, average, evaluate};
pub use seeds::{difference_over_seeds, estimate_over_seeds};
pub use statistics::{Estimate, estimate, paired_difference, pass_at_k};
