//! The small reference models and the values that `transformers` recorded of them: logits, log-probabilities, entropies
//! and greedy continuations.

use std::collections::BTreeMap;
use std::path::Path;

use hapo_core::Refusal;
use hapo_kernels::Device;
use hapo_model::{KvCache, Model, NextToken, Outputs, PackedBatch, SeqSlot, Tape, Target};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use crate::model_dir;

/// A reference model with 512 positions.
pub fn load<D: Device>(name: &str, device: D) -> Model<D> {
    hapo_model::load(&model_dir(name), device, |_| 512).unwrap().model
}

/// A JSON file.
pub fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The token ids of a JSON array.
pub fn ids(value: &Value) -> Vec<u32> {
    let ids = value.as_array().unwrap().iter();
    ids.map(|it| it.as_u64().unwrap() as u32).collect()
}

/// All tensors of a file in f32 or bf16.
pub fn tensors(path: &Path) -> BTreeMap<String, Vec<f32>> {
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let values = |view: &safetensors::tensor::TensorView<'_>| match view.dtype() {
        Dtype::F32 => {
            let chunks = view.data().chunks_exact(4);
            let values = chunks.map(|b| f32::from_le_bytes(b.try_into().unwrap()));
            values.collect()
        }
        Dtype::BF16 => {
            let chunks = view.data().chunks_exact(2);
            let values = chunks.map(|b| half::bf16::from_le_bytes(b.try_into().unwrap()));
            values.map(half::bf16::to_f32).collect()
        }
        other => panic!("{other:?} in {}", path.display()),
    };
    let tensors = file.tensors().into_iter();
    tensors.map(|(name, view)| (name, values(&view))).collect()
}

/// A prompt of `expected.json` with its recorded numbers.
#[derive(Debug)]
pub struct Expected {
    /// The prompt.
    pub tokens: Vec<u32>,
    /// Its greedy continuation.
    pub greedy: Vec<u32>,
    /// Logits `[tokens, vocabulary]`.
    pub logits: Vec<f32>,
    /// Log-probability of each token but the first.
    pub log_probs: Vec<f32>,
    /// Entropy of the distribution after each token.
    pub entropies: Vec<f32>,
}

/// The recorded prompts of a reference model.
pub fn expected(name: &str) -> Vec<Expected> {
    let folder = model_dir(name);
    let mut numbers = tensors(&folder.join("expected.safetensors"));
    let mut number = |i: usize, kind: &str| numbers.remove(&format!("{i}.{kind}")).unwrap();
    let cases = json(&folder.join("expected.json"));
    let cases = cases.as_array().unwrap().iter().enumerate();
    cases
        .map(|(i, case)| Expected {
            tokens: ids(&case["input_ids"]),
            greedy: ids(&case["greedy"]),
            logits: number(i, "logits"),
            log_probs: number(i, "logprobs"),
            entropies: number(i, "entropy"),
        })
        .collect()
}

/// Asserts that the logits are the recorded ones up to `tolerance`.
pub fn assert_logits<D: Device>(model: &Model<D>, name: &str, tape: &mut Tape<D>, tolerance: f32) {
    for case in expected(name) {
        let logits = tape.logits(model, &case.tokens).unwrap();
        let gap = gap(&logits, &case.logits);
        assert!(gap < tolerance, "{name}, {} tokens: {gap}", case.tokens.len());
    }
}

/// Asserts that log-probabilities and entropies are the recorded ones up to `tolerance`.
pub fn assert_outputs<D: Device>(
    model: &Model<D>,
    name: &str,
    tape: &mut Tape<D>,
    tolerance: f32,
) -> Vec<Outputs> {
    let check = |case: Expected| {
        let mut batch = PackedBatch::default();
        batch.push(&case.tokens, None);
        let target = |row: usize| Target {
            row,
            token: case.tokens.get(row + 1).copied().unwrap_or(0),
            inverse_temperature: 1.0,
        };
        batch.targets = (0..case.tokens.len()).map(target).collect();
        let outputs = tape.forward(model, &batch).unwrap();
        let last = case.tokens.len() - 1;
        assert!(gap(&outputs.log_probs[..last], &case.log_probs) < tolerance, "{name}");
        assert!(gap(&outputs.entropies, &case.entropies) < tolerance, "{name}");
        outputs
    };
    expected(name).into_iter().map(check).collect()
}

/// Feeds one token to each sequence: the logits that follow, `[rows, vocabulary]`.
pub fn decode<D: Device>(
    cache: &mut KvCache<D>,
    model: &Model<D>,
    rows: &[(SeqSlot, u32)],
    logits: &mut Vec<f32>,
) -> Result<(), Refusal> {
    let next = cache.decode_next(model, rows, &vec![None; rows.len()], 1)?;
    logits.clear();
    for it in next {
        let NextToken::Logits(row) = it else { unreachable!("no draw was wanted") };
        logits.extend(row);
    }
    Ok(())
}

/// Asserts that all prompts, decoded together, are continued greedily as recorded.
pub fn assert_greedy<D: Device>(model: &Model<D>, name: &str) {
    let vocabulary = model.config().vocab_size;
    let mut cache = KvCache::new(model, 1024).unwrap();
    let cases = expected(name);
    let prompts: Vec<&[u32]> = cases.iter().map(|it| &it.tokens[..]).collect();
    let prefill = cache.prefill(model, &prompts).unwrap();
    let mut sequences = Vec::new();
    for (i, (case, &slot)) in cases.iter().zip(&prefill.slots).enumerate() {
        let first = argmax(&prefill.logits[i * vocabulary..(i + 1) * vocabulary]);
        let sequence = cache.fork(slot, case.greedy.len()).unwrap();
        sequences.push((sequence, vec![first], i));
    }
    let mut logits = Vec::new();
    while !sequences.is_empty() {
        let rows: Vec<_> =
            sequences.iter().map(|(slot, tokens, _)| (*slot, *tokens.last().unwrap())).collect();
        decode(&mut cache, model, &rows, &mut logits).unwrap();
        for ((_, tokens, _), row) in sequences.iter_mut().zip(logits.chunks(vocabulary)) {
            tokens.push(argmax(row));
        }
        sequences.retain(|(slot, tokens, i)| {
            let done = tokens.len() >= cases[*i].greedy.len();
            if done {
                assert_eq!(tokens, &cases[*i].greedy, "{name}, prompt {i}");
                cache.release(*slot).unwrap();
            }
            !done
        });
    }
}

/// Largest absolute difference.
pub fn gap(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let gaps = a.iter().zip(b).map(|(x, y)| (x - y).abs());
    gaps.fold(0.0, |most, it| {
        assert!(it.is_finite());
        f32::max(most, it)
    })
}

/// The index of the largest value; the lowest on ties.
pub fn argmax(row: &[f32]) -> u32 {
    (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b]).then(b.cmp(&a))).unwrap() as u32
}
