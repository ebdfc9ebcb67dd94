//! `config.json`: reading, writing, refusals and their messages.

use std::path::Path;

use hapo_core::Refusal;
use hapo_model::config_json::{ParsedConfig, parse, render, render_generation};
use hapo_model::folder::{Layout, write};
use hapo_model::{Config, Decoder, Dtype, FAMILIES, Llama3Scaling, QkNorm, Rope, Scaling};
use serde_json::{Value, json};

fn read(config: &Value, generation: Option<&Value>) -> Result<(Config, Option<Dtype>), Refusal> {
    read_all(config, generation).map(|it| (it.config, it.dtype))
}

fn read_all(config: &Value, generation: Option<&Value>) -> Result<ParsedConfig, Refusal> {
    let generation = generation.map(|value| value.to_string().into_bytes());
    parse(
        Path::new("config.json"),
        config.to_string().as_bytes(),
        (generation.as_deref()).map(|text| (Path::new("generation_config.json"), text)),
    )
}

/// Published `config.json` of Qwen2.5-Math-1.5B, transformers 4.
fn qwen25() -> Value {
    json!({
        "architectures": ["Qwen2ForCausalLM"],
        "attention_dropout": 0.0,
        "bos_token_id": 151_643,
        "eos_token_id": 151_643,
        "hidden_act": "silu",
        "hidden_size": 1536,
        "initializer_range": 0.02,
        "intermediate_size": 8960,
        "max_position_embeddings": 4096,
        "max_window_layers": 21,
        "model_type": "qwen2",
        "num_attention_heads": 12,
        "num_hidden_layers": 28,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-06,
        "rope_theta": 10000,
        "sliding_window": 4096,
        "tie_word_embeddings": true,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.44.0",
        "use_cache": true,
        "use_mrope": false,
        "use_sliding_window": false,
        "vocab_size": 151_936
    })
}

/// Published `config.json` of Llama-3.2-1B-Instruct, transformers 4.
fn llama32() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": false,
        "attention_dropout": 0.0,
        "bos_token_id": 128_000,
        "eos_token_id": [128_001, 128_008, 128_009],
        "head_dim": 64,
        "hidden_act": "silu",
        "hidden_size": 2048,
        "initializer_range": 0.02,
        "intermediate_size": 8192,
        "max_position_embeddings": 131_072,
        "mlp_bias": false,
        "model_type": "llama",
        "num_attention_heads": 32,
        "num_hidden_layers": 16,
        "num_key_value_heads": 8,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-05,
        "rope_scaling": {
            "factor": 32.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3"
        },
        "rope_theta": 500_000.0,
        "tie_word_embeddings": true,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.45.0.dev0",
        "use_cache": true,
        "vocab_size": 128_256
    })
}

/// Qwen3-0.6B in the dialect of transformers 5.
fn qwen3() -> Value {
    json!({
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": false,
        "attention_dropout": 0.0,
        "bos_token_id": 151_643,
        "dtype": "bfloat16",
        "eos_token_id": 151_645,
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": 1024,
        "initializer_range": 0.02,
        "intermediate_size": 3072,
        "layer_types": vec!["full_attention"; 28],
        "max_position_embeddings": 40960,
        "max_window_layers": 28,
        "model_type": "qwen3",
        "num_attention_heads": 16,
        "num_hidden_layers": 28,
        "num_key_value_heads": 8,
        "pad_token_id": null,
        "rms_norm_eps": 1e-06,
        "rope_parameters": {"rope_theta": 1_000_000, "rope_type": "default"},
        "sliding_window": null,
        "tie_word_embeddings": true,
        "transformers_version": "5.0.0",
        "use_cache": true,
        "use_sliding_window": false,
        "vocab_size": 151_936
    })
}

