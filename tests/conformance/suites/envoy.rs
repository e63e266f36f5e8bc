//! Envoy's tests of its clients, from the server's side (A, D): the requests of a real client, in every
//! order.

use std::time::Duration;

use tokio::time::timeout;

use super::{ABC, ADS, DELTA, STREAMS, play};
use crate::support::client::node;
use crate::support::proto::{ContextParams, Node};
use crate::support::{Answer, Ask, CDS, Client, EDS, FOUR, LDS, RDS, SDS};

const RTDS: &str = "type.googleapis.com/envoy.service.runtime.v3.Runtime";

/// Asks for one name of each type in turn, and receives each before the next.
async fn in_turn(row: &super::Row, types: &[&str]) {
    for type_url in types {
        row.bench.origin.set(type_url, "a", "1");
    }
    let mut client = row.client().await;
    for type_url in types {
        client.want(type_url, &["a"]);
        client.settle(type_url, &ABC[..1]).await;
    }
    client.quiet().await;
}

#[tokio::test]
async fn a_1_each_type_after_its_parent() {
    play(STREAMS, &[CDS], async |row| in_turn(&row, &[CDS, EDS, LDS, RDS]).await).await;
}

#[tokio::test]
async fn a_2_an_update_to_a_subset() {
    play(STREAMS, &FOUR, async |row| {
        let mut client = row.holding(&ABC[..2]).await;
        row.set(&[("a", "2")]);
        client.settle(row.type_url, &[("a", "2"), ("b", "1")]).await;
        client.quiet().await;
    })
    .await;
}

/// A3: a NACK causes no loop, and the next good resource is delivered.
#[tokio::test]
async fn a_3_a_nack_and_then_a_good_one() {
    play(STREAMS, &FOUR, async |row| {
        let mut client = row.holding(&ABC[..1]).await;
        row.set(&[("a", "2")]);
        let bad = client.next(row.type_url).await;
        client.nack(&bad, "does not match the message-wide type URL");
        client.quiet().await;
        row.set(&[("a", "3")]);
        assert_eq!(client.take(row.type_url).await.get("a").text(), "3");
        client.quiet().await;
    })
    .await;
}

/// A4: a reconnect of Envoy 1.40: in SotW with an empty list and the last version, in delta with the known
/// resources.
#[tokio::test]
async fn a_4_a_client_comes_back() {
    play(STREAMS, &[CDS, LDS], async |row| {
        row.set(&ABC[..2]);
        let mut client = row.client().await;
        client.want(row.type_url, &["*"]);
        let answer = client.take(row.type_url).await;
        client.settle(row.type_url, &ABC[..2]).await;
        let versions = client.versions(row.type_url);
        drop(client);
        let mut client = row.client().await;
        if row.is_sotw() {
            client.send(Ask::of(row.type_url).version(&answer.version));
        } else {
            let known: Vec<(&str, &str)> = versions.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            client.send(Ask::of(row.type_url).subscribe(&["*"]).initial(&known));
            client.quiet().await;
        }
        row.set(&[("a", "2"), ("b", "2")]);
        client.settle(row.type_url, &[("a", "2"), ("b", "2")]).await;
        client.quiet().await;
    })
    .await;
}

/// A7: Envoy does not ACK during warming, and then ACKs the newer of two responses (SotW) or both (delta).
#[tokio::test]
async fn a_7_late_and_skipped_acks() {
    play(STREAMS, &FOUR, async |row| {
        let mut client = row.holding(&ABC[..1]).await;
        row.set(&[("a", "2")]);
        let mut pending = vec![client.next(row.type_url).await];
        row.set(&[("a", "3")]);
        // A server may send the third response beside the second, or hold it.
        if let Ok(third) = timeout(Duration::from_millis(300), client.any()).await {
            pending.push(third);
        }
        acknowledge(&mut client, &pending, row.is_sotw());
        client.settle(row.type_url, &[("a", "3")]).await;
        row.set(&[("a", "4")]);
        assert_eq!(client.take(row.type_url).await.get("a").text(), "4");
        client.quiet().await;
    })
    .await;
}

fn acknowledge(client: &mut Client, pending: &[Answer], newest_only: bool) {
    let first = if newest_only { pending.len() - 1 } else { 0 };
    for answer in &pending[first..] {
        client.ack(answer);
    }
}

/// A8: the client unsubscribes from a removed resource during warming; the resource does not come.
#[tokio::test]
async fn a_8_removed_before_it_warmed() {
    play(STREAMS, &[EDS, RDS], async |row| {
        let mut client = row.client().await;
        client.want(row.type_url, &["a", "b"]);
        // Delta reports absence (DEL-12).
        let mut absent = if row.is_sotw() { 2 } else { 0 };
        while absent < 2 {
            absent += client.take(row.type_url).await.removed.len();
        }
        client.want(row.type_url, &["a"]);
        client.quiet().await;
        row.set(&ABC[..2]);
        assert_eq!(client.take(row.type_url).await.names(), ["a"]);
        client.quiet().await;
    })
    .await;
}

/// A9: one of two resources is there at the end of the stream; the other follows later.
#[tokio::test]
async fn a_9_one_of_two_and_a_reset() {
    play(STREAMS, &[EDS, RDS], async |row| {
        drop(row.holding(&ABC[..1]).await);
        let mut client = row.client().await;
        client.want(row.type_url, &["a", "b"]);
        client.settle(row.type_url, &ABC[..1]).await;
        row.set(&[("b", "1")]);
        client.settle(row.type_url, &ABC[..2]).await;
        client.quiet().await;
    })
    .await;
}

