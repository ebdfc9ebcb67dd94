//! Model folders against the reference ones that transformers wrote.

use std::fs;
use std::path::{Path, PathBuf};

use hapo_model::folder::{self, Layout};
use hapo_model::{Config, Decoder, Dtype, Llama3Scaling, QkNorm, Rope, Scaling, TensorSpec};
use safetensors::SafeTensors;

const MODELS: [&str; 4] = ["tiny-qwen2", "tiny-qwen2-bf16-sharded", "tiny-qwen3", "tiny-llama3"];

type Weights = Vec<(TensorSpec, Vec<f32>)>;
/// Name, dtype, shape, bytes.
type Tensor = (String, &'static str, Vec<usize>, Vec<u8>);

fn fixture(name: &str) -> PathBuf {
    hapo_testing::model_dir(name)
}

fn read(dir: &Path) -> (Config, Weights) {
    let opened = folder::open(dir).unwrap();
    let mut all = Vec::new();
    folder::read_weights(&opened, |spec, values| {
        all.push((spec.clone(), values.to_vec()));
    })
    .unwrap();
    (opened.config, all)
}

fn write(dir: &Path, config: &Config, layout: &Layout<'_>, all: &Weights) {
    folder::write(dir, config, layout, |spec| {
        let (_, values) = all.iter().find(|(known, _)| known == spec).unwrap();
        Ok(values.clone())
    })
    .unwrap();
}

/// Dtype, shape and bytes of every tensor of a folder, by name, as the safetensors crate reads them.
fn raw_tensors(dir: &Path) -> Vec<(String, safetensors::Dtype, Vec<usize>, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        if !file.starts_with("model") || !file.ends_with(".safetensors") {
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        for (name, view) in SafeTensors::deserialize(&bytes).unwrap().tensors() {
            all.push((name, view.dtype(), view.shape().to_vec(), view.data().to_vec()));
        }
    }
    all.sort_by(|left, right| left.0.cmp(&right.0));
    all
}

/// A copy of a reference model's files.
fn copy(name: &str) -> tempfile::TempDir {
    let out = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(fixture(name)).unwrap() {
        let path = entry.unwrap().path();
        if !path.file_name().unwrap().to_string_lossy().starts_with("expected") {
            fs::write(out.path().join(path.file_name().unwrap()), fs::read(&path).unwrap())
                .unwrap();
        }
    }
    out
}

/// A safetensors file of hand-made entries.
fn safetensors_file(path: &Path, tensors: &[Tensor]) {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, dtype, shape, bytes) in tensors {
        let start = data.len();
        data.extend_from_slice(bytes);
        header.insert(
            name.clone(),
            serde_json::json!({"dtype": dtype, "shape": shape, "data_offsets": [start, data.len()]}),
        );
    }
    let header = serde_json::to_vec(&header).unwrap();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    file.extend(data);
    fs::write(path, file).unwrap();
}

/// The tensors of a reference model in the form `safetensors_file` takes.
fn editable(name: &str) -> Vec<Tensor> {
    raw_tensors(&fixture(name))
        .into_iter()
        .map(|(name, dtype, shape, bytes)| {
            let dtype = match dtype {
                safetensors::Dtype::F32 => "F32",
                safetensors::Dtype::BF16 => "BF16",
                other => panic!("{other:?}"),
            };
            (name, dtype, shape, bytes)
        })
        .collect()
}

/// The first line a user sees, with the folder's own path cut off.
fn refusal(dir: &Path) -> String {
    let opened = folder::open(dir);
    let error = match opened {
        Err(error) => error,
        Ok(opened) => folder::read_weights(&opened, |_, _| ()).unwrap_err(),
    };
    let text = error.to_string();
    assert!(!text.contains('\n'), "{text}");
    text.replace(&format!("{}/", dir.display()), "").replace(&dir.display().to_string(), "DIR")
}

