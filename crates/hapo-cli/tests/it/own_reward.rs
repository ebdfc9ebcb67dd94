//! Rewards of one's own in `train`, `grade`, `eval`, `data check` and `teacher`, and the examples of the repository.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::server::{Mood, Server};
use crate::support::{hapo, refuse, repository, succeed};
use hapo_run::RolloutLine;
use serde_json::{Value, json};

/// The smoke recipe with a decoder small enough for a test.
const SMALL: &[&str] = &[
    "model={ init = { hidden = 32, layers = 2, heads = 4, kv_heads = 2, ffn = 64, std = 0.3 } }",
    "data.prompts=8",
    "data.truncated=\"grade\"",
    "steps=2",
    "sampling.group_size=4",
    "sampling.prompts_per_step=4",
    "sampling.max_new_tokens=16",
    "checkpoint.every=1",
    "metrics.preflight=0",
];

fn train_args(name: &str, sets: &[&str]) -> Vec<String> {
    let recipe = repository("recipes/smoke.toml");
    let mut args = vec!["train".to_owned(), recipe.display().to_string()];
    args.extend(["--run-dir".to_owned(), name.to_owned(), "--quiet".to_owned()]);
    for set in SMALL.iter().chain(sets) {
        args.extend(["--set".to_owned(), (*set).to_owned()]);
    }
    args
}

/// Trains and expects success.
fn train(dir: &Path, name: &str, sets: &[&str]) -> PathBuf {
    let args = train_args(name, sets);
    succeed(dir, &args.iter().map(String::as_str).collect::<Vec<_>>());
    dir.join(name)
}

/// Trains and expects exit code 2; gives the message.
fn fails(dir: &Path, name: &str, sets: &[&str]) -> String {
    let args = train_args(name, sets);
    refuse(dir, &args.iter().map(String::as_str).collect::<Vec<_>>())
}

fn grader(command: &str) -> String {
    format!("data.grader={}", json!(format!("command:{command}")))
}

/// The last checkpoint's parameters and moments.
fn parameters(run: &Path) -> BTreeMap<&'static str, Vec<u8>> {
    let state = run.join("checkpoints/step-000002/trainer_state");
    let names = ["parameters.f32", "first_moments.f32", "second_moments.f32"];
    names.into_iter().map(|it| (it, fs::read(state.join(it)).unwrap())).collect()
}

/// The metrics but for the clocks, a line for each step.
fn metrics(run: &Path) -> Vec<serde_json::Map<String, Value>> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let line = |it: &str| {
        let mut it: serde_json::Map<String, Value> = serde_json::from_str(it).unwrap();
        it.retain(|name, _| !hapo_run::is_clock(name));
        it
    };
    text.lines().map(line).collect()
}

/// Answers by the first digit of a line's id: the reward is that of the line, whoever judges it and when.
fn by_id(cases: &str) -> String {
    let cases = format!(
        "case \"$line\" in {cases} '{{\"id\":\"'[0-7]*) echo '{{\"reward\": 0.25, \"parts\": {{\"low\": 1}}}}';; *) echo '{{\"reward\": 1, \"parts\": {{\"low\": 0}}}}';; esac"
    );
    format!("while read -r line; do {cases}; done")
}

#[test]
fn a_program_that_asks_a_built_in_grader_trains_the_same_bits() {
    let dir = tempfile::tempdir().unwrap();
    let built_in = train(dir.path(), "built-in", &[]);
    let command = format!(
        "'{}' grade --pred-key completion --extraction announced",
        env!("CARGO_BIN_EXE_hapo")
    );
    let own = train(dir.path(), "own", &[&grader(&command)]);
    assert_eq!(parameters(&own), parameters(&built_in));
    assert_eq!(metrics(&own), metrics(&built_in));
}

