//! The live view: the report's page, served from the run folders as they are now.
//!
//! Nothing is kept but the last block of data, and nothing can be written: every address answers GET alone.
//! A request must name the server by an address, by `localhost` or by the name it was told to listen on, so
//! that a page from elsewhere cannot reach it through a name of its own (DNS rebinding). The price of having
//! no state is that every change of a run sends its whole block of data again.

use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{self, Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use futures_util::Stream;
use hapo_core::{Refusal, Remedy};
use hapo_run::{RunFolder, is_locked};
use tokio::sync::watch;

use crate::{data, evaluation, folder, page, rollouts};

/// How often the run folders are looked at.
const EVERY: Duration = Duration::from_millis(500);
/// Most groups of a step that are sent.
const GROUPS: usize = 512;

/// A live view that listens and does not answer yet.
#[derive(Debug)]
pub struct LiveView {
    listener: TcpListener,
    address: SocketAddr,
    host: String,
    folders: Vec<PathBuf>,
}

impl LiveView {
    /// Listens on `host` and `port`, 0 for a free one. The folders need not hold a run yet.
    pub fn bind(folders: &[PathBuf], host: &str, port: u16) -> Result<Self, Refusal> {
        let io = |source| {
            let what = format!("cannot listen on {host}:{port}");
            Refusal::machine(what).source(source).hint(Remedy::FreePort)
        };
        let listener = TcpListener::bind((host, port)).map_err(io)?;
        listener.set_nonblocking(true).map_err(io)?;
        Ok(Self {
            address: listener.local_addr().map_err(io)?,
            listener,
            host: host.to_owned(),
            folders: folders.to_vec(),
        })
    }

    /// The address to open in a browser.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// True if other machines can reach it.
    pub fn is_public(&self) -> bool {
        !self.address.ip().is_loopback()
    }

    /// Serves until the process ends.
    pub fn serve(self) -> Result<(), Refusal> {
        let io = |source| Refusal::machine(format!("cannot serve {}", self.address)).source(source);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(io)?;
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(self.listener).map_err(io)?;
            let app = app(Shared::new(self.folders, self.host));
            axum::serve(listener, app).await.map_err(io)
        })
    }

    /// Serves on a thread of its own, beside a run, until the process ends.
    pub fn serve_aside(self) -> Result<(), Refusal> {
        let address = self.address.to_string();
        let spawned = std::thread::Builder::new()
            .name("hapo-watch".to_owned())
            // A view that fails must not end the run beside it.
            .spawn(move || drop(self.serve()));
        let io = |source| Refusal::machine(format!("cannot serve {address}")).source(source);
        spawned.map(drop).map_err(io)
    }
}

/// The last block of data, and the fingerprint of the files that it was made of.
type Cached = Option<(u64, Vec<u8>)>;

#[derive(Clone)]
struct Shared {
    folders: Arc<Vec<PathBuf>>,
    host: Arc<str>,
    cached: Arc<Mutex<Cached>>,
}

impl Shared {
    fn new(folders: Vec<PathBuf>, host: String) -> Self {
        Self { folders: Arc::new(folders), host: host.into(), cached: Arc::default() }
    }
}

fn app(shared: Shared) -> Router {
    let (changes, seen) = watch::channel(0);
    let folders = shared.folders.clone();
    tokio::spawn(async move {
        loop {
            let folders = folders.clone();
            let now = tokio::task::spawn_blocking(move || fingerprint(&folders)).await;
            if let Ok(now) = now {
                changes.send_if_modified(|it| std::mem::replace(it, now) != now);
            }
            tokio::time::sleep(EVERY).await;
        }
    });
    Router::new()
        .route("/", get(|| async { Html(page::live()) }))
        .route("/data", get(data_of))
        .route("/events", get(move || async { events(seen) }))
        .route("/rollouts/{run}/{step}", get(rollouts_of))
        .layer(middleware::from_fn_with_state(shared.clone(), guarded))
        .with_state(shared)
}

