//! Opening, sharing and closing of connections.

use std::sync::Arc;
use std::time::Duration;

use h2::server::Builder;
use sluice::client::{ClientSettings, GrpcAddress, Pool, StreamEvent};
use sluice::telemetry::metrics::ClientMetrics;
use sluice_xds::Code;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;

use crate::peer::*;

#[tokio::test]
async fn the_31st_stream_opens_a_second_connection() {
    let mut peer = Peer::start(Builder::new()).await;
    let pool = pool(peer.port, settings());
    let mut clients: Vec<_> = (0..31).map(|_| Client::open(&pool)).collect();
    let mut streams = [0; 2];
    for client in &mut clients {
        client.opened().await;
    }
    for _ in 0..31 {
        streams[peer.stream().await.connection] += 1;
    }
    assert_eq!(streams, [30, 1]);
    assert_eq!(pool.metrics().connects.get(), 2);
}

#[tokio::test]
async fn a_servers_own_limit_of_streams_is_kept() {
    let mut peer = Peer::start(Builder::new().max_concurrent_streams(2).clone()).await;
    let pool = pool(peer.port, settings());
    let mut clients: Vec<_> = (0..5).map(|_| Client::open(&pool)).collect();
    for client in &mut clients {
        client.opened().await;
    }
    let mut streams = [0; 3];
    for _ in 0..5 {
        streams[peer.stream().await.connection] += 1;
    }
    assert_eq!(streams, [2, 2, 1]);
}

#[tokio::test]
async fn fu1_a_refused_connect_is_told_to_all_who_wait_and_tried_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let pool = pool(port, settings());
    let mut first = Client::open(&pool);
    let Some(StreamEvent::ConnectFailed(status)) = first.event().await else { panic!("no failure") };
    assert_eq!(status.code, Code::Unavailable);
    assert!(status.message.contains(&format!("127.0.0.1:{port}")), "{status}");
    assert_eq!(first.event_text().await, "ConnectFailed UNAVAILABLE");

    let failures = pool.metrics().connect_failures.get();
    let mut second = Client::open(&pool);
    assert_eq!(second.event_text().await, "ConnectFailed UNAVAILABLE");
    assert!(pool.metrics().connect_failures.get() <= failures + 1, "a known failure is reported at once");

    let _peer = Peer::listen(TcpListener::bind(("127.0.0.1", port)).await.unwrap(), Builder::new());
    for client in [&mut first, &mut second] {
        loop {
            match client.event_text().await.as_str() {
                "ConnectFailed UNAVAILABLE" => {}
                other => break assert_eq!(other, "Opened"),
            }
        }
    }
    assert_eq!(pool.metrics().connects.get(), 1, "one attempt serves all waiting streams");
}

#[tokio::test]
async fn fu6_a_server_without_settings_is_not_ready() {
    let port = raw_server(b"", vec![]).await;
    let settings_timeout = Duration::from_millis(50);
    let pool = pool(port, ClientSettings { settings_timeout, ..settings() });
    let mut client = Client::open(&pool);
    let Some(StreamEvent::ConnectFailed(status)) = client.event().await else { panic!("no failure") };
    assert!(status.message.contains("SETTINGS"), "{status}");
    assert_eq!(client.event_text().await, "ConnectFailed UNAVAILABLE");
    assert_eq!(pool.metrics().connects.get(), 0);
}

#[tokio::test]
async fn fu6_something_that_is_not_http_2_is_not_ready() {
    let port = raw_server(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n", vec![]).await;
    let pool = pool(port, settings());
    let mut client = Client::open(&pool);
    assert_eq!(client.event_text().await, "ConnectFailed UNAVAILABLE");
    assert_eq!(client.event_text().await, "ConnectFailed UNAVAILABLE");
}

#[tokio::test]
async fn a_name_is_resolved_and_its_addresses_tried() {
    // `localhost` may have an IPv6 address too; nothing listens there.
    let peer = Peer::start(Builder::new()).await;
    let address = GrpcAddress::Tcp { host: "localhost".to_owned(), port: peer.port };
    let pool = Pool::new(address, settings(), Arc::new(ClientMetrics::default()));
    Client::open(&pool).opened().await;
    assert_eq!(pool.metrics().connect_failures.get(), 0);
}

#[tokio::test]
async fn a_unix_socket_serves_as_well() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("xds.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let (streams_tx, mut streams) = mpsc::channel(8);
    tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        let (_orders_tx, orders) = mpsc::channel(1);
        serve(0, socket, &Builder::new(), streams_tx, orders).await;
    });
    let pool = Pool::new(GrpcAddress::Unix(path), settings(), Arc::new(ClientMetrics::default()));
    let mut client = Client::open(&pool);
    client.opened().await;
    let mut stream = soon(streams.recv()).await.unwrap();
    assert_eq!(stream.request.uri().authority().unwrap(), "localhost");
    stream.headers().send_data(response("1"), false).unwrap();
    assert_eq!(client.event_text().await, "Response 1");
}

#[tokio::test]
async fn fu10_after_goaway_a_stream_goes_on_until_there_is_another_connection() {
    let (mut peer, pool, mut old) = connected().await;
    let mut old_stream = peer.stream().await;
    let mut old_reply = old_stream.headers();
    old_reply.send_data(response("early"), false).unwrap();
    assert_eq!(old.event_text().await, "Response early");
    let orders = soon(peer.connections.recv()).await.unwrap();
    // New connections get no answer.
    peer.silent.send_replace(true);
    orders.send(Order::Leave).await.unwrap();
    assert_eq!(old.event_text().await, "GoingAway");
    old_reply.send_data(response("late"), false).unwrap();
    assert_eq!(old.event_text().await, "Response late");
    peer.silent.send_replace(false);
    assert_eq!(old.closed().await.code, Code::Unavailable);

    let mut new = Client::open(&pool);
    new.opened().await;
    assert_eq!(peer.stream().await.connection, 1, "the connection that was made first");
    assert_eq!(
        soon(peer.ended.recv()).await,
        Some(0),
        "a connection that was left is closed with its last stream"
    );
    assert_eq!(pool.metrics().goaways.get(), 1);
    assert_eq!(pool.metrics().connect_failures.get(), 0);
}

#[tokio::test]
async fn fu32_too_many_pings_is_told_as_going_away() {
    let port = raw_server(SETTINGS, goaway(0xb, 1, b"too_many_pings")).await;
    let pool = pool(port, ClientSettings { ping_interval: Duration::from_millis(50), ..settings() });
    for round in 1..=3 {
        let mut client = Client::open(&pool);
        client.opened().await;
        assert_eq!(client.event_text().await, "GoingAway");
        let status = client.closed().await;
        assert_eq!(status.code, Code::Unavailable, "{status}");
        assert_eq!(pool.metrics().too_many_pings.get(), round);
        assert_eq!(pool.metrics().goaways.get(), round);
    }
    assert_eq!(pool.metrics().connect_failures.get(), 0, "no failure is counted");
}

#[tokio::test]
async fn a_stream_that_comes_with_the_goaway_goes_to_the_next_connection() {
    let (mut peer, pool, _first) = connected().await;
    let orders = soon(peer.connections.recv()).await.unwrap();
    // The test does not wait for the GOAWAY to arrive: no stream fails to open in either order.
    orders.send(Order::Leave).await.unwrap();
    for _ in 0..20 {
        let mut client = Client::open(&pool);
        client.opened().await;
        tokio::task::yield_now().await;
    }
}
