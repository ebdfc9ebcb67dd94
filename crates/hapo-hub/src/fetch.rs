//! The cache, and how files come into it.

use std::env;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hf_hub::{Cache, CacheRepo, Repo, RepoType};
use serde_json::Value;
use ureq::http::{HeaderMap, Response};
use ureq::{Agent, Body};

use crate::Error;
use crate::id::{DatasetFile, RepoId, is_plain_path};

/// How often a request for a file is made in all, where it may succeed later.
const ATTEMPTS: u32 = 6;
/// The same for the first request: without a network the cache should not be long in coming.
const FIRST_ATTEMPTS: u32 = 3;
/// Longest time that a server may ask us to wait.
const LONGEST_WAIT: Duration = Duration::from_mins(1);
/// Most bytes of an answer that is not a file.
const MAX_ANSWER: u64 = 64 << 20;
const BUFFER: usize = 256 << 10;

/// Told of transfers while they run.
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

/// Tells nobody.
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
        let fetcher = Fetcher::new(self, id, RepoType::Model);
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
        let whole = ["config.json", "tokenizer.json"]
            .iter()
            .all(|it| wanted.contains(it));
        if !whole || !wanted.iter().any(|it| it.ends_with(".safetensors")) {
            let missing = match () {
                () if !wanted.contains(&"config.json") => "no config.json",
                () if !wanted.contains(&"tokenizer.json") => "no tokenizer.json",
                () => "no weights in safetensors",
            };
            return Err(Error::Content {
                what: id.to_string(),
                problem: missing.to_owned(),
            });
        }
        for name in &wanted {
            fetcher.file(&commit, name, progress)?;
        }
        fetcher.remember(&commit)?;
        Ok(Snapshot {
            folder: fetcher.cache.pointer_path(&commit),
            commit,
        })
    }

    /// A file of a data set.
    ///
    /// # Errors
    /// See [`Error`]; [`Error::Content`] names the files where none is asked for and there are several.
    pub fn dataset(
        &self,
        wanted: &DatasetFile,
        progress: &mut dyn Progress,
    ) -> Result<PathBuf, Error> {
        let fetcher = Fetcher::new(self, &wanted.repo, RepoType::Dataset);
        let (commit, names) = match fetcher.listing(progress)? {
            Listing::Found { commit, names } => (commit, names),
            Listing::None(why) => {
                let has = |folder: &Path| match &wanted.path {
                    Some(path) => folder.join(path).exists(),
                    None => true,
                };
                let folder = fetcher.cached(&has, &why, progress)?.folder;
                let names = files_below(&folder);
                return Ok(folder.join(fetcher.data_file(wanted.path.as_deref(), &names)?));
            }
        };
        let name = fetcher.data_file(wanted.path.as_deref(), &names)?;
        let path = fetcher.file(&commit, name, progress)?;
        fetcher.remember(&commit)?;
        Ok(path)
    }
}

/// The files of a model that are needed to run it. Weights in one file are preferred to shards, as
/// the reader of folders prefers them.
fn model_files(names: &[String]) -> Vec<&str> {
    const WITH_WEIGHTS: &[&str] = &[
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "merges.txt",
        "chat_template.jinja",
    ];
    const SINGLE: &str = "model.safetensors";
    const INDEX: &str = "model.safetensors.index.json";
    let is_single = names.iter().any(|it| it == SINGLE);
    let is_wanted = |name: &str| {
        WITH_WEIGHTS.contains(&name)
            || if is_single {
                name == SINGLE
            } else {
                name == INDEX
                    || (name.starts_with("model-")
                        && Path::new(name)
                            .extension()
                            .is_some_and(|it| it == "safetensors"))
            }
    };
    let root = |name: &&str| !name.contains('/') && is_plain_path(name) && is_wanted(name);
    names.iter().map(String::as_str).filter(root).collect()
}

fn is_data_file(name: &str) -> bool {
    let name = name
        .strip_suffix(".gz")
        .or_else(|| name.strip_suffix(".zst"))
        .unwrap_or(name);
    Path::new(name)
        .extension()
        .and_then(|it| it.to_str())
        .is_some_and(|it| matches!(it, "parquet" | "jsonl" | "json" | "arrow"))
        && is_plain_path(name)
}

