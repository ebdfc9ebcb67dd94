//! The real binary, killed at random moments, resumes with the same bits. The number of kills is
//! `HAPO_KILLS` (4 unless told); `scripts/torture/kill.sh` runs the long form.

#![expect(clippy::print_stderr, reason = "the kill test tells what it did")]
use sha2::Digest;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// The command under test: what `HAPO` names, as the wheel's command, else the binary.
static HAPO: LazyLock<OsString> =
    LazyLock::new(|| std::env::var_os("HAPO").unwrap_or_else(|| env!("CARGO_BIN_EXE_hapo").into()));

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
    let mut it = Command::new(&*HAPO);
    it.arg("train").arg(smoke()).arg("--run-dir").arg(run_dir);
    for set in SMALL {
        it.arg("--set").arg(set);
    }
    it.args(more).stdout(Stdio::piped()).stderr(Stdio::piped());
    it
}

/// `--resume` where the folder holds a run, or one of a stage: a process may be killed before there is one.
fn resumed(run_dir: &Path) -> &'static [&'static str] {
    let folders = [run_dir.to_owned(), run_dir.join("sft")];
    let begun = folders.iter().any(|folder| hapo_run::RunFolder(folder).holds_run().unwrap());
    if begun { &["--resume"] } else { &[] }
}

/// Exit code, standard output, standard error.
fn done(mut command: Command) -> (i32, String, String) {
    let it = command.output().unwrap();
    let text = |it: Vec<u8>| String::from_utf8(it).unwrap();
    (it.status.code().unwrap_or(-1), text(it.stdout), text(it.stderr))
}

/// The files that two equal runs share: the last checkpoint's parameters, moments and weights, the
/// metrics but for the clocks, the rollouts, the gate.
fn bits(run_dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut keep = |name: &str, path: PathBuf| {
        let bytes = std::fs::read(&path).unwrap_or_else(|it| panic!("{}: {it}", path.display()));
        all.insert(name.to_owned(), bytes);
    };
    let (steps, last) = hapo_run::RunFolder(run_dir).list_checkpoints().unwrap().swap_remove(0);
    for name in [
        "model.safetensors",
        "trainer_state/parameters.f32",
        "trainer_state/first_moments.f32",
        "trainer_state/second_moments.f32",
    ] {
        keep(name, last.join(name));
    }
    for path in [run_dir.join("gate.json"), last.join("trainer_state/memory.json")] {
        if path.exists() {
            keep(path.file_name().unwrap().to_str().unwrap(), path.clone());
        }
    }
    for step in 1..=steps {
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
    assert_eq!(lines.len() as u64, steps);
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
            let more = [resumed(&run_dir), &["--quiet"]].concat();
            let mut child = train(&run_dir, &more).spawn().unwrap();
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
    for (_, folder) in hapo_run::RunFolder(&whole).list_checkpoints().unwrap() {
        std::fs::write(folder.join("trainer_state/state.json"), "{}").unwrap();
    }
    let (code, _, stderr) = done(train(&whole, &["--set", "checkpoint.keep=3", "--resume"]));
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("no checkpoint of the run is complete"), "{stderr}");
}

/// Whoever edits a checkpoint can mend its checksums too.
#[test]
fn a_checkpoint_that_contradicts_itself_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = dir.path().join("run");
    assert_eq!(done(train(&run_dir, &["--set", "steps=4"])).0, 0);
    let last = run_dir.join("checkpoints/step-000004");
    let listed = std::fs::read_to_string(last.join("checksums.json")).unwrap();
    let nan: Vec<u8> = f32::NAN.to_le_bytes().into_iter().collect();
    let state = std::fs::read_to_string(last.join("trainer_state/state.json")).unwrap();
    let moments = std::fs::read(last.join("trainer_state/first_moments.f32")).unwrap();
    for (name, bytes, problem) in [
        (
            "trainer_state/state.json",
            state.replace("\"step\": 4", "\"step\": 3").into_bytes(),
            "trainer_state/state.json: expected step 4, as the folder is named, got 3",
        ),
        (
            "trainer_state/first_moments.f32",
            [&nan[..], &moments[4..]].concat(),
            "first_moments.f32: a number is NaN or infinite",
        ),
        ("more.safetensors", Vec::new(), "checksums.json does not list more.safetensors"),
    ] {
        let before = std::fs::read(last.join(name)).ok();
        std::fs::write(last.join(name), &bytes).unwrap();
        let hash = hapo_core::hex(sha2::Sha256::digest(&bytes));
        let mut sums: serde_json::Value = serde_json::from_str(&listed).unwrap();
        if before.is_some() {
            sums[name] = hash.into();
        }
        std::fs::write(last.join("checksums.json"), sums.to_string()).unwrap();
        let (_, _, stderr) = done(train(&run_dir, &["--set", "steps=8", "--resume", "--quiet"]));
        assert!(stderr.contains(problem), "{name}: {stderr}");
        // Back to what it was.
        std::fs::remove_dir_all(&run_dir).unwrap();
        assert_eq!(done(train(&run_dir, &["--set", "steps=4"])).0, 0);
    }
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
    assert!(stdout.contains("16 steps done before; nothing to do"), "{stdout}");
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

