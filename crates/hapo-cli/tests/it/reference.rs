//! The binary against the numbers that `PyTorch` recorded in testdata/fixtures.

use std::collections::HashMap;
use std::io::Write;

use crate::support::{repository, succeed};
use serde_json::Value;

fn json(path: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(repository(path)).unwrap()).unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("expected a number, got {value}"))
}

fn tensors(path: &str) -> HashMap<String, Vec<f32>> {
    let bytes = std::fs::read(repository(path)).unwrap();
    let header_len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + header_len]).unwrap();
    let data = &bytes[8 + header_len..];
    let mut all = HashMap::new();
    for (name, tensor) in header.as_object().unwrap().iter().filter(|it| it.0 != "__metadata__") {
        assert_eq!(tensor["dtype"], "F32");
        let [from, to] = [0, 1].map(|it| tensor["data_offsets"][it].as_u64().unwrap() as usize);
        let values =
            data[from..to].chunks_exact(4).map(|it| f32::from_le_bytes(it.try_into().unwrap()));
        all.insert(name.clone(), values.collect());
    }
    all
}

#[test]
fn logprobs_are_those_of_transformers() {
    for name in ["tiny-qwen2", "tiny-qwen3", "tiny-llama3"] {
        let folder = format!("testdata/fixtures/models/{name}");
        let prompts = json(&format!("{folder}/expected.json"));
        let expected = tensors(&format!("{folder}/expected.safetensors"));
        let dir = tempfile::tempdir().unwrap();
        let mut file = std::fs::File::create(dir.path().join("input.jsonl")).unwrap();
        for it in prompts.as_array().unwrap() {
            writeln!(file, "{}", serde_json::json!({ "input_ids": it["input_ids"] })).unwrap();
        }
        let model = repository(&folder);
        let args = [
            "logprobs",
            "--model",
            model.to_str().unwrap(),
            "--input",
            "input.jsonl",
            "--greedy",
            "24",
            "--logits",
        ];
        let printed = succeed(dir.path(), &args);
        for (i, line) in printed.lines().enumerate() {
            let got: Value = serde_json::from_str(line).unwrap();
            let check = |got: &Value, key: &str, tolerance: f64| {
                let expected = &expected[&format!("{i}.{key}")];
                let got: Vec<f64> = got.as_array().unwrap().iter().map(number).collect();
                assert_eq!(got.len(), expected.len(), "{name} {i} {key}");
                for (got, expected) in got.iter().zip(expected) {
                    assert!(
                        (got - f64::from(*expected)).abs() <= tolerance,
                        "{name} {i} {key}: {expected}, got {got}"
                    );
                }
            };
            check(&got["logprobs"], "logprobs", 1e-5);
            check(&got["entropy"], "entropy", 1e-5);
            let flat: Vec<Value> = got["logits"]
                .as_array()
                .unwrap()
                .iter()
                .flat_map(|it| it.as_array().unwrap().clone())
                .collect();
            check(&Value::Array(flat), "logits", 1e-4);
            let greedy = prompts[i]["greedy"].as_array().unwrap();
            assert_eq!(
                &got["greedy"].as_array().unwrap()[..greedy.len()],
                &greedy[..],
                "{name} {i}"
            );
        }
        assert_eq!(printed.lines().count(), 4);
    }
}

#[test]
fn schedule_is_the_integer_gate() {
    let args = [
        "schedule",
        "--group-size",
        "8",
        "--turn-off-epoch",
        "1.5",
        "--steps-per-epoch",
        "62",
        "--steps",
        "100",
        "--json",
    ];
    let table: Value = serde_json::from_str(&succeed(&repository("."), &args)).unwrap();
    // e_off falls on step 93 exactly: the gate is closed there, as D1 says.
    assert_eq!(table["extinct_at_step"], 93);
    let steps = table["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 100);
    for row in steps {
        let step = row["step"].as_u64().unwrap();
        assert_eq!(row["success_limit"], if step < 93 { 0 } else { -1 }, "step {step}");
        assert!((number(&row["epoch"]) - step as f64 / 62.0).abs() < 1e-12);
        let z = 10.0 * (step as f64 / 62.0 - 1.5);
        let expected = 0.05 + 0.1 / (1.0 + z.exp());
        assert!((number(&row["threshold"]) - expected).abs() < 1e-12, "step {step}");
    }
    let manual = [
        "schedule",
        "--gamma0",
        "0.5",
        "--no-annealing",
        "--steps-per-epoch",
        "62",
        "--steps",
        "1",
        "--json",
    ];
    let table: Value = serde_json::from_str(&succeed(&repository("."), &manual)).unwrap();
    assert_eq!(
        (&table["success_limit"], &table["steps"][0]["success_limit"]),
        (&Value::from(3), &Value::from(3))
    );
}
