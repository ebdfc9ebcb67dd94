use std::sync::Arc;

use serde::Deserialize;

use super::grpo::on_policy;
use super::{Method, MethodEntry, Variant};
use crate::advantage::{AdvantageRule, advantages};
use crate::credit::{Credit, Moment, Ratio};
use crate::group::{Intervention, MixedGroup, ScoredGroup};
use crate::growth::{Growing, Growth, Needs};
use crate::injection::{Behind, Offer, with_ratio};
use crate::rollout::Context;
use crate::scores::Scores;

/// GRPO's loss on the last of up to four groups of a prompt: plain, then under each hint in turn while all rollouts fail.
///
/// GHPO: a group without a success is sampled again as a whole with the first quarter of the solution in the prompt,
/// then with half, then with three quarters. Only the last group is trained on, behind the prompt that it was sampled
/// behind; the others are thrown away ("GHPO: adaptive guidance for stable and efficient LLM reinforcement learning",
/// <https://arxiv.org/abs/2507.10628>; hkgc-1/GHPO, which cuts the solution by characters, and whose cold start is left
/// out here). With `plain = true` what was sampled under a hint is trained on behind the plain prompt, its ratio taken to
/// the weights at the start of the step: HINT without its affinity (<https://arxiv.org/abs/2510.09388>;
/// ViviqwerAsd/HINT).
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "ghpo",
    summary: "GRPO; a failed group is sampled again under stronger and stronger hints",
    own_keys: &["plain"],
    variants: &[Variant {
        name: "hint",
        summary: "what succeeds under a hint is trained on behind the plain prompt",
        settings: &["ghpo.plain=true"],
    }],
    build: |settings| {
        Ok(Arc::new(Ghpo { advantage: settings.advantage, plain: settings.ghpo.plain }))
    },
};

/// `[ghpo]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Own {
    /// Whether rollouts under a hint are trained on behind the plain prompt, as in HINT.
    plain: bool,
}

#[derive(Debug)]
struct Ghpo {
    advantage: AdvantageRule,
    plain: bool,
}

impl Method for Ghpo {
    fn name(&self) -> &'static str {
        METHOD.name
    }

    fn needs(&self) -> Needs {
        Needs { parts: 1 + Context::MOST_HINTS, hints: true, ..Needs::ROLLOUTS }
    }

    fn unread_keys(&self) -> &'static [&'static str] {
        &["teacher", "advantage.group", "guard.beta_rise"]
    }

    fn grow(&self, group: &Growing<'_>) -> Growth {
        match group.part.checked_sub(1) {
            None => Growth::once(group),
            Some(level)
                if level < group.hints.min(Context::MOST_HINTS) && group.succeeded() == 0 =>
            {
                Growth::under(group.size, Context::Hint(level))
            }
            Some(_) => Growth::Complete,
        }
    }

    fn mix(&self, group: ScoredGroup, _: &Offer<'_>, _: bool) -> MixedGroup {
        let last = group.members().iter().map(|it| it.rollout.part).max().unwrap_or(0);
        let intervention = match (last, group.all_successes()) {
            (0, _) => Intervention::GateClosed,
            (_, 0) => Intervention::HelpFailed,
            _ => Intervention::Injected,
        };
        group.unchanged(intervention).discarding(|it| it.rollout.part == last)
    }

    fn trained_behind(&self) -> Behind {
        if self.plain { Behind::Plain } else { Behind::Sampled }
    }

    fn credit(&self, group: &MixedGroup, _: Moment, _: &Scores) -> Credit {
        let credit = on_policy(group, advantages(group, self.advantage));
        with_ratio(group, credit, Ratio::Rescored, |member| {
            self.plain && member.sampled().is_some_and(|it| !it.rollout.is_unaided())
        })
    }
}
