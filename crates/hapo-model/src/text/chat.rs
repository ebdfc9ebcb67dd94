//! The conversation settings of a model's folder: its chat template, rendered elsewhere, and its special tokens' names.

use std::{collections::BTreeMap, path::Path};

use hapo_core::Refusal;
use serde_json::{Map, Value};

use crate::fields::from_json;
use crate::files::{Companions, excerpt, in_file, malformed, refused};

pub(crate) const JINJA: &str = "chat_template.jinja";
pub(crate) const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
const SPECIAL_TOKENS_MAP: &str = "special_tokens_map.json";

const SPECIAL_TOKENS: &[&str] =
    &["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// A model's chat template and the names that it may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatFiles {
    /// The Jinja text; base models often have none.
    pub template: Option<String>,
    /// Texts of the special tokens, as `bos_token` and `eos_token`.
    pub special_tokens: BTreeMap<String, String>,
}

/// Reads the chat template and the special tokens from a model's `tokenizer_file` files (name and bytes,
/// see [`TOKENIZER_FILES`](crate::folder::TOKENIZER_FILES)); `dir` is only named in errors.
pub fn chat_files(tokenizer_files: &[(&str, Vec<u8>)], dir: &Path) -> Result<ChatFiles, Refusal> {
    let mut special_tokens = BTreeMap::new();
    for name in [SPECIAL_TOKENS_MAP, TOKENIZER_CONFIG] {
        let Some(fields) = object(tokenizer_files, dir, name)? else { continue };
        for token in SPECIAL_TOKENS {
            // A text, or an AddedToken with its content.
            let field = &fields[token];
            if let Some(text) = field.as_str().or_else(|| field["content"].as_str()) {
                special_tokens.insert((*token).to_owned(), text.to_owned());
            }
        }
    }
    Ok(ChatFiles { template: template(tokenizer_files, dir)?, special_tokens })
}

/// A model's files with a chat template and the token that ends its turns, where they have no template.
pub fn with_chat_template(
    mut files: Companions,
    dir: &Path,
    chat_template: &str,
    end: &str,
) -> Result<Companions, Refusal> {
    if template(&files, dir)?.is_some() {
        return Ok(files);
    }
    for name in [TOKENIZER_CONFIG, SPECIAL_TOKENS_MAP] {
        let mut fields: Map<String, Value> = match files.iter().position(|it| it.0 == name) {
            Some(at) => {
                from_json(&files.remove(at).1).map_err(|it| in_file(&dir.join(name), it))?
            }
            None if name == TOKENIZER_CONFIG => Map::new(),
            None => continue,
        };
        fields.insert("eos_token".to_owned(), end.into());
        if name == TOKENIZER_CONFIG {
            fields.insert("chat_template".to_owned(), chat_template.into());
        }
        files.push((name, format!("{:#}\n", Value::Object(fields)).into_bytes()));
    }
    Ok(files)
}

pub(crate) fn template(
    tokenizer_files: &[(&str, Vec<u8>)],
    dir: &Path,
) -> Result<Option<String>, Refusal> {
    if let Some((_, bytes)) = tokenizer_files.iter().find(|it| it.0 == JINJA) {
        return match String::from_utf8(bytes.clone()) {
            Ok(text) => Ok(Some(text)),
            Err(cause) => Err(malformed(&dir.join(JINJA), "UTF-8 text", cause.to_string())),
        };
    }
    let Some(fields) = object(tokenizer_files, dir, TOKENIZER_CONFIG)? else { return Ok(None) };
    let field = &fields["chat_template"];
    let named = || {
        let several = field.as_array()?;
        let default = several.iter().find(|one| one["name"] == "default")?;
        default["template"].as_str()
    };
    match field.as_str().or_else(named) {
        Some(template) => Ok(Some(template.to_owned())),
        None if field.is_null() => Ok(None),
        None => {
            let (file, got) = (dir.join(TOKENIZER_CONFIG), excerpt(&field.to_string()));
            let expected = "a text, or a list with one named default";
            Err(refused(&file, "chat_template", expected, got))
        }
    }
}

fn object(
    tokenizer_files: &[(&str, Vec<u8>)],
    dir: &Path,
    name: &str,
) -> Result<Option<Value>, Refusal> {
    let Some((_, bytes)) = tokenizer_files.iter().find(|it| it.0 == name) else { return Ok(None) };
    match serde_json::from_slice(bytes) {
        Ok(fields) => Ok(Some(fields)),
        Err(cause) => Err(malformed(&dir.join(name), "a JSON object", cause.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)], template: Option<&str>, tokens: &[(&str, &str)]) {
        let tokenizer_files: Vec<(&str, Vec<u8>)> =
            files.iter().map(|(name, text)| (*name, text.as_bytes().to_vec())).collect();
        let found = chat_files(&tokenizer_files, Path::new("m")).unwrap();
        assert_eq!(found.template.as_deref(), template, "{files:?}");
        let expected: BTreeMap<String, String> =
            tokens.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        assert_eq!(found.special_tokens, expected, "{files:?}");
    }

    #[test]
    fn tokens_are_texts_or_objects_and_the_tokenizers_configuration_wins() {
        check(&[], None, &[]);
        check(
            &[
                (
                    "tokenizer_config.json",
                    r#"{"chat_template": "a", "bos_token": {"content": "<s>"}, "eos_token": null}"#,
                ),
                (
                    "special_tokens_map.json",
                    r#"{"bos_token": "<b>", "eos_token": "</s>", "additional_special_tokens": ["x"]}"#,
                ),
                ("chat_template.jinja", "c"),
            ],
            Some("c"),
            &[("bos_token", "<s>"), ("eos_token", "</s>")],
        );
    }
}
