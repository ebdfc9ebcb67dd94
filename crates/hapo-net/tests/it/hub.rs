//! The client against a real server on the loopback address that has the hub's addresses and headers,
//! and that can be told to misbehave.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, Response, header};
use futures_util::{StreamExt, stream};
use hapo_core::Refusal;
use hapo_net::hub::{DatasetFile, Hub, Progress, PushSettings, RepoId};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A repository and how it is served.
#[derive(Default)]
struct Repository {
    files: BTreeMap<String, Vec<u8>>,
    /// Faults that the next requests for contents or listings meet, in order.
    faults: Vec<Fault>,
    /// Every request: method, path, `Range`, `Authorization`.
    seen: Vec<String>,
    /// The token without which nothing is shown.
    token: Option<&'static str>,
    is_gated: bool,
    /// The etag of every file, instead of one of its content.
    etag: Option<String>,
}

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    Status(u16),
    /// The connection ends after this many bytes of the content.
    Cut(usize),
    /// The range is passed over: the whole file with status 200.
    NoRange,
}

type Shared = Arc<Mutex<Repository>>;

struct NoProgress;

impl Progress for NoProgress {
    fn begin(&mut self, _: &str, _: u64, _: u64) {}
    fn advance(&mut self, _: u64) {}
    fn end(&mut self) {}
    fn note(&mut self, _: &str) {}
}

fn plain(status: u16, text: &'static str) -> Response<Body> {
    Response::builder().status(status).header("retry-after", "0").body(Body::from(text)).unwrap()
}

async fn handle(State(shared): State<Shared>, request: Request) -> Response<Body> {
    let mut repository = shared.lock().unwrap();
    let path = request.uri().path().to_owned();
    let text = |headers: &HeaderMap, name| -> String {
        let value = headers.get(name).and_then(|it| it.to_str().ok());
        value.unwrap_or("-").to_owned()
    };
    let range = text(request.headers(), header::RANGE);
    let token = text(request.headers(), header::AUTHORIZATION);
    let is_head = request.method() == Method::HEAD;
    let seen = format!("{} {path} {range} {token}", request.method());
    repository.seen.push(seen);

    if path.starts_with("/cdn/") {
        // Files of LFS lie elsewhere.
        assert!(!is_head);
    } else if let Some(wanted) = repository.token
        && token != format!("Bearer {wanted}")
    {
        return plain(401, "{\"error\": \"Invalid credentials\"}");
    }
    if repository.is_gated {
        return Response::builder()
            .status(403)
            .header("x-error-message", "Access to model org/name is restricted.")
            .body(Body::empty())
            .unwrap();
    }
    if !is_head
        && path.starts_with("/cdn/")
        && let Some(Fault::Status(status)) = repository.faults.first().copied()
    {
        repository.faults.remove(0);
        return plain(status, "busy");
    }
    for kind in ["/api/models/org/name", "/api/datasets/org/name"] {
        if path == format!("{kind}/revision/main") || path == format!("{kind}/revision/v1") {
            let siblings: Vec<String> =
                repository.files.keys().map(|it| format!("{{\"rfilename\": \"{it}\"}}")).collect();
            let body = format!("{{\"sha\": \"{COMMIT}\", \"siblings\": [{}]}}", siblings.join(","));
            return Response::new(Body::from(body));
        }
    }
    let name = ["/org/name/resolve/", "/datasets/org/name/resolve/", "/cdn/"]
        .iter()
        .find_map(|it| path.strip_prefix(it)?.strip_prefix(COMMIT)?.strip_prefix('/'));
    let Some((name, content)) =
        name.and_then(|name| Some((name.to_owned(), repository.files.get(name)?.clone())))
    else {
        return plain(404, "{\"error\": \"Repository not found\"}");
    };
    let own = || format!("{:x}", content.len() * 7919 + usize::from(content[0]));
    let etag = repository.etag.clone().unwrap_or_else(own);
    let mut answer = Response::builder().header("x-repo-commit", COMMIT);
    if [".safetensors", ".parquet"].iter().any(|it| name.ends_with(it))
        && !path.starts_with("/cdn/")
    {
        return answer
            .status(302)
            .header(
                "location",
                format!(
                    "http://{}/cdn/{COMMIT}/{name}",
                    text(request.headers(), header::HOST).replace("127.0.0.1", "localhost")
                ),
            )
            .header("x-linked-etag", format!("\"{etag}\""))
            .header("x-linked-size", content.len())
            .body(Body::empty())
            .unwrap();
    }
    answer = answer.header("etag", format!("W/\"{etag}\""));
    if is_head {
        return answer.header("content-length", content.len()).body(Body::empty()).unwrap();
    }
    let fault = repository.faults.first().copied();
    let from: usize =
        range.strip_prefix("bytes=").map_or(0, |it| it.trim_end_matches('-').parse().unwrap());
    let (from, status) = match (fault, from) {
        (Some(Fault::NoRange), 1..) => {
            repository.faults.remove(0);
            (0, 200)
        }
        (_, 0) => (0, 200),
        _ => (from, 206),
    };
    answer = answer.status(status).header("content-length", content.len() - from);
    if let Some(Fault::Cut(bytes)) = fault {
        repository.faults.remove(0);
        let part = Bytes::copy_from_slice(&content[from..from + bytes]);
        let cut = async {
            // Earlier bytes must reach the client first.
            tokio::time::sleep(Duration::from_millis(50)).await;
            Err(std::io::Error::other("cut"))
        };
        let pieces = stream::once(async { Ok(part) }).chain(stream::once(cut));
        return answer.body(Body::from_stream(pieces)).unwrap();
    }
    answer.body(Body::from(content[from..].to_vec())).unwrap()
}

