//! The memory of an idle client with one wildcard: its connection, its stream and its subscription (ADR 77).

use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::CountedRelay;
use super::classes::{CLUSTERS, ClassClient, config, serve};
use sluice_proto::{DeltaDiscoveryRequest, Node};
use sluice_wire::frame::framed;

/// The clients that are counted, and those that are there before.
const CLIENTS: usize = 100;
const BEFORE: usize = 20;

const UPDATES: usize = 10;
/// The bytes of each client's later requests are more than its first read buffer.
const REQUESTS: usize = 12;
const REQUEST_BYTES: usize = 1_000;

/// The most bytes of an idle client, of which h2 has 28 KiB for its buffers: 40,030 to 40,043 are counted.
const BYTES_MAX: i64 = 40_128;

/// The most bytes that updates and requests add: 128 to 233 are counted, for places in h2 of frames that waited. A
/// buffer that is kept would be 8 KiB.
const USED_BYTES_MAX: i64 = 1_024;

#[tokio::test]
async fn an_idle_client_takes_few_bytes_whatever_it_has_done() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let relay = CountedRelay::start(config(listener.local_addr().unwrap().port())).await;
    let (changes, follows) = watch::channel(0);
    tokio::spawn(serve(listener, CLUSTERS, follows));
    let (mut clients, mut bytes) = (Vec::new(), Vec::new());
    let node = Node { id: "client-0".into(), cluster: "c".repeat(REQUEST_BYTES), ..Node::default() };
    let request = DeltaDiscoveryRequest { node: Some(node), type_url: CLUSTERS.into(), ..Default::default() };
    let request = framed(&request.encode_to_vec()).unwrap();
    for part in [0..BEFORE, BEFORE..BEFORE + CLIENTS] {
        for _ in part.clone() {
            clients.push(ClassClient::connect(&relay, 0, CLUSTERS).await);
        }
        bytes.push(relay.bytes().await);
        for _ in 0..UPDATES {
            changes.send_modify(|number| *number += 1);
            for client in &mut clients {
                client.take(1).await;
            }
        }
        for _ in 0..REQUESTS {
            for client in &mut clients[part.clone()] {
                client.requests.send_data(request.clone(), false).unwrap();
            }
            // h2 keeps a place for each frame that waits, as many as there once were.
            relay.bytes().await;
        }
        bytes.push(relay.bytes().await);
    }
    let of_client = |bytes: i64| bytes / CLIENTS as i64;
    let (idle, used) = (of_client(bytes[2] - bytes[1]), of_client(bytes[3] - bytes[2]));
    println!("{idle} bytes of an idle client, and {used} more after updates and requests");
    assert!(idle <= BYTES_MAX, "{idle} bytes");
    assert!(used <= USED_BYTES_MAX, "{used} more bytes after updates and requests");
}
