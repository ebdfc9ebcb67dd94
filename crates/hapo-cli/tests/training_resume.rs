//! The real binary, killed at random moments, resumes with the same bits. The number of kills is
//! `HAPO_KILLS` (4 unless told); `scripts/torture/kill.sh` runs the long form.

#![expect(clippy::print_stderr, reason = "the kill test tells what it did")]
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const HAPO: &str = env!("CARGO_BIN_EXE_hapo");

/// The smoke recipe with a decoder small enough for a test.
const SMALL: &[&str] = &[
    "model={ init = { hidden = 32, layers = 2, heads = 4, kv_heads = 2, ffn = 64, std = 0.3 } }",
    "data.prompts=16",
    "sampling.group_size=4",
    "sampling.prompts_per_step=4",
    "loss.entropy_coef=0.01",
    "optim.mini_batch_prompts=2",
    "checkpoint.every=2",
    "checkpoint.keep=2",
    "metrics.kl_every=2",
    "metrics.preflight=0",
];

fn smoke() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/smoke.toml")
}

fn train(run_dir: &Path, more: &[&str]) -> Command {
    let mut it = Command::new(HAPO);
    it.arg("train").arg(smoke()).arg("--run-dir").arg(run_dir);
    for set in SMALL {
        it.arg("--set").arg(set);
    }
    it.args(more).stdout(Stdio::piped()).stderr(Stdio::piped());
    it
}

/// Exit code, standard output, standard error.
fn done(mut command: Command) -> (i32, String, String) {
    let it = command.output().unwrap();
    let text = |it: Vec<u8>| String::from_utf8(it).unwrap();
    (it.status.code().unwrap_or(-1), text(it.stdout), text(it.stderr))
}

/// What two equal runs have in common: the last checkpoint's parameters, moments and weights, the
/// metrics but for the clocks, the rollouts, the gate.
fn bits(run_dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut keep = |name: &str, path: PathBuf| {
        let bytes = std::fs::read(&path).unwrap_or_else(|it| panic!("{}: {it}", path.display()));
        all.insert(name.to_owned(), bytes);
    };
    let last = run_dir.join("checkpoints/step-000016");
    for name in [
        "model.safetensors",
        "trainer_state/parameters.f32",
        "trainer_state/first_moments.f32",
        "trainer_state/second_moments.f32",
    ] {
        keep(name, last.join(name));
    }
    keep("gate.json", run_dir.join("gate.json"));
    for step in 1..=16 {
        let path = hapo_run::RunFolder(run_dir).rollouts_of(step);
        keep(&format!("rollouts {step}"), path);
    }
    let metrics = std::fs::read_to_string(run_dir.join("metrics.jsonl")).unwrap();
    let lines: Vec<String> = metrics
        .lines()
        .map(|line| {
            let mut line: serde_json::Map<String, serde_json::Value> =
                serde_json::from_str(line).unwrap();
            line.retain(|name, _| !hapo_train::is_clock(name));
            serde_json::to_string(&line).unwrap()
        })
        .collect();
    assert_eq!(lines.len(), 16);
    all.insert("metrics".to_owned(), lines.join("\n").into_bytes());
    all
}

fn assert_equal(run_dir: &Path, expected: &BTreeMap<String, Vec<u8>>, what: &str) {
    for (name, bytes) in bits(run_dir) {
        assert!(bytes == expected[&name], "{what}: {name} differs");
    }
}

/// A different number in 0..n every time, from the clock.
fn somewhere(n: u64) -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    (u64::from(now.subsec_nanos()).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20) % n
}