#[test]
fn graded_rewards_train_the_same_bits_with_any_number_of_processes_and_are_replayed() {
    let dir = tempfile::tempdir().unwrap();
    // The first of a process is slow, so that the order of the answers changes.
    let slow = format!("sleep 0.1; {}", by_id(""));
    let partial = grader(&slow);
    let one = train(dir.path(), "one", &[&partial, "reward.workers=1"]);
    let four = train(dir.path(), "four", &[&partial, "reward.workers=4"]);
    assert_eq!(parameters(&one), parameters(&four));
    let logged = metrics(&one);
    assert_eq!(logged, metrics(&four));
    for line in &logged {
        // A quarter for the share that is low, 1 for the others.
        let low = line["reward/parts/low"].as_f64().unwrap();
        let mean = line["reward/policy_only"].as_f64().unwrap();
        assert!(low > 0.0 && low < 1.0, "{low}");
        assert!((mean - (0.25 * low + (1.0 - low))).abs() < 1e-12, "{mean} {low}");
        assert!(!line.contains_key("reward/failed"));
    }
    let rollouts = hapo_run::read_rollouts(&hapo_run::RunFolder(&one).rollouts_of(1)).unwrap();
    let rewards: Vec<f64> = rollouts.iter().map(RolloutLine::reward).collect();
    assert!(rewards.contains(&0.25) && rewards.contains(&1.0), "{rewards:?}");
    for step in ["1", "2"] {
        let replayed = succeed(dir.path(), &["replay", "--run", "one", "--step", step, "--json"]);
        let it: Value = serde_json::from_str(&replayed).unwrap();
        assert_eq!(it["loss"], it["logged_loss"], "{replayed}");
        assert_eq!(it["grad_norm"], it["logged_grad_norm"], "{replayed}");
    }
}

#[test]
fn d31_groups_with_cut_responses_are_resumed_and_replayed_to_the_same_bits() {
    let dir = tempfile::tempdir().unwrap();
    let program = grader(
        "while read -r line; do case \"$line\" in *4*) echo -0.5;; *) echo -1.25;; esac; done",
    );
    let sets = [&program, "data.truncated=\"wrong\"", "sampling.max_new_tokens=24"];
    let whole = train(dir.path(), "whole", &sets);
    let rollouts = hapo_run::read_rollouts(&hapo_run::RunFolder(&whole).rollouts_of(1)).unwrap();
    let paid =
        |ended: bool| rollouts.iter().filter(move |it| it.ended == ended).map(RolloutLine::reward);
    // A cut response has the lowest reward of its group, or 0 where nothing was graded.
    assert!(paid(true).count() > 0 && paid(false).any(|it| it < 0.0), "{rollouts:?}");
    assert!(paid(false).all(|it| [-1.25, -0.5, 0.0].contains(&it)));
    for step in ["1", "2"] {
        let replayed = succeed(dir.path(), &["replay", "--run", "whole", "--step", step, "--json"]);
        let it: Value = serde_json::from_str(&replayed).unwrap();
        assert_eq!((&it["loss"], &it["grad_norm"]), (&it["logged_loss"], &it["logged_grad_norm"]));
    }
    let half = train(dir.path(), "half", &sets);
    fs::remove_dir_all(half.join("checkpoints/step-000002")).unwrap();
    let mut args = train_args("half", &sets);
    args.push("--resume".to_owned());
    let warned = hapo(dir.path(), &args.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(parameters(&whole), parameters(&half), "{warned:?}");
    assert_eq!(metrics(&whole), metrics(&half));
}

#[test]
fn another_program_is_another_run() {
    let dir = tempfile::tempdir().unwrap();
    train(dir.path(), "run", &[&grader(&by_id(""))]);
    let other = grader(&by_id("x) echo 0;;"));
    let mut args = train_args("run", &[&other, "steps=3"]);
    args.push("--resume".to_owned());
    let message = refuse(dir.path(), &args.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(message.contains("data.grader: "), "{message}");
    // A model's folder names no program that `eval` runs.
    let row = json!({ "problem": "1+1=?", "answer": "2" });
    fs::write(dir.path().join("rows.jsonl"), row.to_string()).unwrap();
    let eval = ["eval", "--model", "run/checkpoints/step-000002", "--data", "rows.jsonl"];
    let told = hapo(dir.path(), &[&eval[..], &["--max-tokens", "2"]].concat());
    let said = String::from_utf8_lossy(&told.stderr);
    assert!(said.contains("warning: the model's run was judged by `command:"), "{said}");
    assert!(said.contains("grader `training`, extraction `announced`"), "{said}");
}

#[test]
fn five_bad_programs() {
    let dir = tempfile::tempdir().unwrap();
    let some = "'{\"id\":\"'[0-3]*)";
    let brief = ["reward.timeout=0.4", "reward.start_timeout=5"];
    let cases = [
        (
            "crash",
            format!("{some} echo I fall >&2; exit 3;;"),
            "it ended before it answered: exit status: 3; it said: I fall",
        ),
        ("hang", format!("{some} sleep 1000;;"), "no answer within "),
        ("nonsense", format!("{some} echo NaN;;"), "expected a finite reward, in the answer `NaN`"),
    ];
    for (name, case, message) in cases {
        let command = grader(&by_id(&case));
        let stopped = fails(dir.path(), name, &[&command, brief[0], brief[1]]);
        assert!(stopped.contains("the reward failed: command:"), "{stopped}");
        assert!(stopped.contains(message), "{stopped}");
        assert!(stopped.contains("reward.log"), "{stopped}");
        let wrong = format!("{name}-wrong");
        let sets = [command.as_str(), brief[0], brief[1], "reward.on_failure=\"wrong\""];
        let run = train(dir.path(), &wrong, &sets);
        let logged = metrics(&run);
        assert!(logged.iter().any(|it| it["reward/failed"].as_f64() >= Some(1.0)), "{logged:?}");
    }
    // A second run of the one that crashes has the same bits.
    let crash = by_id(&format!("{some} exit 3;;"));
    let sets = |workers| {
        [
            grader(&crash),
            "reward.on_failure=\"wrong\"".to_owned(),
            format!("reward.workers={workers}"),
        ]
    };
    let runs = [1, 3].map(|workers| {
        let sets = sets(workers);
        let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
        train(dir.path(), &format!("crash-{workers}"), &sets)
    });
    assert_eq!(parameters(&runs[0]), parameters(&runs[1]));
    // One that answers other lines than it was asked, and one that is not there, end the run in any case.
    let liar = "while read -r line; do echo '{\"id\": \"another\", \"reward\": 1}'; done";
    for (name, command, message) in [
        ("liar", liar, "it answered line \"another\", expected \""),
        ("missing", "/no/such/program", "exit status: 127"),
    ] {
        let sets = [&grader(command), "reward.on_failure=\"wrong\""];
        let stopped = fails(dir.path(), name, &sets);
        assert!(stopped.contains(message), "{stopped}");
    }
}

#[test]
fn a_line_that_only_comes_at_the_end_ends_a_run_and_a_command_with_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let late = format!("{}; echo 1", by_id(""));
    let message = fails(dir.path(), "late", &[&grader(&late)]);
    assert!(message.contains("it printed a line that answers nothing, `1`"), "{message}");
    fs::write(dir.path().join("rows.jsonl"), "{\"gold\": \"7\", \"pred\": \"7\"}\n").unwrap();
    let grade = ["grade", "rows.jsonl", "--grader", &format!("command:{late}")];
    let output = hapo(dir.path(), &grade);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("it printed a line that answers nothing, `1`"), "{message}");
}

