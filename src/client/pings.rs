//! Counts the PINGs that a server has to bear.
//!
//! grpc-go closes a connection at the third PING that comes too early. A PING is expected if the server has
//! written DATA or HEADERS since the PING before (gRFC A8). The server may have written them before it read
//! the PING, however late they arrive or are read here. So only frames that arrive after the answer to the
//! last PING count, and they are seen where the bytes of the connection arrive.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tokio::sync::Notify;

/// The head of a frame: three bytes of length, one of the type, one of flags, four of the stream (RFC 9113,
/// section 4.1).
const HEAD: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PING: u8 = 6;
const ACK: u8 = 1;

/// A frame that matters to the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PingFrame {
    /// DATA or HEADERS.
    Content,
    /// The answer to a PING.
    Pong,
}

/// The position in the received bytes of a connection.
#[derive(Debug, Default)]
pub(super) struct PingFrames {
    head: [u8; HEAD],
    length: usize,
    /// The rest of the payload of the frame that is arriving.
    rest: usize,
}

impl PingFrames {
    /// Reads the next bytes, and visits the frames that begin in them.
    pub(super) fn read(&mut self, mut bytes: &[u8], mut visit: impl FnMut(PingFrame)) {
        while !bytes.is_empty() {
            let skipped = self.rest.min(bytes.len());
            self.rest -= skipped;
            let (_, unread) = bytes.split_at(skipped);
            let (part, after) = unread.split_at((HEAD - self.length).min(unread.len()));
            for (kept, byte) in self.head.iter_mut().skip(self.length).zip(part) {
                *kept = *byte;
            }
            self.length += part.len();
            bytes = after;
            if self.length == HEAD {
                let [a, b, c, kind, flags, ..] = self.head;
                (self.length, self.rest) = (0, u32::from_be_bytes([0, a, b, c]) as usize);
                match kind {
                    DATA | HEADERS => visit(PingFrame::Content),
                    PING if flags & ACK != 0 => visit(PingFrame::Pong),
                    _ => {}
                }
            }
        }
    }
}

/// The PINGs of a connection since its server has written something that makes the next PING expected.
#[derive(Debug, Default)]
pub(super) struct Pings {
    sent: AtomicU32,
    is_outstanding: AtomicBool,
    renewed: Notify,
}

impl Pings {
    /// A PING is sent, whatever its reason.
    pub(super) fn send(&self) {
        self.is_outstanding.store(true, Ordering::Relaxed);
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count(&self) -> u32 {
        self.sent.load(Ordering::Relaxed)
    }

    pub(super) fn received(&self, frame: PingFrame) {
        match frame {
            PingFrame::Pong => self.is_outstanding.store(false, Ordering::Relaxed),
            PingFrame::Content if self.is_outstanding.load(Ordering::Relaxed) => {}
            PingFrame::Content => {
                if self.sent.swap(0, Ordering::Relaxed) > 0 {
                    self.renewed.notify_one();
                }
            }
        }
    }

    /// Waits until the count starts again. Cancel-safe.
    pub(super) async fn renewed(&self) {
        self.renewed.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(length: u8, kind: u8, flags: u8) -> Vec<u8> {
        let mut bytes = vec![0, 0, length, kind, flags, 0, 0, 0, 1];
        bytes.extend(vec![PING; usize::from(length)]);
        bytes
    }

    #[test]
    fn fu32_frames_are_found_however_the_bytes_are_cut() {
        let settings = frame(18, 4, 0);
        let bytes =
            [settings, frame(8, PING, ACK), frame(0, DATA, 1), frame(8, PING, 0), frame(200, HEADERS, 4)]
                .concat();
        for cut in 1..bytes.len() {
            let (mut frames, mut seen) = (PingFrames::default(), Vec::new());
            bytes.chunks(cut).for_each(|part| frames.read(part, |frame| seen.push(frame)));
            assert_eq!(seen, [PingFrame::Pong, PingFrame::Content, PingFrame::Content], "cut at {cut}");
        }
    }

    #[test]
    fn fu32_content_counts_after_the_answer_to_the_last_ping() {
        let pings = Pings::default();
        pings.send();
        pings.received(PingFrame::Content);
        assert_eq!(pings.count(), 1, "written before the server read the PING, as far as is known");
        pings.received(PingFrame::Pong);
        pings.send();
        pings.received(PingFrame::Pong);
        assert_eq!(pings.count(), 2);
        pings.received(PingFrame::Content);
        assert_eq!(pings.count(), 0);
    }
}
