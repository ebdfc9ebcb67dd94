//! A folder's files to the hub, as one commit.
//!
//! The addresses are those of `huggingface_hub`: the repository is created if missing, the hub chooses the files for
//! LFS, those are sent first, and a commit names all of them. Files that LFS already has are not sent again, so
//! repeating an interrupted push costs only the rest.

use crate::http::ureq::http::Response;
use crate::http::{Retries, may_pass, ureq, ureq::Agent, ureq::Body, ureq::SendBody};
use crate::hub::fetch::{agent, hashed};
use crate::hub::request::{self, refusal};
use crate::hub::{Failure, Hub, HubError, Progress, RepoId, Result, io};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hapo_core::Refusal;
use serde_json::{Value, json};
use std::io::{Read, Seek, SeekFrom};
use std::{fs::File, path::PathBuf};

/// Bytes of a file that the hub uses to recognise it.
const SAMPLE: u64 = 512;
const MAX_ANSWER: u64 = 16 << 20;
const ATTEMPTS: u32 = 5;
const LFS: &str = "application/vnd.git-lfs+json";

#[derive(Clone, Debug)]
pub struct Upload {
    pub path: String,
    pub file: PathBuf,
}

#[derive(Clone, Debug)]
pub struct PushSettings {
    pub private: bool,
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pushed {
    pub url: String,
    pub commit: String,
    pub sent: u64,
}

struct Described<'a> {
    upload: &'a Upload,
    size: u64,
    oid: String,
    sample: Vec<u8>,
}

struct Pusher<'a> {
    hub: &'a Hub,
    repo: &'a RepoId,
    agent: Agent,
}

impl Hub {
    /// Commits `files` to a model repository, which is made where there is none.
    pub fn push(
        &self,
        repo: &RepoId,
        files: &[Upload],
        settings: &PushSettings,
        progress: &mut dyn Progress,
    ) -> Result<Pushed> {
        let pusher = Pusher { hub: self, repo, agent: agent(&self.endpoint, 0) };
        if self.offline {
            return Err(pusher.failed(None, "HF_HUB_OFFLINE is set"));
        }
        if self.token.is_none() {
            return Err(pusher.failed(Some(401), "there is no token"));
        }
        let described = files.iter().map(describe).collect::<Result<Vec<_>, _>>()?;
        pusher.create(settings.private, progress)?;
        let in_lfs = pusher.wanted_in_lfs(&described, progress)?;
        let large: Vec<&Described<'_>> =
            described.iter().filter(|it| in_lfs.contains(&it.upload.path)).collect();
        let sent = pusher.send_large(&large, progress)?;
        let (url, commit) = pusher.commit(&described, &in_lfs, settings, progress)?;
        Ok(Pushed { url, commit, sent })
    }

    pub(crate) fn authorised<B>(
        &self,
        request: ureq::RequestBuilder<B>,
    ) -> ureq::RequestBuilder<B> {
        match &self.token {
            Some(token) => request.header("Authorization", format!("Bearer {token}")),
            None => request,
        }
    }
}

/// Reads a file once: its size, its digest, its first bytes.
fn describe(upload: &Upload) -> Result<Described<'_>> {
    let mut sample = Vec::new();
    let mut file = File::open(&upload.file).map_err(io("open", &upload.file))?;
    let read = file.by_ref().take(SAMPLE).read_to_end(&mut sample);
    let (rest, oid) =
        read.and_then(|_| hashed(&sample, &mut file)).map_err(io("read", &upload.file))?;
    Ok(Described { upload, size: sample.len() as u64 + rest, oid, sample })
}

