//! Bodies of requests, read field by field so that a refusal names the field.

use axum::http::StatusCode;
use hapo_core::{PromptId, RngStream, UniqueFields};
use hapo_data::{Message, Rendering};
use hapo_sampler::{Decoding, Request, RngKey, Truncation};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::api_error::{ApiError, excerpt};
use crate::fields::{self, Endpoint, is_empty};
use crate::{Served, Settings};

/// Most completions of one prompt.
const MAX_COMPLETIONS: usize = 128;
/// Most prompts of one request.
const MAX_PROMPTS: usize = 256;
/// Most likely tokens listed with each token.
const MAX_TOP: usize = 20;
/// Stop strings of one request.
const MAX_STOPS: usize = 16;
/// Longest of them, in bytes.
const MAX_STOP_BYTES: usize = 1000;
/// Stop tokens of one request.
const MAX_STOP_TOKENS: usize = 256;
/// Tokens and their alternatives that one answer may tell log-probabilities of.
const MAX_LOG_PROBS: usize = 1 << 20;
/// Bytes of prompts that one answer may repeat.
const MAX_ECHO: usize = 16 << 20;
/// A text of so many bytes becomes tokens, whatever the context.
const SHORT_TEXT: usize = 64 << 10;
/// `max_tokens` of `OpenAI`'s completions where a request does not say.
const COMPLETION_TOKENS: usize = 16;

/// A request, checked, with its prompts as tokens.
#[derive(Debug)]
pub(crate) struct ParsedRequest {
    pub(crate) requests: Vec<Request>,
    /// Completions of each prompt.
    pub(crate) n: usize,
    pub(crate) streams: bool,
    pub(crate) streams_usage: bool,
    /// Return log-probabilities, and those of this many most likely tokens.
    pub(crate) log_probs: Option<usize>,
    /// Return the tokens' ids, with the entropy in each place, and log-probabilities of the distribution that is sampled
    /// from instead of that at temperature 1.
    pub(crate) token_ids: bool,
    /// The prompts' texts, if each comes before its completions.
    pub(crate) echo: Option<Vec<String>>,
}

/// A key of random numbers, as a trainer sends it: the completions are then those of its own sampler.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Key {
    seed: u64,
    rng_stream: RngStream,
    step: u64,
    prompt: u64,
}

/// A prompt as tokens, and as it was written.
struct Prompt {
    tokens: Vec<u32>,
    /// `None` where it came as tokens.
    text: Option<String>,
}

/// The fields of a body, for the model that is served.
pub(crate) fn object(body: &[u8], settings: &Settings) -> Result<Map<String, Value>, ApiError> {
    let no_object = |it: &dyn std::fmt::Display| {
        ApiError::of_status(StatusCode::BAD_REQUEST, format!("expected a JSON object: {it}"))
    };
    let text = std::str::from_utf8(body).map_err(|it| no_object(&it))?;
    let text = hapo_core::without_lone_surrogates(text);
    let fields: UniqueFields<Value> = serde_json::from_str(&text).map_err(|it| no_object(&it))?;
    let fields: Map<String, Value> = fields.0.into_iter().collect();
    if let Some(name) = take::<String>(&fields, "model", "a string")?
        && !settings.is_model(&name)
    {
        let message = format!("model `{name}` is not served here, expected `{}`", settings.name);
        let mut error = ApiError::bad("model", message).coded("model_not_found");
        error.status = StatusCode::NOT_FOUND;
        return Err(error);
    }
    Ok(fields)
}

