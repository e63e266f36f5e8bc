#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use crate::client::profile::{Profile, Subscription, Wanted};
use crate::client::response::{Response, ResponseReader};
use crate::proto::{put_bytes, put_message};
use crate::stamp;
use crate::xds::{Kind, Variant};

const NOBODY: [usize; 0] = [];

/// The first stream of a connection.
const STREAM: u32 = 1;

/// Records all calls.
#[derive(Default)]
struct Log {
    responses: Vec<(usize, Kind, Option<u64>)>,
}

impl Observer for Log {
    fn opened(&mut self, _client: usize, _since: u64) {}

    fn response(&mut self, client: usize, kind: Kind, response: &Response, now: u64) {
        assert!(now > 0);
        self.responses.push((client, kind, response.stamps().first().map(|stamp| stamp.time)));
    }

    fn served(&mut self, _client: usize, _wait_ns: u64, _again: bool) {}

    fn lost(&mut self, _client: usize) {}
}

/// A connection, its requests and the calls of its observer.
struct Side {
    connection: Connection,
    requests: Requests,
    manner: Manner,
    log: Log,
}

impl Side {
    /// A connection after its opening, and the bytes of the opening.
    fn open(profile: Profile, clients: std::ops::Range<usize>) -> (Side, Vec<u8>) {
        let requests = Requests::new(profile);
        let streams = requests.profile.streams().len();
        let blocks = vec![b"block".to_vec(); streams];
        let mut connection = Connection::open(&Opening { clients, blocks: &blocks, requests: &requests });
        let out = connection.out().to_vec();
        connection.written(out.len());
        (Side { connection, requests, manner: Manner::default(), log: Log::default() }, out)
    }

    fn receive(&mut self, wire: &[u8]) -> Result<(), ConnectionError> {
        self.connection.receive(wire, &self.requests, self.manner, &mut self.log)
    }

    /// The frames to send, one by one.
    fn sent_frames(&mut self) -> Vec<String> {
        let out = self.connection.out().to_vec();
        self.connection.written(out.len());
        frames(&out)
    }
}

/// One client with a wildcard for clusters.
fn plain(variant: Variant, clusters: usize) -> Profile {
    Profile::plain(variant, clusters)
}

fn open(profile: Profile) -> Side {
    Side::open(profile, 0..1).0
}

/// The frames of a client's bytes, as text.
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
    response_on(STREAM, kind, resources, stamp)
}

fn response_on(stream: u32, kind: Kind, resources: usize, stamp: u64) -> Vec<u8> {
    let mut message = Vec::new();
    put_bytes(&mut message, 1, "7");
    put_bytes(&mut message, 4, kind.type_url());
    put_bytes(&mut message, 5, "nonce");
    for _ in 0..resources {
        put_message(&mut message, 2, |any| put_bytes(any, 2, stamp::text(stamp, 0, 0)));
    }
    server_frame(kind::DATA, 0, stream, &grpc(&message))
}

#[test]
fn a_client_begins_with_windows_like_envoys_and_its_request() {
    let (_, out) = Side::open(plain(Variant::Sotw, 1), 0..1);
    assert!(out.starts_with(frame::PREFACE));
    let frames = frames(&out);
    assert_eq!(frames[..3], ["settings", "window 0 25100289", "headers"]);
    assert_eq!(frames.len(), 4);
}

#[test]
fn every_response_is_acknowledged_and_counted() {
    let cases = [(Variant::Sotw, &[3, 10][..]), (Variant::Delta, &[3, 7][..])];
    for (variant, sizes) in cases {
        let mut side = open(plain(variant, 10));
        side.receive(&response(Kind::Cluster, sizes[0], 0)).unwrap();
        assert_eq!(side.connection.take_served(), NOBODY, "{variant:?}");
        side.receive(&response(Kind::Cluster, sizes[1], 5)).unwrap();
        assert_eq!(side.connection.take_served(), [0], "{variant:?}");
        assert_eq!(side.sent_frames().len(), 2);
        assert_eq!(side.log.responses, [(0, Kind::Cluster, None), (0, Kind::Cluster, Some(5))]);
        side.receive(&response(Kind::Cluster, 10, 4)).unwrap();
        assert_eq!(side.connection.take_served(), NOBODY, "a client is served once");
    }
}

