//! Graders for reinforcement learning with verifiable rewards: a completion and a gold answer in, a [`Verdict`] out.
//!
//! [`MATH`] gives Math-Verify 0.9.0's judgement with its defaults, [`OAT`] that of the OAT grader, [`EXACT`] compares
//! text, [`FORMAT`] looks at the shape alone. Nothing here hangs: there are no timeouts, threads or signals to rely
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
//! assert!(GRADERS.iter().any(|it| it.name == "oat"));
//! ```
//!
//! # The stages of `math`
//!
//! `extract` finds the candidates for the final answer, best first; `normalise` opens boxes, drops units and expands
//! shorthand; `parse` reads LaTeX or plain arithmetic into a small exact expression; `compare` asks, in Math-Verify's
//! order, whether two expressions mean the same; `numeric` decides values: exactly where rational, modulo a prime for
//! rational functions of symbols, else to 50 digits at fixed points. Each [`Judgement`] says what was extracted, how
//! both sides were read, and which rule decided.
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
//! | a sum or product that is added up | 2,000 terms; sums of polynomials have a closed form |
//! | one judgement | 100,000 steps, large operations counted by their size |
//! | candidates in one priority group | 48 |
//!
//! Scans of a completion are linear: a megabyte takes a few milliseconds. [`grade`] on a boxed number takes a few
//! microseconds, and [`grade_batch`] uses all cores.

mod compare;
mod exact;
mod expr;
mod extract;
mod format;
mod math;
mod normalise;
mod number;
mod numeric;
mod oat;
mod parse;
mod spelling;
mod verdict;

pub use extract::{Search, Targets};
pub use math::{Fallback, MathOptions, Percent, Strictness, Tries, Variables};
pub use verdict::{GoldError, Judgement, Reason, Verdict};

use rayon::prelude::*;
use std::borrow::Cow;
use std::collections::HashMap;

/// A grader: a name, a sentence, and how it reads golds and judges completions.
#[derive(Clone, Copy, Debug)]
pub struct Grader {
    /// Its name in recipes and on the command line.
    pub name: &'static str,
    /// One line for `hapo list graders`.
    pub summary: &'static str,
    prepare: fn(&str, &MathOptions) -> Result<Prepared, GoldError>,
}

/// Math-Verify's judgement.
pub const MATH: Grader = Grader {
    name: "math",
    summary: "Math-Verify 0.9.0's judgement: boxed, LaTeX or plain answers, compared by meaning",
    prepare: |gold, options| Ok(Prepared::Math(math::prepare(gold, options)?)),
};

/// The OAT grader's judgement.
pub const OAT: Grader = Grader {
    name: "oat",
    summary: "the OAT grader's judgement: the last closed box, by its three comparisons",
    prepare: |gold, options| Ok(Prepared::Oat(oat::prepare(gold, options)?)),
};

/// Equal text.
pub const EXACT: Grader = Grader {
    name: "exact",
    summary: "the last box, or the last line, is the gold's text",
    prepare: |gold, _| Ok(Prepared::Exact(exact::prepare(gold)?)),
};

/// The right shape.
pub const FORMAT: Grader = Grader {
    name: "format",
    summary: "the completion has the shape the gold names: boxed, tags, or one of a list",
    prepare: |gold, _| Ok(Prepared::Format(format::prepare(gold)?)),
};

/// Every grader.
pub const GRADERS: &[Grader] = &[MATH, OAT, EXACT, FORMAT];

/// The grader of that name.
///
/// # Errors
/// [`GoldError::UnknownGrader`], with the names there are.
pub fn grader(name: &str) -> Result<&'static Grader, GoldError> {
    GRADERS
        .iter()
        .find(|it| it.name == name)
        .ok_or_else(|| GoldError::UnknownGrader {
            got: name.to_owned(),
            expected: GRADERS
                .iter()
                .map(|it| it.name)
                .collect::<Vec<_>>()
                .join(", "),
        })
}

/// A gold answer that was read once, for any number of completions.
#[derive(Clone, Debug)]
pub struct Gold {
    prepared: Prepared,
}

#[derive(Clone, Debug)]
enum Prepared {
    Math(math::Gold),
    Oat(oat::Gold),
    Exact(String),
    Format(format::Shape),
    /// Several golds: an answer is correct that means any of them.
    Any(Vec<Gold>),
}

impl Gold {
    /// Reads `gold` for `grader` with the default options.
    ///
    /// # Errors
    /// When the gold is empty or cannot be read.
    pub fn new(grader: &Grader, gold: &str) -> Result<Gold, GoldError> {
        Gold::with_options(grader, gold, &MathOptions::default())
    }

