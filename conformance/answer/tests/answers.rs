//! The repository's cases: every answer is the formula's.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The folder `conformance`.
const SUITE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The registered variants that are meant.
const DEFINITIONS: [(&str, &str); 1] = [("adv/teacher-out-std/failed", "all-zero")];

/// What the program prints about a folder, to its two outputs.
fn asked(folder: &Path) -> (String, String) {
    let told = Command::new(env!("CARGO_BIN_EXE_lossproof-hapo")).arg(folder).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (printed, message) = (text(told.stdout), text(told.stderr));
    let expected = if message.is_empty() { 0 } else { 2 };
    assert_eq!(told.status.code(), Some(expected), "{message}");
    (printed, message)
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The answers by id and cut, those of a law's two calls in order.
fn answers() -> BTreeMap<(String, String), Vec<Value>> {
    let (printed, message) = asked(Path::new(SUITE));
    assert_eq!(message, "");
    let mut answers: BTreeMap<_, Vec<Value>> = BTreeMap::new();
    let mut lines = printed.lines();
    let declared: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    let definitions = DEFINITIONS.map(|(id, variant)| (id.to_owned(), variant.into()));
    assert_eq!(declared["definitions"], Value::Object(definitions.into_iter().collect()));
    for line in lines {
        let answer: Value = serde_json::from_str(line).unwrap();
        let [id, cut] = ["id", "cut"].map(|name| answer[name].as_str().unwrap().to_owned());
        let calls = answers.entry((id, cut)).or_default();
        assert_eq!(answer["call"], calls.len(), "{line}");
        calls.push(answer);
    }
    answers
}

fn numbers(value: &Value) -> Vec<f64> {
    match value.as_array() {
        Some(parts) => parts.iter().flat_map(numbers).collect(),
        None => vec![value.as_f64().unwrap_or_else(|| panic!("expected a number, got {value}"))],
    }
}

/// |got − expected| / |expected|, or the largest number where the answer is 0.
fn error(got: &Value, expected: &Value) -> f64 {
    let (got, expected) = (numbers(got), numbers(expected));
    assert_eq!(got.len(), expected.len());
    let norm = |values: &[f64]| values.iter().map(|x| x * x).sum::<f64>().sqrt();
    let gap: Vec<f64> = got.iter().zip(&expected).map(|(a, b)| a - b).collect();
    let scale = norm(&expected);
    norm(&gap) / if scale == 0.0 { 1.0 } else { scale }
}

/// Log-probabilities and slopes are f32; advantages are f64.
const SLOPES: f64 = 1e-6;
const ADVANTAGES: f64 = 1e-12;

#[test]
fn every_answer_is_the_formula_s() {
    let mut compared = BTreeSet::new();
    for ((id, cut), calls) in answers() {
        let case = json(&Path::new(SUITE).join(format!("cases/{id}.json")));
        let meant = DEFINITIONS.iter().find(|(declared, _)| *declared == id);
        let expect = meant.map_or(&case["expect"], |(_, it)| &case["variants"][it]["expect"]);
        let answer = &calls[0];
        if answer.get("n/a").is_some() || case.get("planted").is_some() {
            continue;
        }
        compared.insert(id.clone());
        if expect["refused"] == true {
            assert!(answer["refused"].is_string(), "{id}: {answer}");
            continue;
        }
        assert!(answer.get("refused").is_none(), "{id}: {answer}");
        for (name, bound) in [
            ("grad", SLOPES),
            ("grad_entropy", SLOPES),
            ("loss", SLOPES),
            ("advantage", ADVANTAGES),
        ] {
            if !expect[name].is_null() {
                let error = error(&answer[name], &expect[name]);
                assert!(error <= bound, "{id} [{cut}] {name}: {error}");
            }
        }
    }
    // The others need what this trainer lacks, such as a dual clip or padding.
    assert_eq!(compared.len(), 112, "{compared:?}");
}

/// Micro-batches and ranks: the two calls have the same slopes, bit for bit.
#[test]
fn a_cut_changes_no_slope() {
    let answers = answers();
    let laws = answers.iter().filter(|((id, _), calls)| {
        let is_cut = id.starts_with("law/micro-batches") || id.starts_with("law/ranks");
        is_cut && calls[0].get("n/a").is_none()
    });
    let mut compared = 0;
    for (law, calls) in laws {
        assert_eq!(calls[0]["grad"], calls[1]["grad"], "{law:?}");
        compared += 1;
    }
    assert_eq!(compared, 19);
}

#[test]
fn a_folder_without_cases_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (_, message) = asked(&folder.path().join("nothing"));
    assert!(message.contains("nothing/cases"), "{message}");
    std::fs::create_dir_all(folder.path().join("bad/cases")).unwrap();
    std::fs::write(folder.path().join("bad/cases/one.json"), "[]").unwrap();
    let (_, message) = asked(&folder.path().join("bad"));
    assert!(message.contains("one.json: expected an object"), "{message}");
}
