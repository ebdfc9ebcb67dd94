//! A client of OpenAI-compatible chat completions that outlasts a bad day of its server.
//!
//! One question is one [`Client::ask`]. What will mend by itself (429, 5xx, cut connections, timeouts, answers that are
//! no answers) is asked again, with waits that double, up to a bound, and then it is an answer too: [`Exchange`] with
//! the reason. What will not mend (a wrong key, an unknown model, a wrong address) is an [`Error`] that ends
//! the run. A `Retry-After` is honoured, as seconds or as a date, and so are `x-ratelimit-*` that say that nothing is left.
//!
//! The price: answers are read whole, there is no streaming, and one client holds one endpoint.

use std::time::{Duration, SystemTime};

use hapo_core::{RngCounter, RngStream, uniform};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{StatusCode, Url};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::pace::Pace;

/// How patiently to ask.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Requests on their way at once, at most.
    pub concurrency: usize,
    /// Longest time of one request, its answer included.
    pub timeout: Duration,
    /// How often a question is asked again after a fault. A 429 does not count here; ten times as many are borne.
    pub retries: u32,
    /// The wait after the first fault; it doubles with each, up to a minute, and varies by half either way.
    pub first_wait: Duration,
    /// Longest wait that a server may ask for.
    pub longest_wait: Duration,
    /// Longest answer that is read, in bytes.
    pub response_limit: usize,
    /// Seed of the variation of waits.
    pub seed: u64,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            concurrency: 16,
            timeout: Duration::from_mins(10),
            retries: 6,
            first_wait: Duration::from_secs(1),
            longest_wait: Duration::from_mins(10),
            response_limit: 16 << 20,
            seed: 0,
        }
    }
}

/// One question and how to draw its answer.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The model's name at the server.
    pub model: &'a str,
    /// The system turn, if any.
    pub system: Option<&'a str>,
    /// The user's turn.
    pub user: &'a str,
    /// Sampling temperature.
    pub temperature: f64,
    /// Nucleus mass; left out of the request at 1.
    pub top_p: f64,
    /// Longest answer in tokens; the server's own limit if `None`.
    pub max_tokens: Option<u64>,
    /// The seed that is sent along: a server that heeds it answers the same question the same way.
    pub seed: u64,
    /// Fields that are added to the request or replace those above; null removes a field.
    pub extra: &'a Map<String, Value>,
}

impl Question<'_> {
    /// The request's body.
    pub fn body(&self) -> Value {
        let mut messages = Vec::new();
        if let Some(it) = self.system {
            messages.push(json!({ "role": "system", "content": it }));
        }
        messages.push(json!({ "role": "user", "content": self.user }));
        let mut body = json!({
            "model": self.model, "messages": messages, "temperature": self.temperature, "seed": self.seed,
        });
        if self.top_p < 1.0 {
            body["top_p"] = json!(self.top_p);
        }
        if let Some(it) = self.max_tokens {
            body["max_tokens"] = json!(it);
        }
        for (field, value) in self.extra {
            match value {
                Value::Null => {
                    body.as_object_mut()
                        .expect("it was made as an object")
                        .remove(field);
                }
                _ => body[field] = value.clone(),
            }
        }
        body
    }
}

/// What a server said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The text; empty where the server gave a reason to finish and no text.
    pub text: String,
    /// Why it ended: `stop`, `length` and others.
    pub finish_reason: Option<String>,
    /// The name under which the server answered.
    pub model: Option<String>,
    /// Tokens of the question, if the server counts.
    pub prompt_tokens: Option<u64>,
    /// Tokens of the answer, if the server counts.
    pub completion_tokens: Option<u64>,
}

/// A question and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The answer, or why there is none.
    pub reply: Result<Reply, Failure>,
    /// Requests that were sent for it.
    pub requests: u32,
}

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// In words, the last time it was asked.
    pub reason: String,
    /// Whether all retries were spent on it: the server's fault. Otherwise the question is one that it cannot take.
    pub retried_out: bool,
}

