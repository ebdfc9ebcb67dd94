//! Messages of a run while it goes and at its end.

use crate::support::{hapo, repository, succeed};
use serde_json::{Value, json};

/// The smoke recipe with a decoder small enough for a test.
const SMALL: &[&str] = &[
    "model={ init = { hidden = 32, layers = 2, heads = 4, kv_heads = 2, ffn = 64, std = 0.3 } }",
    "data.prompts=8",
    "steps=3",
    "sampling.group_size=4",
    "sampling.prompts_per_step=4",
    "sampling.max_new_tokens=16",
    "checkpoint.every=1",
    "metrics.preflight=4",
];

fn train<'a>(recipe: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let sets = SMALL.iter().flat_map(|it| ["--set", it]);
    [&["train", recipe, "--run-dir", "run"], &sets.collect::<Vec<_>>()[..], more].concat()
}

fn events(text: &[u8]) -> Vec<Value> {
    let text = String::from_utf8(text.to_vec()).unwrap();
    let event = |it: &str| serde_json::from_str(it).unwrap_or_else(|_| panic!("no JSON: {it}"));
    text.lines().map(event).collect()
}

#[test]
fn with_log_json_every_line_is_json() {
    let dir = tempfile::tempdir().unwrap();
    let recipe = repository("recipes/smoke.toml").display().to_string();
    let args = train(&recipe, &["--log", "json"]);
    let it = hapo(dir.path(), &args);
    assert!(it.status.success());
    assert!(it.stdout.is_empty());
    let all = events(&it.stderr);
    let kinds: Vec<&str> = all.iter().map(|it| it["event"].as_str().unwrap()).collect();
    assert_eq!(kinds.iter().filter(|it| **it == "step").count(), 3, "{kinds:?}");
    assert_eq!(kinds.iter().filter(|it| **it == "preflight").count(), 1);
    let end = all.last().unwrap();
    assert_eq!(
        (&end["event"], &end["steps"], &end["finished"]),
        (&json!("end"), &json!(3), &json!(true))
    );
    assert_eq!(end["run"], "smoke");
    assert_eq!(end["summary"]["steps_of_each_mean"], 1);
    assert_eq!(end["summary"]["reward"].as_array().unwrap().len(), 2);
    assert!(end["summary"]["tokens_sampled"].as_f64().unwrap() > 0.0);
    let step = all.iter().find(|it| it["event"] == "step").unwrap();
    assert!(step["eta_seconds"].is_number() && step["seconds"].is_number());

    // A failure too, and the outcome on standard output.
    let again = hapo(dir.path(), &args);
    assert_eq!(again.status.code(), Some(2));
    assert!(again.stdout.is_empty());
    let error = events(&again.stderr).pop().unwrap();
    assert_eq!((&error["event"], &error["exit_code"]), (&json!("error"), &json!(2)));
    assert!(error["message"].as_str().unwrap().contains("run"));
    assert!(error["hint"].as_str().unwrap().contains("--resume"));
    let args = train(&recipe, &["--log", "json", "--json", "--resume"]);
    let resumed = hapo(dir.path(), &args);
    assert_eq!(events(&resumed.stdout).len(), 1);
    assert_eq!(events(&resumed.stderr).last().unwrap()["steps_now"], 0);
}

#[test]
fn a_run_ends_with_what_it_has_come_to() {
    let dir = tempfile::tempdir().unwrap();
    let recipe = repository("recipes/smoke.toml").display().to_string();
    let it = hapo(dir.path(), &train(&recipe, &[]));
    assert!(it.status.success());
    let said = String::from_utf8(it.stdout).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert!(lines[0].starts_with("smoke: 3 steps done; the model is in "));
    let rest = lines[1].strip_prefix("smoke: reward 0.").unwrap();
    assert!(rest.contains("(first and last step), ") && rest.contains(" tokens sampled"), "{said}");
    let stderr = String::from_utf8(it.stderr).unwrap();
    assert!(stderr.contains("smoke 3/3 reward ") && stderr.contains("s, eta 0 s"), "{stderr}");
}