/// A server and a cache of its own.
struct World {
    shared: Shared,
    hub: Hub,
    _cache: tempfile::TempDir,
    _runtime: tokio::runtime::Runtime,
}

fn world(files: &[(&str, &[u8])]) -> World {
    let shared = Shared::default();
    shared.lock().unwrap().files =
        files.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec())).collect();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(handle).with_state(shared.clone());
    runtime.spawn(async move { axum::serve(listener, router).await });
    let cache = tempfile::tempdir().unwrap();
    World {
        shared,
        hub: Hub {
            endpoint,
            cache: cache.path().join("hub"),
            token: None,
            offline: false,
            backoff: Duration::from_millis(1),
        },
        _cache: cache,
        _runtime: runtime,
    }
}

const MODEL: &[(&str, &[u8])] = &[
    ("README.md", b"read me"),
    ("chat_template.jinja", b"{{ messages }}"),
    ("config.json", b"{}"),
    ("model-00001-of-00002.safetensors", b"first shard, long enough to be cut"),
    ("model-00002-of-00002.safetensors", b"second shard"),
    ("model.safetensors.index.json", b"{\"weight_map\": {}}"),
    ("onnx/model.safetensors", b"not this one"),
    ("original/consolidated.pth", b"nor this"),
    ("pytorch_model.bin", b"nor that"),
    ("tokenizer.json", b"{\"model\": {}}"),
];

fn id(revision: &str) -> RepoId {
    RepoId { id: "org/name".to_owned(), revision: revision.to_owned() }
}

fn seen(world: &World) -> Vec<String> {
    std::mem::take(&mut world.shared.lock().unwrap().seen)
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    names
}

#[test]
fn a_model_is_fetched_once_with_what_it_needs_and_in_the_layout_of_the_cache() {
    let world = world(MODEL);
    let snapshot = world.hub.model(&id("v1"), &mut NoProgress).unwrap();
    assert_eq!(snapshot.commit, COMMIT);
    let repository = world.hub.cache.join("models--org--name");
    assert_eq!(snapshot.folder, repository.join("snapshots").join(COMMIT));
    assert_eq!(
        names(&snapshot.folder),
        [
            "chat_template.jinja",
            "config.json",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json",
            "tokenizer.json",
        ]
    );
    for name in names(&snapshot.folder) {
        let content = MODEL.iter().find(|it| it.0 == name).unwrap().1;
        assert_eq!(fs::read(snapshot.folder.join(&name)).unwrap(), content);
        let target = fs::read_link(snapshot.folder.join(&name)).unwrap();
        assert!(target.starts_with("../../blobs"), "{}", target.display());
    }
    assert_eq!(names(&repository.join("blobs")).len(), 6);
    assert_eq!(fs::read_to_string(repository.join("refs/v1")).unwrap(), COMMIT);

    seen(&world);
    assert_eq!(world.hub.model(&id("v1"), &mut NoProgress).unwrap(), snapshot);
    assert_eq!(seen(&world), ["GET /api/models/org/name/revision/v1 - -"]);

    let offline = Hub { offline: true, ..world.hub.clone() };
    assert_eq!(offline.model(&id("v1"), &mut NoProgress).unwrap(), snapshot);
    assert_eq!(offline.model(&id(COMMIT), &mut NoProgress).unwrap(), snapshot);
    assert_eq!(seen(&world), [""; 0]);
    let error = offline.model(&id("main"), &mut NoProgress).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "org/name is not in the cache ({}), and HF_HUB_OFFLINE is set",
            world.hub.cache.display()
        )
    );
    assert!(error.is_bad_input() && error.how_to_mend().is_some());
}