/// A client of one endpoint.
#[derive(Debug)]
pub struct Client {
    http: reqwest::Client,
    url: Url,
    shown: String,
    key: Option<Key>,
    patience: Patience,
    pace: Pace,
}

struct Key(String);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// What came of one request.
enum Sent {
    Answered(Reply),
    /// Too much for the server just now.
    Busy {
        reason: String,
        wait: Option<Duration>,
    },
    /// A fault that may mend.
    Fault(String),
    /// This question cannot be answered; others can.
    Hopeless(String),
    /// No question can be answered.
    Stop(Error),
}

impl Client {
    /// A client of the endpoint at `url`: the base address (`http://localhost:8000/v1`) or the whole one, with or without
    /// a key.
    ///
    /// # Errors
    /// [`Error::Url`] for an address that is none, [`Error::Start`] when TLS cannot start.
    pub fn new(url: &str, key: Option<&str>, patience: Patience) -> Result<Self, Error> {
        let (url, shown) = address(url)?;
        // Another part of the program may have installed one already; either serves.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .timeout(patience.timeout)
            .connect_timeout(patience.timeout.min(Duration::from_secs(30)))
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("hapo/", env!("CARGO_PKG_VERSION")));
        if url.scheme() == "http" {
            // Without TLS no certificates are needed, and a machine may have none.
            builder = builder.tls_certs_only(std::iter::empty());
        }
        Ok(Self {
            http: builder
                .build()
                .map_err(|it| Error::Start(chain(&it.without_url())))?,
            url,
            shown,
            key: key.map(|it| Key(it.to_owned())),
            patience,
            pace: Pace::new(patience.concurrency.max(1)),
        })
    }

    /// The address that is asked, without secrets.
    pub fn address(&self) -> &str {
        &self.shown
    }

    /// How patient it is.
    pub fn patience(&self) -> &Patience {
        &self.patience
    }

    /// Asks until there is an answer or the patience ends. `number` tells questions apart in the variation of waits.
    ///
    /// # Errors
    /// What no other question could pass either: [`Error::Refused`], [`Error::Wait`].
    pub async fn ask(&self, question: &Question<'_>, number: u64) -> Result<Exchange, Error> {
        let body = serde_json::to_vec(&question.body()).expect("a JSON value can be written");
        let (mut faults, mut refusals, mut requests) = (0, 0, 0);
        let backoff = |n: u32, request: u32| {
            let counter = RngCounter {
                prompt: number,
                rollout: u64::from(request),
                position: u64::MAX,
                ..RngCounter::default()
            };
            let jitter = 0.5 + uniform(self.patience.seed, RngStream::Generate, counter);
            let doubled = self.patience.first_wait.as_secs_f64() * 2_f64.powi(n.min(30) as i32);
            Duration::from_secs_f64(doubled.min(60.0) * jitter)
        };
        loop {
            let permit = self.pace.enter().await;
            requests += 1;
            let sent = self.send(body.clone()).await;
            let ended = |reply| Ok(Exchange { reply, requests });
            let failure = |reason, retried_out| {
                Err(Failure {
                    reason,
                    retried_out,
                })
            };
            match sent {
                Sent::Answered(it) => {
                    permit.answered();
                    return ended(Ok(it));
                }
                Sent::Hopeless(reason) => return ended(failure(reason, false)),
                Sent::Stop(it) => return Err(it),
                Sent::Busy { reason, wait } => {
                    let longest = self.patience.longest_wait;
                    if let Some(it) = wait.filter(|it| *it > longest) {
                        return Err(Error::Wait {
                            url: self.shown.clone(),
                            asked: it.as_secs(),
                            longest: longest.as_secs(),
                        });
                    }
                    permit.refused(|before| wait.unwrap_or_else(|| backoff(before, requests)));
                    refusals += 1;
                    if refusals > self.patience.retries.saturating_mul(10) {
                        return ended(failure(reason, true));
                    }
                }
                Sent::Fault(reason) => {
                    drop(permit);
                    if faults >= self.patience.retries {
                        return ended(failure(reason, true));
                    }
                    tokio::time::sleep(backoff(faults, requests)).await;
                    faults += 1;
                }
            }
        }
    }

    async fn send(&self, body: Vec<u8>) -> Sent {
        let mut request = self
            .http
            .post(self.url.clone())
            .header("content-type", "application/json")
            .body(body);
        if let Some(Key(key)) = &self.key {
            let Ok(mut value) = HeaderValue::from_str(&format!("Bearer {key}")) else {
                return Sent::Stop(self.refused(
                    StatusCode::UNAUTHORIZED,
                    "the key has characters that no header can hold".to_owned(),
                ));
            };
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        let mut response = match request.send().await {
            Ok(it) => it,
            Err(it) => return Sent::Fault(transport(it)),
        };
        let (status, headers) = (response.status(), response.headers().clone());
        let mut text = Vec::new();
        let cut = loop {
            match response.chunk().await {
                Ok(Some(it)) if text.len() + it.len() > self.patience.response_limit => {
                    let limit = self.patience.response_limit;
                    break Some(format!("an answer of more than {limit} bytes"));
                }
                Ok(Some(it)) => text.extend_from_slice(&it),
                Ok(None) => break None,
                Err(it) => break Some(transport(it)),
            }
        };
        if status.is_success() {
            if let Some(it) = spent(&headers) {
                self.pace.hold(it.min(self.patience.longest_wait));
            }
            return match cut {
                Some(reason) => Sent::Fault(reason),
                None => read_reply(&text).map_or_else(Sent::Fault, Sent::Answered),
            };
        }
        self.unsuccessful(status, &headers, &text)
    }

    fn unsuccessful(&self, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Sent {
        let (message, code) = complaint(body);
        let mut message = self.redacted(message);
        let reason = format!("status {}: {message}", status.as_u16());
        match status.as_u16() {
            429 if code == "insufficient_quota" => Sent::Stop(self.refused(status, message)),
            429 => Sent::Busy {
                reason,
                wait: retry_after(headers, SystemTime::now()).or_else(|| spent(headers)),
            },
            503 | 529 if retry_after(headers, SystemTime::now()).is_some() => Sent::Busy {
                reason,
                wait: retry_after(headers, SystemTime::now()),
            },
            408 | 409 | 425 | 500.. => Sent::Fault(reason),
            400 | 413 if code == "context_length_exceeded" || status.as_u16() == 413 => {
                Sent::Hopeless(reason)
            }
            300..=399 => {
                let target = headers.get("location").and_then(|it| it.to_str().ok());
                message = format!("it has moved to {}", target.unwrap_or("an unnamed place"));
                Sent::Stop(self.refused(status, message))
            }
            _ => Sent::Stop(self.refused(status, message)),
        }
    }

    fn refused(&self, status: StatusCode, message: String) -> Error {
        Error::Refused {
            url: self.shown.clone(),
            status: status.as_u16(),
            message,
        }
    }

    /// Servers like to quote the key they refuse.
    fn redacted(&self, message: String) -> String {
        match &self.key {
            Some(Key(it)) if !it.is_empty() => message.replace(it.as_str(), "***"),
            _ => message,
        }
    }
}

/// The address to post to, and how it is shown.
fn address(given: &str) -> Result<(Url, String), Error> {
    let wrong = |url: &str, problem: &str| Error::Url {
        url: url.to_owned(),
        problem: problem.to_owned(),
    };
    // What cannot be parsed may hold a secret anywhere.
    let mut url = Url::parse(given.trim())
        .map_err(|it| wrong("…", &format!("expected an http(s) address, {it}")))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(wrong(&shown(&url), "expected an http(s) address"));
    }
    let path = url.path().trim_end_matches('/').to_owned();
    if !path.ends_with("/chat/completions") {
        url.set_path(&format!("{path}/chat/completions"));
    }
    url.set_fragment(None);
    let shown = shown(&url);
    Ok((url, shown))
}

