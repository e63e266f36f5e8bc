//! The bytes of one connection: the opening, and the count of useless frames.
//!
//! TLS sits below [`HttpTransport`], so that only decrypted bytes count as signs of life (SEC-8). The first
//! bytes tell HTTP/1.1, the protocol of REST clients, from HTTP/2.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::authority::AuthorityFilter;
use super::cut::Cutter;
use super::handshake::TlsSocket;
use super::lingering::Lingering;
use super::meter::FrameMeter;
use super::socket::Plain;
use super::turn::ConnectionTurn;
use super::wakes::Wakes;

/// RFC 9113 §3.4.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The protocol of a client, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientProtocol {
    Http2,
    /// Recognized by a method at the beginning.
    Http1,
    /// A protocol that the relay does not serve.
    Unknown,
}

/// The bytes that HTTP sees.
pub(super) enum ClientSocket {
    Plain(Plain),
    /// Boxed: the state of a TLS connection has some 1.5 KiB.
    Tls(Box<TlsSocket>),
}

impl ClientSocket {
    /// Whether the first bytes are those of the protocol that ALPN selected (TLS-3). A client without ALPN
    /// may speak HTTP/1.1 only: RFC 9113 wants ALPN for HTTP/2 over TLS.
    pub(super) fn agrees_with(&self, protocol: ClientProtocol) -> bool {
        let ClientSocket::Tls(stream) = self else { return true };
        match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => protocol == ClientProtocol::Http2,
            _ => protocol != ClientProtocol::Http2,
        }
    }

    /// The socket below TLS.
    fn plain(&self) -> &Plain {
        match self {
            ClientSocket::Plain(plain) => plain,
            ClientSocket::Tls(stream) => stream.get_ref().0.plain(),
        }
    }

    /// As [`ClientSocket::plain`], for the last bytes of a connection.
    fn plain_mut(&mut self) -> &mut Plain {
        match self {
            ClientSocket::Plain(plain) => plain,
            ClientSocket::Tls(stream) => stream.get_mut().0.plain_mut(),
        }
    }

    /// Bytes received below TLS; 0 without TLS.
    fn received(&self) -> u64 {
        match self {
            ClientSocket::Plain(_) => 0,
            ClientSocket::Tls(stream) => stream.get_ref().0.received(),
        }
    }

    /// Reads first bytes until the protocol is certain, at most an HTTP/2 preface, and returns them.
    ///
    /// # Errors
    /// An error of the socket, or `UnexpectedEof` if the peer closed too early.
    pub(super) async fn read_protocol(&mut self) -> io::Result<(ClientProtocol, Bytes)> {
        let mut bytes = [0; PREFACE.len()];
        let mut filled = 0;
        while filled < PREFACE.len() {
            let count = self.read(&mut bytes[filled..]).await?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            filled += count;
            if bytes[..filled] != PREFACE[..filled] {
                let is_http1 = bytes[0].is_ascii_uppercase() && !bytes[..filled].starts_with(b"PRI ");
                let protocol = if is_http1 { ClientProtocol::Http1 } else { ClientProtocol::Unknown };
                return Ok((protocol, Bytes::copy_from_slice(&bytes[..filled])));
            }
        }
        Ok((ClientProtocol::Http2, Bytes::from_static(PREFACE)))
    }
}

/// A connection whose first bytes were read already. A read returns these bytes again, then new ones.
pub(super) struct HttpTransport {
    socket: ClientSocket,
    /// The first bytes that are still to be returned. Boxed: they are read at once.
    opening: Option<Box<Bytes>>,
    /// Used by HTTP/2.
    frames: Option<Frames>,
    /// Used by HTTP/1.1.
    slow: Option<Box<SlowReader>>,
    /// Present after the last byte was sent. Boxed: most connections are open.
    lingering: Option<Box<Lingering>>,
}

/// A client of HTTP/1.1 that reads this many bytes within the timeout may go on.
const HTTP1_PROGRESS_BYTES: usize = 64 * 1024;