/// Absent, empty, without a run, without a checkpoint, of another recipe: each says so.
#[test]
fn a_folder_without_the_run_to_resume_says_which_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (absent, empty) = (dir.path().join("absent"), dir.path().join("empty"));
    std::fs::create_dir(&empty).unwrap();
    let (other, file) = (dir.path().to_owned(), dir.path().join("file"));
    std::fs::write(&file, "").unwrap();
    for (folder, problem) in [
        (&absent, "does not exist"),
        (&empty, "is empty"),
        (&other, "holds no run"),
        (&file, "is no folder"),
    ] {
        let (code, _, stderr) = done(train(folder, &["--resume"]));
        assert_eq!(code, 2, "{stderr}");
        let said = format!("{} {problem}: there is no run to resume", folder.display());
        assert!(stderr.contains(&said), "{stderr}");
        assert!(stderr.contains("leave out --resume to start it"), "{stderr}");
    }
    assert!(!absent.exists());

    let run_dir = dir.path().join("run");
    let cosine = ["--set", "optim.lr_schedule=cosine", "--set", "optim.warmup=0.1"];
    let short = [&cosine[..], &["--set", "steps=2", "--quiet"]].concat();
    assert_eq!(done(train(&run_dir, &short)).0, 0);
    let longer = [&cosine[..], &["--set", "steps=4", "--resume", "--quiet"]].concat();
    let (code, _, stderr) = done(train(&run_dir, &longer));
    assert_eq!(code, 2, "{stderr}");
    let keys = "steps: 2 → 4 (optim.lr_schedule, optim.warmup depend on steps)";
    assert!(stderr.contains(keys) && stderr.contains("--force-recipe"), "{stderr}");

    // A recipe without an end, and one that nobody writes.
    #[cfg(unix)]
    assert!(Command::new("mkfifo").arg(dir.path().join("fifo")).status().unwrap().success());
    #[cfg(unix)]
    for target in ["/dev/zero", "fifo"] {
        let (odd, recipe) = (dir.path().join("odd"), dir.path().join("odd/recipe.toml"));
        std::fs::create_dir_all(&odd).unwrap();
        let _ = std::fs::remove_file(&recipe);
        std::os::unix::fs::symlink(
            if target == "fifo" { dir.path().join(target) } else { target.into() },
            &recipe,
        )
        .unwrap();
        let mut command = Command::new(&*HAPO);
        command.arg("train").arg(&odd).arg("--resume");
        let (code, _, stderr) = done(command);
        assert_eq!(code, 2, "{stderr}");
        assert!(stderr.contains("is no file"), "{stderr}");
    }

    // Killed before its first step.
    std::fs::remove_dir_all(run_dir.join("checkpoints")).unwrap();
    std::fs::remove_file(run_dir.join("metrics.jsonl")).unwrap();
    let mut folder = Command::new(&*HAPO);
    folder.arg("train").arg(&run_dir).args(["--resume", "--no-preflight"]);
    let (code, stdout, stderr) = done(folder);
    assert_eq!(code, 0, "{stderr}");
    let said = "the run ended before its first checkpoint: it begins with step 1";
    assert!(stderr.contains(said) && stdout.contains("2 steps done"), "{stderr}{stdout}");
}

/// A collector of the log that ends, or `| head`, is no end of the run.
#[test]
fn a_run_goes_on_where_nobody_reads_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    for (name, log) in [("text", "text"), ("json", "json")] {
        let run_dir = dir.path().join(name);
        let mut child = train(&run_dir, &["--log", log, "--set", "steps=4"]).spawn().unwrap();
        drop((child.stdout.take(), child.stderr.take()));
        assert_eq!(child.wait().unwrap().code(), Some(0), "{log}");
        assert!(run_dir.join("checkpoints/step-000004").is_dir(), "{log}");
    }
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
    let refused = done(train(&run_dir, &["--resume", "--set", "steps=100000"]));
    // A lock file that somebody removed lets no second process in.
    std::fs::remove_file(run_dir.join("run.lock")).unwrap();
    let without_file = done(train(&run_dir, &["--resume", "--set", "steps=100000"]));
    // The gate's file does not grow with the steps.
    assert!(std::fs::metadata(run_dir.join("gate.json")).unwrap().len() < 1000);
    first.kill().unwrap();
    first.wait().unwrap();
    for (code, _, stderr) in [refused, without_file] {
        assert_eq!(code, 2, "{stderr}");
        assert!(stderr.contains("is in use by another process"), "{stderr}");
    }
}

/// A run on a file and a model folder of its own, all small.
struct OwnInputs {
    dir: tempfile::TempDir,
}

impl OwnInputs {
    /// Rows `d.jsonl` and a model `base` that a run of one step made.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let made = dir.path().join("made");
        assert_eq!(done(train(&made, &["--set", "steps=1", "--set", "checkpoint.every=0"])).0, 0);
        std::fs::rename(made.join("checkpoints/step-000001"), dir.path().join("base")).unwrap();
        // It is edited.
        std::fs::remove_file(dir.path().join("base/checksums.json")).unwrap();
        let row = |i: usize| {
            let (a, b) = (i + 3, i + 11);
            let sum = a + b;
            format!(
                "{{\"id\":\"r{i}\",\"problem\":\"{a}+{b}=?\",\"answer\":\"{sum}\",\"teacher\":\"\\\\boxed{{{sum}}}\"}}\n"
            )
        };
        std::fs::write(dir.path().join("d.jsonl"), (0..8).map(row).collect::<String>()).unwrap();
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn train(&self, run: &str, more: &[&str]) -> (i32, String, String) {
        let mut it = Command::new(&*HAPO);
        it.arg("train").arg(smoke()).arg("--run-dir").arg(self.path(run));
        let model = format!("model={{ path = \"{}\" }}", self.path("base").display());
        let data = format!("data.train={}", self.path("d.jsonl").display());
        for set in [
            &model,
            &data,
            "steps=4",
            "sampling.group_size=2",
            "sampling.prompts_per_step=4",
            "checkpoint.every=2",
            "metrics.preflight=0",
        ] {
            it.arg("--set").arg(set);
        }
        it.args(["--unset", "data.prompts", "--unset", "data.teacher_coverage"]);
        it.args(["--unset", "data.levels", "--quiet"]);
        it.args(more).stdout(Stdio::piped()).stderr(Stdio::piped());
        done(it)
    }

    fn edit(&self, name: &str, edit: impl FnOnce(Vec<u8>) -> Vec<u8>) -> Vec<u8> {
        let before = std::fs::read(self.path(name)).unwrap();
        let after = edit(before.clone());
        assert!(after != before, "{name} is as it was");
        std::fs::write(self.path(name), after).unwrap();
        before
    }
}

fn replaced(from: &str, to: &str) -> impl FnOnce(Vec<u8>) -> Vec<u8> {
    move |it| String::from_utf8(it).unwrap().replacen(from, to, 1).into_bytes()
}

