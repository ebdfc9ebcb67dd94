//! `hapo new`, `hapo recipe`, and recipes that come with the program, from an empty folder.

use std::fs;

use crate::support::{refuse, repository, succeed};
use expect_test::expect;
use hapo_train::{Overrides, Recipe, RunPlan};

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
    if hapo_testing::slow() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("gsm.jsonl"), problems(40)).unwrap();
    let files = ["new", "--model", "builtin:base", "--data", "gsm.jsonl", "-o", "my.toml"];
    let new = [&files[..], &["--no-sample"]].concat();
    let said = succeed(dir.path(), &new);
    assert_eq!(said, "my.toml is written; next:\n  hapo plan my.toml\n  hapo train my.toml\n");
    let text = fs::read_to_string(dir.path().join("my.toml")).unwrap();
    let (planned, rest) = text.split_once('\n').unwrap();
    assert!(planned.starts_with("# Planned on this machine: "), "{planned}");
    for expected in [
        "method = \"trapo\"",
        "path = \"builtin:base\"",
        "train = \"gsm.jsonl\"",
        "# the teacher helps up to step 12 of 20;",
        "# 95 % of the solutions have at most",
        "prompts_per_step = 8",
    ] {
        assert!(rest.contains(expected), "{expected}: {rest}");
    }
    // What depends on the machine alone is left to the run.
    assert!(!rest.contains("micro_batch_tokens"), "{rest}");
    let steps = ["--set", "steps=1", "--set", "sampling.max_new_tokens=64"];
    let few = ["--set", "sampling.prompts_per_step=2", "--set", "optim.mini_batch_prompts=1"];
    let train = [&["train", "my.toml", "--quiet"], &steps[..], &few[..]].concat();
    let done = succeed(dir.path(), &train);
    assert!(done.contains(": 1 step done; the model is in "), "{done}");

    let message = refuse(dir.path(), &new);
    assert!(message.starts_with("error: my.toml exists\nhint: name another with -o"), "{message}");
    succeed(dir.path(), &[&new[..], &["--force", "--method", "grpo"]].concat());
    let text = fs::read_to_string(dir.path().join("my.toml")).unwrap();
    assert!(text.contains("method = \"grpo\"") && !text.contains("[hapo]"), "{text}");
    succeed(dir.path(), &[&new[..], &["--force", "--lora"]].concat());
    let text = fs::read_to_string(dir.path().join("my.toml")).unwrap();
    assert!(text.contains("[lora]") && text.contains("lr = 1e-3"), "{text}");
    let done = succeed(dir.path(), &[&train[..], &["--run-dir", "adapted"]].concat());
    assert!(done.contains(": 1 step done"), "{done}");
    let checkpoint = dir.path().join("adapted/checkpoints/step-000001");
    assert!(checkpoint.join("adapter_model.safetensors").is_file());
    fs::write(dir.path().join("bad.jsonl"), "{\"question\":\"\",\"answer\":\"1\"}\n").unwrap();
    let bad = ["new", "--model", "builtin:base", "--data", "bad.jsonl", "-o", "other.toml"];
    assert!(refuse(dir.path(), &bad).starts_with("error: bad.jsonl:1: question: "));
}

