//! GGUF files against what the packages gguf and transformers read of them (`testdata/gguf/make_gguf.py`), and back.

use std::fs;
use std::path::{Path, PathBuf};

use hapo_core::{CounterRng, RngCounter, RngStream};
use hapo_kernels::{Compute, Cpu};
use hapo_model::folder::{self, Form, Layout, ModelFolder};
use hapo_model::{ActivationCheckpointing, Dtype, PackedBatch, Tape, Target, Tokenizer};
use hapo_testing::reference::{ids, json};
use hapo_testing::{fixtures, model_dir, repository};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const NAMES: [&str; 4] = ["llama", "qwen2", "qwen3", "gemma3"];

fn file(name: &str) -> PathBuf {
    repository("testdata/gguf").join(format!("{name}.gguf"))
}

fn expected() -> Value {
    json(&repository("testdata/gguf/expected.json"))
}

/// A model as a folder, or as a file, in a number format.
fn converted(model: &ModelFolder, out: &Path, form: Form) -> Result<(), String> {
    let device = Cpu::computing(1, Compute::F32).unwrap();
    folder::merge(out, form, model, None, &device).map_err(|it| it.to_string())
}

#[test]
fn in_f32_the_weights_have_the_bits_of_the_package_gguf_and_in_bf16_they_are_its_rounding() {
    for name in NAMES {
        let (whole, rounded) =
            (folder::open(&file(name)).unwrap().in_f32(), folder::open(&file(name)).unwrap());
        let mut count = 0;
        for (tensor, hash) in expected()[name]["tensors"].as_object().unwrap() {
            let values = whole.tensor(tensor).unwrap().unwrap();
            let bytes: Vec<u8> = values.iter().flat_map(|it| it.to_le_bytes()).collect();
            assert_eq!(hapo_core::hex(Sha256::digest(bytes)), *hash, "{name}: {tensor}");
            let in_bf16 = rounded.tensor(tensor).unwrap().unwrap();
            let is_vector = tensor.contains("norm") || tensor.ends_with("bias");
            let nearest = |it: &f32| if is_vector { *it } else { half(*it) };
            assert_eq!(in_bf16, values.iter().map(nearest).collect::<Vec<_>>(), "{name}: {tensor}");
            count += 1;
        }
        assert_eq!(count, whole.config.tensors().len(), "{name}");
        assert_eq!(rounded.stored_dtype(), Dtype::Bf16, "{name}");
        assert!(rounded.matrices_are_bf16(), "{name}");
    }
}

