//! What a run will take before it starts: memory by part, tokens, operations and time of a step, from
//! a recipe and a model's shape alone.
//!
//! Memory follows the buffers one by one ([`hapo_model::memory`]). Time is a roofline: a part of a step
//! takes as long as its operations at a share of the device's peak, or as long as the bytes it reads at
//! a share of its bandwidth, whichever is longer. The shares are stated with each device.

use hapo_core::GroupPlan;
use hapo_kernels::Cpu;
use hapo_model::{ActivationCheckpointing, Config, memory};
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
    /// Bytes per second from its memory.
    pub bandwidth: f64,
    /// Share of `flops` that training reaches.
    pub training_share: f64,
    /// Share of `bandwidth` that decoding reaches.
    pub decoding_share: f64,
    /// Bytes of a number in activations, keys and values.
    pub activation_bytes: u64,
    /// Bytes of a parameter's working copy beside the f32 master weights; 0 where there is none.
    pub working_copy_bytes: u64,
}

/// A GPU: name, GB of memory, dense bf16 TFLOP/s and GB/s, of its data sheet.
type Gpu = (&'static str, f64, f64, f64);

/// GPUs to plan for.
const GPUS: &[Gpu] = &[
    ("b200", 180.0, 2250.0, 8000.0),
    ("h200", 141.0, 989.0, 4800.0),
    ("h100", 80.0, 989.0, 3350.0),
    ("a100-80gb", 80.0, 312.0, 2039.0),
    ("a100-40gb", 40.0, 312.0, 1555.0),
    ("l40s", 48.0, 362.0, 864.0),
    ("rtx4090", 24.0, 165.0, 1008.0),
    ("rtx3090", 24.0, 71.0, 936.0),
];

/// Shares of the peak of a GPU that the plan assumes.
const GPU_SHARES: (f64, f64) = (0.40, 0.60);

/// Shares of a CPU's measured rates that the estimate assumes.
const CPU_SHARES: (f64, f64) = (0.70, 0.70);

impl DeviceSpec {
    /// A GPU by name: bf16 activations and working weights beside f32 master weights, gradients and
    /// moments.
    pub fn gpu(name: &str) -> Option<Self> {
        let gpu = GPUS.iter().find(|it| it.0 == name)?;
        Some(Self {
            name: gpu.0.to_owned(),
            memory_bytes: (gpu.1 * 1e9) as u64,
            flops: gpu.2 * 1e12,
            bandwidth: gpu.3 * 1e9,
            training_share: GPU_SHARES.0,
            decoding_share: GPU_SHARES.1,
            activation_bytes: 2,
            working_copy_bytes: 2,
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
            bandwidth,
            training_share: CPU_SHARES.0,
            decoding_share: CPU_SHARES.1,
            activation_bytes: 4,
            working_copy_bytes: 0,
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
    let compute = device.flops * device.training_share;
    let bandwidth = device.bandwidth * device.decoding_share;
    // A decoding step reads the weights once and every sequence's keys and values.
    let number_bytes = if device.working_copy_bytes > 0 { device.working_copy_bytes } else { 4 };
    let read = work.decoding_steps * (memory::parameter_bytes(config) / 4 * number_bytes) as f64
        + work.kv_tokens_read
            * (memory::kv_bytes_per_token(config) / 4 * device.activation_bytes) as f64;
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
        changes,
        lengths,
        sampled_tokens: work.sampled_tokens,
        trained_tokens: work.trained_tokens,
        sampling_flops: work.prefill_flops + work.decoding_flops,
        training_flops: work.training_flops,
        sampling_seconds: work.prefill_flops / compute
            + (work.decoding_flops / compute).max(read / bandwidth),
        training_seconds: work.training_flops / compute,
        steps: recipe.steps(),
    }
}

impl Plan {
    /// Seconds of a step.
    pub fn step_seconds(&self) -> f64 {
        self.sampling_seconds + self.training_seconds
    }
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
        Part { name: "weights", bytes: copy + copy / 4 * device.working_copy_bytes },
        Part { name: "gradients", bytes: copy },
        Part { name: "moments", bytes: 2 * copy },
    ];
    if recipe.metrics().kl_every > 0 {
        parts.push(Part { name: "initial weights", bytes: copy });
    }
    let number = |bytes: u64| bytes / 4 * device.activation_bytes;
    let rows = rows(recipe, config);
    let tape =
        memory::tape_bytes(config, rows, rows, rows, recipe.optim().activation_checkpointing);
    parts.push(Part {
        name: "activations",
        bytes: number(tape.activations + tape.gradients + tape.head),
    });
    parts.push(Part { name: "logits", bytes: tape.logits });
    if samples(recipe) {
        let s = &recipe.sampling();
        let sequences = s.max_sequences.min(s.prompts_per_step * s.group_size);
        let room = hapo_sampler::cache_tokens::<Cpu>(
            sequences,
            s.prompts_per_step,
            recipe.data().max_prompt_tokens,
            s.max_new_tokens,
        );
        parts.push(Part {
            name: "keys and values",
            bytes: number(room as u64 * memory::kv_bytes_per_token(config)),
        });
        // The decoder's, and the copy that tokens are drawn from.
        parts.push(Part {
            name: "logits of a token",
            bytes: 2 * 4 * (sequences * config.vocab_size) as u64,
        });
    }
    parts
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

/// Tokens and operations of a step.
struct Work {
    sampled_tokens: f64,
    trained_tokens: f64,
    prefill_flops: f64,
    decoding_flops: f64,
    decoding_steps: f64,
    kv_tokens_read: f64,
    training_flops: f64,
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
        let prompt_flops =
            |head: f64| memory::forward_flops(config, prompts * prompt, head, prompt / 2.0);
        let response_flops =
            memory::forward_flops(config, response_tokens, response_tokens, context);
        let sequences = (recipe.sampling().max_sequences as f64).min(responses);
        let sampling = f64::from(u8::from(samples(recipe)));
        let forward = prompt_flops(0.0) + response_flops;
        let again = match recipe.optim().activation_checkpointing {
            ActivationCheckpointing::None => 0.0,
            ActivationCheckpointing::Layers => {
                prompt_flops(0.0) + memory::forward_flops(config, response_tokens, 0.0, context)
            }
        };
        Self {
            sampled_tokens: sampling * response_tokens,
            trained_tokens: (prompts * prompt + response_tokens) * recipe.optim().passes as f64,
            prefill_flops: sampling * prompt_flops(prompts),
            decoding_flops: sampling * response_flops,
            decoding_steps: sampling * (responses / sequences).ceil() * response,
            kv_tokens_read: sampling * response_tokens * context,
            training_flops: (3.0 * forward + again) * recipe.optim().passes as f64,
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

    /// Floors reckoned by hand for Qwen2.5-3B: 3.09 billion parameters, 36,864 bytes of bf16 keys and
    /// values per token, and 6.2 bytes × 10⁹ of weights in 1.3 ms at 4.8 TB/s.
    #[test]
    fn a_known_model_has_its_known_numbers() {
        let config = qwen25_3b();
        let device = DeviceSpec::gpu("h200").unwrap();
        let lengths = Lengths { prompt: 200.0, response: 1000.0 };
        let it = plan(&recipe(&[]), &config, &device, lengths);
        assert_eq!(it.parameters, 3_085_938_688);
        assert_eq!(memory::kv_bytes_per_token(&config) / 2, 36_864);
        let weights = it.memory.iter().find(|it| it.name == "weights").unwrap().bytes;
        assert_eq!(weights / it.parameters, 6);
        // 6 × parameters × tokens, and the attention on top.
        let plain = 6.0 * it.parameters as f64 * it.trained_tokens;
        assert!(it.training_flops > 0.9 * plain && it.training_flops < 1.3 * plain);
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
