//! `hapo study`: a rehearsal, killed and resumed.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn study(out: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hapo"));
    command.args(["study", "mini", "--only", "ablation", "--seeds", "2", "--no-search", "--quiet"]);
    command.args(["--problems", "3", "--set", "steps=2", "--set", "data.prompts=8"]);
    command.args(["--set", "sampling.prompts_per_step=4", "--set", "metrics.preflight=0", "--out"]);
    command.arg(out).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// The tables without what a clock says.
fn tables(out: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(out.join("results.json")).unwrap();
    let mut done: serde_json::Value = serde_json::from_str(&text).unwrap();
    for table in done["tables"].as_array_mut().unwrap() {
        for row in table["rows"].as_array_mut().unwrap() {
            row["seconds"] = serde_json::Value::Null;
        }
    }
    done
}

#[test]
fn a_killed_study_resumes_and_ends_with_the_same_tables() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, killed) = (folder.path().join("whole"), folder.path().join("killed"));
    assert!(study(&whole).status().unwrap().success());
    let table = &tables(&whole)["tables"][0];
    let rows = table["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        assert_eq!(row["seeds"], 2);
        assert_eq!(row["by_benchmark"].as_array().unwrap().len(), 6);
        let it = &row["average"];
        let number = |key: &str| it[key].as_f64().unwrap();
        assert!(number("low") <= number("mean") && number("mean") <= number("high"));
    }

    let mut child = study(&killed).spawn().unwrap();
    let first = killed.join("runs/trapo/seed-0/scores.json");
    let started = Instant::now();
    while !first.exists() && started.elapsed() < Duration::from_mins(2) {
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(first.exists() && !killed.join("results.json").exists());
    let made = std::fs::metadata(&first).unwrap().modified().unwrap();
    assert!(study(&killed).status().unwrap().success());
    assert_eq!(tables(&killed), tables(&whole));
    assert_eq!(std::fs::metadata(&first).unwrap().modified().unwrap(), made);
    let page = std::fs::read_to_string(killed.join("results.html")).unwrap();
    assert!(page.contains("TRAPO-HAPO, m = 0, annealed") && page.matches("<table>").count() == 3);
}
