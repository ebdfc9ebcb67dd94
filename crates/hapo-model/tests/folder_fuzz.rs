//! Damaged files of every kind: an error that names the file, or a model; never a panic.
//!
//! `PROPTEST_CASES=100000` makes a long run of it.

use std::fs;
use std::path::{Path, PathBuf};

use hapo_model::config_json::{self, ParsedConfig};
use hapo_model::{Tokenizer, folder};
use hapo_testing::allocator::{self, MeasuringAllocator};
use proptest::prelude::*;
use safetensors::SafeTensors;
use serde_json::{Value, json};

fn fixture(file: &str) -> PathBuf {
    hapo_testing::model_dir("tiny-llama3").join(file)
}

/// The largest single allocation that a folder of some hundred kilobytes may cause.
const LARGEST: usize = 16 << 20;

#[global_allocator]
static ALLOCATOR: MeasuringAllocator = MeasuringAllocator;

/// The work's result; no single allocation of it may be larger than [`LARGEST`].
fn frugally<T>(work: impl FnOnce() -> T) -> T {
    allocator::reset();
    let result = work();
    let largest = allocator::largest();
    assert!(largest < LARGEST, "{largest} bytes at once");
    result
}

/// Damage to bytes between two disks.
#[derive(Clone, Debug)]
enum Damage {
    Cut(prop::sample::Index),
    Set(prop::sample::Index, u8),
    Remove(prop::sample::Index, usize),
    Insert(prop::sample::Index, Vec<u8>),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<prop::sample::Index>;
    prop_oneof![
        1 => at().prop_map(Damage::Cut),
        6 => (at(), any::<u8>()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        // Digits turn sizes and offsets into others and keep the JSON whole.
        6 => (at(), b'0'..=b'9').prop_map(|(at, byte)| Damage::Set(at, byte)),
        1 => (at(), 1_usize..16).prop_map(|(at, count)| Damage::Remove(at, count)),
        2 => (at(), prop::collection::vec(b'0'..=b'9', 1..20))
            .prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
    ]
}

/// Applies damage within the first `head` bytes.
fn apply(bytes: &mut Vec<u8>, head: usize, damages: &[Damage]) {
    for damage in damages {
        let head = head.min(bytes.len());
        if head == 0 {
            return;
        }
        match damage {
            Damage::Cut(at) => bytes.truncate(at.index(head)),
            Damage::Set(at, byte) => bytes[at.index(head)] = *byte,
            Damage::Remove(at, count) => {
                let start = at.index(head);
                bytes.drain(start..(start + count).min(head));
            }
            Damage::Insert(at, new) => {
                let start = at.index(head);
                bytes.splice(start..start, new.iter().copied());
            }
        }
    }
}

/// Opens a folder with this weight file and reads it; whether that worked.
fn reads(weights: &[u8]) -> bool {
    let dir = tempfile::tempdir().unwrap();
    fs::copy(fixture("config.json"), dir.path().join("config.json")).unwrap();
    fs::write(dir.path().join("model.safetensors"), weights).unwrap();
    said(dir.path())
}

/// Reads a folder; whether that worked.
fn said(folder: &Path) -> bool {
    let read = frugally(|| {
        folder::open(folder).and_then(|opened| folder::read_weights(&opened, |_, _| ()))
    });
    match read {
        Ok(()) => true,
        Err(error) => {
            assert!(error.to_string().contains(&folder.display().to_string()), "{error}");
            assert!(error.to_string().len() < 1000, "{error}");
            false
        }
    }
}

/// A JSON value that sits badly where a size, a name or an offset is expected.
fn odd_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0_u64..1 << 20).prop_map(Value::from),
        (0_u32..64).prop_map(|shift| json!(1_u64 << shift)),
        any::<f64>().prop_map(Value::from),
        "[a-zA-Z0-9_./\\\\]{0,12}".prop_map(Value::from),
        prop::collection::vec(any::<u64>(), 0..4).prop_map(|list| json!(list)),
        Just(json!({})),
        Just(json!({"rope_type": "llama3", "factor": -1.0})),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_header_is_refused_or_one_the_safetensors_crate_reads_too(
        damages in prop::collection::vec(damage(), 1..4),
    ) {
        let mut bytes = fs::read(fixture("model.safetensors")).unwrap();
        apply(&mut bytes, 2700, &damages);
        if reads(&bytes) {
            prop_assert!(SafeTensors::deserialize(&bytes).is_ok());
        }
    }

    #[test]
    fn an_edited_header_is_refused_or_one_the_safetensors_crate_reads_too(
        tensor in any::<prop::sample::Index>(),
        field in prop::sample::select(vec!["dtype", "shape", "data_offsets"]),
        value in prop_oneof![
            odd_value(),
            prop::sample::select(vec!["F32", "BF16", "F16", "F64", "U8", "I64"]).prop_map(Value::from),
            (0_u64..1 << 20, 0_u64..1 << 20).prop_map(|(start, end)| json!([start, end])),
            (any::<u64>(), any::<u64>()).prop_map(|(start, end)| json!([start, end])),
        ],
    ) {
        let bytes = fs::read(fixture("model.safetensors")).unwrap();
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let mut header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
        let names: Vec<String> = header.as_object().unwrap().keys().cloned().collect();
        header[tensor.get(&names).as_str()][field] = value;
        let header = header.to_string().into_bytes();
        let mut edited = (header.len() as u64).to_le_bytes().to_vec();
        edited.extend(header);
        edited.extend(&bytes[8 + length..]);
        if reads(&edited) {
            prop_assert!(SafeTensors::deserialize(&edited).is_ok());
        }
    }

    #[test]
    fn a_damaged_index_of_shards_is_refused_or_reads(damages in prop::collection::vec(damage(), 1..4)) {
        const INDEX: &str = "model.safetensors.index.json";
        let sharded = fixture("../tiny-qwen2-bf16-sharded");
        let dir = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(&sharded).unwrap() {
            let name = entry.unwrap().file_name();
            fs::copy(sharded.join(&name), dir.path().join(&name)).unwrap();
        }
        let mut bytes = fs::read(sharded.join(INDEX)).unwrap();
        let head = bytes.len();
        apply(&mut bytes, head, &damages);
        fs::write(dir.path().join(INDEX), bytes).unwrap();
        said(dir.path());
    }

    #[test]
    fn bytes_of_any_kind_are_refused(
        length in prop_oneof![any::<u64>(), 0_u64..64],
        rest in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let bytes = [&length.to_le_bytes()[..], &rest].concat();
        prop_assert!(!reads(&bytes));
    }

    #[test]
    fn a_damaged_config_is_refused_or_has_tensors_one_can_count(
        damages in prop::collection::vec(damage(), 1..4),
    ) {
        let mut bytes = fs::read(fixture("config.json")).unwrap();
        let head = bytes.len();
        apply(&mut bytes, head, &damages);
        let parsed = frugally(|| config_json::parse(Path::new("config.json"), &bytes, None));
        if let Ok(ParsedConfig { config, .. }) = parsed {
            count(&config)?;
        }
    }

    #[test]
    fn an_edited_config_is_refused_or_has_tensors_one_can_count(
        edits in prop::collection::vec((any::<prop::sample::Index>(), odd_value()), 1..4),
    ) {
        let bytes = fs::read(fixture("config.json")).unwrap();
        let mut config: Value = serde_json::from_slice(&bytes).unwrap();
        let names: Vec<String> = config.as_object().unwrap().keys().cloned().collect();
        for (field, value) in edits {
            config[field.get(&names).as_str()] = value;
        }
        let text = config.to_string();
        let parsed = frugally(|| config_json::parse(Path::new("config.json"), text.as_bytes(), None));
        if let Ok(ParsedConfig { config, .. }) = parsed {
            count(&config)?;
        }
    }

    #[test]
    fn a_damaged_tokenizer_is_refused_or_encodes(
        damages in prop::collection::vec(damage(), 1..4),
    ) {
        let mut bytes = fs::read(fixture("tokenizer.json")).unwrap();
        let head = bytes.len();
        apply(&mut bytes, head, &damages);
        encodes(&bytes)?;
    }

    #[test]
    fn an_edited_tokenizer_is_refused_or_encodes(
        path in prop::collection::vec(any::<prop::sample::Index>(), 1..5),
        value in prop_oneof![
            4 => odd_value(),
            1 => prop::collection::vec(prop::collection::vec("[a-zĠ+]{0,3}", 0..3), 0..3)
                .prop_map(|merges| json!(merges)),
        ],
    ) {
        let bytes = fs::read(fixture("tokenizer.json")).unwrap();
        let mut tokenizer: Value = serde_json::from_slice(&bytes).unwrap();
        let mut place = &mut tokenizer;
        for step in path {
            let descends = match &*place {
                Value::Object(inner) => !inner.is_empty(),
                Value::Array(inner) => !inner.is_empty(),
                _ => false,
            };
            if !descends {
                break;
            }
            place = match place {
                Value::Object(inner) => {
                    let at = step.index(inner.len());
                    inner.values_mut().nth(at).unwrap()
                }
                Value::Array(inner) => {
                    let at = step.index(inner.len());
                    &mut inner[at]
                }
                _ => break,
            };
        }
        *place = value;
        encodes(tokenizer.to_string().as_bytes())?;
    }
}

/// A tokenizer that is read gives ids below its `vocab_size`, or says why it cannot.
fn encodes(bytes: &[u8]) -> Result<(), TestCaseError> {
    let Ok(tokenizer) = Tokenizer::from_bytes(Path::new("tokenizer.json"), bytes) else {
        return Ok(());
    };
    let Ok(ids) = tokenizer.encode("<|im_start|>What is 3 + 4?") else {
        return Ok(());
    };
    prop_assert!(ids.iter().all(|id| (*id as usize) < tokenizer.vocab_size()));
    let _ = tokenizer.decode(&ids);
    Ok(())
}

fn count(config: &hapo_model::Config) -> Result<(), TestCaseError> {
    let tensors = frugally(|| config.tensors());
    prop_assert!(tensors.len() <= 14 * 1024 + 3);
    let parameters: u64 = (tensors.iter())
        .map(|spec| spec.shape.iter().map(|size| *size as u64).product::<u64>())
        .sum();
    prop_assert!(parameters > 0 && parameters <= config_json::MAX_PARAMETERS);
    Ok(())
}
