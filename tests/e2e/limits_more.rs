//! Every limit of the configuration, from the line in the file to the metric.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, sleep, timeout};
use tonic::Code;

use crate::support::client::{connect, node};
use crate::support::proto::Node;
use crate::support::{Ask, CDS, Client, ControlPlane, DEADLINE, EDS, Relay, Setup, Variant};

/// RFC 9113 §3.4, and an empty SETTINGS frame.
const OPENING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

async fn limited(line: &str) -> (ControlPlane, Relay) {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "a", "1");
    let relay = Relay::start(Setup::of(origin.address).line(line)).await;
    (origin, relay)
}

/// The value of one series of `/metrics`.
async fn metric(relay: &Relay, series: &str) -> f64 {
    let (_, text) = relay.get("/metrics").await;
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {series} in\n{text}")).parse().expect("a number")
}

async fn hits(relay: &Relay, limit: &str) -> f64 {
    metric(relay, &format!("sluice_limit_hits_total{{limit=\"{limit}\"}}")).await
}

/// Waits until the counter of the limit has this value; another task than the one under test increments the
/// counter.
async fn hit(relay: &Relay, limit: &str, times: f64) {
    let start = Instant::now();
    while hits(relay, limit).await < times {
        assert!(start.elapsed() < DEADLINE, "{limit} was hit {} times", hits(relay, limit).await);
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(hits(relay, limit).await, times, "{limit}");
}

async fn closed(mut socket: TcpStream) {
    let mut rest = Vec::new();
    // A reset ends the connection, too.
    let _ = timeout(DEADLINE, socket.read_to_end(&mut rest)).await.expect("the relay closes the connection");
}

fn many(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("e-{number}")).collect()
}

/// A `google.protobuf.Struct` nested to this depth.
fn nested_struct(depth: usize) -> Vec<u8> {
    let field = |number: u8, payload: &[u8]| [&[number << 3 | 2, payload.len() as u8], payload].concat();
    let entry = |value: &[u8]| field(1, &[field(1, b"k"), field(2, value)].concat());
    (1..depth).fold(entry(&[]), |inner, _| entry(&field(5, &inner)))
}

#[tokio::test]
async fn what_one_request_may_be() {
    let line = "limits: { request_bytes: 64KiB, node_bytes: 4KiB, node_retained_bytes: 1KiB, \
        names_per_request: 10, name_bytes: 100, metadata_depth: 5 }";
    let (_origin, relay) = limited(line).await;
    let cases = [
        ("request_bytes", node("a"), vec!["n".repeat(70_000)]),
        ("names_per_request", node("a"), many(11)),
        ("name_bytes", node("a"), vec!["n".repeat(101)]),
        ("node_bytes", Node { cluster: "c".repeat(5_000), ..node("a") }, many(1)),
        ("metadata_depth", Node { metadata: Some(nested_struct(6)), ..node("a") }, many(1)),
        ("node_retained_bytes", Node { cluster: "c".repeat(2_000), ..node("a") }, many(1)),
    ];
    for (limit, node, names) in cases {
        let mut client = Client::on(connect(&relay.address).await, Variant::Delta, Some(node));
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        client.want(EDS, &names);
        assert_eq!(client.ended().await.code(), Code::ResourceExhausted, "{limit}");
        assert_eq!(hits(&relay, limit).await, 1.0, "{limit}");
    }
    assert_eq!(metric(&relay, "sluice_downstream_streams_unreadable_total").await, 6.0);
}

