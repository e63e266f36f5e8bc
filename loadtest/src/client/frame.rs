//! HTTP/2 frames (RFC 9113, section 4): a reader that never buffers a DATA payload, and writers.

use thiserror::Error;

/// We never raise SETTINGS_MAX_FRAME_SIZE, and neither does Envoy, so this is the longest payload from a
/// peer.
pub const MAX_FRAME_SIZE: u32 = 16_384;

/// The first bytes of every client connection (RFC 9113, section 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub mod kind {
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PUSH_PROMISE: u8 = 5;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

pub mod flag {
    pub const ACK: u8 = 1;
    pub const END_STREAM: u8 = 1;
    pub const END_HEADERS: u8 = 4;
    pub const PADDED: u8 = 8;
    pub const PRIORITY: u8 = 0x20;
}

/// A violation of RFC 9113 by the server, or of this client's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    #[error("the server sent a frame longer than SETTINGS_MAX_FRAME_SIZE")]
    TooLong,
    #[error("the server sent a frame with more padding than payload")]
    Padding,
    #[error("the server split a header block into CONTINUATION frames, which this client does not take")]
    Continuation,
    #[error("the server pushed a stream although SETTINGS_ENABLE_PUSH is 0")]
    Push,
    #[error("the server sent a frame of a wrong length")]
    Length,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub length: u32,
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
}

impl Header {
    fn parse(bytes: [u8; 9]) -> Result<Header, FrameError> {
        let [a, b, c, kind, flags, stream @ ..] = bytes;
        let header = Header {
            length: u32::from_be_bytes([0, a, b, c]),
            kind,
            flags,
            stream: u32::from_be_bytes(stream) & 0x7fff_ffff,
        };
        match header.kind {
            kind::CONTINUATION => Err(FrameError::Continuation),
            kind::PUSH_PROMISE => Err(FrameError::Push),
            kind::HEADERS if header.flags & flag::END_HEADERS == 0 => Err(FrameError::Continuation),
            _ if header.length > MAX_FRAME_SIZE => Err(FrameError::TooLong),
            _ => Ok(header),
        }
    }

    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The output of the reader.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// A part of the payload of a DATA frame, without padding.
    Data { stream: u32, bytes: &'a [u8] },
    /// The end of a DATA frame. The length counts against the windows, padding included (RFC 9113, section
    /// 6.9.1).
    DataEnd(Header),
    /// Any other frame, complete.
    Control(Header, &'a [u8]),
}

#[derive(Clone, Copy)]
enum State {
    Header,
    PadLength(Header),
    Data { header: Header, left: u32, padding: u32 },
    Control(Header),
}

/// Cuts received bytes into frames. Buffers at most a frame header and the payload of one frame other than
/// DATA.
pub struct FrameReader {
    state: State,
    /// The received part of the frame header.
    header: [u8; 9],
    header_have: usize,
    /// The received part of the payload of a frame other than DATA.
    buffer: Vec<u8>,
}

impl FrameReader {
    pub fn new() -> FrameReader {
        FrameReader { state: State::Header, header: [0; 9], header_have: 0, buffer: Vec::new() }
    }

    /// Cuts the next piece off `input`; `None` if more input is needed.
    pub fn next<'a, 'i: 'a>(&'a mut self, input: &mut &'i [u8]) -> Result<Option<Piece<'a>>, FrameError> {
        loop {
            match self.state {
                State::Header => {
                    let Some(bytes) = self.gather_header(input) else { return Ok(None) };
                    let header = Header::parse(bytes)?;
                    self.state = match header.kind {
                        kind::DATA if header.has(flag::PADDED) && header.length == 0 => {
                            return Err(FrameError::Padding);
                        }
                        kind::DATA if header.has(flag::PADDED) => State::PadLength(header),
                        kind::DATA => State::Data { header, left: header.length, padding: 0 },
                        _ => State::Control(header),
                    };
                }
                State::PadLength(header) => {
                    let Some((&padding, rest)) = input.split_first() else { return Ok(None) };
                    *input = rest;
                    let padding = u32::from(padding);
                    let left = header.length.checked_sub(1 + padding).ok_or(FrameError::Padding)?;
                    self.state = State::Data { header, left, padding };
                }
                State::Data { header, left: 0, padding: 0 } => {
                    self.state = State::Header;
                    return Ok(Some(Piece::DataEnd(header)));
                }
                State::Data { .. } if input.is_empty() => return Ok(None),
                State::Data { header, left: 0, padding } => {
                    let skipped = take(input, padding).len() as u32;
                    self.state = State::Data { header, left: 0, padding: padding - skipped };
                }
                State::Data { header, left, padding } => {
                    let bytes = take(input, left);
                    self.state = State::Data { header, left: left - bytes.len() as u32, padding };
                    return Ok(Some(Piece::Data { stream: header.stream, bytes }));
                }
                State::Control(header) => {
                    let missing = header.length - self.buffer.len() as u32;
                    self.buffer.extend_from_slice(take(input, missing));
                    if self.buffer.len() < header.length as usize {
                        return Ok(None);
                    }
                    self.state = State::Header;
                    return Ok(Some(Piece::Control(header, &self.buffer)));
                }
            }
        }
    }
}

impl FrameReader {
    fn gather_header(&mut self, input: &mut &[u8]) -> Option<[u8; 9]> {
        let missing = &mut self.header[self.header_have..];
        let bytes = take(input, missing.len() as u32);
        missing[..bytes.len()].copy_from_slice(bytes);
        self.header_have += bytes.len();
        if self.header_have < self.header.len() {
            return None;
        }
        self.header_have = 0;
        self.buffer.clear();
        Some(self.header)
    }
}

/// Up to `length` bytes from the front of `input`.
fn take<'a>(input: &mut &'a [u8], length: u32) -> &'a [u8] {
    let (taken, rest) = input.split_at(input.len().min(length as usize));
    *input = rest;
    taken
}

