//! The server side of HTTP/2 with the least state: a socket, windows, the id of the stream. A lower bound for a codec of
//! our own, not a draft of one.
//!
//! An idle connection has no buffer: it reads into a buffer of the thread, and writes from the shared body of the update.
//! It keeps only the rest of an unfinished frame, and the bytes that the kernel or the windows of the peer did not take.
//!
//! Left out: HPACK (HEADERS open the stream, whatever they say), CONTINUATION, padding, several streams, the end of
//! streams, trailers, messages over several DATA frames, GOAWAY, limits on floods and resets, the checks of stream states,
//! keepalive, TLS.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::net::TcpStream;

use super::frames::{
    ACK, CONTINUATION, DATA, DEFAULT_WINDOW, END_HEADERS, END_STREAM, FRAME_BYTES_MAX, GOAWAY, HEAD_BYTES,
    HEADERS, Head, INITIAL_WINDOW_SIZE, PADDED, PING, PREFACE, RST_STREAM, SETTINGS, WINDOW_UPDATE, Wire,
    first, frame, head, number, opening, window_update, with_buffer,
};
use super::hub::{Hub, IO, PREFIX_BYTES, UPDATE, Wakes, prefix};
use super::with_h2::WINDOW;

/// `:status: 200` and `content-type: application/grpc` (indexed name 31, literal value).
const RESPONSE: &[u8] = b"\x88\x0f\x10\x10application/grpc";

pub struct Bare {
    wire: Wire,
    hub: Arc<Hub>,
    wakes: Arc<Wakes>,
    /// A part of an update that waits for the windows of the peer.
    unsent: Option<Box<Unsent>>,
    connection_window: i64,
    stream_window: i64,
    initial_window: i64,
    /// Bytes received since the last WINDOW_UPDATE.
    received: u32,
    /// The id of the open stream; 0 before.
    stream: u32,
    has_preface: bool,
}

struct Unsent {
    body: Bytes,
    /// The bytes sent, with the prefix.
    sent: usize,
}

impl Bare {
    pub fn open(socket: TcpStream, hub: Arc<Hub>) -> io::Result<Self> {
        let mut wire = Wire::new(socket);
        wire.send(&opening(WINDOW, WINDOW), Bytes::new())?;
        let (wakes, window) = (hub.join(), i64::from(DEFAULT_WINDOW));
        Ok(Bare {
            wire,
            hub,
            wakes,
            unsent: None,
            connection_window: window,
            stream_window: window,
            initial_window: window,
            received: 0,
            stream: 0,
            has_preface: false,
        })
    }

    /// Resolves to the error that ends the connection.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        let wakes = self.wakes.clone();
        wakes.watch(context.waker());
        wakes.take(IO);
        if wakes.take(UPDATE)
            && self.unsent.is_none()
            && let Err(error) = self.send(self.hub.newest(), 0)
        {
            return Poll::Ready(error);
        }
        if let Poll::Ready(Err(error)) = self.poll_receive(context) {
            return Poll::Ready(error);
        }
        if let Poll::Ready(Err(error)) = self.wire.poll_flush(context) {
            return Poll::Ready(error);
        }
        wakes.leave(context.waker());
        Poll::Pending
    }

    /// Reads until nothing is left.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        with_buffer(|buffer| {
            while let Poll::Ready(filled) = self.wire.poll_read(context, buffer)? {
                let mut bytes = &buffer[..filled];
                if !self.has_preface && bytes.len() >= PREFACE.len() {
                    let rest = bytes.strip_prefix(PREFACE);
                    bytes = rest.ok_or_else(|| io::Error::other("no preface"))?;
                    self.has_preface = true;
                }
                while self.has_preface
                    && let Some((head, payload)) = first(bytes)?
                {
                    self.take(head, payload)?;
                    bytes = &bytes[HEAD_BYTES + payload.len()..];
                }
                self.wire.keep(bytes);
            }
            Poll::Pending
        })
    }

    fn take(&mut self, head: Head, payload: &[u8]) -> io::Result<()> {
        match head.kind {
            DATA if head.stream == self.stream && head.flags & (END_STREAM | PADDED) == 0 => {
                self.hub.heard(payload)?;
                self.received += payload.len() as u32;
                if self.received >= WINDOW / 2 {
                    let mut updates = window_update(0, self.received);
                    updates.extend_from_slice(&window_update(self.stream, self.received));
                    self.wire.send(&updates, Bytes::new())?;
                    self.received = 0;
                }
            }
            HEADERS if self.stream == 0 && head.flags & END_HEADERS != 0 => {
                self.stream = head.stream;
                self.wire.send(&frame(HEADERS, END_HEADERS, self.stream, RESPONSE), Bytes::new())?;
            }
            SETTINGS if head.flags & ACK == 0 => {
                for setting in payload.chunks_exact(6) {
                    if let [0, INITIAL_WINDOW_SIZE, window @ ..] = setting {
                        let window = i64::from(number(window)?);
                        self.stream_window += window - self.initial_window;
                        self.initial_window = window;
                    }
                }
                self.wire.send(&frame(SETTINGS, ACK, 0, &[]), Bytes::new())?;
                self.resume()?;
            }
            PING if head.flags & ACK == 0 => self.wire.send(&frame(PING, ACK, 0, payload), Bytes::new())?,
            WINDOW_UPDATE => {
                let window =
                    if head.stream == 0 { &mut self.connection_window } else { &mut self.stream_window };
                *window += i64::from(number(payload)?);
                self.resume()?;
            }
            DATA | HEADERS | RST_STREAM | GOAWAY | CONTINUATION => {
                return Err(io::Error::other("a frame that the clients of this bench never send"));
            }
            _ => {}
        }
        Ok(())
    }

    /// Goes on after the peer opened a window.
    fn resume(&mut self) -> io::Result<()> {
        self.unsent.take().map_or(Ok(()), |unsent| self.send(unsent.body, unsent.sent))
    }

    /// Sends the message from there on, as far as the windows of the peer allow.
    fn send(&mut self, body: Bytes, mut sent: usize) -> io::Result<()> {
        let all = PREFIX_BYTES + body.len();
        while sent < all {
            let window = self.connection_window.min(self.stream_window).max(0) as usize;
            let length = (all - sent).min(window).min(FRAME_BYTES_MAX);
            if length == 0 {
                self.unsent = Some(Box::new(Unsent { body, sent }));
                return Ok(());
            }
            let to = sent + length;
            let of_prefix = sent.min(PREFIX_BYTES)..to.min(PREFIX_BYTES);
            let mut start = [0; HEAD_BYTES + PREFIX_BYTES];
            let start_bytes = HEAD_BYTES + of_prefix.len();
            start[..HEAD_BYTES].copy_from_slice(&head(length, DATA, 0, self.stream));
            start[HEAD_BYTES..start_bytes].copy_from_slice(&prefix(body.len())[of_prefix]);
            let of_body = sent.saturating_sub(PREFIX_BYTES)..to.saturating_sub(PREFIX_BYTES);
            self.wire.send(&start[..start_bytes], body.slice(of_body))?;
            self.connection_window -= length as i64;
            self.stream_window -= length as i64;
            sent = to;
        }
        Ok(())
    }
}
