use super::prelude::*;

/// arXiv 2506.19767: `L = −min(r·A, clip(r, 1 − ε_low, 1 + ε_high)·A)` for each token of a rollout, `L = −λ·log π` for
/// each of the teacher's.
///
/// SRFT in the paper's fair-comparison setting: the teacher in slot 0 of every group, λ = 1, its tokens imitated by log
/// π (D8, D14). `srft.weights = "entropy"` puts SRFT's own weights in the place of A and λ: 0.1·exp(H) for a correct
/// rollout, −1 for any other, 0.5·λ·exp(−H) for the teacher, with H the mean entropy of the sequence at temperature 1,
/// without a gradient (D21). `"entropy-apart"` also divides the teacher's term by its own tokens, as the code of HPT's
/// authors does.
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "srft",
    summary: "GRPO with the teacher in every group, imitated by log π",
    make: |settings| {
        let (terms, weights) = (settings.with(&operators::SRFT), settings.srft.weights);
        let teacher_apart = weights == Weights::EntropyApart;
        let method = Method::new(move |group, at, _| {
            let mut credit = terms.credit(group, at);
            if weights != Weights::Plain {
                for (spans, member) in credit.iter_mut().zip(group.members()) {
                    for span in spans {
                        (span.term, span.entropy_exponent) = entropy_weight(&span.term, member);
                    }
                }
            }
            credit
        });
        Ok(Method {
            plan: Plan { teacher_apart, ..Plan::TEACHER_SLOT },
            unread_keys: match (weights, terms.weight) {
                // λ is the teacher's own advantage.
                (Weights::Plain, _) | (_, TeacherWeight::Advantage) => &["teacher.d"],
                (Weights::Entropy | Weights::EntropyApart, _) => &["teacher.d", "advantage"],
            },
            ..method
        })
    },
    ..MethodEntry::NEW
};

own! {
    /// `[srft]`.
    Own {
        weights: Weights = Weights::Plain,
    }
}

/// The weights of a rollout's and a demonstration's tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Weights {
    /// A and λ.
    Plain,
    /// SRFT's own (D21).
    Entropy,
    /// The same, the demonstrations' term a mean over its own tokens.
    EntropyApart,
}

/// The term with SRFT's factor, and the exponent of its entropy.
fn entropy_weight(term: &Term, member: &Member) -> (Term, f64) {
    match term {
        Term::Teacher { .. } => (term.scaled(0.5), -1.0),
        Term::Policy { .. } if member.is_success() => (Term::policy(0.1), 1.0),
        Term::Policy { .. } => (Term::policy(-1.0), 0.0),
    }
}
