//! `hapo-lab study`: a rehearsal, killed and resumed; the tables that are kept.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn study(out: &Path) -> Command {
    study_of(out, "3")
}

fn study_of(out: &Path, problems: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapo-lab"));
    command.args(["study", "mini", "--only", "ablation", "--seeds", "2", "--no-search", "--quiet"]);
    command.args(["--problems", problems, "--set", "steps=2", "--set", "data.prompts=8"]);
    command.args(["--set", "sampling.prompts_per_step=4", "--set", "metrics.preflight=0", "--out"]);
    command.arg(out).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// The tables without times.
fn tables(out: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(out.join("results.json")).unwrap();
    let mut done: serde_json::Value = serde_json::from_str(&text).unwrap();
    for table in done["tables"].as_array_mut().unwrap() {
        for row in table["rows"].as_array_mut().unwrap() {
            row["seconds"] = serde_json::Value::Null;
        }
    }
    done
}

#[test]
fn a_killed_study_resumes_and_ends_with_the_same_tables() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, killed) = (folder.path().join("whole"), folder.path().join("killed"));
    assert!(study(&whole).status().unwrap().success());
    let table = &tables(&whole)["tables"][0];
    let rows = table["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        assert_eq!(row["seeds"], serde_json::json!([0, 1]));
        assert_eq!(row["by_benchmark"].as_array().unwrap().len(), 6);
        let it = &row["average"];
        let end = |n: usize| it["interval"][n].as_f64().unwrap();
        let mean = it["mean"].as_f64().unwrap();
        assert!(end(0) <= mean && mean <= end(1), "{it}");
        assert_eq!(it["of_seeds"].as_array().unwrap().len(), 2);
    }

    let mut child = study(&killed).spawn().unwrap();
    let first = killed.join("runs/trapo/seed-0/scores.json");
    let started = Instant::now();
    while !first.exists() && started.elapsed() < Duration::from_mins(2) {
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(first.exists() && !killed.join("results.json").exists());
    let made = std::fs::metadata(&first).unwrap().modified().unwrap();
    assert!(study(&killed).status().unwrap().success());
    assert_eq!(tables(&killed), tables(&whole));
    assert_eq!(std::fs::metadata(&first).unwrap().modified().unwrap(), made);
    let page = std::fs::read_to_string(killed.join("results.html")).unwrap();
    assert!(page.contains("TRAPO-HAPO, m = 0, annealed") && page.matches("<table>").count() == 4);
    the_seconds_of_all_calls_are_counted(&killed);
    the_record_alone_gives_the_tables(&killed, &folder.path().join("elsewhere"));
    scores_of_other_settings_are_refused(&killed);
}

/// The logged seconds of steps and evaluations, not those of the call that scored it.
fn the_seconds_of_all_calls_are_counted(out: &Path) {
    for arm in ["trapo", "hapo-method"] {
        let run = out.join(format!("runs/{arm}/seed-0"));
        let lines = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap();
        let seconds = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            line["time/step"].as_f64().unwrap() + line["time/eval"].as_f64().unwrap()
        };
        let scores = scores_of(&run);
        let logged: f64 = lines.lines().map(seconds).sum();
        assert!((scores["seconds"].as_f64().unwrap() - logged).abs() < 1e-9, "{scores}");
        assert_eq!(lines.lines().count(), 2);
    }
}

fn scores_of(run: &Path) -> serde_json::Value {
    serde_json::from_str(&std::fs::read_to_string(run.join("scores.json")).unwrap()).unwrap()
}

/// The record of a study makes its tables where there is no run; a line that is none is named.
fn the_record_alone_gives_the_tables(out: &Path, elsewhere: &Path) {
    let record = out.join("results.runs.jsonl");
    let with = |record: &Path| {
        let mut command = study(elsewhere);
        command.args(["--tables", "--record"]).arg(record).stderr(Stdio::piped()).output().unwrap()
    };
    let output = with(&record);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(tables(elsewhere), tables(out));
    assert!(!elsewhere.join("runs").exists(), "nothing was made");
    let text = std::fs::read_to_string(&record).unwrap();
    let broken = elsewhere.join("broken.jsonl");
    let first = text.lines().next().unwrap();
    for second in ["{}", first] {
        std::fs::write(&broken, format!("{first}\n{second}\n")).unwrap();
        let output = with(&broken);
        assert_eq!(output.status.code(), Some(2));
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.contains("broken.jsonl:2: expected the scores of a run"), "{message}");
    }
    // Rows of other tables, recorded by another call, stay.
    let other = first.replace("runs/", "runs/of-another-table-");
    std::fs::write(elsewhere.join("results.runs.jsonl"), format!("{other}\n")).unwrap();
    assert!(with(&record).status.success());
    let both = std::fs::read_to_string(elsewhere.join("results.runs.jsonl")).unwrap();
    assert!(both.contains(&other) && both.len() == text.len() + other.len() + 1, "{both}");
}

