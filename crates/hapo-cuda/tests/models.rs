//! The whole device under the reference models: logits, log-probabilities, gradients and decoding, with
//! the kernels run on the CPU.

mod support;

use std::collections::BTreeMap;

use hapo_core::{PromptId, RngStream};
use hapo_cuda::CudaDevice;
use hapo_kernels::{Compute, Counting, Cpu, Device, DrawnToken};
use hapo_model::folder::open_adapter;
use hapo_model::{
    ActivationCheckpointing, Config, KvCache, LoraShape, Model, Moments, Outputs, PackedBatch,
    Projection, Tape,
};
use hapo_sampler::{Decoding, Engine, EngineLimits, EventKind, Request, RngKey, Truncation};
use hapo_testing::reference::decode;
use hapo_testing::reference::{assert_greedy, assert_logits, assert_outputs, gap, load};
use hapo_testing::{fixtures, model_dir};
use support::Machine;

const MODELS: [&str; 3] = ["tiny-qwen2", "tiny-qwen3", "tiny-llama3"];

fn fibers(name: &str, products: Compute) -> Option<Model<CudaDevice<Machine>>> {
    Some(load(name, support::gpu(products)?))
}

fn cpu(name: &str) -> Model<Cpu> {
    load(name, Cpu::new(1).unwrap())
}

#[test]
fn logits_log_probs_and_entropies_are_those_of_transformers() {
    for name in MODELS {
        let Some(model) = fibers(name, Compute::F32) else {
            return;
        };
        let mut tape = Tape::new(ActivationCheckpointing::Layers).with_logit_bytes(384 * 4 * 20);
        assert_logits(&model, name, &mut tape, 1e-4);
        assert_outputs(&model, name, &mut tape, 1e-4);
    }
}

#[test]
fn greedy_continuations_are_those_of_transformers() {
    for name in MODELS {
        let Some(model) = fibers(name, Compute::F32) else {
            return;
        };
        assert_greedy(&model, name);
    }
}

/// Tensors are read by several threads onto a GPU: the numbers, their names and the hashes are those that the CPU has.
#[test]
fn weights_that_are_read_onto_a_gpu_are_the_folders() {
    fn context(_: &Config) -> usize {
        64
    }
    for (name, is_frozen) in [("tiny-qwen2", false), ("tiny-qwen2-bf16-sharded", true)] {
        for products in [Compute::F32, Compute::Bf16] {
            let Some(gpu) = support::gpu(products) else {
                return;
            };
            let here = if is_frozen {
                hapo_model::load_frozen(&model_dir(name), gpu, context)
            } else {
                hapo_model::load(&model_dir(name), gpu, context)
            }
            .unwrap();
            let there = hapo_model::load(&model_dir(name), Cpu::new(1).unwrap(), context).unwrap();
            assert_eq!(here.fingerprint, there.fingerprint);
            assert_eq!(there.hash, None, "a CPU's start hashes nothing while it reads");
            assert_eq!(here.hash, Some(here.model.published_hash()));
            assert_eq!(here.hash, Some(there.model.published_hash()));
            for spec in here.model.config().tensors() {
                let [here, there] = [here.model.tensor(&spec.name), there.model.tensor(&spec.name)];
                assert_eq!(here.unwrap(), there.unwrap(), "{}", spec.name);
            }
        }
    }
}

/// Nine sequences are decoded as sixteen rows: each has the bits that it has among five and among four, as long as what is
/// in the cache is its own.
#[test]
fn rows_that_nobody_reads_change_nothing() {
    let Some(model) = fibers("tiny-qwen2", Compute::Bf16) else {
        return;
    };
    let decode = |sizes: &[usize]| {
        let mut cache = KvCache::new(&model, 2048).unwrap();
        let prompt = cache.prefill(&model, &[&[5, 6, 7, 8]]).unwrap().slots[0];
        let slots: Vec<_> = (0..9).map(|_| cache.fork(prompt, 20).unwrap()).collect();
        let (mut bits, mut logits) = (Vec::new(), Vec::new());
        for step in 0..4_u32 {
            let fed: Vec<_> = (0_u32..)
                .zip(&slots)
                .map(|(row, slot)| (*slot, (row * 41 + step * 7) % 384))
                .collect();
            let mut rest = &fed[..];
            for &size in sizes {
                decode(&mut cache, &model, &rest[..size], &mut logits).unwrap();
                bits.extend(logits.iter().map(|it| it.to_bits()));
                rest = &rest[size..];
            }
        }
        bits
    };
    assert!(decode(&[9]) == decode(&[5, 4]));
}

