//! HTTP/1.1, for polls.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};

use super::http::{ConnectionFault, HttpConnection};
use super::limits::ServerLimits;
use super::service::Service;
use super::transport::HttpTransport;
use crate::driver::api::downstream::OpenStreams;

/// The minimum that hyper accepts.
const BUFFER_BYTES_MIN: usize = 8192;

pub(super) type Http1<R> = http1::Connection<TokioIo<HttpTransport>, Service<R>>;

/// A connection that serves requests once it is polled.
pub(super) fn open<R: OpenStreams>(
    transport: HttpTransport,
    service: Service<R>,
    limits: &ServerLimits,
) -> Http1<R> {
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.http1_idle_timeout)
        .max_buf_size(BUFFER_BYTES_MIN.max(limits.header_list_bytes as usize))
        .serve_connection(TokioIo::new(transport), service)
}

impl<R: OpenStreams> HttpConnection for Http1<R> {
    /// At rest, a connection closes at once.
    const ANSWERS_LATE: bool = false;

    fn poll_end(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), ConnectionFault>> {
        self.poll(context).map_err(|error| {
            tracing::debug!(%error, "connection ended");
            let io = error.source().and_then(|source| source.downcast_ref::<io::Error>());
            let is_slow = io.is_some_and(|io| io.kind() == io::ErrorKind::TimedOut);
            match (is_slow, error.is_timeout()) {
                (true, _) => ConnectionFault::SlowReader,
                // The only timeout of hyper is the wait for a request.
                (_, true) => ConnectionFault::Idle,
                _ => ConnectionFault::Other,
            }
        })
    }

    fn shut_down(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}
