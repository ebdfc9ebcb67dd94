//! Credit: what the tokens of each sequence are worth. A method turns a group into spans of tokens, each with a term of
//! the loss, and that is all that the trainer sees of it: a rollout is one policy span, a demonstration one teacher
//! span, a rollout behind a prefix of the teacher's is one of each. The price is a short vector for each sequence.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    AdvantageRule, Member, MixedGroup, Operator, Rollout, Step, TeacherWeight, advantages,
    teacher_weight,
};

/// The spans of each member of a group, in order. One without spans is not trained on, and counts in the normaliser.
pub type Credit = Vec<Vec<Span>>;

/// Whether a term has a factor other than 0: more than an entropy bonus comes from the group (D20).
pub fn has_terms<'a>(spans: impl IntoIterator<Item = &'a Span>) -> bool {
    spans.into_iter().any(|it| !it.term.is_zero())
}

/// Tokens of a sequence that are not masked (D41).
pub fn unmasked(tokens: usize, spans: &[Span]) -> usize {
    tokens - spans.iter().map(Span::masked).sum::<usize>()
}

/// One span for the prefix that a rollout continues, and one for what the policy wrote.
pub fn behind_prefix(rollout: &Rollout, prefix: Term, own: Term) -> Vec<Span> {
    let mut spans = vec![Span::new(rollout.prefix..rollout.tokens.len(), own)];
    if rollout.prefix > 0 {
        spans.insert(0, Span::new(0..rollout.prefix, prefix));
    }
    spans
}

/// Tokens of one sequence that share a term of the loss.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Which tokens of the response.
    pub tokens: Range<usize>,
    /// Their term.
    pub term: Term,
    /// k: the factor is multiplied by exp(k·H̄), H̄ the mean entropy of the tokens at temperature 1, no gradient.
    pub entropy_exponent: f64,
    /// The KL term of a policy span, in the place of the loss's own.
    pub kl: Option<Kl>,
    /// log `π_ref` of each token, which a KL term needs.
    pub reference: Option<Arc<[f32]>>,
    /// w of each token of a policy span (D41): a factor of its surrogate; at 0 it has no term at all. Absent for 1.
    pub weights: Option<Arc<[f32]>>,
}

/// A of the tokens of a span.
#[derive(Clone, Debug, PartialEq)]
pub enum Advantage {
    /// One number for all tokens.
    Sequence(f64),
    /// One number for each token, in order.
    Tokens(Arc<[f32]>),
}

/// The log-probability below the line of the importance ratio.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ratio {
    /// The one that was recorded while sampling (D19).
    #[default]
    Recorded,
    /// That of the weights before the step's first update, behind the prompt that is trained behind.
    Rescored,
    /// That of the weights being trained: the ratio is 1, and its slope A, as in REINFORCE.
    One,
    /// The recorded one. A ratio w counts as w/(w + 0.1), without a clip (`ExGRPO`).
    Bounded,
}

/// A KL term: the loss gains coef·Σ k over a span's tokens, under the span's divisor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kl {
    /// Its weight; at 0 there is no term.
    pub coef: f64,
    /// k.
    pub estimator: KlEstimator,
}

/// An estimator of KL(π ‖ `π_ref`) on one token, a function of q = log `π_ref` − log π, both at the sampling
/// temperature ("Approximating KL divergence", <http://joschu.net/blog/kl-approx.html>). On the policy's own tokens k1
/// and k3 have the KL as their mean; the gradient of k2 is the KL's, that of k1 is 0 in the mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KlEstimator {
    /// −q.
    K1,
    /// q²/2.
    K2,
    /// exp(q) − 1 − q, as in GRPO.
    #[default]
    K3,
}

impl KlEstimator {
    /// k, and its derivative by log π.
    pub fn at(self, q: f64) -> (f64, f64) {
        match self {
            Self::K1 => (-q, 1.0),
            Self::K2 => (0.5 * q * q, -q),
            Self::K3 => (libm::expm1(q) - q, -libm::expm1(q)),
        }
    }
}