#[test]
fn configs_of_the_reference_models_say_what_made_them() {
    let qwen2 = Config {
        family: "qwen2",
        vocab_size: 384,
        hidden: 64,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 16,
        ffn: 160,
        rms_eps: 1e-6,
        decoder: Decoder { qkv_bias: true, ..Decoder::plain(Rope::of(1e6)) },
        tied: true,
        max_positions: 512,
        eos: vec![383],
        bos: None,
        pad: Some(381),
    };
    let untied = Config { tied: false, ..qwen2.clone() };
    let qwen3 = Config {
        family: "qwen3",
        head_dim: 32,
        decoder: Decoder { qk_norm: Some(QkNorm::Head), ..Decoder::plain(Rope::of(1e6)) },
        ..qwen2.clone()
    };
    let llama = Config {
        family: "llama",
        decoder: Decoder::plain(Rope {
            theta: 5e5,
            share: 1.0,
            scaling: Scaling::Llama3(Llama3Scaling {
                factor: 8.0,
                low_freq_factor: 1.0,
                high_freq_factor: 4.0,
                original_max_positions: 64,
            }),
        }),
        ..untied.clone()
    };
    let expected =
        [(qwen2, Dtype::F32), (untied, Dtype::Bf16), (qwen3, Dtype::F32), (llama, Dtype::F32)];
    for (name, (config, dtype)) in MODELS.into_iter().zip(expected) {
        let opened = folder::open(&fixture(name)).unwrap();
        assert_eq!(opened.config, config, "{name}");
        assert_eq!(opened.declared_dtype, Some(dtype), "{name}");
        assert_eq!(opened.stored_dtype(), dtype, "{name}");
    }
}

#[test]
fn weights_are_those_the_safetensors_crate_reads() {
    for name in MODELS {
        let (config, all) = read(&fixture(name));
        let specs: Vec<TensorSpec> = all.iter().map(|(spec, _)| spec.clone()).collect();
        assert_eq!(specs, config.tensors(), "{name}");
        let raw = raw_tensors(&fixture(name));
        assert_eq!(raw.len(), all.len(), "{name}");
        for (tensor, dtype, shape, bytes) in raw {
            let (spec, values) = all.iter().find(|(spec, _)| spec.name == tensor).unwrap();
            assert_eq!(spec.shape, shape, "{name} {tensor}");
            let expected: Vec<f32> = match dtype {
                safetensors::Dtype::F32 => (bytes.chunks_exact(4))
                    .map(|word| f32::from_le_bytes(word.try_into().unwrap()))
                    .collect(),
                safetensors::Dtype::BF16 => (bytes.chunks_exact(2))
                    .map(|word| half::bf16::from_le_bytes(word.try_into().unwrap()).to_f32())
                    .collect(),
                other => panic!("{other:?}"),
            };
            assert_eq!(*values, expected, "{name} {tensor}");
        }
    }
}

#[test]
fn an_f32_rewrite_has_the_bytes_that_transformers_wrote() {
    for name in ["tiny-qwen2", "tiny-qwen3", "tiny-llama3"] {
        let (config, all) = read(&fixture(name));
        let out = tempfile::tempdir().unwrap();
        let layout = Layout { dtype: Dtype::F32, ..Layout::default() };
        write(out.path(), &config, &layout, &all);
        let file = "model.safetensors";
        assert!(
            fs::read(out.path().join(file)).unwrap() == fs::read(fixture(name).join(file)).unwrap(),
            "{name}"
        );
        assert_eq!(read(out.path()), (config, all), "{name}");
    }
}

#[test]
fn a_sharded_bf16_rewrite_has_the_tensors_that_transformers_wrote() {
    let name = "tiny-qwen2-bf16-sharded";
    let (config, all) = read(&fixture(name));
    let out = tempfile::tempdir().unwrap();
    let layout = Layout { dtype: Dtype::Bf16, shard_bytes: 120_000, tokenizer_files: &[] };
    write(out.path(), &config, &layout, &all);
    assert!(raw_tensors(out.path()) == raw_tensors(&fixture(name)));
    assert_eq!(read(out.path()), (config, all));

    let mut files: Vec<String> = (fs::read_dir(out.path()).unwrap())
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(
        files,
        [
            "config.json",
            "generation_config.json",
            "model-00001-of-00003.safetensors",
            "model-00002-of-00003.safetensors",
            "model-00003-of-00003.safetensors",
            "model.safetensors.index.json",
        ]
    );
    let index: serde_json::Value =
        serde_json::from_slice(&fs::read(out.path().join("model.safetensors.index.json")).unwrap())
            .unwrap();
    assert_eq!(index["metadata"]["total_size"], 271_488);
    for file in &files[2..5] {
        let bytes = fs::metadata(out.path().join(file)).unwrap().len();
        assert!(bytes < 120_000 + 4_096, "{file} {bytes}");
    }
}

