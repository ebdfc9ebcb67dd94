//! A server that judges by POST.

use std::io::Read;
use std::sync::{Condvar, Mutex, PoisonError};

use hapo_core::excerpt;
use ureq::{Agent, Proxy};

use crate::RewardSettings;
use crate::error::Failure;

/// Longest answer, in bytes.
const LIMIT: u64 = 1 << 20;
/// Times that a request is made which was not answered, or with a status that may pass.
const ATTEMPTS: usize = 3;

/// The proxy of the environment. The client takes `HTTPS_PROXY` for http too, which would lead a server on this machine
/// through it.
fn proxy(is_https: bool) -> Option<Proxy> {
    let names = ["ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy"];
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|it| !it.is_empty());
    if is_https || names.into_iter().any(is_set) { Proxy::try_from_env() } else { None }
}

#[derive(Debug)]
pub(crate) struct Server {
    url: String,
    agent: Agent,
    /// Requests that may still be made at once.
    free: Mutex<usize>,
    freed: Condvar,
}

impl Server {
    pub(crate) fn new(url: &str, settings: &RewardSettings) -> Self {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(proxy(url.starts_with("https:")))
            .timeout_global(Some(settings.timeout))
            .user_agent(concat!("hapo/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        let free = Mutex::new(settings.workers.max(1));
        Self { url: url.to_owned(), agent, free, freed: Condvar::new() }
    }

    /// The body that answers a line.
    pub(crate) fn ask(&self, line: &str) -> Result<String, Failure> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free =
            self.freed.wait_while(free, |it| *it == 0).unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        drop(free);
        let mut answer = self.post(line);
        for _ in 1..ATTEMPTS {
            if !matches!(answer, Err((_, true))) {
                break;
            }
            answer = self.post(line);
        }
        *self.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.freed.notify_one();
        answer.map_err(|it| it.0)
    }

    /// The answer to one request, or why there is none and whether another may be answered.
    fn post(&self, line: &str) -> Result<String, (Failure, bool)> {
        let failure = |it: ureq::Error| {
            let timed_out = matches!(it, ureq::Error::Timeout(_));
            let message = match it {
                ureq::Error::Timeout(_) => "no answer within the time limit".to_owned(),
                other => format!("the request failed: {other}"),
            };
            (Failure::of_one(message), !timed_out)
        };
        let request = self.agent.post(&self.url).header("Content-Type", "application/json");
        let mut answer = request.send(line).map_err(failure)?;
        let status = answer.status().as_u16();
        // Of the text, not of the bytes on the way, which may be packed.
        let mut text = String::new();
        let mut body = answer.body_mut().as_reader().take(LIMIT + 1);
        let read = body.read_to_string(&mut text).map_err(ureq::Error::from);
        if status == 200 && text.len() as u64 > LIMIT {
            let message = format!("expected an answer of at most {LIMIT} bytes");
            return Err((Failure::of_one(message), false));
        }
        if status == 200 {
            return read.map(|_| text).map_err(failure);
        }
        let said = excerpt(text.trim(), 200);
        let passes = matches!(status, 408 | 429 | 500..);
        let message = format!("expected status 200, got {status}: {said}");
        Err((Failure::of_one(message.trim_end_matches([':', ' '])), passes))
    }
}
