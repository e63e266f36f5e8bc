//! Detection of dead transports (RLY-29).

use std::time::Duration;

use h2::server::Builder;
use sluice::client::ClientSettings;
use sluice_xds::Code;

use crate::peer::*;

#[tokio::test]
async fn rly_29_a_silent_server_is_made_to_speak() {
    let (mut peer, pool, mut client) = connected().await;
    let mut stream = peer.stream().await;
    let mut reply = stream.headers();
    reply.send_data(response("1"), false).unwrap();
    assert_eq!(client.event_text().await, "Response 1");

    client.handle.send(framed(b"request"));
    soon(stream.request.body_mut().data()).await.unwrap().unwrap();
    client.handle.probe();
    assert_eq!(client.event_text().await, "Alive");
    assert_eq!(pool.metrics().probes.get(), 1);

    // Each question needs an answer of its own.
    client.handle.probe();
    assert_eq!(client.event_text().await, "Alive");
    assert_eq!(pool.metrics().probes.get(), 2);
}

/// The response may have been on the way when the connection died.
#[tokio::test]
async fn rly_29_a_response_before_the_probe_proves_nothing() {
    let mut peer = Peer::start(Builder::new()).await;
    let pool = pool(peer.port, ClientSettings { ping_timeout: Duration::from_millis(100), ..settings() });
    let mut client = Client::open(&pool);
    client.opened().await;
    client.handle.send(framed(b"request"));
    let mut stream = peer.stream().await;
    soon(stream.request.body_mut().data()).await.unwrap().unwrap();
    stream.headers().send_data(response("1"), false).unwrap();
    assert_eq!(client.event_text().await, "Response 1");
    let orders = soon(peer.connections.recv()).await.unwrap();
    orders.send(Order::Freeze).await.unwrap();
    soon(orders.reserve_many(8)).await.unwrap();
    client.handle.probe();
    assert_eq!(client.closed().await.message, "PING unanswered");
}

#[tokio::test]
async fn fu4_an_unanswered_probe_ends_the_connection_and_all_its_streams() {
    let mut peer = Peer::start(Builder::new()).await;
    let pool = pool(peer.port, ClientSettings { ping_timeout: Duration::from_millis(100), ..settings() });
    let (mut clients, mut streams) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let mut client = Client::open(&pool);
        client.opened().await;
        client.handle.send(framed(b"request"));
        let mut stream = peer.stream().await;
        soon(stream.request.body_mut().data()).await.unwrap().unwrap();
        clients.push(client);
        streams.push(stream);
    }
    let orders = soon(peer.connections.recv()).await.unwrap();
    orders.send(Order::Freeze).await.unwrap();
    soon(orders.reserve_many(8)).await.unwrap();
    clients[0].handle.send(framed(b"another"));
    clients[0].handle.probe();
    for client in &mut clients {
        let status = client.closed().await;
        assert_eq!((status.code, status.message.as_str()), (Code::Unavailable, "PING unanswered"));
    }
    assert_eq!(pool.metrics().unanswered.get(), 1);
    assert_eq!(pool.metrics().connections.get(), 0);
}

#[tokio::test]
async fn tmr_2_what_is_not_written_is_not_unanswered() {
    let (mut peer, _pool, mut client) = connected().await;
    let mut stream = peer.stream().await;
    // The server answers probes but reads no more than its window.
    client.handle.send(framed(&[0; 1_000_000]));
    client.handle.probe();
    let early = tokio::time::timeout(Duration::from_millis(200), client.events.recv()).await;
    assert!(early.is_err(), "{early:?}");
    let body = stream.request.body_mut();
    let mut received = 0;
    while received < 1_000_005 {
        let chunk = soon(body.data()).await.unwrap().unwrap();
        body.flow_control().release_capacity(chunk.len()).unwrap();
        received += chunk.len();
    }
    assert_eq!(client.event_text().await, "Alive");
}

#[tokio::test]
async fn kal_2_pings_are_sent_while_streams_are_open() {
    let mut peer = Peer::start(Builder::new()).await;
    let interval = Duration::from_millis(30);
    let ping_timeout = Duration::from_millis(200);
    let pool = pool(peer.port, ClientSettings { ping_interval: interval, ping_timeout, ..settings() });
    let mut client = Client::open(&pool);
    client.opened().await;
    let _stream = peer.stream().await;
    soon(async {
        while pool.metrics().pings.get() < 3 {
            tokio::time::sleep(interval).await;
        }
    })
    .await;
    let orders = soon(peer.connections.recv()).await.unwrap();
    orders.send(Order::Freeze).await.unwrap();
    let status = client.closed().await;
    assert_eq!(status.message, "PING unanswered");
}

/// grpc-go ends a connection with `too_many_pings` after three PINGs within five minutes without any other
/// frame between. Probes must not drive a control plane that is silent about unknown names to this.
#[tokio::test]
async fn fu32_a_silent_server_is_probed_as_often_as_needed_without_a_ping() {
    let (mut peer, pool, mut client) = connected().await;
    let mut stream = peer.stream().await;
    for round in 1..=8 {
        client.handle.send(framed(b"request"));
        soon(stream.request.body_mut().data()).await.unwrap().unwrap();
        stream.request.body_mut().flow_control().release_capacity(12).unwrap();
        client.handle.probe();
        assert_eq!(client.event_text().await, "Alive");
        assert_eq!(pool.metrics().probes.get(), round);
    }
    assert_eq!(pool.metrics().pings.get(), 0);
    assert_eq!(pool.metrics().unanswered.get(), 0);
}

/// The same rule: streams on a shared connection make more round trips than the server forgives PINGs.
#[tokio::test]
async fn fu32_round_trips_of_a_silent_connection_end_without_a_third_ping() {
    let (mut peer, pool, mut client) = connected().await;
    let mut reply = peer.stream().await.headers();
    reply.send_data(response("1"), false).unwrap();
    assert_eq!(client.event_text().await, "Response 1");
    for _ in 0..5 {
        client.handle.round_trip();
        assert_eq!(client.event_text().await, "Returned");
    }
    assert_eq!(pool.metrics().pings.get(), 2);
    assert_eq!(pool.metrics().probes.get(), 3);
    // Now the server has written a frame of another kind.
    reply.send_data(response("2"), false).unwrap();
    assert_eq!(client.event_text().await, "Response 2");
    client.handle.round_trip();
    assert_eq!(client.event_text().await, "Returned");
    assert_eq!(pool.metrics().pings.get(), 3);
    assert_eq!(pool.metrics().unanswered.get(), 0);
}
