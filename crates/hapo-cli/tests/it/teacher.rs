//! `hapo teacher` as a program: against a server that misbehaves, killed and resumed.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::server::{Mood, Server, prompts};
use crate::support::refuse;

const CONCURRENCY: u32 = 6;

fn teacher(folder: &Path, server: &Server, output: &str) -> Command {
    let mut command = Command::new(crate::support::binary());
    command
        .current_dir(folder)
        .args(["teacher", "--input", "prompts.jsonl", "--model", "sums", "--json"])
        .args(["--endpoint", &server.endpoint, "-o", output])
        .args(["--concurrency", &CONCURRENCY.to_string()])
        .args(["--timeout", "0.5", "--first-wait", "0.002"])
        .args(["--price-in", "1", "--price-out", "4"])
        .env_remove("OPENAI_API_KEY")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs to the end; the summary.
fn finish(mut command: Command) -> serde_json::Value {
    let done = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{stderr}");
    serde_json::from_slice(&done.stdout).unwrap()
}

/// Starts, and kills as soon as the server has given `answers` good answers.
fn kill_after(mut command: Command, server: &Server, answers: u32) {
    let mut child: Child = command.spawn().unwrap();
    while server.answers() < answers {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it could be killed");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

fn write_prompts(folder: &Path, count: usize) {
    crate::eval::write_file(&folder.join("prompts.jsonl"), &prompts(count));
}

#[test]
fn killed_and_resumed_under_a_misbehaving_server_it_ends_as_an_undisturbed_run() {
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), 30);
    let server = Server::start(Mood::Calm);
    let calm = finish(teacher(dir.path(), &server, "calm.jsonl"));
    assert_eq!((&calm["attempts"], &calm["retries"]), (&120.into(), &0.into()));
    assert!(calm["cost"].as_f64().unwrap() > 0.0);

    server.set(Mood::Bad);
    let kills = [1, 15, 16, 60, 100];
    for answers in kills {
        kill_after(teacher(dir.path(), &server, "bad.jsonl"), &server, answers);
        assert!(!dir.path().join("bad.jsonl").exists());
    }
    let bad = finish(teacher(dir.path(), &server, "bad.jsonl"));
    let read = |it: &str| fs::read_to_string(dir.path().join(it)).unwrap();
    assert_eq!(read("bad.jsonl"), read("calm.jsonl"));
    for field in
        ["admitted", "correct", "wrong", "unparsable", "truncated", "leaked", "failed", "cost"]
    {
        assert_eq!(bad[field], calm[field], "{field}");
    }
    assert!(bad["resumed"].as_u64().unwrap() > 90, "{bad}");
    // Nothing is lost, and nothing is asked twice but what was on its way when a kill came.
    let answered = server.answered();
    assert_eq!(answered.len(), 120);
    let twice: u32 = answered.values().map(|it| it - 1).sum();
    assert!(twice <= CONCURRENCY * kills.len() as u32, "{twice} asked twice");

    // Finished: the same command asks nothing and writes the same file.
    let before = server.requests();
    fs::remove_file(dir.path().join("bad.jsonl")).unwrap();
    finish(teacher(dir.path(), &server, "bad.jsonl"));
    assert_eq!((server.requests(), read("bad.jsonl")), (before, read("calm.jsonl")));
}

#[test]
fn teachers_are_admitted_by_what_counts_as_an_answer() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(
        dir.path().join("prompts.jsonl"),
        "{\"id\":\"a\",\"problem\":\"2+5=?\",\"answer\":\"7\"}\n",
    )
    .unwrap();
    let reply = r#"{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"The answer is 7."}}],"usage":{"prompt_tokens":9,"completion_tokens":5}}"#;
    let server = Server::start(Mood::Always(200, reply, None));
    for (rule, admitted) in [(Some("boxed"), 0), (Some("announced"), 1), (None, 1)] {
        let mut command = teacher(dir.path(), &server, &format!("{rule:?}.jsonl"));
        command.args(rule.iter().flat_map(|it| ["--extraction", it]));
        let it = finish(command);
        assert_eq!(it["admitted"], admitted, "{rule:?}: {it}");
    }
}

