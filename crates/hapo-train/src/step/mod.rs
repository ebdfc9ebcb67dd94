//! One training step on one screen: sample → score → gate → credit → loss → update → report.
//!
//! A stage takes what it uses; [`rollout_step`] alone sees all of it, and meets a machine only in
//! [`Engines`]. The stages borrow from the run's plan.

mod batch;
mod clock;
mod imitation;
mod prefixes;
mod report;
pub(crate) mod rollouts;
mod task;
pub(crate) mod update;

use hapo_core::{
    GroupPlan, Member, MixedGroup, RngStream, ScoredGroup, Scores, Slot, SlotRule, Step,
    SuccessLimit, apply_gate, drop_short_groups, rollouts_to_sample,
};
use hapo_run::Metrics;
use hapo_sampler::{GroupRequest, Sampled};

pub(crate) use batch::SampledTokens;
pub(crate) use imitation::imitation_step;
pub(crate) use task::Task;

use crate::engine::engines::{Engines, Learner};
use crate::error::Result;
use crate::grading::verifier::{AnswerCounts, Ungraded, Verifier};
use crate::pack::{TokenGroup, token_group};
use crate::problems::prompts::{Prompt, PromptTable};
use crate::step::rollouts::RolloutLog;
use crate::step::update::{LaterGaps, update};
use batch::Batch;
use clock::Clock;

/// Algorithm 1, lines 5–19: one batch of rollouts and the updates made from it.
pub(crate) fn rollout_step<L: Learner>(
    task: Task<'_>,
    engines: &mut Engines<'_, L>,
    log: &mut RolloutLog,
    step: Step,
) -> Result<Metrics> {
    let Task { table, method, plan, .. } = task;
    let slot = task.slot(step);
    let limit = method.success_limit(step);
    let sampling = task.sampling(RngStream::Sample, step);

    let mut clock = Clock::start();
    let mut batch = Batch::default();
    let mut visited = task.order.of_step(step.0);
    let mut prompts = table.at(&visited);
    for round in 1.. {
        let scored = if let GroupPlan::Prefixes(parts) = method.sampling() {
            let task = (task, parts, step);
            prefixes::sample_and_score(task, engines, &prompts, &mut batch, &mut clock)?
        } else {
            let requests = requests(&prompts, slot.rule, task.group_size());
            let sampled = engines.sample(&requests, &sampling)?;
            batch.tokens.add(&sampled);
            clock.lap("sample");
            score(&prompts, sampled, task.verifier, (step, &mut batch.answers))?
        };
        clock.lap("verify");
        let (mixed, dropped) = gate(table, scored, limit, slot);
        let credited = mixed.iter().map(|it| credit(task, it, step)).collect();
        batch.add(mixed, credited);
        batch.dropped += dropped;
        if round > plan.recipe().sampling().dynamic_sampling as u64 {
            break;
        }
        let missing = batch.without_signal();
        let fresh = task.order.replacements(step.0, round, missing, &visited);
        if fresh.is_empty() {
            break;
        }
        prompts = table.at(&fresh);
        visited.extend(fresh);
    }

    let groups = batch.take_credited();
    log.keep(batch.trained(), |it| method.credit(it, step, Scores::NONE), table, step)?;
    clock.lap("other");
    let (learner, batching) = (&mut *engines.learner, plan.batching());
    let measure = || learner.kl_to_initial(&groups, batching);
    let kl = plan.measures_kl(step).then(measure).transpose()?;
    clock.lap("kl");
    let later_gaps = if plan.measures_gap(step) { LaterGaps::Measured } else { LaterGaps::Skipped };
    let stats = update(learner, &groups, plan, step, later_gaps)?;
    clock.lap("train");

    let numbers = (&stats, kl.flatten());
    Ok(report::step(task, &batch, numbers, &clock, step))
}

/// One request for each prompt, for as many rollouts as its group has free slots.
pub(crate) fn requests<'a>(
    prompts: &[&'a Prompt],
    slot: SlotRule,
    group_size: usize,
) -> Vec<GroupRequest<'a>> {
    let request = |it: &&'a Prompt| GroupRequest {
        prompt: it.id,
        tokens: &it.tokens,
        completions: rollouts_to_sample(slot, group_size, it.teacher.as_ref()),
    };
    prompts.iter().map(request).collect()
}

/// Every rollout with its verdict.
pub(crate) fn score(
    prompts: &[&Prompt],
    sampled: Vec<Sampled>,
    verifier: &Verifier,
    (step, answers): (Step, &mut AnswerCounts),
) -> Result<Vec<ScoredGroup>> {
    let groups = prompts.iter().zip(&sampled);
    let groups = groups.map(|(prompt, it)| {
        let rollouts = it.group.rollouts();
        Ungraded { prompt: prompt.id, gold: &prompt.gold, rollouts, first: 0 }
    });
    let graded = verifier.grade(&groups.collect::<Vec<_>>(), step)?;
    let scored = sampled.into_iter().zip(graded).map(|(it, graded)| {
        answers.add(&graded);
        verifier.score(it.group, graded)
    });
    Ok(scored.collect())
}

/// The groups that can be used, with the teacher where the gate is open (Eq. 5), and how many cannot (D6).
pub(crate) fn gate(
    table: &PromptTable,
    scored: Vec<ScoredGroup>,
    limit: SuccessLimit,
    slot: Slot,
) -> (Vec<MixedGroup>, usize) {
    let (scored, dropped) = drop_short_groups(scored);
    let mixed = scored.into_iter().map(|it| {
        let teacher = table.prompt(it.prompt()).teacher.as_ref();
        apply_gate(it, teacher, limit, slot)
    });
    (mixed.collect(), dropped)
}

/// What the tokens of a group are worth (Eq. 2, Eq. 11). Those of a rollout without its end token may be worth nothing
/// (D27): its reward stays in the mean.
pub(crate) fn credit(task: Task<'_>, group: &MixedGroup, step: Step) -> TokenGroup {
    let prompt = task.table.prompt(group.prompt()).tokens.clone();
    let truncated = task.verifier.policy.truncated;
    let masked = |member: &Member| matches!(member, Member::Policy(it) if truncated.is_masked(it.rollout.ended));
    let members = group.members().iter().zip(task.method.credit(group, step, Scores::NONE));
    token_group(members.filter(|it| !masked(it.0)), prompt, task.plan.recipe().loss())
}