/// Reads a body.
pub(crate) fn read(
    endpoint: Endpoint,
    body: &[u8],
    served: &Served,
    number: u64,
) -> Result<ParsedRequest, ApiError> {
    let fields = object(body, &served.settings)?;
    fields::check(endpoint, &fields)?;
    let n = within(&fields, "n", 1, 1..=MAX_COMPLETIONS)?;
    let log_probs = log_probs(endpoint, &fields)?;
    let stop_strings = stop_strings(&fields)?;
    let decoding = decoding(&fields)?;
    let seed = take::<i64>(&fields, "seed", "an integer")?;
    let prompts = match endpoint {
        Endpoint::Chat => vec![Prompt { tokens: chat_prompt(&fields, served)?, text: None }],
        Endpoint::Completions => text_prompts(&fields, served)?,
    };
    let echoes = endpoint == Endpoint::Completions
        && take::<bool>(&fields, "echo", "true or false")?.unwrap_or(false);
    if let Some(it) = take::<usize>(&fields, "best_of", "a whole number")?
        && it != n
    {
        return Err(unexpected("best_of", "as many as n", &fields["best_of"]));
    }
    let token_ids = take::<bool>(&fields, "return_token_ids", "true or false")?.unwrap_or(false);
    if token_ids && (echoes || log_probs != Some(0)) {
        let expected = "false, or logprobs 0 without echo";
        return Err(unexpected("return_token_ids", expected, &Value::from(true)));
    }
    let key = "an object of seed, rng_stream, step and prompt, for one prompt";
    let key = take::<Key>(&fields, "rng", key)?;
    if key.is_some() && prompts.len() > 1 {
        return Err(unexpected("prompt", "one prompt for one rng", &fields["prompt"]));
    }
    let stop_tokens = stop_tokens(&fields, served)?;
    let wanted = max_tokens(endpoint, &fields, echoes)?;
    let param = match endpoint {
        Endpoint::Chat => "messages",
        Endpoint::Completions => "prompt",
    };
    let mut requests = Vec::with_capacity(prompts.len());
    let mut echo = echoes.then(Vec::new);
    for (index, Prompt { tokens: prompt, text }) in prompts.into_iter().enumerate() {
        if let Some(echo) = &mut echo {
            let decode = |()| served.chat_format.tokenizer.decode(&prompt);
            echo.push(text.map_or_else(|| decode(()), Ok)?);
        }
        let max_tokens = completion_length(served, prompt.len(), wanted, endpoint, param)?;
        let rng = match (&key, seed) {
            (Some(key), _) => RngKey {
                seed: key.seed,
                rng_stream: key.rng_stream,
                step: key.step,
                prompt: PromptId(key.prompt),
            },
            (None, Some(seed)) => RngKey {
                seed: seed as u64,
                rng_stream: RngStream::Generate,
                step: 0,
                prompt: PromptId(index as u64),
            },
            // A key of its own for every request that brings no seed.
            (None, None) => RngKey {
                seed: served.settings.seed,
                rng_stream: RngStream::Generate,
                step: number + 1,
                prompt: PromptId(index as u64),
            },
        };
        requests.push(Request {
            prompt,
            completions: n,
            decoding,
            max_tokens,
            stop_tokens: stop_tokens.clone(),
            stop_strings: stop_strings.clone(),
            text: true,
            top_log_probs: log_probs.unwrap_or(0),
            rng,
        });
    }
    bound(&requests, log_probs.map(|top| (top, echoes)), echo.as_deref())?;
    let streams = take::<bool>(&fields, "stream", "true or false")?.unwrap_or(false);
    let options: Option<Map<String, Value>> = take(&fields, "stream_options", "an object")?;
    let streams_usage = match options {
        Some(it) => take::<bool>(&it, "include_usage", "true or false")?.unwrap_or(false),
        None => false,
    };
    if streams && token_ids {
        return Err(unexpected("return_token_ids", "false in a stream", &Value::from(true)));
    }
    Ok(ParsedRequest { requests, n, streams, streams_usage, log_probs, token_ids, echo })
}

