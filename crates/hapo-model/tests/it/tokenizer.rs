//! The tokenizer of the reference models, against numbers of the Python package (tokenizers 0.23.3).

use std::fs;
use std::path::{Path, PathBuf};

use hapo_model::Tokenizer;
use serde_json::{Value, json};

fn fixture() -> PathBuf {
    hapo_testing::model_dir("tiny-qwen2")
}

fn edited(edit: impl FnOnce(&mut Value)) -> Vec<u8> {
    let text = fs::read(fixture().join("tokenizer.json")).unwrap();
    let mut value = serde_json::from_slice(&text).unwrap();
    edit(&mut value);
    value.to_string().into_bytes()
}

#[test]
fn texts_have_the_ids_of_the_python_package() {
    let tokenizer = Tokenizer::open(&fixture()).unwrap();
    let cases: [(&str, &[u32], &str); 7] = [
        ("What is 3 + 4?", &[282, 258, 259, 257, 283, 30], "What is 3 + 4?"),
        (
            "<|im_start|>user\nWhat is 12 + 7?<|im_end|>\n",
            &[382, 84, 82, 266, 198, 282, 258, 314, 257, 286, 30, 383, 198],
            "user\nWhat is 12 + 7?\n",
        ),
        (
            "So the answer is \\boxed{42}.",
            &[275, 281, 274, 258, 271, 273, 90, 378, 270],
            "So the answer is \\boxed{42}.",
        ),
        (
            "naïve ½ 東京 🙂",
            &[
                77, 64, 127, 107, 85, 68, 220, 126, 121, 220, 162, 251, 109, 160, 118, 105, 220,
                172, 253, 247, 224,
            ],
            "naïve ½ 東京 🙂",
        ),
        ("", &[], ""),
        ("<|im_end|><|endoftext|>", &[383, 381], ""),
        (
            "  two  spaces\r\n\t",
            &[220, 220, 83, 86, 78, 220, 220, 82, 79, 64, 66, 68, 82, 201, 198, 197],
            "  two  spaces\r\n\t",
        ),
    ];
    for (text, ids, without_special) in cases {
        assert_eq!(tokenizer.encode(text).unwrap(), ids, "{text:?}");
        assert_eq!(tokenizer.decode(ids).unwrap(), text);
        assert_eq!(tokenizer.decode_without_special(ids).unwrap(), without_special);
    }
}

#[test]
fn ids_that_are_no_text_are_no_error() {
    let tokenizer = Tokenizer::open(&fixture()).unwrap();
    // 162, 251 are two of the three bytes of 東; 384 and above have no text.
    assert_eq!(tokenizer.decode(&[162, 251]).unwrap(), "\u{fffd}");
    assert_eq!(tokenizer.decode(&[30, 384, u32::MAX, 30]).unwrap(), "??");
}

#[test]
fn tokens_are_found_by_name_and_by_id() {
    let tokenizer = Tokenizer::open(&fixture()).unwrap();
    assert_eq!(tokenizer.vocab_size(), 384);
    assert_eq!(tokenizer.id("<|im_end|>"), Some(383));
    assert_eq!(tokenizer.id("<|endoftext|>"), Some(381));
    assert_eq!(tokenizer.id("<|nothing|>"), None);
    assert_eq!(tokenizer.token(382).as_deref(), Some("<|im_start|>"));
    assert_eq!(tokenizer.token(384), None);
}

#[test]
fn a_tokenizer_beyond_the_embedding_is_refused() {
    let tokenizer = Tokenizer::open(&fixture()).unwrap();
    tokenizer.check_fits(384).unwrap();
    tokenizer.check_fits(512).unwrap();
    let error = tokenizer.check_fits(383).unwrap_err();
    assert_eq!(
        error.to_string().replace(&format!("{}/", fixture().display()), ""),
        "expected ids below vocab_size (383) of config.json, got id 383 (tokenizer.json: vocab)"
    );
    assert_eq!(
        error.how_to_mend().unwrap().to_string(),
        "take tokenizer.json of the model this one was trained from"
    );

    // One id far away counts, not the number of tokens, and costs no memory.
    let file = Path::new("tokenizer.json");
    let bytes = edited(|value| value["model"]["vocab"]["!"] = json!(4_000_000_000_u32));
    let error = Tokenizer::from_bytes(file, &bytes).unwrap().check_fits(384).unwrap_err();
    assert_eq!(
        error.to_string(),
        "expected ids below vocab_size (384) of config.json, got id 4000000000 (tokenizer.json: vocab)"
    );
}

