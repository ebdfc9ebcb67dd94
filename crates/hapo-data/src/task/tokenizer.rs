//! The built-in task's tokenizer, as the files of a Hugging Face folder.
//!
//! Purpose: 64 tokens, one per character except the words of `ChatML` and `\boxed{`. It is a byte-level BPE model
//! without merges; the words are added tokens. Encoding and decoding give the text back if all of it is in the
//! vocabulary. A simpler `WordLevel` model would not do: for a folder whose `config.json` says `qwen2`, `AutoTokenizer`
//! of transformers 5 keeps the vocabulary and the added tokens of the file but replaces everything else by Qwen's
//! byte-level BPE, which for this vocabulary gives the same tokens.
//!
//! Price: a byte outside the vocabulary (capitals, accents, quotation marks) becomes `<unk>` and is lost (transformers
//! 5, as above, drops it). The letters beyond those of the built-in task are untrained; they are there for your own
//! problems.

/// The tokens; a token's id is its position.
pub const VOCABULARY: [&str; 64] = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<unk>",
    "system",
    "user",
    "assistant",
    "\\boxed{",
    "\n",
    " ",
    "0",
    "1",
    "2",
    "3",
    "4",
    "5",
    "6",
    "7",
    "8",
    "9",
    "+",
    "-",
    "*",
    "/",
    "=",
    "?",
    ":",
    ";",
    ",",
    ".",
    "{",
    "}",
    "(",
    ")",
    "<",
    ">",
    "^",
    "\\",
    "a",
    "b",
    "c",
    "d",
    "e",
    "f",
    "g",
    "h",
    "i",
    "j",
    "k",
    "l",
    "m",
    "n",
    "o",
    "p",
    "q",
    "r",
    "s",
    "t",
    "u",
    "v",
    "w",
    "x",
    "y",
    "z",
];

/// How many of them, from the front, are special: never text of a problem, skipped when decoding for
/// people.
const SPECIAL: usize = 4;

/// How many of them, from the front, are found in a text before it is cut into bytes.
const ADDED: usize = 8;

/// `tokenizer.json`, the same bytes every time.
pub fn tokenizer_json() -> String {
    let added = (0..ADDED).map(|id| {
        let (token, special) = (quoted(VOCABULARY[id]), id < SPECIAL);
        format!(
            r#"    {{"id": {id}, "content": {token}, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": {special}}}"#
        )
    });
    let vocabulary = (0..).zip(VOCABULARY).map(|(id, token): (usize, &str)| {
        // Byte-level models write white space as printable letters.
        let token = quoted(match token {
            "\n" => "\u{10a}",
            " " => "\u{120}",
            other => other,
        });
        format!("      {token}: {id}")
    });
    format!(
        r#"{{
  "version": "1.0",
  "truncation": null,
  "padding": null,
  "added_tokens": [
{}
  ],
  "normalizer": null,
  "pre_tokenizer": {{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}},
  "post_processor": null,
  "decoder": {{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}},
  "model": {{
    "type": "BPE",
    "dropout": null,
    "unk_token": "<unk>",
    "continuing_subword_prefix": null,
    "end_of_word_suffix": null,
    "fuse_unk": false,
    "byte_fallback": false,
    "ignore_merges": false,
    "vocab": {{
{}
    }},
    "merges": []
  }}
}}
"#,
        added.collect::<Vec<_>>().join(",\n"),
        vocabulary.collect::<Vec<_>>().join(",\n"),
    )
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a string is always valid JSON")
}

/// `tokenizer_config.json`: `ChatML`, turns ended by `<|im_end|>`, padding by `<|endoftext|>`.
pub fn tokenizer_config_json() -> String {
    r#"{
  "tokenizer_class": "PreTrainedTokenizerFast",
  "bos_token": null,
  "eos_token": "<|im_end|>",
  "pad_token": "<|endoftext|>",
  "unk_token": "<unk>",
  "clean_up_tokenization_spaces": false,
  "model_max_length": 128,
  "chat_template": "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
}
"#
    .to_owned()
}
