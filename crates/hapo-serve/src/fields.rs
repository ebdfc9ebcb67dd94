//! Which fields a request may have.
//!
//! A field is honoured, or it is refused by name: one that would change the answer in a way that cannot be had, and one
//! that is unknown here, as `OpenAI` itself refuses it. Only fields that are known to leave the answer alone are passed
//! over.

use serde_json::{Map, Value};

use crate::api_error::{ApiError, excerpt};

/// The two kinds of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Chat,
    Completions,
}

impl Endpoint {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat/completions",
            Self::Completions => "completions",
        }
    }
}

/// True if a field's value does not change the answer.
type ChangesNothing = fn(&Value) -> bool;

/// Fields that are read.
const READ: &[&str] = &[
    "model",
    "n",
    "seed",
    "stop",
    "stop_token_ids",
    "ignore_eos",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "max_tokens",
    "stream",
    "stream_options",
    "logprobs",
];

/// Those of chats alone.
const READ_OF_CHATS: &[&str] =
    &["messages", "max_completion_tokens", "top_logprobs", "chat_template_kwargs"];

/// Those of completions alone.
const READ_OF_COMPLETIONS: &[&str] = &["prompt", "echo", "best_of", "return_token_ids", "rng"];

/// Fields that do not change the answer: labels, accounting, hints for a cache.
const PASSED_OVER: &[&str] = &[
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prediction",
    "parallel_tool_calls",
    "request_id",
    "priority",
    "cache_salt",
    "cache_prompt",
    "guided_decoding_backend",
];

/// Fields that would change the answer in a way that cannot be had, with the values at which they
/// change nothing.
const UNSUPPORTED: &[(&str, ChangesNothing)] = &[
    ("tools", is_empty),
    ("functions", is_empty),
    ("tool_choice", |it| it == "none" || it == "auto"),
    ("function_call", |it| it == "none" || it == "auto"),
    ("logit_bias", is_empty),
    ("frequency_penalty", is_zero),
    ("presence_penalty", is_zero),
    ("repetition_penalty", is_one),
    ("response_format", |it| it["type"] == "text"),
    ("modalities", |it| *it == serde_json::json!(["text"])),
    ("audio", |_| false),
    ("echo", |it| it == false),
    ("suffix", |it| it == ""),
    ("use_beam_search", |it| it == false),
    ("guided_json", |_| false),
    ("guided_regex", |_| false),
    ("guided_choice", |_| false),
    ("guided_grammar", |_| false),
    ("structured_outputs", |_| false),
    ("min_tokens", is_zero),
    ("allowed_token_ids", is_empty),
    ("bad_words", is_empty),
    ("add_special_tokens", |it| it == false),
    ("add_generation_prompt", |it| it == true),
    ("continue_final_message", |it| it == false),
    ("documents", is_empty),
    ("chat_template", |_| false),
    ("truncate_prompt_tokens", |_| false),
    ("typical_p", is_one),
    ("mirostat", is_zero),
    ("reasoning_effort", |_| false),
    ("verbosity", |it| it == "medium"),
    ("web_search_options", |_| false),
    ("skip_special_tokens", |it| it == true),
    ("spaces_between_special_tokens", |it| it == true),
    ("include_stop_str_in_output", |it| it == false),
    ("return_token_ids", |it| it == false),
    ("return_tokens_as_token_ids", |it| it == false),
    ("prompt_logprobs", |it| it == false),
    ("length_penalty", is_one),
    ("early_stopping", |it| it == false),
];

pub(crate) fn is_empty(it: &Value) -> bool {
    it.as_array().is_some_and(Vec::is_empty) || it.as_object().is_some_and(Map::is_empty)
}

fn is_zero(it: &Value) -> bool {
    it.as_f64() == Some(0.0)
}

fn is_one(it: &Value) -> bool {
    it.as_f64() == Some(1.0)
}

/// Refuses unsupported fields by name.
pub(crate) fn check(endpoint: Endpoint, fields: &Map<String, Value>) -> Result<(), ApiError> {
    let own = match endpoint {
        Endpoint::Chat => READ_OF_CHATS,
        Endpoint::Completions => READ_OF_COMPLETIONS,
    };
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        let name = name.as_str();
        if [READ, own, PASSED_OVER].iter().any(|it| it.contains(&name)) {
            continue;
        }
        let Some((_, changes_nothing)) = UNSUPPORTED.iter().find(|(it, _)| *it == name) else {
            let shown = hapo_core::excerpt(name, 80);
            let error = ApiError::bad(&shown, format!("{shown}: unknown field"));
            return Err(error.coded("unknown_parameter"));
        };
        if !changes_nothing(value) {
            let message = format!("{name}: not supported, got {}", excerpt(value));
            return Err(ApiError::bad(name, message).coded("unsupported_parameter"));
        }
    }
    Ok(())
}
