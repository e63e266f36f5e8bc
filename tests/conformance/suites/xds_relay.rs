//! Known bugs of xds-relay.

use std::time::{Duration, Instant};

use super::{ABC, STREAMS, play};
use crate::bench::{Bench, pause};
use crate::support::{CDS, Client, EDS, FOUR, Item, Variant};

/// V14: a dead upstream costs no CPU, and the cache serves. `tests/e2e` measures the CPU time.
#[tokio::test]
async fn v_14_a_dead_upstream_leaves_the_cache_serving() {
    for variant in Variant::BOTH {
        let Some(mut bench) = Bench::relay(Variant::Delta).await else { return };
        bench.origin.set(CDS, "a", "1");
        let mut old = bench.client(variant, "old").await;
        old.want(CDS, &["*"]);
        old.take(CDS).await;
        bench.origin.down().await;
        let mut newcomer = bench.client(variant, "new").await;
        newcomer.want(CDS, &["*"]);
        assert_eq!(newcomer.take(CDS).await.names(), ["a"]);
        old.silence(Duration::from_millis(100)).await;
    }
}

/// FU17: a response over gRPC's default limit of 4 MiB arrives, on the first stream.
#[tokio::test]
async fn fu_17_a_large_response_arrives() {
    for upstream in Variant::BOTH {
        let Some(bench) = Bench::relay(upstream).await else { return };
        let text = "x".repeat(1 << 19);
        let names: Vec<String> = (0..12).map(|number| format!("c-{number}")).collect();
        let resources: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), text.as_str())).collect();
        bench.origin.set_many(CDS, &resources);
        let mut client = bench.sotw("one").await;
        client.want(CDS, &[]);
        let answer = client.take(CDS).await;
        assert_eq!(answer.items.len(), 12);
        assert!(answer.size > 6 << 20);
        assert_eq!(bench.origin.opened(), 1);
    }
}

/// RLY-59: an eviction closes no stream.
#[tokio::test]
async fn rly_59_eviction_closes_no_stream() {
    let Some(bench) = Bench::with(|setup| setup.line("linger: 100ms")).await else { return };
    bench.origin.set(EDS, "kept", "1");
    let mut idle: Vec<Client> = Vec::new();
    for number in 0..20 {
        let mut client = bench.delta(&format!("idle-{number}")).await;
        client.want(EDS, &["kept"]);
        client.take(EDS).await;
        idle.push(client);
    }
    for number in 0..5 {
        let name = format!("short-{number}");
        bench.origin.set(EDS, &name, "1");
        let mut client = bench.delta("short").await;
        client.want(EDS, &[&name]);
        client.take(EDS).await;
        drop(client);
        pause(60).await;
    }
    bench.origin.expect_that(EDS, |ask| ask.unsubscribe.contains(&"short-4".to_owned())).await;
    bench.origin.set(EDS, "kept", "2");
    for client in &mut idle {
        assert_eq!(client.take(EDS).await.get("kept").text(), "2");
    }
}

/// RLY-15: the first client's node does not represent other classes; each class is requested with a node of
/// its own.
#[tokio::test]
async fn rly_15_the_first_client_is_nobodys_identity() {
    use crate::support::client::{connect, node};
    let Some(bench) = Bench::relay(Variant::Delta).await else { return };
    bench.origin.set(CDS, "a", "1");
    for cluster in ["second", "first"] {
        let node = crate::support::proto::Node { cluster: cluster.to_owned(), ..node("client") };
        let mut client = Client::on(connect(bench.target()).await, Variant::Delta, Some(node));
        client.want(CDS, &[]);
        client.take(CDS).await;
        let asked = bench.origin.expect_that(CDS, |ask| ask.node.is_some()).await;
        let sent = asked.ask.node.unwrap();
        assert_eq!(sent.cluster, cluster);
        assert_ne!(sent.id, "client", "RLY-15");
    }
}

/// SUB-18 (xds-relay#147): two sets of endpoint names never share an answer.
#[tokio::test]
async fn sub_18_clients_with_different_names_get_their_own() {
    play(STREAMS, &FOUR, async |row| {
        row.set(&ABC);
        let mut one = row.bench.client(row.kind, "one").await;
        let mut two = row.bench.client(row.kind, "two").await;
        one.want(row.type_url, &["a", "b"]);
        two.want(row.type_url, &["b", "c"]);
        one.settle(row.type_url, &[("a", "1"), ("b", "1")]).await;
        two.settle(row.type_url, &[("b", "1"), ("c", "1")]).await;
        one.want(row.type_url, &["a", "b", "c"]);
        one.settle(row.type_url, &ABC).await;
    })
    .await;
}

/// RLY-29: a duration is parsed as a whole, seconds included.
#[tokio::test]
async fn rly_29_a_duration_in_seconds_counts() {
    let Some(bench) = Bench::scripted(|setup| setup.line("linger: 1s")).await else { return };
    let mut client = bench.delta("one").await;
    let start = Instant::now();
    client.want(EDS, &["never", "other"]);
    let asked = bench.origin.expect(EDS).await;
    bench.origin.answer(&asked, "1", vec![Item::new(EDS, "other", "1", "1")], &[]);
    assert_eq!(client.take(EDS).await.names(), ["other"]);
    assert_eq!(client.take(EDS).await.removed, ["never"]);
    // resource_timeout is 1 s in the kit's configuration.
    assert!(start.elapsed() >= Duration::from_millis(900), "{:?}", start.elapsed());
}