/// The shipped model holds 128 tokens and knows no words.
#[test]
fn a_new_recipe_is_chosen_by_what_the_model_writes() {
    let dir = tempfile::tempdir().unwrap();
    let row = |it: u32| {
        let (a, b) = (it % 20 + 11, it % 20 + 17);
        let sum = a + b;
        format!(
            "{{\"problem\":\"{a}+{b}=?\",\"answer\":\"{sum}\",\"solution\":\"\\\\boxed{{{sum}}}\"}}\n"
        )
    };
    let rows: String = (0..21).map(row).collect();
    fs::write(dir.path().join("sums.jsonl"), &rows).unwrap();
    fs::write(dir.path().join("test.jsonl"), row(3)).unwrap();
    let new = ["new", "--model", "builtin:base", "--data", "sums.jsonl", "-o", "my.toml"];
    let more = ["--test", "test.jsonl", "--steps", "10"];
    let output = crate::support::hapo(dir.path(), &[&new[..], &more].concat());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    for expected in [
        "sums.jsonl: 21 rows, 20 problems (1 row repeats another), 21 rows with a solution",
        "pre-flight  8 prompts × 4: success ",
        "gate: the teacher helps up to step 6 of 10",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let text = fs::read_to_string(dir.path().join("my.toml")).unwrap();
    // A text that asks for a box in words would be unknown tokens, and so longer than the model holds.
    assert!(!text.contains("step by step"), "{text}");
    for expected in ["steps = 10", "lr = 1e-4", "max_prompt_tokens = 16", "data = \"test.jsonl\""] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let plan = succeed(dir.path(), &["plan", "my.toml", "--device", "h100"]);
    assert!(plan.ends_with("gate: the teacher helps up to step 6 of 10\n\n"), "{plan}");

    let torn = format!("{rows}{{\"problem\":\"1+1=?\"}}\n");
    fs::write(dir.path().join("torn.jsonl"), torn).unwrap();
    let bad = ["new", "--model", "builtin:base", "--data", "torn.jsonl", "-o", "other.toml"];
    let message = refuse(dir.path(), &bad);
    assert!(message.starts_with("error: torn.jsonl:22: answer: "), "{message}");
    assert!(message.contains("; 1 bad row of 22\nhint: leave bad rows out"), "{message}");

    let many = ["new", "--model", "builtin:base", "--data", "sums.jsonl", "-o", "other.toml"];
    let message = refuse(dir.path(), &[&many[..], &["--steps", "18446744073709551615"]].concat());
    assert!(message.contains("is not in 1..=1000000000"), "{message}");

    let empty = dir.path().join("empty");
    let base = repository("models/base");
    fs::create_dir(&empty).unwrap();
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
        fs::copy(base.join(name), empty.join(name)).unwrap();
    }
    let bare = ["new", "--model", "empty", "--data", "sums.jsonl", "-o", "other.toml"];
    assert!(refuse(dir.path(), &bare).contains("model.safetensors"));
    let weights = fs::read(base.join("model.safetensors")).unwrap();
    fs::write(empty.join("model.safetensors"), &weights[..weights.len() / 2]).unwrap();
    assert!(refuse(dir.path(), &bare).contains("model.safetensors"));
}

/// Sums in the built-in task's characters, with solutions or without.
fn sums(has_solutions: bool) -> String {
    let row = |n: u32| {
        let (a, b) = (n + 11, 2 * n + 17);
        let mut row =
            serde_json::json!({"problem": format!("{a}+{b}=?"), "answer": (a + b).to_string()});
        if has_solutions {
            row["solution"] = format!("{a}+{b}={}\n\\boxed{{{}}}", a + b, a + b).into();
        }
        format!("{row}\n")
    };
    (0..24).map(row).collect()
}

