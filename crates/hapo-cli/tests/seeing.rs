//! The command line as a newcomer meets it, and the report as a command.

use std::path::Path;
use std::process::{Command, Output};

use expect_test::expect;

fn hapo(args: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hapo")).args(args).current_dir(folder).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn hapo_alone_says_where_to_begin() {
    let dir = tempfile::tempdir().unwrap();
    let it = hapo(&[], dir.path());
    assert!(it.status.success());
    assert!(text(&it.stdout).contains("hapo quickstart"));
    assert!(it.stderr.is_empty());
}

#[test]
fn help_begins_with_an_example_and_has_no_colours_in_a_pipe() {
    let dir = tempfile::tempdir().unwrap();
    let all = text(&hapo(&["--help"], dir.path()).stdout);
    assert!(all.contains("Exit codes:"), "{all}");
    let commands = all.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let names = commands
        .lines()
        .filter(|it| it.starts_with("  ") && !it.starts_with("   "))
        .filter_map(|it| it.split_whitespace().next())
        .filter(|it| *it != "help");
    let mut n = 0;
    for name in names {
        let help = text(&hapo(&[name, "--help"], dir.path()).stdout);
        assert!(help.starts_with("Example"), "hapo {name} --help:\n{help}");
        assert!(!help.contains('\u{1b}'), "hapo {name} --help has colours");
        n += 1;
    }
    assert!(n >= 13, "{n} commands in:\n{commands}");
}

#[test]
fn completions_and_manual_name_every_flag() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&hapo(&["completions", shell], dir.path()).stdout);
        assert!(script.contains("turn-off-epoch"), "{shell}");
    }
    assert!(text(&hapo(&["man"], dir.path()).stdout).contains("Exit codes"));
    assert!(hapo(&["man", "--dir", "pages"], dir.path()).status.success());
    let page = std::fs::read_to_string(dir.path().join("pages/hapo-report.1")).unwrap();
    assert!(page.contains("figures"));
}

#[test]
fn a_report_of_a_folder_without_a_run_is_bad_input() {
    let dir = tempfile::tempdir().unwrap();
    for command in ["report", "watch"] {
        let it = hapo(&[command, "nothing"], dir.path());
        assert_eq!(it.status.code(), Some(2));
        assert!(it.stdout.is_empty());
        expect![[r#"
            error: nothing holds no run: expected recipe.toml or metrics.jsonl in it, or in folders below it
            hint: name the --run-dir of a `hapo train`, or a folder of such folders; `hapo quickstart` makes three in minutes
        "#]]
        .assert_eq(&text(&it.stderr));
    }
    assert!(!dir.path().join("report.html").exists());
}

#[test]
fn a_report_is_a_page_and_figures() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    std::fs::create_dir(&run).unwrap();
    let metrics =
        "{\"step\":1,\"reward/policy_only\":0.25}\n{\"step\":2,\"reward/policy_only\":0.5}\n";
    std::fs::write(run.join("metrics.jsonl"), metrics).unwrap();
    let args = ["report", "run", "-o", "page.html", "--figures", "figures", "--json"];
    let it = hapo(&args, dir.path());
    assert!(it.status.success(), "{}", text(&it.stderr));
    let said: serde_json::Value = serde_json::from_slice(&it.stdout).unwrap();
    assert_eq!(said["figures"], serde_json::json!(["figures/reward.svg"]));
    let page = std::fs::metadata(dir.path().join("page.html")).unwrap();
    assert_eq!(said["bytes"], page.len());
}

/// A folder of a run as training writes it.
fn small_run(folder: &Path) -> std::path::PathBuf {
    let args = ["train", "builtin:smoke", "--set", "steps=2", "--run-dir", "run", "--quiet"];
    let it = hapo(&args, folder);
    assert!(it.status.success(), "{}", text(&it.stderr));
    folder.join("run")
}

#[test]
fn a_run_is_exported_as_a_table_and_trackers_are_driven_by_their_own_package() {
    let dir = tempfile::tempdir().unwrap();
    small_run(dir.path());
    let table = text(&hapo(&["export", "run"], dir.path()).stdout);
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("run,step,") && lines[0].contains(",reward/policy_only,"));
    assert_eq!(lines.len(), 3);
    assert!(lines[2].starts_with("run,2,"), "{table}");
    let written = hapo(&["export", "run", "--to", "csv", "-o", "run.csv"], dir.path());
    assert!(written.status.success() && written.stdout.is_empty());
    assert_eq!(std::fs::read_to_string(dir.path().join("run.csv")).unwrap(), table);

    let check = |args: &[&str], said: &str| {
        let it = hapo(&[&["export"], args].concat(), dir.path());
        let stderr = text(&it.stderr);
        assert_eq!(it.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(said), "{stderr}");
    };
    check(&["run", "--to", "csv", "--follow"], "--follow: a table is written once");
    check(&["run", "--to", "wandb", "-o", "x"], "--out: only a table is written to a file");
    check(&["run", "--to", "mlflow", "--python", "./none"], "./none cannot start");
    check(&["nothing"], "nothing");
}