/// An address without user, password and query.
fn shown(url: &Url) -> String {
    let mut it = url.clone();
    it.set_query(None);
    it.set_fragment(None);
    let _ = it.set_username("");
    let _ = it.set_password(None);
    it.to_string()
}

fn transport(error: reqwest::Error) -> String {
    let kind = if error.is_timeout() {
        "no answer in time"
    } else if error.is_connect() {
        "no connection"
    } else {
        "the connection broke"
    };
    format!("{kind}: {}", chain(&error.without_url()))
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(it) = next {
        text += &format!(": {it}");
        next = it.source();
    }
    text
}

/// What an error's body says, and its code.
fn complaint(body: &[u8]) -> (String, String) {
    let text = String::from_utf8_lossy(body);
    let value: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
    let error = value.get("error").unwrap_or(&value);
    let field = |name: &str| error.get(name).and_then(Value::as_str).map(str::to_owned);
    let message = field("message")
        .or_else(|| field("detail"))
        .or_else(|| error.as_str().map(str::to_owned))
        .unwrap_or_else(|| text.trim().to_owned());
    let message = if message.is_empty() {
        "(no message)".to_owned()
    } else {
        message
    };
    (
        shorten(&message, 300),
        field("code").or_else(|| field("type")).unwrap_or_default(),
    )
}

