//! Limits of a request, and of the requests on a stream.

use tonic::Code;

use super::{hit, limited, neighbour};
use crate::support::client::{connect, node};
use crate::support::proto::Node;
use crate::support::{Ask, CDS, Client, DEADLINE, EDS, Variant};

fn many(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("e-{number}")).collect()
}

/// A `google.protobuf.Struct` nested to this depth.
fn nested_struct(depth: usize) -> Vec<u8> {
    let field = |number: u8, payload: &[u8]| [&[number << 3 | 2, payload.len() as u8], payload].concat();
    let entry = |value: &[u8]| field(1, &[field(1, b"k"), field(2, value)].concat());
    (1..depth).fold(entry(&[]), |inner, _| entry(&field(5, &inner)))
}

#[tokio::test]
async fn what_one_request_may_be() {
    let line = "limits: { request_bytes: 64KiB, node_bytes: 4KiB, node_retained_bytes: 1KiB, \
        names_per_request: 10, name_bytes: 100, metadata_depth: 5 }";
    let (_origin, relay) = limited(line).await;
    let cases = [
        ("request_bytes", node("a"), vec!["n".repeat(70_000)]),
        ("names_per_request", node("a"), many(11)),
        ("name_bytes", node("a"), vec!["n".repeat(101)]),
        ("node_bytes", Node { cluster: "c".repeat(5_000), ..node("a") }, many(1)),
        ("metadata_depth", Node { metadata: Some(nested_struct(6)), ..node("a") }, many(1)),
        ("node_retained_bytes", Node { cluster: "c".repeat(2_000), ..node("a") }, many(1)),
    ];
    for (limit, node, names) in cases {
        let mut client = Client::on(connect(&relay.address).await, Variant::Delta, Some(node));
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        client.want(EDS, &names);
        assert_eq!(client.ended().await.code(), Code::ResourceExhausted, "{limit}");
        assert_eq!(relay.limit_hits(limit).await, 1.0, "{limit}");
    }
    assert_eq!(relay.series("sluice_downstream_streams_unreadable_total").await, 6.0);
}