impl Pusher<'_> {
    fn create(&self, private: bool, progress: &mut dyn Progress) -> Result<()> {
        let (organization, name) = self.repo.id.split_once('/').unwrap_or(("", &self.repo.id));
        let body = json!({ "name": name, "organization": organization, "private": private });
        let url = format!("{}/api/repos/create", self.hub.endpoint);
        let Err(refusal) = self.post(&url, "application/json", &body, progress) else {
            return Ok(());
        };
        match refusal.cause() {
            // It is there.
            Some(HubError::NotPushed { status: Some(409), .. }) => Ok(()),
            // A token that may not make a repository may still write to one that is there.
            Some(HubError::NotPushed { status: Some(403), .. }) => {
                let url = format!("{}/api/models/{}", self.hub.endpoint, self.repo.id);
                let is_there =
                    self.retried(progress, || Ok(self.hub.authorised(self.agent.get(&url)).call()));
                is_there.map(drop).map_err(|_| refusal)
            }
            _ => Err(refusal),
        }
    }

    /// The paths that go to LFS; ignored ones are an error, since nobody wants a model without one of its files.
    fn wanted_in_lfs(
        &self,
        files: &[Described<'_>],
        progress: &mut dyn Progress,
    ) -> Result<Vec<String>> {
        let of = |it: &Described<'_>| json!({ "path": it.upload.path, "sample": STANDARD.encode(&it.sample), "size": it.size });
        let body = json!({ "files": files.iter().map(of).collect::<Vec<_>>() });
        let url = self.api("preupload");
        let answer = self.post(&url, "application/json", &body, progress)?;
        let modes = answer["files"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut in_lfs = Vec::new();
        for file in files {
            let path = &file.upload.path;
            let mode = modes.iter().find(|it| it["path"] == path.as_str());
            match mode.map(|it| (it["uploadMode"].as_str(), it["shouldIgnore"] == true)) {
                Some((Some("regular"), false)) => {}
                Some((Some("lfs"), false)) => in_lfs.push(path.clone()),
                Some((_, true)) => {
                    return Err(self.failed(None, &format!("its .gitignore names {path}")));
                }
                _ => {
                    let problem = format!("it does not say how {path} is to be sent ({url})");
                    return Err(self.failed(None, &problem));
                }
            }
        }
        Ok(in_lfs)
    }

    /// Sends the files that LFS lacks; returns their bytes.
    fn send_large(&self, files: &[&Described<'_>], progress: &mut dyn Progress) -> Result<u64> {
        if files.is_empty() {
            return Ok(0);
        }
        let objects: Vec<Value> =
            files.iter().map(|it| json!({ "oid": it.oid, "size": it.size })).collect();
        let body = json!({
            "operation": "upload", "transfers": ["basic", "multipart"], "objects": objects,
            "hash_algo": "sha256", "ref": { "name": self.repo.revision },
        });
        let url = format!("{}/{}.git/info/lfs/objects/batch", self.hub.endpoint, self.repo.id);
        let answer = self.post(&url, LFS, &body, progress)?;
        let objects = answer["objects"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut sent = 0;
        for file in files {
            let path = &file.upload.path;
            let Some(object) = objects.iter().find(|it| it["oid"] == file.oid.as_str()) else {
                return Err(self.failed(None, &format!("its LFS does not speak of {path} ({url})")));
            };
            if let Some(message) = object["error"]["message"].as_str() {
                return Err(self.failed(None, &format!("its LFS refuses {path}: {message}")));
            }
            if let Some(href) = object["actions"]["upload"]["href"].as_str() {
                progress.begin(path, 0, file.size);
                let header = &object["actions"]["upload"]["header"];
                let done = self.send(file, href, header, progress);
                progress.end();
                done?;
                sent += file.size;
            }
            if let Some(href) = object["actions"]["verify"]["href"].as_str() {
                let body = json!({ "oid": file.oid, "size": file.size });
                self.post(href, LFS, &body, progress)?;
            }
        }
        Ok(sent)
    }

    /// Sends one file, in parts where the hub wants parts.
    fn send(
        &self,
        file: &Described<'_>,
        href: &str,
        header: &Value,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let chunk = &header["chunk_size"];
        let chunk = chunk.as_str().and_then(|it| it.parse().ok()).or_else(|| chunk.as_u64());
        let Some(chunk) = chunk.filter(|it| *it > 0) else {
            return self.put(file, href, 0, file.size, progress).map(drop);
        };
        let parts = file.size.div_ceil(chunk);
        let mut etags = Vec::new();
        for part in 0..parts {
            // The hub writes the numbers with leading zeros or without.
            let is_it = |name: &str| name.parse::<u64>().is_ok_and(|it| it == part + 1);
            let url = header.as_object().and_then(|it| it.iter().find(|(name, _)| is_it(name)));
            let Some(url) = url.and_then(|it| it.1.as_str()) else {
                let (path, number) = (&file.upload.path, part + 1);
                return Err(self.failed(None, &format!("no address for part {number} of {path}")));
            };
            let (from, size) = (part * chunk, chunk.min(file.size - part * chunk));
            let answer = self.put(file, url, from, size, progress)?;
            let etag = request::header(answer.headers(), "etag").unwrap_or_default().to_owned();
            etags.push(json!({ "partNumber": part + 1, "etag": etag }));
        }
        self.post(href, LFS, &json!({ "oid": file.oid, "parts": etags }), progress).map(drop)
    }

    /// Sends bytes of a file to where LFS wants them. That address is signed: the token is not for it.
    fn put(
        &self,
        file: &Described<'_>,
        url: &str,
        from: u64,
        size: u64,
        progress: &mut dyn Progress,
    ) -> Result<Response<Body>> {
        let path = &file.upload.file;
        let answer = self.retried(progress, || {
            let mut reader = File::open(path).map_err(io("open", path))?;
            reader.seek(SeekFrom::Start(from)).map_err(io("read", path))?;
            let mut part = reader.take(size);
            let request = self.agent.put(url).header("Content-Length", size.to_string());
            Ok(request.send(SendBody::from_reader(&mut part)))
        })?;
        progress.advance(size);
        Ok(answer)
    }

    fn commit(
        &self,
        files: &[Described<'_>],
        in_lfs: &[String],
        settings: &PushSettings,
        progress: &mut dyn Progress,
    ) -> Result<(String, String)> {
        let header = json!({ "summary": settings.message, "description": "" });
        let mut lines = json!({ "key": "header", "value": header }).to_string() + "\n";
        for it in files {
            let path = &it.upload.path;
            let line = if in_lfs.contains(path) {
                let value =
                    json!({ "path": path, "algo": "sha256", "oid": it.oid, "size": it.size });
                json!({ "key": "lfsFile", "value": value })
            } else {
                let file = &it.upload.file;
                let content = STANDARD.encode(std::fs::read(file).map_err(io("read", file))?);
                let value = json!({ "content": content, "path": path, "encoding": "base64" });
                json!({ "key": "file", "value": value })
            };
            lines += &format!("{line}\n");
        }
        let url = self.api("commit");
        let mut answer = self.retried(progress, || {
            let request = self.hub.authorised(self.agent.post(&url));
            Ok(request.header("Content-Type", "application/x-ndjson").send(lines.as_bytes()))
        })?;
        let answer = self.json(&mut answer, &url)?;
        let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
        Ok((text("commitUrl"), text("commitOid")))
    }

    fn api(&self, what: &str) -> String {
        let RepoId { id, revision } = self.repo;
        let revision = revision.replace('/', "%2F");
        format!("{}/api/models/{id}/{what}/{revision}", self.hub.endpoint)
    }

    fn post(
        &self,
        url: &str,
        kind: &str,
        body: &Value,
        progress: &mut dyn Progress,
    ) -> Result<Value> {
        let body = body.to_string();
        // An address that the hub names may lie elsewhere: the token is for the hub alone.
        let is_hubs = url.strip_prefix(&self.hub.endpoint).is_some_and(|it| it.starts_with('/'));
        let mut answer = self.retried(progress, || {
            let request = self.agent.post(url);
            let request = if is_hubs { self.hub.authorised(request) } else { request };
            let request = request.header("Content-Type", kind).header("Accept", kind);
            Ok(request.send(body.as_bytes()))
        })?;
        self.json(&mut answer, url)
    }

    /// An answer as JSON; an empty one is null.
    fn json(&self, answer: &mut Response<Body>, url: &str) -> Result<Value> {
        let bytes = answer.body_mut().with_config().limit(MAX_ANSWER).read_to_vec();
        let bytes = bytes.map_err(|it| self.failed(None, &it.to_string()))?;
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Ok(Value::Null);
        }
        // LFS may answer a verification with a word.
        match serde_json::from_slice(&bytes) {
            Ok(it) => Ok(it),
            Err(_) if bytes.len() < 64 => Ok(Value::Null),
            Err(it) => {
                Err(self.failed(None, &format!("an answer that cannot be read: {it} ({url})")))
            }
        }
    }

    /// Asks until there is an answer that is one.
    fn retried(
        &self,
        progress: &mut dyn Progress,
        mut ask: impl FnMut() -> Result<Result<Response<Body>, ureq::Error>>,
    ) -> Result<Response<Body>> {
        let retries = Retries { attempts: ATTEMPTS, first_wait: self.hub.backoff };
        let mut status = None;
        let answer = retries.run(
            progress,
            |_| {
                status = None;
                let asked = ask().map_err(Failure::Never)?;
                let mut answer = asked.map_err(|it| Failure::Later(it.to_string(), None))?;
                let refused = answer.status().as_u16();
                if refused < 400 {
                    return Ok(answer);
                }
                let (message, wait) = refusal(&mut answer);
                status = Some(refused);
                Err(if may_pass(refused) {
                    Failure::Later(message, wait)
                } else {
                    Failure::Never(self.failed(status, &message))
                })
            },
            |progress, cause, pause| {
                let cause = self.hub.clean(cause);
                progress.note(&format!("waiting {:.0} s: {cause}", pause.as_secs_f64()));
            },
        );
        answer.map_err(|failure| match failure {
            Failure::Never(error) => error,
            Failure::Later(cause, _) => self.failed(status, &cause),
        })
    }

    fn failed(&self, status: Option<u16>, cause: &str) -> Refusal {
        self.hub.not_pushed(self.repo, status, cause)
    }
}