#[test]
fn an_ack_repeats_version_and_nonce() {
    let mut side = open(plain(Variant::Sotw, 1));
    side.receive(&response(Kind::Cluster, 1, 0)).unwrap();
    let ack = side.connection.out()[9..].to_vec();
    // A request with the node in field 2 reads as a response whose one resource is the node.
    let mut reader = ResponseReader::new();
    let read = reader.next(&mut &ack[..], side.requests.profile.sought).unwrap().unwrap();
    assert_eq!((&read.version[..], &read.nonce[..]), (&b"7"[..], &b"nonce"[..]));
    assert_eq!(read.type_url, Kind::Cluster.type_url().as_bytes());
}

#[test]
fn a_client_that_rejects_accepts_its_first_answer_only() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut side = open(plain(variant, 1));
        side.manner = Manner { nack: true, remembers: true, ..Manner::default() };
        let rejects = |side: &mut Side| {
            side.receive(&response(Kind::Cluster, 1, 0)).unwrap();
            let out = side.connection.out().to_vec();
            side.connection.written(out.len());
            String::from_utf8_lossy(&out).contains("sluice-load rejects")
        };
        assert_eq!([(); 3].map(|()| rejects(&mut side)), [false, true, true], "{variant:?}");
    }
}

#[test]
fn a_late_ack_waits_for_its_time() {
    let mut side = open(plain(Variant::Delta, 1));
    side.manner = Manner { ack_delay_ns: 3_600_000_000_000, ..Manner::default() };
    side.receive(&response(Kind::Cluster, 1, 0)).unwrap();
    assert_eq!(side.sent_frames(), <[&str; 0]>::default());
    assert_eq!(side.log.responses.len(), 1, "the client has the bytes all the same");
    let due = side.connection.due().unwrap();
    side.connection.release(due - 1, &side.requests);
    assert!(side.connection.out().is_empty());
    side.connection.release(due, &side.requests);
    assert_eq!(side.sent_frames().len(), 1);
    assert_eq!(side.connection.due(), None);
}

#[test]
fn types_are_asked_for_one_after_the_other_as_envoy_does() {
    for per_type in [false, true] {
        let mut profile = plain(Variant::Sotw, 1);
        let by_name = |kind| Subscription { kind, wanted: Wanted::Names { count: 1, step: 1 } };
        profile.subscriptions.extend([by_name(Kind::Endpoints)]);
        (profile.chained, profile.per_type) = (true, per_type);
        let (mut side, out) = Side::open(profile, 0..1);
        let data = |frames: &[String]| frames.iter().filter(|frame| frame.starts_with("data")).count();
        assert_eq!(data(&frames(&out)), 1, "only clusters are asked for");
        side.receive(&response(Kind::Cluster, 1, 0)).unwrap();
        let text = String::from_utf8_lossy(side.connection.out()).into_owned();
        let (asked, acked) = (text.find("ClusterLoadAssignment").unwrap(), text.find("nonce").unwrap());
        assert!(per_type || asked < acked, "endpoints are asked for before the ACK");
        side.connection.written(side.connection.out().len());
        assert_eq!(side.connection.take_served(), NOBODY);
        let stream = if per_type { 3 } else { 1 };
        side.receive(&response_on(stream, Kind::Endpoints, 1, 0)).unwrap();
        assert_eq!(side.connection.take_served(), [0]);
    }
}

#[test]
fn clients_on_one_connection_have_streams_of_their_own() {
    let mut side = Side::open(plain(Variant::Delta, 1), 40..43).0;
    for (stream, client) in [(5, 42), (1, 40), (3, 41)] {
        side.receive(&response_on(stream, Kind::Cluster, 1, 9)).unwrap();
        assert_eq!(side.connection.take_served(), [client]);
    }
    let heard: Vec<usize> = side.log.responses.iter().map(|(client, ..)| *client).collect();
    assert_eq!(heard, [42, 40, 41]);
    assert_eq!(side.receive(&response_on(7, Kind::Cluster, 1, 9)), Err(ConnectionError::UnknownStream));
}

