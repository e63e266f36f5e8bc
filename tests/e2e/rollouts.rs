//! Plans with `mode: observe`: the relay judges pushes by the clients, and holds nothing from anybody.

use std::fs;

use serde_json::Value;
use tonic::transport::Channel;

use crate::support::client::{connect, node};
use crate::support::control_plane::eventually;
use crate::support::proxy::Proxy;
use crate::support::words::Answer;
use crate::support::{CDS, Client, ControlPlane, EDS, RDS, Relay, Setup, Variant};

/// Two steps of one second each.
const PLAN: &str = "rollouts: [ { name: edge, mode: observe, gather: { quiet: 100ms, max: 1s }, steps: [ { percent: 90, \
                    bake: 1s } ], final_bake: 1s, halt_on: { rejected_percent: 0 } } ]";

async fn start(plan: &str) -> (ControlPlane, Relay) {
    let origin = ControlPlane::obedient().await;
    for (type_url, name) in [(CDS, "a"), (CDS, "b"), (EDS, "a"), (RDS, "r")] {
        origin.set(type_url, name, "1");
    }
    let relay = Relay::start(Setup::of(origin.address).line(plan)).await;
    (origin, relay)
}

/// Clients with all clusters, on few connections.
async fn clients(target: &str, count: usize) -> Vec<Client> {
    let mut clients = Vec::new();
    let mut channel: Option<Channel> = None;
    for number in 0..count {
        if number % 50 == 0 {
            channel = Some(connect(target).await);
        }
        let variant = if number % 2 == 0 { Variant::Delta } else { Variant::Sotw };
        let node = node(&format!("client-{number}"));
        let mut client = Client::on(channel.clone().unwrap(), variant, Some(node));
        client.want(CDS, &["*"]);
        client.take(CDS).await;
        clients.push(client);
    }
    clients
}

async fn plan(relay: &Relay) -> Value {
    relay.json("/rollouts/edge").await
}

/// A count of the push, of the admitted and of the other clients.
fn sum(of: &Value, key: &str) -> u64 {
    of[key].as_u64().unwrap() + of["others"][key].as_u64().unwrap()
}

#[tokio::test]
async fn wav_19_three_of_three_hundred_clients_reject_a_push() {
    let (origin, relay) = start(PLAN).await;
    let mut clients = clients(&relay.address, 300).await;
    assert_eq!(plan(&relay).await["state"], "open", "first answers are no push");
    origin.set(CDS, "a", "2");
    for (number, client) in clients.iter_mut().enumerate() {
        let answer = client.next(CDS).await;
        match number % 100 {
            7 => client.nack(&answer, "cluster a: no such extension"),
            _ => client.ack(&answer),
        }
    }
    eventually("the verdict", || async {
        let found = plan(&relay).await;
        found["state"] == "halted" && (sum(&found, "accepted"), sum(&found, "rejected")) == (297, 3)
    })
    .await;
    let found = plan(&relay).await;
    assert!(found["why"].as_str().unwrap().starts_with("would have halted push 1 after "), "{found}");
    let push = &found["latest"];
    assert_eq!(push["types"][0]["changed"][0], "a", "{push}");
    assert_eq!(
        push["suspects"],
        serde_json::json!([]),
        "TRU-6: clients of the same program accepted the cluster"
    );
    let mut rejecters: Vec<_> =
        push["rejections"].as_array().unwrap().iter().map(|of| of["node"].as_str().unwrap()).collect();
    rejecters.sort_unstable();
    assert_eq!(rejecters, ["client-107", "client-207", "client-7"]);
    assert!(push["rejections"][0]["message"].as_str().unwrap().contains("no such extension"), "{push}");
    assert_eq!(push["condemned"][0]["name"], "a", "QUA-2: two nodes named the cluster");

    // The next push ends the halted one. The same content is condemned, whatever comes with it.
    origin.set(CDS, "a", "1");
    for client in &mut clients {
        client.take(CDS).await;
    }
    let outcomes = async || {
        let pushes = relay.json("/rollouts/edge/pushes").await;
        let pushes = pushes["pushes"].as_array().unwrap().iter();
        pushes.map(|of| of["outcome"].as_str().unwrap_or("none").to_owned()).collect::<Vec<_>>()
    };
    eventually("the fix", async || outcomes().await == ["finished", "halted"]).await;
    origin.set_many(CDS, &[("a", "2"), ("b", "2")]);
    eventually("the condemned content", || async {
        let found = plan(&relay).await;
        found["push"] == 3 && found["state"] == "halted" && found["step"] == 0
    })
    .await;
    assert_eq!(outcomes().await, ["none", "finished", "halted"]);
}

