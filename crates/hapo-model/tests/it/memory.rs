//! Memory is counted by the code that takes it: on a device that counts, and on a CPU that adds up its buffers.

use crate::support::MODELS;
use hapo_kernels::{
    AdamW, Compute, Counting, Cpu, Device, Held, MemoryCounter, NumberFormat, multiplies_bf16,
};
use hapo_model::flops::forward_flops;
use hapo_model::{
    ActivationCheckpointing, Config, KvCache, LoraShape, Model, Moments, PackedBatch, Projection,
    Tape,
};
use hapo_testing::model_dir;
use hapo_testing::reference::decode;

/// A run and its memory.
#[derive(Clone, Copy)]
struct Case {
    held: Held,
    rank: usize,
    moments: NumberFormat,
    checkpointing: ActivationCheckpointing,
}

/// A model, a sampling step, a batch forward and backward, an update: the bytes that are held after each of them, and the
/// most that there were.
fn take<D: Device>(device: D, tally: &MemoryCounter, config: Config, case: Case) -> Vec<usize> {
    let mut held = Vec::new();
    let mut model = Model::held(device, config, 96, case.held).unwrap();
    held.push(tally.now());
    if case.rank > 0 {
        let targets = Projection::ALL.to_vec();
        let shape = LoraShape { rank: case.rank, alpha: 8.0, rslora: false, targets };
        model.add_adapter(shape).unwrap();
        held.push(tally.now());
    }
    let initial = model.copy_trained().unwrap();
    held.push(tally.now());
    let mut gradients = model.gradients().unwrap();
    let mut moments = Moments::held_in(case.moments, &model, 0).unwrap();
    held.push(tally.now());
    let mut cache = KvCache::new(&model, 512).unwrap();
    let read = cache.prefill(&model, &[&[1, 2, 3, 4, 5], &[1, 2, 3]]).unwrap();
    held.push(tally.now());
    let rows: Vec<_> = read.slots.iter().map(|slot| (cache.fork(*slot, 8).unwrap(), 7)).collect();
    decode(&mut cache, &model, &rows, &mut Vec::new()).unwrap();
    held.push(tally.now());
    let mut tape = Tape::new(case.checkpointing);
    let mut batch = PackedBatch::default();
    let prompt = batch.push(&[1, 2, 3, 4, 5], None);
    for response in [&[6, 7, 8][..], &[9; 60]] {
        batch.push_response(prompt, response, 1.0);
    }
    let slopes = vec![1.0; tape.forward(&model, &batch).unwrap().log_probs.len()];
    held.push(tally.now());
    tape.backward(&model, &slopes, &slopes, &mut gradients).unwrap();
    held.push(tally.now());
    let step = AdamW {
        learning_rate: 1e-3,
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-8,
        weight_decay: 0.0,
        step: 1,
        gradient_scale: 1.0,
    };
    moments.adamw(&mut model, step, &gradients);
    held.push(tally.now());
    tape.release();
    gradients.release();
    drop((cache, initial));
    held.extend([tally.now(), tally.peak()]);
    held
}

#[test]
fn what_is_counted_is_what_a_cpu_allocates() {
    let bf16 = multiplies_bf16().then_some(Compute::Bf16);
    for compute in [Some(Compute::F32), bf16].into_iter().flatten() {
        for name in MODELS {
            let config = hapo_model::folder::open(&model_dir(name)).unwrap().config;
            for held in [Held::Trained, Held::Frozen(NumberFormat::Bf16)] {
                let layers = held == Held::Trained;
                let case = Case {
                    held,
                    rank: if layers { 0 } else { 5 },
                    moments: if layers { NumberFormat::Bf16 } else { NumberFormat::F32 },
                    checkpointing: if layers {
                        ActivationCheckpointing::Layers
                    } else {
                        ActivationCheckpointing::None
                    },
                };
                let cpu = Cpu::computing(2, compute).unwrap();
                let tally = cpu.tally().clone();
                let counting = Counting::new(cpu.caps());
                let allocated = take(cpu, &tally, config.clone(), case);
                let counted = counting.tally().clone();
                let counted = take(counting, &counted, config.clone(), case);
                assert_eq!(counted, allocated, "{name}, {compute}, {held:?}");
            }
        }
    }
}

#[test]
fn flops_are_six_per_parameter_and_token_where_the_context_is_short() {
    let model =
        hapo_model::load(&model_dir("tiny-qwen2"), Cpu::new(1).unwrap(), |_| 128).unwrap().model;
    let config = model.config();
    let matrices: usize = config
        .tensors()
        .iter()
        .filter(|it| it.shape.len() == 2)
        .map(|it| it.shape.iter().product::<usize>())
        .sum();
    // An embedding that is not the head too is looked up, not multiplied.
    let lookup = if config.tied { 0 } else { config.vocab_size * config.hidden };
    assert_eq!(forward_flops(config, 10.0, 10.0, 0.0), 2.0 * 10.0 * (matrices - lookup) as f64);
    let by_attention =
        forward_flops(config, 10.0, 10.0, 7.0) - forward_flops(config, 10.0, 10.0, 0.0);
    let wide = config.heads * config.head_dim;
    assert_eq!(by_attention, (4 * 10 * config.layers * wide * 7) as f64);
}
