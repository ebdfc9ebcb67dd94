//! Scores of tokens by the weights of the step and by the second model (D38): of the traces that may enter a group, before
//! one is chosen, and of its members.

use std::{ops::Range, sync::Arc};

use hapo_core::{
    Context, Credit, Loss, MixedGroup, Scored, ScoredGroup, Scores, TeacherTrajectory, TokenScores,
};
use hapo_kernels::Device;
use hapo_sampler::ChatFormat;
use hapo_verify::{Extraction, find_answer};

use super::group::Task;
use crate::{
    Result, engine::Engines, engine::scorer::ScoreRequest, engine::trainer::Trainer,
    pack::privileged_prompt,
};

/// The scores of what may enter each group, the teachers' traces first; none where the method asks for none or there is
/// no choice.
pub(super) fn scores_of_offers<D: Device>(
    task: Task,
    learner: &mut Trainer<D>,
    groups: &[ScoredGroup],
    open: &[bool],
) -> Result<Vec<Vec<TokenScores>>> {
    let wanted = task.plan.recipe().needs().scored;
    if wanted == Scored::Nothing {
        return Ok(vec![Vec::new(); groups.len()]);
    }
    let mut read = Vec::new();
    let mut counts = Vec::with_capacity(groups.len());
    for (group, is_open) in groups.iter().zip(open) {
        let prompt = task.table.prompt(group.prompt());
        let teachers = prompt.teachers.iter().map(TeacherTrajectory::tokens);
        let stored = task.memory.traces(prompt.id).iter().map(|it| it.tokens.as_slice());
        let traces: Vec<&[u32]> = teachers.chain(stored).collect();
        let is_scored = traces.len() > 1 && *is_open;
        counts.push(if is_scored { traces.len() } else { 0 });
        for trace in traces.into_iter().filter(|_| is_scored) {
            let scored = match wanted {
                Scored::Answers => answer_in(&task.verifier.chat_format, trace)?,
                _ => 0..trace.len(),
            };
            read.push(([&prompt.tokens, &trace[..scored.start]].concat(), &trace[scored]));
        }
    }
    let mut scores = by_weights(task, learner, read.iter())?.into_iter();
    Ok(counts.into_iter().map(|count| scores.by_ref().take(count).collect()).collect())
}

/// The tokens of a trace with a part of its final answer; all where it states none.
fn answer_in(chat_format: &ChatFormat, trace: &[u32]) -> Result<Range<usize>> {
    let text = chat_format.text(trace)?;
    let answer = find_answer(&text, Extraction::Announced).ok().map(|it| it.answer.into_owned());
    let found = answer.filter(|it| !it.is_empty());
    let Some((start, answer)) = found.and_then(|it| Some((text.rfind(&it)?, it))) else {
        return Ok(0..trace.len());
    };
    // The least tokens whose text reaches a byte.
    let reaching = |byte: usize| -> Result<usize> {
        let (mut low, mut high) = (0, trace.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            let short = chat_format.text(&trace[..middle])?.len() < byte;
            (low, high) = if short { (middle + 1, high) } else { (low, middle) };
        }
        Ok(low)
    };
    Ok(reaching(start + 1)? - 1..reaching(start + answer.len())?)
}

/// The scores of the groups in which something reads them.
pub(crate) fn scores_of<D: Device>(
    task: Task,
    engines: &mut Engines<'_, D>,
    groups: &[MixedGroup],
) -> Result<Vec<Scores>> {
    let mut scores = of_reference(task, engines, groups)?;
    if !task.method.help.needs.scores_members {
        return Ok(scores);
    }
    // Members behind the prompts that the method names for each, by the weights of the step.
    let mut read = Vec::new();
    for group in groups {
        for (index, member) in group.members().iter().enumerate() {
            let context = (task.method.method.scored_behind)(group, index);
            let prompt = context.map(|it| rendered(task, group, it)).transpose()?;
            read.push(prompt.map(|it| (it, member.tokens())));
        }
    }
    let mut scored = by_weights(task, engines.learner, read.iter().flatten())?.into_iter();
    let mut of_member =
        read.iter().map(|it| it.as_ref().and_then(|_| scored.next()).unwrap_or_default());
    for (scores, group) in scores.iter_mut().zip(groups) {
        scores.own = of_member.by_ref().take(group.members().len()).collect();
    }
    Ok(scores)
}

fn by_weights<'a, D: Device>(
    task: Task,
    learner: &mut Trainer<D>,
    read: impl Iterator<Item = &'a (Vec<u32>, &'a [u32])>,
) -> Result<Vec<TokenScores>> {
    let batching = task.plan.batching();
    let inverse_temperature = batching.inverse_temperature;
    let requests = read.map(|(prompt, it)| ScoreRequest::new(prompt, it, inverse_temperature));
    learner.score(&requests.collect::<Vec<_>>(), batching)
}

fn rendered(task: Task, group: &MixedGroup, context: Context) -> Result<Vec<u32>> {
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
fn of_reference<D: Device>(
    task: Task,
    engines: &mut Engines<'_, D>,
    groups: &[MixedGroup],
) -> Result<Vec<Scores>> {
    let Some(reference) = &mut engines.reference else {
        return Ok(vec![Scores::default(); groups.len()]);
    };
    let inverse_temperature = task.plan.batching().inverse_temperature;
    let has_kl = task.plan.recipe().loss().kl.is_some();
    let is_scored = |group: &MixedGroup| has_kl || task.method.reads_scores(group);
    let requests: Vec<ScoreRequest> = groups
        .iter()
        .filter(|group| is_scored(group))
        .flat_map(|group| {
            let plain = &task.table.prompt(group.prompt()).tokens;
            let behind = |member| privileged_prompt(member, task.method.trained_behind(member));
            group.members().iter().map(move |member| {
                let prompt = behind(member).unwrap_or(plain);
                ScoreRequest::new(prompt, member.tokens(), inverse_temperature)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Run;
    use crate::{Overrides, Recipe, RunPlan};

    #[test]
    fn the_answer_of_a_trace_is_found_among_its_tokens() {
        let path =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/smoke.toml");
        let overrides = Overrides::set(["model.path=builtin:base", "data.prompts=16"]);
        let recipe = Recipe::load_stages(&path, &overrides).unwrap().remove(0);
        let mut run = Run::new(&RunPlan::settle(&recipe).unwrap(), 1).unwrap();
        let (task, ..) = run.task(hapo_core::Step(1)).unwrap();
        let format = &task.verifier.chat_format;
        let of = |text: &str| {
            let trace = format.tokenizer.encode(text).unwrap();
            let found = answer_in(format, &trace).unwrap();
            (format.text(&trace[found.clone()]).unwrap(), found.end, trace.len())
        };
        let (answer, end, n) = of("12+30=42\nThe answer is \\boxed{42}");
        assert!(answer.contains("42") && answer.len() < 5 && end <= n, "{answer} {end} {n}");
        let (whole, ..) = of("12+30=42");
        assert_eq!(whole, "12+30=42");
    }
}
