//! Credit: what the tokens of each sequence are worth.
//!
//! A method turns a group into spans of tokens, each with a term of the loss, and that is all that the trainer
//! sees of it: a rollout is one policy span, a demonstration one teacher span, a rollout behind a prefix of the
//! teacher's is one of each. The price is a short vector for each sequence.

use std::ops::Range;

use crate::advantage::{AdvantageRule, advantages};
use crate::group::{Member, MixedGroup};
use crate::operators::Operator;
use crate::rollout::Step;
use crate::teacher_weight::{TeacherWeight, teacher_weight};

/// The spans of each member of a group, in the order of members. A member without spans is not trained on, and
/// counts in the normaliser.
pub type Credit = Vec<Vec<Span>>;

/// Tokens of one sequence that share a term of the loss.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Which tokens of the response.
    pub tokens: Range<usize>,
    /// Their term.
    pub term: Term,
    /// k: the term's factor is multiplied by exp(k·H̄), with H̄ the mean entropy of the span's tokens at
    /// temperature 1, without a gradient. 0 leaves it as it is.
    pub entropy_exponent: f64,
}

/// A term of the loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Term {
    /// The clipped surrogate (Eq. 3).
    Policy {
        /// A.
        advantage: f64,
    },
    /// λ·Σ F(π) (Eq. 11).
    Teacher {
        /// λ.
        weight: f64,
        /// F.
        operator: &'static Operator,
        /// The operator's d.
        d: f64,
    },
}

impl Term {
    /// The same term with its factor (A or λ) times `factor`.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        match self {
            Self::Policy { advantage } => Self::Policy { advantage: factor * advantage },
            Self::Teacher { weight, operator, d } => {
                Self::Teacher { weight: factor * weight, operator, d }
            }
        }
    }

    /// A or λ.
    pub fn factor(&self) -> f64 {
        match self {
            Self::Policy { advantage } => *advantage,
            Self::Teacher { weight, .. } => *weight,
        }
    }
}

impl Span {
    /// A span whose term does not depend on entropy.
    pub fn new(tokens: Range<usize>, term: Term) -> Self {
        Self { tokens, term, entropy_exponent: 0.0 }
    }

    /// Whether the span's tokens are the teacher's.
    pub fn is_teacher(&self) -> bool {
        matches!(self.term, Term::Teacher { .. })
    }
}

/// When credit is given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// The training step.
    pub step: Step,
    /// γ0 of the gate, which [`TeacherWeight::Relative`] reads.
    pub initial_threshold: f64,
}

/// The two terms that most methods add: A for a rollout (Eq. 2), λ·F for the teacher (Eq. 11).
#[derive(Clone, Copy, Debug)]
pub struct PolicyAndTeacher {
    /// How A is taken within a group (D12, D13).
    pub advantage: AdvantageRule,
    /// λ (D15).
    pub weight: TeacherWeight,
    /// F (D14).
    pub operator: &'static Operator,
    /// The operator's d.
    pub d: f64,
}

impl PolicyAndTeacher {
    /// One span for each member.
    pub fn credit(&self, group: &MixedGroup, at: Moment) -> Credit {
        let advantages = advantages(group, self.advantage);
        let members = group.members().iter().zip(advantages);
        members
            .map(|(member, advantage)| match member {
                Member::Policy(it) => {
                    let tokens = 0..it.rollout.tokens.len();
                    vec![Span::new(tokens, Term::Policy { advantage })]
                }
                Member::Teacher { trajectory, .. } => {
                    let tokens = 0..trajectory.tokens().len();
                    vec![Span::new(tokens, self.teacher_term(group, at, advantage))]
                }
            })
            .collect()
    }

    /// λ·F in a group, for tokens of a member with this advantage.
    pub fn teacher_term(&self, group: &MixedGroup, at: Moment, advantage: f64) -> Term {
        Term::Teacher {
            weight: teacher_weight(self.weight, group, at.initial_threshold, advantage),
            operator: self.operator,
            d: self.d,
        }
    }
}
