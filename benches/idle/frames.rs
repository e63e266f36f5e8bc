//! Frames of HTTP/2, and a socket that holds no buffer while no bytes wait.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub const HEAD_BYTES: usize = 9;
/// The default `SETTINGS_MAX_FRAME_SIZE`.
pub const FRAME_BYTES_MAX: usize = 16_384;
/// The initial window of each connection, and of each stream without other settings.
pub const DEFAULT_WINDOW: u32 = 65_535;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const ACK: u8 = 1;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;

pub const INITIAL_WINDOW_SIZE: u8 = 4;

#[derive(Clone, Copy)]
pub struct Head {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
}

pub fn head(length: usize, kind: u8, flags: u8, stream: u32) -> [u8; HEAD_BYTES] {
    let [.., x, y, z] = (length as u64).to_be_bytes();
    let [a, b, c, d] = stream.to_be_bytes();
    [x, y, z, kind, flags, a, b, c, d]
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    [&head(payload.len(), kind, flags, stream), payload].concat()
}

pub fn window_update(stream: u32, bytes: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

/// SETTINGS with the initial window of streams, and the update of the connection's window.
pub fn opening(stream_window: u32, connection_window: u32) -> Vec<u8> {
    let mut settings = vec![0, INITIAL_WINDOW_SIZE];
    settings.extend_from_slice(&stream_window.to_be_bytes());
    let mut opening = frame(SETTINGS, 0, 0, &settings);
    if connection_window > DEFAULT_WINDOW {
        opening.extend_from_slice(&window_update(0, connection_window - DEFAULT_WINDOW));
    }
    opening
}

/// The increment of a WINDOW_UPDATE, or another number of 31 bits.
pub fn number(payload: &[u8]) -> io::Result<u32> {
    let bytes = payload.try_into().map_err(|_| io::Error::other("a frame of a wrong length"))?;
    Ok(u32::from_be_bytes(bytes) & 0x7fff_ffff)
}

/// The whole frame at the begin of `bytes`.
pub fn first(bytes: &[u8]) -> io::Result<Option<(Head, &[u8])>> {
    let Some(([x, y, z, kind, flags, a, b, c, d], rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes([0, *x, *y, *z]) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::other("a frame is too long"));
    }
    let stream = u32::from_be_bytes([*a, *b, *c, *d]) & 0x7fff_ffff;
    Ok(rest.get(..length).map(|payload| (Head { kind: *kind, flags: *flags, stream }, payload)))
}

/// Room for the rest of a frame and a long read.
const BUFFER_BYTES: usize = 2 * (HEAD_BYTES + FRAME_BYTES_MAX);

thread_local! {
    /// Shared by all connections of a thread.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; BUFFER_BYTES]);
}

/// Calls `read` with the buffer of the thread. Calls must not be nested.
pub fn with_buffer<T>(read: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| read(buffer))
}

pub struct Wire {
    socket: TcpStream,
    /// Boxed, because most connections have nothing to keep.
    kept: Option<Box<Kept>>,
}

#[derive(Default)]
struct Kept {
    /// The begin of an unfinished frame.
    input: Vec<u8>,
    /// The bytes that the kernel did not take.
    output: VecDeque<Bytes>,
}

impl Wire {
    pub fn new(socket: TcpStream) -> Self {
        Wire { socket, kept: None }
    }

    /// Puts kept and new bytes at the begin of the buffer, and returns their number. The caller returns the bytes that it
    /// could not use by [`Wire::keep`].
    pub fn poll_read(&mut self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let kept = self.kept.as_ref().map_or(&[][..], |kept| &kept.input);
        buffer[..kept.len()].copy_from_slice(kept);
        let mut room = ReadBuf::new(&mut buffer[kept.len()..]);
        // Not `try_read`: after a read that does not fill the buffer, tokio knows here that nothing is left. So an answer
        // takes one system call instead of two.
        ready!(Pin::new(&mut self.socket).poll_read(context, &mut room))?;
        match room.filled().len() {
            0 => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            read => Poll::Ready(Ok(kept.len() + read)),
        }
    }

    pub fn keep(&mut self, rest: &[u8]) {
        if !rest.is_empty() || self.kept.is_some() {
            self.kept.get_or_insert_default().input = rest.to_vec();
            self.drop_if_empty();
        }
    }

    /// Writes a frame, or keeps what the kernel does not take.
    pub fn send(&mut self, head: &[u8], body: Bytes) -> io::Result<()> {
        let mut written = 0;
        if self.is_clear() {
            let parts = [IoSlice::new(head), IoSlice::new(&body)];
            written = taken(self.socket.try_write_vectored(&parts))?;
            if written == head.len() + body.len() {
                return Ok(());
            }
        }
        let output = &mut self.kept.get_or_insert_default().output;
        let of_head = written.min(head.len());
        let rest = [Bytes::copy_from_slice(&head[of_head..]), body.slice(written - of_head..)];
        output.extend(rest.into_iter().filter(|part| !part.is_empty()));
        Ok(())
    }

    /// True if the kernel took all bytes.
    pub fn is_clear(&self) -> bool {
        self.kept.as_ref().is_none_or(|kept| kept.output.is_empty())
    }

    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(kept) = &mut self.kept
            && let Some(part) = kept.output.front_mut()
        {
            ready!(self.socket.poll_write_ready(context))?;
            part.advance(taken(self.socket.try_write(part))?);
            if part.is_empty() {
                kept.output.pop_front();
                self.drop_if_empty();
            }
        }
        Poll::Ready(Ok(()))
    }

    fn drop_if_empty(&mut self) {
        self.kept.take_if(|kept| kept.input.is_empty() && kept.output.is_empty());
    }
}

/// The number of bytes that the kernel took.
fn taken(written: io::Result<usize>) -> io::Result<usize> {
    written.or_else(|error| if error.kind() == io::ErrorKind::WouldBlock { Ok(0) } else { Err(error) })
}
