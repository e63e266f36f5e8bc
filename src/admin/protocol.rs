//! The protocol of a connection: HTTP/2 after its preface, else HTTP/1.1 (ADM-20). Browsers, probes and
//! scrapers use HTTP/1.1; gRPC needs HTTP/2.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// The time for a whole request head, and for an idle connection.
pub(super) const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// Headers of a request, and bytes of its head. Browsers and scrapers send some 20 headers, in 2 KiB.
const HEADERS_MAX: usize = 64;
const BUFFER_BYTES_MAX: usize = 16 << 10;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Calls on one HTTP/2 connection. A tool asks a few questions at once.
const STREAMS_MAX: u32 = 16;

/// Bytes of a body on their way, per connection. Requests have 512 KiB at most.
const WINDOW_BYTES: u32 = 64 << 10;

/// Bytes of an answer that wait in HTTP/2 for room at the peer. They are not counted any more: the answer may
/// be over.
const SEND_BUFFER_BYTES: usize = 32 << 10;

/// The time between PINGs to a silent HTTP/2 peer, and the time for its answer.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AdminProtocol {
    Http1,
    Http2,
}

impl AdminProtocol {
    /// The server of this protocol, with a bound on every wait and on all memory of the peer's choice.
    pub fn server(self) -> Builder<TokioExecutor> {
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .max_headers(HEADERS_MAX)
            .max_buf_size(BUFFER_BYTES_MAX);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(BUFFER_BYTES_MAX as u32)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .max_send_buf_size(SEND_BUFFER_BYTES)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT);
        match self {
            AdminProtocol::Http1 => builder.http1_only(),
            AdminProtocol::Http2 => builder.http2_only(),
        }
    }
}

/// A connection whose first bytes were read.
pub(super) struct BegunConnection<Io> {
    first: Bytes,
    io: Io,
}

impl<Io: AsyncRead + Unpin> BegunConnection<Io> {
    /// Whether this is the first byte of the peer.
    pub fn begins_with(&self, byte: u8) -> bool {
        self.first.first() == Some(&byte)
    }

    /// Reads the first bytes, until they differ from the preface of HTTP/2 or are the preface.
    pub async fn begin(mut io: Io) -> io::Result<(AdminProtocol, BegunConnection<Io>)> {
        let mut first = BytesMut::with_capacity(PREFACE.len());
        let protocol = loop {
            match PREFACE.get(first.len()..) {
                None | Some([]) => break AdminProtocol::Http2,
                Some(rest) => {
                    let read = (&mut io).take(rest.len() as u64).read_buf(&mut first).await?;
                    if read == 0 || !PREFACE.starts_with(&first) {
                        break AdminProtocol::Http1;
                    }
                }
            }
        };
        Ok((protocol, BegunConnection { first: first.freeze(), io }))
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for BegunConnection<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let count = self.first.len().min(buffer.remaining());
        if count == 0 {
            return Pin::new(&mut self.io).poll_read(context, buffer);
        }
        buffer.put_slice(&self.first[..count]);
        self.first.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for BegunConnection<Io> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
