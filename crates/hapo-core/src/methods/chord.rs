use super::{MethodKind, MethodSpec, Mu};

/// CHORD-φ: the teacher beside the rollouts, its tokens weighted by φ = π(1 − π), and the two terms
/// mixed as (1 − μ)·policy + μ·teacher with μ falling over the run
/// (<https://arxiv.org/abs/2508.11408>).
///
/// Left out: CHORD draws its demonstrations from a batch of its own. Here they are those of the
/// step's prompts, in a fixed slot (D8); `advantage.group = "policy-only"` keeps them out of the
/// baseline, as CHORD has it.
pub(super) const METHOD: MethodSpec = MethodSpec {
    name: "chord",
    summary: "GRPO beside imitation weighted by π(1−π), mixed by a falling μ",
    kind: MethodKind::Mixed { operator: "chord" },
    mu: Some(Mu {
        start: 0.9,
        end: 0.05,
        steps: 200,
    }),
};