/// Appends a frame header.
pub fn put_header(out: &mut Vec<u8>, length: usize, kind: u8, flags: u8, stream: u32) {
    let [_, a, b, c] = (length as u32).to_be_bytes();
    out.extend_from_slice(&[a, b, c, kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
}

pub fn put_frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    put_header(out, payload.len(), kind, flags, stream);
    out.extend_from_slice(payload);
}

/// SETTINGS of a client (RFC 9113, section 6.5.2).
pub fn put_settings(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    put_header(out, settings.len() * 6, kind::SETTINGS, 0, 0);
    for (id, value) in settings {
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

pub fn put_window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    put_frame(out, kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
}

/// The part of a HEADERS payload that is the header block, without padding and priority (RFC 9113, section 6.2).
pub fn header_block(header: Header, payload: &[u8]) -> Result<&[u8], FrameError> {
    let mut block = payload;
    if header.has(flag::PADDED) {
        let (&padding, rest) = block.split_first().ok_or(FrameError::Padding)?;
        let end = rest.len().checked_sub(usize::from(padding)).ok_or(FrameError::Padding)?;
        block = &rest[..end];
    }
    if header.has(flag::PRIORITY) {
        block = block.get(5..).ok_or(FrameError::Length)?;
    }
    Ok(block)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    /// Reads `wire` in pieces of `size`, and records the output with DATA payloads joined.
    fn transcript(wire: &[u8], size: usize) -> Result<Vec<String>, FrameError> {
        let mut reader = FrameReader::new();
        let mut lines = Vec::new();
        let mut data = Vec::new();
        for mut input in wire.chunks(size) {
            while let Some(piece) = reader.next(&mut input)? {
                match piece {
                    Piece::Data { bytes, .. } => data.extend_from_slice(bytes),
                    Piece::DataEnd(header) => {
                        lines.push(format!("data {} {}", header.length, String::from_utf8_lossy(&data)));
                        data.clear();
                    }
                    Piece::Control(header, payload) => {
                        lines.push(format!("kind {} {payload:?}", header.kind))
                    }
                }
            }
            assert!(input.is_empty());
        }
        Ok(lines)
    }

    #[test]
    fn frames_are_read_however_they_are_split() {
        let mut wire = Vec::new();
        put_settings(&mut wire, &[(4, 65_535)]);
        put_frame(&mut wire, kind::DATA, 0, 1, b"hello");
        put_frame(&mut wire, kind::DATA, flag::PADDED, 1, b"\x03abcppp");
        put_frame(&mut wire, kind::DATA, 0, 1, b"");
        put_frame(&mut wire, kind::DATA, flag::PADDED | flag::END_STREAM, 1, b"\x00");
        put_frame(&mut wire, kind::PING, 0, 0, &[1; 8]);
        let expected = [
            "kind 4 [0, 4, 0, 0, 255, 255]",
            "data 5 hello",
            "data 7 abc",
            "data 0 ",
            "data 1 ",
            "kind 6 [1, 1, 1, 1, 1, 1, 1, 1]",
        ];
        for size in 1..=wire.len() {
            assert_eq!(transcript(&wire, size).unwrap(), expected, "in pieces of {size}");
        }
    }

    #[test]
    fn what_a_server_may_not_send_is_refused() {
        let frame = |kind, flags, payload: &[u8]| {
            let mut wire = Vec::new();
            put_frame(&mut wire, kind, flags, 1, payload);
            wire
        };
        let cases = [
            (frame(kind::CONTINUATION, flag::END_HEADERS, b""), FrameError::Continuation),
            (frame(kind::HEADERS, 0, b"x"), FrameError::Continuation),
            (frame(kind::PUSH_PROMISE, flag::END_HEADERS, b"x"), FrameError::Push),
            (frame(kind::DATA, flag::PADDED, b""), FrameError::Padding),
            (frame(kind::DATA, flag::PADDED, b"\x01"), FrameError::Padding),
            (frame(kind::DATA, 0, &[0; 16_385]), FrameError::TooLong),
        ];
        for (wire, error) in cases {
            assert_eq!(transcript(&wire, wire.len()), Err(error));
        }
    }

    #[test]
    fn a_header_block_loses_padding_and_priority() {
        let header = |flags| Header { length: 0, kind: kind::HEADERS, flags, stream: 1 };
        assert_eq!(header_block(header(0), b"block"), Ok(&b"block"[..]));
        assert_eq!(header_block(header(flag::PADDED), b"\x02blockpp"), Ok(&b"block"[..]));
        assert_eq!(
            header_block(header(flag::PADDED | flag::PRIORITY), b"\x0112345blockp"),
            Ok(&b"block"[..])
        );
        assert_eq!(header_block(header(flag::PADDED), b"\x02b"), Err(FrameError::Padding));
        assert_eq!(header_block(header(flag::PRIORITY), b"123"), Err(FrameError::Length));
    }
}
