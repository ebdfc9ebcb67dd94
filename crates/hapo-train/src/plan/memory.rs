//! Memory by part, at the longest prompts and responses that a recipe allows.

use hapo_core::GroupPlan;
use hapo_kernels::{CPU_LOGIT_BYTES, Compute, Cpu, NumberFormat};
use hapo_model::memory::{ActivationFormats, GenerationRows, Packing};
use hapo_model::{
    ActivationCheckpointing, Config, Dtype, KvCache, PREFILL_TOKENS, REREAD_TOKENS, memory,
};
use hapo_sampler::KvMemory;

use super::{Change, DeviceSpec, Held, Lengths, Part, Workload};
use crate::recipe::{EvalSet, LoraSection, MicroBatch, ModelSource, Overrides, Recipe};

/// Whether attention runs on a GPU's tensor cores, of rounded queries, keys and values.
pub(super) fn attends_on_tensor_cores(config: &Config, device: &DeviceSpec) -> bool {
    let rounds = !device.is_cpu && device.compute == Compute::Bf16;
    rounds && config.attention_shape().fits_tensor_cores()
}

/// What a cache's numbers are: those that attention reads.
pub(super) fn kv_format(config: &Config, device: &DeviceSpec) -> NumberFormat {
    formats(config, device).attention
}

/// How activations are held.
fn formats(config: &Config, device: &DeviceSpec) -> ActivationFormats {
    let half = |it| if it { NumberFormat::Bf16 } else { NumberFormat::F32 };
    ActivationFormats {
        factors: half(!device.is_cpu && device.compute == Compute::Bf16),
        attention: half(attends_on_tensor_cores(config, device)),
    }
}

/// Resident bytes of the program before it opens a model.
const PROGRAM: u64 = 14_000_000;

/// Bytes of a tokenizer for each token of the vocabulary.
const PER_TOKEN: u64 = 400;

/// Whether a step of the recipe samples.
pub(super) fn samples(recipe: &Recipe) -> bool {
    recipe.method().sampling() != GroupPlan::Demonstrations
}

/// Something that is sampled at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sampling {
    /// Prompts.
    pub(super) prompts: usize,
    /// Completions of each.
    pub(super) completions: usize,
    /// Sequences decoded at once.
    pub(super) sequences: usize,
    /// Longest prompt.
    pub(super) prompt: usize,
    /// Longest completion.
    pub(super) response: usize,
}

impl Sampling {
    /// The rollouts of a step.
    pub(super) fn of_step(recipe: &Recipe) -> Option<Self> {
        let s = recipe.sampling();
        // A prefix of the teacher is read with the prompt.
        let prefix = match recipe.method().sampling() {
            GroupPlan::Demonstrations => return None,
            GroupPlan::Prefixes(_) => s.max_new_tokens,
            _ => 0,
        };
        Some(Self {
            prompts: s.prompts_per_step,
            completions: s.group_size,
            sequences: s.max_sequences.min(s.prompts_per_step * s.group_size),
            prompt: recipe.data().max_prompt_tokens + prefix,
            response: s.max_new_tokens,
        })
    }

    /// Each set of an evaluation.
    pub(super) fn of_evaluation(recipe: &Recipe, sets: Option<&[EvalSet]>) -> Vec<Self> {
        let Some(eval) = recipe.eval() else {
            return Vec::new();
        };
        let problems = match sets {
            Some(sets) => {
                sets.iter().map(|it| it.dataset.examples.len().min(eval.problems)).collect()
            }
            None => vec![eval.problems],
        };
        let set = |prompts| Self {
            prompts,
            completions: eval.k,
            sequences: recipe.sampling().max_sequences.min(prompts * eval.k),
            prompt: recipe.data().max_prompt_tokens,
            response: recipe.eval_max_tokens(),
        };
        problems.into_iter().map(set).collect()
    }

    /// Tokens of the cache with which nothing is preempted, and what it has buffers for.
    pub(super) fn buffers(self) -> (usize, GenerationRows) {
        let Self { prompts, sequences: rows, prompt, response, .. } = self;
        let room = hapo_sampler::cache_tokens::<Cpu>(rows, prompts, prompt, response);
        let prompts = prompts.min(hapo_sampler::MAX_PREFILL_PROMPTS).min(rows);
        let prefill = (prompts * prompt).min(PREFILL_TOKENS.max(prompt));
        let prefill = prefill.max(REREAD_TOKENS.min(response));
        (room, GenerationRows { decoded: rows.next_multiple_of(4), prefill, prompts })
    }

