//! `hapo grade` on lines good and bad.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::support::{hapo, refuse, succeed};
use serde_json::{Value, json};

const ROWS: &str = r#"{"id": "half", "gold": "1/2", "pred": "so it is \\boxed{0.5}"}
{"id": "off", "gold": "12", "pred": "so it is \\boxed{13}"}
{"id": 7, "gold": 25, "pred": "the answer is \\boxed{25}."}
{"id": "none", "gold": "3", "pred": "I do not know"}
"#;

fn verdicts(printed: &str) -> Vec<(Value, Value)> {
    printed
        .lines()
        .map(|it| serde_json::from_str::<Value>(it).unwrap())
        .map(|it| (it["id"].clone(), it["verdict"].clone()))
        .collect()
}

fn expected() -> Vec<(Value, Value)> {
    [
        (json!("half"), "correct"),
        (json!("off"), "wrong"),
        (json!(7), "correct"),
        (json!("none"), "unparsable"),
    ]
    .map(|(id, verdict)| (id, json!(verdict)))
    .to_vec()
}

#[test]
fn one_line_per_row_in_order_from_a_file_or_standard_input() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("rows.jsonl"), ROWS).unwrap();
    let printed = succeed(dir.path(), &["grade", "rows.jsonl"]);
    assert_eq!(verdicts(&printed), expected());
    let first: Value = serde_json::from_str(printed.lines().next().unwrap()).unwrap();
    assert_eq!((&first["extracted"], &first["gold_parsed"]), (&json!("0.5"), &json!("1/2")));

    let mut child = Command::new(crate::support::binary())
        .args(["grade", "--gold-key", "gold"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(ROWS.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), printed);
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "4 rows: 2 correct, 1 wrong, 1 unparsable, 0 malformed\nby `training`, extraction `announced`\n"
    );
}