#[test]
fn half_precision_rewrites_hold_the_nearest_numbers() {
    for name in MODELS {
        let (config, all) = read(&fixture(name));
        for dtype in [Dtype::Bf16, Dtype::F16] {
            let out = tempfile::tempdir().unwrap();
            let layout = Layout { dtype, ..Layout::default() };
            write(out.path(), &config, &layout, &all);
            let (again, rounded) = read(out.path());
            assert_eq!(again, config, "{name} {dtype}");
            for ((spec, values), (_, rounded)) in all.iter().zip(&rounded) {
                for (value, rounded) in values.iter().zip(rounded) {
                    let expected = match dtype {
                        Dtype::F16 => half::f16::from_f32(*value).to_f32(),
                        _ => half::bf16::from_f32(*value).to_f32(),
                    };
                    assert_eq!(expected, *rounded, "{name} {dtype} {}", spec.name);
                }
            }
        }
    }
}

#[test]
fn the_same_model_is_written_with_the_same_bytes() {
    let (config, all) = read(&fixture("tiny-llama3"));
    let tokenizer_files = folder::open(&fixture("tiny-llama3")).unwrap().tokenizer_files().unwrap();
    assert_eq!(
        tokenizer_files.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        ["tokenizer.json", "tokenizer_config.json", "generation_config.json"]
    );
    let layout =
        Layout { dtype: Dtype::F16, shard_bytes: 100_000, tokenizer_files: &tokenizer_files };
    let contents = || {
        let out = tempfile::tempdir().unwrap();
        write(out.path(), &config, &layout, &all);
        let mut files: Vec<(String, Vec<u8>)> = (fs::read_dir(out.path()).unwrap())
            .map(|entry| {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                (name, fs::read(path).unwrap())
            })
            .collect();
        files.sort();
        files
    };
    let first = contents();
    assert!(first == contents());
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        let (_, bytes) = first.iter().find(|(file, _)| file == name).unwrap();
        assert!(*bytes == fs::read(fixture("tiny-llama3").join(name)).unwrap());
    }
}

#[test]
fn a_tied_model_may_carry_a_copy_of_its_head_but_no_other() {
    let out = copy("tiny-qwen2");
    let file = out.path().join("model.safetensors");
    let mut tensors = editable("tiny-qwen2");
    let embedding =
        tensors.iter().find(|(name, ..)| name == "model.embed_tokens.weight").unwrap().clone();
    tensors.push(("lm_head.weight".to_owned(), "F32", embedding.2, embedding.3));
    safetensors_file(&file, &tensors);
    assert_eq!(read(out.path()), read(&fixture("tiny-qwen2")));

    let head = &mut tensors.last_mut().unwrap().3;
    head[40..44].copy_from_slice(&2.5_f32.to_le_bytes());
    safetensors_file(&file, &tensors);
    let text = refusal(out.path());
    assert!(
        text.starts_with("expected a copy of model.embed_tokens.weight, as tie_word_embeddings is true, got 2.5 for ")
            && text.ends_with(" at position 10 (model.safetensors: lm_head.weight)"),
        "{text}"
    );
}

#[test]
fn rotary_buffers_of_old_folders_are_passed_over() {
    let out = copy("tiny-llama3");
    let mut tensors = editable("tiny-llama3");
    tensors.push((
        "model.layers.0.self_attn.rotary_emb.inv_freq".to_owned(),
        "F32",
        vec![8],
        vec![0; 32],
    ));
    safetensors_file(&out.path().join("model.safetensors"), &tensors);
    assert_eq!(read(out.path()), read(&fixture("tiny-llama3")));
}

