//! A chat-completions client that retries server errors.
//!
//! One question is one [`Client::ask`]. Temporary failures (429, 5xx, cut connections, timeouts, invalid answers) are
//! retried, with waits that double, up to a bound; then the failure is the answer: [`Exchange`] with the reason.
//! Permanent failures (a wrong key, an unknown model, a wrong address) are a [`Refusal`] that ends the run.
//! `Retry-After` is honoured, as seconds or as a date, and so is an exhausted `x-ratelimit-*`. The price: answers are
//! read whole, there is no streaming, and one client holds one endpoint.

mod address;
mod pace;
mod reply;

use crate::http::ureq::http::{HeaderMap, HeaderValue, StatusCode, header};
use crate::http::ureq::tls::{RootCerts, TlsConfig};
use crate::http::ureq::typestate::WithBody;
use crate::http::ureq::{self, Agent, RequestBuilder, Timeout};
use crate::http::{redacted, retry_after, spent};
use address::{Address, address};
use hapo_core::{Fault, Refusal, RngCounter, RngStream, uniform};
use pace::Pace;
pub use reply::Reply;
use reply::{complaint, is_of_prompt, read_reply};
use serde_json::Value;
use std::time::{Duration, SystemTime};
use std::{borrow::Cow, io::Read, sync::Arc};

#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    pub concurrency: usize,
    /// Longest time of one request, its answer included.
    pub timeout: Duration,
    /// Retries of a question after faults. A 429 does not count here; ten times as many are tolerated.
    pub retries: u32,
    /// The wait after the first fault; it doubles with each, up to a minute, and varies by half either way.
    pub first_wait: Duration,
    /// Longest wait that a server may ask for.
    pub longest_wait: Duration,
    pub response_limit: usize,
    pub seed: u64,
}

impl Default for RetryPolicy {
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    pub reply: Result<Reply, String>,
    /// Without an answer: all retries were spent. Otherwise the server cannot take the question.
    pub retried_out: bool,
    pub requests: u32,
}

#[derive(Debug)]
pub struct Client {
    agent: Agent,
    posted: String,
    shown: String,
    /// Of a key, `Bearer` and that; else of the user and password of the address.
    authorization: Option<HeaderValue>,
    retry_policy: RetryPolicy,
    pace: Pace,
    waiting: fn(Duration, &str),
}

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
    Stop(Refusal),
}

impl Client {
    /// A client of the endpoint at `url`: the base address (`http://localhost:8000/v1`) or the whole one, with or without
    /// a key. Certificates of https are judged by the system's rules.
    pub fn new(url: &str, key: Option<&str>, retry_policy: RetryPolicy) -> Result<Self, Refusal> {
        let Address { posted, shown, basic_authorization, is_https } = address(url)?;
        let authorization = key.map(|key| format!("Bearer {key}")).or(basic_authorization);
        let mut authorization =
            authorization.map(|it| HeaderValue::from_str(&it)).transpose().map_err(|_| {
                Refusal::input("the API key has characters that no header can hold")
                    .hint("look for a line break or another character that is no part of it")
            })?;
        if let Some(it) = &mut authorization {
            it.set_sensitive(true);
        }
        let certificates = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
        let timeout = retry_policy.timeout;
        let agent = crate::http::config(is_https)
            .tls_config(certificates)
            .timeout_global(Some(timeout))
            .timeout_connect(Some(timeout.min(Duration::from_secs(30))))
            .build()
            .new_agent();
        Ok(Self {
            agent,
            posted,
            shown,
            authorization,
            retry_policy,
            pace: Pace::new(retry_policy.concurrency.max(1)),
            waiting: |_, _| {},
        })
    }

    /// The same client; `waiting` hears how long all requests wait, and why, each time that the server slows them down.
    pub fn on_wait(self, waiting: fn(Duration, &str)) -> Self {
        Self { waiting, ..self }
    }

    /// The address of requests, without secrets.
    pub fn address(&self) -> &str {
        &self.shown
    }