#[test]
fn a_killed_run_equals_an_unbroken_one() {
    let kills: u32 = std::env::var("HAPO_KILLS").map_or(4, |it| it.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    let started = Instant::now();
    let (code, _, stderr) = done(train(&whole, &["--json"]));
    assert_eq!(code, 0, "{stderr}");
    let unbroken = started.elapsed();
    let expected = bits(&whole);

    let (mut killed, mut resumes, mut runs, mut in_checkpoint) = (0, 0, 0, 0);
    while killed < kills {
        let run_dir = dir.path().join(format!("run-{runs}"));
        runs += 1;
        loop {
            let mut child = train(&run_dir, &["--resume", "--quiet"]).spawn().unwrap();
            resumes += 1;
            if killed < kills {
                // Somewhere in the run, loading and the end included; now and then not at all.
                let wait = somewhere(unbroken.as_micros() as u64 * 11 / 10);
                std::thread::sleep(Duration::from_micros(wait));
                if child.try_wait().unwrap().is_none() {
                    child.kill().unwrap();
                    child.wait().unwrap();
                    killed += 1;
                    let partial = std::fs::read_dir(run_dir.join("checkpoints"));
                    in_checkpoint += u32::from(partial.is_ok_and(|it| {
                        it.flatten()
                            .any(|it| it.path().extension().is_some_and(|it| it == "partial"))
                    }));
                    continue;
                }
            }
            let it = child.wait_with_output().unwrap();
            let stderr = String::from_utf8_lossy(&it.stderr).into_owned();
            assert_eq!(it.status.code(), Some(0), "run {runs}: {stderr}");
            break;
        }
        assert_equal(&run_dir, &expected, &format!("run {runs}"));
        std::fs::remove_dir_all(&run_dir).unwrap();
    }
    eprintln!(
        "{killed} kills ({in_checkpoint} while a checkpoint was written), {resumes} starts, {runs} runs, 0 mismatches; \
         an unbroken run takes {:.2} s",
        unbroken.as_secs_f64()
    );
}

#[test]
fn torn_checkpoints_are_refused_by_name_and_the_one_before_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    assert_eq!(done(train(&whole, &["--set", "checkpoint.keep=3"])).0, 0);
    let expected = bits(&whole);
    let files = || {
        let mut found = Vec::new();
        let mut folders = vec![whole.join("checkpoints/step-000016")];
        while let Some(folder) = folders.pop() {
            for it in std::fs::read_dir(folder).unwrap() {
                let path = it.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    found.push(path);
                }
            }
        }
        found.sort();
        found
    };
    for (index, file) in files().into_iter().enumerate() {
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        let bytes = std::fs::read(&file).unwrap();
        match index % 3 {
            0 => std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap(),
            1 => {
                let mut flipped = bytes.clone();
                flipped[bytes.len() / 2] ^= 0x10;
                std::fs::write(&file, flipped).unwrap();
            }
            _ => std::fs::remove_file(&file).unwrap(),
        }
        let (code, _, stderr) = done(train(&whole, &["--set", "checkpoint.keep=3", "--resume"]));
        assert_eq!(code, 0, "{name}: {stderr}");
        assert!(
            stderr.contains("step-000016")
                && stderr.contains(&name)
                && stderr.contains("using the one before"),
            "{name}: {stderr}"
        );
        assert_equal(&whole, &expected, &name);
    }
    // Nothing whole is left: the run is not begun again behind the user's back.
    for (_, folder) in hapo_run::RunFolder(&whole).list_checkpoints() {
        std::fs::write(folder.join("trainer_state/state.json"), "{}").unwrap();
    }
    let (code, _, stderr) = done(train(&whole, &["--set", "checkpoint.keep=3", "--resume"]));
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("no checkpoint of the run is complete"), "{stderr}");
}

#[test]
fn a_finished_run_says_so_and_a_changed_recipe_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = dir.path().join("run");
    assert_eq!(done(train(&run_dir, &[])).0, 0);
    let listing = || -> Vec<(PathBuf, std::time::SystemTime)> {
        let mut all = Vec::new();
        let mut folders = vec![run_dir.clone()];
        while let Some(folder) = folders.pop() {
            for it in std::fs::read_dir(folder).unwrap() {
                let it = it.unwrap();
                if it.path().is_dir() {
                    folders.push(it.path());
                }
                all.push((it.path(), it.metadata().unwrap().modified().unwrap()));
            }
        }
        all.sort();
        all
    };
    let before = listing();
    let (code, stdout, stderr) = done(train(&run_dir, &["--resume"]));
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("all 16 steps were done before; nothing to do"), "{stdout}");
    assert_eq!(listing(), before);

    let changed = ["--resume", "--set", "optim.lr=2e-4"];
    let (code, _, stderr) = done(train(&run_dir, &changed));
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("is of another recipe: optim.lr: 0.0001 → 0.0002"), "{stderr}");
    assert!(stderr.contains("--force-recipe"), "{stderr}");
    assert_eq!(listing(), before);

    let (code, _, stderr) = done(train(&run_dir, &[]));
    assert_eq!(code, 2);
    assert!(stderr.contains("already holds a run"), "{stderr}");

    let forced = ["--resume", "--force-recipe", "--set", "steps=18", "--set", "optim.lr=2e-4"];
    let (code, stdout, stderr) = done(train(&run_dir, &forced));
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("optim.lr: 0.0001 → 0.0002; steps: 16 → 18"), "{stderr}");
    assert!(stdout.contains("18 steps done"), "{stdout}");
}

#[test]
fn two_processes_in_one_folder_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = dir.path().join("run");
    let mut first = train(&run_dir, &["--set", "steps=100000"]).spawn().unwrap();
    while !run_dir.join("metrics.jsonl").exists() {
        assert!(first.try_wait().unwrap().is_none(), "the first run ended");
        std::thread::sleep(Duration::from_millis(20));
    }
    let (code, _, stderr) = done(train(&run_dir, &["--resume", "--set", "steps=100000"]));
    first.kill().unwrap();
    first.wait().unwrap();
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("is in use by another process"), "{stderr}");
}

