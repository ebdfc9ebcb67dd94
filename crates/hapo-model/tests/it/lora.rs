//! Adapters against PEFT's recorded numbers, their folders, and frozen weights beside them.

use std::path::{Path, PathBuf};

use crate::support::MODELS;
use hapo_kernels::{AdamW, Compute, Cpu, multiplies_bf16};
use hapo_model::folder::{AdapterNote, open_adapter, write_adapter};
use hapo_model::{
    ActivationCheckpointing, KvCache, LoadedModel, LoraShape, Model, Moments, Outputs, PackedBatch,
    Projection, Tape,
};
use hapo_testing::reference::decode;
use hapo_testing::reference::{gap, ids, json, tensors};
use hapo_testing::{fixtures, model_dir};
use serde_json::Value;

fn adapter_dir(name: &str) -> PathBuf {
    fixtures().join("lora").join(name)
}

fn frozen(name: &str, threads: usize) -> LoadedModel<Cpu> {
    hapo_model::load_frozen(&model_dir(name), Cpu::new(threads).unwrap(), |_| 256).unwrap()
}

/// A reference model with its recorded adapter beside it.
fn adapted(name: &str, threads: usize) -> Model<Cpu> {
    let LoadedModel { mut model, fingerprint, .. } = frozen(name, threads);
    open_adapter(&adapter_dir(name)).unwrap().add_to(&mut model, &fingerprint).unwrap();
    model
}

fn sequences(case: &Value) -> (PackedBatch, Vec<f64>) {
    let mut batch = PackedBatch::default();
    let mut weights = Vec::new();
    for it in case["sequences"].as_array().unwrap() {
        let prompt = batch.push(&ids(&it["prompt"]), None);
        batch.push_response(prompt, &ids(&it["response"]), 1.0);
        weights.extend(it["weights"].as_array().unwrap().iter().map(|it| it.as_f64().unwrap()));
    }
    (batch, weights)
}

/// Forward, the recorded loss and its derivatives.
fn forward(model: &Model<Cpu>, tape: &mut Tape<Cpu>, case: &Value) -> (Outputs, f64, Vec<f32>) {
    let (batch, weights) = sequences(case);
    let out = tape.forward(model, &batch).unwrap();
    let tokens = weights.len() as f64;
    let terms = weights.iter().zip(&out.log_probs).map(|(w, it)| -w * f64::from(*it) / tokens);
    let loss = terms.sum();
    (out, loss, weights.iter().map(|w| (-w / tokens) as f32).collect())
}

fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |most, it| most.max(it.abs()))
}

fn check_reference(name: &str, checkpointing: ActivationCheckpointing) {
    let mut model = adapted(name, 2);
    let case = json(&adapter_dir(name).join("expected.json"));
    let recorded = tensors(&adapter_dir(name).join("expected.safetensors"));
    let mut tape = Tape::new(checkpointing).with_logit_bytes(384 * 4 * 12);
    let logits = tape.logits(&model, &ids(&case["text"])).unwrap();
    let off = gap(&logits, &recorded["logits"]);
    assert!(off < 1e-4, "{name}: logits off by {off}");
    let mut gradients = model.gradients().unwrap();
    let mut moments = Moments::new(&model).unwrap();
    for (step, want) in case["steps"].as_array().unwrap().iter().enumerate() {
        let (out, loss, slopes) = forward(&model, &mut tape, &case);
        if step == 0 {
            let all: Vec<f32> =
                (0..3).flat_map(|i| recorded[&format!("logprobs.{i}")].clone()).collect();
            assert!(gap(&out.log_probs, &all) < 1e-4, "{name}: log-probabilities");
        }
        let expected = want["loss"].as_f64().unwrap();
        assert!((loss - expected).abs() < 2e-6 * expected.abs(), "{name}: {loss}, PEFT {expected}");
        gradients.clear();
        let zeros = vec![0.0; slopes.len()];
        tape.backward(&model, &slopes, &zeros, &mut gradients).unwrap();
        let norm = model.gradient_norms(&gradients).iter().sum::<f64>().sqrt();
        let expected = want["grad_norm"].as_f64().unwrap();
        assert!((norm - expected).abs() < 1e-5 * expected, "{name}: {norm}, PEFT {expected}");
        let specs = model.adapter().unwrap().tensors(model.config());
        for spec in &specs {
            let ours = model.published(gradients.buf(), &spec.name).unwrap();
            let theirs = &recorded[&format!("grad{step}.{}", spec.name)];
            let off = gap(&ours, theirs);
            assert!(off <= 2e-5 * largest(theirs) + 1e-7, "{name}, {}: {off}", spec.name);
        }
        let adamw = AdamW {
            learning_rate: 1e-3,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.01,
            step: step as u64 + 1,
            gradient_scale: (1.0 / (norm + 1e-6)).min(1.0),
        };
        moments.adamw(&mut model, adamw, &gradients);
        for spec in &specs {
            let off = gap(
                &model.tensor(&spec.name).unwrap(),
                &recorded[&format!("after{step}.{}", spec.name)],
            );
            // The whole step is 1e-3; a gradient near AdamW's ε feels its own rounding.
            assert!(off < 1e-5, "{name}, {} after step {step}: {off}", spec.name);
        }
    }
}

