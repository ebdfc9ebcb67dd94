//! Documents for pretraining: a prompt and one solution each, in a mixture of families, levels and
//! styles.
//!
//! Purpose: the base model's character is made here. How often a level occurs decides how often the
//! base solves it; how often the teacher's style occurs at a level decides whether the base can
//! execute it there. Document `i` of a seed is a pure function of both, so a corpus has no length and
//! no file.

use super::{FAMILIES, Family, Problem, Split, find_family, split_of};
use crate::{EndOfTurn, Error, find_template, render};
use hapo_core::{Draws, Place, Purpose};
use serde::{Deserialize, Serialize};

/// How often which problems occur, and in which style they are solved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mixture {
    /// One entry per family and level.
    pub entries: Vec<MixtureEntry>,
}

/// One family at one level.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixtureEntry {
    /// Name of the family.
    pub family: String,
    /// The level.
    pub level: u32,
    /// Share of documents, relative to the sum over all entries; ≥ 0.
    pub weight: f64,
    /// Probability that such a document is in the teacher's style, in [0, 1].
    pub teacher_share: f64,
}

/// The two ways to write a solution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Style {
    /// The base model's own: short, carries implicit.
    Concise,
    /// The teacher's: one column per digit, everything explicit.
    Teacher,
}

/// A document: a rendered prompt and the response that follows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// The prompt in the `chatml` template, up to where the assistant speaks.
    pub prompt: String,
    /// The solution with the end token of the turn.
    pub response: String,
    /// The style of the solution.
    pub style: Style,
    /// The problem.
    pub problem: Problem,
}

/// An endless, seeded series of documents. Only problems of [`Split::Pretrain`] occur.
#[derive(Debug, Clone)]
pub struct Corpus {
    seed: u64,
    entries: Vec<CheckedEntry>,
}

#[derive(Debug, Clone)]
struct CheckedEntry {
    family: &'static Family,
    level: u32,
    teacher_share: f64,
    /// Sum of the weights up to and with this entry.
    weight_so_far: f64,
}

/// Where documents are drawn, apart from [`super::split`]'s sets of problems. Part of what a published
/// base model has seen, so it never changes.
const DOCUMENTS: u64 = 1;

impl Corpus {
    /// Checks the mixture: known families and levels, finite weights ≥ 0 with a positive sum,
    /// shares in [0, 1].
    pub fn new(seed: u64, mixture: &Mixture) -> Result<Self, Error> {
        let mut entries = Vec::with_capacity(mixture.entries.len());
        let mut weight_so_far = 0.0;
        for MixtureEntry {
            family,
            level,
            weight,
            teacher_share,
        } in &mixture.entries
        {
            let family = find_family(family)?;
            family.check_level(*level)?;
            let number = |name: &str, got: f64, expected, good: bool| {
                let what = format!("{name} of {} level {level} in the mixture", family.name);
                if good {
                    Ok(())
                } else {
                    Err(Error::Number {
                        what,
                        expected,
                        got,
                    })
                }
            };
            number(
                "weight",
                *weight,
                "a finite number ≥ 0",
                weight.is_finite() && *weight >= 0.0,
            )?;
            number(
                "teacher_share",
                *teacher_share,
                "0 to 1",
                (0.0..=1.0).contains(teacher_share),
            )?;
            weight_so_far += weight;
            if *weight > 0.0 {
                entries.push(CheckedEntry {
                    family,
                    level: *level,
                    teacher_share: *teacher_share,
                    weight_so_far,
                });
            }
        }
        if weight_so_far > 0.0 && weight_so_far.is_finite() {
            Ok(Corpus { seed, entries })
        } else {
            let what = "sum of the weights in the mixture".to_owned();
            Err(Error::Number {
                what,
                expected: "a positive finite number",
                got: weight_so_far,
            })
        }
    }

    /// Document number `index`.
    pub fn document(&self, index: u64) -> Document {
        let mut draws = Draws::new(
            self.seed,
            Purpose::Task,
            Place {
                step: DOCUMENTS,
                prompt: index,
                ..Place::default()
            },
        );
        let entry = self.pick(draws.uniform());
        let style = if draws.uniform() < entry.teacher_share {
            Style::Teacher
        } else {
            Style::Concise
        };
        let problem = pretraining_problem(entry.family, entry.level, &mut draws);
        document(entry.family, problem, style)
    }

    fn pick(&self, unit: f64) -> &CheckedEntry {
        let last = self
            .entries
            .last()
            .expect("a checked mixture has an entry with a positive weight");
        let mark = unit * last.weight_so_far;
        self.entries
            .iter()
            .find(|entry| mark < entry.weight_so_far)
            .unwrap_or(last)
    }
}

fn pretraining_problem(family: &Family, level: u32, draws: &mut Draws) -> Problem {
    // Four problems of five belong to this split, and a test finds some at every level of every
    // family, so the loop ends.
    loop {
        let problem = (family.problem)(level, draws);
        if split_of(&problem.prompt) == Split::Pretrain {
            return problem;
        }
    }
}

fn document(family: &Family, problem: Problem, style: Style) -> Document {
    let template = find_template("chatml").expect("the built-in task's template is in the table");
    let EndOfTurn::Token(end) = template.end_of_turn else {
        unreachable!("the chatml template names its end token")
    };
    let solution = match style {
        Style::Concise => family.concise(&problem),
        Style::Teacher => family.teacher(&problem),
    };
    Document {
        prompt: render(template, &problem.prompt),
        response: solution + end,
        style,
        problem,
    }
}

/// The mixture we start from: the short levels practised in both styles, the hard ones (see
/// [`Family::hard_levels`]) rare and almost always concise. For `multiply` these are the measured numbers of a prototype
/// whose base failed 78 % of its groups of eight at level 6; the other families take the same shape one level lower,
/// because their columns hold more. Choose a checkpoint by its measured profile, not by a number of tokens.
pub fn recommended_mixture() -> Mixture {
    // (share of the family, weights of the levels from 1 up, teacher's share at each)
    let table: [(&str, f64, &[f64], &[f64]); 3] = [
        (
            "multiply",
            0.32,
            &[0.12, 0.20, 0.22, 0.22, 0.14, 0.07, 0.03],
            &[0.5, 0.5, 0.5, 0.5, 0.3, 0.06, 0.01],
        ),
        (
            "add",
            0.36,
            &[0.16, 0.22, 0.26, 0.24, 0.08, 0.04],
            &[0.5, 0.5, 0.5, 0.3, 0.06, 0.01],
        ),
        (
            "linear",
            0.32,
            &[0.16, 0.22, 0.26, 0.24, 0.08, 0.04],
            &[0.5, 0.5, 0.5, 0.3, 0.06, 0.01],
        ),
    ];
    let mut entries = Vec::new();
    for (family, share, weights, teacher_shares) in table {
        for (level, (weight, teacher_share)) in (1..).zip(weights.iter().zip(teacher_shares)) {
            entries.push(MixtureEntry {
                family: family.to_owned(),
                level,
                weight: share * weight,
                teacher_share: *teacher_share,
            });
        }
    }
    debug_assert!(
        FAMILIES
            .iter()
            .all(|family| entries.iter().any(|entry| entry.family == family.name))
    );
    Mixture { entries }
}
