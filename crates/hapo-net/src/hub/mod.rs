//! Models and datasets by their names on the Hugging Face hub.
//!
//! Purpose: wherever a folder is accepted, `org/name` or `org/name@revision` is too. Files are in the cache of Python's
//! `huggingface_hub` (`HF_HOME`, `HF_HUB_CACHE`), in its layout and under its locks, so nothing is fetched twice.
//! `HF_ENDPOINT`, `HF_TOKEN` and `HF_HUB_OFFLINE` work as its users expect. The layout of the cache and the addresses
//! are those of the `hf-hub` crate. Its transfers are not used: it keeps a truncated file, never tries again after a
//! 429, has no offline mode, and drops the server's own words from an error. Price: blocking calls, one file at a time.

mod download;
mod fetch;
mod id;
mod names;
mod push;
mod request;

pub use id::{DatasetFile, ParsedName, RepoId, parse_name, repo};
pub use push::{PushSettings, Pushed, Upload};

use crate::http::{redacted, shown};
use hapo_core::{Fault, Refusal};
use std::{env, fs, path::PathBuf, time::Duration};

type Failure = crate::http::Failure<Refusal>;
type Result<T, E = Refusal> = std::result::Result<T, E>;

/// A failure that code may tell from others: the cause of a [`Refusal`], in its words.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    #[error("{0}")]
    Unreachable(String),
    #[error("{message}")]
    NotPushed {
        /// `None` without a usable answer.
        status: Option<u16>,
        message: String,
    },
}

/// A cache that cannot be read or written.
fn io(action: &'static str, file: &std::path::Path) -> impl Fn(std::io::Error) -> Refusal {
    let what = format!("cannot {action} {}", file.display());
    move |cause| Refusal::machine(what.clone()).source(cause)
}

fn said(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}

pub trait Progress {
    /// A file of `total` bytes begins; `done` of them were here already.
    fn begin(&mut self, file: &str, done: u64, total: u64);
    /// `bytes` more have been downloaded.
    fn advance(&mut self, bytes: u64);
    /// The file is whole, or the attempt is over.
    fn end(&mut self);
    /// Something the user should know, such as a wait.
    fn note(&mut self, text: &str);
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub folder: PathBuf,
    /// The commit that the revision stood for.
    pub commit: String,
}

#[derive(Clone, Debug)]
pub struct Hub {
    /// Address without a slash at its end.
    pub endpoint: String,
    pub cache: PathBuf,
    /// Sent to the hub, and to nobody else.
    pub token: Option<String>,
    pub offline: bool,
    /// The first wait before a further attempt; each next one is twice as long.
    pub backoff: Duration,
}

impl Hub {
    /// As the environment says, by the rules of `huggingface_hub`: `HF_ENDPOINT`; `HF_HUB_CACHE`, else `HF_HOME`, else
    /// `~/.cache/huggingface`; `HF_TOKEN`, else the file of `hf auth login`; `HF_HUB_OFFLINE`.
    pub fn from_env() -> Self {
        let get = |name: &str| env::var(name).ok().filter(|it| !it.trim().is_empty());
        let is_true = |it: String| matches!(&*it.to_uppercase(), "1" | "ON" | "YES" | "TRUE");
        let is_on = |name: &str| get(name).is_some_and(is_true);
        let path = |name: &str| get(name).map(PathBuf::from);
        let home = path("HF_HOME").unwrap_or_else(|| {
            let user = || env::home_dir().unwrap_or_else(env::temp_dir).join(".cache");
            path("XDG_CACHE_HOME").unwrap_or_else(user).join("huggingface")
        });
        let cache = path("HF_HUB_CACHE").or_else(|| path("HUGGINGFACE_HUB_CACHE"));
        let token_file = path("HF_TOKEN_PATH").unwrap_or_else(|| home.join("token"));
        let token = get("HF_TOKEN")
            .or_else(|| get("HUGGING_FACE_HUB_TOKEN"))
            .or_else(|| {
                let implicit = !is_on("HF_HUB_DISABLE_IMPLICIT_TOKEN");
                // On EIO there is no token, and a hub that wants one says so.
                implicit.then(|| fs::read_to_string(token_file).ok())?
            })
            .map(|it| it.trim().to_owned())
            .filter(|it| !it.is_empty());
        let endpoint = get("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned());
        Self {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            cache: cache.unwrap_or_else(|| home.join("hub")),
            token,
            offline: is_on("HF_HUB_OFFLINE") || is_on("TRANSFORMERS_OFFLINE"),
            backoff: Duration::from_secs(1),
        }
    }

    /// A text without the token and without a password in the hub's address, which servers and proxies quote.
    fn clean(&self, text: &str) -> String {
        redacted(text, self.token.as_deref(), &self.endpoint)
    }

    fn not_found(&self, what: &str, message: &str) -> Refusal {
        let text = format!("{what} is not on {}{}", shown(&self.endpoint), said(message));
        Refusal::input(self.clean(&text))
            .hint("check the spelling; there is no folder of that name here either")
    }

    /// The hub wants a token, or another one. `page` is the repository's, which grants access.
    fn denied(&self, what: &str, page: &str, status: u16, message: &str) -> Refusal {
        let endpoint = shown(&self.endpoint);
        let text = format!("{endpoint} refuses {what} ({status}){}", said(message));
        Refusal::input(self.clean(&text)).hint(match self.token {
            None => "set HF_TOKEN, or log in with `hf auth login`".to_owned(),
            Some(_) => format!(
                "ask for access at {endpoint}/{page} with the account that the token belongs to"
            ),
        })
    }

    fn unreachable(&self, what: &str, cause: &str) -> Refusal {
        Refusal::machine(format!("cannot fetch {what} from {}", shown(&self.endpoint)))
            .source(HubError::Unreachable(self.clean(cause)))
            .hint("check the network and HF_ENDPOINT; the next call resumes where this one stopped (if a folder was meant: there is none of that name)")
    }

    fn not_pushed(&self, repo: &RepoId, status: Option<u16>, cause: &str) -> Refusal {
        let endpoint = shown(&self.endpoint);
        let status_shown = status.map(|status| format!(" (status {status})")).unwrap_or_default();
        let message = format!("cannot push to {repo} on {endpoint}{status_shown}{}", said(cause));
        let message = self.clean(&message);
        let is_refused = status.is_some_and(|status| (400..500).contains(&status));
        let fault = if is_refused { Fault::Input } else { Fault::Machine };
        let hint = match status {
            _ if self.token.is_none() => {
                "set HF_TOKEN to a token that may write, or log in with `hf auth login`".to_owned()
            }
            Some(401) => format!(
                "the hub does not know this token: make one at {endpoint}/settings/tokens and set HF_TOKEN"
            ),
            Some(403) => format!(
                "the token needs the right to write, and its account must be {} or a member of it",
                repo.id.split('/').next().unwrap_or_default()
            ),
            Some(404) => "check the spelling of the name and of the revision".to_owned(),
            Some(409 | 412) => "somebody else has changed it meanwhile: push again".to_owned(),
            _ => "check the network and HF_ENDPOINT, then push again: what the hub has is not sent again"
                .to_owned(),
        };
        let cause = HubError::NotPushed { status, message };
        Refusal::because(cause).with_fault(fault).hint(hint)
    }
}
