//! `hapo eval` as a program: a server asked, a record resumed, evaluations next to each other.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;

use crate::server::{Mood, Server, prompts};
use crate::support::{hapo, refuse, repository, succeed};

#[test]
fn a_server_is_evaluated_and_a_cut_record_is_resumed() {
    let dir = tempfile::tempdir().unwrap();
    write_file(&dir.path().join("sums.jsonl"), &prompts(12));
    let server = Server::start(Mood::Calm);
    let run = |out: &str| {
        let fixed = ["eval", "--model", "sums", "--data", "sums.jsonl", "--k", "4", "--json"];
        let arguments = ["--endpoint", &server.endpoint, "--out", out];
        succeed(dir.path(), &[&fixed[..], &arguments].concat())
    };
    let whole = run("whole.jsonl");
    assert_eq!(server.answers(), 48);
    let scores: serde_json::Value = serde_json::from_str(&whole).unwrap();
    let it = &scores[0];
    assert_eq!((&it["problems"], &it["k"]), (&12.into(), &4.into()));
    let (low, mean, high) = (&it["average"]["low"], &it["average"]["mean"], &it["average"]["high"]);
    assert!(low.as_f64() < mean.as_f64() && mean.as_f64() < high.as_f64(), "{it}");
    assert!(it["truncated"].as_f64() > Some(0.0) && it["no_answer"].as_f64() > Some(0.0), "{it}");

    // Half of the record is asked again, and gives the same scores.
    let text = fs::read(dir.path().join("whole.jsonl")).unwrap();
    fs::write(dir.path().join("cut.jsonl"), &text[..text.len() / 2]).unwrap();
    server.set(Mood::Calm);
    assert_eq!(run("cut.jsonl"), whole);
    assert!((20..=28).contains(&server.answers()), "{}", server.answers());
    server.set(Mood::Calm);
    assert_eq!(run("cut.jsonl"), whole);
    assert_eq!(server.answers(), 0);
    let said = |more: &[&str]| {
        let fixed = ["eval", "--model", "sums", "--data", "sums.jsonl", "--k", "4", "--json"];
        let server = ["--endpoint", &server.endpoint, "--out", "cut.jsonl"];
        hapo(dir.path(), &[&fixed[..], &server, more].concat()).stderr
    };
    assert!(!said(&[]).is_empty());
    assert_eq!(said(&["--quiet"]), b"");

    // A record of other settings is refused.
    let message = refuse(
        dir.path(),
        &[
            "eval",
            "--model",
            "other",
            "--data",
            "sums.jsonl",
            "--k",
            "4",
            "--endpoint",
            &server.endpoint,
            "--out",
            "cut.jsonl",
        ],
    );
    assert_eq!(
        message,
        "grader `training`, extraction `announced`\nerror: cut.jsonl was started with other settings: model was \"sums\", is \"other\"\n\
         hint: use the settings it was started with, or another --out\n"
    );
}

/// A server that always says this.
fn says(text: &str, finish: &str) -> Mood {
    let reply = serde_json::json!({ "choices": [{ "index": 0, "finish_reason": finish,
        "message": { "role": "assistant", "content": text } }], "usage": { "completion_tokens": 9 } });
    Mood::Always(200, Box::leak(reply.to_string().into_boxed_str()), None)
}

