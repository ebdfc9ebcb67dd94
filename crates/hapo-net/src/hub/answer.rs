//! Answers of a hub that are errors.

use std::time::{Duration, SystemTime};

use crate::http::retry_after;
use crate::http::ureq::Body;
use crate::http::ureq::http::{HeaderMap, Response};
use hapo_core::Refusal;
use serde_json::Value;

pub(crate) type Failure = crate::http::Failure<Refusal>;

pub(crate) fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// An answer that is an error: its status, the hub's words, and the wait that the hub asks for.
pub(crate) fn refusal(answer: &mut Response<Body>) -> (u16, String, Option<Duration>) {
    let wait = retry_after(answer.headers(), SystemTime::now());
    let message = match header(answer.headers(), "x-error-message") {
        Some(it) => it.to_owned(),
        None => body_message(answer),
    };
    (answer.status().as_u16(), message, wait)
}

/// The reason in the body of an answer that is an error: the field `error`, or a short text.
fn body_message(answer: &mut Response<Body>) -> String {
    let text = answer.body_mut().with_config().limit(64 << 10).read_to_string().unwrap_or_default();
    let text = match serde_json::from_str::<Value>(&text) {
        Ok(fields) => fields["error"].as_str().unwrap_or_default().to_owned(),
        Err(_) if text.contains('<') => String::new(),
        Err(_) => text,
    };
    text.trim().chars().take(300).collect()
}
