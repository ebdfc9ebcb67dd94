//! The cases of a GPU: the work of training and of decoding at the sizes it is bought for.

use std::time::Instant;

use anyhow::Result;
use hapo_kernels::{
    Accumulate, Buffer, Compute, Counting, Device, DeviceCaps, Held, MatShape, Matrix,
    NumberFormat, Output,
};
use hapo_model::{
    ActivationCheckpointing, Config, KvCache, Model, Moments, PackedBatch, SeqSlot, Tape,
};
use hapo_sampler::{Engine, EngineLimits};

use super::cases::{Case, adamw, matrices, request};

/// Lengths of the cases of a shape.
#[derive(Clone, Copy)]
pub(super) struct Lengths {
    /// Sequences of a batch, and of a group.
    pub(super) sequences: usize,
    /// Tokens of each.
    pub(super) tokens: usize,
    /// Tokens of a group's prompt.
    pub(super) prompt: usize,
    /// Tokens before decoding, and steps of it.
    pub(super) context: usize,
    pub(super) steps: usize,
    /// Sequences decoded at once.
    pub(super) decoded: &'static [usize],
}

/// 8 × 1,024 tokens, and decoding behind 960.
pub(super) const FULL: Lengths = Lengths {
    sequences: 8,
    tokens: 1024,
    prompt: 200,
    context: 960,
    steps: 64,
    decoded: &[8, 64, 256],
};

/// The same in small.
pub(super) const TINY: Lengths =
    Lengths { sequences: 2, tokens: 40, prompt: 8, context: 70, steps: 4, decoded: &[2] };

impl Lengths {
    /// The longest sequence.
    pub(super) fn positions(self) -> usize {
        (self.sequences * self.tokens).max(self.context + self.steps + 1)
    }
}

/// Waits for the device: operations are only begun when their calls return.
fn finish<D: Device>(device: &D, of: &D::Buf) -> Result<()> {
    device.download(of.first(1), &mut [0.0]);
    Ok(device.check()?)
}

/// The best of some repetitions after one that does not count, in seconds.
fn best<D: Device>(device: &D, of: &mut D::Buf, mut work: impl FnMut(&mut D::Buf)) -> Result<f64> {
    let mut best = f64::INFINITY;
    for i in 0..6 {
        let start = Instant::now();
        work(of);
        finish(device, of)?;
        if i > 0 {
            best = best.min(start.elapsed().as_secs_f64());
        }
    }
    Ok(best)
}

/// Operations per second of a large product, and bytes per second of a copy, read and written.
pub(super) fn rates<D: Device>(device: &D, shape: MatShape, numbers: usize) -> Result<(f64, f64)> {
    let (m, k, n) = (shape.rows, shape.inputs, shape.outputs);
    let room = |n: usize| device.alloc(n, NumberFormat::F32);
    let (x, mut y) = (room(m * k)?, room(m * n)?);
    let weight = &D::Weight::zeros(device, [k, n], Held::Plain)?;
    let product = best(device, &mut y, |y| {
        let (onto, y) = (Accumulate::Nothing, y.first_mut(m * n));
        let output = Output { shape, weight, pair: None, onto, y };
        device.product(x.first(m * k), None, vec![output]);
    })?;
    let from = room(numbers)?;
    let mut to = room(numbers)?;
    let copy = best(device, &mut to, |to| {
        device.copy(from.first(numbers), to.first_mut(numbers));
    })?;
    Ok((2.0 * (m * n * k) as f64 / product, 8.0 * numbers as f64 / copy))
}

/// Weights with a deviation of 0.02, the same million bf16 numbers again and again; norms are ones.
pub(super) fn randomise<D: Device>(model: &mut Model<D>) -> Result<()> {
    const BLOCK: usize = 1 << 20;
    let mut state = 1_u64;
    let mut block = Vec::with_capacity(BLOCK);
    for _ in 0..BLOCK {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let x = ((state >> 40) as f32 / (1_u64 << 24) as f32 - 0.5) * 0.07;
        block.push(f32::from_bits(x.to_bits() & 0xffff_0000));
    }
    let len = model.trained_len();
    for at in (0..len).step_by(BLOCK) {
        model.write_trained(at, &block[..BLOCK.min(len - at)]);
    }
    for it in model.layout().params().to_vec() {
        if it.shape.len() == 1 && !it.name.ends_with("bias") {
            model.set_tensor(&it.name, &vec![1.0; it.len])?;
        }
    }
    Ok(model.device().check()?)
}

