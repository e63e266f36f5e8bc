//! One stream: requests in, messages out, and every kind of end.

use std::time::{Duration, Instant};

use bytes::Bytes;
use sluice::driver::api::downstream::Variant;
use sluice::server::ServerLimits;
use sluice::telemetry::Limit;
use sluice_xds::{Code, Request, SotwRequest, Status};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::kit::{
    CDS, Client, DELTA, PATIENCE, SOTW, discovery_request, eventually, soon, start, status_of, stuck,
};
use crate::raw;

#[tokio::test]
async fn str_14_requests_arrive_in_order_however_they_are_cut() {
    let server = start(ServerLimits::default());
    let mut client = server.connect().await;
    let mut call = client.open(SOTW).await;
    let types = ["type.googleapis.com/a", "type.googleapis.com/b", "type.googleapis.com/c"];
    let bytes: Vec<u8> = types.iter().flat_map(|url| discovery_request(url)).collect();
    for piece in bytes.chunks(7) {
        call.requests.send_data(Bytes::copy_from_slice(piece), false).unwrap();
    }
    let stream = server.relay.stream(0).await;
    eventually("all have come", || stream.with(|script| script.requests.len() == 3)).await;
    let expected = types.map(|url| Request::Sotw(SotwRequest { type_url: url.into(), ..Default::default() }));
    assert_eq!(stream.with(|script| script.requests.clone()), expected);
    assert_eq!(stream.variant, Variant::Sotw);
    assert_eq!(&*stream.peer.listener, "main");
    assert!(stream.peer.address.is_some());
    assert_eq!(server.relay.requests(), 3);
    assert_eq!(server.metrics.request_bytes.get(), bytes.len() as u64);
}

