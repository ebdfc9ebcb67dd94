//! The recorded cases of `conformance/` through the trainer: one optimiser step on a one-layer model in which every token
//! has a row of logits of its own, and the change of the weights. Only this sees a dropped micro-batch or a scale between
//! the loss and the update. `HAPO_CONFORMANCE_ANSWERS=FILE` writes the answers as `lossproof run --answers` reads them.

use std::collections::BTreeMap;
use std::path::Path;

use hapo_core::{
    Clip, ImportanceRatioLevel, Loss, Normaliser, NormaliserKind, Span, Term, operator,
};
use hapo_kernels::{AdamW, Cpu};
use hapo_model::{ActivationCheckpointing, Config, Decoder, Model, Rope};
use hapo_train::pack::{Sequence, TokenGroup, pack};
use hapo_train::{Batching, Trainer};
use serde_json::{Value, json};

const HIDDEN: usize = 64;
/// Of the gradient: large, so that the change is not rounded away.
const SCALE: f64 = 1e6;

fn batches_of(micro_batch_tokens: usize) -> Batching {
    Batching { micro_batch_tokens, inverse_temperature: 1.0 }
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn rows(value: &Value) -> Vec<Vec<f64>> {
    serde_json::from_value(value.clone()).unwrap()
}

/// Every case with its batch filled in, in the order of their paths.
fn cases(folder: &Path) -> Vec<Value> {
    let mut cases = Vec::new();
    let mut folders = vec![folder.join("cases")];
    while let Some(at) = folders.pop() {
        for entry in std::fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let mut case = json(&path);
            if let Some(name) = case["batch"].as_str() {
                case["batch"] = json(&folder.join(format!("batches/{name}.json")));
            }
            for (name, value) in case["with"].as_object().cloned().into_iter().flatten() {
                case["batch"][name] = value;
            }
            cases.push(case);
        }
    }
    cases.sort_by_key(|case| case["id"].to_string());
    cases
}

/// The loss of a case; none where its terms need what a table of logits cannot give.
fn loss_of(case: &Value) -> Option<Loss> {
    let known =
        ["surrogate", "aggregate", "clip_low", "clip_high", "length", "teacher", "d"].as_slice();
    let hyper = case["hyper"].as_object()?;
    let is_plain = case["kind"] == "loss"
        && case.get("layout").is_none()
        && case.get("planted").is_none()
        && hyper.keys().all(|key| known.contains(&key.as_str()))
        && case["batch"].get("logits").is_none()
        && rows(&case["batch"]["mask"]).concat().iter().all(|kept| *kept == 1.0)
        && rows(&case["batch"]["logp"]).iter().all(|row| !row.is_empty())
        && hyper.get("teacher").is_none_or(|teacher| teacher == "luffy");
    let length = case["hyper"]["length"].as_u64().unwrap_or(12) as usize;
    let normaliser = match case["hyper"]["aggregate"].as_str()? {
        "token-mean" => Normaliser::TOKEN_MEAN,
        "seq-mean-token-mean" => NormaliserKind::SequenceMean.of(0),
        "seq-mean-token-sum-norm" => NormaliserKind::Constant.of(length),
        "seq-mean-token-sum" => NormaliserKind::Constant.of(1),
        _ => return None,
    };
    let level = match case["hyper"]["surrogate"].as_str()? {
        "gspo" => ImportanceRatioLevel::Sequence,
        "ppo" | "nll" => ImportanceRatioLevel::Token,
        _ => return None,
    };
    let bound = |name: &str| case["hyper"][name].as_f64().unwrap_or(f64::INFINITY);
    let clip = Clip { low: bound("clip_low"), high: bound("clip_high") };
    is_plain.then(|| Loss { clip, importance_ratio_level: level, ..Loss::new(normaliser) })
}

/// A token's own row of logits, and its id.
#[derive(Clone, Copy)]
struct Place {
    state: u32,
    id: u32,
}

/// Where each token of a batch lies: a sequence's prompt is one token, and every token has an id of its own.
fn places(log_probs: &[Vec<f64>]) -> Vec<Vec<Place>> {
    let mut next = 0;
    let place = |state: &mut u32| {
        *state += 1;
        Place { state: *state - 1, id: *state }
    };
    log_probs
        .iter()
        .map(|row| {
            let places = row.iter().map(|_| place(&mut next)).collect();
            next += 1;
            places
        })
        .collect()
}

/// The last norm's value for a one-hot embedding.
fn normed() -> f64 {
    1.0 / (1.0 / HIDDEN as f64 + f64::from(config().rms_eps)).sqrt()
}

fn config() -> Config {
    Config {
        family: "qwen2",
        vocab_size: HIDDEN,
        hidden: HIDDEN,
        layers: 1,
        heads: 1,
        kv_heads: 1,
        head_dim: HIDDEN,
        ffn: HIDDEN,
        rms_eps: 1e-6,
        decoder: Decoder::plain(Rope::of(10_000.0)),
        tied: false,
        max_positions: HIDDEN,
        eos: vec![0],
        bos: None,
        pad: None,
    }
}

/// One layer that adds nothing between an embedding of one-hot rows and a head whose columns are the tokens' logits:
/// log p at the token, and log((1 − p)/(V − 1)) elsewhere.
fn model(log_probs: &[Vec<f64>]) -> Model<Cpu> {
    let mut model = Model::new(Cpu::new(1).unwrap(), config(), HIDDEN).unwrap();
    let mut embedding = vec![0.0; HIDDEN * HIDDEN];
    (0..HIDDEN).for_each(|state| embedding[state * HIDDEN + state] = 1.0);
    let mut head = vec![0.0; HIDDEN * HIDDEN];
    for (row, places) in log_probs.iter().zip(places(log_probs)) {
        for (log_prob, at) in row.iter().zip(places) {
            let others = (-log_prob.exp_m1() / (HIDDEN - 1) as f64).ln();
            for id in 0..HIDDEN {
                let logit = if id == at.id as usize { *log_prob } else { others };
                head[id * HIDDEN + at.state as usize] = (logit / normed()) as f32;
            }
        }
    }
    model.set_tensor("model.embed_tokens.weight", &embedding).unwrap();
    model.set_tensor("model.norm.weight", &[1.0; HIDDEN]).unwrap();
    model.set_tensor("lm_head.weight", &head).unwrap();
    model
}

