//! The loss of an optimiser step and its derivatives.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::case::{Case, Row, number};

/// What a step gives.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The loss, or the surrogate where its value means nothing.
    pub value: f64,
    /// The derivative by each log-probability (by each logit, for a batch of logits), sequence by sequence.
    pub grad: Vec<Vec<f64>>,
    /// The derivative by each entropy.
    pub by_entropy: Vec<Vec<f64>>,
}

/// Value and slope of one token's term.
type Term = (f64, f64);

/// Counts of an optimiser step.
struct Counts {
    sequences: f64,
    tokens: f64,
    policy: f64,
    teacher: f64,
    prompts: BTreeMap<u64, f64>,
    solved: BTreeMap<u64, bool>,
}

/// The loss over the given optimiser steps at log-probabilities `at`, with each detached part at the recorded ones.
/// The cut of a step into ranks and micro-batches does not enter: all of it divides by the same counts.
pub fn loss(case: &Case, rows: &[Row], steps: &[Vec<Vec<Vec<usize>>>], at: &[Vec<f64>]) -> Answer {
    let zeros: Vec<Vec<f64>> = rows.iter().map(|row| vec![0.0; row.logp.len()]).collect();
    let mut answer = Answer { value: 0.0, grad: zeros.clone(), by_entropy: zeros };
    for step in steps {
        let whole: Vec<usize> = step.iter().flatten().flatten().copied().collect();
        let counts = count(case, rows, &whole);
        for i in whole {
            let row = &rows[i];
            let bonus = if row.teacher { 0.0 } else { case.number("entropy_coef").unwrap_or(0.0) };
            for t in (0..row.logp.len()).filter(|t| row.mask[*t]) {
                let weight = weight(case, row, &counts);
                let (value, slope) = term(case, row, t, (&at[i], &counts));
                answer.value += weight * (value - bonus * row.entropy[t]);
                answer.grad[i][t] += weight * slope;
                answer.by_entropy[i][t] -= weight * bonus;
            }
        }
    }
    answer
}

fn count(case: &Case, rows: &[Row], whole: &[usize]) -> Counts {
    let mut counts = Counts {
        sequences: 0.0,
        tokens: 0.0,
        policy: 0.0,
        teacher: 0.0,
        prompts: BTreeMap::new(),
        solved: BTreeMap::new(),
    };
    for row in whole.iter().map(|i| &rows[*i]) {
        *counts.solved.entry(row.group).or_default() |= !row.teacher && succeeds(case, row);
    }
    for row in whole.iter().map(|i| &rows[*i]) {
        let is_empty = case.word("empty_sequences") == "out" && row.n() == 0;
        let is_dead = case.word("dead_groups") == "out" && row.advantage == 0.0;
        let n = if is_empty || is_dead { 0.0 } else { divisor_tokens(case, row) };
        counts.sequences += if is_empty || is_dead { 0.0 } else { 1.0 };
        counts.tokens += n;
        *counts.prompts.entry(row.group).or_default() += n;
        if !row.teacher {
            counts.policy += n;
        } else if !switched_off(case, row, &counts) {
            counts.teacher += n;
        }
    }
    counts
}

fn divisor_tokens(case: &Case, row: &Row) -> f64 {
    if case.word("divisor") != "kept" {
        return row.n() as f64;
    }
    row.masked_sum(|t| if correction(case, row, t) > 0.0 { 1.0 } else { 0.0 })
}

/// A reward of at least `success_at`.
fn succeeds(case: &Case, row: &Row) -> bool {
    row.reward >= case.number("success_at").unwrap_or(1.0)
}

/// HPT: the demonstration of a solved prompt, and the rollouts of an unsolved one, are out.
fn switched_off(case: &Case, row: &Row, counts: &Counts) -> bool {
    case.flag("switch") == Some(true) && counts.solved[&row.group] == row.teacher
}

fn weight(case: &Case, row: &Row, counts: &Counts) -> f64 {
    let n = row.n().max(1) as f64;
    let length = case.number("length").unwrap_or(12.0);
    match (case.word("teacher"), row.teacher) {
        ("chord-mu" | "chord-phi", true) => return case.number("mu").unwrap() / counts.teacher,
        ("chord-mu" | "chord-phi", false) => {
            return (1.0 - case.number("mu").unwrap()) / counts.policy;
        }
        ("hpt", _) if switched_off(case, row, counts) => return 0.0,
        ("hpt", true) => return 1.0 / counts.teacher,
        ("hpt", false) => return 1.0 / length,
        _ => {}
    }
    1.0 / match case.word("aggregate") {
        "token-mean" => counts.tokens.max(1.0),
        "token-sum" => 1.0,
        "seq-mean-token-mean" => counts.sequences * n,
        "seq-mean-token-sum" => counts.sequences,
        "seq-mean-token-sum-norm" => counts.sequences * length,
        "prompt-mean" => counts.prompts.len() as f64 * counts.prompts[&row.group].max(1.0),
        other => panic!("{}: no aggregate {other:?}", case.id),
    }
}