#[test]
fn logits_losses_gradients_and_two_steps_are_those_of_peft() {
    for name in MODELS {
        check_reference(name, ActivationCheckpointing::None);
        check_reference(name, ActivationCheckpointing::Layers);
    }
}

#[test]
fn gradients_are_finite_differences_of_the_loss() {
    for name in MODELS {
        let mut model = adapted(name, 1);
        let case = json(&adapter_dir(name).join("expected.json"));
        let mut tape = Tape::new(hapo_model::ActivationCheckpointing::None);
        let (_, _, slopes) = forward(&model, &mut tape, &case);
        let mut gradients = model.gradients().unwrap();
        let zeros = vec![0.0; slopes.len()];
        tape.backward(&model, &slopes, &zeros, &mut gradients).unwrap();
        for spec in model.adapter().unwrap().tensors(model.config()) {
            let gradient = model.published(gradients.buf(), &spec.name).unwrap();
            let norm = gradient.iter().map(|it| f64::from(*it).powi(2)).sum::<f64>().sqrt();
            // Along the gradient the loss changes by its norm, and f32 sees the change.
            let at = model.tensor(&spec.name).unwrap();
            let step = 4e-3;
            let mut loss_at = |sign: f64| {
                let moved = at.iter().zip(&gradient);
                let moved = moved.map(|(w, g)| w + (sign * step * f64::from(*g) / norm) as f32);
                model.set_tensor(&spec.name, &moved.collect::<Vec<_>>()).unwrap();
                forward(&model, &mut tape, &case).1
            };
            let slope = (loss_at(1.0) - loss_at(-1.0)) / (2.0 * step);
            model.set_tensor(&spec.name, &at).unwrap();
            let off = (slope - norm).abs();
            assert!(off < 2e-3 * norm + 2e-4, "{name}, {}: {slope} and {norm}", spec.name);
        }
    }
}

fn rank_of(rank: usize) -> LoraShape {
    LoraShape { rank, alpha: 3.0, rslora: false, targets: Projection::ALL.to_vec() }
}

/// An adapter of any rank with numbers of its own.
fn filled(name: &str, threads: usize, rank: usize) -> Model<Cpu> {
    let mut model = frozen(name, threads).model;
    model.add_adapter(rank_of(rank)).unwrap();
    for spec in rank_of(rank).tensors(model.config()) {
        let n = spec.shape.iter().product::<usize>();
        let values: Vec<f32> =
            (0..n).map(|i| ((i * 37 + spec.name.len() * 11) % 101) as f32 / 700.0 - 0.07).collect();
        model.set_tensor(&spec.name, &values).unwrap();
    }
    model
}