/// The emulator's products depend on their rows unless they are asked not to; forward products ask.
#[test]
fn rows_of_the_models_own_matrices_are_compared() {
    for products in [Compute::F32, Compute::Bf16] {
        let Some(model) = fibers("tiny-qwen3", products) else {
            return;
        };
        assert_eq!(model.rows_are_independent().unwrap(), Some(true), "{products:?}");
    }
    assert_eq!(cpu("tiny-qwen3").rows_are_independent().unwrap(), None);
}

/// A group: one prompt, several responses of ragged length that share it, at two temperatures.
fn group() -> PackedBatch {
    let mut batch = PackedBatch::default();
    let prompt: Vec<u32> = (0..37).map(|i| (i * 53 + 7) % 384).collect();
    let prompt = batch.push(&prompt, None);
    for (i, len) in [1_u32, 18, 70].into_iter().enumerate() {
        let response: Vec<u32> = (0..len).map(|t| (t * 31 + i as u32 * 11) % 384).collect();
        let inverse_temperature = if i == 1 { 1.0 / 0.7 } else { 1.0 };
        batch.push_response(prompt, &response, inverse_temperature);
    }
    batch.push(&[5, 6], None);
    batch
}

/// Log-probabilities, entropies, gradients and the parameters after a step of `AdamW`.
fn step<D: Device>(mut model: Model<D>, recompute: ActivationCheckpointing) -> [Vec<f32>; 4] {
    let batch = group();
    let mut tape = Tape::new(recompute).with_logit_bytes(384 * 4 * 30);
    let mut gradients = model.gradients().unwrap();
    let mut moments = Moments::new(&model).unwrap();
    let n = batch.targets.len();
    let d_log_probs: Vec<f32> = (0..n).map(|i| ((i * 7 % 13) as f32 - 6.0) / 20.0).collect();
    let d_entropies: Vec<f32> =
        (0..n).map(|i| if i.is_multiple_of(3) { 0.01 } else { 0.0 }).collect();
    let mut out = Outputs::default();
    // Twice: the second time gradients are added to those that are there.
    for _ in 0..2 {
        out = tape.forward(&model, &batch).unwrap();
        tape.backward(&model, &d_log_probs, &d_entropies, &mut gradients).unwrap();
    }
    // As published: devices hold them in orders of their own.
    let names: Vec<_> = model.trained_layout().params().iter().map(|it| it.name.clone()).collect();
    let of = |name: &String| model.published(gradients.buf(), name).unwrap();
    let flat: Vec<f32> = names.iter().flat_map(of).collect();
    let norm: f64 = model.gradient_norms(&gradients).iter().sum();
    let step = hapo_kernels::AdamW {
        learning_rate: 1e-3,
        beta1: 0.9,
        beta2: 0.95,
        epsilon: 1e-8,
        weight_decay: 0.1,
        step: 1,
        gradient_scale: 1.0 / norm.sqrt(),
    };
    moments.adamw(&mut model, step, &gradients);
    let params = names.iter().flat_map(|name| model.tensor(name).unwrap()).collect();
    model.device().check().unwrap();
    [out.log_probs, out.entropies, flat, params]
}

#[test]
fn a_training_step_is_that_of_the_cpu_and_always_the_same() {
    if hapo_testing::slow() {
        return;
    }
    for name in MODELS {
        let Some(model) = fibers(name, Compute::F32) else {
            return;
        };
        let ours = step(model, ActivationCheckpointing::None);
        let theirs = step(cpu(name), ActivationCheckpointing::None);
        let again = step(fibers(name, Compute::F32).unwrap(), ActivationCheckpointing::Layers);
        assert_eq!(ours, again, "{name}: bits depend on the schedule or on recomputing");
        let largest = theirs[2].iter().fold(0.0_f32, |most, it| most.max(it.abs()));
        assert!(gap(&ours[0], &theirs[0]) < 1e-4, "{name}: log-probabilities");
        assert!(gap(&ours[1], &theirs[1]) < 1e-4, "{name}: entropies");
        let off = gap(&ours[2], &theirs[2]);
        assert!(off < 2e-5 * largest.max(1.0), "{name}: gradients off by {off} of {largest}");
        // Where a gradient is nearly zero, its sign decides the first step: most parameters, not all.
        let far = ours[3].iter().zip(&theirs[3]).filter(|(a, b)| (*a - *b).abs() > 1e-5);
        assert!(far.count() * 1000 < ours[3].len(), "{name}: parameters");
    }
}

