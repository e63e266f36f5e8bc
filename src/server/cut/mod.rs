//! Cuts the long DATA frames of a client (RFC 9113 §6.1) into short frames, before h2 sees them.
//!
//! h2 keeps a buffer for the longest frame received, for the life of the connection. An Envoy begins with a
//! request of 61 KB in frames of 16 KiB, and then sends a few hundred bytes at a time, and a client with load
//! reports sends some 20 KB every ten seconds: their connections would use twice the memory for ever. Short
//! frames fit into the buffer of a new connection. Clients that keep sending long frames all the time are an
//! exception: their frames pass uncut. Flow control and all layers above see no difference. Padded frames and
//! frames of other types pass unchanged.
//!
//! After each piece the calls of the connection have a turn before the next read. Else h2 would make a place
//! for each piece of a long message, and keep all places for ever, too.
//!
//! The bytes of clients without long frames pass in place, without a copy. Otherwise at most the bytes of one
//! read wait here.

#[cfg(test)]
mod tests;

use std::time::Duration;

use tokio::io::ReadBuf;

/// The initial buffer of h2.
const BUFFER_BYTES: usize = 8192;

/// The maximum length of a frame for which the buffer never grows. The buffer doubles for a frame that lies
/// within the first half and has no room behind it; a frame of half the buffer, with its head, always has.
const PIECE_BYTES: usize = BUFFER_BYTES / 2 - HEAD_BYTES;

/// A client with this many bytes in long frames, beside those that have leaked away, sends long frames all
/// the time: an Envoy that repeats its node in each request, from its second request on. Then cutting would
/// cost more than the buffer is worth: a request in pieces costs twice.
const LONG_BYTES_CUT: u32 = 96 << 10;

/// The bytes in long frames that leak away in a second. So the reports of 3,000 rows every ten seconds are
/// still cut.
const LEAK_BYTES_PER_SECOND: u32 = 16 << 10;

/// The default `SETTINGS_MAX_FRAME_SIZE`, which the relay doesn't change. HTTP/2 must see longer frames, in
/// order to refuse them.
const FRAME_BYTES_MAX: usize = 16_384;

const HEAD_BYTES: usize = 9;
const DATA: u8 = 0x0;
const END_STREAM: u8 = 0x1;
const PADDED: u8 = 0x8;

/// Follows one connection from its first frame on.
#[derive(Debug, Default)]
pub(super) struct Cutter {
    /// Bytes of payload that may pass before the next head.
    rest: usize,
    /// Bytes received in long frames, without those that have leaked away.
    long_bytes: u32,
    /// The second of the latest leak.
    leaked_at: u32,
    /// Boxed, because most connections have nothing to keep.
    kept: Option<Box<Kept>>,
}

/// Bytes that cannot pass in place.
#[derive(Debug, Default)]
struct Kept {
    /// The remaining bytes of a head that is being handed out.
    head: Vec<u8>,
    /// The remainder of a frame that is being cut.
    long: Option<Long>,
    /// Bytes read and not handed out yet.
    ahead: Vec<u8>,
    /// A piece is out, and the calls have their turn before the next one.
    is_paused: bool,
}

#[derive(Debug)]
struct Long {
    left: usize,
    flags: u8,
    stream: [u8; 4],
}

impl Cutter {
    /// Takes the bytes just read into `buffer` after `before`. Removes bytes that cannot pass in place from
    /// the buffer.
    pub(super) fn take(&mut self, buffer: &mut ReadBuf<'_>, before: usize) {
        let read = &buffer.filled()[before..];
        let has_more = self.kept.as_ref().is_some_and(|kept| kept.has_more());
        if !has_more && self.passes(read) {
            return;
        }
        self.kept.get_or_insert_default().ahead.extend_from_slice(read);
        buffer.set_filled(before);
    }

    /// Lets bytes in long frames leak away. `age` only grows. Costs the other clients nothing. After a frame
    /// has passed uncut, the buffer of the connection is large for ever, and cutting would only copy bytes.
    pub(super) fn leak(&mut self, age: impl Fn() -> Duration) {
        if self.long_bytes == 0 || self.long_bytes >= LONG_BYTES_CUT {
            return;
        }
        let second = u32::try_from(age().as_secs()).unwrap_or(u32::MAX);
        let passed = second.saturating_sub(std::mem::replace(&mut self.leaked_at, second));
        self.long_bytes = self.long_bytes.saturating_sub(passed.saturating_mul(LEAK_BYTES_PER_SECOND));
    }

