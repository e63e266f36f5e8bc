//! Limits of responses, and of cached content.

use super::{hit, limited};
use crate::support::{CDS, Client, ControlPlane, Relay, Setup, Variant};

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
