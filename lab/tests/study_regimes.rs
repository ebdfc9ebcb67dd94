//! `hapo-lab study ladder` and `hapo-lab study teachers`: rehearsals of two steps.

use std::path::Path;
use std::process::{Command, Output};

fn study(out: &Path, study: &str, only: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapo-lab"));
    command.args(["study", study, "--only", only, "--seeds", "1", "--no-search", "--jobs", "2"]);
    command.args(["--problems", "2", "--set", "steps=2", "--set", "data.prompts=8"]);
    command.args(["--set", "sampling.prompts_per_step=2", "--out"]).arg(out);
    command.output().unwrap()
}

fn text(output: &Output) -> (String, String) {
    let text = |it: &[u8]| String::from_utf8_lossy(it).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// The line of a table that begins so.
fn line<'a>(text: &'a str, begins: &str) -> &'a str {
    let line = text.lines().find(|it| it.starts_with(&format!("| {begins} |")));
    line.unwrap_or_else(|| panic!("{begins} in {text}"))
}

#[test]
fn regimes_share_runs_and_cells_that_were_not_made_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let output = study(folder.path(), "teachers", "exact,unfollowable");
    let (markdown, log) = text(&output);
    assert!(output.status.success(), "{log}");
    assert!(
        log.contains("0 base models, 0 runs of the search and 10 of the tables are missing"),
        "{log}"
    );
    assert!(log.contains(" hours, by the times of"), "{log}");
    assert_eq!(
        std::fs::read_to_string(folder.path().join("teachers.md")).unwrap().trim_end(),
        markdown.trim_end()
    );
    let not_made = " not made | not made | not made | not made |";
    assert!(line(&markdown, "15 % of the verdicts flipped").ends_with(not_made), "{markdown}");
    assert!(line(&markdown, "A style that finishes 58 % of the problems").ends_with(not_made));
    // One seed decides nothing.
    let exact = line(&markdown, "Exact traces for a quarter of the prompts");
    assert_eq!(exact.matches(" undecided, ").count(), 4, "{exact}");
    for row in ["GRPO", "SFT-GRPO", "TRAPO, always on", "HAPO, annealed", "HAPO, not annealed"] {
        assert!(line(&markdown, row).starts_with(&format!("| {row} | 1 |")), "{markdown}");
    }

    // GRPO's runs on the same prompts come from the first regime.
    let output = study(folder.path(), "teachers", "exact,ceiling");
    let (_, log) = text(&output);
    assert!(log.contains("0 runs of the search and 4 of the tables are missing"), "{log}");
    assert!(folder.path().join("runs/exact-grpo/seed-0/scores.json").exists());
    assert!(!folder.path().join("runs/ceiling-grpo").exists());
}

#[test]
fn a_rung_starts_from_its_base_and_has_its_share_of_failing_groups() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("bases/rung-1/checkpoints/step-000160");
    std::fs::create_dir_all(&base).unwrap();
    for it in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../models/base")).unwrap() {
        let it = it.unwrap();
        std::fs::copy(it.path(), base.join(it.file_name())).unwrap();
    }
    let output = study(folder.path(), "ladder", "rung-1");
    let (markdown, log) = text(&output);
    assert!(output.status.success(), "{log}");
    let recipe = folder.path().join("runs/rung-1-hapo/seed-0/recipe.toml");
    assert!(
        std::fs::read_to_string(recipe).unwrap().contains("bases/rung-1/checkpoints/step-000160")
    );
    let rung = line(&markdown, "1 % of the documents at the hard levels in the teacher's style");
    let share: f64 = rung.split('|').nth(2).unwrap().trim().parse().unwrap();
    assert!((0.0..=1.0).contains(&share), "{rung}");
    assert!(line(&markdown, "base, 1 %").starts_with("| base, 1 % | 1 |"));
}
