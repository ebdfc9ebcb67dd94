//! Weights prepared for decoding: the same bits, whatever the number format of the folder.

use crate::support::model;
use hapo_kernels::Cpu;
use hapo_model::{KvCache, Model};
use hapo_testing::reference::decode;
use hapo_testing::reference::expected;

/// Logits of reading four prompts and of three more tokens after each.
fn sampled(model: &Model<Cpu>, name: &str) -> Vec<f32> {
    let mut cache = KvCache::new(model, 2048).unwrap();
    let cases = expected(name);
    let prompts: Vec<&[u32]> = cases.iter().map(|it| &it.tokens[..]).collect();
    let mut read = cache.prefill(model, &prompts).unwrap();
    let mut rows: Vec<_> = (read.slots.iter().cycle().take(3 * prompts.len()))
        .map(|slot| (cache.fork(*slot, 8).unwrap(), 5))
        .collect();
    let mut logits = Vec::new();
    for step in 0..3 {
        decode(&mut cache, model, &rows, &mut logits).unwrap();
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
        let plain = sampled(&model, name);
        let before = model.bytes();
        assert!(model.pack_for_decode().unwrap());
        assert!(model.bytes() > before, "there is a copy");
        assert!(sampled(&model, name) == plain);
    }
}

/// Of one matrix that is not in bf16 there is no copy, of the others there is.
#[test]
fn a_matrix_in_bf16_is_quicker_whatever_the_others_are() {
    let name = "tiny-qwen2-bf16-sharded";
    let mut model = model(name, 2);
    let matrix = "model.layers.0.mlp.up_proj.weight";
    let mut values = model.tensor(matrix).unwrap();
    values[0] = 0.1;
    model.set_tensor(matrix, &values).unwrap();
    let (plain, before) = (sampled(&model, name), model.bytes());
    assert!(!model.pack_for_decode().unwrap());
    assert!(model.bytes() > before);
    assert!(sampled(&model, name) == plain);
}

#[test]
fn changed_weights_are_not_read_from_an_old_copy() {
    let name = "tiny-qwen2-bf16-sharded";
    let mut model = model(name, 2);
    let before = model.bytes();
    model.pack_for_decode().unwrap();
    let mut flat = vec![0.0; model.trained_len()];
    model.read_trained(0, &mut flat);
    for it in &mut flat {
        *it *= 0.5;
    }
    model.write_trained(0, &flat);
    assert_eq!(model.bytes(), before);
    let halved = sampled(&model, name);
    assert!(model.pack_for_decode().unwrap());
    assert!(sampled(&model, name) == halved);
}
