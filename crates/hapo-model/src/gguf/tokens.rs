//! The tokenizer of a GGUF file as the files of a folder: `tokenizer.json`, `tokenizer_config.json`, the chat template.
//!
//! A file has tokens, merges or scores, and the name of a rule that cuts a text before it is merged; [`CUTS`] has the
//! rules of our families. A rule that it has not is refused, as ids would silently be others.

use std::collections::HashMap;

use hapo_core::Refusal;
use serde_json::{Map, Value as Json, json};

use super::file::{Gguf, Value};
use super::vocabulary::essence;

/// What is done to a text before its bytes are merged.
pub(super) struct Cut {
    /// The values of `tokenizer.ggml.pre`; the first is written.
    pub(super) names: &'static [&'static str],
    /// The expression of a piece; without one, single digits and pieces as in GPT-2.
    split: Split,
    /// The text is put into Unicode's form NFC first.
    nfc: bool,
    /// A piece that is a token is that token, whatever the merges make of it.
    ignores_merges: bool,
}

enum Split {
    Gpt2,
    DigitsThenGpt2,
    By(&'static str),
}

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const fn cut(names: &'static [&'static str], split: Split) -> Cut {
    Cut { names, split, nfc: false, ignores_merges: false }
}

pub(super) const CUTS: [Cut; 7] = [
    Cut { nfc: true, ..cut(&["qwen2", "deepseek-r1-qwen"], Split::By(QWEN2)) },
    Cut { ignores_merges: true, ..cut(&["llama-bpe", "llama3", "llama-v3"], Split::By(LLAMA3)) },
    cut(&["dbrx", "smaug-bpe"], Split::By(LLAMA3)),
    Cut { ignores_merges: true, ..cut(&["tekken"], Split::By(TEKKEN)) },
    cut(&["gpt-4o"], Split::By(GPT4O)),
    cut(&["smollm", "refact", "starcoder"], Split::DigitsThenGpt2),
    cut(&["gpt-2", "olmo"], Split::Gpt2),
];

impl Cut {
    /// True if a `tokenizer.json` with this pre-tokenizer cuts a text so.
    pub(super) fn is(&self, pre_tokenizer: &Json, whole: &Json) -> bool {
        let normalizer = if self.nfc { json!({"type": "NFC"}) } else { Json::Null };
        essence(&self.pre_tokenizer()) == *pre_tokenizer
            && whole["normalizer"] == normalizer
            && (whole["model"]["ignore_merges"] == true) == self.ignores_merges
    }

    fn pre_tokenizer(&self) -> Json {
        let bytes = |use_regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": use_regex});
        let both = |first: Json, second: Json| json!({"type": "Sequence", "pretokenizers": [first, second]});
        match self.split {
            Split::Gpt2 => bytes(true),
            Split::DigitsThenGpt2 => {
                both(json!({"type": "Digits", "individual_digits": true}), bytes(true))
            }
            Split::By(regex) => {
                let split = json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false});
                both(split, bytes(false))
            }
        }
    }
}

/// `tokenizer.ggml.token_type`.
pub(super) const NORMAL: i128 = 1;
pub(super) const UNKNOWN: i128 = 2;
pub(super) const CONTROL: i128 = 3;
pub(super) const USER_DEFINED: i128 = 4;
pub(super) const UNUSED: i128 = 5;
pub(super) const BYTE: i128 = 6;

/// `SentencePiece`'s space.
pub(super) const SPACE: &str = "\u{2581}";

/// A file's tokens.
struct Tokens<'a> {
    texts: Vec<&'a str>,
    /// See [`NORMAL`].
    kinds: Vec<i128>,
    /// Each text's id.
    ids: HashMap<String, usize>,
}