#[test]
fn a_run_that_its_reward_ended_resumes_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let flag = dir.path().join("broken");
    // It breaks for good once it has judged so many lines.
    let command = format!(
        "while read -r line; do if [ -e '{0}' ]; then echo broken; elif [ $(cat '{0}.n' | wc -c) -ge 24 ]; then touch '{0}'; echo broken; else printf x >> '{0}.n'; echo 0.5; fi; done",
        flag.display()
    );
    fs::write(dir.path().join("broken.n"), "").unwrap();
    let sets = [grader(&command), "reward.workers=1".to_owned()];
    let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
    let stopped = fails(dir.path(), "run", &sets);
    assert!(stopped.contains("in the answer `broken`"), "{stopped}");
    assert_eq!(metrics(&dir.path().join("run")).len(), 1);
    let log = fs::read_to_string(dir.path().join("run/reward.log")).unwrap();
    assert!(log.contains("unexpected answer: broken"), "{log}");
    fs::remove_file(&flag).unwrap();
    fs::write(dir.path().join("broken.n"), "").unwrap();
    let mut args = train_args("run", &sets);
    args.push("--resume".to_owned());
    succeed(dir.path(), &args.iter().map(String::as_str).collect::<Vec<_>>());
    let whole = train(dir.path(), "whole", &[&grader("while read -r line; do echo 0.5; done")]);
    assert_eq!(parameters(&dir.path().join("run")), parameters(&whole));
}

#[test]
fn keys_of_a_reward_of_ones_own_need_one() {
    let dir = tempfile::tempdir().unwrap();
    let message = fails(dir.path(), "a", &["reward.timeout=1"]);
    assert!(message.contains("data.grader = \"math\" is no custom reward"), "{message}");
    let message = fails(dir.path(), "a", &["data.grader=\"command: \""]);
    assert!(message.contains("expected a command behind `command:`"), "{message}");
    let command = grader("cat");
    let message = fails(dir.path(), "a", &[&command, "reward.timeout=0"]);
    assert!(message.contains("expected seconds above 0, at most a day, got 0"), "{message}");
    let message = fails(dir.path(), "a", &[&command, "data.verdict_noise=0.1"]);
    assert!(message.contains("a custom reward has no verdicts to flip"), "{message}");
}