#[derive(Default)]
struct Notes {
    begun: Vec<(String, u64, u64)>,
    bytes: u64,
    told: Vec<String>,
}

impl Progress for Notes {
    fn begin(&mut self, file: &str, done: u64, total: u64) {
        self.begun.push((file.to_owned(), done, total));
    }
    fn advance(&mut self, bytes: u64) {
        self.bytes += bytes;
    }
    fn end(&mut self) {}
    fn note(&mut self, text: &str) {
        self.told.push(text.to_owned());
    }
}

const LARGE: &[u8] = b"a file of LFS that is long enough to be cut twice";

/// Fetches a file under faults; returns the notes and the requested ranges.
fn fetch(faults: &[Fault]) -> (World, Notes, Vec<String>, Result<std::path::PathBuf, Refusal>) {
    let world = world(&[("data/train.parquet", LARGE), ("README.md", b"read me")]);
    world.shared.lock().unwrap().faults = faults.to_vec();
    let wanted = DatasetFile { repo: id("main"), path: None };
    let mut notes = Notes::default();
    let fetched = world.hub.dataset(&wanted, &mut notes);
    let ranges = seen(&world)
        .into_iter()
        .filter(|it| it.starts_with("GET /cdn/"))
        .map(|it| it.split(' ').nth(2).unwrap().to_owned())
        .collect();
    (world, notes, ranges, fetched)
}

fn check_fetched(faults: &[Fault], ranges: &[&str], begun_at: &[u64]) {
    let (world, notes, asked, path) = fetch(faults);
    let path = path.unwrap();
    assert_eq!(fs::read(&path).unwrap(), LARGE);
    assert_eq!(asked, ranges);
    let begun: Vec<u64> = notes.begun.iter().map(|it| it.1).collect();
    assert_eq!(begun, begun_at);
    assert!(notes.begun.iter().all(|it| it.2 == LARGE.len() as u64));
    assert_eq!(notes.told.len(), faults.len() - usize::from(faults.contains(&Fault::NoRange)));
    let blobs = world.hub.cache.join("datasets--org--name/blobs");
    assert_eq!(names(&blobs).len(), 1, "nothing unfinished stays");
    assert!(path.ends_with(format!("snapshots/{COMMIT}/data/train.parquet")));
}

#[test]
fn a_cut_transfer_goes_on_where_it_was_cut() {
    check_fetched(&[], &["-"], &[0]);
    check_fetched(&[Fault::Cut(10), Fault::Cut(5)], &["-", "bytes=10-", "bytes=15-"], &[0, 10, 15]);
    check_fetched(
        &[Fault::Status(429), Fault::Cut(7), Fault::Status(503)],
        &["-", "-", "bytes=7-", "bytes=7-"],
        &[0, 7],
    );
    // A server that passes the range over sends the whole file.
    check_fetched(&[Fault::Cut(9), Fault::NoRange], &["-", "bytes=9-"], &[0, 0]);
    // A server that refuses a range is asked for the whole file.
    check_fetched(&[Fault::Cut(9), Fault::Status(416)], &["-", "bytes=9-", "-"], &[0, 0]);
}

#[test]
fn a_later_call_goes_on_with_what_an_earlier_one_left() {
    let faults = [&[Fault::Cut(11)][..], &[Fault::Status(500); 5]].concat();
    let (world, notes, ranges, failed) = fetch(&faults);
    assert_eq!(ranges.len(), 6);
    assert_eq!(notes.bytes, 11);
    let error = failed.unwrap_err();
    let endpoint = &world.hub.endpoint;
    assert_eq!(
        error.to_string(),
        format!("cannot fetch org/name/data/train.parquet from {endpoint}: status 500: busy")
    );
    assert!(!error.is_bad_input());
    let wanted = DatasetFile { repo: id("main"), path: Some("data/train.parquet".to_owned()) };
    let path = world.hub.dataset(&wanted, &mut NoProgress).unwrap();
    assert_eq!(fs::read(path).unwrap(), LARGE);
    let asked: Vec<String> = seen(&world);
    assert!(asked.last().unwrap().contains("bytes=11-"), "{asked:?}");
}