#[test]
fn tensors_that_do_not_fit_are_refused_by_name() {
    type Edit = fn(&mut Vec<Tensor>);
    const NAME: &str = "model.layers.1.mlp.up_proj.weight";
    fn change(all: &mut Vec<Tensor>, change: impl FnOnce(&mut Tensor)) {
        change(all.iter_mut().find(|(known, ..)| known == NAME).unwrap());
    }
    let cases: [(Edit, &str); 6] = [
        (
            |all| all.retain(|(known, ..)| known != NAME),
            "expected a tensor of shape [160, 64], got none (model.safetensors: model.layers.1.mlp.up_proj.weight)",
        ),
        (
            |all| {
                all.push(("model.layers.0.q.lora_A".to_owned(), "F32", vec![2], vec![0; 8]));
            },
            "expected no such tensor in this architecture, got one of shape [2] (model.safetensors: model.layers.0.q.lora_A)",
        ),
        (
            |all| change(all, |tensor| tensor.2 = vec![64, 160]),
            "expected shape [160, 64], got [64, 160] (model.safetensors: model.layers.1.mlp.up_proj.weight)",
        ),
        (
            |all| change(all, |tensor| tensor.1 = "I32"),
            "expected dtype F32, BF16 or F16, got I32 (model.safetensors: model.layers.1.mlp.up_proj.weight)",
        ),
        (
            |all| change(all, |tensor| tensor.1 = "BF16"),
            "expected as many bytes as BF16 [160, 64] takes, got 40960 bytes (model.safetensors: model.layers.1.mlp.up_proj.weight)",
        ),
        (
            |all| {
                change(all, |tensor| {
                    tensor.3[8..12].copy_from_slice(&f32::NAN.to_le_bytes());
                });
            },
            "expected finite numbers, got NaN at position 2 (model.safetensors: model.layers.1.mlp.up_proj.weight)",
        ),
    ];
    for (edit, expected) in cases {
        let out = copy("tiny-qwen2");
        let mut tensors = editable("tiny-qwen2");
        edit(&mut tensors);
        safetensors_file(&out.path().join("model.safetensors"), &tensors);
        assert_eq!(refusal(out.path()), expected);
    }
}

#[test]
fn torn_and_forged_headers_are_refused_with_both_numbers() {
    let header = |entries: &str| {
        let mut file = (entries.len() as u64).to_le_bytes().to_vec();
        file.extend(entries.as_bytes());
        file
    };
    let whole = fs::read(fixture("tiny-qwen2").join("model.safetensors")).unwrap();
    let cases = [
        (
            whole[..400_000].to_vec(),
            "expected a file of 447328 bytes, got 400000 bytes (model.safetensors: model.layers.1.self_attn.k_proj.weight)",
        ),
        (
            [whole.as_slice(), b"x"].concat(),
            "expected 447328 bytes, where the last tensor ends, got 447329 bytes (model.safetensors)",
        ),
        (
            whole[..4].to_vec(),
            "expected a safetensors file of at least 8 bytes, got 4 bytes (model.safetensors)",
        ),
        (
            [&u64::MAX.to_le_bytes()[..], b"{}"].concat(),
            "expected a header of at most 2 bytes, got a header length of 18446744073709551615 (model.safetensors)",
        ),
        (
            header("[1]"),
            "expected a JSON object as header, got invalid type: sequence, expected an object at line 1 column 0 (model.safetensors)",
        ),
        (
            header(r#"{"a":{},"a":{}}"#),
            "expected a JSON object as header, got the field `a` comes twice at line 1 column 15 (model.safetensors)",
        ),
        (
            header(r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}}"#),
            r#"expected a header entry with dtype, shape and two data_offsets, got {"data_offsets":[0],"dtype":"F32","shape":[1]} (model.safetensors: a)"#,
        ),
        (
            [
                header(r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}"#),
                vec![0; 12],
            ]
            .concat(),
            "expected bytes from 8 on, where the tensor before ends, got bytes 4 to 12 (model.safetensors: b)",
        ),
        (
            header(r#"{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}"#),
            "expected as many bytes as F32 [4611686018427387904, 4] takes, got 0 bytes (model.safetensors: a)",
        ),
        (
            header(r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551615]}}"#),
            "expected a file of 18446744073709551615 bytes, got 80 bytes (model.safetensors: a)",
        ),
    ];
    for (bytes, expected) in cases {
        let out = copy("tiny-qwen2");
        fs::write(out.path().join("model.safetensors"), bytes).unwrap();
        assert_eq!(refusal(out.path()), expected);
    }
}

#[test]
fn missing_files_are_named() {
    let out = copy("tiny-qwen2");
    fs::remove_file(out.path().join("model.safetensors")).unwrap();
    assert_eq!(
        refusal(out.path()),
        "expected model.safetensors or model.safetensors.index.json, got neither (DIR)"
    );
    fs::remove_file(out.path().join("config.json")).unwrap();
    assert!(refusal(out.path()).starts_with("cannot open config.json: "));

    let out = copy("tiny-qwen2-bf16-sharded");
    fs::remove_file(out.path().join("model-00002-of-00003.safetensors")).unwrap();
    assert!(refusal(out.path()).starts_with("cannot open model-00002-of-00003.safetensors: "));
}

