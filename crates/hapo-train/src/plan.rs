//! What a run will take before it starts: memory by part, tokens, operations and time of a step, from
//! a recipe and a model's shape alone.
//!
//! Memory is that of the functions which the allocators themselves use ([`hapo_model::memory`],
//! [`hapo_sampler::cache_tokens`]): f32 throughout, on every device and in every mode. Time is a roofline: a part of a step
//! takes as long as its operations at a share of the device's peak, or as long as the bytes it reads at
//! a share of its bandwidth, whichever is longer. The shares are stated with each device.

use hapo_core::GroupPlan;
use hapo_kernels::Cpu;
use hapo_model::memory::GenerationRows;
use hapo_model::{ActivationCheckpointing, Config, KvCache, memory};
use serde::Serialize;

use crate::builtin::BUILTIN_BASE;
use crate::error::Result;
use crate::init;
use crate::recipe::{MicroBatch, ModelSource, Overrides, Recipe};

/// A device to plan for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceSpec {
    /// Name on the command line.
    pub name: String,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Floating-point operations per second of its matrix products.
    pub flops: f64,
    /// Floating-point operations per second of its attention, which is plain f32.
    pub attention_flops: f64,
    /// Bytes per second from its memory.
    pub bandwidth: f64,
    /// Share of `flops` that training reaches.
    pub training_share: f64,
    /// Share of `bandwidth` that decoding reaches.
    pub decoding_share: f64,
    /// Whether products round their inputs to bf16, for which a copy is made.
    pub bf16_products: bool,
}

/// A GPU: name, GB of memory, dense bf16 TFLOP/s of its tensor cores, TFLOP/s of plain f32, and GB/s, of its
/// data sheet.
type Gpu = (&'static str, f64, f64, f64, f64);

/// GPUs to plan for.
const GPUS: &[Gpu] = &[
    ("b200", 180.0, 2250.0, 75.0, 8000.0),
    ("h200", 141.0, 989.0, 67.0, 4800.0),
    ("h100", 80.0, 989.0, 67.0, 3350.0),
    ("a100-80gb", 80.0, 312.0, 19.5, 2039.0),
    ("a100-40gb", 40.0, 312.0, 19.5, 1555.0),
    ("l40s", 48.0, 362.0, 91.6, 864.0),
    ("rtx4090", 24.0, 165.0, 82.6, 1008.0),
    ("rtx3090", 24.0, 71.0, 35.6, 936.0),
];

/// Shares of the peak of a GPU that the plan assumes.
const GPU_SHARES: (f64, f64) = (0.40, 0.60);

/// Shares of a CPU's measured rates that the estimate assumes.
const CPU_SHARES: (f64, f64) = (0.70, 0.70);

impl DeviceSpec {
    /// A GPU by name, as the backend computes on it: f32 in memory and in products, or with products of inputs
    /// rounded to bf16 as `NAME:bf16`.
    pub fn gpu(name: &str) -> Option<Self> {
        let (known, bf16_products) = match name.strip_suffix(":bf16") {
            Some(it) => (it, true),
            None => (name, false),
        };
        let &(_, memory, bf16, f32, bandwidth) = GPUS.iter().find(|it| it.0 == known)?;
        Some(Self {
            name: name.to_owned(),
            memory_bytes: (memory * 1e9) as u64,
            flops: 1e12 * if bf16_products { bf16 } else { f32 },
            attention_flops: 1e12 * f32,
            bandwidth: bandwidth * 1e9,
            training_share: GPU_SHARES.0,
            decoding_share: GPU_SHARES.1,
            bf16_products,
        })
    }

    /// Names of the GPUs.
    pub fn gpus() -> impl Iterator<Item = &'static str> {
        GPUS.iter().map(|it| it.0)
    }

    /// A CPU with its measured rates; everything is f32.
    pub fn cpu(name: &str, memory_bytes: u64, flops: f64, bandwidth: f64) -> Self {
        Self {
            name: name.to_owned(),
            memory_bytes,
            flops,
            attention_flops: flops,
            bandwidth,
            training_share: CPU_SHARES.0,
            decoding_share: CPU_SHARES.1,
            bf16_products: false,
        }
    }
}

/// Mean lengths in tokens to reckon time with.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Lengths {
    /// Of a prompt.
    pub prompt: f64,
    /// Of a response.
    pub response: f64,
}