#[test]
fn malformed_rows_are_named_and_the_rest_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let rows = format!(
        "{{\"gold\": \"1\"}}\nnot json\n[1]\n{{\"gold\": null, \"pred\": \"1\"}}\n\u{feff}\n{ROWS}"
    );
    fs::write(dir.path().join("rows.jsonl"), rows).unwrap();
    let output = hapo(dir.path(), &["grade", "rows.jsonl"]);
    assert_eq!(output.status.code(), Some(2));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(verdicts(&printed)[5..], expected());
    assert!(verdicts(&printed)[..5].iter().all(|it| it.1.is_null()));
    let messages = String::from_utf8(output.stderr).unwrap();
    for (row, problem) in [
        (1, "pred: expected a string, got nothing"),
        (2, "expected ident"),
        (3, "expected one JSON object, got [1]"),
        (4, "gold: expected a string, got null"),
    ] {
        let line = messages.lines().find(|it| it.starts_with(&format!("rows.jsonl: row {row}: ")));
        assert!(line.is_some_and(|it| it.contains(problem)), "row {row}: {messages}");
    }
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("rows.jsonl"), ROWS.repeat(20_000)).unwrap();
    let mut child = Command::new(crate::support::binary())
        .args(["grade", "rows.jsonl"])
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn each_row_of_standard_input_is_answered_before_the_next_is_asked() {
    let mut child = Command::new(crate::support::binary())
        .arg("grade")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut asked = child.stdin.take().unwrap();
    let mut answered = BufReader::new(child.stdout.take().unwrap()).lines();
    for (row, verdict) in [
        (r#"{"gold": "1/2", "pred": "\\boxed{0.5}"}"#, "correct"),
        (r#"{"gold": "1/2", "pred": "\\boxed{0.6}"}"#, "wrong"),
    ] {
        writeln!(asked, "{row}").unwrap();
        asked.flush().unwrap();
        let answer: Value = serde_json::from_str(&answered.next().unwrap().unwrap()).unwrap();
        assert_eq!(answer["verdict"], verdict);
    }
    drop(asked);
    assert!(answered.next().is_none());
    assert!(child.wait().unwrap().success());
}

#[test]
fn what_counts_as_an_answer_is_an_option() {
    let dir = tempfile::tempdir().unwrap();
    let rows = [r"so \\boxed{5}", "the answer is 5", "and so on to 5"];
    let rows = rows.map(|it| format!("{{\"gold\": \"5\", \"pred\": \"{it}\"}}\n"));
    fs::write(dir.path().join("rows.jsonl"), rows.concat()).unwrap();
    let correct = |rule: &[&str]| {
        let printed =
            succeed(dir.path(), &[&["grade", "rows.jsonl", "--grader", "math"], rule].concat());
        verdicts(&printed).iter().filter(|it| it.1 == "correct").count()
    };
    let rules = ["boxed", "announced", "any"];
    assert_eq!(rules.map(|it| correct(&["--extraction", it])), [1, 2, 3]);
    assert_eq!(correct(&[]), 2);
}

#[test]
fn labels_are_held_against_verdicts_and_rows_written_beside() {
    let dir = tempfile::tempdir().unwrap();
    let csv = "answer,completion,ok\n7,\\boxed{7},true\n7,\\boxed{8},1\n7,no idea,false\n7,\\boxed{7},0\n";
    fs::write(dir.path().join("rows.csv"), csv).unwrap();
    let keys = ["--gold-key", "answer", "--pred-key", "completion", "--label-key", "ok"];
    let command = [&["grade", "rows.csv", "--out", "graded.jsonl"][..], &keys].concat();
    let told = succeed(dir.path(), &command);
    assert_eq!(
        told,
        "4 rows: 2 correct, 1 wrong, 1 unparsable, 0 malformed\n\
         \x20             correct    wrong  unparsable\n\
         label true          1        1           0\n\
         label false         1        0           1\n\
         agreement 50.00 %, 2 rows disagree\n\
         \x20 row 2: label true, wrong: \"8\" for \"7\": different\n\
         \x20 row 4: label false, correct: \"7\" for \"7\": the same text\n"
    );
    let graded = fs::read_to_string(dir.path().join("graded.jsonl")).unwrap();
    let rows: Vec<Value> = graded.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    assert_eq!(
        (&rows[1]["completion"], &rows[1]["verdict"]),
        (&json!("\\boxed{8}"), &json!("wrong"))
    );
    let told = succeed(dir.path(), &[&command[..], &["--json"]].concat());
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["labels"]["labelled_true"], json!([1, 1, 0]));
    assert_eq!(told["labels"]["disagreements"][1]["row"], 4);

    fs::write(dir.path().join("bad.csv"), csv.replace(",true", ",maybe")).unwrap();
    let output = hapo(dir.path(), &[&["grade", "bad.csv"][..], &keys].concat());
    assert_eq!(output.status.code(), Some(2));
    let messages = String::from_utf8(output.stderr).unwrap();
    assert!(messages.contains("bad.csv: row 1: ok: expected true or false, got maybe"));
}

#[test]
fn a_gold_answer_and_a_completion_are_graded_and_explained() {
    let hapo = |args: &[&str]| {
        let it =
            std::process::Command::new(env!("CARGO_BIN_EXE_hapo")).args(args).output().unwrap();
        assert!(it.status.success(), "{args:?}: {}", String::from_utf8_lossy(&it.stderr));
        assert!(it.stderr.is_empty());
        String::from_utf8(it.stdout).unwrap()
    };
    let right = hapo(&["grade", "1/2", r"so \boxed{0.5}"]);
    assert!(
        right.starts_with("1: correct\n") && right.contains("because    equal numbers"),
        "{right}"
    );
    assert!(hapo(&["grade", "-7", r"\boxed{7}"]).starts_with("1: wrong\n"));
    let json: serde_json::Value =
        serde_json::from_str(&hapo(&["grade", "-7", r"\boxed{-7}", "--json"])).unwrap();
    assert_eq!(json["verdict"], "correct");
}

#[test]
fn nothing_to_grade_and_rows_of_other_fields_are_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let graded = |text: &str| {
        fs::write(dir.path().join("rows.jsonl"), text).unwrap();
        let it = hapo(dir.path(), &["grade", "rows.jsonl"]);
        assert_eq!(it.status.code(), Some(2));
        String::from_utf8(it.stderr).unwrap()
    };
    let empty = graded("");
    assert!(empty.starts_with("error: rows.jsonl: expected rows, got none\nhint: "), "{empty}");
    let other = graded(&"{\"answer\": \"7\", \"completion\": \"7\"}\n".repeat(64));
    let hint = "hint: rows have the fields `answer`, `completion`: name two with --gold-key and --pred-key\n";
    assert!(other.ends_with(hint), "{other}");
    let near = graded("{\"golds\": \"7\", \"pred\": \"7\"}\n");
    assert!(near.ends_with("hint: did you mean `golds`?\n"), "{near}");
    assert_eq!(other.lines().filter(|it| it.starts_with("rows.jsonl: row ")).count(), 10);
}