/// As servers with a parser of thoughts answer; the output is read as a teacher's row again.
#[test]
fn a_thought_that_a_server_keeps_apart_is_a_part_of_the_solution() {
    let dir = tempfile::tempdir().unwrap();
    let row = "{\"id\":\"a\",\"problem\":\"2+5=?\",\"answer\":\"7\"}\n";
    fs::write(dir.path().join("prompts.jsonl"), row).unwrap();
    let reply = |thought: &str| {
        let message = format!(r#"{{"role":"assistant",{thought}"content":"It is \\boxed{{7}}."}}"#);
        format!(r#"{{"choices":[{{"index":0,"finish_reason":"stop","message":{message}}}]}}"#)
    };
    let whole = "<think>\nIs it \\boxed{8}?\n</think>\n\nIt is \\boxed{7}.";
    for (key, expected) in [
        ("reasoning_content", whole),
        ("reasoning", whole),
        ("thinking", whole),
        ("notes", "It is \\boxed{7}."),
    ] {
        let reply = reply(&format!(r#""{key}":"Is it \\boxed{{8}}?","#));
        let server = Server::start(Mood::Always(200, reply.leak(), None));
        let output = format!("{key}.jsonl");
        // The second time it is read from the journal.
        for _ in 0..2 {
            let it = finish(teacher(dir.path(), &server, &output));
            assert_eq!(it["admitted"], 1, "{key}: {it}");
            let written = fs::read_to_string(dir.path().join(&output)).unwrap();
            let written: serde_json::Value = serde_json::from_str(written.trim()).unwrap();
            assert_eq!(written["teacher"], expected, "{key}");
        }
    }
}

/// Pays for rows with the field alone.
const READS_TESTS: &str = r#"command:while read -r line; do case "$line" in *'"tests":["x"]'*) echo 1;; *) echo 0;; esac; done"#;

#[test]
fn a_custom_reward_finds_its_fields_in_the_output() {
    let dir = tempfile::tempdir().unwrap();
    let prompts = dir.path().join("prompts.jsonl");
    let row = r#"{"id":"a","problem":"What is 2 + 5?","answer":7,"tests":["x"]}"#;
    fs::write(&prompts, row).unwrap();
    let server = Server::start(Mood::Calm);
    for output in ["first.jsonl", "second.jsonl"] {
        let mut command = teacher(dir.path(), &server, output);
        command.args(["--grader", READS_TESTS]);
        let it = finish(command);
        assert_eq!(it["admitted"], 1, "{output}: {it}");
        // The output is the next input.
        fs::copy(dir.path().join(output), &prompts).unwrap();
    }
    let written = fs::read_to_string(&prompts).unwrap();
    assert!(
        written.contains(r#""answer":7,"#) && written.contains(r#""tests":["x"]"#),
        "{written}"
    );
}

#[test]
fn only_one_process_writes_an_output() {
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), 4);
    let server = Server::start(Mood::Slow(100));
    let mut first = teacher(dir.path(), &server, "o.jsonl").spawn().unwrap();
    while server.requests() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let second = teacher(dir.path(), &server, "o.jsonl").output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert_eq!(
        String::from_utf8(second.stderr).unwrap(),
        "error: o.jsonl.journal is in use by another process\nhint: wait for it, or choose another --output\n"
    );
    assert!(first.wait().unwrap().success());
    assert_eq!(server.answers(), 16);
}

#[test]
fn other_settings_and_a_wrong_key_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), 2);
    let server = Server::start(Mood::Calm);
    finish(teacher(dir.path(), &server, "o.jsonl"));
    let refused = |arguments: &[&str]| {
        let done = teacher(dir.path(), &server, "o.jsonl").args(arguments).output().unwrap();
        assert_eq!(done.status.code(), Some(2));
        String::from_utf8(done.stderr).unwrap()
    };
    assert_eq!(
        refused(&["--temperature", "1", "--prompt", "plain"]),
        "error: o.jsonl.journal was started with other settings: prompt was \"conditioned\", is \"plain\"; temperature was 0.7, is 1.0\n\
         hint: use the settings it was started with, or another --output, or --fresh to start afresh\n"
    );
    server.require("sk-right");
    let message = refused(&["--fresh"]);
    assert!(
        message.contains("refuses with status 401: Incorrect API key\nhint: set the key"),
        "{message}"
    );
    let mut with_key = teacher(dir.path(), &server, "o.jsonl");
    with_key.env("TEACHER_KEY", "sk-right").args(["--api-key-env", "TEACHER_KEY"]);
    finish(with_key);
}

#[test]
fn bad_arguments_are_named() {
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), 2);
    let check = |arguments: &[&str], expected: &str| {
        let all = ["teacher", "--input", "prompts.jsonl", "--model", "m", "-o", "o.jsonl"];
        let message = refuse(dir.path(), &[&all, arguments].concat());
        assert!(message.starts_with(expected), "{message}");
    };
    let url = ["--endpoint", "http://127.0.0.1:9/v1"];
    check(&["--endpoint", "localhost"], "error: endpoint `…`: expected an http(s) address");
    check(&[url[0], url[1], "--attempts", "0"], "error: invalid value '0' for '--attempts <K>'");
    check(
        &[url[0], url[1], "--temperature", "NaN"],
        "error: invalid value 'NaN' for '--temperature <TEMPERATURE>': expected a number from 0",
    );
    check(
        &[url[0], url[1], "--extra", "[]"],
        "error: --extra: expected KEY=VALUE or a JSON object, got []",
    );
    check(
        &[url[0], url[1], "--resume"],
        "error: nothing to resume: o.jsonl.journal does not exist",
    );
    check(&[url[0], url[1], "--tokenizer", "none"], "error: cannot open none");
    fs::write(
        dir.path().join("prompts.jsonl"),
        "{\"id\":\"a\",\"problem\":\"p\",\"answer\":\"\\\\boxed{}\"}\n",
    )
    .unwrap();
    check(&url, "error: the grader cannot read the gold answer `\\boxed{}` (row 1, id a)");
}

#[test]
fn a_tokenizer_limits_traces() {
    let dir = tempfile::tempdir().unwrap();
    write_prompts(dir.path(), 4);
    let server = Server::start(Mood::Calm);
    let run = |limit: &str, rule: &str| {
        let mut command = teacher(dir.path(), &server, "o.jsonl");
        command.args(["--rule", rule, "--max-trace-tokens", limit, "--tokenizer"]);
        command.arg(crate::support::repository("models/base"));
        finish(command)
    };
    let all = run("96", "all-correct");
    assert!(all["correct"].as_u64() > Some(0), "{all}");
    // The same answers, judged anew.
    let none = run("2", "shortest-correct");
    assert_eq!(
        (&none["resumed"], &none["admitted"], &none["correct"]),
        (&all["attempts"], &0.into(), &0.into())
    );
    let were = ["correct", "too_long"].map(|it| all[it].as_u64().unwrap());
    assert_eq!(none["too_long"], were[0] + were[1]);
}