/// A change of a file.
type Edit = Box<dyn FnOnce(Vec<u8>) -> Vec<u8>>;

#[test]
fn a_resume_with_other_data_or_another_model_is_refused_by_name() {
    let own = OwnInputs::new();
    let (code, _, stderr) = own.train("run", &[]);
    assert_eq!(code, 0, "{stderr}");
    let last = own.path("run/checkpoints/step-000004");
    let parameters = || std::fs::read(last.join("trainer_state/parameters.f32")).unwrap();
    let expected = parameters();
    std::fs::remove_dir_all(&last).unwrap();

    let swapped = |it: Vec<u8>| {
        let text = String::from_utf8(it).unwrap();
        let mut rows: Vec<&str> = text.lines().collect();
        rows.swap(2, 5);
        (rows.join("\n") + "\n").into_bytes()
    };
    let last_weight = |mut it: Vec<u8>| {
        let at = it.len() - 3;
        it[at] ^= 1;
        it
    };
    let two_tokens = |it: Vec<u8>| {
        let mut json: serde_json::Value = serde_json::from_slice(&it).unwrap();
        let (a, b) = (json["model"]["vocab"]["7"].take(), json["model"]["vocab"]["8"].take());
        json["model"]["vocab"]["7"] = b;
        json["model"]["vocab"]["8"] = a;
        serde_json::to_vec(&json).unwrap()
    };
    let edits: Vec<(&str, Edit, &[&str])> = vec![
        ("d.jsonl", Box::new(swapped), &["rendered prompts", "gold answers", "teachers"]),
        ("d.jsonl", Box::new(replaced("3+11=?", "2+12=?")), &["rendered prompts (data.train)"]),
        (
            "d.jsonl",
            Box::new(replaced("\"answer\":\"14\"", "\"answer\":\"014\"")),
            &["gold answers (data.train)"],
        ),
        ("d.jsonl", Box::new(replaced("boxed{14}", "boxed{14}.")), &["teachers (data.train)"]),
        (
            "base/config.json",
            Box::new(replaced("\"rope_theta\": 10000", "\"rope_theta\": 500")),
            &["configuration (model)"],
        ),
        ("base/tokenizer.json", Box::new(two_tokens), &["tokenizer (model)"]),
        ("base/model.safetensors", Box::new(last_weight), &["base weights (model)"]),
    ];
    for (name, edit, named) in edits {
        let before = own.edit(name, edit);
        let (code, _, stderr) = own.train("run", &["--resume"]);
        assert_eq!(code, 2, "{named:?}: {stderr}");
        assert!(stderr.contains("run was begun with other inputs: the "), "{stderr}");
        assert!(named.iter().all(|it| stderr.contains(it)), "{named:?}: {stderr}");
        assert!(stderr.contains("--resume --force-recipe"), "{stderr}");
        assert_eq!(stderr.contains("gold"), named.iter().any(|it| it.contains("gold")), "{stderr}");
        assert!(!last.exists(), "{stderr}");
        std::fs::write(own.path(name), before).unwrap();
    }
    // The same rows, written in another way, are the same data.
    own.edit("d.jsonl", |it| replaced("{\"id\"", "{ \"id\"")(it));
    let (code, _, stderr) = own.train("run", &["--resume"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(parameters() == expected);

    std::fs::remove_dir_all(&last).unwrap();
    own.edit("d.jsonl", replaced("3+11=?", "2+12=?"));
    let (code, _, stderr) = own.train("run", &["--resume", "--force-recipe"]);
    assert_eq!(code, 0, "{stderr}");
    let warning = "resuming with other inputs: the rendered prompts (data.train)";
    assert!(stderr.contains(warning), "{stderr}");
    // From here on it is the run of the new data.
    std::fs::remove_dir_all(&last).unwrap();
    assert_eq!(own.train("run", &["--resume", "--force-recipe"]).0, 0);
}

/// A run that was ended before its first checkpoint reads what it began with too.
#[test]
fn a_run_without_a_checkpoint_begins_again_only_as_it_was() {
    let own = OwnInputs::new();
    assert_eq!(own.train("run", &[]).0, 0);
    std::fs::remove_dir_all(own.path("run/checkpoints")).unwrap();
    let metrics = own.path("run/metrics.jsonl");
    let text = std::fs::read_to_string(&metrics).unwrap();
    std::fs::write(&metrics, text.lines().next().unwrap().to_owned() + "\n").unwrap();
    let before = own.edit("d.jsonl", replaced("3+11=?", "2+12=?"));
    let (code, _, stderr) = own.train("run", &["--resume"]);
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("the rendered prompts (data.train)"), "{stderr}");
    std::fs::write(own.path("d.jsonl"), before).unwrap();
    own.edit("run/inputs.json", replaced("chains of 512", "chains of 256"));
    let (code, _, stderr) = own.train("run", &["--resume"]);
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("other inputs: the arithmetic of the processor"), "{stderr}");
    std::fs::remove_file(own.path("run/inputs.json")).unwrap();
    let (code, _, stderr) = own.train("run", &["--resume"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("step 1 is computed again"), "{stderr}");
    assert!(stderr.contains("inputs.json is missing"), "{stderr}");
}

#[test]
fn a_run_whose_checkpoints_are_gone_is_not_begun_again_in_silence() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = dir.path().join("run");
    assert_eq!(done(train(&run_dir, &[])).0, 0);
    let expected = bits(&run_dir);
    std::fs::remove_dir_all(run_dir.join("checkpoints")).unwrap();
    let metrics = run_dir.join("metrics.jsonl");
    let whole = std::fs::read_to_string(&metrics).unwrap();
    let cut = |lines: usize| {
        let kept: Vec<&str> = whole.lines().take(lines).collect();
        std::fs::write(&metrics, kept.join("\n") + "\n").unwrap();
    };
    cut(3);
    let (code, _, stderr) = done(train(&run_dir, &["--resume"]));
    assert_eq!(code, 2, "{stderr}");
    assert!(
        stderr.contains(
            "3 steps are logged and no checkpoint is there, though the first was due after step 2"
        ),
        "{stderr}"
    );
    // A folder of a run without its recipe is one all the same.
    std::fs::rename(run_dir.join("recipe.toml"), dir.path().join("recipe.toml")).unwrap();
    let (code, _, stderr) = done(train(&run_dir, &[]));
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("already holds a run"), "{stderr}");
    std::fs::rename(dir.path().join("recipe.toml"), run_dir.join("recipe.toml")).unwrap();
    // Killed between the second line and the first checkpoint.
    cut(2);
    let (code, _, stderr) = done(train(&run_dir, &["--resume"]));
    assert_eq!(code, 0, "{stderr}");
    let said = "the run ended before its first checkpoint: steps 1 to 2 are computed again";
    assert!(stderr.contains(said), "{stderr}");
    assert_equal(&run_dir, &expected, "begun again");
}