    /// The folder that the server says it has this model from, as vLLM does (`root` in the answer to GET `/models`).
    pub fn served_folder(&self, model: &str) -> Option<String> {
        let address = self.posted.replacen("/chat/completions", "/models", 1);
        let longest = Some(Duration::from_secs(10));
        let request = self.agent.get(address).config().timeout_global(longest).build();
        let mut body = Vec::new();
        let answer = self.authorised(request).call().ok()?.into_body().into_reader();
        let limit = self.retry_policy.response_limit;
        answer.take(limit as u64).read_to_end(&mut body).ok()?;
        let known: Value = serde_json::from_slice(&body).ok()?;
        let is_it = |it: &&Value| it["id"] == model;
        known["data"].as_array()?.iter().find(is_it)?["root"].as_str().map(str::to_owned)
    }

    pub fn retry_policy(&self) -> &RetryPolicy {
        &self.retry_policy
    }

    /// Sends a request's body until there is an answer or the retries are spent; the jitter of waits is by `number`.
    pub async fn ask(&self, question: &Value, number: u64) -> Result<Exchange, Refusal> {
        let body: Arc<[u8]> = question.to_string().into_bytes().into();
        let (mut faults, mut refusals, mut requests) = (0, 0, 0);
        let backoff = |n: u32, request: u32| {
            let counter = RngCounter {
                prompt: number,
                rollout: u64::from(request),
                position: u64::MAX,
                ..RngCounter::default()
            };
            let jitter = 0.5 + uniform(self.retry_policy.seed, RngStream::Generate, counter);
            let doubled = self.retry_policy.first_wait.as_secs_f64() * 2_f64.powi(n.min(30) as i32);
            Duration::from_secs_f64(doubled.min(60.0) * jitter)
        };
        loop {
            let permit = self.pace.enter().await;
            requests += 1;
            let sent = self.send(body.clone()).await;
            let ended = |reply, retried_out| Ok(Exchange { reply, retried_out, requests });
            match sent {
                Sent::Answered(reply) => {
                    permit.answered();
                    return ended(Ok(reply), false);
                }
                Sent::Hopeless(reason) => return ended(Err(reason), false),
                Sent::Stop(refusal) => return Err(refusal),
                Sent::Busy { reason, wait } => {
                    let longest = self.retry_policy.longest_wait;
                    if let Some(it) = wait.filter(|it| *it > longest) {
                        let (asked, longest) = (it.as_secs(), longest.as_secs());
                        let long = format!("asks to wait {asked} s, expected at most {longest} s");
                        return Err(Refusal::machine(format!("{} {long}", self.shown))
                            .hint("the same command resumes where it stopped"));
                    }
                    if let Some(it) =
                        permit.refused(|before| wait.unwrap_or_else(|| backoff(before, requests)))
                    {
                        (self.waiting)(it, &reason);
                    }
                    refusals += 1;
                    if refusals > self.retry_policy.retries.saturating_mul(10) {
                        return ended(Err(reason), true);
                    }
                }
                Sent::Fault(reason) => {
                    drop(permit);
                    if faults >= self.retry_policy.retries {
                        return ended(Err(reason), true);
                    }
                    let wait = backoff(faults, requests);
                    (self.waiting)(wait, &reason);
                    tokio::time::sleep(wait).await;
                    faults += 1;
                }
            }
        }
    }

    /// One request and its answer, read whole. It takes a thread of the runtime's blocking pool.
    async fn send(&self, body: Arc<[u8]>) -> Sent {
        let request = self.authorised(self.agent.post(&self.posted));
        let limit = self.retry_policy.response_limit;
        let received = tokio::task::spawn_blocking(move || receive(request, &body, limit)).await;
        let received = received.unwrap_or_else(|_| Err("the request was abandoned".to_owned()));
        let Received { status, headers, body, cut } = match received {
            Ok(it) => it,
            Err(reason) => return Sent::Fault(reason),
        };
        if status.is_success() {
            if let Some(it) = spent(&headers) {
                self.pace.hold(it.min(self.retry_policy.longest_wait));
            }
            return match cut {
                Some(reason) => Sent::Fault(reason),
                None => read_reply(&self.redacted(&body)).map_or_else(Sent::Fault, Sent::Answered),
            };
        }
        self.unsuccessful(status, &headers, &body)
    }

