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
    let (_, commands) = all.split_once("Start:\n").unwrap();
    let (commands, _) = commands.split_once("Options:\n").unwrap();
    let names: Vec<&str> = commands
        .lines()
        .filter(|it| it.starts_with("  ") && !it.starts_with("   "))
        .filter_map(|it| it.split_whitespace().next())
        .collect();
    for name in &names {
        let help = text(&hapo(&[name, "--help"], dir.path()).stdout);
        assert!(help.starts_with("Example"), "hapo {name} --help:\n{help}");
        assert!(!help.contains('\u{1b}'), "hapo {name} --help has colours");
    }
    let distinct: std::collections::BTreeSet<_> = names.iter().collect();
    assert!(names.len() >= 20 && distinct.len() == names.len(), "{commands}");
}

#[test]
fn a_flag_that_is_a_key_of_the_recipe_is_shown_as_set_takes_it() {
    let dir = tempfile::tempdir().unwrap();
    let hint = |args: &[&str]| {
        let it = hapo(args, dir.path());
        assert_eq!(it.status.code(), Some(2), "{args:?}");
        text(&it.stderr).lines().last().unwrap_or_default().to_owned()
    };
    let steps = "hint: it is a key of the recipe: --set steps=VALUE";
    assert_eq!(hint(&["train", "builtin:smoke", "--num-train-epochs", "3"]), steps);
    assert_eq!(hint(&["train", "builtin:smoke", "--steps=3"]), steps);
    assert_eq!(
        hint(&["train", "builtin:smoke", "--set", "num_generations=4"]),
        "hint: did you mean `sampling.group_size`?"
    );
    assert_eq!(
        hint(&["train", "smoke"]),
        "hint: the recipe that comes with hapo is `builtin:smoke`"
    );
    assert_eq!(hint(&["train", "builtin:smok"]), "hint: did you mean `builtin:smoke`?");
    let other = hint(&["generate", "--model", "builtin:base", "--steps", "3"]);
    assert_eq!(other, "For more information, try '--help'.");
    let meaning = text(&hapo(&["recipe", "learning_rate"], dir.path()).stdout);
    assert!(meaning.starts_with("[optim]\nlr = "), "{meaning}");
}

#[test]
fn runs_are_listed_the_latest_first() {
    let dir = tempfile::tempdir().unwrap();
    for (name, rows) in [("a", 1), ("b", 2)] {
        let run = dir.path().join("runs").join(name);
        std::fs::create_dir_all(&run).unwrap();
        std::fs::write(run.join("recipe.toml"), "method = \"grpo\"\nsteps = 2\n").unwrap();
        let row = |step: u32| {
            let reward = f64::from(step) / 4.0;
            format!("{{\"step\":{step},\"reward/policy_only\":{reward}}}\n")
        };
        let metrics = run.join("metrics.jsonl");
        std::fs::write(&metrics, (1..=rows).map(row).collect::<String>()).unwrap();
        let hours = std::time::Duration::from_secs(3600 * (3 - u64::from(rows)));
        let file = std::fs::File::options().write(true).open(&metrics).unwrap();
        file.set_modified(std::time::SystemTime::now() - hours).unwrap();
    }
    let it = hapo(&["runs"], dir.path());
    assert!(it.status.success());
    expect![[r#"
        run  method  steps  reward         eval  state       last step
        b    grpo    2/2    0.250 → 0.500  –     finished    1 h 0 min ago
        a    grpo    1/2    0.250 → 0.250  –     unfinished  2 h 0 min ago
    "#]]
    .assert_eq(&text(&it.stdout));
    assert_eq!(text(&it.stderr), "to see the latest: hapo report runs/b\n");
    let json = text(&hapo(&["runs", "runs/a", "--json"], dir.path()).stdout);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[0]["reward"], serde_json::json!([0.25, 0.25]));
    assert_eq!(hapo(&["runs", "nowhere"], dir.path()).status.code(), Some(2));
}

#[test]
fn completions_name_every_flag() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&hapo(&["completions", shell], dir.path()).stdout);
        assert!(script.contains("turn-off-epoch") && script.contains("scaf-grpo"), "{shell}");
    }
}

