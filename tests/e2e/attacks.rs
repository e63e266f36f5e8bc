//! One connection that makes the relay keep as much memory as possible, and a neighbour.

use bytes::{BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use http::Request;
use prost::Message;
use tokio::net::TcpStream;
use tokio::time::{Duration, Instant, sleep, timeout};
use tonic::Code;

use crate::limits;
use crate::support::client::node;
use crate::support::control_plane::eventually;
use crate::support::poll::{post, request};
use crate::support::proto::DeltaDiscoveryRequest;
use crate::support::{Ask, CDS, Client, ControlPlane, DEADLINE, EDS, Relay, Variant};

const DELTA: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";

const SMALL: &str = "limits: { request_bytes: 1MiB, connection_bytes: 2MiB }";

async fn limited(line: &str) -> (ControlPlane, Relay, Client) {
    let (origin, relay) = limits::limited(line).await;
    let neighbour = limits::neighbour(&relay).await;
    (origin, relay, neighbour)
}

async fn unharmed(origin: &ControlPlane, mut neighbour: Client) {
    origin.set(CDS, "a", "2");
    neighbour.take(CDS).await;
}

async fn http2(relay: &Relay) -> SendRequest<Bytes> {
    let socket = TcpStream::connect(&relay.address).await.unwrap();
    let (send, connection) = h2::client::handshake(socket).await.unwrap();
    tokio::spawn(connection);
    send
}

fn grpc(path: &str) -> Request<()> {
    let request = Request::post(format!("http://relay{path}"));
    request.header("content-type", "application/grpc").header("te", "trailers").body(()).unwrap()
}

fn rest() -> Request<()> {
    let request = Request::post("http://relay/v3/discovery:endpoints");
    request.header("content-type", "application/json").body(()).unwrap()
}

/// The first part of a request that announces 1 MiB: names of a few bytes, which take many times as much
/// memory when decoded.
fn half_a_request(bytes: usize) -> Bytes {
    let mut half = BytesMut::new();
    half.put_u8(0);
    half.put_u32(1 << 20);
    for number in 0..bytes / 8 {
        half.put_slice(&[3 << 3 | 2, 6]);
        half.put_slice(format!("{number:06}").as_bytes());
    }
    half.freeze()
}

#[tokio::test]
async fn fd_9_requests_that_never_end_on_many_streams() {
    let (origin, relay, neighbour) = limited(SMALL).await;
    let before = relay.resident();
    let mut client = http2(&relay).await;
    let mut calls = Vec::new();
    for _ in 0..30 {
        client = client.ready().await.unwrap();
        let (response, mut requests) = client.send_request(grpc(DELTA), false).unwrap();
        requests.send_data(half_a_request(600_000), false).unwrap();
        calls.push((response, requests));
    }
    // Each stream has more than a tenth of the budget for all connections.
    relay.limit_reaches("connection_bytes", 10.0).await;
    let grown = relay.resident().saturating_sub(before);
    assert!(grown < 40 << 20, "{} MiB", grown >> 20);
    unharmed(&origin, neighbour).await;
}

/// FP7: each is alone on its connection, and within the limit of its connection.
#[tokio::test]
async fn fp7_requests_that_never_end_on_many_connections() {
    let (origin, relay, neighbour) = limited("limits: { request_bytes: 1MiB, unfinished_bytes: 4MiB }").await;
    let mut calls = Vec::new();
    for _ in 0..20 {
        let (response, mut requests) = http2(&relay).await.send_request(grpc(DELTA), false).unwrap();
        // Half a megabyte in the relay.
        requests.send_data(half_a_request(60_000), false).unwrap();
        calls.push((response, requests));
    }
    relay.limit_reaches("unfinished_bytes", 10.0).await;
    let (first, _requests) = calls.remove(0);
    let mut response = timeout(DEADLINE, first).await.expect("the headers come").unwrap().into_body();
    let trailers = timeout(DEADLINE, response.trailers()).await.expect("the stream ends").unwrap().unwrap();
    assert_eq!(trailers["grpc-status"], (Code::ResourceExhausted as i32).to_string(), "{trailers:?}");
    let told = || async {
        let lines = relay.log_lines("WARN");
        lines.iter().any(|line| line.contains("unfinished_bytes") && line.contains("127.0.0.1:"))
    };
    eventually("the log names the key and the peer", told).await;
    unharmed(&origin, neighbour).await;
}

/// FD1: answers that nobody reads, on connections that are within their own limit.
#[tokio::test]
async fn fd_1_polled_documents_that_nobody_reads_on_many_connections() {
    let line = "limits: { request_bytes: 1MiB, unfinished_bytes: 2MiB }";
    let (origin, relay, neighbour) = limited(line).await;
    origin.set(EDS, "large", &"x".repeat(400_000));
    let mut kept = Vec::new();
    for number in 0..10 {
        origin.set(EDS, &format!("e-{number}"), "1");
        let mut client = http2(&relay).await;
        let (response, mut body) = client.send_request(rest(), false).unwrap();
        let ask = request(Some(&node("poller")), "", &["large".to_owned(), format!("e-{number}")]);
        body.send_data(ask.to_string().into(), true).unwrap();
        // The head arrives; the client never reads the body.
        let answer = timeout(DEADLINE, response).await.expect("an answer").unwrap();
        assert_eq!(answer.status(), 200);
        kept.push((client, answer));
    }
    assert!(relay.limit_hits("unfinished_bytes").await >= 4.0);
    let is_closed = async {
        while kept[0].0.clone().ready().await.is_ok() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(DEADLINE, is_closed).await.expect("the connection of the first is closed");
    let ask = request(Some(&node("poller")), "", &["large".to_owned()]);
    assert_eq!(post(&relay.address, "/v3/discovery:endpoints", &ask).await.unwrap().0, 200);
    unharmed(&origin, neighbour).await;
}

/// Besides the budget, each stream has a deadline.
#[tokio::test]
async fn fd_14_a_request_that_does_not_end_in_time() {
    let (origin, relay, neighbour) = limited("limits: { request_timeout: 200ms }").await;
    let (response, mut requests) = http2(&relay).await.send_request(grpc(DELTA), false).unwrap();
    requests.send_data(half_a_request(60_000), false).unwrap();
    let mut response = timeout(DEADLINE, response).await.expect("the headers come").unwrap().into_body();
    let trailers = timeout(DEADLINE, response.trailers()).await.expect("the stream ends").unwrap().unwrap();
    assert_eq!(trailers["grpc-status"], (Code::DeadlineExceeded as i32).to_string(), "{trailers:?}");
    assert_eq!(relay.limit_hits("request_timeout").await, 1.0);
    unharmed(&origin, neighbour).await;
}

/// FP7: under memory pressure the relay looks at every stream with much memory, also at a client that reads
/// all responses.
#[tokio::test]
async fn fp7_who_holds_many_names_is_cut_while_memory_is_short() {
    let (origin, relay, neighbour) = limited("limits: { memory_bytes: 64MiB }").await;
    let mut client = Client::open(&relay.address, Variant::Delta, "names").await;
    let long = "n".repeat(3000);
    for batch in 0..150 {
        let names: Vec<String> = (0..100).map(|number| format!("{long}-{batch}-{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        client.send(Ask::of(EDS).subscribe(&names));
    }
    relay.limit_reaches("memory_bytes", 1.0).await;
    timeout(DEADLINE, client.ended()).await.expect("the connection is cut");
    unharmed(&origin, neighbour).await;
}

#[tokio::test]
async fn sub_20_names_that_are_long() {
    let (origin, relay, neighbour) = limited(SMALL).await;
    let mut client = Client::open(&relay.address, Variant::Delta, "long").await;
    let long = "n".repeat(3000);
    for batch in 0..10 {
        let names: Vec<String> = (0..100).map(|number| format!("{long}-{batch}-{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        client.send(Ask::of(EDS).subscribe(&names));
    }
    let end = timeout(DEADLINE, client.ended()).await.expect("the stream ends");
    assert_eq!(end.code(), Code::ResourceExhausted);
    assert!(end.message().contains("limits.connection_bytes"), "{end}");
    assert_eq!(relay.limit_hits("connection_bytes").await, 1.0);
    // The budget is free again after the cut: another stream may send requests.
    let mut client = Client::open(&relay.address, Variant::Delta, "short").await;
    origin.set(EDS, "e", "1");
    client.want(EDS, &["e"]);
    client.take(EDS).await;
    unharmed(&origin, neighbour).await;
}

/// A request as a message of gRPC.
fn message(ask: Ask) -> Bytes {
    let body = DeltaDiscoveryRequest::from(ask).encode_to_vec();
    let mut message = BytesMut::new();
    message.put_u8(0);
    message.put_u32(u32::try_from(body.len()).unwrap());
    message.put_slice(&body);
    message.freeze()
}

#[tokio::test]
async fn fd_6_a_refused_client_that_reads_nothing_is_gone_and_reset() {
    let (origin, relay, mut neighbour) =
        limited("limits: { names_per_request: 60, names_per_stream: 100 }").await;
    origin.set(CDS, "large", &"x".repeat(200_000));
    neighbour.take(CDS).await;
    let socket = TcpStream::connect(&relay.address).await.unwrap();
    let builder = h2::client::Builder::new().initial_window_size(1024).handshake(socket);
    let (mut send, connection) = builder.await.unwrap();
    tokio::spawn(connection);
    let (response, mut requests) = send.send_request(grpc(DELTA), false).unwrap();
    let first = Ask { node: Some(node("stuck")), ..Ask::of(CDS).subscribe(&["*"]) };
    requests.send_data(message(first), false).unwrap();
    let _unread = timeout(DEADLINE, response).await.expect("the headers come").unwrap();
    relay.metric_reaches("sluice_downstream_streams", &[], 2.0).await;
    let names: Vec<String> = (0..120).map(|number| format!("name-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let begin = Instant::now();
    for half in names.chunks(60) {
        requests.send_data(message(Ask::of(EDS).subscribe(half)), false).unwrap();
    }
    relay.limit_reaches("names_per_stream", 1.0).await;
    relay.metric_reaches("sluice_downstream_streams", &[], 1.0).await;
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    let reset = std::future::poll_fn(|context| requests.poll_reset(context));
    let reason = timeout(DEADLINE, reset).await.expect("the client is told").unwrap();
    assert_eq!(reason, h2::Reason::CANCEL);
    unharmed(&origin, neighbour).await;
}

#[tokio::test]
async fn fd_4_names_taken_and_dropped_again_and_again() {
    // One change costs as much as 400 names, so that 40,000 pass at once.
    let line = "limits: { changes_per_second: 10, changes_burst: 100 }";
    let (origin, relay, neighbour) = limited(line).await;
    let before = relay.resident();
    let mut client = Client::open(&relay.address, Variant::Delta, "restless").await;
    for round in 0..40 {
        let names: Vec<String> = (0..5000).map(|number| format!("name-{round}-{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        client.send(Ask::of(EDS).subscribe(&names));
        client.send(Ask::of(EDS).unsubscribe(&names));
    }
    relay.limit_reaches("changes_per_second", 1.0).await;
    let grown = relay.resident().saturating_sub(before);
    assert!(grown < 100 << 20, "{} MiB", grown >> 20);
    unharmed(&origin, neighbour).await;
}

#[tokio::test]
async fn fd_1_polled_documents_that_nobody_reads() {
    let (origin, relay, neighbour) = limited(SMALL).await;
    origin.set(EDS, "large", &"x".repeat(400_000));
    let mut client = http2(&relay).await;
    let mut answers = Vec::new();
    for number in 0..12 {
        origin.set(EDS, &format!("e-{number}"), "1");
        client = client.ready().await.unwrap();
        let (response, mut body) = client.send_request(rest(), false).unwrap();
        // No earlier request had the same names.
        let ask = request(Some(&node("poller")), "", &["large".to_owned(), format!("e-{number}")]);
        body.send_data(ask.to_string().into(), true).unwrap();
        // The head arrives; the client never reads the body.
        answers.push(timeout(DEADLINE, response).await.expect("an answer").unwrap());
    }
    let refused = answers.iter().filter(|answer| answer.status() == 503).count();
    assert!((4..12).contains(&refused), "{refused} of 12 were refused");
    assert_eq!(relay.limit_hits("connection_bytes").await, refused as f64);
    // Reading the answers frees memory.
    drop(answers);
    drop(client);
    let ask = request(Some(&node("poller")), "", &["large".to_owned()]);
    assert_eq!(post(&relay.address, "/v3/discovery:endpoints", &ask).await.unwrap().0, 200);
    unharmed(&origin, neighbour).await;
}

#[tokio::test]
async fn fd_4_polls_count_in_the_rate() {
    let (origin, relay, neighbour) = limited("limits: { changes_per_second: 2, changes_burst: 1 }").await;
    origin.set(EDS, "e", "1");
    let mut client = http2(&relay).await;
    for _ in 0..3 {
        client = client.ready().await.unwrap();
        let (response, mut body) = client.send_request(rest(), false).unwrap();
        let ask = request(Some(&node("poller")), "", &["e".to_owned()]);
        body.send_data(ask.to_string().into(), true).unwrap();
        assert_eq!(timeout(DEADLINE, response).await.expect("an answer").unwrap().status(), 200);
    }
    assert!(relay.limit_hits("changes_per_second").await >= 1.0);
    unharmed(&origin, neighbour).await;
}
