//! `hapo chat`, by its standard input.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{repository, succeed};

/// The answers to these lines, and the messages.
fn chat(folder: &Path, model: &str, lines: &str) -> (String, String) {
    let mut child = Command::new(crate::support::binary())
        .args(["chat", "--model", model, "--temperature", "0", "--max-tokens", "12"])
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (answers, said) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{said}");
    (answers, said)
}

/// Without turns each line is answered as `hapo generate` answers it.
#[test]
fn lines_are_problems_where_the_template_has_no_turns() {
    let dir = tempfile::tempdir().unwrap();
    let (answers, said) = chat(dir.path(), "builtin:base", "12+13=?\n\n7*8=?\n");
    let generate = |problem: &str| {
        let args = ["generate", "--model", "builtin:base", problem, "--temperature", "0"];
        succeed(dir.path(), &[&args[..], &["--max-tokens", "12"]].concat())
    };
    assert_eq!(answers, generate("12+13=?") + &generate("7*8=?"));
    assert!(said.contains("has no turns: each line is a problem of its own"), "{said}");
}

/// The second answer is that to the whole conversation.
#[test]
fn a_conversation_is_rendered_by_the_models_own_template() {
    let dir = tempfile::tempdir().unwrap();
    let model = repository("testdata/fixtures/models/tiny-qwen3").display().to_string();
    let (first, _) = chat(dir.path(), &model, "Say one.\n");
    let (both, _) = chat(dir.path(), &model, "Say one.\nSay two.\n");
    let second = both.strip_prefix(&first).expect("the first turn is that of one turn");
    let answer = first.strip_suffix('\n').unwrap();
    let turns = serde_json::json!({"answer": "2", "prompt": [
        {"role": "user", "content": "Say one."},
        {"role": "assistant", "content": answer},
        {"role": "user", "content": "Say two."},
    ]});
    std::fs::write(dir.path().join("turns.jsonl"), format!("{turns}\n")).unwrap();
    let args = ["generate", "--model", &model, "--input", "turns.jsonl", "--temperature", "0"];
    assert_eq!(second, succeed(dir.path(), &[&args[..], &["--max-tokens", "12"]].concat()));
}
