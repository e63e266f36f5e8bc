//! REST-JSON and `Fetch*` as seen from the wire, HTTP/1.1 and HTTP/2.

use std::time::{Duration, Instant};

use bytes::Bytes;
use sluice::driver::api::downstream::{Codec, Polled};
use sluice::server::{Listener, ListenerOptions, ServerLimits};
use sluice::telemetry::Limit;
use sluice::telemetry::metrics::CallKind;
use sluice_wire::ReaderLimits;
use sluice_xds::{Code, Status};

use crate::kit::*;
use crate::web::{Web, request};

const CLUSTERS: &str = "/v3/discovery:clusters";
const SHORT: Duration = Duration::from_millis(100);

fn set(document: &'static str) -> Option<Result<Polled, Status>> {
    let shared = Bytes::from_static(document.as_bytes());
    Some(Ok(Polled::Set { private: Bytes::new(), shared }))
}

fn answer(server: &Running, answer: Option<Result<Polled, Status>>) {
    *server.relay.polls.answer.lock().unwrap() = answer;
}

fn small(limits: ReaderLimits) -> ServerLimits {
    ServerLimits { requests: limits, ..ServerLimits::default() }
}

#[tokio::test]
async fn rst_3_rst_4_one_connection_polls_again_and_again() {
    let server = start(ServerLimits::default());
    let mut web = Web::connect(&server).await;
    answer(&server, set(r#"{"resources":[]}"#));
    let page = web.post(CLUSTERS, r#"{"version_info": "7", "resource_names": ["a"]}"#).await;
    assert_eq!((page.status, page.header("content-type")), (200, Some("application/json")));
    assert_eq!(page.body, br#"{"resources":[]}"#);

    answer(&server, Some(Ok(Polled::Unchanged)));
    let page = web.post(CLUSTERS, "{}").await;
    assert_eq!((page.status, page.body.len()), (304, 0));

    let asked = server.relay.polls.asked.lock().unwrap().clone();
    let (first, form, hold) = &asked[0];
    assert_eq!((first.version_info.as_str(), first.resource_names.len()), ("7", 1));
    assert_eq!((*form, *hold), (Codec::Json, Duration::from_millis(800)));
    assert_eq!(first.type_url, "", "RST-1: the path says the type");
    let stream = server.relay.stream(0).await;
    assert_eq!((stream.kind.to_string().as_str(), stream.is_gone()), ("CDS", true));
    assert_eq!(server.metrics.calls(CallKind::Rest), 2);
    assert_eq!(server.metrics.streams_open(), 0);
}

#[tokio::test]
async fn rst_1_http2_carries_rest_too() {
    let server = start(ServerLimits::default());
    answer(&server, set("{}"));
    let mut client = server.connect().await;
    let post =
        http::Request::post(format!("http://relay{CLUSTERS}")).header("content-type", "application/json");
    let mut call = client.call(post.body(()).unwrap()).await;
    call.requests.send_data(Bytes::from_static(b"{}"), true).unwrap();
    assert_eq!(call.head().await.status(), 200);
}

#[tokio::test]
async fn rst_5_every_fault_has_its_status() {
    let server =
        start(small(ReaderLimits { names_per_request: 1, request_bytes: 1000, ..ReaderLimits::default() }));
    answer(&server, set("{}"));
    let long = format!(r#"{{"x": "{}"}}"#, "x".repeat(1000));
    for (method, path, content_type, body, status, part) in [
        ("POST", "/v3/discovery:everything", "application/json", "{}", 404, "not served"),
        ("POST", "/v3/discovery:client_status", "application/json", "{}", 501, "not served"),
        ("POST", "/v2/discovery:clusters", "application/json", "{}", 501, "v2: true"),
        ("GET", CLUSTERS, "application/json", "", 405, "not POST"),
        ("POST", CLUSTERS, "text/plain", "{}", 415, "application/json"),
        ("POST", CLUSTERS, "application/json", "", 400, "EOF"),
        ("POST", CLUSTERS, "application/json", "{", 400, "EOF"),
        ("POST", CLUSTERS, "application/json", r#"{"resource_names": 1}"#, 400, "resource names"),
        ("POST", CLUSTERS, "application/json", r#"{"resource_names": ["a", "b"]}"#, 413, "the limit is 1"),
        ("POST", CLUSTERS, "application/json", long.as_str(), 413, "1000 bytes"),
    ] {
        let mut web = Web::connect(&server).await;
        web.send(request(method, path, content_type, body)).await;
        let page = web.page().await.unwrap();
        assert_eq!(page.status, status, "{method} {path} {body}");
        assert!(page.message().contains(part), "{part}: {page:?}");
        assert_eq!(page.header("allow"), (status == 405).then_some("POST"));
    }
    assert_eq!(server.relay.opened(), 0);
    assert_eq!(server.metrics.limit_hits(Limit::NamesPerRequest), 1);
    assert_eq!(server.metrics.limit_hits(Limit::RequestBytes), 1);

    let mut web = Web::connect(&server).await;
    web.send(request("POST", "/somewhere", "application/json", "{}")).await;
    assert_eq!(web.page().await.unwrap().status, 404);
    web.send(request("POST", SOTW, "application/grpc", "")).await;
    assert_eq!(web.page().await.unwrap().status, 505, "gRPC needs HTTP/2");
}

#[tokio::test]
async fn rst_5_what_the_relay_says_becomes_a_status() {
    let server = start(ServerLimits::default());
    let mut web = Web::connect(&server).await;
    for (code, status) in [
        (Code::InvalidArgument, 400),
        (Code::Internal, 500),
        (Code::Unimplemented, 501),
        (Code::Unavailable, 503),
        (Code::ResourceExhausted, 503),
    ] {
        answer(&server, Some(Err(Status::new(code, "as it is"))));
        let page = web.post(CLUSTERS, "{}").await;
        assert_eq!((page.status, page.message().as_str()), (status, "as it is"));
        assert_eq!(page.json()["code"], code as i32);
    }
}

#[tokio::test]
async fn rst_9_the_hold_is_the_listeners() {
    let options = ListenerOptions { rest_hold: SHORT, v2: true, ..ListenerOptions::default() };
    let listener = Listener::bind_tcp("main", "127.0.0.1:0".parse().unwrap()).unwrap().with(options);
    let address = listener.address().unwrap();
    let server = start_on(ServerLimits::default(), vec![listener], address);
    answer(&server, set("{}"));
    assert_eq!(Web::connect(&server).await.post("/v2/discovery:clusters", "{}").await.status, 200);
    assert_eq!(server.relay.polls.asked.lock().unwrap()[0].2, SHORT);
}

#[tokio::test]
async fn fd14_headers_that_dribble_and_connections_that_rest_are_closed_in_time() {
    let limits = ServerLimits { http1_idle_timeout: SHORT, ..ServerLimits::default() };
    let server = start(limits);
    answer(&server, set("{}"));
    let begin = Instant::now();
    let mut dribble = Web::connect(&server).await;
    dribble.send("POST /v3/discovery:clusters HTTP/1.1\r\nhost: re").await;
    let mut idle = Web::connect(&server).await;
    idle.post(CLUSTERS, "{}").await;
    assert!(dribble.is_closed().await && idle.is_closed().await);
    assert!(begin.elapsed() >= SHORT);
    eventually("both are counted", || server.metrics.closed_idle.get() == 2).await;
    assert_eq!(server.metrics.connections_open.get(), 0);
}

#[tokio::test]
async fn fd14_a_body_that_dribbles_is_refused_in_time() {
    let server = start(ServerLimits { first_request_timeout: SHORT, ..ServerLimits::default() });
    let mut web = Web::connect(&server).await;
    web.send("POST /v3/discovery:clusters HTTP/1.1\r\nhost: relay\r\ncontent-length: 10\r\n\r\n{").await;
    assert_eq!(web.page().await.unwrap().status, 408);
    assert!(web.is_closed().await);
    assert_eq!(server.metrics.limit_hits(Limit::FirstRequestTimeout), 1);
}

#[tokio::test]
async fn fd14_a_connection_that_never_asks_is_closed() {
    let limits =
        ServerLimits { first_request_timeout: SHORT, preface_timeout: SHORT, ..ServerLimits::default() };
    let server = start(limits);
    let mut web = Web::connect(&server).await;
    web.send("POST ").await;
    assert!(web.is_closed().await);
    assert_eq!(server.metrics.goaways_idle.get(), 1);
}

#[tokio::test]
async fn fd16_headers_without_end_are_refused() {
    let server = start(ServerLimits::default());
    let mut web = Web::connect(&server).await;
    web.send(format!("POST {CLUSTERS} HTTP/1.1\r\nx: {}", "x".repeat(10_000))).await;
    let page = web.page().await.unwrap();
    assert_eq!(page.status, 431, "{page:?}");
    assert!(web.is_closed().await);
}

#[tokio::test]
async fn rly_77_a_drain_ends_the_polls_that_wait_and_the_connections_that_rest() {
    let mut server = start(ServerLimits { drain_window: Duration::from_secs(2), ..ServerLimits::default() });
    let (mut waiting, mut resting) = (Web::connect(&server).await, Web::connect(&server).await);
    answer(&server, set("{}"));
    resting.post(CLUSTERS, "{}").await;
    answer(&server, None);
    waiting.send(request("POST", CLUSTERS, "application/json", "{}")).await;
    server.relay.stream(1).await;
    eventually("it waits", || server.relay.polls.asked.lock().unwrap().len() == 2).await;

    server.shut_down();
    assert!(resting.is_closed().await);
    let page = waiting.page().await.unwrap();
    assert_eq!((page.status, page.header("connection")), (503, Some("close")));
    assert!(page.message().contains("draining"));
    assert!(waiting.is_closed().await);
    soon(server.served).await.unwrap();
}

#[tokio::test]
async fn a_client_that_leaves_while_it_waits_is_forgotten() {
    let server = start(ServerLimits::default());
    let mut web = Web::connect(&server).await;
    web.send(request("POST", CLUSTERS, "application/json", "{}")).await;
    let stream = server.relay.stream(0).await;
    eventually("it waits", || server.relay.polls.asked.lock().unwrap().len() == 1).await;
    drop(web);
    eventually("the stream is dropped", || stream.is_gone()).await;
    eventually("its connection too", || server.metrics.connections_open.get() == 0).await;
}

#[tokio::test]
async fn rst_1_a_unix_socket_serves_rest() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("xds.sock");
    let listener = Listener::bind_unix("local", &path, None).unwrap();
    let server = start_on(ServerLimits::default(), vec![listener], "127.0.0.1:1".parse().unwrap());
    answer(&server, set("{}"));
    let mut socket = tokio::net::UnixStream::connect(&path).await.unwrap();
    let text = request("POST", CLUSTERS, "application/json", "{}");
    tokio::io::AsyncWriteExt::write_all(&mut socket, text.as_bytes()).await.unwrap();
    let mut answer = [0; 15];
    soon(tokio::io::AsyncReadExt::read_exact(&mut socket, &mut answer)).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    assert_eq!(server.relay.stream(0).await.peer.address, None);
}

#[tokio::test]
async fn rpc_2_fetch_answers_one_request_with_one_response() {
    let server = start(ServerLimits::default());
    let mut client = server.connect().await;
    let path = "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters";
    let (private, shared) = (Bytes::from_static(b"\0\0\0\0\x03x"), Bytes::from_static(b"yz"));
    answer(&server, Some(Ok(Polled::Set { private, shared })));
    let mut call = client.open(path).await;
    call.send_request(CDS);
    assert_eq!(call.message().await.unwrap()[..], *b"xyz");
    assert_eq!(call.status().await.0, "0");
    let asked = server.relay.polls.asked.lock().unwrap().clone();
    assert_eq!((asked[0].0.type_url.as_str(), asked[0].1), (CDS, Codec::Grpc));

    answer(&server, Some(Err(Status::new(Code::Unavailable, "later"))));
    let mut call = client.open(path).await;
    call.send_request("");
    assert_eq!(status_of(call.head().await.headers()), ("14".to_owned(), "later".to_owned()));

    let mut call = client.open(path).await;
    call.requests.send_data(Bytes::new(), true).unwrap();
    assert_eq!(status_of(call.head().await.headers()).0, "3");
    assert_eq!(server.metrics.calls(CallKind::Fetch), 3);
}

/// The server does not probe clients of HTTP/1.1.
#[tokio::test]
async fn fd1_who_does_not_take_its_answer_is_closed() {
    let limits = ServerLimits { http1_write_timeout: SHORT, ..ServerLimits::default() };
    let server = start(limits);
    // More than the kernel buffers.
    let shared = Bytes::from(vec![b' '; 32 << 20]);
    answer(&server, Some(Ok(Polled::Set { private: Bytes::new(), shared })));
    let mut web = Web::connect(&server).await;
    web.send(request("POST", CLUSTERS, "application/json", "{}")).await;
    eventually("the connection is given up", || server.metrics.limit_hits(Limit::Http1Write) == 1).await;
    // A client that keeps reading may be slow.
    let mut web = Web::connect(&server).await;
    assert_eq!(web.post(CLUSTERS, "{}").await.body.len(), 32 << 20);
}

/// Each is alone on its connection, and within the limit of its connection.
#[tokio::test]
async fn fp7_bodies_that_never_end_share_a_budget_over_all_connections() {
    let limits = ServerLimits { unfinished_bytes: 1 << 20, ..ServerLimits::default() };
    let server = start(limits);
    let mut open = Vec::new();
    for _ in 0..10 {
        let mut client = server.connect().await;
        let post =
            http::Request::post(format!("http://relay{CLUSTERS}")).header("content-type", "application/json");
        let mut call = client.call(post.body(()).unwrap()).await;
        call.requests.send_data(vec![b' '; 200_000].into(), false).unwrap();
        open.push((client, call));
    }
    eventually("some are refused", || server.metrics.limit_hits(Limit::UnfinishedBytes) >= 4).await;
    answer(&server, Some(Ok(Polled::Unchanged)));
    let mut web = Web::connect(&server).await;
    assert_eq!(web.post(CLUSTERS, "{}").await.status, 304, "others are served");
}

/// Request bodies share a budget across streams.
#[tokio::test]
async fn fd_9_bodies_that_never_end_share_a_budget() {
    let server = start(ServerLimits { connection_bytes: 300_000, ..ServerLimits::default() });
    let mut client = server.connect().await;
    let mut calls = Vec::new();
    for _ in 0..10 {
        let post =
            http::Request::post(format!("http://relay{CLUSTERS}")).header("content-type", "application/json");
        let mut call = client.call(post.body(()).unwrap()).await;
        call.requests.send_data(vec![b' '; 90_000].into(), false).unwrap();
        calls.push(call);
    }
    eventually("some are refused", || server.metrics.limit_hits(Limit::ConnectionBytes) >= 7).await;
}