/// A part of the memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// What it is.
    pub name: &'static str,
    /// Its bytes.
    pub bytes: u64,
}

/// A change that lowers the memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// `--set` argument.
    pub set: String,
    /// Bytes of the whole with it.
    pub total_bytes: u64,
}

/// What a run will take.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Name of the recipe.
    pub name: String,
    /// The device.
    pub device: DeviceSpec,
    /// Parameters of the model.
    pub parameters: u64,
    /// Memory by part.
    pub memory: Vec<Part>,
    /// All of it at the largest moment of a step.
    pub total_bytes: u64,
    /// Whether the device has it.
    pub fits: bool,
    /// A checkpoint on the disk.
    pub checkpoint_bytes: u64,
    /// All checkpoints on the disk at once: those kept, the best, and the one that is being written.
    pub disk_bytes: u64,
    /// Changes that lower the memory, the largest saving first.
    pub changes: Vec<Change>,
    /// Lengths that tokens and times are reckoned with.
    pub lengths: Lengths,
    /// Tokens sampled in a step.
    pub sampled_tokens: f64,
    /// Tokens run forward and backward in a step, prompts once per group.
    pub trained_tokens: f64,
    /// Operations of sampling in a step.
    pub sampling_flops: f64,
    /// Operations of training in a step.
    pub training_flops: f64,
    /// Seconds of sampling in a step.
    pub sampling_seconds: f64,
    /// Seconds of training in a step.
    pub training_seconds: f64,
    /// Steps of the run.
    pub steps: u64,
}

/// The shape of a recipe's model. A model on the disk needs `config.json` only.
///
/// # Errors
/// A model that cannot be read, or one that an earlier stage makes.
pub fn config_of(recipe: &Recipe) -> Result<Config> {
    let context = recipe.data().max_prompt_tokens + recipe.sampling().max_new_tokens;
    match recipe.model() {
        ModelSource::Init(it) => init::config_of(it, &init::tokenizer_of(it)?.0, context),
        ModelSource::Folder(path) if path == BUILTIN_BASE => crate::builtin::config(),
        ModelSource::Folder(path) => {
            Ok(hapo_model::folder::read_config(std::path::Path::new(path))?.config)
        }
        ModelSource::Stage(name) => Err(crate::error::Error::Stage {
            problem: format!("model.path = \"stage:{name}\" is a stage of another recipe"),
        }),
    }
}

/// What `recipe` will take on `device` with a model of the shape `config`. Memory is that of the longest
/// prompts and responses that the recipe allows; time is that of `lengths`.
pub fn plan(recipe: &Recipe, config: &Config, device: &DeviceSpec, lengths: Lengths) -> Plan {
    let memory = parts(recipe, config, device);
    let total_bytes = total(&memory);
    let mut changes = changes(recipe, config, device);
    changes.retain(|it| it.total_bytes < total_bytes);
    changes.sort_by_key(|it| it.total_bytes);
    let work = Work::of(recipe, config, lengths);
    let seconds = |it: Flops| {
        let products = (it.all - it.attention) / device.flops;
        (products + it.attention / device.attention_flops) / device.training_share
    };
    let bandwidth = device.bandwidth * device.decoding_share;
    // A decoding step reads the weights once and every sequence's keys and values.
    let read = work.decoding_steps * memory::parameter_bytes(config) as f64
        + work.kv_tokens_read * memory::kv_bytes_per_token(config) as f64;
    let checkpoint_bytes = checkpoint_bytes(recipe, config);
    Plan {
        name: recipe.name().to_owned(),
        device: device.clone(),
        parameters: config
            .tensors()
            .iter()
            .map(|it| it.shape.iter().product::<usize>() as u64)
            .sum(),
        memory,
        total_bytes,
        fits: total_bytes <= device.memory_bytes,
        checkpoint_bytes,
        disk_bytes: checkpoint_bytes * checkpoints(recipe),
        changes,
        lengths,
        sampled_tokens: work.sampled_tokens,
        trained_tokens: work.trained_tokens,
        sampling_flops: work.prefill.all + work.decoding.all,
        training_flops: work.training.all,
        sampling_seconds: seconds(work.prefill) + seconds(work.decoding).max(read / bandwidth),
        training_seconds: seconds(work.training),
        steps: recipe.steps(),
    }
}