#[test]
fn what_counts_as_an_answer_and_what_becomes_of_a_cut_one_are_chosen() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("seven.jsonl"), "{\"problem\":\"2+5=?\",\"answer\":\"7\"}\n")
        .unwrap();
    let server = Server::start(Mood::Calm);
    let run = |more: &[&str]| {
        let fixed = ["eval", "--model", "m", "--data", "seven.jsonl", "--k", "2", "--json"];
        let fixed = [&fixed[..], &["--grader", "math"]].concat();
        let printed =
            succeed(dir.path(), &[&fixed[..], &["--endpoint", &server.endpoint], more].concat());
        let scores: serde_json::Value = serde_json::from_str(&printed).unwrap();
        (scores[0]["average"]["mean"].as_f64().unwrap(), scores[0]["no_answer"].as_f64().unwrap())
    };
    for (text, right) in [
        ("So it is \\boxed{7}.", [true, true, true]),
        ("The answer is 7.", [false, true, true]),
        ("2 + 5 = 7, and then", [false, false, true]),
    ] {
        server.set(says(text, "stop"));
        for (rule, right) in ["boxed", "announced", "any"].into_iter().zip(right) {
            let (mean, no_answer) = run(&["--extraction", rule]);
            let expected = f64::from(u8::from(right));
            assert_eq!((mean, no_answer), (expected, 1.0 - expected), "{text} by {rule}");
        }
        assert_eq!(run(&[]).0, f64::from(u8::from(right[1])), "{text} by default");
        server.set(says(text, "length"));
        assert_eq!(run(&["--extraction", "any"]), (0.0, 1.0), "cut off: {text}");
        assert_eq!(run(&["--extraction", "any", "--truncated", "grade"]), (1.0, 0.0), "{text}");
    }

    // A record of a time before these were chosen is of other settings.
    run(&["--out", "now.jsonl"]);
    let now = fs::read_to_string(dir.path().join("now.jsonl")).unwrap();
    let before =
        now.replace("\"extraction\":\"announced\",", "").replace("\"truncated\":\"wrong\",", "");
    let before = before.replace(",\"truncated\":\"wrong\"", "");
    assert!(before.len() < now.len());
    fs::write(dir.path().join("before.jsonl"), &before).unwrap();
    let message = refuse(
        dir.path(),
        &[
            "eval",
            "--model",
            "m",
            "--data",
            "seven.jsonl",
            "--k",
            "2",
            "--endpoint",
            &server.endpoint,
            "--out",
            "before.jsonl",
            "--grader",
            "math",
        ],
    );
    assert_eq!(
        message,
        "grader `math`, extraction `announced`\nerror: before.jsonl was started with other settings: extraction was nothing, is \"announced\"; truncated was nothing, is \"wrong\"\n\
         hint: use the settings it was started with, or another --out\n"
    );
    assert_eq!(fs::read_to_string(dir.path().join("before.jsonl")).unwrap(), before);
}

#[test]
fn local_evaluations_stand_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    for (seed, out) in [("0", "LUFFY.jsonl"), ("1", "hapo.jsonl")] {
        let arguments =
            ["eval", "--model", "builtin:base", "--suite", "add-5,linear-4", "--problems", "10"];
        let printed =
            succeed(dir.path(), &[&arguments[..], &["--seed", seed, "--out", out]].concat());
        assert!(printed.contains("maj@k") && printed.contains("linear-4"), "{printed}");
    }
    let record = fs::read_to_string(dir.path().join("LUFFY.jsonl")).unwrap();
    assert!(record.lines().next().unwrap().contains("\"temperature\":0.6,"), "{record}");
    let table = succeed(
        dir.path(),
        &["eval", "--compare", "LUFFY.jsonl", "LUFFY-HAPO=hapo.jsonl", "--layout", "markdown"],
    );
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0], "| Method | add-5 | linear-4 | Avg Acc |");
    assert!(lines[2].starts_with("| LUFFY | ") && !lines[2].contains('('), "{table}");
    assert!(
        lines[3].starts_with("| LUFFY-HAPO | ") && lines[3].matches('(').count() == 3,
        "{table}"
    );
}

#[test]
fn scores_depend_neither_on_sequences_at_once_nor_on_the_other_benchmarks() {
    let dir = tempfile::tempdir().unwrap();
    let scores = |suite: &str, more: &[&str]| -> serde_json::Value {
        let fixed = ["eval", "--model", "builtin:base", "--problems", "6", "--json", "--suite"];
        let printed = succeed(dir.path(), &[&fixed[..], &[suite], more].concat());
        serde_json::from_str(&printed).unwrap()
    };
    let alone = scores("linear-4", &[]);
    assert_eq!(scores("linear-4", &["--max-sequences", "1"]), alone);
    assert_eq!(scores("linear-4", &["--max-sequences", "5"]), alone);
    assert_eq!(scores("multiply-6,linear-4", &[])[1], alone[0]);
}

