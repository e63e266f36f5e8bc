//! The bytes of a peer that has proved nothing yet (SEC-4, SEC-7).

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::places::Seat;
use crate::server::socket::{PEEKED_MAX, Plain};
use crate::trust::refusal::{Reason, Refusal};

/// Bytes of a peer before its handshake is over. A hybrid ClientHello has 1.8 KiB, a chain of eight some 16
/// KiB.
const BYTES_MAX: usize = 32 * 1024;

/// RFC 8446, section 5.1: the content type of a handshake.
const HANDSHAKE: u8 = 0x16;
/// The head of a record, and of the handshake message within.
const RECORD_HEAD: usize = 5;
const MESSAGE_HEAD: usize = 4;

/// The kind of a peer's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Opening {
    Tls,
    /// A method in capitals.
    Http1,
    Other,
}

/// The first unread bytes of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum First {
    /// A whole record of this length, which is the ClientHello of all usual clients.
    Record(usize),
    /// The peer will be refused, or its record is longer than the shown bytes.
    Other,
}

impl First {
    /// `None` if the peer has to send more.
    pub(super) fn of(bytes: &[u8]) -> Option<First> {
        let mut budget = Budget::default();
        if budget.take(bytes).is_err() {
            return Some(First::Other);
        }
        match budget.record()? {
            record if record <= bytes.len() => Some(First::Record(record)),
            _ => (bytes.len() == PEEKED_MAX).then_some(First::Other),
        }
    }
}

/// A socket below TLS. Bounds the bytes until [`Guard::relax`].
pub(in crate::server) struct Guard {
    socket: Plain,
    /// `None` after the handshake.
    budget: Option<Budget>,
    received: u64,
}

#[derive(Default)]
struct Budget {
    bytes: usize,
    opening: Option<Opening>,
    /// The first record's head and the head of its message.
    head: [u8; RECORD_HEAD + MESSAGE_HEAD],
    /// Told of the bytes.
    seat: Option<Arc<Seat>>,
}

impl Budget {
    /// # Errors
    /// The peer does not speak TLS, or has sent or announced too much.
    fn take(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let Some(first) = bytes.first() else { return Ok(()) };
        if self.opening.is_none() {
            self.opening = Some(match first {
                &HANDSHAKE => Opening::Tls,
                letter if letter.is_ascii_uppercase() && !bytes.starts_with(b"PRI ") => Opening::Http1,
                _ => Opening::Other,
            });
            if self.opening != Some(Opening::Tls) {
                return Err(Refusal::new(Reason::NotTls, "the client does not speak TLS (plaintext)"));
            }
        }
        let seen = self.bytes;
        if let Some(rest) = self.head.get_mut(seen..) {
            for (place, byte) in rest.iter_mut().zip(bytes) {
                *place = *byte;
            }
        }
        self.bytes += bytes.len();
        if let Some(seat) = &self.seat {
            seat.heard(seen, self.bytes);
        }
        if self.bytes > BYTES_MAX || self.announced().is_some_and(|length| length > BYTES_MAX) {
            return Err(Refusal::new(Reason::TooLarge, "the handshake of the client is too large"));
        }
        Ok(())
    }

    /// The length of the first record with its head, once it is known.
    fn record(&self) -> Option<usize> {
        (self.bytes >= RECORD_HEAD).then(|| RECORD_HEAD + self.payload())
    }

    fn payload(&self) -> usize {
        usize::from(u16::from_be_bytes([self.head[3], self.head[4]]))
    }

    /// The length of the first message, once its head is complete. A head cut by records is bounded by the
    /// bytes.
    fn announced(&self) -> Option<usize> {
        let is_complete = self.bytes >= self.head.len() && self.payload() >= MESSAGE_HEAD;
        is_complete.then(|| u32::from_be_bytes([0, self.head[6], self.head[7], self.head[8]]) as usize)
    }
}

impl Guard {
    pub(super) fn new(socket: Plain, seat: Arc<Seat>) -> Guard {
        let budget = Budget { seat: Some(seat), ..Budget::default() };
        Guard { socket, budget: Some(budget), received: 0 }
    }

    /// The handshake is over: from here on HTTP's limits hold.
    pub(super) fn relax(&mut self) {
        self.budget = None;
    }

