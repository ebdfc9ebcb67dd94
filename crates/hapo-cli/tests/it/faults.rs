//! Faults below the program: what cannot be read is not absent, what is read is not written over. A link that leads to
//! itself stands for a file that the disk does not give. `scripts/torture/faults` fails every system call of a run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{binary, hapo, refuse, repository, succeed};
use hapo_run::{Lock, RunFolder};

const STEPS: &str = "steps=3";

fn arguments<'a>(recipe: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let sets = [
        "model={ init = { hidden = 32, layers = 2, heads = 4, kv_heads = 2, ffn = 64 } }",
        "data.prompts=8",
        "sampling.group_size=2",
        "sampling.prompts_per_step=2",
        "sampling.max_new_tokens=24",
        "optim.mini_batch_prompts=2",
        "checkpoint.every=1",
        "metrics.preflight=0",
    ];
    let mut all = vec!["train", recipe, "--run-dir", "R", "--quiet"];
    all.extend(sets.into_iter().chain(more.iter().copied()).flat_map(|it| ["--set", it]));
    all
}

fn recipe() -> String {
    repository("recipes/smoke.toml").display().to_string()
}

/// Puts a file aside and a link to itself in its place; gives where the file is.
#[cfg(unix)]
fn unread(file: &Path) -> PathBuf {
    let aside = file.with_extension("aside");
    fs::rename(file, &aside).unwrap();
    std::os::unix::fs::symlink(file, file).unwrap();
    aside
}

#[cfg(unix)]
#[test]
fn a_file_beyond_the_limit_and_a_pipe_as_lock_are_named() {
    let (dir, recipe) = (tempfile::tempdir().unwrap(), recipe());
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 16; exec \"$@\"", "sh"]).arg(binary());
    let limited = limited.args(arguments(&recipe, &[STEPS])).current_dir(dir.path());
    let failed = limited.output().unwrap();
    let message = String::from_utf8_lossy(&failed.stderr);
    assert_eq!(failed.status.code(), Some(1), "{message}");
    assert!(message.contains("R/") && message.contains("File too large"), "{message}");
    let pipe = dir.path().join("P/run.lock");
    fs::create_dir(pipe.parent().unwrap()).unwrap();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let message = refuse(dir.path(), &["train", &recipe, "--run-dir", "P", "--quiet"]);
    assert!(message.contains("P/run.lock is no file"), "{message}");
}

#[cfg(unix)]
#[test]
fn a_checkpoint_that_cannot_be_read_is_neither_set_aside_nor_removed() {
    let (dir, recipe) = (tempfile::tempdir().unwrap(), recipe());
    succeed(dir.path(), &arguments(&recipe, &[STEPS, "checkpoint.keep=3"]));
    let resume = |more: &[&str]| {
        let mut all = arguments(&recipe, more);
        all.push("--resume");
        hapo(dir.path(), &all)
    };
    let checkpoint = |step: u64| RunFolder(&dir.path().join("R")).checkpoint_of(step);
    let weights = checkpoint(3).join("trainer_state/parameters.f32");
    let aside = unread(&weights);
    let failed = resume(&["steps=4", "checkpoint.keep=3"]);
    let message = String::from_utf8_lossy(&failed.stderr);
    assert_eq!(failed.status.code(), Some(1), "{message}");
    assert!(message.starts_with("error: cannot read R/checkpoints/step-000003/"), "{message}");
    assert!(checkpoint(3).exists() && !checkpoint(3).with_extension("incomplete").exists());
    fs::rename(aside, weights).unwrap();
    // The state of an old one says whether it is the best: until it can be read, none goes.
    let state = checkpoint(1).join("trainer_state/state.json");
    unread(&state);
    let mut all = arguments(&recipe, &["steps=4", "checkpoint.keep=1"]);
    all.extend(["--resume", "--force-recipe"]);
    let done = hapo(dir.path(), &all);
    let message = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(0), "{message}");
    assert!(message.contains("old checkpoints are left as they are: cannot read"), "{message}");
    assert!((1..=4).all(|step| checkpoint(step).exists()));
    // A template that cannot be read is not another one.
    let model = checkpoint(1).display().to_string();
    let asked = hapo(dir.path(), &["generate", "--model", &model, "1+1=?"]);
    let message = String::from_utf8_lossy(&asked.stderr);
    assert_eq!(asked.status.code(), Some(1), "{message}");
    assert!(message.contains("state.json"), "{message}");
}