    /// What it takes of memory of which `free` bytes are left to it; `rank` is that of an adapter, or 0.
    fn memory(
        self,
        (config, formats): (&Config, ActivationFormats),
        kv_memory: KvMemory,
        free: u64,
        rank: usize,
    ) -> SampledMemory {
        let (most, rows) = self.buffers();
        let generation = memory::generation_bytes((config, formats), rows, rank);
        let format = formats.attention;
        let one = (self.prompt, self.response);
        let bytes = kv_memory.limit(Some(free), generation).unwrap_or(u64::MAX);
        // One sequence is the least there is.
        let tokens = KvMemory::fit::<Cpu>((config, format), most, bytes, one)
            .unwrap_or_else(|_| KvCache::<Cpu>::cost(one.0) + KvCache::<Cpu>::cost(one.1));
        SampledMemory {
            tokens,
            cache: KvCache::<Cpu>::bytes(config, format, tokens) as u64,
            generation,
        }
    }

    /// The same with as many sequences as a cache of `tokens` tokens holds at these mean lengths.
    fn at_once(self, tokens: usize, lengths: Lengths) -> Self {
        let pages = |tokens: f64| KvCache::<Cpu>::cost(tokens.ceil() as usize) as f64;
        let one = pages(lengths.response) + pages(lengths.prompt) / self.completions.max(1) as f64;
        let held = (tokens as f64 / one.max(1.0)) as usize;
        Self { sequences: self.sequences.min(held.max(1)), ..self }
    }
}

/// What sampling takes.
#[derive(Clone, Copy)]
struct SampledMemory {
    /// Tokens of the cache.
    tokens: usize,
    /// Bytes of the cache.
    cache: u64,
    /// Bytes of the other buffers.
    generation: u64,
}

/// Each of these with the sequences that run at once at mean lengths, in what the device has beside the rest.
pub(super) fn at_once(all: Vec<Sampling>, of: Workload<'_>, lengths: Lengths) -> Vec<Sampling> {
    let Workload { recipe, config, device, .. } = of;
    let free = beside_sampling(&parts_beside_sampling(of), device);
    let free = device.memory_bytes.saturating_sub(free);
    let (kv_memory, rank) = (recipe.sampling().kv_memory, rank(recipe));
    let config = (config, formats(config, device));
    let one = |it: Sampling| it.at_once(it.memory(config, kv_memory, free, rank).tokens, lengths);
    all.into_iter().map(one).collect()
}

/// The tape outlives the update and the cache is there while the policy samples, so that from the
/// second step on all parts are held at once; but a GPU gives gradients and tape back before it samples.
pub(super) fn total(parts: &[Part], device: &DeviceSpec) -> u64 {
    let of = |held| bytes_held(parts, held);
    let (training, sampling) = (of(Held::Training), of(Held::Sampling));
    let at_once = if device.is_cpu { training + sampling } else { training.max(sampling) };
    of(Held::Always) + at_once
}

fn bytes_held(parts: &[Part], held: Held) -> u64 {
    parts.iter().filter(|it| it.held == held).map(|it| it.bytes).sum()
}

/// Bytes that are held while something is sampled, but for what that takes.
fn beside_sampling(parts: &[Part], device: &DeviceSpec) -> u64 {
    let training = if device.is_cpu { bytes_held(parts, Held::Training) } else { 0 };
    bytes_held(parts, Held::Always) + training
}

pub(super) fn parts(of: Workload<'_>) -> Vec<Part> {
    let Workload { recipe, eval_sets, config, device } = of;
    let mut parts = parts_beside_sampling(of);
    let free = device.memory_bytes.saturating_sub(beside_sampling(&parts, device));
    let (kv_memory, rank) = (recipe.sampling().kv_memory, rank(recipe));
    let held = (config, formats(config, device));
    let all =
        sampled(recipe, eval_sets).into_iter().map(|it| it.memory(held, kv_memory, free, rank));
    let sampled = all.max_by_key(|it| it.cache + it.generation);
    if let Some(SampledMemory { cache, generation, .. }) = sampled {
        let held = Held::Sampling;
        parts.push(Part { name: "keys and values", bytes: cache, held });
        parts.push(Part { name: "generation", bytes: generation, held });
    }
    if device.is_cpu {
        // A checkpoint is written when nothing is sampled.
        let tensor = memory::largest_tensor_bytes(config);
        match tensor.saturating_sub(sampled.map_or(0, |it| it.cache + it.generation)) {
            0 => {}
            bytes => parts.push(Part { name: "checkpoint", bytes, held: Held::Always }),
        }
    }
    parts
}

/// What a step and an evaluation sample.
fn sampled(recipe: &Recipe, sets: Option<&[EvalSet]>) -> Vec<Sampling> {
    Sampling::of_step(recipe).into_iter().chain(Sampling::of_evaluation(recipe, sets)).collect()
}