    pub(super) fn opening(&self) -> Option<Opening> {
        self.budget.as_ref()?.opening
    }

    /// The bytes of the peer so far.
    pub(super) fn bytes(&self) -> usize {
        self.budget.as_ref().map_or(0, |budget| budget.bytes)
    }

    pub(in crate::server) fn plain(&self) -> &Plain {
        &self.socket
    }

    pub(in crate::server) fn plain_mut(&mut self) -> &mut Plain {
        &mut self.socket
    }

    /// The bytes of the peer so far, also after the handshake.
    pub(in crate::server) fn received(&self) -> u64 {
        self.received
    }
}

impl AsyncRead for Guard {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.socket).poll_read(context, buffer))?;
        this.received += (buffer.filled().len() - before) as u64;
        let Some(budget) = &mut this.budget else { return Poll::Ready(Ok(())) };
        Poll::Ready(budget.take(&buffer.filled()[before..]).map_err(io::Error::other))
    }
}

impl AsyncWrite for Guard {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(length: u32) -> Vec<u8> {
        let [_, a, b, c] = length.to_be_bytes();
        vec![HANDSHAKE, 3, 1, 0x40, 0, 1, a, b, c, 0, 0]
    }

    fn outcome(parts: &[&[u8]]) -> Option<Reason> {
        let mut budget = Budget::default();
        parts.iter().find_map(|part| budget.take(part).err()).map(|refusal| refusal.reason)
    }

    #[test]
    fn sec_4_an_announced_giant_is_refused_at_its_length_however_it_is_cut() {
        let (small, giant) = (hello(2_000), hello(64 << 10));
        for cut in 1..small.len() {
            assert_eq!(outcome(&[&small[..cut], &small[cut..]]), None, "{cut}");
            assert_eq!(outcome(&[&giant[..cut], &giant[cut..]]), Some(Reason::TooLarge), "{cut}");
        }
        let bytes: Vec<&[u8]> = giant.chunks(1).collect();
        assert_eq!(outcome(&bytes), Some(Reason::TooLarge));
    }

    #[test]
    fn sec_2_a_record_is_whole_with_its_last_byte() {
        // A record of 1,000 bytes, whose message goes on in the next one.
        let record = [&[HANDSHAKE, 3, 1, 3, 0xe8, 1, 0, 8, 0][..], &[0; 996]].concat();
        for length in 0..record.len() {
            assert_eq!(First::of(&record[..length]), None, "{length}");
        }
        assert_eq!(First::of(&record), Some(First::Record(1_005)));
        assert_eq!(First::of(&[&record[..], &[0; 3_000]].concat()), Some(First::Record(1_005)));
    }

    #[test]
    fn sec_2_nobody_waits_for_bytes_of_a_peer_that_is_refused_or_has_a_long_record() {
        let long = [&hello(0x3000)[..], &[0; PEEKED_MAX]].concat();
        for (bytes, first) in [
            (&b""[..], None),
            (b"P", Some(First::Other)),
            (&hello(0x8000)[..8], None),
            (&hello(64 << 10)[..9], Some(First::Other)),
            (&long[..PEEKED_MAX - 1], None),
            (&long[..PEEKED_MAX], Some(First::Other)),
        ] {
            assert_eq!(First::of(bytes), first, "{bytes:?}");
        }
    }

    #[test]
    fn sec_4_many_small_records_are_bounded_in_all() {
        // A record of one byte: its message has no whole head there.
        let record: &[u8] = &[HANDSHAKE, 3, 1, 0, 1, 1];
        let records = BYTES_MAX / record.len();
        assert_eq!(outcome(&vec![record; records]), None);
        assert_eq!(outcome(&vec![record; records + 1]), Some(Reason::TooLarge));
    }

    #[test]
    fn sec_7_the_first_byte_tells() {
        for (bytes, opening) in [
            (&b"GET / HTTP/1.1"[..], Opening::Http1),
            (b"P", Opening::Http1),
            (b"PRI * HTTP/2.0", Opening::Other),
            (b"\0\0", Opening::Other),
        ] {
            let mut budget = Budget::default();
            assert_eq!(budget.take(bytes).err().map(|refusal| refusal.reason), Some(Reason::NotTls));
            assert_eq!(budget.opening, Some(opening));
        }
    }
}