/// Two benchmarks with the same problems: the same file under two names, and once as a file.
#[test]
fn benchmarks_share_no_draws_and_a_file_keeps_those_of_key_0() {
    let dir = tempfile::tempdir().unwrap();
    let row = |it: u32| {
        format!("{{\"id\": \"{it}\", \"problem\": \"{it}*7=?\", \"answer\": \"{}\"}}\n", 7 * it)
    };
    let rows: String = (11..41).map(row).collect();
    for name in ["aime_2024.jsonl", "aime_2025.jsonl"] {
        fs::write(dir.path().join(name), &rows).unwrap();
    }
    let run = |more: &[&str], out: &str| {
        let fixed = ["eval", "--model", "builtin:base", "--k", "1", "--max-tokens", "8"];
        succeed(dir.path(), &[&fixed[..], more, &["--temperature", "1", "--out", out]].concat());
        let recorded = hapo_eval::Recorded::read(&dir.path().join(out)).unwrap();
        let of_set = |(name, results): (String, std::collections::BTreeMap<usize, _>)| {
            let texts = results
                .into_values()
                .map(|it: hapo_eval::ProblemResult| it.completions[0].text.clone());
            (name, texts.collect::<Vec<String>>())
        };
        recorded.benchmarks.into_iter().map(of_set).collect::<std::collections::BTreeMap<_, _>>()
    };
    let both = run(&["--suite", "aime24,aime25", "--data", "."], "both.jsonl");
    assert_eq!(both.values().map(Vec::len).collect::<Vec<_>>(), [30, 30]);
    assert_ne!(both["aime24"], both["aime25"]);
    let alone = run(&["--suite", "aime25", "--data", "."], "alone.jsonl");
    assert_eq!(alone["aime25"], both["aime25"]);
}

#[test]
fn the_papers_suite_is_read_from_a_folder_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let message = refuse(dir.path(), &["eval", "--model", "m", "--suite", "math6"]);
    assert_eq!(
        message,
        "error: the problems of math500 are read from a file\nhint: --data names the folder with the benchmarks' files\n"
    );
    write_file(&dir.path().join("aime_2024.jsonl"), &prompts(29));
    let message = refuse(dir.path(), &["eval", "--model", "m", "--suite", "aime24", "--data", "."]);
    assert!(
        message.starts_with(
            "error: ./aime_2024.jsonl: expected the 30 problems of aime24, found 29 in 29 rows\n"
        ),
        "{message}"
    );
}

#[test]
fn none_right_of_eight_has_an_interval_and_the_last_line_names_what_is_next() {
    let dir = tempfile::tempdir().unwrap();
    let row =
        |n: usize| format!("{{\"id\":\"{n}\",\"problem\":\"no {n}?\",\"answer\":\"1{n}.5\"}}\n");
    fs::write(dir.path().join("rows.jsonl"), (0..8).map(row).collect::<String>()).unwrap();
    let eval = [
        "eval",
        "--model",
        "builtin:base",
        "--data",
        "rows.jsonl",
        "--k",
        "1",
        "--max-tokens",
        "4",
    ];
    let it = hapo(dir.path(), &eval);
    assert!(it.status.success());
    let table = String::from_utf8(it.stdout).unwrap();
    assert!(table.contains(" 0.000 [0.000, 0.369] "), "{table}");
    let last = |it: std::process::Output| {
        let messages = String::from_utf8(it.stderr).unwrap();
        messages.lines().last().unwrap_or_default().to_owned()
    };
    assert_eq!(last(hapo(dir.path(), &eval)), "to keep and read the answers: add --out FILE.jsonl");
    let kept = hapo(dir.path(), &[&eval[..], &["--out", "o.jsonl"]].concat());
    let next =
        "every answer is in o.jsonl; to compare models: hapo eval --compare o.jsonl OTHER.jsonl";
    assert_eq!(last(kept), next);
}

#[test]
fn the_options_of_help_are_in_groups() {
    let dir = tempfile::tempdir().unwrap();
    let help = succeed(dir.path(), &["eval", "--help"]);
    for heading in ["Server:", "Problems:", "Sampling:", "Grading:"] {
        assert_eq!(help.lines().filter(|it| *it == heading).count(), 1, "{heading}: {help}");
    }
}

