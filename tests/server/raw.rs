//! HTTP/2 frames by hand, for bytes that no correct client sends.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::kit::{PATIENCE, SOTW};

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub const GOAWAY: u8 = 7;
pub const ENHANCE_YOUR_CALM: u32 = 0xb;

pub const DATA: u8 = 0;
pub const SETTINGS: u8 = 4;
pub const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
pub const PING: u8 = 6;
pub const WINDOW_UPDATE: u8 = 8;
pub const END_HEADERS: u8 = 4;
pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;

pub fn frame(frame_type: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    [&frame_head(frame_type, flags, stream, payload.len()), payload].concat()
}

pub fn frame_head(frame_type: u8, flags: u8, stream: u32, length: usize) -> Vec<u8> {
    let length = (length as u32).to_be_bytes();
    [&length[1..], &[frame_type, flags], &stream.to_be_bytes()].concat()
}

/// Type, flags and stream of each complete frame.
pub fn frames(mut bytes: &[u8]) -> impl Iterator<Item = (u8, u8, u32)> {
    std::iter::from_fn(move || {
        let (head, rest) = bytes.split_first_chunk::<9>()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        bytes = rest.get(length..)?;
        Some((head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]])))
    })
}

pub fn opening() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()
}

/// An opening that lets the server send 2 GiB, so that only TCP and the server's own queue limit the data.
pub fn opening_with_large_windows() -> Vec<u8> {
    const INITIAL_WINDOW_SIZE: [u8; 2] = [0, 4];
    let window = (i32::MAX as u32).to_be_bytes();
    let settings = frame(SETTINGS, 0, 0, &[&INITIAL_WINDOW_SIZE[..], &window].concat());
    let update = frame(WINDOW_UPDATE, 0, 0, &(i32::MAX as u32 - 65_535).to_be_bytes());
    [PREFACE, &settings, &update].concat()
}

/// The headers of an ADS call, with an optional extra header.
pub fn headers(stream: u32, extra: Option<(&str, &str)>) -> Vec<u8> {
    headers_for("relay", stream, extra)
}

/// The same for another `:authority`.
pub fn headers_for(authority: &str, stream: u32, extra: Option<(&str, &str)>) -> Vec<u8> {
    // Indices of RFC 7541, appendix A: `:method: POST`, `:scheme: http`; literals for the rest.
    let mut block = vec![0x83, 0x86];
    let mut literal = |name: &str, value: &str| {
        block.push(0);
        for text in [name, value] {
            block.push(text.len() as u8);
            block.extend_from_slice(text.as_bytes());
        }
    };
    literal(":path", SOTW);
    literal(":authority", authority);
    literal("content-type", "application/grpc");
    if let Some((name, value)) = extra {
        literal(name, value);
    }
    frame(HEADERS, END_HEADERS, stream, &block)
}

/// `outbound|18000||host` in Huffman code (RFC 7541, appendix B).
pub const MESH_IN_HUFFMAN: &[u8] = b"\x3d\xa9\x8c\xf6\xd5\x27\xfc\x0b\xc0\x00\x3f\xe7\xfc\x9c\xe8\x4f";

/// The headers of two ADS calls with an `:authority` of these bytes, in Huffman code: the second call names all by the dynamic table.
pub fn calls_for_huffman(authority: &[u8]) -> Vec<u8> {
    let mut block = vec![0x83, 0x86, 0x41, 0x80 | authority.len() as u8];
    block.extend_from_slice(authority);
    block.extend_from_slice(&[0x44, SOTW.len() as u8]);
    block.extend_from_slice(SOTW.as_bytes());
    // `content-type`, of the static table.
    block.extend_from_slice(&[0x5f, 16]);
    block.extend_from_slice(b"application/grpc");
    let again = [0x83, 0x86, 0x80 | 64, 0x80 | 63, 0x80 | 62];
    [frame(HEADERS, END_HEADERS, 1, &block), frame(HEADERS, END_HEADERS, 3, &again)].concat()
}

pub fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &8u32.to_be_bytes())
}

pub fn ping() -> Vec<u8> {
    frame(PING, 0, 0, &[0; 8])
}

/// Sends all bytes while reading; returns the server's bytes until the close.
pub async fn talk(socket: TcpStream, bytes: Vec<u8>) -> Vec<u8> {
    let (mut read, mut write) = socket.into_split();
    let writer = tokio::spawn(async move {
        // The server may close before reading everything.
        let _ = write.write_all(&bytes).await;
        write
    });
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    let read_all = async {
        while let Ok(count @ 1..) = read.read(&mut buffer).await {
            answer.extend_from_slice(&buffer[..count]);
        }
    };
    tokio::time::timeout(PATIENCE, read_all).await.expect("the server closes");
    drop(writer.await);
    answer
}

/// The error code of the last GOAWAY among these frames.
pub fn goaway_code(mut bytes: &[u8]) -> Option<u32> {
    let mut code = None;
    while let Some((head, rest)) = bytes.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let Some((payload, rest)) = rest.split_at_checked(length) else { break };
        if head[3] == GOAWAY {
            code = Some(u32::from_be_bytes([payload[4], payload[5], payload[6], payload[7]]));
        }
        bytes = rest;
    }
    code
}
