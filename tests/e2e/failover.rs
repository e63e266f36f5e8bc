//! Envoy's failover through the real process (FBK-20); its rules are tested with the engine, by the rows E1 to E15.

use std::time::Duration;

use tonic::Code;

use crate::support::control_plane::eventually;
use crate::support::relay::QUICK_BACKOFF;
use crate::support::{CDS, Client, ControlPlane, EDS, Relay, Setup, Variant};

#[tokio::test]
async fn e_3_e_6_e_7_the_failover_server_stands_in_until_the_primary_answers_and_never_again() {
    let (mut primary, failover) = (ControlPlane::obedient().await, ControlPlane::obedient().await);
    for server in [&primary, &failover] {
        server.set(CDS, "a", "same");
    }
    primary.set(EDS, "e", "of the primary");
    failover.set(EDS, "e", "of the failover");
    primary.down().await;
    let setup = Setup::of(primary.address).server_line(QUICK_BACKOFF).next_server(failover.address);
    let relay = Relay::start(setup.line("fallback: { policy: envoy }")).await;

    // E3: two failed connections.
    let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
    client.want(CDS, &["*"]);
    client.settle(CDS, &[("a", "same")]).await;
    client.want(EDS, &["e"]);
    client.settle(EDS, &[("e", "of the failover")]).await;
    let serves = |server: &ControlPlane| format!("\"server\":\"{}\"", server.address);
    let (at_primary, at_failover) = (serves(&primary), serves(&failover));
    let is_at = |uri: String| {
        let relay = &relay;
        async move { relay.get("/sources").await.1.replace(' ', "").contains(&uri) }
    };
    eventually("the failover server is shown", || is_at(at_failover.clone())).await;
    assert_eq!(primary.opened(), 0);

    // The primary is up again, and gets no request while the failover server serves.
    primary.up().await;
    client.quiet().await;
    // An attempt within the longest backoff after a failed attempt gets the same failure.
    client.silence(Duration::from_millis(300)).await;
    assert_eq!(primary.opened(), 0);

    // E7: the primary's turn comes at the end of the stream; its first request has no versions of the other
    // server.
    failover.close_streams(Code::Unavailable);
    client.settle(EDS, &[("e", "of the primary")]).await;
    let asked = primary.requests(CDS);
    let first = &asked.first().expect("the primary was asked").ask;
    assert!(first.initial.is_empty(), "{first:?}");
    eventually("the primary is shown", || is_at(at_primary.clone())).await;
    client.quiet().await;

    // E6: after the primary's answer the other server gets no more requests.
    let opened = failover.opened();
    primary.down().await;
    eventually("the primary is tried again and again", || async {
        relay.get("/metrics").await.1.lines().any(|line| {
            let count = line.strip_prefix("sluice_upstream_connect_failures_total");
            let own = count.filter(|rest| rest.contains(&primary.address.to_string()));
            own.and_then(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok())
                .is_some_and(|count| count >= 7.0)
        })
    })
    .await;
    assert_eq!(failover.opened(), opened);
}