#[test]
fn a_reason_is_printed_once() {
    let dir = tempfile::tempdir().unwrap();
    let printed = succeed(dir.path(), &["grade", "7", "no idea"]);
    assert!(
        printed.ends_with(
            "because    no answer found\n  by         `training`, extraction `announced`\n"
        ),
        "{printed}"
    );
}

#[test]
fn an_output_is_replaced_when_all_rows_are_graded_and_is_never_the_input() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let text = |name: &str| fs::read_to_string(path(name)).unwrap();
    for (name, rows) in [("rows.jsonl", ROWS), ("kept.jsonl", "kept"), ("empty.jsonl", "")] {
        fs::write(path(name), rows).unwrap();
    }
    fs::hard_link(path("rows.jsonl"), path("hard.jsonl")).unwrap();
    std::os::unix::fs::symlink("rows.jsonl", path("soft.jsonl")).unwrap();
    for output in ["rows.jsonl", "./rows.jsonl", "hard.jsonl", "soft.jsonl"] {
        let message = refuse(dir.path(), &["grade", "rows.jsonl", "--out", output]);
        let expected = format!("error: the output {output} is the input rows.jsonl\n");
        assert!(message.starts_with(&expected), "{message}");
        assert_eq!(text("rows.jsonl"), ROWS);
    }
    for input in ["typo.jsonl", "empty.jsonl"] {
        refuse(dir.path(), &["grade", input, "--out", "kept.jsonl"]);
        assert_eq!(text("kept.jsonl"), "kept", "{input}");
    }
    // A row without a verdict is a fault of its row, not of the file.
    fs::write(path("rows.jsonl"), format!("not json\n{ROWS}")).unwrap();
    let output = hapo(dir.path(), &["grade", "rows.jsonl", "--out", "kept.jsonl"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(verdicts(&text("kept.jsonl"))[1..], expected());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 5, "nothing is left beside them");
}

/// As a float, this gold answer has other digits after the seventeenth.
#[test]
fn a_gold_answer_is_not_rounded() {
    let dir = tempfile::tempdir().unwrap();
    let row = |gold: &str| {
        let rounded = "123456789012345680000000000000";
        format!("{{\"gold\": {gold}, \"pred\": \"\\\\boxed{{{rounded}}}\"}}\n")
    };
    let gold = "123456789012345678901234567890";
    fs::write(dir.path().join("rows.jsonl"), row(gold) + &row(&format!("\"{gold}\""))).unwrap();
    let output = hapo(dir.path(), &["grade", "rows.jsonl"]);
    let judged = verdicts(&String::from_utf8(output.stdout).unwrap());
    assert_ne!(judged[0].1, "correct");
    assert_eq!(judged[1].1, "wrong");
}
