//! Memory by part, at the longest prompts and responses that a recipe allows.

use hapo_core::{Memory, Refusal};
use hapo_kernels::{CPU_LOGIT_BYTES, Compute, Counting, Cpu, DeviceCaps, Held, NumberFormat};
use hapo_model::{
    ActivationCheckpointing, Config, Dtype, GenerationRows, KvCache, Model, Moments,
    PREFILL_TOKENS, PackedBatch, ParamLayout, REREAD_TOKENS, Tape, Target, generation_bytes,
};
use hapo_sampler::{KvMemory, Longest};

use super::{Change, DeviceSpec, Lengths, Part, Phase, Workload, config_of_model};
use crate::recipe::{EvalSet, LoraSection, MicroBatch, ModelSource, Overrides, Recipe};

/// The format that attention reads, and so the cache's.
pub(super) fn kv_format(config: &Config, device: &DeviceSpec) -> NumberFormat {
    device.caps().attention(config.attention_shape())
}

/// Resident bytes of the program before it opens a model.
const PROGRAM: u64 = 14_000_000;

/// Bytes of a tokenizer for each token of the vocabulary.
const PER_TOKEN: u64 = 400;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sampling {
    pub(super) prompts: usize,
    pub(super) completions: usize,
    pub(super) sequences: usize,
    pub(super) prompt: usize,
    pub(super) response: usize,
}

impl Sampling {
    pub(super) fn of_step(recipe: &Recipe) -> Option<Self> {
        let s = &recipe.sampling;
        // A prefix of the teacher is read with the prompt.
        let needs = recipe.needs();
        if !needs.samples() {
            return None;
        }
        let prefix = if needs.prefixes { s.max_new_tokens } else { 0 };
        Some(Self {
            prompts: s.prompts_per_step,
            completions: s.group_size,
            sequences: s.max_sequences.min(s.prompts_per_step * s.group_size),
            prompt: recipe.data.max_prompt_tokens + prefix,
            response: s.max_new_tokens,
        })
    }

    pub(super) fn of_evaluation(recipe: &Recipe, sets: Option<&[EvalSet]>) -> Vec<Self> {
        let Some(eval) = recipe.eval.as_ref() else { return Vec::new() };
        let set = |prompts| Self {
            prompts,
            completions: eval.k,
            sequences: recipe.sampling.max_sequences.min(prompts * eval.k),
            prompt: recipe.data.max_prompt_tokens,
            response: recipe.eval_max_tokens(),
        };
        let of_set = |it: &EvalSet| set(it.dataset.examples.len().min(eval.problems));
        sets.map_or_else(|| vec![set(eval.problems)], |it| it.iter().map(of_set).collect())
    }

    /// Tokens of the cache with which nothing is preempted, and what it has buffers for.
    pub(super) fn buffers(self, caps: DeviceCaps) -> (usize, GenerationRows) {
        let Self { prompts, sequences: rows, prompt, response, .. } = self;
        let room = hapo_sampler::cache_tokens::<Cpu>(rows, prompts, prompt, response);
        let prompts = prompts.min(hapo_sampler::MAX_PREFILL_PROMPTS).min(rows);
        let prefill = (prompts * prompt).min(PREFILL_TOKENS.max(prompt));
        let prefill = prefill.max(REREAD_TOKENS.min(response));
        let decoded = caps.decoded_rows(rows).next_multiple_of(4);
        (room, GenerationRows { decoded, prefill, prompts })
    }

    fn memory(self, of: Workload, free: u64) -> SampledMemory {
        let Workload { recipe, config, device, .. } = of;
        let (most, rows) = self.buffers(device.caps());
        let generation = generation_bytes(device.caps(), config, rows, rank(recipe)) as u64;
        let format = kv_format(config, device);
        let one = Longest { prompt: self.prompt, completion: self.response };
        let bytes = recipe.sampling.kv_memory.limit(Some(free), generation).unwrap_or(u64::MAX);
        // One sequence is the least there is.
        let tokens = KvMemory::fit::<Cpu>(config, format, most, bytes, one).unwrap_or_else(|_| {
            KvCache::<Cpu>::cost(one.prompt) + KvCache::<Cpu>::cost(one.completion)
        });
        SampledMemory {
            tokens,
            cache: KvCache::<Cpu>::bytes(config, format, tokens) as u64,
            generation,
        }
    }
}

