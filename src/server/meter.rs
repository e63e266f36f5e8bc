//! Counts the frames of a client that HTTP/2 answers, or ignores, without a limit of its own (FD19).
//!
//! PING, SETTINGS, PRIORITY, RST_STREAM, WINDOW_UPDATE and unknown frames cost 0.1 to 0.3 µs each, calls some
//! 20 µs, and headers by their length. A client that sends enough of them wastes a core. Other frames have
//! limits elsewhere, or carry data.
//!
//! WINDOW_UPDATEs are no flood if data went out: a client that reads sends one or two per piece of data. So
//! written bytes pay for WINDOW_UPDATEs. Every client that opens its window by more than a few bytes at a
//! time can pay. A client that opens its window byte by byte pays more for each WINDOW_UPDATE, because the
//! server has to send as many frames. But gRPC's C-core opens a window by 5 bytes, for the head of a message,
//! once for a call and again for about one message in four. So each call and each request pays for one small
//! window: a client sends a request for each message that it took.
//!
//! The meter follows the heads of frames (RFC 9113 §4.1) through the bytes as received, and reads the clock
//! once per `max` of cost.

use std::time::Duration;

use tokio::time::Instant;

/// The cost of a call, in control frames: to accept, answer and drop the call.
const CALL: u32 = 5;

/// Bytes of headers that cost as much as a control frame. They are decoded, also if their call is refused
/// then. The usual headers of a call have less than twice as many.
const HEADER_BYTES: u32 = 128;

/// The cost of a window that opens by less than [`SMALL_WINDOW_BYTES`]: a frame of that size, its system call
/// and its turn.
const SMALL_WINDOW: u32 = 10;
/// Less than the length of the smallest response.
const SMALL_WINDOW_BYTES: u32 = 16;

/// Bytes of a DATA frame that may be a request. The smallest ACK has the URL of a type and a nonce.
const REQUEST_BYTES: usize = 64;

/// Written bytes that pay for one WINDOW_UPDATE. Half of a DATA frame of 1 KiB, because a client may send
/// two: for the stream and for the connection.
const BYTES_PER_UPDATE: usize = 512;

/// Bytes of TLS apart from its content that cost as much as a control frame. A record has 22 of them, and
/// takes half a microsecond; a change of keys has 27, and takes three.
const OVERHEAD_BYTES: u64 = 8;

const HEAD_BYTES: usize = 9;
/// The payload of a WINDOW_UPDATE.
const PAYLOAD_BYTES: usize = 4;

const DATA: u8 = 0x0;
const HEADERS: u8 = 0x1;
const WINDOW_UPDATE: u8 = 0x8;
const CONTINUATION: u8 = 0x9;

/// Follows one connection from its first frame on.
#[derive(Debug)]
pub(super) struct FrameMeter {
    /// The cost allowed per second.
    max: u32,
    spent: u32,
    since: Instant,
    /// Written bytes that have not paid for a frame yet; at most the price of `max` frames.
    written: usize,
    /// The received part of the next head, with the payload of a WINDOW_UPDATE.
    head: [u8; HEAD_BYTES + PAYLOAD_BYTES],
    head_bytes: u8,
    /// Bytes left until the next frame begins.
    skip: usize,
    /// Bytes of TLS that have not cost anything yet.
    overhead: u64,
    /// Calls and requests that have not paid for a small window yet.
    asked: u16,
}

impl FrameMeter {
    pub(super) fn new(max: u32, now: Instant) -> Self {
        let head = [0; HEAD_BYTES + PAYLOAD_BYTES];
        let (spent, written, head_bytes, skip, overhead, asked) = Default::default();
        FrameMeter { max, spent, since: now, written, head, head_bytes, skip, overhead, asked }
    }

    /// Adds bytes that were written to the client.
    pub(super) fn wrote(&mut self, bytes: usize) {
        let most = BYTES_PER_UPDATE.saturating_mul(self.max as usize);
        self.written = self.written.saturating_add(bytes).min(most);
    }

