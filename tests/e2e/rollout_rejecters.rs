//! Clients that rejected a push may have any part of the push, whatever versions come with a new stream: all that differs is restated (WAV-10).

use std::collections::BTreeMap;

use crate::enforced::plan;
use crate::rollout_orders::routes_of;
use crate::support::control_plane::eventually;
use crate::support::words::Ask;
use crate::support::{CDS, Client, ControlPlane, RDS, Relay, Setup, Variant};

/// A client that rejected cluster a of a push, and has taken cluster b.
struct Rejecter {
    origin: ControlPlane,
    relay: Relay,
    client: Client,
    /// The first content of the client, as a new stream presents the content.
    versions: BTreeMap<String, String>,
    version: String,
    /// Accepts the push, and keeps the source alive.
    _other: Client,
}

impl Rejecter {
    /// Waits until the push is halted.
    async fn halted(variant: Variant, plan: &str) -> Rejecter {
        let origin = ControlPlane::obedient().await;
        origin.set_many(CDS, &[("a", "1"), ("b", "1"), ("c", "1")]);
        let relay = Relay::start(Setup::of(origin.address).line(plan)).await;
        let mut client = Client::open(&relay.address, variant, "rejecter").await;
        client.want(CDS, &["*"]);
        let version = client.take(CDS).await.version;
        let mut other = Client::open(&relay.address, Variant::Delta, "other").await;
        other.want(CDS, &["*"]);
        other.take(CDS).await;
        // Only known content is held back: the control plane has answered for all clusters.
        other.quiet().await;
        origin.set_many(CDS, &[("a", "bad"), ("b", "2")]);
        other.take(CDS).await;
        let answer = client.next(CDS).await;
        let versions = client.versions(CDS);
        client.nack(&answer, "a: no such extension");
        eventually("the halt", || async { relay.json("/rollouts/edge").await["state"] == "halted" }).await;
        Rejecter { origin, relay, client, versions, version, _other: other }
    }

    /// The client comes back, and presents the content before the push.
    async fn come_back(&mut self) {
        let variant = self.client.variant;
        self.client = Client::open(&self.relay.address, variant, "rejecter").await;
        let ask = Ask::of(CDS);
        self.client.send(match variant {
            Variant::Delta => Ask { initial: self.versions.clone(), ..ask.subscribe(&["*"]) },
            Variant::Sotw => ask.names(&["*"]).version(&self.version),
        });
    }
}

fn stays() -> String {
    plan("percent: 100")
        .replace("final_bake", "on_halt: stay, final_bake")
        .replace("bake: 1s }", "bake: 60s }")
}

async fn who_comes_back_is_restated_all_that_differs(plan: &str) {
    for variant in [Variant::Delta, Variant::Sotw] {
        let mut rejecter = Rejecter::halted(variant, plan).await;
        for _ in 0..2 {
            rejecter.come_back().await;
            let mut texts = rejecter.client.take(CDS).await.texts();
            texts.retain(|(name, _)| name != "c" || variant == Variant::Delta);
            let stable = [("a", "1"), ("b", "1")].map(|(name, text)| (name.to_owned(), text.to_owned()));
            assert_eq!(texts, stable, "{variant:?}");
        }
        rejecter.client.quiet().await;
    }
}

#[tokio::test]
async fn wav_10_a_rejecter_that_comes_back_is_restated_all_that_differs() {
    who_comes_back_is_restated_all_that_differs(&plan("percent: 100")).await;
}

#[tokio::test]
async fn wav_10_a_rejecter_of_a_push_that_stays_is_restated_when_it_comes_back() {
    who_comes_back_is_restated_all_that_differs(&stays()).await;
}

/// WAV-16: a rejecter with its stream keeps the push. The next push takes its place, and then the rejecter is sent also what the next
/// push has unchanged of the former one.
#[tokio::test]
async fn wav_10_a_rejecter_that_keeps_a_push_is_restated_with_the_next_one() {
    let mut rejecter = Rejecter::halted(Variant::Delta, &stays()).await;
    rejecter.client.quiet().await;
    rejecter.origin.set(CDS, "a", "3");
    let mut told = BTreeMap::new();
    while told.get("a").is_none_or(|text| text != "3") {
        told.extend(rejecter.client.take(CDS).await.texts());
    }
    assert_eq!(told.get("b").map(String::as_str), Some("2"));
}

