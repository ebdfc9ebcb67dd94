//! One repository at one revision: its listing, and how its files come into the cache.

use crate::http::{Retries, ureq::Agent, ureq::config::RedirectAuthHeaders};
use crate::hub::{Failure, Hub, HubError, Progress, RepoId, Result, Snapshot, io};
use crate::hub::{id::is_plain_path, names::is_data_file};
use hapo_core::{Refusal, found_at, if_there};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::{io::Read, time::Duration};

/// How often a request for a file is made in all, where it may succeed later.
const ATTEMPTS: u32 = 6;
/// The same for the first request: without a network the cache should not be long in coming.
const FIRST_ATTEMPTS: u32 = 3;
const MAX_ANSWER: u64 = 64 << 20;
/// The characters of a file's path that are escaped in an address.
const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// The commit of a revision and the names of its files.
type Listing = (String, Vec<String>);

/// Why the hub has given no answer.
pub(crate) enum Absent {
    Offline,
    Unreachable(String),
}

pub(crate) struct Fetcher<'a> {
    pub(crate) hub: &'a Hub,
    id: &'a RepoId,
    /// `models` or `datasets`.
    kind: &'static str,
    /// Answers with errors as they are, and follows redirects.
    pub(crate) agent: Agent,
    /// As `agent`, and shows redirects: the headers of a file are on the first answer.
    pub(crate) first_answer: Agent,
}

pub(crate) fn agent(endpoint: &str, redirects: u32) -> Agent {
    crate::http::config(endpoint.starts_with("https:"))
        .max_redirects(redirects)
        .max_redirects_will_error(redirects > 0)
        .redirect_auth_headers(RedirectAuthHeaders::SameHost)
        // Sizes and resumed transfers count the file's own bytes.
        .accept_encoding("identity")
        .timeout_connect(Some(Duration::from_secs(20)))
        .timeout_recv_response(Some(Duration::from_mins(1)))
        .timeout_per_read(Some(Duration::from_mins(1)))
        .build()
        .new_agent()
}

impl<'a> Fetcher<'a> {
    pub(crate) fn new(hub: &'a Hub, id: &'a RepoId, kind: &'static str) -> Self {
        let agent = |redirects| agent(&hub.endpoint, redirects);
        Self { hub, id, kind, agent: agent(8), first_answer: agent(0) }
    }

    /// The path of its pages: `OWNER/NAME`, for a data set below `datasets`.
    pub(crate) fn page(&self) -> String {
        let above = if self.kind == "models" { "" } else { "datasets/" };
        format!("{above}{}", self.id.id)
    }

    fn listing_url(&self) -> String {
        let RepoId { id, revision } = self.id;
        let (endpoint, revision) = (&self.hub.endpoint, revision.replace('/', "%2F"));
        format!("{endpoint}/api/{}/{id}/revision/{revision}", self.kind)
    }

    /// `models--OWNER--NAME`.
    fn folder_name(&self) -> String {
        format!("{}--{}", self.kind, self.id.id.replace('/', "--"))
    }

    /// The commit of a revision is in `refs`, bytes by their etag in `blobs`, the files of a commit, which lead to blobs,
    /// in `snapshots`. `.listings` has our own notes of a commit's data files: `huggingface_hub` does not look there.
    fn in_cache(&self, part: &str, name: &str) -> PathBuf {
        self.hub.cache.join(self.folder_name()).join(part).join(name)
    }

    /// Fetches files of a commit and notes the revision; gives the commit's folder.
    pub(crate) fn fetch(
        &self,
        commit: &str,
        files: &[&str],
        progress: &mut dyn Progress,
    ) -> Result<PathBuf> {
        for name in files {
            self.file(commit, name, progress)?;
        }
        // A commit needs no note.
        if self.id.revision != commit {
            let path = self.in_cache("refs", &self.id.revision);
            create_folder_of(&path)?;
            fs::write(&path, commit).map_err(io("write", &path))?;
        }
        Ok(self.in_cache("snapshots", commit))
    }

    pub(crate) fn what(&self, file: Option<&str>) -> String {
        file.map_or_else(|| self.id.to_string(), |file| format!("{}/{file}", self.id))
    }