#[test]
fn what_is_sampled_has_the_bits_of_what_is_trained() {
    for name in MODELS {
        for rank in [1, 2, 3, 16] {
            let model = filled(name, 2, rank);
            let tokens: Vec<u32> = (0..150).map(|i| (i * 37 + 11) % 380).collect();
            let vocabulary = model.config().vocab_size;
            let whole = Tape::new(hapo_model::ActivationCheckpointing::None)
                .logits(&model, &tokens)
                .unwrap();
            let mut cache = KvCache::new(&model, 512).unwrap();
            let prompt = cache.prefill(&model, &[&tokens[..100]]).unwrap();
            assert_eq!(prompt.logits, whole[99 * vocabulary..100 * vocabulary], "{name}, {rank}");
            let slots = [32, 64, 32, 32, 32].map(|n| cache.fork(prompt.slots[0], n).unwrap());
            let mut logits = Vec::new();
            for (i, &token) in tokens.iter().enumerate().skip(100) {
                let rows: Vec<_> = if i < 120 {
                    slots.iter().map(|slot| (*slot, token)).collect()
                } else {
                    vec![(slots[1], token)]
                };
                decode(&mut cache, &model, &rows, &mut logits).unwrap();
                for row in logits.chunks(vocabulary) {
                    assert_eq!(row, &whole[i * vocabulary..(i + 1) * vocabulary], "{name}, {rank}");
                }
            }
        }
    }
}

#[test]
fn threads_change_no_bit_and_the_base_stays_as_it_is() {
    for name in ["tiny-qwen2", "tiny-qwen2-bf16-sharded"] {
        let case = json(&adapter_dir(name).join("expected.json"));
        let run = |threads| {
            let mut model = adapted(name, threads);
            let base = |model: &Model<Cpu>| {
                let mut all = vec![0.0; model.layout().len()];
                model.read_weights(0, &mut all);
                all
            };
            let before = base(&model);
            let (mut tape, mut gradients) =
                (Tape::new(hapo_model::ActivationCheckpointing::None), model.gradients().unwrap());
            let mut moments = Moments::new(&model).unwrap();
            let (_, loss, slopes) = forward(&model, &mut tape, &case);
            let zeros = vec![0.0; slopes.len()];
            tape.backward(&model, &slopes, &zeros, &mut gradients).unwrap();
            let step = AdamW {
                learning_rate: 1e-2,
                beta1: 0.9,
                beta2: 0.999,
                epsilon: 1e-8,
                weight_decay: 0.1,
                step: 1,
                gradient_scale: 1.0,
            };
            moments.adamw(&mut model, step, &gradients);
            let same = before.iter().zip(base(&model)).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{name}: the base has moved");
            let mut trained = vec![0.0; model.trained_len()];
            model.read_trained(0, &mut trained);
            (loss, trained)
        };
        assert_eq!(run(1), run(3), "{name}");
    }
}

#[test]
fn bf16_weights_are_held_in_bf16_alone_and_computed_with_the_same_bits() {
    let name = "tiny-qwen2-bf16-sharded";
    let model = adapted(name, 1);
    let adapter = model.trained_layout().parameters() * 4;
    let bytes = model.bytes() - adapter - 4 * model.positions() * model.config().head_dim;
    let parameters: usize =
        model.config().tensors().iter().map(|it| it.shape.iter().product::<usize>()).sum();
    assert!(bytes < parameters * 2 + 8192, "{bytes} bytes of {parameters} parameters");
    let loaded = hapo_model::load(&model_dir(name), Cpu::new(1).unwrap(), |_| 256).unwrap();
    let mut wide = loaded.model;
    for spec in model.config().tensors() {
        assert_eq!(model.tensor(&spec.name).unwrap(), wide.tensor(&spec.name).unwrap());
    }
    open_adapter(&adapter_dir(name)).unwrap().add_to(&mut wide, &loaded.fingerprint).unwrap();
    let tokens: Vec<u32> = (0..90).map(|i| (i * 37 + 11) % 380).collect();
    let logits = |it: &Model<Cpu>| {
        Tape::new(hapo_model::ActivationCheckpointing::None).logits(it, &tokens).unwrap()
    };
    assert_eq!(logits(&model), logits(&wide));
}

