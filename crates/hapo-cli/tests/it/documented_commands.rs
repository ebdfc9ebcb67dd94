//! Every command of README.md and the documentation is run as it stands there, or named here with what it
//! needs that a test does not have; then its options are still those of the program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::repository;

/// Words of a synopsis, which is no command.
const PLACEHOLDERS: &[&str] = &["DIR", "FILE", "RECIPE", "NAME", "…", "[--"];

/// Parts of commands that are not run, and what they need.
const NEEDS: &[(&str, &str)] = &[
    ("hapo quickstart", "minutes"),
    ("recipes/real", "a model of a Python package"),
    ("runs/real", "the run of that model"),
    ("runs/tickets", "a model of a Python package"),
    (".gguf", "a file that a package or a hub has"),
    ("--suite math6", "the paper's benchmarks, and a model"),
    ("--endpoint", "a server"),
    ("data make gym:", "a Python package"),
    ("mine.toml", "a model of the hub"),
    ("--max-response", "a model of the hub"),
    ("runs/mine", "the run of that model"),
    ("--adapter", "the run of an adapter"),
];

/// Smaller runs of the shipped recipes.
const SMALL: &[(&str, &[&str])] = &[
    (
        "recipes/smoke.toml",
        &["data.prompts=8", "sampling.prompts_per_step=2", "optim.mini_batch_prompts=1"],
    ),
    ("builtin:first", &["data.prompts=8", "sampling.prompts_per_step=2"]),
    ("recipes/mini/", &["steps=1", "data.prompts=16", "sampling.prompts_per_step=4"]),
];

const RECIPE: &str = r#"method = "grpo"
steps = 1
model = { path = "builtin:base" }
data = { max_prompt_tokens = 96 }
sampling = { group_size = 2, prompts_per_step = 2, max_new_tokens = 16 }
metrics = { preflight = 0 }
"#;

/// README.md and every page below docs.
fn pages() -> Vec<PathBuf> {
    let mut found = vec![repository("README.md")];
    let mut folders = vec![repository("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The commands in a page's blocks of code: comments taken off, lines that go on joined.
fn commands(page: &str) -> Vec<String> {
    let blocks = page.split("```").skip(1).step_by(2);
    let lines = blocks.flat_map(|block| {
        let joined = block.replace("\\\n", " ");
        joined.lines().map(str::to_owned).collect::<Vec<_>>()
    });
    let each = lines.flat_map(|it| it.split(" && ").map(str::to_owned).collect::<Vec<_>>());
    each.filter_map(|it| {
        let it = it.trim().trim_start_matches("$ ");
        let it = it.split(" # ").next().unwrap_or_default().trim();
        let it = it.replace("$row", "hapo-method").replace("$seed", "0");
        (it == "hapo" || it.starts_with("hapo ")).then_some(it)
    })
    .collect()
}

/// The words of a command: quotes taken off, and the file that its output goes to.
fn words(command: &str) -> (Vec<String>, Option<String>) {
    let (command, output) = match command.split_once(" > ") {
        Some((command, output)) => (command, Some(output.trim().to_owned())),
        None => (command, None),
    };
    let mut words = Vec::new();
    for (index, part) in command.split('\'').enumerate() {
        if index % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    (words.split_off(1), output)
}

fn hapo(folder: &Path, words: &[String]) -> Output {
    Command::new(crate::support::binary()).args(words).current_dir(folder).output().unwrap()
}

/// Runs a command that must succeed.
fn run(folder: &Path, page: &str, command: &str) {
    let (mut words, output) = words(command);
    if words.first().is_some_and(|it| it == "train") {
        let small = SMALL.iter().find(|it| words[1].starts_with(it.0));
        words.push("--no-preflight".to_owned());
        for it in small.map_or(&[][..], |it| it.1) {
            words.extend(["--set".to_owned(), (*it).to_owned()]);
        }
    }
    let done = hapo(folder, &words);
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{page}: {command}: {said}");
    if let Some(file) = output {
        fs::write(folder.join(file), done.stdout).unwrap();
    }
}

/// A folder with what the pages take for granted.
fn folder(page: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = |it: &str| dir.path().join(it);
    for it in ["recipes", "testdata"] {
        std::os::unix::fs::symlink(repository(it), at(it)).unwrap();
    }
    fs::create_dir(at("models")).unwrap();
    let model = repository("testdata/fixtures/models/tiny-qwen2");
    std::os::unix::fs::symlink(model, at("models/Qwen2.5-0.5B")).unwrap();
    fs::write(at("recipe.toml"), RECIPE).unwrap();
    let row = |it: u32| {
        let (problem, answer) = (format!("{it}*6=?"), it * 6);
        format!("{{\"id\": \"{it}\", \"problem\": \"{problem}\", \"answer\": \"{answer}\"}}\n")
    };
    let rows: String = (45..49).map(row).collect();
    fs::write(at("data.jsonl"), &rows).unwrap();
    fs::write(at("prompts.jsonl"), rows).unwrap();
    // Containers are told by their content, not by their names.
    let graded = r#"{"answer": "7", "completion": "so \\boxed{7}", "correct": true}"#;
    fs::write(at("rows.parquet"), graded).unwrap();
    let prepare = |needed: &str, commands: &[&str]| {
        if page.contains(needed) {
            for it in commands {
                run(dir.path(), "before", it);
            }
        }
    };
    prepare("train.parquet", &["hapo data convert data.jsonl --to verl -o train.parquet"]);
    prepare(
        "runs/a runs/b",
        &["hapo train recipe.toml --run-dir runs/a", "hapo train recipe.toml --run-dir runs/b"],
    );
    let eval = |out: &str| {
        format!("hapo eval --model builtin:base --suite linear-4 --problems 2 --out {out}")
    };
    prepare("--compare TRAPO=trapo.jsonl", &[&eval("trapo.jsonl"), &eval("hapo.jsonl")]);
    dir
}

#[test]
fn every_documented_command_does_what_it_says() {
    if hapo_testing::slow() {
        return;
    }
    let (mut ran, mut understood) = (0, 0);
    let mut unused: Vec<&str> = NEEDS.iter().map(|it| it.0).collect();
    for path in pages() {
        let page = fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(repository("")).unwrap_or(&path).display().to_string();
        let commands = commands(&page);
        if commands.is_empty() {
            continue;
        }
        let dir = folder(&page);
        for command in commands {
            if PLACEHOLDERS.iter().any(|it| command.contains(it)) {
                continue;
            }
            if let Some((part, _)) = NEEDS.iter().find(|it| command.contains(it.0)) {
                unused.retain(|it| it != part);
                let help = [words(&command).0, vec!["--help".to_owned()]].concat();
                let done = hapo(dir.path(), &help);
                let said = String::from_utf8_lossy(&done.stderr);
                assert!(done.status.success(), "{name}: {command}: {said}");
                understood += 1;
                continue;
            }
            run(dir.path(), &name, &command);
            ran += 1;
        }
    }
    assert_eq!(unused, Vec::<&str>::new(), "commands that are documented no longer");
    assert!(ran >= 30 && ran + understood >= 50, "{ran} were run, {understood} understood");
}