#[test]
fn the_token_goes_to_the_hub_alone_and_refusals_say_what_to_do() {
    let mut world = world(MODEL);
    world.shared.lock().unwrap().token = Some("secret");
    let error = world.hub.model(&id("main"), &mut NoProgress).unwrap_err();
    let endpoint = world.hub.endpoint.clone();
    assert_eq!(
        error.to_string(),
        format!("{endpoint} refuses org/name (401): Invalid credentials")
    );
    assert_eq!(
        error.how_to_mend().unwrap().to_string(),
        "set HF_TOKEN, or log in with `hf auth login`"
    );

    world.hub.token = Some("secret".to_owned());
    seen(&world);
    world.hub.model(&id("main"), &mut NoProgress).unwrap();
    let asked = seen(&world);
    let (elsewhere, on_hub): (Vec<_>, Vec<_>) = asked.iter().partition(|it| it.contains("/cdn/"));
    assert_eq!(elsewhere.len(), 2);
    assert!(elsewhere.iter().all(|it| it.ends_with(" -")), "{asked:?}");
    assert!(on_hub.iter().all(|it| it.ends_with("Bearer secret")), "{asked:?}");

    world.shared.lock().unwrap().is_gated = true;
    let error = world.hub.model(&id("main"), &mut NoProgress).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("{endpoint} refuses org/name (403): Access to model org/name is restricted.")
    );
    assert_eq!(
        error.how_to_mend().unwrap().to_string(),
        format!("ask for access at {endpoint}/org/name with the account that the token belongs to")
    );
}

#[test]
fn what_is_not_there_is_named() {
    let world = world(&[("a.jsonl", b"1"), ("b/c.jsonl.gz", b"2"), ("config.json", b"{}")]);
    let message = |it: Refusal| it.to_string();
    let endpoint = world.hub.endpoint.clone();
    let other = RepoId { id: "org/nothing".to_owned(), revision: "dev".to_owned() };
    let absent = world.hub.model(&other, &mut NoProgress).unwrap_err();
    assert_eq!(
        message(absent),
        format!("org/nothing@dev is not on {endpoint}: Repository not found")
    );
    assert_eq!(
        message(world.hub.model(&id("main"), &mut NoProgress).unwrap_err()),
        "org/name has no tokenizer.json"
    );
    let data = |path: Option<&str>| {
        let wanted = DatasetFile { repo: id("main"), path: path.map(str::to_owned) };
        world.hub.dataset(&wanted, &mut NoProgress)
    };
    assert_eq!(
        message(data(None).unwrap_err()),
        "org/name has several data files, name one: a.jsonl, b/c.jsonl.gz, config.json"
    );
    assert_eq!(
        message(data(Some("d.jsonl")).unwrap_err()),
        "org/name has no file d.jsonl; its data files: a.jsonl, b/c.jsonl.gz, config.json"
    );
    assert_eq!(fs::read(data(Some("b/c.jsonl.gz")).unwrap()).unwrap(), b"2");
}

#[test]
fn shards_of_the_training_split_come_together() {
    let world = world(&[
        ("README.md", b"text"),
        ("data/test-00000-of-00001.jsonl", b"0"),
        ("data/train-00000-of-00002.jsonl", b"1"),
        ("data/train-00001-of-00002.jsonl", b"2"),
    ]);
    let wanted = DatasetFile { repo: id("main"), path: None };
    let pattern = world.hub.dataset(&wanted, &mut NoProgress).unwrap();
    assert_eq!(pattern.file_name().unwrap(), "train*");
    let folder = pattern.parent().unwrap();
    let content = |name: &str| fs::read(folder.join(name)).unwrap();
    assert_eq!(content("train-00000-of-00002.jsonl"), b"1");
    assert_eq!(content("train-00001-of-00002.jsonl"), b"2");
    assert!(!folder.join("test-00000-of-00001.jsonl").exists());
}

#[test]
fn a_blob_with_another_digest_is_fetched_again_and_never_kept() {
    let world = world(&[("a.jsonl", b"1")]);
    world.shared.lock().unwrap().etag = Some("0".repeat(64));
    let wanted = DatasetFile { repo: id("main"), path: None };
    let error = world.hub.dataset(&wanted, &mut NoProgress).unwrap_err();
    assert!(error.to_string().ends_with("another SHA-256 than the hub says"), "{error}");
    // The SHA-256 of `1`.
    let right = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b";
    world.shared.lock().unwrap().etag = Some(right.to_owned());
    assert_eq!(fs::read(world.hub.dataset(&wanted, &mut NoProgress).unwrap()).unwrap(), b"1");
}