/// Refuses answers that are far larger than their requests. `told` holds the likeliest tokens told with each token, and
/// whether prompts are told of too.
fn bound(
    requests: &[Request],
    told: Option<(usize, bool)>,
    echo: Option<&[String]>,
) -> Result<(), ApiError> {
    let each = |it: &Request| {
        let (top, echoes) = told.unwrap_or_default();
        let tokens = it.max_tokens + if echoes { it.prompt.len() } else { 0 };
        tokens.saturating_mul(it.completions).saturating_mul(top + 1)
    };
    let log_probs = requests.iter().map(each).fold(0, usize::saturating_add);
    if told.is_some() && log_probs > MAX_LOG_PROBS {
        let message = format!(
            "logprobs: expected at most {MAX_LOG_PROBS} log-probabilities in one answer, got {log_probs}; lower n, max_tokens or logprobs"
        );
        return Err(ApiError::bad("logprobs", message));
    }
    let n = requests.first().map_or(1, |it| it.completions);
    let echoed = echo.unwrap_or_default().iter().map(String::len).sum::<usize>() * n;
    if echoed > MAX_ECHO {
        let message = format!(
            "echo: expected at most {MAX_ECHO} bytes of prompts in one answer, got {echoed}"
        );
        return Err(ApiError::bad("echo", message));
    }
    Ok(())
}

/// The tokens of a text, unless it is longer than the longest tokens of a context.
pub(crate) fn tokens_of(param: &str, text: &str, served: &Served) -> Result<Vec<u32>, ApiError> {
    let most = served.context().saturating_mul(served.longest_token).max(SHORT_TEXT);
    if text.len() > most {
        let context = served.context();
        let message = format!(
            "this model's context is {context} tokens; the text has {} bytes, which are more",
            text.len()
        );
        return Err(ApiError::bad(param, message).coded("context_length_exceeded"));
    }
    let tokens = served.chat_format.tokenizer.encode(text);
    tokens.map_err(|it| ApiError::bad(param, it.to_string()))
}

/// The completion's length: what is wanted, if prompt and completion fit the context.
fn completion_length(
    served: &Served,
    prompt: usize,
    wanted: Option<usize>,
    endpoint: Endpoint,
    param: &str,
) -> Result<usize, ApiError> {
    let context = served.context();
    let too_long =
        |message: String| Err(ApiError::bad(param, message).coded("context_length_exceeded"));
    if prompt == 0 {
        return Err(ApiError::bad(
            param,
            format!("{param}: expected at least one token, got none"),
        ));
    }
    if prompt > context || (prompt == context && wanted != Some(0)) {
        return too_long(format!(
            "this model's context is {context} tokens; the prompt has {prompt}"
        ));
    }
    let left = context - prompt;
    match wanted {
        Some(wanted) if wanted > left => too_long(format!(
            "this model's context is {context} tokens; the prompt has {prompt} and {wanted} are to be generated"
        )),
        Some(wanted) => Ok(wanted),
        None => {
            let usual = match endpoint {
                Endpoint::Chat => served.settings.default_max_tokens,
                Endpoint::Completions => COMPLETION_TOKENS,
            };
            Ok(usual.min(left))
        }
    }
}

/// `None` where a request does not say. None at all may be generated behind a prompt that is echoed.
fn max_tokens(
    endpoint: Endpoint,
    fields: &Map<String, Value>,
    echoes: bool,
) -> Result<Option<usize>, ApiError> {
    let newer = match endpoint {
        Endpoint::Chat => "max_completion_tokens",
        Endpoint::Completions => "max_tokens",
    };
    for name in [newer, "max_tokens"] {
        let expected = if echoes { "a whole number" } else { "a whole number from 1" };
        if let Some(it) = take::<usize>(fields, name, expected)? {
            if it == 0 && !echoes {
                return Err(unexpected(name, expected, &Value::from(0)));
            }
            return Ok(Some(it));
        }
    }
    Ok(None)
}