/// The longest prompt and completion of each.
pub(crate) fn longest_sequences(
    recipe: &Recipe,
    sets: Option<&[EvalSet]>,
) -> impl Iterator<Item = (usize, usize)> {
    sampled(recipe, sets).into_iter().map(|it| (it.prompt, it.response))
}

fn parts_beside_sampling(of: Workload<'_>) -> Vec<Part> {
    let Workload { recipe, eval_sets, config, device } = of;
    let (copy, rank) = (trained_bytes(recipe, config), rank(recipe));
    let always = |name, bytes| Part { name, bytes, held: Held::Always };
    let training = |name, bytes| Part { name, bytes, held: Held::Training };
    let frozen = frozen_bytes(recipe, config, device);
    let elements = copy as usize / size_of::<f32>();
    let moments = (2 * recipe.optim().moments.words(elements) * size_of::<f32>()) as u64;
    let mut parts = match recipe.lora() {
        Some(_) => vec![always("frozen weights", frozen), always("adapter", copy)],
        None => vec![always("weights", whole_bytes(config, device))],
    };
    parts.extend([training("gradients", copy), always("moments", moments)]);
    let keeps_initial = recipe.metrics().kl_every > 0;
    if keeps_initial {
        let bytes = match recipe.lora() {
            None => memory::initial_bytes(config, device.compute, packing(device)),
            Some(_) => copy,
        };
        parts.push(always("initial weights", bytes));
    }
    let rows = rows(recipe, config);
    let checkpointing = recipe.optim().activation_checkpointing;
    let held = (config, formats(config, device));
    let tape = memory::tape_bytes(held, rows, rows, rows, checkpointing, rank, device.logit_bytes);
    parts.push(training("activations", tape.activations + tape.gradients + tape.head));
    parts.push(training("logits", tape.logits));
    let rounds = device.compute == Compute::Bf16;
    if device.is_cpu {
        let bytes = memory::copied_bytes(config, device.compute, rows, rows);
        let name = if rounds { "bf16 inputs" } else { "transposed copy" };
        parts.push(always(name, bytes));
        parts.push(always("program", PROGRAM + PER_TOKEN * config.vocab_size as u64));
    } else {
        let rounded = if rounds { rounded_gradient(config, rows, device) } else { 0 };
        let bytes = [scratch(config, rows, &sampled(recipe, eval_sets), device), rounded];
        let bytes = bytes.map(|it| it.next_multiple_of(1 << 20));
        parts.push(always("scratch", bytes.iter().sum()));
    }
    parts
}

/// The rank of the recipe's adapter; 0 without one.
fn rank(recipe: &Recipe) -> usize {
    recipe.lora().map_or(0, |it| it.rank)
}

/// Bytes of one copy of what is trained: the adapter where there is one, else all weights.
pub(super) fn trained_bytes(recipe: &Recipe, config: &Config) -> u64 {
    let lora = recipe.lora().map(LoraSection::shape);
    lora.map_or_else(|| memory::parameter_bytes(config), |it| it.bytes(config))
}

/// Bytes of all weights that are read to decode a token.
pub(super) fn weight_bytes(recipe: &Recipe, config: &Config, device: &DeviceSpec) -> u64 {
    let trained = trained_bytes(recipe, config);
    match recipe.lora() {
        None => memory::initial_bytes(config, device.compute, packing(device)),
        Some(_) if !is_bf16(recipe) => {
            memory::initial_bytes(config, device.compute, packing(device)) + trained
        }
        Some(_) => frozen_bytes(recipe, config, device) + trained,
    }
}

/// Bytes of weights that are not trained: of a folder in bf16 in bf16, where the device computes with those alone.
fn frozen_bytes(recipe: &Recipe, config: &Config, device: &DeviceSpec) -> u64 {
    let computes_packed = device.is_cpu || device.compute == Compute::Bf16;
    if computes_packed && is_bf16(recipe) {
        return memory::frozen_bytes(config, device.compute, packing(device));
    }
    whole_bytes(config, device)
}

/// Who packs the device's weights.
fn packing(device: &DeviceSpec) -> Packing {
    if device.is_cpu { Packing::Cpu } else { Packing::Gpu }
}

/// Bytes of weights that can be trained.
fn whole_bytes(config: &Config, device: &DeviceSpec) -> u64 {
    memory::weight_bytes(config, device.compute, packing(device))
}

/// Whether the model is a folder that says it is in bf16.
fn is_bf16(recipe: &Recipe) -> bool {
    let ModelSource::Folder(path) = recipe.model() else {
        return false;
    };
    let parsed = hapo_model::folder::read_config(std::path::Path::new(path));
    parsed.is_ok_and(|it| it.dtype == Some(Dtype::Bf16))
}