/// A push of clusters from one control plane and of routes from another one is restated at both.
#[tokio::test]
async fn wav_10_a_rejecter_is_restated_at_each_control_plane_of_the_push() {
    let (origin, routes) = (ControlPlane::obedient().await, ControlPlane::obedient().await);
    let all = |text: &str| {
        origin.set(CDS, "a", text);
        routes.set(RDS, "r", text);
    };
    all("1");
    let plan = plan("percent: 100");
    let relay = Relay::start(Setup::of(origin.address).line(&routes_of(&routes)).line(&plan)).await;
    let mut clients = Vec::new();
    for node in ["rejecter", "other"] {
        let mut client = Client::open(&relay.address, Variant::Delta, node).await;
        for (type_url, name) in [(CDS, "a"), (RDS, "r")] {
            client.want(type_url, &[name]);
            client.take(type_url).await;
        }
        clients.push(client);
    }
    let versions = [CDS, RDS].map(|type_url| clients[0].versions(type_url));
    all("2");
    let answer = clients[0].next(CDS).await;
    clients[0].nack(&answer, "a: no such extension");
    eventually("the halt", || async {
        let found = relay.json("/rollouts/edge").await;
        found["state"] == "halted" && found["latest"]["units"] == 2
    })
    .await;
    let mut again = Client::open(&relay.address, Variant::Delta, "rejecter").await;
    for ((type_url, name), initial) in [(CDS, "a"), (RDS, "r")].into_iter().zip(versions) {
        again.send(Ask { initial, ..Ask::of(type_url).subscribe(&[name]) });
        let texts: Vec<_> = again.take(type_url).await.texts().into_iter().collect();
        assert_eq!(texts, [(name.to_owned(), "1".to_owned())]);
    }
    again.quiet().await;
}

/// A client that rejected a push goes away, and another push goes back meanwhile. What only the first one brought is taken back, too.
#[tokio::test]
async fn wav_10_a_rejecter_that_comes_back_after_another_push_is_restated_both() {
    let origin = ControlPlane::obedient().await;
    origin.set_many(CDS, &[("a", "1"), ("b", "1")]);
    let relay = Relay::start(Setup::of(origin.address).line(&plan("percent: 100"))).await;
    let mut clients = Vec::new();
    for node in ["rejecter", "other"] {
        let mut client = Client::open(&relay.address, Variant::Delta, node).await;
        client.want(CDS, &["*"]);
        client.take(CDS).await;
        clients.push(client);
    }
    let (mut other, mut rejecter) = (clients.pop().unwrap(), clients.pop().unwrap());
    other.quiet().await;
    let versions = rejecter.versions(CDS);
    // A seat decides who is asked first, so both clients are asked.
    origin.set_many(CDS, &[("a", "bad"), ("only-first", "1")]);
    other.take(CDS).await;
    let answer = rejecter.next(CDS).await;
    rejecter.nack(&answer, "a: no such extension");
    let halted = async |push: u64| {
        eventually("the halt", || async {
            let found = relay.json("/rollouts/edge").await;
            found["state"] == "halted" && found["push"] == push
        })
        .await;
    };
    halted(1).await;
    drop(rejecter);
    other.take(CDS).await;
    origin.remove(CDS, "only-first");
    origin.set_many(CDS, &[("a", "worse"), ("b", "2")]);
    let answer = other.next(CDS).await;
    other.nack(&answer, "a: no such extension, again");
    halted(2).await;
    let mut again = Client::open(&relay.address, Variant::Delta, "rejecter").await;
    again.send(Ask { initial: versions, ..Ask::of(CDS).subscribe(&["*"]) });
    let answer = again.take(CDS).await;
    assert_eq!(answer.removed, ["only-first"]);
    assert!(answer.texts().contains(&("a".to_owned(), "1".to_owned())));
    again.quiet().await;
}

/// All clients come back when the relay begins anew. The record of the plan has the nodes that rejected the push, and what differed.
#[tokio::test]
async fn wav_10_a_rejecter_is_restated_by_the_next_process() {
    let kept = tempfile::tempdir().unwrap();
    let checkpoint =
        format!("checkpoint: {{ directory: {:?}, interval: 100ms }}", kept.path().join("checkpoint"));
    let plan = format!("{}\n{checkpoint}", stays());
    let mut rejecter = Rejecter::halted(Variant::Delta, &plan).await;
    // Only the file itself: one that is still being written does not outlive the process.
    let record = kept.path().join("checkpoint/rollouts.json");
    let has_rejecter = || std::fs::read_to_string(&record).is_ok_and(|text| text.contains("\"rejecter\""));
    eventually("the record", || async { has_rejecter() }).await;
    rejecter.relay.signal("KILL");
    rejecter.relay.exit().await;
    rejecter.relay = Relay::start(Setup::of(rejecter.origin.address).line(&plan)).await;
    rejecter.come_back().await;
    let mut texts = BTreeMap::new();
    while texts.len() < 2 {
        texts.extend(rejecter.client.take(CDS).await.texts());
    }
    let stable = [("a", "1"), ("b", "1")].map(|(name, text)| (name.to_owned(), text.to_owned()));
    assert_eq!(texts.into_iter().collect::<Vec<_>>(), stable);
}