/// SUB-20: the number of names in a request.
#[tokio::test]
async fn too_many_names_in_a_request() {
    let (_origin, relay) = limited("limits: { names_per_request: 10 }").await;
    let mut good = neighbour(&relay).await;
    for variant in Variant::BOTH {
        let mut client = Client::open(&relay.address, variant, "greedy").await;
        let names: Vec<String> = (0..11).map(|number| format!("e-{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        client.want(EDS, &names);
        assert_eq!(client.ended().await.code(), Code::ResourceExhausted, "{variant:?}");
    }
    good.quiet().await;
}

#[tokio::test]
async fn too_large_a_request() {
    let (_origin, relay) = limited("limits: { request_bytes: 64KiB, node_bytes: 64KiB }").await;
    let mut good = neighbour(&relay).await;
    for variant in Variant::BOTH {
        let mut client = Client::open(&relay.address, variant, "large").await;
        let long = "n".repeat(100_000);
        client.want(EDS, &[&long]);
        assert_eq!(client.ended().await.code(), Code::ResourceExhausted, "{variant:?}");
    }
    good.quiet().await;
}

#[tokio::test]
async fn what_one_stream_may_ask_for() {
    let (_origin, relay) =
        limited("limits: { names_per_request: 10, names_per_stream: 15, types_per_stream: 2 }").await;
    let mut client = Client::open(&relay.address, Variant::Delta, "names").await;
    for batch in 0..2 {
        let names: Vec<String> = (0..10).map(|number| format!("e-{batch}-{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        client.send(Ask::of(EDS).subscribe(&names));
    }
    assert_eq!(client.ended().await.code(), Code::ResourceExhausted);
    assert_eq!(
        (relay.limit_hits("names_per_stream").await, relay.limit_hits("types_per_stream").await),
        (1.0, 0.0)
    );
    let mut client = Client::open(&relay.address, Variant::Delta, "types").await;
    for number in 0..3 {
        client.want(&format!("type.googleapis.com/acme.Type{number}"), &["a"]);
    }
    assert_eq!(client.ended().await.code(), Code::ResourceExhausted);
    assert_eq!(
        (relay.limit_hits("names_per_stream").await, relay.limit_hits("types_per_stream").await),
        (1.0, 1.0)
    );
}

#[tokio::test]
async fn a_stream_that_changes_its_mind_too_often() {
    let (_origin, relay) = limited("limits: { changes_per_second: 20, changes_burst: 2 }").await;
    let mut client = Client::open(&relay.address, Variant::Delta, "fickle").await;
    for number in 0..5 {
        client.send(Ask::of(EDS).subscribe(&[&format!("e-{number}")]));
    }
    hit(&relay, "changes_per_second", 3.0).await;
    client.send(Ask::of(CDS).subscribe(&["*"]));
}

/// FD4, ADR 66: requests wait, and their client is served meanwhile. The relay does not blame the client, and says which limit acts.
#[tokio::test]
async fn a_client_whose_requests_wait_is_served_and_shown_as_waiting() {
    let (origin, relay) = limited("limits: { changes_per_second: 1, changes_burst: 1 }").await;
    origin.set(EDS, "e-0", "1");
    let mut client = Client::open(&relay.address, Variant::Sotw, "eager").await;
    let names = many(5_000);
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    client.want(EDS, &names);
    client.take(EDS).await;
    // The names have to be paid for before the next request is taken.
    names.push("another");
    client.want(EDS, &names);
    hit(&relay, "changes_per_second", 1.0).await;
    origin.set(EDS, "e-0", "2");
    let update = client.take(EDS).await;
    let shown = relay.json("/clients?why=held:rate").await.to_string();
    assert!(shown.contains("eager") && shown.contains("limits.changes_per_second"), "{shown}");
    assert_eq!(update.names(), ["e-0"], "the other name waits");
    relay.logged("limits.changes_per_second").await;
    let warnings = relay.warnings("limits.changes_per_second");
    assert!(warnings[0].contains("eager") && warnings[0].contains("127.0.0.1:"), "{warnings:?}");
    origin.set(EDS, "another", "1");
    assert!(client.take(EDS).await.names().contains(&"another"));
    assert_eq!(relay.warnings("limits.changes_per_second").len(), 1, "once a minute");
}

/// World C2: a client of gRPC asks for its clusters one by one, each time with all names so far. To charge each list with its length, or
/// to take each list, would take 40 s here.
#[tokio::test]
async fn a_list_that_grows_name_by_name_is_served_as_the_newest_list() {
    let (origin, relay) = limited("limits: { changes_per_second: 10, changes_burst: 10 }").await;
    let names = many(300);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.iter().for_each(|name| origin.set(CDS, name, "1"));
    let mut client = Client::open(&relay.address, Variant::Sotw, "one-by-one").await;
    for count in 1..=names.len() {
        client.want(CDS, &names[..count]);
    }
    let begun = std::time::Instant::now();
    while client.take(CDS).await.names().len() < names.len() {
        assert!(begun.elapsed() < DEADLINE, "lists wait for lists");
    }
}

/// RLY-14: more classes than allowed are refused, not merged.
#[tokio::test]
async fn too_many_node_classes() {
    let (_origin, relay) = limited("limits: { node_classes: 2 }").await;
    let mut clients = Vec::new();
    for cluster in ["one", "two"] {
        let mut client = Client::of_cluster(&connect(&relay.address).await, Variant::Delta, cluster);
        client.want(CDS, &["*"]);
        client.take(CDS).await;
        clients.push(client);
    }
    let mut client = Client::of_cluster(&connect(&relay.address).await, Variant::Delta, "three");
    client.want(CDS, &["*"]);
    assert_eq!(client.ended().await.code(), Code::ResourceExhausted);
}