/// A term of the loss.
#[derive(Clone, Debug, PartialEq)]
pub enum Term {
    /// The clipped surrogate (Eq. 3).
    Policy {
        /// A.
        advantage: Advantage,
        /// The denominator of the ratio.
        ratio: Ratio,
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

impl Advantage {
    /// Each value times `factor`.
    pub fn scaled(&self, factor: f64) -> Self {
        match self {
            Self::Sequence(it) => Self::Sequence(factor * it),
            Self::Tokens(values) => {
                Self::Tokens(values.iter().map(|it| (factor * f64::from(*it)) as f32).collect())
            }
        }
    }

    /// The value of one token.
    pub fn at(&self, token: usize) -> f64 {
        match self {
            Self::Sequence(it) => *it,
            Self::Tokens(values) => f64::from(values[token]),
        }
    }

    /// Whether it is 0 for every token.
    pub fn is_zero(&self) -> bool {
        match self {
            Self::Sequence(it) => *it == 0.0,
            Self::Tokens(values) => values.iter().all(|it| *it == 0.0),
        }
    }

    /// The mean over tokens, 0 over none.
    pub fn mean(&self) -> f64 {
        match self {
            Self::Sequence(it) => *it,
            Self::Tokens(values) => {
                let sum: f64 = values.iter().map(|it| f64::from(*it)).sum();
                sum / values.len().max(1) as f64
            }
        }
    }
}

impl Term {
    /// The clipped surrogate with one advantage, the ratio taken to what was recorded.
    pub fn policy(advantage: f64) -> Self {
        Self::Policy { advantage: Advantage::Sequence(advantage), ratio: Ratio::Recorded }
    }

    /// The same term with its factor (A or λ) times `factor`.
    pub fn scaled(&self, factor: f64) -> Self {
        match self {
            Self::Policy { advantage, ratio } => {
                Self::Policy { advantage: advantage.scaled(factor), ratio: *ratio }
            }
            Self::Teacher { weight, operator, d } => {
                Self::Teacher { weight: factor * weight, operator, d: *d }
            }
        }
    }

    /// Whether it is 0 whatever the tokens' probabilities are.
    pub fn is_zero(&self) -> bool {
        match self {
            Self::Policy { advantage, .. } => advantage.is_zero(),
            Self::Teacher { weight, .. } => *weight == 0.0,
        }
    }
}

impl Span {
    /// A span whose term does not depend on entropy, without a KL term of its own.
    pub fn new(tokens: Range<usize>, term: Term) -> Self {
        Self { tokens, term, entropy_exponent: 0.0, kl: None, reference: None, weights: None }
    }

    /// w of a token, by its place in the span; one of weight 0 is masked and has no term at all (D41).
    pub fn weight(&self, at: usize) -> f64 {
        self.weights.as_ref().and_then(|it| it.get(at)).map_or(1.0, |it| f64::from(*it))
    }

    /// Its masked tokens (D41).
    pub fn masked(&self) -> usize {
        self.weights.iter().flat_map(|it| it.iter()).filter(|weight| **weight == 0.0).count()
    }

    /// The ratio of a policy span.
    pub fn ratio(&self) -> Option<Ratio> {
        match self.term {
            Term::Policy { ratio, .. } => Some(ratio),
            Term::Teacher { .. } => None,
        }
    }

    /// Whether the span's tokens are the teacher's.
    pub fn is_teacher(&self) -> bool {
        matches!(self.term, Term::Teacher { .. })
    }
}

/// When credit is given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepContext {
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
    pub fn credit(&self, group: &MixedGroup, at: StepContext) -> Credit {
        let advantages = advantages(group, self.advantage);
        let members = group.members().iter().zip(advantages);
        members
            .map(|(member, advantage)| {
                let teacher = self.teacher_term(group, at, advantage);
                let (whole, own) = (0..member.tokens().len(), Term::policy(advantage));
                match member {
                    Member::Teacher { .. } => vec![Span::new(whole, teacher)],
                    Member::Helped { member, .. } => behind_prefix(&member.rollout, teacher, own),
                    Member::Policy(_) | Member::Replayed { .. } => vec![Span::new(whole, own)],
                }
            })
            .collect()
    }

    /// Puts λ·F in the place of the policy's term on the teacher's tokens: a trace's, or those of a prefix.
    pub(crate) fn replace_policy(&self, credit: &mut Credit, group: &MixedGroup, at: StepContext) {
        for (spans, member) in credit.iter_mut().zip(group.members()) {
            let given = match member {
                Member::Teacher { trajectory, .. } => trajectory.tokens().len(),
                Member::Helped { member, .. } => member.rollout.prefix,
                Member::Policy(_) | Member::Replayed { .. } => 0,
            };
            let advantage = match spans.first().map(|it| &it.term) {
                Some(Term::Policy { advantage, .. }) if given > 0 => advantage.mean(),
                _ => continue,
            };
            spans[0].tokens.start = given;
            spans.insert(0, Span::new(0..given, self.teacher_term(group, at, advantage)));
            spans.retain(|it| !it.tokens.is_empty());
        }
    }

    /// λ·F in a group, for tokens of a member with this advantage.
    pub fn teacher_term(&self, group: &MixedGroup, at: StepContext, advantage: f64) -> Term {
        let weight = teacher_weight(self.weight, group, at.initial_threshold, advantage);
        Term::Teacher { weight, operator: self.operator, d: self.d }
    }
}
