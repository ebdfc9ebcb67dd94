//! Requests to the hub.

use crate::http::ureq::http::{HeaderMap, Response};
use crate::http::{may_pass, retry_after, ureq, ureq::Body};
use crate::hub::{Failure, Progress, fetch::Fetcher, io, said};
use hapo_core::Refusal;
use serde_json::Value;
use std::io::{Read, Write};
use std::time::{Duration, SystemTime};
use std::{fs, path::Path};

const BUFFER: usize = 256 << 10;

pub(crate) struct Described {
    pub(crate) etag: String,
    pub(crate) size: u64,
    pub(crate) commit: Option<String>,
}

impl Fetcher<'_> {
    pub(crate) fn describe(&self, url: &str, name: &str) -> Result<Described, Failure> {
        let mut url = url.to_owned();
        let mut answer = self.head(&url, name)?;
        // A renamed repository answers with an address on the same hub; a file of LFS with one
        // elsewhere, and its headers are on this answer.
        for _ in 0..5 {
            let Some(location) = header(answer.headers(), "location") else { break };
            if !location.starts_with('/') {
                break;
            }
            url = format!("{}{location}", self.hub.endpoint);
            answer = self.head(&url, name)?;
        }
        let headers = answer.headers();
        let missing = |what: &str| {
            let file = self.what(Some(name));
            let text = format!("{file} has no header {what} ({url})");
            Failure::Never(Refusal::input(self.hub.clean(&text)))
        };
        // A redirect has a length and an etag of its own.
        let own = |name| header(headers, name).filter(|_| answer.status().is_success());
        let etag = header(headers, "x-linked-etag")
            .or_else(|| own("etag"))
            .map(|it| it.trim_start_matches("W/").trim_matches('"').to_owned())
            .filter(|it| {
                !it.is_empty() && it.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            })
            .ok_or_else(|| missing("etag"))?;
        let size = header(headers, "x-linked-size")
            .or_else(|| own("content-length"))
            .and_then(|it| it.parse().ok())
            .ok_or_else(|| missing("content-length"))?;
        Ok(Described { etag, size, commit: header(headers, "x-repo-commit").map(str::to_owned) })
    }

    fn head(&self, url: &str, name: &str) -> Result<Response<Body>, Failure> {
        self.judge(self.hub.authorised(self.first_answer.head(url)).call(), Some(name))
    }

    /// What follows the first `done` bytes, where the server has parts.
    pub(crate) fn get(
        &self,
        url: &str,
        done: u64,
        name: Option<&str>,
    ) -> Result<Response<Body>, Failure> {
        let mut request = self.hub.authorised(self.agent.get(url));
        if done > 0 {
            request = request.header("Range", format!("bytes={done}-"));
        }
        self.judge(request.call(), name)
    }

    /// An answer that is one, or why it is none.
    fn judge(
        &self,
        answer: Result<Response<Body>, ureq::Error>,
        name: Option<&str>,
    ) -> Result<Response<Body>, Failure> {
        let mut answer = answer.map_err(|it| Failure::Later(it.to_string(), None))?;
        let status = answer.status().as_u16();
        if status < 400 || status == 416 {
            return Ok(answer);
        }
        let (message, wait) = refusal(&mut answer);
        let what = self.what(name);
        let cause = format!("status {status}{}", said(&message));
        Err(match status {
            404 | 410 => Failure::Never(self.hub.not_found(&what, &message)),
            401 | 403 => Failure::Never(self.hub.denied(&what, &self.page(), status, &message)),
            _ if may_pass(status) => Failure::Later(cause, wait),
            _ => Failure::Never(self.hub.unreachable(&what, &cause)),
        })
    }

    /// Resumes a file where it was left. Succeeds with the complete file in `part`.
    pub(crate) fn transfer(
        &self,
        url: &str,
        name: &str,
        size: u64,
        part: &Path,
        progress: &mut dyn Progress,
    ) -> Result<(), Failure> {
        let never = |action: &'static str| move |cause| Failure::Never(io(action, part)(cause));
        let mut file =
            fs::OpenOptions::new().create(true).append(true).open(part).map_err(never("open"))?;
        let mut done = file.metadata().map_err(never("read"))?.len();
        if done > size {
            file.set_len(0).map_err(never("write"))?;
            done = 0;
        }
        if done < size {
            let mut answer = self.get(url, done, Some(name))?;
            if answer.status().as_u16() == 416 {
                file.set_len(0).map_err(never("write"))?;
                return Err(Failure::Later("the server refuses the rest".to_owned(), None));
            }
            if answer.status().as_u16() != 206 && done > 0 {
                file.set_len(0).map_err(never("write"))?;
                done = 0;
            }
            progress.begin(name, done, size);
            let mut body = answer.body_mut().as_reader();
            let mut buffer = vec![0; BUFFER];
            loop {
                let read =
                    body.read(&mut buffer).map_err(|it| Failure::Later(it.to_string(), None))?;
                if read == 0 {
                    break;
                }
                done += read as u64;
                if done > size {
                    break;
                }
                file.write_all(&buffer[..read]).map_err(never("write"))?;
                progress.advance(read as u64);
            }
        }
        if done > size {
            file.set_len(0).map_err(never("write"))?;
        }
        if done != size {
            return Err(Failure::Later(format!("expected {size} bytes, got {done}"), None));
        }
        file.sync_all().map_err(never("write"))
    }
}

pub(crate) fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// Of an error: the hub's words, the field `error` of the body or a short text, and the wait that the hub asks for.
pub(crate) fn refusal(answer: &mut Response<Body>) -> (String, Option<Duration>) {
    let wait = retry_after(answer.headers(), SystemTime::now());
    if let Some(message) = header(answer.headers(), "x-error-message") {
        return (message.to_owned(), wait);
    }
    let text = answer.body_mut().with_config().limit(64 << 10).read_to_string().unwrap_or_default();
    let text = match serde_json::from_str::<Value>(&text) {
        Ok(fields) => fields["error"].as_str().unwrap_or_default().to_owned(),
        Err(_) if text.contains('<') => String::new(),
        Err(_) => text,
    };
    (text.trim().chars().take(300).collect(), wait)
}