#[test]
fn every_method_writes_a_recipe_that_settles() {
    if hapo_testing::slow() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("sums.jsonl").display().to_string();
    fs::write(&data, sums(true)).unwrap();
    let new = ["new", "--model", "builtin:base", "--data", &data, "--steps", "30", "--no-sample"];
    for method in hapo_core::METHODS.iter().map(|it| it.name) {
        let file = format!("{method}.toml");
        let new = [&new[..], &["--method", method, "-o", &file]].concat();
        if ["opd", "kdrl", "tgopd"].contains(&method) {
            let message = refuse(dir.path(), &new);
            assert!(message.starts_with(&format!("error: `{method}` needs a second model")));
            succeed(dir.path(), &[&new[..], &["--reference", "builtin:base"]].concat());
        } else {
            succeed(dir.path(), &new);
        }
        let recipe = Recipe::load(&dir.path().join(&file), &Overrides::default()).unwrap();
        let plan = RunPlan::settle(&recipe).unwrap();
        assert_eq!(plan.recipe().method().name, method);
    }
    let small = ["--quiet", "--set", "steps=2", "--set", "sampling.max_new_tokens=24"];
    let few = ["--set", "sampling.prompts_per_step=2", "--set", "optim.mini_batch_prompts=1"];
    for method in ["sft", "scaf-grpo", "ghpo", "questa", "mfc", "sdpo", "uft", "kdrl", "tgopd"] {
        let file = format!("{method}.toml");
        let train = [&["train", &file, "--no-preflight"], &small[..], &few].concat();
        let done = succeed(dir.path(), &train);
        assert!(done.starts_with(&format!("{method}: 2 steps done")), "{done}");
    }
    let hints = fs::read_to_string(dir.path().join("scaf-grpo.toml")).unwrap();
    assert!(hints.contains("[scaf-grpo]\nwarmup = 4"), "{hints}");
}

#[test]
fn a_method_of_solutions_is_refused_where_rows_have_none() {
    if hapo_testing::slow() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("sums.jsonl"), sums(false)).unwrap();
    let new = ["new", "--model", "builtin:base", "--data", "sums.jsonl", "--no-sample"];
    let (mut refused, mut written) = (Vec::new(), Vec::new());
    for method in hapo_core::METHODS.iter().map(|it| it.name) {
        let new = [&new[..], &["--reference", "builtin:base", "--force", "--method", method]];
        let output = crate::support::hapo(dir.path(), &new.concat());
        let said = String::from_utf8(output.stderr).unwrap();
        let lacks =
            format!("error: `{method}` learns from solutions, and no row of sums.jsonl has one");
        if said.starts_with(&lacks) {
            assert_eq!(output.status.code(), Some(2));
            refused.push(method);
        } else {
            written.push(method);
        }
    }
    let without =
        ["grpo", "maxrl", "opd", "ngrpo", "w-reinforce", "repo", "exgrpo", "kdrl", "sdpo", "edge"];
    assert_eq!(written, without, "{refused:?}");
}

#[test]
fn a_run_that_learned_nothing_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let small = ["--set", "steps=2", "--set", "sampling.max_new_tokens=2", "--unset", "hapo"];
    let few = ["--set", "sampling.prompts_per_step=2", "--set", "optim.mini_batch_prompts=1"];
    let train = [&["train", "builtin:smoke", "--no-preflight"], &small[..], &few[..]].concat();
    let output = crate::support::hapo(dir.path(), &train);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    let last = said.trim_end().lines().last().unwrap_or_default();
    assert!(
        last.starts_with("nothing was learned: no answer was ever correct; `hapo doctor "),
        "{said}"
    );
    let json = succeed(dir.path(), &["train", "runs/smoke", "--resume", "--json"]);
    let outcome: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(outcome["learned"], false, "{json}");
    succeed(dir.path(), &["report", "runs/smoke", "-o", "page.html"]);
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
    assert!(done.starts_with("smoke: 1 step done"), "{done}");
    let list = succeed(dir.path(), &["list", "recipes"]);
    assert!(
        list.contains("smollm2-135m-gsm8k  9.4 h on two cores. TRAPO with the HAPO gate"),
        "{list}"
    );
    let message = refuse(dir.path(), &["train", "builtin:none"]);
    assert!(
        message.contains("no such recipe, expected one of: first, smoke, hapo-method"),
        "{message}"
    );
    // What the program says first names nothing that is not there.
    let said = succeed(dir.path(), &[]);
    assert!(said.contains("hapo train builtin:first") && !said.contains(".toml"), "{said}");
}

