//! `hapo new`, `hapo recipe`, and recipes that come with the program, from an empty folder.

mod support;

use std::fs;

use expect_test::expect;
use support::{refuse, succeed};

fn problems(count: u32) -> String {
    let row = |it: u32| {
        let sum = it + 7;
        format!(
            "{{\"question\":\"What is {it} + 7?\",\"answer\":\"Add 7 to {it}.\\n#### {sum}\"}}\n"
        )
    };
    (0..count).map(row).collect()
}

#[test]
fn a_new_recipe_fits_the_model_and_the_data_and_trains() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("gsm.jsonl"), problems(40)).unwrap();
    let new = ["new", "--model", "builtin:base", "--data", "gsm.jsonl", "-o", "my.toml"];
    let said = succeed(dir.path(), &new);
    assert_eq!(said, "my.toml is written; next:\n  hapo plan my.toml\n  hapo train my.toml\n");
    let text = fs::read_to_string(dir.path().join("my.toml")).unwrap();
    let (planned, rest) = text.split_once('\n').unwrap();
    assert!(planned.starts_with("# Planned on this machine: "), "{planned}");
    for expected in [
        "method = \"trapo\"",
        "path = \"builtin:base\"",
        "train = \"gsm.jsonl\"",
        "turn_off_epoch",
        "# 95 % of the solutions have at most",
        "prompts_per_step = 16",
    ] {
        assert!(rest.contains(expected), "{expected}: {rest}");
    }
    // What depends on the machine alone is left to the run.
    assert!(!rest.contains("micro_batch_tokens"), "{rest}");
    let steps = ["--set", "steps=1", "--set", "sampling.max_new_tokens=64"];
    let few = ["--set", "sampling.prompts_per_step=2", "--set", "optim.mini_batch_prompts=1"];
    let train = [&["train", "my.toml", "--quiet"], &steps[..], &few[..]].concat();
    let done = succeed(dir.path(), &train);
    assert!(done.contains(": 1 steps done; the model is in "), "{done}");

    let message = refuse(dir.path(), &new);
    assert!(message.starts_with("error: my.toml exists\nhint: name another with -o"), "{message}");
    succeed(dir.path(), &[&new[..], &["--force", "--method", "grpo"]].concat());
    let text = fs::read_to_string(dir.path().join("my.toml")).unwrap();
    assert!(text.contains("method = \"grpo\"") && !text.contains("[hapo]"), "{text}");
    succeed(dir.path(), &[&new[..], &["--force", "--lora"]].concat());
    let text = fs::read_to_string(dir.path().join("my.toml")).unwrap();
    assert!(text.contains("[lora]") && text.contains("lr = 1e-5"), "{text}");
    let done = succeed(dir.path(), &[&train[..], &["--run-dir", "adapted"]].concat());
    assert!(done.contains(": 1 steps done"), "{done}");
    let checkpoint = dir.path().join("adapted/checkpoints/step-000001");
    assert!(checkpoint.join("adapter_model.safetensors").is_file());
    fs::write(dir.path().join("bad.jsonl"), "{\"question\":\"\",\"answer\":\"1\"}\n").unwrap();
    let bad = ["new", "--model", "builtin:base", "--data", "bad.jsonl", "-o", "other.toml"];
    assert!(refuse(dir.path(), &bad).starts_with("error: bad.jsonl: bad.jsonl:1: question: "));
}