#[test]
fn a_log_that_is_no_text_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = dir.path().join("run");
    assert_eq!(done(train(&run_dir, &[])).0, 0);
    std::fs::remove_dir_all(run_dir.join("checkpoints/step-000016")).unwrap();
    let metrics = run_dir.join("metrics.jsonl");
    let mut bytes = std::fs::read(&metrics).unwrap();
    let third = bytes.split_inclusive(|it| *it == b'\n').take(2).map(<[u8]>::len).sum::<usize>();
    bytes[third + 2] = 0xff;
    std::fs::write(&metrics, &bytes).unwrap();
    let (code, _, stderr) = done(train(&run_dir, &["--resume"]));
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("metrics.jsonl holds 13 of the 14 steps done"), "{stderr}");
    assert!(std::fs::read(run_dir.join("metrics.jsonl.unreadable")).unwrap() == bytes);
    assert_eq!(std::fs::read_to_string(&metrics).unwrap().lines().count(), 15);
}

/// An incomplete checkpoint takes no place from a complete one.
#[test]
fn incomplete_checkpoints_are_not_counted() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = dir.path().join("run");
    assert_eq!(done(train(&run_dir, &["--set", "checkpoint.keep=3"])).0, 0);
    let folder = |step: u32| run_dir.join(format!("checkpoints/step-{step:06}"));
    let damage = |step: u32| {
        std::fs::write(folder(step).join("trainer_state/parameters.f32"), "").unwrap();
    };
    // Two torn ones after the one that is resumed from, and one place.
    damage(14);
    damage(16);
    let one = ["--resume", "--force-recipe", "--set", "checkpoint.keep=1", "--set", "steps=14"];
    let (code, _, stderr) = done(train(&run_dir, &one));
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stderr.contains("set aside as") && stderr.contains("step-000016.incomplete"),
        "{stderr}"
    );
    assert!(folder(14).exists() && !folder(16).exists(), "{stderr}");
    // A torn one before it, which would be the best.
    let other = dir.path().join("other");
    assert_eq!(done(train(&other, &["--set", "checkpoint.keep=3"])).0, 0);
    let folder = |step: u32| other.join(format!("checkpoints/step-{step:06}"));
    let state = folder(12).join("trainer_state/state.json");
    let text = std::fs::read_to_string(&state).unwrap();
    let score = text.lines().find(|it| it.contains("\"score\"")).unwrap();
    std::fs::write(&state, text.replace(score, "  \"score\": 9.5,")).unwrap();
    std::fs::remove_dir_all(folder(16)).unwrap();
    let (code, _, stderr) = done(train(&other, &["--resume", "--set", "checkpoint.keep=3"]));
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("state.json differs from its checksum; set aside as"), "{stderr}");
    assert!(!folder(12).exists() && folder(14).exists() && folder(16).exists());
}

/// Nothing is saved before the first step, so nothing has to be waited for.
#[cfg(unix)]
#[test]
fn ctrl_c_before_the_first_step_ends_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = dir.path().join("run");
    // A file that is never read to its end.
    let pipe = dir.path().join("rows.jsonl");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let data = format!("data.train={}", pipe.display());
    let mut command = Command::new(&*HAPO);
    command.arg("train").arg(smoke()).arg("--run-dir").arg(&run_dir).args(["--set", &data]);
    for key in ["data.prompts", "data.teacher_coverage", "data.levels"] {
        command.args(["--unset", key]);
    }
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !run_dir.join("run.lock").exists() {
        assert!(child.try_wait().unwrap().is_none(), "{:?}", child.wait_with_output());
        std::thread::sleep(Duration::from_millis(5));
    }
    let signal = Command::new("kill").arg("-INT").arg(child.id().to_string()).status().unwrap();
    assert!(signal.success());
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() && begun.elapsed() < Duration::from_mins(1) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    let it = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(it.stderr).unwrap();
    assert_eq!(it.status.code(), Some(130), "{stderr}");
    assert!(stderr.contains("stopped before the first step"), "{stderr}");
}

/// An evaluation every third step.
const EVAL: [&str; 2] = [
    "--set",
    "eval={ suite = \"linear:3,multiply:5\", every = 3, problems = 4, k = 2, max_tokens = 12 }",
];

fn line_of(run_dir: &Path, step: usize) -> serde_json::Map<String, serde_json::Value> {
    let metrics = std::fs::read_to_string(run_dir.join("metrics.jsonl")).unwrap();
    serde_json::from_str(metrics.lines().nth(step - 1).unwrap()).unwrap()
}

