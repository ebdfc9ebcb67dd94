use hapo_kernels::{Compute, Cpu, NumberFormat};
use hapo_model::{flops, kv_bytes_per_token};

use super::*;
use crate::model::lora::Use;
use crate::recipe::{OptimSection, Overrides};

fn recipe(sets: &[&str]) -> Recipe {
    let text = "method = \"grpo\"\n[model.init]\nhidden = 64\nlayers = 2\nheads = 2\nkv_heads = 1\nffn = 128\n";
    Recipe::parse(text, "test", &Overrides::set(sets.iter().copied())).unwrap()
}

fn qwen25_3b() -> Config {
    let text = br#"{"architectures":["Qwen2ForCausalLM"],"model_type":"qwen2","hidden_size":2048,
        "num_hidden_layers":36,"num_attention_heads":16,"num_key_value_heads":2,"intermediate_size":11008,
        "vocab_size":151936,"max_position_embeddings":32768,"rms_norm_eps":1e-6,"rope_theta":1000000.0,
        "tie_word_embeddings":true,"eos_token_id":151643,"hidden_act":"silu"}"#;
    hapo_model::config_json::parse(std::path::Path::new("config.json"), text, None).unwrap().config
}

/// Reckoned by hand for Qwen2.5-3B: 3.09 billion parameters of 4 bytes, 73,728 bytes of f32 keys and values
/// per token, 160 sequences of 8,192 tokens and the step's 128 prompts of 1,024.
#[test]
fn a_known_model_has_its_known_numbers() {
    let config = qwen25_3b();
    let device = DeviceSpec::gpu("h200", Compute::F32).unwrap();
    let lengths = Lengths { prompt: 200.0, response: 1000.0 };
    let sets = ["metrics.kl_every=5", "sampling.max_sequences=160", "sampling.kv_memory=110GB"];
    let it = estimate(Workload::new(&recipe(&sets), &config, &device), lengths);
    assert_eq!(it.parameters, 3_085_938_688);
    assert_eq!(kv_bytes_per_token(&config, NumberFormat::F32), 73_728);
    let part = |name: &str| it.memory.iter().find(|it| it.name == name).unwrap().bytes;
    assert_eq!(part("weights") / it.parameters, 4);
    assert_eq!(part("moments") / it.parameters, 8);
    assert_eq!(part("keys and values"), (160 * 8192 + 128 * 1024) * 73_728);
    assert!(!it.fits && it.total_bytes > 150_000_000_000, "{}", it.total_bytes);
    // f32 weights, f32 parameters and moments; three kept, the best, and one being written: one is made.
    assert_eq!(it.checkpoint_bytes / it.parameters, 16);
    assert_eq!(it.disk_bytes, it.checkpoint_bytes);
    let often = [&sets[..], &["checkpoint.every=10", "model.dtype=bf16"]].concat();
    let often = estimate(Workload::new(&recipe(&often), &config, &device), lengths);
    assert_eq!(often.checkpoint_bytes / often.parameters, 14);
    assert_eq!(often.disk_bytes, 5 * often.checkpoint_bytes);
    // 6 × parameters × tokens, and the attention on top.
    let plain = 6.0 * it.parameters as f64 * it.trained_tokens;
    assert!(it.training_flops > 0.9 * plain && it.training_flops < 1.3 * plain);
    // 67 TFLOP/s of f32 at 40 %, against 989 for what is no attention; an update moves 36 bytes a parameter.
    let moved = 36.0 * it.parameters as f64 / 4.8e12 / 0.6;
    let products = (it.training_seconds - moved) * 67e12 * 0.4;
    assert!((products / it.training_flops - 1.0).abs() < 1e-4, "{products}");
    let rounded = DeviceSpec::gpu("h200", Compute::Bf16).unwrap();
    let rounded = estimate(Workload::new(&recipe(&sets), &config, &rounded), lengths);
    assert_eq!(rounded.training_flops, it.training_flops);
    assert!(rounded.training_seconds < it.training_seconds / 5.0);
    // Keys and values are held in bf16, and half of the activations; weights take as much in their two halves.
    let keys =
        |it: &Estimate| it.memory.iter().find(|it| it.name == "keys and values").unwrap().bytes;
    assert_eq!(2 * keys(&rounded), keys(&it));
    assert!(rounded.total_bytes - keys(&rounded) < it.total_bytes - keys(&it));
}