fn files_below(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(&at).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if let Some(name) = path.strip_prefix(folder).ok().and_then(Path::to_str) {
                names.push(name.to_owned());
            }
        }
    }
    names.sort_unstable();
    names
}

enum Listing {
    Found {
        commit: String,
        names: Vec<String>,
    },
    /// The hub is not asked or does not answer, and why.
    None(Absent),
}

enum Absent {
    Offline,
    Unreachable(Error),
}

/// One repository at one revision.
struct Fetcher<'a> {
    hub: &'a Hub,
    id: &'a RepoId,
    repo: Repo,
    cache: CacheRepo,
    /// Answers with errors as they are, and follows redirects.
    agent: Agent,
    /// As `agent`, and shows redirects: the headers of a file are on the first answer.
    first_answer: Agent,
}

/// What the hub says of a file before it is fetched.
struct Described {
    etag: String,
    size: u64,
    commit: Option<String>,
}

/// Why an attempt failed.
enum Failure {
    /// It may succeed later; after this wait, where the server says.
    Later(String, Option<Duration>),
    Never(Error),
}

impl<'a> Fetcher<'a> {
    fn new(hub: &'a Hub, id: &'a RepoId, kind: RepoType) -> Self {
        let repo = Repo::with_revision(id.id.clone(), kind, id.revision.clone());
        let agent = |redirects: u32| {
            Agent::config_builder()
                .http_status_as_error(false)
                .max_redirects(redirects)
                .max_redirects_will_error(redirects > 0)
                .redirect_auth_headers(ureq::config::RedirectAuthHeaders::SameHost)
                .user_agent(concat!("hapo/", env!("CARGO_PKG_VERSION")))
                // Sizes and resumed transfers count the file's own bytes.
                .accept_encoding("identity")
                .timeout_connect(Some(Duration::from_secs(20)))
                .timeout_recv_response(Some(Duration::from_mins(1)))
                .timeout_per_read(Some(Duration::from_mins(1)))
                .build()
                .new_agent()
        };
        Self {
            hub,
            id,
            cache: Cache::new(hub.cache.clone()).repo(repo.clone()),
            repo,
            agent: agent(8),
            first_answer: agent(0),
        }
    }

    fn what(&self, file: Option<&str>) -> String {
        match file {
            Some(file) => format!("{}/{file}", self.id),
            None => self.id.to_string(),
        }
    }

    /// The commit of the revision and the names of its files.
    fn listing(&self, progress: &mut dyn Progress) -> Result<Listing, Error> {
        if self.hub.offline {
            return Ok(Listing::None(Absent::Offline));
        }
        let url = format!("{}/api/{}", self.hub.endpoint, self.repo.api_url());
        let found = self.again_and_again(None, progress, |_| {
            let mut answer = self.get(&self.agent, &url, &[], None)?;
            let text = answer
                .body_mut()
                .with_config()
                .limit(MAX_ANSWER)
                .read_to_vec()
                .map_err(|it| Failure::Later(it.to_string(), None))?;
            let malformed = |got: String| {
                Failure::Never(Error::Content {
                    what: self.what(None),
                    problem: format!("no listing that can be read: {got} ({url})"),
                })
            };
            let fields: Value =
                serde_json::from_slice(&text).map_err(|it| malformed(it.to_string()))?;
            let commit = fields["sha"].as_str().unwrap_or_default();
            let is_commit = !commit.is_empty() && commit.bytes().all(|b| b.is_ascii_alphanumeric());
            let siblings = fields["siblings"].as_array().filter(|_| is_commit);
            let siblings =
                siblings.ok_or_else(|| malformed("expected sha and siblings".to_owned()))?;
            let names = siblings.iter().filter_map(|it| it["rfilename"].as_str());
            Ok(Listing::Found {
                commit: commit.to_owned(),
                names: names.map(str::to_owned).collect(),
            })
        });
        match found {
            Err(it @ Error::Unreachable { .. }) => Ok(Listing::None(Absent::Unreachable(it))),
            found => found,
        }
    }

