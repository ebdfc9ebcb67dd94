//! How good a model is, and how sure one can be.

mod benchmark;
mod compare;
mod evaluate;
mod record;
mod score;
mod seeds;
mod statistics;

pub use benchmark::{BENCHMARKS, Benchmark, SUITES, Suite, benchmark, suite, text_checksum};
pub use compare::{Cell, Comparison, Layout, Row, compare};
pub use evaluate::{
    Answer, Answers, Asked, Error, EvalSettings, Judge, Mark, Said, average, evaluate, sample_some,
};
pub use record::{Record, Recorded};
pub use score::{Other, Score, score};
pub use seeds::{difference_over_seeds, estimate_over_seeds};
pub use statistics::{
    Estimate, estimate, estimate_mean_of, majority, paired_difference, pass_at_k,
};