/// Scores of other settings are named, and nothing is made from them.
fn scores_of_other_settings_are_refused(out: &Path) {
    let refused = |problems: &str, more: &[&str]| {
        let output = study_of(out, problems).args(more).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{more:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let before = tables(out);
    for (problems, more, named) in [
        ("4", &["--tables"][..], "problems (3, now 4)"),
        ("3", &["--set", "optim.lr=3e-4"], "optim.lr (0.0001, now 0.0003)"),
        ("3", &["--set", "data.prompts=12"], "data.prompts (8, now 12)"),
    ] {
        let message = refused(problems, more);
        assert!(message.contains(named) && message.contains("scores.json"), "{message}");
        assert!(message.contains("or another folder"), "{message}");
    }
    assert_eq!(tables(out), before);

    // The same settings on other data, as another build would draw them.
    let run = out.join("runs/trapo/seed-0");
    let mut scores = scores_of(&run);
    scores["made"]["inputs"]["weights"] = "0".into();
    std::fs::write(run.join("scores.json"), scores.to_string()).unwrap();
    let message = refused("3", &["--tables"]);
    assert!(message.contains("differs in the base weights (model)"), "{message}");
}

/// Every arm on a split of a file, by the model's own template; another split is refused where scores are of this one.
#[test]
fn a_pretrained_model_is_studied_on_a_files_problems() {
    let folder = tempfile::tempdir().unwrap();
    let rows: Vec<String> = (0..80)
        .map(|i| {
            let (problem, answer) = (format!("What is {i} + 7?"), i + 7);
            let solution = format!("{i} + 7 = \\boxed{{{answer}}}");
            let answer = answer.to_string();
            let row =
                serde_json::json!({"problem": problem, "answer": answer, "solution": solution});
            format!("{row}\n")
        })
        .collect();
    let data = folder.path().join("problems.jsonl");
    std::fs::write(&data, rows.concat()).unwrap();
    let study = |held_out: &str| {
        let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata/fixtures/models/tiny-qwen2");
        let mut command = Command::new(env!("CARGO_BIN_EXE_hapo-lab"));
        command.args(["study", "real", "--model", model, "--seeds", "1", "--no-search", "--steps"]);
        command.args(["4", "--held-out", held_out, "--set", "sampling.max_new_tokens=40"]);
        command.args(["--set", "metrics.preflight=0", "--quiet", "--out"]);
        command.arg(folder.path().join("study")).arg("--data").arg(&data);
        command.output().unwrap()
    };
    let first = study("6");
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    let out = folder.path().join("study");
    let text = std::fs::read_to_string(out.join("real.json")).unwrap();
    let done: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&done["problems"], &done["completions"]), (&6.into(), &4.into()));
    let made = done["tables"][0]["rows"].as_array().unwrap();
    let names: Vec<&str> = made.iter().map(|it| it["name"].as_str().unwrap()).collect();
    let methods =
        ["base", "sft", "grpo", "sft-grpo", "trapo", "hapo"].map(|it| format!("real-{it}"));
    assert_eq!(names, methods);
    assert!(made.iter().all(|it| it["examples"].as_array().unwrap().len() == 3), "{text}");
    let mut train = std::fs::read_dir(&out).unwrap().map(|it| it.unwrap().path());
    let is_train = |it: &PathBuf| it.file_name().unwrap().to_str().unwrap().starts_with("train-");
    let train = std::fs::read_to_string(train.find(is_train).unwrap()).unwrap();
    // 6 of 80 are held out, 60 are the development split.
    assert_eq!(train.lines().count(), 14);
    assert!(train.contains("13 + 7") && !train.contains("What is 14 + 7"));
    let recipe = std::fs::read_to_string(out.join("runs/real-hapo/seed-0/recipe.toml")).unwrap();
    // An epoch is one step, since 6 of 14 problems do not fill another: closed after half of the four.
    assert!(recipe.contains("turn_off_epoch = 2.0") && recipe.contains("steps = 4"), "{recipe}");
    let log = std::fs::read_to_string(out.join("runs/real-hapo/seed-0/metrics.jsonl")).unwrap();
    let last: serde_json::Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    assert_eq!(last["epoch"], 4.0);
    assert!(study("6").status.success());
    let other = study("5");
    let message = String::from_utf8(other.stderr).unwrap();
    assert!(!other.status.success() && message.contains("problems (6, now 5)"), "{message}");
    // A held-out problem that is trained on as well, in another layout; an answer that nobody can read.
    for (problem, answer, named) in [
        ("what is  3 + 7?", "10", "which says the same, is trained on"),
        ("What is 80 + 7?", "?", "answer"),
    ] {
        let row = serde_json::json!({"problem": problem, "answer": answer, "solution": "no"});
        std::fs::write(&data, format!("{}{row}\n", rows.concat())).unwrap();
        let refused = study("6");
        let message = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{message}");
        assert!(message.contains(named), "{message}");
    }
}