/// The nearest bf16, ties to even.
fn half(value: f32) -> f32 {
    let bits = value.to_bits();
    f32::from_bits((bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff_0000)
}

#[test]
fn ids_are_those_of_transformers() {
    let all = expected();
    for name in NAMES {
        let tokenizer = Tokenizer::open(&file(name)).unwrap();
        for (text, wanted) in
            all["texts"].as_array().unwrap().iter().zip(all[name]["ids"].as_array().unwrap())
        {
            assert_eq!(
                tokenizer.encode(text.as_str().unwrap()).unwrap(),
                ids(wanted),
                "{name}: {text}"
            );
            assert_eq!(tokenizer.decode(&ids(wanted)).unwrap(), text.as_str().unwrap(), "{name}");
        }
    }
}

#[test]
fn log_probabilities_in_f32_are_those_of_transformers() {
    let all = expected();
    for name in NAMES {
        let out = tempfile::tempdir().unwrap();
        let dir = out.path().join("f32");
        converted(&folder::open(&file(name)).unwrap().in_f32(), &dir, Form::Folder(Dtype::F32))
            .unwrap();
        let model = hapo_model::load(&dir, Cpu::new(2).unwrap(), |_| 256).unwrap().model;
        let rows = all[name]["ids"].as_array().unwrap().iter();
        for (tokens, wanted) in rows.zip(all[name]["logprobs"].as_array().unwrap()) {
            let tokens = ids(tokens);
            let mut batch = PackedBatch::default();
            batch.push(&tokens, None);
            let target =
                |row: usize| Target { row, token: tokens[row + 1], inverse_temperature: 1.0 };
            batch.targets = (0..tokens.len() - 1).map(target).collect();
            let got =
                Tape::new(ActivationCheckpointing::None).forward(&model, &batch).unwrap().log_probs;
            assert_eq!(got.len(), wanted.as_array().unwrap().len());
            for (got, wanted) in got.iter().zip(wanted.as_array().unwrap()) {
                assert!((f64::from(*got) - wanted.as_f64().unwrap()).abs() < 1e-4, "{name}");
            }
        }
    }
}

#[test]
fn a_file_is_a_folder_with_its_tokens_template_and_ends() {
    let opened = folder::open(&file("qwen2")).unwrap();
    let tokenizer = Tokenizer::open(&file("qwen2")).unwrap();
    let end = tokenizer.id("<|im_end|>").unwrap();
    assert_eq!(
        opened.config.eos,
        [end, end - 2],
        "the file's, then what llama.cpp stops at as well"
    );
    assert_eq!(opened.config.pad, Some(end - 2));
    assert!(opened.chat_template().unwrap().unwrap().contains("<|im_start|>"));
    assert_eq!(opened.warnings, [""; 0]);
    assert!(tokenizer.id("[PAD]").is_none(), "a row without a token");
    assert_eq!(tokenizer.decode_without_special(&[end - 1, end + 1, end]).unwrap(), "<think>");
    let llama = folder::open(&file("llama")).unwrap().tokenizer_files().unwrap();
    let whole: Value = serde_json::from_slice(&llama[0].1).unwrap();
    assert_eq!(whole["post_processor"]["single"][0]["SpecialToken"]["id"], "<s>");

    let out = tempfile::tempdir().unwrap();
    fs::copy(file("qwen2"), out.path().join("model.gguf")).unwrap();
    let of_folder = hapo_model::load(out.path(), Cpu::new(1).unwrap(), |_| 64).unwrap();
    let of_file = hapo_model::load_frozen(&file("qwen2"), Cpu::new(1).unwrap(), |_| 64).unwrap();
    assert_eq!(of_folder.fingerprint, of_file.fingerprint);
    assert!(folder::is_model(out.path()).unwrap() && folder::is_model(&file("qwen2")).unwrap());
    fs::copy(file("llama"), out.path().join("second.gguf")).unwrap();
    let error = folder::open(out.path()).unwrap_err().to_string();
    assert!(error.contains("expected one GGUF file"), "{error}");
}

/// A folder of the fixtures whose `config.json` says what GGUF can say.
fn adapted(name: &str, out: &Path) -> PathBuf {
    let families = fixtures().join("families").join(name);
    let from = if families.exists() { families } else { model_dir(name) };
    let dir = out.join(name);
    fs::create_dir(&dir).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), dir.join(entry.file_name())).unwrap();
    }
    let mut config = json(&dir.join("config.json"));
    match name {
        "mistral" => config["sliding_window"] = Value::Null,
        "smollm3" => config["no_rope_layers"] = json!([1, 1, 1, 0]),
        "gemma3_text" => config["query_pre_attn_scalar"] = json!(12),
        "olmo3" => {
            let full = &mut config["rope_parameters"]["full_attention"];
            full.as_object_mut().unwrap().remove("attention_factor");
        }
        "tiny-llama3" | "exaone4" => {
            let rope = &mut config["rope_parameters"];
            rope["original_max_position_embeddings"] = json!(8192);
            (rope["low_freq_factor"], rope["high_freq_factor"]) = (json!(1.0), json!(4.0));
        }
        _ => {}
    }
    fs::write(dir.join("config.json"), config.to_string()).unwrap();
    dir
}

const WRITTEN: [&str; 11] = [
    "tiny-qwen2",
    "tiny-qwen3",
    "tiny-llama3",
    "mistral",
    "granite",
    "smollm3",
    "olmo2",
    "olmo3",
    "gemma3_text",
    "phi3",
    "exaone4",
];

#[test]
fn every_family_is_written_and_read_back_with_the_same_bits() {
    let out = tempfile::tempdir().unwrap();
    for name in WRITTEN {
        let opened = folder::open(&adapted(name, out.path())).unwrap();
        for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
            let path = out.path().join(format!("{name}-{dtype}.gguf"));
            converted(&opened, &path, Form::Gguf(dtype)).unwrap();
            let back = folder::open(&path).unwrap();
            assert_eq!(back.stored_dtype(), dtype, "{name}");
            for spec in opened.config.tensors() {
                let [got, mut wanted] =
                    [&back, &opened].map(|it| it.tensor(&spec.name).unwrap().unwrap());
                if spec.shape.len() == 2 && dtype == Dtype::Bf16 {
                    for it in &mut wanted {
                        *it = half(*it);
                    }
                }
                // The norms of Gemma are written with 1 added.
                let is_shifted = name == "gemma3_text" && spec.name.contains("norm");
                if is_shifted || dtype == Dtype::F16 && spec.shape.len() == 2 {
                    let gap = hapo_testing::reference::gap(&got, &wanted);
                    assert!(gap < if is_shifted { 1e-7 } else { 1e-3 }, "{name}: {}", spec.name);
                } else {
                    assert_eq!(got, wanted, "{name}: {}", spec.name);
                }
            }
            let [one, two] = [&back, &opened].map(|it| Tokenizer::open(&it.dir).unwrap());
            for text in ["What is 12 * 34?", "It's  naïve\n\n<|im_end|>", "</s> 4738*6=?"] {
                assert_eq!(one.encode(text).unwrap(), two.encode(text).unwrap(), "{name}: {text}");
            }
            assert!(opened.config.eos.iter().all(|id| back.config.eos.contains(id)), "{name}");
        }
    }
}

