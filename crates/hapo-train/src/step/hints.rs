//! Groups that are sampled in micro-groups, each with a longer prefix if the ones before failed (D22).

use hapo_core::{
    MICRO_GROUPS, PREFIX_GROUP_SIZE, PromptId, RngStream, Rollout, SampledGroup, Step, Verdict,
};
use hapo_kernels::Device;
use hapo_sampler::GroupRequest;
use rayon::prelude::*;

use super::{Batch, Clock, SampledTokens, complete, gate, verdicts};
use crate::error::Result;
use crate::run::Run;

/// Keys of the draws of each micro-group: a rollout's index counts from 0 in each.
const RNG_STREAMS: [RngStream; MICRO_GROUPS.len()] = [
    RngStream::Sample,
    RngStream::SampleSecond,
    RngStream::SampleThird,
];

/// A group as far as it is sampled.
#[derive(Default)]
struct Partial {
    rollouts: Vec<Rollout>,
    verdicts: Vec<Verdict>,
}

impl Partial {
    fn successes(&self) -> usize {
        self.verdicts.iter().filter(|it| it.is_correct()).count()
    }
}

/// One micro-group of one prompt.
struct Part<'a> {
    /// Position of the prompt in the step.
    at: usize,
    prefix: &'a [u32],
    rollouts: usize,
}

/// Prompts to groups that have met the gate: sample → score for each micro-group, then apply_gate, where
/// the whole trajectory is the last prefix. A prompt without a teacher gets no prefixes and a full group.
pub(super) fn collect<D: Device>(
    run: &Run<D>,
    prompts: &[usize],
    step: Step,
    clock: &mut Clock,
) -> Result<Batch> {
    let mut groups: Vec<Partial> = prompts.iter().map(|_| Partial::default()).collect();
    let mut tokens = SampledTokens::default();
    for (micro_group, rng_stream) in MICRO_GROUPS.into_iter().zip(RNG_STREAMS) {
        let parts = prompts
            .iter()
            .zip(&groups)
            .enumerate()
            .map(|(at, (it, group))| Part {
                at,
                prefix: match &run.prompts()[*it].teacher {
                    Some(teacher) => micro_group.prefix(group.successes(), teacher),
                    None => &[],
                },
                rollouts: micro_group.rollouts,
            });
        let parts: Vec<Part<'_>> = parts.collect();
        extend(
            run,
            prompts,
            &parts,
            (rng_stream, step),
            (&mut groups, &mut tokens),
            clock,
        )?;
    }
    let last = prompts
        .iter()
        .zip(&groups)
        .enumerate()
        .filter_map(|(at, (it, group))| {
            let taught = run.prompts()[*it].teacher.is_some()
                && run.method.success_limit(step).is_open(group.successes());
            (!taught).then_some(Part {
                at,
                prefix: &[],
                rollouts: 1,
            })
        });
    let last: Vec<Part<'_>> = last.collect();
    extend(
        run,
        prompts,
        &last,
        (RngStream::SampleLast, step),
        (&mut groups, &mut tokens),
        clock,
    )?;
    let scored = prompts
        .iter()
        .zip(groups)
        .map(|(it, group)| {
            let n = group.rollouts.len();
            debug_assert!(
                n + 1 >= PREFIX_GROUP_SIZE,
                "only the teacher's place may be free"
            );
            let id: PromptId = run.prompts()[*it].id;
            SampledGroup::new(id, n, group.rollouts).score(group.verdicts)
        })
        .collect();
    Ok(gate(run, step, scored, tokens))
}

/// Samples and scores parts of groups, and puts them behind what the groups have.
fn extend<D: Device>(
    run: &Run<D>,
    prompts: &[usize],
    parts: &[Part<'_>],
    (rng_stream, step): (RngStream, Step),
    (groups, tokens): (&mut [Partial], &mut SampledTokens),
    clock: &mut Clock,
) -> Result<()> {
    let begun: Vec<Vec<u32>> = parts
        .iter()
        .map(|it| [&run.prompts()[prompts[it.at]].tokens, it.prefix].concat())
        .collect();
    let requests: Vec<GroupRequest<'_>> = parts
        .iter()
        .zip(&begun)
        .map(|(part, begun)| GroupRequest {
            prompt: run.prompts()[prompts[part.at]].id,
            tokens: begun,
            completions: part.rollouts,
        })
        .collect();
    let completions = complete(run, &requests, rng_stream, step)?;
    let limit = run.recipe.raw.sampling.max_new_tokens;
    tokens.add(SampledTokens::of(&completions));
    clock.lap("sample");
    let scored: Vec<(Vec<Rollout>, Vec<Verdict>)> = parts
        .par_iter()
        .zip(completions)
        .map(|(part, sampled)| {
            let rollouts: Vec<Rollout> = sampled
                .group
                .rollouts()
                .iter()
                .map(|it| {
                    // The prefix counts against the limit of a response.
                    let room = limit - part.prefix.len();
                    let kept = it.tokens.len().min(room);
                    Rollout {
                        tokens: [part.prefix, &it.tokens[..kept]].concat(),
                        prefix: part.prefix.len(),
                        log_probs: it.log_probs[..kept].to_vec(),
                        ended: it.ended && kept == it.tokens.len(),
                    }
                })
                .collect();
            let first = groups[part.at].rollouts.len();
            let verdicts = verdicts(run, prompts[part.at], &rollouts, (step, first))?;
            Ok((rollouts, verdicts))
        })
        .collect::<Result<_>>()?;
    for (part, (rollouts, verdicts)) in parts.iter().zip(scored) {
        groups[part.at].rollouts.extend(rollouts);
        groups[part.at].verdicts.extend(verdicts);
    }
    clock.lap("verify");
    Ok(())
}