pub(super) fn files(gguf: &Gguf<'_>) -> Result<Vec<(&'static str, Vec<u8>)>, Refusal> {
    let tokens = Tokens::read(gguf)?;
    let model = gguf.text("tokenizer.ggml.model")?.unwrap_or("nothing");
    let mut whole = match model {
        "gpt2" => byte_level(gguf, &tokens)?,
        "llama" => sentence_piece(gguf, &tokens)?,
        other => return Err(gguf.refuse("tokenizer.ggml.model", "gpt2 or llama", other)),
    };
    let special = |name: &str| tokens.special(gguf, name);
    let is_first = gguf
        .bool("tokenizer.ggml.add_bos_token")?
        .unwrap_or_else(|| model == "llama" || whole["model"]["ignore_merges"] == json!(true));
    if let Some((id, bos)) = special("bos")?.filter(|_| is_first) {
        let (first, text) = (
            json!({"SpecialToken": {"id": bos, "type_id": 0}}),
            json!({"Sequence": {"id": "A", "type_id": 0}}),
        );
        let second = json!({"Sequence": {"id": "B", "type_id": 1}});
        whole["post_processor"] = json!({
            "type": "TemplateProcessing", "single": [first, text], "pair": [first, text, second],
            "special_tokens": {bos: {"id": bos, "ids": [id], "tokens": [bos]}},
        });
    }
    let mut config = Map::new();
    config.insert("clean_up_tokenization_spaces".to_owned(), json!(false));
    config.insert("tokenizer_class".to_owned(), json!("PreTrainedTokenizerFast"));
    for (key, field) in [
        ("bos", "bos_token"),
        ("eos", "eos_token"),
        ("unknown", "unk_token"),
        ("padding", "pad_token"),
    ] {
        if let Some((_, text)) = special(key)? {
            config.insert(field.to_owned(), json!(text));
        }
    }
    let bytes = |json: &Json| serde_json::to_vec(json).expect("a JSON value has a text");
    let mut files = vec![
        ("tokenizer.json", bytes(&whole)),
        ("tokenizer_config.json", bytes(&Json::Object(config))),
    ];
    if let Some(template) = gguf.text("tokenizer.chat_template")? {
        files.push(("chat_template.jinja", template.as_bytes().to_vec()));
    }
    Ok(files)
}

impl<'a> Tokens<'a> {
    fn read(gguf: &Gguf<'a>) -> Result<Self, Refusal> {
        const TOKENS: &str = "tokenizer.ggml.tokens";
        const KINDS: &str = "tokenizer.ggml.token_type";
        let text = |value: Value<'a>| match value {
            Value::Text(it) => Some(it),
            _ => None,
        };
        let Some(texts) = gguf.list(TOKENS, text)?.filter(|it| !it.is_empty()) else {
            return Err(gguf.refuse(TOKENS, "a list of texts", "none"));
        };
        let kinds = gguf.list(KINDS, |value| match value {
            Value::Integer(it) => Some(it),
            _ => None,
        })?;
        let kinds = kinds.unwrap_or_else(|| vec![NORMAL; texts.len()]);
        same_length(gguf, KINDS, kinds.len(), texts.len())?;
        let mut ids = HashMap::new();
        for (id, text) in texts.iter().enumerate().filter(|(id, _)| kinds[*id] != UNUSED) {
            // A SentencePiece vocabulary in GGUF may write its runs of spaces as they are.
            let is_spaces = kinds[id] == USER_DEFINED && is_spaces(text);
            let text = if is_spaces { text.replace(' ', SPACE) } else { (*text).to_owned() };
            if let Some(other) = ids.insert(text, id) {
                let (place, got) = (format!("{TOKENS}[{id}]"), format!("that of {other} again"));
                return Err(gguf.refuse(&place, "a text of its own", &got));
            }
        }
        Ok(Self { texts, kinds, ids })
    }

    /// A special token's id and text.
    fn special(&self, gguf: &Gguf<'a>, name: &str) -> Result<Option<(usize, &'a str)>, Refusal> {
        let key = format!("tokenizer.ggml.{name}_token_id");
        let Some(value) = gguf.keys.get(key.as_str()) else { return Ok(None) };
        let found = match value {
            Value::Integer(id) => {
                usize::try_from(*id).ok().and_then(|id| Some((id, *self.texts.get(id)?)))
            }
            _ => None,
        };
        let expected = format!("an id below {}", self.texts.len());
        found.map(Some).ok_or_else(|| gguf.refuse(&key, &expected, value.name()))
    }

    fn unknown(&self) -> Option<&'a str> {
        self.kinds.iter().position(|it| *it == UNKNOWN).map(|id| self.texts[id])
    }

    /// Tokens that are found in a text before it is cut.
    fn added(&self, is_added: impl Fn(usize) -> bool) -> Vec<Json> {
        let ids = (0..self.texts.len()).filter(|id| is_added(*id));
        let token = |id: usize| {
            json!({
                "id": id, "content": self.texts[id], "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": self.kinds[id] != USER_DEFINED,
            })
        };
        ids.map(token).collect()
    }

    /// Every token with its id, in the order of the ids.
    fn vocabulary(&self) -> Map<String, Json> {
        let mut all: Vec<_> = self.ids.iter().collect();
        all.sort_unstable_by_key(|it| *it.1);
        all.into_iter().map(|(text, id)| (text.clone(), json!(id))).collect()
    }
}

fn is_spaces(text: &str) -> bool {
    text.chars().all(|it| it == ' ' || SPACE.contains(it))
}