    /// The listing, or why there is none.
    pub(crate) fn listing(&self, progress: &mut dyn Progress) -> Result<Result<Listing, Absent>> {
        if self.hub.offline {
            return Ok(Err(Absent::Offline));
        }
        let url = self.listing_url();
        let found = self.with_retries(None, progress, |_| {
            let mut answer = self.get(&url, 0, None)?;
            let text = answer.body_mut().with_config().limit(MAX_ANSWER).read_to_vec();
            let text = text.map_err(|it| Failure::Later(it.to_string(), None))?;
            let malformed = |got: String| {
                let what = self.what(None);
                let text = format!("{what} has no listing that can be read: {got} ({url})");
                Failure::Never(Refusal::input(self.hub.clean(&text)))
            };
            let fields: Value =
                serde_json::from_slice(&text).map_err(|it| malformed(it.to_string()))?;
            let commit = fields["sha"].as_str().unwrap_or_default();
            let is_commit = !commit.is_empty() && commit.bytes().all(|b| b.is_ascii_alphanumeric());
            let siblings = fields["siblings"].as_array().filter(|_| is_commit);
            let siblings =
                siblings.ok_or_else(|| malformed("expected sha and siblings".to_owned()))?;
            let names = siblings.iter().filter_map(|it| it["rfilename"].as_str());
            Ok((commit.to_owned(), names.map(str::to_owned).collect()))
        });
        match found {
            Ok(listing) => Ok(Ok(listing)),
            Err(refusal) => match refusal.cause() {
                Some(HubError::Unreachable(why)) => Ok(Err(Absent::Unreachable(why.clone()))),
                _ => Err(refusal),
            },
        }
    }

    /// The snapshot of the revision in the cache, where it is whole.
    pub(crate) fn cached(
        &self,
        is_whole: &dyn Fn(&Path) -> Result<bool>,
        why: &Absent,
        progress: &mut dyn Progress,
    ) -> Result<Snapshot> {
        let snapshot = match self.snapshot()? {
            Some(it) if is_whole(&it.folder)? => it,
            _ => return Err(self.absent(&self.what(None), why)),
        };
        self.note_cache(why, progress);
        Ok(snapshot)
    }

    /// The snapshot of the revision in the cache, which may have any part of it.
    pub(crate) fn snapshot(&self) -> Result<Option<Snapshot>> {
        let path = self.in_cache("refs", &self.id.revision);
        let commit = if_there(&path, fs::read_to_string(&path))?;
        let commit = commit.map_or_else(|| self.id.revision.clone(), |it| it.trim().to_owned());
        let is_name = is_plain_path(&commit) && !commit.contains('/');
        Ok(is_name.then(|| Snapshot { folder: self.in_cache("snapshots", &commit), commit }))
    }

    /// Says that the cache serves, where the hub should have.
    pub(crate) fn note_cache(&self, why: &Absent, progress: &mut dyn Progress) {
        if let Absent::Unreachable(_) = why {
            let what = self.what(None);
            let refusal = self.absent(&what, why);
            progress.note(&format!("{refusal}; taking {what} from the cache"));
        }
    }

    /// The error for what the cache lacks, while there is no hub.
    pub(crate) fn absent(&self, what: &str, why: &Absent) -> Refusal {
        match why {
            Absent::Offline => {
                let cache = self.hub.cache.display();
                let text =
                    format!("{what} is not in the cache ({cache}), and HF_HUB_OFFLINE is set");
                Refusal::input(text).hint("unset HF_HUB_OFFLINE once, or give a folder")
            }
            Absent::Unreachable(cause) => self.hub.unreachable(what, cause),
        }
    }

    /// Notes the data files of a commit in the cache: without the hub, a part of them is not taken for all.
    pub(crate) fn keep_listing(&self, commit: &str, names: &[String]) -> Result<()> {
        if self.kept_listing(commit)?.is_some() {
            return Ok(());
        }
        let path = self.in_cache(".listings", commit);
        let names: Vec<&String> = names.iter().filter(|it| is_data_file(it)).collect();
        let text = serde_json::to_vec(&names).expect("texts are JSON");
        // A cache that cannot be written may still have every file.
        let _ = create_folder_of(&path)
            .and_then(|()| fs::write(&path, text).map_err(io("write", &path)));
        Ok(())
    }

