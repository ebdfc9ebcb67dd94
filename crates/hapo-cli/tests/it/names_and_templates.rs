//! Names of the hub, the model's own template and the server, through the binary.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::repository;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A cache with the tiny model as `org/tiny` and a data set as `org/data`.
fn cache(home: &Path) {
    let add = |repository: &str, files: &[(&str, Vec<u8>)]| {
        let folder = home.join("hub").join(repository);
        let snapshot = folder.join("snapshots").join(COMMIT);
        fs::create_dir_all(&snapshot).unwrap();
        fs::create_dir_all(folder.join("refs")).unwrap();
        fs::write(folder.join("refs/main"), COMMIT).unwrap();
        for (name, bytes) in files {
            fs::write(snapshot.join(name), bytes).unwrap();
        }
    };
    let names = [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ];
    let files: Vec<(&str, Vec<u8>)> = names
        .into_iter()
        .map(|name| {
            let file = repository("testdata/fixtures/models/tiny-qwen2").join(name);
            (name, fs::read(file).unwrap())
        })
        .collect();
    add("models--org--tiny", &files);
    let rows: Vec<String> = (0..8)
        .map(|i| {
            format!("{{\"id\": \"{i}\", \"problem\": \"{i}+1=?\", \"answer\": \"{}\"}}\n", i + 1)
        })
        .collect();
    add("datasets--org--data", &[("problems.jsonl", rows.concat().into_bytes())]);
}