#[test]
fn bash_completes_values() {
    let dir = tempfile::tempdir().unwrap();
    let script = text(&hapo(&["completions", "bash"], dir.path()).stdout);
    std::fs::write(dir.path().join("hapo.bash"), script).unwrap();
    for (words, expected) in [
        ("new --method sca", "scaf-grpo"),
        ("methods exg", "exgrpo"),
        ("grade --grader ben", "benchmark"),
        ("generate --template qwen-b", "qwen-boxed"),
        ("train --set optim.lr", "optim.lr= optim.lr_schedule="),
        ("train --set uft.we", "uft.weight="),
        ("plan --unset hapo.turn", "hapo.turn_off_epoch"),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let (last, before) = (words[words.len() - 1], words[words.len() - 2]);
        let ask = format!(
            "source hapo.bash; compopt() {{ :; }}; COMP_WORDS=(hapo {}); COMP_CWORD={}; _hapo_values hapo {last} {before}; echo \"${{COMPREPLY[*]}}\"",
            words.join(" "),
            words.len()
        );
        let mut bash = Command::new("bash");
        let answer = bash.args(["-c", &ask]).current_dir(&dir).output().unwrap();
        assert_eq!(text(&answer.stdout).trim(), expected, "{words:?}: {}", text(&answer.stderr));
    }
}