/// An evaluation draws from a stream of its own and leaves nothing behind.
/// A tenth of the pages that the step's 16 responses and 4 prompts can take, of 16,384 bytes each: sequences are
/// preempted and read again. A run that was stopped resumes with another limit.
#[test]
fn a_run_with_little_memory_for_keys_and_values_has_the_same_bits() {
    let dir = tempfile::tempdir().unwrap();
    let (ample, little) = (dir.path().join("ample"), dir.path().join("little"));
    let (code, _, stderr) = done(train(&ample, &[]));
    assert_eq!(code, 0, "{stderr}");
    let (code, _, stderr) =
        done(train(&little, &["--set", "sampling.kv_memory=66kB", "--set", "steps=16", "--json"]));
    assert_eq!(code, 0, "{stderr}");
    assert_equal(&little, &bits(&ample), "with 66 kB");
    std::fs::remove_dir_all(little.join("checkpoints/step-000016")).unwrap();
    let (code, _, stderr) =
        done(train(&little, &["--set", "sampling.kv_memory=100kB", "--resume"]));
    assert_eq!(code, 0, "{stderr}");
    assert_equal(&little, &bits(&ample), "with 66 kB, then 100 kB");
    // A page of the prompt and two of the longest response.
    let (code, _, stderr) =
        done(train(&dir.path().join("none"), &["--set", "sampling.kv_memory=49151B"]));
    assert_eq!(code, 2);
    let expected = "kv_memory: one sequence of 32 + 96 tokens needs 0.049 MB of keys and values, there are 0.049 MB";
    assert!(stderr.contains(expected) && stderr.contains("sampling.kv_memory"), "{stderr}");
}

#[test]
fn a_run_with_an_evaluation_has_the_bits_of_the_run_without_it() {
    let dir = tempfile::tempdir().unwrap();
    let (with, without) = (dir.path().join("with"), dir.path().join("without"));
    assert_eq!(done(train(&with, &EVAL)).0, 0);
    assert_eq!(done(train(&without, &[])).0, 0);
    let metrics = with.join("metrics.jsonl");
    let whole = std::fs::read_to_string(&metrics).unwrap();
    let evaluated: Vec<usize> =
        (1..=16).filter(|it| line_of(&with, *it).contains_key("eval/avg@k")).collect();
    assert_eq!(evaluated, [3, 6, 9, 12, 15, 16]);
    let line = line_of(&with, 16);
    for name in ["eval/avg@k", "eval/pass@k", "eval/truncated"] {
        assert!((0.0..=1.0).contains(&line[name].as_f64().unwrap()), "{line:?}");
    }
    // 20 k random parameters do not end a response within 12 tokens.
    assert!(line["eval/truncated"].as_f64().unwrap() > 0.5, "{line:?}");
    let bare: Vec<String> = whole
        .lines()
        .map(|line| {
            let mut line: serde_json::Map<String, serde_json::Value> =
                serde_json::from_str(line).unwrap();
            line.retain(|name, _| !name.contains("eval"));
            serde_json::to_string(&line).unwrap()
        })
        .collect();
    std::fs::write(&metrics, bare.join("\n") + "\n").unwrap();
    assert_equal(&with, &bits(&without), "with an evaluation");
}

#[test]
fn a_killed_run_with_an_evaluation_equals_an_unbroken_one() {
    killed_equals_unbroken(&EVAL);
}

/// A second model scores the rollouts of each step; a memory of earlier successes is part of the checkpoint.
#[test]
fn killed_runs_with_a_second_model_or_a_memory_equal_unbroken_ones() {
    if hapo_testing::slow() {
        return;
    }
    let base =
        ["--set", "model={ path = \"builtin:base\" }", "--set", "data.levels=[\"multiply:5\"]"];
    let with = |more: &[&'static str]| killed_equals_unbroken(&[&base[..], more].concat());
    with(&["--unset", "hapo", "--set", "method=opd", "--set", "reference.path=builtin:base"]);
    let whole = with(&["--set", "hapo.injection=replay", "--set", "optim.lr=1e-3"]);
    assert!(whole["memory.json"].len() > 100, "something is remembered");
}

/// Shown prefixes follow from the step, hints from the step's own rollouts: nothing is kept between steps.
#[test]
fn a_killed_run_whose_groups_grow_equals_an_unbroken_one() {
    if hapo_testing::slow() {
        return;
    }
    killed_equals_unbroken(&[
        "--unset",
        "hapo",
        "--set",
        "method=uft",
        "--set",
        "uft.steps=12",
        "--set",
        "data.teacher_coverage=1",
    ]);
    killed_equals_unbroken(&[
        "--unset",
        "hapo",
        "--set",
        "method=ghpo",
        "--set",
        "data.max_prompt_tokens=160",
        "--set",
        "data.teacher_coverage=1",
    ]);
    killed_equals_unbroken(&[
        "--set",
        "hapo.injection=hint",
        "--set",
        "data.max_prompt_tokens=160",
        "--set",
        "data.teacher_coverage=1",
    ]);
}

/// GRPO of the tiny recorded model of each family, 20 steps.
#[test]
fn killed_runs_of_every_family_equal_unbroken_ones() {
    if hapo_testing::slow() {
        return;
    }
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/fixtures/families");
    let folders = std::fs::read_dir(recorded).unwrap().map(|it| it.unwrap().path());
    let folders: Vec<PathBuf> = folders.filter(|it| it.is_dir()).collect();
    assert!(folders.len() >= 7, "{folders:?}");
    for folder in folders {
        let model = format!("model={{ path = {:?} }}", folder.canonicalize().unwrap());
        let more = [
            "--unset",
            "hapo",
            "--set",
            "method=grpo",
            "--set",
            &model,
            "--set",
            "data.max_prompt_tokens=128",
            "--set",
            "sampling.max_new_tokens=12",
            "--set",
            "metrics.gap_every=1",
            "--set",
            "steps=20",
        ];
        let whole = killed_equals_unbroken(&more);
        assert_eq!(whole["metrics"].split(|it| *it == b'\n').count(), 20);
        for line in whole["metrics"].split(|it| *it == b'\n') {
            let line: serde_json::Value = serde_json::from_slice(line).unwrap();
            assert_eq!(line["sampler/logprob_gap_max"].as_f64(), Some(0.0), "{line}");
        }
    }
}

fn killed_equals_unbroken(more: &[&str]) -> BTreeMap<String, Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let (whole, broken) = (dir.path().join("whole"), dir.path().join("broken"));
    assert_eq!(done(train(&whole, more)).0, 0);
    for lines in [4, 9] {
        let mut child = train(&broken, &[more, resumed(&broken)].concat()).spawn().unwrap();
        let logged = || {
            std::fs::read_to_string(broken.join("metrics.jsonl")).map_or(0, |it| it.lines().count())
        };
        while logged() < lines && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(2));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert_eq!(done(train(&broken, &[more, &["--resume"]].concat())).0, 0);
    let expected = bits(&whole);
    assert_equal(&broken, &expected, "killed");
    expected
}

