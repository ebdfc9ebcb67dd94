//! One tiny model of each family against what transformers computes with it (`testdata/fixtures/make_families.py`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hapo_kernels::{AdamW, Compute, Counting, Cpu, DeviceCaps};
use hapo_model::folder::{self, Layout};
use hapo_model::{
    ActivationCheckpointing, FAMILIES, KvCache, LoraShape, Model, Moments, PackedBatch, Projection,
    Tape, Target, config_json,
};
use hapo_testing::fixtures;
use hapo_testing::reference::decode;
use hapo_testing::reference::{argmax, gap, json, tensors};
use serde_json::{Value, json};

/// The families that are recorded here; the others are in `reference.rs`.
fn recorded() -> impl Iterator<Item = &'static str> {
    let elsewhere = ["qwen2", "qwen3", "llama"];
    FAMILIES.iter().map(|it| it.name).filter(move |it| !elsewhere.contains(it))
}

fn dir(family: &str) -> PathBuf {
    fixtures().join("families").join(family)
}

fn load(dir: &Path, context: usize) -> Model<Cpu> {
    hapo_model::load(dir, Cpu::new(2).unwrap(), |_| context).unwrap().model
}

/// The recorded numbers of a family.
struct Expected {
    tokens: Vec<u32>,
    greedy: Vec<u32>,
    numbers: BTreeMap<String, Vec<f32>>,
}

fn expected(family: &str) -> Expected {
    let mut numbers = tensors(&dir(family).join("expected.safetensors"));
    let mut ids = |name: &str| -> Vec<u32> {
        numbers.remove(name).unwrap().iter().map(|it| *it as u32).collect()
    };
    let (tokens, greedy) = (ids("tokens"), ids("greedy"));
    Expected { tokens, greedy, numbers }
}

/// The largest difference as a share of the largest expected value.
fn error(got: &[f32], want: &[f32]) -> f32 {
    gap(got, want) / want.iter().fold(f32::MIN_POSITIVE, |most, it| most.max(it.abs()))
}

/// Each token after the first, predicted.
fn batch_of(tokens: &[u32]) -> PackedBatch {
    let mut batch = PackedBatch::default();
    batch.push(tokens, None);
    let target = |row: usize| Target { row, token: tokens[row + 1], inverse_temperature: 1.0 };
    batch.targets = (0..tokens.len() - 1).map(target).collect();
    batch
}

#[test]
fn logits_losses_gradients_and_steps_are_those_of_transformers() {
    for family in recorded() {
        let Expected { tokens, numbers, .. } = expected(family);
        let mut model = load(&dir(family), 256);
        let mut tape = Tape::new(ActivationCheckpointing::None);
        let of_logits = error(&tape.logits(&model, &tokens).unwrap(), &numbers["logits"]);
        let short = load(&dir(family), 64);
        let of_short =
            error(&tape.logits(&short, &tokens[..40]).unwrap(), &numbers["short.logits"]);
        let batch = batch_of(&tokens);
        let mut gradients = model.gradients().unwrap();
        let mut moments = Moments::new(&model).unwrap();
        let count = batch.targets.len();
        let (mut of_losses, mut of_gradients, mut of_steps) = (Vec::new(), 0.0_f32, 0.0_f32);
        for step in 1..=3 {
            let out = tape.forward(&model, &batch).unwrap();
            let sum: f64 = out.log_probs.iter().map(|it| f64::from(*it)).sum();
            of_losses.push((-sum / count as f64) as f32);
            let (down, zero) = (vec![-1.0 / count as f32; count], vec![0.0; count]);
            gradients.clear();
            tape.backward(&model, &down, &zero, &mut gradients).unwrap();
            for (name, want) in numbers.iter().filter(|_| step == 1) {
                let Some(name) = name.strip_prefix("grad.") else { continue };
                let got = in_file_order(&model, name, |name| {
                    model.published(gradients.buf(), name).unwrap()
                });
                of_gradients = of_gradients.max(error(&got, want));
            }
            let settings = AdamW {
                learning_rate: 1e-3,
                beta1: 0.9,
                beta2: 0.999,
                epsilon: 1e-4,
                weight_decay: 0.01,
                step,
                gradient_scale: 1.0,
            };
            moments.adamw(&mut model, settings, &gradients);
        }
        let mut seen = 0;
        for (name, want) in &numbers {
            let Some(name) = name.strip_prefix("after.") else { continue };
            let got = in_file_order(&model, name, |name| model.tensor(name).unwrap());
            of_steps = of_steps.max(error(&got, want));
            seen += 1;
        }
        assert!(seen > 25, "{family}: {seen} tensors");
        let of_losses = error(&of_losses, &numbers["loss"]);
        let all = [of_logits, of_short, of_losses, of_gradients, of_steps];
        assert!(all.iter().all(|it| *it <= 1e-5), "{family}: {all:?}");
    }
}

