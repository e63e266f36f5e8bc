//! Every limit of the configuration, from the line in the file to the metric. Limits end the offender, and no
//! other peer.

mod connections;
mod requests;
mod responses;

use crate::support::{CDS, Client, ControlPlane, Relay, Setup, Variant};

/// A control plane with one cluster, and a relay with this line in its configuration.
pub async fn limited(line: &str) -> (ControlPlane, Relay) {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "a", "1");
    let relay = Relay::start(Setup::of(origin.address).line(line)).await;
    (origin, relay)
}

/// A client beside the offender, served before and after the offence.
pub async fn neighbour(relay: &Relay) -> Client {
    let mut client = Client::open(&relay.address, Variant::Sotw, "neighbour").await;
    client.want(CDS, &["*"]);
    client.take(CDS).await;
    client
}

/// Waits until the limit was hit this often, and asserts that there were no more hits.
async fn hit(relay: &Relay, limit: &str, times: f64) {
    relay.limit_reaches(limit, times).await;
    assert_eq!(relay.limit_hits(limit).await, times, "{limit}");
}