#[test]
fn a_quiet_run_says_how_it_ended_alone() {
    let dir = tempfile::tempdir().unwrap();
    // A model with a chat template of its own: which one is taken would be said.
    let model = format!("model.path={}", json!(hapo_testing::model_dir("tiny-qwen3")));
    let recipe = repository("recipes/smoke.toml").display().to_string();
    let sets = SMALL.iter().filter(|it| !it.starts_with("model")).copied();
    let sets = sets.chain([&*model, "data.max_prompt_tokens=128", "data.template=\"auto\""]);
    let args: Vec<&str> = sets.flat_map(|it| ["--set", it]).collect();
    let args = [&["train", &*recipe, "--run-dir", "run"], &args[..]].concat();
    let loud = hapo(dir.path(), &args);
    assert!(loud.status.success(), "{}", String::from_utf8_lossy(&loud.stderr));
    assert!(String::from_utf8(loud.stderr).unwrap().contains("template"));
    let other = tempfile::tempdir().unwrap();
    let quiet = hapo(other.path(), &[&args[..], &["--quiet"]].concat());
    assert!(quiet.status.success());
    let stderr = String::from_utf8(quiet.stderr).unwrap();
    assert!(stderr.lines().all(|it| it.starts_with("warning: ")), "{stderr}");
    assert!(!stderr.contains("template"), "{stderr}");
    assert_eq!(String::from_utf8(quiet.stdout).unwrap().lines().count(), 1);
}

#[test]
fn teachers_are_spoken_of_only_where_one_may_enter() {
    let dir = tempfile::tempdir().unwrap();
    let row = |index: u32| {
        let (problem, answer) = (format!("{index}+1=?"), (index + 1).to_string());
        json!({ "id": index.to_string(), "problem": problem, "answer": answer, "teacher": "\\boxed{0}", "solution_steps": "It is \\boxed{1}." })
    };
    let rows: String = (1..9).map(|it| row(it).to_string() + "\n").collect();
    std::fs::write(dir.path().join("rows.jsonl"), rows).unwrap();
    let recipe = repository("recipes/smoke.toml").display().to_string();
    let said = |folder: &str, method: &[&str]| {
        let mut args = vec!["train", &recipe, "--run-dir", folder];
        let of_data = SMALL.iter().filter(|it| !it.starts_with("data.prompts"));
        let sets = of_data.chain(&["data={ train = \"rows.jsonl\", max_prompt_tokens = 32 }"]);
        args.extend(sets.flat_map(|it| ["--set", it]));
        args.extend(method);
        let it = hapo(dir.path(), &args);
        let stderr = String::from_utf8(it.stderr).unwrap();
        assert!(it.status.success(), "{stderr}");
        stderr
    };
    let hapo = said("trapo", &[]);
    assert!(hapo.contains("8 teacher trajectories are not admitted"), "{hapo}");
    assert!(hapo.contains("teacher for 0.0 % of the prompts"), "{hapo}");
    let grpo = said("grpo", &["--set", "method=\"grpo\"", "--unset", "hapo"]);
    assert!(!grpo.contains("teacher trajectories") && !grpo.contains("teacher for"), "{grpo}");
    assert!(grpo.contains("pre-flight"), "{grpo}");
}

#[test]
fn completions_are_apart_from_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["generate", "--model", "builtin:base", "12*3=?", "--max-tokens", "6"];
    let one = succeed(dir.path(), &args);
    assert!(!one.contains("---"), "{one}");
    let four = succeed(dir.path(), &[&args[..], &["-n", "4"]].concat());
    let heads: Vec<&str> = four.lines().filter(|it| it.starts_with("--- ")).collect();
    assert_eq!(heads, ["--- 1 of 4", "--- 2 of 4", "--- 3 of 4", "--- 4 of 4"]);
    assert_eq!(four.lines().next(), Some("--- 1 of 4"));
}

#[test]
fn every_command_that_prints_a_table_prints_it_as_json_too() {
    let dir = tempfile::tempdir().unwrap();
    // These print no table, or one for programs already.
    let without = [
        "serve",
        "chat",
        "export",
        "fetch",
        "logprobs",
        "merge",
        "methods",
        "new",
        "completions",
        "help",
    ];
    let help = succeed(dir.path(), &["--help"]);
    let (_, commands) = help.split_once("Start:\n").unwrap();
    let (commands, _) = commands.split_once("Options:\n").unwrap();
    let names = commands
        .lines()
        .filter(|it| it.starts_with("  ") && !it.starts_with("   "))
        .filter_map(|it| it.split_whitespace().next())
        .filter(|it| !without.contains(it));
    let mut commands: Vec<Vec<&str>> = names.map(|it| vec![it]).collect();
    commands.retain(|it| it[0] != "data");
    commands.extend(["stats", "check", "convert"].map(|it| vec!["data", it]));
    assert!(commands.len() >= 15, "{commands:?}");
    for it in commands {
        let help = succeed(dir.path(), &[&it[..], &["--help"]].concat());
        assert!(help.contains("--json"), "{it:?}");
    }
}
