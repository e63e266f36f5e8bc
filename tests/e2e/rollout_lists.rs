//! An enforcing plan over a list of two servers. The first server goes away and comes back (WAV-18).

use std::time::{Duration, Instant};

use crate::enforced::{Fleet, plan};
use crate::support::relay::QUICK_BACKOFF;
use crate::support::{CDS, ControlPlane, EDS, RDS, Setup, Variant};

const BEFORE: [(&str, &str); 2] = [("a", "1"), ("b", "1")];
const COUNT: usize = 20;

/// The second server, with content of its own.
async fn second() -> ControlPlane {
    let second = ControlPlane::obedient().await;
    for (type_url, name) in [(CDS, "a"), (CDS, "b"), (EDS, "a"), (EDS, "b"), (RDS, "r")] {
        second.set(type_url, name, "second");
    }
    second
}

/// Clients leave a lost server at once.
pub(super) fn behind(setup: Setup, second: &ControlPlane) -> Setup {
    let list = setup.server_line(QUICK_BACKOFF).next_server(second.address);
    list.line("fallback_on_reachability_only: true")
}

/// Waits until all clients have the wanted clusters. No client is without a cluster meanwhile.
async fn until_all_hold(fleet: &mut Fleet, what: &str, wanted: &[(&str, &str)]) {
    let is_over = |fleet: &Fleet| {
        let empty = fleet.clients.iter().filter(|client| client.holds(CDS).len() < 2).count();
        assert_eq!(empty, 0, "clients without a cluster");
        fleet.all_hold(CDS, wanted)
    };
    fleet.until(what, is_over).await;
}

/// WAV-18: a move to another server is never held back, and brings nobody to another step.
#[tokio::test]
async fn wav_18_a_move_to_the_next_server_is_not_held_and_spreads_no_push() {
    let second = second().await;
    let half = plan("percent: 50").replace("bake: 1s }", "bake: 1h }");
    let mut fleet = Fleet::with(|setup| behind(setup, &second), &half, COUNT).await;
    let seated = fleet.seated_below(50.0).await;
    fleet.origin.set(CDS, "a", "2");
    fleet.until("the first step", |fleet| fleet.had(CDS, "a", "2") == seated).await;

    fleet.origin.down().await;
    let begun = Instant::now();
    until_all_hold(&mut fleet, "the second server", &[("a", "second"), ("b", "second")]).await;
    fleet.until("routes", |fleet| fleet.all_hold(RDS, &[("r", "second")])).await;
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let found = fleet.until_plan("pause", |found| found["state"] == "paused").await;
    assert_eq!(found["push"], 1, "{found}");

    fleet.origin.up().await;
    fleet.until("routes", |fleet| fleet.all_hold(RDS, &[("r", "1")])).await;
    let is_back = |fleet: &Fleet| fleet.clients.iter().all(|client| client.holds(CDS)["b"] == "1");
    fleet.until("the way back", is_back).await;
    let found =
        fleet.until_plan("step", |found| found["state"] == "waving" && found["accepted"] == seated).await;
    assert_eq!(fleet.had(CDS, "a", "2"), seated, "nobody else was given the push: {found}");
    let holding = fleet.clients.iter().filter(|client| client.holds(CDS)["a"] == "2").count();
    assert_eq!(holding, seated, "{found}");
    assert_eq!(fleet.relay.post("/rollouts/edge/promote?push=1&all=1").await.0, 200);
    until_all_hold(&mut fleet, "the push", &[("a", "2"), ("b", "1")]).await;
}

/// WAV-18, QUA-2: a content condemned by clients of the first server stays condemned when the second server brings the content.
#[tokio::test]
async fn wav_18_a_condemned_content_stays_condemned_at_another_server() {
    let second = second().await;
    let mut fleet = Fleet::with(|setup| behind(setup, &second), &plan("percent: 50"), COUNT).await;
    fleet.bad.insert("bad");
    fleet.origin.set(CDS, "a", "bad");
    fleet.until_plan("halt", |found| found["state"] == "halted").await;
    until_all_hold(&mut fleet, "the way back", &BEFORE).await;
    let push = fleet.relay.json("/rollouts/edge/pushes/1").await;
    assert_eq!(push["condemned"].as_array().map(Vec::len), Some(1), "{push}");
    fleet.origin.set(CDS, "a", "good");
    until_all_hold(&mut fleet, "the fix", &[("a", "good"), ("b", "1")]).await;
    fleet.until_plan("end", |found| found["state"] == "open").await;
    let had = fleet.had(CDS, "a", "bad");

    fleet.origin.down().await;
    until_all_hold(&mut fleet, "the second server", &[("a", "second"), ("b", "second")]).await;
    second.set(CDS, "a", "bad");
    let found = fleet.until_plan("halt", |found| found["push"] == 3 && found["state"] == "halted").await;
    assert!(found["why"].as_str().unwrap().contains("it brings Cluster"), "{found}");
    assert_eq!(fleet.had(CDS, "a", "bad"), had, "no client of the second server was given it: {found}");
    assert!(fleet.all_hold(CDS, &[("a", "second"), ("b", "second")]));
}

/// WAV-16, WAV-22: clients keep a halted push (`on_halt: stay`). A client that leaves its server meanwhile keeps nothing of the push, though the next server has the
/// same content, and is a newcomer when it comes back: it has the stable content, and no place before others in the next push.
#[tokio::test]
async fn wav_16_who_leaves_the_server_of_a_halted_push_keeps_nothing_of_it() {
    let second = second().await;
    for (type_url, name, text) in [(CDS, "a", "2"), (CDS, "b", "1"), (RDS, "r", "1")] {
        second.set(type_url, name, text);
    }
    let stays = plan("percent: 50").replace("final_bake", "on_halt: stay, final_bake");
    let stays = stays.replace("bake: 1s }", "bake: 60s }");
    let mut fleet = Fleet::with(|setup| behind(setup, &second), &stays, COUNT).await;
    let seated = fleet.seated_below(50.0).await;
    // Clients of the state of the world reject, clients of delta accept.
    (fleet.accepting, _) = (Some(Variant::Delta), fleet.bad.insert("2"));
    fleet.origin.set(CDS, "a", "2");
    fleet.until("the first step", |fleet| fleet.had(CDS, "a", "2") == seated).await;
    fleet.until_plan("halt", |found| found["state"] == "halted").await;
    fleet.bad.clear();
    let keepers = |fleet: &Fleet| fleet.clients.iter().filter(|client| client.holds(CDS)["a"] == "2").count();
    fleet.until("clients that accepted the push and keep it", |fleet| keepers(fleet) > 0).await;
    let kept = keepers(&fleet);
    assert!(kept < seated, "{kept} of {seated} accepted the push and keep it");

    fleet.origin.down().await;
    let has_moved = |fleet: &Fleet| fleet.all_hold(EDS, &[("a", "second"), ("b", "second")]);
    fleet.until("the second server", |fleet| has_moved(fleet) && fleet.all_hold(CDS, &BEFORE)).await;
    fleet.origin.up().await;
    until_all_hold(&mut fleet, "the way back", &BEFORE).await;
    fleet.forget();
    fleet.origin.set(CDS, "a", "3");
    fleet.until("the next push", |fleet| fleet.had(CDS, "a", "3") >= seated).await;
    assert_eq!(fleet.had(CDS, "a", "3"), seated, "nobody has a place before its turn");
}
