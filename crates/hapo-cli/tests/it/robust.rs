//! Files that must not be lost, secrets that must not leak, errors that must be said.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::server::{Mood, Server, prompts};
use crate::support::{hapo, refuse, succeed};

const ROWS: &str = "{\"id\":\"a\",\"problem\":\"1+1?\",\"answer\":\"2\"}\n{\"id\":\"b\",\"problem\":\"\",\"answer\":\"2\"}\n";

#[test]
fn an_output_that_is_the_input_is_refused_under_any_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = |it: &str| dir.path().join(it);
    fs::write(path("p.jsonl"), ROWS).unwrap();
    fs::hard_link(path("p.jsonl"), path("hard.jsonl")).unwrap();
    fs::hard_link(path("p.jsonl"), path("o.jsonl.journal")).unwrap();
    std::os::unix::fs::symlink("p.jsonl", path("soft.jsonl")).unwrap();
    let teacher = ["teacher", "--input", "p.jsonl", "--endpoint", "http://127.0.0.1:1/v1"];
    let teacher = [&teacher[..], &["--model", "m"]].concat();
    for output in ["p.jsonl", "./p.jsonl", "hard.jsonl", "soft.jsonl"] {
        let check = ["data", "check", "p.jsonl", "--drop-bad", "-o", output];
        let convert = ["data", "convert", "p.jsonl", "--to", "own", "-o", output];
        let teacher = [&teacher[..], &["--only-admitted", "-o", output]].concat();
        for arguments in [&check[..], &convert, &teacher] {
            let message = refuse(dir.path(), arguments);
            let expected = format!("error: the output {output} is the input p.jsonl\n");
            assert!(message.starts_with(&expected), "{message}");
        }
    }
    let message = refuse(dir.path(), &[&teacher[..], &["--fresh", "-o", "o.jsonl"]].concat());
    assert!(message.contains("the output o.jsonl.journal is the input"), "{message}");
    assert_eq!(fs::read_to_string(path("p.jsonl")).unwrap(), ROWS);
}

