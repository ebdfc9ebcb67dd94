//! Ten thousand damaged files of every layout: no panic, no memory beyond what the file can need, and
//! every complaint names the file and the row, or the file alone where it is broken as a whole.
//!
//! The damage is drawn from a fixed seed: cuts, changed bytes, bytes that are no UTF-8, pieces twice,
//! and, where rows are texts, values of wrong types, nulls, numbers that are huge or none, and nesting.

use super::samples;
use crate::{Row, open_reader};
use arrow_array::builder::{Float64Builder, ListBuilder, StringBuilder};
use arrow_array::{ArrayRef, Int64Array};
use hapo_core::{CounterRng, RngCounter, RngStream};
use hapo_testing::allocator::{self, MeasuringAllocator};
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;

const COUNT: u64 = 10_000;

/// The largest single allocation that a file of a few kilobytes may cause: a zstd page of them may
/// claim 16 MiB, see `container/parquet.rs`.
const LARGEST: usize = 40 << 20;

#[global_allocator]
static ALLOCATOR: MeasuringAllocator = MeasuringAllocator;

fn rng(number: u64) -> CounterRng {
    let counter = RngCounter { step: number, prompt: 0, rollout: 0, position: 0 };
    CounterRng::new(7, RngStream::Shuffle, counter)
}

/// The result for a file.
#[derive(Default)]
struct Outcome {
    good: u64,
    bad: Vec<u64>,
    error: Option<String>,
}

/// Reads it all and looks at every complaint.
fn read(bytes: Vec<u8>) -> Outcome {
    let mut outcome = Outcome::default();
    let limit = bytes.len() as u64 * 200 + 1000;
    let rows = match open_reader(Cursor::new(bytes), Path::new("f")) {
        Ok(rows) => rows,
        Err(error) => {
            outcome.error = Some(error.to_string());
            return outcome;
        }
    };
    for row in rows {
        match row {
            Ok(Row::Good(it)) => {
                assert!(it.row >= 1);
                outcome.good += 1;
            }
            Ok(Row::Bad(bad)) => {
                let place = if bad.is_line { ":" } else { ": row " };
                let expected = format!("f{place}{}: {}: expected ", bad.row, bad.field);
                assert!(bad.row >= 1 && bad.to_string().starts_with(&expected), "{bad}");
                assert!(bad.to_string().len() < 1500, "{bad}");
                outcome.bad.push(bad.row);
            }
            Err(error) => {
                assert!(outcome.error.is_none());
                outcome.error = Some(error.to_string());
            }
        }
        let n = outcome.good + outcome.bad.len() as u64;
        assert!(n <= limit, "more rows than the file can hold");
    }
    outcome
}

fn check(
    name: &str,
    damage: impl Fn(&mut CounterRng) -> Vec<u8>,
    wants_row: impl Fn(&Outcome, u64),
) {
    allocator::reset();
    let mut complaints = 0;
    for number in 0..COUNT {
        let bytes = damage(&mut rng(number));
        let outcome = read(bytes);
        if let Some(error) = &outcome.error {
            assert!(error.starts_with("f:"), "{name} {number}: {error}");
            assert!(error.len() < 2500, "{name} {number}: {error}");
        }
        complaints += u64::from(outcome.error.is_some() || !outcome.bad.is_empty());
        wants_row(&outcome, number);
    }
    // Most damage shows; the rest puts another text where any text may be.
    assert!(complaints > COUNT / 4, "{name}: {complaints}");
    assert!(allocator::largest() < LARGEST, "{name}: {} bytes at once", allocator::largest());
}

/// Damage that needs to know nothing of the file.
fn damaged_bytes(mut bytes: Vec<u8>, rng: &mut CounterRng) -> Vec<u8> {
    let length = bytes.len() as u64;
    let place = rng.below(length) as usize;
    match rng.below(6) {
        0 => bytes.truncate(place),
        1 | 2 => {
            for _ in 0..=rng.below(4) {
                let place = rng.below(length) as usize;
                bytes[place] ^= 1 << rng.below(8);
            }
        }
        3 => {
            let value = [0xff, 0x80, 0xc3, 0, 0x7f, 0xfe][rng.below(6) as usize];
            let end = (place + 1 + rng.below(8) as usize).min(bytes.len());
            bytes[place..end].fill(value);
        }
        4 => {
            let end = (place + 1 + rng.below(40) as usize).min(bytes.len());
            let piece = bytes[place..end].to_vec();
            let at = rng.below(length) as usize;
            bytes.splice(at..at, piece);
        }
        _ => {
            let end = (place + 1 + rng.below(40) as usize).min(bytes.len());
            bytes.drain(place..end);
        }
    }
    bytes
}