#[test]
fn a_config_comes_without_weights_and_is_no_whole_model() {
    let mut world = world(MODEL);
    let folder = world.hub.model_config(&id("main"), &mut NoProgress).unwrap();
    assert_eq!(names(&folder), ["config.json"]);
    world.hub.offline = true;
    assert_eq!(world.hub.model_config(&id("main"), &mut NoProgress).unwrap(), folder);
    let error = world.hub.model(&id("main"), &mut NoProgress).unwrap_err();
    assert!(error.to_string().ends_with("and HF_HUB_OFFLINE is set"), "{error}");
}

#[test]
fn a_model_may_be_one_gguf_file() {
    let mut one = world(&[("README.md", b"a"), ("m.Q4_0.gguf", b"GGUF")]);
    let folder = one.hub.model_config(&id("main"), &mut NoProgress).unwrap();
    assert_eq!(names(&folder), ["m.Q4_0.gguf"]);
    one.hub.offline = true;
    assert_eq!(one.hub.model(&id("main"), &mut NoProgress).unwrap().folder, folder);
    assert_eq!(one.hub.model_config(&id("main"), &mut NoProgress).unwrap(), folder);
    let several = world(&[("a.gguf", b"GGUF"), ("b.gguf", b"GGUF")]);
    let error = several.hub.model(&id("main"), &mut NoProgress).unwrap_err();
    let what = "org/name has no config.json and several GGUF files: a.gguf, b.gguf";
    assert_eq!(error.to_string(), what);
}

/// A dataset of which only a README was fetched is not in the cache.
#[test]
fn a_cached_folder_without_data_is_no_dataset() {
    let mut world = world(&[("a.jsonl", b"1")]);
    let wanted = DatasetFile { repo: id("main"), path: None };
    let file = world.hub.dataset(&wanted, &mut NoProgress).unwrap();
    fs::rename(&file, file.with_file_name("README.md")).unwrap();
    world.hub.endpoint = "http://127.0.0.1:1".to_owned();
    let error = world.hub.dataset(&wanted, &mut NoProgress).unwrap_err().to_string();
    assert!(error.starts_with("cannot fetch org/name from http://127.0.0.1:1: "), "{error}");
}

/// The cache has what was asked for by name: one shard is not the data set.
#[test]
fn without_the_hub_missing_shards_are_named() {
    let world = world(&[
        ("data/test-00000-of-00001.jsonl", b"9"),
        ("data/train-00000-of-00003.jsonl", b"0"),
        ("data/train-00001-of-00003.jsonl", b"1"),
        ("data/train-00002-of-00003.jsonl", b"2"),
    ]);
    let path = Some("data/train-00000-of-00003.jsonl".to_owned());
    let one = DatasetFile { repo: id("main"), path };
    let all = DatasetFile { repo: id("main"), path: None };
    let file = world.hub.dataset(&one, &mut NoProgress).unwrap();
    let offline = Hub { offline: true, ..world.hub.clone() };
    let expected = format!(
        "org/name (data/train-00001-of-00003.jsonl, data/train-00002-of-00003.jsonl) is not in the cache ({}), and HF_HUB_OFFLINE is set",
        world.hub.cache.display()
    );
    let refused = || {
        let error = offline.dataset(&all, &mut NoProgress).unwrap_err();
        assert!(error.is_bad_input() && error.how_to_mend().is_some());
        error.to_string()
    };
    assert_eq!(refused(), expected);
    // A cache of `huggingface_hub` has no listing: the shard's own name speaks of the others.
    fs::remove_dir_all(world.hub.cache.join("datasets--org--name/.listings")).unwrap();
    assert_eq!(refused(), expected);
    assert_eq!(offline.dataset(&one, &mut NoProgress).unwrap(), file);

    let pattern = world.hub.dataset(&all, &mut NoProgress).unwrap();
    let listings = world.hub.cache.join("datasets--org--name/.listings");
    for _ in 0..2 {
        assert_eq!(offline.dataset(&all, &mut NoProgress).unwrap(), pattern);
        let _ = fs::remove_dir_all(&listings);
    }
}

