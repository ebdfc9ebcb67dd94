//! The HTTP client of the hub, of reward servers and of teachers, and its retries.
//!
//! Purpose: one proxy rule, one name of the program, one reading of `Retry-After` and one set of statuses that may pass.
//!
//! Price: blocking calls.

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

/// The proxy of the environment. `ureq` takes `HTTPS_PROXY` for http too, which would lead a server on this machine
/// through it.
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
pub fn seconds(number: f64) -> Option<Duration> {
    const LONGEST: f64 = 1e9;
    (number.is_finite() && number >= 0.0).then(|| Duration::from_secs_f64(number.min(LONGEST)))
}

/// Why an attempt failed.
#[derive(Debug)]
pub enum Failure<E> {
    /// It may succeed later, and the wait that the server asks for.
    Later(String, Option<Duration>),
    /// It will not succeed.
    Never(E),
}

/// How often something is attempted.
#[derive(Clone, Copy, Debug)]
pub struct Retries {
    /// Attempts in all.
    pub attempts: u32,
    /// The wait after the first failure, where the server asks for none; each next one is twice as long.
    pub first_wait: Duration,
}

impl Retries {
    /// Attempts until there is a result, or a failure that will not pass, or the last attempt has failed. `waiting` hears
    /// the cause of each wait and its length.
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
pub(crate) mod tests {
    use super::*;
    use ureq::http::{HeaderName, HeaderValue};

    pub(crate) fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
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
        check(&[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")], Some(7.0));
        check(&[("retry-after", "Sun, 06 Nov 1994 08:49:00 GMT")], Some(0.0));
        check(&[("retry-after-ms", "250"), ("retry-after", "9")], Some(0.25));
        check(&[("retry-after", "99999999999999999999")], Some(1e9));
        for it in ["-1", "NaN", "inf", "soon", "", "1e400"] {
            check(&[("retry-after", it)], None);
        }
    }

    #[test]
    fn tokens_and_passwords_are_in_no_text() {
        let address = "http://ada:open@host:8/v1?key=s";
        assert_eq!(shown(address), "http://host:8/v1");
        assert_eq!(shown("https://host"), "https://host");
        let said = "ada:open@host says invalid Bearer hf_1, not open";
        assert_eq!(
            redacted(said, Some("hf_1"), address),
            "***@host says invalid Bearer ***, not ***"
        );
        assert_eq!(redacted("plain", Some(""), "http://host"), "plain");
    }

    /// A server that sends every answer twice.
    #[test]
    fn an_answer_that_nobody_asked_for_shifts_nothing() {
        use std::io::{BufRead, BufReader, Read, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                let (mut reader, mut writer) = (BufReader::new(&stream), &stream);
                let mut line = String::new();
                while reader.read_line(&mut line).is_ok_and(|n| n > 2) {
                    line.clear();
                }
                let mut body = [0; 1];
                reader.read_exact(&mut body).unwrap();
                for _ in 0..2 {
                    let answer =
                        format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{}", body[0] as char);
                    let _ = writer.write_all(answer.as_bytes());
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        });
        let agent = config(false).build().new_agent();
        for it in ["a", "b", "c", "d"] {
            let answer = agent.post(&url).send(it).unwrap().body_mut().read_to_string().unwrap();
            assert_eq!(answer, it);
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    #[test]
    fn failures_that_may_pass_are_repeated_with_doubled_waits() {
        let retries = Retries { attempts: 4, first_wait: Duration::from_millis(1) };
        let mut waits = Vec::new();
        let failed = retries.run(
            &mut waits,
            |_| Err::<(), _>(Failure::<()>::Later("busy".to_owned(), None)),
            |waits, cause, wait| waits.push((cause.to_owned(), wait.as_millis())),
        );
        assert!(matches!(failed, Err(Failure::Later(cause, None)) if cause == "busy"));
        assert_eq!(waits, [1, 2, 4].map(|ms| ("busy".to_owned(), ms)));
        let mut attempts = 0;
        let refused = retries.run(
            &mut attempts,
            |attempts| {
                *attempts += 1;
                Err::<(), _>(Failure::Never("no"))
            },
            |_, _, _| {},
        );
        assert!(matches!(refused, Err(Failure::Never("no"))) && attempts == 1);
    }
}