/// By hand: 9 tenths of what is free beside the rest, by pages of 64 tokens; a mean response of 1,000 takes 16 pages,
/// and an eighth of a prompt's 4 on top.
#[test]
fn keys_and_values_take_what_is_left() {
    let config = qwen25_3b();
    let device = DeviceSpec::gpu("h200", Compute::F32).unwrap();
    let lengths = Lengths { prompt: 200.0, response: 1000.0 };
    let it = estimate(Workload::new(&recipe(&[]), &config, &device), lengths);
    let generation = bytes_of(&it.memory, "generation");
    let cache = bytes_of(&it.memory, "keys and values");
    // Gradients and tape are given back before something is sampled.
    let beside = ["weights", "moments", "scratch", "generation"];
    let mut beside: u64 = beside.iter().map(|name| bytes_of(&it.memory, name)).sum();
    beside += it.memory.iter().find(|it| it.name == "initial weights").map_or(0, |it| it.bytes);
    let free = device.memory_bytes - beside;
    let page = 64 * 73_728;
    assert_eq!(cache, free / 10 * 9 / page * page, "{generation}");
    assert!(it.fits);
    assert_eq!(it.sequences_at_once, 256.min((cache / page) as usize * 64 / (1024 + 256 / 8)));
    let little =
        estimate(Workload::new(&recipe(&["sampling.kv_memory=2GB"]), &config, &device), lengths);
    let cache = bytes_of(&little.memory, "keys and values");
    assert_eq!((cache, little.sequences_at_once), (423 * page, 423 * 64 / 1056));
    assert!(little.sampling_seconds > it.sampling_seconds);
    // One sequence is the least: a device without room for it is one that does not fit.
    let least =
        estimate(Workload::new(&recipe(&["sampling.kv_memory=1MB"]), &config, &device), lengths);
    assert_eq!(bytes_of(&least.memory, "keys and values"), (1024 + 8192) * 73_728);
    let small = DeviceSpec::gpu("rtx4090", Compute::F32).unwrap();
    assert!(!estimate(Workload::new(&recipe(&[]), &config, &small), lengths).fits);
}

/// A step of three prompts with four responses, all at their longest.
const STEP: &[&str] = &[
    "sampling.group_size=4",
    "sampling.prompts_per_step=3",
    "sampling.max_new_tokens=40",
    "sampling.max_sequences=8",
    "data.max_prompt_tokens=24",
    "metrics.kl_every=1",
];

fn bytes_of(parts: &[Part], name: &str) -> u64 {
    parts.iter().find(|it| it.name == name).unwrap().bytes
}

/// Whether the states of a model under training and its tape after the batch of [`STEP`] are what `parts` has, with the
/// names of its weights. Nothing else is on the CPU.
fn assert_trained(
    cpu: &Cpu,
    model: hapo_model::Model<Cpu>,
    optim: &OptimSection,
    parts: &[Part],
    weights: &[&str],
) -> hapo_model::Model<Cpu> {
    let moments = hapo_model::Moments::held_in(optim.moments, &model, 0).unwrap();
    let checkpointing = optim.activation_checkpointing;
    let mut trainer = crate::Trainer::with_moments(model, checkpointing, moments).unwrap();
    trainer.keep_initial().unwrap();
    let states = weights.iter().chain(&["gradients", "moments", "initial weights"]);
    let states: u64 = states.map(|it| bytes_of(parts, it)).sum();
    assert_eq!(states, cpu.tally().now() as u64);
    // The whole batch at its longest, as the trainer packs it.
    let mut batch = hapo_model::PackedBatch::default();
    for _ in 0..3 {
        let prompt = batch.push(&[1; 24], None);
        for _ in 0..4 {
            batch.push_response(prompt, &[2; 40], 1.0);
        }
    }
    let crate::Trainer { model, tape, gradients, .. } = &mut trainer;
    let outputs = tape.forward(model, &batch).unwrap();
    let slopes = vec![1.0; outputs.log_probs.len()];
    tape.backward(model, &slopes, &slopes, gradients).unwrap();
    let held = cpu.tally().now() as u64 - states;
    let copies = ["bf16 inputs", "transposed copy"];
    let copy = parts.iter().find(|it| copies.contains(&it.name)).unwrap().bytes;
    let planned = bytes_of(parts, "activations") + bytes_of(parts, "logits") + copy;
    // Prompts' rows and a response's last one do not reach the head, which the plan does not take off; the copy for fewer
    // rows may be the larger one.
    let near = held * 99 / 100..held * 11 / 10;
    assert!(near.contains(&planned), "{held} held, {planned} planned");
    trainer.model
}

/// The roundings that this CPU has.
fn computes() -> impl Iterator<Item = Compute> {
    [Some(Compute::F32), hapo_kernels::multiplies_bf16().then_some(Compute::Bf16)]
        .into_iter()
        .flatten()
}