#[derive(Clone, Copy)]
struct SampledMemory {
    tokens: usize,
    cache: u64,
    generation: u64,
}

/// Each of these with the sequences that run at once at mean lengths, in what the device has beside the rest.
pub(super) fn at_once(all: Vec<Sampling>, of: Workload, lengths: Lengths) -> Vec<Sampling> {
    let free = free_to_sample(&parts_beside_sampling(of), of.device);
    let pages = |tokens: f64| KvCache::<Cpu>::cost(tokens.ceil() as usize) as f64;
    let at_once = |it: Sampling| {
        let one = pages(lengths.response) + pages(lengths.prompt) / it.completions.max(1) as f64;
        let held = (it.memory(of, free).tokens as f64 / one.max(1.0)) as usize;
        Sampling { sequences: it.sequences.min(held.max(1)), ..it }
    };
    all.into_iter().map(at_once).collect()
}

/// The tape outlives the update and the cache is there while the policy samples, so that from the
/// second step on all parts are held at once; but a GPU gives gradients and tape back before it samples.
pub(super) fn total(parts: &[Part], device: &DeviceSpec) -> u64 {
    let of = |phase| bytes_held(parts, phase);
    let (training, sampling) = (of(Phase::Training), of(Phase::Sampling));
    let at_once = if device.is_cpu { training + sampling } else { training.max(sampling) };
    of(Phase::Always) + at_once
}

fn bytes_held(parts: &[Part], phase: Phase) -> u64 {
    parts.iter().filter(|it| it.phase == phase).map(|it| it.bytes).sum()
}

/// Bytes of the device that other parts leave to what is sampled.
fn free_to_sample(parts: &[Part], device: &DeviceSpec) -> u64 {
    let training = if device.is_cpu { bytes_held(parts, Phase::Training) } else { 0 };
    device.memory_bytes.saturating_sub(bytes_held(parts, Phase::Always) + training)
}

pub(super) fn parts(of: Workload) -> Vec<Part> {
    let Workload { recipe, eval_sets, config, device } = of;
    let mut parts = parts_beside_sampling(of);
    let free = free_to_sample(&parts, device);
    let all = sampled(recipe, eval_sets).into_iter().map(|it| it.memory(of, free));
    let sampled = all.max_by_key(|it| it.cache + it.generation);
    if let Some(SampledMemory { cache, generation, .. }) = sampled {
        let phase = Phase::Sampling;
        parts.push(Part { name: "keys and values", bytes: cache, phase });
        parts.push(Part { name: "generation", bytes: generation, phase });
    }
    if device.is_cpu {
        // A checkpoint is written when nothing is sampled.
        let sizes = config.tensors().into_iter().map(|it| it.shape.iter().product::<usize>());
        let tensor = 4 * sizes.max().unwrap_or_default() as u64;
        let sampled = sampled.map_or(0, |it| it.cache + it.generation);
        if let bytes @ 1.. = tensor.saturating_sub(sampled) {
            parts.push(Part { name: "checkpoint", bytes, phase: Phase::Always });
        }
    }
    parts
}

/// The sampling of a step and of an evaluation; none where a server samples.
fn sampled(recipe: &Recipe, sets: Option<&[EvalSet]>) -> Vec<Sampling> {
    if recipe.rollouts.server.is_some() {
        return Vec::new();
    }
    Sampling::of_step(recipe).into_iter().chain(Sampling::of_evaluation(recipe, sets)).collect()
}

pub(crate) fn longest_sequences(
    recipe: &Recipe,
    sets: Option<&[EvalSet]>,
) -> impl Iterator<Item = Longest> {
    let samplings = sampled(recipe, sets).into_iter();
    samplings.map(|it| Longest { prompt: it.prompt, completion: it.response })
}

fn parts_beside_sampling(of: Workload) -> Vec<Part> {
    counted(of).expect("counting refuses no shape that was checked")
}

