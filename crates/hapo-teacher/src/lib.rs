//! Verified traces from any OpenAI-compatible server.
//!
//! Purpose: prompts with gold answers in, the same prompts with a teacher's solution out. Each prompt is sent k times,
//! with the gold answer (the paper's prompt) or without; every completion goes into a journal on arrival; the grader
//! judges it; one rule chooses among the good ones. [`Session`] is the journal with the judgements, [`teach`] requests
//! missing attempts, and [`client`] talks to the server; evaluation uses it too.
//!
//! Verdicts and choices are recomputed from the journal each time. So a killed run loses only requests in flight, and
//! the rule, the grader or the number of attempts may change between runs without new requests.
//!
//! Price: the journal holds every completion, also the bad ones, and stays next to the output.

pub mod client;
mod journal;
mod judgement;
mod leak;
mod pace;
mod prompt_kind;
mod session;
mod teach;

pub use client::{Client, Exchange, Failure, Question, Reply, RetryPolicy};
pub use hapo_run::OpenMode;
pub use journal::{Attempt, Origin};
pub use judgement::{Leaked, Length, Outcome, Prices, Rule, Rules};
pub use leak::{LEAKS, leak};
pub use prompt_kind::PromptKind;
pub use session::{Session, Summary, gold_of};
pub use teach::teach;
