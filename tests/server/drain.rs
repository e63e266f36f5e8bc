//! Shutdown: RLY-77, FP1.

use std::time::Duration;

use sluice::driver::api::emptying::{AlreadyEmptying, EmptyingPhase};
use sluice::server::ServerLimits;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::kit::{Call, Client, Running, SOTW, StreamProbe, eventually, soon, start, stuck};
use crate::raw;

const WINDOW: Duration = Duration::from_millis(1000);

fn start_draining_in(window: Duration) -> Running {
    start(ServerLimits { drain_window: window, ..ServerLimits::default() })
}

async fn answered(server: &Running, client: &mut Client) -> (Call, StreamProbe) {
    let index = server.relay.opened();
    let mut call = client.open(SOTW).await;
    let stream = server.relay.stream(index).await;
    stream.publish(b"n", b"r");
    call.message().await.unwrap();
    (call, stream)
}

#[tokio::test]
async fn rly_77_the_phases_of_a_drain() {
    let mut server = start_draining_in(WINDOW);
    let mut client = server.connect().await;
    let mut silent = client.open(SOTW).await;
    silent.head().await;
    let mut calls = Vec::new();
    for _ in 0..20 {
        calls.push(answered(&server, &mut client).await.0);
    }

    let begin = Instant::now();
    server.shut_down();
    // Streams without an answer end at once.
    assert_eq!(silent.status().await, ("14".into(), "the%20server%20is%20draining".into()));
    assert!(begin.elapsed() < WINDOW / 4, "{:?}", begin.elapsed());
    // No new connection is accepted.
    assert!(TcpStream::connect(server.address).await.is_err());
    assert_eq!(server.metrics.goaways_drain.get(), 1);

    // The others end over the window, each at a different moment.
    let mut ended = Vec::new();
    let ends = calls.into_iter().map(|mut call| async move {
        assert_eq!(call.status().await.0, "14");
        begin.elapsed()
    });
    ended.extend(futures_util::future::join_all(ends).await);
    ended.sort();
    assert!(ended[19] - ended[0] > WINDOW / 5, "{ended:?}");

    soon(&mut server.served).await.unwrap();
    let whole = begin.elapsed();
    assert!(whole < WINDOW, "returned with the last stream: {whole:?}");
    assert_eq!((server.metrics.connections_open.get(), server.metrics.streams_open()), (0, 0));
    assert_eq!(server.metrics.closed_cut.get(), 0);
}

#[tokio::test]
async fn rly_77_with_no_streams_a_drain_is_over_at_once() {
    let mut server = start_draining_in(Duration::from_secs(60));
    let idle = server.connect().await;
    eventually("it is accepted", || server.metrics.connections_open.get() == 1).await;
    let silent_tcp = TcpStream::connect(server.address).await.unwrap();
    eventually("it is accepted", || server.metrics.connections_open.get() == 2).await;
    server.shut_down();
    soon(&mut server.served).await.unwrap();
    drop((idle, silent_tcp));
}

#[tokio::test]
async fn rly_77_a_client_that_does_not_read_is_cut_at_the_end() {
    let window = Duration::from_millis(400);
    let mut server = start_draining_in(window);
    let (_client, _call, stream) = stuck(&server).await;

    let begin = Instant::now();
    server.shut_down();
    soon(&mut server.served).await.unwrap();
    assert!(begin.elapsed() >= window);
    assert!(begin.elapsed() < window * 3, "{:?}", begin.elapsed());
    assert_eq!(server.metrics.closed_cut.get(), 1);
    eventually("the handle is dropped", || stream.is_gone()).await;
}

/// A retiring connection has no more time than the others (RLY-77, KAL-4).
#[tokio::test]
async fn rly_77_a_connection_that_is_being_retired_goes_within_the_drain() {
    let mut server = start(ServerLimits {
        connection_age: Some(Duration::from_millis(50)),
        connection_age_jitter_percent: 0,
        connection_age_grace: Duration::from_secs(60),
        drain_window: WINDOW,
        ..ServerLimits::default()
    });
    let mut client = server.connect().await;
    let (mut call, _) = answered(&server, &mut client).await;
    eventually("it is old", || server.metrics.goaways_age.get() == 1).await;
    let begin = Instant::now();
    server.shut_down();
    let (code, text) = call.status().await;
    soon(&mut server.served).await.unwrap();
    assert!(begin.elapsed() < WINDOW * 2, "{:?}", begin.elapsed());
    assert_eq!((&*code, &*text), ("14", "the%20server%20is%20draining"));
    assert_eq!(server.metrics.goaways_drain.get(), 1);
}