#[test]
fn a_preflight_is_one_event_of_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let small = ["--set", "steps=1", "--set", "sampling.max_new_tokens=8", "--unset", "hapo"];
    let few = ["--set", "sampling.prompts_per_step=2", "--set", "optim.mini_batch_prompts=1"];
    let train = [&["train", "builtin:smoke", "--log", "json"], &small[..], &few[..]].concat();
    let output = crate::support::hapo(dir.path(), &train);
    let log = String::from_utf8(output.stderr).unwrap();
    let events: Vec<serde_json::Value> =
        log.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let preflights: Vec<_> = events.iter().filter(|it| it["event"] == "preflight").collect();
    assert_eq!(preflights.len(), 1, "{log}");
    assert!(preflights[0]["preflight"].is_object(), "{log}");
}

/// Problems of one kind, each with its answer and, where there is one, its solution.
fn of_kind(kind: &str) -> String {
    let row = |n: u32| {
        let (day, letter) = (n % 28 + 1, char::from(b'A' + (n % 4) as u8));
        let date = format!("20{:02}-10-{day:02}", n % 100);
        let object = serde_json::json!({"n": n, "day": day}).to_string();
        let (problem, answer, solution) = match kind {
            "dates" => ("date", date.clone(), format!("October is month 10.\n{date}")),
            "objects" => ("JSON", object.clone(), object),
            "letters" => ("A or B?", letter.to_string(), format!("The answer is ({letter})")),
            "numbers" => ("sum", n.to_string(), format!("{n} + 0 = {n}")),
            "things" => {
                let answer = format!("{n} {}", ["birds", "cats", "red apples"][(n % 3) as usize]);
                ("how many?", answer.clone(), format!("The answer is {answer}."))
            }
            "commands" => {
                let all =
                    ["du -sh /srv/www", "find /usr -name '*.mp3' -mtime +7", "tail -n 6 a.csv"];
                let command = all[(n % 3) as usize].to_owned();
                ("which command?", command.clone(), format!("In a shell:\n{command}"))
            }
            "hopeless" => ("sum", n.to_string(), "see the book".to_owned()),
            other => unreachable!("{other}"),
        };
        let row = serde_json::json!({"problem": format!("{problem} {n}"), "answer": answer, "solution": solution});
        format!("{row}\n")
    };
    (0..24).map(row).collect()
}

/// Standard error of a command that must succeed.
fn said(dir: &std::path::Path, words: &[&str]) -> String {
    let output = crate::support::hapo(dir, words);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{words:?}: {said}");
    said
}

#[test]
fn a_new_recipe_has_the_rule_by_which_the_solutions_count() {
    let dir = tempfile::tempdir().unwrap();
    let new = ["new", "--model", "builtin:base", "--no-sample", "--force", "-o", "my.toml"];
    for (kind, grader, extraction) in [
        ("dates", "exact", "any"),
        ("objects", "exact", "whole"),
        ("letters", "choice", "any"),
        ("numbers", "math", "any"),
        ("things", "exact", "whole"),
        ("commands", "exact", "any"),
    ] {
        let file = format!("{kind}.jsonl");
        fs::write(dir.path().join(&file), of_kind(kind)).unwrap();
        let said = said(dir.path(), &[&new[..], &["--data", &file]].concat());
        let expected = format!("`{grader}` with `{extraction}`: 24 of 24 solutions count");
        assert!(said.starts_with(&expected), "{kind}: {said}");
        assert!(said.contains("to imitate first"), "{kind}: {said}");
        let text = fs::read_to_string(dir.path().join("my.toml")).unwrap();
        let recipe = Recipe::load(&dir.path().join("my.toml"), &Overrides::default()).unwrap();
        assert_eq!(recipe.data.grader, grader, "{text}");
        assert_eq!(recipe.data.extraction.name(), extraction, "{text}");
        assert!(!text.contains("step by step"), "nothing asks for a box: {text}");
    }
    // A gold answer that the run's grader could not read, here or in the file of the evaluation.
    fs::write(dir.path().join("numbers.jsonl"), of_kind("numbers")).unwrap();
    let unreadable = ["--data", "numbers.jsonl", "--test", "commands.jsonl", "--method", "grpo"];
    let message = refuse(dir.path(), &[&new[..], &unreadable, &["--grader", "training"]].concat());
    assert!(message.contains("commands.jsonl: row 2: unreadable gold answer"), "{message}");
    assert!(message.contains("--grader exact"), "{message}");
    // What nothing can be tried on is assumed, and said.
    let bare = of_kind("dates").replace("solution", "remark");
    fs::write(dir.path().join("bare.jsonl"), bare).unwrap();
    let assumed = said(dir.path(), &[&new[..], &["--data", "bare.jsonl"]].concat());
    assert!(
        assumed.starts_with(
            "assumed, as no row has a solution to try: `exact` with `whole`; most answers are dates"
        ),
        "{assumed}"
    );
    // No rule finds an answer: refused with the cause, unless solutions are left out.
    fs::write(dir.path().join("hopeless.jsonl"), of_kind("hopeless")).unwrap();
    let hopeless = [&new[..], &["--data", "hopeless.jsonl"]].concat();
    let message = refuse(dir.path(), &hopeless);
    assert!(message.contains("by no grader any of 24 solutions counts"), "{message}");
    assert!(message.contains("row 1") && message.contains("`see the book`"), "{message}");
    assert!(message.contains("--grader python:FILE.py:FUNCTION"), "{message}");
    said(dir.path(), &[&hopeless[..], &["--method", "grpo"]].concat());
}

