//! The built-in task's tokenizer, as the files of a Hugging Face folder.
//!
//! Purpose: 64 tokens, one per character but for the words of `ChatML` and `\boxed{`. It is a
//! `WordLevel` model behind a `Split` by regular expression and a `Fuse` decoder, which the Rust and the
//! Python `tokenizers` read alike; encoding and decoding give the text back whenever all of it is in the
//! vocabulary.
//!
//! Price: a character outside the vocabulary (capitals, accents, quotation marks) becomes `<unk>` and is
//! lost. The letters beyond those of the built-in task are untrained; they are there for problems of your own.

use std::fmt::Write as _;

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

/// `tokenizer.json`, the same bytes every time.
pub fn tokenizer_json() -> String {
    let quoted = |text: &str| serde_json::to_string(text).expect("a string is always valid JSON");
    let mut added = String::new();
    let mut vocabulary = String::new();
    for (id, token) in VOCABULARY.iter().enumerate() {
        let comma = if id == 0 { "" } else { "," };
        let token = quoted(token);
        if id < SPECIAL {
            write!(
                added,
                "{comma}\n    {{\"id\": {id}, \"content\": {token}, \"single_word\": false, \"lstrip\": false, \
                 \"rstrip\": false, \"normalized\": false, \"special\": true}}"
            )
            .expect("writing to a string never fails");
        }
        write!(vocabulary, "{comma}\n      {token}: {id}")
            .expect("writing to a string never fails");
    }
    let pattern = quoted(r"system|user|assistant|\\boxed\{|[\s\S]");
    format!(
        r#"{{
  "version": "1.0",
  "truncation": null,
  "padding": null,
  "added_tokens": [{added}
  ],
  "normalizer": null,
  "pre_tokenizer": {{
    "type": "Split",
    "pattern": {{"Regex": {pattern}}},
    "behavior": "Isolated",
    "invert": false
  }},
  "post_processor": null,
  "decoder": {{"type": "Fuse"}},
  "model": {{
    "type": "WordLevel",
    "vocab": {{{vocabulary}
    }},
    "unk_token": "<unk>"
  }}
}}
"#
    )
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
