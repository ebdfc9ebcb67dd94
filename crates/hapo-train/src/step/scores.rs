//! The second model's scores of the members of groups (D38).

use std::sync::Arc;

use hapo_core::{Credit, Loss, MixedGroup, Scores};

use super::task::Task;
use crate::engine::engines::{Engines, Learner};
use crate::engine::scorer::ScoreRequest;
use crate::error::Result;
use crate::pack::privileged_prompt;

/// The scores of the groups in which something reads them: every member behind the prompt that it is trained on behind,
/// at the sampling temperature; none without a second model.
pub(crate) fn scores_of<L: Learner>(
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
        Scores { reference: scored.by_ref().take(members).collect() }
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