/// The common fields of one family's folders: `testdata/model_configs/fields.json`.
fn published() -> Value {
    let file = hapo_testing::repository("testdata/model_configs/fields.json");
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

/// The published base of a model type.
fn base_of(model_type: &str) -> Value {
    match model_type {
        "llama" => llama32(),
        "qwen2" => qwen25(),
        _ => qwen3(),
    }
}

fn laid_on(mut base: Value, fields: &Value) -> Value {
    for (name, value) in fields.as_object().unwrap() {
        base[name] = value.clone();
    }
    base
}

#[test]
fn published_field_sets_are_read_without_a_warning() {
    let published = published();
    let sets = published["folders"].as_object().unwrap();
    assert_eq!(sets.len(), 24);
    for (name, fields) in sets {
        let config = read_all(fields, None).unwrap_or_else(|it| panic!("{name}: {it}"));
        assert_eq!(config.unread, Vec::<String>::new(), "{name}");
    }
}

#[test]
fn what_transformers_itself_writes_is_read_without_a_warning() {
    let published = published();
    let versions = published["transformers"].as_object().unwrap();
    let names: Vec<&str> = versions.keys().map(String::as_str).collect();
    assert_eq!(names, ["4.37.2", "4.44.2", "4.51.3", "4.57.1", "5.0.0"]);
    let mut seen = 0;
    for (version, classes) in versions {
        for (class, fields) in classes.as_object().unwrap() {
            for model_type in ["llama", "qwen2", "qwen3"] {
                if class != "PretrainedConfig" && !class.to_lowercase().starts_with(model_type) {
                    continue;
                }
                let mut config = base_of(model_type);
                if class == "PretrainedConfig" {
                    // Sizes are the model's, everything else as transformers defaults it.
                    let own = [
                        "architectures",
                        "model_type",
                        "torch_dtype",
                        "dtype",
                        "tie_word_embeddings",
                    ];
                    let mut fields = fields.clone();
                    fields.as_object_mut().unwrap().retain(|it, _| !own.contains(&it.as_str()));
                    config = laid_on(config, &fields);
                } else {
                    let architectures = config["architectures"].clone();
                    config = laid_on(fields.clone(), &json!({ "architectures": architectures }));
                }
                let parsed = read_all(&config, None)
                    .unwrap_or_else(|it| panic!("{version} {class} as {model_type}: {it}"));
                assert_eq!(parsed.unread, Vec::<String>::new(), "{version} {class}");
                seen += 1;
            }
        }
    }
    // The common class as each of three types, then the classes themselves; Qwen3 came with 4.51.
    assert_eq!(seen, 5 * 3 + 5 * 2 + 3);
}

/// The values of the table of harmless fields: each alone gives the same decoder, and no warning.
#[test]
fn fields_that_transformers_passes_over_change_nothing() {
    let harmless = json!({
        "is_llama_config": true, "rope_interleaved": false, "transformers.js_config": {"dtype": "q4"},
        "unk_token_id": 0, "cls_token_id": 1, "mask_token_id": 2, "end_token_id": 3, "pad_token_id": -1,
        "max_sequence_length": 2048, "model_max_length": 2048, "tokenizer_model_max_length": 2048,
        "tokenizer_padding_side": "right", "gradient_checkpointing": false, "use_return_dict": true,
        "output_past": true, "ignore_index": -100, "classifier_dropout": 0.1, "export_model_type": "text",
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0, "hidden_dropout": 0.0, "dropout": 0.0,
        "hidden_act": "swish", "bias": false, "use_bias": false, "no_bias": true, "use_qk_norm": false,
        "num_experts": 0, "rotary_pct": 1, "torch_dtype": "auto", "license": "mit",
        "library_name": "transformers", "datasets": ["a"], "task": "x", "trl_version": "0.9",
        "fp16": false, "bf16": true, "pretraining_tp": 2
    });
    let mut seen = 0;
    for (field, value) in harmless.as_object().unwrap() {
        for base in [llama32(), qwen25(), qwen3()] {
            let same = read_all(&base, None).unwrap().config;
            let found = read_all(&with(base, field, value.clone()), None).unwrap();
            assert_eq!((found.config, found.unread), (same, Vec::new()), "{field}");
            seen += 1;
        }
    }
    assert_eq!(seen, 3 * 39);
    for scaling in [
        json!({"rope_type": "linear", "factor": 1.0}),
        json!({"rope_type": "default", "factor": 1.0}),
        json!({"type": "linear", "factor": 1}),
    ] {
        let found = read(&with(qwen25(), "rope_scaling", scaling), None).unwrap();
        assert_eq!(found, read(&qwen25(), None).unwrap());
    }
    let found = read(&with(qwen25(), "torch_dtype", json!("torch.bfloat16")), None).unwrap();
    assert_eq!(found.1, Some(Dtype::Bf16));
}

#[test]
fn a_llama_without_rope_theta_has_that_of_transformers() {
    let mut old = without(llama32(), "rope_theta");
    old["rope_scaling"] = Value::Null;
    assert_eq!(read(&old, None).unwrap().0.decoder.ropes[0], Rope::of(1e4));
    let scaled = read(&without(llama32(), "rope_theta"), None).unwrap().0.decoder.ropes[0].clone();
    assert_eq!((scaled.theta, scaled.scaling != Scaling::None), (1e4, true));
}

#[test]
fn unknown_notes_are_named_and_unknown_arithmetic_is_refused() {
    let noted = with(with(llama32(), "wandb_run", json!("x")), "trained_by", json!({"who": 1}));
    assert_eq!(read_all(&noted, None).unwrap().unread, ["trained_by", "wandb_run"]);
    for (field, value) in [
        ("quantization", json!({"bits": 4})),
        ("compression_config", json!({})),
        ("dual_chunk_attention_config", json!({})),
        ("no_rope_layers", json!([1])),
        ("embedding_multiplier", json!(12.0)),
        ("logits_scaling", json!(8.0)),
        ("attn_logit_softcapping", json!(50.0)),
        ("final_logit_softcapping", json!(30.0)),
        ("num_nextn_predict_layers", json!(1)),
        ("rotary_pct", json!(0.25)),
        ("use_qk_norm", json!(true)),
        ("no_bias", json!(false)),
        ("num_experts", json!(8)),
    ] {
        let error = read(&with(llama32(), field, value), None).unwrap_err();
        assert!(error.to_string().ends_with(&format!("(config.json: {field})")), "{error}");
    }
}

fn with(mut base: Value, field: &str, value: Value) -> Value {
    base[field] = value;
    base
}

fn without(mut base: Value, field: &str) -> Value {
    base.as_object_mut().unwrap().remove(field).unwrap();
    base
}

#[test]
fn published_configs_are_read_in_both_dialects() {
    let (config, dtype) = read(&qwen25(), None).unwrap();
    assert_eq!(dtype, Some(Dtype::Bf16));
    assert_eq!(
        config,
        Config {
            family: "qwen2",
            vocab_size: 151_936,
            hidden: 1536,
            layers: 28,
            heads: 12,
            kv_heads: 2,
            head_dim: 128,
            ffn: 8960,
            rms_eps: 1e-6,
            tied: true,
            decoder: Decoder { qkv_bias: true, ..Decoder::plain(Rope::of(1e4)) },
            max_positions: 4096,
            eos: vec![151_643],
            bos: Some(151_643),
            pad: None,
        }
    );
    let parameters: usize =
        (config.tensors().iter()).map(|spec| spec.shape.iter().product::<usize>()).sum();
    assert_eq!(parameters, 1_543_714_304);

    let (config, dtype) = read(&llama32(), None).unwrap();
    assert_eq!(dtype, Some(Dtype::Bf16));
    assert_eq!(config.eos, [128_001, 128_008, 128_009]);
    assert_eq!(
        config.decoder.ropes[0],
        Rope {
            theta: 5e5,
            share: 1.0,
            scaling: Scaling::Llama3(Llama3Scaling {
                factor: 32.0,
                low_freq_factor: 1.0,
                high_freq_factor: 4.0,
                original_max_positions: 8192,
            })
        }
    );

    let (config, dtype) = read(&qwen3(), None).unwrap();
    assert_eq!(dtype, Some(Dtype::Bf16));
    assert_eq!(
        (config.head_dim, config.decoder.qk_norm, config.decoder.ropes[0].theta),
        (128, Some(QkNorm::Head), 1e6)
    );
    let parameters: usize =
        (config.tensors().iter()).map(|spec| spec.shape.iter().product::<usize>()).sum();
    assert_eq!(parameters, 596_049_920);
}

#[test]
fn ids_of_generation_config_win() {
    let generation = json!({
        "bos_token_id": 151_643,
        "pad_token_id": 151_643,
        "do_sample": true,
        "eos_token_id": [151_645, 151_643],
        "temperature": 0.7
    });
    let (config, _) = read(&qwen25(), Some(&generation)).unwrap();
    assert_eq!(config.eos, [151_645, 151_643]);
    assert_eq!(config.pad, Some(151_643));
    let (config, _) = read(&qwen25(), Some(&json!({"eos_token_id": null}))).unwrap();
    assert_eq!(config.eos, [151_643]);
}

#[test]
fn what_is_written_is_read_back_equal() {
    for base in [
        qwen25(),
        llama32(),
        qwen3(),
        with(qwen25(), "eos_token_id", Value::Null),
        with(qwen25(), "head_dim", json!(64)),
        with(qwen3(), "rms_norm_eps", json!(1.1e-5)),
        with(qwen25(), "rope_scaling", json!({"type": "linear", "factor": 2.5})),
        with(qwen25(), "rope_scaling", json!({"type": "yarn", "factor": 4.0})),
    ] {
        let (config, _) = read(&base, None).unwrap();
        for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
            let text = render(&config, dtype);
            let generation = render_generation(&config, None).unwrap();
            let again = parse(
                Path::new("config.json"),
                text.as_bytes(),
                Some((Path::new("generation_config.json"), generation.as_bytes())),
            );
            let again = again.unwrap();
            assert_eq!((again.config, again.dtype), (config.clone(), Some(dtype)));
        }
    }
}

