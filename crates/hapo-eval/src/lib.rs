//! How good a model is, and how sure one can be.

mod benchmark;
mod compare;
mod evaluate;
mod graded;
mod plan;
mod record;
mod remote;
mod score;
mod session;
mod statistics;

pub use benchmark::{BENCHMARKS, Benchmark, SUITES, Suite, benchmark, suite, text_checksum};
pub use compare::{
    Cell, Comparison, Layout, Row, Unfinished, compare, different_texts, unfinished,
};
pub use evaluate::{EvalModel, EvalSettings, average, evaluate};
pub use graded::{GradedCompletion, Judge, ProblemResult, RawCompletion, Truncated};
pub use plan::{EvalPlan, EvalSet, EvalSets, Fingerprints, SetChoice, draws_of};
pub use record::{Record, Recorded};
pub use score::{Other, Score, score};
pub use session::{EvalProgress, EvalSession};
pub use statistics::{
    Estimate, estimate, estimate_mean_of, majority, paired_difference, pass_at_k,
};