#[tokio::test]
async fn rly_77_streams_opened_during_a_drain_are_refused() {
    let mut server = start_draining_in(WINDOW);
    // Raw frames, since a client that has seen GOAWAY opens no more streams. The socket never answers the
    // PING after the GOAWAY, so that the server must expect more streams.
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    use tokio::io::AsyncWriteExt;
    socket.write_all(&[raw::opening(), raw::headers(1, None)].concat()).await.unwrap();
    let stream = server.relay.stream(0).await;
    stream.publish(b"n", b"r");
    eventually("it has answered", || stream.with(|script| script.taken == 1)).await;
    server.shut_down();
    eventually("it is asked to go", || server.metrics.goaways_drain.get() == 1).await;
    raw::talk(socket, raw::headers(3, None)).await;
    assert_eq!(server.relay.opened(), 1, "the relay isn't asked");
    soon(&mut server.served).await.unwrap();
}

#[tokio::test]
async fn dropping_the_server_drains_it() {
    let server = start_draining_in(Duration::from_millis(100));
    let mut client = server.connect().await;
    let (mut call, _) = answered(&server, &mut client).await;
    server.served.abort();
    assert_eq!(call.status().await.0, "14");
    eventually("nothing is left", || server.metrics.connections_open.get() == 0).await;
}

/// HND-9: the streams end over the window, nobody comes in, and the process goes on.
#[tokio::test]
async fn hnd_9_an_operator_empties_the_relay_and_fills_it_again() {
    let server = start(ServerLimits::default());
    let mut client = server.connect().await;
    let mut silent = client.open(SOTW).await;
    silent.head().await;
    let mut calls = Vec::new();
    for _ in 0..20 {
        calls.push(answered(&server, &mut client).await.0);
    }
    assert_eq!(server.emptying.status().phase, EmptyingPhase::Serving);

    let begin = Instant::now();
    let pause = Duration::from_millis(300);
    server.emptying.empty(pause, Some(WINDOW)).unwrap();
    assert_eq!(server.emptying.empty(pause, None), Err(AlreadyEmptying));
    // During the pause the relay serves as before, also new clients.
    assert_eq!(server.emptying.status().phase, EmptyingPhase::Announced);
    let mut late = server.connect().await;
    calls.push(answered(&server, &mut late).await.0);

    assert_eq!(silent.status().await, ("14".into(), "the%20server%20is%20draining".into()));
    let left = begin.elapsed();
    assert!((pause..pause + WINDOW / 4).contains(&left), "{left:?}");
    assert_eq!(server.emptying.status().phase, EmptyingPhase::Leaving);
    // A connection is accepted and closed at once.
    let mut refused = TcpStream::connect(server.address).await.unwrap();
    assert!(matches!(soon(refused.read(&mut [0])).await, Ok(0) | Err(_)));
    assert_eq!(server.metrics.closed_draining.get(), 1);

    let ends = calls.into_iter().map(|mut call| async move {
        assert_eq!(call.status().await.0, "14");
        begin.elapsed()
    });
    let mut ended = futures_util::future::join_all(ends).await;
    ended.sort();
    assert!(ended[20] - ended[0] > WINDOW / 5 && ended[20] < pause + WINDOW, "{ended:?}");
    eventually("the relay is empty", || server.emptying.status().phase == EmptyingPhase::Empty).await;
    let status = server.emptying.status();
    assert_eq!((status.streams_before, status.streams, status.cut), (21, 0, 0));

    assert!(server.emptying.admit() && !server.emptying.admit());
    let mut client = server.connect().await;
    let (_call, _) = answered(&server, &mut client).await;
    assert_eq!(server.emptying.status().phase, EmptyingPhase::Serving);
    assert_eq!(server.metrics.goaways_drain.get(), 2);
}

/// HND-9: a drain that has only been announced is taken back, without a trace.
#[tokio::test]
async fn hnd_9_an_announced_drain_is_taken_back() {
    let server = start(ServerLimits::default());
    let mut client = server.connect().await;
    let (_call, _) = answered(&server, &mut client).await;
    server.emptying.empty(Duration::from_millis(50), Some(Duration::ZERO)).unwrap();
    assert!(server.emptying.admit());
    tokio::time::sleep(Duration::from_millis(150)).await;
    let (_later, _) = answered(&server, &mut client).await;
    assert_eq!((server.emptying.status().streams, server.metrics.goaways_drain.get()), (2, 0));
}

/// RLY-77: the end of the process does not wait for an operator's drain of an hour.
#[tokio::test]
async fn rly_77_the_end_of_the_process_shortens_an_operators_drain() {
    let mut server = start_draining_in(WINDOW);
    let mut client = server.connect().await;
    let (mut call, _) = answered(&server, &mut client).await;
    server.emptying.empty(Duration::ZERO, Some(Duration::from_secs(3600))).unwrap();
    eventually("the connection leaves", || server.metrics.goaways_drain.get() == 1).await;
    let begin = Instant::now();
    server.shut_down();
    assert_eq!(call.status().await.0, "14");
    soon(&mut server.served).await.unwrap();
    assert!(begin.elapsed() < WINDOW * 2, "{:?}", begin.elapsed());
    assert_eq!(server.emptying.empty(Duration::ZERO, None), Err(AlreadyEmptying));
}