#[test]
fn a_new_recipe_may_have_a_custom_reward() {
    let dir = tempfile::tempdir().unwrap();
    let reward = "def reward(completions, rows):\n    return [0.5 + 0.5 * (row['answer'] in text) for text, row in zip(completions, rows)]\n";
    fs::write(dir.path().join("reward.py"), reward).unwrap();
    fs::write(dir.path().join("objects.jsonl"), of_kind("objects")).unwrap();
    let new = ["new", "--model", "builtin:base", "--data", "objects.jsonl", "-o", "my.toml"];
    let own = ["--no-sample", "--force", "--grader", "python:reward.py:reward"];
    let tried = said(dir.path(), &[&new[..], &own].concat());
    assert!(
        tried.starts_with("grader python:reward.py:reward: 24 of 24 solutions count"),
        "{tried}"
    );
    let message =
        refuse(dir.path(), &[&new[..], &["--force", "--grader", "python:none.py:f"]].concat());
    assert!(message.contains("a file that is there"), "{message}");
    let small = ["--set", "steps=1", "--set", "sampling.max_new_tokens=8", "--quiet"];
    let few = ["--set", "sampling.prompts_per_step=2", "--set", "optim.mini_batch_prompts=1"];
    let train = [&["train", "my.toml", "--unset", "hapo"], &small[..], &few[..]].concat();
    let method = ["--set", "method=grpo"];
    succeed(dir.path(), &[&train[..], &method].concat());
}

