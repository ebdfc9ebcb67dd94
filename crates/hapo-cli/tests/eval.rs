//! `hapo eval` as a program: a server asked, a record resumed, evaluations next to each other.

#[path = "../../hapo-teacher/tests/support/mod.rs"]
mod server;
mod support;

use std::fs;

use server::{Mood, Server, prompts};
use support::{hapo, refuse, succeed};

#[test]
fn a_server_is_evaluated_and_a_cut_record_is_resumed() {
    let dir = tempfile::tempdir().unwrap();
    hapo_data::write_file(&dir.path().join("sums.jsonl"), &prompts(12)).unwrap();
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
        "error: cut.jsonl was started with other settings: model was \"sums\", is \"other\"\n\
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
        ],
    );
    assert_eq!(
        message,
        "error: before.jsonl was started with other settings: extraction was nothing, is \"announced\"; truncated was nothing, is \"wrong\"\n\
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
    hapo_data::write_file(&dir.path().join("aime_2024.jsonl"), &prompts(29)).unwrap();
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