/// At most `limit` characters on one line.
pub(crate) fn shorten(text: &str, limit: usize) -> String {
    let mut it: String = text
        .chars()
        .take(limit)
        .map(|it| if it.is_control() { ' ' } else { it })
        .collect();
    if text.chars().nth(limit).is_some() {
        it.push('…');
    }
    it
}

/// The first choice of an answer.
fn read_reply(body: &[u8]) -> Result<Reply, String> {
    let value: Value =
        serde_json::from_slice(body).map_err(|it| format!("the answer is no JSON: {it}"))?;
    if let Some(error) = value.get("error").filter(|it| !it.is_null()) {
        return Err(shorten(&format!("an error in a good answer: {error}"), 300));
    }
    let choices = value
        .get("choices")
        .and_then(Value::as_array)
        .ok_or("the answer has no list `choices`")?;
    let choice = choices.first().ok_or("the answer's `choices` is empty")?;
    let finish_reason = choice
        .get("finish_reason")
        .and_then(Value::as_str)
        .map(str::to_owned);
    let message = choice
        .get("message")
        .filter(|it| it.is_object())
        .ok_or("the answer's first choice has no `message`")?;
    let text = match message.get("content") {
        Some(Value::String(it)) => it.clone(),
        Some(Value::Array(parts)) => parts
            .iter()
            .filter_map(|it| it.get("text").and_then(Value::as_str))
            .collect(),
        // A model that thinks until its limit, or a filter: a reason to finish, and no text.
        None | Some(Value::Null) if finish_reason.is_some() => String::new(),
        _ => return Err("the answer's message has no text `content`".to_owned()),
    };
    let tokens = |name: &str| value.get("usage")?.get(name)?.as_u64();
    Ok(Reply {
        text,
        finish_reason,
        model: value
            .get("model")
            .and_then(Value::as_str)
            .map(str::to_owned),
        prompt_tokens: tokens("prompt_tokens"),
        completion_tokens: tokens("completion_tokens"),
    })
}

