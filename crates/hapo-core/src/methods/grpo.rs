use super::prelude::*;

/// arXiv 2503.20783: `A_j = r_j − mean(r)`, and `L = −min(r·A, clip(r, 1 − ε_low, 1 + ε_high)·A)` for each token of a
/// rollout.
///
/// Dr. GRPO: clipped surrogate on group-relative advantages, without division by the standard deviation, without KL
/// term, without teacher (Eq. 2–3, D12, D18). The first GRPO, DAPO and GSPO are settings of it.
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "grpo",
    summary: "on-policy only: clipped surrogate on group-relative advantages (Dr. GRPO)",
    variants: &[
        Variant {
            name: "dr-grpo",
            summary: "the default: no division by the standard deviation, constant normaliser",
            settings: &[],
        },
        Variant {
            name: "grpo-original",
            summary: "advantages over their standard deviation, mean over each sequence",
            settings: &["advantage.std=true", "loss.normaliser=sequence-mean"],
        },
        Variant {
            name: "dapo",
            summary: "clip higher, mean over tokens, dynamic sampling; rewards are not shaped by length",
            settings: &[
                "advantage.std=true",
                "loss.clip_high=0.28",
                "loss.normaliser=token-mean",
                "sampling.dynamic_sampling=3",
            ],
        },
        Variant {
            name: "gspo",
            summary: "the importance ratio of the whole response, in a far narrower trust region",
            settings: &[
                "advantage.std=true",
                "loss.importance_ratio_level=sequence",
                "loss.normaliser=sequence-mean",
                "loss.clip_low=3e-4",
                "loss.clip_high=4e-4",
            ],
        },
    ],
    make: |settings| Ok(Method::new(grpo(settings.advantage))),
    ..MethodEntry::NEW
};

/// GRPO's terms: the clipped surrogate with the advantages of a rule.
pub(super) fn grpo(
    rule: AdvantageRule,
) -> impl Fn(&MixedGroup, StepContext, &Scores) -> Credit + Send + Sync + 'static {
    move |group, _, _| on_policy(group, advantages(group, rule))
}

/// One policy span for each member, with its advantage. A teacher's, which such a method has under HAPO alone, is replaced
/// by the term of `teacher.operator`.
pub(super) fn on_policy(group: &MixedGroup, advantages: Vec<f64>) -> Credit {
    let members = group.members().iter().zip(advantages);
    members
        .map(|(member, advantage)| {
            vec![Span::new(0..member.tokens().len(), Term::policy(advantage))]
        })
        .collect()
}