    fn authorised<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        match &self.authorization {
            Some(it) => request.header(header::AUTHORIZATION, it),
            None => request,
        }
    }

    fn unsuccessful(&self, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Sent {
        let (mut message, code) = complaint(&self.redacted(body));
        let reason = format!("status {}: {message}", status.as_u16());
        let asked = retry_after(headers, SystemTime::now());
        match status.as_u16() {
            429 if code == "insufficient_quota" => Sent::Stop(self.refused(status, &message)),
            429 => Sent::Busy { reason, wait: asked.or_else(|| spent(headers)) },
            503 | 529 if asked.is_some() => Sent::Busy { reason, wait: asked },
            408 | 409 | 425 | 500.. => Sent::Fault(reason),
            413 => Sent::Hopeless(reason),
            400 | 422 if is_of_prompt(&message, &code) => Sent::Hopeless(reason),
            300..=399 => {
                let target =
                    headers.get("location").map_or(&b"an unnamed place"[..], |it| it.as_bytes());
                let target = self.redacted(target);
                message = format!("it has moved to {}", String::from_utf8_lossy(&target));
                Sent::Stop(self.refused(status, &message))
            }
            _ => Sent::Stop(self.refused(status, &message)),
        }
    }

    /// The server refuses, and would refuse again.
    fn refused(&self, status: StatusCode, message: &str) -> Refusal {
        let status = status.as_u16();
        let (fault, hint) = match status {
            402 | 429 => (Fault::Machine, "the account has no credit left"),
            300..=399 => (Fault::Input, "give the address that it points to"),
            401 | 403 => (Fault::Input, "set the key in the variable that --api-key-env names"),
            404 => (Fault::Input, "check --endpoint (it usually ends in /v1) and --model"),
            _ => (
                Fault::Input,
                "check --model, --max-tokens and --extra; a field is removed by --extra '{\"seed\": null}'",
            ),
        };
        let problem = format!("{} refuses with status {status}: {message}", self.shown);
        Refusal::input(problem).with_fault(fault).hint(hint)
    }

    /// A server's text without the key: servers and proxies quote it, refusing or answering, and JSON may escape it.
    fn redacted<'a>(&self, body: &'a [u8]) -> Cow<'a, [u8]> {
        let authorization = self.authorization.as_ref().map(HeaderValue::as_bytes);
        let key =
            authorization.and_then(|it| std::str::from_utf8(it).ok()?.strip_prefix("Bearer "));
        let Some(key) = key.filter(|it| !it.is_empty()) else { return Cow::Borrowed(body) };
        let text = String::from_utf8_lossy(body);
        let json = hapo_core::without_lone_surrogates(&text);
        // Written anew, a text of JSON has one form, and so has the key in it.
        let value = serde_json::from_str::<Value>(&json).map(|value| value.to_string());
        let (text, key) = match value {
            Ok(text) => (text, Value::from(key).to_string().trim_matches('"').to_owned()),
            Err(_) => (text.into_owned(), key.to_owned()),
        };
        if text.contains(&key) {
            Cow::Owned(redacted(&text, Some(&key), "").into_bytes())
        } else {
            Cow::Borrowed(body)
        }
    }
}

struct Received {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
    cut: Option<String>,
}

fn receive(
    request: RequestBuilder<WithBody>,
    body: &[u8],
    limit: usize,
) -> Result<Received, String> {
    let request = request.content_type("application/json");
    let (parts, mut answer) = request.send(body).map_err(|it| reason(&it))?.into_parts();
    let mut body = Vec::new();
    let read = answer.as_reader().take(limit as u64 + 1).read_to_end(&mut body);
    let cut = match read {
        Ok(length) if length > limit => Some(format!("an answer of more than {limit} bytes")),
        Ok(_) => None,
        Err(it) => Some(reason(&ureq::Error::from(it))),
    };
    Ok(Received { status: parts.status, headers: parts.headers, body, cut })
}

