//! Which requests are answered at all.
//!
//! There is no authentication, and a page in the user's browser can send requests to this machine. So a request must
//! name the server by an address, by `localhost` or by a name that it was given (a page elsewhere may have a name of its
//! own point here: DNS rebinding), must not come from a page of another origin, and must say that its body is JSON, which
//! a page cannot do without asking first.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::api_error::ApiError;

pub(crate) async fn guarded(
    State(names): State<Arc<[String]>>,
    request: Request,
    next: Next,
) -> Response {
    match refusal(request.method(), request.headers(), &names) {
        Some(it) => it.into_response(),
        None => next.run(request).await,
    }
}

fn refusal(method: &Method, headers: &HeaderMap, names: &[String]) -> Option<ApiError> {
    let text = |name: HeaderName| headers.get(name).map(|it| it.to_str().unwrap_or(""));
    let host = text(header::HOST).unwrap_or("");
    if !is_own_name(host, names) {
        let message = format!(
            "this server is not called {host:?}: ask it by its address, or start it with that name allowed"
        );
        return Some(ApiError::of_status(StatusCode::FORBIDDEN, message));
    }
    if let Some(origin) = text(header::ORIGIN)
        && origin.split_once("://").map(|it| it.1) != Some(host)
    {
        let message = format!("a page of {origin:?} may not use this server");
        return Some(ApiError::of_status(StatusCode::FORBIDDEN, message));
    }
    let kind = text(header::CONTENT_TYPE).unwrap_or("nothing");
    let essence = kind.split(';').next().unwrap_or("").trim();
    if method == Method::POST && !essence.eq_ignore_ascii_case("application/json") {
        let message = format!("content-type: expected application/json, got {kind}");
        return Some(ApiError::of_status(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    None
}

/// True if a Host header is an address, `localhost` or one of the names.
fn is_own_name(host: &str, names: &[String]) -> bool {
    let Some(authority) = host.parse::<Authority>().ok().filter(|_| !host.contains('@')) else {
        return false;
    };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|it| name.eq_ignore_ascii_case(it))
}
