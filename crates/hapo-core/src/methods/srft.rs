use super::{MethodKind, MethodSpec};

/// SRFT in the paper's fair-comparison setting: the teacher in slot 0 of every group, λ = 1, its
/// tokens imitated by log π, entropy weights off (D8, D14, D21).
pub(super) const METHOD: MethodSpec = MethodSpec {
    name: "srft",
    summary: "GRPO with the teacher in every group, imitated by log π",
    kind: MethodKind::Mixed { operator: "srft" },
    mu: None,
};
