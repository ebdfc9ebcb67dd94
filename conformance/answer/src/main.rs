//! The recorded cases of `conformance/`, answered by the losses that hapo trains with: one JSON line for each call, which
//! `lossproof run --answers FILE` compares with the formulas.
//!
//! A case whose settings this trainer lacks is answered with "n/a", so that a newer suite can be read. The price: a
//! misspelt setting reads as one that is missing.

mod objective;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use hapo_core::{
    MixedGroup, PromptId, Rollout, SampledGroup, Slot, SlotRule, Step, SuccessLimit, Verdict,
    advantages_among, apply_gate,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use objective::Objective;

/// Optimiser steps of ranks of micro-batches of sequences.
type Steps = Vec<Vec<Vec<Vec<usize>>>>;

/// The fields of a batch that are read here, one entry for each sequence.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Batch {
    logp: Vec<Vec<f32>>,
    old_logp: Vec<Vec<f32>>,
    ref_logp: Vec<Vec<f32>>,
    entropy: Vec<Vec<f32>>,
    mask: Vec<Vec<u8>>,
    advantage: Vec<f64>,
    reward: Vec<Value>,
    group: Vec<u64>,
    source: Vec<String>,
    prefix: Vec<usize>,
    logits: Option<Value>,
}

impl Batch {
    fn is_teacher(&self, sequence: usize) -> bool {
        self.source.get(sequence).is_some_and(|source| source == "teacher")
    }
}

/// Where all rollouts beside a teacher have one reward, none of the group has an advantage.
const FAILED_REST: &str = "adv/teacher-out-std/failed";

/// One call that a case makes.
struct Call {
    cut: String,
    /// 0, or 1 for the second call of a law.
    number: usize,
    batch: Value,
    steps: Steps,
}

/// Why a call has no numbers.
enum NoAnswer {
    /// This trainer has no such loss.
    Missing(String),
    /// The input is refused.
    Refused(String),
}

#[expect(clippy::print_stderr, reason = "a program says why it ends")]
fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [folder] = arguments.as_slice() else {
        eprintln!("usage: lossproof-hapo FOLDER, with cases/ and batches/ in it");
        return ExitCode::from(2);
    };
    match answers(Path::new(folder)).and_then(|lines| print(&lines)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn print(lines: &[Value]) -> Result<()> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    Ok(out.flush()?)
}

fn answers(folder: &Path) -> Result<Vec<Value>> {
    let mut paths = Vec::new();
    collect(&folder.join("cases"), &mut paths)?;
    paths.sort();
    anyhow::ensure!(!paths.is_empty(), "{}: no cases", folder.join("cases").display());
    // The declarations that `lossproof run --answers` reads: the registered variants that are meant.
    let mut lines = vec![json!({ "definitions": { FAILED_REST: "all-zero" } })];
    for path in paths {
        let case = read(&path)?;
        for call in calls(&case, folder).with_context(|| path.display().to_string())? {
            let mut line = match answer(&case, &call) {
                Ok(answer) => answer,
                Err(NoAnswer::Missing(reason)) => json!({ "n/a": reason }),
                Err(NoAnswer::Refused(reason)) => json!({ "refused": reason }),
            };
            let key = json!({ "id": case["id"], "cut": call.cut, "call": call.number });
            replace(&mut line, &key);
            lines.push(line);
        }
    }
    Ok(lines)
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, paths)?;
        } else if path.extension().is_some_and(|ending| ending == "json") {
            paths.push(path);
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let value: Value = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    anyhow::ensure!(value.is_object(), "{}: expected an object", path.display());
    Ok(value)
}

/// A field of a case.
fn field<T: DeserializeOwned>(value: &Value, name: &str) -> Result<T> {
    serde_json::from_value(value.clone()).with_context(|| name.to_owned())
}

/// The calls of a case: one for each cut, or the two that a law compares.
fn calls(case: &Value, folder: &Path) -> Result<Vec<Call>> {
    let mut batch = match case["batch"].as_str() {
        Some(name) => read(&folder.join(format!("batches/{name}.json")))?,
        None => case["batch"].clone(),
    };
    anyhow::ensure!(batch.is_object(), "batch: expected a name or an object");
    replace(&mut batch, &case["with"]);
    let cuts: BTreeMap<String, Steps> = match &case["cuts"] {
        Value::Null => BTreeMap::from([("-".to_owned(), Steps::new())]),
        cuts => field(cuts, "cuts")?,
    };
    let pair = &case["pair"];
    let or_cut = |steps: &Value, cut: &Steps| match steps {
        Value::Null => Ok(cut.clone()),
        steps => field(steps, "pair"),
    };
    let mut calls = Vec::new();
    for (cut, steps) in cuts {
        let first = or_cut(&pair["cut"]["steps"], &steps)?;
        calls.push(Call { cut: cut.clone(), number: 0, batch: batch.clone(), steps: first });
        if !pair.is_null() {
            let second = or_cut(&pair["steps"], &steps)?;
            calls.push(Call { cut, number: 1, batch: paired(&batch, pair)?, steps: second });
        }
    }
    Ok(calls)
}

