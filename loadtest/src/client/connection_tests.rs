#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use crate::client::request::Profile;
use crate::client::response::ResponseReader;
use crate::proto::{put_bytes, put_message};
use crate::stamp;

fn requests(variant: Variant, node_bytes: usize) -> Requests {
    Requests::new(Profile { variant, node_bytes, node_every_request: true, endpoint_names: 0 })
}

/// A connection that has said its first words, of which `discarded` are the bytes.
fn open(requests: &Requests, clusters: u64) -> (Connection, Vec<u8>) {
    let mut connection = Connection::open(0, requests, b"block", clusters);
    let out = connection.out().to_vec();
    connection.written(out.len());
    (connection, out)
}

/// Writes down the frames of what a client sent.
fn frames(wire: &[u8]) -> Vec<String> {
    let mut input = wire.strip_prefix(frame::PREFACE).unwrap_or(wire);
    let mut reader = FrameReader::new();
    let mut lines = Vec::new();
    while let Some(piece) = reader.next(&mut input).unwrap() {
        match piece {
            Piece::Data { .. } => {}
            Piece::DataEnd(header) => lines.push(format!("data {}", header.length)),
            Piece::Control(header, payload) => {
                let name = match header.kind {
                    kind::HEADERS => "headers",
                    kind::SETTINGS if header.has(flag::ACK) => "settings ack",
                    kind::SETTINGS => "settings",
                    kind::PING => "ping ack",
                    kind::WINDOW_UPDATE => {
                        lines.push(format!("window {} {}", header.stream, word(Some(payload)).unwrap()));
                        continue;
                    }
                    _ => "other",
                };
                lines.push(name.to_owned());
            }
        }
    }
    lines
}

fn server_frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut wire = Vec::new();
    frame::put_frame(&mut wire, kind, flags, stream, payload);
    wire
}

fn grpc(message: &[u8]) -> Vec<u8> {
    let mut wire = vec![0];
    wire.extend_from_slice(&(message.len() as u32).to_be_bytes());
    wire.extend_from_slice(message);
    wire
}

fn response(kind: Kind, resources: usize, stamp: u64) -> Vec<u8> {
    let mut message = Vec::new();
    put_bytes(&mut message, 1, "7");
    put_bytes(&mut message, 4, kind.type_url());
    put_bytes(&mut message, 5, "nonce");
    for _ in 0..resources {
        put_message(&mut message, 2, |any| put_bytes(any, 2, stamp::text(stamp)));
    }
    server_frame(kind::DATA, 0, STREAM, &grpc(&message))
}

#[test]
fn a_client_begins_with_windows_like_envoys_and_its_request() {
    let requests = requests(Variant::Sotw, 0);
    let (_, out) = open(&requests, 1);
    assert!(out.starts_with(frame::PREFACE));
    let frames = frames(&out);
    assert_eq!(frames[..3], ["settings", "window 0 25100289", "headers"]);
    assert_eq!(frames.len(), 4);
}

#[test]
fn every_response_is_acknowledged_and_counted() {
    let cases = [(Variant::Sotw, &[3, 10][..]), (Variant::Delta, &[3, 7][..])];
    for (variant, sizes) in cases {
        let requests = requests(variant, 0);
        let (mut connection, _) = open(&requests, 10);
        connection.receive(&response(Kind::Cluster, sizes[0], 0), &requests).unwrap();
        assert!(connection.progress().served_at.is_none(), "{variant:?}");
        connection.receive(&response(Kind::Cluster, sizes[1], 5), &requests).unwrap();
        assert!(connection.progress().served_at.is_some(), "{variant:?}");
        assert_eq!(connection.progress().stamp, 5);
        assert_eq!(frames(connection.out()).len(), 2);
        connection.receive(&response(Kind::Cluster, 10, 4), &requests).unwrap();
        assert_eq!(connection.progress().stamp, 5, "an older change is no progress");
    }
}

#[test]
fn an_ack_repeats_version_and_nonce() {
    let requests = requests(Variant::Sotw, 0);
    let (mut connection, _) = open(&requests, 1);
    connection.receive(&response(Kind::Cluster, 1, 0), &requests).unwrap();
    let ack = connection.out()[9..].to_vec();
    // A request with the node in field 2 reads as a response whose one resource is the node.
    let mut reader = ResponseReader::new();
    let read = reader.next(&mut &ack[..]).unwrap().unwrap();
    assert_eq!((&read.version[..], &read.nonce[..]), (&b"7"[..], &b"nonce"[..]));
    assert_eq!(read.type_url, Kind::Cluster.type_url().as_bytes());
}

