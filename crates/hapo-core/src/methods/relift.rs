use std::sync::Arc;

use serde::Deserialize;

use super::grpo::on_policy;
use super::hpt::switch;
use super::{Method, MethodEntry, Plan, check};
use crate::advantage::{AdvantageRule, advantages};
use crate::credit::{Credit, Moment};
use crate::group::{Intervention, MixedGroup, ScoredGroup};
use crate::growth::Needs;
use crate::injection::Offer;
use crate::memory::Memory;
use crate::rollout::Step;
use crate::scores::Scores;

/// GRPO's loss in every step, and `L = −mean(log π)` over the demonstrations of `batch` failed prompts in an update of
/// their own once as many wait.
///
/// `ReLIFT`: a prompt whose rollouts all fail waits in front of a queue; when the queue holds `batch`, the first are
/// imitated after the step's updates ("Learning what reinforcement learning can't: interleaved online fine-tuning for
/// hardest questions", <https://arxiv.org/abs/2506.07527>; TheRoadQaQ/ReLIFT). The authors' code has a second optimiser
/// for imitation; here both share one (D43).
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "relift",
    summary: "GRPO, and updates of imitation on the demonstrations of failed prompts as they fill a batch",
    own_keys: &["batch"],
    variants: &[],
    build: |settings| {
        let batch = settings.relift.batch;
        check("relift.batch", batch > 0, "at least 1", batch)?;
        Ok(Arc::new(ReLift { advantage: settings.advantage, batch }))
    },
};

/// `[relift]`; what is not written is as published.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Own {
    /// Demonstrations of an update of imitation.
    batch: usize,
}

impl Default for Own {
    fn default() -> Self {
        Self { batch: 128 }
    }
}

#[derive(Debug)]
struct ReLift {
    advantage: AdvantageRule,
    batch: usize,
}

impl Method for ReLift {
    fn name(&self) -> &'static str {
        METHOD.name
    }

    fn plan(&self) -> Plan {
        Plan { can_be_gated: false, ..switch(true) }
    }

    fn needs(&self) -> Needs {
        Needs { memory: true, ..Needs::ROLLOUTS }
    }

    fn unread_keys(&self) -> &'static [&'static str] {
        &["teacher", "sampling.remembered_tokens"]
    }

    fn mix(&self, group: ScoredGroup, offer: &Offer<'_>, is_open: bool) -> MixedGroup {
        group.unchanged(match (is_open, offer.teachers) {
            (false, _) => Intervention::GateClosed,
            (true, []) => Intervention::OpenWithoutTeacher,
            (true, _) => Intervention::Injected,
        })
    }

    fn credit(&self, group: &MixedGroup, _: Moment, _: &Scores) -> Credit {
        on_policy(group, advantages(group, self.advantage))
    }

    fn remember(&self, before: Memory, step: &[MixedGroup], _: Step) -> Memory {
        let failed = step.iter().filter(|it| it.injected());
        before.with_queued(failed.map(MixedGroup::prompt), self.batch)
    }
}
