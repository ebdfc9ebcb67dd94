//! The built-in task: exact arithmetic, made on the spot, with solutions checked step by step.
//!
//! Purpose: a problem on which the methods can be told apart in minutes on one CPU core, and whose cold start is real.
//! Every problem can be solved in two styles. *Concise* is the base model's own: result digits with every carry
//! implicit, about 17 tokens. *Teacher* is longer and explicit: one column per digit, each a fact with four small
//! inputs, about 65 tokens. A base model that has practised the teacher's style on short numbers only can execute its
//! steps on long ones but hardly ever does; its own style fails there by itself, without noise in the corpus. Answers
//! have five digits and more at the hard levels, so guessing earns nothing.
//!
//! Price: the vocabulary is 64 characters and words, and nothing learnt here says anything about language. Where every
//! prompt has a teacher's solution, plain imitation wins; `teacher_coverage` is there to ask the other question.
//!
//! ## Tokens
//! Characters, except that `\boxed{` and the ends of turns are one token each. The prompt includes the 8 tokens of the
//! `chatml` template, the response its end token. Largest at a level, which for the teacher's style is also typical:
//!
//! | family | level | prompt | concise | teacher |
//! |---|---|---|---|---|
//! | `multiply` | n | n + 12 | 2n + 6 | 10n + 4 |
//! | | 6, 7 (hard) | 18, 19 | 18, 20 | 64, 74 |
//! | `add` | n | 3n + 12 | 2n + 6 | 12n + 4 |
//! | | 5, 6 (hard) | 27, 30 | 16, 18 | 64, 76 |
//! | `linear` | n | n + 19 | 2n + 5 | 12n + 9 |
//! | | 4, 5 (hard) | 23, 24 | 13, 15 | 57, 69 |
//!
//! A document of [`recommended_mixture`] has 41 tokens on average, 19 of them the prompt's.
//! [`RESPONSE_LIMIT`] is 96 and a context of 128 tokens holds every hard problem.
//!
//! ```
//! use hapo_data::task::{Split, TaskSet, TeacherSteps, make_set};
//!
//! let prompts = make_set(&TaskSet {
//!     seed: 1,
//!     levels: vec![("multiply".into(), 6), ("linear".into(), 5)],
//!     split: Split::Train,
//!     count: 640,
//!     teacher_coverage: 0.25,
//!     teacher_steps: TeacherSteps::Exact,
//! })?;
//! assert_eq!(prompts.examples.iter().filter(|it| !it.teachers.is_empty()).count(), 160);
//! # Ok::<(), hapo_core::Refusal>(())
//! ```

mod add;
mod corpus;
mod linear;
mod multiply;
mod split;
mod teacher;

pub use corpus::{Corpus, Document, FamilyMixture, Mixture, Style, recommended_mixture};
pub use split::{HeldOutSet, MINI6, Split, TaskSet, make_set, problems, set_of, split_of};
pub use teacher::TeacherSteps;

use crate::refuse::unknown;
use hapo_core::{CounterRng, Refusal};
use sha2::{Digest, Sha256};

/// The families, in the order in which they are listed everywhere.
pub const FAMILIES: &[Family] = &[multiply::FAMILY, add::FAMILY, linear::FAMILY];

/// Tokens that a response may have, its end token included: enough for the teacher's style at every hard level.
pub const RESPONSE_LIMIT: usize = 96;

/// One kind of problem: how it is made, and how it is solved in both styles.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    pub name: &'static str,
    pub summary: &'static str,
    /// Easiest and hardest level, both included; a level is a number of digits.
    pub levels: (u32, u32),
    /// The two levels that the corpus all but leaves out; recipes train on the first.
    pub hard_levels: [u32; 2],
    problem: fn(u32, &mut CounterRng) -> Problem,
    solve: fn(&Problem) -> Solution,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub family: &'static str,
    /// Its difficulty: a number of digits.
    pub level: u32,
    /// The question, for instance `473829*6=?`.
    pub prompt: String,
    /// The answer: an integer without leading zeros.
    pub answer: String,
    operands: Vec<u64>,
}

impl Family {
    /// The base model's own solution of a problem of this family, ending in `\boxed{answer}`, without an end token.
    pub fn concise(&self, problem: &Problem) -> String {
        debug_assert_eq!(problem.family, self.name);
        let Solution { begun, digits, .. } = (self.solve)(problem);
        format!("{begun};{}", boxed(&digits))
    }

    /// The teacher's solution of a problem of this family, ending in `\boxed{answer}`, without an end token.
    pub fn teacher(&self, problem: &Problem) -> String {
        debug_assert_eq!(problem.family, self.name);
        let Solution { mut steps, digits, .. } = (self.solve)(problem);
        steps.push(boxed(&digits));
        steps.join(",")
    }

    pub fn check_level(&self, level: u32) -> Result<(), Refusal> {
        let (min, max) = self.levels;
        if (min..=max).contains(&level) {
            Ok(())
        } else {
            let name = self.name;
            let problem = format!("family `{name}` has no level {level}, expected {min} to {max}");
            Err(Refusal::input(problem))
        }
    }
}

pub fn find_family(name: &str) -> Result<&'static Family, Refusal> {
    let known = || FAMILIES.iter().map(|family| family.name);
    let found = FAMILIES.iter().find(|family| family.name == name);
    found.ok_or_else(|| unknown("family", name, known()))
}

/// A uniform number of exactly that many digits, so without a leading zero.
fn number_of_digits(digits: u32, rng: &mut CounterRng) -> u64 {
    let smallest = 10_u64.pow(digits - 1);
    smallest + rng.below(9 * smallest)
}

/// `\boxed{…}` of a number given by its digits, units first.
fn boxed(digits: &[u64]) -> String {
    let number: String = digits.iter().rev().map(u64::to_string).collect();
    format!("\\boxed{{{number}}}")
}

/// What both styles write of a problem.
struct Solution {
    /// What the concise style writes before the answer.
    begun: String,
    /// The teacher's, a column each.
    steps: Vec<String>,
    /// The digits of the answer, units first.
    digits: Vec<u64>,
}

impl Solution {
    /// From the units up: a column is a text and a number, to which the column before carries.
    fn by_columns(columns: impl Iterator<Item = (String, u64)>) -> Self {
        let (mut steps, mut digits, mut carry) = (Vec::new(), Vec::new(), 0);
        for (text, number) in columns {
            let total = number + carry;
            steps.push(format!("{text}+{carry}:{total:02}"));
            digits.push(total % 10);
            carry = total / 10;
        }
        if carry > 0 {
            digits.push(carry);
        }
        let begun = digits.iter().map(u64::to_string).collect();
        Self { begun, steps, digits }
    }
}

/// The first eight bytes of the SHA-256 of a key and a text.
fn keyed_hash(key: &str, text: &str) -> u64 {
    let digest = Sha256::new().chain_update(key).chain_update([0]).chain_update(text).finalize();
    u64::from_le_bytes(*digest.first_chunk().expect("a SHA-256 digest has 32 bytes"))
}

#[cfg(test)]
mod tests;