/// A reference model with PEFT's recorded adapter beside it.
fn adapted<D: Device>(name: &str, device: D) -> Model<D> {
    let loaded = hapo_model::load_frozen(&model_dir(name), device, |_| 512).unwrap();
    let adapter = open_adapter(&fixtures().join("lora").join(name)).unwrap();
    let mut model = loaded.model;
    adapter.add_to(&mut model, &loaded.fingerprint).unwrap();
    model
}

#[test]
fn a_step_of_an_adapter_is_that_of_the_cpu() {
    for name in MODELS {
        let Some(gpu) = support::gpu(Compute::F32) else {
            return;
        };
        let ours = step(adapted(name, gpu), ActivationCheckpointing::Layers);
        let cpu = adapted(name, Cpu::new(1).unwrap());
        let theirs = step(cpu, ActivationCheckpointing::None);
        let largest = theirs[2].iter().fold(0.0_f32, |most, it| most.max(it.abs()));
        assert!(gap(&ours[0], &theirs[0]) < 1e-4, "{name}: log-probabilities");
        let off = gap(&ours[2], &theirs[2]);
        assert!(off < 2e-5 * largest.max(1.0), "{name}: gradients off by {off} of {largest}");
        let far = ours[3].iter().zip(&theirs[3]).filter(|(a, b)| (*a - *b).abs() > 1e-5);
        assert!(far.count() * 1000 < ours[3].len(), "{name}: parameters");
    }
}

/// Logits of a decoded token after a prompt that is read in pieces, beside an adapter.
fn decoded_logits<D: Device>(model: &Model<D>) -> Vec<f32> {
    let tokens: Vec<u32> = (0..40).map(|i| (i * 37 + 11) % 380).collect();
    let mut cache = KvCache::new(model, 256).unwrap();
    let mut prompt = cache.begin_prefill(model, &tokens).unwrap();
    assert_eq!(cache.continue_prefill(model, &mut prompt, 17).unwrap(), None);
    let read = cache.continue_prefill(model, &mut prompt, 40).unwrap();
    let (prompt, mut all) = read.expect("the prompt is complete");
    let slot = cache.fork(prompt, 8).unwrap();
    let mut logits = Vec::new();
    decode(&mut cache, model, &[(slot, 5)], &mut logits).unwrap();
    all.extend(logits);
    all
}

#[test]
fn decoding_beside_an_adapter_is_that_of_the_cpu() {
    for name in MODELS {
        let Some(gpu) = support::gpu(Compute::F32) else {
            return;
        };
        let mut ours = adapted(name, gpu);
        let mut theirs = adapted(name, Cpu::new(1).unwrap());
        let off = gap(&decoded_logits(&ours), &decoded_logits(&theirs));
        assert!(off < 1e-4, "{name}: logits off by {off}");
        // The matrix keeps its numbers where it is held with the sum.
        let merged = [ours.merge_adapter().is_ok(), theirs.merge_adapter().is_ok()];
        assert_eq!(merged, [true; 2], "{name}");
        let off = gap(&decoded_logits(&ours), &decoded_logits(&theirs));
        assert!(off < 1e-4, "{name}: logits of merged weights off by {off}");
    }
}

/// Logits beside an adapter of some matrices.
fn logits_beside<D: Device>(device: D, targets: &[Projection]) -> Vec<f32> {
    let mut model = load("tiny-qwen2", device);
    let shape = LoraShape { rank: 3, alpha: 6.0, rslora: false, targets: targets.to_vec() };
    model.add_adapter(shape).unwrap();
    let specs = model.adapter().unwrap().tensors(model.config());
    let mut i = 0..;
    for spec in specs {
        let len = spec.shape.iter().product();
        let number = |i: usize| ((i * 7919 % 1013) as f32 - 506.0) / 5000.0;
        let values: Vec<f32> = i.by_ref().take(len).map(number).collect();
        model.set_tensor(&spec.name, &values).unwrap();
    }
    let tokens: Vec<u32> = (0..40).map(|i| (i * 37 + 11) % 380).collect();
    Tape::new(hapo_model::ActivationCheckpointing::None).logits(&model, &tokens).unwrap()
}

