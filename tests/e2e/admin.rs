//! The admin listener under hostile requests, and the content of its lists.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::control_plane::eventually;
use crate::support::{CDS, Client, ControlPlane, Relay, Setup, Variant};

async fn relay() -> (ControlPlane, Relay) {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "a", "1");
    let relay = Relay::start(Setup::of(origin.address)).await;
    (origin, relay)
}

async fn list(relay: &Relay, name: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(&relay.get(&format!("/{name}")).await.1).unwrap();
    all[name].as_array().unwrap().clone()
}

/// ADM-2: a page cannot read the listener through a host name of its own.
#[tokio::test]
async fn a_page_cannot_read_it_by_a_name_of_its_own() {
    let (_origin, relay) = relay().await;
    let mut stream = TcpStream::connect(&relay.admin).await.unwrap();
    stream.write_all(b"GET /clients HTTP/1.0\r\nHost: evil.example\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.0 421 "), "{answer}");
}

/// OBS-10: before any client and any answer, the first scrape has the counters of rare events at 0.
#[tokio::test]
async fn obs_10_the_first_scrape_has_the_counters_of_rare_events() {
    let (origin, relay) = relay().await;
    let scrape = relay.get("/metrics").await.1;
    let server = origin.address;
    for series in [
        "sluice_downstream_nacks_total{type=\"Cluster\"}".to_owned(),
        format!("sluice_upstream_nacks_total{{server=\"{server}\",type=\"Listener\"}}"),
        format!("sluice_upstream_stream_closes_total{{server=\"{server}\",code=\"UNIMPLEMENTED\"}}"),
    ] {
        assert!(scrape.contains(&format!("\n{series} 0\n")), "{series}");
    }
    assert!(!scrape.contains("sluice_upstream_tls_failures_total{"), "the server has no TLS");
}

/// ADM-14: `/health` is answered beside idle sockets.
#[tokio::test]
async fn health_is_answered_beside_300_idle_sockets() {
    let (_origin, relay) = relay().await;
    let mut idle = Vec::new();
    for _ in 0..300 {
        idle.push(TcpStream::connect(&relay.admin).await.unwrap());
    }
    for _ in 0..3 {
        assert_eq!(relay.get("/healthz").await.0, 200);
        assert_eq!(relay.get("/metrics").await.0, 200);
    }
}

/// ADM-14: `/health` is answered beside 300 sockets with half a request each, and beside 300 that send many
/// requests and read no answers.
#[tokio::test]
async fn health_is_answered_beside_half_requests_and_stalled_readers() {
    let (_origin, relay) = relay().await;
    let mut sockets = Vec::new();
    for _ in 0..300 {
        let mut half = TcpStream::connect(&relay.admin).await.unwrap();
        half.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n").await.unwrap();
        sockets.push(half);
    }
    for _ in 0..3 {
        assert_eq!(relay.get("/healthz").await.0, 200);
    }
    // Requests for neither metrics nor lists: only a few of those are written at a time.
    let asks = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(4000);
    let mut stalled = Vec::new();
    for _ in 0..300 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let socket = socket.connect(relay.admin.parse().unwrap()).await.unwrap();
        socket.writable().await.unwrap();
        socket.try_write(asks.as_bytes()).unwrap();
        stalled.push(socket);
    }
    // The answer has begun, or the relay had no place left.
    for socket in &stalled {
        let _ = socket.peek(&mut [0]).await;
    }
    for _ in 0..3 {
        assert_eq!(relay.get("/healthz").await.0, 200);
    }
}

/// ADM-14: readers over HTTP/2 that have room for no byte hold up no order, and lose their places to other reads.
#[tokio::test]
async fn orders_and_reads_are_answered_beside_readers_without_a_window() {
    let (_origin, relay) = relay().await;
    let io = TcpStream::connect(&relay.admin).await.unwrap();
    let mut builder = h2::client::Builder::new();
    let handshake = builder.initial_window_size(0).handshake::<_, bytes::Bytes>(io);
    let (mut send, connection) = handshake.await.unwrap();
    let connection = tokio::spawn(connection);
    let mut unread = Vec::new();
    for _ in 0..8 {
        send = send.ready().await.unwrap();
        let request = http::Request::get(format!("http://{}/metrics", relay.admin)).body(()).unwrap();
        let answer = send.send_request(request, true).unwrap().0.await.unwrap();
        assert_eq!(answer.status(), 200);
        unread.push(answer);
    }
    for order in ["/log?level=info&for=1s", "/reload?dry_run=1"] {
        let answer = tokio::time::timeout(Duration::from_millis(500), relay.post(order)).await;
        assert_eq!(answer.expect(order).0, 200, "{order}");
    }
    eventually("a read has a place", async || relay.get("/metrics").await.0 == 200).await;
    tokio::time::timeout(Duration::from_secs(5), connection).await.expect("the slowest is closed").ok();
    assert_eq!(relay.get("/clients").await.0, 200);
}

/// Delta messages have only changes: the version of the state tells the resources of a client.
#[tokio::test]
async fn clients_that_hold_the_same_show_the_same_version() {
    let (origin, relay) = relay().await;
    let mut early = Client::open(&relay.address, Variant::Delta, "early").await;
    early.want(CDS, &["*"]);
    early.take(CDS).await;
    origin.set(CDS, "b", "1");
    early.take(CDS).await;
    let mut late = Client::open(&relay.address, Variant::Delta, "late").await;
    late.want(CDS, &["*"]);
    late.take(CDS).await;
    eventually("both are in sync", async || {
        let types: Vec<_> = list(&relay, "clients").await.iter().map(|of| of["types"][0].clone()).collect();
        let source = &list(&relay, "sources").await[0];
        types.len() == 2
            && types.iter().all(|of| {
                of["version_sent"] == source["types"][0]["version"]
                    && of["version_acked"] == of["version_sent"]
                    && of["class"] == source["class"]
            })
    })
    .await;
    let resources = list(&relay, "resources").await;
    assert!(resources.iter().all(|of| of["collection"] == "wildcard"), "{resources:?}");
    // ADM-21: the time of the last change, in UTC.
    let time = |name: &str, resources: &[Value]| {
        let resource = resources.iter().find(|of| of["name"] == name).expect("a cached resource");
        resource["received_at"].as_str().expect("a time").to_owned()
    };
    let name = resources[0]["name"].as_str().expect("a name").to_owned();
    let first = time(&name, &resources);
    assert!(first.starts_with("20") && first.ends_with('Z'), "{first}");
    origin.set(CDS, &name, "changed");
    eventually("a later time", async || time(&name, &list(&relay, "resources").await) > first).await;
}

/// The relay obeys, and the operator is warned.
#[tokio::test]
async fn a_type_that_is_emptied_is_a_warning() {
    let (origin, relay) = relay().await;
    let names: Vec<String> = (0..8).map(|number| format!("c-{number}")).collect();
    let resources: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
    origin.remove(CDS, "a");
    origin.set_many(CDS, &resources);
    let mut client = Client::open(&relay.address, Variant::Delta, "client").await;
    client.want(CDS, &["*"]);
    assert_eq!(client.take(CDS).await.items.len(), 8);
    origin.change(|world| names.iter().for_each(|name| world.remove(CDS, name)));
    assert_eq!(client.take(CDS).await.removed.len(), 8);
    let warned = || {
        relay.log_lines("WARN").into_iter().filter(|line| line.contains("deleted most")).collect::<Vec<_>>()
    };
    eventually("the warning", async || !warned().is_empty()).await;
    assert!(warned()[0].contains("removed=8") && !warned()[0].contains("suppressed"), "{:?}", warned());
}
