use super::prelude::*;

/// arXiv 2510.02245: GRPO's loss on the sampled rollouts, and `L = −A·w/(w + 0.1)` on a replayed success, w = π over
/// what was recorded.
///
/// `ExGRPO`: successes of partly solved prompts are kept. A visited prompt replays one with probability exp(−(S −
/// N/2)²/2), S of its latest kept group: the one with the lowest mean entropy under the weights of the step. It takes
/// the place of a random rollout (ElliottYan/LUFFY, folder `ExGRPO`, which draws the prompts of half of a step from the
/// store by these weights; here the order of the prompts does not read the store, D44).
pub(super) const METHOD: MethodEntry = MethodEntry {
    name: "exgrpo",
    summary: "GRPO, and the least uncertain earlier success of partly solved prompts, by a bounded ratio",
    make: |settings| {
        let (size, start) = (settings.group_size, settings.exgrpo.start);
        check("exgrpo.start", (0.0..=1.0).contains(&start), "a share in [0, 1]", start)?;
        let needs = Needs { memory: true, traces: 0, scored: Scored::Responses, ..Needs::ROLLOUTS };
        let help = Help::needing(needs)
            .mixing(move |group, offer, _| {
                let chosen = least_uncertain(&group, offer, size);
                replaying(group.unchanged(Intervention::GateClosed), chosen)
            })
            .remembering(move |before, step, at| partly_solved(before, step, at, start));
        Ok(Method {
            plan: Plan { gate: Gate::Always, slot: SlotRule::Random, ..Plan::ON_POLICY },
            help: Help { ratio: Ratio::Bounded, ..help },
            unread_keys: &["teacher", "guard.beta_rise"],
            ..Method::new(grpo(settings.advantage))
        })
    },
    ..MethodEntry::NEW
};

own! {
    /// `[exgrpo]`; what is not written is as published.
    Own {
        /// Share of a step's rollouts that succeed, above which the store begins.
        start: f64 = 0.35,
    }
}

/// The replayed success and its slot: with probability exp(−(S − N/2)²/2), which is 1 where half of the group succeeded.
fn least_uncertain(
    group: &ScoredGroup,
    offer: &Candidate<'_>,
    size: usize,
) -> Option<(StoredTrace, Option<usize>)> {
    let mut rng = offer.rng(group.prompt);
    let slot = rng.below(group.members.len().max(1) as u64) as usize;
    let gap = offer.stored.first()?.successes as f64 - size as f64 / 2.0;
    if rng.uniform() >= libm::exp(-gap * gap / 2.0) || group.members.is_empty() {
        return None;
    }
    let mean_entropy =
        |trace: &usize| offer.scores.get(*trace).map_or(0.0, TokenScores::mean_entropy);
    let least =
        (0..offer.stored.len()).min_by(|a, b| mean_entropy(a).total_cmp(&mean_entropy(b)))?;
    Some((offer.stored[least].clone(), Some(slot)))
}

/// The store with the successes of partly solved prompts, once it has begun.
fn partly_solved(before: Memory, step: &[MixedGroup], at: Step, start: f64) -> Memory {
    let successes: usize = step.iter().map(MixedGroup::successes).sum();
    let sampled: usize = step.iter().map(MixedGroup::n_eff).sum();
    let begins = successes as f64 > start * sampled as f64;
    if !begins && before.tokens() == 0 {
        return before;
    }
    let is_done = |group: &&MixedGroup| group.successes() == group.n_eff();
    let (done, partly): (Vec<_>, Vec<_>) = step.iter().partition(is_done);
    let done = done.into_iter().map(MixedGroup::prompt);
    let is_kept = |it: &PolicyMember| it.is_success && it.rollout.ended;
    before.without(done).with_traces(partly, at, usize::MAX, is_kept).without_copies()
}
