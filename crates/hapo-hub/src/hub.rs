//! A hub, its cache, and what is taken from them.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Error;
use crate::cache::RepoKind;
use crate::fetch::{Fetcher, Listing};
use crate::id::{DatasetFile, RepoId};
use crate::names::{files_below, model_files};

/// Observes transfers while they run.
pub trait Progress {
    /// A file of `total` bytes begins; `done` of them were here already.
    fn begin(&mut self, file: &str, done: u64, total: u64);
    /// So many more bytes are here.
    fn advance(&mut self, bytes: u64);
    /// The file is whole, or the attempt is over.
    fn end(&mut self);
    /// Something the user should know, such as a wait.
    fn note(&mut self, text: &str);
}

/// Observes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn begin(&mut self, _: &str, _: u64, _: u64) {}
    fn advance(&mut self, _: u64) {}
    fn end(&mut self) {}
    fn note(&mut self, _: &str) {}
}

/// A repository's files in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Their folder.
    pub folder: PathBuf,
    /// The commit that the revision stood for.
    pub commit: String,
}

/// A hub and its cache.
#[derive(Clone, Debug)]
pub struct Hub {
    /// Address without a slash at its end.
    pub endpoint: String,
    /// Folder of the cache.
    pub cache: PathBuf,
    /// Sent to the hub, and to nobody else.
    pub token: Option<String>,
    /// Take what the cache has and nothing else.
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

    /// The folder of a model with the files that are needed to run it: configuration, tokenizer, chat
    /// template, and the weights in safetensors. What the cache has is not fetched again; where the
    /// hub cannot be reached, a whole snapshot in the cache is taken, with a note.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn model(&self, id: &RepoId, progress: &mut dyn Progress) -> Result<Snapshot, Error> {
        let fetcher = Fetcher::new(self, id, RepoKind::Model);
        let is_whole = |folder: &Path| {
            let has_weights = fs::read_dir(folder).is_ok_and(|mut entries| {
                entries.any(|it| {
                    it.is_ok_and(|it| it.path().extension().is_some_and(|it| it == "safetensors"))
                })
            });
            folder.join("config.json").exists() && has_weights
        };
        let (commit, names) = match fetcher.listing(progress)? {
            Listing::Found { commit, names } => (commit, names),
            Listing::None(why) => {
                return fetcher.cached(&is_whole, &why, progress);
            }
        };
        let wanted = model_files(&names);
        let whole = ["config.json", "tokenizer.json"].iter().all(|it| wanted.contains(it));
        if !whole || !wanted.iter().any(|it| it.ends_with(".safetensors")) {
            let missing = match () {
                () if !wanted.contains(&"config.json") => "no config.json",
                () if !wanted.contains(&"tokenizer.json") => "no tokenizer.json",
                () => "no weights in safetensors",
            };
            return Err(Error::Content { what: id.to_string(), problem: missing.to_owned() });
        }
        for name in &wanted {
            fetcher.file(&commit, name, progress)?;
        }
        fetcher.remember(&commit)?;
        Ok(Snapshot { folder: fetcher.repo.snapshot_path(&commit), commit })
    }

    /// A file of a data set, or a pattern for the shards of its training split.
    ///
    /// # Errors
    /// See [`Error`]; [`Error::Content`] names the files where none is asked for and there are several.
    pub fn dataset(
        &self,
        wanted: &DatasetFile,
        progress: &mut dyn Progress,
    ) -> Result<PathBuf, Error> {
        let fetcher = Fetcher::new(self, &wanted.repo, RepoKind::Dataset);
        let (commit, names) = match fetcher.listing(progress)? {
            Listing::Found { commit, names } => (commit, names),
            Listing::None(why) => {
                let has = |folder: &Path| match &wanted.path {
                    Some(path) => folder.join(path).exists(),
                    None => true,
                };
                let folder = fetcher.cached(&has, &why, progress)?.folder;
                let names = files_below(&folder);
                return Ok(found(&folder, &fetcher.data_files(wanted.path.as_deref(), &names)?));
            }
        };
        let files = fetcher.data_files(wanted.path.as_deref(), &names)?;
        for name in &files {
            fetcher.file(&commit, name, progress)?;
        }
        fetcher.remember(&commit)?;
        Ok(found(&fetcher.repo.snapshot_path(&commit), &files))
    }
}

/// The only file, or a pattern for several shards.
fn found(folder: &Path, files: &[&str]) -> PathBuf {
    match files {
        [only] => folder.join(only),
        shards => folder.join(shards[0]).with_file_name("train*"),
    }
}
