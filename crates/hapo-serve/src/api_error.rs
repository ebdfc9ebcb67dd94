//! Errors in `OpenAI`'s form.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hapo_core::Refusal;
use serde_json::{Value, json};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    pub(crate) param: Option<String>,
    pub(crate) code: Option<&'static str>,
}

impl ApiError {
    pub(crate) fn bad(param: &str, message: impl Into<String>) -> Self {
        let param = Some(param.to_owned());
        Self { param, ..Self::of_status(StatusCode::BAD_REQUEST, message) }
    }

    pub(crate) fn coded(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    pub(crate) fn of_status(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), param: None, code: None }
    }

    pub(crate) fn json(&self) -> Value {
        let kind = match self.status {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            it if it.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        json!({ "error": {
            "message": self.message, "type": kind, "param": self.param, "code": self.code,
        }})
    }
}

pub(crate) fn excerpt(value: &Value) -> String {
    hapo_core::excerpt(&value.to_string(), 80)
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let message = refusal.to_string();
        match refusal.cause::<hapo_sampler::BadField>() {
            Some(bad) => Self::bad(bad.field, message),
            None if refusal.is_bad_input() => Self::bad("prompt", message),
            None => Self::of_status(StatusCode::INTERNAL_SERVER_ERROR, message),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, axum::Json(self.json())).into_response();
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            let seconds = HeaderValue::from_static("1");
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response
    }
}