#[test]
fn settings_of_the_file_neither_cut_nor_pad() {
    let text = "What is 3 + 4?";
    let plain = Tokenizer::open(&fixture()).unwrap().encode(text).unwrap();
    let bytes = edited(|value| {
        value["truncation"] = json!({
            "direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0
        });
        value["padding"] = json!({
            "strategy": {"Fixed": 32}, "direction": "Right", "pad_to_multiple_of": null,
            "pad_id": 381, "pad_type_id": 0, "pad_token": "<|endoftext|>"
        });
    });
    let tokenizer = Tokenizer::from_bytes(Path::new("tokenizer.json"), &bytes).unwrap();
    assert_eq!(tokenizer.encode(text).unwrap(), plain);
}

#[test]
fn special_tokens_of_a_post_processor_are_not_added() {
    let bytes = edited(|value| {
        value["post_processor"] = json!({
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}}
            ],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {
                "<|endoftext|>": {"id": "<|endoftext|>", "ids": [381], "tokens": ["<|endoftext|>"]}
            }
        });
    });
    let tokenizer = Tokenizer::from_bytes(Path::new("tokenizer.json"), &bytes).unwrap();
    assert_eq!(tokenizer.encode("?").unwrap(), [30]);
}

/// Ids of the Python package (tokenizers 0.23.3) for "a" with each of these, without what stands behind it.
#[test]
fn a_prompt_begins_with_what_the_post_processor_puts_in_front() {
    let special = |id: &str| json!({"SpecialToken": {"id": id, "type_id": 0}});
    let text = json!({"Sequence": {"id": "A", "type_id": 0}});
    let (bos, eos) = ("<|im_start|>", "<|endoftext|>");
    let template = |single: Value| {
        json!({"type": "TemplateProcessing", "single": single, "pair": [text],
        "special_tokens": {
            bos: {"id": bos, "ids": [382], "tokens": [bos]},
            eos: {"id": eos, "ids": [381], "tokens": [eos]},
        }})
    };
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false,
        "use_regex": true});
    let front = template(json!([special(bos), text]));
    for (post_processor, prefix) in [
        (Value::Null, vec![]),
        (byte_level.clone(), vec![]),
        (front.clone(), vec![382]),
        (template(json!([text, special(eos)])), vec![]),
        (template(json!([special(bos), special(eos), text, special(eos)])), vec![382, 381]),
        (json!({"type": "Sequence", "processors": [byte_level, front]}), vec![382]),
        (json!({"type": "BertProcessing", "sep": [eos, 381], "cls": [bos, 382]}), vec![382]),
    ] {
        let bytes = edited(|value| value["post_processor"] = post_processor.clone());
        let tokenizer = Tokenizer::from_bytes(Path::new("t"), &bytes).unwrap();
        let plain = tokenizer.encode("1+1").unwrap();
        let whole = [&prefix[..], &plain].concat();
        assert_eq!(tokenizer.encode_prompt("1+1").unwrap(), whole, "{post_processor}");
        let written: String = prefix.iter().map(|it| tokenizer.token(*it).unwrap()).collect();
        assert_eq!(tokenizer.encode_prompt(&(written + "1+1")).unwrap(), whole, "once");
    }
    let bytes = edited(|value| {
        value["post_processor"] =
            json!({"type": "BertProcessing", "sep": ["x", 1], "cls": ["y", 900]});
    });
    let error = Tokenizer::from_bytes(Path::new("t"), &bytes).unwrap_err().to_string();
    let expected = "expected special tokens of the vocabulary, got id 900 (t: post_processor)";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn files_that_are_no_tokenizer_are_refused() {
    let file = Path::new("tokenizer.json");
    let whole = fs::read(fixture().join("tokenizer.json")).unwrap();
    let mut invalid = whole.clone();
    invalid[700] = 0xff;
    for (bytes, got) in [
        (&whole[..1000], "EOF while parsing"),
        (&invalid[..], "invalid utf-8 sequence of 1 bytes from index 700"),
        (b"{}", "missing field `model`"),
        (b"[]", "invalid length 0"),
        (b"", "EOF while parsing a value"),
    ] {
        let text = Tokenizer::from_bytes(file, bytes).unwrap_err().to_string();
        assert!(
            text.starts_with(&format!("expected a tokenizer of the tokenizers library, got {got}"))
                && text.ends_with("(tokenizer.json)"),
            "{text}"
        );
    }
    let bytes = edited(|value| value["model"]["dropout"] = json!(0.1));
    assert_eq!(
        Tokenizer::from_bytes(file, &bytes).unwrap_err().to_string(),
        "expected null, so that a text has one encoding, got 0.1 (tokenizer.json: model.dropout)"
    );
    // The library would panic on these two.
    let bytes = edited(|value| {
        let vocab = value["model"]["vocab"].as_object_mut().unwrap();
        let longest = vocab.keys().map(String::len).max().unwrap();
        vocab.retain(|token, _| token.len() < longest);
    });
    assert_eq!(
        Tokenizer::from_bytes(file, &bytes).unwrap_err().to_string(),
        "expected merges that make tokens of the vocabulary, got one of 11 bytes where the longest token has 9 (tokenizer.json: model.merges)"
    );
    let bytes = edited(|value| value["model"]["continuing_subword_prefix"] = json!("##"));
    assert_eq!(
        Tokenizer::from_bytes(file, &bytes).unwrap_err().to_string(),
        "expected null in a byte-pair vocabulary, got \"##\" (tokenizer.json: model.continuing_subword_prefix)"
    );
    let dir = tempfile::tempdir().unwrap();
    let text = Tokenizer::open(dir.path()).unwrap_err().to_string();
    assert!(text.starts_with("cannot open ") && text.contains("tokenizer.json"), "{text}");
}