    /// Returns true if these bytes are too much: the client spent `max` in less than a second. Adds the
    /// frames that begin to `frames`.
    pub(super) fn read(&mut self, mut bytes: &[u8], frames: &mut u32) -> bool {
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            if !self.take(&mut bytes, HEAD_BYTES) {
                return false;
            }
            let [a, b, c, frame_type, ..] = self.head;
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            // A WINDOW_UPDATE of any other length is an error of the connection.
            let looks_inside = frame_type == WINDOW_UPDATE && length == PAYLOAD_BYTES;
            if looks_inside && !self.take(&mut bytes, HEAD_BYTES + PAYLOAD_BYTES) {
                return false;
            }
            self.head_bytes = 0;
            *frames = frames.saturating_add(1);
            self.skip = if looks_inside { 0 } else { length };
            let cost = self.cost(frame_type, length);
            if self.spend(cost) {
                return true;
            }
        }
    }

    /// Returns true if these bytes of TLS, apart from HTTP within, are too much: tiny records, and changes of
    /// keys.
    pub(super) fn below(&mut self, bytes: u64) -> bool {
        self.overhead += bytes;
        let cost = self.overhead / OVERHEAD_BYTES;
        self.overhead %= OVERHEAD_BYTES;
        self.spend(u32::try_from(cost).unwrap_or(u32::MAX))
    }

    /// Takes bytes until the head has `until` bytes. Returns true if the head has as many.
    fn take(&mut self, bytes: &mut &[u8], until: usize) -> bool {
        let had = usize::from(self.head_bytes);
        let taken = bytes.len().min(until.saturating_sub(had));
        let (now, later) = bytes.split_at(taken);
        self.head[had..had + taken].copy_from_slice(now);
        // No head is longer than a byte can tell.
        self.head_bytes = u8::try_from(had + taken).unwrap_or(u8::MAX);
        *bytes = later;
        had + taken >= until
    }

    /// By the type numbers of RFC 9113 §6.
    fn cost(&mut self, frame_type: u8, length: usize) -> u32 {
        let of_headers = u32::try_from(length).unwrap_or(u32::MAX) / HEADER_BYTES;
        if frame_type == HEADERS || (frame_type == DATA && length >= REQUEST_BYTES) {
            self.asked = self.asked.saturating_add(1);
        }
        match frame_type {
            DATA => 0,
            CONTINUATION => of_headers,
            HEADERS => CALL + of_headers,
            WINDOW_UPDATE => self.cost_of_window(),
            _ => 1,
        }
    }

    fn cost_of_window(&mut self) -> u32 {
        let [.., a, b, c, d] = self.head;
        if u32::from_be_bytes([a, b, c, d]) < SMALL_WINDOW_BYTES {
            let paid = self.asked.checked_sub(1);
            self.asked = paid.unwrap_or_default();
            return if paid.is_some() { 1 } else { SMALL_WINDOW };
        }
        let paid = self.written.checked_sub(BYTES_PER_UPDATE);
        self.written = paid.unwrap_or(self.written);
        u32::from(paid.is_none())
    }

    fn spend(&mut self, cost: u32) -> bool {
        self.spent = self.spent.saturating_add(cost);
        if cost == 0 || self.spent < self.max {
            return false;
        }
        let now = Instant::now();
        let is_too_much = now < self.since + Duration::from_secs(1);
        self.spent = 0;
        self.since = now;
        is_too_much
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    const PING: u8 = 0x6;

    fn floods(meter: &mut FrameMeter, bytes: &[u8]) -> bool {
        meter.read(bytes, &mut 0)
    }

    fn frame(frame_type: u8, payload_bytes: usize) -> Vec<u8> {
        let mut frame = vec![0, 0, 0, frame_type, 0, 0, 0, 0, 0];
        frame[1..3].copy_from_slice(&(payload_bytes as u16).to_be_bytes());
        // The payload would count if the meter took it for headers.
        frame.resize(frame.len() + payload_bytes, 0x6);
        frame
    }

    fn window_update(bytes: u32) -> Vec<u8> {
        [&[0, 0, 4, WINDOW_UPDATE, 0, 0, 0, 0, 1][..], &bytes.to_be_bytes()].concat()
    }

    #[tokio::test(start_paused = true)]
    async fn fd19_frames_are_counted_in_any_segmentation() {
        let (ping, settings, unknown) = (frame(PING, 8), frame(0x4, 0), frame(0xfe, 300));
        let bytes =
            [frame(DATA, 1000), ping, frame(HEADERS, 3), settings, window_update(100), unknown].concat();
        for segment in [1, 2, 3, 7, 9, 10, 100, bytes.len()] {
            let mut frames = FrameMeter::new(10, Instant::now());
            assert!(!bytes.chunks(segment).any(|bytes| floods(&mut frames, bytes)));
            assert_eq!((frames.spent, frames.skip, frames.head_bytes), (9, 0, 0), "segment {segment}");
            assert!(frame(0x3, 4).chunks(segment).any(|bytes| floods(&mut frames, bytes)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn fd19_headers_cost_by_their_length() {
        let spent = |bytes: &[u8]| {
            let mut frames = FrameMeter::new(10_000, Instant::now());
            assert!(!floods(&mut frames, bytes));
            frames.spent
        };
        assert_eq!(spent(&frame(HEADERS, 100)), CALL);
        assert_eq!(spent(&[frame(HEADERS, 16_384), frame(CONTINUATION, 16_384)].concat()), CALL + 256);
    }

    #[tokio::test(start_paused = true)]
    async fn fd19_records_of_tls_cost_by_their_bytes() {
        let mut frames = FrameMeter::new(100, Instant::now());
        assert!(!(0..36).any(|_| frames.below(22)), "{}", frames.spent);
        assert!(frames.below(22));
    }

    #[tokio::test(start_paused = true)]
    async fn fd19_a_slow_pace_is_not_a_flood() {
        let mut frames = FrameMeter::new(10, Instant::now());
        for _ in 0..1000 {
            advance(Duration::from_millis(101)).await;
            assert!(!floods(&mut frames, &frame(PING, 8)));
        }
    }

    /// gRPC's C-core with a thousand targets: a stream for each, and on each a small window at the start and
    /// with a message of each type.
    #[tokio::test(start_paused = true)]
    async fn fd19_a_process_with_a_thousand_streams_is_no_flood() {
        let mut frames = FrameMeter::new(10_000, Instant::now());
        let [call, ack] = [frame(HEADERS, 8), frame(DATA, 150)];
        for _ in 0..1000 {
            assert!(!floods(&mut frames, &[&call[..], &window_update(5), &ack].concat()));
            for _ in 0..3 {
                frames.wrote(350);
                assert!(!floods(&mut frames, &[&window_update(5)[..], &window_update(420), &ack].concat()));
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn fd19_who_takes_data_may_open_its_window_and_who_takes_a_byte_may_not() {
        let new = || FrameMeter::new(100, Instant::now());
        let is_flood = |frames: &mut FrameMeter, written, bytes| {
            (0..10_000).any(|_| {
                frames.wrote(written);
                floods(frames, &window_update(bytes))
            })
        };
        assert!(!is_flood(&mut new(), 1024, 1024));
        assert!(!is_flood(&mut new(), BYTES_PER_UPDATE, 100));
        assert!(is_flood(&mut new(), HEAD_BYTES + 1, 1), "a frame of one byte");
        assert!(is_flood(&mut new(), 1 << 20, 1), "however much went out");
        assert!(is_flood(&mut new(), 0, 1024), "nothing went out");
        // So many requests pay only once.
        let mut frames = new();
        assert!(
            !(0..9).any(|_| floods(&mut frames, &frame(DATA, REQUEST_BYTES))
                || floods(&mut frames, &window_update(5)))
        );
        assert_eq!(frames.spent, 9);
        assert!(!floods(&mut frames, &frame(DATA, REQUEST_BYTES - 1)), "no request");
        assert!(is_flood(&mut frames, 0, 5));
        // The savings are bounded.
        let mut frames = new();
        frames.wrote(usize::MAX);
        assert!(floods(&mut frames, &window_update(1024).repeat(200)));
    }
}