/// Values that no required field may have, as JSON or nearly.
fn wrong_value(rng: &mut CounterRng) -> String {
    match rng.below(10) {
        0 => "null".to_owned(),
        1 => "true".to_owned(),
        2 => "{}".to_owned(),
        3 => "1e999".to_owned(),
        4 => "NaN".to_owned(),
        5 => "-Infinity".to_owned(),
        6 => format!("{}1{}", "[".repeat(300), "]".repeat(300)),
        7 => "{\"a\":".repeat(200) + "1",
        8 => "[null]".to_owned(),
        _ => "\"\"".to_owned(),
    }
}

/// Texts: half of the damage goes to bytes, half to the value of a required field, which must then be
/// reported with its row.
fn check_text(name: &'static str, text: &str, required: &[&str]) {
    let rows: Vec<serde_json::Map<String, serde_json::Value>> = if text.starts_with('[') {
        serde_json::from_str(text).unwrap()
    } else {
        text.lines().map(|it| serde_json::from_str(it).unwrap()).collect()
    };
    let is_array = text.starts_with('[');
    check(
        name,
        |rng| {
            let row = 1 + rng.below(rows.len() as u64);
            if rng.below(2) == 0 {
                return damaged_bytes(text.as_bytes().to_vec(), rng);
            }
            let lines: Vec<String> = rows
                .iter()
                .zip(1..)
                .map(|(it, number)| {
                    let mut it = it.clone();
                    let here: Vec<&&str> =
                        required.iter().filter(|key| it.contains_key(**key)).collect();
                    let key = (**here[rng.below(here.len() as u64) as usize]).to_owned();
                    if number == row {
                        it.insert(key, serde_json::json!("@@"));
                    }
                    serde_json::to_string(&it).unwrap()
                })
                .collect();
            let text = if is_array { format!("[{}]", lines.join(",")) } else { lines.join("\n") };
            text.replacen("\"@@\"", &wrong_value(rng), 1).into_bytes()
        },
        |outcome, number| {
            let mut rng = rng(number);
            let row = 1 + rng.below(rows.len() as u64);
            if rng.below(2) == 1 {
                let named = outcome.bad.contains(&row) || outcome.error.is_some();
                assert!(named, "{name} {number}: row {row} is bad, named are {:?}", outcome.bad);
            }
        },
    );
}

fn check_binary(name: &'static str, files: &[Vec<u8>]) {
    check(
        name,
        |rng| {
            let file = &files[rng.below(files.len() as u64) as usize];
            damaged_bytes(file.clone(), rng)
        },
        |_, _| {},
    );
}

#[test]
fn own() {
    check_text("own", samples::OWN, &["problem", "answer"]);
}

#[test]
fn simplerl_v0() {
    check_text("simplerl-v0", samples::SIMPLERL_V0, &["input"]);
}

#[test]
fn gsm8k() {
    check_text("gsm8k", samples::GSM8K, &["question", "answer"]);
}

#[test]
fn trl_grpo() {
    check_text("trl-grpo", samples::TRL_GRPO, &["prompt", "solution", "answer"]);
}

#[test]
fn trl_sft() {
    // The third row has a gold answer, beside which its completion may be missing.
    let rows: Vec<&str> = samples::TRL_SFT.lines().take(2).collect();
    check_text("trl-sft", &rows.join("\n"), &["prompt", "completion"]);
}

#[test]
fn openrlhf() {
    check_text("input-output", samples::OPENRLHF, &["input", "output", "label"]);
}

#[test]
fn sharegpt() {
    check_text("sharegpt", samples::SHAREGPT, &["conversations"]);
}

#[test]
fn plain() {
    check_binary("plain", &[samples::PLAIN.into()]);
}

#[test]
fn encodings_of_columns() {
    let file = |name: &str| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/shapes");
        std::fs::read(folder.join(format!("{name}.parquet"))).unwrap()
    };
    check_binary("encodings", &["lz4", "pages-2", "checksums"].map(file));
}

#[test]
fn luffy_sft() {
    check_text("luffy-sft", samples::LUFFY_SFT, &["prompt", "target"]);
}

