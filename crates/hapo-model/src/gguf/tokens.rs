//! The tokenizer of a GGUF file as the files of a folder: `tokenizer.json`, `tokenizer_config.json`, the chat template.
//!
//! A file has tokens, merges or scores, and the name of a rule that cuts a text before it is merged; `tokenizers.json` has
//! the rules of our families. A rule that it has not is refused, as ids would silently be others.

use std::collections::HashMap;

use hapo_core::Refusal;
use serde_json::{Map, Value as Json, json};

use super::file::{Gguf, Value};
use crate::files::Companions;

/// Rules that cut a text, by their names in `tokenizer.ggml.pre` (the first is written), and a `tokenizer.json` without
/// tokens for each `tokenizer.ggml.model`.
pub(super) fn skeletons() -> Json {
    serde_json::from_str(include_str!("tokenizers.json")).expect("the file is JSON")
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

pub(super) struct Tokens<'a> {
    texts: Vec<&'a str>,
    /// See [`NORMAL`].
    kinds: Vec<i128>,
    ids: HashMap<String, usize>,
}

pub(super) fn files(gguf: &Gguf<'_>) -> Result<Companions, Refusal> {
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
    let mut files = vec![("tokenizer.json", bytes(&whole))];
    files.extend(chat_files(gguf, &tokens)?);
    Ok(files)
}

fn bytes(json: &Json) -> Vec<u8> {
    serde_json::to_vec(json).expect("a JSON value has a text")
}

/// The settings of a tokenizer and the chat template.
pub(super) fn chat_files(gguf: &Gguf<'_>, tokens: &Tokens<'_>) -> Result<Companions, Refusal> {
    let special = |name: &str| tokens.special(gguf, name);
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
    let mut files = vec![("tokenizer_config.json", bytes(&Json::Object(config)))];
    if let Some(template) = gguf.text("tokenizer.chat_template")? {
        files.push(("chat_template.jinja", template.as_bytes().to_vec()));
    }
    Ok(files)
}

impl<'a> Tokens<'a> {
    pub(super) fn read(gguf: &Gguf<'a>) -> Result<Self, Refusal> {
        const TOKENS: &str = "tokenizer.ggml.tokens";
        const KINDS: &str = "tokenizer.ggml.token_type";
        // Every way of cutting a piece in two is looked at.
        const LONGEST: usize = 1024;
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
            if text.len() > LONGEST {
                let (place, expected) =
                    (format!("{TOKENS}[{id}]"), format!("at most {LONGEST} bytes"));
                return Err(gguf.refuse(&place, &expected, &text.len().to_string()));
            }
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

    /// The `tokenizer.json` of a `tokenizer.ggml.model`.
    fn whole(&self, model: &str, is_added: impl Fn(usize) -> bool, merges: Vec<Json>) -> Json {
        let mut whole = skeletons()[model].take();
        whole["added_tokens"] = self.added(is_added).into();
        whole["model"]["unk_token"] = json!(self.unknown());
        whole["model"]["vocab"] = self.vocabulary().into();
        whole["model"]["merges"] = merges.into();
        whole
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
    const MERGES: &str = "tokenizer.ggml.merges";
    let pre = gguf.text(PRE)?.unwrap_or("nothing");
    let Json::Array(cuts) = skeletons()["cuts"].take() else { unreachable!("rules are a list") };
    let names = |cut: &Json| cut["names"].as_array().cloned().unwrap_or_default();
    let Some(cut) = cuts.iter().find(|cut| names(cut).contains(&json!(pre))) else {
        let names: Vec<Json> = cuts.iter().flat_map(names).collect();
        let names: Vec<&str> = names.iter().filter_map(Json::as_str).collect();
        let hint = "the tokenizer.json of the model's own folder says how it cuts a text";
        return Err(gguf.refuse(PRE, &format!("one of {}", names.join(", ")), pre).hint(hint));
    };
    let pair = |value: Value<'_>| match value {
        Value::Text(it) => it.split_once(' ').map(|(left, right)| json!([left, right])),
        _ => None,
    };
    let Some(merges) = gguf.list(MERGES, pair)? else {
        return Err(gguf.refuse(MERGES, "a list of pairs of tokens", "none"));
    };
    let is_added = |id: usize| matches!(tokens.kinds[id], CONTROL | USER_DEFINED);
    let mut whole = tokens.whole("gpt2", is_added, merges);
    for key in ["normalizer", "pre_tokenizer"] {
        whole[key] = cut[key].clone();
    }
    whole["model"]["ignore_merges"] = cut["ignore_merges"].clone();
    Ok(whole)
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
    let is_added = |id: usize| match tokens.kinds[id] {
        UNKNOWN | CONTROL => true,
        USER_DEFINED => !is_spaces(tokens.texts[id]),
        _ => false,
    };
    let mut whole = tokens.whole("llama", is_added, merges);
    if !has_prefix {
        for (list, at) in [("/normalizer/normalizers", 0), ("/decoder/decoders", 3)] {
            let list = whole.pointer_mut(list).and_then(Json::as_array_mut);
            list.expect("the file has a list").remove(at);
        }
    }
    Ok(whole)
}