/// A batch to train on.
pub(super) enum Batch {
    /// Sequences on their own.
    Independent,
    /// One as long as all of them.
    One,
    /// Responses of one prompt.
    Group,
}

fn tokens(n: usize, seed: usize, vocabulary: usize) -> Vec<u32> {
    (0..n).map(|i| ((i * 7919 + seed * 104_729) % vocabulary) as u32).collect()
}

/// The batch, and its name.
fn batch(which: &Batch, of: Lengths, vocabulary: usize) -> (PackedBatch, String) {
    let (sequences, length) = match which {
        Batch::One => (1, of.sequences * of.tokens),
        _ => (of.sequences, of.tokens),
    };
    let mut batch = PackedBatch::default();
    let shared = tokens(of.prompt, 99, vocabulary);
    let shared = matches!(which, Batch::Group).then(|| batch.push(&shared, None));
    for s in 0..sequences {
        let all = tokens(length, s, vocabulary);
        // Alone, a sequence is read behind its own first token.
        let (prompt, rest) = match shared {
            Some(it) => (it, &all[..]),
            None => (batch.push(&all[..1], None), &all[1..]),
        };
        batch.push_response(prompt, rest, 1.0);
    }
    let name = match which {
        Batch::Group => format!("{sequences} x {length} tokens on a prompt of {}", of.prompt),
        _ => format!("{sequences} x {length} tokens"),
    };
    (batch, name)
}

/// Forward, backward, norm and optimiser.
pub(super) fn training<D: Device>(
    model: &mut Model<D>,
    (which, checkpointing): (&Batch, ActivationCheckpointing),
    of: Lengths,
) -> Result<Case> {
    let (batch, mut name) = batch(which, of, model.config().vocab_size);
    name += if checkpointing == ActivationCheckpointing::Layers { ", one layer kept" } else { "" };
    let n = batch.targets.len();
    let mut tape = Tape::new(checkpointing);
    let (mut gradients, mut moments) = (model.gradients()?, Moments::new(model)?);
    let (d, zero) = (vec![-1.0 / n as f32; n], vec![0.0; n]);
    let mut times = Vec::new();
    for step in 0..6 {
        let start = Instant::now();
        tape.forward(model, &batch)?;
        gradients.clear();
        tape.backward(model, &d, &zero, &mut gradients)?;
        let norm = model.gradient_norms(&gradients).iter().sum::<f64>().sqrt();
        moments.adamw(model, adamw(step + 1, (1.0 / norm).min(1.0)), &gradients);
        // Reading a number waits for the enqueued work.
        model.read_trained(0, &mut [0.0]);
        model.device().check()?;
        if step > 0 {
            times.push(start.elapsed().as_secs_f64());
        }
    }
    let c = model.config();
    let rows = batch.tokens.len();
    let pairs = match which {
        Batch::One => rows * rows,
        Batch::Independent => of.sequences * of.tokens * of.tokens,
        Batch::Group => of.sequences * of.tokens * (of.tokens + 2 * of.prompt),
    };
    let flops = 6.0 * (matrices(c) * rows) as f64
        + 3.5 * 2.0 * (c.layers * c.heads * c.head_dim * pairs) as f64;
    Ok(Case { name, times, items: rows as f64, flops, ..Case::default() })
}

/// What is decoded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Decoded {
    /// Draws behind one prompt for all, as sampling makes them: its keys and values come from the cache of the GPU.
    Shared,
    /// Draws behind a prompt for every eight rows, as in a step of GRPO.
    Own,
    /// Logits behind one prompt, which are downloaded.
    Logits,
}