#[test]
fn pings_and_settings_are_answered() {
    let requests = requests(Variant::Sotw, 0);
    let (mut connection, _) = open(&requests, 1);
    let mut wire = Vec::new();
    frame::put_settings(&mut wire, &[(4, 1 << 20)]);
    wire.extend(server_frame(kind::PING, 0, 0, b"12345678"));
    wire.extend(server_frame(kind::SETTINGS, flag::ACK, 0, b""));
    wire.extend(server_frame(kind::PING, flag::ACK, 0, b"12345678"));
    connection.receive(&wire, &requests).unwrap();
    assert_eq!(frames(connection.out()), ["settings ack", "ping ack"]);
}

#[test]
fn a_long_request_waits_for_the_windows() {
    let requests = requests(Variant::Sotw, 100_000);
    let (mut connection, out) = open(&requests, 1);
    assert_eq!(frames(&out)[3..], ["data 16384", "data 16384", "data 16384", "data 16383"]);
    let grant =
        |stream, increment: u32| server_frame(kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
    connection.receive(&grant(STREAM, 1_000_000), &requests).unwrap();
    assert!(connection.out().is_empty(), "the connection's window is still empty");
    connection.receive(&grant(0, 10_000), &requests).unwrap();
    assert_eq!(frames(connection.out()), ["data 10000"]);
    connection.written(connection.out().len());
    connection.receive(&grant(0, 1_000_000), &requests).unwrap();
    let rest = frames(connection.out());
    assert_eq!(rest.len(), 2);
    assert_eq!(rest[0], "data 16384");
}

#[test]
fn a_changed_initial_window_counts_for_the_open_stream() {
    let requests = requests(Variant::Sotw, 0);
    let (mut connection, _) = open(&requests, 1);
    let mut wire = Vec::new();
    frame::put_settings(&mut wire, &[(4, 0)]);
    connection.receive(&wire, &requests).unwrap();
    connection.written(connection.out().len());
    connection.receive(&response(Kind::Cluster, 1, 0), &requests).unwrap();
    assert!(connection.out().is_empty(), "the window shrank below what was sent");
    connection
        .receive(&server_frame(kind::WINDOW_UPDATE, 0, STREAM, &10_000u32.to_be_bytes()), &requests)
        .unwrap();
    assert_eq!(frames(connection.out()).len(), 1);
}

#[test]
fn credit_goes_back_for_the_stream_and_the_connection() {
    let requests = requests(Variant::Sotw, 0);
    let (mut connection, _) = open(&requests, 1);
    let mut updates = Vec::new();
    // A message that never ends: 12 MiB of its bytes.
    let mut first = vec![0, 0xff, 0xff, 0xff, 0xff];
    crate::proto::put_varint(&mut first, 2 << 3 | 2);
    crate::proto::put_varint(&mut first, 0xf000_0000);
    first.resize(16_384, b'x');
    connection.receive(&server_frame(kind::DATA, 0, STREAM, &first), &requests).unwrap();
    let more = server_frame(kind::DATA, 0, STREAM, &vec![b'x'; 16_384]);
    for _ in 1..(12 << 20) / 16_384 {
        connection.receive(&more, &requests).unwrap();
        updates.extend(frames(connection.out()));
        connection.written(connection.out().len());
    }
    assert_eq!(updates, ["window 1 8388608", "window 0 12582912"]);
}

#[test]
fn what_ends_a_client_is_told() {
    let cases = [
        (server_frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 11]), "GOAWAY, error code 11"),
        (server_frame(kind::RST_STREAM, 0, STREAM, &[0, 0, 0, 8]), "reset the stream, error code 8"),
        (server_frame(kind::HEADERS, flag::END_HEADERS, STREAM, &[0x8d]), "the stream: :status 404"),
        (
            server_frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, STREAM, &[0x88]),
            "no grpc-status",
        ),
        (server_frame(kind::DATA, flag::END_STREAM, STREAM, b""), "no grpc-status"),
        (server_frame(kind::DATA, 0, 3, b"x"), "never opened"),
        (server_frame(kind::WINDOW_UPDATE, 0, 0, &[0; 4]), "or by 0"),
        (server_frame(kind::PING, 0, 0, &[0; 7]), "wrong length"),
        (response(Kind::Endpoints, 1, 0), "never asked for"),
    ];
    let requests = requests(Variant::Sotw, 0);
    for (wire, words) in cases {
        let (mut connection, _) = open(&requests, 1);
        let error = connection.receive(&wire, &requests).unwrap_err().to_string();
        assert!(error.contains(words), "{error} does not say {words}");
    }
    let (mut connection, _) = open(&requests, 1);
    let graceful = server_frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]);
    assert_eq!(connection.receive(&graceful, &requests), Ok(()));
}

#[test]
fn a_server_that_reads_nothing_is_given_up() {
    let requests = requests(Variant::Sotw, 0);
    let (mut connection, _) = open(&requests, 1);
    let ping = server_frame(kind::PING, 0, 0, b"12345678").repeat(1000);
    let result = (0..1000).try_for_each(|_| connection.receive(&ping, &requests));
    assert_eq!(result, Err(ConnectionError::Unread));
}
