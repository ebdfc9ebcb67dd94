use super::hpt::{imitating_failed, switch};
use super::prelude::*;

/// arXiv 2506.01096: `L = −λ·log π` for each token of the demonstration of a failed group, GRPO's loss elsewhere, by
/// one normaliser.
///
/// `SuperRL`: a prompt whose rollouts all fail gives the gradient of imitation, any other that of RL. The demonstration
/// takes the place of a failed rollout; the others, whose advantages are 0, stay in the divisor (version 2).
/// Unverified: no code is public, and the weight of imitation is not stated.
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "superrl",
    summary: "a failed group gives the gradient of imitation, any other that of GRPO",
    make: |settings| Ok(Method { plan: switch(false), ..imitating_failed(settings) }),
    ..MethodEntry::NEW
};