fn log_probs(endpoint: Endpoint, fields: &Map<String, Value>) -> Result<Option<usize>, ApiError> {
    match endpoint {
        Endpoint::Chat => {
            let is_wanted = take::<bool>(fields, "logprobs", "true or false")?.unwrap_or(false);
            let top = within(fields, "top_logprobs", 0, 0..=MAX_TOP)?;
            if top > 0 && !is_wanted {
                return Err(ApiError::bad(
                    "top_logprobs",
                    "top_logprobs: expected logprobs to be true as well",
                ));
            }
            Ok(is_wanted.then_some(top))
        }
        Endpoint::Completions => match fields.get("logprobs") {
            None | Some(Value::Null | Value::Bool(false)) => Ok(None),
            Some(_) => Ok(Some(within(fields, "logprobs", 0, 0..=MAX_TOP)?)),
        },
    }
}

fn stop_strings(fields: &Map<String, Value>) -> Result<Vec<String>, ApiError> {
    let expected = "a string, or a list of at most 16, each of 1 to 1000 bytes";
    let found: Vec<String> = match fields.get("stop") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::String(it)) => vec![it.clone()],
        Some(it) => {
            serde_json::from_value(it.clone()).map_err(|_| unexpected("stop", expected, it))?
        }
    };
    let is_good = |it: &String| (1..=MAX_STOP_BYTES).contains(&it.len());
    if found.len() > MAX_STOPS || !found.iter().all(is_good) {
        return Err(unexpected("stop", expected, &fields["stop"]));
    }
    Ok(found)
}

/// Tokens that end a completion: the model's own, unless ignored, and the request's.
fn stop_tokens(fields: &Map<String, Value>, served: &Served) -> Result<Vec<u32>, ApiError> {
    let ignores = take::<bool>(fields, "ignore_eos", "true or false")?.unwrap_or(false);
    let mut tokens = if ignores { Vec::new() } else { served.chat_format.stop.clone() };
    let expected = "a list of at most 256 token ids";
    let own = take::<Vec<u32>>(fields, "stop_token_ids", expected)?.unwrap_or_default();
    if own.len() > MAX_STOP_TOKENS {
        return Err(unexpected("stop_token_ids", expected, &fields["stop_token_ids"]));
    }
    tokens.extend(own);
    Ok(tokens)
}

fn decoding(fields: &Map<String, Value>) -> Result<Decoding, ApiError> {
    let number = |name: &str, default: f64, expected: &str, ok: fn(f64) -> bool| {
        let found = take::<f64>(fields, name, expected)?.unwrap_or(default);
        if ok(found) { Ok(found as f32) } else { Err(unexpected(name, expected, &fields[name])) }
    };
    let temperature =
        number("temperature", 1.0, "a number from 0 to 100", |it| (0.0..=100.0).contains(&it))?;
    let top_p = number("top_p", 1.0, "a number in (0, 1]", |it| it > 0.0 && it <= 1.0)?;
    let min_p = number("min_p", 0.0, "a number in [0, 1]", |it| (0.0..=1.0).contains(&it))?;
    let top_k = match take::<i64>(fields, "top_k", "a whole number from -1")? {
        Some(it) if it < -1 => {
            return Err(unexpected("top_k", "a whole number from -1", &fields["top_k"]));
        }
        Some(it) => it.max(0) as usize,
        None => 0,
    };
    // Colder than this, every other token's share is below the smallest number.
    Ok(if temperature < 1e-4 {
        Decoding::Greedy
    } else {
        Decoding::Sample { temperature, truncation: Truncation { top_k, top_p, min_p } }
    })
}

pub(crate) fn chat_prompt(
    fields: &Map<String, Value>,
    served: &Served,
) -> Result<Vec<u32>, ApiError> {
    let Some(turns) = fields.get("messages").and_then(Value::as_array) else {
        let got = fields.get("messages").unwrap_or(&Value::Null);
        return Err(unexpected("messages", "a list of messages", got));
    };
    if turns.is_empty() {
        return Err(unexpected("messages", "at least one message", &fields["messages"]));
    }
    let messages = turns
        .iter()
        .enumerate()
        .map(|(index, turn)| message(index, turn))
        .collect::<Result<Vec<_>, _>>()?;
    let variables: Option<Map<String, Value>> = take(fields, "chat_template_kwargs", "an object")?;
    let rendering = Rendering {
        add_generation_prompt: true,
        variables: variables.unwrap_or_default(),
        unix_time: (served.settings.clock)(),
    };
    let blame = |it: &dyn std::fmt::Display| ApiError::bad("messages", it.to_string());
    let chat_format = &served.chat_format;
    let text =
        chat_format.template.render_dialogue(&messages, &rendering).map_err(|it| blame(&it))?;
    tokens_of("messages", &text, served)
}