/// Bytes of a trainer, each as a device that counts was asked for them while the largest micro-batch is run forward and
/// backward.
fn counted(of: Workload) -> Result<Vec<Part>, Refusal> {
    let Workload { recipe, eval_sets, config, device } = of;
    let always = |name, bytes| Part { name, bytes, phase: Phase::Always };
    let training = |name, bytes| Part { name, bytes, phase: Phase::Training };
    let counting = Counting::new(device.caps());
    let tally = counting.tally().clone();
    let mut before = 0;
    let mut taken = || {
        let bytes = tally.now() - before;
        before = tally.now();
        bytes as u64
    };
    let demonstration = recipe.data.max_prompt_tokens + recipe.sampling.max_new_tokens;
    let sequences = longest_sequences(recipe, eval_sets).map(|it| it.prompt + it.completion);
    let positions = sequences.fold(demonstration, usize::max);
    let mut model = Model::held(counting.clone(), config.clone(), positions, purpose(recipe))?;
    let weights = if recipe.lora.is_some() { "frozen weights" } else { "weights" };
    let mut parts = vec![always(weights, taken())];
    if let Some(lora) = recipe.lora.as_ref() {
        model.add_adapter(lora.shape())?;
        parts.push(always("adapter", taken()));
    }
    let mut gradients = model.gradients()?;
    parts.push(training("gradients", taken()));
    let _moments = Moments::held_in(recipe.optim.moments, &model, 0)?;
    parts.push(always("moments", taken()));
    let initial = (recipe.metrics.kl_every > 0).then(|| model.copy_trained()).transpose()?;
    if initial.is_some() {
        parts.push(always("initial weights", taken()));
    }
    let mut tape = Tape::new(checkpointing(of));
    let rows = rows(recipe, config);
    let batch = largest_batch(rows, positions);
    let slopes = vec![0.0; tape.forward(&model, &batch)?.log_probs.len()];
    tape.backward(&model, &slopes, &slopes, &mut gradients)?;
    // What the CPU's products copy.
    let copied = counting.copied_bytes() as u64;
    let logits = tape.logit_bytes() as u64;
    let activations = taken() - copied - logits;
    if let Some(reference) = recipe.reference() {
        // The shape of its folder, or of the model where the folder is still to be made.
        let reference = config_of_model(recipe, reference).unwrap_or_else(|_| config.clone());
        let reference = Model::held(counting.clone(), reference, positions, Held::Trained)?;
        let mut tape = Tape::new(ActivationCheckpointing::Layers);
        tape.forward(&reference, &batch)?;
        parts.push(always("reference", taken()));
    }
    if let remembered @ 1.. = remembered_bytes(recipe) {
        parts.push(always("remembered rollouts", remembered));
    }
    parts.extend([training("activations", activations), training("logits", logits)]);
    let rounds = device.compute == Compute::Bf16;
    if device.is_cpu {
        parts.push(always(if rounds { "bf16 inputs" } else { "transposed copy" }, copied));
        parts.push(always("program", PROGRAM + PER_TOKEN * config.vocab_size as u64));
    } else {
        let rounded = if rounds { rounded_gradient(config, rows, device) } else { 0 };
        let bytes = [scratch(config, rows, &sampled(recipe, eval_sets), device), rounded];
        parts.push(always("scratch", bytes.map(|it| it.next_multiple_of(1 << 20)).iter().sum()));
    }
    Ok(parts)
}

/// Most bytes of what the method remembers between steps; all that is sampled at the most.
fn remembered_bytes(recipe: &Recipe) -> u64 {
    let s = &recipe.sampling;
    let of_step = s.prompts_per_step.saturating_mul(s.group_size).saturating_mul(s.max_new_tokens);
    let sampled = (of_step as u64).saturating_mul(recipe.steps);
    let tokens = if recipe.needs().memory { sampled.min(s.remembered_tokens as u64) } else { 0 };
    tokens * Memory::TOKEN_BYTES as u64
}

/// A batch of `rows` tokens, every one of which predicts another.
fn largest_batch(rows: usize, positions: usize) -> PackedBatch {
    let mut batch = PackedBatch::default();
    for first in (0..rows).step_by(positions) {
        batch.push(&vec![0; positions.min(rows - first)], None);
    }
    let target = |row| Target { row, token: 0, inverse_temperature: 1.0 };
    batch.targets = (0..rows).map(target).collect();
    batch
}

/// Which activations are saved, where the recipe leaves it to the device.
pub(super) fn checkpointing(of: Workload) -> ActivationCheckpointing {
    let asked = of.recipe.optim.activation_checkpointing;
    if asked != ActivationCheckpointing::Auto {
        return asked;
    }
    let all = of.recipe.with(&Overrides::set(["optim.activation_checkpointing=none"]));
    let all = Workload { recipe: &all.expect("the value is one of the key's"), ..of };
    if total(&parts(all), of.device) <= of.device.memory_bytes {
        ActivationCheckpointing::None
    } else {
        ActivationCheckpointing::Layers
    }
}

