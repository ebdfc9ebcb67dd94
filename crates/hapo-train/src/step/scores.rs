//! Scores of the members of groups, by the second model and by the weights of the step (D38).

use std::sync::Arc;

use hapo_core::{Context, Credit, Loss, MixedGroup, Scores, TokenScores};

use super::task::Task;
use crate::Result;
use crate::engine::engines::{Engines, Learner};
use crate::engine::scorer::ScoreRequest;
use crate::pack::privileged_prompt;

/// The scores of the groups in which something reads them.
pub(crate) fn scores_of<L: Learner>(
    task: Task<'_>,
    engines: &mut Engines<'_, L>,
    groups: &[MixedGroup],
) -> Result<Vec<Scores>> {
    let mut scores = of_reference(task, engines, groups)?;
    if task.method.needs().scores_members {
        let own = of_weights(task, engines.learner, groups)?;
        scores.iter_mut().zip(own).for_each(|(scores, own)| scores.own = own);
    }
    Ok(scores)
}

/// Members behind the prompts that the method names for each, by the weights of the step.
fn of_weights<L: Learner>(
    task: Task<'_>,
    learner: &mut L,
    groups: &[MixedGroup],
) -> Result<Vec<Vec<TokenScores>>> {
    let mut read = Vec::new();
    for group in groups {
        for (index, member) in group.members().iter().enumerate() {
            let context = task.method.scored_behind(group, index);
            let prompt = context.map(|it| rendered(task, group, it)).transpose()?;
            read.push(prompt.map(|it| (it, member.tokens())));
        }
    }
    let mut scored = by_weights(task, learner, read.iter().flatten())?.into_iter();
    let mut of_member =
        read.iter().map(|it| it.as_ref().and_then(|_| scored.next()).unwrap_or_default());
    let of_group = |it: &MixedGroup| of_member.by_ref().take(it.members().len()).collect();
    Ok(groups.iter().map(of_group).collect())
}

/// The responses behind their prompts, by the weights of the step.
pub(super) fn by_weights<'a, L: Learner>(
    task: Task<'_>,
    learner: &mut L,
    read: impl Iterator<Item = &'a (Vec<u32>, &'a [u32])>,
) -> Result<Vec<TokenScores>> {
    let batching = task.plan.batching();
    let inverse_temperature = batching.inverse_temperature;
    let requests: Vec<_> = read
        .map(|(prompt, response)| ScoreRequest { prompt, response, inverse_temperature, top: 0 })
        .collect();
    learner.score(&requests, batching)
}

/// A group's prompt in a context.
fn rendered(task: Task<'_>, group: &MixedGroup, context: Context) -> Result<Vec<u32>> {
    let prompt = task.table.prompt(group.prompt());
    match context {
        Context::Plain => Ok(prompt.tokens.clone()),
        Context::Hint(level) => Ok(prompt.hints[level].clone()),
        Context::Response(rollout) => {
            let shown = group.all_sampled().find(|it| it.index == rollout);
            let response = shown.map_or(&[][..], |it| &it.rollout.tokens);
            prompt.with_solution(response, &task.verifier.chat_format, task.table.prompt_limit)
        }
    }
}

/// Every member behind the prompt that it is trained on behind, by the second model; none without one.
fn of_reference<L: Learner>(
    task: Task<'_>,
    engines: &mut Engines<'_, L>,
    groups: &[MixedGroup],
) -> Result<Vec<Scores>> {
    let Some(reference) = &mut engines.reference else {
        return Ok(vec![Scores::default(); groups.len()]);
    };
    let inverse_temperature = task.plan.batching().inverse_temperature;
    let has_kl = task.plan.recipe().loss().kl.is_some();
    let is_scored = |group: &MixedGroup| has_kl || task.method.reads_scores(group);
    let requests: Vec<ScoreRequest<'_>> = groups
        .iter()
        .filter(|group| is_scored(group))
        .flat_map(|group| {
            let plain = &task.table.prompt(group.prompt()).tokens;
            let behind = |member| privileged_prompt(member, task.method.trained_behind(member));
            group.members().iter().map(move |member| ScoreRequest {
                prompt: behind(member).unwrap_or(plain),
                response: member.tokens(),
                inverse_temperature,
                top: 0,
            })
        })
        .collect();
    let mut scored = reference.score(&requests)?.into_iter();
    let of_group = |group: &MixedGroup| {
        let members = if is_scored(group) { group.members().len() } else { 0 };
        Scores { reference: scored.by_ref().take(members).collect(), ..Scores::default() }
    };
    Ok(groups.iter().map(of_group).collect())
}

/// Gives the spans that have a KL term the reference's log-probabilities of their tokens.
pub(crate) fn attach_reference(credit: &mut Credit, scores: &Scores, loss: &Loss) {
    for (spans, scores) in credit.iter_mut().zip(&scores.reference) {
        for span in spans.iter_mut().filter(|span| loss.kl_of(span).is_some()) {
            span.reference = Some(Arc::from(&scores.log_probs[span.tokens.clone()]));
        }
    }
}