fn teacher(folder: &Path, server: &Server, more: &[&str]) -> Output {
    Command::new(crate::support::binary())
        .current_dir(folder)
        .args(["teacher", "--input", "prompts.jsonl", "--model", "sums", "-o", "o.jsonl"])
        .args(["--endpoint", &server.endpoint, "--attempts", "1", "--retries", "0"])
        .args(more)
        .env("TEACHER_KEY", "sk-secret/1")
        .env_remove("OPENAI_API_KEY")
        .output()
        .unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_teacher_that_gets_nothing_fails_with_the_reason_and_without_the_key() {
    let dir = tempfile::tempdir().unwrap();
    hapo_data::write_file(&dir.path().join("prompts.jsonl"), &prompts(3)).unwrap();
    let echoed = r#"{"error":{"message":"no credit for Bearer sk-secret\/1"}}"#;
    let server = Server::start(Mood::Always(200, echoed, None));
    let done = teacher(dir.path(), &server, &["--api-key-env", "TEACHER_KEY"]);
    assert_eq!(done.status.code(), Some(1), "{}", stderr(&done));
    assert!(
        stderr(&done).contains(
            "error: all 3 attempts failed, the last with: an error in a good answer: {\"message\":\"no credit for Bearer ***\"}"
        ),
        "{}",
        stderr(&done)
    );
    let journal = fs::read_to_string(dir.path().join("o.jsonl.journal")).unwrap();
    assert_eq!(journal.matches("Bearer ***").count(), 3);
    assert!(!journal.contains("secret"), "{journal}");

    let unset = teacher(dir.path(), &server, &["--api-key-env", "NO_SUCH_KEY"]);
    assert_eq!(unset.status.code(), Some(2));
    assert!(
        stderr(&unset)
            .starts_with("error: --api-key-env: the environment variable NO_SUCH_KEY is not set\n")
    );

    // The failed attempts are made again, but for a line that was damaged: it is made again anyway.
    let mut bytes = fs::read(dir.path().join("o.jsonl.journal")).unwrap();
    let second = bytes.iter().position(|it| *it == b'\n').unwrap() + 5;
    bytes[second] = 0xff;
    fs::write(dir.path().join("o.jsonl.journal"), bytes).unwrap();
    server.set(Mood::Calm);
    let mended = teacher(dir.path(), &server, &[]);
    assert_eq!(mended.status.code(), Some(0), "{}", stderr(&mended));
    assert!(stderr(&mended).contains("o.jsonl.journal: 1 line cannot be read (the first is 2)"));
    assert_eq!(server.requests(), 1);
}

/// A server that stops an answer for its content has not given it whole, whatever is in it.
#[test]
fn an_answer_that_a_content_filter_ended_is_no_trace() {
    const WHOLE: &str = r#"{"choices":[{"message":{"role":"assistant","content":"So it is \\boxed{7}."},"finish_reason":"stop"}]}"#;
    const FILTERED: &str = r#"{"choices":[{"message":{"role":"assistant","content":"So it is \\boxed{7}."},"finish_reason":"content_filter"}]}"#;
    for (body, traces) in [(WHOLE, 1), (FILTERED, 0)] {
        let dir = tempfile::tempdir().unwrap();
        hapo_data::write_file(&dir.path().join("prompts.jsonl"), &prompts(1)).unwrap();
        let server = Server::start(Mood::Always(200, body, None));
        let done = teacher(dir.path(), &server, &[]);
        let said = String::from_utf8(done.stdout).unwrap();
        assert!(said.contains(&format!("o.jsonl: traces for {traces} of 1 prompt")), "{said}");
        let journal = fs::read_to_string(dir.path().join("o.jsonl.journal")).unwrap();
        assert!(journal.contains("boxed{7}"), "{journal}");
    }
}

#[test]
fn counts_have_bounds() {
    let dir = tempfile::tempdir().unwrap();
    let generate = ["generate", "--model", "builtin:base", "1+1=?"];
    let eval = ["eval", "--model", "builtin:base", "--suite", "mini6"];
    for (command, option, most) in
        [(&generate[..], "--threads", "1024"), (&generate, "-n", "65536"), (&eval, "--k", "65536")]
    {
        for value in ["0", "1000000000"] {
            let message = refuse(dir.path(), &[command, &[option, value]].concat());
            assert!(message.contains(&format!("{value} is not in 1..={most}")), "{message}");
        }
    }
}

/// Every request would be refused.
#[test]
fn a_server_without_room_for_a_request_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let message =
        refuse(dir.path(), &["serve", "--model", "builtin:base", "--max-tokens-total", "127"]);
    let expected =
        "invalid value '127' for '--max-tokens-total <MAX_TOKENS_TOTAL>': expected at least 128";
    assert!(message.contains(expected), "{message}");
}

/// With 1.5 GB of address space there is no room for the keys and values of these responses.
#[cfg(target_os = "linux")]
#[test]
fn what_is_too_much_for_the_memory_is_told_what_to_lower() {
    let limited = |args: &[&str]| {
        let dir = tempfile::tempdir().unwrap();
        let done = Command::new("bash")
            .current_dir(dir.path())
            .args([
                "-c",
                "ulimit -v 1500000; exec \"$0\" --threads 1 \"$@\"",
                env!("CARGO_BIN_EXE_hapo"),
            ])
            .args(args)
            .output()
            .unwrap();
        assert_eq!(done.status.code(), Some(2), "{}", stderr(&done));
        let said = stderr(&done);
        assert!(said.contains("error: no memory for a buffer of "), "{said}");
        said
    };
    // `auto` takes what the limit leaves.
    let sets = ["--set", "sampling.max_new_tokens=60000", "--set", "metrics.preflight=0"];
    let size = ["--set", "sampling.kv_memory=6GB"];
    let said = limited(&[&["train", "builtin:smoke"], &sets[..], &size].concat());
    assert!(
        said.contains(
            "hint: lower sampling.kv_memory, sampling.max_sequences or sampling.max_new_tokens"
        ),
        "{said}"
    );
    let said = limited(&[
        "generate",
        "--model",
        "builtin:base",
        "1+1=?",
        "-n",
        "64",
        "--max-tokens",
        "60000",
        "--kv-memory",
        "6GB",
    ]);
    assert!(said.contains("hint: lower --kv-memory, --max-tokens or -n"), "{said}");
}

