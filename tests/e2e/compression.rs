//! Compressed responses: between relays, and for clients that ask where the listener allows it.

use crate::support::control_plane::eventually;
use crate::support::{CDS, Client, ControlPlane, RDS, Relay, SDS, Setup, Variant};

const CLUSTERS: usize = 300;

/// The bytes of responses of a type that a relay has written, as framed.
async fn written(relay: &Relay, kind: &str) -> f64 {
    let label = format!("type=\"{kind}\"");
    relay.metric("sluice_downstream_response_bytes_total", &[&label]).await
}

/// A client of the leaf has all clusters and a Secret of 20 KB. Gives the bytes of both between the relays.
async fn between(listener: &str) -> (f64, f64) {
    let origin = ControlPlane::obedient().await;
    let text = "a cluster like all others, ".repeat(20);
    let names: Vec<String> = (0..CLUSTERS).map(|number| format!("cluster-{number}")).collect();
    let clusters: Vec<(&str, &str)> = names.iter().map(|name| (&**name, &*text)).collect();
    origin.set_many(CDS, &clusters);
    origin.set(SDS, "key", &"very secret ".repeat(2_000));
    let root = Relay::start(Setup { listener: listener.to_owned(), ..Setup::of(origin.address) }).await;
    let leaf = Relay::start(Setup::of(&root.address)).await;
    let mut client = Client::open(&leaf.address, Variant::Delta, "one").await;
    client.want(CDS, &["*"]);
    client.settle(CDS, &clusters).await;
    client.want(SDS, &["key"]);
    client.take(SDS).await;
    // A small change follows the large one.
    origin.set(CDS, "cluster-7", "changed");
    assert_eq!(client.take(CDS).await.texts(), [("cluster-7".to_owned(), "changed".to_owned())]);
    assert!(leaf.log_lines("WARN").is_empty(), "{:?}", leaf.log_lines("WARN"));
    (written(&root, "Cluster").await, written(&root, "Secret").await)
}

#[tokio::test]
async fn a_relay_gets_large_responses_compressed_and_secrets_as_they_are() {
    let (plain, plain_secret) = between("compression: off").await;
    assert!(plain > CLUSTERS as f64 * 540.0, "{plain}");
    let (compressed, secret) = between("v2: true").await;
    assert!(compressed * 10.0 < plain, "{compressed} of {plain} bytes");
    assert!(secret > 20_000.0 && (secret - plain_secret).abs() < 100.0, "{secret} and {plain_secret} bytes");
}

/// A bomb: few bytes on the wire, and more than the limit in plain. The leaf reads no further than the limit, ends the stream, says so, and goes on
/// with the rest.
#[tokio::test]
async fn a_response_that_is_too_long_in_plain_ends_its_stream() {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "bomb", &"x".repeat(2 << 20));
    origin.set(RDS, "r", "1");
    let root = Relay::start(Setup::of(origin.address)).await;
    let leaf = Relay::start(Setup::of(&root.address).server_line("max_response_bytes: 1MiB")).await;
    let mut client = Client::open(&leaf.address, Variant::Delta, "one").await;
    client.want(RDS, &["r"]);
    client.take(RDS).await;
    client.want(CDS, &["bomb"]);
    leaf.limit_reaches("max_response_bytes", 1.0).await;
    let undecodable = format!("sluice_upstream_responses_undecodable_total{{server=\"{}\"}}", root.address);
    assert!(leaf.series(&undecodable).await >= 1.0);
    let words = "bytes of a response message: found 1048577, the limit is 1048576";
    eventually("the log", || async { leaf.log_lines("WARN").iter().any(|line| line.contains(words)) }).await;
    let bytes = written(&root, "Cluster").await;
    assert!(
        bytes > 0.0 && bytes < 100_000.0 * leaf.limit_hits("max_response_bytes").await,
        "{bytes} bytes on the wire"
    );
    origin.set(CDS, "bomb", "mended");
    assert_eq!(client.take(CDS).await.get("bomb").text(), "mended");
    assert_eq!(client.holds(RDS)["r"], "1");
}