/// A tensor of the file, which may be several of the model's.
fn in_file_order(model: &Model<Cpu>, name: &str, read: impl Fn(&str) -> Vec<f32>) -> Vec<f32> {
    let fused = [
        ("qkv_proj", &["q_proj", "k_proj", "v_proj"][..]),
        ("gate_up_proj", &["gate_proj", "up_proj"]),
    ];
    match fused.iter().find(|(fused, _)| name.contains(fused)) {
        Some((fused, parts)) => {
            assert!(model.config().decoder.is_fused, "{name}");
            parts.iter().flat_map(|part| read(&name.replace(fused, part))).collect()
        }
        None => read(name),
    }
}

/// The greedy tokens through the cache, and the bits of training for all of them: the prompt read whole and in pieces.
#[test]
fn decoding_has_the_tokens_of_transformers_and_the_bits_of_training() {
    for family in recorded() {
        let Expected { tokens, greedy, .. } = expected(family);
        let model = load(&dir(family), 256);
        let mut cache = KvCache::new(&model, 512).unwrap();
        let whole = cache.prefill(&model, &[&tokens]).unwrap();
        let mut partial = cache.begin_prefill(&model, &tokens).unwrap();
        let mut pieces = None;
        while pieces.is_none() {
            pieces = cache.continue_prefill(&model, &mut partial, 13).unwrap();
        }
        let (slot, logits) = pieces.unwrap();
        assert_eq!(logits, whole.logits, "{family}: pieces change no bits");
        let sequence = cache.fork(slot, 64).unwrap();
        let mut text = tokens.clone();
        let mut decoded = logits;
        let mut all = Vec::new();
        for want in &greedy {
            assert_eq!(argmax(&decoded), *want, "{family} after {} tokens", text.len());
            all.extend_from_slice(&decoded);
            text.push(*want);
            decode(&mut cache, &model, &[(sequence, *want)], &mut decoded).unwrap();
        }
        let vocabulary = model.config().vocab_size;
        let trained =
            Tape::new(hapo_model::ActivationCheckpointing::None).logits(&model, &text).unwrap();
        let from = (tokens.len() - 1) * vocabulary;
        assert!(trained[from..from + all.len()] == all, "{family}: the sampler's gap");
    }
}

/// What is written is what was read: transformers' names, every tensor, every field.
#[test]
fn folders_are_written_as_they_were_read() {
    for family in recorded() {
        let opened = folder::open(&dir(family)).unwrap();
        let out = tempfile::tempdir().unwrap();
        let to = out.path().join("model");
        let layout = Layout { dtype: hapo_model::Dtype::F32, ..Layout::default() };
        folder::write(&to, &opened.config, &layout, |spec| Ok(opened.tensor(&spec.name)?.unwrap()))
            .unwrap();
        assert_eq!(folder::open(&to).unwrap().config, opened.config, "{family}");
        let file = "model.safetensors";
        assert_eq!(tensors(&to.join(file)), tensors(&dir(family).join(file)), "{family}");
    }
}

/// The pairs of an adapter act as their product added to the weights would.
#[test]
fn adapters_of_every_family_merge() {
    for family in recorded() {
        let Expected { tokens, .. } = expected(family);
        let mut model = load(&dir(family), 256);
        let all =
            LoraShape { rank: 2, alpha: 4.0, rslora: false, targets: Projection::ALL.to_vec() };
        let shape = if model.config().decoder.is_fused {
            let refused = model.add_adapter(all.clone()).unwrap_err().to_string();
            let expected = "lora: q_proj is a part of a larger matrix in this family's folders";
            assert_eq!(refused, expected);
            LoraShape { targets: vec![Projection::O, Projection::Down], ..all }
        } else {
            all
        };
        let plain =
            Tape::new(hapo_model::ActivationCheckpointing::None).logits(&model, &tokens).unwrap();
        model.add_adapter(shape.clone()).unwrap();
        for spec in shape.tensors(model.config()) {
            let n: usize = spec.shape.iter().product();
            let values: Vec<f32> = (0..n).map(|i| (i * 37 % 101) as f32 / 1010.0 - 0.05).collect();
            model.set_tensor(&spec.name, &values).unwrap();
        }
        let beside =
            Tape::new(hapo_model::ActivationCheckpointing::None).logits(&model, &tokens).unwrap();
        model.merge_adapter().unwrap();
        let merged =
            Tape::new(hapo_model::ActivationCheckpointing::None).logits(&model, &tokens).unwrap();
        assert!(error(&beside, &merged) < 1e-5, "{family}: {}", error(&beside, &merged));
        assert!(error(&plain, &merged) > 1e-2, "{family}: the adapter acts");
    }
}

#[test]
fn families_that_have_not_run_on_a_gpu_are_refused_there() {
    for family in recorded() {
        let config = folder::open(&dir(family)).unwrap().config;
        let gpu = Counting::new(DeviceCaps::gpu(Compute::F32));
        let refused = Model::new(gpu, config, 64).unwrap_err().to_string();
        assert_eq!(refused, format!("{family}: this family runs on a CPU only"));
    }
}

