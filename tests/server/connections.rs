//! Connections from the first byte to the last: deadlines, limits, floods, age.

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use http::Request;
use sluice::driver::api::downstream::Variant;
use sluice::server::{Listener, ServerLimits};
use sluice::telemetry::Limit;
use sluice_identity::Identity;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::Instant;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::kit::{CDS, Client, DELTA, Running, SOTW, eventually, soon, start, start_on, status_of};
use crate::raw;

const SHORT: Duration = Duration::from_millis(150);

#[tokio::test]
async fn fd17_silence_and_half_a_preface_are_closed_in_time() {
    let server = start(ServerLimits { preface_timeout: SHORT, ..ServerLimits::default() });
    let begin = Instant::now();
    for sent in [&b""[..], &raw::PREFACE[..1], &raw::PREFACE[..23]] {
        let socket = TcpStream::connect(server.address).await.unwrap();
        assert!(raw::talk(socket, sent.to_vec()).await.is_empty());
    }
    assert!(begin.elapsed() >= SHORT * 3);
    assert_eq!(server.metrics.closed_preface_timeout.get(), 3);
    assert_eq!(server.metrics.limit_hits(Limit::PrefaceTimeout), 3);
    assert_eq!(server.metrics.connections_open.get(), 0);
}

#[tokio::test]
async fn fd17_another_protocol_is_closed_at_once() {
    let server = start(ServerLimits::default());
    for sent in [&b"\0\0\0"[..], b"PRI * HTTP/1.1", b"\x16\x03\x01"] {
        let socket = TcpStream::connect(server.address).await.unwrap();
        raw::talk(socket, sent.to_vec()).await;
    }
    eventually("two are no HTTP", || server.metrics.closed_not_http.get() == 2).await;
    eventually("one is TLS (SEC-7)", || server.metrics.closed_tls_on_plaintext.get() == 1).await;
}

#[tokio::test]
async fn fd14_a_connection_without_a_stream_is_asked_to_go() {
    let server = start(ServerLimits { first_request_timeout: SHORT, ..ServerLimits::default() });
    let client = server.connect().await;
    soon(client.connection).await.unwrap().unwrap();
    assert_eq!(server.metrics.goaways_idle.get(), 1);
    assert_eq!(server.metrics.limit_hits(Limit::FirstRequestTimeout), 1);
    eventually("the connection is closed", || server.metrics.connections_open.get() == 0).await;
}

#[tokio::test]
async fn fd21_connections_above_the_limit_are_closed_at_once() {
    let server = start(ServerLimits { connections: 2, ..ServerLimits::default() });
    let (mut first, second) = (server.connect().await, server.connect().await);
    for refused in 1..=3 {
        let mut third = TcpStream::connect(server.address).await.unwrap();
        assert!(matches!(soon(third.read(&mut [0; 64])).await, Ok(0) | Err(_)));
        assert_eq!(server.metrics.limit_hits(Limit::Connections), refused);
    }
    // The others don't notice, and a freed place is reused.
    first.open(SOTW).await.head().await;
    drop(second.send);
    eventually("a place is free", || server.metrics.connections_open.get() == 1).await;
    server.connect().await.open(SOTW).await.head().await;
    assert_eq!(server.metrics.connections_accepted.get(), 3);
}

#[tokio::test]
async fn fd19_streams_of_a_connection_are_limited() {
    let server = start(ServerLimits { streams_per_connection: 3, ..ServerLimits::default() });
    let mut client = server.connect().await;
    let mut calls = Vec::new();
    for _ in 0..3 {
        let mut call = client.open(SOTW).await;
        call.head().await;
        calls.push(call);
    }
    assert_eq!(client.send.current_max_send_streams(), 3);
    assert_eq!(server.metrics.streams_open(), 3);
    assert_eq!(server.metrics.limit_hits(Limit::StreamsPerConnection), 1);

    // A client that ignores the setting: the first streams over the limit are refused, then the connection
    // ends.
    let flood: Vec<u8> = (0..1000).flat_map(|n| raw::headers(2 * n + 1, None)).collect();
    let socket = TcpStream::connect(server.address).await.unwrap();
    let answer = raw::talk(socket, [raw::opening(), flood].concat()).await;
    assert_eq!(raw::goaway_code(&answer), Some(raw::ENHANCE_YOUR_CALM));
    eventually("only the first client's are left", || server.metrics.streams_open() == 3).await;
}

