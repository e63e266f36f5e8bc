//! Published changes, and how far they came (ADM-10).

use std::collections::HashSet;

use serde_json::Value;

use crate::support::client::{connect, node};
use crate::support::control_plane::eventually;
use crate::support::proto::Node;
use crate::support::proxy::Proxy;
use crate::support::{CDS, Client, ControlPlane, Relay, SDS, Setup, Variant};

async fn start() -> (ControlPlane, Relay) {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "a", "1");
    let relay = Relay::start(Setup::of(origin.address)).await;
    (origin, relay)
}

/// The latest change, once all clients have answered.
async fn settled(relay: &Relay, acked: u64, rejected: u64) -> Value {
    let latest = || async { relay.json("/changes?limit=1").await["changes"][0].clone() };
    eventually("the last answer", || async {
        let latest = latest().await;
        latest["acked"] == acked && latest["rejected"] == rejected
    })
    .await;
    latest().await
}

fn counts(change: &Value) -> [u64; 5] {
    ["wanted", "acked", "rejected", "waiting", "superseded"].map(|key| change[key].as_u64().unwrap())
}

#[tokio::test]
async fn a_change_tells_who_has_it_and_who_rejects_it() {
    let (origin, relay) = start().await;
    let mut clients = Vec::new();
    for (id, variant) in [("one", Variant::Delta), ("two", Variant::Sotw), ("three", Variant::Delta)] {
        let mut client = Client::open(&relay.address, variant, id).await;
        client.want(CDS, &["*"]);
        client.take(CDS).await;
        clients.push(client);
    }
    origin.set_many(CDS, &[("a", "2"), ("b", "1")]);
    for client in &mut clients[..2] {
        client.take(CDS).await;
    }
    let answer = clients[2].next(CDS).await;
    let waiting = settled(&relay, 2, 0).await;
    assert_eq!(counts(&waiting), [3, 2, 0, 1, 0]);
    clients[2].nack(&answer, "no such extension: teapot 7");
    let change = settled(&relay, 2, 1).await;
    assert_eq!(counts(&change), [3, 2, 1, 0, 0]);
    assert_eq!((&change["added"][0], &change["changed"][0]), (&"b".into(), &"a".into()));
    assert_eq!((&change["added_count"], &change["removed_count"]), (&1.into(), &0.into()));
    let rejection = &change["rejections"][0];
    assert_eq!((&rejection["text"], &rejection["count"]), (&"no such extension: teapot 7".into(), &1.into()));
    assert_eq!(rejection["clients"][0]["node"], "three");
    assert!(change["last_seconds"].as_f64().unwrap() >= change["p50_seconds"].as_f64().unwrap());
    let id = change["id"].as_str().unwrap();
    assert_eq!(relay.json(&format!("/changes/{id}")).await["id"], id);
    assert_eq!(relay.json("/clients?node=three").await["clients"][0]["types"][0]["change"], id);
    assert_eq!(relay.json("/changes?type=Listener").await["count"], 0);

    // TRU-4: two clients have the new version, one has the old one and says why.
    let found = relay.json("/versions?type=Cluster&name=a").await;
    let [new, old] = found["versions"].as_array().unwrap().as_slice() else { panic!("{found}") };
    assert_eq!((&new["is"][0], &new["held_by"], &new["rejected"]), (&"live".into(), &2.into(), &1.into()));
    assert_eq!(
        (&old["is"], &old["held_by"], &old["since"]),
        (&Value::Array(Vec::new()), &1.into(), &Value::Null)
    );
    let rejection = &new["rejected_by"][0];
    assert_eq!((&rejection["node"], &rejection["user_agent"]), (&"three".into(), &"kit".into()));
    assert!(rejection["message"].as_str().unwrap().contains("no such extension: teapot 7"), "{found}");
    assert_eq!(new["suspect"], false, "TRU-6: others of the same program accepted the version");
    let found = relay.json("/versions?type=Cluster&name=b").await;
    assert_eq!((&found["without"], &found["versions"][0]["held_by"]), (&1.into(), &2.into()), "{found}");

    assert_eq!(standings(&relay.json("/versions?type=Cluster").await), [[3, 2, 0, 1, 0, 0, 0]], "TRU-1");
    // A later change has the place of the rejected one, and the rejecting client ACKs it.
    origin.remove(CDS, "b");
    for client in &mut clients {
        client.take(CDS).await;
    }
    let next = settled(&relay, 3, 0).await;
    assert_eq!((&next["removed"][0], counts(&next)), (&"b".into(), [3, 3, 0, 0, 0]));
    assert_eq!(counts(&relay.json(&format!("/changes/{id}")).await), [3, 2, 1, 0, 0]);

    relay.logged("published a change").await;
    let lines = relay.log_lines("INFO");
    let line = lines.iter().find(|line| line.contains(&format!("change={id}"))).unwrap();
    for part in [
        "type_url=",
        "added=1",
        "changed=1",
        "added_names=\"b\"",
        "changed_names=\"a\"",
        "bytes=",
        "clients=3",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
}

/// Clients that end before they answer are counted no more, and nobody waits for them.
#[tokio::test]
async fn a_client_that_leaves_is_not_waited_for() {
    let (origin, relay) = start().await;
    let mut clients = Vec::new();
    for id in ["one", "two"] {
        let mut client = Client::open(&relay.address, Variant::Delta, id).await;
        client.want(CDS, &["*"]);
        client.take(CDS).await;
        clients.push(client);
    }
    origin.set(CDS, "a", "2");
    clients[0].take(CDS).await;
    clients[1].next(CDS).await;
    eventually("both clients", || async {
        counts(&relay.json("/changes?limit=1").await["changes"][0]) == [2, 1, 0, 1, 0]
    })
    .await;
    drop(clients.pop());
    eventually("the end of the client", || async {
        counts(&relay.json("/changes?limit=1").await["changes"][0]) == [1, 1, 0, 0, 0]
    })
    .await;
    relay.metric_reaches("sluice_changes_total", &["outcome=\"acked\""], 1.0).await;
}

/// A NACK of a Secret may quote the Secret (ADM-12).
#[tokio::test]
async fn a_rejected_secret_is_quoted_nowhere() {
    let (origin, relay) = start().await;
    origin.set(SDS, "key", "1");
    let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
    client.want(SDS, &["key"]);
    let answer = client.next(SDS).await;
    client.nack(&answer, "cannot parse CANARY");
    let change = settled(&relay, 0, 1).await;
    assert_eq!(change["rejections"][0]["text"], "[withheld 19 B]");
    assert!(change.get("version").is_none() && !change.to_string().contains("CANARY"), "{change}");
}

/// 497 of 500 streams accept a change, and 3 reject it in like words.
#[tokio::test]
async fn a_crowd_is_counted_exactly() {
    const STREAMS: usize = 500;
    let (origin, relay) = start().await;
    let mut clients = Vec::new();
    for _ in 0..5 {
        let channel = connect(&relay.address).await;
        for _ in 0..STREAMS / 5 {
            let id = format!("client-{}", clients.len());
            let own = Node { cluster: "crowd".to_owned(), ..node(&id) };
            let mut client = Client::on(channel.clone(), Variant::Delta, Some(own));
            client.want(CDS, &["*"]);
            clients.push(client);
        }
    }
    for client in &mut clients {
        client.take(CDS).await;
    }
    origin.set(CDS, "a", "2");
    for (number, client) in clients.iter_mut().enumerate() {
        if number % 200 == 7 {
            let answer = client.next(CDS).await;
            client.nack(&answer, &format!("port {number} of \"cluster-{number}\" is in use"));
        } else {
            client.take(CDS).await;
        }
    }
    let change = settled(&relay, 497, 3).await;
    assert_eq!(counts(&change), [500, 497, 3, 0, 0]);
    let rejections = change["rejections"].as_array().unwrap();
    assert_eq!((rejections.len(), &rejections[0]["count"]), (1, &3.into()));
    let named = rejections[0]["clients"].as_array().unwrap();
    let named: HashSet<_> = named.iter().map(|client| client["node"].as_str().unwrap()).collect();
    assert_eq!(named, HashSet::from(["client-7", "client-207", "client-407"]));
    assert!(change["p50_seconds"].as_f64() <= change["p99_seconds"].as_f64());
}

/// The counts of each source.
fn standings(found: &Value) -> Vec<[u64; 7]> {
    let keys = ["clients", "accepted", "pending", "rejected", "silent", "unaffected", "lost"];
    let units = found["units"].as_array().unwrap();
    units.iter().map(|unit| keys.map(|key| unit[key].as_u64().unwrap())).collect()
}

/// TRU-1: a dead client is lost. A half-closed stream, and a stream with an end by the operator, are not.
#[tokio::test]
async fn tru_1_a_client_that_ends_after_a_response_is_lost() {
    let (origin, relay) = start().await;
    let proxy = Proxy::start(relay.address.parse().unwrap()).await;
    let mut clients = Vec::new();
    for id in ["stays", "dies", "leaves", "is-ended"] {
        let target = if id == "dies" { proxy.address.to_string() } else { relay.address.clone() };
        let mut client = Client::open(&target, Variant::Delta, id).await;
        client.want(CDS, &["*"]);
        client.take(CDS).await;
        clients.push(client);
    }
    origin.set(CDS, "a", "2");
    for client in &mut clients {
        client.next(CDS).await;
    }
    assert_eq!(standings(&relay.json("/versions?type=Cluster").await), [[4, 0, 4, 0, 0, 0, 0]]);
    let ended = relay.json("/clients?node=is-ended").await["clients"][0]["id"].clone();
    assert_eq!(relay.post(&format!("/clients/{ended}/end")).await.0, 200);
    clients[2].half_close();
    proxy.cut();
    eventually("the end of three clients", async || {
        standings(&relay.json("/versions?type=Cluster").await) == [[1, 0, 1, 0, 0, 0, 1]]
    })
    .await;
}
