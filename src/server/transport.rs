//! The bytes of one connection: how it opens, and how many control frames it sends.
//!
//! TLS will sit below [`Transport`]. HTTP/1.1, which REST clients speak, is told from HTTP/2 by the first bytes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, Sleep, sleep};

use super::cut::Cutter;

/// RFC 9113 §3.4.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What a client speaks, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http2,
    /// By its looks: a method comes first.
    Http1,
    /// Nothing that is served here.
    Unknown,
}

pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Reads the first bytes until the protocol is plain, and gives them too. Takes no byte more than the HTTP/2 preface
    /// has.
    ///
    /// # Errors
    /// The socket's, or `UnexpectedEof` if the peer left before.
    pub(super) async fn read_protocol(&mut self) -> io::Result<(Protocol, Bytes)> {
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
                let protocol = if is_http1 { Protocol::Http1 } else { Protocol::Unknown };
                return Ok((protocol, Bytes::copy_from_slice(&bytes[..filled])));
            }
        }
        Ok((Protocol::Http2, Bytes::from_static(PREFACE)))
    }
}

/// A connection whose first bytes have been read; gives them out again, then what the socket has.
pub(super) struct Transport {
    socket: Socket,
    /// What is left of the first bytes to give out.
    opening: Bytes,
    /// Of HTTP/2.
    frames: Option<Frames>,
    /// Of HTTP/1.1.
    slow: Option<SlowReader>,
}

/// A client of HTTP/1.1 that takes as much in the time that it has is waited for.
const HTTP1_PROGRESS_BYTES: usize = 64 * 1024;

/// Watches that a peer takes what is written to it. HTTP/2 asks for signs of life, and streams share what stands there.
struct SlowReader {
    timeout: Duration,
    /// Boxed, as nearly all answers are taken at once. Runs while something is left to write.
    timer: Option<Pin<Box<Sleep>>>,
    /// What was taken since it began.
    taken: usize,
}

impl SlowReader {
    /// # Errors
    /// `TimedOut` if the peer took too little for too long.
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
    control: ControlFrames,
    cutter: Cutter,
    heard: Arc<Heard>,
}

/// When the peer of an HTTP/2 connection was last heard.
#[derive(Debug)]
pub(super) struct Heard {
    opened: Instant,
    /// Nanoseconds after.
    last: AtomicU64,
}

impl Heard {
    fn now(&self) {
        let nanos = u64::try_from(self.opened.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.last.store(nanos, Ordering::Relaxed);
    }

    pub(super) fn last(&self) -> Instant {
        self.opened + Duration::from_nanos(self.last.load(Ordering::Relaxed))
    }
}

impl Transport {
    pub(super) fn http2(socket: Socket, control_frames_per_second_max: u32) -> (Self, Arc<Heard>) {
        let opened = Instant::now();
        let heard = Arc::new(Heard { opened, last: AtomicU64::new(0) });
        let control = ControlFrames::new(control_frames_per_second_max, opened);
        let frames = Frames { control, cutter: Cutter::default(), heard: heard.clone() };
        (Transport { socket, opening: Bytes::from_static(PREFACE), frames: Some(frames), slow: None }, heard)
    }