    pub(crate) fn kept_listing(&self, commit: &str) -> Result<Option<Vec<String>>> {
        let path = self.in_cache(".listings", commit);
        let text = if_there(&path, fs::read(&path))?;
        Ok(text.and_then(|text| serde_json::from_slice(&text).ok()))
    }

    /// The files of a dataset: the one that is named, the only one, or the training split's shards where in one folder.
    pub(crate) fn data_files<'n>(
        &self,
        path: Option<&'n str>,
        names: &'n [String],
    ) -> Result<Vec<&'n str>> {
        let content =
            |problem: String| Refusal::input(format!("{} has {problem}", self.what(None)));
        let data: Vec<&str> =
            names.iter().map(String::as_str).filter(|it| is_data_file(it)).collect();
        match (path, data.as_slice()) {
            (Some(path), _) if names.iter().any(|it| it == path) => Ok(vec![path]),
            (Some(path), _) => {
                Err(content(format!("no file {path}; its data files: {}", shown(&data))))
            }
            (None, [only]) => Ok(vec![only]),
            (None, all) if !training_shards(all).is_empty() => Ok(training_shards(all)),
            (None, []) => Err(content("no data file (parquet, jsonl, json or arrow)".to_owned())),
            (None, _) => Err(content(format!("several data files, name one: {}", shown(&data)))),
        }
    }

    /// A file of a commit in the cache, fetched where it is not there yet.
    fn file(&self, commit: &str, name: &str, progress: &mut dyn Progress) -> Result<()> {
        let pointer = self.in_cache("snapshots", commit).join(name);
        if found_at(&pointer)?.is_some() {
            return Ok(());
        }
        let (endpoint, escaped) = (&self.hub.endpoint, utf8_percent_encode(name, ESCAPED));
        let url = format!("{endpoint}/{}/resolve/{commit}/{escaped}", self.page());
        let described = self.with_retries(Some(name), progress, |_| self.describe(&url, name))?;
        if described.commit.as_deref().is_some_and(|it| it != commit) {
            let what = self.what(Some(name));
            return Err(Refusal::input(format!("{what} has changed while it was fetched")));
        }
        let blob = self.in_cache("blobs", &described.etag);
        let _lock = self.lock(&described.etag)?;
        if found_at(&blob)?.is_none_or(|it| it.len() != described.size) {
            create_folder_of(&blob)?;
            let part = blob.with_file_name(format!("{}.incomplete", described.etag));
            self.with_retries(Some(name), progress, |progress| {
                let done = self.transfer(&url, name, described.size, &part, progress);
                progress.end();
                done?;
                check_digest(&part, &described.etag)
            })?;
            fs::rename(&part, &blob).map_err(io("rename", &part))?;
        }
        create_folder_of(&pointer)?;
        link(&blob, &pointer, name)
    }

    /// Held while a blob is written; `huggingface_hub` takes the same lock.
    fn lock(&self, etag: &str) -> Result<File> {
        let path =
            self.hub.cache.join(".locks").join(self.folder_name()).join(format!("{etag}.lock"));
        create_folder_of(&path)?;
        let file = File::create(&path).map_err(io("create", &path))?;
        file.lock().map_err(io("lock", &path))?;
        Ok(file)
    }

    fn with_retries<T>(
        &self,
        name: Option<&str>,
        progress: &mut dyn Progress,
        mut attempt: impl FnMut(&mut dyn Progress) -> Result<T, Failure>,
    ) -> Result<T> {
        let attempts = if name.is_some() { ATTEMPTS } else { FIRST_ATTEMPTS };
        let retries = Retries { attempts, first_wait: self.hub.backoff };
        let done = retries.run(
            progress,
            |progress| attempt(progress),
            |progress, cause, pause| {
                let seconds = pause.as_secs_f64();
                let cause = self.hub.clean(cause);
                progress.note(&format!("{}: {cause}; again in {seconds:.1} s", self.what(name)));
            },
        );
        done.map_err(|failure| match failure {
            Failure::Never(error) => error,
            Failure::Later(cause, _) => self.hub.unreachable(&self.what(name), &cause),
        })
    }
}

