//! Groups grow part by part, as their method asks (D35): one call of the sampler for each part, with every prompt of
//! the round in it.

use std::borrow::Cow;

use hapo_core::{Context, Growing, Growth, RngStream, Rollout, SampledGroup, ScoredGroup, Step};
use hapo_sampler::{GroupRequest, Sampled};

use super::batch::Batch;
use super::task::Task;
use crate::Result;
use crate::engine::engines::{Engines, Learner};
use crate::grading::verifier::Ungraded;
use crate::problems::prompts::Prompt;

/// The next part of one prompt's group, in tokens.
struct NextPart {
    /// Index of the prompt in the round.
    index: usize,
    rollouts: usize,
    part: usize,
    context: Context,
    /// The prompt of another context than the plain one, else empty.
    privileged: Vec<u32>,
    /// The first tokens of each response, and their recorded log-probabilities.
    prefix: Vec<u32>,
    prefix_log_probs: Vec<f32>,
}

/// Samples and scores the groups of some prompts until their method asks for nothing more.
pub(super) fn grow<L: Learner>(
    task: Task<'_>,
    engines: &mut Engines<'_, L>,
    prompts: &[&Prompt],
    step: Step,
    batch: &mut Batch,
) -> Result<Vec<ScoredGroup>> {
    let mut groups: Vec<_> = prompts.iter().map(|prompt| ScoredGroup::empty(prompt.id)).collect();
    let mut open = vec![false; groups.len()];
    for part in 0..task.method.needs().parts {
        if part == 1 {
            open = task.open(&groups, step);
        }
        let mut asked = Vec::new();
        for (index, (prompt, group)) in prompts.iter().zip(&groups).enumerate() {
            let next = Next { part, step, is_open: open[index] };
            asked.extend(ask(task, prompt, group, next)?.map(|it| NextPart { index, ..it }));
        }
        if asked.is_empty() {
            break;
        }
        let starts: Vec<_> = asked.iter().map(|it| it.start(prompts[it.index])).collect();
        let requests: Vec<_> = asked
            .iter()
            .zip(&starts)
            .map(|(it, tokens)| GroupRequest {
                given: it.prefix.len(),
                ..GroupRequest::new(prompts[it.index].id, tokens, it.rollouts)
            })
            .collect();
        let sampling = task.sampling(RngStream::of_part(part), step);
        let sampled = engines.sample(&requests, &sampling)?;
        batch.tokens.add(&sampled);
        batch.clock.lap("sample");

        let responses: Vec<Vec<Rollout>> =
            asked.iter().zip(sampled).map(|(it, sampled)| it.responses(&sampled)).collect();
        let ungraded = asked.iter().zip(&responses).map(|(it, rollouts)| Ungraded {
            prompt: prompts[it.index].id,
            gold: prompts[it.index].gold.as_ref(),
            rollouts,
            first: groups[it.index].asked(),
        });
        let graded = task.verifier.grade(&ungraded.collect::<Vec<_>>(), step)?;
        for ((it, rollouts), graded) in asked.iter().zip(responses).zip(graded) {
            batch.answers.add(&graded);
            let part = SampledGroup::new(prompts[it.index].id, it.rollouts, rollouts);
            groups[it.index].join(task.verifier.score(part, graded));
        }
        batch.clock.lap("verify");
    }
    Ok(groups)
}

/// When a method is asked for a part.
#[derive(Clone, Copy)]
struct Next {
    part: usize,
    step: Step,
    is_open: bool,
}

/// The next part of one group by its method; nothing where it is complete.
fn ask(
    task: Task<'_>,
    prompt: &Prompt,
    group: &ScoredGroup,
    Next { part, step, is_open }: Next,
) -> Result<Option<NextPart>> {
    let (recipe, chat_format) = (task.plan.recipe(), &task.verifier.chat_format);
    let limit = recipe.sampling().max_new_tokens;
    let tokenizer = &chat_format.tokenizer;
    let growing = Growing {
        group,
        part,
        size: task.method.rollouts(task.group_size(), prompt.teacher()),
        teachers: task.offer(prompt.id, step, &[]).teachers,
        hints: prompt.hints.len(),
        is_open,
        at: task.method.moment(step),
        seed: recipe.seed(),
        ends_paragraph: &|token| tokenizer.decode(&[token]).is_ok_and(|text| text.contains("\n\n")),
    };
    let growth = task.method.grow(&growing);
    task.require_answer()?;
    let Growth::Sample(wanted) = growth else {
        return Ok(None);
    };
    let (prefix, log_probs) = growing.given(wanted.prefix, limit);
    let privileged = match wanted.context {
        Context::Plain => Vec::new(),
        Context::Hint(level) => prompt.hints[level].clone(),
        Context::Response(rollout) => {
            let response = &growing.members()[rollout].rollout.tokens;
            prompt.with_solution(response, chat_format, task.table.prompt_limit)?
        }
    };
    Ok(Some(NextPart {
        index: 0,
        rollouts: wanted.rollouts,
        part,
        context: wanted.context,
        privileged,
        prefix: prefix.to_vec(),
        prefix_log_probs: log_probs.to_vec(),
    }))
}

impl NextPart {
    /// The tokens before the sampled ones.
    fn start<'a>(&'a self, prompt: &'a Prompt) -> Cow<'a, [u32]> {
        let read = if self.privileged.is_empty() { &prompt.tokens } else { &self.privileged };
        match self.prefix.as_slice() {
            [] => Cow::Borrowed(read),
            prefix => Cow::Owned([read, prefix].concat()),
        }
    }

    /// The whole responses, the prefix included.
    fn responses(&self, sampled: &Sampled) -> Vec<Rollout> {
        let response = |it: &Rollout| Rollout {
            tokens: [self.prefix.as_slice(), &it.tokens].concat(),
            prefix: self.prefix.len(),
            log_probs: [self.prefix_log_probs.as_slice(), &it.log_probs].concat(),
            sampler_log_probs: it.sampler_log_probs.clone(),
            ended: it.ended,
            part: self.part,
            context: self.context,
            privileged: self.privileged.clone(),
        };
        sampled.group.rollouts().iter().map(response).collect()
    }
}