impl Plan {
    /// Seconds of a step.
    pub fn step_seconds(&self) -> f64 {
        self.sampling_seconds + self.training_seconds
    }
}

/// Weights in the recipe's format, and the f32 parameters and moments that a resume reads.
fn checkpoint_bytes(recipe: &Recipe, config: &Config) -> u64 {
    let parameters = memory::parameter_bytes(config) / 4;
    parameters * (recipe.settings().model.dtype.size() as u64 + 3 * 4)
}

/// Checkpoints on the disk at once.
fn checkpoints(recipe: &Recipe) -> u64 {
    let it = recipe.checkpoint();
    let made = match it.every {
        0 => 1,
        every => recipe.steps().div_ceil(every),
    };
    // The next one is written before an old one goes.
    (it.keep as u64 + u64::from(!it.best.is_empty()) + 1).min(made)
}

/// The tape outlives the update and the cache is there while the policy samples, so that from the
/// second step on all parts are held at once.
fn total(parts: &[Part]) -> u64 {
    parts.iter().map(|it| it.bytes).sum()
}

fn samples(recipe: &Recipe) -> bool {
    recipe.method().sampling() != GroupPlan::Demonstrations
}

fn parts(recipe: &Recipe, config: &Config, device: &DeviceSpec) -> Vec<Part> {
    let copy = memory::parameter_bytes(config);
    let mut parts = vec![
        Part { name: "weights", bytes: copy },
        Part { name: "gradients", bytes: copy },
        Part { name: "moments", bytes: 2 * copy },
    ];
    if recipe.metrics().kl_every > 0 {
        parts.push(Part { name: "initial weights", bytes: copy });
    }
    let rows = rows(recipe, config);
    let tape =
        memory::tape_bytes(config, rows, rows, rows, recipe.optim().activation_checkpointing);
    parts.push(Part { name: "activations", bytes: tape.activations + tape.gradients + tape.head });
    parts.push(Part { name: "logits", bytes: tape.logits });
    if device.bf16_products {
        parts.push(Part { name: "bf16 inputs", bytes: rounded_inputs(config, rows) });
    }
    if samples(recipe) {
        let (room, generation) = generation(recipe);
        parts.push(Part {
            name: "keys and values",
            bytes: KvCache::<Cpu>::bytes(config, room) as u64,
        });
        parts
            .push(Part { name: "generation", bytes: memory::generation_bytes(config, generation) });
    }
    parts
}

/// The inputs of the largest product as bf16, which are held next to the f32 ones.
fn rounded_inputs(config: &Config, rows: usize) -> u64 {
    let (hidden, ffn) = (config.hidden as u64, config.ffn as u64);
    let layer = ffn * hidden + rows as u64 * hidden.max(ffn);
    let head = config.vocab_size as u64 * hidden + rows as u64 * hidden;
    2 * layer.max(head)
}

/// Tokens of the cache that sampling reserves, and what it has buffers for.
fn generation(recipe: &Recipe) -> (usize, GenerationRows) {
    let s = &recipe.sampling();
    let (prompt, response) = (recipe.data().max_prompt_tokens, s.max_new_tokens);
    let rows = s.max_sequences.min(s.prompts_per_step * s.group_size);
    let room = hapo_sampler::cache_tokens::<Cpu>(rows, s.prompts_per_step, prompt, response);
    let prompts = s.prompts_per_step.min(hapo_sampler::MAX_PREFILL_PROMPTS).min(rows);
    let prefill = prompts * prompt;
    (room, GenerationRows { rows, decoded: rows.next_multiple_of(4), prefill, prompts })
}

/// Most packed tokens of a micro-batch: the budget, or the whole mini-batch where it is smaller, or one
/// sequence where it is longer.
fn rows(recipe: &Recipe, config: &Config) -> usize {
    let (prompt, response) = (recipe.data().max_prompt_tokens, recipe.sampling().max_new_tokens);
    let members = if samples(recipe) { recipe.sampling().group_size } else { 1 };
    let groups = match recipe.optim().mini_batch_prompts {
        0 => recipe.sampling().prompts_per_step,
        some => some,
    };
    let whole = groups.saturating_mul(members.saturating_mul(response).saturating_add(prompt));
    let budget = match recipe.optim().micro_batch_tokens {
        MicroBatch::Auto => micro_batch_tokens(recipe, config),
        MicroBatch::Tokens(it) => it,
    };
    budget.min(whole).max(prompt + response)
}

