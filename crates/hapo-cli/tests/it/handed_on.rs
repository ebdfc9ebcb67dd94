//! Folders that leave: other programs stop where `hapo generate` stops, by the files alone.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{repository, succeed};
use serde_json::{Value, json};

fn read(path: &Path) -> Value {
    let text = fs::read(path).unwrap_or_else(|it| panic!("{}: {it}", path.display()));
    serde_json::from_slice(&text).unwrap()
}

/// A copy of a model's folder whose JSON files were changed.
fn copy(model: &Path, to: &Path, change: impl Fn(&str, &mut Value)) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(model).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.ends_with("config.json") {
            let mut fields = read(&path);
            change(&name, &mut fields);
            fs::write(to.join(name), fields.to_string()).unwrap();
        } else {
            fs::copy(&path, to.join(name)).unwrap();
        }
    }
}

/// Trains on two answers; gives the last checkpoint.
fn train(folder: &Path, model: &str, sets: &[String]) -> PathBuf {
    let given = repository("testdata/handed_on");
    let recipe = given.join("recipe.toml").display().to_string();
    let mut args = vec!["train", &recipe, "--run-dir", "run", "--quiet"];
    let sets = [
        &[
            format!("model.path=\"{model}\""),
            format!("data.train=\"{}\"", given.join("data.jsonl").display()),
        ],
        sets,
    ]
    .concat();
    args.extend(sets.iter().flat_map(|it| ["--set", it]));
    succeed(folder, &args);
    let checkpoints = hapo_run::RunFolder(&folder.join("run")).list_checkpoints().unwrap();
    checkpoints.into_iter().map(|it| it.1).next().unwrap()
}

/// transformers and PEFT were given these folders (`testdata/handed_on/make_reference.py`): they stop where we do.
#[test]
fn other_programs_stop_where_we_stop() {
    let cases = read(&repository("testdata/handed_on/expected.json"));
    for case in cases.as_array().unwrap() {
        let dir = tempfile::tempdir().unwrap();
        let keeps = case["keeps_chat_template"] == true;
        copy(
            &repository("testdata/fixtures/models/qwen-shaped"),
            &dir.path().join("base"),
            |_, it| {
                if !keeps {
                    it.as_object_mut().unwrap().remove("chat_template");
                }
            },
        );
        let template = case["template"].as_str().unwrap();
        let mut sets = vec![format!("data.template=\"{template}\"")];
        if case["lora"] == true {
            sets.push("lora={ rank = 16, alpha = 32.0 }".to_owned());
        }
        let mut folder = train(dir.path(), "base", &sets);
        if case["lora"] == true {
            let adapter = folder.display().to_string();
            let (generation, eos) =
                (read(&folder.join("generation_config.json")), &case["eos_token_id"]);
            assert_eq!(generation["eos_token_id"], *eos, "{case}");
            let merge = ["merge", "--model", "base", "--adapter", &adapter, "-o", "merged"];
            succeed(dir.path(), &merge);
            // Another program's adapter names its end in its tokenizer alone, and has no checksums.
            fs::remove_file(folder.join("checksums.json")).unwrap();
            fs::remove_file(folder.join("generation_config.json")).unwrap();
            let path = folder.join("tokenizer_config.json");
            let mut fields = read(&path);
            fields["eos_token"] = json!("<|im_end|>");
            fs::write(path, fields.to_string()).unwrap();
            let merge = ["merge", "--model", "base", "--adapter", &adapter, "-o", "theirs"];
            succeed(dir.path(), &merge);
            let theirs = dir.path().join("theirs");
            assert_eq!(read(&theirs.join("config.json"))["eos_token_id"], *eos);
            assert_eq!(read(&theirs.join("tokenizer_config.json"))["eos_token"], "<|im_end|>");
            folder = dir.path().join("merged");
        }
        let generation = read(&folder.join("generation_config.json"));
        assert_eq!(generation["eos_token_id"], case["eos_token_id"], "{case}");
        assert_eq!(generation["max_new_tokens"], 2048, "a sampling default");
        assert_eq!(read(&folder.join("config.json"))["eos_token_id"], case["eos_token_id"]);
        let tokenizer = read(&folder.join("tokenizer_config.json"));
        assert_eq!(tokenizer["eos_token"], case["eos_token"], "{case}");
        let model = folder.display().to_string();
        let problems = ["12*7=?", "What is 3+4?"];
        for (problem, (tokens, chatted)) in problems
            .iter()
            .zip(case["tokens"].as_array().unwrap().iter().zip(case["chatted"].as_array().unwrap()))
        {
            let generate = |template: &str| -> Value {
                let args = ["generate", "--model", &model, problem, "--temperature", "0"];
                let more = ["--max-tokens", "24", "--json", "--template", template];
                let line = succeed(dir.path(), &[&args[..], &more].concat());
                serde_json::from_str(&line).unwrap()
            };
            let own = generate(template);
            assert_eq!((&own["tokens"], &own["finish"]), (tokens, &json!("end_token")), "{case}");
            assert_eq!(generate("chat")["tokens"], *chatted, "{case}");
        }
    }
}

/// A base that names another end, and no chat template: the built-in one with its files changed.
#[test]
fn a_checkpoint_names_the_end_it_was_trained_with_and_its_template() {
    let dir = tempfile::tempdir().unwrap();
    copy(&repository("models/base"), &dir.path().join("base"), |name, it| {
        if name == "tokenizer_config.json" {
            it["eos_token"] = json!("<|endoftext|>");
        } else {
            it["eos_token_id"] = json!(0);
        }
        if name == "generation_config.json" {
            let more = json!({"do_sample": true, "temperature": 0.7, "top_p": 0.8, "top_k": 20});
            it.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        }
    });
    let sets = ["data.template=\"chatml\"", "steps=2"].map(str::to_owned);
    let folder = train(dir.path(), "base", &sets);
    let generation = read(&folder.join("generation_config.json"));
    assert_eq!(
        generation,
        json!({"do_sample": true, "temperature": 0.7, "top_p": 0.8, "top_k": 20,
            "eos_token_id": [2, 0], "pad_token_id": 0})
    );
    assert_eq!(read(&folder.join("config.json"))["eos_token_id"], json!([2, 0]));
    // The model's own template stays, and so does its tokenizer.
    let base = fs::read(dir.path().join("base/tokenizer_config.json")).unwrap();
    assert_eq!(fs::read(folder.join("tokenizer_config.json")).unwrap(), base);
    // A folder of a checkpoint goes on with what it names.
    let folder = folder.display().to_string();
    let again = ["train", "run/recipe.toml", "--run-dir", "again", "--quiet", "--set"];
    let model = format!("model.path=\"{folder}\"");
    succeed(dir.path(), &[&again[..], &[&model]].concat());
    let end = dir.path().join("again/checkpoints/step-000002/config.json");
    assert_eq!(read(&end)["eos_token_id"], json!([2, 0]));
}
