//! What a run has to expect, from a look at its first prompts before its first step: how often it
//! succeeds, fails whole groups, misses the box or the end token, and what a step will cost.
//!
//! The price is about the sampling of one step. Its draws have a purpose of their own, so the run's are
//! not moved.

use std::time::Instant;

use hapo_core::{RngStream, Step, Verdict};
use hapo_kernels::Device;
use hapo_run::Preflight;
use hapo_sampler::{GroupRequest, SampleSettings, Sampled};

use crate::error::Result;
use crate::pack::TokenGroup;
use crate::run::Run;
use crate::step::{mix, tokens_of};
use crate::{grading, memory};

/// Samples the first `prompts` prompts of the run; none for a run that samples nothing.
pub(crate) fn preflight<D: Device>(run: &mut Run<D>, prompts: usize) -> Result<Option<Preflight>> {
    let Some(order) = run.order().filter(|_| prompts > 0) else {
        return Ok(None);
    };
    let raw = run.recipe.raw.clone();
    let chosen: Vec<usize> = (1..=order.steps_per_epoch())
        .flat_map(|it| order.of_step(it))
        .take(prompts)
        .collect();
    let requests: Vec<GroupRequest<'_>> = chosen
        .iter()
        .map(|it| GroupRequest {
            prompt: run.prompts()[*it].id,
            tokens: &run.prompts()[*it].tokens,
            completions: raw.sampling.group_size,
        })
        .collect();
    let settings = SampleSettings {
        decoding: run.recipe.decoding,
        stop: &run.chat_format.stop,
        max_new_tokens: raw.sampling.max_new_tokens,
        max_sequences: raw.sampling.max_sequences,
        usable_vocab: run.chat_format.tokenizer.vocab_size(),
        seed: raw.seed,
        rng_stream: RngStream::Generate,
        step: 0,
    };
    let started = Instant::now();
    let sampled = hapo_sampler::sample_until(
        &run.trainer.model,
        &requests,
        &settings,
        &run.chat_format.tokenizer,
        &raw.sampling.stop,
    )?;
    let sampling = started.elapsed().as_secs_f64();
    let lengths: Vec<usize> = sampled
        .iter()
        .flat_map(|it| it.group.rollouts())
        .map(|it| it.tokens.len())
        .collect();

    let (mut correct, mut readable, mut ended, mut all_fail, mut all_solved) = (0, 0, 0, 0, 0);
    let mut groups: Vec<TokenGroup> = Vec::new();
    for (index, Sampled { group, .. }) in chosen.iter().zip(sampled) {
        let gold = &run.prompts()[*index].gold;
        let mut verdicts = Vec::new();
        for it in group.rollouts() {
            ended += usize::from(it.ended);
            let verdict = grading::verdict_of(gold, &run.chat_format.text(&it.tokens)?);
            correct += usize::from(verdict.is_correct());
            readable += usize::from(!matches!(verdict, Verdict::Unparsable(_)));
            verdicts.push(verdict);
        }
        let scored = group.score(verdicts);
        all_fail += usize::from(scored.all_fail());
        all_solved += usize::from(scored.all_solved());
        groups.push(tokens_of(run, &mix(run, scored, Step(1))));
    }
    // Some groups are run forward and backward, signal or not: that is what a step costs at most.
    for it in &mut groups {
        it.has_signal = true;
    }
    groups.truncate(8);
    let started = Instant::now();
    let (objective, batching) = (*run.method.objective(), run.batching());
    run.trainer.gradient(&objective, &groups, batching)?;
    let training = started.elapsed().as_secs_f64();

    let per_step = raw.sampling.prompts_per_step as f64;
    let share = |part: usize, whole: usize| part as f64 / whole.max(1) as f64;
    let teachers: Vec<usize> = run
        .prompts()
        .iter()
        .filter_map(|it| Some(it.teacher.as_ref()?.tokens().len()))
        .collect();
    let copies = if raw.metrics.kl_every > 0 { 5 } else { 4 };
    let weights = run.trainer.model.layout().len() as u64;
    Ok(Some(Preflight {
        prompts: chosen.len(),
        group_size: raw.sampling.group_size,
        success: share(correct, lengths.len()),
        all_fail: share(all_fail, chosen.len()),
        all_solved: share(all_solved, chosen.len()),
        format: share(readable, lengths.len()),
        ended: share(ended, lengths.len()),
        truncated: 1.0 - share(ended, lengths.len()),
        response_tokens: share(lengths.iter().sum(), lengths.len()),
        teacher_coverage: share(teachers.len(), run.prompts().len()),
        teacher_tokens: (
            share(teachers.iter().sum(), teachers.len()),
            teachers.iter().copied().max().unwrap_or(0),
        ),
        limit: raw.sampling.max_new_tokens,
        step_seconds: sampling * per_step / chosen.len().max(1) as f64
            + training * per_step * raw.optim.passes as f64 / groups.len().max(1) as f64,
        steps: raw.steps,
        state_bytes: weights * 4 * copies,
        resident_bytes: memory::resident_bytes().unwrap_or(0),
        wants_teacher: run.recipe.method.kind.has_teacher(),
    }))
}
