//! Relays behind relays (ADR 14).

use crate::support::control_plane::{ControlPlane, Recorded};
use crate::support::words::Item;
use crate::support::{CDS, Client, EDS, LDS, Relay, Setup, Variant};

/// The control plane tells its clusters in parts, and for a while the root does not know whether it has them all. It tells
/// relays below it what it has; these serve nobody a part as the whole, however long the root is silent.
#[tokio::test]
async fn rly_5_a_relay_waits_until_the_one_above_it_knows_the_set_as_a_whole() {
    let origin = ControlPlane::scripted().await;
    let root = Relay::start(Setup::of(origin.address)).await;
    let middle = Relay::start(Setup::of(&root.address)).await;
    let leaf = Relay::start(Setup::of(&middle.address)).await;
    let mut sotw = Client::open(&leaf.address, Variant::Sotw, "sotw").await;
    let mut delta = Client::open(&leaf.address, Variant::Delta, "delta").await;
    sotw.want(CDS, &["*"]);
    delta.want(CDS, &["*"]);
    let asked: Recorded = origin.expect(CDS).await;

    // One element has no name: the root takes the other, and knows that it does not know them all.
    let nameless = Item { name: String::new(), ..Item::new(CDS, "", "1", "1") };
    origin.answer(&asked, "1", vec![Item::new(CDS, "a", "1", "1"), nameless], &[]);
    delta.settle(CDS, &[("a", "1")]).await;
    // Listeners are known as a whole. They come after the clusters, where these are there to be sent.
    sotw.want(LDS, &["*"]);
    let listeners = origin.expect(LDS).await;
    origin.answer(&listeners, "1", vec![Item::new(LDS, "l", "1", "1")], &[]);
    assert_eq!(sotw.any().await.texts(), [("l".to_owned(), "1".to_owned())]);
    delta.quiet().await;

    // The root gets to know that there is one more, and a name that is not there.
    origin.answer(&asked, "2", vec![Item::new(CDS, "b", "1", "1")], &[]);
    assert_eq!(sotw.take(CDS).await.names(), ["a", "b"]);
    delta.settle(CDS, &[("a", "1"), ("b", "1")]).await;
    delta.want(EDS, &["gone"]);
    let endpoints = origin.expect(EDS).await;
    origin.answer(&endpoints, "1", vec![], &["gone"]);
    assert_eq!(delta.take(EDS).await.removed, ["gone"]);
    for relay in [&middle, &leaf] {
        assert!(relay.log_lines("WARN").is_empty(), "{:?}", relay.log_lines("WARN"));
    }
    assert_eq!(origin.headers()[0].get("sluice-set-marks").map(String::as_str), Some("1"));
}