#[test]
fn a_merged_model_is_the_model_with_its_adapter() {
    for name in MODELS {
        let loaded = hapo_model::load(&model_dir(name), Cpu::new(1).unwrap(), |_| 256).unwrap();
        let mut model = loaded.model;
        open_adapter(&adapter_dir(name)).unwrap().add_to(&mut model, &loaded.fingerprint).unwrap();
        let case = json(&adapter_dir(name).join("expected.json"));
        let recorded = tensors(&adapter_dir(name).join("expected.safetensors"));
        model.merge_adapter().unwrap();
        assert!(model.adapter().is_none());
        let logits = Tape::new(hapo_model::ActivationCheckpointing::None)
            .logits(&model, &ids(&case["text"]))
            .unwrap();
        let off = gap(&logits, &recorded["logits"]);
        assert!(off < 1e-4, "{name}: {off}");
    }
    let refused = adapted("tiny-qwen2-bf16-sharded", 1).merge_adapter().unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the weights are held in bf16 alone and take no sum with an adapter"
    );
}

#[test]
fn an_adapter_merges_into_the_same_weights_whatever_products_round_to() {
    if !multiplies_bf16() {
        return;
    }
    for name in MODELS {
        let merged = |compute| {
            let cpu = Cpu::computing(2, compute).unwrap();
            let loaded = hapo_model::load(&model_dir(name), cpu, |_| 256).unwrap();
            let mut model = loaded.model;
            let adapter = open_adapter(&adapter_dir(name)).unwrap();
            adapter.add_to(&mut model, &loaded.fingerprint).unwrap();
            model.merge_adapter().unwrap();
            let mut all = vec![0.0; model.trained_len()];
            model.read_trained(0, &mut all);
            all
        };
        assert_eq!(merged(Compute::Bf16), merged(Compute::F32), "{name}");
    }
}

#[test]
fn a_written_folder_holds_what_pefts_own_does() {
    for name in MODELS {
        let LoadedModel { mut model, fingerprint, .. } = frozen(name, 1);
        let theirs = open_adapter(&adapter_dir(name)).unwrap();
        theirs.add_to(&mut model, &fingerprint).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let note = AdapterNote { base: "the/base", folder: "a", fingerprint: &fingerprint };
        write_adapter(folder.path(), &model, note, &[("tokenizer.json", b"{}".to_vec())]).unwrap();
        let file = |dir: &Path| tensors(&dir.join("adapter_model.safetensors"));
        assert_eq!(file(folder.path()), file(&adapter_dir(name)), "{name}");
        let (ours, peft) = (
            json(&folder.path().join("adapter_config.json")),
            json(&adapter_dir(name).join("adapter_config.json")),
        );
        for (key, value) in ours.as_object().unwrap() {
            match key.as_str() {
                "base_model_name_or_path" => assert_eq!(value, "the/base"),
                // PEFT writes "all-linear" as the whole name of every matrix.
                "target_modules" => {
                    assert_eq!(value.as_array().unwrap().len(), theirs.shape.targets.len());
                }
                _ => assert_eq!(value, &peft[key], "{key}"),
            }
        }
        let again = open_adapter(folder.path()).unwrap();
        assert_eq!(again.shape, theirs.shape);
        again.check(model.config(), &fingerprint).unwrap();
        let refused = again.check(model.config(), "0123456789abcdef").unwrap_err().to_string();
        assert!(refused.contains(&format!("one of {fingerprint} (the/base)")), "{refused}");
    }
}

/// A copy of the adapter of tiny-qwen2.
fn copied() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["adapter_config.json", "adapter_model.safetensors"] {
        std::fs::copy(adapter_dir("tiny-qwen2").join(name), folder.path().join(name)).unwrap();
    }
    folder
}

/// The error on opening and checking a changed copy.
fn refusal(change: impl FnOnce(&Path)) -> String {
    let folder = copied();
    change(folder.path());
    let LoadedModel { mut model, fingerprint, .. } = frozen("tiny-qwen2", 1);
    let added = open_adapter(folder.path()).and_then(|it| it.add_to(&mut model, &fingerprint));
    let refused = added.unwrap_err();
    assert!(refused.is_bad_input());
    refused.to_string().replace(&folder.path().display().to_string(), "ADAPTER")
}

fn set(folder: &Path, key: &str, value: Value) {
    let file = folder.join("adapter_config.json");
    let mut fields = json(&file);
    fields[key] = value;
    std::fs::write(file, fields.to_string()).unwrap();
}