/// What a GPU holds between the kernels of an operation: of attention's backward pass a number for each row and head and
/// the gradients of keys and values by query head, which are added up after; the sums of parts of 256 positions of every
/// sequence that is decoded; or attention's output in bf16, where it is f32 and products round it.
fn scratch(config: &Config, rows: usize, sampled: &[Sampling], device: &DeviceSpec) -> u64 {
    const PART: usize = 256;
    let decoded = sampled.iter().map(|it| {
        let parts = (it.prompt + it.response).div_ceil(PART);
        let rows = it.sequences.max(REREAD_TOKENS.min(it.response));
        rows * config.heads * parts * (config.head_dim + 2)
    });
    let trained = rows * config.heads * (1 + 2 * config.head_dim);
    let numbers = decoded.chain([trained]).max().unwrap_or_default();
    let formats = formats(config, device);
    let rounded = if formats.factors == formats.attention {
        0
    } else {
        2 * rows * config.attention_shape().q_dim()
    };
    (4 * numbers).max(rounded) as u64
}

/// The largest gradient that two products read in bf16 and that is f32: of logits, of the stream of residuals, or of
/// attention's output where that is.
fn rounded_gradient(config: &Config, rows: usize, device: &DeviceSpec) -> u64 {
    let logit_rows = (device.logit_bytes / (4 * config.vocab_size)).min(rows);
    let width = match formats(config, device).attention {
        NumberFormat::F32 => config.hidden.max(config.attention_shape().q_dim()),
        NumberFormat::Bf16 => config.hidden,
    };
    2 * (rows * width).max(logit_rows * config.vocab_size) as u64
}

/// Most packed tokens of a micro-batch: the budget, or all groups that are run at once where these are smaller, or
/// one sequence where it is longer.
fn rows(recipe: &Recipe, config: &Config) -> usize {
    let (prompt, response) = (recipe.data().max_prompt_tokens, recipe.sampling().max_new_tokens);
    let (all, of_update) = (recipe.sampling().prompts_per_step, mini_batch(recipe));
    // The KL is measured on all groups, the sampler's gap on those after the first update.
    let groups = match (recipe.metrics().kl_every, recipe.metrics().gap_every) {
        (0, 0) => of_update,
        (0, _) => of_update.max(all - of_update),
        _ => all,
    };
    rows_of(recipe, config, groups, (prompt, response))
}

/// The same for so many groups, and prompts and responses of other lengths.
pub(super) fn rows_of(
    recipe: &Recipe,
    config: &Config,
    groups: usize,
    (prompt, response): (usize, usize),
) -> usize {
    let members = if samples(recipe) { recipe.sampling().group_size } else { 1 };
    // The last token of a response is predicted and not read.
    let group = members.saturating_mul(response.saturating_sub(1)).saturating_add(prompt);
    let whole = groups.saturating_mul(group);
    let budget = match recipe.optim().micro_batch_tokens {
        MicroBatch::Auto => micro_batch_tokens(recipe, config),
        MicroBatch::Tokens(it) => it,
    };
    budget.min(whole).max(prompt + response)
}

/// Prompts of an update.
pub(super) fn mini_batch(recipe: &Recipe) -> usize {
    let all = recipe.sampling().prompts_per_step;
    match recipe.optim().mini_batch_prompts {
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
    let checkpointing = recipe.optim().activation_checkpointing;
    let fits = |rows: &usize| {
        let rank = rank(recipe);
        let bytes = CPU_LOGIT_BYTES;
        let held = (config, ActivationFormats::default());
        let tape = memory::tape_bytes(held, *rows, *rows, *rows, checkpointing, rank, bytes);
        tape.total() <= room
    };
    SIZES.into_iter().find(fits).unwrap_or(LEAST)
}

/// Settings that lower the memory and leave the loss as it is.
pub(super) fn changes(of: Workload<'_>) -> Vec<Change> {
    let Workload { recipe, config, device, .. } = of;
    let mut changes = Vec::new();
    let mut consider = |set: String| {
        let changed = recipe.with(&Overrides::set([&set]));
        let changed = changed.expect("the value is one of the key's");
        let total_bytes = total(&parts(Workload { recipe: &changed, ..of }), device);
        changes.push(Change { set, total_bytes });
    };
    if recipe.optim().activation_checkpointing == ActivationCheckpointing::None {
        consider("optim.activation_checkpointing=layers".to_owned());
    }
    let longest = recipe.data().max_prompt_tokens + recipe.sampling().max_new_tokens;
    let fewer = (rows(recipe, config) / 4).max(longest);
    consider(format!("optim.micro_batch_tokens={fewer}"));
    let fewer = (recipe.sampling().max_sequences / 4).max(1);
    consider(format!("sampling.max_sequences={fewer}"));
    consider("sampling.kv_memory=auto".to_owned());
    consider("metrics.kl_every=0".to_owned());
    changes
}
