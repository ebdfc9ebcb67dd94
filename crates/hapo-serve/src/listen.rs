//! Connections: at most so many, and none that keeps its place without saying or reading anything.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::{future::Future, io, sync::Arc, time::Duration};

use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, Sleep, sleep};

/// Answers on `listener` until `stop` is done, then finishes what is being answered; gives what `stop` gave.
pub(crate) async fn listen<T>(
    listener: TcpListener,
    router: axum::Router,
    served: &crate::Served,
    stop: impl Future<Output = T>,
) -> T {
    /// A system without file descriptors has some again when a connection ends.
    const AFTER_AN_ERROR: Duration = Duration::from_millis(50);
    let settings = &served.settings;
    let places = Arc::new(Semaphore::new(settings.max_connections));
    let graceful = GracefulShutdown::new();
    let mut server = hyper::server::conn::http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(settings.head_time);
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
        let stream = Patient {
            stream,
            write_time: settings.write_time,
            stopping: served.stopping.subscribe(),
            stuck: None,
            look: Box::pin(sleep(LOOK)),
        };
        let service = hyper_util::service::TowerToHyperService::new(router.clone());
        let connection = graceful.watch(server.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            // A connection that breaks is its client's affair.
            let _ = connection.await;
            drop(place);
        });
    };
    drop(listener);
    served.stopping.send_replace(true);
    graceful.shutdown().await;
    stopped
}

/// A stream that breaks where its client has read nothing for some time, or has gone.
struct Patient {
    stream: TcpStream,
    write_time: Duration,
    stopping: watch::Receiver<bool>,
    /// Looks while nothing can be written, and the time since it could.
    stuck: Option<(Pin<Box<Sleep>>, Duration)>,
    /// When to look next whether the client is there.
    look: Pin<Box<Sleep>>,
}

/// How often a client is looked at, and the time it has when the server goes down.
const LOOK: Duration = Duration::from_secs(1);

impl Patient {
    /// True if the client has closed its end. The server would not see it while bytes behind a request wait to be read,
    /// be it by hyper or by the system, so the socket is asked for its state.
    fn is_gone(&mut self, cx: &mut Context<'_>) -> bool {
        while self.look.as_mut().poll(cx).is_ready() {
            let state = pin!(self.stream.ready(Interest::READABLE)).poll(cx);
            if matches!(state, Poll::Ready(Ok(it)) if it.is_read_closed()) {
                return true;
            }
            self.look.as_mut().reset(Instant::now() + LOOK);
        }
        false
    }

    fn wait<T>(&mut self, poll: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.stuck = None;
            return poll;
        }
        loop {
            let look = LOOK.min(self.write_time);
            let (sleep, since) =
                self.stuck.get_or_insert_with(|| (Box::pin(sleep(look)), Duration::ZERO));
            ready!(sleep.as_mut().poll(cx));
            let since = *since + look;
            if since >= self.write_time || *self.stopping.borrow() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            self.stuck = Some((Box::pin(tokio::time::sleep(look)), since));
        }
    }
}

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, to)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.wait(poll, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper flushes whenever it is woken, whether or not there is something to write.
        if self.is_gone(cx) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let poll = Pin::new(&mut self.stream).poll_flush(cx);
        self.wait(poll, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    // Without these two hyper copies each answer into a buffer that the connection keeps.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.wait(poll, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
