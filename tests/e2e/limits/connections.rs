//! Limits of connections: their number, their first moments, their streams, their age; and of open files.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, sleep, timeout};

use super::{hit, limited};
use crate::support::client::{connect, node};
use crate::support::{CDS, Client, ControlPlane, DEADLINE, EDS, Relay, Variant};

/// RFC 9113 §3.4, and an empty SETTINGS frame.
const OPENING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

async fn closed(mut socket: TcpStream) {
    let mut rest = Vec::new();
    // A reset ends the connection, too.
    let _ = timeout(DEADLINE, socket.read_to_end(&mut rest)).await.expect("the relay closes the connection");
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
    assert_eq!(relay.series("sluice_downstream_connections_closed_total{reason=\"keepalive\"}").await, 1.0);
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
    assert_eq!(relay.limit_hits("streams_per_connection").await, 1.0);
    relay.logged("limits.streams_per_connection").await;
    let warnings = relay.warnings("limits.streams_per_connection");
    assert!(warnings[0].contains("one") && warnings[0].contains("127.0.0.1:"), "{warnings:?}");
    let mut third = Client::on(channel, Variant::Delta, Some(node("three")));
    third.want(CDS, &["*"]);
    third.silence(Duration::from_millis(100)).await;
    drop(clients);
    third.take(CDS).await;
}

/// World C1: gRPC's C-core has a stream for each target, all on one connection.
#[tokio::test]
async fn a_process_with_a_stream_for_each_of_many_targets_is_served() {
    let (origin, relay) = limited("").await;
    let channel = connect(&relay.address).await;
    let mut clients = Vec::new();
    for number in 0..300 {
        let mut client = Client::on(channel.clone(), Variant::Sotw, Some(node("targets")));
        client.want(EDS, &[&format!("e-{number}")]);
        origin.set(EDS, &format!("e-{number}"), "1");
        clients.push(client);
    }
    for client in &mut clients {
        client.take(EDS).await;
    }
    assert_eq!(relay.limit_hits("streams_per_connection").await, 0.0);
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
    assert!(relay.series("sluice_downstream_age_exemptions_total").await >= 1.0);
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
        assert_eq!(relay.series(&series).await, value, "{series}");
    }
    for series in [
        "sluice_downstream_request_bytes_total".to_owned(),
        format!("sluice_upstream_received_bytes_total{server}"),
        format!("sluice_upstream_sent_bytes_total{server}"),
    ] {
        assert!(relay.series(&series).await > 0.0, "{series}");
    }
}

/// A soft limit of open files below the hard limit is raised, and logged.
#[tokio::test]
async fn the_limit_of_open_files_is_raised() {
    let directory = tempfile::tempdir().unwrap();
    let (_soft, hard) = {
        let (_origin, relay) = limited("limits: {}").await;
        relay.file_limit()
    };
    let origin = ControlPlane::obedient().await;
    let admin = format!("127.0.0.1:{}", crate::support::net::free_port());
    let address = format!("127.0.0.1:{}", crate::support::net::free_port());
    let yaml = format!(
        "xds_servers: [ {{ server_uri: \"{}\", channel_creds: [ {{ type: insecure }} ] }} ]\n\
         listeners: [ {{ name: main, address: \"{address}\" }} ]\nadmin: {{ address: \"{admin}\" }}\n",
        origin.address
    );
    let config = directory.path().join("sluice.yaml");
    std::fs::write(&config, yaml).unwrap();
    let mut command = std::process::Command::new("bash");
    let script = format!(
        "ulimit -S -n 256; exec {} serve --config {}",
        crate::support::relay::BINARY,
        config.display()
    );
    command.args(["-c", &script]);
    let mut relay = Relay::spawn(command, directory, address, admin);
    relay.ready().await;
    assert_eq!(relay.file_limit().0, hard);
    relay.logged("256").await;
}
