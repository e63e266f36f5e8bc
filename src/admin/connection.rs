//! One admin connection: HTTP/1.1 with every wait bounded.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::CancellationToken;
use tracing::debug;

/// For a whole request head; also the longest that a connection may stay idle.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
const HEADERS_MAX: usize = 64;
const BUFFER_BYTES_MAX: usize = 16 << 10;

/// A reader that takes nothing for this long is given up.
pub(super) const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// For a whole answer, however slowly it is taken: one of the few that are written at a time (ADM-14).
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// Serves one connection until it ends, counting the requests under way; at `shutdown` the answer under way is the last.
pub(super) async fn drive(
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    requests: Arc<AtomicUsize>,
    shutdown: CancellationToken,
) {
    let asked_at = Instant::now();
    let io = WriteTimeout { io, stalled: Box::pin(sleep(STALL_TIMEOUT)), waiting: false, asked_at };
    let router = router.layer(from_fn(move |request: Request, next: Next| {
        let answering = Answering::begin(requests.clone());
        async move { next.run(request).await.map(|body| Body::new(Counted { body, _answering: answering })) }
    }));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_headers(HEADERS_MAX)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(io), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        debug!(%error, "admin connection ended");
    }
}

/// A request that is being answered, counted.
struct Answering(Arc<AtomicUsize>);

impl Answering {
    fn begin(requests: Arc<AtomicUsize>) -> Answering {
        requests.fetch_add(1, Ordering::Relaxed);
        Answering(requests)
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of an answer, which counts until it was written or given up.
struct Counted {
    body: Body,
    _answering: Answering,
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream whose writes fail once its peer has taken nothing for [`STALL_TIMEOUT`], or has taken longer than
/// [`ANSWER_TIMEOUT`] since it asked.
struct WriteTimeout<S> {
    io: S,
    stalled: Pin<Box<Sleep>>,
    /// Whether `stalled` counts from the first refused write.
    waiting: bool,
    /// When it last said something.
    asked_at: Instant,
}

impl<S> WriteTimeout<S> {
    /// Passes a finished write through; a refused one fails when it has been refused for too long.
    fn bound<T>(&mut self, polled: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.waiting = false;
            return polled;
        }
        if !self.waiting {
            self.waiting = true;
            let deadline = (Instant::now() + STALL_TIMEOUT).min(self.asked_at + ANSWER_TIMEOUT);
            self.stalled.as_mut().reset(deadline);
        }
        ready!(self.stalled.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.asked_at = Instant::now();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write(context, bytes);
        self.bound(polled, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_flush(context);
        self.bound(polled, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_shutdown(context);
        self.bound(polled, context)
    }
}
