//! One tiny model of each family against what transformers computes with it (`testdata/fixtures/make_families.py`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hapo_kernels::{AdamW, Cpu};
use hapo_model::folder::{self, Layout};
use hapo_model::{
    ActivationCheckpointing, FAMILIES, KvCache, Model, Moments, PackedBatch, Tape, Target,
};
use hapo_testing::fixtures;
use hapo_testing::reference::{argmax, gap, tensors};

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
        println!("| {family} | {} |", all.map(|it| format!("{it:.1e}")).join(" | "));
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
            cache.decode(&model, &[(sequence, *want)], &mut decoded).unwrap();
        }
        let vocabulary = model.config().vocab_size;
        let trained = Tape::default().logits(&model, &text).unwrap();
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
        folder::write(&to, &opened.config, &layout, |spec| {
            opened.tensor(&spec.name).unwrap().unwrap()
        })
        .unwrap();
        assert_eq!(folder::open(&to).unwrap().config, opened.config, "{family}");
        let file = "model.safetensors";
        assert_eq!(tensors(&to.join(file)), tensors(&dir(family).join(file)), "{family}");
    }
}
