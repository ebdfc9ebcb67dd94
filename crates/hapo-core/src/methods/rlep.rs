use std::sync::Arc;

use serde::Deserialize;

use super::grpo::on_policy;
use super::{Method, MethodEntry, Plan};
use crate::advantage::{AdvantageRule, advantages};
use crate::credit::{Credit, Moment, Ratio};
use crate::gate::Gate;
use crate::group::{Intervention, Member, MixedGroup, ScoredGroup};
use crate::growth::Needs;
use crate::injection::{Offer, with_ratio};
use crate::rollout::{StoredTrace, TeacherTrajectory};
use crate::scores::Scores;

/// GRPO's loss on every group with `replayed` of the prompt's verified traces added, whose ratio is taken to the weights
/// at the start of the step.
///
/// RLEP: the traces are successes of an earlier run, drawn without replacement at each visit, and have the clipped
/// surrogate as if they had been sampled now ("RLEP: reinforcement learning with experience replay for LLM reasoning",
/// <https://arxiv.org/abs/2507.07451>; Kwai-Klear/RLEP, which fills up with empty responses where a prompt has too few;
/// here what there is is added).
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "rlep",
    summary: "GRPO with two verified traces of an earlier run added to every group",
    own_keys: &["replayed"],
    variants: &[],
    build: |settings| {
        Ok(Arc::new(Rlep { advantage: settings.advantage, replayed: settings.rlep.replayed }))
    },
};

/// `[rlep]`; what is not written is as published.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Own {
    /// Traces that are added to a group.
    replayed: usize,
}

impl Default for Own {
    fn default() -> Self {
        Self { replayed: 2 }
    }
}

#[derive(Debug)]
struct Rlep {
    advantage: AdvantageRule,
    replayed: usize,
}

impl Method for Rlep {
    fn name(&self) -> &'static str {
        METHOD.name
    }

    fn plan(&self) -> Plan {
        Plan { gate: Gate::Always, ..Plan::ON_POLICY }
    }

    fn needs(&self) -> Needs {
        Needs { traces: usize::MAX, ..Needs::ROLLOUTS }
    }

    fn unread_keys(&self) -> &'static [&'static str] {
        &["teacher", "guard.beta_rise"]
    }

    fn mix(&self, group: ScoredGroup, offer: &Offer<'_>, _: bool) -> MixedGroup {
        let mut traces: Vec<&TeacherTrajectory> = offer.teachers.iter().collect();
        offer.rng(group.prompt).shuffle(&mut traces);
        let mixed = group.unchanged(Intervention::OpenWithoutTeacher);
        traces.into_iter().take(self.replayed).fold(mixed, |mixed, it| {
            let (tokens, reward) = (it.tokens().to_vec(), it.reward());
            let trace = StoredTrace { tokens, reward, ..StoredTrace::default() };
            mixed.with(|replaced| Member::Replayed { trace, replaced }, None)
        })
    }

    fn credit(&self, group: &MixedGroup, _: Moment, _: &Scores) -> Credit {
        let credit = on_policy(group, advantages(group, self.advantage));
        with_ratio(group, credit, Ratio::Rescored, |member| !member.is_own())
    }
}