#[test]
fn initialisations_that_change_the_base_are_refused() {
    let opened = |value: Value| {
        let folder = copied();
        set(folder.path(), "init_lora_weights", value);
        open_adapter(folder.path()).map(drop)
    };
    // PEFT 0.21.2, src/peft/tuners/lora/layer.py: what `update_layer` writes into the base layer.
    for changing in ["pissa", "pissa_niter_4", "olora", "corda", "loftq", "lora_ga", "another"] {
        let refused = opened(changing.into()).unwrap_err();
        let text = refused.to_string();
        let expected = format!(
            "expected true, false, \"gaussian\", \"eva\" or \"orthogonal\", got \"{changing}\" ("
        );
        assert!(text.starts_with(&expected), "{text}");
        assert!(text.ends_with("adapter_config.json: init_lora_weights)"), "{text}");
        assert!(refused.how_to_mend().unwrap().to_string().contains("merge_and_unload"));
    }
    for plain in [
        Value::Null,
        true.into(),
        false.into(),
        "gaussian".into(),
        "eva".into(),
        "orthogonal".into(),
    ] {
        opened(plain).unwrap();
    }
}

#[test]
fn bad_adapters_are_refused_by_name() {
    let first = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
    let weights = |folder: &Path| folder.join("adapter_model.safetensors");
    for (key, value, expected) in [
        (
            "peft_type",
            Value::from("IA3"),
            "expected \"LORA\", got \"IA3\" (ADAPTER/adapter_config.json: peft_type)",
        ),
        (
            "use_dora",
            true.into(),
            "expected plain LoRA without it, got true (ADAPTER/adapter_config.json: use_dora)",
        ),
        (
            "bias",
            "all".into(),
            "expected \"none\", got \"all\" (ADAPTER/adapter_config.json: bias)",
        ),
        ("r", 0.into(), "expected a rank from 1 to 65536, got 0 (ADAPTER/adapter_config.json: r)"),
        (
            "lora_alpha",
            "8".into(),
            "expected a number, got \"8\" (ADAPTER/adapter_config.json: lora_alpha)",
        ),
    ] {
        assert_eq!(refusal(|it| set(it, key, value)), expected);
    }
    let text = refusal(|it| set(it, "target_modules", serde_json::json!(["q_proj", "lm_head"])));
    assert!(
        text.ends_with(
            "got [\"q_proj\",\"lm_head\"] (ADAPTER/adapter_config.json: target_modules)"
        ),
        "{text}"
    );
    let text = refusal(|it| set(it, "r", 8.into()));
    assert_eq!(
        text,
        format!(
            "expected a tensor of shape [8, 64], got [4, 64] (ADAPTER/adapter_model.safetensors: {first})"
        )
    );
    let text = refusal(|it| set(it, "target_modules", serde_json::json!(["q_proj"])));
    assert!(
        text.starts_with("expected no such tensor, got one (ADAPTER/adapter_model.safetensors: "),
        "{text}"
    );
    let text = refusal(|it| {
        std::fs::copy(weights(&adapter_dir("tiny-qwen3")), weights(it)).map(drop).unwrap();
    });
    assert!(text.contains("layers.0.self_attn.q_proj.lora_A.weight"), "{text}");
    let text = refusal(|it| {
        let bytes = std::fs::read(weights(it)).unwrap();
        std::fs::write(weights(it), &bytes[..bytes.len() - 7]).unwrap();
    });
    assert!(text.contains("ADAPTER/adapter_model.safetensors"), "{text}");
    let text = refusal(|it| {
        let mut bytes = std::fs::read(weights(it)).unwrap();
        let end = bytes.len();
        bytes[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
        std::fs::write(weights(it), &bytes).unwrap();
    });
    assert!(text.starts_with("expected finite numbers, got NaN at position"), "{text}");
    let text = refusal(|it| std::fs::remove_file(weights(it)).unwrap());
    assert!(text.starts_with("cannot open ADAPTER/adapter_model.safetensors"), "{text}");
    let text =
        hapo_model::load(&adapter_dir("tiny-qwen2"), Cpu::new(1).unwrap(), |_| 8).unwrap_err();
    assert!(text.to_string().starts_with("expected a model, got an adapter of one"), "{text}");
}
