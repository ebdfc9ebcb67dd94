//! Counts of a gate between steps (D39).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::GroupStats;
use crate::group::MixedGroup;
use crate::rollout::PromptId;

/// Counts of earlier visits and of exposures. They are counted where a group is trained on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateMemory {
    /// Successes and rollouts of each prompt over its visits, discounted.
    visits: BTreeMap<PromptId, (f64, f64)>,
    /// Groups that something entered.
    pub exposures: u64,
}

impl GateMemory {
    /// True if nothing was counted.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Successes and rollouts of a prompt, those of this visit included.
    pub(super) fn counts(&self, discount: f64, group: &GroupStats) -> (f64, f64) {
        self.with_visit(discount, group.prompt, (group.successes, group.n_eff))
    }

    /// The memory after a step.
    #[must_use]
    pub fn after(mut self, step: &[MixedGroup], discount: f64) -> Self {
        for group in step {
            let visit = (group.successes(), group.n_eff());
            let counts = self.with_visit(discount, group.prompt(), visit);
            self.visits.insert(group.prompt(), counts);
            self.exposures += u64::from(group.injected());
        }
        self
    }

    fn with_visit(
        &self,
        discount: f64,
        prompt: PromptId,
        (successes, rollouts): (usize, usize),
    ) -> (f64, f64) {
        let before = self.visits.get(&prompt).copied().unwrap_or_default();
        (discount * before.0 + successes as f64, discount * before.1 + rollouts as f64)
    }
}