fn copy_folder(from: &str, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(repository(from)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Changes the first number of a file of weights by its last bit.
fn nudge(weights: &Path) {
    let mut bytes = fs::read(weights).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    bytes[8 + header] ^= 1;
    fs::write(weights, bytes).unwrap();
}

#[test]
fn a_record_is_of_the_weights_and_not_of_their_path() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    copy_folder("testdata/fixtures/models/tiny-qwen2", &path("model"));
    copy_folder("testdata/fixtures/lora/tiny-qwen2", &path("adapter"));
    fs::write(path("rows.jsonl"), "{\"problem\":\"1+1?\",\"answer\":\"2\"}\n").unwrap();
    let eval = ["eval", "--model", "model", "--data", "rows.jsonl", "--template", "none"];
    let eval = [&eval[..], &["--k", "1", "--max-tokens", "4", "--json", "--out"]].concat();
    let plain = [&eval[..], &["plain.jsonl"]].concat();
    let adapted = [&eval[..], &["adapted.jsonl", "--adapter", "adapter"]].concat();
    for arguments in [&plain, &adapted] {
        assert_eq!(succeed(dir.path(), arguments), succeed(dir.path(), arguments));
    }
    let settings = |name: &str| hapo_eval::Recorded::read(&path(name)).unwrap().settings;
    assert_eq!(settings("plain.jsonl")["template"].as_str().map(str::len), Some(64));
    assert_ne!(settings("plain.jsonl")["weights"], settings("adapted.jsonl")["weights"]);

    nudge(&path("adapter/adapter_model.safetensors"));
    let message = refuse(dir.path(), &adapted);
    let expected = "adapted.jsonl was started with other settings: weights was ";
    assert!(message.contains(expected), "{message}");
    succeed(dir.path(), &plain);
    nudge(&path("model/model.safetensors"));
    let message = refuse(dir.path(), &plain);
    let expected = "plain.jsonl was started with other settings: weights was ";
    assert!(message.contains(expected), "{message}");
}

#[test]
fn an_unfinished_record_has_no_score_and_another_file_is_none() {
    let dir = tempfile::tempdir().unwrap();
    write_file(&dir.path().join("sums.jsonl"), &prompts(4));
    let server = Server::start(Mood::Calm);
    let eval = ["eval", "--model", "m", "--data", "sums.jsonl", "--out", "whole.jsonl"];
    succeed(dir.path(), &[&eval[..], &["--endpoint", &server.endpoint]].concat());
    let whole = fs::read_to_string(dir.path().join("whole.jsonl")).unwrap();
    let cut: String = whole.split_inclusive('\n').take(3).collect();
    fs::write(dir.path().join("cut.jsonl"), cut).unwrap();
    let compared = hapo(dir.path(), &["eval", "--compare", "whole.jsonl", "cut.jsonl"]);
    assert!(compared.status.success());
    let table = String::from_utf8(compared.stdout).unwrap();
    let last = table.lines().last().unwrap();
    assert_eq!(last.split_whitespace().collect::<Vec<_>>(), ["cut", "-", "-"], "{table}");
    let warned = String::from_utf8(compared.stderr).unwrap();
    let expected = "warning: cut: 2 of 4 problems of sums.jsonl; the score is left out";
    assert!(warned.starts_with(expected), "{warned}");

    let onto_data = ["eval", "--model", "m", "--data", "sums.jsonl", "--out", "sums.jsonl"];
    let onto_data = [&onto_data[..], &["--endpoint", &server.endpoint]].concat();
    for arguments in [&["eval", "--compare", "sums.jsonl"][..], &onto_data] {
        let message = refuse(dir.path(), arguments);
        let hint = "hint: name a file that `hapo eval --out` wrote, or a new one for --out\n";
        assert!(message.ends_with(hint), "{message}");
    }
}

/// A server of one answer, and what it was asked.
fn server_of_one_answer() -> (String, JoinHandle<serde_json::Value>) {
    server_from("nowhere")
}

/// The same, which says that its model `m` is in this folder.
fn server_from(root: &str) -> (String, JoinHandle<serde_json::Value>) {
    const REPLY: &str = r#"{"choices":[{"message":{"role":"assistant","content":"\\boxed{5}"},"finish_reason":"stop"}]}"#;
    let models = serde_json::json!({ "data": [{ "id": "m", "root": root }] }).to_string();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}/v1", listener.local_addr().unwrap());
    let asked = std::thread::spawn(move || {
        loop {
            let (stream, _) = listener.accept().unwrap();
            let (mut from, mut to) = (BufReader::new(&stream), &stream);
            let (mut line, mut length, mut is_get) = (String::new(), 0, false);
            while line != "\r\n" {
                line.clear();
                assert!(from.read_line(&mut line).unwrap() > 0, "the request is cut off");
                is_get |= line.starts_with("GET /v1/models ");
                let header = line.to_ascii_lowercase();
                if let Some(value) = header.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            from.read_exact(&mut body).unwrap();
            let reply = if is_get { &models } else { REPLY };
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n";
            write!(to, "{head}Content-Length: {}\r\n\r\n{reply}", reply.len()).unwrap();
            if !is_get {
                return serde_json::from_slice(&body).unwrap();
            }
        }
    });
    (endpoint, asked)
}

/// vLLM says where it has a model from, and stops at what that folder's files name.
#[test]
fn a_server_whose_model_does_not_stop_is_refused_before_it_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("p.jsonl"), "{\"problem\":\"2+3=?\",\"answer\":\"5\"}\n").unwrap();
    let folder = repository("testdata/fixtures/models/qwen-shaped");
    let named = folder.to_str().unwrap();
    let (endpoint, asked) = server_from(named);
    let eval = ["eval", "--data", "p.jsonl", "--k", "1", "--endpoint", &endpoint, "--model"];
    let said = refuse(dir.path(), &[&eval[..], &["m"]].concat());
    let places = "expected one end token, got three answers: template `chat` ends answers with <|im_end|> (2002), tokenizer_config.json has the eos_token <|endoftext|>, generation_config.json or config.json the eos_token_id [2000]\n";
    assert!(
        said.contains(&format!("{named}: {places}hint: `python -m hapo.ends {named} OUT`")),
        "{said}"
    );
    // Nothing is known of another model of that server.
    succeed(dir.path(), &[&eval[..], &["n"]].concat());
    assert_eq!(asked.join().unwrap()["model"], "n");
    let (endpoint, asked) = server_from(repository("models/base").to_str().unwrap());
    let eval = ["eval", "--data", "p.jsonl", "--k", "1", "--endpoint", &endpoint, "--model", "m"];
    succeed(dir.path(), &eval);
    assert_eq!(asked.join().unwrap()["model"], "m");
}