/// Rows that share a prompt in [`Decoded::Own`].
const GROUP: usize = 8;

/// A step of decoding.
pub(super) fn decoding<D: Device>(
    model: &Model<D>,
    (rows, what): (usize, Decoded),
    of: Lengths,
) -> Result<Case> {
    let c = model.config();
    let times = match what {
        Decoded::Shared => drawn_steps(model, (1, rows), of)?,
        Decoded::Own => drawn_steps(model, (rows.div_ceil(GROUP), rows.min(GROUP)), of)?,
        Decoded::Logits => logit_steps(model, rows, of, &tokens(of.context, 7, c.vocab_size))?,
    };
    let keys = 2 * c.layers * c.kv_heads * c.head_dim * (of.context + of.steps / 2);
    let bytes = (2 * matrices(c) + model.kv_format().bytes() * rows * keys) as f64;
    let with = match what {
        Decoded::Shared => "drawn",
        Decoded::Own => "drawn, a prompt for every 8",
        Decoded::Logits => "logits downloaded",
    };
    Ok(Case {
        name: format!("{rows} sequences behind {}, {with}, a step", of.context),
        times,
        items: rows as f64,
        bytes,
        ..Case::default()
    })
}

/// A step of `rows` rows on a device that computes nothing: the engine's tables, random numbers and events.
pub(super) fn scheduling(config: Config, rows: usize) -> Result<Case> {
    let model =
        Model::new(Counting::new(DeviceCaps::gpu(Compute::Bf16)), config, FULL.positions())?;
    Ok(Case { bytes: 0.0, ..decoding(&model, (rows, Decoded::Own), FULL)? })
}

/// Steps in which all rows, some for each prompt, are decoded.
fn drawn_steps<D: Device>(
    model: &Model<D>,
    (prompts, each): (usize, usize),
    of: Lengths,
) -> Result<Vec<f64>> {
    let vocabulary = model.config().vocab_size;
    let rows = prompts * each;
    let limits = EngineLimits {
        max_sequences: rows,
        cache_tokens: hapo_sampler::cache_tokens::<D>(rows, prompts, of.context, of.steps),
        prefill_tokens: of.context * prompts.min(GROUP),
        usable_vocab: vocabulary,
    };
    let mut engine = Engine::new(model, None, limits)?;
    for seed in 0..prompts {
        engine.submit(request(tokens(of.context, 7 + seed, vocabulary), each, of.steps))?;
    }
    // The first step of all rows is the first of its kind.
    let (mut times, mut is_warm) = (Vec::new(), false);
    while !engine.is_idle() {
        let (are_all, start) = (engine.running() == rows, Instant::now());
        engine.step()?;
        if are_all && is_warm {
            times.push(start.elapsed().as_secs_f64());
        }
        is_warm |= are_all;
    }
    Ok(times)
}

fn logit_steps<D: Device>(
    model: &Model<D>,
    rows: usize,
    of: Lengths,
    prompt: &[u32],
) -> Result<Vec<f64>> {
    let room = hapo_sampler::cache_tokens::<D>(rows, 1, of.context, of.steps);
    let mut cache = KvCache::new(model, room)?;
    let prompt = cache.prefill(model, &[prompt])?.slots[0];
    let slots: Vec<SeqSlot> =
        (0..rows).map(|_| cache.fork(prompt, of.steps)).collect::<Result<_, _>>()?;
    let mut times = Vec::new();
    for step in 0..of.steps.min(9) {
        let fed: Vec<(SeqSlot, u32)> =
            (0_u32..).zip(&slots).map(|(i, it)| (*it, (i + step as u32) % 97)).collect();
        let start = Instant::now();
        cache.decode_next(model, &fed, &vec![None; rows], 1)?;
        if step > 0 {
            times.push(start.elapsed().as_secs_f64());
        }
    }
    Ok(times)
}

/// The product whose rate others are compared with: a batch times the largest matrix of a layer.
pub(super) fn product(config: &Config, of: Lengths) -> MatShape {
    MatShape { rows: of.sequences * of.tokens, inputs: config.hidden, outputs: config.ffn }
}