#[test]
fn a_new_recipe_may_have_stages_a_name_and_a_template() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("sums.jsonl"), sums(true)).unwrap();
    let new = ["new", "--model", "builtin:base", "--data", "sums.jsonl", "-o", "my.toml"];
    let more = ["--no-sample", "--method", "sft,grpo", "--name", "sums", "--steps", "1"];
    succeed(dir.path(), &[&new[..], &more, &["--template", "chatml"]].concat());
    let text = fs::read_to_string(dir.path().join("my.toml")).unwrap();
    for expected in [
        "name = \"sums\"",
        "template = \"chatml\"",
        "lr = 1e-4",
        "[[stage]]\nname = \"sft\"\nmethod = \"sft\"\noptim.lr = 2e-4\n",
        "[[stage]]\nname = \"grpo\"\nmethod = \"grpo\"\nmodel.path = \"stage:sft\"\n",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let few = ["--set", "sampling.max_new_tokens=24", "--set", "sampling.prompts_per_step=2"];
    let train =
        ["train", "my.toml", "--quiet", "--run-dir", "run", "--set", "optim.mini_batch_prompts=1"];
    let done = succeed(dir.path(), &[&train[..], &few].concat());
    assert!(done.contains("sft: 1 step done") && done.contains("grpo: 1 step done"), "{done}");
    // What the untrained model writes says little of a stage behind imitation.
    let new = |method: &str| {
        let new = ["new", "--model", "builtin:base", "--data", "sums.jsonl", "-o", "my.toml"];
        let more = ["--force", "--template", "chatml", "--method", method];
        said(dir.path(), &[&new[..], &more].concat())
    };
    assert!(
        new("sft,grpo").contains("2 stages of 20 steps, the last about"),
        "{}",
        new("sft,grpo")
    );
    assert!(!new("sft,grpo").contains("warning: "), "{}", new("sft,grpo"));
    assert!(new("grpo").contains("warning: "), "{}", new("grpo"));
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
    let new =
        ["new", "--model", "builtin:base", "--data", "odd.jsonl", "-o", "my.toml", "--no-sample"];
    let output = crate::support::hapo(dir.path(), &new);
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
    let output = crate::support::hapo(dir.path(), &train);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!said.contains("looks like solutions"), "GRPO reads none: {said}");
    let output = crate::support::hapo(
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

/// A short problem to train on and a long one to evaluate on.
#[test]
fn a_new_recipe_has_room_for_the_problems_of_the_test_file() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("train.jsonl"), sums(true)).unwrap();
    let long = "{\"problem\":\"1+1+1+1+1+1+1+1+1+1+1+1+1+1+1=?\",\"answer\":\"15\"}\n";
    fs::write(dir.path().join("test.jsonl"), long).unwrap();
    let new = ["new", "--model", "builtin:base", "--data", "train.jsonl", "--steps", "2"];
    let more = ["--test", "test.jsonl", "--no-sample", "-o", "my.toml"];
    succeed(dir.path(), &[&new[..], &more].concat());
    let text = fs::read_to_string(dir.path().join("my.toml")).unwrap();
    assert!(text.contains("max_prompt_tokens = 48"), "{text}");
    let small = ["--set", "steps=1", "--set", "sampling.max_new_tokens=8", "--no-preflight"];
    let few = ["--set", "sampling.prompts_per_step=2", "--set", "optim.mini_batch_prompts=1"];
    let done = succeed(dir.path(), &[&["train", "my.toml", "--quiet"], &small[..], &few].concat());
    assert!(done.contains(": 1 step done"), "{done}");
}

#[test]
fn hours_say_how_many_steps_a_new_recipe_has() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("sums.jsonl"), sums(true)).unwrap();
    let new = ["new", "--model", "builtin:base", "--data", "sums.jsonl", "--force"];
    let new = |more: &[&'static str]| [&new[..], &["-o", "my.toml", "--no-sample"], more].concat();
    let steps = |hours: &'static str| {
        let said = succeed(dir.path(), &new(&["--hours", hours]));
        let text = fs::read_to_string(dir.path().join("my.toml")).unwrap();
        let line = text.lines().find_map(|it| it.strip_prefix("steps = ")).unwrap();
        let steps: u64 = line.split_whitespace().next().unwrap().parse().unwrap();
        let word = if steps == 1 { "step" } else { "steps" };
        let start = format!("my.toml is written: {steps} {word} about ");
        assert!(said.starts_with(&start), "{said}");
        let length = said[start.len()..].split(';').next().unwrap();
        let planned = text.lines().next().unwrap();
        assert!(planned.ends_with(&format!("{steps} {word} about {length}.")), "{planned}");
        steps
    };
    assert_eq!(steps("0.0000001"), 1);
    // The speed of the machine is measured each time.
    let (short, long) = (steps("0.1"), steps("10"));
    assert!(1 < short && short < long, "{short} {long}");
    let message = refuse(dir.path(), &new(&["--hours", "1", "--steps", "3"]));
    assert!(message.contains("cannot be used with"), "{message}");
    assert!(refuse(dir.path(), &new(&["--hours", "0"])).contains("a number of hours above 0"));
}

