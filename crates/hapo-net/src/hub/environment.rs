//! A hub and its cache, as the environment names them.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

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

#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn begin(&mut self, _: &str, _: u64, _: u64) {}
    fn advance(&mut self, _: u64) {}
    fn end(&mut self) {}
    fn note(&mut self, _: &str) {}
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
    /// As the environment says, by the rules of `huggingface_hub`: `HF_ENDPOINT`; `HF_HUB_CACHE`, else
    /// `HF_HOME`, else `~/.cache/huggingface`; `HF_TOKEN`, else the file of `hf auth login`;
    /// `HF_HUB_OFFLINE`.
    pub fn from_env() -> Self {
        let get = |name: &str| env::var(name).ok().filter(|it| !it.trim().is_empty());
        let is_on = |name: &str| {
            get(name)
                .is_some_and(|it| matches!(it.to_uppercase().as_str(), "1" | "ON" | "YES" | "TRUE"))
        };
        let home = get("HF_HOME").map_or_else(
            || {
                get("XDG_CACHE_HOME").map_or_else(
                    || {
                        let home = env::home_dir().unwrap_or_else(env::temp_dir);
                        home.join(".cache/huggingface")
                    },
                    |it| PathBuf::from(it).join("huggingface"),
                )
            },
            PathBuf::from,
        );
        let cache = get("HF_HUB_CACHE")
            .or_else(|| get("HUGGINGFACE_HUB_CACHE"))
            .map_or_else(|| home.join("hub"), PathBuf::from);
        let token_file = get("HF_TOKEN_PATH").map_or_else(|| home.join("token"), PathBuf::from);
        let token = get("HF_TOKEN")
            .or_else(|| get("HUGGING_FACE_HUB_TOKEN"))
            .or_else(|| {
                let implicit = !is_on("HF_HUB_DISABLE_IMPLICIT_TOKEN");
                // On EIO there is no token, and a hub that wants one says so.
                implicit.then(|| fs::read_to_string(token_file).ok())?
            })
            .map(|it| it.trim().to_owned())
            .filter(|it| !it.is_empty());
        Self {
            endpoint: get("HF_ENDPOINT")
                .unwrap_or_else(|| "https://huggingface.co".to_owned())
                .trim_end_matches('/')
                .to_owned(),
            cache,
            token,
            offline: is_on("HF_HUB_OFFLINE") || is_on("TRANSFORMERS_OFFLINE"),
            backoff: Duration::from_secs(1),
        }
    }
}