/// The lines that `hapo grade` prints for rows, by an example of the repository.
fn grade(dir: &Path, example: &str, rows: &[Value]) -> Vec<Value> {
    let lines: Vec<String> = rows.iter().map(Value::to_string).collect();
    fs::write(dir.join("rows.jsonl"), lines.join("\n")).unwrap();
    let grader = format!("command:python3 '{}'", repository(example).display());
    let args = ["grade", "rows.jsonl", "--grader", &grader, "--extraction", "announced"];
    let printed = succeed(dir, &args);
    printed.lines().map(|it| serde_json::from_str(it).unwrap()).collect()
}

#[test]
fn the_example_of_an_exact_match() {
    let dir = tempfile::tempdir().unwrap();
    let row = |gold: &str, pred: &str| json!({"gold": gold, "pred": pred});
    let rows = [row("7", "so \\boxed{7}"), row("7", "so \\boxed{7.0}"), row("7", "seven")];
    let graded = grade(dir.path(), "examples/rewards/exact.py", &rows);
    let rewards: Vec<f64> = graded.iter().map(|it| it["reward"].as_f64().unwrap()).collect();
    assert_eq!(rewards, [1.0, 0.0, 0.0]);
    assert_eq!(graded[0]["verdict"], "correct");
    assert_eq!(graded[1]["verdict"], "wrong");
}

#[test]
fn the_example_of_a_format_and_an_answer() {
    let dir = tempfile::tempdir().unwrap();
    let row = |pred: &str| json!({"gold": "1,200", "pred": pred});
    let rows = [
        row("The answer is 1200."),
        row("\\boxed{1,250}"),
        row("\\boxed{600}"),
        row("1200"),
        row("\\boxed{many}"),
    ];
    let graded = grade(dir.path(), "examples/rewards/format_and_answer.py", &rows);
    let rewards: Vec<f64> = graded.iter().map(|it| it["reward"].as_f64().unwrap()).collect();
    assert_eq!(rewards, [1.0, 0.55, 0.1, 0.0, 0.1]);
    assert_eq!(graded[1]["parts"], json!({"answer": 0.5, "format": 1.0}));
}

