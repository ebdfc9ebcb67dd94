//! Verified traces from any OpenAI-compatible server.
//!
//! Purpose: prompts with gold answers in, the same prompts with a teacher's solution out. Each prompt is asked k times,
//! with the answer told (the paper's prompt) or without; every answer goes into a journal the moment it arrives; the
//! grader judges it; one rule chooses among the good ones. [`Session`] is the journal with the judgements, [`teach`] asks
//! a server for what the session still wants, and [`Client`] is the server's side of it, of use to others too.
//!
//! Verdicts and choices are made anew from the journal each time, so a run that was killed loses only what was on its
//! way, and the rule, the grader or the number of attempts may change between runs without asking again.
//!
//! Price: the journal holds every answer, also the bad ones, and stays beside the output.

mod client;
mod error;
mod journal;
mod leak;
mod local;
mod pace;
mod session;
mod teach;

pub use client::{Client, Exchange, Failure, Patience, Question, Reply};
pub use error::Error;
pub use journal::{Attempt, Begin, Origin};
pub use leak::{LEAKS, leak};
pub use local::{LocalCompletion, LocalRequest, teach_with};
pub use session::{Leaked, Length, Outcome, Prices, PromptKind, Rule, Rules, Session, Summary};
pub use teach::teach;