/// Every part is what its owner allocates. A further device, cache or mode joins here.
#[test]
fn planned_bytes_are_the_allocators() {
    let all = computes().flat_map(|it| {
        let settings =
            ["optim.passes=1", "optim.activation_checkpointing=layers", "optim.moments=bf16"];
        settings.map(|more| (more, it))
    });
    for (more, compute) in all {
        let recipe = recipe(&[STEP, &[more]].concat());
        let config = config_of(&recipe).unwrap();
        let device = DeviceSpec::cpu("cpu", 1 << 40, 1e11, 1e10).computing(compute, 2e11);
        let parts = parts(Workload::new(&recipe, &config, &device));
        let ModelSource::Init(init) = recipe.model() else { panic!("{recipe:?}") };
        let cpu = Cpu::computing(1, compute).unwrap();
        let model = init::init_model(init, 64, 0, cpu.clone()).unwrap().model;
        let model = assert_trained(&cpu, model, &recipe.optim, &parts, &["weights"]);

        let (room, generation) = Sampling::of_step(&recipe).unwrap().buffers(device.caps());
        let limits = hapo_sampler::EngineLimits {
            max_sequences: generation.decoded,
            cache_tokens: room,
            prefill_tokens: generation.prefill,
            usable_vocab: config.vocab_size,
        };
        let engine = hapo_sampler::Engine::memory_bytes(&model, limits) as u64;
        let planned = bytes_of(&parts, "keys and values") + bytes_of(&parts, "generation");
        // The engine also counts a prompt in pieces, which one that is read at once never is.
        let pieces = 64 * 4 * (2 * 2 * 32 + 2 * 64 + 2);
        assert!(engine.abs_diff(planned + pieces) < planned / 10, "{engine}, {planned}");
    }
}

/// As above, of an adapter beside a folder in bf16 and beside one in f32.
#[test]
fn planned_bytes_of_an_adapter_are_the_allocators() {
    let folders = [("tiny-qwen2-bf16-sharded", true), ("tiny-qwen3", false)];
    let all = computes().flat_map(|it| folders.map(|(name, is_bf16)| (name, is_bf16, it)));
    for (name, is_bf16, compute) in all {
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/fixtures/models");
        let path = std::path::Path::new(fixtures).join(name).display().to_string();
        let text = format!("method = \"grpo\"\nmodel.path = {path:?}\nlora.rank = 5\n");
        let sets = [STEP, &["optim.micro_batch_tokens=8192"]].concat();
        let recipe = Recipe::parse(&text, "test", &Overrides::set(sets)).unwrap();
        let config = config_of(&recipe).unwrap();
        let device = DeviceSpec::cpu("cpu", 1 << 40, 1e11, 1e10).computing(compute, 2e11);
        let parts = parts(Workload::new(&recipe, &config, &device));
        let purpose = Use::Adapter(recipe.lora.as_ref().unwrap(), 0);
        let cpu = Cpu::computing(1, compute).unwrap();
        let model = lora::open(&path, 64, cpu.clone(), purpose).unwrap().loaded.model;
        let numbers = model.layout().parameters() as u64;
        assert_eq!(bytes_of(&parts, "frozen weights") < 3 * numbers, is_bf16);
        let weights = ["frozen weights", "adapter"];
        assert_trained(&cpu, model, &recipe.optim, &parts, &weights);
    }
}

/// Bytes of a token's activations, by hand from the widths, against 16 bytes a parameter.
#[test]
fn a_micro_batch_is_as_large_as_the_shape_allows() {
    let check = |name: &str, tokens: usize| {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/model_configs/fields.json");
        let fields: serde_json::Value =
            serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let text = fields["folders"][name].to_string();
        let file = std::path::Path::new("config.json");
        let config = hapo_model::config_json::parse(file, text.as_bytes(), None).unwrap().config;
        assert_eq!(micro_batch_tokens(&recipe(&[]), &config), tokens, "{name}");
        let layers = ["optim.activation_checkpointing=layers"];
        assert_eq!(micro_batch_tokens(&recipe(&layers), &config), 8192, "{name}");
    };
    check("SmolLM2-135M", 2048);
    check("Qwen2.5-0.5B-Instruct", 4096);
    check("Llama-3.2-1B-Instruct", 8192);
    check("Qwen2.5-Math-7B", 8192);
    // The recorded runs' size.
    let base = crate::model::config().unwrap();
    assert_eq!(micro_batch_tokens(&recipe(&[]), &base), 8192);
}