#[test]
fn an_index_cannot_point_outside_its_folder() {
    for file in ["../model.safetensors", "/etc/passwd", "a\\\\b", "", ".."] {
        let out = copy("tiny-qwen2-bf16-sharded");
        fs::write(
            out.path().join("model.safetensors.index.json"),
            format!(r#"{{"weight_map":{{"model.norm.weight":"{file}"}}}}"#),
        )
        .unwrap();
        assert_eq!(
            refusal(out.path()),
            format!(
                "expected the name of a file of this folder, got \"{file}\" (model.safetensors.index.json: model.norm.weight)"
            )
        );
    }
}

#[test]
fn a_tensor_in_two_shards_is_refused() {
    let out = copy("tiny-qwen2-bf16-sharded");
    let shard = out.path().join("model-00003-of-00003.safetensors");
    let bytes = (0..384 * 64 * 2).map(|_| 0).collect();
    safetensors_file(
        &shard,
        &[("model.embed_tokens.weight".to_owned(), "BF16", vec![384, 64], bytes)],
    );
    assert_eq!(
        refusal(out.path()),
        "expected a tensor in one file only, got another in model-00001-of-00003.safetensors (model-00003-of-00003.safetensors: model.embed_tokens.weight)"
    );
}

#[test]
fn what_cannot_be_written_faithfully_is_refused_and_leaves_no_model() {
    let (config, all) = read(&fixture("tiny-qwen2"));
    let attempt = |dtype, value: f32, count: Option<usize>| {
        let out = tempfile::tempdir().unwrap();
        let layout = Layout { dtype, ..Layout::default() };
        let error = folder::write(out.path(), &config, &layout, |spec| {
            let (_, values) = all.iter().find(|(known, _)| known == spec).unwrap();
            let mut values = values.clone();
            if spec.name == "model.norm.weight" {
                values[3] = value;
                values.truncate(count.unwrap_or(values.len()));
            }
            Ok(values)
        })
        .unwrap_err();
        assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0);
        error.to_string().replace(&format!("{}/", out.path().display()), "")
    };
    assert_eq!(
        attempt(Dtype::F32, f32::NAN, None),
        "expected finite numbers, got NaN at position 3 (model.safetensors: model.norm.weight)"
    );
    assert_eq!(
        attempt(Dtype::F16, -65520.0, None),
        "expected numbers within the range of f16, got -65520 at position 3 (model.safetensors: model.norm.weight)"
    );
    assert_eq!(
        attempt(Dtype::Bf16, f32::MAX, None),
        "expected numbers within the range of bf16, got 340282350000000000000000000000000000000 at position 3 (model.safetensors: model.norm.weight)"
    );
    assert_eq!(
        attempt(Dtype::F32, 0.0, Some(63)),
        "expected 64 values for shape [64], got 63 (model.safetensors: model.norm.weight)"
    );
}

#[test]
fn the_largest_numbers_of_a_format_can_be_written() {
    let (config, all) = read(&fixture("tiny-qwen2"));
    for (dtype, largest) in
        [(Dtype::F32, f32::MAX), (Dtype::Bf16, half::bf16::MAX.to_f32()), (Dtype::F16, 65504.0)]
    {
        // One f32 below the tie still rounds to the largest number.
        let almost = match dtype {
            Dtype::F32 => f32::MAX,
            Dtype::Bf16 => f32::from_bits(0x7f7f_7fff),
            Dtype::F16 => f32::from_bits(65520.0_f32.to_bits() - 1),
        };
        let mut all = all.clone();
        all.last_mut().unwrap().1[0] = almost;
        let out = tempfile::tempdir().unwrap();
        let layout = Layout { dtype, ..Layout::default() };
        write(out.path(), &config, &layout, &all);
        assert_eq!(read(out.path()).1.last().unwrap().1[0], largest, "{dtype}");
    }
}

#[test]
fn a_model_is_never_replaced_file_by_file() {
    let (config, _) = read(&fixture("tiny-qwen2"));
    let out = copy("tiny-qwen2");
    let before = fs::read(out.path().join("model.safetensors")).unwrap();
    let error =
        folder::write(out.path(), &config, &Layout::default(), |_| panic!("nothing is asked for"))
            .unwrap_err();
    assert!(error.to_string().starts_with("expected a folder without a model, got "));
    assert!(error.how_to_mend().unwrap().to_string().contains("new folder"));
    assert!(before == fs::read(out.path().join("model.safetensors")).unwrap());
}