/// Runs `hapo` without a network and with that cache.
fn offline(folder: &Path, args: &[&str]) -> Output {
    Command::new(crate::support::binary())
        .args(args)
        .current_dir(folder)
        .env("HF_HOME", folder.join("home"))
        .env("HF_HUB_OFFLINE", "1")
        .env_remove("HF_HUB_CACHE")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn succeed(folder: &Path, args: &[&str]) -> (String, String) {
    let output = offline(folder, args);
    let messages = text(&output.stderr);
    assert!(output.status.success(), "{args:?}: {messages}");
    (text(&output.stdout), messages)
}

#[test]
fn a_model_of_the_cache_is_the_model_of_its_folder() {
    let dir = tempfile::tempdir().unwrap();
    cache(&dir.path().join("home"));
    let folder = repository("testdata/fixtures/models/tiny-qwen2");
    let generate = |model: &str, template: &str| {
        let args = [
            "generate",
            "--model",
            model,
            "2+2=?",
            "--template",
            template,
            "--json",
            "--max-tokens",
            "12",
            "-n",
            "2",
        ];
        succeed(dir.path(), &args).0
    };
    let by_name = generate("org/tiny", "chat");
    assert_eq!(by_name, generate(folder.to_str().unwrap(), "chat"));
    // The model's own template is ChatML.
    assert_eq!(by_name, generate("org/tiny@main", "chatml"));
    assert_eq!(by_name.lines().count(), 2);

    let missing = offline(dir.path(), &["generate", "--model", "org/other", "x"]);
    assert_eq!(missing.status.code(), Some(2));
    let cache = dir.path().join("home/hub");
    assert_eq!(
        text(&missing.stderr),
        format!(
            "error: org/other is not in the cache ({}), and HF_HUB_OFFLINE is set\nhint: unset HF_HUB_OFFLINE once, or give a folder\n",
            cache.display()
        )
    );
    let neither = offline(dir.path(), &["generate", "--model", "./tiny", "x"]);
    assert_eq!(neither.status.code(), Some(2));
    assert_eq!(
        text(&neither.stderr),
        "error: ./tiny: no such file or folder, and no name of the hub\nhint: give a folder or file that exists, org/name@revision of a model, or hf://datasets/org/name@revision[/file]\n"
    );
}

#[test]
fn a_recipe_takes_names_and_its_checkpoint_remembers_the_template() {
    let dir = tempfile::tempdir().unwrap();
    cache(&dir.path().join("home"));
    fs::write(
        dir.path().join("recipe.toml"),
        r#"
method = "grpo"
steps = 1
[model]
path = "org/tiny"
[data]
train = "hf://datasets/org/data"
template = "chat"
template_system = "Be exact."
template_suffix = "\nThink."
[sampling]
group_size = 2
prompts_per_step = 2
max_new_tokens = 8
[metrics]
preflight = 0
"#,
    )
    .unwrap();
    succeed(dir.path(), &["train", "recipe.toml", "--run-dir", "run", "--quiet"]);
    let resolved = fs::read_to_string(dir.path().join("run/recipe.toml")).unwrap_or_default();
    assert!(resolved.is_empty() || resolved.contains("org/tiny"), "{resolved}");
    let (replayed, _) = succeed(dir.path(), &["replay", "--run", "run", "--step", "1", "--json"]);
    let replayed: serde_json::Value = serde_json::from_str(&replayed).unwrap();
    assert_eq!(replayed["grad_norm"], replayed["logged_grad_norm"]);
    let eval = |more: &[&str]| {
        let mut args = vec![
            "eval",
            "--model",
            "run/checkpoints/step-000001",
            "--data",
            "hf://datasets/org/data/problems.jsonl",
            "--k",
            "1",
            "--max-tokens",
            "4",
            "--json",
        ];
        args.extend(more);
        let (_, said) = succeed(dir.path(), &args);
        let warnings = said.split_inclusive('\n');
        warnings.filter(|it| it.starts_with("warning")).collect::<String>()
    };
    let own = ["--template", "chat", "--system", "Be exact.", "--suffix", "\nThink."];
    assert_eq!(eval(&own), "");
    assert_eq!(
        eval(&["--template", "chat"]),
        "warning: run/checkpoints/step-000001 was trained with template `chat`, and is sampled with `chat` of another text\n"
    );
    assert_eq!(
        eval(&["--template", "chatml"]),
        "warning: run/checkpoints/step-000001 was trained with template `chat`, and is sampled with `chatml`\n"
    );
    let refused = offline(
        dir.path(),
        &["train", "recipe.toml", "--run-dir", "other", "--set", "data.template=chatml"],
    );
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(
        text(&refused.stderr),
        "error: template `chatml` takes no system text, only template `chat` does (--set data.template=chatml: data.template)\nhint: `hapo list templates` names them\n"
    );
}

#[test]
fn a_new_recipe_asks_as_it_is_told() {
    let dir = tempfile::tempdir().unwrap();
    cache(&dir.path().join("home"));
    let new = ["new", "--model", "org/tiny", "--data", "hf://datasets/org/data", "--lora"];
    let asked = ["--suffix", "\nOne \"line\", no \\n.", "--method", "grpo", "-o", "my.toml"];
    succeed(dir.path(), &[&new[..], &asked, &["--grader", "exact", "--steps", "1"]].concat());
    let recipe = fs::read_to_string(dir.path().join("my.toml")).unwrap();
    let line = r#"template_suffix = "\nOne \"line\", no \\n.""#;
    assert!(recipe.contains("template = \"chat\"") && recipe.contains(line), "{recipe}");
    let few = ["--set", "sampling.max_new_tokens=4", "--set", "sampling.prompts_per_step=1"];
    let few = [&few[..], &["--set", "optim.mini_batch_prompts=1", "--no-preflight"]].concat();
    let train = ["train", "my.toml", "--run-dir", "run", "--quiet"];
    succeed(dir.path(), &[&train[..], &few].concat());
    let rollouts = hapo_run::RunFolder(&dir.path().join("run")).rollouts_of(1);
    let rollouts = hapo_run::read_rollouts(&rollouts).unwrap();
    assert!(rollouts[0].rendered.contains("\nOne \"line\", no \\n."), "{rollouts:?}");
    let other = ["--template", "chatml", "--force"];
    let refused = offline(dir.path(), &[&new[..], &asked, &other].concat());
    let said = text(&refused.stderr);
    assert!(said.contains("error: template `chatml` takes no suffix"), "{said}");
}

/// A command's line about the template.
fn template_line(said: &str) -> Vec<&str> {
    said.lines().filter(|it| it.starts_with("template:")).collect()
}

#[test]
fn every_command_takes_the_trained_template_or_the_models_own_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    cache(&dir.path().join("home"));
    let data = dir.path().join("home/hub/datasets--org--data/snapshots");
    let data = data.join(COMMIT).join("problems.jsonl");
    let data = data.to_str().unwrap();
    let recipe = format!(
        "method = \"grpo\"\nsteps = 1\n[model]\npath = \"org/tiny\"\n[data]\ntrain = \"{data}\"\n\
         [sampling]\ngroup_size = 2\nprompts_per_step = 2\nmax_new_tokens = 4\n[metrics]\npreflight = 0\n"
    );
    fs::write(dir.path().join("recipe.toml"), recipe).unwrap();
    let own = ["template: chat, the model's own (--template names another)"];
    let generate = ["generate", "1+1=?", "--max-tokens", "2", "--model"];
    let eval = ["eval", "--k", "1", "--max-tokens", "2", "--data", data, "--model"];
    for command in [&generate[..], &eval] {
        let args = [command, &["org/tiny"]].concat();
        let (_, said) = succeed(dir.path(), &args);
        assert_eq!(template_line(&said), own, "{args:?}");
        let named = [command, &["org/tiny", "--template", "chatml"]].concat();
        assert_eq!(template_line(&succeed(dir.path(), &named).1), Vec::<&str>::new());
    }
    let (_, said) = succeed(dir.path(), &["train", "recipe.toml", "--run-dir", "run"]);
    assert_eq!(
        template_line(&said),
        ["template: chat, the model's own (data.template names another)"]
    );
    let (_, said) = succeed(dir.path(), &["train", "recipe.toml", "--run-dir", "quiet", "--quiet"]);
    assert_eq!(said, "");
    let resolved = fs::read_to_string(dir.path().join("run/recipe.toml")).unwrap();
    assert!(resolved.contains("template = \"chat\"\n"), "{resolved}");
    assert!(resolved.contains("micro_batch_tokens = 8192\n"), "{resolved}");

    // A model trained with another template is asked in that one.
    let other = ["train", "recipe.toml", "--run-dir", "boxed", "--set", "data.template=qwen-boxed"];
    let texts = ["--set", "data.grader=exact", "--set", "data.extraction=whole"];
    let (_, said) = succeed(dir.path(), &[&other[..], &texts].concat());
    assert_eq!(template_line(&said), Vec::<&str>::new());
    let trained = "boxed/checkpoints/step-000001";
    for command in [&generate[..], &eval] {
        let (_, said) = succeed(dir.path(), &[command, &[trained]].concat());
        let expected = "template: qwen-boxed, which it was trained with (--template names another)";
        assert_eq!(template_line(&said), [expected]);
        assert!(!said.contains("warning: boxed"), "{said}");
    }
    // And judged as in its run, unless a grader is named.
    let judged = |words: &[&str]| succeed(dir.path(), &[&eval[..], &[trained], words].concat()).1;
    assert!(judged(&[]).contains("grader `exact`, extraction `whole`"), "{}", judged(&[]));
    let named = judged(&["--grader", "math"]);
    assert!(named.contains("grader `math`, extraction `announced`"), "{named}");
    let resumed = ["train", "recipe.toml", "--run-dir", "boxed", "--resume"];
    let (_, said) = succeed(dir.path(), &[&resumed[..], &texts].concat());
    assert!(!said.contains("resuming with another recipe"), "{said}");
}