/// Pages of 131,072 bytes: 24 completions of at most 100 tokens and their prompt can take 49.
#[test]
fn memory_of_keys_and_values_changes_no_completion() {
    let dir = tempfile::tempdir().unwrap();
    let generate = ["generate", "--model", "builtin:base", "123456*7=?", "-n", "24"];
    let generate =
        [&generate[..], &["--max-tokens", "100", "--temperature", "2", "--json"]].concat();
    let ample = succeed(dir.path(), &generate);
    let little = succeed(dir.path(), &[&generate[..], &["--kv-memory", "700kB"]].concat());
    assert!(ample == little && ample.lines().count() == 24);
    for (size, expected) in [
        ("390kB", "error: kv_memory: one sequence of "),
        ("6", "expected `auto` or a size such as `6GB` or `512MiB`, got `6`"),
    ] {
        let message = refuse(dir.path(), &[&generate[..], &["--kv-memory", size]].concat());
        assert!(message.contains(expected), "{message}");
    }
}

/// No teacher enters a group of GRPO: that one is not admitted is nothing to warn of.
#[test]
fn teachers_that_are_never_used_are_not_warned_about() {
    let dir = tempfile::tempdir().unwrap();
    let row = |id: &str, teacher: &str| {
        format!(
            "{{\"id\":\"{id}\",\"problem\":\"1+{id}=?\",\"answer\":\"{id}\",\"teacher\":\"{teacher}\"}}\n"
        )
    };
    fs::write(dir.path().join("d.jsonl"), row("1", "no answer") + &row("2", "no answer")).unwrap();
    let recipe = "steps = 1\nmodel.path = \"builtin:base\"\ndata.train = \"d.jsonl\"\n\
        sampling = { prompts_per_step = 2, group_size = 2, max_new_tokens = 4 }\n";
    for (method, warned) in [
        ("method = \"grpo\"\n", false),
        ("method = \"luffy\"\nhapo = { gate = \"never\" }\n", false),
        ("method = \"luffy\"\n", true),
    ] {
        fs::write(dir.path().join("r.toml"), method.to_owned() + recipe).unwrap();
        let run = format!("run-{}", method.len());
        let done = hapo(dir.path(), &["train", "r.toml", "--no-preflight", "--run-dir", &run]);
        assert!(done.status.success(), "{}", stderr(&done));
        let said = stderr(&done).contains("2 teacher trajectories are not admitted");
        assert_eq!(said, warned, "{method}: {}", stderr(&done));
    }
}