#[tokio::test]
async fn fd19_floods_end_in_goaway() {
    let server = start(ServerLimits::default());
    let forbidden = |n: u32| raw::headers(2 * n + 1, Some(("connection", "close")));
    let rapid_reset = |n: u32| [raw::headers(2 * n + 1, None), raw::reset(2 * n + 1)].concat();
    let floods: [Vec<u8>; 2] =
        [(0..1000).flat_map(forbidden).collect(), (0..1000).flat_map(rapid_reset).collect()];
    for (index, flood) in floods.into_iter().enumerate() {
        let socket = TcpStream::connect(server.address).await.unwrap();
        let answer = raw::talk(socket, [raw::opening(), flood].concat()).await;
        assert_eq!(raw::goaway_code(&answer), Some(raw::ENHANCE_YOUR_CALM), "flood {index}");
        eventually("it is counted", || server.metrics.goaways_abuse.get() == index as u64 + 1).await;
    }
    assert_eq!(server.metrics.limit_hits(Limit::Http2Abuse), 2);
    eventually("nothing is left", || server.metrics.connections_open.get() == 0).await;
    assert_eq!(server.metrics.streams_open(), 0);
}

#[tokio::test]
async fn fd19_a_flood_of_control_frames_is_closed() {
    let limits = ServerLimits { control_frames_per_second_max: 500, ..ServerLimits::default() };
    let server = start(limits);
    let socket = TcpStream::connect(server.address).await.unwrap();
    raw::talk(socket, [raw::opening(), raw::ping().repeat(2000)].concat()).await;
    eventually("it is counted", || server.metrics.closed_control_flood.get() == 1).await;
    assert_eq!(server.metrics.limit_hits(Limit::ControlFrames), 1);
}

#[tokio::test]
async fn fd19_a_large_header_list_ends_its_stream_only() {
    let server = start(ServerLimits::default());
    let mut client = server.connect().await;
    let grpc = Request::post(format!("http://relay{SOTW}")).header("content-type", "application/grpc");
    let mut request = grpc.body(()).unwrap();
    for n in 0..10 {
        let name = http::HeaderName::try_from(format!("x-{n}")).unwrap();
        request.headers_mut().insert(name, "x".repeat(1000).parse().unwrap());
    }
    let (response, _requests) = client.send.send_request(request.clone(), false).unwrap();
    let response = soon(response).await.unwrap();
    assert_eq!(response.headers()["grpc-status"], "8");
    assert!(response.headers()["grpc-message"].to_str().unwrap().contains("headers"));
    assert_eq!(server.metrics.limit_hits(Limit::HeaderListBytes), 1);
    // A request many times over the limit never reaches the service.
    for n in 10..40 {
        let name = http::HeaderName::try_from(format!("x-{n}")).unwrap();
        request.headers_mut().insert(name, "x".repeat(1000).parse().unwrap());
    }
    let (response, _requests) = client.send.send_request(request, false).unwrap();
    match soon(response).await {
        Ok(response) => assert_eq!(response.status(), 431),
        Err(error) => assert!(error.is_reset(), "{error}"),
    }
    client.open(SOTW).await.head().await;
    assert_eq!(server.relay.opened(), 1);
}

#[tokio::test]
async fn kal_4_a_connection_goes_when_it_is_old_unless_a_stream_has_no_answer_yet() {
    // Long enough for both calls to begin on a loaded machine.
    let age = SHORT * 4;
    let server = start(ServerLimits {
        connection_age: Some(age),
        connection_age_jitter_percent: 0,
        connection_age_grace: age,
        ..ServerLimits::default()
    });
    let (mut answered, mut silent) = (server.connect().await, server.connect().await);
    let mut call = answered.open(SOTW).await;
    let probe = server.relay.stream(0).await;
    probe.publish(b"nonce", b"resources");
    assert_eq!(call.message().await.unwrap(), "nonceresources");
    let mut silent_call = silent.open(DELTA).await;
    let silent_probe = server.relay.stream(1).await;

    assert_eq!(call.status().await, ("14".into(), "the%20connection%20reached%20its%20maximum%20age".into()));
    soon(answered.connection).await.unwrap().unwrap();
    eventually("the handle is dropped", || probe.is_gone()).await;
    eventually("it is exempt more than once", || server.metrics.age_exemptions.get() >= 2).await;
    assert_eq!(server.metrics.goaways_age.get(), 1);
    assert!(silent_call.is_open().await);

    // After an answer, the stream ends like any other.
    silent_probe.publish(b"nonce", b"");
    assert_eq!(silent_call.message().await.unwrap(), "nonce");
    assert_eq!(silent_call.status().await.0, "14");
    assert_eq!(server.metrics.goaways_age.get(), 2);
    assert_eq!(server.metrics.closed_cut.get(), 0);
}