#[test]
fn sequences_beyond_the_models_positions_are_warned_about() {
    let dir = tempfile::tempdir().unwrap();
    let rows = "{\"id\": \"a\", \"problem\": \"1+1=?\", \"answer\": \"2\"}\n";
    fs::write(dir.path().join("rows.jsonl"), rows).unwrap();
    let said = "warning: sequences of up to 143 tokens are read, the model was made for 128 (max_position_embeddings)\n";
    let model = ["--model", "builtin:base", "--max-tokens", "130"];
    for command in [&["generate", "1+1=?"][..], &["eval", "--data", "rows.jsonl", "--k", "1"]] {
        let (_, messages) = succeed(dir.path(), &[command, &model].concat());
        assert!(messages.contains(said), "{messages}");
    }
    let rows = rows.to_owned() + &rows.replace("\"a\"", "\"b\"").replace("1+1=?", "1+2=?");
    fs::write(dir.path().join("rows.jsonl"), rows).unwrap();
    let recipe = "method = \"grpo\"\nsteps = 1\nmodel.path = \"builtin:base\"\ndata.train = \"rows.jsonl\"\n\
        sampling = { prompts_per_step = 2, group_size = 2, max_new_tokens = 130 }\n";
    fs::write(dir.path().join("r.toml"), recipe).unwrap();
    let (_, messages) = succeed(dir.path(), &["train", "r.toml", "--no-preflight"]);
    assert!(messages.contains(said), "{messages}");
}