#[test]
fn pings_and_settings_are_answered() {
    let mut side = open(plain(Variant::Sotw, 1));
    let mut wire = Vec::new();
    frame::put_settings(&mut wire, &[(4, 1 << 20)]);
    wire.extend(server_frame(kind::PING, 0, 0, b"12345678"));
    wire.extend(server_frame(kind::SETTINGS, flag::ACK, 0, b""));
    wire.extend(server_frame(kind::PING, flag::ACK, 0, b"12345678"));
    side.receive(&wire).unwrap();
    assert_eq!(frames(side.connection.out()), ["settings ack", "ping ack"]);
}

#[test]
fn a_long_request_waits_for_the_windows() {
    let mut profile = plain(Variant::Sotw, 1);
    profile.node.bytes = 100_000;
    let (mut side, out) = Side::open(profile, 0..1);
    assert_eq!(frames(&out)[3..], ["data 16384", "data 16384", "data 16384", "data 16383"]);
    let grant =
        |stream, increment: u32| server_frame(kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
    side.receive(&grant(STREAM, 1_000_000)).unwrap();
    assert!(side.connection.out().is_empty(), "the connection's window is still empty");
    side.receive(&grant(0, 10_000)).unwrap();
    assert_eq!(frames(side.connection.out()), ["data 10000"]);
    side.connection.written(side.connection.out().len());
    side.receive(&grant(0, 1_000_000)).unwrap();
    let rest = frames(side.connection.out());
    assert_eq!(rest.len(), 2);
    assert_eq!(rest[0], "data 16384");
}

#[test]
fn a_changed_initial_window_counts_for_the_open_stream() {
    let mut side = open(plain(Variant::Sotw, 1));
    let mut wire = Vec::new();
    frame::put_settings(&mut wire, &[(4, 0)]);
    side.receive(&wire).unwrap();
    side.connection.written(side.connection.out().len());
    side.receive(&response(Kind::Cluster, 1, 0)).unwrap();
    assert!(side.connection.out().is_empty(), "the window shrank below what was sent");
    side.receive(&server_frame(kind::WINDOW_UPDATE, 0, STREAM, &10_000u32.to_be_bytes())).unwrap();
    assert_eq!(frames(side.connection.out()).len(), 1);
}

#[test]
fn credit_goes_back_for_the_stream_and_the_connection() {
    let mut side = open(plain(Variant::Sotw, 1));
    let mut updates = Vec::new();
    // A message that never ends: 12 MiB of its bytes.
    let mut first = vec![0, 0xff, 0xff, 0xff, 0xff];
    crate::proto::put_varint(&mut first, 2 << 3 | 2);
    crate::proto::put_varint(&mut first, 0xf000_0000);
    first.resize(16_384, b'x');
    side.receive(&server_frame(kind::DATA, 0, STREAM, &first)).unwrap();
    let more = server_frame(kind::DATA, 0, STREAM, &vec![b'x'; 16_384]);
    for _ in 1..(12 << 20) / 16_384 {
        side.receive(&more).unwrap();
        updates.extend(frames(side.connection.out()));
        side.connection.written(side.connection.out().len());
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
        (response(Kind::Endpoints, 1, 0), "without a subscription"),
    ];
    for (wire, words) in cases {
        let mut side = open(plain(Variant::Sotw, 1));
        let error = side.receive(&wire).unwrap_err().to_string();
        assert!(error.contains(words), "{error} does not say {words}");
    }
    let mut side = open(plain(Variant::Sotw, 1));
    assert!(!side.connection.is_leaving());
    let graceful = server_frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]);
    assert_eq!(side.receive(&graceful), Ok(()));
    assert!(side.connection.is_leaving());
}

#[test]
fn a_server_that_reads_nothing_is_given_up() {
    let mut side = open(plain(Variant::Sotw, 1));
    let ping = server_frame(kind::PING, 0, 0, b"12345678").repeat(1000);
    let result = (0..1000).try_for_each(|_| side.receive(&ping));
    assert_eq!(result, Err(ConnectionError::Unread));
}