#[test]
fn the_written_dialect_is_that_of_transformers_4() {
    let (config, _) = read(&llama32(), None).unwrap();
    expect_test::expect![[r#"
        {
          "architectures": [
            "LlamaForCausalLM"
          ],
          "attention_bias": false,
          "attention_dropout": 0.0,
          "bos_token_id": 128000,
          "eos_token_id": [
            128001,
            128008,
            128009
          ],
          "head_dim": 64,
          "hidden_act": "silu",
          "hidden_size": 2048,
          "initializer_range": 0.02,
          "intermediate_size": 8192,
          "max_position_embeddings": 131072,
          "mlp_bias": false,
          "model_type": "llama",
          "num_attention_heads": 32,
          "num_hidden_layers": 16,
          "num_key_value_heads": 8,
          "pad_token_id": null,
          "pretraining_tp": 1,
          "rms_norm_eps": 0.00001,
          "rope_scaling": {
            "factor": 32.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3"
          },
          "rope_theta": 500000.0,
          "tie_word_embeddings": true,
          "torch_dtype": "bfloat16",
          "use_cache": true,
          "vocab_size": 128256
        }
    "#]]
    .assert_eq(&render(&config, Dtype::Bf16));
    expect_test::expect![[r#"
        {
          "bos_token_id": 128000,
          "eos_token_id": [
            128001,
            128008,
            128009
          ]
        }
    "#]]
    .assert_eq(&render_generation(&config, None).unwrap());
}

#[test]
fn fields_that_change_nothing_are_let_through() {
    let same = read(&qwen25(), None).unwrap();
    for (field, value) in [
        ("_name_or_path", json!("Qwen/Qwen2.5")),
        ("rope_scaling", Value::Null),
        ("quantization_config", Value::Null),
        ("something_new", Value::Null),
        ("attention_bias", json!(true)),
        ("layer_types", json!(vec!["full_attention"; 28])),
        ("rope_scaling", json!({"type": "default"})),
        (
            "rope_parameters",
            json!({"rope_theta": 1e4, "rope_type": "default", "partial_rotary_factor": 1.0}),
        ),
        ("dtype", json!("bfloat16")),
    ] {
        assert_eq!(read(&with(qwen25(), field, value), None).unwrap(), same, "{field}");
    }
    // A Llama folder from before `head_dim` and grouped heads.
    let old = without(without(llama32(), "head_dim"), "num_key_value_heads");
    let (config, _) = read(&old, None).unwrap();
    assert_eq!((config.head_dim, config.kv_heads), (64, 32));
}

#[test]
fn what_is_not_implemented_is_refused_by_name() {
    let cases = [
        (
            with(qwen25(), "architectures", json!(["MambaForCausalLM"])),
            r#"expected a list of one of CLASSES, got ["MambaForCausalLM"] (config.json: architectures)"#,
        ),
        (
            with(qwen25(), "architectures", json!(["Qwen2ForSequenceClassification"])),
            r#"expected a list of one of CLASSES, got ["Qwen2ForSequenceClassification"] (config.json: architectures)"#,
        ),
        (
            without(qwen25(), "architectures"),
            r#"expected a list of one of CLASSES, got nothing (config.json: architectures)"#,
        ),
        (
            with(qwen25(), "model_type", json!("qwen3")),
            r#"expected "qwen2", as architectures says Qwen2ForCausalLM, got "qwen3" (config.json: model_type)"#,
        ),
        (
            with(qwen25(), "use_sliding_window", json!(true)),
            "expected false, got true (config.json: use_sliding_window)",
        ),
        (
            with(llama32(), "sliding_window", json!(4096)),
            "expected null, got 4096 (config.json: sliding_window)",
        ),
        (
            with(qwen3(), "layer_types", json!(["full_attention"])),
            r#"expected "full_attention" for each of the 28 layers, got ["full_attention"] (config.json: layer_types)"#,
        ),
        (
            {
                let mut types = vec!["full_attention"; 28];
                types[5] = "sliding_attention";
                with(qwen3(), "layer_types", json!(types))
            },
            r#"expected "full_attention" for each of the 28 layers, got "sliding_attention" (config.json: layer_types[5])"#,
        ),
        (
            with(
                qwen25(),
                "rope_scaling",
                json!({"type": "ntk", "factor": 4.0, "original_max_position_embeddings": 32768}),
            ),
            r#"expected "default", "linear", "llama3", "yarn" or "longrope", got "ntk" (config.json: rope_scaling.type)"#,
        ),
        (
            with(qwen25(), "rope_scaling", json!({"rope_type": "dynamic", "factor": 2.0})),
            r#"expected "default", "linear", "llama3", "yarn" or "longrope", got "dynamic" (config.json: rope_scaling.rope_type)"#,
        ),
        (
            with(qwen25(), "rope_scaling", json!({"type": "linear", "factor": 0.5})),
            "expected a finite number of at least 1, got 0.5 (config.json: rope_scaling.factor)",
        ),
        (
            with(llama32(), "rope_interleaved", json!(true)),
            "expected false, got true (config.json: rope_interleaved)",
        ),
        (
            with(qwen25(), "auto_map", json!({"AutoModelForCausalLM": "modeling_x.X"})),
            r#"expected an architecture of transformers itself, without code of its own, got {"AutoModelForCausalLM":"modeling_x.X"} (config.json: auto_map)"#,
        ),
        (
            with(
                with(with(llama32(), "logits_scaling", json!(8.0)), "hidden_act", json!("gelu")),
                "run",
                json!(1),
            ),
            r#"2 fields ask for another decoder: expected "silu", got "gelu" (hidden_act); expected no such field, as the decoder does not implement it, got 8.0 (logits_scaling) (config.json)"#,
        ),
        (
            with(qwen3(), "rope_parameters", json!({"rope_theta": 1e6, "rope_type": "longrope"})),
            "expected a positive integer, got nothing (config.json: rope_parameters.original_max_position_embeddings)",
        ),
        (
            with(
                qwen3(),
                "rope_parameters",
                json!({"rope_theta": 1e6, "rope_type": "default", "mrope_section": [1]}),
            ),
            "expected no such field, as the decoder does not implement it, got [1] (config.json: rope_parameters.mrope_section)",
        ),
        (
            with(
                qwen3(),
                "rope_parameters",
                json!({"rope_theta": 1e6, "partial_rotary_factor": 0.5}),
            ),
            "expected 1.0, got 0.5 (config.json: rope_parameters.partial_rotary_factor)",
        ),
        (
            with(qwen3(), "rope_theta", json!(5)),
            "expected 5, as outside, got 1000000 (config.json: rope_parameters.rope_theta)",
        ),
        (
            with(
                llama32(),
                "rope_scaling",
                json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}),
            ),
            "expected a positive integer, got nothing (config.json: rope_scaling.original_max_position_embeddings)",
        ),
        (
            with(
                llama32(),
                "rope_scaling",
                json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}),
            ),
            "expected a finite number above low_freq_factor (4), both positive, got 4 (config.json: rope_scaling.high_freq_factor)",
        ),
        (
            with(qwen25(), "partial_rotary_factor", json!(0.5)),
            "expected 1.0, got 0.5 (config.json: partial_rotary_factor)",
        ),
        (
            with(qwen25(), "num_experts", json!(60)),
            "expected a dense model, without experts, got 60 (config.json: num_experts)",
        ),
        (
            with(qwen3(), "moe_intermediate_size", json!(768)),
            "expected a dense model, without experts, got 768 (config.json: moe_intermediate_size)",
        ),
        (
            with(qwen25(), "hidden_act", json!("gelu")),
            r#"expected "silu", got "gelu" (config.json: hidden_act)"#,
        ),
        (
            with(llama32(), "attention_bias", json!(true)),
            "expected false, got true (config.json: attention_bias)",
        ),
        (
            with(qwen3(), "attention_bias", json!(true)),
            "expected false, got true (config.json: attention_bias)",
        ),
        (
            with(qwen25(), "attention_bias", json!(false)),
            "expected true, got false (config.json: attention_bias)",
        ),
        (
            with(llama32(), "mlp_bias", json!(true)),
            "expected false, got true (config.json: mlp_bias)",
        ),
        (
            with(qwen25(), "attention_dropout", json!(0.1)),
            "expected 0.0, got 0.1 (config.json: attention_dropout)",
        ),
        (
            with(qwen25(), "is_causal", json!(false)),
            "expected true, got false (config.json: is_causal)",
        ),
        (
            with(qwen25(), "quantization_config", json!({"quant_method": "gptq"})),
            r#"expected unquantised weights, got {"quant_method":"gptq"} (config.json: quantization_config)"#,
        ),
        (
            with(qwen25(), "attn_logit_softcapping", json!(50.0)),
            "expected no such field, as the decoder does not implement it, got 50.0 (config.json: attn_logit_softcapping)",
        ),
        (
            with(qwen25(), "torch_dtype", json!("float8_e4m3fn")),
            r#"expected "float32", "bfloat16" or "float16", got "float8_e4m3fn" (config.json: torch_dtype)"#,
        ),
        (
            with(qwen25(), "dtype", json!("float32")),
            r#"expected "bfloat16", as torch_dtype says, got "float32" (config.json: dtype)"#,
        ),
    ];
    let classes: Vec<&str> = FAMILIES.iter().map(|it| it.architecture).collect();
    for (config, expected) in cases {
        let expected = expected.replace("CLASSES", &classes.join(", "));
        assert_eq!(read(&config, None).unwrap_err().to_string(), expected);
    }
}