/// Of keys and values, and of gate and up, both have a pair, one, or none.
#[test]
fn adapters_of_some_matrices_are_those_of_the_cpu() {
    use Projection::{Down, Gate, K, O, Q, Up, V};
    let cases: [&[Projection]; 5] = [&[Q, V], &[K, Up], &[K, V, Gate], &[O], &[Gate, Up, Down]];
    for targets in cases {
        let Some(gpu) = support::gpu(Compute::F32) else {
            return;
        };
        let theirs = logits_beside(Cpu::new(1).unwrap(), targets);
        let off = gap(&logits_beside(gpu, targets), &theirs);
        assert!(off < 1e-4, "{targets:?}: logits off by {off}");
        let plain = logits_beside(Cpu::new(1).unwrap(), &[Down]);
        assert!(gap(&theirs, &plain) > 1e-3, "{targets:?}: the adapter acts");
    }
}

/// The change of the logits by adapters of the gate alone, whose B is small: of several, since each one's change is
/// little more than the rounding beside it.
fn change_by_small_gates<D: Device>(device: D) -> Vec<f32> {
    let mut model = adapted("tiny-qwen2", device);
    let tokens: Vec<u32> = (0..40).map(|i| (i * 37 + 11) % 380).collect();
    let specs = model.adapter().unwrap().tensors(model.config());
    let mut logits = |size: f32, mut state: u32| {
        for spec in &specs {
            let len: usize = spec.shape.iter().product();
            let scale = match (spec.name.contains("gate_proj"), spec.name.contains("lora_A")) {
                (true, true) => 0.1,
                (true, false) => size,
                _ => 0.0,
            };
            let mut number = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                scale * ((state >> 8) as f32 / 8_388_608.0 - 1.0)
            };
            let values: Vec<f32> = (0..len).map(|_| number()).collect();
            model.set_tensor(&spec.name, &values).unwrap();
        }
        Tape::new(hapo_model::ActivationCheckpointing::None).logits(&model, &tokens).unwrap()
    };
    let mut change = |seed| {
        let [more, less] = [1e-4, -1e-4].map(|size| logits(size, seed));
        more.iter().zip(less).map(|(more, less)| more - less).collect::<Vec<_>>()
    };
    (1..=128).flat_map(|seed| change(0x9e37_79b9_u32.wrapping_mul(seed))).collect()
}

/// The first updates of an adapter move gate and up by less than half a unit of bf16: their effect is rounded with x·W,
/// not after it, where nothing of it would be left.
#[test]
fn a_small_adapter_of_the_gate_acts_in_bf16() {
    if hapo_testing::slow() {
        return;
    }
    let Some(gpu) = support::gpu(Compute::Bf16) else {
        return;
    };
    let (ours, exact) = (change_by_small_gates(gpu), change_by_small_gates(Cpu::new(1).unwrap()));
    let product = |a: &[f32], b: &[f32]| {
        a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>()
    };
    let share = product(&ours, &exact) / product(&exact, &exact);
    let unchanged = ours.chunks_exact(384).filter(|row| row.iter().all(|it| *it == 0.0)).count();
    assert!(
        (0.7..1.3).contains(&share) && unchanged < 4,
        "{share} of the change, {unchanged} rows"
    );
}

/// In bf16, values between products are rounded, and a matrix is split, or rounded beside an adapter; gradients keep
/// their direction.
#[test]
fn a_step_in_bf16_is_near_that_of_the_cpu() {
    if hapo_testing::slow() {
        return;
    }
    for name in MODELS {
        let Some(gpu) = support::gpu(Compute::Bf16) else {
            return;
        };
        let pairs = [
            (
                step(load(name, gpu.clone()), ActivationCheckpointing::Layers),
                step(cpu(name), ActivationCheckpointing::None),
            ),
            (
                step(adapted(name, gpu), ActivationCheckpointing::None),
                step(adapted(name, Cpu::new(1).unwrap()), ActivationCheckpointing::None),
            ),
        ];
        for (ours, theirs) in pairs {
            assert!(gap(&ours[0], &theirs[0]) < 0.1, "{name}: {}", gap(&ours[0], &theirs[0]));
            let product = |a: &[f32], b: &[f32]| {
                a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>()
            };
            let lengths = product(&ours[2], &ours[2]) * product(&theirs[2], &theirs[2]);
            let cosine = product(&ours[2], &theirs[2]) / lengths.sqrt();
            assert!(cosine > 0.999, "{name}: gradients turned to {cosine}");
        }
    }
}

