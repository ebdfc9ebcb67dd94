//! Reads the reference folders of `testdata/fixtures` with nothing but serde and safetensors.

#![allow(
    dead_code,
    reason = "every test binary uses its own part, so no expectation holds in all"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hapo_kernels::Cpu;
use hapo_model::{Architecture, Config, Llama3Scaling, Model, Rope, rope_frequencies};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

pub(crate) const MODELS: [&str; 4] = [
    "tiny-qwen2",
    "tiny-qwen2-bf16-sharded",
    "tiny-qwen3",
    "tiny-llama3",
];

pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/fixtures")
}

pub(crate) fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

pub(crate) fn tensors(path: &Path) -> BTreeMap<String, Vec<f32>> {
    let bytes = std::fs::read(path).unwrap();
    SafeTensors::deserialize(&bytes)
        .unwrap()
        .tensors()
        .into_iter()
        .map(|(name, view)| {
            let values = match view.dtype() {
                Dtype::F32 => view
                    .data()
                    .chunks_exact(4)
                    .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
                    .collect(),
                Dtype::BF16 => view
                    .data()
                    .chunks_exact(2)
                    .map(|b| half::bf16::from_le_bytes(b.try_into().unwrap()).to_f32())
                    .collect(),
                other => panic!("{name} is {other:?}"),
            };
            (name, values)
        })
        .collect()
}

pub(crate) fn config(name: &str) -> Config {
    let c = json(&fixtures().join("models").join(name).join("config.json"));
    let n = |key: &str| c[key].as_u64().unwrap() as usize;
    let architecture = match c["model_type"].as_str().unwrap() {
        "qwen2" => Architecture::Qwen2,
        "qwen3" => Architecture::Qwen3,
        _ => Architecture::Llama,
    };
    let rope = &c["rope_parameters"];
    Config {
        architecture,
        vocab_size: n("vocab_size"),
        hidden: n("hidden_size"),
        layers: n("num_hidden_layers"),
        heads: n("num_attention_heads"),
        kv_heads: n("num_key_value_heads"),
        head_dim: c["head_dim"]
            .as_u64()
            .map_or(n("hidden_size") / n("num_attention_heads"), |d| d as usize),
        ffn: n("intermediate_size"),
        rms_eps: c["rms_norm_eps"].as_f64().unwrap() as f32,
        rope: Rope {
            theta: rope["rope_theta"].as_f64().unwrap(),
            llama3: (rope["rope_type"] == "llama3").then(|| Llama3Scaling {
                factor: rope["factor"].as_f64().unwrap(),
                low_freq_factor: rope["low_freq_factor"].as_f64().unwrap(),
                high_freq_factor: rope["high_freq_factor"].as_f64().unwrap(),
                original_max_positions: rope["original_max_position_embeddings"].as_u64().unwrap()
                    as usize,
            }),
        },
        tied: c["tie_word_embeddings"].as_bool().unwrap(),
        qkv_bias: architecture == Architecture::Qwen2,
        qk_norm: architecture == Architecture::Qwen3,
        max_positions: n("max_position_embeddings"),
        eos: Vec::new(),
        bos: None,
        pad: None,
    }
}

pub(crate) fn model(name: &str, threads: usize) -> Model<Cpu> {
    let folder = fixtures().join("models").join(name);
    let mut model = Model::new(Cpu::new(threads).unwrap(), config(name), 512).unwrap();
    let mut loaded = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap();
        if file.starts_with("model") && path.extension().is_some_and(|e| e == "safetensors") {
            for (tensor, values) in tensors(&path) {
                model.set_tensor(&tensor, &values).unwrap();
                loaded += 1;
            }
        }
    }
    assert_eq!(loaded, model.layout().params().len());
    if name.contains("bf16") {
        // The reference model was cast as a whole, `model.to(bfloat16).float()`, which rounds the
        // rotary frequencies along with the weights.
        let rounded: Vec<f32> = rope_frequencies(model.config())
            .into_iter()
            .map(|f| half::bf16::from_f32(f).to_f32())
            .collect();
        model.set_rope_frequencies(&rounded).unwrap();
    }
    model
}

/// A prompt of `expected.json` with its recorded numbers.
pub(crate) struct Expected {
    pub(crate) tokens: Vec<u32>,
    pub(crate) greedy: Vec<u32>,
    pub(crate) logits: Vec<f32>,
    pub(crate) log_probs: Vec<f32>,
    pub(crate) entropies: Vec<f32>,
}

pub(crate) fn expected(name: &str) -> Vec<Expected> {
    let folder = fixtures().join("models").join(name);
    let mut numbers = tensors(&folder.join("expected.safetensors"));
    json(&folder.join("expected.json"))
        .as_array()
        .unwrap()
        .iter()
        .enumerate()
        .map(|(i, prompt)| Expected {
            tokens: ids(&prompt["input_ids"]),
            greedy: ids(&prompt["greedy"]),
            logits: numbers.remove(&format!("{i}.logits")).unwrap(),
            log_probs: numbers.remove(&format!("{i}.logprobs")).unwrap(),
            entropies: numbers.remove(&format!("{i}.entropy")).unwrap(),
        })
        .collect()
}

pub(crate) fn ids(value: &Value) -> Vec<u32> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v.as_u64().unwrap() as u32)
        .collect()
}

/// Largest absolute difference.
pub(crate) fn gap(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(b)
        .map(|(x, y)| {
            let d = (x - y).abs();
            assert!(d.is_finite());
            d
        })
        .fold(0.0, f32::max)
}

pub(crate) fn argmax(row: &[f32]) -> u32 {
    (0..row.len())
        .max_by(|&a, &b| row[a].total_cmp(&row[b]).then(b.cmp(&a)))
        .unwrap() as u32
}
