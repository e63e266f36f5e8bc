//! A single release for all ways to ask: no client gets a halted content by asking in another way than the clients before (WAV-7).

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::enforced::plan;
use crate::support::{CDS, Client, ControlPlane, DEADLINE, Relay, Setup, Variant};

const LEFT: &str = "xdstp://a/envoy.config.cluster.v3.Cluster/left";

/// A push is halted: its client asked for these clusters by name.
struct Halted {
    origin: ControlPlane,
    relay: Relay,
    canary: Client,
}

impl Halted {
    /// All names are in version 1, and the push is a bad `changed`.
    async fn with(names: &[&str], changed: &str) -> Halted {
        let origin = ControlPlane::obedient().await;
        names.iter().for_each(|name| origin.set(CDS, name, "1"));
        let relay = Relay::start(Setup::of(origin.address).line(&plan("percent: 100"))).await;
        let mut canary = Client::open(&relay.address, Variant::Delta, "canary").await;
        canary.want(CDS, names);
        let all: Vec<_> = names.iter().map(|name| (*name, "1")).collect();
        canary.settle(CDS, &all).await;
        origin.set(CDS, changed, "bad");
        let bad = canary.next(CDS).await;
        assert_eq!(bad.texts(), [(changed.to_owned(), "bad".to_owned())]);
        canary.nack(&bad, &format!("cluster {changed}: no such extension"));
        let mut halted = Halted { origin, relay, canary };
        halted.until("halted").await;
        let back = halted.canary.take(CDS).await;
        assert_eq!(back.texts(), [(changed.to_owned(), "1".to_owned())]);
        halted
    }

    async fn until(&self, state: &str) {
        let begun = Instant::now();
        while self.relay.json("/rollouts/edge").await["state"] != state {
            assert!(begun.elapsed() < DEADLINE, "not {state}: {}", self.relay.log());
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn join(&self, variant: Variant, names: &[&str]) -> Client {
        let mut client = Client::open(&self.relay.address, variant, "newcomer").await;
        client.want(CDS, names);
        client
    }
}

#[tokio::test]
async fn wav_7_a_halted_name_is_halted_for_who_asks_by_the_wildcard() {
    let halted = Halted::with(&["a", "b"], "a").await;
    let mut newcomers = Vec::new();
    for variant in [Variant::Delta, Variant::Sotw] {
        let mut client = halted.join(variant, &["*"]).await;
        client.settle(CDS, &[("a", "1"), ("b", "1")]).await;
        client.quiet().await;
        newcomers.push(client);
    }
    assert_eq!(halted.relay.json("/rollouts/edge").await["state"], "halted");
    halted.origin.set(CDS, "a", "good");
    newcomers.push(halted.canary);
    for client in &mut newcomers {
        client.settle(CDS, &[("a", "good"), ("b", "1")]).await;
    }
}

#[tokio::test]
async fn wav_7_a_name_that_a_halted_push_brought_is_in_no_wildcard() {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "a", "1");
    let relay = Relay::start(Setup::of(origin.address).line(&plan("percent: 100"))).await;
    let mut canary = Client::open(&relay.address, Variant::Delta, "canary").await;
    canary.want(CDS, &["a", "new"]);
    canary.take(CDS).await;
    canary.quiet_after_optional(CDS).await;
    origin.set(CDS, "new", "bad");
    let bad = canary.next(CDS).await;
    canary.nack(&bad, "cluster new: no such extension");
    let halted = Halted { origin, relay, canary };
    halted.until("halted").await;
    for variant in [Variant::Delta, Variant::Sotw] {
        let mut client = halted.join(variant, &["*"]).await;
        client.settle(CDS, &[("a", "1")]).await;
        client.quiet().await;
    }
}

#[tokio::test]
async fn wav_7_a_halted_name_is_halted_for_who_asks_by_a_glob() {
    let (one, two, all) = (format!("{LEFT}/one"), format!("{LEFT}/two"), format!("{LEFT}/*"));
    let halted = Halted::with(&[&one, &two], &one).await;
    for variant in [Variant::Delta, Variant::Sotw] {
        let mut client = halted.join(variant, &[&all]).await;
        assert_eq!(
            client.take(CDS).await.texts(),
            [(one.clone(), "1".to_owned()), (two.clone(), "1".to_owned())]
        );
        client.quiet().await;
    }
}