/// The model learns nothing of these problems, so that nothing is better than what the run starts from.
#[test]
fn patience_ends_a_run_and_a_resumed_run_decides_alike() {
    let eval = |patience: u32| {
        format!(
            "eval={{ suite = \"add:5\", every = 2, problems = 2, k = 1, max_tokens = 4, patience = {patience} }}"
        )
    };
    let dir = tempfile::tempdir().unwrap();
    let run_dir = dir.path().join("run");
    let two = eval(2);
    let patient = ["--set", &two, "--set", "checkpoint.best=eval/avg@k"];
    let (code, stdout, stderr) = done(train(&run_dir, &patient));
    assert_eq!(code, 0, "{stderr}");
    let said =
        "ended early after step 4: eval/avg@k has not been better than 0.0000 for 2 evaluations";
    assert!(stdout.contains(said), "{stdout}");
    assert!(run_dir.join("checkpoints/step-000002").exists(), "the best one stays");
    assert_eq!(early_end(&run_dir).as_ref(), Some(&serde_json::json!(4)));
    let resume = [&patient[..], &["--resume"]].concat();
    let (code, stdout, stderr) = done(train(&run_dir, &resume));
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains(said), "{stdout}");
    assert_eq!(line_of(&run_dir, 4)["step"], 4);
    // Killed between the second and the last step.
    std::fs::remove_dir_all(run_dir.join("checkpoints/step-000004")).unwrap();
    let (_, stdout, stderr) = done(train(&run_dir, &[&resume[..], &["--json"]].concat()));
    let outcome: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&outcome["steps"], &outcome["steps_now"]), (&4.into(), &2.into()), "{stderr}");
    assert_eq!(outcome["finished"], true);
    assert!(said.ends_with(outcome["stopped_early"].as_str().unwrap()), "{stdout}");
    let three = eval(3);
    let longer =
        ["--set", &three, "--resume", "--force-recipe", "--set", "checkpoint.best=eval/avg@k"];
    let (code, stdout, stderr) = done(train(&run_dir, &longer));
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("ended early after step 6"), "{stdout}");
    assert_eq!(early_end(&run_dir).as_ref(), Some(&serde_json::json!(6)));
    let end = eval(100);
    let on = ["--set", &end, "--resume", "--force-recipe", "--set", "checkpoint.best=eval/avg@k"];
    let (code, _, stderr) = done(train(&run_dir, &on));
    assert_eq!((code, early_end(&run_dir)), (0, None), "{stderr}");
}

/// Nothing is learned in the first stage, so that the second starts from what the first started from, unless told.
#[test]
fn d33_a_stage_hands_on_its_best_checkpoint_its_start_included() {
    let dir = tempfile::tempdir().unwrap();
    let model =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/fixtures/models/tiny-qwen3");
    let text = format!(
        r#"
        model.path = {:?}
        data = {{ prompts = 8, teacher_coverage = 1.0, levels = ["add:5"], max_prompt_tokens = 64 }}
        sampling = {{ prompts_per_step = 2, max_new_tokens = 150 }}
        optim.lr = 1e-2
        [[stage]]
        name = "sft"
        method = "sft"
        steps = 3
        checkpoint.every = 1
        eval = {{ suite = "add:5", every = 1, problems = 2, k = 1, max_tokens = 4 }}
        [[stage]]
        name = "grpo"
        method = "grpo"
        steps = 1
        model.path = "stage:sft"
        sampling.group_size = 2
        metrics.preflight = 0
        "#,
        model.display().to_string()
    );
    let recipe = dir.path().join("two.toml");
    let run_dir = dir.path().join("run");
    let run = |text: &str| {
        std::fs::write(&recipe, text).unwrap();
        let mut it = Command::new(&*HAPO);
        it.arg("train").arg(&recipe).arg("--run-dir").arg(&run_dir).args(resumed(&run_dir));
        let (code, _, stderr) = done(it);
        assert_eq!(code, 0, "{stderr}");
        let inputs = std::fs::read(run_dir.join("grpo/inputs.json")).unwrap();
        std::fs::remove_dir_all(run_dir.join("grpo")).unwrap();
        let inputs: serde_json::Value = serde_json::from_slice(&inputs).unwrap();
        (stderr, inputs["weights"].clone())
    };
    let (said, start) = run(&text);
    assert!(said.contains("step 0: eval/avg@k 0.0000"), "{said}");
    let why = "from stage sft: step 0, what it started from, as no eval/avg@k beats 0.0000";
    assert!(said.contains(why), "{said}");
    let first = std::fs::read(run_dir.join("sft/inputs.json")).unwrap();
    let first: serde_json::Value = serde_json::from_slice(&first).unwrap();
    assert_eq!(start, first["weights"]);
    let (said, last) = run(&text.replace("stage:sft", "stage:sft@last"));
    assert!(said.contains("from stage sft: step 3, its last"), "{said}");
    assert_ne!(last, start);
    // Of equal evaluations the earliest.
    let kept = run_dir.join("sft/start.json");
    let start = std::fs::read_to_string(&kept).unwrap();
    std::fs::write(&kept, &start[..start.len() / 2]).unwrap();
    let mut damaged = Command::new(&*HAPO);
    damaged.arg("train").arg(&recipe).arg("--run-dir").arg(&run_dir).args(resumed(&run_dir));
    let (code, _, stderr) = done(damaged);
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("sft: start.json: EOF"), "{stderr}");
    let worse = start.replace("\"eval/avg@k\": 0", "\"eval/avg@k\": -1");
    std::fs::write(&kept, worse).unwrap();
    let (said, best) = run(&text.replace("stage:sft", "stage:sft@best"));
    assert!(said.contains("from stage sft: step 1, its best eval/avg@k, 0.0000"), "{said}");
    assert!(best != start && best != last);
}

