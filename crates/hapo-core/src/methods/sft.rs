use super::{MethodKind, MethodSpec};

/// Supervised fine-tuning: the mean negative log-likelihood of the teacher's tokens.
///
/// The paper's setting is 2 epochs at learning rate 5e-5 with a warm-up of 0.1 and batches of 32.
pub(super) const METHOD: MethodSpec = MethodSpec {
    name: "sft",
    summary: "imitates the teacher trajectories; nothing is sampled",
    kind: MethodKind::Imitation,
    mu: None,
};