    /// `opening`: what was read to tell the protocol.
    pub(super) fn http1(socket: Socket, opening: Bytes, write_timeout: Duration) -> Self {
        let slow = SlowReader { timeout: write_timeout, timer: None, taken: 0 };
        Transport { socket, opening, frames: None, slow: Some(slow) }
    }
}

impl AsyncRead for Transport {
    /// # Errors
    /// Besides the socket's: `QuotaExceeded` after too many control frames.
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.opening.is_empty() {
            let now = this.opening.split_to(this.opening.len().min(buffer.remaining()));
            buffer.put_slice(&now);
            return Poll::Ready(Ok(()));
        }
        let Some(Frames { control, cutter, heard }) = &mut this.frames else {
            return Pin::new(&mut this.socket).poll_read(context, buffer);
        };
        let before = buffer.filled().len();
        while !cutter.give(buffer) {
            ready!(Pin::new(&mut this.socket).poll_read(context, buffer))?;
            if buffer.filled().len() == before {
                break;
            }
            heard.now();
            if control.count(&buffer.filled()[before..]) {
                let error = "too many control frames";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::QuotaExceeded, error)));
            }
            cutter.take(buffer, before);
            if buffer.filled().len() > before {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.socket).poll_write(context, bytes);
        match &mut this.slow {
            Some(slow) => slow.watch(written, context),
            None => written,
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.socket).poll_write_vectored(context, slices);
        match &mut this.slow {
            Some(slow) => slow.watch(written, context),
            None => written,
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // All of it was taken.
        if let Some(slow) = &mut this.slow {
            slow.timer = None;
        }
        Pin::new(&mut this.socket).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(context)
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Socket::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Socket::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Socket::Unix(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Socket::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Socket::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

/// Counts the frames that h2 answers or ignores without any limit (FD19): PING, SETTINGS, PRIORITY and those of
/// unknown type. The others have limits of their own, or are paid for in data.
///
/// Follows the frame headers (RFC 9113 §4.1) through the bytes as they come; looks at the clock once per `max` counted
/// frames.
struct ControlFrames {
    max: u32,
    counted: u32,
    since: Instant,
    /// The length and type of the next frame, as far as they have come.
    head: [u8; 4],
    head_bytes: usize,
    /// Bytes to go until the next frame begins.
    skip: usize,
}

/// Flags and stream id follow the length and the type.
const REST_OF_HEAD_BYTES: usize = 5;

impl ControlFrames {
    fn new(max: u32, now: Instant) -> Self {
        ControlFrames { max, counted: 0, since: now, head: [0; 4], head_bytes: 0, skip: 0 }
    }

    /// Whether these bytes are too much: `max` frames came in less than a second.
    fn count(&mut self, mut bytes: &[u8]) -> bool {
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let taken = bytes.len().min(self.head.len() - self.head_bytes);
            self.head[self.head_bytes..self.head_bytes + taken].copy_from_slice(&bytes[..taken]);
            self.head_bytes += taken;
            bytes = &bytes[taken..];
            if self.head_bytes < self.head.len() {
                return false;
            }
            let [a, b, c, frame_type] = self.head;
            self.head_bytes = 0;
            self.skip = u32::from_be_bytes([0, a, b, c]) as usize + REST_OF_HEAD_BYTES;
            if is_control(frame_type) && self.is_too_many() {
                return true;
            }
        }
    }

    fn is_too_many(&mut self) -> bool {
        self.counted += 1;
        if self.counted < self.max {
            return false;
        }
        let now = Instant::now();
        let too_many = now < self.since + Duration::from_secs(1);
        self.counted = 0;
        self.since = now;
        too_many
    }
}

/// By the type numbers of RFC 9113 §6.
fn is_control(frame_type: u8) -> bool {
    const DATA: u8 = 0x0;
    const HEADERS: u8 = 0x1;
    const RST_STREAM: u8 = 0x3;
    const WINDOW_UPDATE: u8 = 0x8;
    const CONTINUATION: u8 = 0x9;
    !matches!(frame_type, DATA | HEADERS | RST_STREAM | WINDOW_UPDATE | CONTINUATION)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    fn frame(frame_type: u8, payload_bytes: usize) -> Vec<u8> {
        let mut frame = vec![0, 0, 0, frame_type, 0, 0, 0, 0, 0];
        frame[1..3].copy_from_slice(&(payload_bytes as u16).to_be_bytes());
        // Payload that would count, were it taken for headers.
        frame.resize(frame.len() + payload_bytes, 0x6);
        frame
    }

    #[tokio::test(start_paused = true)]
    async fn fd19_control_frames_are_counted_in_any_segmentation() {
        let bytes =
            [frame(0x0, 1000), frame(0x6, 8), frame(0x1, 3), frame(0x4, 0), frame(0xfe, 300)].concat();
        for segment in [1, 2, 3, 7, 9, 100, bytes.len()] {
            let mut frames = ControlFrames::new(4, Instant::now());
            assert!(!bytes.chunks(segment).any(|bytes| frames.count(bytes)));
            assert_eq!((frames.counted, frames.skip, frames.head_bytes), (3, 0, 0), "segment {segment}");
            assert!(frame(0x2, 5).chunks(segment).any(|bytes| frames.count(bytes)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn fd19_a_slow_pace_is_not_a_flood() {
        let mut frames = ControlFrames::new(10, Instant::now());
        for _ in 0..1000 {
            advance(Duration::from_millis(101)).await;
            assert!(!frames.count(&frame(0x6, 8)));
        }
    }
}