/// The step after which a run says that it has ended early.
fn early_end(run_dir: &Path) -> Option<serde_json::Value> {
    let text = std::fs::read(run_dir.join("ended.json")).ok()?;
    let end: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert!(end["because"].as_str().unwrap().starts_with("eval/avg@k has not been better than"));
    Some(end["step"].clone())
}

/// Each set of an evaluation has its numbers; the others are their means.
#[test]
fn an_evaluation_of_several_sets_logs_each() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = dir.path().join("run");
    let eval = "eval={ suite = \"add:1,add:2\", every = 2, problems = 3, k = 2, max_tokens = 8 }";
    let (code, _, stderr) = done(train(&run_dir, &["--set", eval, "--set", "steps=2"]));
    assert_eq!(code, 0, "{stderr}");
    let line = line_of(&run_dir, 2);
    for metric in ["eval/avg@k", "eval/pass@k"] {
        let of = |set: &str| line[&format!("{metric}{set}")].as_f64().unwrap();
        assert!((of("") - f64::midpoint(of("/add:1"), of("/add:2"))).abs() < 1e-12, "{line:?}");
    }
    let one = "eval={ suite = \"add:1\", every = 2, problems = 3, k = 2, max_tokens = 8 }";
    let other = dir.path().join("one");
    assert_eq!(done(train(&other, &["--set", one, "--set", "steps=2"])).0, 0);
    let line = line_of(&other, 2);
    assert!(line.keys().all(|it| !it.contains("@k/")), "one set has no numbers of its own");
}

/// Training problems are no evaluation.
#[test]
fn problems_that_are_trained_on_as_well_are_said_before_the_start() {
    let own = OwnInputs::new();
    let rows = std::fs::read_to_string(own.path("d.jsonl")).unwrap();
    let rows: Vec<&str> = rows.lines().collect();
    let again = rows[1].replace("r1", "q1").replace("4+12=?", " 4 + 12 = ? ");
    let mixed = format!("{}\n{again}\n", rows[0].replace("3+11", "33+11").replace("14", "44"));
    std::fs::write(own.path("e.jsonl"), mixed).unwrap();
    let eval = format!("eval={{ data = \"{}\", k = 1 }}", own.path("e.jsonl").display());
    let (code, _, stderr) = own.train("run", &["--set", &eval]);
    assert_eq!(code, 0, "{stderr}");
    let said = "the run trains on 1 of 2 problems of e too, the first: q1, which is r1 of the data";
    assert!(stderr.contains(said), "{stderr}");
    // The evaluation's problems are inputs too.
    std::fs::remove_dir_all(own.path("run/checkpoints/step-000004")).unwrap();
    own.edit("e.jsonl", replaced("33+11", "22+22"));
    let (code, _, stderr) = own.train("run", &["--set", &eval, "--resume"]);
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("other inputs: the problems of the evaluation (eval)"), "{stderr}");
    // The same within the data.
    std::fs::write(own.path("d.jsonl"), rows.join("\n") + "\n" + &again + "\n").unwrap();
    let (code, _, stderr) = own.train("twice", &[]);
    assert_eq!(code, 0, "{stderr}");
    let said = "q1 and r1 are the same problem";
    assert!(stderr.contains(said), "{stderr}");
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
    let whole = train(&run_dir, &["--resume", "--quiet"]);
    let limited = || {
        let mut it = Command::new("bash");
        it.arg("-c").arg("trap '' XFSZ; ulimit -f 40; exec \"$0\" \"$@\"").arg(&*HAPO);
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
    // With free space again the run resumes, and equals one that never met a full disk. More steps need no force.
    assert_eq!(done(train(&run_dir, &["--resume"])).0, 0);
    let unbroken = dir.path().join("unbroken");
    assert_eq!(done(train(&unbroken, &[])).0, 0);
    assert_equal(&run_dir, &bits(&unbroken), "after a full disk");
}

#[cfg(unix)]
#[test]
fn sigterm_saves_and_says_how_to_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let unbroken = dir.path().join("unbroken");
    assert_eq!(done(train(&unbroken, &["--set", "checkpoint.every=0"])).0, 0);
    // The last two are sent by batch systems before the end.
    for signal in ["-TERM", "-USR1", "-XCPU"] {
        let run_dir = dir.path().join(&signal[1..]);
        let logged = || {
            let text = std::fs::read_to_string(run_dir.join("metrics.jsonl"));
            text.map_or(0, |it| it.lines().count())
        };
        let child = train(&run_dir, &["--set", "checkpoint.every=0"]).spawn().unwrap();
        while logged() < 2 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let kill = Command::new("kill").arg(signal).arg(child.id().to_string()).status().unwrap();
        assert!(kill.success());
        let it = child.wait_with_output().unwrap();
        let stdout = String::from_utf8(it.stdout).unwrap();
        assert_eq!(it.status.code(), Some(0), "{signal}");
        assert!(stdout.contains("stopped after step"), "{stdout}");
        assert!(stdout.contains("--resume"), "{stdout}");
        let resume = ["--resume", "--set", "checkpoint.every=0"];
        assert_eq!(done(train(&run_dir, &resume)).0, 0);
        // The recipe of the two is the same, so all their files are.
        assert_equal(&run_dir, &bits(&unbroken), signal);
    }
}

/// SFT then GRPO: both stages run, and a kill in either changes nothing.
#[test]
fn stages_run_one_after_the_other_and_resume() {
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/mini/sft-grpo.toml");
    let dir = tempfile::tempdir().unwrap();
    let command = |run_dir: &Path, more: &[&str]| {
        let mut it = Command::new(&*HAPO);
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
        let mut child = command(&broken, resumed(&broken)).spawn().unwrap();
        // On a busy machine the folder may take longer than the whole run took before.
        while resumed(&broken).is_empty() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(somewhere(took * 3 / 4)));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // The folder is the recipe of both stages.
    let mut resume = Command::new(&*HAPO);
    resume.arg("train").arg(&broken).args(["--resume", "--quiet"]);
    let (code, _, stderr) = done(resume);
    assert_eq!(code, 0, "{stderr}");
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
    // A resume that is refused changes nothing.
    let kept = std::fs::read(broken.join("stages.toml")).unwrap();
    let (code, _, stderr) =
        done(command(&broken, &["--resume", "--set", "stage.grpo.optim.lr=1e-9"]));
    assert_eq!(code, 2);
    assert!(stderr.contains("grpo is of another recipe: optim.lr"), "{stderr}");
    assert_eq!(std::fs::read(broken.join("stages.toml")).unwrap(), kept);
}