/// It is the folder that is wrong, not the machine.
#[test]
fn a_template_that_renders_nothing_is_bad_input() {
    let dir = tempfile::tempdir().unwrap();
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/base");
    for it in fs::read_dir(base).unwrap() {
        let it = it.unwrap();
        fs::copy(it.path(), dir.path().join(it.file_name())).unwrap();
    }
    fs::write(dir.path().join("chat_template.jinja"), "{% if 0 %}x{% endif %}").unwrap();
    let model = ["--model", ".", "--template", "chat", "1+1=?"];
    let done = offline(dir.path(), &[&["generate"], &model[..]].concat());
    assert_eq!(done.status.code(), Some(2));
    let said = "error: problem 0: prompt: expected at least one token, got none\n";
    assert!(text(&done.stderr).contains(said), "{}", text(&done.stderr));
}

#[cfg(unix)]
#[test]
fn the_server_says_where_it_is_and_ends_at_ctrl_c() {
    let mut server = Command::new(crate::support::binary())
        .args(["serve", "--model", "builtin:base", "--port", "0"])
        .args(["--served-model-name", "base"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut messages = BufReader::new(server.stderr.take().unwrap());
    let mut line = String::new();
    messages.read_line(&mut line).unwrap();
    assert_eq!(line, "template: chatml, the built-in task's (--template names another)\n");
    line.clear();
    messages.read_line(&mut line).unwrap();
    let address = line
        .trim()
        .strip_prefix("serving base at http://")
        .and_then(|it| it.strip_suffix("/v1"))
        .unwrap_or_else(|| panic!("{line}"))
        .to_owned();
    assert!(address.starts_with("127.0.0.1:"));
    // The model was made for 128 positions, however large the cache is.
    let mut connection = std::net::TcpStream::connect(&address).unwrap();
    write!(connection, "GET /v1/models HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut models = String::new();
    connection.read_to_string(&mut models).unwrap();
    assert!(models.contains("\"max_model_len\":128"), "{models}");
    let body = r#"{"model": "base", "messages": [{"role": "user", "content": "12*7=?"}], "temperature": 0}"#;
    let mut connection = std::net::TcpStream::connect(&address).unwrap();
    write!(
        connection,
        "POST /v1/chat/completions HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.contains("\"finish_reason\":\"stop\""), "{answer}");
    let interrupt = Command::new("kill").args(["-INT", &server.id().to_string()]).status();
    assert!(interrupt.unwrap().success());
    assert!(server.wait().unwrap().success());
}
