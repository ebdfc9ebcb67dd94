//! Bad input ends with exit code 2 and a message that names the thing, the place and what to do.

mod support;

use std::fs;
use std::path::Path;

use expect_test::{Expect, expect};
use support::{refuse, repository};

fn check(message: &str, expected: &Expect) {
    expected.assert_eq(message);
}

const RECIPE: &str = "method = \"grpo\"\nsteps = 1\n\n[model]\npath = \"builtin:base\"\n";

fn recipe(folder: &Path, text: &str) {
    fs::write(folder.join("recipe.toml"), text).unwrap();
}

fn copy_model(folder: &Path) {
    fs::create_dir(folder.join("model")).unwrap();
    for it in [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
    ] {
        fs::copy(
            repository("testdata/fixtures/models/tiny-qwen2").join(it),
            folder.join("model").join(it),
        )
        .unwrap();
    }
}

const WITH_MODEL: &str = "method = \"grpo\"\nsteps = 1\n\n[model]\npath = \"model\"\n";

#[test]
fn unknown_key() {
    let dir = tempfile::tempdir().unwrap();
    recipe(
        dir.path(),
        &format!("{RECIPE}\n[optim]\nlearning_rte = 1e-5\n"),
    );
    check(
        &refuse(dir.path(), &["train", "recipe.toml"]),
        &expect![[""]],
    );
    recipe(
        dir.path(),
        &format!("{RECIPE}\n[sampling]\ntemprature = 0.5\n"),
    );
    check(
        &refuse(dir.path(), &["train", "recipe.toml"]),
        &expect![[""]],
    );
    recipe(dir.path(), RECIPE);
    check(
        &refuse(
            dir.path(),
            &["train", "recipe.toml", "--set", "sampling.group_sise=4"],
        ),
        &expect![[""]],
    );
}

#[test]
fn wrong_value() {
    let dir = tempfile::tempdir().unwrap();
    recipe(dir.path(), &RECIPE.replace("grpo", "grop"));
    check(
        &refuse(dir.path(), &["train", "recipe.toml"]),
        &expect![[""]],
    );
    recipe(
        dir.path(),
        &format!("{RECIPE}\n[sampling]\ngroup_size = 1\n"),
    );
    check(
        &refuse(dir.path(), &["train", "recipe.toml"]),
        &expect![[""]],
    );
    recipe(dir.path(), &RECIPE.replace("steps = 1", "steps = \"many\""));
    check(
        &refuse(dir.path(), &["train", "recipe.toml"]),
        &expect![[""]],
    );
    recipe(
        dir.path(),
        &format!("{}\n[hapo]\n", RECIPE.replace("grpo", "trapo")),
    );
    check(
        &refuse(dir.path(), &["train", "recipe.toml"]),
        &expect![[""]],
    );
    recipe(
        dir.path(),
        &format!("{RECIPE}\n[hapo]\nturn_off_epoch = 1.5\n"),
    );
    check(
        &refuse(dir.path(), &["train", "recipe.toml"]),
        &expect![[""]],
    );
}

#[test]
fn missing_files() {
    let dir = tempfile::tempdir().unwrap();
    check(
        &refuse(dir.path(), &["train", "recipe.toml"]),
        &expect![[""]],
    );
    recipe(dir.path(), WITH_MODEL);
    check(
        &refuse(dir.path(), &["train", "recipe.toml"]),
        &expect![[""]],
    );
    recipe(
        dir.path(),
        &format!("{RECIPE}\n[data]\ntrain = \"none.jsonl\"\n"),
    );
    check(
        &refuse(dir.path(), &["train", "recipe.toml"]),
        &expect![[""]],
    );
    check(
        &refuse(
            dir.path(),
            &[
                "logprobs",
                "--model",
                "builtin:base",
                "--input",
                "none.jsonl",
            ],
        ),
        &expect![[""]],
    );
    check(
        &refuse(
            dir.path(),
            &["replay", "--model", "builtin:base", "--batch", "none.json"],
        ),
        &expect![[""]],
    );
}

#[test]
fn truncated_weights() {
    let dir = tempfile::tempdir().unwrap();
    copy_model(dir.path());
    recipe(dir.path(), WITH_MODEL);
    let weights = dir.path().join("model/model.safetensors");
    let bytes = fs::read(&weights).unwrap();
    fs::write(&weights, &bytes[..bytes.len() / 2]).unwrap();
    check(
        &refuse(dir.path(), &["train", "recipe.toml"]),
        &expect![[""]],
    );
}

#[test]
fn tokenizer_beyond_the_vocabulary() {
    let dir = tempfile::tempdir().unwrap();
    copy_model(dir.path());
    recipe(dir.path(), WITH_MODEL);
    let tokenizer = dir.path().join("model/tokenizer.json");
    let text = fs::read_to_string(&tokenizer)
        .unwrap()
        .replace("\"id\": 383,", "\"id\": 384,");
    fs::write(&tokenizer, text).unwrap();
    check(
        &refuse(dir.path(), &["train", "recipe.toml"]),
        &expect![[""]],
    );
}

#[test]
fn bad_rows() {
    let dir = tempfile::tempdir().unwrap();
    recipe(
        dir.path(),
        &format!("{RECIPE}\n[data]\ntrain = \"rows.jsonl\"\n"),
    );
    fs::write(dir.path().join("rows.jsonl"), "{\"id\": \"a\", \"problem\": \"1+1=?\", \"answer\": \"2\"}\n{\"id\": \"b\", \"problem\": \"1+2=?\"}\n").unwrap();
    check(
        &refuse(dir.path(), &["train", "recipe.toml"]),
        &expect![[""]],
    );
    fs::write(
        dir.path().join("rows.jsonl"),
        "{\"id\": \"a\", \"problem\": \"1+1=?\", \"answer\": \"2\"}\n",
    )
    .unwrap();
    check(
        &refuse(dir.path(), &["train", "recipe.toml"]),
        &expect![[""]],
    );
}

#[test]
fn ids_beyond_the_vocabulary() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(
        dir.path().join("ids.jsonl"),
        "{\"input_ids\": [1, 2]}\n{\"input_ids\": [1, 99999]}\n",
    )
    .unwrap();
    let output = support::hapo(
        dir.path(),
        &[
            "logprobs",
            "--model",
            "builtin:base",
            "--input",
            "ids.jsonl",
        ],
    );
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        String::from_utf8(output.stdout).unwrap().lines().count(),
        1,
        "the line before is answered"
    );
    check(&String::from_utf8(output.stderr).unwrap(), &expect![[""]]);
}

#[test]
fn schedules_that_never_open() {
    let dir = tempfile::tempdir().unwrap();
    let with = |it: &'static str| {
        [
            "schedule",
            "--steps-per-epoch",
            "62",
            "--turn-off-epoch",
            "1.5",
            "--gamma0",
            it,
        ]
    };
    check(&refuse(dir.path(), &with("0.1")), &expect![[""]]);
}