#[test]
fn a_tokenizer_whose_decoder_fails_is_refused_when_it_is_opened() {
    let path = hapo_testing::model_dir("tiny-qwen3").join("tokenizer.json");
    let mut file: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    // The library looks at as many characters of each token as are to be stripped.
    file["decoder"] =
        serde_json::json!({"type": "Strip", "content": "1", "start": 1_000_000, "stop": 1_000_000});
    let error = Tokenizer::from_bytes(&path, file.to_string().as_bytes()).unwrap_err();
    assert!(error.to_string().contains("one whose decoder fails on its own tokens"), "{error}");
}

#[test]
#[cfg(unix)]
fn a_pipe_is_no_tokenizer() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("tokenizer.json");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    // Without the check this waits for a writer for ever.
    let error = Tokenizer::open(folder.path()).unwrap_err();
    assert!(error.to_string().contains("expected a file, got a pipe or device"), "{error}");
}

/// What a tokenizer does with some texts and ids: it gives something or refuses, and comes back.
fn try_out(bytes: &[u8]) {
    let Ok(tokenizer) = Tokenizer::from_bytes(Path::new("t"), bytes) else { return };
    let long = "word ".repeat(4000) + &"a".repeat(20_000);
    for text in ["", "a", "What is 3 + 4?\n", "\u{e9}\u{301}\u{1f600}\u{0}", &long] {
        let (ids, prompt) = (tokenizer.encode(text), tokenizer.encode_prompt(text));
        for ids in [ids, prompt].into_iter().flatten() {
            let _ = tokenizer.decode(&ids);
            let _ = tokenizer.decode_without_special(&ids);
        }
    }
    let _ = tokenizer.decode(&[0, 7, u32::MAX]);
}