/// Names in a message, a dozen of them.
pub(crate) fn shown<N: AsRef<str>>(names: &[N]) -> String {
    let first: Vec<&str> = names.iter().take(12).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(12) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// The files that begin with `train`, where all of them are in one folder.
fn training_shards<'n>(data: &[&'n str]) -> Vec<&'n str> {
    let parts = |it: &&'n str| it.rsplit_once('/').unwrap_or(("", it));
    let is_training = |it: &&&'n str| parts(it).1.starts_with("train");
    let shards: Vec<&str> = data.iter().filter(is_training).copied().collect();
    let folder = shards.first().map(|it| parts(it).0);
    if shards.iter().all(|it| Some(parts(it).0) == folder) { shards } else { Vec::new() }
}

/// The etag of a large file is its SHA-256; a small file's is git's and does not hash the bytes alone. A file with
/// another digest is deleted, so the next attempt starts anew.
fn check_digest(part: &Path, etag: &str) -> Result<(), Failure> {
    if etag.len() != 64 || !etag.bytes().all(|it| it.is_ascii_hexdigit()) {
        return Ok(());
    }
    let failed = |it| Failure::Never(io("read", part)(it));
    let (_, found) = File::open(part).and_then(|mut it| hashed(&[], &mut it)).map_err(failed)?;
    if found.eq_ignore_ascii_case(etag) {
        return Ok(());
    }
    fs::remove_file(part).map_err(|it| Failure::Never(io("remove", part)(it)))?;
    Err(Failure::Later("its bytes have another SHA-256 than the hub says".to_owned(), None))
}

/// The bytes that `file` still has, and the SHA-256 of `start` and these.
pub(crate) fn hashed(start: &[u8], file: &mut File) -> std::io::Result<(u64, String)> {
    let (mut hash, mut size) = (Sha256::new_with_prefix(start), 0);
    let mut piece = vec![0; 1 << 20];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok((size, hapo_core::hex(hash.finalize()))),
            Ok(n) => {
                hash.update(&piece[..n]);
                size += n as u64;
            }
            Err(it) if it.kind() == std::io::ErrorKind::Interrupted => {}
            Err(it) => return Err(it),
        }
    }
}

fn create_folder_of(file: &Path) -> Result<()> {
    let folder = file.parent().expect("a file of the cache lies in a folder");
    fs::create_dir_all(folder).map_err(io("create", folder))
}

/// `pointer` (`snapshots/COMMIT/NAME`) leads to `blob` (`blobs/ETAG`), relatively: a cache can be moved.
#[cfg(unix)]
fn link(blob: &Path, pointer: &Path, name: &str) -> Result<()> {
    let up = "../".repeat(2 + name.matches('/').count());
    let etag = blob.file_name().expect("a blob has a name");
    let target = Path::new(&up).join("blobs").join(etag);
    match std::os::unix::fs::symlink(target, pointer) {
        Err(it) if it.kind() != std::io::ErrorKind::AlreadyExists => Err(io("link", pointer)(it)),
        _ => Ok(()),
    }
}

#[cfg(not(unix))]
fn link(blob: &Path, pointer: &Path, _: &str) -> Result<()> {
    fs::copy(blob, pointer).map(drop).map_err(io("write", pointer))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `huggingface_hub` names them.
    #[test]
    fn names_are_those_of_the_shared_cache() {
        let id = RepoId { id: "owner/name".to_owned(), revision: "refs/pr/7".to_owned() };
        let (endpoint, cache) = ("https://hub".to_owned(), PathBuf::from("/hub"));
        let hub =
            Hub { endpoint, cache, token: None, offline: true, backoff: Duration::from_secs(1) };
        let model = Fetcher::new(&hub, &id, "models");
        assert_eq!(model.page(), "owner/name");
        let url = "https://hub/api/models/owner/name/revision/refs%2Fpr%2F7";
        assert_eq!(model.listing_url(), url);
        let path = PathBuf::from("/hub/models--owner--name/refs/refs/pr/7");
        assert_eq!(model.in_cache("refs", &id.revision), path);
        let dataset = Fetcher::new(&hub, &id, "datasets");
        assert_eq!(dataset.page(), "datasets/owner/name");
        let path = PathBuf::from("/hub/datasets--owner--name/snapshots/c");
        assert_eq!(dataset.in_cache("snapshots", "c"), path);
    }
}