/// The pause that a server asks for: `retry-after-ms`, or `Retry-After` as seconds or as a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let seconds = |it: f64| Duration::try_from_secs_f64(it).ok();
    if let Some(it) = text("retry-after-ms").and_then(|it| it.parse::<f64>().ok()) {
        return seconds(it / 1000.0);
    }
    let it = text("retry-after")?;
    if let Ok(number) = it.parse::<f64>() {
        return seconds(number);
    }
    let date = httpdate::parse_http_date(it).ok()?;
    Some(date.duration_since(now).unwrap_or(Duration::ZERO))
}

/// How long until a spent limit is filled again: the longer of `x-ratelimit-reset-requests` and `-tokens` among those
/// whose `x-ratelimit-remaining-*` is 0.
fn spent(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: String| headers.get(name)?.to_str().ok().map(str::trim);
    ["requests", "tokens"]
        .iter()
        .filter(|it| text(format!("x-ratelimit-remaining-{it}")) == Some("0"))
        .filter_map(|it| reset(text(format!("x-ratelimit-reset-{it}"))?))
        .max()
}

/// `6m0s`, `1.5s`, `20ms`, or bare seconds.
fn reset(text: &str) -> Option<Duration> {
    if let Ok(it) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(it).ok();
    }
    let (mut rest, mut total) = (text, 0.0);
    while !rest.is_empty() {
        let digits = rest.find(|it: char| !it.is_ascii_digit() && it != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest
            .find(|it: char| it.is_ascii_digit())
            .unwrap_or(rest.len());
        total += number
            * match &rest[..letters] {
                "d" => 86_400.0,
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                "us" | "µs" => 1e-6,
                _ => return None,
            };
        rest = &rest[letters..];
    }
    Duration::try_from_secs_f64(total).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (
                    reqwest::header::HeaderName::from_static(name),
                    HeaderValue::from_str(value).unwrap(),
                )
            })
            .collect()
    }

    #[test]
    fn retry_after_is_read_as_seconds_milliseconds_or_date() {
        // RFC 9110's example date is 784,111,777 seconds after 1970.
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_770);
        let check = |pairs: &[(&'static str, &str)], expected: Option<f64>| {
            let it = retry_after(&headers(pairs), now).map(|it| it.as_secs_f64());
            assert_eq!(it, expected, "{pairs:?}");
        };
        check(&[("retry-after", "3")], Some(3.0));
        check(&[("retry-after", " 0.5 ")], Some(0.5));
        check(
            &[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")],
            Some(7.0),
        );
        check(
            &[("retry-after", "Sun, 06 Nov 1994 08:49:00 GMT")],
            Some(0.0),
        );
        check(
            &[("retry-after-ms", "250"), ("retry-after", "9")],
            Some(0.25),
        );
        for it in ["-1", "NaN", "inf", "soon", "", "1e400"] {
            check(&[("retry-after", it)], None);
        }
    }

    #[test]
    fn spent_limits_hold_until_they_are_filled_again() {
        let check = |pairs: &[(&'static str, &str)], expected: Option<f64>| {
            let it = spent(&headers(pairs)).map(|it| it.as_secs_f64());
            assert_eq!(it, expected, "{pairs:?}");
        };
        check(
            &[
                ("x-ratelimit-remaining-requests", "0"),
                ("x-ratelimit-reset-requests", "6m1.5s"),
            ],
            Some(361.5),
        );
        check(
            &[
                ("x-ratelimit-remaining-requests", "7"),
                ("x-ratelimit-reset-requests", "6m0s"),
            ],
            None,
        );
        check(
            &[
                ("x-ratelimit-remaining-tokens", "0"),
                ("x-ratelimit-reset-tokens", "20ms"),
            ],
            Some(0.02),
        );
        for it in ["", "m", "1", "1x", "1s2", "..s"] {
            let expected = (it == "1").then_some(Duration::from_secs(1));
            assert_eq!(reset(it).filter(|it| !it.is_zero()), expected, "{it}");
        }
    }

    #[test]
    fn addresses_are_completed_and_shown_without_secrets() {
        let check = |given: &str, posted: &str, seen: &str| {
            let (url, shown) = address(given).unwrap();
            assert_eq!((url.as_str(), shown.as_str()), (posted, seen));
        };
        check(
            "http://h:1/v1",
            "http://h:1/v1/chat/completions",
            "http://h:1/v1/chat/completions",
        );
        check(
            "http://h/",
            "http://h/chat/completions",
            "http://h/chat/completions",
        );
        check(
            "https://u:p@h/v1/chat/completions/?key=s#f",
            "https://u:p@h/v1/chat/completions/?key=s",
            "https://h/v1/chat/completions/",
        );
        for it in ["", "h:8000/v1", "ftp://u:secret@h/", "http://"] {
            let message = address(it).unwrap_err().to_string();
            assert!(!message.contains("secret"), "{message}");
        }
    }

    #[test]
    fn answers_without_an_answer_are_faults() {
        let check = |body: &str, expected: Result<&str, &str>| {
            let it = read_reply(body.as_bytes()).map(|it| it.text);
            match expected {
                Ok(text) => assert_eq!(it.as_deref(), Ok(text), "{body}"),
                Err(part) => assert!(it.unwrap_err().contains(part), "{body}"),
            }
        };
        check(r#"{"choices":[{"message":{"content":"a"}}]}"#, Ok("a"));
        check(
            r#"{"choices":[{"message":{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}}]}"#,
            Ok("ab"),
        );
        check(
            r#"{"choices":[{"message":{"content":null},"finish_reason":"length"}]}"#,
            Ok(""),
        );
        check(
            r#"{"choices":[{"message":{"content":null}}]}"#,
            Err("`content`"),
        );
        check(
            r#"{"choices":[{"message":{"content":7},"finish_reason":"stop"}]}"#,
            Err("`content`"),
        );
        check(r#"{"choices":[{"message":null}]}"#, Err("`message`"));
        check(r#"{"choices":[]}"#, Err("empty"));
        check(r#"{"choices":{}}"#, Err("no list"));
        check(r#"{"error":{"code":502}}"#, Err("502"));
        check("[]", Err("no list"));
        check(r#"{"choices":[{"mess"#, Err("no JSON"));
        check("", Err("no JSON"));
        check(&"[".repeat(100_000), Err("no JSON"));
    }

    #[test]
    fn extra_fields_add_replace_and_remove() {
        let extra = json!({ "seed": null, "max_tokens": null, "max_completion_tokens": 9, "temperature": 0.1 });
        let question = Question {
            model: "m",
            system: Some("s"),
            user: "u",
            temperature: 0.7,
            top_p: 0.9,
            max_tokens: Some(5),
            seed: 3,
            extra: extra.as_object().unwrap(),
        };
        let expected = json!({
            "model": "m", "temperature": 0.1, "top_p": 0.9, "max_completion_tokens": 9,
            "messages": [{ "role": "system", "content": "s" }, { "role": "user", "content": "u" }],
        });
        assert_eq!(question.body(), expected);
    }

    #[test]
    fn refusals_do_not_quote_the_key() {
        let client = Client::new("http://h/v1", Some("sk-secret"), Patience::default()).unwrap();
        let body = br#"{"error":{"message":"bad key sk-secret"}}"#;
        let Sent::Stop(error) =
            client.unsuccessful(StatusCode::UNAUTHORIZED, &HeaderMap::new(), body)
        else {
            panic!("a wrong key does not mend")
        };
        assert_eq!(
            error.to_string(),
            "http://h/v1/chat/completions refuses with status 401: bad key ***"
        );
        assert!(!format!("{client:?}").contains("secret"));
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_reply_or_a_reason(body in proptest::collection::vec(any::<u8>(), 0..200), text in "\\PC{0,40}") {
            let _ = read_reply(&body);
            let _ = complaint(&body);
            let _ = reset(&text);
        }
    }
}