#[tokio::test]
async fn wav_19_a_push_that_all_accept_settles() {
    let (origin, relay) = start(PLAN).await;
    let mut clients = clients(&relay.address, 20).await;
    origin.set(CDS, "a", "2");
    for client in &mut clients {
        client.take(CDS).await;
    }
    eventually("the end of the push", || async {
        relay.json("/rollouts/edge/pushes").await["pushes"][0]["outcome"] == "finished"
    })
    .await;
    let push = relay.json("/rollouts/edge/pushes/1").await;
    assert_eq!((sum(&push, "accepted"), &push["why"]), (20, &Value::Null), "{push}");
    assert_eq!(plan(&relay).await["state"], "open");
    // Endpoints are no push.
    clients[0].want(EDS, &["a"]);
    clients[0].take(EDS).await;
    origin.set(EDS, "a", "2");
    clients[0].take(EDS).await;
    origin.set(CDS, "b", "2");
    eventually("the next push", || async { plan(&relay).await["push"] == 2 }).await;
    assert_eq!(plan(&relay).await["latest"]["types"].as_array().unwrap().len(), 1);
}

/// WAV-12: a client that dies of a push rejects nothing.
#[tokio::test]
async fn wav_12_clients_that_die_of_a_push_halt_it() {
    let (origin, relay) = start(PLAN).await;
    let proxy = Proxy::start(relay.address.parse().unwrap()).await;
    let mut well = clients(&relay.address, 5).await;
    let mut mortal = clients(&proxy.address.to_string(), 20).await;
    origin.set(CDS, "a", "2");
    for client in well.iter_mut().chain(&mut mortal) {
        client.take(CDS).await;
    }
    eventually("the push", || async { sum(&plan(&relay).await, "accepted") == 25 }).await;
    proxy.cut();
    eventually("the verdict", || async {
        let found = plan(&relay).await;
        found["state"] == "halted" && sum(&found, "lost") == 20
    })
    .await;
    let found = plan(&relay).await;
    assert!(found["why"].as_str().unwrap().contains("ended within a minute of the push"), "{found}");
    assert_eq!(sum(&found, "accepted"), 5, "{found}");
}

/// TRU-1: a rejection stands when its stream is over. A client that comes back is still one client.
#[tokio::test]
async fn tru_1_a_client_that_rejects_and_leaves_has_rejected() {
    let (origin, relay) = start(PLAN).await;
    let mut well = clients(&relay.address, 25).await;
    let mut other = Client::open(&relay.address, Variant::Delta, "other").await;
    other.want(CDS, &["*"]);
    other.take(CDS).await;
    origin.set(CDS, "a", "2");
    for client in &mut well {
        client.take(CDS).await;
    }
    let answer = other.next(CDS).await;
    eventually("the push", || async { plan(&relay).await["push"] == 1 }).await;
    // The end comes right behind the rejection, before any tally can see the stream.
    other.nack(&answer, "cluster a: no such extension");
    other.half_close();
    other.ended().await;
    let count = async || {
        let found = plan(&relay).await;
        (sum(&found, "accepted"), sum(&found, "rejected"), sum(&found, "lost"))
    };
    eventually("the verdict", async || count().await == (25, 1, 0)).await;
    let found = plan(&relay).await;
    assert_eq!(found["state"], "halted");
    assert!(found["latest"]["rejections"][0]["message"].as_str().unwrap().contains("no such"), "{found}");

    let mut back = Client::open(&relay.address, Variant::Delta, "other").await;
    back.want(CDS, &["*"]);
    back.take(CDS).await;
    let more = clients(&relay.address, 1).await;
    eventually("the next tally", async || count().await.0 == 26).await;
    assert_eq!(count().await, (26, 1, 0));
    drop(more);
}

