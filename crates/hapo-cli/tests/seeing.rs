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