/// Finds a slow reader. HTTP/2 needs no such check: PINGs find dead peers, and streams share the queue.
struct SlowReader {
    timeout: Duration,
    /// Boxed, because nearly all responses are written at once. Runs while bytes wait to be written.
    timer: Option<Pin<Box<Sleep>>>,
    /// Bytes written since the timer began.
    taken: usize,
}

impl SlowReader {
    /// # Errors
    /// `TimedOut` if the peer read too little for too long.
    fn watch(
        &mut self,
        written: Poll<io::Result<usize>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(Ok(bytes)) => {
                self.taken += bytes;
                if self.taken >= HTTP1_PROGRESS_BYTES {
                    self.timer = None;
                }
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => {
                let timer = self.timer.get_or_insert_with(|| {
                    self.taken = 0;
                    Box::pin(sleep(self.timeout))
                });
                ready!(timer.as_mut().poll(context));
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        written
    }
}

struct Frames {
    meter: FrameMeter,
    cutter: Cutter,
    /// Boxed: otherwise the connection would be in the next size class of the allocator.
    authorities: Box<AuthorityFilter>,
    wakes: Arc<Wakes>,
    turn: ConnectionTurn,
    /// The last read left nothing in the kernel, as far as the runtime knows.
    is_dry: bool,
    /// Bytes below TLS that have brought no bytes of HTTP are a cost, too. `None` without TLS.
    overhead: Option<Box<Overhead>>,
}

/// A client that sends a lot in records of a segment each has less overhead than this part of its bytes.
const USUAL_PART: u64 = 16;

/// The bytes that TLS took for itself, beyond the usual.
#[derive(Debug, Default)]
struct Overhead {
    decrypted: u64,
    charged: u64,
}

impl Overhead {
    /// The new bytes of overhead, after `received` bytes in all brought `decrypted` more.
    fn add(&mut self, received: u64, decrypted: usize) -> u64 {
        self.decrypted += decrypted as u64;
        let all = received.saturating_sub(self.decrypted + self.decrypted / USUAL_PART);
        let new = all.saturating_sub(self.charged);
        self.charged += new;
        new
    }
}

impl HttpTransport {
    /// Tells `wakes` what is heard of the peer.
    pub(super) fn http2(socket: ClientSocket, control_frames_per_second_max: u32, wakes: Arc<Wakes>) -> Self {
        let meter = FrameMeter::new(control_frames_per_second_max, Instant::now());
        // The handshake had limits of its own.
        let overhead = || Box::new(Overhead { decrypted: 0, charged: socket.received() });
        let overhead = matches!(socket, ClientSocket::Tls(_)).then(overhead);
        let (authorities, cutter, turn) = Default::default();
        HttpTransport {
            socket,
            opening: Some(Box::new(Bytes::from_static(PREFACE))),
            frames: Some(Frames { meter, cutter, authorities, wakes, turn, is_dry: false, overhead }),
            slow: None,
            lingering: None,
        }
    }

    /// `opening` contains the bytes that were read to detect the protocol.
    pub(super) fn http1(socket: ClientSocket, opening: Bytes, write_timeout: Duration) -> Self {
        let slow = Box::new(SlowReader { timeout: write_timeout, timer: None, taken: 0 });
        let opening = Some(Box::new(opening)).filter(|opening| !opening.is_empty());
        HttpTransport { socket, opening, frames: None, slow: Some(slow), lingering: None }
    }

    fn wrote(
        &mut self,
        written: Poll<io::Result<usize>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if let (Some(frames), Poll::Ready(Ok(bytes))) = (&mut self.frames, &written) {
            frames.meter.wrote(*bytes);
        }
        match &mut self.slow {
            Some(slow) => slow.watch(written, context),
            None => written,
        }
    }
}

impl AsyncRead for HttpTransport {
    /// Stays pending after too many control frames: see `Heard::is_flood`. Is pending for a moment after
    /// many bytes: see `Heard::take_had_turn`; and after a piece of a long frame: see [`Cutter`]. Is
    /// pending without a wake if the peer has left, beside many others: see `Heard::expect_crowd`.
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Some(opening) = &mut this.opening {
            let now = opening.split_to(opening.len().min(buffer.remaining()));
            buffer.put_slice(&now);
            this.opening.take_if(|opening| opening.is_empty());
            return Poll::Ready(Ok(()));
        }
        let Some(Frames { meter, cutter, authorities, wakes, turn, is_dry, overhead }) = &mut this.frames
        else {
            return Pin::new(&mut this.socket).poll_read(context, buffer);
        };
        let heard = &wakes.heard;
        if heard.is_flood() {
            return Poll::Pending;
        }
        if heard.defers_end() && this.socket.plain().has_left() {
            heard.left();
            return Poll::Pending;
        }
        if cutter.take_pause() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        while !cutter.give(buffer) {
            // A dry socket ends the turn by itself, and wakes the task for new bytes only.
            if turn.is_over() && !*is_dry {
                turn.end();
                heard.ended_turn();
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let Poll::Ready(read) = Pin::new(&mut this.socket).poll_read(context, buffer) else {
                turn.end();
                return Poll::Pending;
            };
            read?;
            // Below TLS, more bytes may wait.
            *is_dry = buffer.remaining() > 0 && matches!(this.socket, ClientSocket::Plain(_));
            let read = buffer.filled().len() - before;
            let below = overhead.as_mut().map_or(0, |overhead| overhead.add(this.socket.received(), read));
            if read == 0 {
                break;
            }
            heard.now();
            if (below > 0 && meter.below(below)) || meter.read(&buffer.filled()[before..], turn.frames()) {
                buffer.set_filled(before);
                heard.flooded();
                return Poll::Pending;
            }
            turn.add_read(read);
            authorities.pass(&mut buffer.filled_mut()[before..]);
            cutter.leak(|| heard.age());
            cutter.take(buffer, before);
            if buffer.filled().len() > before {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for HttpTransport {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.socket).poll_write(context, bytes);
        this.wrote(written, context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.socket).poll_write_vectored(context, slices);
        this.wrote(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // A flush comes after the last byte of a response was written.
        if let Some(slow) = &mut this.slow {
            slow.timer = None;
        }
        Pin::new(&mut this.socket).poll_flush(context)
    }

    /// Ready when the peer has closed its side, too, or took too long: see [`Lingering`].
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.lingering.is_none() {
            ready!(Pin::new(&mut this.socket).poll_shutdown(context))?;
        }
        let lingering = this.lingering.get_or_insert_with(Box::default);
        lingering.poll(this.socket.plain_mut(), context).map(Ok)
    }
}

impl AsyncRead for ClientSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ClientSocket::Plain(socket) => Pin::new(socket).poll_read(context, buffer),
            // HTTP frames its messages, so a missing close_notify hides nothing (TLS-10).
            ClientSocket::Tls(socket) => match Pin::new(socket).poll_read(context, buffer) {
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    Poll::Ready(Ok(()))
                }
                read => read,
            },
        }
    }
}

