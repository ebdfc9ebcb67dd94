//! `--device`: what a machine without a GPU answers, and what is refused by name.

use crate::support::{hapo, refuse, repository, succeed};

/// A GPU that cannot exist: there is no driver, or it has fewer GPUs.
const NO_GPU: &str = "cuda:4095";

#[test]
fn a_gpu_that_is_not_there_is_bad_input_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("ids.jsonl"), "{\"input_ids\": [1, 2]}\n").unwrap();
    let model = repository("testdata/fixtures/models/tiny-qwen2");
    let model = model.to_str().unwrap();
    let recipe = repository("recipes/smoke.toml");
    let recipe = recipe.to_str().unwrap();
    for args in [
        &["logprobs", "--model", model, "--input", "ids.jsonl"][..],
        &["generate", "--model", "builtin:base", "1+1=?"],
        &["eval", "--model", "builtin:base"],
        &["serve", "--model", "builtin:base"],
        &["train", recipe],
    ] {
        let message = refuse(folder.path(), &[args, &["--device", NO_GPU]].concat());
        // A line says which template is taken before the device is opened.
        assert!(
            message.lines().any(|it| it.starts_with("error: --device cuda:4095: ")),
            "{args:?}: {message}"
        );
        assert!(message.contains("\nhint: "), "{args:?}: {message}");
    }
    assert!(!folder.path().join("runs").exists(), "nothing is begun without a device");
}

#[test]
fn other_devices_and_devices_of_a_server_are_usage_errors() {
    let folder = tempfile::tempdir().unwrap();
    for args in [
        &["generate", "--model", "builtin:base", "1", "--device", "gpu"][..],
        &["generate", "--model", "builtin:base", "1", "--device", "cuda:0:f16"],
        &["eval", "--model", "m", "--endpoint", "http://localhost:1", "--device", "cpu"],
    ] {
        assert_eq!(hapo(folder.path(), args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn auto_is_measured_once_and_kept_for_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let recipe = repository("recipes/smoke.toml");
    let train = ["train", recipe.to_str().unwrap(), "--run-dir", "run", "--no-preflight"];
    let few = ["--set", "steps=2", "--set", "sampling.max_new_tokens=8", "--compute", "auto"];
    succeed(folder.path(), &[&train[..], &few].concat());
    let kept = || std::fs::read_to_string(folder.path().join("run/recipe.toml")).unwrap();
    let line = kept().lines().find(|it| it.starts_with("compute = ")).map(str::to_owned);
    let line = line.expect("the recipe of a run has every key");
    assert!(["compute = \"f32\"", "compute = \"bf16\""].contains(&line.as_str()), "{line}");
    // Whatever is the faster format now.
    for (kept_format, other) in [("f32", "bf16"), ("bf16", "f32")] {
        if line.contains(kept_format) {
            let refused = refuse(folder.path(), &["train", "run", "--resume", "--compute", other]);
            assert!(refused.contains("compute"), "{refused}");
        }
    }
    succeed(folder.path(), &["train", "run", "--resume", "--compute", "auto", "--set", "steps=3"]);
    assert!(kept().contains(&line));
    let generate = ["generate", "--model", "builtin:base", "1", "--compute", "auto"];
    assert_eq!(hapo(folder.path(), &generate).status.code(), Some(2));
    let gpu = [&train[..], &few, &["--device", NO_GPU]].concat();
    assert!(refuse(folder.path(), &gpu).contains("--compute auto compares the formats of a CPU"));
}
