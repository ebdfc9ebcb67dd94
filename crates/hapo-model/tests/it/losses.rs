//! The nine recorded loss cases: loss, gradients, gradient norms and two `AdamW` steps of `PyTorch`.

use crate::support::model;
use hapo_kernels::AdamW;
use hapo_model::{ActivationCheckpointing, Moments, PackedBatch, Tape};
use hapo_testing::fixtures;
use hapo_testing::reference::{gap, ids, json, tensors};
use serde_json::Value;

/// One response token, with the inputs of the objective and its derivative.
struct Token {
    teacher: bool,
    advantage: f64,
    old: f64,
}

/// F(π) and dF/dlogπ of the teacher's operators, d = 0.1 (D14).
fn operator(name: &str, log_prob: f64) -> (f64, f64) {
    let d = 0.1;
    let p = log_prob.exp();
    match name {
        "luffy" => (p / (p + d), d * p / (p + d).powi(2)),
        "srft" | "none" => (log_prob, 1.0),
        "trapo" if p < d => (p / d, p / d),
        "trapo" => (1.0 + (p / d).ln(), 1.0),
        other => panic!("operator {other}"),
    }
}

/// min(r·A, clip(r)·A) and its derivative by log π.
fn clipped(log_prob: f64, token: &Token, low: f64, high: f64) -> (f64, f64) {
    let ratio = (log_prob - token.old).exp();
    let free = ratio * token.advantage;
    let bound = ratio.clamp(1.0 - low, 1.0 + high) * token.advantage;
    if free <= bound { (free, free) } else { (bound, 0.0) }
}

/// The sequences of a case, each group's prompt shared by its responses; or every sequence by itself.
fn pack(case: &Value, share: bool) -> (PackedBatch, Vec<Token>) {
    let mut batch = PackedBatch::default();
    let mut tokens = Vec::new();
    let mut prompt: Option<(u64, usize)> = None;
    for sequence in case["sequences"].as_array().unwrap() {
        let group = sequence["group"].as_u64().unwrap();
        let index = match prompt {
            Some((g, index)) if g == group && share => index,
            _ => batch.push(&ids(&sequence["prompt"]), None),
        };
        prompt = Some((group, index));
        batch.push_response(index, &ids(&sequence["response"]), 1.0);
        for old in sequence["old_logprobs"].as_array().unwrap() {
            tokens.push(Token {
                teacher: sequence["teacher"].as_bool().unwrap(),
                advantage: sequence["advantage"].as_f64().unwrap(),
                old: old.as_f64().unwrap(),
            });
        }
    }
    (batch, tokens)
}

fn close(got: f64, want: f64, relative: f64, what: &str) {
    assert!((got - want).abs() <= relative * want.abs(), "{what}: {got} instead of {want}");
}

