//! Groups that are sampled in micro-groups, each continuing a longer prefix of the teacher's trajectory if the
//! ones before failed (D22).

use hapo_core::{MicroGroup, RngStream, Rollout, SampledGroup, ScoredGroup, Step, SuccessLimit};
use hapo_sampler::{GroupRequest, SampleSettings, Sampled};

use super::batch::Batch;
use super::clock::Clock;
use super::task::Task;
use crate::engine::engines::{Engines, Learner};
use crate::error::Result;
use crate::grading::verifier::{Graded, Ungraded};
use crate::problems::prompts::Prompt;

/// Keys of the draws of each micro-group: a rollout's index counts from 0 in each.
const RNG_STREAMS: [RngStream; 3] =
    [RngStream::Sample, RngStream::SampleSecond, RngStream::SampleThird];

/// A group as far as it is sampled.
#[derive(Default)]
struct Partial {
    requested: usize,
    rollouts: Vec<Rollout>,
    graded: Vec<Graded>,
}

impl Partial {
    /// Rollouts whose reward is a success (D28).
    fn successes(&self, success_at: f64) -> usize {
        self.graded.iter().filter(|it| it.reward >= success_at).count()
    }
}

/// One micro-group of one prompt.
struct Part<'a> {
    /// Index of the prompt in the round.
    prompt: usize,
    prefix: &'a [u32],
    rollouts: usize,
}

/// Samples and scores each micro-group of the prompts in turn; the gate's teacher is the last prefix. A prompt
/// without a teacher gets no prefixes and a full group.
pub(super) fn sample_and_score<L: Learner>(
    (task, plan, step): (Task<'_>, &[MicroGroup], Step),
    engines: &mut Engines<'_, L>,
    prompts: &[&Prompt],
    batch: &mut Batch,
    clock: &mut Clock,
) -> Result<Vec<ScoredGroup>> {
    let limit = task.method.success_limit(step);
    let success_at = task.verifier.policy.success_at;
    let tokenizer = &task.verifier.chat_format.tokenizer;
    let ends_paragraph = |token| tokenizer.decode(&[token]).is_ok_and(|text| text.contains("\n\n"));
    let mut groups: Vec<Partial> = prompts.iter().map(|_| Partial::default()).collect();
    let rounds = plan.iter().zip(RNG_STREAMS).map(|(part, stream)| (Some(*part), stream));
    for (micro_group, rng_stream) in rounds.chain([(None, RngStream::SampleLast)]) {
        let parts = match micro_group {
            Some(it) => micro_groups(prompts, &groups, (it, success_at), &ends_paragraph),
            None => last_rollouts(prompts, &groups, (limit, success_at)),
        };
        let sampling = task.sampling(rng_stream, step);
        let sampled = sample(engines, prompts, &parts, &sampling)?;
        batch.tokens.add(&sampled);
        clock.lap("sample");
        let extended = parts.iter().zip(&sampled);
        let extended: Vec<Vec<Rollout>> =
            extended.map(|(part, it)| rollouts(part, it, sampling.max_new_tokens)).collect();
        let ungraded = parts.iter().zip(&extended).map(|(part, rollouts)| {
            let first = groups[part.prompt].requested;
            let prompt = prompts[part.prompt];
            Ungraded { prompt: prompt.id, gold: &prompt.gold, rollouts, first }
        });
        let graded = task.verifier.grade(&ungraded.collect::<Vec<_>>(), step)?;
        for (part, (rollouts, graded)) in parts.iter().zip(extended.into_iter().zip(graded)) {
            let group = &mut groups[part.prompt];
            group.requested += part.rollouts;
            group.rollouts.extend(rollouts);
            batch.answers.add(&graded);
            group.graded.extend(graded);
        }
        clock.lap("verify");
    }
    let scored = prompts.iter().zip(groups).map(|(prompt, it)| {
        let group = SampledGroup::new(prompt.id, it.requested, it.rollouts);
        task.verifier.score(group, it.graded)
    });
    Ok(scored.collect())
}

/// The next micro-group of every prompt.
fn micro_groups<'a>(
    prompts: &[&'a Prompt],
    groups: &[Partial],
    (micro_group, success_at): (MicroGroup, f64),
    ends_paragraph: &dyn Fn(u32) -> bool,
) -> Vec<Part<'a>> {
    let parts = prompts.iter().zip(groups).enumerate();
    let part = |(prompt, (it, group)): (usize, (&&'a Prompt, &Partial))| Part {
        prompt,
        prefix: match &it.teacher {
            Some(teacher) => {
                micro_group.prefix(group.successes(success_at), teacher, ends_paragraph)
            }
            None => &[],
        },
        rollouts: micro_group.rollouts,
    };
    parts.map(part).collect()
}

/// One more rollout without a prefix for every prompt whose group the teacher does not enter.
fn last_rollouts<'a>(
    prompts: &[&Prompt],
    groups: &[Partial],
    (limit, success_at): (SuccessLimit, f64),
) -> Vec<Part<'a>> {
    let parts = prompts.iter().zip(groups).enumerate();
    let untaught = parts.filter(|(_, (it, group))| {
        it.teacher.is_none() || !limit.is_open(group.successes(success_at))
    });
    let part = |prompt| Part { prompt, prefix: &[], rollouts: 1 };
    untaught.map(|it| part(it.0)).collect()
}

/// Samples parts of groups behind their prefixes.
fn sample<L: Learner>(
    engines: &mut Engines<'_, L>,
    prompts: &[&Prompt],
    parts: &[Part<'_>],
    sampling: &SampleSettings<'_>,
) -> Result<Vec<Sampled>> {
    let started: Vec<Vec<u32>> =
        parts.iter().map(|it| [&prompts[it.prompt].tokens, it.prefix].concat()).collect();
    let requests: Vec<GroupRequest<'_>> = parts
        .iter()
        .zip(&started)
        .map(|(part, tokens)| GroupRequest {
            prompt: prompts[part.prompt].id,
            tokens,
            completions: part.rollouts,
        })
        .collect();
    engines.sample(&requests, sampling)
}

/// What was sampled behind a prefix, as responses: the prefix counts against the limit of a response.
fn rollouts(part: &Part<'_>, sampled: &Sampled, limit: usize) -> Vec<Rollout> {
    let free = limit - part.prefix.len();
    let sampled = sampled.group.rollouts().iter();
    let response = |it: &Rollout| {
        let kept = it.tokens.len().min(free);
        Rollout {
            tokens: [part.prefix, &it.tokens[..kept]].concat(),
            prefix: part.prefix.len(),
            log_probs: it.log_probs[..kept].to_vec(),
            ended: it.ended && kept == it.tokens.len(),
        }
    };
    sampled.map(response).collect()
}
