//! Connections: at most so many, and none that keeps its place without saying anything.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Answers on `listener` until `stop` is done, then finishes what is being answered; gives what `stop` gave. Connections
/// beyond `most` wait for their turn; one whose next request has no head within `head_time` is closed.
pub(crate) async fn listen<T>(
    listener: TcpListener,
    router: Router,
    most: usize,
    head_time: Duration,
    stop: impl Future<Output = T>,
) -> T {
    /// A system without file descriptors has some again when a connection ends.
    const AFTER_AN_ERROR: Duration = Duration::from_millis(50);
    let places = Arc::new(Semaphore::new(most));
    let graceful = GracefulShutdown::new();
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(head_time);
    tokio::pin!(stop);
    let stopped = loop {
        let next = async {
            let place = places.clone().acquire_owned().await.expect("it is never closed");
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            biased;
            it = &mut stop => break it,
            it = next => it,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(AFTER_AN_ERROR).await;
            continue;
        };
        // Tokens are small and are wanted at once.
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(router.clone());
        let connection = graceful.watch(server.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            // A connection that breaks is its client's affair.
            let _ = connection.await;
            drop(place);
        });
    };
    drop(listener);
    graceful.shutdown().await;
    stopped
}