fn term(case: &Case, row: &Row, t: usize, (at, counts): (&[f64], &Counts)) -> Term {
    let teacher = case.word("teacher");
    if !teacher.is_empty() && row.teacher || teacher == "trapo" && t < row.prefix {
        return imitation(case, row, t, at[t]);
    }
    let advantage = match (teacher, succeeds(case, row)) {
        ("srft", true) => 0.1 * row.masked_mean(|t| row.entropy[t]).exp(),
        ("srft", false) => -1.0,
        _ => row.advantage,
    };
    let (mut value, mut slope) = surrogate(case, row, t, (at, advantage));
    if case.hyper.contains_key("tis") {
        let weight = correction(case, row, t);
        (value, slope) = (weight * value, weight * slope);
    }
    if let Some(limit) = case.number("off_policy_limit") {
        let gap = row.masked_mean(|u| row.sampler[u] - row.logp[u]);
        if row.advantage < 0.0 && gap > limit {
            (value, slope) = (0.0, 0.0);
        }
    }
    let is_pulled = match case.word("kl_on") {
        "failures" => !succeeds(case, row),
        "failed-groups" => !counts.solved[&row.group],
        _ => true,
    };
    if case.hyper.contains_key("kl") && is_pulled {
        let beta = case.number("beta").unwrap();
        let (mut k, mut k_slope) =
            divergence(case, at[t] - row.reference[t], row.logp[t] - row.reference[t]);
        if case.word("kl").ends_with("-times-ratio") {
            let ratio = (at[t] - row.old[t]).exp();
            (k, k_slope) = (ratio * k, ratio * (k_slope + k));
        }
        (value, slope) = (value + beta * k, slope + beta * k_slope);
    }
    (value, slope)
}

fn surrogate(case: &Case, row: &Row, t: usize, (at, a): (&[f64], f64)) -> Term {
    let low = 1.0 - case.number("clip_low").unwrap_or(f64::INFINITY);
    let high = 1.0 + case.number("clip_high").unwrap_or(f64::INFINITY);
    let ratio = (at[t] - row.old[t]).exp();
    match case.word("surrogate") {
        "none" => (0.0, 0.0),
        "nll" => (-at[t], -1.0),
        "reinforce" => (-a * at[t], -a),
        "cispo" => {
            let constant = (row.logp[t] - row.old[t]).exp().clamp(low, high);
            (-constant * a * at[t], -constant * a)
        }
        "vespo" => {
            let side = if row.advantage >= 0.0 { "positive" } else { "negative" };
            let of = |name: &str| case.number(&format!("{name}_{side}")).unwrap();
            let (k, lambda) = (of("k"), of("lambda"));
            let log_weight = row.masked_sum(|u| row.logp[u] - row.old[u]);
            let weight = log_weight.mul_add(k, lambda * (1.0 - log_weight.exp())).exp();
            (-weight * a * at[t], -weight * a)
        }
        "dro" => {
            let (beta, delta) = (case.number("dro_beta").unwrap(), at[t] - row.old[t]);
            (0.5 * beta * delta * delta - a * at[t], beta * delta - a)
        }
        "ppo" => bounded(case, ratio, a, (low, high)),
        "gspo" => {
            let ratio = row.masked_mean(|u| at[u] - row.old[u]).exp();
            bounded(case, ratio, a, (low, high))
        }
        "gmpo" => {
            let chosen = |u: usize| {
                let delta = at[u] - row.old[u];
                if a >= 0.0 { delta.min(high - 1.0) } else { delta.max(low - 1.0) }
            };
            let mean = row.masked_mean(chosen).exp();
            let moves = chosen(t) == at[t] - row.old[t];
            (-a * mean, if moves { -a * mean } else { 0.0 })
        }
        "sapo" => {
            let side = if a > 0.0 { "temperature_positive" } else { "temperature_negative" };
            let tau = case.number(side).unwrap();
            let gate = 1.0 / (1.0 + (-tau * (ratio - 1.0)).exp());
            (-4.0 * gate / tau * a, -4.0 * gate * (1.0 - gate) * ratio * a)
        }
        "dppo-tv" => {
            let moved = (row.logp[t].exp() - row.old[t].exp()) * if a > 0.0 { 1.0 } else { -1.0 };
            let kept = if moved <= case.number("tv_limit").unwrap() { ratio * a } else { 0.0 };
            let (c, delta) = (case.number("kl_coef").unwrap(), at[t] - row.old[t]);
            (c * delta * delta - kept, 2.0 * c * delta - kept)
        }
        other => panic!("{}: no surrogate {other:?}", case.id),
    }
}