#[test]
fn a_column_that_no_row_has_is_named_with_the_nearest() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("sums.jsonl"), sums(true)).unwrap();
    let lacks = |name: &str| {
        format!(
            "error: sums.jsonl: no row has the column `{name}`; there are answer, problem, solution\nhint: did you mean "
        )
    };
    let columns = "problem=problm,answer=answer";
    for command in [
        &["data", "stats", "sums.jsonl"][..],
        &["data", "check", "sums.jsonl"],
        &["new", "--model", "builtin:base", "--data", "sums.jsonl"],
        &["eval", "--model", "builtin:base", "--data", "sums.jsonl"],
    ] {
        let message = refuse(dir.path(), &[command, &["--columns", columns]].concat());
        assert_eq!(message, lacks("problm") + "`problem`?\n", "{command:?}");
    }
    let new = ["new", "--model", "builtin:base", "--data", "sums.jsonl", "--no-sample"];
    succeed(dir.path(), &new);
    let columns =
        "data.columns={ problem = \"problem\", answer = \"answer\", teacher = [\"solutions\"] }";
    // On a busy machine the format that `new` measured as the faster one may be warned of first.
    let message = refuse(dir.path(), &["train", "recipe.toml", "--set", columns]);
    assert!(message.ends_with(&(lacks("solutions") + "`solution`?\n")), "{message}");
    // Some rows may lack it.
    let some = sums(false) + sums(true).lines().next().unwrap() + "\n";
    fs::write(dir.path().join("some.jsonl"), some).unwrap();
    let columns = "problem=problem,answer=answer,teacher=solution";
    succeed(dir.path(), &["data", "stats", "some.jsonl", "--columns", columns]);
}

/// A folder of each family with tiny random weights: recipe, a step with an adapter, the adapter merged, a completion.
#[test]
fn every_family_goes_from_a_new_recipe_to_a_merged_model() {
    if hapo_testing::slow() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let row = |it: u32| format!("{{\"problem\":\"{it}+7\",\"answer\":\"{}\"}}\n", it + 7);
    fs::write(dir.path().join("sums.jsonl"), (0..20).map(row).collect::<String>()).unwrap();
    let families = repository("testdata/fixtures/families");
    let mut seen = 0;
    for entry in fs::read_dir(families).unwrap() {
        let folder = entry.unwrap().path();
        if !folder.is_dir() {
            continue;
        }
        let (model, name) = (folder.to_str().unwrap(), folder.file_name().unwrap());
        let [recipe, run, merged] =
            [".toml", "-run", "-merged"].map(|it| format!("{}{it}", name.display()));
        let new = ["new", "--model", model, "--data", "sums.jsonl", "--lora", "--no-sample"];
        succeed(dir.path(), &[&new[..], &["--method", "grpo", "-o", &recipe]].concat());
        let text = fs::read_to_string(dir.path().join(&recipe)).unwrap();
        assert_eq!(text.contains("targets"), name == "phi3", "{text}");
        let few = ["steps=1", "sampling.max_new_tokens=8", "sampling.prompts_per_step=2"];
        let few = few.iter().chain(&["optim.mini_batch_prompts=1"]).flat_map(|it| ["--set", it]);
        let train = ["train", &recipe, "--quiet", "--run-dir", &run].into_iter().chain(few);
        let done = succeed(dir.path(), &train.collect::<Vec<_>>());
        assert!(done.contains(": 1 step done"), "{done}");
        let adapter = format!("{run}/checkpoints/step-000001");
        succeed(dir.path(), &["merge", "--model", model, "--adapter", &adapter, "-o", &merged]);
        let words = ["generate", "1+1", "--model", &merged, "--max-tokens", "4"];
        succeed(dir.path(), &words);
        seen += 1;
    }
    assert_eq!(seen, 9, "families with a fixture");
}
