//! `hapo data` on files of several layouts.

use std::fs;

use crate::support::{hapo, refuse, repository, succeed};
use expect_test::{Expect, expect};

const GRPO: &str = r#"{"prompt":[{"role":"user","content":"1+1?"}],"solution":"2"}
{"prompt":[{"role":"user","content":"2+2?"}],"solution":"so \\boxed{\\frac{8}{2}}"}
{"prompt":[{"role":"user","content":"2+2?"}],"solution":"so \\boxed{\\frac{8}{2}}"}
"#;

const DIRTY: &str = r#"{"question":"Eggs?","answer":"many\n#### 13"}
{"question":"","answer":"many\n#### 13"}
{"question":"Miles?","answer":"many\n#### \\boxed{}"}
{"question":"Loss?","answer":"none"}
{"question":"Gain?","answer":"so #### 1,250"}
"#;

fn check(text: &str, expected: &Expect) {
    expected.assert_eq(text);
}

#[test]
fn stats_say_what_a_file_is() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("grpo.jsonl"), GRPO).unwrap();
    check(
        &succeed(dir.path(), &["data", "stats", "grpo.jsonl"]),
        &expect![[r#"
            grpo.jsonl
              layout                 trl-grpo (JSON lines)
              rows                   3, 0 of them bad
              distinct prompts       2 (1 × 1, 1 × 2)
              with a teacher         0 (0.0 %), 0 solutions
              characters, problem    min 4, mean 4.0, median 4, 95 % 4, max 4
        "#]],
    );
    let json = succeed(dir.path(), &["data", "stats", "grpo.jsonl", "--json"]);
    let it: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(it["prompts_by_copies"], serde_json::json!({"1": 1, "2": 1}));
    let (layout, rows) = (&it["layout"], &it["rows"]);
    assert_eq!((layout.as_str(), rows.as_u64()), (Some("trl-grpo"), Some(3)));
}

#[test]
fn check_names_every_bad_row_and_writes_the_others() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("dirty.jsonl"), DIRTY).unwrap();
    let output = hapo(dir.path(), &["data", "check", "dirty.jsonl"]);
    assert_eq!(output.status.code(), Some(2));
    let named = String::from_utf8(output.stdout).unwrap();
    check(
        &named,
        &expect![[r#"
        dirty.jsonl:2: question: expected a string that is not empty, got ""
        dirty.jsonl:3: answer: expected a gold answer that grader `training` reads, got "\\boxed{}" (unreadable gold answer `\boxed{}`, grader training expected a formula, a number or a text)
        dirty.jsonl:4: answer: expected a solution that ends in #### and the gold, got "none"
    "#]],
    );
    check(
        &String::from_utf8(output.stderr).unwrap(),
        &expect![[r#"
            correct by grader `training` with extraction `announced`: 1 of 2 solutions
            error: 3 bad rows of 5
            hint: correct them, or write the others: hapo data check FILE --drop-bad -o OUT
        "#]],
    );

    succeed(dir.path(), &["data", "check", "dirty.jsonl", "--drop-bad", "-o", "clean.jsonl"]);
    check(
        &fs::read_to_string(dir.path().join("clean.jsonl")).unwrap(),
        &expect![[r#"
            {"id":"row-1","problem":"Eggs?","answer":"13","teacher":"many\n#### 13"}
            {"id":"row-5","problem":"Gain?","answer":"1250","teacher":"so #### 1,250"}
        "#]],
    );
    assert_eq!(succeed(dir.path(), &["data", "check", "clean.jsonl"]), "");
}

#[test]
fn convert_goes_to_verl_and_back() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("grpo.jsonl"), GRPO).unwrap();
    let convert = |from: &str, to: &str, out: &str| {
        succeed(dir.path(), &["data", "convert", from, "--to", to, "-o", out]);
    };
    convert("grpo.jsonl", "own", "direct.jsonl");
    convert("grpo.jsonl", "verl", "there.parquet");
    convert("there.parquet", "trl", "on.jsonl");
    convert("on.jsonl", "own", "back.jsonl");
    let read = |name: &str| {
        // verl names an ability, which our own layout calls a subject.
        let text = fs::read_to_string(dir.path().join(name)).unwrap();
        let text = text.replace(",\"subject\":\"math\"", "");
        // And it needs a source.
        text.replace(",\"source\":\"lighteval/MATH\"", "")
    };
    check(
        &read("direct.jsonl"),
        &expect![[r#"
        {"id":"row-1","problem":"1+1?","answer":"2"}
        {"id":"row-2","problem":"2+2?","answer":"\\frac{8}{2}"}
        {"id":"row-3","problem":"2+2?","answer":"\\frac{8}{2}"}
    "#]],
    );
    assert_eq!(read("direct.jsonl"), read("back.jsonl"));

    fs::write(dir.path().join("dirty.jsonl"), DIRTY).unwrap();
    check(
        &refuse(dir.path(), &["data", "convert", "dirty.jsonl", "--to", "own", "-o", "out.jsonl"]),
        &expect![[r#"
            error: dirty.jsonl:2: question: expected a string that is not empty, got ""
            hint: correct the row, or leave bad rows out: hapo data check FILE --drop-bad -o OUT
        "#]],
    );
    assert!(!dir.path().join("out.jsonl").exists());
}

/// A quarter of the rows has a solution, and no row has an id.
#[test]
fn convert_keeps_the_solutions_of_few_rows() {
    let dir = tempfile::tempdir().unwrap();
    let row = |number: usize| {
        let teacher = match number % 4 {
            0 => format!(",\"teacher\":\"so \\\\boxed{{{number}}}\""),
            _ => String::new(),
        };
        format!("{{\"problem\":\"{number}+0?\",\"answer\":\"{number}\"{teacher}}}\n")
    };
    let rows: Vec<String> = (0..40).map(row).collect();
    fs::write(dir.path().join("rows.jsonl"), rows.concat()).unwrap();
    let convert = |from: &str, to: &str, out: &str| {
        succeed(dir.path(), &["data", "convert", from, "--to", to, "-o", out]);
        fs::read_to_string(dir.path().join(out)).unwrap()
    };
    let own = convert("rows.jsonl", "own", "own.jsonl");
    assert_eq!(own.matches("\"teacher\"").count(), 10, "{own}");
    for file in ["trl.jsonl", "trl.json"] {
        convert("rows.jsonl", "trl", file);
        assert_eq!(convert(file, "own", "back.jsonl"), own, "{file}");
    }
}

#[test]
fn convert_writes_the_tokens_of_admitted_solutions_for_verl() {
    let dir = tempfile::tempdir().unwrap();
    let row = |problem: &str, solution: &str| {
        format!("{{\"problem\": \"{problem}\", \"answer\": \"5\", \"teacher\": [{solution}]}}\n")
    };
    let long = format!("\"{} \\\\boxed{{5}}\"", "so ".repeat(40));
    let right = "\"\\\\boxed{5}\"";
    let rows = [
        row("first", right),
        row("second", &format!("\"\\\\boxed{{6}}\", {long}, {right}")),
        row("third", &long),
        row("fourth", "\"\\\\boxed{6}\""),
    ];
    fs::write(dir.path().join("rows.jsonl"), rows.concat()).unwrap();
    let model = repository("testdata/fixtures/models/tiny-qwen2");
    let model = model.to_str().unwrap();
    let arguments = [
        "data",
        "convert",
        "rows.jsonl",
        "--to",
        "verl",
        "-o",
        "o.jsonl",
        "--model",
        model,
        "--max-response",
        "24",
    ];
    let told = hapo(dir.path(), &arguments);
    let said = String::from_utf8(told.stderr).unwrap();
    assert!(told.status.success(), "{said}");
    assert!(said.contains("2 of 4 rows have a teacher\n"), "{said}");
    assert!(said.contains("2 left out: teacher trajectory is not verified"), "{said}");
    let text = fs::read_to_string(dir.path().join("o.jsonl")).unwrap();
    let ids: Vec<Vec<u32>> = text
        .lines()
        .map(|it| {
            let row: serde_json::Value = serde_json::from_str(it).unwrap();
            serde_json::from_value(row["hapo_teacher_ids"].clone()).unwrap()
        })
        .collect();
    // 383 is <|im_end|>.
    assert_eq!(ids[0].last(), Some(&383));
    assert_eq!(ids[0], ids[1]);
    assert_eq!((ids[2].len(), ids[3].len()), (0, 0));
    // A table has the column too, and is read again without it.
    let table: Vec<&str> =
        arguments.iter().map(|it| if *it == "o.jsonl" { "o.parquet" } else { it }).collect();
    succeed(dir.path(), &table);
    succeed(dir.path(), &["data", "convert", "o.parquet", "--to", "verl", "-o", "again.jsonl"]);
    let again = fs::read_to_string(dir.path().join("again.jsonl")).unwrap();
    assert!(!again.contains("hapo_teacher_ids"), "{again}");
    let refused = refuse(
        dir.path(),
        &[
            "data",
            "convert",
            "rows.jsonl",
            "--to",
            "trl",
            "-o",
            "x",
            "--model",
            model,
            "--max-response",
            "24",
        ],
    );
    assert!(refused.contains("--model: expected --to verl"), "{refused}");
}

/// As a Qwen2.5 base: the chat template ends turns with another token than every file names.
#[test]
fn solutions_that_would_end_where_no_engine_stops_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let row = "{\"problem\":\"2+3=?\",\"answer\":\"5\",\"teacher\":\"\\\\boxed{5}\"}\n";
    fs::write(dir.path().join("rows.jsonl"), row).unwrap();
    let base = repository("testdata/fixtures/models/qwen-shaped");
    let convert = |model: &str, more: &[&str]| {
        let to = ["data", "convert", "rows.jsonl", "--to", "verl", "-o", "o.jsonl"];
        hapo(dir.path(), &[&to[..], &["--max-response", "24", "--model", model], more].concat())
    };
    let last = || -> u32 {
        let text = fs::read_to_string(dir.path().join("o.jsonl")).unwrap();
        let row: serde_json::Value = serde_json::from_str(&text).unwrap();
        let ids: Vec<u32> = serde_json::from_value(row["hapo_teacher_ids"].clone()).unwrap();
        *ids.last().unwrap()
    };
    let told = convert(base.to_str().unwrap(), &[]);
    let said = String::from_utf8(told.stderr).unwrap();
    assert_eq!(told.status.code(), Some(2), "{said}");
    for place in [
        "template `chat` ends answers with <|im_end|> (2002)",
        "tokenizer_config.json has the eos_token <|endoftext|>",
        "generation_config.json or config.json the eos_token_id [2000]",
        "or put 2002 first into eos_token_id of both files",
    ] {
        assert!(said.contains(place), "{said}");
    }
    assert!(!dir.path().join("o.jsonl").exists());
    assert!(convert(base.to_str().unwrap(), &["--template", "none"]).status.success());
    assert_eq!(last(), 2000);
    let named = dir.path().join("named");
    fs::create_dir(&named).unwrap();
    for entry in fs::read_dir(&base).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        if name == "generation_config.json" {
            fs::write(named.join(name), "{\"eos_token_id\": [2002, 2000]}").unwrap();
        } else {
            fs::copy(&path, named.join(name)).unwrap();
        }
    }
    assert!(convert(named.to_str().unwrap(), &[]).status.success());
    assert_eq!(last(), 2002);
}

#[test]
fn check_counts_the_solutions_that_the_rule_of_answers_loses() {
    let dir = tempfile::tempdir().unwrap();
    let row = |solution: &str| {
        format!(
            "{{\"problem\": \"p{solution}\", \"answer\": \"5\", \"teacher\": \"{solution}\"}}\n"
        )
    };
    let rows = [r"\\boxed{5}", r"2+3\n#### 5", "2+3 = 5", r"\\boxed{6}"].map(row);
    fs::write(dir.path().join("rows.jsonl"), rows.concat()).unwrap();
    let said = |more: &[&str]| {
        let output = hapo(
            dir.path(),
            &[&["data", "check", "rows.jsonl", "--grader", "math"], more].concat(),
        );
        String::from_utf8(output.stderr).unwrap()
    };
    let announced = said(&[]);
    assert!(
        announced.starts_with(
            "correct by grader `math` with extraction `announced`: 2 of 4 solutions\nwith `--extraction whole`, 1 more would count"
        ),
        "{announced}"
    );
    assert!(said(&["--extraction", "boxed"]).contains("1 of 4 solutions"));
    assert!(said(&["--extraction", "any"]).contains("3 of 4 solutions"));
    // Solutions that are words and nothing else.
    fs::write(dir.path().join("rows.jsonl"), row("5").replace("\"5\"", "\"pear plum\"")).unwrap();
    let whole = "0 of 1 solution\nwith `--extraction whole`, 1 more would count";
    assert!(said(&[]).contains(whole), "{}", said(&[]));
}

#[test]
fn a_misspelt_column_is_named_where_its_field_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("rows.csv"), "problem,answr\n1+1?,2\n").unwrap();
    let output = hapo(dir.path(), &["data", "check", "rows.csv"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("got nothing; fields that are not read: answr"), "{said}");
    // The field is there: what stands in it is the fault.
    fs::write(dir.path().join("rows.csv"), "problem,answer,note\n1+1?,,2\n").unwrap();
    let output = hapo(dir.path(), &["data", "check", "rows.csv"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.ends_with("got null\n"), "{said}");
}

#[test]
fn commands_tell_programs_what_they_did() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("grpo.jsonl"), GRPO).unwrap();
    fs::write(dir.path().join("dirty.jsonl"), DIRTY).unwrap();
    let json = |text: &str| -> serde_json::Value { serde_json::from_str(text).unwrap() };
    let good = succeed(dir.path(), &["data", "check", "grpo.jsonl", "--json"]);
    assert_eq!(json(&good), serde_json::json!({"rows": 3, "bad_rows": 0}));
    let bad = hapo(dir.path(), &["data", "check", "dirty.jsonl", "--json"]);
    let bad = String::from_utf8(bad.stdout).unwrap();
    assert_eq!(bad.lines().count(), 4);
    assert_eq!(json(bad.lines().last().unwrap()), serde_json::json!({"rows": 5, "bad_rows": 3}));
    let arguments = ["data", "convert", "grpo.jsonl", "--to", "verl", "-o", "o.json", "--json"];
    assert_eq!(
        json(&succeed(dir.path(), &arguments)),
        serde_json::json!({"output": "o.json", "rows": 3, "teachers_left_out": 0,
            "systems_left_out": 0, "without_source": 3})
    );
    let list = json(&succeed(dir.path(), &["list", "graders", "--json"]));
    assert!(list["graders"].as_array().unwrap().iter().any(|it| it["name"] == "math"), "{list}");
    let all = json(&succeed(dir.path(), &["list", "--json"]));
    let tables = [
        "benchmarks",
        "families",
        "gates",
        "graders",
        "layouts",
        "methods",
        "operators",
        "recipes",
        "task families",
        "templates",
    ];
    assert_eq!(all.as_object().unwrap().keys().collect::<Vec<_>>(), tables);
}

#[test]
fn stats_count_tokens_under_the_models_own_template() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("grpo.jsonl"), GRPO).unwrap();
    let model = hapo_testing::model_dir("tiny-qwen3");
    let model = model.to_str().unwrap();
    let stats = |template: &str| -> serde_json::Value {
        let arguments =
            ["data", "stats", "grpo.jsonl", "--json", "--tokenizer", model, "--template", template];
        serde_json::from_str(&succeed(dir.path(), &arguments)).unwrap()
    };
    let (chat, none) = (stats("chat"), stats("none"));
    assert_eq!(chat["template"], "chat");
    let longest = |it: &serde_json::Value| it["tokens_of_prompts"]["max"].as_u64().unwrap();
    assert!(longest(&chat) > longest(&none), "{chat}");
    let message = refuse(dir.path(), &["data", "stats", "grpo.jsonl", "--template", "chat"]);
    assert!(message.contains("expected the folder of a model as --tokenizer"), "{message}");
}

#[test]
fn unread_solutions_are_named_with_the_option_that_reads_them() {
    let dir = tempfile::tempdir().unwrap();
    let long = "First this, then that, so it must be \\\\boxed{2}, as was to be shown.";
    let row = format!("{{\"problem\":\"1+1?\",\"answer\":\"2\",\"generations\":[\"{long}\"]}}\n");
    fs::write(dir.path().join("rows.jsonl"), row).unwrap();
    let checked = hapo(dir.path(), &["data", "check", "rows.jsonl"]);
    let said = String::from_utf8(checked.stderr).unwrap();
    assert!(said.contains("`generations` looks like solutions (1 row) and is not read"), "{said}");
    let stats = succeed(dir.path(), &["data", "stats", "rows.jsonl"]);
    assert!(stats.contains("unread solutions?      generations 1"), "{stats}");
    // What is not read is not written either.
    for arguments in [
        &["data", "convert", "rows.jsonl", "--to", "own", "-o", "out.jsonl"][..],
        &["data", "check", "rows.jsonl", "--drop-bad", "-o", "out.jsonl"][..],
    ] {
        let said = String::from_utf8(hapo(dir.path(), arguments).stderr).unwrap();
        assert!(said.contains("`generations` looks like solutions (1 row)"), "{said}");
    }
    let columns = "problem=problem,answer=answer,teacher=generations";
    let stats = succeed(dir.path(), &["data", "stats", "rows.jsonl", "--columns", columns]);
    assert!(stats.contains("with a teacher         1 (100.0 %)"), "{stats}");
}

#[test]
fn a_gold_that_can_never_be_answered_is_a_bad_row() {
    let dir = tempfile::tempdir().unwrap();
    let golds = ["?", "#", "\u{200b}", &"{".repeat(5000), "<", "12", "\\\\emptyset"];
    let row = |gold: &&str| format!("{{\"problem\":\"p\",\"answer\":\"{gold}\"}}\n");
    fs::write(dir.path().join("golds.jsonl"), golds.iter().map(row).collect::<String>()).unwrap();
    let checked = hapo(dir.path(), &["data", "check", "golds.jsonl"]);
    let named = String::from_utf8(checked.stdout).unwrap();
    let rows: Vec<&str> = named.lines().map(|it| it.split(": ").next().unwrap()).collect();
    assert_eq!(rows, [1, 2, 3, 4, 5].map(|it| format!("golds.jsonl:{it}")), "{named}");
}

/// Training on the written file gives the same bits as the recipe's own data.
#[test]
fn the_built_in_task_as_a_file_trains_to_the_same_bits() {
    if hapo_testing::slow() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let recipe = repository("recipes/smoke.toml");
    let recipe = recipe.to_str().unwrap();
    succeed(dir.path(), &["data", "make", recipe, "-o", "task.jsonl"]);
    let stats = succeed(dir.path(), &["data", "stats", "task.jsonl"]);
    assert!(stats.contains("rows                   64, 0 of them bad"), "{stats}");
    let train = |run: &str, data: &[&str]| {
        let options = ["--run-dir", run, "--set", "steps=2", "--set", "checkpoint.every=2"];
        succeed(dir.path(), &[&["train", recipe][..], &options, data].concat());
        fs::read(dir.path().join(run).join("checkpoints/step-000002/model.safetensors")).unwrap()
    };
    // What draws problems has nothing to say of a file.
    let unset = ["prompts", "teacher_coverage", "levels"].map(|it| format!("--unset=data.{it}"));
    let file =
        [&["--set=data.train=task.jsonl"], &unset.each_ref().map(String::as_str)[..]].concat();
    assert!(train("builtin-run", &[]) == train("file-run", &file));
    let other = repository("recipes/ready/smollm2-135m-gsm8k.toml");
    let message = refuse(dir.path(), &["data", "make", other.to_str().unwrap(), "-o", "no.jsonl"]);
    assert!(message.contains("only a recipe with data.train = \"builtin\""), "{message}");
    assert!(!dir.path().join("no.jsonl").exists());
}