/// REL-2: another plan of the same name takes over, and the push under way is abandoned. Without plans nothing is judged.
#[tokio::test]
async fn a_reload_exchanges_the_plans() {
    let (origin, relay) = start(PLAN).await;
    let mut clients = clients(&relay.address, 2).await;
    origin.set(CDS, "a", "2");
    eventually("the push", || async { plan(&relay).await["push"] == 1 }).await;
    let text = fs::read_to_string(relay.path("sluice.yaml")).unwrap();
    let reload = async |from: &str, to: &str| {
        fs::write(relay.path("next"), text.replace(from, to)).unwrap();
        fs::rename(relay.path("next"), relay.path("sluice.yaml")).unwrap();
        assert_eq!(relay.post("/reload").await.0, 200);
    };
    reload("percent: 90", "percent: 80").await;
    eventually("the other plan", || async {
        relay.json("/rollouts/edge/pushes").await["pushes"][0]["outcome"] == "abandoned"
    })
    .await;
    for client in &mut clients {
        client.take(CDS).await;
    }
    origin.set(CDS, "a", "3");
    eventually("a push by the other plan", || async { plan(&relay).await["push"] == 2 }).await;
    reload(PLAN, "rollouts: []").await;
    assert_eq!(relay.json("/rollouts").await["rollouts"].as_array().unwrap().len(), 0);
    origin.set(CDS, "a", "4");
    for client in &mut clients {
        while client.holds(CDS)["a"] != "4" {
            client.take(CDS).await;
        }
    }
}

/// The responses of a client, without the random part of their nonces.
async fn told(relay: &Relay, origin: &ControlPlane, variant: Variant) -> Vec<Answer> {
    let mut client = Client::open(&relay.address, variant, "client").await;
    let mut told = Vec::new();
    client.want(CDS, &["*"]);
    told.push(client.take(CDS).await);
    client.want(EDS, &["a"]);
    told.push(client.take(EDS).await);
    client.want(RDS, &["r"]);
    told.push(client.take(RDS).await);
    for text in ["2", "3"] {
        origin.set(RDS, "r", text);
        told.push(client.take(RDS).await);
        origin.set(CDS, "b", text);
        let answer = client.next(CDS).await;
        match text {
            "2" => client.nack(&answer, "b"),
            _ => client.ack(&answer),
        }
        told.push(answer);
        origin.set(EDS, "a", text);
        told.push(client.take(EDS).await);
    }
    client.quiet().await;
    for answer in &mut told {
        answer.nonce = answer.nonce.split_once('-').unwrap().1.to_owned();
    }
    told
}

/// WAV-19: the same responses in the same order, with and without a plan.
#[tokio::test]
async fn wav_19_no_byte_differs_with_a_plan() {
    for variant in [Variant::Delta, Variant::Sotw] {
        let mut all = Vec::new();
        for plan in [PLAN, "rollouts: []"] {
            let (origin, relay) = start(plan).await;
            let mut found = told(&relay, &origin, variant).await;
            // The address of the control plane is part of its identifier.
            let port = origin.address.port().to_string();
            found.iter_mut().for_each(|of| of.control_plane = of.control_plane.replace(&port, "PORT"));
            found.iter_mut().for_each(|of| of.size -= port.len());
            all.push(found);
        }
        assert_eq!(all[0], all[1]);
    }
}