#[test]
fn tokenizer_files_keep_to_names_of_their_own() {
    let (config, _) = read(&fixture("tiny-qwen2"));
    for name in ["../evil", "config.json", "model.safetensors", "", "a/b"] {
        let out = tempfile::tempdir().unwrap();
        let layout = Layout { tokenizer_files: &[(name, b"x".to_vec())], ..Layout::default() };
        let error = folder::write(out.path(), &config, &layout, |_| panic!("nothing is asked for"))
            .unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("expected a tokenizer file with a plain file name of its own"),
            "{error}"
        );
    }
}

#[test]
fn the_chat_template_is_the_text_of_the_folder() {
    let template = |dir: &Path| folder::open(dir).unwrap().chat_template();
    let chatml = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
    assert_eq!(template(&fixture("tiny-qwen3")).unwrap().as_deref(), Some(chatml));
    let out = copy("tiny-qwen3");
    let file = out.path().join("tokenizer_config.json");
    for (text, expected) in [
        ("{}", None),
        (r#"{"chat_template": null}"#, None),
        (
            r#"{"chat_template": [{"name": "tool_use", "template": "a"}, {"name": "default", "template": "b"}]}"#,
            Some("b"),
        ),
    ] {
        fs::write(&file, text).unwrap();
        assert_eq!(template(out.path()).unwrap().as_deref(), expected, "{text}");
    }
    fs::write(&file, r#"{"chat_template": [{"name": "tool_use"}]}"#).unwrap();
    let text = template(out.path()).unwrap_err().to_string();
    assert!(
        text.starts_with(
            r#"expected a text, or a list with one named default, got [{"name":"tool_use"}] ("#
        ) && text.ends_with("tokenizer_config.json: chat_template)"),
        "{text}"
    );
    fs::write(out.path().join("chat_template.jinja"), "c\n").unwrap();
    assert_eq!(template(out.path()).unwrap().as_deref(), Some("c\n"));
    fs::remove_file(out.path().join("chat_template.jinja")).unwrap();
    fs::remove_file(&file).unwrap();
    assert_eq!(template(out.path()).unwrap(), None);
}

/// A copy of a reference model with the checksums of all its files, and their names.
fn with_checksums(name: &str) -> (tempfile::TempDir, Vec<String>) {
    use sha2::Digest;
    let out = copy(name);
    let mut sums = folder::Checksums::new();
    for entry in fs::read_dir(out.path()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let bytes = fs::read(out.path().join(&name)).unwrap();
        sums.insert(name, hapo_core::hex(sha2::Sha256::digest(bytes)));
    }
    fs::write(out.path().join(folder::CHECKSUMS), serde_json::to_vec(&sums).unwrap()).unwrap();
    (out, sums.into_keys().collect())
}

#[test]
fn what_is_read_of_a_checkpoint_is_what_its_checksums_are_of() {
    let cpu = hapo_kernels::Cpu::new(1).unwrap();
    for model in ["tiny-qwen3", "tiny-qwen2-bf16-sharded"] {
        let (out, names) = with_checksums(model);
        let load = || hapo_model::load(out.path(), cpu.clone(), |_| 16);
        let refused = || load().unwrap_err().to_string();
        load().unwrap();
        assert!(names.len() > 4 && names.contains(&"tokenizer.json".to_owned()));
        for name in &names {
            let file = out.path().join(name);
            let bytes = fs::read(&file).unwrap();
            let mut flipped = bytes.clone();
            flipped[bytes.len() / 2] ^= 1;
            fs::write(&file, &flipped).unwrap();
            let expected = format!("{}: {name} differs from its checksum", out.path().display());
            assert!(refused().contains(&expected), "{}", refused());
            fs::remove_file(&file).unwrap();
            // Without most of them a folder would be another one; the others cannot be done without.
            let missing = format!("{}: {name} is missing", out.path().display());
            let unopened = format!("cannot open {}: No such file", file.display());
            let said = refused();
            assert!(said.contains(&missing) || said.contains(&unopened), "{said}");
            fs::write(&file, &bytes).unwrap();
        }
        load().unwrap();
        // Weights are read again after they were compared: what is read then is the same, at every place.
        let opened = folder::open(out.path()).unwrap();
        let name = names.iter().find(|it| it.ends_with(".safetensors")).unwrap();
        let (file, bytes) = (out.path().join(name), fs::read(out.path().join(name)).unwrap());
        for at in (bytes.len() / 8..bytes.len()).step_by(bytes.len() / 8) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            fs::write(&file, &flipped).unwrap();
            let refusal = folder::read_weights(&opened, |_, _| ()).unwrap_err().to_string();
            assert!(refusal.contains(&format!("{name} differs from its checksum")), "{refusal}");
        }
        fs::write(&file, &bytes).unwrap();
        folder::read_weights(&opened, |_, _| ()).unwrap();
        // A folder without checksums has nothing to be compared with.
        let tokenizer = out.path().join("tokenizer_config.json");
        fs::write(tokenizer, "{}").unwrap();
        fs::remove_file(out.path().join(folder::CHECKSUMS)).unwrap();
        load().unwrap();
    }
}

/// A map of a shortened file would end the process by a signal.
#[test]
fn a_file_that_is_shortened_while_it_is_read_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        fs::copy(hapo_testing::model_dir("tiny-qwen2").join(name), folder.path().join(name))
            .unwrap();
    }
    let opened = folder::open(folder.path()).unwrap();
    let weights = folder.path().join("model.safetensors");
    let length = fs::metadata(&weights).unwrap().len();
    fs::File::options().write(true).open(&weights).unwrap().set_len(length / 2).unwrap();
    let refusal = folder::read_weights(&opened, |_, _| ()).unwrap_err().to_string();
    assert!(refusal.contains("the end of the file"), "{refusal}");
}

