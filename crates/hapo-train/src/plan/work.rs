//! Tokens, operations and bytes of a step and of an evaluation, and the time that they take.

use hapo_kernels::NumberFormat;
use hapo_model::{ActivationCheckpointing, Config, flops, keeps_logits, kv_bytes_per_token};

use super::memory::{Sampling, checkpointing, kv_format, mini_batch, rows_of, trained_bytes};
use super::{DeviceSpec, Lengths, Workload};

/// Share of the rate of products that attention on the tensor cores reaches.
const TILES_SHARE: f64 = 0.5;

/// Operations, and those of the attention among them: in plain f32, and on the tensor cores.
#[derive(Clone, Copy, Default)]
pub(super) struct Flops {
    pub(super) all: f64,
    attention: f64,
    attention_tiles: f64,
}

impl Flops {
    fn of(config: &Config, rows: f64, head: f64, context: f64) -> Self {
        Self {
            all: flops::forward_flops(config, rows, head, context),
            attention: flops::attention_flops(config, rows, context),
            attention_tiles: 0.0,
        }
    }

    /// The same where prompts are read and trained on a device.
    fn on(self, device: &DeviceSpec, config: &Config) -> Self {
        if kv_format(config, device) == NumberFormat::F32 {
            return self;
        }
        Self { attention: 0.0, attention_tiles: self.attention, ..self }
    }

    fn attention(self) -> Self {
        Self { all: self.attention + self.attention_tiles, ..self }
    }

    fn times(self, factor: f64) -> Self {
        Self {
            all: self.all * factor,
            attention: self.attention * factor,
            attention_tiles: self.attention_tiles * factor,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            all: self.all + other.all,
            attention: self.attention + other.attention,
            attention_tiles: self.attention_tiles + other.attention_tiles,
        }
    }

    fn seconds(self, device: &DeviceSpec, share: f64) -> f64 {
        let products = (self.all - self.attention().all) + self.attention_tiles / TILES_SHARE;
        (products / device.flops + self.attention / device.attention_flops) / share
    }
}

#[derive(Clone, Copy, Default)]
pub(super) struct SamplingWork {
    pub(super) tokens: f64,
    prefill: Flops,
    decoding: Flops,
    bytes_read: f64,
}

impl SamplingWork {
    pub(super) fn of(it: Sampling, of: Workload, weights: u64, at: Lengths) -> Self {
        let (Workload { config, device, .. }, Lengths { prompt, response }) = (of, at);
        let (prompts, responses) = (it.prompts as f64, (it.prompts * it.completions) as f64);
        let tokens = responses * response;
        // A token attends to what is before it: half of its own segment on average.
        let context = prompt + response / 2.0;
        // A decoding step reads the weights once and every sequence's keys and values.
        let steps = (responses / it.sequences.max(1) as f64).ceil() * response;
        let held = kv_bytes_per_token(config, kv_format(config, device));
        let read = steps * weights as f64 + tokens * context * held as f64;
        Self {
            tokens,
            prefill: Flops::of(config, prompts * prompt, prompts, prompt / 2.0).on(device, config),
            decoding: Flops::of(config, tokens, tokens, context),
            bytes_read: read,
        }
    }

    pub(super) fn flops(&self) -> f64 {
        self.prefill.all + self.decoding.all
    }

    pub(super) fn seconds(&self, device: &DeviceSpec) -> f64 {
        self.prefill.seconds(device, device.training_share)
            + self.decoding.seconds(device, device.decoding_share)
            + self.bytes_read / (device.bandwidth * device.bandwidth_share)
    }
}

pub(super) struct TrainingWork {
    pub(super) tokens: f64,
    pub(super) flops: Flops,
    bytes_moved: f64,
}

impl TrainingWork {
    pub(super) fn of(of: Workload, at: Lengths) -> Self {
        let Workload { recipe, config, device, .. } = of;
        let Lengths { prompt, response } = at;
        let prompts = recipe.sampling.prompts_per_step as f64;
        let members =
            if recipe.method().samples() { recipe.sampling.group_size as f64 } else { 1.0 };
        let response_tokens = prompts * members * response;
        let context = prompt + response / 2.0;
        let answers = Flops::of(config, response_tokens, 0.0, context);
        let layers = Flops::of(config, prompts * prompt, 0.0, prompt / 2.0).plus(answers);
        let layers = layers.on(device, config);
        let head = Flops::of(config, 0.0, response_tokens, 0.0);
        // By the weights too, unless only an adapter's are trained.
        let sweeps = if recipe.lora.is_some() { 2.0 } else { 3.0 };
        // Backward takes two forwards, the attention's two and a half.
        let mut flops = layers.plus(head).times(sweeps).plus(layers.attention().times(0.5));
        if checkpointing(Workload { eval_sets: None, ..of }) == ActivationCheckpointing::Layers {
            flops = flops.plus(layers);
        }
        let (longest_prompt, longest_response) = (prompt.ceil() as usize, response.ceil() as usize);
        let rows = rows_of(recipe, config, mini_batch(recipe), longest_prompt, longest_response);
        if !keeps_logits(config, rows, device.caps().logit_bytes) {
            flops = flops.plus(head);
        }
        let passes = recipe.optim.passes as f64;
        // Bytes for each parameter: `AdamW` reads four numbers and writes three, the gradient's norm and the look at the
        // weights read one each.
        let moved = (5 * size_of::<f32>() + 4 * recipe.optim.moments.bytes()) as f64;
        let updates = passes * (prompts / mini_batch(recipe) as f64).ceil();
        Self {
            tokens: (prompts * prompt + response_tokens) * passes,
            flops: flops.times(passes),
            bytes_moved: updates * moved * trained_bytes(recipe, config) as f64 / 4.0,
        }
    }

    pub(super) fn seconds(&self, device: &DeviceSpec) -> f64 {
        self.flops.seconds(device, device.training_share)
            + self.bytes_moved / (device.bandwidth * device.bandwidth_share)
    }
}