#[tokio::test]
async fn a_unix_socket_serves_and_its_file_goes_at_shutdown() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("xds.sock");
    let listener = Listener::bind_unix("local", &path, Some(0o600)).unwrap();
    let mut server = start_on(ServerLimits::default(), vec![listener], "127.0.0.1:1".parse().unwrap());
    let io = UnixStream::connect(&path).await.unwrap();
    let mut client = Client::new(io, h2::client::Builder::new()).await;
    let mut call = client.open(DELTA).await;
    call.head().await;
    let stream = server.relay.stream(0).await;
    assert_eq!((stream.variant, stream.peer.address), (Variant::Delta, None));
    assert_eq!(&*stream.peer.listener, "local");
    let uid = std::fs::metadata(&path).unwrap().uid();
    assert_eq!(*stream.peer.identity, Identity::Unix { uid }, "IDN-1: the user is known from the kernel");

    server.shut_down();
    soon(&mut server.served).await.unwrap();
    assert!(!path.exists());
}

/// Envoy sends the name of its cluster as `:authority`, gRPC's C++ core the path of an absolute `unix:` address.
#[tokio::test]
async fn any_text_is_taken_as_authority_on_each_kind_of_socket() {
    const TEXTS: [&str; 6] =
        ["outbound|18000||host", "default/relay/xds", "%2Frun%2Fsluice%2Fxds.sock", "a b", "a:1:2", "[é"];
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("xds.sock");
    let listener = Listener::bind_unix("local", &path, None).unwrap();
    let local = start_on(ServerLimits::default(), vec![listener], "127.0.0.1:1".parse().unwrap());
    any_authority_is_taken(&local, UnixStream::connect(&path).await.unwrap(), &TEXTS).await;
    let remote = start(ServerLimits::default());
    any_authority_is_taken(&remote, TcpStream::connect(remote.address).await.unwrap(), &TEXTS).await;
}

/// A call for each.
async fn any_authority_is_taken(server: &Running, mut io: impl AsyncWrite + Unpin, texts: &[&str]) {
    io.write_all(&raw::opening()).await.unwrap();
    for (number, authority) in texts.iter().enumerate() {
        io.write_all(&raw::headers_for(authority, 2 * number as u32 + 1, None)).await.unwrap();
        assert_eq!(server.relay.stream(number).await.variant, Variant::Sotw, "{authority}");
    }
}

/// The second call names the `:authority` of the first by the dynamic table of HPACK.
#[tokio::test]
async fn an_authority_in_huffman_code_keeps_its_place_in_the_table() {
    let server = start(ServerLimits::default());
    let mut io = TcpStream::connect(server.address).await.unwrap();
    let calls = [raw::opening(), raw::calls_for_huffman(raw::MESH_IN_HUFFMAN)].concat();
    io.write_all(&calls).await.unwrap();
    for number in 0..2 {
        assert_eq!(server.relay.stream(number).await.variant, Variant::Sotw, "call {number}");
    }
}

#[tokio::test]
async fn idn_1_a_tcp_client_is_anonymous_whatever_its_headers_say() {
    let server = start(ServerLimits::default());
    let mut client = server.connect().await;
    let request = Request::post(format!("http://relay{DELTA}"))
        .header("content-type", "application/grpc")
        .header("x-forwarded-client-cert", "URI=spiffe://prod.example/ns/shop/sa/web");
    client.call(request.body(()).unwrap()).await.head().await;
    assert_eq!(*server.relay.stream(0).await.peer.identity, Identity::Anonymous);
}

#[tokio::test]
async fn health_is_answered_and_says_when_the_server_drains() {
    let mut server = start(ServerLimits { drain_window: Duration::from_secs(10), ..ServerLimits::default() });
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{}", server.address)).unwrap();
    let mut health = HealthClient::new(channel.connect().await.unwrap());
    let ask = |service: &str| HealthCheckRequest { service: service.to_owned() };
    const SERVING: i32 = 1;
    const NOT_SERVING: i32 = 2;
    for service in ["", "envoy.service.discovery.v3.AggregatedDiscoveryService"] {
        let answer = soon(health.check(ask(service))).await.unwrap();
        assert_eq!(answer.into_inner().status, SERVING);
    }
    let error = soon(health.check(ask("other"))).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::NotFound);

    let mut watch = soon(health.watch(ask(""))).await.unwrap().into_inner();
    assert_eq!(soon(watch.message()).await.unwrap().unwrap().status, SERVING);
    server.shut_down();
    assert_eq!(soon(watch.message()).await.unwrap().unwrap().status, NOT_SERVING);
    // A watch never ends by itself; the server does not wait for the watch, but for a tenth of the window to
    // let the client see the status.
    soon(&mut server.served).await.unwrap();
    assert_eq!(server.metrics.closed_cut.get(), 1);
}