    /// Whether the calls are to have their turn before the next bytes. True once after each piece.
    pub(super) fn take_pause(&mut self) -> bool {
        self.kept.as_mut().is_some_and(|kept| std::mem::take(&mut kept.is_paused))
    }

    /// Hands out kept bytes, up to the end of a piece. Returns true if there were any to hand out.
    pub(super) fn give(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        let Some(mut kept) = self.kept.take_if(|kept| kept.has_more()) else { return false };
        let before = buffer.filled().len();
        let mut given = 0;
        while buffer.remaining() > 0 && !kept.is_paused {
            if !kept.head.is_empty() {
                let count = kept.head.len().min(buffer.remaining());
                buffer.put_slice(&kept.head[..count]);
                kept.head.drain(..count);
            } else if self.rest > 0 {
                let count = self.rest.min(kept.ahead.len() - given).min(buffer.remaining());
                if count == 0 {
                    break;
                }
                buffer.put_slice(&kept.ahead[given..given + count]);
                (self.rest, given) = (self.rest - count, given + count);
                kept.is_paused = self.rest == 0 && kept.long.is_some();
            } else if let Some(long) = kept.long.take() {
                self.rest = kept.cut(long);
            } else {
                let Some(head) = kept.ahead.get(given..given + HEAD_BYTES) else { break };
                let length = length_of(head);
                if self.cuts(head) {
                    let [.., flags, a, b, c, d] = *head else { break };
                    kept.long = Some(Long { left: length, flags, stream: [a, b, c, d] });
                    self.long_bytes += length as u32;
                } else {
                    kept.head.extend_from_slice(head);
                    self.rest = length;
                }
                given += HEAD_BYTES;
            }
        }
        kept.ahead.drain(..given);
        // A connection keeps no memory while no bytes wait.
        if kept.has_more() || kept.long.is_some() {
            if kept.ahead.is_empty() {
                kept.ahead = Vec::new();
            }
            self.kept = Some(kept);
        }
        buffer.filled().len() > before
    }

    /// True if the frame with this head has to be cut.
    fn cuts(&self, head: &[u8]) -> bool {
        self.long_bytes < LONG_BYTES_CUT && is_long(head)
    }

    /// True if these bytes may pass unchanged; then they are accounted for.
    fn passes(&mut self, mut bytes: &[u8]) -> bool {
        let is_cutting = self.kept.as_ref().is_some_and(|kept| kept.long.is_some());
        if is_cutting && self.rest < bytes.len() {
            return false;
        }
        let mut rest = self.rest;
        loop {
            let skipped = rest.min(bytes.len());
            (rest, bytes) = (rest - skipped, &bytes[skipped..]);
            if bytes.is_empty() {
                self.rest = rest;
                if is_cutting && rest == 0 {
                    self.kept.iter_mut().for_each(|kept| kept.is_paused = true);
                }
                return true;
            }
            let Some(head) = bytes.get(..HEAD_BYTES) else { return false };
            if self.cuts(head) {
                return false;
            }
            (rest, bytes) = (length_of(head), &bytes[HEAD_BYTES..]);
        }
    }
}

impl Kept {
    /// True if bytes can be handed out.
    fn has_more(&self) -> bool {
        !self.ahead.is_empty() || !self.head.is_empty()
    }

    /// Begins the next piece of a long frame, and returns the length of the piece.
    fn cut(&mut self, long: Long) -> usize {
        // Pieces of similar size, because h2 counts very short frames against the client.
        let pieces = long.left.div_ceil(PIECE_BYTES);
        let piece = long.left.div_ceil(pieces.max(1));
        let is_last = piece == long.left;
        let flags = if is_last { long.flags } else { long.flags & !END_STREAM };
        let [_, a, b, c] = u32::try_from(piece).unwrap_or(0).to_be_bytes();
        self.head.extend_from_slice(&[a, b, c, DATA, flags]);
        self.head.extend_from_slice(&long.stream);
        self.long = (!is_last).then(|| Long { left: long.left - piece, ..long });
        piece
    }
}

fn length_of(head: &[u8]) -> usize {
    head.iter().take(3).fold(0, |length, byte| length << 8 | usize::from(*byte))
}

fn is_long(head: &[u8]) -> bool {
    let (frame_type, flags) = (head.get(3).copied(), head.get(4).copied().unwrap_or_default());
    frame_type == Some(DATA)
        && flags & PADDED == 0
        && (PIECE_BYTES + 1..=FRAME_BYTES_MAX).contains(&length_of(head))
}