/// ADR 14: the server announces marks to a delta client that reads marks, and to no other client.
#[tokio::test]
async fn marks_are_set_for_delta_clients_that_read_them() {
    let server = start(ServerLimits::default());
    let mut client = server.connect().await;
    for (path, announced, expected) in [
        (DELTA, Some("1"), Some("1")),
        (DELTA, Some("2"), None),
        (DELTA, Some("11111111111111111111"), None),
        (DELTA, None, None),
        (SOTW, Some("1"), None),
    ] {
        let mut request = http::Request::post(format!("http://relay{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        if let Some(announced) = announced {
            request = request.header("sluice-set-marks", announced);
        }
        let mut call = client.call(request.body(()).unwrap()).await;
        let head = call.head().await;
        let marks = head.headers().get("sluice-set-marks").map(|value| value.to_str().unwrap());
        assert_eq!(marks, expected, "{path} {announced:?}");
    }
}

#[tokio::test]
async fn a_message_of_two_frames_is_one_grpc_message() {
    let server = start(ServerLimits::default());
    let mut client = server.connect().await;
    let mut call = client.open(SOTW).await;
    let stream = server.relay.stream(0).await;
    let big = vec![b'r'; 300_000];
    for (private, shared) in
        [(&b"nonce"[..], &b"resources"[..]), (b"", b"shared"), (b"private", b""), (b"1", &big)]
    {
        stream.publish(private, shared);
        assert_eq!(call.message().await.unwrap(), [private, shared].concat());
    }
    assert_eq!(stream.with(|script| script.taken), 4);
    stream.with(|script| script.half_closed = true);
}

#[tokio::test]
async fn str_13_a_half_closed_stream_ends_with_ok() {
    let server = start(ServerLimits::default());
    let mut client = server.connect().await;
    let mut call = client.open(SOTW).await;
    call.send_request(CDS);
    let stream = server.relay.stream(0).await;
    stream.publish(b"last", b"words");
    assert_eq!(call.message().await.unwrap(), "lastwords");
    call.requests.send_data(Bytes::new(), true).unwrap();
    assert_eq!(call.status().await, ("0".into(), String::new()));
    eventually("the handle is dropped", || stream.is_gone()).await;
    assert_eq!(server.metrics.streams_open(), 0);
}

#[tokio::test]
async fn fd14_a_stream_without_a_request_ends() {
    let limit = Duration::from_millis(150);
    let server = start(ServerLimits { first_request_timeout: limit, ..ServerLimits::default() });
    let mut client = server.connect().await;
    let mut busy = client.open(SOTW).await;
    busy.send_request(CDS);
    let (mut silent, mut partial) = (client.open(SOTW).await, client.open(SOTW).await);
    partial.requests.send_data(discovery_request(CDS).slice(..9), false).unwrap();
    for call in [&mut silent, &mut partial] {
        assert_eq!(call.status().await, ("4".into(), "no request arrived in time".replace(' ', "%20")));
    }
    assert_eq!(server.metrics.limit_hits(Limit::FirstRequestTimeout), 2);
    assert!(busy.is_open().await);
}

/// A change of the limits reaches the listener, and streams that are open already.
#[tokio::test]
async fn rel_5_other_limits_reach_open_streams_and_running_listeners() {
    let server = start(ServerLimits::default());
    let mut client = server.connect().await;
    let mut calls = [client.open(SOTW).await, client.open(SOTW).await, client.open(SOTW).await];
    calls.iter_mut().for_each(|call| call.send_request(CDS));
    eventually("all requests are read", || server.relay.requests() == 3).await;

    let mut limits = ServerLimits {
        connections: 1,
        request_timeout: Duration::from_millis(150),
        ..ServerLimits::default()
    };
    limits.requests.request_bytes = 8;
    server.limits.publish(limits);
    let [mut partial, mut large, mut idle] = calls;
    partial.requests.send_data(discovery_request(CDS).slice(..3), false).unwrap();
    let (code, text) = partial.status().await;
    assert!(code == "4" && text.contains("limits.request_timeout"), "{code} {text}");
    large.send_request(CDS);
    let (code, text) = large.status().await;
    assert!(code == "8" && text.ends_with("limit%20is%208"), "{code} {text}");
    let mut refused = TcpStream::connect(server.address).await.unwrap();
    assert!(matches!(soon(refused.read(&mut [0; 64])).await, Ok(0) | Err(_)));
    assert!(idle.is_open().await, "a lowered limit ends nobody");
}

/// The same for a request that keeps arriving, a byte at a time.
#[tokio::test]
async fn fd14_a_request_that_began_must_end() {
    let limit = Duration::from_millis(200);
    let server = start(ServerLimits { request_timeout: limit, ..ServerLimits::default() });
    let mut client = server.connect().await;
    let mut busy = client.open(SOTW).await;
    busy.send_request(CDS);
    let mut calls = [client.open(SOTW).await, client.open(SOTW).await];
    for call in &mut calls {
        call.send_request(CDS);
        call.requests.send_data(discovery_request(CDS).slice(..3), false).unwrap();
    }
    let [mut partial, mut slow] = calls;
    let dribble = tokio::spawn(async move {
        for byte in discovery_request(CDS).slice(3..).chunks(1) {
            if slow.requests.send_data(Bytes::copy_from_slice(byte), false).is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        slow
    });
    let (code, text) = partial.status().await;
    assert_eq!(code, "4");
    assert!(text.contains("limits.request_timeout"), "{text}");
    let mut slow = dribble.await.unwrap();
    assert_eq!(slow.status().await.0, "4");
    assert_eq!(server.metrics.limit_hits(Limit::RequestTimeout), 2);
    // Between two requests a stream may be idle.
    assert!(busy.is_open().await);
}

#[tokio::test]
async fn fd16_garbage_ends_its_stream_only() {
    let server = start(ServerLimits::default());
    let mut client = server.connect().await;
    let mut other = client.open(SOTW).await;
    other.send_request(CDS);
    let invalid_utf8 = b"\0\0\0\0\x03\x22\x01\xff";
    let (invalid, unimplemented) = ("3", "12");
    for (garbage, code) in [
        (&b"\0\0\0\0\x02\xff\xff"[..], invalid),
        (invalid_utf8, invalid),
        (b"\x07\0\0\0\0", invalid),
        (b"\x01\0\0\0\x01x", unimplemented),
    ] {
        let mut call = client.open(SOTW).await;
        call.requests.send_data(Bytes::copy_from_slice(garbage), false).unwrap();
        let (found, text) = call.status().await;
        assert_eq!(found, code, "{garbage:?}: {text}");
        assert!(!text.is_empty());
    }
    // Within a message.
    let mut call = client.open(SOTW).await;
    call.requests.send_data(discovery_request(CDS).slice(..9), true).unwrap();
    assert_eq!(call.status().await.0, invalid);

    assert_eq!(server.metrics.streams_unreadable.get(), 5);
    server.relay.stream(0).await.publish(b"still", b"here");
    assert_eq!(other.message().await.unwrap(), "stillhere");
}

#[tokio::test]
async fn fd16_what_was_whole_before_the_garbage_is_served() {
    let server = start(ServerLimits::default());
    let mut client = server.connect().await;
    let mut call = client.open(SOTW).await;
    let bytes = [&discovery_request(CDS)[..], b"\0\0\0\0\x02\xff\xff"].concat();
    call.requests.send_data(bytes.into(), false).unwrap();
    assert_eq!(call.status().await.0, "3");
    assert_eq!(server.relay.requests(), 1);
}

#[tokio::test]
async fn a_refused_request_ends_the_stream_with_its_status() {
    let server = start(ServerLimits::default());
    let mut client = server.connect().await;
    let mut call = client.open(SOTW).await;
    let stream = server.relay.stream(0).await;
    stream.with(|script| {
        script.refuse_request = Some(Status::new(Code::InvalidArgument, "type_url is empty"));
    });
    call.send_request("");
    assert_eq!(call.status().await, ("3".into(), "type_url%20is%20empty".into()));
    eventually("the handle is dropped", || stream.is_gone()).await;
}

#[tokio::test]
async fn a_stream_that_the_relay_ends_is_read_no_more() {
    let server = start(ServerLimits::default());
    let mut client = server.connect().await;
    let mut call = client.open(SOTW).await;
    call.send_request(CDS);
    let stream = server.relay.stream(0).await;
    stream.end(Status::new(Code::Unavailable, "evicted"));
    assert_eq!(call.status().await, ("14".into(), "evicted".into()));
    // The client never closed its side.
    eventually("the handle is dropped", || stream.is_gone()).await;
    assert!(!client.connection.is_finished());
}

#[tokio::test]
async fn a_stream_that_cannot_be_opened_ends_with_its_status() {
    let server = start(ServerLimits::default());
    *server.relay.refusal.lock().unwrap() = Some(Status::new(Code::ResourceExhausted, "memory"));
    let mut client = server.connect().await;
    let head = client.open(SOTW).await.head().await;
    assert_eq!(head.status(), 200);
    assert_eq!(status_of(head.headers()), ("8".into(), "memory".into()));
    assert_eq!(server.metrics.streams_open(), 0);
}

#[tokio::test]
async fn reset_and_disconnect_drop_the_handle() {
    let server = start(ServerLimits::default());
    let mut client = server.connect().await;
    let (mut first, mut second) = (client.open(SOTW).await, client.open(SOTW).await);
    first.head().await;
    second.head().await;
    let (first_stream, second_stream) = (server.relay.stream(0).await, server.relay.stream(1).await);
    first.requests.send_reset(h2::Reason::CANCEL);
    eventually("the first is dropped", || first_stream.is_gone()).await;
    assert!(!second_stream.is_gone());
    client.connection.abort();
    eventually("the second is dropped", || second_stream.is_gone()).await;
    eventually("the connection is over", || server.metrics.connections_open.get() == 0).await;
}

#[tokio::test]
async fn flw_2_a_stuck_client_costs_two_messages_and_then_gets_the_newest() {
    const UPDATES: u32 = 200;
    let server = start(ServerLimits::default());
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(64 * 1024).initial_connection_window_size(64 * 1024);
    let mut client = Client::new(TcpStream::connect(server.address).await.unwrap(), builder).await;
    let mut call = client.open(SOTW).await;
    call.head().await;
    let stream = server.relay.stream(0).await;
    let body = vec![0; 100 * 1024];
    for update in 1..=UPDATES {
        stream.publish(&update.to_be_bytes(), &body);
        // Others on the connection are served, and requests of the stuck stream are read (FLW-3).
        if update % 50 == 0 {
            let read = server.relay.requests();
            call.send_request(CDS);
            eventually("the request is read", || server.relay.requests() > read).await;
        }
    }
    let taken = stream.with(|script| script.taken);
    assert!((1..=2).contains(&taken), "one in the queue of HTTP/2, one that hyper holds: {taken}");

    let mut last = 0;
    for _ in 0..=taken {
        let message = call.message().await.unwrap();
        last = u32::from_be_bytes(message[..4].try_into().unwrap());
    }
    assert_eq!(last, UPDATES);
    assert_eq!(stream.with(|script| script.taken), taken + 1);
}

#[tokio::test]
async fn flw_2_large_windows_do_not_let_old_messages_gather() {
    const BODY_BYTES: usize = 1000;
    let server = start(ServerLimits::default());
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    let mut socket = socket.connect(server.address).await.unwrap();
    let opening = [raw::opening_with_large_windows(), raw::headers(1, None)].concat();
    socket.write_all(&opening).await.unwrap();
    let stream = server.relay.stream(0).await;
    // The client reads nothing. The relay publishes each message after the previous was taken, until no
    // message is taken.
    let mut taken = 0;
    loop {
        stream.publish(b"", &[0; BODY_BYTES]);
        let is_taken = async {
            while stream.with(|script| script.taken) == taken {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        if timeout(Duration::from_millis(300), is_taken).await.is_err() {
            break;
        }
        taken += 1;
    }
    // Two buffers of the kernel and the queue of HTTP/2; the queue alone would have 400 KB by default.
    assert!(taken * BODY_BYTES < 200 * 1024, "{taken} messages are under way");
}

#[tokio::test]
async fn flw_3_many_small_requests_to_a_stuck_stream_do_not_cost_the_connection() {
    const ACKS: u64 = 5000;
    let server = start(ServerLimits::default());
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(1024);
    let mut client = Client::new(TcpStream::connect(server.address).await.unwrap(), builder).await;
    let mut call = client.open(SOTW).await;
    call.head().await;
    server.relay.stream(0).await.publish(b"", &[0; 10_000]);
    for sent in 1..=ACKS {
        call.send_request(CDS);
        if sent % 100 == 0 {
            eventually("they are read", || server.relay.requests() == sent).await;
        }
    }
    assert!(!client.connection.is_finished());
    assert_eq!(soon(call.message()).await.unwrap().len(), 10_000);
}

/// The relay's part of a failed stream is over at once: the client does not decide when its names go.
#[tokio::test]
async fn fd_6_a_failed_stream_waits_for_no_reader() {
    let server = start(ServerLimits::default());
    let (mut client, mut call, stream) = stuck(&server).await;
    let begin = Instant::now();
    stream.with(|script| script.is_unread = true);
    stream.with(|script| script.refuse_request = Some(Status::new(Code::ResourceExhausted, "too much")));
    call.send_request(CDS);
    eventually("the stream is over", || stream.is_gone()).await;
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    let reset = std::future::poll_fn(|context| call.requests.poll_reset(context));
    let reason = timeout(PATIENCE * 3, reset).await.expect("the client is told").unwrap();
    assert_eq!(reason, h2::Reason::CANCEL);
    // The connection serves on.
    let mut other = client.open(SOTW).await;
    other.head().await;
}

/// HTTP/2 keeps wakers of calls that are over.
#[tokio::test]
async fn each_call_is_served_whichever_calls_ended_before() {
    let server = start(ServerLimits::default());
    let mut client = server.connect().await;
    let mut calls = Vec::new();
    for (index, stay) in [1, 2, 2, 3, 0, 1, 0, 1].into_iter().enumerate() {
        calls.push((client.open(SOTW).await, server.relay.stream(index).await));
        for (call, stream) in &mut calls {
            stream.publish(b"n", b"r");
            assert_eq!(call.message().await.unwrap(), "nr");
        }
        while calls.len() > stay {
            let (mut call, stream) = calls.remove(0);
            stream.end(Status::ok());
            assert_eq!(call.status().await.0, "0");
        }
    }
}
