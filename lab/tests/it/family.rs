//! `hapo-lab family`: a rehearsal, killed and continued; a pretrained model; `hapo-lab evidence` and the pages it writes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const RESULTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/results");

/// Three steps of every arm of the core from the shipped base, two runs at a time.
fn family(out: &Path, problems: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapo-lab"));
    command.args(["family", "--only", "pilot", "--seeds", "1", "--no-search", "--jobs", "2"]);
    command.args(["--problems", problems, "--set", "steps=3", "--set", "stage.sft.steps=2"]);
    command.args(["--set", "stage.grpo.steps=3", "--set", "data.prompts=32"]);
    command.args(["--set", "sampling.prompts_per_step=4", "--set", "metrics.preflight=0", "--out"]);
    command.arg(out).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

fn done(mut command: Command) -> String {
    let output = command.output().unwrap();
    let message = text(&output.stderr);
    assert!(output.status.success(), "{message}");
    message
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The record without what the machine decides: seconds and memory.
fn record(out: &Path) -> Vec<serde_json::Value> {
    let of_run = |line: &str| {
        let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["scores"]["seconds"] = serde_json::Value::Null;
        line["scores"]["cost"]["memory"] = serde_json::Value::Null;
        line
    };
    read(&out.join("family.runs.jsonl")).lines().map(of_run).collect()
}

#[test]
fn a_killed_family_continues_and_ends_with_the_same_record() {
    if hapo_testing::slow() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (whole, killed) = (folder.path().join("whole"), folder.path().join("killed"));
    let message = done(family(&whole, "1"));
    assert!(
        message.contains("0 base models, 0 runs of the search and 12 of the tables are missing")
    );
    assert!(message.contains(" hours, by the times of"), "{message}");
    let runs = record(&whole);
    assert_eq!(runs.len(), 12);
    let run = |arm: &str| {
        let run = runs.iter().find(|run| run["scores"]["arm"] == format!("pilot-{arm}")).unwrap();
        run["scores"].clone()
    };
    // A teacher in every group: 4 prompts × 3 steps; imitation of 4 traces in each of 2 steps.
    assert_eq!(run("exact-sft-grpo")["cost"]["exposures"], 8.0);
    assert_eq!(run("grpo")["cost"]["exposures"], 0.0);
    assert!(run("grpo")["cost"]["sampled"].as_f64().unwrap() > 3.0 * 32.0);
    // Looks after every step of both stages, level by level.
    let looks = run("exact-sft-grpo")["looks"].as_array().unwrap().clone();
    assert_eq!(looks.last().unwrap()["step"], 5);
    assert_eq!(looks[0]["levels"].as_object().unwrap().len(), 6);

    let mut child = family(&killed, "1").stderr(Stdio::null()).spawn().unwrap();
    let first = killed.join("runs/pilot-grpo/seed-0/scores.json");
    let started = Instant::now();
    while !first.exists() && started.elapsed() < Duration::from_mins(3) {
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(first.exists() && !killed.join("family.runs.jsonl").exists());
    let made = std::fs::metadata(&first).unwrap().modified().unwrap();
    done(family(&killed, "1"));
    assert_eq!(record(&killed), runs);
    assert_eq!(std::fs::metadata(&first).unwrap().modified().unwrap(), made);
    the_record_alone_gives_the_tables(&killed, &folder.path().join("elsewhere"));
    scores_of_other_settings_are_refused(&killed);
}

/// The record makes the tables where there is no run; a line that is none is named.
fn the_record_alone_gives_the_tables(out: &Path, elsewhere: &Path) {
    let record = out.join("family.runs.jsonl");
    let with = |record: &Path| {
        let mut command = family(elsewhere, "1");
        command.args(["--tables", "--record"]).arg(record).output().unwrap()
    };
    let output = with(&record);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(read(&elsewhere.join("family.md")), read(&out.join("family.md")));
    assert!(!elsewhere.join("runs").exists(), "nothing was made");
    let packed = elsewhere.join("record.zst");
    std::fs::write(&packed, zstd::encode_all(read(&record).as_bytes(), 3).unwrap()).unwrap();
    assert!(with(&packed).status.success());
    let first = read(&record).lines().next().unwrap().to_owned();
    let broken = elsewhere.join("broken.jsonl");
    for second in ["{}", &first] {
        std::fs::write(&broken, format!("{first}\n{second}\n")).unwrap();
        let output = with(&broken);
        assert_eq!(output.status.code(), Some(2));
        let message = text(&output.stderr);
        assert!(message.contains("broken.jsonl:2: expected the scores of a run"), "{message}");
    }
}

/// Scores of other settings are named, and nothing is made from them.
fn scores_of_other_settings_are_refused(out: &Path) {
    for (problems, more, named) in [
        ("2", &["--tables"][..], "problems (1, now 2)"),
        ("1", &["--set", "optim.lr=3e-4"], "optim.lr"),
        ("1", &["--set", "data.prompts=12"], "data.prompts (32, now 12)"),
    ] {
        let output = family(out, problems).args(more).output().unwrap();
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(named) && message.contains("scores.json"), "{message}");
    }
}

/// Every arm on a split of a file, by the model's own template; a problem in two parts is refused.
#[test]
fn a_pretrained_model_is_compared_on_a_files_problems() {
    if hapo_testing::slow() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let row = |problem: String, answer: &str| {
        let solution = format!("It is \\boxed{{{answer}}}");
        serde_json::json!({"problem": problem, "answer": answer, "solution": solution}).to_string()
            + "\n"
    };
    let rows: String =
        (0..80).map(|i| row(format!("What is {i} + 7?"), &(i + 7).to_string())).collect();
    let data = folder.path().join("problems.jsonl");
    let family = |rows: &str| -> Output {
        std::fs::write(&data, rows).unwrap();
        let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata/fixtures/models/tiny-qwen2");
        let mut command = Command::new(env!("CARGO_BIN_EXE_hapo-lab"));
        command.args(["family", "--model", model, "--seeds", "1", "--no-search", "--steps", "4"]);
        command.args(["--held-out", "6", "--set", "sampling.max_new_tokens=40", "--quiet"]);
        command.args(["--set", "metrics.preflight=0", "--out"]);
        command.arg(folder.path().join("out")).arg("--data").arg(&data).output().unwrap()
    };
    let first = family(&rows);
    assert!(first.status.success(), "{}", text(&first.stderr));
    let out = folder.path().join("out");
    let tables: serde_json::Value = serde_json::from_str(&read(&out.join("family.json"))).unwrap();
    let made = tables["tables"][0]["rows"].as_array().unwrap();
    let arms: Vec<&str> = made.iter().map(|row| row["arm"].as_str().unwrap()).collect();
    let methods = ["base", "sft", "grpo", "sft-grpo", "trapo", "hapo"];
    assert_eq!(arms, methods.map(|method| format!("pretrained-{method}")));
    let mut files = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path());
    let is_train =
        |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("train-");
    let train = read(&files.find(is_train).unwrap());
    // 6 of 80 are held out, 60 are the development split.
    assert_eq!(train.lines().count(), 14);
    assert!(train.contains("13 + 7") && !train.contains("What is 14 + 7"));
    let recipe = read(&out.join("runs/pretrained-hapo/seed-0/recipe.toml"));
    // An epoch is one step, since 6 of 14 problems do not fill another: closed after half of the four.
    assert!(recipe.contains("turn_off_epoch = 2.0") && recipe.contains("steps = 4"), "{recipe}");
    for (problem, answer, named) in [
        ("what is  3 + 7?", "10", "which says the same, is trained on"),
        ("What is 80 + 7?", "?", "answer"),
    ] {
        let refused = family(&format!("{rows}{}", row(problem.to_owned(), answer)));
        let message = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{message}");
        assert!(message.contains(named), "{message}");
    }
}

/// `hapo-lab evidence` writes the tables and the picture that are committed, in less than a minute.
#[test]
fn the_records_give_the_committed_tables_and_picture() {
    if hapo_testing::slow() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let started = Instant::now();
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapo-lab"));
    command.args(["evidence", "--records", RESULTS, "--out"]).arg(folder.path());
    done(command);
    assert!(started.elapsed() < Duration::from_mins(1));
    let pictures = ["exposures.svg", "second-round.svg"];
    let of_paper = ["paper.md", "paper-figure-2.svg", "paper-figure-4.svg", "paper-figure-5.svg"];
    for name in ["tables.md"].into_iter().chain(pictures).chain(of_paper) {
        let made = read(&folder.path().join(name));
        assert!(
            made == read(&Path::new(RESULTS).join(name)),
            "run `hapo-lab evidence`: {name} differs"
        );
    }
}
