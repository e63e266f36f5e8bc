//! One stream: its requests, its events, its end.

use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use h2::server::Builder;
use http::Response;
use sluice::client::{ClientSettings, StreamEvent};
use sluice_wire::response::{Beside, delta_body, head};
use sluice_xds::{Code, SetMark, TypeUrl, Variant, Version};

use crate::peer::*;

#[tokio::test]
async fn a_stream_from_its_headers_to_its_trailers() {
    let (mut peer, _pool, mut client) = connected().await;
    client.handle.send(framed(b"hello"));

    let mut stream = peer.stream().await;
    let (head, mut body) = stream.request.into_parts();
    let path = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
    assert_eq!(head.uri.path(), path);
    assert_eq!(head.method, "POST");
    assert_eq!(head.headers["te"], "trailers");
    assert_eq!(head.headers["content-type"], "application/grpc");
    assert!(head.headers["user-agent"].to_str().unwrap().starts_with("sluice/"));
    assert_eq!(soon(body.data()).await.unwrap().unwrap(), framed(b"hello"));

    let reply = Response::builder().header("content-type", "application/grpc+proto").body(()).unwrap();
    let mut reply = stream.respond.send_response(reply, false).unwrap();
    let two: Bytes = [response("1"), response("2")].concat().into();
    reply.send_data(two.slice(..7), false).unwrap();
    reply.send_data(two.slice(7..), false).unwrap();
    assert_eq!(client.event_text().await, "Response 1");
    assert_eq!(client.event_text().await, "Response 2");
    reply.send_trailers(trailers("7", "no%20entry")).unwrap();
    let status = client.closed().await;
    assert_eq!((status.code, status.message.as_str()), (Code::PermissionDenied, "no entry"));
}

/// ADR 14: marks are read on delta streams of servers that announce marks.
#[tokio::test]
async fn marks_are_read_where_the_server_sets_them() {
    let mut peer = Peer::start(Builder::new()).await;
    let pool = pool(peer.port, settings());
    let url = TypeUrl::of_message("envoy.config.cluster.v3.Cluster");
    let none = std::iter::empty();
    let body = delta_body(&url, Version(1), none, [].iter(), &[], Beside::default(), "");
    let mark = SetMark { requests: 1, whole: true, globs: Vec::new() };
    let head = head("1", Some(&mark), body.len()).unwrap();
    for (variant, set, expected) in
        [(Variant::Delta, "1", true), (Variant::Delta, "2", false), (Variant::Sotw, "1", false)]
    {
        let (events_tx, events) = tokio::sync::mpsc::channel(16);
        let mut client = Client { handle: pool.open(variant, events_tx), events };
        client.opened().await;
        let mut stream = peer.stream().await;
        let asked = stream.request.headers().get("sluice-set-marks").map(|value| value.to_str().unwrap());
        assert_eq!(asked, (variant == Variant::Delta).then_some("1"));
        let reply = Response::builder()
            .header("content-type", "application/grpc")
            .header("sluice-set-marks", set)
            .body(())
            .unwrap();
        let mut reply = stream.respond.send_response(reply, false).unwrap();
        reply.send_data([&head[..], &body[..]].concat().into(), false).unwrap();
        reply.send_trailers(trailers("0", "")).unwrap();
        let mut events = Vec::new();
        while let Some(event) = client.event().await {
            match event {
                StreamEvent::Marks => events.push("marks"),
                StreamEvent::Response(..) => events.push("response"),
                StreamEvent::Marked(of, read) => {
                    assert_eq!((&of, &read), (&url, &mark));
                    events.push("marked");
                }
                _ => {}
            }
        }
        assert_eq!(events == ["marks", "response", "marked"], expected, "{variant:?} {set}: {events:?}");
        assert_eq!(events == ["response"], !expected, "{variant:?} {set}: {events:?}");
    }
}

/// One way of ending a stream.
type Script = fn(&mut PeerStream);

