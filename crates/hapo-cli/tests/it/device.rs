//! `--device`: what a machine without a GPU answers, and what is refused by name.

use crate::support::{hapo, refuse, repository};

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
