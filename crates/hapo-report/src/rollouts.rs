//! The rollouts of a step as the page browses them.
//!
//! Tokens and their log-probabilities are counted and left out. The grader runs again, so that the page can show the
//! extracted answer and the deciding rule. The price: another version of the grader may explain a verdict that it would
//! not give; the page marks such differences.

use hapo_core::{Refusal, Verdict};
use hapo_run::{Role, RolloutLine, RunFolder, each_rollout};
use hapo_verify::{Extracting, Extraction};
use serde::{Serialize, Serializer};

use crate::folder::Run;

const GROUPS: usize = 16;
const COMPLETION_BYTES: usize = 2 << 20;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct StepRollouts {
    pub(crate) step: u64,
    /// Groups of the step; `groups` may be a sample of them.
    pub(crate) groups_total: usize,
    pub(crate) groups: Vec<Group>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Group {
    pub(crate) prompt_id: u64,
    pub(crate) id: String,
    pub(crate) problem: String,
    pub(crate) answer: String,
    /// The prompt as the model reads it, where it is recorded.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) rendered: String,
    pub(crate) injected: bool,
    pub(crate) members: Vec<Member>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Member {
    pub(crate) slot: usize,
    pub(crate) role: Role,
    pub(crate) completion: String,
    /// Bytes of the whole completion, where the page carries its beginning alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cut_from: Option<usize>,
    pub(crate) tokens: usize,
    /// Mean log-probability of its tokens under the weights that sampled it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mean_log_prob: Option<f64>,
    pub(crate) ended: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) advantage: Option<f64>,
    /// The reward, if it differs from the verdict's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reward: Option<f64>,
    /// As recorded.
    #[serde(flatten)]
    pub(crate) verdict: Verdict,
    /// The grader's explanation, from a second run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<Why>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Why {
    #[serde(serialize_with = "as_name")]
    verdict: hapo_verify::Verdict,
    extracted: Option<String>,
    answer_read: String,
    gold_read: String,
    rule: String,
}

/// Reads the rollouts of a step: at most [`GROUPS`] groups, chosen evenly, the injected ones first.
pub(crate) fn read(run: &Run, step: u64) -> Result<StepRollouts, Refusal> {
    let mut all: Vec<Group> = Vec::new();
    each_rollout(&RunFolder(&run.path).rollouts_of(step), |line| {
        let of_group = |it: &Group| it.prompt_id == line.prompt_id && it.id == line.id;
        if !all.last().is_some_and(of_group) {
            all.push(Group {
                prompt_id: line.prompt_id,
                id: line.id.clone(),
                problem: line.problem.clone(),
                answer: line.answer.clone(),
                rendered: line.rendered.clone(),
                injected: line.injected,
                members: Vec::new(),
            });
        }
        let group = all.last_mut().expect("one was pushed");
        group.members.push(member(line));
    })
    .map_err(|it| {
        Refusal::machine(format!("the rollouts of step {step} cannot be read")).source(it)
    })?;
    let groups_total = all.len();
    let injected: Vec<bool> = all.iter().map(|it| it.injected).collect();
    let mut chosen = choose(&injected, GROUPS).into_iter().peekable();
    let mut at = 0..;
    all.retain(|_| chosen.next_if_eq(&at.next().expect("endless")).is_some());
    explain(run, &mut all);
    Ok(StepRollouts { step, groups_total, groups: all })
}

fn member(line: RolloutLine) -> Member {
    let mut completion = line.completion;
    let bytes = completion.len();
    if bytes > COMPLETION_BYTES {
        let at = (0..=COMPLETION_BYTES).rev().find(|it| completion.is_char_boundary(*it));
        completion.truncate(at.unwrap_or(0));
    }
    Member {
        slot: line.slot,
        role: line.role,
        cut_from: (completion.len() < bytes).then_some(bytes),
        completion,
        tokens: line.tokens.len(),
        mean_log_prob: mean(&line.log_probs),
        ended: line.ended,
        advantage: line.advantage,
        reward: line.reward,
        verdict: line.verdict,
        why: None,
    }
}

fn mean(log_probs: &[f32]) -> Option<f64> {
    let sum: f64 = log_probs.iter().map(|it| f64::from(*it)).sum();
    (!log_probs.is_empty()).then(|| sum / log_probs.len() as f64)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn as_name<S: Serializer>(
    verdict: &hapo_verify::Verdict,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(verdict.name())
}

/// Positions of at most `most` groups: injected ones fill up to half of them, the others the rest,
/// each spread evenly. In order.
fn choose(injected: &[bool], most: usize) -> Vec<usize> {
    let of = |which: bool| -> Vec<usize> {
        let all = injected.iter().enumerate();
        all.filter(|it| *it.1 == which).map(|it| it.0).collect()
    };
    let (with, without) = (of(true), of(false));
    let n_with = with.len().min((most / 2).max(most.saturating_sub(without.len())));
    let n_without = without.len().min(most - n_with);
    let spread = |of: &[usize], n: usize| -> Vec<usize> {
        (0..n).map(|it| of[it * of.len() / n.max(1)]).collect()
    };
    let mut chosen = spread(&with, n_with);
    chosen.extend(spread(&without, n_without));
    chosen.sort_unstable();
    chosen
}

/// Runs the run's grader again for its answers and reasons.
fn explain(run: &Run, groups: &mut [Group]) {
    let grader = run.text("data.grader").map(hapo_verify::grader);
    let rule = Extraction::ALL.iter().find(|rule| Some(rule.0) == run.text("data.extraction"));
    let (Some(Ok(grader)), Some((_, rule))) = (grader, rule) else {
        return;
    };
    let grader = Extracting::new(grader, *rule);
    let judged = |it: &Member| it.ended || run.text("data.truncated") == Some("grade");
    for group in groups {
        let Ok(gold) = hapo_verify::Gold::new(&grader, &group.answer) else {
            continue;
        };
        for it in group.members.iter_mut().filter(|it| it.cut_from.is_none() && judged(it)) {
            let judgement = gold.judge(&it.completion);
            it.why = Some(Why {
                verdict: judgement.verdict,
                extracted: judgement.extracted,
                answer_read: judgement.answer_read,
                gold_read: judgement.gold_read,
                rule: judgement.reason.into_owned(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_chosen_evenly_and_injected_ones_take_half() {
        let mut injected = vec![false; 100];
        for it in 0..30 {
            injected[it * 3] = true;
        }
        let chosen = choose(&injected, 16);
        assert_eq!(chosen.len(), 16);
        assert_eq!(chosen.iter().filter(|it| injected[**it]).count(), 8);
        assert!(chosen.is_sorted());
        assert_eq!(choose(&[true, true, false], 16), [0, 1, 2]);
        assert_eq!(choose(&[true; 20], 4).len(), 4);
        assert_eq!(choose(&[], 4), [0; 0]);
    }

    #[test]
    fn a_long_completion_is_cut_between_characters() {
        let it = member(RolloutLine {
            completion: "é".repeat(COMPLETION_BYTES),
            ..RolloutLine::default()
        });
        assert_eq!(it.completion.len(), COMPLETION_BYTES);
        assert_eq!(it.cut_from, Some(2 * COMPLETION_BYTES));
        let odd = member(RolloutLine {
            completion: format!("a{}", "é".repeat(COMPLETION_BYTES)),
            ..RolloutLine::default()
        });
        assert_eq!(odd.completion.len(), COMPLETION_BYTES - 1);
    }
}