#[test]
fn changes_lower_the_memory_and_are_in_order() {
    let device = DeviceSpec::cpu("cpu", 1 << 20, 1e11, 1e10);
    let lengths = Lengths { prompt: 10.0, response: 10.0 };
    let recipe = recipe(&["metrics.kl_every=1"]);
    let config = config_of(&recipe).unwrap();
    let it = estimate(Workload::new(&recipe, &config, &device), lengths);
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
    let it = estimate(Workload::new(&recipe, &config, &device), lengths);
    assert_eq!((it.sampled_tokens, it.sampling_seconds), (0.0, 0.0));
    assert!(it.memory.iter().all(|it| it.name != "keys and values"));
    assert!(it.fits && it.training_seconds > 0.0);
}

/// By hand: 50 steps with an evaluation every 20 are 3 evaluations; 10 problems with 3 completions of 7 tokens.
#[test]
fn an_evaluation_counts_with_its_draws_its_time_and_its_memory() {
    let device = DeviceSpec::cpu("cpu", 1 << 40, 1e11, 1e10);
    let lengths = Lengths { prompt: 10.0, response: 10.0 };
    let small = ["steps=50", "sampling.max_new_tokens=10", "sampling.prompts_per_step=1"];
    let eval = "eval={ data = \"e.jsonl\", every = 20, problems = 10, k = 3, max_tokens = 7 }";
    let with = recipe(&[&small[..], &[eval]].concat());
    let config = config_of(&with).unwrap();
    let it = estimate(Workload::new(&with, &config, &device), lengths);
    let evaluation = it.evaluation.clone().unwrap();
    assert_eq!((evaluation.times, evaluation.completions, evaluation.tokens), (3, 30, 210.0));
    let steps = it.step_seconds() * 50.0;
    assert!((it.seconds() - steps - 3.0 * evaluation.seconds).abs() < 1e-12 && steps > 0.0);
    // 10 prompts of 10 tokens at 80 % of the product rate, 210 tokens after 13.5 others at 75 %, and 7 readings of the
    // weights.
    let flops = |rows, head, context| flops::forward_flops(&config, rows, head, context);
    let weights = 4.0 * it.parameters as f64;
    let read = 7.0 * weights + 210.0 * 13.5 * kv_bytes_per_token(&config, NumberFormat::F32) as f64;
    let seconds = flops(100.0, 10.0, 5.0) / 8e10 + flops(210.0, 210.0, 13.5) / 7.5e10 + read / 1e10;
    assert!((evaluation.seconds / seconds - 1.0).abs() < 1e-12, "{evaluation:?}, {seconds}");
    let without = estimate(Workload::new(&recipe(&small), &config, &device), lengths);
    let part =
        |it: &Estimate| it.memory.iter().find(|it| it.name == "keys and values").unwrap().bytes;
    // 8 sequences of 10 tokens and a prompt of 1,024 against 30 of 7 and 10 prompts, by pages of 64 tokens.
    let bytes = kv_bytes_per_token(&config, NumberFormat::F32);
    assert_eq!(part(&without), (8 * 64 + 1024) * bytes);
    assert_eq!(part(&it), (30 * 64 + 10 * 1024) * bytes);
    assert_eq!(without.evaluation, None);
    assert_eq!(without.seconds(), without.step_seconds() * 50.0);
}

/// The number that each recipe of the repository settles, for the models of a ladder: bits depend on it.
#[test]
fn recipes_settle_their_recorded_micro_batches() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/model_configs/fields.json");
    let fields: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let config = |name: &str| {
        let text = fields["folders"][name].to_string();
        let file = std::path::Path::new("config.json");
        hapo_model::config_json::parse(file, text.as_bytes(), None).unwrap().config
    };
    let mut ladder = vec![crate::model::config().unwrap()];
    ladder.extend(["SmolLM2-135M", "Qwen2.5-0.5B-Instruct", "Llama-3.2-1B-Instruct"].map(config));
    ladder.extend([qwen25_3b(), config("Qwen2.5-Math-7B")]);
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../recipes");
    let (mut folders, mut found) = (vec![std::path::PathBuf::from(root)], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "toml") {
                found.push(path);
            }
        }
    }
    found.sort();
    let mut text = String::new();
    for path in found {
        for stage in Recipe::load_stages(&path, &Overrides::default()).unwrap() {
            let own = match stage.model() {
                ModelSource::Init(_) => config_of(&stage).ok(),
                _ => None,
            };
            let settled = own.iter().chain(&ladder).map(|it| micro_batch_tokens(&stage, it));
            let settled: Vec<String> = settled.map(|it| it.to_string()).collect();
            let name = path.strip_prefix(root).unwrap().display();
            let stage = stage.stage().map_or(String::new(), |it| format!(" [{it}]"));
            text += &format!("{name}{stage}: {}\n", settled.join(" "));
        }
    }
    expect_test::expect_file!["micro_batches.txt"].assert_eq(&text);
}