/// The batch of a law's second call.
fn paired(batch: &Value, pair: &Value) -> Result<Value> {
    let mut batch = batch.clone();
    if !pair["select"].is_null() {
        let select: Vec<usize> = field(&pair["select"], "pair.select")?;
        for rows in batch.as_object_mut().into_iter().flat_map(|fields| fields.values_mut()) {
            if rows.is_array() {
                *rows = select.iter().map(|sequence| rows[*sequence].clone()).collect();
            }
        }
    }
    replace(&mut batch, &pair["with"]);
    Ok(batch)
}

fn replace(fields: &mut Value, by: &Value) {
    for (name, value) in by.as_object().into_iter().flatten() {
        fields[name] = value.clone();
    }
}

fn answer(case: &Value, call: &Call) -> Result<Value, NoAnswer> {
    let kind = case["kind"].as_str().unwrap_or_default();
    if !["advantage", "loss", "law"].contains(&kind) {
        return missing(format!("no {kind}"));
    }
    if !case["pair"]["layout"].is_null() {
        return missing("a batch has no padding");
    }
    let batch: Batch = parsed(&call.batch)?;
    if batch.logits.is_some() {
        return missing("the loss takes log-probabilities");
    }
    if kind == "advantage" {
        return group_advantages(&parsed(&case["hyper"])?, &batch);
    }
    Objective::new(&parsed(&case["hyper"])?)?.answer(&batch, &call.steps)
}

fn missing<T>(reason: impl Into<String>) -> Result<T, NoAnswer> {
    Err(NoAnswer::Missing(reason.into()))
}

fn refused<T>(reason: String) -> Result<T, NoAnswer> {
    Err(NoAnswer::Refused(reason))
}

fn parsed<T: DeserializeOwned>(value: &Value) -> Result<T, NoAnswer> {
    serde_json::from_value(value.clone()).map_err(|error| NoAnswer::Missing(error.to_string()))
}

/// How a case's advantages are computed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    baseline: Baseline,
    std: Option<Value>,
    teacher_in_mean: Option<bool>,
    /// A response without a token in the loss stays in its group's mean.
    untrainable_in_mean: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Baseline {
    Mean,
}

fn group_advantages(rule: &Rule, batch: &Batch) -> Result<Value, NoAnswer> {
    let Baseline::Mean = rule.baseline;
    if rule.untrainable_in_mean == Some(false) {
        return missing("every member is in the mean");
    }
    let rows = batch.reward.len();
    if batch.group.len() != rows || ![0, rows].contains(&batch.source.len()) {
        return refused("group, source: expected one entry for each reward".to_owned());
    }
    let mut groups: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (row, group) in batch.group.iter().enumerate() {
        groups.entry(*group).or_default().push(row);
    }
    let mut result = vec![0.0; rows];
    for rows in groups.values() {
        let rewards = rows.iter().map(|row| number(&batch.reward[*row], *row));
        let group = as_sampled(rewards.collect::<Result<_, _>>()?);
        let advantages = advantages_among(&group, rule.std.is_some(), |member| {
            let is_teacher = |index: usize| batch.is_teacher(rows[index]);
            rule.teacher_in_mean != Some(false)
                || !member.sampled().is_some_and(|sampled| is_teacher(sampled.index))
        });
        for (row, advantage) in rows.iter().zip(advantages) {
            result[*row] = advantage;
        }
    }
    Ok(json!({ "advantage": result }))
}

fn number(reward: &Value, row: usize) -> Result<f64, NoAnswer> {
    match reward.as_f64() {
        Some(reward) => Ok(reward),
        None => refused(format!("reward of row {row}: expected a finite number, got {reward}")),
    }
}

/// A group of these rewards that no gate changes.
fn as_sampled(rewards: Vec<f64>) -> MixedGroup {
    let n = rewards.len();
    let sampled = SampledGroup::new(PromptId(0), n, vec![Rollout::default(); n]);
    let graded = rewards.into_iter().map(|reward| (reward, Verdict::Wrong)).collect();
    let slot = Slot { rule: SlotRule::LowestReward, seed: 0, step: Step(1) };
    apply_gate(sampled.score_with_rewards(graded, f64::INFINITY), None, SuccessLimit::CLOSED, slot)
}
