//! Advantages, rewards with a divergence in them, and the schedule of μ.

use std::collections::BTreeSet;

use crate::case::{Case, number};

/// The advantage of each sequence, or the reward that is refused.
///
/// # Errors
/// Where a reward is not a finite number.
pub fn advantages(case: &Case) -> Result<Vec<f64>, String> {
    let rewards: Vec<f64> = case.field("reward").expect("rewards").iter().map(number).collect();
    if let Some(at) = rewards.iter().position(|reward| !reward.is_finite()) {
        return Err(format!(
            "reward of sequence {at}: expected a finite number, got {}",
            rewards[at]
        ));
    }
    let groups: Vec<f64> = case.field("group").expect("groups").iter().map(number).collect();
    let mut result = vec![0.0; rewards.len()];
    for group in groups.iter().map(|group| *group as u64).collect::<BTreeSet<_>>() {
        let members: Vec<usize> =
            (0..groups.len()).filter(|i| groups[*i] as u64 == group).collect();
        for &i in &members {
            let others: Vec<f64> = members
                .iter()
                .filter(|j| counts(case, **j) && (case.word("baseline") == "mean" || **j != i))
                .map(|j| rewards[*j])
                .collect();
            result[i] = advantage(case, rewards[i], &others);
        }
    }
    Ok(result)
}

/// Whether a member is in its group's mean.
fn counts(case: &Case, i: usize) -> bool {
    let is_teacher = case.field("source").is_some_and(|rows| rows[i] == "teacher");
    let is_untrainable = case.field("trainable").is_some_and(|rows| number(&rows[i]) == 0.0);
    !(is_teacher && case.flag("teacher_in_mean") == Some(false)
        || is_untrainable && case.flag("untrainable_in_mean") == Some(false))
}

fn advantage(case: &Case, reward: f64, others: &[f64]) -> f64 {
    let is_mean = case.word("baseline") == "mean";
    if others.len() < if is_mean { 2 } else { 1 } {
        return 0.0;
    }
    let n = others.len() as f64;
    // A sum of equal numbers may round; their mean is the number itself.
    let is_constant = others.iter().all(|other| *other == others[0]);
    let mean = if is_constant { others[0] } else { others.iter().sum::<f64>() / n };
    let apart = reward - mean;
    let Some(rule) = case.hyper.get("std") else { return apart };
    if is_constant {
        return if case.word("constant_rest") == "zero" { 0.0 } else { apart };
    }
    let squares: f64 = others.iter().map(|other| (other - mean) * (other - mean)).sum();
    let deviation = (squares / (n - number(&rule["ddof"]))).sqrt();
    apart / (deviation + number(&rule["epsilon"]))
}

/// Token rewards: −β·k of each token, and the sequence's reward at its last token in the loss.
pub fn shaped_rewards(case: &Case) -> Vec<Vec<f64>> {
    let beta = case.number("beta").expect("a coefficient");
    let shaped = |row: &crate::Row| {
        let last = row.mask.iter().rposition(|inside| *inside);
        let value = |t: usize| {
            let delta = if row.mask[t] { row.old[t] - row.reference[t] } else { 0.0 };
            if Some(t) == last { row.reward - beta * delta } else { -beta * delta }
        };
        (0..row.logp.len()).map(value).collect()
    };
    assert_eq!(case.word("kl"), "k1", "{}: the only estimator in a reward", case.id);
    case.rows().iter().map(shaped).collect()
}

/// μ at an optimiser step counted from 0.
pub fn mixing_schedule(case: &Case, step: f64) -> f64 {
    let setting = |name| case.number(name).expect("a schedule's number");
    let (warmup, decay, peak, valley) =
        (setting("warmup"), setting("decay"), setting("peak"), setting("valley"));
    let step = (step - case.number("first_step").unwrap_or(0.0)).max(0.0);
    if step < warmup {
        peak * step / warmup
    } else if step >= warmup + decay {
        valley
    } else {
        let angle = std::f64::consts::PI * (step - warmup) / decay;
        valley + (peak - valley) * (1.0 + angle.cos()) / 2.0
    }
}
