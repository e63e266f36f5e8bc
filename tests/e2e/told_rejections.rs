//! `report_rejections`: a server hears of the rejections of clients.

use std::time::Duration;

use crate::support::client::connect;
use crate::support::control_plane::Recorded;
use crate::support::{CDS, Client, ControlPlane, Item, Relay, SDS, Setup, Variant};

async fn client(relay: &Relay, variant: Variant, id: &str) -> Client {
    Client::on(connect(&relay.address).await, variant, Some(crate::support::client::node(id)))
}

fn item(type_url: &str, text: &str) -> Item {
    Item::new(type_url, "a", text, text)
}

fn error(asked: &Recorded) -> String {
    asked.ask.error.clone().expect("an error").message
}

const SHARED: &str = "node_classes: [{ match: { types: [envoy.extensions.transport_sockets.tls.v3.Secret] }, split_by: {}, \
                      share_secrets: true }, { split_by: {} }]";

/// The server hears once of all clients, in words for people, and has nothing to answer.
#[tokio::test]
async fn rly_38_a_server_hears_of_rejections() {
    for attachment in [Variant::Delta, Variant::Sotw] {
        let origin = ControlPlane::scripted().await;
        let setup = Setup::of(origin.address).upstream(attachment).server_line("report_rejections: true");
        let relay = Relay::start(setup.line(SHARED)).await;
        let mut clients = Vec::new();
        for id in ["web-1", "web-2", "web-3"] {
            let mut client = client(&relay, Variant::Delta, id).await;
            client.want(CDS, &["a"]);
            clients.push(client);
        }
        let asked = origin.expect(CDS).await;
        origin.answer(&asked, "1", vec![item(CDS, "1")], &[]);
        for client in &mut clients {
            client.settle(CDS, &[("a", "1")]).await;
        }
        origin.expect_that(CDS, |ask| !ask.nonce.is_empty()).await;
        origin.answer(&asked, "2", vec![item(CDS, "2")], &[]);
        let acked = origin.expect_that(CDS, |ask| !ask.nonce.is_empty()).await;
        assert!(acked.ask.error.is_none());
        let [first, second, third] = &mut clients[..] else { panic!() };
        for (client, words) in [(&mut *first, "bad port"), (&mut *second, "bad port, too")] {
            let answer = client.next(CDS).await;
            client.nack(&answer, words);
        }
        third.settle(CDS, &[("a", "2")]).await;
        let told = origin.expect_that(CDS, |ask| ask.error.is_some()).await;
        assert!(error(&told).starts_with("2 of 3 clients reject this: web-"), "{}", error(&told));
        assert!(error(&told).contains(": bad port"), "{}", error(&told));
        assert_eq!((&told.ask.nonce, &told.ask.version), (&acked.ask.nonce, &acked.ask.version));
        assert_eq!((&told.ask.subscribe, &told.ask.names), (&acked.ask.subscribe, &acked.ask.names));
        relay.metric_reaches("sluice_upstream_rejections_told_total", &["type=\"Cluster\""], 1.0).await;
        relay.logged("told the upstream of clients that reject its resources").await;
        third.silence(Duration::from_millis(100)).await;
        assert_eq!(relay.metric("sluice_upstream_nacks_total", &["type=\"Cluster\""]).await, 0.0);
    }
}

/// Through two tiers: the relay above has no clients that reject, and passes on the words of the relay below.
#[tokio::test]
async fn rly_38_a_server_hears_of_rejections_below_a_leaf() {
    for variant in [Variant::Delta, Variant::Sotw] {
        let origin = ControlPlane::scripted().await;
        let tier = |above: &str| Setup::of(above).upstream(variant).server_line("report_rejections: true");
        let root = Relay::start(tier(&origin.address.to_string()).line(SHARED)).await;
        let leaf = Relay::start(tier(&root.address).line(SHARED)).await;
        let mut client = client(&leaf, Variant::Delta, "web-1").await;
        client.want(CDS, &["a"]);
        let asked = origin.expect(CDS).await;
        origin.answer(&asked, "1", vec![item(CDS, "1")], &[]);
        let answer = client.next(CDS).await;
        client.nack(&answer, "bad port");
        let told = error(&origin.expect_that(CDS, |ask| ask.error.is_some()).await);
        assert!(told.starts_with("1 of 1 clients rejects this: sluice-test"), "{told}");
        assert!(told.ends_with("1 of 1 clients rejects this: web-1: bad port"), "{told}");
    }
}

/// Words about a Secret may quote it.
#[tokio::test]
async fn adm_12_the_words_about_a_secret_stay() {
    let origin = ControlPlane::scripted().await;
    let setup = Setup::of(origin.address).upstream(Variant::Delta).server_line("report_rejections: true");
    let relay = Relay::start(setup.line(SHARED)).await;
    let mut client = client(&relay, Variant::Sotw, "web-1").await;
    client.want(SDS, &["a"]);
    let asked = origin.expect(SDS).await;
    origin.answer(&asked, "1", vec![item(SDS, "1")], &[]);
    let answer = client.next(SDS).await;
    client.nack(&answer, "BEGIN PRIVATE KEY");
    let told = origin.expect_that(SDS, |ask| ask.error.is_some()).await;
    assert!(error(&told).starts_with("1 of 1 clients rejects this: web-1: [withheld "), "{}", error(&told));
}

/// By default, and after a client's second NACK of the same response, there is nothing to tell.
#[tokio::test]
async fn rly_38_nothing_is_told_unless_asked_for() {
    let origin = ControlPlane::scripted().await;
    let relay = Relay::start(Setup::of(origin.address).line(SHARED)).await;
    let mut client = client(&relay, Variant::Sotw, "web-1").await;
    client.want(CDS, &["a"]);
    let asked = origin.expect(CDS).await;
    origin.answer(&asked, "1", vec![item(CDS, "1")], &[]);
    let answer = client.next(CDS).await;
    client.nack(&answer, "bad");
    relay.metric_reaches("sluice_downstream_nacks_total", &["type=\"Cluster\""], 1.0).await;
    // Longer than a server with the setting waits for the words.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(origin.requests(CDS).iter().all(|asked| asked.ask.error.is_none()));
}