impl AsyncWrite for ClientSocket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            ClientSocket::Plain(socket) => Pin::new(socket).poll_write(context, bytes),
            ClientSocket::Tls(socket) => Pin::new(socket).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            ClientSocket::Plain(socket) => Pin::new(socket).poll_write_vectored(context, slices),
            ClientSocket::Tls(socket) => Pin::new(socket).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ClientSocket::Plain(socket) => Pin::new(socket).poll_flush(context),
            ClientSocket::Tls(socket) => Pin::new(socket).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ClientSocket::Plain(socket) => Pin::new(socket).poll_shutdown(context),
            ClientSocket::Tls(socket) => Pin::new(socket).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncWriteExt;
    use tokio::net::UnixStream;
    use tokio::task::yield_now;

    use super::super::turn::{READ_WORK, TURN_WORK};
    use super::*;

    /// A peer, and its connection after the preface.
    async fn transport() -> (UnixStream, HttpTransport, Arc<Wakes>) {
        let (peer, socket) = UnixStream::pair().unwrap();
        let (socket, wakes) = (ClientSocket::Plain(Plain::Unix(socket)), Wakes::new());
        let mut transport = HttpTransport::http2(socket, 1_000_000, wakes.clone());
        let mut preface = [0; PREFACE.len()];
        transport.read_exact(&mut preface).await.unwrap();
        (peer, transport, wakes)
    }

    #[tokio::test]
    async fn the_last_bytes_of_a_peer_wait_while_many_leave() {
        const FRAME: [u8; 9] = [0, 0, 0, 0, 0, 0, 0, 0, 1];
        let (mut peer, mut transport, wakes) = transport().await;
        let heard = &wakes.heard;
        heard.expect_crowd(true);
        let mut frame = FRAME;
        for _ in 0..3 {
            peer.write_all(&FRAME).await.unwrap();
            transport.read_exact(&mut frame).await.unwrap();
        }
        assert!(!heard.take_has_left(), "the peer is there");
        peer.write_all(&FRAME).await.unwrap();
        drop(peer);
        while !transport.socket.plain().has_left() {
            yield_now().await;
        }
        let read = poll_fn(|context| {
            let mut buffer = ReadBuf::new(&mut frame);
            Poll::Ready(Pin::new(&mut transport).poll_read(context, &mut buffer).is_ready())
        });
        assert!(!read.await && heard.take_has_left() && !heard.take_has_left());
        heard.expect_crowd(false);
        assert_eq!(transport.read(&mut frame).await.unwrap(), FRAME.len());
        assert_eq!(transport.read(&mut frame).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_connection_that_has_read_everything_takes_no_other_turn() {
        let (mut peer, mut transport, wakes) = transport().await;
        let heard = &wakes.heard;
        let (frame, mut storage) = ([0, 0, 0, 0, 0, 0, 0, 0, 1], [0; 64]);
        for _ in 0..2 * TURN_WORK / READ_WORK {
            peer.write_all(&frame).await.unwrap();
            let is_there = |bytes: &[u8]| (bytes.len() == frame.len()).then_some(());
            transport.socket.plain().peek(is_there).await.unwrap();
            assert_eq!(transport.read(&mut storage).await.unwrap(), frame.len());
        }
        assert!(!heard.take_had_turn());
    }

    /// The turns that a connection takes for these bytes, read by as many at once.
    async fn turns_for(sent: Vec<u8>, at_once: usize) -> u32 {
        let (mut peer, mut transport, wakes) = transport().await;
        let heard = &wakes.heard;
        let (mut storage, mut turns, mut read, length) = (vec![0; at_once], 0, 0, sent.len());
        let peer = tokio::spawn(async move { peer.write_all(&sent).await.map(|()| peer) });
        while read < length {
            let mut buffer = ReadBuf::new(&mut storage);
            poll_fn(|context| {
                let polled = Pin::new(&mut transport).poll_read(context, &mut buffer);
                turns += u32::from(heard.take_had_turn());
                polled
            })
            .await
            .unwrap();
            read += buffer.filled().len();
        }
        peer.await.unwrap().unwrap();
        turns
    }

    fn data(payload: usize) -> Vec<u8> {
        let [.., b, c] = u32::try_from(payload).unwrap().to_be_bytes();
        [&[0, b, c, 0, 0, 0, 0, 0, 1][..], &vec![0; payload]].concat()
    }

    #[tokio::test]
    async fn fd19_a_connection_reads_in_turns() {
        let (work, reads) = (TURN_WORK as usize, (TURN_WORK / READ_WORK) as usize);
        // The many bytes are fewer than the kernel holds: a read that finds nothing ends the turn, too.
        let (frames, bytes) = (data(0).repeat(2 * work), data(15 << 10).repeat(12));
        for (sent, at_once) in [(frames, 8192), (bytes, 1024), (data(2 * reads), 1)] {
            assert!(turns_for(sent, at_once).await >= 1, "{at_once} bytes a read");
        }
    }

    /// An Envoy that repeats its node sends 61 KB for each request: four frames, fifteen reads (STR-3).
    #[tokio::test]
    async fn a_request_with_a_whole_node_takes_one_turn() {
        let request = [data(16 << 10).repeat(3), data(13 << 10)].concat();
        assert_eq!(turns_for(request.repeat(2), 5461).await, 0);
    }
}
