//! Pages that list what the program has are compared with the program.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use expect_test::expect_file;

/// A step that samples, with everything optional turned on.
const RL: &[&str] = &[
    "trapo",
    "sampling.group_size=4",
    "sampling.dynamic_sampling=1",
    "metrics.kl_every=1",
    "loss.kl_coef=0.001",
    "reference.path=builtin:base",
    "eval={ suite = \"linear:3\", problems = 1, k = 1 }",
    "rollouts.correction=token-truncate",
    "metrics.preflight=0",
    "reward.wrong=-0.5",
];
/// A step of imitation.
const SFT: &[&str] = &["sft"];

/// `UPDATE_EXPECT=1 cargo test -p hapo-cli --test it docs` writes the page anew.
#[test]
fn the_page_of_lists_is_that_of_hapo_list() {
    let mut text = String::from(
        "# What there is\n\nMade from `hapo list`; `UPDATE_EXPECT=1 cargo test -p hapo-cli --test it docs` writes it anew.\n",
    );
    for (title, rows) in lists() {
        text += &format!("\n## {title}\n\n| name | |\n|---|---|\n");
        for (name, summary) in rows {
            text += &format!("| `{name}` | {} |\n", summary.replace('|', "\\|"));
        }
    }
    expect_file![root().join("docs/generated/lists.md")].assert_eq(&text);
}

#[test]
fn pages_written_by_hand_leave_nothing_out() {
    let page = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let lists = lists();
    let names = |title: &str| -> Vec<&str> {
        let list = lists.iter().find(|it| it.0 == title);
        list.unwrap().1.iter().map(|it| it.0.as_str()).collect()
    };
    let table = page("docs/methods/README.md");
    let mut pages = String::new();
    for entry in std::fs::read_dir(root().join("docs/methods")).unwrap() {
        let path = entry.unwrap().path();
        let method = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let row = format!("\n| [{method}]({method}.md) |");
        assert!(method == "README" || table.contains(&row), "docs/methods/README.md: {method}");
        pages += &format!("`{method}`\n{}", std::fs::read_to_string(&path).unwrap());
    }
    for it in names("methods") {
        assert!(pages.contains(&format!("`{it}`")), "docs/methods: method {it}");
    }
    let data = page("docs/data.md");
    for it in names("layouts") {
        assert!(data.contains(&format!("\n| `{it}` |")), "docs/data.md: layout {it}");
    }
    let guide = page("docs/guides/your-own-data.md");
    for it in names("graders") {
        assert!(guide.contains(&format!("`{it}`")), "your-own-data.md: grader {it}");
    }
    let evaluation = page("docs/evaluation.md").to_lowercase().replace('-', "");
    for it in names("benchmarks").iter().filter(|it| !it.contains('-')) {
        assert!(evaluation.contains(it), "docs/evaluation.md: benchmark {it}");
    }
}

/// The tables of `hapo list`: title, rows of name and summary.
fn lists() -> Vec<(String, Vec<(String, String)>)> {
    let output = Command::new(env!("CARGO_BIN_EXE_hapo")).arg("list").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lists: Vec<(String, Vec<(String, String)>)> = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("  ") {
            None => lists.push((line.to_owned(), Vec::new())),
            Some(row) => {
                let (name, summary) = row.split_once(' ').unwrap();
                let row = (name.to_owned(), summary.trim().to_owned());
                lists.last_mut().unwrap().1.push(row);
            }
        }
    }
    lists
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_page_has_the_metrics_of_a_run_and_no_others() {
    let root = root();
    let out = tempfile::tempdir().unwrap();
    let page = std::fs::read_to_string(root.join("docs/metrics.md")).unwrap();
    let rows: Vec<(&str, &str)> =
        page.lines().filter_map(|it| it.strip_prefix("| `")?.split_once("` |")).collect();
    let names = |all: &[(&str, &str)]| -> BTreeSet<String> {
        all.iter().map(|it| it.0.to_owned()).collect()
    };
    let always: Vec<(&str, &str)> =
        rows.iter().copied().filter(|it| it.1.ends_with("; always |")).collect();
    assert_eq!(metrics_of(&root, &out.path().join("rl"), RL), names(&rows));
    let listed: Vec<&str> = rows.iter().map(|it| it.0).collect();
    assert_eq!(listed, hapo_run::metrics().collect::<Vec<_>>());
    assert_eq!(metrics_of(&root, &out.path().join("sft"), SFT), names(&always));
}

/// The metrics' names of a run of one step.
fn metrics_of(root: &Path, folder: &Path, settings: &[&str]) -> BTreeSet<String> {
    std::fs::create_dir_all(folder).unwrap();
    let recipe = folder.join("recipe.toml");
    std::fs::write(
        &recipe,
        format!(
            "method = \"{}\"\nsteps = 1\nmodel.init = {{ hidden = 32, layers = 2, heads = 4, kv_heads = 2, ffn = 64, std = 0.3 }}\ndata = {{ prompts = 8, max_prompt_tokens = 32, teacher_coverage = 1.0 }}\nsampling = {{ prompts_per_step = 4, max_new_tokens = 96 }}\n",
            settings[0]
        ),
    )
    .unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_hapo"))
        .current_dir(root)
        .args(["train", "--quiet", "--run-dir"])
        .arg(folder.join("run"))
        .arg(&recipe)
        .args(settings[1..].iter().flat_map(|it| ["--set", it]))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = std::fs::read_to_string(folder.join("run/metrics.jsonl")).unwrap();
    let lines = lines.lines().map(|it| serde_json::from_str(it).unwrap());
    lines
        .flat_map(|it: serde_json::Map<String, serde_json::Value>| it.into_iter().map(|it| it.0))
        .collect()
}
