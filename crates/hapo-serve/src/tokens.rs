//! Answers that need the tokenizer alone.

use serde_json::{Map, Value, json};

use crate::Served;
use crate::api_error::ApiError;
use crate::request::{chat_prompt, object, take, tokens_of, unexpected};

/// The tokens of a text, or of a conversation as a chat renders it.
pub(crate) fn tokenize(body: &[u8], served: &Served) -> Result<Value, ApiError> {
    let fields = object(body, &served.settings)?;
    let read = ["prompt", "messages", "chat_template_kwargs", "return_token_strs"];
    let only = [("add_special_tokens", false), ("add_generation_prompt", true)];
    check(&fields, &read, &only)?;
    let tokenizer = &served.chat_format.tokenizer;
    let tokens = match (fields.get("prompt"), fields.get("messages")) {
        (Some(Value::String(text)), None) => tokens_of("prompt", text, served)?,
        (None, Some(_)) => chat_prompt(&fields, served)?,
        (got, _) => {
            let got = got.unwrap_or(&Value::Null);
            return Err(unexpected("prompt", "a string, or messages in its place", got));
        }
    };
    let wants_strings = take::<bool>(&fields, "return_token_strs", "true or false")?;
    let strings: Option<Vec<_>> = wants_strings
        .filter(|it| *it)
        .map(|_| tokens.iter().map(|it| tokenizer.token(*it)).collect());
    Ok(json!({
        "count": tokens.len(), "max_model_len": served.context(), "tokens": tokens,
        "token_strs": strings,
    }))
}

/// The text of tokens, special ones written out.
pub(crate) fn detokenize(body: &[u8], served: &Served) -> Result<Value, ApiError> {
    let fields = object(body, &served.settings)?;
    check(&fields, &["tokens"], &[])?;
    let expected = "a list of token ids";
    let Some(tokens) = take::<Vec<u32>>(&fields, "tokens", expected)? else {
        return Err(unexpected("tokens", expected, &Value::Null));
    };
    let text = served.chat_format.tokenizer.decode(&tokens);
    let text = text.map_err(|it| ApiError::bad("tokens", it.to_string()))?;
    Ok(json!({ "prompt": text }))
}

/// Refuses fields that are neither read nor have the only value there is.
fn check(
    fields: &Map<String, Value>,
    read: &[&str],
    only: &[(&str, bool)],
) -> Result<(), ApiError> {
    for (name, value) in fields.iter().filter(|(name, _)| *name != "model") {
        if read.contains(&name.as_str()) || value.is_null() {
            continue;
        }
        match only.iter().find(|it| it.0 == name) {
            Some((_, it)) if value == it => {}
            Some((_, it)) => return Err(unexpected(name, &it.to_string(), value)),
            None => {
                let shown = hapo_core::excerpt(name, 80);
                let error = ApiError::bad(&shown, format!("{shown}: unknown field"));
                return Err(error.coded("unknown_parameter"));
            }
        }
    }
    Ok(())
}
