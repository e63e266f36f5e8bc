//! A halt follows the clients: to the next server of their list, over a reload to another server, and into another node class (WAV-22).

use std::time::Duration;

use serde_json::Value;
use tokio::time::sleep;

use crate::enforced::{Fleet, plan};
use crate::rollout_lists::behind;
use crate::rollout_reloads::edit;
use crate::support::client::{connect, node};
use crate::support::proto::Node;
use crate::support::words::Ask;
use crate::support::{CDS, Client, ControlPlane, EDS, RDS, Relay, Variant};

const BEFORE: [(&str, &str); 2] = [("a", "1"), ("b", "1")];
const COUNT: usize = 20;

/// Another server with the fleet's content, but for its endpoints and its cluster `a`.
async fn other(cluster: &str) -> ControlPlane {
    let other = ControlPlane::obedient().await;
    for (type_url, name, text) in
        [(CDS, "a", cluster), (CDS, "b", "1"), (EDS, "a", "other"), (EDS, "b", "other"), (RDS, "r", "1")]
    {
        other.set(type_url, name, text);
    }
    other
}

/// A push of cluster `a` is halted, and all clients are back. Returns the number of clients with the pushed content.
async fn halt(fleet: &mut Fleet) -> usize {
    fleet.reject("bad");
    fleet.origin.set(CDS, "a", "bad");
    fleet.until_plan("halt", |found| found["state"] == "halted").await;
    fleet.until("the way back", |fleet| fleet.all_hold(CDS, &BEFORE)).await;
    fleet.had(CDS, "a", "bad")
}

fn has_moved(fleet: &Fleet) -> bool {
    fleet.all_hold(EDS, &[("a", "other"), ("b", "other")])
}

/// QUA-5, WAV-18: the next server has the content as well. Nobody is given it, with or without content in hand, and fallback does not wait.
#[tokio::test]
async fn wav_22_a_halt_follows_the_clients_to_the_next_server() {
    let second = other("bad").await;
    let mut fleet = Fleet::with(|setup| behind(setup, &second), &plan("percent: 50"), COUNT).await;
    let had = halt(&mut fleet).await;
    fleet.origin.down().await;
    fleet.until("the second server", has_moved).await;
    assert!(fleet.all_hold(CDS, &BEFORE));
    fleet.join(6).await;
    assert!(fleet.all_hold(CDS, &BEFORE), "newcomers");
    sleep(Duration::from_secs(1)).await;
    fleet.until("all answers", |_| true).await;
    let found = fleet.relay.json("/rollouts/edge").await;
    assert_eq!(fleet.had(CDS, "a", "bad"), had, "{found}");
    // A mended content is a push like any other.
    second.set(CDS, "a", "good");
    let wanted = [("a", "good"), ("b", "1")];
    fleet.origin.set(CDS, "a", "good");
    fleet.origin.up().await;
    fleet.until("the fix", |fleet| fleet.all_hold(CDS, &wanted)).await;
    assert_eq!(fleet.had(CDS, "a", "bad"), had);
}

/// REL-7: the different content of another server goes by the steps of the plan, and the answer of the reload says so.
#[tokio::test]
async fn wav_22_a_reload_to_another_server_is_a_push() {
    let next = other("2").await;
    let half = plan("percent: 50").replace("bake: 1s }", "bake: 1h }");
    let mut fleet = Fleet::with(|setup| setup, &half, COUNT).await;
    let seated = fleet.seated_below(50.0).await;
    let (from, to) = (fleet.origin.address.to_string(), next.address.to_string());
    edit(&fleet.relay, &from, &to);
    let (status, body) = fleet.relay.post("/reload?yes=1").await;
    let report: Value = serde_json::from_str(&body).unwrap();
    let warning = format!("plan edge: {COUNT} streams would move to another server");
    assert!(status == 200 && report["warnings"].to_string().contains(&warning), "{report}");
    fleet.until("the other server", has_moved).await;
    let found = fleet.until_plan("step", |found| found["state"] == "waving").await;
    fleet.until("the first step", |fleet| fleet.had(CDS, "a", "2") == seated).await;
    sleep(Duration::from_secs(1)).await;
    fleet.until("all answers", |_| true).await;
    assert_eq!(fleet.had(CDS, "a", "2"), seated, "nobody else: {found}");
    fleet.join(6).await;
    let push = fleet.relay.json("/rollouts/edge").await["push"].clone();
    assert_eq!(fleet.relay.post(&format!("/rollouts/edge/promote?push={push}&all=1")).await.0, 200);
    fleet.until("the push", |fleet| fleet.all_hold(CDS, &[("a", "2"), ("b", "1")])).await;
}

/// The class knows nothing else, so clients without content are given the content, counted and told. Clients with other content keep the other content.
#[tokio::test]
async fn wav_22_a_client_that_comes_back_as_another_class_keeps_what_it_has() {
    const CLASSES: &str = "node_classes: [ { split_by: { cluster: true } } ]";
    let mut fleet = Fleet::with(|setup| setup.line(CLASSES), &plan("percent: 50"), COUNT).await;
    let version = fleet.clients[0].versions(CDS)["a"].clone();
    halt(&mut fleet).await;
    let begin = async |relay: &Relay, variant, id: &str| {
        let of_class = Node { cluster: "other".to_owned(), ..node(id) };
        Client::on(connect(&relay.address).await, variant, Some(of_class))
    };
    let mut back = begin(&fleet.relay, Variant::Delta, "back").await;
    back.send(Ask::of(CDS).subscribe(&["*"]).initial(&[("a", &version)]));
    back.settle(CDS, &[("b", "1")]).await;
    back.quiet().await;
    let mut back_in_sotw = begin(&fleet.relay, Variant::Sotw, "back-in-sotw").await;
    back_in_sotw.send(Ask::of(CDS).names(&["*"]).version("of-the-former-class"));
    back_in_sotw.quiet().await;

    let mut newcomer = begin(&fleet.relay, Variant::Delta, "newcomer").await;
    newcomer.want(CDS, &["*"]);
    newcomer.settle(CDS, &[("a", "bad"), ("b", "1")]).await;
    fleet.relay.metric_reaches("sluice_rollout_condemned_given_total", &["plan=\"edge\""], 1.0).await;

    fleet.origin.set(CDS, "a", "good");
    let wanted = [("a", "good"), ("b", "1")];
    tokio::join!(
        fleet.until("the fix", |fleet| fleet.all_hold(CDS, &wanted)),
        back.settle(CDS, &wanted),
        back_in_sotw.settle(CDS, &wanted),
        newcomer.settle(CDS, &wanted),
    );
}
