//! Products of bf16 factors on the CPU: near the recorded numbers of f32, and the same weights underneath.

use crate::support::{MODELS, computing};
use hapo_kernels::{AdamW, Compute, Cpu, multiplies_bf16};
use hapo_model::{KvCache, Model, Moments, PackedBatch, Tape};
use hapo_testing::reference::{expected, gap};

/// Log-probabilities of the recorded tokens, and the mean of each prompt.
fn log_probs(model: &Model<Cpu>, name: &str) -> (Vec<f32>, Vec<f32>) {
    let mut tape = Tape::new(hapo_model::ActivationCheckpointing::None);
    let (mut all, mut means) = (Vec::new(), Vec::new());
    for case in expected(name) {
        let mut batch = PackedBatch::default();
        let first = batch.push(&case.tokens[..1], None);
        batch.push_response(first, &case.tokens[1..], 1.0);
        let found = tape.forward(model, &batch).unwrap().log_probs;
        means.push(found.iter().sum::<f32>() / found.len() as f32);
        all.extend(found);
    }
    (all, means)
}

/// Two percent of each log-probability and a hundredth of each loss; measured on the four models: 0.8 % and 0.002.
#[test]
fn log_probs_and_losses_are_near_those_of_f32() {
    if !multiplies_bf16() {
        return;
    }
    for name in MODELS {
        let (plain, losses) = log_probs(&computing(name, 2, Compute::F32), name);
        let (rounded, rounded_losses) = log_probs(&computing(name, 2, Compute::Bf16), name);
        assert_ne!(plain, rounded, "{name}: something was rounded");
        for (a, b) in rounded.iter().zip(&plain) {
            assert!((a - b).abs() <= 0.02 * b.abs(), "{name}: {a} and {b}");
        }
        let off = gap(&rounded_losses, &losses);
        assert!(off <= 1e-2, "{name}: {off}");
    }
}

/// The gradient of a loss by every tensor, within 3 % of its norm, and the same weights as f32 before and after.
#[test]
fn gradients_are_near_and_weights_are_exactly_those_of_f32() {
    if !multiplies_bf16() {
        return;
    }
    for name in MODELS {
        let (mut plain, mut split) =
            (computing(name, 2, Compute::F32), computing(name, 2, Compute::Bf16));
        let names: Vec<String> = plain.layout().params().iter().map(|it| it.name.clone()).collect();
        for it in &names {
            assert_eq!(split.tensor(it).unwrap(), plain.tensor(it).unwrap(), "{name}: {it}");
        }
        let mut flat = vec![0.0; plain.trained_len()];
        plain.read_trained(0, &mut flat);
        // In pieces that begin and end anywhere.
        for at in (0..flat.len()).step_by(1009) {
            let mut part = vec![f32::NAN; 1009.min(flat.len() - at)];
            split.read_trained(at, &mut part);
            assert_eq!(part, flat[at..at + part.len()], "{name}: from {at}");
        }
        let gradient = |model: &Model<Cpu>| {
            let case = &expected(name)[1];
            let mut batch = PackedBatch::default();
            let first = batch.push(&case.tokens[..1], None);
            batch.push_response(first, &case.tokens[1..], 1.0);
            let mut tape = Tape::new(hapo_model::ActivationCheckpointing::None);
            let n = tape.forward(model, &batch).unwrap().log_probs.len();
            let mut gradients = model.gradients().unwrap();
            let d = vec![-1.0 / n as f32; n];
            tape.backward(model, &d, &vec![0.0; n], &mut gradients).unwrap();
            gradients
        };
        let (a, b) = (gradient(&split), gradient(&plain));
        let norm = |it: &[f32]| it.iter().map(|it| f64::from(*it).powi(2)).sum::<f64>().sqrt();
        for it in &names {
            let (a, b) =
                (split.published(a.buf(), it).unwrap(), plain.published(b.buf(), it).unwrap());
            let off: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a - b).collect();
            // The bias of k moves all scores of a row alike: its gradient is zero but for rounding.
            if !it.ends_with("k_proj.bias") {
                assert!(
                    norm(&off) <= 0.03 * norm(&b),
                    "{name}: {it}: {} of {}",
                    norm(&off),
                    norm(&b)
                );
            }
        }
        // The same gradient moves both to the same bits.
        let step = AdamW {
            learning_rate: 1e-3,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.01,
            step: 1,
            gradient_scale: 0.7,
        };
        let (mut m, mut n) = (Moments::new(&plain).unwrap(), Moments::new(&split).unwrap());
        m.adamw(&mut plain, step, &b);
        n.adamw(&mut split, step, &b);
        for it in &names {
            assert_eq!(split.tensor(it).unwrap(), plain.tensor(it).unwrap(), "{name}: {it}");
        }
        let norms = plain.trained_squared_norms();
        for (a, b) in split.trained_squared_norms().iter().zip(norms) {
            assert!((a - b).abs() <= 1e-6 * b, "{name}: {a} and {b}");
        }
    }
}

#[test]
fn a_copy_swaps_there_and_back() {
    if !multiplies_bf16() {
        return;
    }
    for name in MODELS {
        let mut model = computing(name, 1, Compute::Bf16);
        let mut copy = model.copy_trained().unwrap();
        // A copy lacks the tails, half of a matrix's bytes.
        let numbers = model.layout().parameters() as u64;
        assert!((2 * numbers..4 * numbers).contains(&copy.bytes()), "{name}: {}", copy.bytes());
        let before = log_probs(&model, name);
        let zeros = vec![0.0; model.trained_len()];
        model.write_trained(0, &zeros);
        assert_ne!(log_probs(&model, name), before);
        model.swap_trained(&mut copy);
        assert_eq!(log_probs(&model, name), before);
        model.swap_trained(&mut copy);
        assert_ne!(log_probs(&model, name), before);
    }
}

/// A folder in bf16 decodes in f32 from its bf16 numbers on every instruction set, and sampling with bf16 products
/// stays near it.
#[test]
fn a_folder_in_bf16_is_read_as_it_is() {
    if !multiplies_bf16() {
        return;
    }
    let name = "tiny-qwen2-bf16-sharded";
    let case = &expected(name)[1];
    let logits = |model: &Model<Cpu>| {
        let mut cache = KvCache::new(model, 512).unwrap();
        cache.prefill(model, &[&case.tokens]).unwrap().logits
    };
    let mut plain = computing(name, 2, Compute::F32);
    plain.pack_for_decode().unwrap();
    let rounded = logits(&computing(name, 2, Compute::Bf16));
    let scale = rounded.iter().fold(0.0_f32, |most, it| most.max(it.abs()));
    let off = gap(&logits(&plain), &rounded);
    assert!(off > 0.0 && off <= 0.02 * scale, "{off} of {scale}");
}
