use std::sync::Arc;

use super::{Method, MethodEntry};
use crate::credit::{Credit, Moment, Span, Term};
use crate::group::{Member, MixedGroup};
use crate::growth::Needs;
use crate::operators;
use crate::scores::Scores;

/// `L = −log π` for each token of the teacher.
///
/// Supervised fine-tuning: the mean negative log-likelihood of the teacher's tokens. The paper's setting is 2
/// epochs at learning rate 5e-5 with a warm-up of 0.1 and batches of 32.
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "sft",
    summary: "imitates the teacher trajectories; nothing is sampled",
    own_keys: &[],
    variants: &[],
    build: |_| Ok(Arc::new(Sft)),
};

#[derive(Debug)]
struct Sft;

impl Method for Sft {
    fn name(&self) -> &'static str {
        METHOD.name
    }

    fn needs(&self) -> Needs {
        Needs::DEMONSTRATIONS
    }

    fn credit(&self, group: &MixedGroup, _: Moment, _: &Scores) -> Credit {
        let members = group.members().iter();
        members
            .map(|it| match it {
                Member::Teacher { trajectory, .. } => demonstration(trajectory.tokens().len()),
                _ => Vec::new(),
            })
            .collect()
    }
}

/// The credit of a demonstration of `tokens` tokens; it has no group.
pub fn demonstration(tokens: usize) -> Vec<Span> {
    let term = Term::Teacher {
        weight: 1.0,
        operator: &operators::srft::OPERATOR,
        // log π has no d.
        d: 0.1,
    };
    vec![Span::new(0..tokens, term)]
}