/// One node rejects a push of each of two plans. Each plan counts its own pushes.
#[tokio::test]
async fn wav_10_a_rejecter_of_two_plans_is_restated_by_both() {
    let (origin, routes) = (ControlPlane::obedient().await, ControlPlane::obedient().await);
    let all = |text: &str| {
        origin.set(CDS, "a", text);
        routes.set(RDS, "r", text);
    };
    all("1");
    let one = plan("percent: 100");
    let begin = one.find('{').unwrap();
    let other = one[begin..].replace("name: edge", "name: other");
    let first = one[..begin].to_owned()
        + &one[begin..].replace("name: edge", "name: edge, match: { lists: [xds_servers] }");
    let plans = format!("{}, {other}", first.trim_end_matches([' ', ']']).to_owned());
    let relay = Relay::start(Setup::of(origin.address).line(&routes_of(&routes)).line(&plans)).await;
    let mut client = Client::open(&relay.address, Variant::Delta, "rejecter").await;
    let mut other = Client::open(&relay.address, Variant::Delta, "other").await;
    for (type_url, name) in [(CDS, "a"), (RDS, "r")] {
        for client in [&mut client, &mut other] {
            client.want(type_url, &[name]);
            client.take(type_url).await;
        }
    }
    // A good push of one plan, so that the plans count differently.
    routes.set(RDS, "r", "2");
    for client in [&mut client, &mut other] {
        client.take(RDS).await;
    }
    let state = async |plan: &str| relay.json(&format!("/rollouts/{plan}")).await["state"].clone();
    eventually("the good push", || async { state("other").await == "open" }).await;
    let versions = [CDS, RDS].map(|type_url| client.versions(type_url));
    all("3");
    // Each plan admits the client at its own time.
    for _ in 0..2 {
        let answer = client.any().await;
        let name = if answer.type_url == CDS { "a" } else { "r" };
        client.nack(&answer, &format!("{name}: no such extension"));
    }
    eventually("the halts", || async { state("edge").await == "halted" && state("other").await == "halted" })
        .await;
    let mut again = Client::open(&relay.address, Variant::Delta, "rejecter").await;
    for ((type_url, name, text), initial) in [(CDS, "a", "1"), (RDS, "r", "2")].into_iter().zip(versions) {
        again.send(Ask { initial, ..Ask::of(type_url).subscribe(&[name]) });
        let texts: Vec<_> = again.take(type_url).await.texts().into_iter().collect();
        assert_eq!(texts, [(name.to_owned(), text.to_owned())]);
    }
}

/// TRU-6: the words of a client name two clusters, and another client of the same program accepted one of them.
#[tokio::test]
async fn tru_6_what_another_client_of_the_program_accepted_is_no_suspect() {
    let origin = ControlPlane::obedient().await;
    origin.set_many(CDS, &[("a", "1"), ("b", "1")]);
    let relay = Relay::start(Setup::of(origin.address).line(&plan("percent: 100"))).await;
    let mut clients = Vec::new();
    for (node, names) in [("rejecter", ["a", "b"].as_slice()), ("other", &["b"])] {
        let mut client = Client::open(&relay.address, Variant::Delta, node).await;
        client.want(CDS, names);
        client.take(CDS).await;
        clients.push(client);
    }
    origin.set_many(CDS, &[("a", "2"), ("b", "2")]);
    // One client has accepted before the other one speaks.
    clients[1].take(CDS).await;
    clients[1].quiet().await;
    let answer = clients[0].next(CDS).await;
    clients[0].nack(&answer, "a, b: no such extension");
    eventually("the halt", || async { relay.json("/rollouts/edge").await["state"] == "halted" }).await;
    let found = relay.json("/rollouts/edge").await;
    assert_eq!(found["latest"]["rejections"][0]["suspects"], serde_json::json!(["a"]), "{found}");
}
