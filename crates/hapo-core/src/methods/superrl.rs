use std::sync::Arc;

use super::hpt::{imitating_failed, switch};
use super::{Method, MethodEntry, Plan};
use crate::credit::{Credit, Moment, PolicyAndTeacher};
use crate::group::MixedGroup;
use crate::operators;
use crate::scores::Scores;

/// `L = −λ·log π` for each token of the demonstration of a failed group, GRPO's loss elsewhere, by one normaliser.
///
/// `SuperRL`: a prompt whose rollouts all fail gives the gradient of imitation, any other that of RL. The demonstration
/// takes the place of a failed rollout; the others, whose advantages are 0, stay in the divisor ("`SuperRL`:
/// reinforcement learning with supervision to boost language model reasoning", version 2,
/// <https://arxiv.org/abs/2506.01096>). Unverified: no code is public, and the weight of imitation is not stated.
///
/// HPT has the same switch with a mean of its own for imitation. With `[hapo]` the switch anneals.
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "superrl",
    summary: "a failed group gives the gradient of imitation, any other that of GRPO",
    own_keys: &[],
    variants: &[],
    build: |settings| Ok(Arc::new(SuperRl(settings.with(&operators::srft::OPERATOR)))),
};

#[derive(Debug)]
struct SuperRl(PolicyAndTeacher);

impl Method for SuperRl {
    fn name(&self) -> &'static str {
        METHOD.name
    }

    fn plan(&self) -> Plan {
        switch(false)
    }

    fn unread_keys(&self) -> &'static [&'static str] {
        &["teacher.d"]
    }

    fn credit(&self, group: &MixedGroup, at: Moment, _: &Scores) -> Credit {
        imitating_failed(self.0, group, at)
    }
}