/// The commands that docs/results/when-it-helps.md gives make its tables, number for number.
#[test]
fn the_records_that_are_kept_give_the_tables_of_their_page() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/results");
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let made_of = |study: &str, more: &[&str], record: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hapo-lab"));
        command.args(["study", study, "--tables", "--record"]).arg(record).args(more);
        let output = command.arg("--out").arg(folder.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        read(&folder.path().join(format!("{study}.md")))
    };
    let page = read(&results.join("when-it-helps.md"));
    for (study, only) in [("ladder", &[][..]), ("teachers", &["--only", "exact,ceiling"])] {
        let made = made_of(study, only, &results.join(format!("{study}.runs.jsonl")));
        let from = made.find("\n## ").unwrap();
        let tables = made[from..].trim_end().replace("\n## ", "\n### ");
        assert!(page.contains(&tables), "{tables}");
    }

    let mut level: Vec<String> =
        read(&results.join("ladder.runs.jsonl")).lines().map(str::to_owned).collect();
    level.retain(|it| !it.contains("\"runs/rung-0-sft-grpo/"));
    level.extend(read(&results.join("ladder-level.runs.jsonl")).lines().map(str::to_owned));
    let record = folder.path().join("level.jsonl");
    std::fs::write(&record, level.join("\n")).unwrap();
    let given = ["--only", "rung-0", "--rate", "ladder-sft-grpo=1e-4"];
    let made = made_of("ladder", &given, &record);
    assert!(made.contains("Learning rates, given, not chosen: ladder-sft-grpo 1e-4."), "{made}");
    assert!(made.contains("| -0.045 [-0.061, -0.029] | 0.004 |"), "{made}");
    assert!(page.contains("HAPO is .045 below SFT-GRPO (95 % [.029, .061], p = .004)"));
}

/// Its problems are not in the repository, so of `real` the page's numbers are held against its record, not made again.
#[test]
fn the_record_of_the_pretrained_model_has_the_numbers_of_the_page() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/results");
    let page = std::fs::read_to_string(results.join("when-it-helps.md")).unwrap();
    let record = std::fs::read_to_string(results.join("real.runs.jsonl")).unwrap();
    let mut means = std::collections::BTreeMap::new();
    for line in record.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let run = &line["scores"];
        let held_out = &run["benchmarks"][0];
        let problems = held_out["problems"].as_array().unwrap();
        assert_eq!(problems.len(), 319);
        let right: f64 = problems.iter().map(|it| it.as_f64().unwrap()).sum();
        let (mean, arm) = (right / problems.len() as f64, run["arm"].as_str().unwrap());
        let cut_off = held_out["truncated"].as_f64().unwrap();
        assert!(run["made"]["completions"] == 4 && run["seed"] == 0, "{arm}");
        assert!(means.insert(arm.to_owned(), (mean, cut_off)).is_none(), "{arm}");
    }
    let labels = [
        ("real-base", "as it is"),
        ("real-sft", "SFT"),
        ("real-grpo", "GRPO"),
        ("real-sft-grpo", "SFT-GRPO"),
        ("real-trapo", "TRAPO, always on"),
        ("real-hapo", "HAPO, annealed"),
    ];
    assert_eq!(means.len(), labels.len());
    let of_it = &page[page.find("### A pretrained model").unwrap()..];
    for (arm, label) in labels {
        let (mean, cut_off) = means[arm];
        let row = of_it.lines().find(|it| it.starts_with(&format!("| {label} | 1 | {mean:.3} |")));
        assert!(
            row.is_some_and(|it| it.contains(&format!(" | {cut_off:.3} | "))),
            "{arm}: {row:?}"
        );
        let over = format!("{:+.3}", means["real-hapo"].0 - mean);
        let pair = format!("| HAPO, annealed over {label} | 1 | {over} ");
        assert!(of_it.contains(&pair) || matches!(arm, "real-base" | "real-hapo"), "{pair}");
    }
}
