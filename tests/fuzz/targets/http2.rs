//! Raw frames of HTTP/2, and raw HTTP/1.1, into the server.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use super::Target;
use super::draw::Draw;
use super::peer::Host;
use super::requests::framed;

pub const HTTP2_FRAMES: Target = Target {
    name: "http2_frames",
    run,
    seeds,
    words: &[
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "\u{0}\u{0}\u{0}\u{4}\u{1}\u{0}\u{0}\u{0}\u{0}",
        "\u{0}\u{0}\u{4}\u{8}\u{0}\u{0}\u{0}\u{0}\u{1}",
        "\u{0}\u{0}\u{4}\u{3}\u{0}\u{0}\u{0}\u{0}\u{1}",
        "GET /v3/discovery:clusters HTTP/1.1\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Content-Length: 5\r\n",
        "\r\n\r\n",
        "grpc-timeout",
        "te",
        "application/grpc",
    ],
    mutations: 1_500,
    memory: None,
};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SOTW: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
const FETCH: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/FetchClusters";
const HEALTH: &str = "/grpc.health.v1.Health/Check";

// Kinds of frames (RFC 9113, section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

static HOST: LazyLock<Host> = LazyLock::new(|| Host::start(|listener| listener));

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn headers(stream: u32, path: &str, flags: u8) -> Vec<u8> {
    // Indices of RFC 7541, appendix A: `:method: POST`, `:scheme: http`; literals for the rest.
    let mut block = vec![0x83, 0x86];
    for (name, value) in
        [(":path", path), (":authority", "relay"), ("content-type", "application/grpc"), ("te", "trailers")]
    {
        block.push(0);
        for text in [name, value] {
            block.push(text.len() as u8);
            block.extend_from_slice(text.as_bytes());
        }
    }
    frame(HEADERS, 4 | flags, stream, &block)
}

fn seeds() -> Vec<Vec<u8>> {
    let request = framed(b"\x22\x33type.googleapis.com/envoy.config.cluster.v3.Cluster");
    let open = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    let call =
        |stream, path, flags| [headers(stream, path, 0), frame(DATA, flags, stream, &request)].concat();
    let settings = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1, 0, 3, 0, 0, 0, 9]);
    let cut = headers(3, SOTW, 0);
    let (first, second) = cut[9..].split_at(20);
    let all = [
        [&open[..], &call(1, SOTW, 0), &frame(PING, 0, 0, &[7; 8]), &frame(WINDOW_UPDATE, 0, 1, &[0, 0, 1, 0])].concat(),
        [&open[..], &call(1, SOTW, 1), &call(3, FETCH, 1), &call(5, HEALTH, 1)].concat(),
        [&open[..], &settings, &frame(HEADERS, 0, 3, first), &frame(CONTINUATION, 4, 3, second)].concat(),
        [&open[..], &call(1, SOTW, 0), &frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]), &frame(GOAWAY, 0, 0, &[0; 8])].concat(),
        [&open[..], &frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 9]), &frame(SETTINGS, 1, 0, &[]), &call(1, "/x", 1)].concat(),
        b"POST /v3/discovery:clusters HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 22\r\n\r\n{\"node\":{\"id\":\"node\"}}"
            .to_vec(),
        b"POST /v3/discovery:listeners HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n"
            .to_vec(),
    ];
    all.iter().enumerate().map(|(index, bytes)| [&[[0, 1, 7][index % 3]][..], bytes].concat()).collect()
}

/// The server ends the connection, says only well-formed frames, and answers only streams that the client has opened.
fn run(data: &[u8]) {
    let mut draw = Draw::new(data);
    let chunk = match draw.byte() % 8 {
        0 => usize::MAX,
        size => usize::from(size) * 3,
    };
    let bytes = draw.rest();
    let answer = HOST.talk(bytes, chunk, false);
    let Some(sent) = bytes.strip_prefix(PREFACE) else {
        assert!(
            answer.is_empty() || answer.starts_with(b"HTTP/1."),
            "{:?}",
            String::from_utf8_lossy(&answer)
        );
        return;
    };
    let opened: BTreeSet<u32> = frames(sent).iter().map(|(_, stream, _)| *stream).collect();
    let answered = frames(&answer);
    let used: usize = answered.iter().map(|(_, _, payload)| 9 + payload.len()).sum();
    assert_eq!(used, answer.len(), "a part of a frame");
    if let Some((kind, stream, _)) = answered.first() {
        assert_eq!((*kind, *stream), (SETTINGS, 0), "SETTINGS come first");
    }
    for (kind, stream, payload) in answered {
        assert!(payload.len() <= 16_384 && kind <= CONTINUATION, "frame {kind} of {} bytes", payload.len());
        match kind {
            SETTINGS | PING | GOAWAY => assert_eq!(stream, 0),
            WINDOW_UPDATE => {}
            RST_STREAM => assert!(opened.contains(&stream), "a reset of stream {stream}"),
            _ => assert!(stream % 2 == 1 && opened.contains(&stream), "frame {kind} on stream {stream}"),
        }
    }
}

/// Kind, stream and payload of each whole frame.
fn frames(mut bytes: &[u8]) -> Vec<(u8, u32, &[u8])> {
    let mut found = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let Some((payload, rest)) = rest.split_at_checked(length) else { break };
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        found.push((head[3], stream, payload));
        bytes = rest;
    }
    found
}
