//! Completions of problems from a local model or a server, graded and journalled: the scores of an evaluation with their
//! intervals, and a teacher's verified traces.

mod benchmark;
mod compare;
mod completions;
mod generations;
mod grading;
mod plan;
mod scores;
mod statistics;
mod traces;

pub use benchmark::{BENCHMARKS, Benchmark, SUITES, Suite, benchmark, text_checksum};
pub use compare::{Cell, Comparison, Layout, Row, compare, padded, warnings};
pub use completions::{Completions, LocalModel, Progress, Summarise};
pub use generations::Generations;
pub use grading::{
    CUT_OFF, GradedCompletion, Judge, ProblemResult, RawCompletion, are_numbers_with_words,
    average, beside_mathematics, gold_of, is_literal, unsuited,
};
pub use hapo_net::chat::{Client, RetryPolicy};
pub use hapo_run::OpenMode;
pub use plan::{
    Fingerprints, LocalSampling, Plan, ProblemSet, ProblemSets, PromptForm, Sampling, SetChoice,
    counterpart, draws_of,
};
pub use scores::{Other, Recorded, Score, Scores, score};
pub use statistics::{
    Estimate, estimate, estimate_mean_of, majority, paired_difference, pass_at_k,
};
pub use traces::{LEAKS, Leaked, Length, Outcome, Prices, Rule, Rules, Summary, Traces, leak};
