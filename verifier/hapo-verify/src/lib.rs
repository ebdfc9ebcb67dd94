//! Graders for reinforcement learning with verifiable rewards: a completion and a gold answer in, a [`Verdict`] out.
//!
//! [`MATH`] gives Math-Verify 0.9.0's judgement with its defaults, [`OAT`] that of the OAT grader, [`EXACT`] compares
//! text, [`CHOICE`] letters, [`FORMAT`] looks at the shape alone. Nothing here hangs: there are no timeouts, threads or signals to rely
//! on, because every stage is bounded by construction (nesting, digits, steps, candidates), scans are linear in the
//! completion, and nothing is ever executed. Model output is data: it gives a verdict, never an error or a panic. The
//! price is that a few equalities which a computer algebra system would find after long search are not found;
//! `docs/verifier-differences.md` lists every class.
//!
//! ```
//! use hapo_verify::{GRADERS, MATH, Verdict, check_gold, grade, grade_batch};
//!
//! let judgement = grade(&MATH, "\\frac{1}{2}", "Halving gives $x = \\boxed{0.5}$.");
//! assert_eq!(judgement.verdict, Verdict::Correct);
//! assert_eq!(judgement.answer_read, "1/2");
//! let batch = grade_batch(&MATH, &[("7", "\\boxed{7}"), ("7", "\\boxed{8}"), ("7", "no idea")]);
//! let names: Vec<&str> = batch.iter().map(|it| it.verdict.name()).collect();
//! assert_eq!(names, ["correct", "wrong", "unparsable"]);
//! assert!(check_gold(&MATH, "").is_err());
//! assert!(GRADERS.iter().any(|it| it.name() == "oat"));
//! ```
//!
//! # The stages of `math`
//!
//! `extract` finds the candidates for the final answer, best first; `normalise` opens boxes, drops units and expands
//! shorthand; `parse` reads LaTeX or plain arithmetic into a small exact expression; `compare` asks, in Math-Verify's
//! order, whether two expressions mean the same; `numeric` decides values: exactly where rational, else to 50 digits
//! at fixed points. Each [`Judgement`] says what was extracted, how both sides were read, and which rule decided.
//!
//! # The bounds
//!
//! | what | bound |
//! |---|---|
//! | nesting that is read | 96 levels; constant towers are folded however deep |
//! | a formula | 32,768 bytes |
//! | a number literal | 8,192 digits |
//! | a computed number | 65,536 bits; beyond, values are compared in floating point or not at all |
//! | a factorial, a binomial | 5,000 |
//! | one judgement | 100,000 steps, large operations counted by their size |
//! | a condition that is read | 12 relations in 500 bytes |
//! | candidates in one priority group | 48 |
//!
//! Scans of a completion are linear: a megabyte takes a few milliseconds. [`grade`] on a boxed number takes a few
//! microseconds, and [`grade_batch`] uses all cores.

#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod around;
mod compare;
mod cursor;
mod expr;
mod extract;
mod extraction;
mod gold;
mod grader;
mod graders;
mod json;
mod marks;
mod meaning;
mod normalise;
mod number;
mod numeric;
mod options;
mod ordered;
mod parse;
mod printed;
mod retractions;
mod statements;
mod verdict;
mod work;

#[cfg(test)]
mod tests;

pub use extract::{Search, Targets};
pub use extraction::{Extracting, Extraction, find_answer};
pub use gold::{Gold, check_gold, grade, grade_batch};
pub use grader::{AnswerForm, Completion, FoundAnswer, Grader, PreparedGold, Problem};
pub use graders::choice::{CHOICE, Choice};
pub use graders::exact::{EXACT, Exact};
pub use graders::format::{FORMAT, Format};
pub use graders::math::{BENCHMARK, MATH, Math, Reading, TRAINING};
pub use graders::oat::{OAT, Oat};
pub use graders::{DEFAULT_GRADER, GRADERS, grader};
pub use normalise::{Boxes, CleanUp};
pub use options::{Fallback, MathOptions, Policy, Tries, Variables};
pub use ordered::in_order;
pub use verdict::{GoldError, Judgement, Reason, Verdict};

/// The examples of the README compile and hold.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
