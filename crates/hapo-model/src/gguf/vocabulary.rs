//! The files of a tokenizer as keys of GGUF.

use std::{collections::HashMap, path::Path};

use hapo_core::Refusal;
use serde_json::{Value as Json, json};

use super::tokens::{BYTE, CONTROL, NORMAL, SPACE, UNKNOWN, UNUSED, USER_DEFINED, skeletons};
use crate::config::Config;
use crate::files::{excerpt, refused};

pub(super) type Keys = Vec<(String, Json)>;

pub(super) fn keys(
    path: &Path,
    config: &Config,
    files: &[(&str, Vec<u8>)],
) -> Result<Keys, Refusal> {
    let refuse = |place: &str, expected: &str, got: &str| {
        Err(refused(path, format!("tokenizer.json: {place}"), expected, excerpt(got)))
    };
    let file = |name: &str| {
        let (_, bytes) = files.iter().find(|it| it.0 == name)?;
        serde_json::from_slice::<Json>(bytes).ok()
    };
    let Some(whole) = file("tokenizer.json") else {
        return refuse("", "the tokenizer of the model", "none");
    };
    let model = &whole["model"];
    let Some(vocabulary) = model["vocab"].as_object().filter(|_| model["type"] == "BPE") else {
        return refuse("model.type", "\"BPE\"", &model["type"].to_string());
    };
    let merges: Vec<(&str, &str)> = (model["merges"].as_array().into_iter().flatten())
        .filter_map(|it| match it {
            Json::String(line) => line.split_once(' '),
            pair => Some((pair[0].as_str()?, pair[1].as_str()?)),
        })
        .collect();
    let mut tokens: Vec<(String, i32)> =
        (0..config.vocab_size).map(|id| (format!("[PAD{id}]"), UNUSED)).collect();
    let added = whole["added_tokens"].as_array().into_iter().flatten().map(|it| {
        let kind = if it["special"] == true { CONTROL } else { USER_DEFINED };
        (it["content"].as_str(), &it["id"], kind)
    });
    let plain = vocabulary.iter().map(|(text, id)| {
        let is_unknown = model["unk_token"] == **text;
        (Some(text.as_str()), id, if is_unknown { UNKNOWN } else { NORMAL })
    });
    for (text, id, kind) in plain.chain(added) {
        let at = id.as_u64().and_then(|id| tokens.get_mut(usize::try_from(id).ok()?));
        let (Some(text), Some(at)) = (text, at) else {
            return refuse("model.vocab", "ids of the embedding's rows", &id.to_string());
        };
        let is_unknown = at.1 == UNKNOWN;
        *at = (text.to_owned(), if is_unknown { UNKNOWN } else { kind });
    }
    let mut keys = if model["byte_fallback"] == true {
        let has_prefix = whole["normalizer"].to_string().contains("\"Prepend\"");
        vec![
            ("model", json!("llama")),
            ("pre", json!("default")),
            ("scores", scores(&mut tokens, &merges)),
            ("add_space_prefix", json!(has_prefix)),
        ]
    } else {
        // Without merges every way of cutting gives the same bytes.
        let fits = |cut: &&Json| {
            let is = |key: &str, own: &Json| essence(&cut[key]) == essence(own);
            merges.is_empty()
                || is("pre_tokenizer", &whole["pre_tokenizer"])
                    && is("normalizer", &whole["normalizer"])
                    && cut["ignore_merges"] == (model["ignore_merges"] == true)
        };
        let skeletons = skeletons();
        let Some(cut) = skeletons["cuts"].as_array().and_then(|it| it.iter().rev().find(fits))
        else {
            let expected = "a way of cutting a text that has a name in GGUF";
            return refuse("pre_tokenizer", expected, &whole["pre_tokenizer"].to_string());
        };
        let lines = merges.iter().map(|(left, right)| format!("{left} {right}"));
        vec![
            ("model", json!("gpt2")),
            ("pre", cut["names"][0].clone()),
            ("merges", lines.collect()),
        ]
    };
    let (texts, kinds): (Vec<_>, Vec<_>) = tokens.iter().map(|it| (&it.0, it.1)).unzip();
    keys.extend([("tokens", json!(texts)), ("token_type", json!(kinds))]);
    let named =
        file("tokenizer_config.json").and_then(|it| Some(it["unk_token"].as_str()?.to_owned()));
    let is_unknown = |it: &(String, i32)| it.1 == UNKNOWN || named.as_ref() == Some(&it.0);
    let unknown = tokens.iter().position(is_unknown).map(|id| id as u32);
    let ends = ["eos_token_id", "eot_token_id", "eom_token_id"].into_iter();
    let ids = ends.zip(config.eos.iter().copied().map(Some)).chain([
        ("bos_token_id", config.bos),
        ("padding_token_id", config.pad),
        ("unknown_token_id", unknown),
    ]);
    keys.extend(ids.filter_map(|(key, id)| Some((key, json!(id?)))));
    let bos = config.bos.map(|id| &tokens[id as usize].0);
    let mut steps = vec![&whole["post_processor"]];
    steps.extend(whole["post_processor"]["processors"].as_array().into_iter().flatten());
    let is_bos =
        |step: &&Json| bos.is_some_and(|it| step["single"][0]["SpecialToken"]["id"] == **it);
    keys.push(("add_bos_token", json!(steps.iter().any(is_bos))));
    Ok(keys.into_iter().map(|(key, it)| (format!("tokenizer.ggml.{key}"), it)).collect())
}

/// The scores of `SentencePiece` that lead to these merges: that of the first merge that makes a token.
fn scores(tokens: &mut [(String, i32)], merges: &[(&str, &str)]) -> Json {
    let mut ranks: HashMap<String, usize> = HashMap::new();
    for (rank, (left, right)) in merges.iter().enumerate() {
        ranks.entry(format!("{left}{right}")).or_insert(rank);
    }
    let score = |it: &(String, i32)| ranks.get(&it.0).map_or(0.0, |rank| -(*rank as f32));
    let all = tokens.iter().map(score).collect();
    for (text, kind) in tokens {
        let is_byte = text.len() == 6 && text.starts_with("<0x") && text.ends_with('>');
        if is_byte && *kind == NORMAL {
            *kind = BYTE;
        }
        if *kind == USER_DEFINED {
            *text = text.replace(SPACE, " ");
        }
    }
    all
}

/// A pre-tokenizer without what changes no token.
pub(super) fn essence(section: &Json) -> Json {
    let mut section = section.clone();
    for part in section["pretokenizers"].as_array_mut().into_iter().flatten() {
        *part = essence(part);
    }
    if section["type"] == "ByteLevel" {
        section["use_regex"] = (section["use_regex"] != false).into();
        section["trim_offsets"] = Json::Null;
    }
    section
}