/// −min(ρA, clip(ρ)A), the ratio at most `ratio_cap` and a bad token's loss at most −A·`dual_clip`.
fn bounded(case: &Case, ratio: f64, a: f64, (low, high): (f64, f64)) -> Term {
    let cap = case.number("ratio_cap").unwrap_or(f64::INFINITY);
    let ceiling = case.number("dual_clip").filter(|_| a < 0.0).map_or(f64::INFINITY, |c| -a * c);
    let (plain, clipped) = (-ratio.min(cap) * a, -ratio.clamp(low, high) * a);
    let value = plain.max(clipped);
    if value > ceiling {
        return (ceiling, 0.0);
    }
    (value, if plain >= clipped && ratio <= cap { plain } else { 0.0 })
}

/// The correction of one token for the sampler's numbers.
fn correction(case: &Case, row: &Row, t: usize) -> f64 {
    if row.teacher && !case.word("teacher").is_empty() {
        return 1.0;
    }
    let rule = &case.hyper["tis"];
    let apart = |u: usize| row.old[u] - row.sampler[u];
    let log_weight = match rule["level"].as_str().unwrap_or_default() {
        "token" => apart(t),
        "sequence-geometric" => row.masked_mean(apart),
        "sequence-product" => row.masked_sum(apart),
        other => panic!("{}: no level {other:?}", case.id),
    };
    let weight = log_weight.exp();
    let low = rule.get("low").map_or(0.0, number);
    let high = number(&rule["high"]);
    match (rule["mode"].as_str(), low <= weight && weight <= high, rule["keeps"].as_str()) {
        (Some("clip"), _, _) => weight.clamp(low, high),
        (_, false, _) => 0.0,
        (_, true, Some("weight")) => weight,
        (_, true, Some("token-weight")) => apart(t).exp(),
        (_, true, _) => 1.0,
    }
}

/// An estimator of the divergence at Δ, with its detached parts at `now`, and an engine's clamps if a case has them.
fn divergence(case: &Case, delta: f64, now: f64) -> Term {
    let bound = |name: &str| {
        let clamp = case.hyper.get("kl_clamp").and_then(|clamps: &Value| clamps.get(name));
        clamp.map_or(f64::INFINITY, number)
    };
    let (of_delta, of_value) = (bound("delta"), bound("value"));
    let is_outside = delta.abs() > of_delta;
    let (delta, now) = (delta.clamp(-of_delta, of_delta), now.clamp(-of_delta, of_delta));
    let plain = case.word("kl").trim_end_matches("-times-ratio");
    let (name, has_score) = match plain.strip_suffix("-with-score-term") {
        Some(name) => (name, true),
        None => (plain, false),
    };
    let third = |x: f64| (-x).exp_m1() + x;
    let (mut value, mut slope) = match name {
        "k1" => (delta, 1.0),
        "k2" => (0.5 * delta * delta, delta),
        "k3" => (third(delta), -(-delta).exp_m1()),
        "k3-straight-through" => (third(now) + 0.5 * (delta * delta - now * now), delta),
        other => panic!("{}: no estimator {other:?}", case.id),
    };
    if has_score {
        (value, slope) = (value * (delta - now).exp(), slope + value);
    }
    let moves = !is_outside && value.abs() <= of_value;
    (value.clamp(-of_value, of_value), if moves { slope } else { 0.0 })
}

fn imitation(case: &Case, row: &Row, t: usize, at: f64) -> Term {
    let likelihood = |factor: f64| (-factor * at, -factor);
    let d = case.number("d").unwrap_or(0.1);
    let shaped = || {
        let p = at.exp();
        (-row.advantage * p / (p + d), -row.advantage * p * d / ((p + d) * (p + d)))
    };
    let p = row.logp[t].exp();
    match case.word("teacher") {
        "luffy" => shaped(),
        "hpt" | "chord-mu" => likelihood(1.0),
        "chord-phi" => likelihood(p * (1.0 - p)),
        "trapo" => likelihood((p / d).min(1.0)),
        "srft" => {
            let imitated = likelihood(0.5 * (-row.masked_mean(|u| row.entropy[u])).exp());
            if case.flag("demonstration_advantage") != Some(true) {
                return imitated;
            }
            let more = shaped();
            (imitated.0 + more.0, imitated.1 + more.1)
        }
        other => panic!("{}: no teacher {other:?}", case.id),
    }
}