/// D23: a loss that is NaN or infinite ends the run, and what there was is saved.
#[test]
fn d23_a_loss_that_is_no_number_saves_and_stops() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = dir.path().join("run");
    let (code, _, stderr) = done(train(&run_dir, &["--set", "optim.lr=1e15"]));
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("at step 1") && stderr.contains("lower optim.lr"), "{stderr}");
    // The first of the step's two updates was made, so the weights are those of no step.
    assert!(stderr.contains("halted-step-000001"), "{stderr}");
    assert!(run_dir.join("checkpoints/halted-step-000001/model.safetensors").exists());
    // One update a step: the weights before the step are a checkpoint of their own.
    let other = dir.path().join("other");
    let sets = ["--set", "optim.lr=1e15", "--set", "optim.mini_batch_prompts=0"];
    let (code, _, stderr) = done(train(&other, &sets));
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("at step 2"), "{stderr}");
    assert!(other.join("checkpoints/step-000001/model.safetensors").exists());
}

/// Weights that overflow are met where they are made, not where they are saved.
#[test]
fn weights_that_overflow_are_said_to() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = dir.path().join("run");
    let (code, _, stderr) = done(train(&run_dir, &["--set", "optim.lr=1e30"]));
    assert_eq!(code, 1, "{stderr}");
    let said = "the weights overflow in an update of step 1, at a learning rate of 1e30";
    assert!(stderr.contains(said) && stderr.contains("resume with a lower optim.lr"), "{stderr}");
    assert!(!stderr.contains("disk"), "{stderr}");
    let decay = ["--set", "optim.weight_decay=1e38"];
    let (code, _, stderr) = done(train(&dir.path().join("other"), &decay));
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("expected a number from 0 to 1000, got "), "{stderr}");
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
        let mut it = Command::new(&*HAPO);
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
    // No more prompts than a step has, whatever the recipe asks for.
    let said = "pre-flight  sampling 16 responses to 4 prompts, at most two steps' time (--no-preflight skips it)";
    assert!(stderr.contains(said), "{stderr}");
    assert!(
        stderr.contains("pre-flight  4 prompts × 4: success 0.0 %, all-fail groups 100.0 %"),
        "{stderr}"
    );
    assert!(stderr.contains("teacher for 56.2 % of the prompts"), "{stderr}");
    let found: serde_json::Value =
        serde_json::from_slice(&std::fs::read(with.join("preflight.json")).unwrap()).unwrap();
    assert_eq!(found["prompts"], 4);
    assert_eq!(found["teacher_coverage"], 0.5625);
    let (code, _, stderr) = done(train(&without, &[&sets[..], &["--no-preflight"]].concat()));
    assert!(code == 0 && !stderr.contains("pre-flight"), "{stderr}");
    assert!(!without.join("preflight.json").exists());
    for name in ["parameters.f32", "second_moments.f32"] {
        let of = |run: &Path| {
            std::fs::read(run.join(format!("checkpoints/step-000002/trainer_state/{name}")))
                .unwrap()
        };
        assert!(of(&with) == of(&without), "{name} differs");
    }
}

#[test]
fn overlong_prompts_are_left_out_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let rows = dir.path().join("rows.jsonl");
    let row = |id: u32, problem: &str| {
        format!("{{\"id\": \"{id}\", \"problem\": \"{problem}\", \"answer\": \"2\"}}\n")
    };
    let problems = ["1+", "2+"].map(|it| it.repeat(20) + "1=?");
    let problems = problems.into_iter().chain((3..=5).map(|it| format!("{it}*1=?")));
    let text: String = (1..).zip(problems).map(|(id, it)| row(id, &it)).collect();
    std::fs::write(&rows, text).unwrap();
    let run = |name: &str, more: &[&str]| {
        let run_dir = dir.path().join(name);
        let mut command = Command::new(&*HAPO);
        command.arg("train").arg(smoke()).arg("--run-dir").arg(&run_dir);
        let file = format!("data.train={}", rows.display());
        let sets = [
            "method=grpo",
            "steps=1",
            "sampling.prompts_per_step=3",
            "sampling.max_new_tokens=4",
            "metrics.preflight=0",
            "optim.mini_batch_prompts=0",
            &file,
        ];
        for it in sets {
            command.args(["--set", it]);
        }
        for it in ["hapo", "data.prompts", "data.levels", "data.teacher_coverage"] {
            command.args(["--unset", it]);
        }
        done({
            command.args(more).stdout(Stdio::piped()).stderr(Stdio::piped());
            command
        })
    };
    let (code, _, stderr) = run("dropped", &[]);
    let at = format!("(row 1, id 1, {})", rows.display());
    let said = format!(
        "warning: prompts left out as they are too long: 2, the first: expected a prompt of 1 to 32 tokens, got 51 {at}"
    );
    assert!(code == 0 && stderr.contains(&said), "{stderr}");
    let (code, _, stderr) = run("refused", &["--set", "data.overlong=error"]);
    assert_eq!(code, 2);
    let said = format!("error: expected a prompt of 1 to 32 tokens, got 51 {at}");
    assert!(stderr.contains(&said), "{stderr}");
    let (code, _, stderr) = run("few", &["--set", "sampling.prompts_per_step=4"]);
    assert_eq!(code, 2);
    let said = "expected at least 4 prompts for one step, got 3; left out, as longer than data.max_prompt_tokens: 2";
    assert!(stderr.contains(said), "{stderr}");
}