#[test]
fn checksums_are_of_the_bytes_that_were_handed_over() {
    use sha2::Digest;
    let folder = tempfile::tempdir().unwrap();
    let opened = folder::open(&hapo_testing::model_dir("tiny-qwen2")).unwrap();
    let source = |spec: &hapo_model::TensorSpec| Ok(opened.tensor(&spec.name).unwrap().unwrap());
    let written = folder::write(folder.path(), &opened.config, &Layout::default(), source).unwrap();
    let names = ["config.json", "generation_config.json", "model.safetensors"];
    assert!(written.keys().eq(names));
    for (name, sum) in written {
        let bytes = fs::read(folder.path().join(&name)).unwrap();
        assert_eq!(hapo_core::hex(sha2::Sha256::digest(&bytes)), sum, "{name}");
    }
}

/// Several threads fill a matrix, each from some of its rows.
#[test]
fn a_wide_matrix_is_read_by_all_threads_and_a_bad_number_has_its_place() {
    const NAME: &str = "model.embed_tokens.weight";
    let (mut config, _) = read(&fixture("tiny-qwen2"));
    config.vocab_size = 600_000 / config.hidden;
    let number = |at: usize, name: &str| ((at * 31 + name.len()) % 251) as f32 - 125.0;
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout { dtype, ..Layout::default() };
        let source = |spec: &TensorSpec| {
            let len = spec.shape.iter().product();
            Ok((0..len).map(|at| number(at, &spec.name)).collect())
        };
        folder::write(dir.path(), &config, &layout, source).unwrap();
        fs::copy(fixture("tiny-qwen2").join("tokenizer.json"), dir.path().join("tokenizer.json"))
            .unwrap();
        let mut fingerprint = folder::Fingerprint::default();
        let (_, all) = read(dir.path());
        for (spec, values) in &all {
            fingerprint.add(spec, values);
        }
        let cpu = || hapo_kernels::Cpu::new(3).unwrap();
        let load = || hapo_model::load(dir.path(), cpu(), |_| 64);
        for loaded in [load(), hapo_model::load_frozen(dir.path(), cpu(), |_| 64)] {
            let loaded = loaded.unwrap();
            assert_eq!(loaded.fingerprint, fingerprint.to_string());
            for (spec, values) in &all {
                assert!(loaded.model.tensor(&spec.name).unwrap() == *values, "{}", spec.name);
            }
        }
        let file = dir.path().join("model.safetensors");
        let mut bytes = fs::read(&file).unwrap();
        let (header, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
        let at = 8 + header + metadata.info(NAME).unwrap().data_offsets.0 + 300_000 * dtype.size();
        bytes[at..at + dtype.size()].fill(0xff);
        fs::write(&file, bytes).unwrap();
        let refusal = load().unwrap_err().to_string();
        assert!(refusal.contains("got NaN at position 300000"), "{refusal}");
        assert!(refusal.contains(NAME), "{refusal}");
    }
}