fn group(case: &Value, row: usize) -> TokenGroup {
    let places = &places(&rows(&case["batch"]["logp"]))[row];
    let is_taught =
        !case["hyper"]["teacher"].is_null() && case["batch"]["source"][row] == "teacher";
    let advantage = case["batch"]["advantage"][row].as_f64().unwrap_or(0.0);
    let taught = |name, weight| Term::Teacher {
        weight,
        operator: operator(name).unwrap(),
        d: case["hyper"]["d"].as_f64().unwrap_or(0.1),
    };
    let term = match case["hyper"]["surrogate"].as_str() {
        Some("nll") => taught("srft", 1.0),
        _ if is_taught => taught("luffy", advantage),
        _ => Term::policy(advantage),
    };
    let old: Vec<f32> = rows(&case["batch"]["old_logp"])[row].iter().map(|x| *x as f32).collect();
    let spans = vec![Span::new(0..places.len(), term)];
    let response = places.iter().map(|place| place.id).collect();
    TokenGroup {
        prompts: vec![vec![places[0].state]],
        sequences: vec![Sequence::new(response, old, spans)],
        has_signal: true,
    }
}

/// The budget of tokens by which the groups, in this order, fall into these micro-batches.
fn budget(groups: &[TokenGroup], micro_batches: &[Vec<usize>]) -> Option<usize> {
    let wanted: Vec<usize> = micro_batches.iter().map(Vec::len).collect();
    (1..HIDDEN).find(|budget| {
        let packed = pack(groups, batches_of(*budget), |_, _| true);
        packed.iter().map(|micro_batch| micro_batch.spans.len()).eq(wanted.iter().copied())
    })
}

/// The change of the weights over the optimiser steps of a cut, as a gradient by log-probabilities.
fn slopes(case: &Value, loss: &Loss, steps: &[Vec<Vec<Vec<usize>>>]) -> Option<Vec<Vec<f64>>> {
    let log_probs = rows(&case["batch"]["logp"]);
    let mut trainer = Trainer::new(model(&log_probs), ActivationCheckpointing::None).unwrap();
    let before = trainer.model.tensor("lm_head.weight").unwrap();
    for ranks in steps {
        let [micro_batches] = &ranks[..] else { return None };
        let groups: Vec<TokenGroup> =
            micro_batches.concat().iter().map(|row| group(case, *row)).collect();
        let micro_batch_tokens = budget(&groups, micro_batches)?;
        let batching = Batching { micro_batch_tokens, inverse_temperature: 1.0 };
        trainer.gradient(loss, &groups, batching).unwrap();
        let norm = trainer.gradient_norm().unwrap();
        // With ε far above the gradient an update is plain SGD.
        let settings = AdamW {
            learning_rate: SCALE * 1e12,
            beta1: 0.0,
            beta2: 0.0,
            epsilon: 1e12,
            weight_decay: 0.0,
            step: 0,
            gradient_scale: 1.0,
        };
        trainer.apply(settings, norm, f64::INFINITY).unwrap();
    }
    let after = trainer.model.tensor("lm_head.weight").unwrap();
    let slope = |log_prob: &f64, at: Place| {
        // Of the logits of the other ids, whose derivatives sum to −(1 − p) times the token's.
        let others = (0..HIDDEN).filter(|id| *id != at.id as usize);
        let moved = others.map(|id| id * HIDDEN + at.state as usize);
        let change: f64 = moved.map(|at| f64::from(after[at]) - f64::from(before[at])).sum();
        change / (SCALE * normed() * -log_prob.exp_m1())
    };
    let rows = log_probs.iter().zip(places(&log_probs));
    Some(rows.map(|(row, at)| row.iter().zip(at).map(|(x, at)| slope(x, at)).collect()).collect())
}

/// |got − expected| / |expected|.
fn error(got: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(got.len(), expected.len());
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let gap = norm(&mut got.iter().zip(expected).map(|(got, expected)| got - expected));
    gap / norm(&mut expected.iter().copied())
}

#[test]
fn one_step_moves_the_weights_by_the_recorded_gradient_under_every_cut() {
    let mut answers = Vec::new();
    let mut held = BTreeMap::new();
    for case in cases(&hapo_testing::repository("conformance")) {
        let Some(loss) = loss_of(&case) else { continue };
        let cuts: BTreeMap<String, Vec<Vec<Vec<Vec<usize>>>>> =
            serde_json::from_value(case["cuts"].clone()).unwrap();
        for (cut, steps) in cuts {
            let Some(grad) = slopes(&case, &loss, &steps) else { continue };
            let error = error(&grad.concat(), &rows(&case["expect"]["grad"]).concat());
            assert!(error <= 1e-6, "{} [{cut}]: {error}", case["id"]);
            answers.push(json!({ "id": case["id"], "cut": cut, "grad": grad }).to_string());
            *held.entry(case["id"].to_string()).or_insert(0) += 1;
        }
    }
    if let Some(path) = std::env::var_os("HAPO_CONFORMANCE_ANSWERS") {
        std::fs::write(path, answers.join("\n")).unwrap();
    }
    assert_eq!((held.len(), answers.len()), (18, 101), "{held:#?}");
}