#[test]
fn sizes_are_bounded_and_agree() {
    let range = "expected an integer from 1 to";
    let cases = [
        (with(qwen25(), "hidden_size", json!(0)), format!("{range} 262144, got 0 (config.json: hidden_size)")),
        (with(qwen25(), "hidden_size", json!(-1)), "expected a positive integer, got -1 (config.json: hidden_size)".to_owned()),
        (with(qwen25(), "hidden_size", json!(1536.5)), "expected a positive integer, got 1536.5 (config.json: hidden_size)".to_owned()),
        (with(qwen25(), "hidden_size", json!("1536")), "expected a positive integer, got \"1536\" (config.json: hidden_size)".to_owned()),
        (without(qwen25(), "hidden_size"), "expected a positive integer, got nothing (config.json: hidden_size)".to_owned()),
        (with(qwen25(), "num_hidden_layers", json!(u64::MAX)), format!("{range} 1024, got 18446744073709551615 (config.json: num_hidden_layers)")),
        (with(qwen25(), "vocab_size", json!(1_u64 << 40)), format!("{range} 16777216, got 1099511627776 (config.json: vocab_size)")),
        (with(qwen25(), "num_key_value_heads", json!(5)), "expected a divisor of num_attention_heads (12), got 5 (config.json: num_key_value_heads)".to_owned()),
        (with(qwen25(), "num_attention_heads", json!(14)), "expected a multiple of num_attention_heads (14), as head_dim is not given, got 1536 (config.json: hidden_size)".to_owned()),
        (with(qwen3(), "head_dim", json!(127)), "expected an even number, as the rotation turns pairs, got 127 (config.json: head_dim)".to_owned()),
        (without(qwen3(), "head_dim"), "expected a positive integer, got nothing (config.json: head_dim)".to_owned()),
        (without(qwen3(), "num_key_value_heads"), "expected a positive integer, got nothing (config.json: num_key_value_heads)".to_owned()),
        (with(qwen25(), "rms_norm_eps", json!(0)), "expected a number between 0 and 1, got 0 (config.json: rms_norm_eps)".to_owned()),
        (without(qwen25(), "rms_norm_eps"), "expected a small positive number, got nothing (config.json: rms_norm_eps)".to_owned()),
        (without(qwen25(), "rope_theta"), "expected a number, got nothing (config.json: rope_theta)".to_owned()),
        (with(qwen25(), "rope_theta", json!(0.5)), "expected a finite number of at least 1, got 0.5 (config.json: rope_theta)".to_owned()),
        (with(qwen25(), "tie_word_embeddings", json!("yes")), "expected true or false, got \"yes\" (config.json: tie_word_embeddings)".to_owned()),
        (with(qwen25(), "eos_token_id", json!(151_936)), "expected an id below vocab_size (151936), got 151936 (config.json: eos_token_id)".to_owned()),
        (with(qwen25(), "eos_token_id", json!([1, -1])), "expected a token id or a list of them, got [1,-1] (config.json: eos_token_id)".to_owned()),
        (with(qwen25(), "pad_token_id", json!("x")), "expected a token id or null, got \"x\" (config.json: pad_token_id)".to_owned()),
        (
            with(with(with(qwen3(), "hidden_size", json!(262_144)), "intermediate_size", json!(1_048_576)), "head_dim", json!(4096)),
            "expected at most 1099511627776 parameters in all, got 24572697477120 (config.json: hidden_size × num_hidden_layers)".to_owned(),
        ),
    ];
    for (config, expected) in cases {
        assert_eq!(read(&config, None).unwrap_err().to_string(), expected);
    }
    let error = read(
        &with(qwen3(), "rope_parameters", json!({"rope_theta": 0.5, "rope_type": "default"})),
        None,
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "expected a finite number of at least 1, got 0.5 (config.json: rope_theta)"
    );
    let error = read(&qwen25(), Some(&json!({"eos_token_id": "x"}))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "expected a token id or a list of them, got \"x\" (generation_config.json: eos_token_id)"
    );
}