fn check_case(case: &Value, recompute: ActivationCheckpointing, share: bool, logit_bytes: usize) {
    let number = case["case"].as_u64().unwrap();
    let what = |s: &str| format!("case {number}: {s}");
    let mut model = model("tiny-qwen2", 2);
    let (batch, tokens) = pack(case, share);
    let sequences = case["sequences"].as_array().unwrap().len() as f64;
    let z = match case["normaliser"].as_str().unwrap() {
        "token_mean" => tokens.len() as f64,
        _ => sequences * case["l_max"].as_f64().unwrap(),
    };
    let (low, high) = (case["clip_low"].as_f64().unwrap(), case["clip_high"].as_f64().unwrap());
    let entropy_coefficient = case["entropy_coef"].as_f64().unwrap();
    let name = case["operator"].as_str().unwrap();
    let mut tape = Tape::new(recompute).with_logit_bytes(logit_bytes);
    let mut gradients = model.gradients().unwrap();
    let mut moments = Moments::new(&model).unwrap();
    let recorded = tensors(&fixtures().join(format!("losses/case{number}.safetensors")));
    for (i, step) in case["steps"].as_array().unwrap().iter().enumerate() {
        let out = tape.forward(&model, &batch).unwrap();
        if i == 0 {
            let before: Vec<f32> = case["sequences"]
                .as_array()
                .unwrap()
                .iter()
                .flat_map(|s| s["logprobs_before"].as_array().unwrap())
                .map(|v| v.as_f64().unwrap() as f32)
                .collect();
            assert!(gap(&out.log_probs, &before) < 1e-5, "{}", what("log-probs"));
        }
        let mut objective = 0.0;
        let (mut d_log_probs, mut d_entropies) = (Vec::new(), Vec::new());
        for ((token, &log_prob), &entropy) in tokens.iter().zip(&out.log_probs).zip(&out.entropies)
        {
            let (value, slope) = if token.teacher {
                operator(name, f64::from(log_prob))
            } else {
                clipped(f64::from(log_prob), token, low, high)
            };
            let bonus = if token.teacher { 0.0 } else { entropy_coefficient };
            objective += value + bonus * f64::from(entropy);
            d_log_probs.push((-slope / z) as f32);
            d_entropies.push((-bonus / z) as f32);
        }
        // The slowest pairs of k's bias hardly change a score: their gradient is rounding noise, which
        // the first step of AdamW turns into moves of its own, in PyTorch as here. The second loss
        // inherits them, so a loss near zero is compared by its absolute value there.
        let loss = -objective / z;
        let want = step["loss"].as_f64().unwrap();
        let noise = if i == 0 { 0.0 } else { 2e-7 };
        assert!(
            (loss - want).abs() <= 3e-6 * want.abs() + noise,
            "{}: {loss} instead of {want}",
            what("loss")
        );
        gradients.clear();
        tape.backward(&model, &d_log_probs, &d_entropies, &mut gradients).unwrap();
        let squares = model.gradient_norms(&gradients);
        for (param, square) in model.layout().params().iter().zip(&squares) {
            let want = step["grad_norms"][&param.name].as_f64().unwrap();
            close(square.sqrt(), want, 1e-4, &what(&param.name));
        }
        let norm = squares.iter().sum::<f64>().sqrt();
        close(norm, step["grad_norm"].as_f64().unwrap(), 1e-5, &what("norm"));
        if i == 0 {
            for (key, want) in recorded.iter().filter(|(k, _)| k.starts_with("grad.")) {
                let got =
                    model.published(gradients.buf(), key.strip_prefix("grad.").unwrap()).unwrap();
                let scale = want.iter().fold(0.0_f32, |m, v| m.max(v.abs()));
                let gap = gap(&got, want);
                assert!(gap <= 1e-4 * scale + 1e-7, "{}: {gap} of {scale}", what(key));
            }
        }
        moments.adamw(
            &mut model,
            AdamW {
                learning_rate: 1e-3,
                beta1: 0.9,
                beta2: 0.999,
                epsilon: 1e-8,
                weight_decay: 0.01,
                step: i as u64 + 1,
                gradient_scale: (1.0 / (norm + 1e-6)).min(1.0),
            },
            &gradients,
        );
        for param in model.layout().params() {
            let tensor = model.tensor(&param.name).unwrap();
            let norm = tensor.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>();
            let want = step["param_norms_after"][&param.name].as_f64().unwrap();
            let noise = param.name.ends_with("k_proj.bias");
            let relative = if noise { 1e-4 } else { 1e-5 };
            close(norm.sqrt(), want, relative, &what(&param.name));
        }
        if i == 0 {
            for (key, want) in recorded.iter().filter(|(k, _)| k.starts_with("after.")) {
                let got = model.tensor(key.strip_prefix("after.").unwrap()).unwrap();
                // The whole step is 1e-3; a gradient near AdamW's ε feels its own rounding.
                let gap = gap(&got, want);
                assert!(gap < 1e-5, "{}: {gap}", what(key));
            }
        }
    }
}

fn cases() -> Vec<Value> {
    json(&fixtures().join("losses/cases.json")).as_array().unwrap().clone()
}

#[test]
fn nine_cases_with_shared_prompts() {
    let cases = cases();
    assert_eq!(cases.len(), 9);
    for case in &cases {
        check_case(case, ActivationCheckpointing::None, true, 1 << 30);
    }
}

#[test]
fn nine_cases_recomputed_in_chunks_without_sharing() {
    for case in &cases() {
        check_case(case, ActivationCheckpointing::Layers, false, 384 * 4 * 20);
    }
}
