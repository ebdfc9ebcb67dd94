//! Bad input ends with exit code 2 and a message that names the thing, the place and what to do.

use std::fs;
use std::path::Path;

use crate::support::{refuse, repository, succeed};
use expect_test::{Expect, expect};

fn check(message: &str, expected: &Expect) {
    expected.assert_eq(message);
}

const RECIPE: &str = "method = \"grpo\"\nsteps = 1\n\n[model]\npath = \"builtin:base\"\n";

fn recipe(folder: &Path, text: &str) {
    fs::write(folder.join("recipe.toml"), text).unwrap();
}

fn copy_model(folder: &Path) {
    fs::create_dir(folder.join("model")).unwrap();
    for it in ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json"] {
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
    recipe(dir.path(), &format!("{RECIPE}\n[optim]\nlearning_rte = 1e-5\n"));
    check(
        &refuse(dir.path(), &["train", "recipe.toml"]),
        &expect![[r#"
            error: unknown key `learning_rte`, expected one of lr, betas, eps, weight_decay, moments, max_grad_norm, lr_schedule, warmup, mini_batch_prompts, passes, micro_batch_tokens, activation_checkpointing (recipe.toml, line 8, column 1: optim.learning_rte)
            hint: `hapo recipe` lists every key
        "#]],
    );
    recipe(dir.path(), &format!("{RECIPE}\n[sampling]\ntemprature = 0.5\n"));
    check(
        &refuse(dir.path(), &["train", "recipe.toml"]),
        &expect![[r#"
            error: unknown key `temprature`, expected one of group_size, prompts_per_step, temperature, top_p, top_k, min_p, stop, max_new_tokens, remembered_tokens, max_sequences, kv_memory, dynamic_sampling (recipe.toml, line 8, column 1: sampling.temprature)
            hint: did you mean `temperature`?
        "#]],
    );
    recipe(dir.path(), RECIPE);
    check(
        &refuse(dir.path(), &["train", "recipe.toml", "--set", "sampling.group_sise=4"]),
        &expect![[r#"
            error: unknown key `group_sise`, expected one of group_size, prompts_per_step, temperature, top_p, top_k, min_p, stop, max_new_tokens, remembered_tokens, max_sequences, kv_memory, dynamic_sampling (--set sampling.group_sise=4: sampling.group_sise)
            hint: did you mean `group_size`?
        "#]],
    );
}

#[test]
fn wrong_value() {
    let dir = tempfile::tempdir().unwrap();
    recipe(dir.path(), &RECIPE.replace("grpo", "grop"));
    check(
        &refuse(dir.path(), &["train", "recipe.toml"]),
        &expect![[r#"
            error: expected one of sft, grpo, maxrl, luffy, srft, trapo, uft, hpt, chord-mu, chord-phi, opd, ngrpo, w-reinforce, scaf-grpo, ghpo, superrl, ampo, relift, rlep, repo, exgrpo, kdrl, prefix-rft, sdpo, questa, edge, tgopd, mfc, got `grop` (recipe.toml, line 1, column 1: method)
            hint: did you mean `grpo`?
        "#]],
    );
    recipe(dir.path(), &format!("{RECIPE}\n[sampling]\ngroup_size = 1\n"));
    check(
        &refuse(dir.path(), &["train", "recipe.toml"]),
        &expect![[r#"
            error: expected a whole number from 2 to 65535, got 1 (recipe.toml, line 8, column 1: sampling.group_size)
            hint: `hapo recipe` lists every key
        "#]],
    );
    recipe(dir.path(), &RECIPE.replace("steps = 1", "steps = \"many\""));
    check(
        &refuse(dir.path(), &["train", "recipe.toml"]),
        &expect![[r#"
            error: expected a whole number from 0 to 9223372036854775807, got string "many" (recipe.toml, line 2, column 1: steps)
            hint: `hapo recipe` lists every key
        "#]],
    );
    recipe(dir.path(), &format!("{}\n[hapo]\n", RECIPE.replace("grpo", "trapo")));
    check(
        &refuse(dir.path(), &["train", "recipe.toml"]),
        &expect![[r#"
            error: annealing needs the epoch at which the teacher leaves (recipe.toml, line 7, column 2: hapo.turn_off_epoch)
            hint: the paper never states it; its presets here use turn_off_epoch = 1.5
        "#]],
    );
    recipe(dir.path(), &format!("{RECIPE}\n[hapo]\nturn_off_epoch = 1.5\n"));
    check(
        &refuse(dir.path(), &["train", "recipe.toml"]),
        &expect![[r#"
            error: hapo.injection = "trace" needs it: `grpo` has no term for a teacher (recipe.toml: teacher.operator)
            hint: write teacher.operator = "luffy", or another of `hapo list operators`
        "#]],
    );
}

#[test]
fn missing_files() {
    let dir = tempfile::tempdir().unwrap();
    check(
        &refuse(dir.path(), &["train", "recipe.toml"]),
        &expect![[r#"
            error: cannot read recipe.toml: No such file or directory (os error 2)
            hint: paths are relative to the current folder
        "#]],
    );
    recipe(dir.path(), WITH_MODEL);
    check(
        &refuse(dir.path(), &["train", "recipe.toml"]),
        &expect![[r#"
            error: model: no such file or folder, and no name of the hub
            hint: give a folder or file that exists, org/name@revision of a model, or hf://datasets/org/name@revision[/file]
        "#]],
    );
    recipe(dir.path(), &format!("{RECIPE}\n[data]\ntrain = \"none.jsonl\"\n"));
    check(
        &refuse(dir.path(), &["train", "recipe.toml"]),
        &expect![[r#"
            error: cannot read none.jsonl: No such file or directory (os error 2)
            hint: paths are relative to the current folder
        "#]],
    );
    check(
        &refuse(dir.path(), &["logprobs", "--model", "builtin:base", "--input", "none.jsonl"]),
        &expect![[r#"
            error: cannot read none.jsonl: No such file or directory (os error 2)
            hint: paths are relative to the current folder
        "#]],
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
        &expect![[r#"
            error: expected a file of 447328 bytes, got 223664 bytes (model/model.safetensors: model.layers.0.mlp.up_proj.weight)
            hint: the file is damaged or incomplete; fetch or write it again
        "#]],
    );
}

#[test]
fn tokenizer_beyond_the_vocabulary() {
    let dir = tempfile::tempdir().unwrap();
    copy_model(dir.path());
    recipe(dir.path(), WITH_MODEL);
    let tokenizer = dir.path().join("model/tokenizer.json");
    let mut json: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&tokenizer).unwrap()).unwrap();
    let added = json["added_tokens"].as_array_mut().unwrap();
    let mut one_more = added[0].clone();
    one_more["id"] = 384.into();
    one_more["content"] = "<|one_more|>".into();
    added.push(one_more);
    let text = serde_json::to_string(&json).unwrap();
    fs::write(&tokenizer, text).unwrap();
    check(
        &refuse(dir.path(), &["train", "recipe.toml"]),
        &expect![[r#"
            error: expected ids below vocab_size (384) of config.json, got id 384 (model/tokenizer.json: vocab)
            hint: take tokenizer.json of the model this one was trained from
        "#]],
    );
}

#[test]
fn bad_rows() {
    let dir = tempfile::tempdir().unwrap();
    recipe(dir.path(), &format!("{RECIPE}\n[data]\ntrain = \"rows.jsonl\"\n"));
    fs::write(dir.path().join("rows.jsonl"), "{\"id\": \"a\", \"problem\": \"1+1=?\", \"answer\": \"2\"}\n{\"id\": \"b\", \"problem\": \"1+2=?\"}\n").unwrap();
    check(
        &refuse(dir.path(), &["train", "recipe.toml"]),
        &expect![[r#"
            error: rows.jsonl:2: answer: expected a gold answer: a string that is not empty, a finite number or a list of them, got nothing (1 bad row in all)
            hint: `hapo data check rows.jsonl --drop-bad -o OUT` names them and writes the others
        "#]],
    );
    fs::write(
        dir.path().join("rows.jsonl"),
        "{\"id\": \"a\", \"problem\": \"1+1=?\", \"answer\": \"2\"}\n",
    )
    .unwrap();
    check(
        &refuse(dir.path(), &["train", "recipe.toml"]),
        &expect![[r#"
            error: expected at least 128 prompts for one step, got 1 (rows.jsonl)
            hint: lower sampling.prompts_per_step or add data
        "#]],
    );
    assert!(!dir.path().join("runs/recipe").exists(), "a start that fails leaves nothing behind");
    let short = ["sampling.prompts_per_step=1", "data.max_prompt_tokens=1"];
    let short = short.map(|it| format!("--set={it}"));
    check(
        &refuse(dir.path(), &["train", "recipe.toml", &short[0], &short[1]]),
        &expect![[r#"
            error: expected at least 1 prompt for one step, got 0; left out, as longer than data.max_prompt_tokens: 1 (rows.jsonl)
            hint: raise data.max_prompt_tokens
        "#]],
    );
    let long = format!("{{\"problem\": \"{}=?\", \"answer\": \"2\"}}\n", "1+1".repeat(20));
    fs::write(dir.path().join("long.jsonl"), long).unwrap();
    let eval = ["--set=data.max_prompt_tokens=16", "--set=eval.data=long.jsonl"];
    check(
        &refuse(dir.path(), &["train", "recipe.toml", "--quiet", &short[0], eval[0], eval[1]]),
        &expect![[r#"
            error: eval: expected at least 1 problem, got 0; longer than data.max_prompt_tokens: 1
            hint: raise data.max_prompt_tokens
        "#]],
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
    let output = crate::support::hapo(
        dir.path(),
        &["logprobs", "--model", "builtin:base", "--input", "ids.jsonl"],
    );
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        String::from_utf8(output.stdout).unwrap().lines().count(),
        1,
        "the line before is answered"
    );
    check(
        &String::from_utf8(output.stderr).unwrap(),
        &expect![[r#"
            error: ids.jsonl: row 2: token 99999 at row 1: the vocabulary has 64
            hint: ids are those of the model's tokenizer
        "#]],
    );
}

#[test]
fn schedules_that_never_open() {
    let dir = tempfile::tempdir().unwrap();
    let with = |it: &'static str| {
        ["schedule", "--steps-per-epoch", "62", "--turn-off-epoch", "1.5", "--gamma0", it]
    };
    check(
        &refuse(dir.path(), &with("0.1")),
        &expect![[r#"
        error: threshold gamma0 for groups of 8: expected more than 1/10, got 0.1, which never opens the gate
        hint: see `hapo schedule --help`
    "#]],
    );
}

#[test]
fn files_of_problems_that_hold_none() {
    let dir = tempfile::tempdir().unwrap();
    let new = |name: &str, text: &str| {
        fs::write(dir.path().join(name), text).unwrap();
        refuse(dir.path(), &["new", "--model", "builtin:base", "--data", name])
    };
    check(
        &new("empty.csv", ""),
        &expect![[r#"
            error: empty.csv: expected rows, got none
            hint: a row has a problem and its answer: docs/guides/your-own-data.md
        "#]],
    );
    check(
        &new("header.csv", "question,answer\n"),
        &expect![[r#"
            error: header.csv: expected rows, got none
            hint: a row has a problem and its answer: docs/guides/your-own-data.md
        "#]],
    );
    check(
        &new("columns.csv", "problm,anser\n1+1,2\n"),
        &expect![[r#"
            error: columns.csv: no known dataset layout has these columns: problm, anser
            hint: name them: --columns problem=NAME,answer=NAME, in a recipe data.columns; `hapo list layouts` has the layouts
        "#]],
    );
    check(
        &new("torn.csv", "question,answer\n1+1,2\n\"1+2,3\n"),
        &expect![[r#"
            error: torn.csv: row 2: a quote is not closed
            hint: close it, or write a quote inside of quotes twice
        "#]],
    );
}

#[test]
fn a_name_that_is_nearly_one() {
    let dir = tempfile::tempdir().unwrap();
    check(
        &refuse(dir.path(), &["trian", "recipe.toml"]),
        &expect![[r#"
            error: there is no command `trian`
            hint: did you mean `hapo train`?
        "#]],
    );
    check(
        &refuse(dir.path(), &["help", "logprob"]),
        &expect![[r#"
            error: there is no command `logprob`
            hint: did you mean `hapo logprobs`?
        "#]],
    );
    check(
        &refuse(dir.path(), &["fly"]),
        &expect![[r#"
            error: there is no command `fly`
            hint: `hapo help` lists the commands
        "#]],
    );
    check(
        &refuse(dir.path(), &["methods", "luffyy"]),
        &expect![[r#"
            error: unknown method `luffyy`
            hint: did you mean `luffy`?
        "#]],
    );
    check(
        &refuse(dir.path(), &["recipe", "optim.lrr"]),
        &expect![[r#"
            error: no key of a recipe is called `optim.lrr`
            hint: did you mean `optim.lr`?
        "#]],
    );
}

#[test]
fn a_run_is_no_model() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("runs/mine/checkpoints/step-000004")).unwrap();
    fs::create_dir_all(dir.path().join("runs/mine/checkpoints/step-000012")).unwrap();
    check(
        &refuse(dir.path(), &["generate", "--model", "runs/mine", "1+1=?"]),
        &expect![[r#"
            error: runs/mine: expected a model, got the folder of a run
            hint: its latest model is runs/mine/checkpoints/step-000012
        "#]],
    );
}

#[test]
fn what_other_programs_call_it_is_answered_with_what_to_type() {
    let dir = tempfile::tempdir().unwrap();
    recipe(dir.path(), &RECIPE.replace("grpo", "GRPO"));
    let last = |args: &[&str]| refuse(dir.path(), args).lines().last().unwrap().to_owned();
    assert_eq!(last(&["train", "recipe.toml"]), "hint: did you mean `grpo`?");
    recipe(dir.path(), "steps = 1\nmodel.path = \"builtin:base\"\n");
    check(
        &refuse(dir.path(), &["train", "recipe.toml"]),
        &expect![[r#"
            error: the key method is missing (recipe.toml: method)
            hint: `hapo list methods` names them: method = "grpo"
        "#]],
    );
    assert_eq!(last(&["resume", "runs/a"]), "hint: write `hapo train RUN --resume`");
    for (flag, hint) in [
        ("--data=a", "it is a key of the recipe: --set data.train=FILE"),
        ("--dry-run", "`hapo plan RECIPE` estimates a run without starting it"),
        ("--lora", "it is a section of the recipe: --set lora.rank=16"),
        ("--model=a", "it is a key of the recipe: --set model.path=MODEL"),
        ("--output_dir=a", "the folder of the run is --run-dir DIR"),
    ] {
        assert_eq!(last(&["train", "builtin:smoke", flag]), format!("hint: {hint}"));
    }
    let folder = "hint: the folder of a run is an option: --run-dir DIR";
    assert_eq!(last(&["recipe", "output_dir"]), folder);
    let beta = succeed(dir.path(), &["recipe", "beta"]);
    assert!(beta.contains("betas = ") && beta.contains("kl_coef = "), "{beta}");
    let eval = ["eval", "--model", "builtin:base"];
    check(
        &refuse(dir.path(), &[&eval[..], &["--suite", "gsm8k"]].concat()),
        &expect![[r#"
            error: unknown benchmark `gsm8k`
            hint: `hapo list benchmarks` names them; for a dataset: --data FILE or hf://datasets/ORG/NAME
        "#]],
    );
    check(
        &refuse(dir.path(), &[&eval[..], &["--data", "openai/gsm8k"]].concat()),
        &expect![[r#"
            error: no such file: openai/gsm8k
            hint: a dataset of the hub is hf://datasets/openai/gsm8k
        "#]],
    );
}

#[test]
fn rows_that_new_cannot_use_are_named_with_what_to_type() {
    let dir = tempfile::tempdir().unwrap();
    let new = |text: &str, more: &[&str]| {
        fs::write(dir.path().join("rows.jsonl"), text).unwrap();
        let args = ["new", "--model", "builtin:base", "--data", "rows.jsonl"];
        refuse(dir.path(), &[&args[..], more].concat())
    };
    check(
        &new("{\"question\":\"1+1\",\"response\":\"It is 2\"}\n", &[]),
        &expect![[r#"
            error: rows.jsonl: no row has an answer
            hint: name its column: --columns problem=NAME,answer=NAME
        "#]],
    );
    check(
        &new("{\"q\":\"1+1\",\"a\":\"2\"}\n", &["--columns", "problem=q,answer=b"]),
        &expect![[r#"
            error: rows.jsonl: no row has the column `b`; there are a, q
            hint: did you mean `a`?
        "#]],
    );
}
