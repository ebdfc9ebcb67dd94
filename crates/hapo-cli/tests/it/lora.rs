//! Adapters through the binary: runs that survive kills and torn files, folders in and out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{hapo, refuse, repository, succeed};
use serde_json::Value;

fn fixture(path: &str) -> String {
    repository("testdata/fixtures").join(path).canonicalize().unwrap().display().to_string()
}

/// A short run with an adapter beside a small model in bf16.
const RUN: &[&str] = &[
    "lora={ rank = 3, targets = [\"q_proj\", \"v_proj\", \"down_proj\"], init = \"gaussian\" }",
    "steps=6",
    "data.prompts=16",
    "data.max_prompt_tokens=64",
    "sampling.group_size=4",
    "sampling.prompts_per_step=4",
    "sampling.max_new_tokens=12",
    "loss.entropy_coef=0.01",
    "optim.lr=1e-2",
    "optim.mini_batch_prompts=2",
    "checkpoint.every=2",
    "metrics.gap_every=1",
    "metrics.kl_every=2",
    "metrics.preflight=0",
];

fn train(run_dir: &Path, model: &str, more: &[&str]) -> Command {
    let mut it = Command::new(crate::support::binary());
    it.arg("train").arg(repository("recipes/smoke.toml")).arg("--run-dir").arg(run_dir);
    it.arg("--set").arg(format!("model={{ path = \"{model}\" }}"));
    for set in RUN {
        it.arg("--set").arg(set);
    }
    it.arg("--quiet").args(more).stdout(Stdio::piped()).stderr(Stdio::piped());
    it
}

fn done(mut command: Command) -> (i32, String) {
    let it = command.output().unwrap();
    (it.status.code().unwrap_or(-1), String::from_utf8(it.stderr).unwrap())
}

fn last(run_dir: &Path) -> PathBuf {
    run_dir.join("checkpoints/step-000006")
}

/// The files that two equal runs share.
fn bits(run_dir: &Path) -> BTreeMap<&'static str, Vec<u8>> {
    let read = |path: PathBuf| {
        std::fs::read(&path).unwrap_or_else(|it| panic!("{}: {it}", path.display()))
    };
    let mut all = BTreeMap::new();
    for name in [
        "adapter_model.safetensors",
        "adapter_config.json",
        "trainer_state/parameters.f32",
        "trainer_state/first_moments.f32",
        "trainer_state/second_moments.f32",
    ] {
        all.insert(name, read(last(run_dir).join(name)));
    }
    let metrics: String = lines(run_dir)
        .into_iter()
        .map(|mut line| {
            line.as_object_mut().unwrap().retain(|name, _| !hapo_train::is_clock(name));
            line.to_string()
        })
        .collect();
    all.insert("metrics", metrics.into_bytes());
    all
}

fn lines(run_dir: &Path) -> Vec<Value> {
    let metrics = std::fs::read_to_string(run_dir.join("metrics.jsonl")).unwrap();
    metrics.lines().map(|it| serde_json::from_str(it).unwrap()).collect()
}

#[test]
fn a_run_with_an_adapter_survives_kills_and_torn_files() {
    let dir = tempfile::tempdir().unwrap();
    let model = fixture("models/tiny-qwen2-bf16-sharded");
    let whole = dir.path().join("whole");
    let started = std::time::Instant::now();
    let (code, stderr) = done(train(&whole, &model, &[]));
    assert_eq!(code, 0, "{stderr}");
    let unbroken = started.elapsed();
    let expected = bits(&whole);
    for it in lines(&whole) {
        // What is sampled has the bits of what is trained.
        assert_eq!(it["sampler/logprob_gap_max"], 0.0, "{it}");
    }
    assert!(lines(&whole).iter().any(|it| it["grad_norm"].as_f64().unwrap() > 0.0));
    assert!(!last(&whole).join("model.safetensors").exists());

    let killed = dir.path().join("killed");
    for part in 1..=3 {
        let begun = || hapo_run::RunFolder(&killed).holds_run().unwrap();
        let resume: &[&str] = if begun() { &["--resume"] } else { &[] };
        let mut child = train(&killed, &model, resume).spawn().unwrap();
        // On a busy machine the folder may take longer than the whole run took before.
        while !begun() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(unbroken * part / 4);
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let (code, stderr) = done(train(&killed, &model, &["--resume"]));
    assert_eq!(code, 0, "{stderr}");
    assert!(bits(&killed) == expected, "the killed run differs");

    // A torn adapter is named, and the checkpoint before is used.
    let torn = last(&killed).join("adapter_model.safetensors");
    let bytes = std::fs::read(&torn).unwrap();
    std::fs::write(&torn, &bytes[..bytes.len() / 2]).unwrap();
    let (code, stderr) = done(train(&killed, &model, &["--resume"]));
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("adapter_model.safetensors differs from its checksum"), "{stderr}");
    assert!(bits(&killed) == expected, "after a torn checkpoint the run differs");

    let (code, stderr) = done(train(&killed, &model, &["--resume", "--set", "lora.rank=4"]));
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("is of another recipe: lora.rank: 3 → 4"), "{stderr}");

    let run = whole.display().to_string();
    succeed(dir.path(), &["replay", "--run", &run, "--step", "3"]);
    // The checkpoint alone, beside its base, and merged: one model.
    let checkpoint = last(&whole).display().to_string();
    let generate = |model: &str, adapter: &[&str]| {
        let args = ["generate", "--model", model, "1+1=?", "--max-tokens", "8"];
        let greedy = ["--temperature", "0", "--template", "chatml", "--json"];
        let printed = succeed(dir.path(), &[&args[..], &greedy, adapter].concat());
        serde_json::from_str::<Value>(&printed).unwrap()["logprobs"].clone()
    };
    let beside = generate(&model, &["--adapter", &checkpoint]);
    assert_eq!(generate(&checkpoint, &[]), beside);
    assert_ne!(generate(&model, &[]), beside);
}