#[test]
fn a_report_of_a_folder_without_a_run_is_bad_input() {
    let dir = tempfile::tempdir().unwrap();
    for more in [&[][..], &["--every", "1"]] {
        let it = hapo(&[&["report", "nothing"], more].concat(), dir.path());
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

#[cfg(unix)]
#[test]
fn a_report_is_written_again_until_ctrl_c_or_the_end_of_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    std::fs::create_dir(&run).unwrap();
    std::fs::write(run.join("recipe.toml"), "steps = 2\n").unwrap();
    let (metrics, page) = (run.join("metrics.jsonl"), dir.path().join("report.html"));
    let lines = ["{\"step\":1}\n", "{\"step\":1}\n{\"step\":2}\n"];
    std::fs::write(&metrics, lines[0]).unwrap();
    let start = || {
        let mut report = Command::new(env!("CARGO_BIN_EXE_hapo"));
        report.args(["report", "run", "--every", "1"]).current_dir(dir.path());
        report.stdout(std::process::Stdio::null()).spawn().unwrap()
    };
    let changed = |before: &[u8]| {
        let until = std::time::Instant::now() + std::time::Duration::from_mins(1);
        loop {
            match std::fs::read(&page) {
                Ok(now) if now != before => return now,
                _ => assert!(std::time::Instant::now() < until, "the page stays as it is"),
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    let mut stopped = start();
    let first = changed(&[]);
    let interrupt = ["-INT", &stopped.id().to_string()];
    assert!(Command::new("kill").args(interrupt).status().unwrap().success());
    assert!(stopped.wait().unwrap().success());
    let last = changed(&first);
    let mut ended = start();
    let again = changed(&last);
    assert_eq!(again, first);
    std::fs::write(&metrics, lines[1]).unwrap();
    assert!(ended.wait().unwrap().success());
    changed(&again);
}

/// A folder of a run as training writes it.
fn small_run(folder: &Path) -> std::path::PathBuf {
    let args = ["train", "builtin:smoke", "--set", "steps=2", "--run-dir", "run", "--quiet"];
    let it = hapo(&args, folder);
    assert!(it.status.success(), "{}", text(&it.stderr));
    folder.join("run")
}

/// A stand-in for the package: it writes what it is given, and breaks where it is told to.
const WANDB: &str = "import json, os
class Run:
    def __init__(self, **given):
        self.file = open('tracked.jsonl', 'a')
        self.write(name=given['name'], project=given['project'], steps=given['config']['steps'])
    def write(self, **line):
        print(json.dumps(line), file=self.file, flush=True)
    def log(self, metrics, step):
        if os.environ.get('BREAKS') == str(step):
            raise RuntimeError('the tracker is full')
        self.write(step=step, reward=metrics['reward/mean'])
    def finish(self):
        self.write(finished=True)
init = lambda **given: Run(**given)
";

#[test]
fn a_run_is_tracked_while_it_goes_and_no_tracker_stops_it() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("packages")).unwrap();
    std::fs::write(dir.path().join("packages/wandb.py"), WANDB).unwrap();
    let train = |run: &str, tracker: &str, breaks: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hapo"));
        command.args(["train", "builtin:smoke", "--no-preflight", "--run-dir", run]);
        for set in ["steps=2", "sampling.max_new_tokens=8", "sampling.prompts_per_step=2"] {
            command.args(["--set", set]);
        }
        command.args(["--set", "optim.mini_batch_prompts=1", "--unset", "hapo"]);
        command.args(["--set", &format!("track={tracker}")]);
        command.current_dir(dir.path()).env("PYTHONPATH", "packages").env("BREAKS", breaks);
        let output = command.env("WANDB_PROJECT", "sums").output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(text(&output.stdout).contains("2 steps done"), "{said}");
        said
    };
    train("runs/a", "wandb", "");
    let tracked = std::fs::read_to_string(dir.path().join("tracked.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> =
        tracked.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    assert_eq!(lines[0], serde_json::json!({"name": "a", "project": "sums", "steps": 2}));
    let steps: Vec<_> = lines.iter().filter_map(|it| it["step"].as_u64()).collect();
    assert_eq!((steps, &lines[3]["finished"]), (vec![1, 2], &true.into()));

    let said = train("runs/b", "wandb", "2");
    assert!(said.contains("RuntimeError: the tracker is full"), "{said}");
    assert!(said.contains("the run goes on, and `hapo export runs/b --to wandb`"), "{said}");
    let said = train("runs/c", "trackio", "");
    assert!(said.contains("No module named 'trackio' (pip install trackio)"), "{said}");
    let args = ["train", "builtin:smoke", "--set", "track=clearml"];
    let refused = text(&hapo(&args, dir.path()).stderr);
    assert!(refused.contains("expected one of wandb, trackio, mlflow, got `clearml`"), "{refused}");
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

/// The first run is called `seed-0` until there is another of that name.
#[test]
fn a_run_keeps_its_tracker_and_its_name_when_another_appears() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("packages")).unwrap();
    std::fs::write(dir.path().join("packages/wandb.py"), WANDB).unwrap();
    let run = |name: &str| {
        let run = dir.path().join(name);
        std::fs::create_dir_all(&run).unwrap();
        std::fs::write(run.join("metrics.jsonl"), "{\"step\":1,\"reward/mean\":0.5}\n").unwrap();
        std::fs::write(run.join("recipe.toml"), "steps = 2\n").unwrap();
        run
    };
    let tracked = || std::fs::read_to_string(dir.path().join("tracked.jsonl")).unwrap_or_default();
    let wait_for = |text: &str| {
        for _ in 0..600 {
            if tracked().contains(text) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("no {text} in {}", tracked());
    };
    let first = run("all/grpo/seed-0");
    let training = hapo_run::Lock::take(hapo_run::RunFolder(&first)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapo"));
    command.args(["export", "all", "--to", "wandb", "--follow"]).current_dir(&dir);
    let follower = command.env("PYTHONPATH", "packages").spawn().unwrap();
    wait_for("\"step\": 1");
    run("all/hapo/seed-0");
    wait_for("\"hapo/seed-0\"");
    drop(training);
    assert!(follower.wait_with_output().unwrap().status.success());
    let all = tracked();
    let lines = all.lines().map(|it| serde_json::from_str::<serde_json::Value>(it).unwrap());
    let names: Vec<String> =
        lines.filter_map(|it| it["name"].as_str().map(str::to_owned)).collect();
    assert_eq!(names, ["seed-0", "hapo/seed-0"]);
}

#[test]
fn a_run_that_cannot_be_read_takes_no_other_away() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["good", "bad"] {
        let run = dir.path().join("runs").join(name);
        std::fs::create_dir_all(&run).unwrap();
        std::fs::write(run.join("recipe.toml"), "steps = 1\n").unwrap();
    }
    std::fs::write(dir.path().join("runs/good/metrics.jsonl"), "{\"step\":1,\"loss\":2}\n")
        .unwrap();
    std::fs::create_dir(dir.path().join("runs/bad/metrics.jsonl")).unwrap();
    let warning = "warning: bad: cannot read runs/bad/metrics.jsonl: Is a directory";
    for (arguments, said) in [
        (&["runs"][..], "good  –       1/1"),
        (&["export", "runs"], "good,1,2"),
        (&["report", "runs"], "report.html"),
    ] {
        let it = hapo(arguments, dir.path());
        assert!(it.status.success(), "{arguments:?}: {}", text(&it.stderr));
        assert!(text(&it.stdout).contains(said), "{}", text(&it.stdout));
        // The page has it as a note.
        assert!(arguments[0] == "report" || text(&it.stderr).contains(warning));
    }
}