#[tokio::test]
async fn a_stream_ends_with_the_status_that_grpc_gives_it() {
    let scripts: &[(&str, Code, Script)] = &[
        ("trailers only", Code::Unimplemented, |stream| {
            let mut reply = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
            *reply.headers_mut() = trailers("12", "");
            stream.respond.send_response(reply, true).unwrap();
        }),
        ("trailers, then RST_STREAM with NO_ERROR", Code::Internal, |stream| {
            let mut reply = stream.headers();
            reply.send_trailers(trailers("13", "")).unwrap();
            reply.send_reset(Reason::NO_ERROR);
        }),
        ("a clean end", Code::Ok, |stream| {
            stream.headers().send_trailers(trailers("0", "")).unwrap();
        }),
        ("a clean end within a message", Code::Internal, |stream| {
            let mut reply = stream.headers();
            reply.send_data(response("1").slice(..9), false).unwrap();
            reply.send_trailers(trailers("0", "")).unwrap();
        }),
        ("no trailers", Code::Internal, |stream| {
            stream.headers().send_data(Bytes::new(), true).unwrap();
        }),
        ("HTTP 503", Code::Unavailable, |stream| {
            stream.respond.send_response(Response::builder().status(503).body(()).unwrap(), true).unwrap();
        }),
        ("HTTP 404", Code::Unimplemented, |stream| {
            stream.respond.send_response(Response::builder().status(404).body(()).unwrap(), true).unwrap();
        }),
        ("a web page", Code::Unknown, |stream| {
            let reply = Response::builder().header("content-type", "text/html").body(()).unwrap();
            stream.respond.send_response(reply, false).unwrap();
        }),
        ("CANCEL", Code::Cancelled, |stream| stream.respond.send_reset(Reason::CANCEL)),
        ("REFUSED_STREAM", Code::Unavailable, |stream| stream.respond.send_reset(Reason::REFUSED_STREAM)),
        ("INTERNAL_ERROR", Code::Internal, |stream| stream.respond.send_reset(Reason::INTERNAL_ERROR)),
        ("ENHANCE_YOUR_CALM", Code::ResourceExhausted, |stream| {
            stream.respond.send_reset(Reason::ENHANCE_YOUR_CALM);
        }),
    ];
    let mut peer = Peer::start(Builder::new()).await;
    let pool = pool(peer.port, settings());
    for (name, code, script) in scripts {
        let mut client = Client::open(&pool);
        client.opened().await;
        script(&mut peer.stream().await);
        assert_eq!(client.closed().await.code, *code, "{name}");
    }
    assert_eq!(pool.metrics().connects.get(), 1, "the end of a stream is not the end of its connection");
}

#[tokio::test]
async fn fu8_a_lost_connection_closes_its_streams() {
    let (mut peer, pool, mut client) = connected().await;
    let mut stream = peer.stream().await;
    stream.headers().send_data(response("1"), false).unwrap();
    assert_eq!(client.event_text().await, "Response 1");
    soon(peer.connections.recv()).await.unwrap().send(Order::Cut).await.unwrap();
    assert_eq!(client.closed().await.code, Code::Unavailable);
    assert_eq!(pool.metrics().connect_failures.get(), 0, "a lost connection is not a failed connect");
}

#[tokio::test]
async fn fu17_a_message_over_the_limit_ends_the_stream_with_both_sizes() {
    let mut peer = Peer::start(Builder::new()).await;
    let pool = pool(peer.port, ClientSettings { max_response_bytes: 1000, ..settings() });
    let mut client = Client::open(&pool);
    client.opened().await;
    let mut stream = peer.stream().await;
    let mut reply = stream.headers();
    reply.send_data(framed(&[0; 1001]), false).unwrap();
    assert_eq!(client.event_text().await, "Undecodable RESOURCE_EXHAUSTED");
    let status = client.closed().await;
    assert!(status.message.contains("1001") && status.message.contains("1000"), "{status}");
    assert_eq!(pool.metrics().undecodable.get(), 1);
    let reason = soon(std::future::poll_fn(|context| reply.poll_reset(context))).await.unwrap();
    assert_eq!(reason, Reason::CANCEL);
}

/// An open stream follows the limit in force, from the next message on.
#[tokio::test]
async fn rel_5_each_message_has_the_limit_in_force() {
    let mut peer = Peer::start(Builder::new()).await;
    let pool = pool(peer.port, ClientSettings { max_response_bytes: 1000, ..settings() });
    let mut client = Client::open(&pool);
    client.opened().await;
    let mut reply = peer.stream().await.headers();
    let version = "v".repeat(200);
    reply.send_data(response(&version), false).unwrap();
    assert_eq!(client.event_text().await, format!("Response {version}"));
    pool.configure(ClientSettings { max_response_bytes: 100, ..settings() });
    reply.send_data(framed(&[0; 101]), false).unwrap();
    assert_eq!(client.event_text().await, "Undecodable RESOURCE_EXHAUSTED");
    let status = client.closed().await;
    assert!(status.message.contains("101") && status.message.contains("100"), "{status}");
}

#[tokio::test]
async fn fu11_garbage_ends_the_stream() {
    for garbage in [&[9, 9, 9, 9, 9, 9][..], &[1, 0, 0, 0, 1, 0], &framed(b"\xff\xff\xff\xff")] {
        let mut peer = Peer::start(Builder::new()).await;
        let pool = pool(peer.port, settings());
        let mut client = Client::open(&pool);
        client.opened().await;
        let mut stream = peer.stream().await;
        let mut reply = stream.headers();
        reply.send_data(Bytes::copy_from_slice(garbage), false).unwrap();
        assert_eq!(client.event_text().await, "Undecodable INTERNAL");
        assert_eq!(client.closed().await.code, Code::Internal);
        assert_eq!(pool.metrics().connections.get(), 1, "its connection lives on");
    }
}