#[test]
fn a_teacher_says_that_it_waits_and_how_long() {
    let dir = tempfile::tempdir().unwrap();
    hapo_data::write_file(&dir.path().join("prompts.jsonl"), &prompts(1)).unwrap();
    let server = Server::start(Mood::Always(429, "{}", Some(("retry-after", "2"))));
    let mut child = Command::new(crate::support::binary())
        .current_dir(dir.path())
        .args(["teacher", "--input", "prompts.jsonl", "--model", "sums", "-o", "o.jsonl"])
        .args(["--endpoint", &server.endpoint, "--attempts", "1"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut lines = std::io::BufReader::new(child.stderr.take().unwrap());
    while !said.contains("waiting") {
        assert!(std::io::BufRead::read_line(&mut lines, &mut said).unwrap() > 0, "{said}");
    }
    assert!(said.ends_with("waiting 2 s: status 429: {}\n"), "{said}");
    child.kill().unwrap();
    child.wait().unwrap();
}

fn grade(input: &[u8], more: &[&str]) -> Output {
    let mut child = Command::new(crate::support::binary())
        .arg("grade")
        .args(more)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn grade_reads_what_models_and_editors_write() {
    // A byte order mark before the first row, and a half of a surrogate pair.
    let input = "\u{feff}{\"gold\":\"2\",\"pred\":\"\\\\boxed{2}\"}\n{\"gold\":\"3\",\"pred\":\"\\ud83d \\\\boxed{3}\"}\n";
    let done = grade(input.as_bytes(), &[]);
    assert!(done.status.success(), "{}", stderr(&done));
    assert!(stderr(&done).contains("2 rows: 2 correct, 0 wrong, 0 unparsable, 0 malformed"));
    // Only before the first row.
    let twice = grade(["\u{feff}", input, input].concat().as_bytes(), &[]);
    assert_eq!(twice.status.code(), Some(2));
}

#[test]
fn explanations_do_not_move_the_cursor() {
    let input = r#"{"id":"\u001b]0;x","gold":"2","pred":"\\boxed{\u001b[2J3}"}"#;
    let done = grade(input.as_bytes(), &["--explain"]);
    let text = String::from_utf8(done.stdout).unwrap();
    assert!(text.contains("extracted  \u{fffd}[2J3\n"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
}

#[test]
fn a_problem_with_two_answers_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let row = |answer: u32| format!("{{\"problem\":\"1+1?\",\"answer\":\"{answer}\"}}\n");
    fs::write(dir.path().join("two.jsonl"), row(2) + &row(3)).unwrap();
    let said = stderr(&hapo(dir.path(), &["data", "check", "two.jsonl"]));
    let expected = "warning: 1 problem has different answers in different rows, the first: 1+1?";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn half_a_surrogate_pair_in_a_data_file_is_no_bad_row() {
    let dir = tempfile::tempdir().unwrap();
    let row = r#"{"id":"a","problem":"1+1? \ud800","answer":"2"}"#;
    fs::write(dir.path().join("lines.jsonl"), row).unwrap();
    fs::write(dir.path().join("array.json"), format!("[{row}]")).unwrap();
    for file in ["lines.jsonl", "array.json"] {
        let done = hapo(dir.path(), &["data", "check", file]);
        assert!(stderr(&done).ends_with("1 row, none bad\n"), "{}", stderr(&done));
        succeed(dir.path(), &["data", "convert", file, "--to", "own", "-o", "o.jsonl"]);
        let written = fs::read_to_string(dir.path().join("o.jsonl")).unwrap();
        assert!(written.contains("\"1+1? \u{fffd}\""), "{written}");
    }
}

/// JSON has no place for such a path: its text is printed, with a replacement character.
#[cfg(target_os = "linux")]
#[test]
fn a_path_that_is_no_utf_8_is_text_in_json() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().unwrap();
    let odd = OsStr::from_bytes(b"odd-\xff");
    hapo_data::write_file(&dir.path().join("prompts.jsonl"), &prompts(1)).unwrap();
    fs::create_dir(dir.path().join(odd)).unwrap();
    let metrics = "{\"step\":1,\"reward/policy_only\":0.5}\n";
    fs::write(dir.path().join(odd).join("metrics.jsonl"), metrics).unwrap();
    let server = Server::start(Mood::Calm);
    let said = |arguments: &[&str], paths: &[&OsStr]| -> serde_json::Value {
        let mut command = Command::new(crate::support::binary());
        command.current_dir(dir.path()).args(arguments).args(paths);
        let done = command.output().unwrap();
        assert!(done.status.success(), "{arguments:?}: {}", stderr(&done));
        serde_json::from_slice(&done.stdout).unwrap()
    };
    assert_eq!(said(&["runs", "--json"], &[odd])[0]["path"], "odd-\u{fffd}");
    let page = OsStr::from_bytes(b"page-\xff");
    let report = said(&["report", "--json", "--figures", "figures", "-o"], &[page, odd]);
    assert_eq!(report["page"], "page-\u{fffd}");
    let convert = ["data", "convert", "prompts.jsonl", "--to", "own", "--json", "-o"];
    assert_eq!(said(&convert, &[OsStr::from_bytes(b"rows-\xff")])["output"], "rows-\u{fffd}");
    let teacher = ["teacher", "--input", "prompts.jsonl", "--model", "sums", "--attempts", "1"];
    let teacher = [&teacher[..], &["--endpoint", &server.endpoint, "--json", "-o"]].concat();
    assert_eq!(said(&teacher, &[page])["output"], "page-\u{fffd}");
}
