use std::sync::Arc;

use serde::Deserialize;

use super::grpo::on_policy;
use super::{Method, MethodEntry, Plan, check};
use crate::advantage::{AdvantageRule, advantages};
use crate::credit::{Credit, Moment, Ratio};
use crate::gate::{Gate, SlotRule};
use crate::group::{Intervention, Member, MixedGroup, ScoredGroup};
use crate::growth::{Needs, Scored};
use crate::injection::{Offer, with_ratio};
use crate::memory::Memory;
use crate::rollout::{Step, StoredTrace};
use crate::scores::{Scores, TokenScores};

/// GRPO's loss on the sampled rollouts, and `L = −A·w/(w + 0.1)` on a replayed success, w = π over what was recorded.
///
/// `ExGRPO`: successes of partly solved prompts are kept. A visited prompt replays one with probability
/// exp(−(S − N/2)²/2), S of its latest kept group: the one with the lowest mean entropy under the weights of the step. It
/// takes the place of a random rollout ("`ExGRPO`: learning to reason from experience",
/// <https://arxiv.org/abs/2510.02245>; ElliottYan/LUFFY, folder `ExGRPO`, which draws the prompts of half of a step from
/// the store by these weights; here the order of the prompts does not read the store, D44).
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "exgrpo",
    summary: "GRPO, and the least uncertain earlier success of partly solved prompts, by a bounded ratio",
    own_keys: &["start"],
    variants: &[],
    build: |settings| {
        let (advantage, start) = (settings.advantage, settings.exgrpo.start);
        check("exgrpo.start", (0.0..=1.0).contains(&start), "a share in [0, 1]", start)?;
        Ok(Arc::new(ExGrpo { advantage, start, group_size: settings.group_size }))
    },
};

/// `[exgrpo]`; what is not written is as published.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Own {
    /// Share of a step's prompts with a success above which the store begins.
    start: f64,
}

impl Default for Own {
    fn default() -> Self {
        Self { start: 0.35 }
    }
}

#[derive(Debug)]
struct ExGrpo {
    advantage: AdvantageRule,
    start: f64,
    group_size: usize,
}

impl ExGrpo {
    /// exp(−(S − N/2)²/2): 1 where half of the group succeeded.
    fn weight(&self, latest: &StoredTrace) -> f64 {
        let gap = latest.successes as f64 - self.group_size as f64 / 2.0;
        libm::exp(-gap * gap / 2.0)
    }
}

impl Method for ExGrpo {
    fn name(&self) -> &'static str {
        METHOD.name
    }

    fn plan(&self) -> Plan {
        Plan { gate: Gate::Always, slot: SlotRule::Random, ..Plan::ON_POLICY }
    }

    fn needs(&self) -> Needs {
        Needs { memory: true, traces: 0, scored: Scored::Responses, ..Needs::ROLLOUTS }
    }

    fn unread_keys(&self) -> &'static [&'static str] {
        &["teacher", "guard.beta_rise"]
    }

    fn mix(&self, group: ScoredGroup, offer: &Offer<'_>, _: bool) -> MixedGroup {
        let mut rng = offer.rng(group.prompt);
        let slot = rng.below(group.members.len().max(1) as u64) as usize;
        let replays = offer.stored.first().is_some_and(|it| rng.uniform() < self.weight(it));
        let mixed = group.unchanged(Intervention::GateClosed);
        let mean_entropy =
            |trace: &usize| offer.scores.get(*trace).map_or(0.0, TokenScores::mean_entropy);
        let least = (0..offer.stored.len())
            .min_by(|a, b| mean_entropy(a).total_cmp(&mean_entropy(b)))
            .filter(|_| replays && !mixed.members().is_empty());
        let Some(least) = least else { return mixed };
        let trace = offer.stored[least].clone();
        mixed.with(|replaced| Member::Replayed { trace, replaced }, Some(slot))
    }

    fn credit(&self, group: &MixedGroup, _: Moment, _: &Scores) -> Credit {
        let credit = on_policy(group, advantages(group, self.advantage));
        with_ratio(group, credit, Ratio::Bounded, |member| !member.is_own())
    }

    fn remember(&self, before: Memory, step: &[MixedGroup], at: Step) -> Memory {
        let solved = step.iter().filter(|it| it.successes() > 0).count();
        let begins = solved as f64 > self.start * step.len() as f64;
        if !begins && before.tokens() == 0 {
            return before;
        }
        let is_done = |it: &&MixedGroup| it.successes() == it.n_eff();
        let (done, partly): (Vec<_>, Vec<_>) = step.iter().partition(is_done);
        let done = done.into_iter().map(MixedGroup::prompt);
        let memory = before
            .without(done)
            .with_traces(partly, at, usize::MAX, |it| it.is_success && it.rollout.ended);
        memory.without_copies()
    }
}
