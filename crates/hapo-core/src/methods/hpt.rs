use super::{MethodKind, MethodSpec};

/// HPT's switch: a group that fails is dropped and its prompt's demonstration imitated in its place;
/// any other group is GRPO ("Towards a unified view of large language model post-training",
/// <https://arxiv.org/abs/2509.04419>, Eq. 9 with γ = 0 as its default).
///
/// Left out: HPT's schedule of the two coefficients, which its own experiments hold at 0 and 1. With
/// `[hapo]` the switch's threshold anneals.
pub(super) const METHOD: MethodSpec = MethodSpec {
    name: "hpt",
    summary: "a failed group is dropped and one demonstration imitated instead",
    kind: MethodKind::Switch { operator: "srft" },
    mu: None,
};