#[test]
fn the_example_of_unit_tests_survives_what_it_runs() {
    if hapo_testing::slow() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let tests = ["assert add(1, 2) == 3", "assert add(-1, 1) == 0"];
    let row = |code: &str| json!({"gold": "", "pred": format!("Here:\n```python\n{code}\n```\n"), "tests": tests});
    let rows = [
        row("def add(a, b):\n    return a + b"),
        row("def add(a, b):\n    return 3"),
        row("import sys\nsys.exit(0)"),
        row("x = [0] * 10 ** 10\ndef add(a, b):\n    return a + b"),
        row("while True:\n    pass"),
        row("import socket\nsocket.create_connection((\"127.0.0.1\", 1), timeout=1)"),
        row("open(\"big\", \"w\").write(\"x\" * (1 << 22))\ndef add(a, b):\n    return a + b"),
        json!({"gold": "", "pred": "no code", "tests": tests}),
    ];
    let graded = grade(dir.path(), "examples/rewards/unit_tests.py", &rows);
    let rewards: Vec<f64> = graded.iter().map(|it| it["reward"].as_f64().unwrap()).collect();
    assert_eq!(rewards, [1.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(graded[7]["parts"], json!({"code": 0.0, "passed": 0.0}));
}

#[test]
fn grade_names_the_rows_that_have_no_answer() {
    let dir = tempfile::tempdir().unwrap();
    let rows = ["good", "bad", "fine"].map(|it| json!({"gold": "1", "pred": it}).to_string());
    fs::write(dir.path().join("rows.jsonl"), rows.join("\n")).unwrap();
    let command = "command:while read -r line; do case \"$line\" in *bad*) echo oops;; *) echo 1;; esac; done";
    let output =
        hapo(dir.path(), &["grade", "rows.jsonl", "--grader", command, "--reward-workers", "1"]);
    assert_eq!(output.status.code(), Some(2));
    let stdout = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = stdout.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let verdicts: Vec<&Value> = lines.iter().map(|it| &it["verdict"]).collect();
    assert_eq!(verdicts, [&json!("correct"), &Value::Null, &json!("correct")]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("rows.jsonl: row 2: command:"), "{stderr}");
    assert!(stderr.contains("as JSON, in the answer `oops`"), "{stderr}");
}

#[test]
fn eval_and_data_check_ask_it_with_whole_rows_and_named_columns() {
    let dir = tempfile::tempdir().unwrap();
    let rows: Vec<String> = (0..4)
        .map(|it| {
            json!({"q": format!("{it} + 1"), "gold": format!("{}", it + 1), "worked": format!("it is \\boxed{{{}}}", it + it % 2), "hard": it % 2 == 1}).to_string()
        })
        .collect();
    fs::write(dir.path().join("odd.jsonl"), rows.join("\n")).unwrap();
    let columns = "problem=q,answer=gold,teacher=worked";
    // It looks at a field that no layout reads.
    let hard = "command:while read -r line; do case \"$line\" in *'\"hard\":true'*) echo 1;; *) echo 0.5;; esac; done";
    let args = [
        "eval",
        "--model",
        "builtin:base",
        "--data",
        "odd.jsonl",
        "--columns",
        columns,
        "--grader",
        hard,
        "--k",
        "2",
        "--max-tokens",
        "4",
        "--truncated",
        "grade",
        "--json",
    ];
    let scores: Value = serde_json::from_str(&succeed(dir.path(), &args)).unwrap();
    assert_eq!(scores[0]["average"]["mean"], json!(0.5), "{scores}");
    let checked =
        hapo(dir.path(), &["data", "check", "odd.jsonl", "--columns", columns, "--grader", hard]);
    let stderr = String::from_utf8(checked.stderr).unwrap();
    assert!(stderr.contains("2 of 4 solutions\n"), "{stderr}");
    let reply = r#"{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"?"}}]}"#;
    let server = Server::start(Mood::Always(200, reply, None));
    let teach = ["teacher", "--endpoint", &server.endpoint, "--model", "m", "--columns", columns];
    let teach = [
        &teach[..],
        &["--grader", hard, "--attempts", "1", "--input", "odd.jsonl", "--output", "taught.jsonl"],
        &["--json"],
    ];
    let taught: Value = serde_json::from_str(&succeed(dir.path(), &teach.concat())).unwrap();
    assert_eq!((&taught["prompts"], &taught["correct"]), (&json!(4), &json!(2)));
}

/// Training multiplies, and the evaluation adds too: there the program ends, until somebody repairs it.
#[test]
fn a_step_whose_evaluation_fails_is_kept_and_evaluated_when_the_run_is_resumed() {
    let dir = tempfile::tempdir().unwrap();
    let repaired = dir.path().join("repaired");
    let ends = by_id(
        "*+*'\"gold\"'*) [ -e broken/start.json ] && [ ! -e repaired ] && exit 1; echo '{\"reward\": 1, \"parts\": {\"low\": 0}}';;",
    );
    let ends = grader(&ends);
    for every in ["eval.every=1", "eval.every=2"] {
        let sets = [
            &ends,
            "data.levels=[\"multiply:6\"]",
            "checkpoint.every=0",
            "checkpoint.best=\"-loss\"",
            "eval={ suite = \"mini6\", problems = 2, k = 1 }",
            every,
        ];
        let message = fails(dir.path(), "broken", &sets);
        assert!(message.contains("the reward failed"), "{message}");
        let done = if every == "eval.every=1" { 1 } else { 2 };
        let broken = dir.path().join("broken");
        let saved = hapo_run::RunFolder(&broken).list_checkpoints().unwrap();
        assert_eq!((saved[0].0, metrics(&broken).len()), (done, done as usize));
        fs::write(&repaired, "").unwrap();
        let args = train_args("broken", &sets);
        let args: Vec<&str> = args.iter().map(String::as_str).chain(["--resume"]).collect();
        succeed(dir.path(), &args);
        let whole = train(dir.path(), "whole", &sets);
        assert_eq!(metrics(&broken), metrics(&whole));
        assert_eq!(parameters(&broken), parameters(&whole));
        let score = |run: &Path| -> Value {
            let state = run.join("checkpoints/step-000002/trainer_state/state.json");
            serde_json::from_slice::<Value>(&fs::read(state).unwrap()).unwrap()["score"].clone()
        };
        assert_eq!(score(&broken), score(&whole));
        assert!(score(&whole).is_number());
        for run in [&broken, &whole] {
            fs::remove_dir_all(run).unwrap();
        }
        fs::remove_file(&repaired).unwrap();
    }
}
