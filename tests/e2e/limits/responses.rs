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

/// ADR 68: what finds no room is rejected with words, and all else is served.
#[tokio::test]
async fn content_of_the_upstream_that_finds_no_room() {
    for variant in Variant::BOTH {
        let origin = ControlPlane::obedient().await;
        let setup = Setup::of(origin.address).upstream(variant).line("limits: { source_bytes: 1MiB }");
        let relay = Relay::start(setup).await;
        let name = |number: u32| format!("c{number:02}");
        origin.set(CDS, &name(0), &"x".repeat(100 << 10));
        let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
        client.want(CDS, &["*"]);
        client.take(CDS).await;
        for number in 1..15 {
            origin.set(CDS, &name(number), &"x".repeat(100 << 10));
        }
        let nack = origin.expect_that(CDS, |ask| ask.error.is_some()).await;
        let words = nack.ask.error.unwrap().message;
        assert!(words.contains("c10: no room") && words.contains("limits.source_bytes"), "{words}");
        while client.holds(CDS).len() < 10 {
            client.take(CDS).await;
        }
        relay.limit_reaches("source_bytes", 5.0).await;
        let server = origin.address.to_string();
        let no_room = || async { relay.sources(&server).await[0]["types"][0]["no_room"]["count"] == 5 };
        eventually("no_room in /sources", no_room).await;
        assert_eq!(relay.warnings("rejecting the resources that find no room").len(), 1);
        // Content that does not grow passes, and a removal.
        origin.set(CDS, &name(1), "small");
        origin.remove(CDS, &name(2));
        while client.holds(CDS)[&name(1)] != "small" || client.holds(CDS).contains_key(&name(2)) {
            client.take(CDS).await;
        }
        let mut newcomer = Client::open(&relay.address, Variant::Sotw, "two").await;
        newcomer.want(CDS, &["*"]);
        assert!(newcomer.take(CDS).await.names().len() >= 9);
    }
}

/// ADR 68: a control plane that grows without end takes what its bound allows, and the clients of another one are served.
#[tokio::test]
async fn a_control_plane_that_grows_without_end() {
    let (origin, other) = (ControlPlane::obedient().await, ControlPlane::obedient().await);
    other.set(EDS, "e", "1");
    let address = other.address;
    let list = format!(
        "{{ xds_servers: [ {{ server_uri: \"{address}\", channel_creds: [ {{ type: insecure }} ] }} ] }}"
    );
    let types = format!("types: {{ envoy.config.endpoint.v3.ClusterLoadAssignment: {list} }}");
    let setup = Setup::of(origin.address).line("limits: { memory_bytes: 256MiB, source_bytes: 4MiB }");
    let relay = Relay::start(setup.line(&types)).await;
    let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
    client.want(CDS, &["*"]);
    for number in 0..12 {
        origin.set(CDS, &format!("c{number:02}"), &"x".repeat(1 << 20));
    }
    relay.limit_reaches("source_bytes", 1.0).await;
    let server = origin.address.to_string();
    let bytes = relay.sources(&server).await[0]["types"][0]["bytes"].as_u64().unwrap();
    assert!((3 << 20..4 << 20).contains(&bytes), "{bytes} bytes");
    let mut newcomer = Client::open(&relay.address, Variant::Delta, "two").await;
    newcomer.want(EDS, &["e"]);
    assert_eq!(newcomer.take(EDS).await.get("e").text(), "1");
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
