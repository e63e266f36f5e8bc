//! Limits of responses, and of cached content.

use super::{hit, limited};
use crate::support::control_plane::eventually;
use crate::support::{CDS, Client, ControlPlane, EDS, Relay, Setup, Variant};

/// RLY-61: the number of lingering names is bounded.
#[tokio::test]
async fn what_lingers_without_a_client_is_bounded() {
    let (_origin, relay) = limited("cache: { unwatched_bytes: 0 }").await;
    let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
    client.want(CDS, &["a"]);
    client.take(CDS).await;
    client.want(CDS, &[]);
    hit(&relay, "unwatched_bytes", 1.0).await;
}

/// FU17: a response over the limit is rejected.
#[tokio::test]
async fn a_response_of_the_upstream_that_is_too_long() {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "a", &"x".repeat(2 << 20));
    let relay = Relay::start(Setup::of(origin.address).server_line("max_response_bytes: 1MiB")).await;
    let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
    client.want(CDS, &["a"]);
    relay.limit_reaches("max_response_bytes", 1.0).await;
    let undecodable = format!("sluice_upstream_responses_undecodable_total{{server=\"{}\"}}", origin.address);
    assert!(relay.series(&undecodable).await >= 1.0);
}

/// SST-12: a complete set over the limit of many clients.
#[tokio::test]
async fn a_complete_set_that_many_clients_cannot_take() {
    let (origin, relay) = limited("limits: {}").await;
    origin.set(CDS, "large", &"x".repeat(5 << 20));
    let mut client = Client::open(&relay.address, Variant::Sotw, "one").await;
    client.want(CDS, &["*"]);
    client.take(CDS).await;
    assert_eq!(relay.limit_hits("full_state_bytes").await, 1.0);
}

/// SST-13: a single resource over the limit of many clients, in delta and in a set that is no full state. The small one
/// beside it goes in another message.
#[tokio::test]
async fn a_resource_that_many_clients_cannot_take() {
    let (origin, relay) = limited("limits: {}").await;
    origin.set(CDS, "large", &"x".repeat(5 << 20));
    origin.set(EDS, "larger", &"x".repeat(5 << 20));
    for (hits, (variant, type_url, names)) in [
        (Variant::Delta, CDS, &["*"][..]),
        (Variant::Delta, EDS, &["larger"]),
        (Variant::Sotw, EDS, &["larger"]),
    ]
    .into_iter()
    .enumerate()
    {
        let mut client = Client::open(&relay.address, variant, "one").await;
        client.want(type_url, names);
        let messages = if type_url == CDS { 2 } else { 1 };
        for _ in 0..messages {
            client.take(type_url).await;
        }
        hit(&relay, "full_state_bytes", f64::from(u8::try_from(hits).unwrap() + 1)).await;
    }
    let warned = || async {
        relay
            .log_lines("WARN")
            .iter()
            .any(|line| line.contains("a resource is larger than 4 MiB") && line.contains("large"))
    };
    eventually("the warning", warned).await;
    let told = || async { relay.json("/events?kind=limit").await.to_string().contains("full_state_bytes") };
    eventually("the event", told).await;
}