/// The purpose of a run's weights: those of a folder in bf16, beside an adapter, never change.
fn purpose(recipe: &Recipe) -> Held {
    if recipe.lora.is_some() && is_bf16(recipe) {
        Held::Frozen(NumberFormat::Bf16)
    } else {
        Held::Trained
    }
}

fn rank(recipe: &Recipe) -> usize {
    recipe.lora.as_ref().map_or(0, |it| it.rank)
}

/// Bytes of one copy of what is trained in f32: the adapter where there is one, else all weights.
pub(super) fn trained_bytes(recipe: &Recipe, config: &Config) -> u64 {
    let lora = recipe.lora.as_ref().map(LoraSection::shape);
    lora.map_or_else(|| ParamLayout::of(config), |it| it.layout(config)).bytes()
}

/// Bytes of all weights that are read to decode a token.
pub(super) fn weight_bytes(of: Workload) -> u64 {
    let Workload { recipe, config, device, .. } = of;
    let counting = Counting::new(device.caps());
    let read = Model::held(counting, config.clone(), 1, purpose(recipe)).and_then(|mut model| {
        let base = model.copy_trained()?.bytes();
        let Some(lora) = recipe.lora.as_ref() else { return Ok(base) };
        model.add_adapter(lora.shape())?;
        Ok(base + model.copy_trained()?.bytes())
    });
    read.expect("counting refuses no shape that was checked")
}

fn is_bf16(recipe: &Recipe) -> bool {
    let ModelSource::Folder(path) = recipe.model() else { return false };
    let parsed = hapo_model::folder::read_config(std::path::Path::new(path));
    parsed.is_ok_and(|it| it.dtype == Some(Dtype::Bf16))
}

/// A GPU's memory between the kernels of an operation: of attention's backward pass a number for each row and head and
/// the gradients of keys and values by query head, which are added up after; or, where attention is f32, the sums of
/// parts of 256 positions of every decoded sequence, and attention's output in bf16 if products round it.
fn scratch(config: &Config, rows: usize, sampled: &[Sampling], device: &DeviceSpec) -> u64 {
    const PART: usize = 256;
    let in_parts = kv_format(config, device) == NumberFormat::F32;
    let decoded = sampled.iter().filter(|_| in_parts).map(|it| {
        let parts = (it.prompt + it.response).div_ceil(PART);
        let rows = it.sequences.max(REREAD_TOKENS.min(it.response));
        rows * config.heads * parts * (config.head_dim + 2)
    });
    let trained = rows * config.heads * (1 + 2 * config.head_dim);
    let numbers = decoded.chain([trained]).max().unwrap_or_default();
    let is_rounded = device.caps().factors() != kv_format(config, device);
    let rounded = 2 * rows * config.attention_shape().q_dim();
    (4 * numbers).max(if is_rounded { rounded } else { 0 }) as u64
}

/// The largest gradient that two products read in bf16 and that is f32: of logits, of the stream of residuals, or of
/// attention's output where that is.
fn rounded_gradient(config: &Config, rows: usize, device: &DeviceSpec) -> u64 {
    let logit_rows = (device.caps().logit_bytes / (4 * config.vocab_size)).min(rows);
    let width = match kv_format(config, device) {
        NumberFormat::F32 => config.hidden.max(config.attention_shape().q_dim()),
        NumberFormat::Bf16 => config.hidden,
    };
    2 * (rows * width).max(logit_rows * config.vocab_size) as u64
}

/// Most packed tokens of a micro-batch: the budget, or all groups that are run at once where these are smaller, or
/// one sequence where it is longer.
fn rows(recipe: &Recipe, config: &Config) -> usize {
    let (prompt, response) = (recipe.data.max_prompt_tokens, recipe.sampling.max_new_tokens);
    let (all, of_update) = (recipe.sampling.prompts_per_step, mini_batch(recipe));
    // The KL is measured on all groups, the sampler's gap on those after the first update.
    let groups = match (recipe.metrics.kl_every, recipe.metrics.gap_every) {
        (0, 0) => of_update,
        (0, _) => of_update.max(all - of_update),
        _ => all,
    };
    rows_of(recipe, config, groups, prompt, response)
}