/// A disk without room: the files of a process are limited to less than a checkpoint's largest, which
/// fails where a full disk does. `scripts/torture/full_disk.sh` does the same on a small tmpfs.
#[cfg(unix)]
#[test]
fn a_full_disk_keeps_what_was_saved_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = dir.path().join("run");
    // Two checkpoints are written with room, then the limit comes.
    assert_eq!(done(train(&run_dir, &["--set", "steps=4"])).0, 0);
    let whole = train(&run_dir, &["--resume", "--force-recipe", "--quiet"]);
    let limited = || {
        let mut it = Command::new("bash");
        it.arg("-c").arg("trap '' XFSZ; ulimit -f 40; exec \"$0\" \"$@\"").arg(HAPO);
        it.args(whole.get_args());
        it
    };
    let (code, _, stderr) = done(limited());
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("the checkpoint of step 6 is not saved"), "{stderr}");
    assert!(stderr.contains("that of step 4 is complete"), "{stderr}");
    assert!(stderr.contains("free space on the disk, then --resume"), "{stderr}");
    let left: Vec<String> = std::fs::read_dir(run_dir.join("checkpoints"))
        .unwrap()
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .filter(|it| it.contains("partial"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    // With free space again the run resumes, and equals one that never met a full disk.
    assert_eq!(done(train(&run_dir, &["--resume", "--force-recipe"])).0, 0);
    let unbroken = dir.path().join("unbroken");
    assert_eq!(done(train(&unbroken, &[])).0, 0);
    assert_equal(&run_dir, &bits(&unbroken), "after a full disk");
}

#[cfg(unix)]
#[test]
fn sigterm_saves_and_says_how_to_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = dir.path().join("run");
    let child = train(&run_dir, &["--set", "checkpoint.every=0"]).spawn().unwrap();
    while std::fs::read_to_string(run_dir.join("metrics.jsonl")).map_or(0, |it| it.lines().count())
        < 2
    {
        std::thread::sleep(Duration::from_millis(5));
    }
    let kill = Command::new("kill").arg("-TERM").arg(child.id().to_string()).status().unwrap();
    assert!(kill.success());
    let it = child.wait_with_output().unwrap();
    let stdout = String::from_utf8(it.stdout).unwrap();
    assert_eq!(it.status.code(), Some(0));
    assert!(stdout.contains("stopped after step"), "{stdout}");
    assert!(stdout.contains("--resume"), "{stdout}");
    let resume = ["--resume", "--set", "checkpoint.every=0"];
    assert_eq!(done(train(&run_dir, &resume)).0, 0);
    let unbroken = dir.path().join("unbroken");
    assert_eq!(done(train(&unbroken, &["--set", "checkpoint.every=0"])).0, 0);
    // The recipe of the two is the same, so all their files are.
    assert_equal(&run_dir, &bits(&unbroken), "after SIGTERM");
}

/// SFT then GRPO: both stages run, and a kill in either changes nothing.
#[test]
fn stages_run_one_after_the_other_and_resume() {
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/mini/sft-grpo.toml");
    let dir = tempfile::tempdir().unwrap();
    let command = |run_dir: &Path, more: &[&str]| {
        let mut it = Command::new(HAPO);
        it.arg("train").arg(&recipe).arg("--run-dir").arg(run_dir).arg("--quiet");
        for set in [
            "stage.sft.model={ init = { hidden = 32, layers = 2, heads = 4, kv_heads = 2, ffn = 64, std = 0.3 } }",
            "data.prompts=32",
            "sampling.prompts_per_step=4",
            "stage.sft.steps=4",
            "stage.grpo.steps=4",
            "checkpoint.every=2",
            "loss.entropy_coef=0.01",
            "model.dtype=f32",
            "metrics.preflight=0",
        ] {
            it.arg("--set").arg(set);
        }
        it.args(more).stdout(Stdio::piped()).stderr(Stdio::piped());
        it
    };
    let whole = dir.path().join("whole");
    let started = Instant::now();
    let (code, stdout, stderr) = done(command(&whole, &[]));
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stdout.contains("sft: 4 steps done") && stdout.contains("grpo: 4 steps done"),
        "{stdout}"
    );
    let took = started.elapsed().as_micros() as u64;
    let broken = dir.path().join("broken");
    for _ in 0..2 {
        let mut child = command(&broken, &["--resume"]).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(took / 4 + somewhere(took / 2)));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert_eq!(done(command(&broken, &["--resume"])).0, 0);
    for name in ["parameters.f32", "first_moments.f32", "second_moments.f32"] {
        let of = |run: &Path| {
            let file = format!("grpo/checkpoints/step-000004/trainer_state/{name}");
            std::fs::read(run.join(file)).unwrap()
        };
        assert!(of(&whole) == of(&broken), "{name} differs");
    }
    let (code, stdout, _) = done(command(&broken, &["--resume"]));
    assert_eq!(code, 0);
    assert_eq!(stdout.matches("nothing to do").count(), 2, "{stdout}");
}