    /// The snapshot of the revision in the cache.
    fn cached(
        &self,
        is_whole: &dyn Fn(&Path) -> bool,
        why: &Absent,
        progress: &mut dyn Progress,
    ) -> Result<Snapshot, Error> {
        let refs = self.repo_folder().join("refs").join(&self.id.revision);
        let commit = fs::read_to_string(refs)
            .map_or_else(|_| self.id.revision.clone(), |it| it.trim().to_owned());
        let folder = self.cache.pointer_path(&commit);
        if is_plain_path(&commit) && !commit.contains('/') && is_whole(&folder) {
            if let Absent::Unreachable(error) = why {
                progress.note(&format!(
                    "{error}; taking {} from the cache",
                    self.what(None)
                ));
            }
            return Ok(Snapshot { folder, commit });
        }
        Err(match why {
            Absent::Offline => Error::Offline {
                what: self.what(None),
                cache: self.hub.cache.clone(),
            },
            Absent::Unreachable(Error::Unreachable {
                what,
                endpoint,
                cause,
            }) => Error::Unreachable {
                what: what.clone(),
                endpoint: endpoint.clone(),
                cause: cause.clone(),
            },
            Absent::Unreachable(_) => unreachable!("a listing is absent for one reason"),
        })
    }

    fn repo_folder(&self) -> PathBuf {
        self.hub.cache.join(self.repo.folder_name())
    }

    /// Notes the commit of the revision, for offline use. A commit needs no note.
    fn remember(&self, commit: &str) -> Result<(), Error> {
        if self.id.revision == commit {
            return Ok(());
        }
        let refs = self.repo_folder().join("refs");
        self.cache
            .create_ref(commit)
            .map_err(io("write", &refs.join(&self.id.revision)))
    }

    fn data_file<'n>(&self, path: Option<&'n str>, names: &'n [String]) -> Result<&'n str, Error> {
        let content = |problem: String| Error::Content {
            what: self.what(None),
            problem,
        };
        let data: Vec<&str> = names
            .iter()
            .map(String::as_str)
            .filter(|it| is_data_file(it))
            .collect();
        let shown = || {
            let mut text = data.iter().take(12).copied().collect::<Vec<_>>().join(", ");
            if data.len() > 12 {
                text += &format!(" and {} more", data.len() - 12);
            }
            text
        };
        match (path, data.as_slice()) {
            (Some(path), _) if names.iter().any(|it| it == path) => Ok(path),
            (Some(path), _) => Err(content(format!(
                "no file {path}; its data files: {}",
                shown()
            ))),
            (None, [only]) => Ok(only),
            (None, []) => Err(content(
                "no data file (parquet, jsonl, json or arrow)".to_owned(),
            )),
            (None, _) => Err(content(format!(
                "several data files, name one: {}",
                shown()
            ))),
        }
    }

    /// A file of a commit in the cache, fetched where it is not there yet.
    fn file(
        &self,
        commit: &str,
        name: &str,
        progress: &mut dyn Progress,
    ) -> Result<PathBuf, Error> {
        let pointer = self.cache.pointer_path(commit).join(name);
        if pointer.exists() {
            return Ok(pointer);
        }
        let url = format!(
            "{}/{}/resolve/{commit}/{}",
            self.hub.endpoint,
            self.repo.url(),
            escaped(name)
        );
        let described =
            self.again_and_again(Some(name), progress, |_| self.describe(&url, name))?;
        if described.commit.as_deref().is_some_and(|it| it != commit) {
            return Err(Error::Content {
                what: self.what(Some(name)),
                problem: "changed while it was fetched".to_owned(),
            });
        }
        let blob = self.cache.blob_path(&described.etag);
        let _lock = self.lock(&described.etag)?;
        if !fs::metadata(&blob).is_ok_and(|it| it.len() == described.size) {
            create_folder_of(&blob)?;
            let part = blob.with_file_name(format!("{}.incomplete", described.etag));
            self.again_and_again(Some(name), progress, |progress| {
                let done = self.transfer(&url, name, described.size, &part, progress);
                progress.end();
                done
            })?;
            fs::rename(&part, &blob).map_err(io("rename", &part))?;
        }
        create_folder_of(&pointer)?;
        link(&blob, &pointer, name)?;
        Ok(pointer)
    }

