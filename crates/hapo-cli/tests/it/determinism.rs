//! The same seed gives the same bits, whatever the number of threads, and a resumed run is the
//! unbroken one.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::support::{repository, succeed};

/// A short HAPO run on the shipped base model, with a checkpoint after each step.
const OVERRIDES: &[&str] = &[
    "steps=4",
    "sampling.prompts_per_step=6",
    "sampling.group_size=4",
    "optim.mini_batch_prompts=3",
    "data.prompts=24",
    "data.teacher_coverage=1.0",
    "data.levels=[\"add:5\"]",
    "hapo.turn_off_epoch=0.75",
    "checkpoint.every=1",
    "optim.micro_batch_tokens=500",
    "metrics.kl_every=0",
];

fn train(folder: &Path, run_dir: &str, threads: &str, more: &[&str]) {
    let recipe = repository("recipes/quickstart/trapo-hapo.toml");
    let mut args = vec![
        "--threads",
        threads,
        "train",
        recipe.to_str().unwrap(),
        "--run-dir",
        run_dir,
        "--quiet",
    ];
    for it in OVERRIDES {
        args.extend(["--set", it]);
    }
    args.extend(more);
    succeed(folder, &args);
}

/// Metrics without the columns that hold time or memory.
fn metrics(folder: &Path) -> Vec<BTreeMap<String, String>> {
    let text = fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    text.lines()
        .map(|line| {
            let all: BTreeMap<String, serde_json::Value> = serde_json::from_str(line).unwrap();
            all.into_iter()
                .filter(|it| !hapo_train::is_clock(&it.0))
                .map(|(k, v)| (k, v.to_string()))
                .collect()
        })
        .collect()
}

/// Every file of a checkpoint, by name.
fn checkpoint(folder: &Path, step: u64) -> BTreeMap<String, Vec<u8>> {
    let root = folder.join(format!("checkpoints/step-{step:06}"));
    let mut all = BTreeMap::new();
    for sub in ["", "trainer_state"] {
        for entry in fs::read_dir(root.join(sub)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                all.insert(
                    path.strip_prefix(&root).unwrap().display().to_string(),
                    fs::read(&path).unwrap(),
                );
            }
        }
    }
    assert!(all.contains_key("model.safetensors"));
    all
}

/// Number formats of products and moments that this CPU has.
fn formats() -> impl Iterator<Item = [&'static str; 4]> {
    let bf16 = ["compute=bf16"].into_iter().filter(|_| hapo_kernels::multiplies_bf16());
    let computes = ["compute=f32"].into_iter().chain(bf16);
    let moments = ["optim.moments=f32", "optim.moments=bf16"];
    computes.flat_map(move |compute| moments.map(|it| ["--set", compute, "--set", it]))
}

#[test]
fn same_seed_same_bits_with_one_thread_or_two() {
    if hapo_testing::slow() {
        return;
    }
    for formats in formats() {
        same_bits(formats);
    }
}

fn same_bits(formats: [&str; 4]) {
    let dir = tempfile::tempdir().unwrap();
    let train = |folder: &Path, run_dir: &str, threads: &str, more: &[&str]| {
        train(folder, run_dir, threads, &[&formats, more].concat());
    };
    train(dir.path(), "a", "1", &[]);
    train(dir.path(), "b", "2", &[]);
    train(dir.path(), "c", "2", &[]);
    let [a, b, c] = ["a", "b", "c"].map(|it| dir.path().join(it));
    assert_eq!(metrics(&a), metrics(&b));
    assert_eq!(metrics(&b), metrics(&c));
    assert!(checkpoint(&a, 4) == checkpoint(&b, 4) && checkpoint(&b, 4) == checkpoint(&c, 4));
    // The run did something: the teacher entered, the weights moved, and the gate closed at e*.
    let beta: Vec<f64> = metrics(&a).iter().map(|it| it["gate/beta"].parse().unwrap()).collect();
    assert!(beta[0] > 0.0 && beta[1] > 0.0, "{beta:?}");
    assert_eq!(beta[2..], [0.0, 0.0], "e_off = 0.75 of 4 steps is step 3");
    assert_eq!(metrics(&a)[0]["sampler/logprob_gap_max"], "0");
    train(dir.path(), "d", "2", &["--set", "seed=1"]);
    assert_ne!(metrics(&a), metrics(&dir.path().join("d")));
}

#[test]
fn a_resumed_run_is_the_unbroken_one() {
    if hapo_testing::slow() {
        return;
    }
    for formats in formats() {
        resumed_bits(formats);
    }
}

fn resumed_bits(formats: [&str; 4]) {
    let dir = tempfile::tempdir().unwrap();
    let train = |folder: &Path, run_dir: &str, threads: &str, more: &[&str]| {
        train(folder, run_dir, threads, &[&formats, more].concat());
    };
    train(dir.path(), "whole", "2", &[]);
    train(dir.path(), "cut", "2", &[]);
    // Back to what was on disk when step 3 was running.
    let cut = dir.path().join("cut");
    for it in ["step-000003", "step-000004"] {
        fs::remove_dir_all(cut.join("checkpoints").join(it)).unwrap();
    }
    train(dir.path(), "cut", "1", &["--resume"]);
    let whole = dir.path().join("whole");
    assert_eq!(metrics(&whole), metrics(&cut));
    assert!(checkpoint(&whole, 4) == checkpoint(&cut, 4));
}