    /// Reads `gold` for `grader`; the options concern `math` and `oat`.
    ///
    /// # Errors
    /// When the gold is empty or cannot be read.
    pub fn with_options(
        grader: &Grader,
        gold: &str,
        options: &MathOptions,
    ) -> Result<Gold, GoldError> {
        Ok(Gold {
            prepared: (grader.prepare)(gold, options)?,
        })
    }

    /// Reads several golds for `grader`, any of which an answer may mean, as OAT's and Math-Verify's lists of golds are
    /// taken. Golds that cannot be read are passed over as long as one can.
    ///
    /// # Errors
    /// When there is no gold, or none that can be read: what is wrong with the first.
    pub fn any<'a>(
        grader: &Grader,
        golds: impl IntoIterator<Item = &'a str>,
    ) -> Result<Gold, GoldError> {
        let (mut read, mut first_error) = (Vec::new(), None);
        for it in golds {
            match Gold::new(grader, it) {
                Ok(gold) => read.push(gold),
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        match (read.len(), first_error) {
            (0, error) => Err(error.unwrap_or(GoldError::Empty)),
            (1, _) => Ok(read.remove(0)),
            _ => Ok(Gold {
                prepared: Prepared::Any(read),
            }),
        }
    }

    /// Reads a gold for `math` from a whole text (`The answer is $5$.`) instead of a bare answer.
    ///
    /// # Errors
    /// When no answer is found in it.
    pub fn from_text(text: &str, options: &MathOptions) -> Result<Gold, GoldError> {
        Ok(Gold {
            prepared: Prepared::Math(math::prepare_text(text, text, options)?),
        })
    }

    /// Judges one completion.
    pub fn judge(&self, completion: &str) -> Judgement {
        match &self.prepared {
            Prepared::Math(it) => math::judge(it, completion),
            Prepared::Oat(it) => oat::judge(it, completion),
            Prepared::Exact(it) => exact::judge(it, completion),
            Prepared::Format(it) => format::judge(it, completion),
            Prepared::Any(golds) => {
                let first = golds[0].judge(completion);
                if first.verdict.is_correct() {
                    return first;
                }
                let mut others = golds[1..].iter().map(|it| it.judge(completion));
                let correct = others.find(|it| it.verdict.is_correct());
                correct.unwrap_or(first)
            }
        }
    }
}

/// Judges `completion` against `gold`. A gold that cannot be read gives [`Reason::Gold`]; [`check_gold`] finds those
/// when data are loaded.
pub fn grade(grader: &Grader, gold: &str, completion: &str) -> Judgement {
    match Gold::new(grader, gold) {
        Ok(it) => it.judge(completion),
        Err(error) => unreadable_gold(&error),
    }
}

fn unreadable_gold(error: &GoldError) -> Judgement {
    Judgement {
        verdict: Verdict::Unparsable(Reason::Gold),
        extracted: None,
        gold_read: String::new(),
        answer_read: String::new(),
        reason: Cow::Owned(error.to_string()),
    }
}

/// Whether `gold` can be compared with at all; to be asked of every gold when data are loaded.
///
/// # Errors
/// What is wrong with it.
pub fn check_gold(grader: &Grader, gold: &str) -> Result<(), GoldError> {
    Gold::new(grader, gold).map(|_| ())
}

/// Judges every `(gold, completion)` on all cores; results come in the order of the input. Equal golds are read once.
pub fn grade_batch(grader: &Grader, pairs: &[(&str, &str)]) -> Vec<Judgement> {
    grade_batch_with(grader, &MathOptions::default(), pairs)
}

/// As [`grade_batch`], with options.
pub fn grade_batch_with(
    grader: &Grader,
    options: &MathOptions,
    pairs: &[(&str, &str)],
) -> Vec<Judgement> {
    let mut slots: HashMap<&str, usize> = HashMap::new();
    let mut texts: Vec<&str> = Vec::new();
    let gold_idx: Vec<usize> = pairs
        .iter()
        .map(|(gold, _)| {
            *slots.entry(gold).or_insert_with(|| {
                texts.push(gold);
                texts.len() - 1
            })
        })
        .collect();
    let golds: Vec<Result<Gold, GoldError>> = texts
        .par_iter()
        .map(|it| Gold::with_options(grader, it, options))
        .collect();
    pairs
        .par_iter()
        .zip(&gold_idx)
        .map(|((_, completion), idx)| match &golds[*idx] {
            Ok(gold) => gold.judge(completion),
            Err(error) => unreadable_gold(error),
        })
        .collect()
}