#[tokio::test]
async fn what_one_stream_may_ask_for() {
    let (_origin, relay) =
        limited("limits: { names_per_request: 10, names_per_stream: 15, types_per_stream: 2 }").await;
    let mut client = Client::open(&relay.address, Variant::Delta, "names").await;
    for batch in 0..2 {
        let names: Vec<String> = (0..10).map(|number| format!("e-{batch}-{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        client.send(Ask::of(EDS).subscribe(&names));
    }
    assert_eq!(client.ended().await.code(), Code::ResourceExhausted);
    assert_eq!((hits(&relay, "names_per_stream").await, hits(&relay, "types_per_stream").await), (1.0, 0.0));
    let mut client = Client::open(&relay.address, Variant::Delta, "types").await;
    for number in 0..3 {
        client.want(&format!("type.googleapis.com/acme.Type{number}"), &["a"]);
    }
    assert_eq!(client.ended().await.code(), Code::ResourceExhausted);
    assert_eq!((hits(&relay, "names_per_stream").await, hits(&relay, "types_per_stream").await), (1.0, 1.0));
}

#[tokio::test]
async fn connections_of_one_address() {
    let (_origin, relay) = limited("limits: { connections_per_ip: 2 }").await;
    let (_one, _two) = (connect(&relay.address).await, connect(&relay.address).await);
    closed(TcpStream::connect(&relay.address).await.unwrap()).await;
    hit(&relay, "connections_per_ip", 1.0).await;
    // Another host of the loopback network is served.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = socket.connect(relay.address.parse().unwrap()).await.unwrap();
    other.write_all(OPENING).await.unwrap();
    let mut head = [0; 9];
    timeout(DEADLINE, other.read_exact(&mut head)).await.unwrap().unwrap();
    assert_eq!(head[3], 4, "SETTINGS");
}

#[tokio::test]
async fn connections_in_all_and_their_first_moments() {
    let line = "limits: { connections: 2, preface_timeout: 200ms, first_request_timeout: 200ms }";
    let (_origin, relay) = limited(line).await;
    closed(TcpStream::connect(&relay.address).await.unwrap()).await;
    hit(&relay, "preface_timeout", 1.0).await;
    let mut idle = TcpStream::connect(&relay.address).await.unwrap();
    idle.write_all(OPENING).await.unwrap();
    closed(idle).await;
    hit(&relay, "first_request_timeout", 1.0).await;
    let mut clients = Vec::new();
    for name in ["one", "two"] {
        let mut client = Client::open(&relay.address, Variant::Delta, name).await;
        client.want(CDS, &["*"]);
        client.take(CDS).await;
        clients.push(client);
    }
    closed(TcpStream::connect(&relay.address).await.unwrap()).await;
    hit(&relay, "connections", 1.0).await;
}

#[tokio::test]
async fn a_client_that_answers_no_ping() {
    let (_origin, relay) = limited("limits: { keepalive_interval: 1s, keepalive_timeout: 100ms }").await;
    let mut silent = TcpStream::connect(&relay.address).await.unwrap();
    silent.write_all(OPENING).await.unwrap();
    closed(silent).await;
    hit(&relay, "keepalive_timeout", 1.0).await;
    assert_eq!(metric(&relay, "sluice_downstream_connections_closed_total{reason=\"keepalive\"}").await, 1.0);
}

#[tokio::test]
async fn all_streams_of_a_connection() {
    let (_origin, relay) = limited("limits: { streams_per_connection: 2 }").await;
    let channel = connect(&relay.address).await;
    let mut clients = Vec::new();
    for name in ["one", "two"] {
        let mut client = Client::on(channel.clone(), Variant::Delta, Some(node(name)));
        client.want(CDS, &["*"]);
        client.take(CDS).await;
        clients.push(client);
    }
    assert_eq!(hits(&relay, "streams_per_connection").await, 1.0);
    let mut third = Client::on(channel, Variant::Delta, Some(node("three")));
    third.want(CDS, &["*"]);
    third.silence(Duration::from_millis(100)).await;
    drop(clients);
    third.take(CDS).await;
}

#[tokio::test]
async fn a_stream_that_changes_its_mind_too_often() {
    let (_origin, relay) = limited("limits: { changes_per_second: 20, changes_burst: 2 }").await;
    let mut client = Client::open(&relay.address, Variant::Delta, "fickle").await;
    for number in 0..5 {
        client.send(Ask::of(EDS).subscribe(&[&format!("e-{number}")]));
    }
    hit(&relay, "changes_per_second", 3.0).await;
    client.send(Ask::of(CDS).subscribe(&["*"]));
}

/// RLY-56: a storm of reconnects is spread; later answers never wait.
#[tokio::test]
async fn first_answers_are_spread() {
    let (origin, relay) = limited("limits: { first_answers_per_second: 5, first_answers_burst: 1 }").await;
    let start = Instant::now();
    let mut clients = Vec::new();
    for number in 0..4 {
        let mut client = Client::open(&relay.address, Variant::Delta, &format!("client-{number}")).await;
        client.want(CDS, &["*"]);
        clients.push(client);
    }
    for client in &mut clients {
        client.take(CDS).await;
    }
    assert!(start.elapsed() >= Duration::from_millis(550), "{:?}", start.elapsed());
    hit(&relay, "first_answers_per_second", 3.0).await;
    let start = Instant::now();
    origin.set(CDS, "a", "2");
    for client in &mut clients {
        client.take(CDS).await;
    }
    assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
}

/// KAL-4: without an age, connections stay.
#[tokio::test]
async fn connections_without_an_age() {
    let (_origin, relay) = limited("limits: { connection_age: off, connection_age_grace: 0s }").await;
    let mut client = Client::open(&relay.address, Variant::Delta, "old").await;
    client.want(CDS, &["*"]);
    client.take(CDS).await;
    client.quiet().await;
}

/// With a grace of zero, the relay must not poll a connection that may not close yet.
#[tokio::test]
async fn an_old_connection_without_an_answer_costs_no_cpu() {
    let (_origin, relay) = limited("limits: { connection_age: 1s, connection_age_grace: 0s }").await;
    let _client = Client::open(&relay.address, Variant::Delta, "waits").await;
    sleep(Duration::from_millis(1300)).await;
    let before = relay.cpu_time();
    sleep(Duration::from_millis(700)).await;
    assert!(relay.cpu_time() - before < Duration::from_millis(300), "{:?}", relay.cpu_time() - before);
    assert!(metric(&relay, "sluice_downstream_age_exemptions_total").await >= 1.0);
}

/// RLY-61: the number of lingering names is bounded.
#[tokio::test]
async fn what_lingers_without_a_client_is_bounded() {
    let (_origin, relay) = limited("cache: { unwatched_bytes: 0 }").await;
    let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
    client.want(CDS, &["a"]);
    client.take(CDS).await;
    client.want(CDS, &[]);
    hit(&relay, "unwatched_bytes", 1.0).await;
}

/// FU17: a response over the limit is rejected.
#[tokio::test]
async fn a_response_of_the_upstream_that_is_too_long() {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "a", &"x".repeat(2 << 20));
    let relay = Relay::start(Setup::of(origin.address).server_line("max_response_bytes: 1MiB")).await;
    let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
    client.want(CDS, &["a"]);
    let start = Instant::now();
    while hits(&relay, "max_response_bytes").await == 0.0 {
        assert!(start.elapsed() < DEADLINE);
        sleep(Duration::from_millis(20)).await;
    }
    let undecodable = format!("sluice_upstream_responses_undecodable_total{{server=\"{}\"}}", origin.address);
    assert!(metric(&relay, &undecodable).await >= 1.0);
}

/// SST-12: a complete set over the limit of many clients.
#[tokio::test]
async fn a_complete_set_that_many_clients_cannot_take() {
    let (origin, relay) = limited("limits: {}").await;
    origin.set(CDS, "large", &"x".repeat(5 << 20));
    let mut client = Client::open(&relay.address, Variant::Sotw, "one").await;
    client.want(CDS, &["*"]);
    client.take(CDS).await;
    assert_eq!(hits(&relay, "full_state_bytes").await, 1.0);
}

/// `/metrics` counts connections and bytes of both sides, by server.
#[tokio::test]
async fn connections_and_bytes_are_counted_on_both_sides() {
    let (origin, relay) = limited("limits: {}").await;
    let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
    client.want(CDS, &["*"]);
    client.take(CDS).await;
    client.quiet().await;
    let server = format!("{{server=\"{}\"}}", origin.address);
    for (series, value) in [
        ("sluice_downstream_connections".to_owned(), 1.0),
        ("sluice_downstream_streams{variant=\"delta\"}".to_owned(), 1.0),
        ("sluice_downstream_streams_opened_total{variant=\"delta\"}".to_owned(), 1.0),
        (format!("sluice_upstream_connections{server}"), 1.0),
        (format!("sluice_upstream_connects_total{server}"), 1.0),
        (format!("sluice_upstream_connect_failures_total{server}"), 0.0),
    ] {
        assert_eq!(metric(&relay, &series).await, value, "{series}");
    }
    for series in [
        "sluice_downstream_request_bytes_total".to_owned(),
        format!("sluice_upstream_received_bytes_total{server}"),
        format!("sluice_upstream_sent_bytes_total{server}"),
    ] {
        assert!(metric(&relay, &series).await > 0.0, "{series}");
    }
}
