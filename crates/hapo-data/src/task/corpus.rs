//! Documents for pretraining: a prompt and one solution each, in a mixture of families, levels and styles.
//!
//! Purpose: the base model's character is made here. How often a level occurs decides how often the base solves it; how
//! often the teacher's style occurs at a level decides whether the base can execute it there. Document `i` of a seed is
//! a pure function of both, so a corpus has no length and no file.

use super::{Family, Problem, Split, find_family, split_of};
use crate::template::{EndOfTurn, find_template, render};
use hapo_core::{CounterRng, Refusal, RngCounter, RngStream};
use serde::{Deserialize, Serialize};

/// How often which problems occur, and in which style they are solved. In a recipe:
///
/// ```toml
/// [[mixture.families]]
/// family = "multiply"
/// share = 0.5
/// level_weights = [0.2, 0.3, 0.4, 0.1]
/// teacher_shares = [0.5, 0.5, 0.3, 0.05]
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mixture {
    pub families: Vec<FamilyMixture>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FamilyMixture {
    pub family: String,
    /// Share of all documents, relative to the sum over the families; ≥ 0.
    pub share: f64,
    /// Share of the family's documents at level 1, 2, …, relative to their sum; ≥ 0.
    pub level_weights: Vec<f64>,
    /// Probability that a document at level 1, 2, … is in the teacher's style, in [0, 1].
    pub teacher_shares: Vec<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Style {
    /// The base model's own: short, carries implicit.
    Concise,
    /// The teacher's: one column per digit, everything explicit.
    Teacher,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// The prompt in the `chatml` template, up to where the assistant speaks.
    pub prompt: String,
    /// The solution with the end token of the turn.
    pub response: String,
    pub style: Style,
    pub problem: Problem,
}

/// An endless, seeded series of documents. Only problems of [`Split::Pretrain`] occur.
#[derive(Debug, Clone)]
pub struct Corpus {
    seed: u64,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    family: &'static Family,
    level: u32,
    teacher_share: f64,
    /// Sum of the weights up to and with this entry.
    weight_so_far: f64,
}

/// Start of the documents, apart from [`super::split`]'s sets. A published base model has read them: it never changes.
const DOCUMENTS: u64 = 1;

impl Corpus {
    /// Checks the mixture: known families, levels that they have, as many teacher's shares as weights,
    /// finite shares and weights ≥ 0 with a positive sum, teacher's shares in [0, 1].
    pub fn new(seed: u64, mixture: &Mixture) -> Result<Self, Refusal> {
        let mut entries = Vec::new();
        let mut weight_so_far = 0.0;
        for part in &mixture.families {
            let family = find_family(&part.family)?;
            let levels = part.level_weights.len();
            family.check_level(levels as u32)?;
            let shares = part.teacher_shares.len();
            let sum: f64 = part.level_weights.iter().sum();
            let not_negative = |it: f64| it.is_finite() && it >= 0.0;
            let weights = part.level_weights.iter();
            let weights =
                weights.map(|it| ("level_weights", "finite numbers ≥ 0", *it, not_negative(*it)));
            let in_range = |it: &f64| (0.0..=1.0).contains(it);
            let teachers = part.teacher_shares.iter();
            let teachers =
                teachers.map(|it| ("teacher_shares", "numbers from 0 to 1", *it, in_range(it)));
            let as_many = "as many as level_weights";
            let checks = [
                ("share", "a finite number ≥ 0", part.share, not_negative(part.share)),
                ("number of teacher_shares", as_many, shares as f64, shares == levels),
            ];
            let is_positive = sum > 0.0 && sum.is_finite();
            let last = ("sum of level_weights", "a positive finite number", sum, is_positive);
            let mut checks = checks.into_iter().chain(weights).chain(teachers).chain([last]);
            if let Some((what, expected, got, _)) = checks.find(|it| !it.3) {
                let what = format!("{what} of `{}` in the mixture", family.name);
                return Err(Refusal::input(format!("{what}: expected {expected}, got {got}")));
            }
            for (level, (weight, teacher_share)) in
                (1..).zip(part.level_weights.iter().zip(&part.teacher_shares))
            {
                let weight = part.share * (weight / sum);
                weight_so_far += weight;
                if weight > 0.0 {
                    entries.push(Entry {
                        family,
                        level,
                        teacher_share: *teacher_share,
                        weight_so_far,
                    });
                }
            }
        }
        if weight_so_far > 0.0 && weight_so_far.is_finite() {
            Ok(Corpus { seed, entries })
        } else {
            let problem = "sum of the shares in the mixture: expected a positive finite number";
            Err(Refusal::input(format!("{problem}, got {weight_so_far}")))
        }
    }

    pub fn document(&self, index: u64) -> Document {
        let mut rng = CounterRng::new(
            self.seed,
            RngStream::Task,
            RngCounter { step: DOCUMENTS, prompt: index, ..RngCounter::default() },
        );
        let entry = self.pick(rng.uniform());
        let style =
            if rng.uniform() < entry.teacher_share { Style::Teacher } else { Style::Concise };
        // Four problems of five belong to this split, and a test finds some at every level of every family.
        let mut problems = std::iter::repeat_with(|| (entry.family.problem)(entry.level, &mut rng));
        let problem = problems.find(|it| split_of(&it.prompt) == Split::Pretrain);
        let problem = problem.expect("problems come without end");
        document(entry.family, problem, style)
    }

    fn pick(&self, unit: f64) -> &Entry {
        let last =
            self.entries.last().expect("a checked mixture has an entry with a positive weight");
        let mark = unit * last.weight_so_far;
        self.entries.iter().find(|entry| mark < entry.weight_so_far).unwrap_or(last)
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
    Document { prompt: render(template, &problem.prompt), response: solution + end, style, problem }
}

/// The mixture we start from: the short levels practised in both styles, the hard ones (see
/// [`Family::hard_levels`]) rare and almost always concise. For `multiply` these are the measured numbers of a prototype
/// whose base failed 78 % of its groups of eight at level 6; the other families take the same shape one level lower,
/// because their columns hold more. Choose a checkpoint by its measured profile, not by a number of tokens.
pub fn recommended_mixture() -> Mixture {
    let part = |family: &str, share, level_weights: &[f64], teacher_shares: &[f64]| FamilyMixture {
        family: family.to_owned(),
        share,
        level_weights: level_weights.to_vec(),
        teacher_shares: teacher_shares.to_vec(),
    };
    let weights = [0.16, 0.22, 0.26, 0.24, 0.08, 0.04];
    let shares = [0.5, 0.5, 0.5, 0.3, 0.06, 0.01];
    Mixture {
        families: vec![
            part(
                "multiply",
                0.32,
                &[0.12, 0.20, 0.22, 0.22, 0.14, 0.07, 0.03],
                &[0.5, 0.5, 0.5, 0.5, 0.3, 0.06, 0.01],
            ),
            part("add", 0.36, &weights, &shares),
            part("linear", 0.32, &weights, &shares),
        ],
    }
}
