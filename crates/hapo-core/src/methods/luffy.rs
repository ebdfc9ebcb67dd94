use super::{MethodKind, MethodSpec};

/// LUFFY in the paper's fair-comparison setting: the teacher in slot 0 of every group, λ = 1, its
/// tokens shaped by π/(π+d) (D8, D14, D15).
pub(super) const METHOD: MethodSpec = MethodSpec {
    name: "luffy",
    summary: "GRPO with the teacher in every group, shaped by π/(π+d)",
    kind: MethodKind::Mixed { operator: "luffy" },
    mu: None,
};