#[test]
fn a_server_is_asked_with_all_turns_of_a_dialogue() {
    let dir = tempfile::tempdir().unwrap();
    let turn = |role: &str, text: &str| serde_json::json!({ "role": role, "content": text });
    let before = [turn("user", "1+1?"), turn("assistant", "2")];
    let prompt = [&before[..], &[turn("user", "And 3 more?")]].concat();
    let row = serde_json::json!({ "prompt": prompt, "answer": "5" });
    fs::write(dir.path().join("turns.jsonl"), format!("{row}\n")).unwrap();
    let (endpoint, asked) = server_of_one_answer();
    let eval = ["eval", "--model", "m", "--data", "turns.jsonl", "--k", "1", "--json"];
    let more = ["--instruction", "Box it.", "--endpoint", &endpoint];
    let printed = succeed(dir.path(), &[&eval[..], &more].concat());
    let scores: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(scores[0]["average"]["mean"], 1.0);
    let expected = [&before[..], &[turn("user", "And 3 more?\nBox it.")]].concat();
    assert_eq!(asked.join().unwrap()["messages"], serde_json::json!(expected));
}

#[test]
fn waits_for_a_server_are_told_and_one_without_an_answer_has_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    write_file(&dir.path().join("sums.jsonl"), &prompts(1));
    let server = Server::start(Mood::Always(413, "{}", None));
    let eval = ["eval", "--model", "m", "--data", "sums.jsonl", "--k", "1", "--endpoint"];
    let eval = [&eval[..], &[server.endpoint.as_str()]].concat();
    let gone = hapo(dir.path(), &eval);
    assert_eq!(gone.status.code(), Some(1));
    let said = String::from_utf8(gone.stderr).unwrap();
    assert!(said.contains("has no answer for problem 0 after 1 requests: status 413"), "{said}");
    let hint =
        "hint: see what the server says; with --out, the same command resumes where it stopped\n";
    assert!(said.ends_with(hint), "{said}");

    server.set(Mood::Always(429, "{}", Some(("retry-after", "2"))));
    let mut command = Command::new(crate::support::binary());
    command.current_dir(dir.path()).args(&eval).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = String::new();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    while !said.contains("waiting") {
        assert!(lines.read_line(&mut said).unwrap() > 0, "{said}");
    }
    assert!(said.ends_with("waiting 2 s: status 429: {}\n"), "{said}");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A server takes what is left out from the model's own settings, so nothing is; the record holds what was sent.