/// The same for `groups` groups, and prompts and responses of other lengths.
pub(super) fn rows_of(
    recipe: &Recipe,
    config: &Config,
    groups: usize,
    prompt: usize,
    response: usize,
) -> usize {
    let members = if recipe.method().samples() { recipe.sampling.group_size } else { 1 };
    // The last token of a response is predicted and not read.
    let group = members.saturating_mul(response.saturating_sub(1)).saturating_add(prompt);
    let whole = groups.saturating_mul(group);
    let budget = match recipe.optim.micro_batch_tokens {
        MicroBatch::Auto => micro_batch_tokens(recipe, config),
        MicroBatch::Tokens(it) => it,
    };
    budget.min(whole).max(prompt + response)
}

pub(super) fn mini_batch(recipe: &Recipe) -> usize {
    let all = recipe.sampling.prompts_per_step;
    match recipe.optim.mini_batch_prompts {
        0 => all,
        some => some.min(all),
    }
}

/// The tokens of a micro-batch that a recipe leaves to the model's shape: the most of some powers of two
/// whose activations take no more than weights, gradients and moments do, or 1 GiB.
pub(crate) fn micro_batch_tokens(recipe: &Recipe, config: &Config) -> usize {
    const SIZES: [usize; 3] = [8192, 4096, 2048];
    const LEAST: usize = 1024;
    let room = (4 * trained_bytes(recipe, config)).max(1 << 30);
    let checkpointing = recipe.optim.activation_checkpointing;
    let fits = |rows: &usize| settling_bytes(config, *rows, checkpointing, rank(recipe)) <= room;
    SIZES.into_iter().find(fits).unwrap_or(LEAST)
}

/// Bytes of the tape of `rows` tokens that all predict one, in f32 on a CPU. Bits of a run depend on what is settled by
/// it, so that it stays as it is, whatever a tape of today takes; `rank` is that of an adapter, or 0.
fn settling_bytes(
    config: &Config,
    rows: usize,
    checkpointing: ActivationCheckpointing,
    rank: usize,
) -> u64 {
    const STATS: usize = 6;
    let shape = config.attention_shape();
    let (q_dim, kv_dim, hidden) = (shape.q_dim(), shape.kv_dim(), config.hidden);
    let (heads, kv_heads) = (config.heads, config.kv_heads);
    let saved = match checkpointing {
        ActivationCheckpointing::None => config.layers,
        // What is settled may not depend on the memory that a device has.
        ActivationCheckpointing::Layers | ActivationCheckpointing::Auto => 1,
    };
    let raw = if config.decoder.qk_norm.is_some() { q_dim + kv_dim + heads + kv_heads } else { 0 };
    let layer = hidden + 2 + raw + heads + 2 * (hidden + config.ffn) + 2 * (q_dim + kv_dim);
    let activations = (config.layers + 1) * hidden + saved * layer + config.ffn + rank;
    let gradients = 2 * hidden + 2 * (q_dim + kv_dim) + rank;
    let head = 3 * hidden + 1 + hidden + STATS + 2;
    let logit_rows = (CPU_LOGIT_BYTES / (config.vocab_size * size_of::<f32>())).max(6) / 6 * 6;
    let logits = logit_rows.min(rows.max(1)) * config.vocab_size;
    let tokens = rows.next_multiple_of(16);
    (size_of::<f32>() * (tokens * (activations + gradients + head) + logits)) as u64
}

/// Settings that lower the memory and leave the loss as it is.
pub(super) fn changes(of: Workload) -> Vec<Change> {
    let Workload { recipe, config, device, .. } = of;
    let mut changes = Vec::new();
    let mut consider = |set: String| {
        let changed = recipe.with(&Overrides::set([&set]));
        let changed = changed.expect("the value is one of the key's");
        let total_bytes = total(&parts(Workload { recipe: &changed, ..of }), device);
        changes.push(Change { set, total_bytes });
    };
    if checkpointing(of) == ActivationCheckpointing::None {
        consider("optim.activation_checkpointing=layers".to_owned());
    }
    let longest = recipe.data.max_prompt_tokens + recipe.sampling.max_new_tokens;
    let fewer = (rows(recipe, config) / 4).max(longest);
    consider(format!("optim.micro_batch_tokens={fewer}"));
    let fewer = (recipe.sampling.max_sequences / 4).max(1);
    consider(format!("sampling.max_sequences={fewer}"));
    consider("sampling.kv_memory=auto".to_owned());
    consider("metrics.kl_every=0".to_owned());
    changes
}
