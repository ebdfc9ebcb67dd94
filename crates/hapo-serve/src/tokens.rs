//! Answers that need the tokenizer alone.

use serde_json::{Value, json};

use crate::Served;
use crate::api_error::ApiError;
use crate::fields::Fields;
use crate::request::{chat_prompt, tokens_of};

/// The tokens of a text, or of a conversation as a chat renders it.
pub(crate) fn tokenize(body: &[u8], served: &Served) -> Result<Value, ApiError> {
    let read = ["prompt messages chat_template_kwargs return_token_strs add_special_tokens"];
    let fields = Fields::of_body(body, &served.settings, &read)?;
    let tokens = match (fields.get("prompt"), fields.get("messages")) {
        (Value::String(text), Value::Null) => {
            tokens_of("prompt", text, fields.is_on("add_special_tokens")?, served)?
        }
        (Value::Null, messages) if !messages.is_null() => chat_prompt(&fields, served)?,
        _ => return Err(fields.refuse("prompt", "a string, or messages in its place")),
    };
    let tokenizer = &served.chat_format.tokenizer;
    let wants_strings = fields.is_set("return_token_strs")?;
    let strings = || tokens.iter().map(|token| tokenizer.token(*token)).collect::<Vec<_>>();
    Ok(json!({
        "count": tokens.len(), "max_model_len": served.context(), "tokens": tokens,
        "token_strs": wants_strings.then(strings),
    }))
}

/// The text of tokens, special ones written out.
pub(crate) fn detokenize(body: &[u8], served: &Served) -> Result<Value, ApiError> {
    let fields = Fields::of_body(body, &served.settings, &["tokens"])?;
    let expected = "a list of token ids";
    let tokens: Option<Vec<u32>> = fields.take("tokens", expected)?;
    let tokens = tokens.ok_or_else(|| fields.refuse("tokens", expected))?;
    if tokens.len() > served.context() {
        return Err(fields.refuse("tokens", &format!("at most {} token ids", served.context())));
    }
    let text = served.chat_format.tokenizer.decode(&tokens);
    let text = text.map_err(|error| ApiError::bad("tokens", error.to_string()))?;
    Ok(json!({ "prompt": text }))
}
