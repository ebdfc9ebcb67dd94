//! The bf16 copy that decoding may read: the same bits where it is exact, reported where it is not.

mod support;

use hapo_kernels::Cpu;
use hapo_model::{KvCache, Model, Packed};
use hapo_testing::reference::{expected, gap};
use support::model;

/// Logits of reading four prompts and of three more tokens after each.
fn sampled(model: &Model<Cpu>, name: &str) -> Vec<f32> {
    let mut cache = KvCache::new(model, 2048).unwrap();
    let cases = expected(name);
    let prompts: Vec<&[u32]> = cases.iter().map(|it| &it.tokens[..]).collect();
    let mut read = model.prefill(&mut cache, &prompts).unwrap();
    let mut rows: Vec<_> = (read.slots.iter().cycle().take(3 * prompts.len()))
        .map(|slot| (cache.fork(*slot, 8).unwrap(), 5))
        .collect();
    let mut logits = Vec::new();
    for step in 0..3 {
        model.decode(&mut cache, &rows, &mut logits).unwrap();
        read.logits.extend_from_slice(&logits);
        for (i, (_, token)) in rows.iter_mut().enumerate() {
            *token = (7 * i + 3 * step) as u32;
        }
    }
    read.logits
}

#[test]
fn a_folder_in_bf16_decodes_to_the_same_bits_from_the_copy() {
    let name = "tiny-qwen2-bf16-sharded";
    for threads in [1, 2] {
        let mut model = model(name, threads);
        assert_eq!(model.packed(), Packed::No);
        let plain = sampled(&model, name);
        assert_eq!(model.pack_exact().unwrap(), Packed::Exact);
        assert!(sampled(&model, name) == plain);
    }
}

#[test]
fn other_weights_are_rounded_only_when_asked_to() {
    let name = "tiny-qwen3";
    let mut model = model(name, 2);
    let plain = sampled(&model, name);
    assert_eq!(model.pack_exact().unwrap(), Packed::No);
    assert_eq!(model.pack_rounded().unwrap(), Packed::Rounded);
    let rounded = sampled(&model, name);
    let gap = gap(&rounded, &plain);
    assert!(gap > 0.0 && gap < 0.1, "{gap}");
}

#[test]
fn changed_weights_are_not_read_from_an_old_copy() {
    let name = "tiny-qwen2-bf16-sharded";
    let mut model = model(name, 2);
    model.pack_exact().unwrap();
    let norm = vec![0.0; model.config().hidden];
    model.set_tensor("model.norm.weight", &norm).unwrap();
    assert_eq!(model.packed(), Packed::No);
    model.pack_exact().unwrap();
    let flat = model.params().as_slice().to_vec();
    model.set_params(&flat);
    assert_eq!(model.packed(), Packed::No);
    model.pack_exact().unwrap();
    let _ = model.params_mut();
    assert_eq!(model.packed(), Packed::No);
}
