//! The HTTP client of the hub, of reward servers and of teachers, and its retries.
//!
//! Purpose: one proxy rule, one name of the program, one reading of `Retry-After` and one set of statuses that may
//! pass. Price: blocking calls.

use std::time::{Duration, SystemTime};

pub use ureq;
use ureq::config::ConfigBuilder;
use ureq::http::HeaderMap;
use ureq::typestate::AgentScope;
use ureq::{Agent, Proxy};

/// Longest wait between two attempts, whatever the server asks for.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// A client that gives every status as an answer and follows no redirect.
pub fn config(is_https: bool) -> ConfigBuilder<AgentScope> {
    Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        // A connection that is used again may still hold what was sent too much: every later answer would be another's.
        .max_idle_connections(0)
        .max_idle_connections_per_host(0)
        .user_agent(concat!("hapo/", env!("CARGO_PKG_VERSION")))
        .proxy(proxy(is_https))
}

/// The proxy of the environment. `ureq` takes `HTTPS_PROXY` for http too: a server on this machine would go through it.
fn proxy(is_https: bool) -> Option<Proxy> {
    let names = ["ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy"];
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if is_https || names.into_iter().any(is_set) { Proxy::try_from_env() } else { None }
}

/// An address for messages: without user, password and query, which may be secrets.
pub fn shown(address: &str) -> String {
    let whole = address.split(['?', '#']).next().unwrap_or("");
    let Some((scheme, rest)) = whole.split_once("://") else { return whole.to_owned() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or("");
    format!("{scheme}://{host}{path}")
}

/// A text of a server, or about one, without a token and without what stands before the host of an address.
pub fn redacted(text: &str, token: Option<&str>, address: &str) -> String {
    let authority = address.split_once("://").map_or("", |it| it.1.split('/').next().unwrap_or(""));
    let user = authority.rsplit_once('@').map(|it| it.0);
    let password = user.and_then(|it| it.split_once(':')).map(|it| it.1);
    let secrets = [token, user, password].into_iter().flatten().filter(|it| !it.is_empty());
    secrets.fold(text.to_owned(), |text, secret| text.replace(secret, "***"))
}

/// Whether a request with this status may succeed later.
pub fn may_pass(status: u16) -> bool {
    matches!(status, 408 | 429 | 500..)
}

/// The pause that a server asks for: `retry-after-ms`, or `Retry-After` as seconds or as a date.
pub fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
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

/// A number of seconds; one beyond what a clock can count is the longest pause there is.
fn seconds(number: f64) -> Option<Duration> {
    const LONGEST: f64 = 1e9;
    (number.is_finite() && number >= 0.0).then(|| Duration::from_secs_f64(number.min(LONGEST)))
}

/// How long until a spent limit (`x-ratelimit-remaining-*` is 0) is filled again: the longest `x-ratelimit-reset-*`.
pub(crate) fn spent(headers: &HeaderMap) -> Option<Duration> {
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
        return seconds(it);
    }
    let (mut rest, mut total) = (text, 0.0);
    while !rest.is_empty() {
        let digits = rest.find(|it: char| !it.is_ascii_digit() && it != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.find(|it: char| it.is_ascii_digit()).unwrap_or(rest.len());
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
    seconds(total)
}

#[derive(Debug)]
pub enum Failure<E> {
    /// It may succeed later, and the wait that the server asks for.
    Later(String, Option<Duration>),
    Never(E),
}

#[derive(Clone, Copy, Debug)]
pub struct Retries {
    pub attempts: u32,
    /// The wait after the first failure, where the server asks for none; each next one is twice as long.
    pub first_wait: Duration,
}

impl Retries {
    /// Attempts until one succeeds, fails for good or is the last. `waiting` hears each wait's cause and length.
    pub fn run<C: ?Sized, T, E>(
        self,
        context: &mut C,
        mut attempt: impl FnMut(&mut C) -> Result<T, Failure<E>>,
        mut waiting: impl FnMut(&mut C, &str, Duration),
    ) -> Result<T, Failure<E>> {
        let (mut made, mut wait) = (1, self.first_wait);
        loop {
            match attempt(context) {
                Err(Failure::Later(cause, asked)) if made < self.attempts => {
                    let pause = asked.unwrap_or(wait).min(LONGEST_WAIT);
                    waiting(context, &cause, pause);
                    std::thread::sleep(pause);
                    (made, wait) = (made + 1, wait * 2);
                }
                done => return done,
            }
        }
    }
}

#[cfg(test)]
mod tests;