#[test]
fn decoding_is_training_read_token_by_token() {
    let in_f32 = MODELS.into_iter().map(|it| (it, Compute::F32));
    for (name, products) in in_f32.chain(MODELS.into_iter().map(|it| (it, Compute::Bf16))) {
        let Some(model) = fibers(name, products) else {
            return;
        };
        let tokens: Vec<u32> = (0..40).map(|i| (i * 37 + 11) % 380).collect();
        let vocabulary = model.config().vocab_size;
        let whole =
            Tape::new(hapo_model::ActivationCheckpointing::None).logits(&model, &tokens).unwrap();
        // In bf16 decoding computes what training computes; a GPU's products may still depend on the other rows.
        let largest = whole.iter().fold(0.0_f32, |most, it| most.max(it.abs()));
        let near = match products {
            Compute::F32 => 1e-4,
            _ if support::is_emulator() => 0.0,
            _ => 0.02 * largest,
        };
        let row = |i: usize| &whole[i * vocabulary..(i + 1) * vocabulary];
        let mut cache = KvCache::new(&model, 512).unwrap();
        // A prompt read in pieces, next to one read at once.
        let mut prompt = cache.begin_prefill(&model, &tokens[..21]).unwrap();
        assert!(cache.continue_prefill(&model, &mut prompt, 8).unwrap().is_none());
        assert!(cache.continue_prefill(&model, &mut prompt, 8).unwrap().is_none());
        let (slot, logits) = cache.continue_prefill(&model, &mut prompt, 8).unwrap().unwrap();
        assert!(gap(&logits, row(20)) <= near, "{name}: a prompt in pieces");
        let other = cache.prefill(&model, &[&tokens[..3]]).unwrap().slots[0];
        let (own, other) = (cache.fork(slot, 32).unwrap(), cache.fork(other, 32).unwrap());
        let mut logits = Vec::new();
        for (i, &token) in tokens.iter().enumerate().skip(21) {
            let rows = [(other, 5), (own, token)];
            decode(&mut cache, &model, &rows, &mut logits).unwrap();
            let off = gap(&logits[vocabulary..], row(i));
            assert!(off <= near, "{name}, position {i}: {off} of {largest}");
        }
    }
}

/// With pages for a third of the batch sequences are preempted and read again: the kernels give the bits of a run
/// that never was.
#[test]
fn completions_do_not_depend_on_memory_or_preemption() {
    let Some(model) = fibers("tiny-qwen2", Compute::F32) else {
        return;
    };
    let request = |i: u64| Request {
        prompt: (0..20 + 46 * i as u32).map(|j| (i as u32 * 37 + j * 11) % 380).collect(),
        completions: 2,
        decoding: Decoding::Sample { temperature: 1.0, truncation: Truncation::NONE },
        max_tokens: 70 + 5 * i as usize,
        stop_tokens: vec![3],
        stop_strings: Vec::new(),
        text: None,
        top_log_probs: 0,
        rng: RngKey { seed: 5, rng_stream: RngStream::Sample, step: 1, prompt: PromptId(i) },
    };
    let run = |cache_tokens| {
        let limits = EngineLimits {
            max_sequences: 4,
            cache_tokens,
            prefill_tokens: usize::MAX,
            usable_vocab: 381,
        };
        let mut engine = Engine::new(&model, None, limits).unwrap();
        for i in 0..2 {
            engine.submit(request(i)).unwrap();
        }
        let mut tokens = BTreeMap::new();
        while !engine.is_idle() {
            for it in engine.step().unwrap() {
                if let EventKind::Token(token) = it.kind {
                    let drawn: &mut Vec<DrawnToken> =
                        tokens.entry((it.request, it.completion)).or_default();
                    drawn.push(token.drawn);
                }
            }
        }
        assert_eq!(engine.free_tokens(), cache_tokens);
        (tokens, engine.preemptions())
    };
    let (expected, none) = run(4 * 128 + 2 * 128);
    assert_eq!((expected.len(), none), (4, 0));
    assert!(expected.values().any(|it| it.len() > 65));
    let (got, preemptions) = run(256);
    assert!(got == expected && preemptions > 0, "{preemptions} preemptions");
}

