use super::{MethodKind, MethodSpec};

/// Dr. GRPO: clipped surrogate on group-relative advantages, without division by the standard
/// deviation, without KL term, without teacher (Eq. 2–3, D12, D18).
pub(super) const METHOD: MethodSpec = MethodSpec {
    name: "grpo",
    summary: "on-policy only: clipped surrogate on group-relative advantages",
    kind: MethodKind::OnPolicy,
    mu: None,
};