/// D23: a loss that is NaN or infinite ends the run, and what there was is saved.
#[test]
fn d23_a_loss_that_is_no_number_saves_and_stops() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = dir.path().join("run");
    let (code, _, stderr) = done(train(&run_dir, &["--set", "optim.lr=1e30"]));
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("at step 1") && stderr.contains("lower optim.lr"), "{stderr}");
    // The first of the step's two updates was made, so the weights are those of no step.
    assert!(stderr.contains("halted-step-000001"), "{stderr}");
    assert!(run_dir.join("checkpoints/halted-step-000001/model.safetensors").exists());
    // One update a step: the weights before the step are a checkpoint of their own.
    let other = dir.path().join("other");
    let sets = ["--set", "optim.lr=1e30", "--set", "optim.mini_batch_prompts=0"];
    let (code, _, stderr) = done(train(&other, &sets));
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("at step 2"), "{stderr}");
    assert!(other.join("checkpoints/step-000001/model.safetensors").exists());
}

/// D23: an alarm ends the run if the recipe asks for it, saved and ready to be resumed.
#[test]
fn d23_an_alarm_stops_the_run_where_the_recipe_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = dir.path().join("run");
    let guard = "guard={ stop = true, warmup = 1, window = 1, grad_norm_factor = 1e-6 }";
    let (code, stdout, stderr) = done(train(&run_dir, &["--set", guard]));
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("stopped by the guard: gradient norm"), "{stderr}");
    assert!(stdout.contains("stopped after step 3"), "{stdout}");
    assert!(run_dir.join("checkpoints/step-000003").exists());
    let warned = dir.path().join("warned");
    let (code, _, stderr) = done(train(&warned, &["--set", &guard.replace("true", "false")]));
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("warning: step 3: gradient norm"), "{stderr}");
}

#[test]
fn a_step_is_replayed_from_its_kept_rollouts() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = dir.path().join("run");
    assert_eq!(done(train(&run_dir, &[])).0, 0);
    let replay = |step: &str| {
        let mut it = Command::new(HAPO);
        it.args(["replay", "--json", "--run"]).arg(&run_dir).args(["--step", step]);
        done(it)
    };
    // From the initial weights, from a checkpoint, and over steps whose checkpoints are gone.
    for (step, from) in [("1", 0), ("15", 14), ("16", 14), ("11", 2)] {
        let (code, stdout, stderr) = replay(step);
        assert_eq!(code, 0, "{stderr}");
        let it: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(it["from_step"], from, "{stdout}");
        assert_eq!(it["loss"], it["logged_loss"]);
        assert_eq!(it["grad_norm"], it["logged_grad_norm"]);
        assert!(it["grad_norm"].as_f64().unwrap() > 0.0);
    }
    let (code, _, stderr) = replay("17");
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("step 17 is not logged"), "{stderr}");
    let metrics = run_dir.join("metrics.jsonl");
    let text = std::fs::read_to_string(&metrics).unwrap();
    std::fs::write(&metrics, text.replace("\"grad_norm\":", "\"grad_norm\":1")).unwrap();
    let (code, _, stderr) = replay("16");
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("is not what was logged"), "{stderr}");
}

#[test]
fn the_preflight_is_printed_kept_and_moves_no_draw() {
    let dir = tempfile::tempdir().unwrap();
    let (with, without) = (dir.path().join("with"), dir.path().join("without"));
    let sets = ["--set", "steps=2", "--set", "metrics.preflight=8"];
    let (code, _, stderr) = done(train(&with, &sets));
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stderr.contains("pre-flight  8 prompts × 4: success 0.0 %, all-fail groups 100.0 %"),
        "{stderr}"
    );
    assert!(stderr.contains("teacher for 56.2 % of the prompts"), "{stderr}");
    let found: serde_json::Value =
        serde_json::from_slice(&std::fs::read(with.join("preflight.json")).unwrap()).unwrap();
    assert_eq!(found["prompts"], 8);
    assert_eq!(found["teacher_coverage"], 0.5625);
    assert_eq!(done(train(&without, &["--set", "steps=2"])).0, 0);
    for name in ["parameters.f32", "second_moments.f32"] {
        let of = |run: &Path| {
            std::fs::read(run.join(format!("checkpoints/step-000002/trainer_state/{name}")))
                .unwrap()
        };
        assert!(of(&with) == of(&without), "{name} differs");
    }
}