/// The message for a family's recorded `config.json` with one field changed.
fn refusal(family: &str, field: &str, value: Value) -> String {
    let mut config = json(&dir(family).join("config.json"));
    config[field] = value;
    let text = config.to_string();
    config_json::parse(Path::new("config.json"), text.as_bytes(), None).unwrap_err().to_string()
}

#[test]
fn configs_that_contradict_themselves_are_refused_by_field() {
    let kinds = r#""full_attention" or "sliding_attention" for each of the 4 layers"#;
    let odd = json!(["sliding_attention", "full_attention", "chunked_attention", "full_attention"]);
    let cases = [
        ("mistral", "sliding_window", json!(0), "expected an integer from 1 to 2147483648, got 0 (config.json: sliding_window)".to_owned()),
        ("gemma3_text", "sliding_window", Value::Null, "expected the window of the sliding layers, got nothing (config.json: sliding_window)".to_owned()),
        ("gemma3_text", "layer_types", json!(["full_attention"]), format!(r#"expected {kinds}, got ["full_attention"] (config.json: layer_types)"#)),
        ("olmo3", "layer_types", odd, format!(r#"expected {kinds}, got "chunked_attention" (config.json: layer_types[2])"#)),
        ("smollm3", "no_rope_layers", json!([1, 0]), "expected 0 or 1 for each of the 4 layers, got [1,0] (config.json: no_rope_layers)".to_owned()),
        ("gemma3_text", "model_type", json!("mistral"), r#"expected "gemma3_text", as architectures says Gemma3ForCausalLM, got "mistral" (config.json: model_type)"#.to_owned()),
        ("gemma3_text", "final_logit_softcapping", json!(30.0), "expected no such field, as the decoder does not implement it, got 30.0 (config.json: final_logit_softcapping)".to_owned()),
        ("mistral", "logits_scaling", json!(8.0), "expected no such field, as the decoder does not implement it, got 8.0 (config.json: logits_scaling)".to_owned()),
        ("granite", "residual_multiplier", json!(-1.0), "expected a positive number, got -1 (config.json: residual_multiplier)".to_owned()),
        ("gemma3_text", "hidden_activation", json!("gelu"), r#"expected "gelu_pytorch_tanh", got "gelu" (config.json: hidden_activation)"#.to_owned()),
        ("granite", "num_local_experts", json!(4), "expected a dense model, without experts, got 4 (config.json: num_local_experts)".to_owned()),
        ("phi3", "rope_parameters", json!({"rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 0.75, "short_factor": [1.0], "long_factor": [1.0, 2.0, 3.0]}), "expected 3 numbers, one for each pair of a head, got 1 (config.json: rope_scaling.short_factor)".to_owned()),
        ("phi3", "partial_rotary_factor", json!(0.4), "expected 0.4, got 0.75 (config.json: rope_parameters.partial_rotary_factor)".to_owned()),
        ("olmo3", "rope_parameters", json!({"full_attention": {"rope_type": "default", "rope_theta": 5e5}, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}), "expected 500000, as in full layers, got 10000 (config.json: rope_parameters.sliding_attention.rope_theta)".to_owned()),
    ];
    for (family, field, value, expected) in cases {
        assert_eq!(refusal(family, field, value), expected, "{family}");
    }
}

/// A folder of a family whose tensors are not those of its configuration.
#[test]
fn missing_and_left_over_tensors_are_named() {
    let with = |family: &str, of: &str| {
        let out = tempfile::tempdir().unwrap();
        for (name, from) in [("config.json", family), ("model.safetensors", of)] {
            std::fs::copy(dir(from).join(name), out.path().join(name)).unwrap();
        }
        let refused = folder::open(out.path()).unwrap_err().to_string();
        refused.replace(out.path().to_str().unwrap(), "DIR")
    };
    for (family, of, expected) in [
        (
            "smollm3",
            "olmo2",
            "expected a tensor of shape [32], got none (DIR/model.safetensors: model.layers.0.input_layernorm.weight)",
        ),
        (
            "olmo2",
            "smollm3",
            "expected a tensor of shape [32], got none (DIR/model.safetensors: model.layers.0.self_attn.q_norm.weight)",
        ),
    ] {
        assert_eq!(with(family, of), expected);
    }
    // One layer less than the file has.
    let out = tempfile::tempdir().unwrap();
    let config = std::fs::read_to_string(dir("olmo2").join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    let layers = config["num_hidden_layers"].as_u64().unwrap() - 1;
    config["num_hidden_layers"] = layers.into();
    std::fs::write(out.path().join("config.json"), config.to_string()).unwrap();
    let weights = dir("olmo2").join("model.safetensors");
    std::fs::copy(weights, out.path().join("model.safetensors")).unwrap();
    let refused = folder::open(out.path()).unwrap_err().to_string();
    let expected = format!(
        "expected no such tensor in this architecture, got one of shape [32, 48] ({}: model.layers.{layers}.mlp.down_proj.weight)",
        out.path().join("model.safetensors").display()
    );
    assert_eq!(refused, expected);
}
