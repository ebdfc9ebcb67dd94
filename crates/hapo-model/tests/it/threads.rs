//! Bits do not depend on the number of threads, nor on how a batch is packed; bad input is refused.

use crate::support::{computes, computing, model};
use hapo_kernels::{AdamW, Compute, Cpu};
use hapo_model::{
    ActivationCheckpointing, CacheFull, KvCache, Model, Moments, PackedBatch, Segment, Tape, Target,
};
use hapo_testing::reference::decode;
use hapo_testing::reference::{expected, gap};

fn batch(name: &str) -> PackedBatch {
    let mut batch = PackedBatch::default();
    let cases = expected(name);
    let prompt = batch.push(&cases[2].tokens, None);
    for i in 0..5 {
        let response: Vec<u32> = (0..7 + 9 * i).map(|j| (j * 31 + i) % 380).collect();
        batch.push_response(prompt, &response, 1.25);
    }
    let other = batch.push(&cases[3].tokens, None);
    batch.push_response(other, &cases[1].tokens, 1.0);
    batch
}

/// Two optimiser steps; all bits of the parameters and of the intermediate values.
fn train(
    name: &str,
    (threads, compute): (usize, Compute),
    recompute: ActivationCheckpointing,
) -> (Vec<u32>, Vec<u32>) {
    let mut model = computing(name, threads, compute);
    let batch = batch(name);
    let mut tape = Tape::new(recompute);
    let mut gradients = model.gradients().unwrap();
    let mut moments = Moments::new(&model).unwrap();
    let mut seen = Vec::new();
    for step in 1..=2 {
        let out = tape.forward(&model, &batch).unwrap();
        let d: Vec<f32> = (0..out.log_probs.len()).map(|i| (i % 7) as f32 - 3.0).collect();
        let e: Vec<f32> = d.iter().map(|d| 0.01 * d).collect();
        gradients.clear();
        tape.backward(&model, &d, &e, &mut gradients).unwrap();
        let norm = model.gradient_norms(&gradients).iter().sum::<f64>().sqrt();
        let step = AdamW {
            learning_rate: 1e-3,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.01,
            step,
            gradient_scale: 1.0 / norm,
        };
        moments.adamw(&mut model, step, &gradients);
        seen.extend(out.log_probs.iter().chain(&out.entropies).map(|v| v.to_bits()));
    }
    let mut params = vec![0.0; model.trained_len()];
    model.read_trained(0, &mut params);
    (seen, params.iter().map(|v| v.to_bits()).collect())
}

#[test]
fn training_has_the_same_bits_on_any_number_of_threads() {
    let all = computes().flat_map(|it| ["tiny-qwen2", "tiny-qwen3"].map(|name| (name, it)));
    for (name, compute) in all {
        let train = |threads, recompute| train(name, (threads, compute), recompute);
        let one = train(1, ActivationCheckpointing::None);
        for threads in [2, 3, 5] {
            assert!(one == train(threads, ActivationCheckpointing::None), "{threads}");
        }
        assert!(one == train(2, ActivationCheckpointing::Layers), "recomputed");
    }
}

#[test]
fn gradients_of_two_batches_add_up() {
    let model = model("tiny-llama3", 2);
    let mut tape = Tape::new(hapo_model::ActivationCheckpointing::None);
    let (mut both, mut twice) = (model.gradients().unwrap(), model.gradients().unwrap());
    let batch = batch("tiny-llama3");
    let n = tape.forward(&model, &batch).unwrap().log_probs.len();
    let (d, zero) = (vec![0.5; n], vec![0.0; n]);
    tape.backward(&model, &d, &zero, &mut both).unwrap();
    tape.forward(&model, &batch).unwrap();
    tape.backward(&model, &d, &zero, &mut both).unwrap();
    tape.forward(&model, &batch).unwrap();
    let d = vec![1.0; n];
    tape.backward(&model, &d, &zero, &mut twice).unwrap();
    for p in model.layout().params() {
        let a = model.published(both.buf(), &p.name).unwrap();
        let b = model.published(twice.buf(), &p.name).unwrap();
        let scale = b.iter().fold(0.0_f32, |m, v| m.max(v.abs()));
        assert!(gap(&a, &b) <= 1e-5 * scale, "{}", p.name);
    }
}