#[test]
fn the_leftovers_of_a_killed_process_go_when_a_finished_run_is_resumed() {
    let (dir, recipe) = (tempfile::tempdir().unwrap(), recipe());
    let mut all = arguments(&recipe, &["steps=2", "checkpoint.keep=2"]);
    succeed(dir.path(), &all);
    let half = dir.path().join("R/checkpoints/step-000001.removed.partial");
    fs::create_dir(&half).unwrap();
    all.push("--resume");
    succeed(dir.path(), &all);
    assert!(!half.exists());
    assert_eq!(RunFolder(&dir.path().join("R")).list_checkpoints().unwrap().len(), 2);
}

/// A kill before the first stage has begun: the folder above it holds no run yet.
#[test]
fn the_leftovers_of_a_killed_start_of_stages_go_with_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let staged = fs::read_to_string(recipe()).unwrap() + "\n[[stage]]\nname = \"a\"\nsteps = 1\n";
    fs::write(dir.path().join("staged.toml"), staged).unwrap();
    let leftover = dir.path().join("R/.hapo-1-0.tmp");
    fs::create_dir(dir.path().join("R")).unwrap();
    fs::write(&leftover, "[[stage]]").unwrap();
    succeed(dir.path(), &arguments("staged.toml", &[]));
    assert!(!leftover.exists() && dir.path().join("R/a/recipe.toml").exists());
}

#[test]
fn a_folder_is_looked_at_again_behind_its_lock() {
    let (dir, recipe) = (tempfile::tempdir().unwrap(), recipe());
    let run = dir.path().join("R");
    fs::create_dir(&run).unwrap();
    let held = Lock::take(RunFolder(&run)).unwrap();
    let mut child = Command::new(binary())
        .args(arguments(&recipe, &[STEPS]))
        .current_dir(dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    // Who held it has made a run meanwhile.
    fs::write(RunFolder(&run).recipe(), "steps = 9\n").unwrap();
    drop(held);
    assert_eq!(child.wait().unwrap().code(), Some(2));
    assert_eq!(fs::read_to_string(RunFolder(&run).recipe()).unwrap(), "steps = 9\n");
}

#[test]
fn no_command_writes_over_what_it_reads() {
    let (dir, name) = (tempfile::tempdir().unwrap(), recipe());
    succeed(dir.path(), &arguments(&name, &["steps=1"]));
    fs::copy(&name, dir.path().join("r.toml")).unwrap();
    succeed(dir.path(), &["data", "make", "r.toml", "-o", "d.jsonl"]);
    let weights = "R/checkpoints/step-000001/model.safetensors";
    let mut cases: Vec<(Vec<&str>, &str)> = vec![
        (vec!["report", "R", "-o"], "R/recipe.toml"),
        (vec!["report", "R", "-o"], weights),
        (vec!["export", "R", "-o"], "R/metrics.jsonl"),
        (vec!["new", "--model", "builtin:base", "--data", "d.jsonl", "--force", "-o"], "d.jsonl"),
        (vec!["data", "make", "r.toml", "-o"], "r.toml"),
        (vec!["data", "make", "R", "-o"], "R/metrics.jsonl"),
        (vec!["data", "convert", "d.jsonl", "--to", "trl", "-o"], "d.jsonl"),
        (vec!["data", "check", "d.jsonl", "--drop-bad", "-o"], "d.jsonl"),
    ];
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("R/metrics.jsonl", dir.path().join("link")).unwrap();
        cases.push((vec!["export", "R", "-o"], "link"));
    }
    for (mut arguments, output) in cases {
        let before = fs::read(dir.path().join(output)).unwrap();
        arguments.push(output);
        let message = refuse(dir.path(), &arguments);
        assert!(message.contains("is the input"), "{arguments:?}: {message}");
        assert_eq!(fs::read(dir.path().join(output)).unwrap(), before, "{arguments:?}");
    }
    for _ in 0..2 {
        succeed(dir.path(), &["report", "R", "-o", "R/report.html"]);
    }
}
