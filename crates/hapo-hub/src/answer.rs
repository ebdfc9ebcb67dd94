//! Answers of a hub that are errors.

use std::time::Duration;

use serde_json::Value;
use ureq::Body;
use ureq::http::{HeaderMap, Response};

use crate::Error;

/// Why an attempt failed.
pub(crate) enum Failure {
    /// It may succeed later; after this wait, where the server says.
    Later(String, Option<Duration>),
    Never(Error),
}

pub(crate) fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// The reason in the body of an answer that is an error: the field `error`, or a short text.
pub(crate) fn body_message(answer: &mut Response<Body>) -> String {
    let text = answer.body_mut().with_config().limit(64 << 10).read_to_string().unwrap_or_default();
    let text = match serde_json::from_str::<Value>(&text) {
        Ok(fields) => fields["error"].as_str().unwrap_or_default().to_owned(),
        Err(_) if text.contains('<') => String::new(),
        Err(_) => text,
    };
    text.trim().chars().take(300).collect()
}