#[test]
fn tensors_survive_the_way_in_and_out() {
    for compute in computes() {
        assert_tensors_survive(Cpu::computing(1, compute).unwrap());
    }
}

fn assert_tensors_survive(cpu: Cpu) {
    let mut model = Model::new(cpu, model("tiny-qwen3", 1).config().clone(), 64).unwrap();
    for p in model.layout().params().to_vec() {
        let values: Vec<f32> = (0..p.len).map(|i| i as f32 + 0.5).collect();
        model.set_tensor(&p.name, &values).unwrap();
        assert_eq!(model.tensor(&p.name).unwrap(), values);
        let short = model.set_tensor(&p.name, &values[1..]).unwrap_err().to_string();
        let (name, len) = (&p.name, p.len);
        assert_eq!(short, format!("tensor {name}: expected {len} elements, got {}", len - 1));
    }
    let unknown = model.tensor("model.nothing").unwrap_err();
    assert_eq!(unknown.to_string(), "unknown tensor model.nothing");
    // Padding stays zero.
    let used: usize = model.layout().params().iter().map(|p| p.len).sum();
    let mut all = vec![0.0; model.trained_len()];
    model.read_trained(0, &mut all);
    assert_eq!(used, all.iter().filter(|v| **v != 0.0).count());
    assert!(all.len() >= used);
}

#[test]
fn bad_batches_are_refused_by_name() {
    let model = model("tiny-qwen2", 1);
    let mut tape = Tape::new(hapo_model::ActivationCheckpointing::None);
    let mut refuse = |batch: PackedBatch, want: &str| {
        let error = tape.forward(&model, &batch).unwrap_err().to_string();
        assert_eq!(error, want);
    };
    refuse(PackedBatch::default(), "batch is empty");
    let good = || {
        let mut b = PackedBatch::default();
        b.push(&[1, 2, 3], None);
        b.push(&[4], Some(0));
        b
    };
    let mut b = good();
    b.tokens[2] = 384;
    refuse(b, "token 384 at row 2: the vocabulary has 384");
    let mut b = good();
    b.segments[1].len = 2;
    refuse(b, "segment 1: its length is zero or reaches beyond the batch");
    let mut b = good();
    b.segments[1].start = usize::MAX;
    refuse(b, "segment 1: it does not start where the one before ends");
    let mut b = good();
    b.segments[0].prefix = Some(1);
    refuse(b, "segment 0: its prefix does not come before it");
    let mut b = good();
    b.push(&[5], Some(1));
    refuse(b, "segment 2: its prefix has a prefix");
    let mut b = good();
    b.tokens.push(0);
    refuse(b, "segment 2: the segments end before the batch does");
    let mut b = good();
    b.segments.push(Segment { start: 4, len: 0, prefix: None });
    refuse(b, "segment 2: its length is zero or reaches beyond the batch");
    let mut b = PackedBatch::default();
    b.push(&[1; 300], None);
    b.push(&[1; 213], Some(0));
    refuse(b, "a sequence of 513 tokens, the model was opened for 512");
    let target = |row, token, inverse_temperature| Target { row, token, inverse_temperature };
    for (target, problem) in [
        (target(4, 0, 1.0), "its row is outside the batch"),
        (target(0, 384, 1.0), "its token is outside the vocabulary"),
        (target(0, 0, 0.0), "its inverse temperature is not a positive number"),
        (target(0, 0, f32::NAN), "its inverse temperature is not a positive number"),
    ] {
        let mut b = good();
        b.targets.push(target);
        refuse(b, &format!("target 0: {problem}"));
    }
    let mut gradients = model.gradients().unwrap();
    let mut tape = Tape::new(hapo_model::ActivationCheckpointing::None);
    let refused = tape.backward(&model, &[], &[], &mut gradients).unwrap_err();
    assert_eq!(refused.to_string(), "the tape holds no forward pass");
    tape.forward(&model, &good()).unwrap();
    let gradients = tape.backward(&model, &[1.0], &[], &mut gradients).unwrap_err();
    assert_eq!(gradients.to_string(), "log-probabilities: expected 0 gradients, got 1");
}