/// Names without numbers say nothing of one another: the listing does.
#[test]
fn without_the_hub_the_listing_of_the_last_call_says_what_is_missing() {
    let mut world = world(&[("train_a.jsonl", b"1"), ("train_b.jsonl", b"2")]);
    let one = DatasetFile { repo: id("main"), path: Some("train_a.jsonl".to_owned()) };
    let all = DatasetFile { repo: id("main"), path: None };
    let file = world.hub.dataset(&one, &mut NoProgress).unwrap();
    world.hub.endpoint = "http://127.0.0.1:1".to_owned();
    let error = world.hub.dataset(&all, &mut NoProgress).unwrap_err().to_string();
    let start = "cannot fetch org/name/train_b.jsonl from http://127.0.0.1:1: ";
    assert!(error.starts_with(start), "{error}");
    // Without a listing nobody can know, and a note says so.
    fs::remove_dir_all(world.hub.cache.join("datasets--org--name/.listings")).unwrap();
    let mut notes = Notes::default();
    assert_eq!(world.hub.dataset(&all, &mut notes).unwrap(), file);
    let last = "org/name: taking train_a.jsonl from the cache; the hub may have more";
    assert_eq!(notes.told.last().unwrap(), last);
}

#[test]
fn without_the_hub_the_cache_serves() {
    let mut world = world(MODEL);
    let snapshot = world.hub.model(&id("main"), &mut NoProgress).unwrap();
    // Nobody listens there.
    world.hub.endpoint = "http://127.0.0.1:1".to_owned();
    let mut notes = Notes::default();
    assert_eq!(world.hub.model(&id("main"), &mut notes).unwrap(), snapshot);
    let last = notes.told.last().unwrap();
    assert!(last.ends_with("; taking org/name from the cache"), "{last}");
    let error = world.hub.model(&id("v2"), &mut notes).unwrap_err();
    let start = "cannot fetch org/name@v2 from http://127.0.0.1:1: ";
    assert!(error.to_string().starts_with(start), "{error}");
}

#[test]
fn a_push_to_nobody_is_given_up_with_what_the_network_said() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let hub = Hub {
        endpoint: format!("http://{closed}"),
        cache: Path::new("nowhere").to_owned(),
        token: Some("secret".to_owned()),
        offline: false,
        backoff: Duration::from_millis(1),
    };
    let repo = hapo_net::hub::repo("org/name").unwrap();
    let settings = PushSettings { private: false, message: String::new() };
    let error = hub.push(&repo, &[], &settings, &mut NoProgress).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with(&format!("cannot push to org/name on http://{closed}: ")), "{text}");
    assert!(!error.is_bad_input());
    assert!(
        error.how_to_mend().unwrap().to_string().starts_with("check the network and HF_ENDPOINT")
    );
    let offline = Hub { offline: true, ..hub };
    let error = offline.push(&repo, &[], &settings, &mut NoProgress).unwrap_err();
    assert!(error.to_string().ends_with("HF_HUB_OFFLINE is set"), "{error}");
}

/// Hubs and proxies quote the token that they were sent.
#[test]
fn what_a_hub_says_is_told_without_the_token() {
    use std::io::{BufRead, BufReader, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (stream, status) in
            listener.incoming().zip([400, 401, 403, 404, 400, 401].into_iter().cycle())
        {
            let stream = stream.unwrap();
            let (mut reader, mut writer, mut said) =
                (BufReader::new(&stream), &stream, String::new());
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|n| n > 2) {
                if let Some(it) = line.to_lowercase().strip_prefix("authorization: ") {
                    said = it.trim().to_owned();
                }
                line.clear();
            }
            let head =
                format!("HTTP/1.1 {status} no\r\nX-Error-Message: invalid {said} of ada:open\r\n");
            let _ = writer.write_all(
                format!("{head}Content-Length: 0\r\nConnection: close\r\n\r\n").as_bytes(),
            );
        }
    });
    let mut world = world(MODEL);
    world.hub.endpoint = format!("http://ada:open@{address}");
    world.hub.token = Some("hf_secret".to_owned());
    for _ in 0..4 {
        let error = world.hub.model(&id("main"), &mut NoProgress).unwrap_err();
        let text = format!("{error} {:?}", error.how_to_mend());
        assert!(!text.contains("hf_secret") && !text.contains("open"), "{text}");
        assert!(text.contains("***"), "{text}");
    }
    let settings = PushSettings { private: false, message: "m".to_owned() };
    let error = world.hub.push(&id("main"), &[], &settings, &mut NoProgress).unwrap_err();
    assert!(!error.to_string().contains("hf_secret"), "{error}");
}
