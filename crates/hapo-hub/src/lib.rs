//! Models and datasets by their names on the Hugging Face hub.
//!
//! Purpose: wherever a folder is accepted, `org/name` or `org/name@revision` is too. Files are in the cache of Python's
//! `huggingface_hub` (`HF_HOME`, `HF_HUB_CACHE`), in its layout and under its locks, so nothing is fetched twice.
//! `HF_ENDPOINT`, `HF_TOKEN` and `HF_HUB_OFFLINE` work as its users expect.
//!
//! The layout of the cache and the addresses are those of the `hf-hub` crate. Its transfers are not
//! used: it keeps a truncated file, never tries again after a 429, has no offline mode, and drops
//! the server's own words from an error.
//!
//! Price: blocking calls, one file at a time.

mod answer;
mod cache;
mod download;
mod fetch;
mod hub;
mod id;
mod names;
mod push;
mod request;

pub use hub::{Hub, NoProgress, Progress, Snapshot};
pub use id::{DatasetFile, ParsedName, RepoId, parse_name, repo};
pub use push::{Content, PushSettings, Pushed, Upload};

use std::path::PathBuf;

use hapo_core::Explain;

/// Why a model or a data set cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A text that is neither a path nor a name of the hub.
    #[error("{name}: {problem}")]
    Name {
        /// The text.
        name: String,
        /// The problem.
        problem: String,
    },
    /// The hub has no such repository, revision or file, or does not show it.
    #[error("{what} is not on {endpoint}{}", said(message))]
    NotFound {
        /// The repository, with its revision, or a file in it.
        what: String,
        /// The hub.
        endpoint: String,
        /// The hub's message.
        message: String,
    },
    /// The hub wants a token, or another one.
    #[error("{endpoint} refuses {what} ({status}){}", said(message))]
    Denied {
        /// The repository, with its revision, or a file in it.
        what: String,
        /// The hub.
        endpoint: String,
        /// The address of the repository's page, which grants access.
        page: String,
        /// 401 or 403.
        status: u16,
        /// A token was sent.
        token_sent: bool,
        /// The hub's message.
        message: String,
    },
    /// The hub could not be reached, or failed again and again.
    #[error("cannot fetch {what} from {endpoint}: {cause}")]
    Unreachable {
        /// The repository, with its revision, or files in it.
        what: String,
        /// The hub.
        endpoint: String,
        /// The last failure.
        cause: String,
    },
    /// The hub does not take what is pushed.
    #[error(
        "cannot push to {what} on {endpoint}{}{}",
        status.map(|it| format!(" (status {it})")).unwrap_or_default(),
        said(cause)
    )]
    NotPushed {
        /// The repository.
        what: String,
        /// The hub.
        endpoint: String,
        /// The status; `None` without a usable answer.
        status: Option<u16>,
        /// A token was sent.
        token_sent: bool,
        /// The hub's or the network's message.
        cause: String,
    },
    /// Nothing may be fetched, and the cache does not have it.
    #[error("{what} is not in the cache ({}), and HF_HUB_OFFLINE is set", cache.display())]
    Offline {
        /// The repository, with its revision, or files in it.
        what: String,
        /// The cache.
        cache: PathBuf,
    },
    /// The repository lacks the requested contents.
    #[error("{what} has {problem}")]
    Content {
        /// The repository, with its revision.
        what: String,
        /// The contents found or missing.
        problem: String,
    },
    /// The cache cannot be read or written.
    #[error("cannot {action} {}: {cause}", file.display())]
    Io {
        /// Verb.
        action: &'static str,
        /// The file or folder.
        file: PathBuf,
        /// The system's error.
        cause: std::io::Error,
    },
}

fn said(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}

impl Explain for Error {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Name { .. } => Some(
                "give a folder or file that exists, org/name@revision of a model, or hf://datasets/org/name@revision[/file]"
                    .to_owned(),
            ),
            Self::NotFound { .. } => {
                Some("check the spelling; there is no folder of that name here either".to_owned())
            }
            Self::Denied {
                token_sent: false, ..
            } => Some("set HF_TOKEN, or log in with `hf auth login`".to_owned()),
            Self::Denied { page, .. } => Some(format!(
                "ask for access at {page} with the account that the token belongs to"
            )),
            Self::Unreachable { .. } => Some(
                "check the network and HF_ENDPOINT; the next call resumes where this one stopped (if a folder was meant: there is none of that name)"
                    .to_owned(),
            ),
            Self::NotPushed { token_sent: false, .. } => {
                Some("set HF_TOKEN to a token that may write, or log in with `hf auth login`".to_owned())
            }
            Self::NotPushed { status: Some(401), endpoint, .. } => Some(format!(
                "the hub does not know this token: make one at {endpoint}/settings/tokens and set HF_TOKEN"
            )),
            Self::NotPushed { status: Some(403), what, .. } => Some(format!(
                "the token needs the right to write, and its account must be {0} or a member of it",
                what.split('/').next().unwrap_or_default()
            )),
            Self::NotPushed { status: Some(404), .. } => {
                Some("check the spelling of the name and of the revision".to_owned())
            }
            Self::NotPushed { status: Some(409 | 412), .. } => {
                Some("somebody else has changed it meanwhile: push again".to_owned())
            }
            Self::NotPushed { .. } => Some(
                "check the network and HF_ENDPOINT, then push again: what the hub has is not sent again"
                    .to_owned(),
            ),
            Self::Offline { .. } => {
                Some("unset HF_HUB_OFFLINE once, or give a folder".to_owned())
            }
            Self::Content { .. } | Self::Io { .. } => None,
        }
    }

    fn is_bad_input(&self) -> bool {
        matches!(
            self,
            Self::Name { .. }
                | Self::NotFound { .. }
                | Self::Denied { .. }
                | Self::Offline { .. }
                | Self::Content { .. }
                | Self::NotPushed { status: Some(400..=499), .. }
        )
    }
}
