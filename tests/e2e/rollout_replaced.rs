//! Clients of a step that go away, contents that were taken back: a plan goes on without a person, and by steps.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::enforced::{Fleet, plan};
use crate::support::client::Event;
use crate::support::control_plane::eventually;
use crate::support::proxy::Proxy;
use crate::support::{CDS, Client, ControlPlane, DEADLINE, Relay, Setup, Variant};

/// Takes the next answer of any of these clients, and returns its index.
async fn next_of(clients: &mut [(Proxy, Client)]) -> usize {
    let begun = Instant::now();
    loop {
        for (index, (_, client)) in clients.iter_mut().enumerate() {
            if let Some(event) = client.try_event() {
                let Event::Answer(answer) = event else { panic!("a stream ended: {event:?}") };
                client.ack(&answer);
                return index;
            }
        }
        assert!(begun.elapsed() < 2 * DEADLINE, "no client is given the push");
        sleep(Duration::from_millis(5)).await;
    }
}

/// WAV-14: the only canary dies, and does not come back. Another client takes the place, and the push goes on.
#[tokio::test]
async fn wav_14_another_client_takes_the_place_of_a_canary_that_died() {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "a", "1");
    let plan = plan("percent: 0, at_least: 1").replace("bake: 1s }", "bake: 4s }");
    let relay = Relay::start(Setup::of(origin.address).line(&plan)).await;
    let mut clients = Vec::new();
    for id in ["one", "two", "three"] {
        let proxy = Proxy::start(relay.address.parse().unwrap()).await;
        let mut client = Client::open(&proxy.address.to_string(), Variant::Delta, id).await;
        client.want(CDS, &["*"]);
        client.take(CDS).await;
        clients.push((proxy, client));
    }
    // Only known content is held back: the control plane has answered for all clusters.
    clients[2].1.quiet().await;
    origin.set(CDS, "a", "2");
    let canary = next_of(&mut clients).await;
    let (proxy, _) = clients.remove(canary);
    proxy.cut();
    let died = Instant::now();
    eventually("the loss", async || relay.json("/rollouts/edge").await["lost"] == 1).await;
    next_of(&mut clients).await;
    assert!(died.elapsed() > Duration::from_secs(9), "a client that reconnects keeps its place");
    assert_eq!(relay.json("/rollouts/edge").await["state"], "waving");
    let begun = Instant::now();
    next_of(&mut clients).await;
    assert!(begun.elapsed() > Duration::from_secs(3), "the bake begins anew");
    let outcome = async || relay.json("/rollouts/edge/pushes").await["pushes"][0]["outcome"].clone();
    eventually("the end", async || outcome().await == "finished").await;
}

/// WAV-17: a push that no client rejects is taken back by the control plane, and pushed again.
#[tokio::test]
async fn wav_17_a_content_that_was_taken_back_goes_by_steps_again() {
    let mut fleet = Fleet::with(|setup| setup, &plan("percent: 10"), 20).await;
    for (text, outcomes) in [
        ("2", &["finished"][..]),
        ("1", &["restored", "finished"]),
        ("2", &["finished", "restored", "finished"]),
    ] {
        fleet.origin.set(CDS, "a", text);
        fleet.until("the content", |fleet| fleet.all_hold(CDS, &[("a", text), ("b", "1")])).await;
        fleet.until_plan("end", |found| found["state"] == "open").await;
        let found = fleet.relay.json("/rollouts/edge/pushes").await;
        let pushes = found["pushes"].as_array().unwrap().iter();
        let found: Vec<_> = pushes.map(|push| push["outcome"].as_str().unwrap()).collect();
        assert_eq!(found, outcomes, "after {text}");
    }
}
