//! Requests for completions, and for tokens and texts alone.

use hapo_core::{PromptId, RngStream};
use hapo_data::{Message, PromptTemplate, Rendering};
use hapo_sampler::{Decoding, Request, RngKey, SpecialTokens, Truncation};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::fields::{Endpoint, Fields};
use crate::{Served, api_error::ApiError};

const MAX_COMPLETIONS: usize = 128;
const MAX_PROMPTS: usize = 256;
const MAX_TOP: usize = 20;
const MAX_STOPS: usize = 16;
const MAX_STOP_BYTES: usize = 1000;
const MAX_STOP_TOKENS: usize = 256;
/// Tokens and their alternatives that one answer may tell log-probabilities of.
const MAX_LOG_PROBS: usize = 1 << 20;
/// Bytes of prompts that one answer may repeat.
const MAX_ECHO: usize = 16 << 20;
/// A text of so many bytes becomes tokens, whatever the context.
const SHORT_TEXT: usize = 64 << 10;
/// `max_tokens` of `OpenAI`'s completions where a request does not say.
const COMPLETION_TOKENS: usize = 16;

#[derive(Debug)]
pub(crate) struct ParsedRequest {
    pub(crate) requests: Vec<Request>,
    pub(crate) n: usize,
    pub(crate) streams: bool,
    pub(crate) streams_usage: bool,
    /// Return log-probabilities, and those of this many most likely tokens.
    pub(crate) log_probs: Option<usize>,
    /// Return the tokens' ids, with the entropy in each place, and log-probabilities of the distribution that is sampled
    /// from instead of that at temperature 1.
    pub(crate) token_ids: bool,
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

struct Prompt {
    tokens: Vec<u32>,
    /// `None` where it came as tokens.
    text: Option<String>,
}

pub(crate) fn read(
    endpoint: Endpoint,
    body: &[u8],
    served: &Served,
    number: u64,
) -> Result<ParsedRequest, ApiError> {
    let fields = Fields::of_body(body, &served.settings, endpoint.fields())?;
    let n = fields.within("n", 1, 1..=MAX_COMPLETIONS)?;
    let log_probs = log_probs(endpoint, &fields)?;
    let stop_strings = stop_strings(&fields)?;
    let decoding = decoding(&fields)?;
    let (prompts, param) = match endpoint {
        Endpoint::Chat => {
            let tokens = chat_prompt(&fields, served)?;
            (vec![Prompt { tokens, text: None }], "messages")
        }
        Endpoint::Completions => (text_prompts(&fields, served)?, "prompt"),
    };
    let echoes = fields.flag("echo", false)?;
    fields.take_if("best_of", "as many as n", |best_of: &usize| *best_of == n)?;
    let streams = fields.flag("stream", false)?;
    let token_ids = fields.flag("return_token_ids", false)?;
    if token_ids && (echoes || streams || log_probs != Some(0)) {
        let expected = "false, or logprobs 0 without echo and stream";
        return Err(fields.refuse("return_token_ids", expected));
    }
    let keys = keys(&fields, served.settings.seed, number, prompts.len())?;
    let skips = fields.flag("skip_special_tokens", true)?;
    let special = if skips { SpecialTokens::LeftOut } else { SpecialTokens::WrittenOut };
    let mut stop_tokens = stop_tokens(&fields, served)?;
    if skips {
        // A special token that is to end the text does so out of sight.
        stop_tokens.extend(stop_strings.iter().filter_map(|it| served.chat_format.special(it)));
    }
    let wanted = max_tokens(&fields, echoes)?;
    let mut requests = Vec::with_capacity(prompts.len());
    let mut echo = echoes.then(Vec::new);
    for (Prompt { tokens: prompt, text }, rng) in prompts.into_iter().zip(keys) {
        if let Some(echo) = &mut echo {
            let decode = || served.chat_format.tokenizer.decode(&prompt);
            echo.push(text.map_or_else(decode, Ok)?);
        }
        requests.push(Request {
            max_tokens: completion_length(served, prompt.len(), wanted, endpoint, param)?,
            prompt,
            completions: n,
            decoding,
            stop_tokens: stop_tokens.clone(),
            stop_strings: stop_strings.clone(),
            text: Some(special),
            top_log_probs: log_probs.unwrap_or(0),
            rng,
        });
    }
    bound(&requests, log_probs.map(|top| (top, echoes)), echo.as_deref())?;
    let options: Option<Map<String, Value>> = fields.take("stream_options", "an object")?;
    let options = Fields::at("stream_options.", options.unwrap_or_default());
    let streams_usage = options.flag("include_usage", false)?;
    Ok(ParsedRequest { requests, n, streams, streams_usage, log_probs, token_ids, echo })
}

/// The keys of the prompts' random numbers: the request's own, or those of its seed, or, for a request that brings no
/// seed, of its number.
fn keys(fields: &Fields, seed: u64, number: u64, n: usize) -> Result<Vec<RngKey>, ApiError> {
    let own = fields.take::<i64>("seed", "an integer")?;
    let expected = "an object of seed, rng_stream, step and prompt, for one prompt";
    let key = fields.take_if("rng", expected, |_: &Key| n == 1)?;
    if let Some(Key { seed, rng_stream, step, prompt }) = key {
        return Ok(vec![RngKey { seed, rng_stream, step, prompt: PromptId(prompt) }]);
    }
    let (seed, step) = match own {
        Some(own) => (own as u64, 0),
        None => (seed, number + 1),
    };
    let key = |prompt| RngKey { seed, rng_stream: RngStream::Generate, step, prompt };
    Ok((0..n as u64).map(PromptId).map(key).collect())
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

/// The tokens of a text, behind those that the tokenizer puts in front where `with_special`, unless it is longer than the longest tokens of a context.
fn tokens_of(
    param: &str,
    text: &str,
    with_special: bool,
    served: &Served,
) -> Result<Vec<u32>, ApiError> {
    let most = served.context().saturating_mul(served.longest_token).max(SHORT_TEXT);
    if text.len() > most {
        let context = served.context();
        let message = format!(
            "this model's context is {context} tokens; the text has {} bytes, which are more",
            text.len()
        );
        return Err(ApiError::bad(param, message).coded("context_length_exceeded"));
    }
    let tokenizer = &served.chat_format.tokenizer;
    let tokens = if with_special { tokenizer.encode_prompt(text) } else { tokenizer.encode(text) };
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
        let message = format!("{param}: expected at least one token, got none");
        return Err(ApiError::bad(param, message));
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
fn max_tokens(fields: &Fields, echoes: bool) -> Result<Option<usize>, ApiError> {
    let expected = if echoes { "a whole number" } else { "a whole number from 1" };
    let take = |name| fields.take_if(name, expected, |most: &usize| *most > 0 || echoes);
    Ok(take("max_completion_tokens")?.or(take("max_tokens")?))
}

fn log_probs(endpoint: Endpoint, fields: &Fields) -> Result<Option<usize>, ApiError> {
    if endpoint == Endpoint::Completions {
        return match fields.get("logprobs") {
            Value::Null | Value::Bool(false) => Ok(None),
            _ => Ok(Some(fields.within("logprobs", 0, 0..=MAX_TOP)?)),
        };
    }
    let is_wanted = fields.flag("logprobs", false)?;
    let top = fields.within("top_logprobs", 0, 0..=MAX_TOP)?;
    if top > 0 && !is_wanted {
        let message = "top_logprobs: expected logprobs to be true as well";
        return Err(ApiError::bad("top_logprobs", message));
    }
    Ok(is_wanted.then_some(top))
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrSeveral<T> {
    One(T),
    Several(Vec<T>),
}

impl<T> OneOrSeveral<T> {
    fn all(self) -> Vec<T> {
        match self {
            Self::One(it) => vec![it],
            Self::Several(all) => all,
        }
    }
}

fn stop_strings(fields: &Fields) -> Result<Vec<String>, ApiError> {
    let expected = "a string, or a list of at most 16, each of 1 to 1000 bytes";
    let stop: Option<OneOrSeveral<String>> = fields.take("stop", expected)?;
    let texts = stop.map_or_else(Vec::new, OneOrSeveral::all);
    let fits = |text: &String| (1..=MAX_STOP_BYTES).contains(&text.len());
    if texts.len() > MAX_STOPS || !texts.iter().all(fits) {
        return Err(fields.refuse("stop", expected));
    }
    Ok(texts)
}

/// Tokens that end a completion: the model's own, unless ignored, and the request's.
fn stop_tokens(fields: &Fields, served: &Served) -> Result<Vec<u32>, ApiError> {
    let ignores = fields.flag("ignore_eos", false)?;
    let mut tokens = if ignores { Vec::new() } else { served.chat_format.stop.clone() };
    let is_good = |own: &Vec<u32>| own.len() <= MAX_STOP_TOKENS;
    let own = fields.take_if("stop_token_ids", "a list of at most 256 token ids", is_good)?;
    tokens.extend(own.unwrap_or_default());
    Ok(tokens)
}

fn decoding(fields: &Fields) -> Result<Decoding, ApiError> {
    let number = |name: &str, default: f64, expected: &str, is_good: fn(&f64) -> bool| {
        Ok::<_, ApiError>(fields.take_if(name, expected, is_good)?.unwrap_or(default) as f32)
    };
    let temperature =
        number("temperature", 1.0, "a number from 0 to 100", |it| (0.0..=100.0).contains(it))?;
    let top_p = number("top_p", 1.0, "a number in (0, 1]", |it| *it > 0.0 && *it <= 1.0)?;
    let min_p = number("min_p", 0.0, "a number in [0, 1]", |it| (0.0..=1.0).contains(it))?;
    let top_k = fields.take_if("top_k", "a whole number from -1", |most: &i64| *most >= -1)?;
    let top_k = top_k.unwrap_or(0).max(0) as usize;
    // Colder than this, every other token's share is below the smallest number.
    Ok(if temperature < 1e-4 {
        Decoding::Greedy
    } else {
        Decoding::Sample { temperature, truncation: Truncation { top_k, top_p, min_p } }
    })
}

fn chat_prompt(fields: &Fields, served: &Served) -> Result<Vec<u32>, ApiError> {
    let turns: Option<Vec<Value>> = fields.take("messages", "a list of messages")?;
    let turns = turns.ok_or_else(|| fields.refuse("messages", "a list of messages"))?;
    if turns.is_empty() {
        return Err(fields.refuse("messages", "at least one message"));
    }
    let messages = turns.into_iter().enumerate().map(|(index, turn)| message(index, turn));
    let messages: Vec<Message> = messages.collect::<Result<_, _>>()?;
    let variables = fields.take("chat_template_kwargs", "an object")?;
    let rendering = Rendering {
        add_generation_prompt: true,
        variables: variables.unwrap_or_default(),
        unix_time: (served.settings.clock)(),
    };
    let template = &served.chat_format.template;
    let text = template.render_dialogue(&messages, &rendering);
    let text = text.map_err(|error| ApiError::bad("messages", error.to_string()))?;
    // The model's own template writes all special tokens itself.
    let is_named = matches!(template, PromptTemplate::Named(_));
    tokens_of("messages", &text, fields.flag("add_special_tokens", is_named)?, served)
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Value>),
}

fn message(index: usize, turn: Value) -> Result<Message, ApiError> {
    let turn = if let Value::Object(turn) = turn { turn } else { Map::new() };
    let fields = Fields::at(format!("messages[{index}]."), turn);
    let expected = "system, user or assistant";
    let role = match fields.get("role").as_str() {
        // The newer word for the same turn.
        Some("developer") => "system",
        Some(role @ ("system" | "user" | "assistant")) => role,
        _ => return Err(fields.refuse("role", expected)),
    };
    let calls = fields.get("tool_calls");
    if !calls.is_null() && calls.as_array().is_none_or(|calls| !calls.is_empty()) {
        let name = format!("messages[{index}].tool_calls");
        return Err(ApiError::bad(&name, format!("{name}: not supported")));
    }
    let expected = "a text, or a list of parts of type text";
    let text = match fields.take("content", expected)? {
        Some(Content::Text(text)) => text,
        Some(Content::Parts(parts)) => parts
            .iter()
            .map(|part| match (part["type"].as_str(), part["text"].as_str()) {
                (Some("text"), Some(text)) => Ok(text),
                _ => Err(fields.refuse_value("content", expected, part)),
            })
            .collect::<Result<String, _>>()?,
        None if role == "assistant" => String::new(),
        None => return Err(fields.refuse("content", expected)),
    };
    Ok(Message::new(role, text))
}

#[derive(Deserialize)]
#[serde(untagged)]
enum PromptField {
    Text(String),
    Tokens(Vec<u32>),
}

fn text_prompts(fields: &Fields, served: &Served) -> Result<Vec<Prompt>, ApiError> {
    let expected = "a string, a list of strings, a list of token ids, or a list of such lists";
    let is_good = |prompts: &OneOrSeveral<PromptField>| match prompts {
        OneOrSeveral::One(PromptField::Tokens(tokens)) => !tokens.is_empty(),
        OneOrSeveral::One(PromptField::Text(_)) => true,
        OneOrSeveral::Several(all) => all.len() <= MAX_PROMPTS,
    };
    let prompts = fields.take_if("prompt", expected, is_good)?;
    let prompts = prompts.ok_or_else(|| fields.refuse("prompt", expected))?;
    let with_special = fields.flag("add_special_tokens", true)?;
    let read = |prompt| match prompt {
        PromptField::Text(text) => {
            let tokens = tokens_of("prompt", &text, with_special, served)?;
            Ok(Prompt { tokens, text: Some(text) })
        }
        PromptField::Tokens(tokens) => Ok(Prompt { tokens, text: None }),
    };
    prompts.all().into_iter().map(read).collect()
}

/// The tokens of a text, or of a conversation as a chat renders it.
pub(crate) fn tokenize(body: &[u8], served: &Served) -> Result<Value, ApiError> {
    let read = ["prompt messages chat_template_kwargs return_token_strs add_special_tokens"];
    let fields = Fields::of_body(body, &served.settings, &read)?;
    let tokens = match (fields.get("prompt"), fields.get("messages")) {
        (Value::String(text), Value::Null) => {
            tokens_of("prompt", text, fields.flag("add_special_tokens", true)?, served)?
        }
        (Value::Null, messages) if !messages.is_null() => chat_prompt(&fields, served)?,
        _ => return Err(fields.refuse("prompt", "a string, or messages in its place")),
    };
    let tokenizer = &served.chat_format.tokenizer;
    let wants_strings = fields.flag("return_token_strs", false)?;
    let strings = || tokens.iter().map(|token| tokenizer.token(*token)).collect::<Vec<_>>();
    Ok(json!({
        "count": tokens.len(), "max_model_len": served.context(), "tokens": tokens,
        "token_strs": wants_strings.then(strings),
    }))
}

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
