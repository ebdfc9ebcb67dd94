//! `hapo doctor` on recorded runs of TRL, verl and hapo, healthy and with a planted fault, and on reward functions.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::support::{binary, hapo, repository, succeed};

/// Writes the recorded runs, as `scripts/doctor/records.py` packed them.
fn unpack(into: &Path) {
    let records = repository("testdata/doctor/records.jsonl.zst");
    for row in hapo_data::json_rows(&records).unwrap() {
        let row = row.unwrap().unwrap();
        let path = into.join(row["path"].as_str().unwrap());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let bytes = match row.get("text") {
            Some(text) => text.as_str().unwrap().as_bytes().to_vec(),
            None => BASE64_STANDARD.decode(row["base64"].as_str().unwrap()).unwrap(),
        };
        fs::write(path, bytes).unwrap();
    }
}

/// What doctor says as JSON, and its exit code.
fn examined(folder: &Path, args: &[&str]) -> (Value, i32) {
    let told = hapo(folder, &[&["doctor", "--json"], args].concat());
    let text = String::from_utf8_lossy(&told.stderr).into_owned();
    let said = serde_json::from_slice(&told.stdout);
    (said.unwrap_or_else(|_| panic!("{args:?}: {text}")), told.status.code().unwrap())
}

fn names(said: &Value) -> Vec<&str> {
    said["findings"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect()
}

#[test]
fn planted_faults_are_found_by_name_and_healthy_runs_are_healthy() {
    let dir = tempfile::tempdir().unwrap();
    unpack(dir.path());
    let table = fs::read_to_string(repository("testdata/doctor/expected.tsv")).unwrap();
    let rows = table.lines().filter(|it| !it.starts_with('#'));
    let rows: Vec<(&str, &str)> = rows.map(|it| it.split_once('\t').unwrap()).collect();
    let mut recorded = BTreeSet::new();
    for framework in fs::read_dir(dir.path()).unwrap() {
        for run in fs::read_dir(framework.unwrap().path()).unwrap() {
            let run = run.unwrap().path();
            recorded.insert(run.strip_prefix(dir.path()).unwrap().display().to_string());
        }
    }
    let listed: BTreeSet<String> = rows.iter().map(|it| it.0.to_owned()).collect();
    assert_eq!(recorded, listed);
    let mut wrong = Vec::new();
    for (run, fault) in rows {
        let (said, code) = examined(dir.path(), &[run]);
        let found = names(&said);
        let is_right = if fault.is_empty() { found.is_empty() } else { found.contains(&fault) };
        assert_eq!(code, if found.is_empty() { 0 } else { 2 }, "{run}");
        if !is_right {
            wrong.push(format!("{run}: expected `{fault}`, found {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn parts_of_a_run_leave_questions_open() {
    let dir = tempfile::tempdir().unwrap();
    unpack(dir.path());
    // One log file of each framework.
    for log in [
        "trl/short-limit/checkpoint-20/trainer_state.json",
        "verl/short-limit/metrics.jsonl",
        "hapo/cut-off/metrics.jsonl",
    ] {
        let (said, code) = examined(dir.path(), &[log]);
        assert!(names(&said).contains(&"nothing-learned"), "{log}: {said}");
        assert_eq!(code, 2);
        assert!(!said["open"].as_array().unwrap().is_empty());
    }
    // Files that are cut anywhere are no error.
    let run = dir.path().join("trl/short-limit");
    for file in ["checkpoint-20/training_args.bin", "completions/completions_00001.parquet"] {
        let bytes = fs::read(run.join(file)).unwrap();
        fs::write(run.join(file), &bytes[..bytes.len() / 2]).unwrap();
    }
    let (said, _) = examined(dir.path(), &["trl/short-limit"]);
    assert!(names(&said).contains(&"cut-off"), "{said}");
    assert!(said["open"].to_string().contains("training_args.bin"), "{said}");
    fs::write(dir.path().join("verl/short-limit/.hydra/config.yaml"), "a: [1, {b: *c\n\t- x")
        .unwrap();
    let (said, _) = examined(dir.path(), &["verl/short-limit"]);
    assert!(said["open"].to_string().contains("config.yaml"), "{said}");
    // What is no run at all is doctor's own failure.
    fs::create_dir(dir.path().join("empty")).unwrap();
    for nothing in ["empty", "not-there", "not-there.py:reward"] {
        assert_eq!(hapo(dir.path(), &["doctor", nothing]).status.code(), Some(1));
    }
    // A folder of stages is none either, and they are named.
    let told = hapo(dir.path(), &["doctor", "hapo"]);
    let said = String::from_utf8_lossy(&told.stderr);
    assert!(said.contains("hapo is no run, but hapo/cut-off is: name it"), "{said}");
}

/// As TRL (transformers 4 and 5) and verl (beside Ray's names, numpy's calls and bars of progress) print them.
#[test]
fn what_a_console_shows_is_a_log() {
    let dir = tempfile::tempdir().unwrap();
    let trl = |step: usize| {
        format!(
            " 10%|#   | {step}/9 [00:01<00:09]{{'loss': '{}', 'grad_norm': {}, 'reward': 0.1{step}, 'completions/clipped_ratio': '0.97'}}\n",
            ["nan", "0.02"][usize::from(step < 5)],
            ["nan", "0.5"][usize::from(step < 5)]
        )
    };
    let verl = |step: usize| {
        format!(
            "\x1b[36m(TaskRunner pid=7)\x1b[0m step:{step} - actor/pg_loss:np.float64(0.1) - critic/score/mean:0.0 - response_length/clip_ratio:0.9\n"
        )
    };
    let lines = |of: &dyn Fn(usize) -> String| (1..9).map(of).collect::<String>();
    fs::write(dir.path().join("trl.log"), lines(&trl)).unwrap();
    fs::write(dir.path().join("verl.txt"), lines(&verl)).unwrap();
    let (said, code) = examined(dir.path(), &["trl.log"]);
    assert_eq!((names(&said), code), (vec!["collapse", "cut-off"], 2), "{said}");
    assert!(said["findings"][0]["what"].as_str().unwrap().contains("from step 5 on"), "{said}");
    let (said, code) = examined(dir.path(), &["verl.txt"]);
    assert_eq!((names(&said), code), (vec!["cut-off", "nothing-learned"], 2), "{said}");
}

#[test]
fn a_reward_function_is_asked_about_known_answers() {
    let dir = tempfile::tempdir().unwrap();
    let code = r#"
import re

def last_box(text):
    found = re.findall(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}", text)
    return found[-1] if found else None

def plain(completions, answer, **_):
    return [float(last_box(it) == gold) for it, gold in zip(completions, answer)]

def talk(completions, solution, **_):
    return [float(last_box(it[0]["content"]) == gold) for it, gold in zip(completions, solution)]

def substring(data_source, solution_str, ground_truth, extra_info=None):
    return float(ground_truth in solution_str)

def raises(data_source, solution_str, ground_truth, extra_info=None):
    return float(int(solution_str.split("{")[1].split("}")[0]) == int(ground_truth))

def batch(completions, answer, **_):
    right = [last_box(it) == gold for it, gold in zip(completions, answer)]
    return [float(it) - sum(right) / len(right) for it in right]

asked = []
def drifts(data_source, solution_str, ground_truth, extra_info=None):
    asked.append(solution_str)
    return float(ground_truth in solution_str) + len(asked) % 7

known = {}
def grows(data_source, solution_str, ground_truth, extra_info=None):
    key = (solution_str, ground_truth)
    known[key] = known.get(key, float(last_box(solution_str) == ground_truth))
    return known[key]

def forgets(data_source, solution_str, ground_truth, extra_info=None):
    if len(known) == 128:
        del known[next(iter(known))]
    return grows(data_source, solution_str, ground_truth)
"#;
    fs::write(dir.path().join("reward.py"), code).unwrap();
    for (function, expected, unexpected) in [
        ("plain", "right-unpaid", "reward-grows"),
        ("talk", "right-unpaid", "reward-fails"),
        ("substring", "wrong-paid", "reward-fails"),
        ("raises", "reward-fails", "nothing-learned"),
        ("drifts", "reward-fails", "nothing-learned"),
        ("batch", "reward-fails", "wrong-paid"),
        ("grows", "reward-grows", "reward-fails"),
        ("forgets", "right-unpaid", "reward-grows"),
    ] {
        let (said, code) = examined(dir.path(), &[&format!("reward.py:{function}")]);
        let found = names(&said);
        assert!(found.contains(&expected) && !found.contains(&unexpected), "{function}: {said}");
        assert_eq!(code, 2);
    }
}

#[test]
fn data_are_looked_at_before_a_run() {
    let dir = tempfile::tempdir().unwrap();
    let row = |answer: &str, n: u32| {
        format!(
            "{{\"problem\":\"{n}+{n}=\",\"answer\":\"{answer}\",\"teacher\":\"\\\\boxed{{{}}}\"}}\n",
            2 * n
        )
    };
    let whole: String = (10..40).map(|n| row(&(2 * n).to_string(), n)).collect();
    let cut = |n: u32| row(&(2 * n).to_string()[..=(n as usize % 2)], n);
    let cut: String = (10..40).map(cut).collect();
    fs::write(dir.path().join("whole.jsonl"), whole).unwrap();
    fs::write(dir.path().join("cut.jsonl"), cut).unwrap();
    let model = repository("models/base").display().to_string();
    let said = succeed(dir.path(), &["doctor", "--data", "whole.jsonl", "--model", &model]);
    assert!(said.contains("data: 30 rows, none bad; 30 of 30 solutions are right"), "{said}");
    let (said, _) = examined(dir.path(), &["--data", "cut.jsonl", "--eval-data", "whole.jsonl"]);
    assert_eq!(names(&said), ["gold-denied", "eval-in-train"], "{said}");
}

/// By the tokenizer's files and the data alone.
#[test]
fn a_start_token_stands_once() {
    let dir = tempfile::tempdir().unwrap();
    let token = |name: &str, id: u32| json!({ "content": name, "id": id, "special": true });
    let tokenizer = json!({
        "added_tokens": [token("<s>", 1), token("</s>", 2), token("<pad>", 3)],
        "post_processor": { "type": "Sequence", "processors": [{
            "type": "TemplateProcessing",
            "single": [{ "SpecialToken": { "id": "<s>", "type_id": 0 } }, { "Sequence": { "id": "A", "type_id": 0 } }],
        }] },
    });
    fs::write(dir.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    for (begin, problem, expected) in [
        ("<s>", "1+1=", &[][..]),
        ("{{ bos_token }}", "1+1=", &[]),
        ("", "1+1=", &["start-token"]),
        ("<s>", "<s>1+1=", &["start-token"]),
    ] {
        let template = format!("{begin}{{{{ messages[0].content }}}}</s>");
        let config = json!({ "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "chat_template": template });
        fs::write(dir.path().join("tokenizer_config.json"), config.to_string()).unwrap();
        let row = json!({ "problem": problem, "answer": "2" });
        fs::write(dir.path().join("data.jsonl"), row.to_string()).unwrap();
        let (said, _) = examined(dir.path(), &["--data", "data.jsonl", "--model", "."]);
        assert_eq!(names(&said), expected, "{begin}: {said}");
    }
}

#[test]
fn a_formula_needs_lossproof_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    unpack(dir.path());
    let told = Command::new(binary())
        .args(["doctor", "verl/healthy-grpo", "--formula"])
        .current_dir(dir.path())
        .env("HAPO_PYTHON", "false")
        .output()
        .unwrap();
    let said = String::from_utf8(told.stderr).unwrap();
    assert_eq!(told.status.code(), Some(1), "{said}");
    assert!(said.contains("lossproof gave no records of the adapter `verl`"), "{said}");
}
