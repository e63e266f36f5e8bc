//! Cuts the long DATA frames of a client (RFC 9113 §6.1) into short frames, before h2 sees them.
//!
//! h2 keeps a buffer for the longest frame received, for the life of the connection. An Envoy begins with a
//! request of 61 KB in frames of 16 KiB, and then sends a few hundred bytes at a time: its connection would
//! use twice the memory for ever. Short frames fit into the buffer of a new connection. Clients that keep
//! sending long frames are an exception: their frames pass uncut. Flow control and all layers above see no
//! difference. Padded frames and frames of other types pass unchanged.
//!
//! The bytes of clients without long frames pass in place, without a copy. Otherwise at most the bytes of one
//! read wait here.

use tokio::io::ReadBuf;

/// The maximum length of a frame that fits, with its head, into the initial buffer of h2.
const PIECE_BYTES: usize = 8192 - HEAD_BYTES;

/// A client with this many bytes in long frames sends long frames all the time: an Envoy that repeats its
/// node in each request. From then on, cutting would cost more than the buffer is worth.
const LONG_BYTES_CUT: usize = 128 * 1024;

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
    /// Bytes received in long frames so far.
    long_bytes: usize,
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

    /// Hands out kept bytes. Returns true if there were any to hand out.
    pub(super) fn give(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        let Some(mut kept) = self.kept.take_if(|kept| kept.has_more()) else { return false };
        let before = buffer.filled().len();
        let mut given = 0;
        while buffer.remaining() > 0 {
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
            } else if let Some(long) = kept.long.take() {
                self.rest = kept.cut(long);
            } else {
                let Some(head) = kept.ahead.get(given..given + HEAD_BYTES) else { break };
                let length = length_of(head);
                if self.cuts(head) {
                    let [.., flags, a, b, c, d] = *head else { break };
                    kept.long = Some(Long { left: length, flags, stream: [a, b, c, d] });
                    self.long_bytes += length;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(frame_type: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = vec![a, b, c, frame_type, flags, 0, 0, 0, stream];
        frame.extend_from_slice(payload);
        frame
    }

    /// The output for a connection that receives `input` in reads of `read` bytes, with a buffer of `room`
    /// bytes.
    fn through(input: &[u8], read: usize, room: usize) -> Vec<u8> {
        let (mut cutter, mut output) = (Cutter::default(), Vec::new());
        for bytes in input.chunks(read.min(room)) {
            let mut storage = vec![0; room];
            let mut buffer = ReadBuf::new(&mut storage);
            buffer.put_slice(bytes);
            cutter.take(&mut buffer, 0);
            output.extend_from_slice(buffer.filled());
            loop {
                let mut storage = vec![0; room];
                let mut buffer = ReadBuf::new(&mut storage);
                if !cutter.give(&mut buffer) {
                    break;
                }
                output.extend_from_slice(buffer.filled());
            }
            let ahead = cutter.kept.as_ref().map_or(0, |kept| kept.ahead.len());
            assert!(ahead <= read + HEAD_BYTES, "no more than one read waits");
        }
        output
    }

    type Frame = (u8, u8, u8, Vec<u8>);

    fn frames(mut bytes: &[u8]) -> Vec<Frame> {
        let mut frames = Vec::new();
        while !bytes.is_empty() {
            let (head, rest) = bytes.split_at(HEAD_BYTES);
            let (payload, rest) = rest.split_at(length_of(head));
            frames.push((head[3], head[4], head[8], payload.to_vec()));
            bytes = rest;
        }
        frames
    }

    #[test]
    fn long_data_comes_out_in_pieces_and_all_else_as_it_was() {
        let long: Vec<u8> = (0..16_384u32).map(|at| (at % 251) as u8).collect();
        let input = [
            frame(0x1, 0x4, 1, b"headers"),
            frame(DATA, 0, 1, &long),
            frame(DATA, END_STREAM, 1, &long[..10_000]),
            frame(DATA, 0, 3, b"ack"),
            frame(DATA, PADDED, 3, &long[..9000]),
            frame(0x6, 0, 0, b"pingpong"),
            frame(DATA, 0, 3, &long[..8193]),
        ];
        let plain = input.concat();
        for (read, room) in
            [(1, 1), (1, 8192), (3, 8192), (9, 20), (100, 4096), (8192, 8192), (100_000, 100_000)]
        {
            let frames = frames(&through(&plain, read, room));
            let lengths: Vec<_> = frames.iter().map(|(_, _, _, payload)| payload.len()).collect();
            let expected = [7, 5462, 5461, 5461, 5000, 5000, 3, 9000, 8, 4097, 4096];
            assert_eq!(lengths, expected, "reads of {read} into {room}");
            let flags: Vec<_> = frames.iter().map(|(_, flags, _, _)| *flags).collect();
            assert_eq!(flags, [0x4, 0, 0, 0, 0, END_STREAM, 0, PADDED, 0, 0, 0]);
            let of_first: Vec<u8> = frames
                .iter()
                .filter(|frame| (frame.0, frame.2) == (DATA, 1))
                .flat_map(|frame| frame.3.clone())
                .collect();
            assert_eq!(of_first, [&long[..], &long[..10_000]].concat());
        }
    }

    #[test]
    fn long_frames_that_keep_coming_pass_as_they_are() {
        let long = vec![7; 16_384];
        let count = LONG_BYTES_CUT / long.len();
        let input = frame(DATA, 0, 1, &long).repeat(count + 3);
        for (read, room) in [(100, 8192), (8192, 8192), (100_000, 100_000)] {
            let frames = frames(&through(&input, read, room));
            assert_eq!(frames.len(), 3 * count + 3, "reads of {read} into {room}");
            let bytes: usize = frames.iter().map(|(_, _, _, payload)| payload.len()).sum();
            assert_eq!(bytes, (count + 3) * long.len());
            assert!(frames[3 * count..].iter().all(|(_, _, _, payload)| payload.len() == long.len()));
        }
    }

    #[test]
    fn short_frames_pass_where_they_lie() {
        let mut storage = [0; 200];
        let mut buffer = ReadBuf::new(&mut storage);
        let mut cutter = Cutter::default();
        let input = [frame(DATA, 0, 1, b"ack"), frame(0x8, 0, 0, &[0, 0, 0, 9])].concat();
        buffer.put_slice(&input);
        cutter.take(&mut buffer, 0);
        assert_eq!(buffer.filled(), input);
        assert!(cutter.kept.is_none());
    }
}
