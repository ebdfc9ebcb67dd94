use super::prelude::*;

/// arXiv 2603.11321, its baseline: `L = −log π` for each token of the teacher.
///
/// Supervised fine-tuning: the mean negative log-likelihood of the teacher's tokens. The paper's setting is 2 epochs at
/// learning rate 5e-5 with a warm-up of 0.1 and batches of 32.
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "sft",
    summary: "imitates the teacher trajectories; nothing is sampled",
    make: |_| {
        let method = Method::new(|group, _, _| {
            let spans = |member: &Member| match member {
                Member::Teacher { trajectory, .. } => demonstration(trajectory.tokens().len()),
                _ => Vec::new(),
            };
            group.members().iter().map(spans).collect()
        });
        Ok(Method { help: Help::needing(Needs { parts: 0, ..Needs::ROLLOUTS }), ..method })
    },
    ..MethodEntry::NEW
};

/// The credit of a demonstration of `tokens` tokens; it has no group.
pub fn demonstration(tokens: usize) -> Vec<Span> {
    let term = Term::Teacher {
        weight: 1.0,
        operator: &operators::SRFT,
        // log π has no d.
        d: 0.1,
    };
    vec![Span::new(0..tokens, term)]
}