/// A10: the listener switches to another route; updates of the old route stop.
#[tokio::test]
async fn a_10_from_one_route_to_another() {
    play(STREAMS, &[RDS, EDS], async |row| {
        let mut client = row.holding(&ABC[..1]).await;
        row.set(&[("b", "1")]);
        client.want(row.type_url, &["a", "b"]);
        client.settle(row.type_url, &ABC[..2]).await;
        client.want(row.type_url, &["b"]);
        client.quiet().await;
        row.set(&[("a", "2")]);
        client.quiet().await;
        row.set(&[("b", "2")]);
        assert_eq!(client.take(row.type_url).await.names(), ["b"]);
    })
    .await;
}

/// A11, A12: all names of a type in one request, secrets too.
#[tokio::test]
async fn a_11_a_12_many_names_in_one_request() {
    play(STREAMS, &[EDS, RDS, CDS, LDS, SDS], async |row| {
        let names: Vec<String> = (0..20).map(|number| format!("n-{number}")).collect();
        let resources: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
        let mut client = row.holding(&resources).await;
        client.quiet().await;
    })
    .await;
}

/// A13: the resource was removed before the first request. A server may report the absence or stay silent;
/// then the resource comes back.
#[tokio::test]
async fn a_13_removed_before_it_was_asked_for() {
    play(STREAMS, &[LDS, CDS], async |row| {
        row.set(&ABC[..1]);
        row.remove("a");
        let mut client = row.client().await;
        client.want(row.type_url, &["a"]);
        if row.is_sotw() {
            client.quiet_after_empty(row.type_url).await;
        } else {
            assert_eq!(client.take(row.type_url).await.removed, ["a"]);
        }
        row.set(&[("a", "2")]);
        client.settle(row.type_url, &[("a", "2")]).await;
    })
    .await;
}

/// Asks for a first name and for a second, each with one of these nodes; the ACK of the first answer repeats
/// its node.
async fn with_node(row: super::Row, nodes: [Node; 2]) {
    row.set(&ABC[..2]);
    let mut client = row.client().await;
    let [first, second] = nodes;
    let ask = |node: &Node| Ask { node: Some(node.clone()), ..Ask::of(row.type_url) };
    let of = |ask: Ask, names: &[&str]| if row.is_sotw() { ask.names(names) } else { ask.subscribe(names) };
    client.send(of(ask(&first), &["a"]));
    let answer = client.next(row.type_url).await;
    let ack = Ask { node: Some(second.clone()), ..client.ack_of(&answer) };
    client.send(ack);
    client.quiet().await;
    client.send(of(ask(&second), &["a", "b"]).nonce(&answer.nonce).version(&answer.version));
    let mut names = Vec::new();
    while !names.contains(&"b".to_owned()) {
        names.extend(client.take(row.type_url).await.names().into_iter().map(str::to_owned));
    }
    client.quiet().await;
}

#[tokio::test]
async fn a_14_the_node_in_every_message() {
    play(STREAMS, &FOUR, async |row| with_node(row, [node("one"), node("one")]).await).await;
}

/// A15: the node changes its parameters in the middle of the stream.
#[tokio::test]
async fn a_15_dynamic_parameters_change() {
    play(STREAMS, &FOUR, async |row| {
        let with = |value: &str| {
            let params = [("key".to_owned(), value.to_owned())].into();
            let dynamic_parameters = [(row.type_url.to_owned(), ContextParams { params })].into();
            Node { dynamic_parameters, ..node("one") }
        };
        let nodes = [with("1"), with("2")];
        with_node(row, nodes).await;
    })
    .await;
}

#[tokio::test]
async fn a_16_any_order_of_types() {
    play(STREAMS, &[EDS], async |row| in_turn(&row, &[EDS, CDS, RDS, LDS]).await).await;
    play(ADS, &[RTDS], async |row| in_turn(&row, &[RTDS, EDS, CDS]).await).await;
}

/// D8: the server counts the resource as delivered; a new subscription makes the server send the resource
/// again (DEL-11).
#[tokio::test]
async fn d_8_asked_for_again_is_sent_again() {
    play(DELTA, &FOUR, async |row| {
        let mut client = row.holding(&ABC[..2]).await;
        client.send(Ask::of(row.type_url).subscribe(&["a"]));
        assert_eq!(client.take(row.type_url).await.names(), ["a"]);
        client.send(Ask::of(row.type_url).unsubscribe(&["a"]));
        client.send(Ask::of(row.type_url).subscribe(&["a"]));
        assert_eq!(client.take(row.type_url).await.names(), ["a"]);
        client.quiet().await;
    })
    .await;
}

#[tokio::test]
async fn d_9_leaving_what_was_never_known_is_nothing() {
    play(DELTA, &FOUR, async |row| {
        let mut client = row.holding(&ABC[..1]).await;
        client.send(Ask::of(row.type_url).unsubscribe(&["never", "b"]));
        client.quiet().await;
        row.set(&[("a", "2")]);
        assert_eq!(client.take(row.type_url).await.names(), ["a"]);
        client.quiet().await;
    })
    .await;
}

/// D14: after the end of the wildcard only the names remain, and an update changes no subscription.
#[tokio::test]
async fn d_14_the_wildcard_is_left_and_names_remain() {
    play(STREAMS, &FOUR, async |row| {
        row.set(&ABC[..2]);
        let mut client = row.client().await;
        client.want(row.type_url, &["*", "a"]);
        client.settle(row.type_url, &ABC[..2]).await;
        row.set(&[("a", "2")]);
        client.settle(row.type_url, &[("a", "2"), ("b", "1")]).await;
        client.want(row.type_url, &["a"]);
        client.quiet_after_optional(row.type_url).await;
        row.set(&[("b", "3")]);
        client.quiet().await;
        row.set(&[("a", "3")]);
        assert_eq!(client.take(row.type_url).await.names(), ["a"]);
    })
    .await;
}