/// Refuses requests under a foreign name; its headers forbid caching, sniffing and framing.
async fn guarded(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST);
    let host = host.and_then(|it| it.to_str().ok()).unwrap_or("");
    if !is_own_name(host, &shared.host) {
        let why = format!(
            "this server is not called {host:?}; open it by its address, or start it with --host NAME\n"
        );
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// True if a Host header is an address, `localhost` or the server's name.
fn is_own_name(host: &str, own: &str) -> bool {
    let Some(authority) = host.parse::<Authority>().ok().filter(|_| !host.contains('@')) else {
        return false;
    };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || name.eq_ignore_ascii_case(own)
}

fn events(mut seen: watch::Receiver<u64>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let stream = async_stream::stream! {
        loop {
            let version = *seen.borrow_and_update();
            yield Ok(Event::default().event("changed").data(version.to_string()));
            if seen.changed().await.is_err() {
                break;
            }
        }
    };
    Sse::new(stream).keep_alive(KeepAlive::default())
}

async fn data_of(State(shared): State<Shared>) -> Response {
    blocking(move || {
        let now = fingerprint(&shared.folders);
        let mut cached = shared.cached.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((of, block)) = &*cached
            && *of == now
        {
            return Ok(bytes(block.clone()));
        }
        let paths = folder::found(&shared.folders);
        if paths.is_empty() {
            return Ok(StatusCode::NO_CONTENT.into_response());
        }
        let mut runs = folder::read_all(&paths);
        let tables = evaluation::tables(&mut runs);
        let browsed: Vec<Vec<u64>> = runs.iter().map(|it| it.rollout_steps.clone()).collect();
        let block = data::block(&runs, &tables, &browsed, true);
        *cached = Some((now, block.clone()));
        Ok(bytes(block))
    })
    .await
}

async fn rollouts_of(
    State(shared): State<Shared>,
    extract::Path((run, step)): extract::Path<(usize, u64)>,
) -> Response {
    blocking(move || {
        let paths = folder::found(&shared.folders);
        let Some(path) = paths.get(run) else {
            return Ok((StatusCode::NOT_FOUND, "there is no such run").into_response());
        };
        let runs = folder::read_all(std::slice::from_ref(path));
        if !runs[0].rollout_steps.contains(&step) {
            return Ok(
                (StatusCode::NOT_FOUND, "the rollouts of this step are not kept").into_response()
            );
        }
        Ok(axum::Json(rollouts::read(&runs[0], step, GROUPS)?).into_response())
    })
    .await
}

async fn blocking(work: impl FnOnce() -> Result<Response, Refusal> + Send + 'static) -> Response {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(it)) => it,
        Ok(Err(it)) => (StatusCode::INTERNAL_SERVER_ERROR, it.to_string()).into_response(),
        Err(it) => (StatusCode::INTERNAL_SERVER_ERROR, it.to_string()).into_response(),
    }
}

fn bytes(block: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, "application/octet-stream")], block).into_response()
}

/// A number that changes when a run's files do.
fn fingerprint(folders: &[PathBuf]) -> u64 {
    let mut hash = DefaultHasher::new();
    for run in folder::found(folders) {
        run.hash(&mut hash);
        let files = RunFolder(&run);
        is_locked(&files.lock()).hash(&mut hash);
        let above = run.parent().map(Path::to_owned).unwrap_or_default();
        for it in [
            files.metrics(),
            files.recipe(),
            files.gate(),
            files.rollouts(),
            above.join("table.json"),
            run.clone(),
        ] {
            let found = std::fs::metadata(it).ok();
            let what = found.map(|it| (it.len(), it.modified().ok()));
            what.hash(&mut hash);
        }
    }
    hash.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_own_names_are_served() {
        for it in [
            "127.0.0.1:8080",
            "localhost:8080",
            "LOCALHOST",
            "[::1]:8080",
            "192.168.1.7",
            "gpu-box:8080",
        ] {
            assert!(is_own_name(it, "gpu-box"), "{it}");
        }
        for it in [
            "",
            "evil.example",
            "evil.example:8080",
            "127.0.0.1.evil.example",
            "[evil]:80",
            "localhost.evil.example",
            "localhost:80@evil.example",
            "evil@localhost",
        ] {
            assert!(!is_own_name(it, "127.0.0.1"), "{it}");
        }
    }
}