    /// Held while a blob is written; `huggingface_hub` takes the same lock.
    fn lock(&self, etag: &str) -> Result<File, Error> {
        let path = self
            .hub
            .cache
            .join(".locks")
            .join(self.repo.folder_name())
            .join(format!("{etag}.lock"));
        create_folder_of(&path)?;
        let file = File::create(&path).map_err(io("create", &path))?;
        file.lock().map_err(io("lock", &path))?;
        Ok(file)
    }

    fn describe(&self, url: &str, name: &str) -> Result<Described, Failure> {
        let mut url = url.to_owned();
        let mut answer = self.head(&url, name)?;
        // A renamed repository answers with an address on the same hub; a file of LFS with one
        // elsewhere, and its headers are on this answer.
        for _ in 0..5 {
            let Some(location) = header(answer.headers(), "location") else {
                break;
            };
            if !location.starts_with('/') {
                break;
            }
            url = format!("{}{location}", self.hub.endpoint);
            answer = self.head(&url, name)?;
        }
        let headers = answer.headers();
        let missing = |what: &str| {
            Failure::Never(Error::Content {
                what: self.what(Some(name)),
                problem: format!("no header {what} ({url})"),
            })
        };
        let etag = header(headers, "x-linked-etag")
            .or_else(|| header(headers, "etag"))
            .map(|it| it.trim_start_matches("W/").trim_matches('"').to_owned())
            .filter(|it| {
                !it.is_empty() && it.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            })
            .ok_or_else(|| missing("etag"))?;
        let size = header(headers, "x-linked-size")
            .or_else(|| header(headers, "content-length"))
            .and_then(|it| it.parse().ok())
            .ok_or_else(|| missing("content-length"))?;
        Ok(Described {
            etag,
            size,
            commit: header(headers, "x-repo-commit").map(str::to_owned),
        })
    }

    fn head(&self, url: &str, name: &str) -> Result<Response<Body>, Failure> {
        let mut request = self.first_answer.head(url);
        if let Some(token) = &self.hub.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        self.judge(request.call(), Some(name))
    }