#[test]
fn what_gguf_cannot_say_is_not_written() {
    let out = tempfile::tempdir().unwrap();
    for (name, why) in [
        ("smollm3", "expected [1,1,1,0], which is what GGUF stands for, got [1,0,1,0]"),
        ("gemma3_text", "expected 12, which is what GGUF stands for, got 20"),
        ("olmo3", "olmo3.gguf: rope_scaling)"),
        ("mistral", "expected a family that llama.cpp has, got mistral with a window"),
    ] {
        let opened = folder::open(&fixtures().join("families").join(name)).unwrap();
        let path = out.path().join(format!("{name}.gguf"));
        let error = converted(&opened, &path, Form::Gguf(Dtype::Bf16)).unwrap_err();
        assert!(error.contains(why), "{error}");
        assert!(!path.exists());
    }
    let opened = folder::open(&model_dir("tiny-qwen2")).unwrap();
    let path = out.path().join("there.gguf");
    fs::write(&path, "kept").unwrap();
    let error = converted(&opened, &path, Form::Gguf(Dtype::Bf16)).unwrap_err();
    assert!(error.contains("expected no file of this name"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"kept");
    // A way of cutting that has no name.
    let dir = adapted("tiny-qwen3", out.path());
    let mut tokenizer = json(&dir.join("tokenizer.json"));
    tokenizer["pre_tokenizer"] = json!({"type": "Whitespace"});
    fs::write(dir.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let layout = |files| Layout { tokenizer_files: files, ..Layout::default() };
    let files = folder::read_tokenizer_files(&dir).unwrap();
    let none = |_: &_| Ok(Vec::new());
    let path = out.path().join("cut.gguf");
    let error = folder::write_gguf(&path, &opened.config, &layout(&files), none).unwrap_err();
    assert!(
        error.to_string().contains("expected a way of cutting a text that has a name in GGUF"),
        "{error}"
    );
}

fn refusal(bytes: &[u8]) -> String {
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("model.gguf");
    fs::write(&path, bytes).unwrap();
    let error = folder::open(&path).and_then(|it| it.tokenizer_files().map(drop));
    error.unwrap_err().to_string().replace(&path.display().to_string(), "FILE")
}

/// A file with a text in place of another of the same length.
fn replaced(bytes: &[u8], old: &str, new: &str) -> Vec<u8> {
    assert_eq!(old.len(), new.len());
    let at = bytes.windows(old.len()).position(|it| it == old.as_bytes()).expect(old);
    let mut bytes = bytes.to_vec();
    bytes[at..at + old.len()].copy_from_slice(new.as_bytes());
    bytes
}

#[test]
fn what_is_not_read_is_refused_by_its_name() {
    let bytes = fs::read(file("qwen2")).unwrap();
    let at = |name: &str| {
        let found = bytes.windows(name.len()).position(|it| it == name.as_bytes());
        found.expect(name) + name.len()
    };
    let set = |at: usize, value: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[at..at + value.len()].copy_from_slice(value);
        bytes
    };
    let tensor = at("blk.1.ffn_up.weight");
    // Behind a tensor's name: the number of its sizes, two sizes, its format, its place.
    for (damaged, why) in [
        (set(tensor + 20, &[23]), "expected F32, F16, BF16, Q8_0"),
        (set(tensor + 20, &[23]), "got IQ4_XS (FILE: blk.1.ffn_up.weight)"),
        (set(tensor + 20, &[99]), "got type 99"),
        (set(tensor, &[5]), "expected 1 to 4 dimensions, got 5 (FILE: blk.1.ffn_up.weight)"),
        (set(tensor + 4, &[33]), "expected rows of whole blocks of 32, as Q4_1 has"),
        (
            set(tensor + 4, &[64, 0, 0, 0, 0, 0, 0, 0, 32]),
            "expected shape [64, 32], got [32, 64] (FILE: model.layers.1.mlp.up_proj.weight)",
        ),
        (set(tensor + 4, &[0xff; 16]), "expected a tensor of less than 2^64 bytes"),
        (set(tensor + 24, &[0; 4]), "expected bytes from"),
        (set(tensor + 24, &[0xe0, 0xff, 0xff]), "expected bytes within the file of"),
        (set(8, &[0xff; 8]), "expected 1 to 4 dimensions, got 0 (FILE)"),
        (set(16, &[0xff; 8]), "expected"),
        (set(4, &[1]), "expected GGUF of version 2 or 3, little-endian, got version 1"),
        (set(4, &[0, 0, 0, 3]), "got a big-endian file"),
        (b"GGUF".to_vec(), "expected 4 bytes, got the file's last 0 (FILE: the version)"),
        (Vec::new(), "expected a GGUF file, got an empty one"),
        (bytes[..bytes.len() - 1].to_vec(), "expected bytes within the file of"),
        (
            replaced(&bytes, "qwen2.block_count", "qwen2.block_couns"),
            "got nothing (FILE: num_hidden_layers)",
        ),
        (
            replaced(&bytes, "blk.1.ffn_up", "blk.1.ffn_xx"),
            "got none (FILE: model.layers.1.mlp.up_proj.weight)",
        ),
        (
            replaced(&bytes, "qwen2.rope.freq_base", "qwen2.rope.freq_bass"),
            "(FILE: qwen2.rope.freq_bass)",
        ),
        (
            replaced(&bytes, "general.architecture", "general.architectura"),
            "expected one of llama, qwen2, qwen3",
        ),
        (replaced(&bytes, "blk.1.ffn_up", "blk.0.ffn_up"), "expected every tensor once"),
        (
            replaced(&bytes, "tokenizer.ggml.pre", "tokenizer.ggml.prx"),
            "expected one of qwen2, deepseek-r1-qwen",
        ),
        (
            replaced(&bytes, "tokenizer.ggml.merges", "tokenizer.ggml.merged"),
            "(FILE: tokenizer.ggml.merges)",
        ),
    ] {
        let error = refusal(&damaged);
        assert!(error.contains(why), "{why}\n{error}");
    }
}

/// The tokenizer is read before the configuration in places.
#[test]
fn a_tokenizer_without_an_architecture_is_no_panic() {
    let mut bytes = fs::read(file("llama")).unwrap();
    let key = b"general.architecture";
    let at = bytes.windows(key.len()).position(|it| it == key).unwrap();
    bytes[at + key.len() - 1] = b'a';
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("model.gguf");
    fs::write(&path, &bytes).unwrap();
    let whole = Tokenizer::open(&file("llama")).unwrap();
    assert_eq!(
        Tokenizer::open(&path).unwrap().encode("a b").unwrap(),
        whole.encode("a b").unwrap()
    );
    assert!(folder::open(&path).is_err());
}

#[test]
fn damage_is_refused_or_read_but_never_fatal() {
    for (which, name) in ["qwen2", "llama"].into_iter().enumerate() {
        let bytes = fs::read(file(name)).unwrap();
        let out = tempfile::tempdir().unwrap();
        let path = out.path().join("model.gguf");
        let header = 12_000;
        let mut refused = 0;
        for case in 0..400 {
            let counter = RngCounter { step: case, prompt: which as u64, rollout: 0, position: 0 };
            let mut rng = CounterRng::new(64, RngStream::Adapter, counter);
            let mut below = |n: usize| ((rng.uniform() * n as f64) as usize).min(n - 1);
            let mut damaged = bytes.clone();
            match case % 4 {
                0 => damaged.truncate(below(bytes.len())),
                1 => {
                    for _ in 0..=below(8) {
                        let at = below(header);
                        damaged[at] = below(256) as u8;
                    }
                }
                2 => {
                    // Counts, lengths and places.
                    let at = below(header - 8);
                    let value = [u64::MAX, 1 << 62, 1 << 32, 1 << 31, 255][below(5)];
                    damaged[at..at + 8].copy_from_slice(&value.to_le_bytes());
                }
                _ => {
                    let (from, to) = (below(header), below(header));
                    let n = below(64);
                    damaged.copy_within(from..from + n, to);
                }
            }
            fs::write(&path, &damaged).unwrap();
            let read = folder::open(&path).and_then(|it| {
                folder::read_weights(&it, |_, _| {})?;
                it.tokenizer_files()?;
                Tokenizer::open(&path)
            });
            if let Err(error) = read {
                assert!(error.to_string().contains("model.gguf"), "{error}");
                refused += 1;
            }
        }
        assert!(refused > 150, "{name}: {refused} of 400");
    }
}