/// The counting device takes the bytes that a GPU allocates, except for scratch memory.
#[test]
fn what_is_counted_is_what_a_gpu_allocates() {
    for (name, products) in
        MODELS.into_iter().flat_map(|it| [(it, Compute::F32), (it, Compute::Bf16)])
    {
        let Some(gpu) = support::gpu(products) else {
            return;
        };
        let Some(machine) = gpu.launcher().fibers().cloned() else {
            return;
        };
        let config = hapo_model::folder::open(&model_dir(name)).unwrap().config;
        // The first time scratch memory grows, which stays.
        drop(take(gpu.clone(), config.clone()));
        let before = machine.held();
        let held = take(gpu.clone(), config.clone());
        let allocated = machine.held() - before;
        drop(held);
        let counting = Counting::new(gpu.caps());
        let tally = counting.tally().clone();
        let held = take(counting, config);
        assert_eq!(tally.now(), allocated, "{name}, {products:?}");
        drop(held);
    }
}

/// A model, its gradients and moments, a cache and a tape.
fn take<D: Device>(device: D, config: Config) -> impl Sized {
    let model = Model::new(device, config, 64).unwrap();
    let mut gradients = model.gradients().unwrap();
    let moments = Moments::new(&model).unwrap();
    let cache = KvCache::new(&model, 256).unwrap();
    let mut tape = Tape::new(ActivationCheckpointing::Layers).with_logit_bytes(384 * 4 * 12);
    let mut batch = PackedBatch::default();
    let prompt = batch.push(&[1, 2, 3, 4, 5], None);
    batch.push_response(prompt, &[9; 20], 1.0);
    let slopes = vec![1.0; tape.forward(&model, &batch).unwrap().log_probs.len()];
    tape.backward(&model, &slopes, &slopes, &mut gradients).unwrap();
    (model, gradients, moments, cache, tape)
}

#[test]
fn bf16_products_stay_near() {
    let name = "tiny-qwen2";
    let Some(mut model) = fibers(name, Compute::Bf16) else {
        return;
    };
    let tokens: Vec<u32> = (0..24).map(|i| (i * 37 + 11) % 380).collect();
    let exact =
        Tape::new(hapo_model::ActivationCheckpointing::None).logits(&cpu(name), &tokens).unwrap();
    let rounded =
        Tape::new(hapo_model::ActivationCheckpointing::None).logits(&model, &tokens).unwrap();
    let largest = exact.iter().fold(0.0_f32, |most, it| most.max(it.abs()));
    let off = gap(&exact, &rounded);
    assert!(off > 0.0 && off < 0.02 * largest, "{off} of {largest}");
    // Decoding rounds the same values as training, except probabilities.
    let mut cache = KvCache::new(&model, 128).unwrap();
    let prompt = cache.prefill(&model, &[&tokens[..9]]).unwrap().slots[0];
    let (slot, mut logits) = (cache.fork(prompt, 32).unwrap(), Vec::new());
    for (i, &token) in tokens.iter().enumerate().skip(9) {
        decode(&mut cache, &model, &[(slot, token)], &mut logits).unwrap();
        let row = &rounded[i * logits.len()..(i + 1) * logits.len()];
        let off = gap(&logits, row);
        assert!(off < 0.01 * largest, "position {i}: {off} of {largest}");
    }
    // Products read the upper half of the weights, and there is no faster form.
    assert!(!model.pack_for_decode().unwrap());
}

/// The trained weights are read by the next pass, in bf16 too: its loss goes down.
#[test]
fn rounded_products_read_the_weights_after_an_update() {
    if hapo_testing::slow() {
        return;
    }
    let Some(model) = fibers("tiny-qwen2", Compute::Bf16) else {
        return;
    };
    let [before, ..] = step(model, ActivationCheckpointing::None);
    let mut model = fibers("tiny-qwen2", Compute::Bf16).unwrap();
    let batch = group();
    let mut tape = Tape::new(hapo_model::ActivationCheckpointing::None);
    let mut gradients = model.gradients().unwrap();
    let mut moments = Moments::new(&model).unwrap();
    let n = batch.targets.len();
    let mean = |of: &[f32]| of.iter().sum::<f32>() / n as f32;
    let mut means = vec![mean(&before)];
    for step in 1..=3 {
        tape.forward(&model, &batch).unwrap();
        gradients.release();
        let (d, none) = (vec![-1.0 / n as f32; n], vec![0.0; n]);
        tape.backward(&model, &d, &none, &mut gradients).unwrap();
        tape.release();
        let adamw = hapo_kernels::AdamW {
            learning_rate: 3e-3,
            beta1: 0.9,
            beta2: 0.95,
            epsilon: 1e-8,
            weight_decay: 0.0,
            step,
            gradient_scale: 1.0,
        };
        moments.adamw(&mut model, adamw, &gradients);
        means.push(mean(&tape.forward(&model, &batch).unwrap().log_probs));
    }
    assert!(means.is_sorted_by(|a, b| a + 1e-3 < *b), "{means:?}");
}

