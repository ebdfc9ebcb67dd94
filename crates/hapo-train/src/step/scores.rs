//! What the second model says of the members of groups (D38).

use std::sync::Arc;

use hapo_core::{Credit, Loss, MixedGroup, Scores};

use super::task::Task;
use crate::engine::engines::{Engines, Learner};
use crate::engine::scorer::ScoreRequest;
use crate::error::Result;

/// The scores of each group: every member behind the plain prompt, at the sampling temperature; none without a second
/// model.
pub(crate) fn scores_of<L: Learner>(
    task: Task<'_>,
    engines: &mut Engines<'_, L>,
    groups: &[MixedGroup],
) -> Result<Vec<Scores>> {
    let Some(reference) = &mut engines.reference else {
        return Ok(vec![Scores::default(); groups.len()]);
    };
    let inverse_temperature = task.plan.batching().inverse_temperature;
    let requests: Vec<ScoreRequest<'_>> = groups
        .iter()
        .flat_map(|group| {
            let prompt = &task.table.prompt(group.prompt()).tokens;
            group.members().iter().map(move |member| ScoreRequest {
                prompt,
                response: member.tokens(),
                inverse_temperature,
                top: 0,
            })
        })
        .collect();
    let mut scored = reference.score(&requests)?.into_iter();
    let of_group = |group: &MixedGroup| Scores {
        reference: scored.by_ref().take(group.members().len()).collect(),
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