fn message(index: usize, turn: &Value) -> Result<Message, ApiError> {
    let field = format!("messages[{index}]");
    let role = match turn["role"].as_str() {
        // The newer word for the same turn.
        Some("developer") => "system",
        Some(it @ ("system" | "user" | "assistant")) => it,
        _ => {
            return Err(unexpected(
                &format!("{field}.role"),
                "system, user or assistant",
                &turn["role"],
            ));
        }
    };
    if turn.get("tool_calls").is_some_and(|it| !it.is_null() && !is_empty(it)) {
        let name = format!("{field}.tool_calls");
        return Err(ApiError::bad(&name, format!("{name}: not supported")));
    }
    let content = &turn["content"];
    let expected = "a text, or a list of parts of type text";
    let name = format!("{field}.content");
    let text = match content {
        Value::String(it) => it.clone(),
        Value::Null if role == "assistant" => String::new(),
        Value::Array(parts) => parts
            .iter()
            .map(|part| match (part["type"].as_str(), part["text"].as_str()) {
                (Some("text"), Some(it)) => Ok(it),
                _ => Err(unexpected(&name, expected, part)),
            })
            .collect::<Result<Vec<_>, _>>()?
            .concat(),
        _ => return Err(unexpected(&name, expected, content)),
    };
    Ok(Message::new(role, text))
}

fn text_prompts(fields: &Map<String, Value>, served: &Served) -> Result<Vec<Prompt>, ApiError> {
    let expected = "a string, a list of strings, a list of token ids, or a list of such lists";
    let found = fields.get("prompt").unwrap_or(&Value::Null);
    let bad = || unexpected("prompt", expected, found);
    let encode = |text: &str| {
        let tokens = tokens_of("prompt", text, served)?;
        Ok(Prompt { tokens, text: Some(text.to_owned()) })
    };
    let ids = |list: &Value| {
        let tokens = serde_json::from_value(list.clone()).map_err(|_| bad())?;
        Ok(Prompt { tokens, text: None })
    };
    let prompts = match found {
        Value::String(text) => vec![encode(text)?],
        Value::Array(list) if list.first().is_some_and(Value::is_number) => vec![ids(found)?],
        Value::Array(list) if !list.is_empty() && list.len() <= MAX_PROMPTS => list
            .iter()
            .map(|it| match it {
                Value::String(text) => encode(text),
                Value::Array(_) => ids(it),
                _ => Err(bad()),
            })
            .collect::<Result<_, _>>()?,
        _ => return Err(bad()),
    };
    Ok(prompts)
}

fn within(
    fields: &Map<String, Value>,
    name: &str,
    default: usize,
    range: std::ops::RangeInclusive<usize>,
) -> Result<usize, ApiError> {
    let expected = format!("a whole number from {} to {}", range.start(), range.end());
    match take::<usize>(fields, name, &expected)? {
        None => Ok(default),
        Some(it) if range.contains(&it) => Ok(it),
        Some(_) => Err(unexpected(name, &expected, &fields[name])),
    }
}

/// A field, where it is there and not null.
pub(crate) fn take<T: DeserializeOwned>(
    fields: &Map<String, Value>,
    name: &str,
    expected: &str,
) -> Result<Option<T>, ApiError> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(it) => match serde_json::from_value(it.clone()) {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(unexpected(name, expected, it)),
        },
    }
}

pub(crate) fn unexpected(name: &str, expected: &str, got: &Value) -> ApiError {
    ApiError::bad(name, format!("{name}: expected {expected}, got {}", excerpt(got)))
}