const MESSAGES: &str = "(LIST) { repeated group list { optional group element {
    optional binary content (STRING); optional binary role (STRING); } } }";

/// Golds of other types, null, huge and not a number; prompts null and of another type.
fn wrong_columns() -> Vec<Vec<u8>> {
    let schema = |prompt: &str, gold: &str| {
        format!(
            "message schema {{ {prompt} optional group reward_model {{ {gold} }}
             optional group target {MESSAGES} }}"
        )
    };
    let prompt = format!("optional group prompt {MESSAGES}");
    let text = "optional binary ground_truth (STRING);";
    let row = |prompt: &str, gold: &str| {
        format!("{{\"prompt\":{prompt},\"reward_model\":{{\"ground_truth\":{gold}}}}}")
    };
    let messages = r#"[{"role":"user","content":"1+1?"}]"#;
    vec![
        samples::parquet(&schema(&prompt, text), samples::zstd(), &row(messages, "null")),
        samples::parquet(&schema(&prompt, text), samples::gzip(), &row("null", "\"2\"")),
        samples::parquet(&schema(&prompt, text), samples::zstd(), &row("[]", "\"2\"")),
        samples::parquet(
            &schema(&prompt, "optional double ground_truth;"),
            samples::zstd(),
            &row(messages, "1e308"),
        ),
        samples::parquet(
            &schema(&prompt, "optional boolean ground_truth;"),
            samples::zstd(),
            &row(messages, "true"),
        ),
        samples::parquet(
            &schema("optional binary prompt (STRING);", text),
            samples::gzip(),
            &row("\"text\"", "\"2\""),
        ),
    ]
}

fn with_wrong_columns(file: Vec<u8>) -> Vec<Vec<u8>> {
    // Half of the damage goes to the whole file.
    let mut files = wrong_columns();
    files.extend(std::iter::repeat_n(file, 6));
    files
}

#[test]
fn columns_of_wrong_types_are_named_by_row() {
    for (number, file) in wrong_columns().into_iter().enumerate() {
        let outcome = read(file);
        let is_bad = number != 3;
        assert_eq!((outcome.bad, outcome.error), (vec![1; usize::from(is_bad)], None), "{number}");
    }
    let problems: ArrayRef = Arc::new(arrow_array::StringArray::from(vec!["a", "b", "c"]));
    let golds: ArrayRef =
        Arc::new(arrow_array::Float64Array::from(vec![Some(1.0), Some(f64::NAN), None]));
    let bytes = samples::ipc(samples::Ipc::Stream, vec![("problem", problems), ("answer", golds)]);
    let outcome = read(bytes);
    assert_eq!((outcome.good, outcome.bad), (1, vec![2, 3]));
}

#[test]
fn verl() {
    check_binary("verl", &with_wrong_columns(samples::verl()));
}

#[test]
fn luffy() {
    check_binary("luffy", &with_wrong_columns(samples::luffy()));
}

#[test]
fn trapo() {
    check_binary("trapo", &with_wrong_columns(samples::trapo()));
}

#[test]
fn simplerl_zoo() {
    check_binary("simplerl-zoo", &with_wrong_columns(samples::zoo()));
}

#[test]
fn oat() {
    let mut texts = StringBuilder::new();
    texts.extend([Some("1+1?"), None, Some("")]);
    let mut numbers = Float64Builder::new();
    numbers.append_slice(&[f64::NAN, f64::INFINITY, 1e300]);
    let mut lists = ListBuilder::new(StringBuilder::new());
    lists.append_value([Some("2"), None]);
    lists.append_null();
    lists.append_value([] as [Option<&str>; 0]);
    let texts: ArrayRef = Arc::new(texts.finish());
    let file = |answers: ArrayRef| {
        samples::ipc(samples::Ipc::File, vec![("problem", texts.clone()), ("answer", answers)])
    };
    check_binary(
        "oat",
        &[
            samples::oat_numbers(samples::Ipc::Stream),
            samples::oat_numbers(samples::Ipc::Stream),
            samples::oat_lists(samples::Ipc::Stream),
            samples::oat_lists(samples::Ipc::File),
            file(Arc::new(numbers.finish())),
            file(Arc::new(lists.finish())),
            file(Arc::new(Int64Array::from(vec![i64::MAX, i64::MIN, 0]))),
        ],
    );
}
