//! RLY-24: one story over {SotW, delta} upstream and {SotW, delta} downstream ends in the same state everywhere.

use tonic::Code;

use crate::bench::Bench;
use crate::support::{CDS, Client, Downstream, EDS, FOUR, LDS, RDS, Variant, is_full_state};

#[tokio::test]
async fn rly_24_sotw_up_sotw_down() {
    story(Variant::Sotw, Variant::Sotw).await;
}

#[tokio::test]
async fn rly_24_sotw_up_delta_down() {
    story(Variant::Sotw, Variant::Delta).await;
}

#[tokio::test]
async fn rly_24_delta_up_sotw_down() {
    story(Variant::Delta, Variant::Sotw).await;
}

#[tokio::test]
async fn rly_24_delta_up_delta_down() {
    story(Variant::Delta, Variant::Delta).await;
}

/// Whether a removal upstream can be seen: SotW knows none for a type that is not full-state (SST-6, RLY-28).
fn removal_is_seen(type_url: &str, upstream: Variant, downstream: Downstream, wild: bool) -> bool {
    let both_delta = upstream == Variant::Delta && downstream.tells_removals();
    is_full_state(type_url) || wild || both_delta
}

pub async fn story(upstream: Variant, downstream: impl Into<Downstream>) {
    let downstream = downstream.into();
    let Some(mut bench) = Bench::relay(upstream).await else { return };
    let mut wild = bench.client(downstream, "wild").await;
    let mut named = bench.client(downstream, "named").await;
    for type_url in FOUR {
        chapter(&bench, &mut wild, &mut named, type_url, upstream, downstream).await;
    }
    // Reconnects upstream, with and without changes.
    bench.origin.close_streams(Code::Unavailable);
    bench.origin.set(RDS, "a", "after a reconnect");
    wild.settle(RDS, &[("a", "after a reconnect"), ("b", "3"), ("missing", "1")]).await;
    named.settle(RDS, &[("a", "after a reconnect"), ("b", "3"), ("missing", "1")]).await;
    bench.origin.down().await;
    bench.origin.set(CDS, "a", "after an outage");
    bench.origin.set(EDS, "a", "after an outage");
    bench.origin.up().await;
    for type_url in [CDS, EDS] {
        for client in [&mut wild, &mut named] {
            client.settle(type_url, &[("a", "after an outage"), ("b", "3"), ("missing", "1")]).await;
        }
    }
    // Who comes last holds the same.
    let mut last = bench.client(downstream, "last").await;
    last.want(LDS, &["*"]);
    last.settle(LDS, &[("a", "2"), ("b", "3"), ("missing", "1")]).await;
    for client in [&mut wild, &mut named, &mut last] {
        client.quiet().await;
    }
}

/// Create, change, delete, create again, a name that is missing at first; by wildcard and by name.
async fn chapter(
    bench: &Bench,
    wild: &mut Client,
    named: &mut Client,
    type_url: &str,
    upstream: Variant,
    downstream: Downstream,
) {
    bench.origin.set_many(type_url, &[("a", "1"), ("b", "1")]);
    wild.want(type_url, &["*"]);
    wild.settle(type_url, &[("a", "1"), ("b", "1")]).await;
    named.want(type_url, &["a", "b", "missing"]);
    named.settle(type_url, &[("a", "1"), ("b", "1")]).await;

    bench.origin.set(type_url, "a", "2");
    wild.settle(type_url, &[("a", "2"), ("b", "1")]).await;
    named.settle(type_url, &[("a", "2"), ("b", "1")]).await;

    bench.origin.remove(type_url, "b");
    if removal_is_seen(type_url, upstream, downstream, true) {
        wild.settle(type_url, &[("a", "2")]).await;
    }
    if removal_is_seen(type_url, upstream, downstream, false) {
        named.settle(type_url, &[("a", "2")]).await;
    }

    bench.origin.set(type_url, "b", "3");
    wild.settle(type_url, &[("a", "2"), ("b", "3")]).await;
    named.settle(type_url, &[("a", "2"), ("b", "3")]).await;

    bench.origin.set(type_url, "missing", "1");
    wild.settle(type_url, &[("a", "2"), ("b", "3"), ("missing", "1")]).await;
    named.settle(type_url, &[("a", "2"), ("b", "3"), ("missing", "1")]).await;
}