#[test]
fn rules_on_which_the_library_panics_are_refused_or_end_in_an_error() {
    let cases = [
        ("pre_tokenizer", json!({ "type": "FixedLength", "length": 0 })),
        (
            "post_processor",
            json!({ "type": "TemplateProcessing", "single": [{ "Sequence": { "id": "B", "type_id": 0 } }], "pair": [], "special_tokens": {} }),
        ),
        ("normalizer", json!({ "type": "Precompiled", "precompiled_charsmap": "BAAAAAAAAAA=" })),
        (
            "normalizer",
            json!({ "type": "Sequence", "normalizers": [{ "type": "Prepend", "prepend": "" }] }),
        ),
        (
            "decoder",
            json!({ "type": "Sequence", "decoders": [{ "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true }, { "type": "Strip", "content": "\u{e9}", "start": 3, "stop": 1 }] }),
        ),
    ];
    for (field, value) in cases {
        try_out(&edited(|it| it[field] = value.clone()));
    }
    let refused = |model: Value| {
        let text = json!({ "version": "1.0", "added_tokens": [], "model": model }).to_string();
        let refusal =
            Tokenizer::from_bytes(Path::new("t"), text.as_bytes()).unwrap_err().to_string();
        assert!(refusal.contains("pieces and words of at most 1000 bytes"), "{refusal}");
    };
    refused(
        json!({ "type": "Unigram", "unk_id": 0, "vocab": [["a", 0.0], ["b".repeat(8192), -1.0]] }),
    );
    refused(
        json!({ "type": "WordPiece", "unk_token": "u", "continuing_subword_prefix": "##", "max_input_chars_per_word": 1_u64 << 62, "vocab": { "u": 0 } }),
    );
}

/// `HAPO_TOKENIZERS` says how many; 300 among the slow tests.
#[test]
fn random_tokenizers_end_in_ids_or_errors() {
    let asked = std::env::var("HAPO_TOKENIZERS").ok().and_then(|it| it.parse().ok());
    if asked.is_none() && hapo_testing::slow() {
        return;
    }
    let mut rng = hapo_core::CounterRng::new(
        1,
        hapo_core::RngStream::Generate,
        hapo_core::RngCounter::default(),
    );
    let mut below = |n: usize| (rng.uniform() * n as f64) as usize;
    let texts = ["", " ", "a", "\u{e9}", "\u{2581}", "##", "<|im_end|>", "BAAAAAAAAAA=", "ab ab"];
    let kinds = [
        (
            "normalizer",
            &[
                "Sequence",
                "Lowercase",
                "NFD",
                "NFKC",
                "Strip",
                "StripAccents",
                "Prepend",
                "Replace",
                "Precompiled",
                "BertNormalizer",
                "ByteLevel",
            ][..],
        ),
        (
            "pre_tokenizer",
            &[
                "Sequence",
                "ByteLevel",
                "Whitespace",
                "Split",
                "Punctuation",
                "Metaspace",
                "CharDelimiterSplit",
                "Digits",
                "FixedLength",
                "UnicodeScripts",
            ],
        ),
        (
            "decoder",
            &[
                "Sequence",
                "ByteLevel",
                "WordPiece",
                "Metaspace",
                "BPEDecoder",
                "CTC",
                "Fuse",
                "Strip",
                "Replace",
                "ByteFallback",
            ],
        ),
        (
            "post_processor",
            &["Sequence", "ByteLevel", "BertProcessing", "RobertaProcessing", "TemplateProcessing"],
        ),
    ];
    for _ in 0..asked.unwrap_or(300) {
        let (field, types) = kinds[below(kinds.len())];
        let mut parts = Vec::new();
        for _ in 0..=below(3) {
            let text = |at: usize| Value::from(texts[at]);
            let bool = |it: usize| it == 0;
            parts.push(json!({
                "type": types[below(types.len())], "prepend": text(below(9)), "content": text(below(9)),
                "pattern": { (if bool(below(2)) { "String" } else { "Regex" }): texts[below(9)] },
                "precompiled_charsmap": text(below(9)), "length": below(3), "start": below(5), "stop": below(5),
                "strip_left": bool(below(2)), "strip_right": bool(below(2)), "behavior": "Isolated", "invert": bool(below(2)),
                "replacement": text(below(9)), "prepend_scheme": "always", "split": bool(below(2)), "delimiter": text(below(9)),
                "individual_digits": true, "add_prefix_space": bool(below(2)), "trim_offsets": bool(below(2)), "use_regex": bool(below(2)),
                "prefix": text(below(9)), "suffix": text(below(9)), "cleanup": bool(below(2)), "pad_token": text(below(9)),
                "word_delimiter_token": text(below(9)), "sep": [texts[below(9)], below(400)], "cls": [texts[below(9)], below(400)],
                "single": [{ "Sequence": { "id": if bool(below(2)) { "A" } else { "B" }, "type_id": below(3) } }], "pair": [], "special_tokens": {},
                "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true,
                "normalizers": [], "pretokenizers": [], "decoders": [], "processors": [],
            }));
        }
        let list = ["normalizers", "pretokenizers", "decoders", "processors"]
            [kinds.iter().position(|it| it.0 == field).unwrap()];
        let value = if parts.len() == 1 {
            parts.remove(0)
        } else {
            json!({ "type": "Sequence", list: parts })
        };
        try_out(&edited(|it| it[field] = value));
    }
}
