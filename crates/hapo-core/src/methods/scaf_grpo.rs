use std::sync::Arc;

use serde::Deserialize;

use super::grpo::on_policy;
use super::{Method, MethodEntry, Plan};
use crate::advantage::{AdvantageRule, advantages};
use crate::credit::{Credit, Moment, Ratio};
use crate::gate::SlotRule;
use crate::group::{Intervention, MixedGroup, ScoredGroup};
use crate::growth::{Growing, Growth, Needs};
use crate::injection::{Behind, Offer, let_help_in, with_ratio};
use crate::rollout::Context;
use crate::scores::Scores;

/// GRPO's loss on a group whose first rollout is replaced, if all failed, by the one that succeeds under the weakest hint.
///
/// Scaf-GRPO: after `warmup` steps a group without a success is sampled once more under each hint in turn until one
/// rollout succeeds. It is trained on behind the prompt with its hint, as in the authors' code; with `plain = true`
/// behind the plain prompt, with its ratio to the weights at the start of the step ("Scaf-GRPO: scaffolded group relative policy optimization",
/// <https://arxiv.org/abs/2510.19807>; dvlab-research/Scaf-GRPO, which samples under all eight hints at once and takes
/// the weakest that succeeds).
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "scaf-grpo",
    summary: "GRPO; a failed group gets a rollout under the weakest hint with which it succeeds",
    own_keys: &["warmup", "plain"],
    variants: &[],
    build: |settings| {
        Ok(Arc::new(ScafGrpo { advantage: settings.advantage, own: settings.scaf_grpo }))
    },
};

/// `[scaf-grpo]`; what is not written is as published.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Own {
    /// Steps without hints.
    warmup: u64,
    /// Whether a helped rollout is trained on behind the plain prompt.
    plain: bool,
}

impl Default for Own {
    fn default() -> Self {
        Self { warmup: 50, plain: false }
    }
}

#[derive(Debug)]
struct ScafGrpo {
    advantage: AdvantageRule,
    own: Own,
}

impl Method for ScafGrpo {
    fn name(&self) -> &'static str {
        METHOD.name
    }

    fn plan(&self) -> Plan {
        Plan { slot: SlotRule::First, ..Plan::ON_POLICY }
    }

    fn needs(&self) -> Needs {
        Needs { parts: 1 + Context::MOST_HINTS, hints: true, ..Needs::ROLLOUTS }
    }

    fn unread_keys(&self) -> &'static [&'static str] {
        &["teacher", "guard.beta_rise"]
    }

    fn grow(&self, group: &Growing<'_>) -> Growth {
        match group.part.checked_sub(1) {
            None => Growth::once(group),
            Some(level)
                if level < group.hints.min(Context::MOST_HINTS)
                    && group.at.step.0 > self.own.warmup
                    && group.succeeded() == 0 =>
            {
                Growth::under(1, Context::Hint(level))
            }
            Some(_) => Growth::Complete,
        }
    }

    fn mix(&self, group: ScoredGroup, offer: &Offer<'_>, _: bool) -> MixedGroup {
        if group.all_fail() && offer.slot.step.0 > self.own.warmup {
            let_help_in(group, offer)
        } else {
            group.unchanged(Intervention::GateClosed)
        }
    }

    fn trained_behind(&self) -> Behind {
        if self.own.plain { Behind::Plain } else { Behind::Sampled }
    }

    fn credit(&self, group: &MixedGroup, _: Moment, _: &Scores) -> Credit {
        let credit = on_policy(group, advantages(group, self.advantage));
        with_ratio(group, credit, Ratio::Rescored, |member| self.own.plain && !member.is_own())
    }
}
