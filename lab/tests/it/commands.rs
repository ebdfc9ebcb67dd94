//! The commands of `hapo-lab`: those that pages name exist, and bad input is refused by name.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn lab(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hapo-lab")).args(args).env("NO_COLOR", "1").output().unwrap()
}

/// Runs `hapo-lab`, expects exit code 2 and gives the message.
fn refuse(args: &[&str]) -> String {
    let output = lab(args);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
    message
}

#[test]
fn a_gpu_that_is_not_there_is_bad_input_with_a_hint() {
    let message = refuse(&["bench", "--shape", "bench-tiny", "--device", "cuda:4095"]);
    assert!(message.starts_with("error: --device cuda:4095: "), "{message}");
    assert!(message.contains("\nhint: "), "{message}");
}

#[test]
fn shapes_that_no_cpu_is_measured_with_say_so() {
    assert_eq!(
        refuse(&["bench", "--shape", "qwen2.5-7b"]),
        "error: --shape qwen2.5-7b is measured on a GPU\n\
         hint: add --device cuda:0, or take a smaller shape\n"
    );
}

#[test]
fn names_that_no_table_has_are_refused_with_those_there_are() {
    assert_eq!(
        refuse(&["family", "--only", "table1"]),
        "error: expected a table of the family, got `table1`\n\
         hint: tables are 0-exact, 0-repeated, 0.1-exact, controls, when, flawed, 0.1-repeated, 5-exact, 5-repeated, others, budgets, 0-repeated-tuned, 0.1-repeated-tuned, pilot, methods\n"
    );
    assert!(refuse(&["family", "--model", "x"]).contains("expected --model and --data together"));
    assert!(refuse(&["family", "--rate", "grpo=fast"]).contains("METHOD=VALUE"));
}

/// README.md and every page below docs.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut found, mut folders) = (vec![root.join("README.md")], vec![root.join("docs")]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                found.push(path);
            }
        }
    }
    found
}

/// Each command of a block of code, with `--help` behind it: its options exist.
#[test]
fn every_documented_command_is_understood() {
    let mut understood = 0;
    for path in pages() {
        let page = std::fs::read_to_string(&path).unwrap();
        for block in page.split("```").skip(1).step_by(2) {
            for line in block.replace("\\\n", " ").lines() {
                let command = line.split(" # ").next().unwrap_or_default().trim();
                let Some(words) = command.strip_prefix("hapo-lab ") else { continue };
                let words: Vec<&str> = words.split_whitespace().chain(["--help"]).collect();
                let output = lab(&words);
                let message = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{}: {command}: {message}", path.display());
                understood += 1;
            }
        }
    }
    assert!(understood >= 5, "{understood} commands are documented");
}