/// A neighbour that asks for the most likely tokens has its logits downloaded and drawn from by the CPU.
#[test]
fn draws_do_not_depend_on_what_a_neighbour_asks_for() {
    let Some(model) = fibers("tiny-qwen2", Compute::F32) else {
        return;
    };
    let run = |top: usize| {
        let limits = EngineLimits {
            max_sequences: 4,
            cache_tokens: 1024,
            prefill_tokens: usize::MAX,
            usable_vocab: 381,
        };
        let mut engine = Engine::new(&model, None, limits).unwrap();
        for i in 0..2 {
            let truncation = Truncation { top_k: 50, top_p: 0.95, min_p: 0.0 };
            let request = Request {
                prompt: (0..9).map(|j| (i as u32 * 37 + j * 11) % 380).collect(),
                completions: 2,
                decoding: Decoding::Sample { temperature: 1.2, truncation },
                max_tokens: 12,
                stop_tokens: Vec::new(),
                stop_strings: Vec::new(),
                text: None,
                top_log_probs: if i == 0 { 0 } else { top },
                rng: RngKey {
                    seed: 5,
                    rng_stream: RngStream::Sample,
                    step: 1,
                    prompt: PromptId(i),
                },
            };
            engine.submit(request).unwrap();
        }
        let mut drawn: BTreeMap<_, Vec<(DrawnToken, usize)>> = BTreeMap::new();
        while !engine.is_idle() {
            for it in engine.step().unwrap() {
                if let EventKind::Token(token) = it.kind {
                    let key = (it.request, it.completion);
                    drawn.entry(key).or_default().push((token.drawn, token.top.len()));
                }
            }
        }
        drawn.into_values().collect::<Vec<_>>()
    };
    let (alone, beside) = (run(0), run(3));
    assert_eq!(alone.len(), 4);
    assert_eq!(alone[..2], beside[..2], "the first request's bits");
    for (a, b) in alone[2..].iter().flatten().zip(beside[2..].iter().flatten()) {
        assert_eq!((a.0.token, b.1), (b.0.token, 3));
        assert!((a.0.log_prob - b.0.log_prob).abs() < 1e-5);
    }
}

#[test]
fn a_full_gpu_is_a_typed_error_and_no_panic() {
    let Some(model) = fibers("tiny-qwen2", Compute::F32) else {
        return;
    };
    let Some(fibers) = model.device().launcher().fibers().cloned() else {
        return;
    };
    let mut tape = Tape::new(hapo_model::ActivationCheckpointing::None);
    let tokens = [5, 17, 3];
    let before = tape.logits(&model, &tokens).unwrap();
    let mut cache = KvCache::new(&model, 64).unwrap();
    // Buffers are refused at once, tables, which cannot say so, when the pass is over.
    fibers.set_full(true);
    let refused = [
        tape.logits(&model, &tokens).unwrap_err(),
        cache.prefill(&model, &[&tokens]).unwrap_err(),
        KvCache::new(&model, 64).unwrap_err(),
    ];
    for error in refused {
        let text = error.to_string();
        assert!(text.starts_with("fibers is out of memory: 0.000 GB asked for"), "{text}");
        assert!(text.contains("0.000 of its 24.000 GB are free"), "{text}");
        let hint = error.how_to_mend().unwrap().to_string();
        assert!(hint.contains("activation checkpointing"), "{hint}");
    }
    // Nothing is left behind.
    fibers.set_full(false);
    assert_eq!(tape.logits(&model, &tokens).unwrap(), before);
    let read = cache.prefill(&model, &[&tokens]).unwrap();
    let last = before.len() - model.config().vocab_size;
    assert!(gap(&read.logits, &before[last..]) < 1e-5);
}