/// The tokens of a micro-batch that a recipe leaves to the model's shape: the most of some powers of two
/// whose activations take no more than weights, gradients and moments do, or 1 GiB.
pub(crate) fn micro_batch_tokens(recipe: &Recipe, config: &Config) -> usize {
    const SIZES: [usize; 3] = [8192, 4096, 2048];
    const LEAST: usize = 1024;
    let room = (4 * memory::parameter_bytes(config)).max(1 << 30);
    let checkpointing = recipe.optim().activation_checkpointing;
    let fits = |rows: &usize| {
        let tape = memory::tape_bytes(config, *rows, *rows, *rows, checkpointing);
        tape.total() <= room
    };
    SIZES.into_iter().find(fits).unwrap_or(LEAST)
}

/// Settings that lower the memory and leave the loss as it is.
fn changes(recipe: &Recipe, config: &Config, device: &DeviceSpec) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut consider = |set: String| {
        let changed = recipe.with(&Overrides::set([&set]));
        let changed = changed.expect("the value is one of the key's");
        let total_bytes = total(&parts(&changed, config, device));
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
    consider("metrics.kl_every=0".to_owned());
    changes
}

/// Operations, and those of the attention among them.
#[derive(Clone, Copy, Default)]
struct Flops {
    all: f64,
    attention: f64,
}

impl Flops {
    fn times(self, factor: f64) -> Self {
        Self { all: self.all * factor, attention: self.attention * factor }
    }

    fn plus(self, other: Self) -> Self {
        Self { all: self.all + other.all, attention: self.attention + other.attention }
    }
}

/// Tokens and operations of a step.
struct Work {
    sampled_tokens: f64,
    trained_tokens: f64,
    prefill: Flops,
    decoding: Flops,
    decoding_steps: f64,
    kv_tokens_read: f64,
    training: Flops,
}