#[tokio::test]
async fn calls_that_are_no_grpc_or_that_nobody_serves() {
    let server = start(ServerLimits::default());
    let mut client = server.connect().await;

    let mut call = client.open("/envoy.service.route.v3.RouteDiscoveryService/PushRoutes").await;
    let head = call.head().await;
    assert_eq!(head.status(), 200);
    assert_eq!(head.headers()["content-type"], "application/grpc");
    let (code, text) = status_of(head.headers());
    assert_eq!(code, "12");
    assert!(text.contains("/envoy.service.route.v3.RouteDiscoveryService/PushRoutes"), "{text}");
    assert_eq!(call.message().await, None);

    let get = Request::get(format!("http://relay{SOTW}")).body(()).unwrap();
    let head = client.call(get).await.head().await;
    assert_eq!((head.status().as_u16(), &head.headers()["allow"]), (405, &"POST".parse().unwrap()));
    let json = Request::post(format!("http://relay{SOTW}")).header("content-type", "application/json");
    assert_eq!(client.call(json.body(()).unwrap()).await.head().await.status(), 415);
    assert_eq!(server.relay.opened(), 0);
    assert_eq!(server.metrics.calls_unimplemented.get(), 1);
}

#[tokio::test]
async fn str_12_many_streams_on_one_connection_are_separate() {
    let server = start(ServerLimits::default());
    let mut client = server.connect().await;
    let mut calls = Vec::new();
    for index in 0..20 {
        let mut call = client.open(if index % 2 == 0 { SOTW } else { DELTA }).await;
        call.send_request(CDS);
        calls.push(call);
    }
    for (index, call) in calls.iter_mut().enumerate() {
        let stream = server.relay.stream(index).await;
        stream.publish(&[index as u8], b"");
        assert_eq!(call.message().await.unwrap()[..], [index as u8]);
    }
    drop(calls);
    eventually("all streams are closed", || server.metrics.streams_open() == 0).await;
    let opened = [Variant::Sotw, Variant::Delta].map(|variant| server.metrics.streams_opened(variant));
    assert_eq!(opened, [10, 10]);
}

#[tokio::test]
async fn kal_1_pings_are_answered() {
    let server = start(ServerLimits::default());
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    socket.write_all(&[raw::opening(), raw::ping()].concat()).await.unwrap();
    let mut answer = Vec::new();
    let pong = raw::frame(6, 1, 0, &[0; 8]);
    while !answer.windows(pong.len()).any(|window| window == pong) {
        assert_ne!(soon(socket.read_buf(&mut answer)).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn kal_1_who_answers_pings_stays_and_so_does_who_says_anything_else() {
    let interval = Duration::from_millis(200);
    let server = start(ServerLimits {
        keepalive_interval: interval,
        keepalive_timeout: interval * 3,
        ..ServerLimits::default()
    });
    let mut client = server.connect().await;
    let mut call = client.open(SOTW).await;
    let answering = async {
        for _ in 0..4 {
            tokio::time::sleep(interval * 2).await;
            server.relay.stream(0).await.publish(b"", b"news");
            assert_eq!(call.message().await.unwrap(), "news");
        }
    };
    // Answers no PING, and sends other frames now and then.
    let talking = async {
        let mut socket = TcpStream::connect(server.address).await.unwrap();
        socket.write_all(&[raw::opening(), raw::headers(1, None)].concat()).await.unwrap();
        for _ in 0..4 {
            tokio::time::sleep(interval * 2).await;
            socket.write_all(&raw::frame(8, 0, 0, &[0, 0, 0, 1])).await.unwrap();
        }
        assert_eq!(server.metrics.limit_hits(Limit::KeepaliveTimeout), 0);
        drop(socket);
    };
    tokio::join!(answering, talking);
    assert_eq!(server.metrics.limit_hits(Limit::KeepaliveTimeout), 0);
}

#[tokio::test]
async fn a_stream_that_breaks_down_takes_no_other_with_it() {
    let server = start(ServerLimits::default());
    let mut client = server.connect().await;
    let (mut broken, mut whole) = (client.open(SOTW).await, client.open(SOTW).await);
    let (first, second) = (server.relay.stream(0).await, server.relay.stream(1).await);
    broken.head().await;
    first.break_down();
    eventually("its handle is dropped", || first.is_gone()).await;
    second.publish(b"", b"still here");
    assert_eq!(whole.message().await.unwrap(), "still here");
    assert!(!broken.is_open().await, "it is reset");
    assert_eq!(server.metrics.streams_open(), 1);
}

#[tokio::test]
async fn a_peer_that_does_not_answer_pings_is_closed() {
    let server = start(ServerLimits {
        keepalive_interval: SHORT,
        keepalive_timeout: SHORT,
        ..ServerLimits::default()
    });
    let begin = Instant::now();
    let socket = TcpStream::connect(server.address).await.unwrap();
    raw::talk(socket, [raw::opening(), raw::headers(1, None)].concat()).await;
    assert!(begin.elapsed() >= SHORT * 2);
    let stream = server.relay.stream(0).await;
    eventually("the handle is dropped", || stream.is_gone()).await;
    eventually("it is counted", || server.metrics.limit_hits(Limit::KeepaliveTimeout) == 1).await;
}
