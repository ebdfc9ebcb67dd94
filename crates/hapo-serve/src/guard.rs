//! Which requests are answered at all.
//!
//! There is no authentication, and a page in the user's browser can send requests to this machine. So a request must
//! name the server by an address, by `localhost` or by a name that it was given (a page elsewhere may have a name of its
//! own point here: DNS rebinding), must not come from a page of another origin, and must say that its body is JSON, which
//! a page cannot do without asking first.

use std::{net::IpAddr, sync::Arc};

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderName, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::api_error::ApiError;

pub(crate) async fn guarded(
    State(names): State<Arc<[String]>>,
    request: Request,
    next: axum::middleware::Next,
) -> Response {
    match refusal(&request, &names) {
        Some(it) => it.into_response(),
        None => next.run(request).await,
    }
}

fn refusal<B>(request: &axum::http::Request<B>, names: &[String]) -> Option<ApiError> {
    let (method, headers) = (request.method(), request.headers());
    let text = |name: HeaderName| headers.get(name).map(|it| it.to_str().unwrap_or(""));
    // The whole address in the first line counts more than the header (RFC 9112, section 3.2.2).
    let named = request.uri().authority().map(Authority::as_str);
    let host = named.or_else(|| text(header::HOST)).unwrap_or("");
    if headers.get_all(header::HOST).iter().count() > 1 {
        return Some(ApiError::of_status(StatusCode::BAD_REQUEST, "expected one Host header"));
    }
    if let Some(it) = text(header::CONTENT_ENCODING).filter(|it| *it != "identity") {
        let message = format!("content-encoding: expected none, got {it}");
        return Some(ApiError::of_status(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
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

fn is_own_name(host: &str, names: &[String]) -> bool {
    let Some(authority) = host.parse::<Authority>().ok().filter(|_| !host.contains('@')) else {
        return false;
    };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|it| name.eq_ignore_ascii_case(it))
}