fn reason(error: &ureq::Error) -> String {
    let kind = match error {
        ureq::Error::Timeout(Timeout::Connect | Timeout::Resolve)
        | ureq::Error::HostNotFound
        | ureq::Error::ConnectionFailed => "no connection",
        ureq::Error::Timeout(_) => "no answer in time",
        ureq::Error::Io(it) if it.kind() == std::io::ErrorKind::ConnectionRefused => {
            "no connection"
        }
        _ => "the connection broke",
    };
    format!("{kind}: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_do_not_quote_the_key() {
        let client = Client::new("http://h/v1", Some("sk-secret"), RetryPolicy::default()).unwrap();
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

    /// Bodies as the servers send them, but for their numbers.
    #[test]
    fn a_prompt_that_a_server_refuses_is_no_reason_to_stop() {
        let client = Client::new("http://h/v1", None, RetryPolicy::default()).unwrap();
        let sent = |status: u16, body: &str| {
            let status = StatusCode::from_u16(status).unwrap();
            client.unsuccessful(status, &HeaderMap::new(), body.as_bytes())
        };
        for (status, body) in [
            // OpenAI, hapo serve.
            (
                400,
                r#"{"error":{"message":"m","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
            ),
            // vLLM, by its version.
            (
                400,
                r#"{"error":{"message":"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4900 in the messages, 100 in the completion).","type":"BadRequestError","param":null,"code":400}}"#,
            ),
            (
                400,
                r#"{"object":"error","message":"The decoder prompt (length 5000) is longer than the maximum model length of 4096.","type":"BadRequestError","param":null,"code":400}"#,
            ),
            (
                400,
                r#"{"error":{"message":"The prompt (total length 5000) is too long to fit into the model (context length 4096).","type":"BadRequestError","param":null,"code":400}}"#,
            ),
            (
                400,
                r#"{"object":"error","message":"max_tokens must be at least 1, got -186.","type":"BadRequestError","param":null,"code":400}"#,
            ),
            // SGLang.
            (
                400,
                r#"{"object":"error","message":"The input (61709 tokens) is longer than the model's context length (40960 tokens).","type":"BadRequestError","param":null,"code":400}"#,
            ),
            (
                400,
                r#"{"object":"error","message":"Requested token count exceeds the model's maximum context length of 4096 tokens.","type":"BadRequestError","param":null,"code":400}"#,
            ),
            // llama.cpp.
            (
                400,
                r#"{"error":{"code":400,"message":"request (4390 tokens) exceeds the available context size (4096 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":4390,"n_ctx":4096}}"#,
            ),
            (400, r#"{"error":{"code":400,"message":"m","type":"exceed_context_size_error"}}"#),
            // Text Generation Inference.
            (
                422,
                r#"{"error":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4900 `inputs` tokens and 100 `max_new_tokens`","error_type":"validation"}"#,
            ),
            // Gemini, whose error is in a list.
            (
                400,
                r#"[{"error":{"code":400,"message":"The input token count (5000) exceeds the maximum number of tokens allowed (4096).","status":"INVALID_ARGUMENT"}}]"#,
            ),
            // A filter of Azure's, and of OpenAI's.
            (
                400,
                r#"{"error":{"message":"The response was filtered due to the prompt triggering Azure OpenAI's content management policy.","type":null,"param":"prompt","code":"content_filter","status":400}}"#,
            ),
            (
                400,
                r#"{"error":{"message":"m","type":"invalid_request_error","param":null,"code":"invalid_prompt"}}"#,
            ),
            (413, "too large"),
        ] {
            let Sent::Hopeless(reason) = sent(status, body) else {
                panic!("status {status} would end the run: {body}")
            };
            assert!(reason.starts_with(&format!("status {status}: ")), "{reason}");
        }
        for (status, body) in [
            (
                400,
                r#"{"error":{"message":"max_tokens must be at least 1, got 0","type":"BadRequestError","code":400}}"#,
            ),
            (400, r#"{"error":{"message":"unknown field `x`","code":"invalid_request_error"}}"#),
            (422, r#"{"detail":[{"loc":["body","model"],"msg":"field required"}]}"#),
            (401, r#"{"error":{"message":"the key has no access to this context length"}}"#),
        ] {
            assert!(matches!(sent(status, body), Sent::Stop(_)), "{body}");
        }
    }

    #[test]
    fn answers_do_not_quote_the_key() {
        let client = Client::new("http://h/v1", Some("sk/secret"), RetryPolicy::default()).unwrap();
        for (body, expected) in [
            (r#"{"error":"key sk\/secret"}"#, r#"{"error":"key ***"}"#),
            (r#"{"a":[{"sk/secret":1}],"b":"\u0073k/secret"}"#, r#"{"a":[{"***":1}],"b":"***"}"#),
            ("<b>sk/secret</b>", "<b>***</b>"),
            (r#"{ "a": "nothing" }"#, r#"{ "a": "nothing" }"#),
        ] {
            assert_eq!(client.redacted(body.as_bytes()), expected.as_bytes(), "{body}");
        }
    }
}