#[test]
fn a_full_cache_refuses_and_released_pages_are_used_again() {
    let model = model("tiny-qwen2", 2);
    let mut cache = KvCache::new(&model, 180).unwrap();
    assert_eq!(cache.capacity(), 192);
    let prompt = cache.prefill(&model, &[&[1, 2, 3]]).unwrap().slots[0];
    let a = cache.fork(prompt, 66).unwrap();
    let b = cache.fork(prompt, 32).unwrap();
    // A sequence takes its page with its first token.
    assert_eq!((cache.free_tokens(), cache.growth([a, b]).unwrap()), (128, 128));
    let long = vec![1; 65];
    let full = cache.prefill(&model, &[&[1], &long]).unwrap_err();
    assert_eq!(full.cause(), Some(&CacheFull { needed: 65, free: 64, capacity: 192 }));
    assert_eq!(cache.free_tokens(), 128);
    let mut logits = Vec::new();
    let twice = decode(&mut cache, &model, &[(a, 1), (a, 2)], &mut logits).unwrap_err();
    assert_eq!(twice.to_string(), "sequence slot 0 appears twice in one step");
    let unknown = decode(&mut cache, &model, &[(a, 384)], &mut logits).unwrap_err();
    assert_eq!(unknown.to_string(), "token 384 at row 0: the vocabulary has 384");
    decode(&mut cache, &model, &[(a, 1), (b, 2)], &mut logits).unwrap();
    let first = logits.clone();
    cache.release(a).unwrap();
    let released = "sequence slot 0 is not in use";
    assert_eq!(cache.release(a).unwrap_err().to_string(), released);
    let decoded = decode(&mut cache, &model, &[(a, 1)], &mut logits).unwrap_err();
    assert_eq!(decoded.to_string(), released);
    // The same page, the same numbers.
    let c = cache.fork(prompt, 65).unwrap();
    decode(&mut cache, &model, &[(c, 1)], &mut logits).unwrap();
    assert_eq!(logits, first[..logits.len()]);
    for _ in 0..63 {
        decode(&mut cache, &model, &[(c, 1)], &mut logits).unwrap();
    }
    // Its second page is missing; its first stays.
    let full = decode(&mut cache, &model, &[(c, 1)], &mut logits).unwrap_err();
    assert_eq!(full.cause(), Some(&CacheFull { needed: 64, free: 0, capacity: 192 }));
    cache.release(b).unwrap();
    decode(&mut cache, &model, &[(c, 1)], &mut logits).unwrap();
    let full = decode(&mut cache, &model, &[(c, 1)], &mut logits).unwrap_err();
    assert_eq!(full.to_string(), "sequence slot 2 has all of its 65 tokens");
    cache.release_prompt(prompt).unwrap();
    assert_eq!(cache.fork(prompt, 1).unwrap_err().to_string(), "prompt slot 0 is not in use");
    cache.release(c).unwrap();
    assert_eq!(cache.free_tokens(), 192);
    assert_eq!(cache.prefill(&model, &[&[]]).unwrap_err().to_string(), "prompt is empty");
}

/// Tokens that are read again at once leave the keys, the values and the logits that decoding them one by one left,
/// over several pages and with any number of threads.
#[test]
fn a_sequence_that_is_read_again_goes_on_with_the_same_bits() {
    for name in ["tiny-qwen2", "tiny-qwen3", "tiny-llama3"] {
        let model = model(name, 2);
        let prompt: Vec<u32> = (0..71).map(|i| (i * 53 + 7) % 380).collect();
        let tokens: Vec<u32> = (0..150).map(|i| (i * 37 + 11) % 380).collect();
        let mut cache = KvCache::new(&model, 2048).unwrap();
        let slot = cache.prefill(&model, &[&prompt]).unwrap().slots[0];
        let decoded = cache.fork(slot, 200).unwrap();
        let mut expected = Vec::new();
        for &token in &tokens {
            decode(&mut cache, &model, &[(decoded, token)], &mut expected).unwrap();
        }
        for most in [usize::MAX, 37] {
            let again = cache.fork(slot, 200).unwrap();
            let mut done = 0;
            while done + 1 < tokens.len() {
                let rest = &tokens[done..tokens.len() - 1];
                done += cache.reread(&model, again, rest, most).unwrap();
            }
            let mut logits = Vec::new();
            decode(&mut cache, &model, &[(again, tokens[149])], &mut logits).unwrap();
            assert!(logits == expected, "{name}, {most} at once");
            cache.release(again).unwrap();
        }
    }
}
