//! The rollouts of a step as the page browses them.
//!
//! Tokens and their log-probabilities are counted and left out. The grader runs again, so that the page can show the
//! extracted answer and the deciding rule. The price: another version of the grader may explain a verdict that it would
//! not give; the page marks such differences.

use hapo_core::Refusal;
use hapo_run::{RolloutLine, RunFolder, each_rollout};
use hapo_verify::{Extracting, Extraction, Gold};
use serde_json::{Value, json};

use crate::folder::Run;

const GROUPS: usize = 16;
const COMPLETION_BYTES: usize = 2 << 20;

/// The rollouts of a step as the page's script reads them: at most [`GROUPS`] groups, chosen evenly, the injected ones
/// first.
pub(crate) fn read(run: &Run, step: u64) -> Result<Value, Refusal> {
    let mut all: Vec<Vec<RolloutLine>> = Vec::new();
    each_rollout(&RunFolder(&run.path).rollouts_of(step), |line| {
        let of_group =
            |it: &&mut Vec<RolloutLine>| it[0].prompt_id == line.prompt_id && it[0].id == line.id;
        match all.last_mut().filter(of_group) {
            Some(group) => group.push(line),
            None => all.push(vec![line]),
        }
    })
    .map_err(|it| {
        Refusal::machine(format!("the rollouts of step {step} cannot be read")).source(it)
    })?;
    let injected: Vec<bool> = all.iter().map(|it| it[0].injected).collect();
    let grader = run.text("data.grader").and_then(|it| hapo_verify::grader(it).ok());
    let rule = run.text("data.extraction").and_then(Extraction::named);
    let grader = grader.zip(rule).map(|(grader, rule)| Extracting::new(grader, rule));
    let grades_cut = run.text("data.truncated") == Some("grade");
    let groups = choose(&injected, GROUPS).into_iter().map(|at| {
        let (members, first) = (&all[at], &all[at][0]);
        let gold = grader.as_ref().and_then(|it| Gold::new(it, &first.answer).ok());
        let members =
            members.iter().map(|it| member(it, gold.as_ref().filter(|_| it.ended || grades_cut)));
        json!({
            "prompt_id": first.prompt_id, "id": first.id, "problem": first.problem,
            "answer": first.answer, "rendered": first.rendered, "injected": first.injected,
            "members": members.collect::<Vec<Value>>(),
        })
    });
    Ok(json!({ "step": step, "groups_total": all.len(), "groups": groups.collect::<Vec<Value>>() }))
}

/// A member as it is recorded, with the explanation of a second run of the grader; `cut_from` has the bytes of a
/// completion of which the page carries the beginning alone.
fn member(line: &RolloutLine, gold: Option<&Gold>) -> Value {
    let bytes = line.completion.len();
    let end = line.completion.floor_char_boundary(COMPLETION_BYTES);
    let completion = &line.completion[..end];
    let why = gold.filter(|_| end == bytes).map(|gold| {
        let it = gold.judge(completion);
        json!({
            "verdict": it.verdict.name(), "extracted": it.extracted, "answer_read": it.answer_read,
            "gold_read": it.gold_read, "rule": it.reason,
        })
    });
    let mut member = json!({
        "slot": line.slot, "role": line.role, "completion": completion,
        "tokens": line.tokens.len(), "ended": line.ended,
    });
    let where_known = [
        ("cut_from", (end < bytes).then(|| json!(bytes))),
        ("mean_log_prob", mean(&line.log_probs).map(Value::from)),
        ("advantage", line.advantage.map(Value::from)),
        ("reward", line.reward.map(Value::from)),
        ("why", why),
    ];
    for (name, value) in where_known {
        if let Some(value) = value {
            member[name] = value;
        }
    }
    if let (Value::Object(member), Value::Object(verdict)) = (&mut member, json!(line.verdict)) {
        member.extend(verdict);
    }
    member
}

fn mean(log_probs: &[f32]) -> Option<f64> {
    let sum: f64 = log_probs.iter().map(|it| f64::from(*it)).sum();
    (!log_probs.is_empty()).then(|| sum / log_probs.len() as f64)
}

/// Positions of at most `most` groups: injected ones fill up to half of them, the others the rest,
/// each spread evenly. In order.
fn choose(injected: &[bool], most: usize) -> Vec<usize> {
    let of = |which: bool| -> Vec<usize> {
        injected.iter().enumerate().filter(|it| *it.1 == which).map(|it| it.0).collect()
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
        let cut = |completion: String| {
            let it = member(&RolloutLine { completion, ..RolloutLine::default() }, None);
            (it["completion"].as_str().unwrap().len(), it["cut_from"].as_u64().unwrap() as usize)
        };
        let whole = COMPLETION_BYTES;
        assert_eq!(cut("é".repeat(whole)), (whole, 2 * whole));
        assert_eq!(cut(format!("a{}", "é".repeat(whole))), (whole - 1, 2 * whole + 1));
    }
}