#[test]
fn the_largest_sizes_do_not_overflow() {
    let mut largest = qwen3();
    for (field, size) in [
        ("vocab_size", 1_u64 << 24),
        ("hidden_size", 1 << 18),
        ("num_hidden_layers", 1 << 10),
        ("num_attention_heads", 1 << 12),
        ("num_key_value_heads", 1 << 12),
        ("head_dim", 1 << 12),
        ("intermediate_size", 1 << 20),
    ] {
        largest[field] = json!(size);
    }
    largest.as_object_mut().unwrap().remove("layer_types");
    let error = read(&largest, None).unwrap_err();
    assert!(
        error.to_string().starts_with("expected at most 1099511627776 parameters in all, got 1"),
        "{error}"
    );
}

#[test]
fn texts_that_are_no_object_are_refused() {
    for (text, expected) in [
        ("[]", "expected a JSON object, got [] (config.json)"),
        (
            "",
            "expected a JSON object, got EOF while parsing a value at line 1 column 0 (config.json)",
        ),
        (
            "{\"a\": NaN}",
            "expected a JSON object, got expected value at line 1 column 7 (config.json)",
        ),
    ] {
        let error = parse(Path::new("config.json"), text.as_bytes(), None).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let deep = "[".repeat(100_000);
    let error = parse(Path::new("config.json"), deep.as_bytes(), None).unwrap_err();
    assert!(error.to_string().contains("recursion limit exceeded"), "{error}");
}

#[test]
fn a_configuration_made_by_hand_is_checked_too() {
    let (config, _) = read(&qwen3(), None).unwrap();
    let wrong = Config { family: "qwen4", ..config };
    let out = tempfile::tempdir().unwrap();
    let refused = write(out.path(), &wrong, &Layout::default(), |_| Ok(Vec::new())).unwrap_err();
    let file = out.path().join("config.json");
    assert_eq!(
        refused.to_string(),
        format!("expected the name of a family, got qwen4 ({}: model_type)", file.display())
    );
}