#[tokio::test]
async fn fu30_a_server_that_does_not_read_ends_the_stream_at_the_bound() {
    let mut peer = Peer::start(Builder::new()).await;
    let pool = pool(peer.port, ClientSettings { queue_bytes_max: 1 << 20, ..settings() });
    let mut client = Client::open(&pool);
    client.opened().await;
    let stream = peer.stream().await;
    // Far more than the bound, the server's window and the bound again.
    for _ in 0..100 {
        client.handle.send(framed(&[0; 100_000]));
    }
    let status = client.closed().await;
    assert_eq!(status.code, Code::ResourceExhausted);
    assert!(status.message.contains("1048576"), "{status}");
    drop(stream);
}

#[tokio::test]
async fn fu30_a_message_longer_than_every_window_passes_as_the_server_reads() {
    let (mut peer, _pool, client) = connected().await;
    let message: Vec<u8> = (0..5_000_000u32).map(|i| (i % 251) as u8).collect();
    client.handle.send(framed(&message));
    client.handle.send(framed(b"next"));
    let mut stream = peer.stream().await;
    let body = stream.request.body_mut();
    let mut received = Vec::new();
    while received.len() < message.len() + 5 + 4 + 5 {
        let chunk = soon(body.data()).await.unwrap().unwrap();
        body.flow_control().release_capacity(chunk.len()).unwrap();
        received.extend(chunk);
    }
    assert!(received == [framed(&message), framed(b"next")].concat());
}

/// FU33: the rest of a long request waits until HTTP/2 has taken what is there.
#[tokio::test]
async fn a_flush_is_over_once_the_server_has_made_room_for_all_messages() {
    let (mut peer, _pool, mut client) = connected().await;
    let message = framed(&vec![7; 5_000_000]);
    client.handle.send(message.clone());
    client.handle.flush();
    let mut stream = peer.stream().await;
    let body = stream.request.body_mut();
    let mut received = 0;
    while received < message.len() {
        // The windows of the peer are smaller than the rest.
        if received < message.len() / 2 {
            assert!(client.events.try_recv().is_err(), "{received} bytes were received");
        }
        let chunk = soon(body.data()).await.unwrap().unwrap();
        body.flow_control().release_capacity(chunk.len()).unwrap();
        received += chunk.len();
    }
    assert_eq!(client.event_text().await, "Flushed");
}

#[tokio::test]
async fn a_response_longer_than_every_window_passes() {
    let mut peer = Peer::start(Builder::new()).await;
    let pool =
        pool(peer.port, ClientSettings { stream_window: 100_000, connection_window: 100_000, ..settings() });
    let mut client = Client::open(&pool);
    client.opened().await;
    let mut stream = peer.stream().await;
    let mut reply = stream.headers();
    let version = "v".repeat(1_000_000);
    reply.send_data(response(&version), false).unwrap();
    assert_eq!(client.event_text().await, format!("Response {version}"));
    drop(reply);
}

#[tokio::test]
async fn dropping_the_handle_resets_the_stream_and_frees_its_place() {
    let mut peer = Peer::start(Builder::new()).await;
    let idle_timeout = Duration::from_millis(100);
    let pool = pool(peer.port, ClientSettings { streams_per_connection: 1, idle_timeout, ..settings() });
    let mut client = Client::open(&pool);
    client.opened().await;
    let mut first = peer.stream().await;
    let mut reply = first.headers();
    drop(client);
    let reason = soon(std::future::poll_fn(|context| reply.poll_reset(context))).await.unwrap();
    assert_eq!(reason, Reason::CANCEL);

    let mut client = Client::open(&pool);
    client.opened().await;
    assert_eq!(peer.stream().await.connection, 0, "the place on the first connection is free again");
    drop(client);
    assert_eq!(soon(peer.ended.recv()).await, Some(0), "without streams a connection is closed");
    assert_eq!(pool.metrics().connect_failures.get(), 0);
}

#[tokio::test]
async fn nothing_is_read_while_nobody_takes_events() {
    let mut peer = Peer::start(Builder::new()).await;
    let pool = pool(peer.port, ClientSettings { stream_window: 65_535, ..settings() });
    let mut client = Client::open(&pool);
    client.opened().await;
    let mut stream = peer.stream().await;
    let mut reply = stream.headers();
    // Each message fits into one frame, so that each is one event.
    let message = response(&"v".repeat(15_000));
    // 16 events fit into the channel, and the 17th waits in the stream's task. HTTP/2 holds up to 65,535
    // bytes more, and may withhold half of the window.
    let mut sent = 0;
    loop {
        reply.reserve_capacity(message.len());
        let capacity = async {
            while reply.capacity() < message.len() {
                std::future::poll_fn(|context| reply.poll_capacity(context)).await.unwrap().unwrap();
            }
        };
        if tokio::time::timeout(Duration::from_millis(500), capacity).await.is_err() {
            break;
        }
        reply.send_data(message.clone(), false).unwrap();
        sent += 1;
        assert!(sent <= 17 + 4, "the server is held back");
    }
    assert!(sent >= 17, "{sent} messages were taken");
    for _ in 0..sent {
        assert!(matches!(client.event().await, Some(StreamEvent::Response(..))));
    }
}
