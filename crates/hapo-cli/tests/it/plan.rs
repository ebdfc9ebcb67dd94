//! `hapo plan`, from a recipe and a config.json alone.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn plan(recipe: &str, args: &[&str]) -> Output {
    plan_with(Path::new("no-cache"), recipe, args)
}

/// Without a network, and with this cache of the hub.
fn plan_with(cache: &Path, recipe: &str, args: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Command::new(env!("CARGO_BIN_EXE_hapo"))
        .current_dir(root)
        .args(["plan", recipe])
        .args(args)
        .envs([("HF_HUB_OFFLINE", Path::new("1")), ("HF_HUB_CACHE", cache)])
        .output()
        .unwrap()
}

/// A folder with nothing but the config.json of a model of Qwen2.5-3B's shape.
fn config_of_3b(folder: &Path) -> PathBuf {
    let config = r#"{"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 2048,
        "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 2, "intermediate_size": 11008,
        "vocab_size": 151936, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
        "tie_word_embeddings": true, "eos_token_id": 151643, "hidden_act": "silu"}"#;
    std::fs::write(folder.join("config.json"), config).unwrap();
    folder.to_owned()
}

#[test]
fn what_does_not_fit_is_told_what_to_change() {
    let folder = tempfile::tempdir().unwrap();
    let model = config_of_3b(folder.path());
    let model = model.to_str().unwrap();
    let it = plan(
        "recipes/paper/3b/hapo-method.toml",
        &["--device", "rtx4090", "--model", model, "--json"],
    );
    assert!(it.status.success(), "{}", String::from_utf8_lossy(&it.stderr));
    let plans: serde_json::Value = serde_json::from_slice(&it.stdout).unwrap();
    let plan = &plans[0];
    assert_eq!(plan["parameters"], 3_085_938_688_u64);
    assert_eq!(plan["fits"], false);
    let parts = plan["memory"].as_array().unwrap();
    let sum = |names: &[&str]| -> u64 {
        let those = parts.iter().filter(|it| names.contains(&it["name"].as_str().unwrap()));
        those.map(|it| it["bytes"].as_u64().unwrap()).sum()
    };
    // A GPU has what only training needs, or what only sampling needs.
    let (training, sampling) =
        (["gradients", "activations", "logits"], ["keys and values", "generation"]);
    let all: Vec<&str> = parts.iter().map(|it| it["name"].as_str().unwrap()).collect();
    let always = sum(&all) - sum(&training) - sum(&sampling);
    assert_eq!(plan["total_bytes"], always + sum(&training).max(sum(&sampling)));
    // Weights, gradients, moments: 4 + 4 + 8 bytes a parameter, whatever products round.
    let states: u64 = ["weights", "gradients", "moments"]
        .iter()
        .map(|name| {
            let part = parts.iter().find(|it| it["name"] == *name).unwrap();
            part["bytes"].as_u64().unwrap()
        })
        .sum();
    // The rotary table lies with the weights: 9,216 positions of 128 numbers.
    assert_eq!(states, 16 * 3_085_938_688 + 9_216 * 128 * 4);
    let changes = plan["changes"].as_array().unwrap();
    assert!(
        changes
            .iter()
            .any(|it| { it["set"].as_str().unwrap().starts_with("optim.micro_batch_tokens=") })
    );
}

/// Keys and values, activations and states of the paper's 3B run are f32: the plan once halved them, and said
/// that it fits.
#[test]
fn the_papers_run_does_not_fit_without_preemption_in_f32() {
    let folder = tempfile::tempdir().unwrap();
    let model = config_of_3b(folder.path());
    // On a GPU keys and values are in bf16 where products are.
    let of_f32 = ("f32", "h200", "106.30 GB", false);
    for (compute, device, keys, fits) in
        [of_f32, ("bf16", "h200, bf16 products", " 53.15 GB", true)]
    {
        let it = plan(
            "recipes/paper/3b/hapo-method.toml",
            &[
                "--device",
                "h200",
                "--compute",
                compute,
                "--set",
                "sampling.max_sequences=160",
                "--set",
                "sampling.kv_memory=110GB",
                "--model",
                model.to_str().unwrap(),
            ],
        );
        let text = String::from_utf8(it.stdout).unwrap();
        assert!(text.contains(&format!("parameters on {device}\n")), "{text}");
        assert!(text.contains(&format!("keys and values         {keys}")), "{text}");
        assert_eq!(!text.contains("does not fit"), fits, "{text}");
        assert!(text.contains("of checkpoints of 43.20 GB each"), "{text}");
    }
}

#[test]
fn both_stages_are_planned_with_the_model_of_the_first() {
    let it = plan("recipes/mini/sft-grpo.toml", &["--device", "h100"]);
    let text = String::from_utf8(it.stdout).unwrap();
    assert!(it.status.success());
    for line in ["sft: 1,588,160 parameters on h100", "grpo: 1,588,160 parameters on h100"] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn a_gpu_that_is_not_known_and_a_model_that_is_not_there() {
    let it = plan("recipes/mini/grpo.toml", &["--device", "h300"]);
    assert_eq!(it.status.code(), Some(2));
    let text = String::from_utf8_lossy(&it.stderr).into_owned();
    assert!(text.contains("`h300`") && text.contains("known GPUs are b200"), "{text}");
    let it = plan("recipes/paper/3b/grpo.toml", &["--device", "h100"]);
    assert_eq!(it.status.code(), Some(2));
    let message = String::from_utf8_lossy(&it.stderr);
    assert!(message.contains(" is not in the cache (no-cache)"), "{message}");
}

#[test]
fn a_model_of_the_hub_is_planned_by_its_config_alone() {
    let cache = tempfile::tempdir().unwrap();
    let model = cache.path().join("models--Qwen--Qwen2.5-0.5B");
    let snapshot = model.join("snapshots/0123456789abcdef");
    for folder in [&snapshot, &model.join("refs")] {
        std::fs::create_dir_all(folder).unwrap();
    }
    std::fs::write(model.join("refs/main"), "0123456789abcdef").unwrap();
    config_of_3b(&snapshot);
    let it = plan_with(cache.path(), "builtin:qwen2.5-0.5b-gsm8k", &["--device", "h200"]);
    let text = String::from_utf8_lossy(&it.stdout);
    assert!(it.status.success(), "{}", String::from_utf8_lossy(&it.stderr));
    assert!(text.contains(" parameters on h200"), "{text}");
}

#[test]
fn a_family_that_has_not_run_on_a_gpu_is_refused_there() {
    let model = "testdata/fixtures/families/gemma3_text";
    let it = plan("recipes/smoke.toml", &["--device", "h100", "--model", model]);
    let stderr = String::from_utf8_lossy(&it.stderr);
    assert_eq!(it.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("gemma3_text: this family runs on a CPU only"), "{stderr}");
}
