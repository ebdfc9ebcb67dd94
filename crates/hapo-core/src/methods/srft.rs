use std::sync::Arc;

use serde::Deserialize;

use super::{Method, MethodEntry, Plan};
use crate::credit::{Credit, Moment, PolicyAndTeacher, Term};
use crate::group::{Member, MixedGroup};
use crate::operators;
use crate::scores::Scores;
use crate::teacher_weight::TeacherWeight;

/// `L = −min(r·A, clip(r, 1 − ε_low, 1 + ε_high)·A)` for each token of a rollout, `L = −λ·log π` for each of the
/// teacher's.
///
/// SRFT in the paper's fair-comparison setting: the teacher in slot 0 of every group, λ = 1, its tokens imitated
/// by log π (D8, D14). `srft.weights = "entropy"` puts SRFT's own weights in the place of A and λ: 0.1·exp(H) for a
/// correct rollout, −1 for any other, 0.5·λ·exp(−H) for the teacher, with H the mean entropy of the sequence at
/// temperature 1, without a gradient (D21). `"entropy-apart"` also divides the teacher's term by its own tokens, as the
/// code of HPT's authors does.
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "srft",
    summary: "GRPO with the teacher in every group, imitated by log π",
    own_keys: &["weights"],
    variants: &[],
    build: |settings| {
        Ok(Arc::new(Srft {
            terms: settings.with(&operators::srft::OPERATOR),
            weights: settings.srft.weights,
        }))
    },
};

/// `[srft]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Own {
    weights: Weights,
}

/// The weights of a rollout's and a demonstration's tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Weights {
    /// A and λ.
    #[default]
    Plain,
    /// SRFT's own (D21).
    Entropy,
    /// The same, the demonstrations' term a mean over its own tokens.
    EntropyApart,
}

#[derive(Debug)]
struct Srft {
    terms: PolicyAndTeacher,
    weights: Weights,
}

impl Method for Srft {
    fn name(&self) -> &'static str {
        METHOD.name
    }

    fn plan(&self) -> Plan {
        Plan { teacher_apart: self.weights == Weights::EntropyApart, ..Plan::TEACHER_SLOT }
    }

    fn unread_keys(&self) -> &'static [&'static str] {
        match (self.weights, self.terms.weight) {
            // λ is the teacher's own advantage.
            (Weights::Plain, _) | (_, TeacherWeight::Advantage) => &["teacher.d"],
            (Weights::Entropy | Weights::EntropyApart, _) => &["teacher.d", "advantage"],
        }
    }

    fn credit(&self, group: &MixedGroup, at: Moment, _: &Scores) -> Credit {
        let mut credit = self.terms.credit(group, at);
        if self.weights != Weights::Plain {
            for (spans, member) in credit.iter_mut().zip(group.members()) {
                for span in spans {
                    (span.term, span.entropy_exponent) = entropy_weight(&span.term, member);
                }
            }
        }
        credit
    }
}

/// The term with SRFT's factor, and the exponent of its entropy.
fn entropy_weight(term: &Term, member: &Member) -> (Term, f64) {
    match term {
        Term::Teacher { .. } => (term.scaled(0.5), -1.0),
        Term::Policy { .. } if member.is_success() => (Term::policy(0.1), 1.0),
        Term::Policy { .. } => (Term::policy(-1.0), 0.0),
    }
}