#[test]
fn a_server_is_sent_what_the_record_says() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("p.jsonl"), "{\"problem\":\"2+3=?\",\"answer\":\"5\"}\n").unwrap();
    let lines = |name: &str| -> serde_json::Value {
        let text = fs::read_to_string(dir.path().join(name)).unwrap();
        serde_json::from_str(text.lines().next().unwrap()).unwrap()
    };
    let (endpoint, asked) = server_of_one_answer();
    let eval = ["eval", "--model", "x", "--data", "p.jsonl", "--k", "1", "--out", "e.jsonl"];
    let extra = ["--extra", "top_k=20", "--extra", "temperature=0.1", "--extra", "max_tokens=null"];
    succeed(dir.path(), &[&eval[..], &extra, &["--endpoint", &endpoint]].concat());
    let (body, record) = (asked.join().unwrap(), lines("e.jsonl")["settings"].clone());
    for (field, value) in [
        ("top_p", serde_json::json!(1.0)),
        ("temperature", serde_json::json!(0.1)),
        ("max_tokens", serde_json::Value::Null),
    ] {
        assert_eq!((&body[field], &record[field]), (&value, &value), "{field}");
    }
    assert_eq!((&body["top_k"], &record["extra"]["top_k"]), (&20.into(), &20.into()));

    let (endpoint, asked) = server_of_one_answer();
    let teacher = ["teacher", "--input", "p.jsonl", "--model", "x", "-o", "t.jsonl"];
    let more =
        ["--attempts", "1", "--extra", "reasoning_effort=high", "--extra", "{\"seed\": null}"];
    succeed(dir.path(), &[&teacher[..], &more, &["--endpoint", &endpoint]].concat());
    let (body, journal) = (asked.join().unwrap(), lines("t.jsonl.journal")["asked"].clone());
    let (fields, trace) = (&body["reasoning_effort"], lines("t.jsonl")["provenance"].clone());
    assert_eq!((fields, &body["seed"]), (&"high".into(), &serde_json::Value::Null));
    for field in ["top_p", "temperature"] {
        assert!(body[field].is_number(), "{body}");
        assert_eq!((&body[field], &body[field]), (&journal[field], &trace[field]), "{field}");
    }
    for extra in ["top_k", "=1", "[1]"] {
        let more = ["--endpoint", "http://127.0.0.1:9/v1", "--extra", extra];
        let message = refuse(dir.path(), &[&eval[..], &more].concat());
        assert!(message.contains("--extra: expected KEY=VALUE or a JSON object"), "{message}");
    }
}

/// Lines come while others are sampled, and a file that was cut off anywhere goes on to the same lines.
#[test]
fn completions_of_a_file_are_written_as_they_come_and_go_on_where_they_ended() {
    let dir = tempfile::tempdir().unwrap();
    let row = |n: usize| format!("{{\"id\":\"p{n}\",\"problem\":\"{n}*7=?\",\"answer\":\"1\"}}\n");
    fs::write(dir.path().join("in.jsonl"), (1..=40).map(row).collect::<String>()).unwrap();
    let generate = ["generate", "--model", "builtin:base", "--input", "in.jsonl", "-n", "2"];
    let generate = [&generate[..], &["--max-tokens", "20", "--stop", "}", "--top-k", "9"]].concat();
    let out = [&generate[..], &["--out", "out.jsonl"]].concat();
    let done = hapo(dir.path(), &out);
    assert!(done.status.success() && done.stdout.is_empty());
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(said.contains("generate 80/80 completions"), "{said}");
    let whole = fs::read_to_string(dir.path().join("out.jsonl")).unwrap();
    let (head, lines) = whole.split_once('\n').unwrap();
    assert!(head.starts_with("{\"hapo_generate\":1,"), "{head}");
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let printed = succeed(dir.path(), &[&generate[..], &["--json"]].concat());
    assert_eq!(sorted(&printed), sorted(lines));
    for cut in [0, head.len() / 2, head.len() + 1, whole.len() / 3, whole.len() - 2] {
        fs::write(dir.path().join("out.jsonl"), &whole[..cut]).unwrap();
        succeed(dir.path(), &out);
        let again = fs::read_to_string(dir.path().join("out.jsonl")).unwrap();
        assert_eq!(sorted(&again), sorted(&whole), "cut at {cut}");
    }
    let other = refuse(dir.path(), &[&out[..], &["--temperature", "0.5"]].concat());
    assert!(other.contains("other settings: temperature was 1.0, is 0.5"), "{other}");
    let onto_input = refuse(dir.path(), &[&generate[..], &["--out", "in.jsonl"]].concat());
    assert!(onto_input.contains("the output in.jsonl is the input"), "{onto_input}");
}

/// Writes rows in our own layout.
pub(crate) fn write_file(path: &Path, dataset: &hapo_data::Dataset) {
    let mut file = std::fs::File::create(path).unwrap();
    dataset.examples.iter().for_each(|it| hapo_data::write_row(&mut file, it).unwrap());
}