fn same_length(gguf: &Gguf<'_>, key: &str, got: usize, tokens: usize) -> Result<(), Refusal> {
    if got == tokens {
        return Ok(());
    }
    Err(gguf.refuse(key, &format!("a value for each of the {tokens} tokens"), &got.to_string()))
}

/// Bytes as letters, cut by a rule and merged.
fn byte_level(gguf: &Gguf<'_>, tokens: &Tokens<'_>) -> Result<Json, Refusal> {
    const PRE: &str = "tokenizer.ggml.pre";
    let pre = gguf.text(PRE)?.unwrap_or("nothing");
    let Some(cut) = CUTS.iter().find(|it| it.names.contains(&pre)) else {
        let names: Vec<&str> = CUTS.iter().flat_map(|it| it.names).copied().collect();
        let hint = "the tokenizer.json of the model's own folder says how it cuts a text";
        return Err(gguf.refuse(PRE, &format!("one of {}", names.join(", ")), pre).hint(hint));
    };
    const MERGES: &str = "tokenizer.ggml.merges";
    let pair = |value: Value<'_>| match value {
        Value::Text(it) => it.split_once(' ').map(|(left, right)| json!([left, right])),
        _ => None,
    };
    let Some(merges) = gguf.list(MERGES, pair)? else {
        return Err(gguf.refuse(MERGES, "a list of pairs of tokens", "none"));
    };
    Ok(json!({
        "version": "1.0",
        "added_tokens": tokens.added(|id| matches!(tokens.kinds[id], CONTROL | USER_DEFINED)),
        "normalizer": cut.nfc.then(|| json!({"type": "NFC"})),
        "pre_tokenizer": cut.pre_tokenizer(),
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": tokens.unknown(), "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": cut.ignores_merges, "vocab": tokens.vocabulary(), "merges": merges,
        },
    }))
}

/// `SentencePiece`'s merges of characters, best score first, with unknown ones as bytes.
fn sentence_piece(gguf: &Gguf<'_>, tokens: &Tokens<'_>) -> Result<Json, Refusal> {
    const SCORES: &str = "tokenizer.ggml.scores";
    let scores = gguf.list(SCORES, |value| match value {
        Value::Float(it) => Some(it),
        _ => None,
    })?;
    let scores = scores.unwrap_or_default();
    same_length(gguf, SCORES, scores.len(), tokens.texts.len())?;
    // The scores of Gemma's tokens are not in the order of its merges; the ids are.
    let is_gemma = gguf.text("general.architecture")? == Some("gemma3");
    let rank = |id: usize| if is_gemma { -(id as f64) } else { scores[id] };
    let is_piece = |id: usize| {
        tokens.kinds[id] == NORMAL
            || tokens.kinds[id] == USER_DEFINED && is_spaces(tokens.texts[id])
    };
    let piece = |text: &str| tokens.ids.get(text).copied().filter(|id| is_piece(*id));
    let mut merges = Vec::new();
    for (text, id) in tokens.ids.iter().filter(|it| is_piece(*it.1)) {
        for (at, _) in text.char_indices().skip(1) {
            let (left, right) = text.split_at(at);
            if let (Some(first), Some(second)) = (piece(left), piece(right)) {
                merges.push((*id, left, right, [first, second]));
            }
        }
    }
    let lengths = |it: &(usize, &str, &str, [usize; 2])| [it.1, it.2].map(|it| it.chars().count());
    merges.sort_by(|one, two| {
        let by_rank = rank(two.0).total_cmp(&rank(one.0));
        by_rank.then_with(|| lengths(two).cmp(&lengths(one))).then_with(|| one.3.cmp(&two.3))
    });
    let merges: Vec<Json> = merges.iter().map(|(_, left, right, _)| json!([left, right])).collect();
    let has_prefix = gguf.bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
    let spaces = json!({"type": "Replace", "pattern": {"String": " "}, "content": SPACE});
    let prefix = json!({"type": "Prepend", "prepend": SPACE});
    let mut decoders = vec![
        json!({"type": "Replace", "pattern": {"String": SPACE}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if has_prefix {
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    let normalizers = if has_prefix { vec![prefix, spaces] } else { vec![spaces] };
    let is_added = |id: usize| match tokens.kinds[id] {
        UNKNOWN | CONTROL => true,
        USER_DEFINED => !is_spaces(tokens.texts[id]),
        _ => false,
    };
    Ok(json!({
        "version": "1.0",
        "added_tokens": tokens.added(is_added),
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": null,
        "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": tokens.unknown(), "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true,
            "ignore_merges": false, "vocab": tokens.vocabulary(), "merges": merges,
        },
    }))
}
