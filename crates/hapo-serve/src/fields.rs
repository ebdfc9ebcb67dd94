//! The fields of a body. Each is read, or it is refused by name: one that would change the answer in a way that cannot be
//! had, and one that is unknown here, as `OpenAI` itself refuses it. Only fields that are known to leave the answer alone
//! are passed over.

use axum::http::StatusCode;
use hapo_core::{UniqueFields, is_among};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::api_error::{ApiError, excerpt};

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

    pub(crate) fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Chat => {
                &[SAMPLING, "messages max_completion_tokens top_logprobs chat_template_kwargs"]
            }
            Self::Completions => &[SAMPLING, "prompt echo best_of return_token_ids rng"],
        }
    }
}

const SAMPLING: &str = "n seed stop stop_token_ids ignore_eos skip_special_tokens add_special_tokens temperature top_p top_k min_p max_tokens stream stream_options logprobs";

/// Fields that do not change an answer: labels, accounting, hints for a cache.
const PASSED_OVER: &str = "user metadata store service_tier safety_identifier prompt_cache_key prompt_cache_retention prediction parallel_tool_calls request_id priority cache_salt cache_prompt guided_decoding_backend";

/// Fields that would change an answer in a way that cannot be had, and the JSON values at which they change nothing.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("tools functions logit_bias allowed_token_ids bad_words documents", "[[], {}]"),
    ("tool_choice function_call", r#"["none", "auto"]"#),
    ("frequency_penalty presence_penalty min_tokens mirostat", "[0, 0.0]"),
    ("repetition_penalty typical_p length_penalty", "[1, 1.0]"),
    ("echo use_beam_search early_stopping prompt_logprobs", "[false]"),
    ("continue_final_message include_stop_str_in_output", "[false]"),
    ("return_token_ids return_tokens_as_token_ids", "[false]"),
    ("add_generation_prompt", "[true]"),
    ("spaces_between_special_tokens", "[true]"),
    ("response_format", r#"[{"type": "text"}]"#),
    ("modalities", r#"[["text"]]"#),
    ("verbosity", r#"["medium"]"#),
    ("suffix", r#"[""]"#),
    ("guided_json guided_regex guided_choice guided_grammar structured_outputs", "[]"),
    ("audio chat_template truncate_prompt_tokens reasoning_effort web_search_options", "[]"),
];

/// The fields of a body or of an object in it.
pub(crate) struct Fields {
    /// Before a name: `messages[0].`
    place: String,
    values: Map<String, Value>,
}

impl Fields {
    /// Those of a body for the model that is served, all of them known: `read`, passed over, or at a value that changes
    /// nothing.
    pub(crate) fn of_body(
        body: &[u8],
        settings: &crate::Settings,
        read: &[&str],
    ) -> Result<Self, ApiError> {
        let no_object = |why: &dyn std::fmt::Display| {
            ApiError::of_status(StatusCode::BAD_REQUEST, format!("expected a JSON object: {why}"))
        };
        let text = std::str::from_utf8(body).map_err(|error| no_object(&error))?;
        let text = hapo_core::without_lone_surrogates(text);
        let values: UniqueFields<Value> =
            serde_json::from_str(&text).map_err(|error| no_object(&error))?;
        let fields = Self::at("", values.0.into_iter().collect());
        if let Some(name) = fields.take::<String>("model", "a string")?
            && !settings.is_model(&name)
        {
            let param = Some("model".to_owned());
            return Err(ApiError { param, ..settings.not_served(&name) });
        }
        fields.check(read)?;
        Ok(fields)
    }

    pub(crate) fn at(place: impl Into<String>, values: Map<String, Value>) -> Self {
        Self { place: place.into(), values }
    }

    fn check(&self, read: &[&str]) -> Result<(), ApiError> {
        let mut unknown = Vec::new();
        for (name, value) in self.values.iter().filter(|(_, value)| !value.is_null()) {
            if name == "model" || read.iter().any(|words| is_among(words, name)) {
                continue;
            }
            let neutral = UNSUPPORTED.iter().find(|(names, _)| is_among(names, name));
            match neutral.map(|(_, values)| serde_json::from_str::<Vec<Value>>(values)) {
                Some(values) if values.as_ref().is_ok_and(|values| values.contains(value)) => {}
                Some(_) => {
                    let message = format!("{name}: not supported, got {}", excerpt(value));
                    return Err(ApiError::bad(name, message).coded("unsupported_parameter"));
                }
                None if is_among(PASSED_OVER, name) => {}
                None => unknown.push(hapo_core::excerpt(name, 80)),
            }
        }
        let Some(first) = unknown.first() else { return Ok(()) };
        let plural = if unknown.len() > 1 { "s" } else { "" };
        let message = format!("{}: unknown field{plural}", unknown.join(", "));
        Err(ApiError::bad(first, message).coded("unknown_parameter"))
    }

    pub(crate) fn get(&self, name: &str) -> &Value {
        self.values.get(name).unwrap_or(&Value::Null)
    }

    /// A field, where it is there and not null.
    pub(crate) fn take<T: DeserializeOwned>(
        &self,
        name: &str,
        expected: &str,
    ) -> Result<Option<T>, ApiError> {
        self.take_if(name, expected, |_| true)
    }

    pub(crate) fn take_if<T: DeserializeOwned>(
        &self,
        name: &str,
        expected: &str,
        is_good: impl Fn(&T) -> bool,
    ) -> Result<Option<T>, ApiError> {
        match self.get(name) {
            Value::Null => Ok(None),
            value => match serde_json::from_value(value.clone()) {
                Ok(value) if is_good(&value) => Ok(Some(value)),
                _ => Err(self.refuse(name, expected)),
            },
        }
    }

    /// A field that is true or false; `default` if it is missing.
    pub(crate) fn flag(&self, name: &str, default: bool) -> Result<bool, ApiError> {
        Ok(self.take(name, "true or false")?.unwrap_or(default))
    }

    /// A number that is in a range; `default` where there is none.
    pub(crate) fn within(
        &self,
        name: &str,
        default: usize,
        range: std::ops::RangeInclusive<usize>,
    ) -> Result<usize, ApiError> {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        Ok(self.take_if(name, &expected, |number| range.contains(number))?.unwrap_or(default))
    }

    pub(crate) fn refuse(&self, name: &str, expected: &str) -> ApiError {
        self.refuse_value(name, expected, self.get(name))
    }

    /// Refuses a field for a part of its value.
    pub(crate) fn refuse_value(&self, name: &str, expected: &str, got: &Value) -> ApiError {
        let name = format!("{}{name}", self.place);
        ApiError::bad(&name, format!("{name}: expected {expected}, got {}", excerpt(got)))
    }
}