#[test]
fn a_second_stage_continues_the_adapter_of_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        r#"
        model.path = "{}"
        lora.rank = 2
        data = {{ prompts = 8, teacher_coverage = 1.0, levels = ["add:5"], max_prompt_tokens = 64 }}
        sampling = {{ prompts_per_step = 2, max_new_tokens = 150 }}
        optim.lr = 1e-2
        [[stage]]
        name = "sft"
        method = "sft"
        steps = 2
        [[stage]]
        name = "grpo"
        method = "grpo"
        steps = 1
        model.path = "stage:sft"
        sampling.group_size = 2
        metrics.preflight = 0
        "#,
        fixture("models/tiny-qwen3")
    );
    std::fs::write(dir.path().join("two.toml"), text).unwrap();
    succeed(dir.path(), &["train", "two.toml", "--run-dir", "run", "--quiet"]);
    let config = |stage: &str, step: u32| -> Value {
        let file = format!("run/{stage}/checkpoints/step-00000{step}/adapter_config.json");
        serde_json::from_slice(&std::fs::read(dir.path().join(file)).unwrap()).unwrap()
    };
    let (first, second) = (config("sft", 2), config("grpo", 1));
    assert_eq!(first, second);
    assert_eq!(first["base_model_name_or_path"], fixture("models/tiny-qwen3"));
    // Of another rank it is not continued.
    let other = ["train", "two.toml", "--run-dir", "other", "--quiet"];
    let rank = ["--set", "stage.grpo.lora.rank=4"];
    let output = hapo(dir.path(), &[&other[..], &rank].concat());
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("expected an adapter of [lora]: rank 4"), "{message}");
    assert!(message.contains("got rank 2"), "{message}");
}

fn logprobs(folder: &Path, args: &[&str]) -> Vec<f64> {
    std::fs::write(
        folder.join("ids.jsonl"),
        "{\"input_ids\": [263, 88, 212, 262, 67, 168, 367]}\n",
    )
    .unwrap();
    let printed = succeed(folder, &[&["logprobs", "--input", "ids.jsonl"], args].concat());
    let line: Value = serde_json::from_str(&printed).unwrap();
    line["logprobs"].as_array().unwrap().iter().map(|it| it.as_f64().unwrap()).collect()
}

#[test]
fn a_merged_folder_is_the_model_with_its_adapter() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["tiny-qwen2", "tiny-qwen3", "tiny-llama3"] {
        let (model, adapter) =
            (fixture(&format!("models/{name}")), fixture(&format!("lora/{name}")));
        let beside = logprobs(dir.path(), &["--model", &model, "--adapter", &adapter]);
        let merge = ["merge", "--model", &model, "--adapter", &adapter, "-o", name];
        assert_eq!(succeed(dir.path(), &merge), "");
        let merged = logprobs(dir.path(), &["--model", name]);
        for (a, b) in beside.iter().zip(&merged) {
            assert!((a - b).abs() < 1e-4, "{name}: {a} beside, {b} merged");
        }
        assert_ne!(logprobs(dir.path(), &["--model", &model]), merged);
        let message = refuse(dir.path(), &merge);
        assert!(message.contains("expected a folder without a model"), "{message}");
    }
}

#[test]
fn adapters_of_other_models_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let (model, adapter) = (fixture("models/tiny-qwen3"), fixture("lora/tiny-qwen2"));
    std::fs::write(dir.path().join("ids.jsonl"), "{\"input_ids\": [5, 17, 3]}\n").unwrap();
    let of = ["--model", &model, "--adapter", &adapter];
    for command in [
        &["logprobs", "--input", "ids.jsonl"][..],
        &["generate", "1"],
        &["eval", "--suite", "add:5", "--problems", "1"],
        &["serve", "--port", "0"],
        &["merge", "-o", "out"],
    ] {
        let message = refuse(dir.path(), &[command, &of].concat());
        assert!(message.contains("adapter_model.safetensors"), "{command:?}: {message}");
        assert!(message.contains("expected a tensor of shape"), "{command:?}: {message}");
    }
    assert!(!dir.path().join("out").exists());
    let message = refuse(dir.path(), &["generate", "--model", &adapter, "1", "--template", "none"]);
    assert!(message.contains("the base of the adapter is not here"), "{message}");
}
