//! One training step on one screen: sample → score → gate → credit → loss → update → report.
//!
//! A stage takes what it uses; [`rollout_step`] alone sees all of it, and meets a machine only in
//! [`Engines`]. The stages borrow from the run's plan.

mod group;
mod report;
pub(crate) mod rollouts;
mod scores;
pub(crate) mod update;

use hapo_core::{
    Advantage, ImportanceRatioLevel, Member, MixedGroup, Refusal, ScoredGroup, Span, Step, Term,
    drop_short_groups,
};
use hapo_kernels::Device;
use hapo_run::Metrics;
use hapo_sampler::{GroupRequest, Sampled};

pub(crate) use group::{Credited, SampledTokens, Task, sample_settings};

use crate::engine::trainer::{Trainer, loss_of};
use crate::grading::{AnswerCounts, Verifier};
use crate::pack::{TokenGroup, token_group};
use crate::{
    Result, engine::Engines, observe::Clock, plan::run_plan::RunPlan, problems::prompts::Prompt,
    step::rollouts::RolloutLog, step::update::update,
};
use group::{Batch, grow};
use scores::{attach_reference, scores_of, scores_of_offers};

/// Algorithm 1, lines 5–19: one batch of rollouts and the updates made from it, with the groups that were trained on.
pub(crate) fn rollout_step<D: Device>(
    task: Task,
    engines: &mut Engines<'_, D>,
    log: &mut RolloutLog,
) -> Result<(Metrics, Vec<MixedGroup>)> {
    let Task { table, plan, step, .. } = task;
    let mut batch = Batch::default();
    let mut visited = task.order.of_step(step.0);
    let mut prompts = table.at(&visited);
    for round in 1.. {
        let scored = grow(task, engines, &prompts, &mut batch)?;
        let (mixed, dropped) = mix(task, engines.learner, scored)?;
        batch.add(credited(task, engines, mixed)?);
        batch.dropped += dropped;
        if round > plan.recipe().sampling.dynamic_sampling as u64 {
            break;
        }
        let fresh = task.order.replacements(step.0, round, batch.without_signal(), &visited);
        if fresh.is_empty() {
            break;
        }
        prompts = table.at(&fresh);
        visited.extend(fresh);
    }

    let mut groups = batch.take_tokens();
    log.keep(batch.trained(), table, step)?;
    batch.clock.lap("other");
    let (learner, batching) = (&mut *engines.learner, plan.batching());
    let measure = || learner.kl_to_initial(&groups, batching);
    let every = plan.recipe().metrics.kl_every;
    let kl = (every > 0 && step.0.is_multiple_of(every)).then(measure).transpose()?;
    batch.clock.lap("kl");
    let stats = update(learner, &mut groups, plan, step)?;
    batch.clock.lap("train");

    Ok((report::step(task, &batch, &stats, kl.flatten()), batch.into_trained()))
}

/// A step of imitation: the demonstrations of a batch and the update made from them.
pub(crate) fn imitation_step<D: Device>(
    learner: &mut Trainer<D>,
    demonstrations: &mut [TokenGroup],
    plan: &RunPlan,
    step: Step,
    epoch: f64,
) -> Result<Metrics> {
    let mut clock = Clock::default();
    let stats = update(learner, demonstrations, plan, step)?;
    clock.lap("train");
    let mut metrics = Metrics::default();
    metrics.set("step", step.0 as f64);
    metrics.set("epoch", epoch);
    metrics.set("loss", loss_of(&stats));
    for name in ["teacher/mean_prob", "grad_norm", "lr"] {
        metrics.set(name, stats.value(name));
    }
    report::times(&mut metrics, &clock, 0, stats.tokens);
    Ok(metrics)
}

pub(crate) fn requests<'a>(prompts: &[&'a Prompt], completions: usize) -> Vec<GroupRequest<'a>> {
    prompts.iter().map(|it| GroupRequest::new(it.id, &it.tokens, completions)).collect()
}

pub(crate) fn score(
    prompts: &[&Prompt],
    sampled: Vec<Sampled>,
    verifier: &Verifier,
    step: Step,
    answers: &mut AnswerCounts,
) -> Result<Vec<ScoredGroup>> {
    let groups = prompts.iter().zip(sampled).map(|(prompt, it)| (*prompt, it.group, 0)).collect();
    group::score(groups, verifier, step, answers)
}

/// The groups that can be used, with what enters where the gate is open (Eq. 5), and how many cannot (D6).
pub(crate) fn mix<D: Device>(
    task: Task,
    learner: &mut Trainer<D>,
    scored: Vec<ScoredGroup>,
) -> Result<(Vec<MixedGroup>, usize)> {
    let (scored, dropped) = drop_short_groups(scored);
    let (open, policy) = (task.open(&scored), task.verifier.policy);
    let scores = scores_of_offers(task, learner, &scored, &open)?;
    let mixed = scored.into_iter().zip(open).zip(&scores).map(|((group, is_open), scores)| {
        let group = group.paying_unjudged(policy.truncated, policy.wrong);
        let offer = task.offer(group.prompt(), scores);
        task.method.mix(group, &offer, is_open)
    });
    let mixed = mixed.collect();
    task.require_answer()?;
    Ok((mixed, dropped))
}

/// The credit of groups by the method, and their tokens with what they are worth (Eq. 2, Eq. 11).
pub(crate) fn credited<D: Device>(
    task: Task,
    engines: &mut Engines<'_, D>,
    groups: Vec<MixedGroup>,
) -> Result<Vec<Credited>> {
    if let Some(problem) = groups.iter().find_map(|it| task.method.refusal(&it.rewards())) {
        let hint = "give rewards from 0, or take method = \"grpo\"";
        return Err(Refusal::input(problem).hint(hint));
    }
    let (scores, recipe) = (scores_of(task, engines, &groups)?, task.plan.recipe());
    let of_group = |(group, scores)| {
        let mut credit = task.method.credit(&group, task.step, &scores);
        attach_reference(&mut credit, &scores, recipe.loss());
        if let Some(correction) = recipe.rollouts.correction() {
            let members = group.members().iter().zip(&mut credit);
            let sampled = members.filter_map(|(member, spans)| Some((member.sampled()?, spans)));
            sampled.for_each(|(it, spans)| correction.attach(spans, &it.rollout));
        }
        // Without its masked rollouts (D32).
        let members = group.members().iter().zip(credit.iter().cloned());
        let trained = members.filter(|it| !it.0.is_masked(task.verifier.policy.truncated));
        let prompt = task.table.prompt(group.prompt()).tokens.clone();
        let behind = |member: &Member| task.method.trained_behind(member);
        let tokens = token_group(trained, prompt, behind, recipe.loss());
        let has_terms = tokens.has_terms();
        Credited { group, credit, scores, tokens, has_terms }
    };
    let credited: Vec<Credited> = groups.into_iter().zip(scores).map(of_group).collect();
    task.require_answer()?;
    // The ratio of a sequence takes one advantage. A recipe with more is refused before the run, but not with a method in
    // Python, which says it by its credit alone.
    let is_per_token =
        |it: &Span| matches!(&it.term, Term::Policy { advantage: Advantage::Tokens(_), .. });
    let is_by_sequence = recipe.loss().importance_ratio_level == ImportanceRatioLevel::Sequence;
    let mut spans = credited.iter().flat_map(|it| it.credit.iter().flatten());
    if is_by_sequence && spans.any(is_per_token) {
        let problem =
            "the method gives each token an advantage, and the ratio of a sequence takes one";
        return Err(Refusal::input(problem).hint("use loss.importance_ratio_level = \"token\""));
    }
    Ok(credited)
}
