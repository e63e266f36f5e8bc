//! HTTP/2 frames by hand.

use prost::Message as _;

use crate::support::proto::DeltaDiscoveryRequest;
use crate::support::words::Ask;

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub const PATH: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const UNKNOWN: u8 = 0xfe;

pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

pub fn frame(frame_type: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[frame_type, flags], &stream.to_be_bytes(), payload].concat()
}

pub fn opening() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()
}

/// A length of RFC 7541, section 5.1, with a prefix of seven bits.
fn length(length: usize) -> Vec<u8> {
    if length < 127 {
        return vec![length as u8];
    }
    let mut bytes = vec![127];
    let mut rest = length - 127;
    while rest >= 128 {
        bytes.push((rest % 128 + 128) as u8);
        rest /= 128;
    }
    bytes.push(rest as u8);
    bytes
}

/// A literal field; `how` is 0, or 0x40 for a new entry of the dynamic table.
pub fn literal(how: u8, name: &str, value: &str) -> Vec<u8> {
    let texts = [name, value].map(|text| [length(text.len()), text.as_bytes().to_vec()].concat());
    [vec![how], texts.concat()].concat()
}

/// The fields of an ADS call and more.
pub fn fields(more: &[(&str, &str)]) -> Vec<u8> {
    // Indices of RFC 7541, appendix A: `:method: POST`, `:scheme: http`; literals for the rest.
    let mut block = vec![0x83, 0x86];
    let usual =
        [(":path", PATH), (":authority", "relay"), ("content-type", "application/grpc"), ("te", "trailers")];
    for (name, value) in usual.iter().chain(more) {
        block.extend(literal(0, name, value));
    }
    block
}

pub fn headers(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &fields(&[]))
}

pub fn headers_with(stream: u32, more: &[(&str, &str)]) -> Vec<u8> {
    let block = fields(more);
    let mut chunks = block.chunks(16_384);
    let first = chunks.next().unwrap_or_default();
    let flags = if chunks.len() == 0 { END_HEADERS } else { 0 };
    let mut bytes = frame(HEADERS, flags, stream, first);
    while let Some(chunk) = chunks.next() {
        let flags = if chunks.len() == 0 { END_HEADERS } else { 0 };
        bytes.extend(frame(CONTINUATION, flags, stream, chunk));
    }
    bytes
}

pub fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &8u32.to_be_bytes())
}

pub fn window_update(stream: u32, bytes: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

/// SETTINGS with an initial window for streams.
pub fn initial_window(bytes: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&[0, 4][..], &bytes.to_be_bytes()].concat())
}

/// A request as a message of gRPC.
pub fn message(ask: Ask) -> Vec<u8> {
    let body = DeltaDiscoveryRequest::from(ask).encode_to_vec();
    [&[0][..], &(body.len() as u32).to_be_bytes(), &body].concat()
}

pub fn request(stream: u32, ask: Ask) -> Vec<u8> {
    frame(DATA, 0, stream, &message(ask))
}

/// Repeats a frame that says the same each time.
pub fn times(count: usize, mut make: impl FnMut() -> Vec<u8>) -> Vec<u8> {
    (0..count).flat_map(|_| make()).collect()
}