impl Work {
    fn of(recipe: &Recipe, config: &Config, lengths: Lengths) -> Self {
        let Lengths { prompt, response } = lengths;
        let prompts = recipe.sampling().prompts_per_step as f64;
        let members = if samples(recipe) { recipe.sampling().group_size as f64 } else { 1.0 };
        let responses = prompts * members;
        let response_tokens = responses * response;
        // A token attends to what is before it: half of its own segment on average.
        let context = prompt + response / 2.0;
        let flops = |rows: f64, head: f64, context: f64| Flops {
            all: memory::forward_flops(config, rows, head, context),
            attention: memory::attention_flops(config, rows, context),
        };
        let of_prompts = |head: f64| flops(prompts * prompt, head, prompt / 2.0);
        let of_responses = flops(response_tokens, response_tokens, context);
        let sequences = (recipe.sampling().max_sequences as f64).min(responses);
        let sampling = f64::from(u8::from(samples(recipe)));
        let forward = of_prompts(0.0).plus(of_responses);
        let again = match recipe.optim().activation_checkpointing {
            ActivationCheckpointing::None => Flops::default(),
            ActivationCheckpointing::Layers => {
                of_prompts(0.0).plus(flops(response_tokens, 0.0, context))
            }
        };
        Self {
            sampled_tokens: sampling * response_tokens,
            trained_tokens: (prompts * prompt + response_tokens) * recipe.optim().passes as f64,
            prefill: of_prompts(prompts).times(sampling),
            decoding: of_responses.times(sampling),
            decoding_steps: sampling * (responses / sequences).ceil() * response,
            kv_tokens_read: sampling * response_tokens * context,
            training: forward.times(3.0).plus(again).times(recipe.optim().passes as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(sets: &[&str]) -> Recipe {
        let text = "method = \"grpo\"\n[model.init]\nhidden = 64\nlayers = 2\nheads = 2\nkv_heads = 1\nffn = 128\n";
        Recipe::parse(text, "test", &Overrides::set(sets.iter().copied())).unwrap()
    }

    fn qwen25_3b() -> Config {
        let text = br#"{"architectures":["Qwen2ForCausalLM"],"model_type":"qwen2","hidden_size":2048,
            "num_hidden_layers":36,"num_attention_heads":16,"num_key_value_heads":2,"intermediate_size":11008,
            "vocab_size":151936,"max_position_embeddings":32768,"rms_norm_eps":1e-6,"rope_theta":1000000.0,
            "tie_word_embeddings":true,"eos_token_id":151643,"hidden_act":"silu"}"#;
        hapo_model::config_json::parse(std::path::Path::new("config.json"), text, None)
            .unwrap()
            .config
    }

    /// Reckoned by hand for Qwen2.5-3B: 3.09 billion parameters of 4 bytes, 73,728 bytes of f32 keys and values
    /// per token, 128 sequences of 8,192 tokens and 192 prompts of 1,024.
    #[test]
    fn a_known_model_has_its_known_numbers() {
        let config = qwen25_3b();
        let device = DeviceSpec::gpu("h200").unwrap();
        let lengths = Lengths { prompt: 200.0, response: 1000.0 };
        let sets = ["metrics.kl_every=5", "sampling.max_sequences=128"];
        let it = plan(&recipe(&sets), &config, &device, lengths);
        assert_eq!(it.parameters, 3_085_938_688);
        assert_eq!(memory::kv_bytes_per_token(&config), 73_728);
        let part = |name: &str| it.memory.iter().find(|it| it.name == name).unwrap().bytes;
        assert_eq!(part("weights") / it.parameters, 4);
        assert_eq!(part("moments") / it.parameters, 8);
        assert_eq!(part("keys and values"), (128 * 8192 + 192 * 1024) * 73_728);
        assert!(!it.fits && it.total_bytes > 150_000_000_000, "{}", it.total_bytes);
        // f32 weights, f32 parameters and moments; three kept, the best, and one being written: one is made.
        assert_eq!(it.checkpoint_bytes / it.parameters, 16);
        assert_eq!(it.disk_bytes, it.checkpoint_bytes);
        let often = [&sets[..], &["checkpoint.every=10", "model.dtype=bf16"]].concat();
        let often = plan(&recipe(&often), &config, &device, lengths);
        assert_eq!(often.checkpoint_bytes / often.parameters, 14);
        assert_eq!(often.disk_bytes, 5 * often.checkpoint_bytes);
        // 6 × parameters × tokens, and the attention on top.
        let plain = 6.0 * it.parameters as f64 * it.trained_tokens;
        assert!(it.training_flops > 0.9 * plain && it.training_flops < 1.3 * plain);
        // 67 TFLOP/s of f32 at 40 %, against 989 for what is no attention.
        assert!((it.training_seconds * 67e12 * 0.4 / it.training_flops - 1.0).abs() < 1e-9);
        let rounded = DeviceSpec::gpu("h200:bf16").unwrap();
        let rounded = plan(&recipe(&sets), &config, &rounded, lengths);
        assert_eq!(rounded.training_flops, it.training_flops);
        assert!(rounded.training_seconds < it.training_seconds / 5.0);
        assert!(rounded.total_bytes > it.total_bytes);
    }

    /// Every part is what its owner allocates. A further device, cache or mode joins here.
    #[test]
    fn planned_bytes_are_the_allocators() {
        let sets = [
            "sampling.group_size=4",
            "sampling.prompts_per_step=3",
            "sampling.max_new_tokens=40",
            "sampling.max_sequences=8",
            "data.max_prompt_tokens=24",
            "metrics.kl_every=1",
        ];
        for more in ["optim.passes=1", "optim.activation_checkpointing=layers"] {
            let recipe = recipe(&[&sets[..], &[more]].concat());
            let config = config_of(&recipe).unwrap();
            let device = DeviceSpec::cpu("cpu", 1 << 40, 1e11, 1e10);
            let parts = parts(&recipe, &config, &device);
            let part = |name: &str| parts.iter().find(|it| it.name == name).unwrap().bytes;

            let ModelSource::Init(init) = recipe.model() else { panic!("{recipe:?}") };
            let cpu = Cpu::new(1).unwrap();
            let model = init::init_model(init, 64, 0, cpu).unwrap().model;
            let mut trainer =
                crate::Trainer::new(model, recipe.optim().activation_checkpointing).unwrap();
            trainer.keep_initial().unwrap();
            let states = ["weights", "gradients", "moments", "initial weights"].map(part);
            assert_eq!(states.iter().sum::<u64>(), crate::Learner::state_bytes(&trainer));

            // The whole batch at its longest, as the trainer packs it.
            let mut batch = hapo_model::PackedBatch::default();
            for _ in 0..3 {
                let prompt = batch.push(&[1; 24], None);
                for _ in 0..4 {
                    batch.push_response(prompt, &[2; 40], 1.0);
                }
            }
            let outputs = trainer.model.forward(&batch, &mut trainer.tape).unwrap();
            let slopes = vec![1.0; outputs.log_probs.len()];
            let crate::Trainer { model, tape, gradients, .. } = &mut trainer;
            model.backward(tape, &slopes, &slopes, gradients).unwrap();
            let held = tape.bytes().total();
            let planned = part("activations") + part("logits");
            // Prompts' rows and a response's last one do not reach the head, which the plan does not take off.
            assert!(held <= planned && planned < held * 11 / 10, "{held} held, {planned} planned");

            let (room, generation) = generation(&recipe);
            let limits = hapo_sampler::EngineLimits {
                max_sequences: generation.rows,
                cache_tokens: room,
                prefill_tokens: generation.prefill,
                usable_vocab: config.vocab_size,
            };
            let engine = hapo_sampler::Engine::memory_bytes(model, limits) as u64;
            let planned = part("keys and values") + part("generation");
            // The engine also counts a prompt in pieces, which one that is read at once never is.
            let pieces = 64 * 4 * (2 * 2 * 32 + 2 * 64 + 2);
            assert!(engine.abs_diff(planned + pieces) < planned / 10, "{engine}, {planned}");
        }
    }

    /// Bytes of a token's activations, by hand from the widths, against 16 bytes a parameter.
    #[test]
    fn a_micro_batch_is_as_large_as_the_shape_allows() {
        let check = |name: &str, tokens: usize| {
            let file =
                concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/model_configs/fields.json");
            let fields: serde_json::Value =
                serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
            let text = fields["folders"][name].to_string();
            let file = std::path::Path::new("config.json");
            let config =
                hapo_model::config_json::parse(file, text.as_bytes(), None).unwrap().config;
            assert_eq!(micro_batch_tokens(&recipe(&[]), &config), tokens, "{name}");
            let layers = ["optim.activation_checkpointing=layers"];
            assert_eq!(micro_batch_tokens(&recipe(&layers), &config), 8192, "{name}");
        };
        check("SmolLM2-135M", 2048);
        check("Qwen2.5-0.5B-Instruct", 4096);
        check("Llama-3.2-1B-Instruct", 8192);
        check("Qwen2.5-Math-7B", 8192);
        // The recorded runs' size.
        let base = crate::builtin::config().unwrap();
        assert_eq!(micro_batch_tokens(&recipe(&[]), &base), 8192);
    }

    #[test]
    fn changes_lower_the_memory_and_are_in_order() {
        let device = DeviceSpec::cpu("cpu", 1 << 20, 1e11, 1e10);
        let lengths = Lengths { prompt: 10.0, response: 10.0 };
        let recipe = recipe(&["metrics.kl_every=1"]);
        let config = config_of(&recipe).unwrap();
        let it = plan(&recipe, &config, &device, lengths);
        assert!(!it.fits);
        let totals: Vec<u64> = it.changes.iter().map(|it| it.total_bytes).collect();
        assert!(totals.is_sorted() && totals.iter().all(|other| *other < it.total_bytes));
        assert!(it.changes.iter().any(|it| it.set == "optim.activation_checkpointing=layers"));
        assert!(it.changes.iter().any(|it| it.set == "metrics.kl_every=0"));
    }

    #[test]
    fn imitation_samples_nothing() {
        let device = DeviceSpec::cpu("cpu", 1 << 40, 1e11, 1e10);
        let lengths = Lengths { prompt: 10.0, response: 10.0 };
        let recipe = recipe(&["method=sft"]);
        let config = config_of(&recipe).unwrap();
        let it = plan(&recipe, &config, &device, lengths);
        assert_eq!((it.sampled_tokens, it.sampling_seconds), (0.0, 0.0));
        assert!(it.memory.iter().all(|it| it.name != "keys and values"));
        assert!(it.fits && it.training_seconds > 0.0);
    }
}
