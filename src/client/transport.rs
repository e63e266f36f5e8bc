//! A socket that counts its bytes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

use super::pings::{PingFrames, Pings};
use crate::telemetry::metrics::ClientMetrics;

/// The byte stream below a connection.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// The bytes received by one connection: the proof of a live transport (RLY-29).
#[derive(Debug)]
pub(super) struct Traffic {
    received: AtomicU64,
    more: Notify,
    pub(super) pings: Pings,
    metrics: Arc<ClientMetrics>,
}

impl Traffic {
    pub(super) fn new(metrics: Arc<ClientMetrics>) -> Arc<Traffic> {
        Arc::new(Traffic {
            received: AtomicU64::new(0),
            more: Notify::new(),
            pings: Pings::default(),
            metrics,
        })
    }

    /// Bytes received so far, of any frame.
    pub(super) fn received(&self) -> u64 {
        self.received.load(Ordering::Acquire)
    }

    /// Waits until more than `bytes` bytes have been received. Cancel-safe.
    pub(super) async fn received_more_than(&self, bytes: u64) {
        loop {
            // From here on, no wake-up is lost.
            let more = self.more.notified();
            if self.received() > bytes {
                return;
            }
            more.await;
        }
    }
}

pub(super) struct UpstreamTransport {
    socket: Box<dyn ByteStream>,
    traffic: Arc<Traffic>,
    /// `None`: the bytes are no HTTP/2.
    frames: Option<PingFrames>,
}

impl UpstreamTransport {
    /// The transport of HTTP/2 from its first byte on.
    pub(super) fn of_frames(socket: Box<dyn ByteStream>, traffic: Arc<Traffic>) -> UpstreamTransport {
        UpstreamTransport { socket, traffic, frames: Some(PingFrames::default()) }
    }

    pub(super) fn of_bytes(socket: Box<dyn ByteStream>, traffic: Arc<Traffic>) -> UpstreamTransport {
        UpstreamTransport { socket, traffic, frames: None }
    }

    fn wrote(&self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = result {
            self.traffic.metrics.sent_bytes.inc_by(bytes as u64);
        }
        result
    }
}

impl AsyncRead for UpstreamTransport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let UpstreamTransport { socket, traffic, frames } = &mut *self;
        let result = Pin::new(socket).poll_read(context, buffer);
        let new = buffer.filled().get(before..).unwrap_or_default();
        let bytes = new.len() as u64;
        if bytes > 0 {
            if let Some(frames) = frames {
                frames.read(new, |frame| traffic.pings.received(frame));
            }
            self.traffic.received.fetch_add(bytes, Ordering::Release);
            self.traffic.more.notify_waiters();
            self.traffic.metrics.received_bytes.inc_by(bytes);
        }
        result
    }
}

impl AsyncWrite for UpstreamTransport {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.wrote(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.socket).poll_write_vectored(context, slices);
        self.wrote(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