#[test]
fn keys_are_explained_where_nothing_but_the_program_is() {
    let dir = tempfile::tempdir().unwrap();
    expect![[r#"
        [optim]
        lr = 5e-6
            Peak learning rate.
    "#]]
    .assert_eq(&succeed(dir.path(), &["recipe", "optim.lr"]));
    let section = succeed(dir.path(), &["recipe", "hapo"]);
    assert!(section.starts_with("[hapo]\n") && section.contains("turn_off_epoch"), "{section}");
    let all = succeed(dir.path(), &["recipe"]);
    for expected in ["[model.init]", "method  (required)", "Tables of single methods:"] {
        assert!(all.contains(expected), "{expected}");
    }
    let json = succeed(dir.path(), &["recipe", "checkpoint", "--json"]);
    let keys: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(keys.as_array().unwrap().iter().any(|it| it["key"] == "checkpoint.every"), "{json}");
    let message = refuse(dir.path(), &["recipe", "nothing_like_it"]);
    assert!(message.starts_with("error: no key of a recipe is called `nothing_like_it`"));
}

#[test]
fn a_recipe_of_the_program_needs_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let small = ["--set", "steps=1", "--set", "sampling.max_new_tokens=8", "--unset", "hapo"];
    let few = ["--set", "sampling.prompts_per_step=2", "--set", "optim.mini_batch_prompts=1"];
    let train = [&["train", "builtin:smoke", "--quiet"], &small[..], &few[..]].concat();
    let done = succeed(dir.path(), &train);
    assert!(done.starts_with("smoke: 1 steps done"), "{done}");
    let list = succeed(dir.path(), &["list", "recipes"]);
    assert!(list.contains("smollm2-135m-gsm8k  TRAPO with the HAPO gate"), "{list}");
    let message = refuse(dir.path(), &["train", "builtin:none"]);
    assert!(message.contains("no such recipe, expected one of: smoke, hapo-method"), "{message}");
    // What the program says first names nothing that is not there.
    let said = succeed(dir.path(), &[]);
    assert!(said.contains("hapo train builtin:smoke") && !said.contains(".toml"), "{said}");
}

#[test]
fn a_preflight_is_one_event_of_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let small = ["--set", "steps=1", "--set", "sampling.max_new_tokens=8", "--unset", "hapo"];
    let few = ["--set", "sampling.prompts_per_step=2", "--set", "optim.mini_batch_prompts=1"];
    let train = [&["train", "builtin:smoke", "--log", "json"], &small[..], &few[..]].concat();
    let output = support::hapo(dir.path(), &train);
    let log = String::from_utf8(output.stderr).unwrap();
    let events: Vec<serde_json::Value> =
        log.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let preflights: Vec<_> = events.iter().filter(|it| it["event"] == "preflight").collect();
    assert_eq!(preflights.len(), 1, "{log}");
    assert!(preflights[0]["preflight"].is_object(), "{log}");
}

/// A file with the rows of `columns`, each a row's fields beside its problem and answer.
fn odd(name: &str) -> String {
    let row = |it: u32| {
        let reasoning = format!(
            "First I take {it}, then I add seven to it, and the answer is \\boxed{{{}}}",
            it + 7
        );
        let row = serde_json::json!({"id": it, "problem": format!("{it} + 7"), "answer": it + 7, name: reasoning});
        format!("{row}\n")
    };
    (0..16).map(row).collect()
}

#[test]
fn solutions_that_nobody_reads_are_said_by_new_and_by_train() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("odd.jsonl"), odd("reasoning")).unwrap();
    let warning = "warning: `reasoning` looks like solutions (16 rows";
    let new = ["new", "--model", "builtin:base", "--data", "odd.jsonl", "-o", "my.toml"];
    let output = support::hapo(dir.path(), &new);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(warning), "{said}");
    let train = [
        "train",
        "my.toml",
        "--no-preflight",
        "--set",
        "steps=1",
        "--set",
        "sampling.max_new_tokens=8",
        "--set",
        "sampling.prompts_per_step=2",
        "--set",
        "optim.mini_batch_prompts=2",
    ];
    let output = support::hapo(dir.path(), &train);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!said.contains("looks like solutions"), "GRPO reads none: {said}");
    let output = support::hapo(
        dir.path(),
        &[&train[..], &["--set", "method=luffy", "--run-dir", "runs/luffy"]].concat(),
    );
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(warning), "{said}");
    assert!(
        said.contains(
            "data.columns = { problem = \"…\", answer = \"…\", teacher = [\"reasoning\"] }"
        ),
        "{said}"
    );
    // Named so, they are teachers.
    fs::write(dir.path().join("solved.jsonl"), odd("solution")).unwrap();
    let stats = succeed(dir.path(), &["data", "stats", "solved.jsonl", "--json"]);
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    assert_eq!(stats["with_teacher"], 16, "{stats}");
}
