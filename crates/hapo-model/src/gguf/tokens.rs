//! The tokenizer of a GGUF file as the files of a folder: `tokenizer.json`, `tokenizer_config.json`, the chat template.
//!
//! A file has tokens, merges or scores, and the name of a rule that cuts a text before it is merged; `tokenizers.json` has
//! the rules of our families. A rule that it has not is refused, as ids would silently be others.

use std::collections::HashMap;

use hapo_core::Refusal;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::file::Gguf;
use crate::files::Companions;

/// Rules that cut a text, by their names in `tokenizer.ggml.pre` (the first is written), and a `tokenizer.json` without
/// tokens for each `tokenizer.ggml.model`.
pub(super) fn skeletons() -> Json {
    serde_json::from_str(include_str!("tokenizers.json")).expect("the file is JSON")
}

/// `tokenizer.ggml.token_type`.
pub(super) const NORMAL: i32 = 1;
pub(super) const UNKNOWN: i32 = 2;
pub(super) const CONTROL: i32 = 3;
pub(super) const USER_DEFINED: i32 = 4;
pub(super) const UNUSED: i32 = 5;
pub(super) const BYTE: i32 = 6;

/// `SentencePiece`'s space.
pub(super) const SPACE: &str = "\u{2581}";

struct Tokens<'a> {
    texts: Vec<&'a str>,
    kinds: Vec<i32>,
    ids: HashMap<String, usize>,
}

impl Gguf {
    /// Name and bytes of the tokenizer's files, as they would be in a folder.
    pub(crate) fn tokenizer_files(&self) -> Result<Companions, Refusal> {
        let tokens = Tokens::read(self)?;
        let model = self.get("tokenizer.ggml.model", "a text")?.unwrap_or("nothing");
        let mut whole = match model {
            "gpt2" => byte_level(self, &tokens)?,
            "llama" => sentence_piece(self, &tokens)?,
            other => return Err(self.refuse("tokenizer.ggml.model", "gpt2 or llama", other)),
        };
        let is_first = flag(self, "add_bos_token")?
            .unwrap_or_else(|| model == "llama" || whole["model"]["ignore_merges"] == true);
        if let Some((id, bos)) = special(self, &tokens.texts, "bos")?.filter(|_| is_first) {
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
        let mut files = vec![("tokenizer.json", whole.to_string().into_bytes())];
        files.extend(self.chat_files()?);
        Ok(files)
    }

    /// The same without the tokenizer: its settings and the chat template.
    pub(crate) fn chat_files(&self) -> Result<Companions, Refusal> {
        let texts = texts(self)?;
        let mut config = json!({
            "clean_up_tokenization_spaces": false, "tokenizer_class": "PreTrainedTokenizerFast",
        });
        for (key, field) in [
            ("bos", "bos_token"),
            ("eos", "eos_token"),
            ("unknown", "unk_token"),
            ("padding", "pad_token"),
        ] {
            if let Some((_, text)) = special(self, &texts, key)? {
                config[field] = json!(text);
            }
        }
        let mut files = vec![("tokenizer_config.json", config.to_string().into_bytes())];
        if let Some(template) = self.get::<&str>("tokenizer.chat_template", "a text")? {
            files.push(("chat_template.jinja", template.as_bytes().to_vec()));
        }
        Ok(files)
    }
}

const TOKENS: &str = "tokenizer.ggml.tokens";

fn texts(gguf: &Gguf) -> Result<Vec<&str>, Refusal> {
    let texts = gguf.get::<Vec<&str>>(TOKENS, "a list of texts")?.filter(|it| !it.is_empty());
    texts.ok_or_else(|| gguf.refuse(TOKENS, "a list of texts", "none"))
}

fn flag(gguf: &Gguf, name: &str) -> Result<Option<bool>, Refusal> {
    gguf.get(&format!("tokenizer.ggml.{name}"), "true or false")
}

fn special<'a>(
    gguf: &Gguf,
    texts: &[&'a str],
    name: &str,
) -> Result<Option<(usize, &'a str)>, Refusal> {
    let key = format!("tokenizer.ggml.{name}_token_id");
    let expected = format!("an id below {}", texts.len());
    let Some(id) = gguf.get::<usize>(&key, &expected)? else { return Ok(None) };
    let text = texts.get(id).ok_or_else(|| gguf.refuse(&key, &expected, &id.to_string()))?;
    Ok(Some((id, *text)))
}

impl<'a> Tokens<'a> {
    fn read(gguf: &'a Gguf) -> Result<Self, Refusal> {
        // Every way of cutting a piece in two is looked at.
        const LONGEST: usize = 1024;
        let texts = texts(gguf)?;
        let kinds = of_tokens(gguf, "token_type", texts.len(), vec![NORMAL; texts.len()])?;
        let mut ids = HashMap::new();
        for (id, text) in texts.iter().enumerate().filter(|(id, _)| kinds[*id] != UNUSED) {
            let refuse = |expected: &str, got: &str| {
                Err(gguf.refuse(&format!("{TOKENS}[{id}]"), expected, got))
            };
            if text.len() > LONGEST {
                return refuse(&format!("at most {LONGEST} bytes"), &text.len().to_string());
            }
            // A SentencePiece vocabulary in GGUF may write its runs of spaces as they are.
            let is_spaces = kinds[id] == USER_DEFINED && is_spaces(text);
            let text = if is_spaces { text.replace(' ', SPACE) } else { (*text).to_owned() };
            if let Some(other) = ids.insert(text, id) {
                return refuse("a text of its own", &format!("that of {other} again"));
            }
        }
        Ok(Self { texts, kinds, ids })
    }

