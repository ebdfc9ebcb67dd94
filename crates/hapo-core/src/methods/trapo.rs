use super::{MethodKind, MethodSpec};

/// TRAPO in the paper's fair-comparison setting: the teacher in slot 0 of every group, λ = 1, its
/// tokens shaped by the trust region min(1, π/d) (D8, D14). A recipe may turn its own prefix hints on (D22).
pub(super) const METHOD: MethodSpec = MethodSpec {
    name: "trapo",
    summary: "GRPO with the teacher in every group, shaped by a trust region at π = d",
    kind: MethodKind::Mixed { operator: "trapo" },
    mu: None,
};