    fn get(
        &self,
        agent: &Agent,
        url: &str,
        headers: &[(&str, String)],
        name: Option<&str>,
    ) -> Result<Response<Body>, Failure> {
        let mut request = agent.get(url);
        if let Some(token) = &self.hub.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        for (key, value) in headers {
            request = request.header(*key, value);
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
        let wait = header(answer.headers(), "retry-after")
            .and_then(|it| it.parse().ok())
            .map(Duration::from_secs);
        let message = match header(answer.headers(), "x-error-message") {
            Some(it) => it.to_owned(),
            None => body_message(&mut answer),
        };
        let (what, endpoint) = (self.what(name), self.hub.endpoint.clone());
        Err(match status {
            404 | 410 => Failure::Never(Error::NotFound {
                what,
                endpoint,
                message,
            }),
            401 | 403 => Failure::Never(Error::Denied {
                what,
                page: format!("{endpoint}/{}", self.repo.url()),
                endpoint,
                status,
                token_sent: self.hub.token.is_some(),
                message,
            }),
            408 | 429 | 500.. => {
                Failure::Later(format!("status {status}{}", crate::said(&message)), wait)
            }
            _ => Failure::Never(Error::Unreachable {
                what,
                endpoint,
                cause: format!("status {status}{}", crate::said(&message)),
            }),
        })
    }

    /// Resumes a file where it was left. Succeeds with the complete file in `part`.
    fn transfer(
        &self,
        url: &str,
        name: &str,
        size: u64,
        part: &Path,
        progress: &mut dyn Progress,
    ) -> Result<(), Failure> {
        let never = |action: &'static str| {
            let part = part.to_owned();
            move |cause| {
                Failure::Never(Error::Io {
                    action,
                    file: part,
                    cause,
                })
            }
        };
        let mut file = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(part)
            .map_err(never("open"))?;
        let mut done = file.metadata().map_err(never("read"))?.len();
        if done > size {
            file.set_len(0).map_err(never("write"))?;
            done = 0;
        }
        if done < size {
            let range: Vec<(&str, String)> = (done > 0)
                .then(|| ("Range", format!("bytes={done}-")))
                .into_iter()
                .collect();
            let mut answer = self.get(&self.agent, url, &range, Some(name))?;
            if answer.status().as_u16() == 416 {
                file.set_len(0).map_err(never("write"))?;
                return Err(Failure::Later(
                    "the server refuses the rest".to_owned(),
                    None,
                ));
            }
            if answer.status().as_u16() != 206 && done > 0 {
                file.set_len(0).map_err(never("write"))?;
                done = 0;
            }
            progress.begin(name, done, size);
            let mut body = answer.body_mut().as_reader();
            let mut buffer = vec![0; BUFFER];
            loop {
                let read = body
                    .read(&mut buffer)
                    .map_err(|it| Failure::Later(it.to_string(), None))?;
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
            return Err(Failure::Later(
                format!("expected {size} bytes, got {done}"),
                None,
            ));
        }
        file.sync_all().map_err(never("write"))
    }

    fn again_and_again<T>(
        &self,
        name: Option<&str>,
        progress: &mut dyn Progress,
        mut attempt: impl FnMut(&mut dyn Progress) -> Result<T, Failure>,
    ) -> Result<T, Error> {
        let attempts = match name {
            Some(_) => ATTEMPTS,
            None => FIRST_ATTEMPTS,
        };
        let mut wait = self.hub.backoff;
        let mut made = 0;
        loop {
            made += 1;
            match attempt(progress) {
                Ok(it) => return Ok(it),
                Err(Failure::Never(it)) => return Err(it),
                Err(Failure::Later(cause, asked)) => {
                    if made == attempts {
                        return Err(Error::Unreachable {
                            what: self.what(name),
                            endpoint: self.hub.endpoint.clone(),
                            cause,
                        });
                    }
                    let this = asked.unwrap_or(wait).min(LONGEST_WAIT);
                    progress.note(&format!(
                        "{}: {cause}; again in {:.1} s",
                        self.what(name),
                        this.as_secs_f64()
                    ));
                    std::thread::sleep(this);
                    wait *= 2;
                }
            }
        }
    }
}

fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// The reason in the body of an answer that is an error: the field `error`, or a short text.
fn body_message(answer: &mut Response<Body>) -> String {
    let text = answer
        .body_mut()
        .with_config()
        .limit(64 << 10)
        .read_to_string()
        .unwrap_or_default();
    let text = match serde_json::from_str::<Value>(&text) {
        Ok(fields) => fields["error"].as_str().unwrap_or_default().to_owned(),
        Err(_) if text.contains('<') => String::new(),
        Err(_) => text,
    };
    text.trim().chars().take(300).collect()
}

/// Percent signs for what is not plain in a path of an address.
fn escaped(path: &str) -> String {
    path.bytes()
        .map(|b| {
            if b.is_ascii_alphanumeric() || b"-_.~/".contains(&b) {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect()
}

fn create_folder_of(file: &Path) -> Result<(), Error> {
    let folder = file.parent().expect("a file of the cache lies in a folder");
    fs::create_dir_all(folder).map_err(io("create", folder))
}

/// `pointer` (`snapshots/COMMIT/NAME`) leads to `blob` (`blobs/ETAG`), relatively: a cache can be moved.
#[cfg(unix)]
fn link(blob: &Path, pointer: &Path, name: &str) -> Result<(), Error> {
    let up = "../".repeat(2 + name.matches('/').count());
    let etag = blob.file_name().expect("a blob has a name");
    let target = Path::new(&up).join("blobs").join(etag);
    match std::os::unix::fs::symlink(target, pointer) {
        Err(it) if it.kind() != std::io::ErrorKind::AlreadyExists => Err(io("link", pointer)(it)),
        _ => Ok(()),
    }
}

#[cfg(not(unix))]
fn link(blob: &Path, pointer: &Path, _: &str) -> Result<(), Error> {
    fs::copy(blob, pointer)
        .map(drop)
        .map_err(io("write", pointer))
}

fn io(action: &'static str, file: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let file = file.to_owned();
    move |cause| Error::Io {
        action,
        file,
        cause,
    }
}