    /// The `tokenizer.json` of a `tokenizer.ggml.model`; added tokens are found in a text before it is cut.
    fn whole(&self, model: &str, is_added: impl Fn(usize) -> bool, merges: Vec<Json>) -> Json {
        let mut whole = skeletons()[model].take();
        let unknown = self.kinds.iter().position(|it| *it == UNKNOWN).map(|id| self.texts[id]);
        let token = |id: usize| {
            json!({
                "id": id, "content": self.texts[id], "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": self.kinds[id] != USER_DEFINED,
            })
        };
        let added = (0..self.texts.len()).filter(|id| is_added(*id)).map(token);
        whole["added_tokens"] = added.collect();
        whole["model"]["unk_token"] = json!(unknown);
        whole["model"]["vocab"] = json!(self.ids);
        whole["model"]["merges"] = merges.into();
        whole
    }
}

fn is_spaces(text: &str) -> bool {
    text.chars().all(|it| it == ' ' || SPACE.contains(it))
}

fn of_tokens<'a, T: Deserialize<'a>>(
    gguf: &'a Gguf,
    name: &str,
    n: usize,
    absent: Vec<T>,
) -> Result<Vec<T>, Refusal> {
    let key = format!("tokenizer.ggml.{name}");
    let expected = format!("a value for each of the {n} tokens");
    let all = gguf.get(&key, &expected)?.unwrap_or(absent);
    if all.len() == n { Ok(all) } else { Err(gguf.refuse(&key, &expected, &all.len().to_string())) }
}

/// Bytes as letters, cut by a rule and merged.
fn byte_level(gguf: &Gguf, tokens: &Tokens<'_>) -> Result<Json, Refusal> {
    const PRE: &str = "tokenizer.ggml.pre";
    const MERGES: &str = "tokenizer.ggml.merges";
    const PAIRS: &str = "a list of pairs of tokens";
    let pre = gguf.get(PRE, "a text")?.unwrap_or("nothing");
    let skeletons = skeletons();
    let cuts = skeletons["cuts"].as_array().expect("rules are a list");
    let names = |cut: &Json| Vec::<String>::deserialize(&cut["names"]).expect("names are texts");
    let Some(cut) = cuts.iter().find(|cut| names(cut).iter().any(|name| name == pre)) else {
        let names: Vec<String> = cuts.iter().flat_map(names).collect();
        let hint = "the tokenizer.json of the model's own folder says how it cuts a text";
        return Err(gguf.refuse(PRE, &format!("one of {}", names.join(", ")), pre).hint(hint));
    };
    let lines = gguf.get::<Vec<&str>>(MERGES, PAIRS)?;
    let lines = lines.ok_or_else(|| gguf.refuse(MERGES, PAIRS, "none"))?;
    let pair = |line: &&str| Some(json!(<[&str; 2]>::from(line.split_once(' ')?)));
    let merges = lines.iter().map(|it| pair(it).ok_or_else(|| gguf.refuse(MERGES, PAIRS, it)));
    let is_added = |id: usize| matches!(tokens.kinds[id], CONTROL | USER_DEFINED);
    let mut whole = tokens.whole("gpt2", is_added, merges.collect::<Result<_, _>>()?);
    for key in ["normalizer", "pre_tokenizer"] {
        whole[key] = cut[key].clone();
    }
    whole["model"]["ignore_merges"] = cut["ignore_merges"].clone();
    Ok(whole)
}

/// `SentencePiece`'s merges of characters, best score first, with unknown ones as bytes.
fn sentence_piece(gguf: &Gguf, tokens: &Tokens<'_>) -> Result<Json, Refusal> {
    let scores: Vec<f64> = of_tokens(gguf, "scores", tokens.texts.len(), Vec::new())?;
    // The scores of Gemma's tokens are not in the order of its merges; the ids are.
    let is_gemma = gguf.get::<&str>("general.architecture", "a text")? == Some("gemma3");
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
    let has_prefix = flag(gguf, "add_space_prefix")?.unwrap_or(true);
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
