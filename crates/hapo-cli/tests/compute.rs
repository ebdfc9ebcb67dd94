//! `--compute` and the recipe's `compute`: what each device has, and what belongs to a run and to a record.

#[path = "it/support/mod.rs"]
mod support;

use std::path::Path;
use std::process::Command;

use hapo_kernels::multiplies_bf16;
use support::{hapo, refuse, repository, succeed};

/// A run of two steps on a small decoder.
fn train(folder: &Path, more: &[&str]) -> Vec<String> {
    let recipe = repository("recipes/smoke.toml").display().to_string();
    let small = [
        "steps=2",
        "model={ init = { hidden = 30, layers = 1, heads = 3, kv_heads = 1, ffn = 35, std = 0.3 } }",
        "data.prompts=8",
        "sampling.group_size=4",
        "sampling.prompts_per_step=2",
        "checkpoint.every=1",
        "metrics.preflight=0",
    ];
    let mut args =
        vec!["train".to_owned(), recipe, "--run-dir".into(), "run".into(), "--quiet".into()];
    for it in small {
        args.extend(["--set".to_owned(), it.to_owned()]);
    }
    args.extend(more.iter().map(|it| (*it).to_owned()));
    assert!(folder.is_dir());
    args
}

fn words(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

#[test]
fn a_cpu_has_no_tf32_and_bf16_only_with_its_instructions() {
    let folder = tempfile::tempdir().unwrap();
    let generate = ["generate", "--model", "builtin:base", "1+1=?", "--compute"];
    let message = refuse(folder.path(), &[&generate[..], &["tf32"]].concat());
    let error = "error: compute = \"tf32\": the CPU has no TF32 products\nhint: ";
    assert!(message.contains(error), "{message}");
    let message = refuse(folder.path(), &words(&train(folder.path(), &["--compute", "tf32"])));
    assert!(message.contains(error), "{message}");
    // The same binary where the instructions are not: lowered by hand.
    let output = Command::new(support::binary())
        .args([&generate[..], &["bf16"]].concat())
        .current_dir(folder.path())
        .env("HAPO_CPU", "avx2")
        .output()
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("error: compute = \"bf16\": "), "{message}");
    assert!(
        message.contains("avx512_bf16") && message.contains("\nhint: compute = \"f32\""),
        "{message}"
    );
    assert!(!folder.path().join("run").exists(), "nothing is begun");
}

#[test]
fn the_old_suffix_names_the_key() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["generate", "--model", "builtin:base", "1", "--device", "cuda:0:bf16"];
    let message = refuse(folder.path(), &args);
    assert!(message.contains("--device cuda:0 --compute bf16"), "{message}");
    assert!(message.contains("`compute = \"bf16\"`"), "{message}");
    let recipe = repository("recipes/smoke.toml").display().to_string();
    let message = refuse(folder.path(), &["plan", &recipe, "--device", "h200:bf16"]);
    assert!(message.contains("--device h200 --compute bf16"), "{message}");
}

#[test]
fn the_key_belongs_to_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let one = train(folder.path(), &["--set", "steps=1"]);
    succeed(folder.path(), &words(&one));
    // As a run of two steps is left that is ended before its first checkpoint.
    let run = folder.path().join("run");
    std::fs::remove_dir_all(run.join("checkpoints")).unwrap();
    let text = std::fs::read_to_string(run.join("recipe.toml")).unwrap();
    assert!(text.contains("compute = \"f32\"\n"), "{text}");
    let text = text.replace("steps = 1\n", "steps = 2\n");
    std::fs::write(run.join("recipe.toml"), text).unwrap();
    if multiplies_bf16() {
        let message = refuse(
            folder.path(),
            &words(&train(folder.path(), &["--resume", "--compute", "bf16"])),
        );
        assert!(message.contains("compute: \"f32\" → \"bf16\""), "{message}");
    }
    succeed(folder.path(), &words(&train(folder.path(), &["--resume"])));
    assert!(run.join("checkpoints/step-000002").is_dir());
}

/// Odd widths, an adapter beside it and the sampler's gap; a record of completions is of one `compute`.
#[test]
fn bf16_trains_samples_and_scores_with_the_same_arithmetic() {
    if !multiplies_bf16() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (name, more) in
        [("all", &["--set", "metrics.kl_every=1"][..]), ("adapter", &["--set", "lora.rank=3"])]
    {
        let mut args = train(folder.path(), &[&["--compute", "bf16"], more].concat());
        args[3] = name.to_owned();
        succeed(folder.path(), &words(&args));
        let metrics =
            std::fs::read_to_string(folder.path().join(name).join("metrics.jsonl")).unwrap();
        for line in metrics.lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["sampler/logprob_gap_max"], 0.0, "{name}: {line}");
        }
        let recipe = std::fs::read_to_string(folder.path().join(name).join("recipe.toml")).unwrap();
        assert!(recipe.contains("compute = \"bf16\"\n"), "{recipe}");
        let replayed = ["replay", "--run", name, "--step", "2"];
        succeed(folder.path(), &replayed);
    }
    let eval =
        ["eval", "--model", "builtin:base", "--suite", "add:3", "--problems", "2", "--k", "1"];
    let eval = [&eval[..], &["--out", "e.jsonl"]].concat();
    succeed(folder.path(), &[&eval[..], &["--compute", "bf16"]].concat());
    let other = hapo(folder.path(), &eval);
    let message = String::from_utf8(other.stderr).unwrap();
    assert!(
        !other.status.success() && message.contains("compute was \"bf16\", is nothing"),
        "{message}"
    );
}

/// Keys and values in bf16: the same on one thread and on two, in half the memory, and another record.
#[test]
fn keys_and_values_in_bf16_belong_to_a_record_and_take_half_the_memory() {
    let folder = tempfile::tempdir().unwrap();
    let generate = |more: &[&str]| {
        let base = ["generate", "--model", "builtin:base", "13*27=?", "-n", "3"];
        hapo(folder.path(), &[&base[..], &["--max-tokens", "300", "--json"], more].concat())
    };
    let bf16 = generate(&["--kv-dtype", "bf16", "--threads", "1"]);
    assert!(bf16.status.success(), "{}", String::from_utf8_lossy(&bf16.stderr));
    let again = generate(&["--kv-dtype", "bf16", "--threads", "2", "--kv-memory", "500kB"]);
    assert_eq!(String::from_utf8(bf16.stdout), String::from_utf8(again.stdout));
    // A prompt of 15 tokens and a completion of up to 300: 1 + 5 pages.
    let small = generate(&["--kv-memory", "500kB"]);
    let message = String::from_utf8(small.stderr).unwrap();
    assert!(!small.status.success() && message.contains("needs 0.786 MB"), "{message}");
    let eval =
        ["eval", "--model", "builtin:base", "--suite", "add:3", "--problems", "2", "--k", "1"];
    let eval = [&eval[..], &["--out", "e.jsonl"]].concat();
    succeed(folder.path(), &[&eval[..], &["--kv-dtype", "bf16"]].concat());
    let other = hapo(folder.path(), &eval);
    let message = String::from_utf8(other.stderr).unwrap();
    let refused = message.contains("kv_dtype was \"bf16\", is nothing");
    assert!(!other.status.success() && refused, "{message}");
}
