//! The places of clients in an enforcing plan: relays, polling clients, and the lanes in `/clients`.

use serde_json::{Value, json};

use crate::enforced::{Fleet, plan};
use crate::support::client::{fetch, node};
use crate::support::control_plane::eventually;
use crate::support::poll;
use crate::support::words::{Answer, Ask};
use crate::support::{CDS, Client, ControlPlane, RDS, Relay, Setup, Variant};

const BEFORE: [(&str, &str); 2] = [("a", "1"), ("b", "1")];
const AFTER: [(&str, &str); 2] = [("a", "2"), ("b", "1")];

/// The path of a relay below.
const PATH: &str = "leaf~0000000000000001";

/// Half of the clients goes first, and stays alone until an operator says more.
fn half() -> String {
    plan("percent: 50").replace("bake: 1s }", "bake: 1h }")
}

/// A relay below, with all clusters.
async fn leaf(relay: &Relay, variant: Variant) -> Client {
    let mut leaf = Client::relay(&relay.address, variant, PATH).await;
    leaf.want(CDS, &["*"]);
    leaf
}

fn unjudged(of: &Value) -> u64 {
    of["unjudged"].as_u64().unwrap() + of["others"]["unjudged"].as_u64().unwrap()
}

/// TIR-1: relays below are served the newest content at once. Neither their ACK nor their NACK says anything of the push.
#[tokio::test]
async fn tir_1_a_relay_below_is_given_each_push_at_once_and_judges_none() {
    let slow = plan("percent: 50").replace("quiet: 100ms, max: 1s", "quiet: 3s, max: 3s");
    let slow = slow.replace("bake: 1s }", "bake: 3s }");
    let mut fleet = Fleet::with(|setup| setup, &slow, 20).await;
    let seated = fleet.seated_below(50.0).await;
    let mut rejecting = leaf(&fleet.relay, Variant::Delta).await;
    let mut accepting = leaf(&fleet.relay, Variant::Sotw).await;
    for leaf in [&mut rejecting, &mut accepting] {
        leaf.settle(CDS, &BEFORE).await;
    }
    fleet.origin.set(CDS, "a", "2");
    let [bad, good] = [rejecting.next(CDS).await, accepting.next(CDS).await];
    for answer in [&bad, &good] {
        assert!(answer.texts().contains(&("a".to_owned(), "2".to_owned())), "{answer:?}");
    }
    fleet.until_plan("gathering", |found| found["state"] == "gathering").await;
    assert_eq!(fleet.had(CDS, "a", "2"), 0, "all others wait");

    fleet.until_plan("step", |found| found["state"] == "waving" && found["clients"] == seated).await;
    accepting.ack(&good);
    rejecting.nack(&bad, "cluster a: no such extension");
    fleet.relay.metric_reaches("sluice_downstream_nacks_total", &["type=\"Cluster\""], 1.0).await;
    let found = fleet.until_plan("count", |now| now["accepted"] == seated && unjudged(now) == 2).await;
    assert_eq!(
        (&found["state"], &found["rejected"], &found["others"]["rejected"]),
        (&json!("waving"), &json!(0), &json!(0))
    );
    assert_eq!(fleet.had(CDS, "a", "2"), seated, "{found}");
    let (_, page) = fleet.relay.get("/ui/rollouts/edge").await;
    assert!(page.contains("Relays, not judged"), "{page}");
    let clients = fleet.relay.json("/clients?limit=all").await;
    let leaves = clients["clients"].as_array().unwrap().iter().filter(|client| !client["relays"].is_null());
    assert_eq!(leaves.filter(|leaf| leaf["seats"].is_null()).count(), 2, "{clients}");

    fleet.until("the end", |fleet| fleet.all_hold(CDS, &AFTER)).await;
    fleet.until_plan("end", |found| found["state"] == "open").await;
    let push = fleet.relay.json("/rollouts/edge/pushes/1").await;
    assert_eq!(
        (&push["outcome"], &push["rejected"], unjudged(&push)),
        (&json!("finished"), &json!(0), 2),
        "{push}"
    );
}

/// TIR-1: a push has no evidence if only relays acknowledge the push.
#[tokio::test]
async fn tir_1_the_word_of_a_relay_finishes_no_push() {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "a", "1");
    let relay = Relay::start(Setup::of(origin.address).line(&plan("percent: 50"))).await;
    // By name: a wildcard is first content until its completeness is known, some milliseconds later (WAV-7).
    let mut leaf = Client::relay(&relay.address, Variant::Delta, PATH).await;
    leaf.want(CDS, &["a"]);
    leaf.settle(CDS, &[("a", "1")]).await;
    origin.set(CDS, "a", "2");
    leaf.settle(CDS, &[("a", "2")]).await;
    let is_over = async || relay.json("/rollouts/edge/pushes").await["pushes"][0]["outcome"].is_string();
    eventually("the end", is_over).await;
    let push = relay.json("/rollouts/edge/pushes/1").await;
    assert_eq!((&push["outcome"], &push["accepted"]), (&json!("unjudged"), &json!(0)), "{push}");
}

/// A plan that holds pushes back from relays, too.
fn of_relays(bake: &str) -> String {
    let plan = plan("percent: 1").replace("mode: enforce", "mode: enforce, relays: true");
    plan.replace("bake: 1s }", &format!("bake: {bake} }}"))
}

/// TIR-1: with `relays: true`, the ACK of a relay is no acceptance: time lets the push go on. A NACK takes the push back.
#[tokio::test]
async fn tir_1_a_plan_for_relays_goes_on_by_time_and_halts_at_a_rejection() {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "a", "1");
    let relay = Relay::start(Setup::of(origin.address).line(&of_relays("1s"))).await;
    let mut leaf = Client::relay(&relay.address, Variant::Delta, PATH).await;
    leaf.want(CDS, &["a"]);
    leaf.settle(CDS, &[("a", "1")]).await;
    origin.set(CDS, "a", "2");
    leaf.settle(CDS, &[("a", "2")]).await;
    let is_over = async || relay.json("/rollouts/edge/pushes").await["pushes"][0]["outcome"].is_string();
    eventually("the end", is_over).await;
    let push = relay.json("/rollouts/edge/pushes/1").await;
    assert_eq!((&push["outcome"], &push["accepted"]), (&json!("finished"), &json!(0)), "{push}");
    assert!(push["notes"].to_string().contains("had only relays"), "{push}");

    origin.set(CDS, "a", "3");
    let bad = leaf.next(CDS).await;
    assert_eq!(bad.texts(), [("a".to_owned(), "3".to_owned())]);
    leaf.nack(&bad, "the response is malformed");
    let is_halted = async || relay.json("/rollouts/edge").await["state"] == "halted";
    eventually("the halt", is_halted).await;
    assert_eq!(leaf.take(CDS).await.texts(), [("a".to_owned(), "2".to_owned())]);
    let halted = relay.json("/rollouts/edge").await;
    assert_eq!((&halted["state"], &halted["rejected"]), (&json!("halted"), &json!(1)), "{halted}");
}

/// A node id of the fleet, as the client with this index has it.
fn id(index: usize) -> String {
    format!("client-{index}")
}

async fn fetched(fleet: &Fleet, index: usize) -> Answer {
    let path = "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters";
    let mut ask = Ask::of(CDS);
    ask.node = Some(node(&id(index)));
    fetch(&fleet.relay.address, path, ask).await.unwrap()
}

/// The status of a poll of a client with a version, and the answer.
async fn polled(fleet: &Fleet, index: usize, version: &str) -> (u16, Option<Answer>) {
    let mut body = poll::request(Some(&node(&id(index))), version, &[]);
    body["type_url"] = json!(CDS);
    let (status, body) = poll::post(&fleet.relay.address, "/v3/discovery:clusters", &body).await.unwrap();
    (status, (status == 200).then(|| poll::answer(CDS, &body)))
}

fn of(contents: [(&str, &str); 2]) -> Vec<(String, String)> {
    contents.map(|(name, text)| (name.to_owned(), text.to_owned())).into()
}

/// WAV-21: a poll takes the lane of the node's seat, and states the lane's version.
#[tokio::test]
async fn wav_21_polls_take_the_lane_of_their_seat_and_its_version() {
    let mut fleet = Fleet::with(|setup| setup, &half(), 20).await;
    let order = fleet.by_seat().await;
    let (first, last) = (order[0], order[19]);
    let before = fetched(&fleet, last).await;
    assert_eq!((before.texts(), polled(&fleet, last, &before.version).await.0), (of(BEFORE), 304));
    fleet.origin.set(CDS, "a", "2");
    fleet.until("the first step", |fleet| fleet.had(CDS, "a", "2") > 0).await;

    let admitted = fetched(&fleet, first).await;
    let others = fetched(&fleet, last).await;
    assert_eq!((admitted.texts(), others.texts()), (of(AFTER), of(BEFORE)));
    assert_eq!(others.version, before.version, "the content of before");
    assert_ne!(admitted.version, before.version);
    // REST, with the version of before: there is nothing new for the waiting client.
    assert_eq!(polled(&fleet, last, &before.version).await.0, 304);
    let (_, answer) = polled(&fleet, first, &before.version).await;
    let answer = answer.expect("the push");
    assert_eq!((answer.texts(), &answer.version), (of(AFTER), &admitted.version));
    assert_eq!(polled(&fleet, first, &admitted.version).await.0, 304);
    // A client with the version of the push and another seat is sent back.
    let (_, answer) = polled(&fleet, last, &admitted.version).await;
    assert_eq!(answer.expect("stable").version, before.version);

    assert_eq!(fleet.relay.post("/rollouts/edge/promote?push=1&all=1").await.0, 200);
    fleet.until("the end", |fleet| fleet.all_hold(CDS, &AFTER)).await;
    let (_, answer) = polled(&fleet, last, &before.version).await;
    assert_eq!(answer.expect("the push").version, admitted.version);
}

/// The seats in `/clients`, by client.
async fn seats(fleet: &Fleet) -> Vec<(usize, Value)> {
    let found = fleet.relay.json("/clients?limit=all").await;
    let clients = found["clients"].as_array().unwrap().iter();
    let number = |of: &Value| of["node"].as_str().unwrap().strip_prefix("client-").unwrap().parse().unwrap();
    clients.map(|client| (number(client), client["seats"].clone())).collect()
}

/// WAV-13: `/clients` shows each client's release during a step.
#[tokio::test]
async fn wav_13_clients_are_listed_with_their_lanes() {
    let mut fleet = Fleet::with(|setup| setup, &half(), 20).await;
    let is_without_lane =
        |seats: &Value| seats.as_array().is_some_and(|all| all.len() == 1) && seats[0]["lane"].is_null();
    assert!(seats(&fleet).await.iter().all(|(_, seats)| is_without_lane(seats)));
    let seated = fleet.seated_below(50.0).await;
    fleet.origin.set(CDS, "a", "2");
    fleet.until("the first step", |fleet| fleet.had(CDS, "a", "2") == seated).await;
    let found = seats(&fleet).await;
    assert_eq!(found.len(), 20);
    for (client, seats) in &found {
        let seat = &seats[0];
        let (lane, push) = match fleet.clients[*client].holds(CDS)["a"] == "2" {
            true => (json!("candidate"), json!(1)),
            false => (json!("stable"), Value::Null),
        };
        assert_eq!((&seat["plan"], &seat["lane"], &seat["push"]), (&json!("edge"), &lane, &push), "{seats}");
        assert_eq!(lane == "candidate", seat["percent"].as_f64().unwrap() < 50.0, "{seats}");
    }
    assert_eq!(fleet.relay.post("/rollouts/edge/promote?push=1&all=1").await.0, 200);
    fleet.until("the end", |fleet| fleet.all_hold(CDS, &AFTER)).await;
    fleet.until_plan("end", |found| found["state"] == "open").await;
    assert!(seats(&fleet).await.iter().all(|(_, seats)| is_without_lane(seats)));
}

/// The number of encoded bodies for a push of a cluster and a route to 60 clients.
async fn misses(plan: &str) -> f64 {
    let mut fleet = Fleet::with(|setup| setup, plan, 60).await;
    let before = fleet.relay.series("sluice_encoding_misses_total").await;
    fleet.origin.set(CDS, "a", "2");
    fleet.origin.set(RDS, "r", "2");
    fleet.until("the push", |fleet| fleet.all_hold(CDS, &AFTER) && fleet.all_hold(RDS, &[("r", "2")])).await;
    if !plan.is_empty() {
        fleet.until_plan("end", |found| found["state"] == "open").await;
        let push = fleet.relay.json("/rollouts/edge/pushes/1").await;
        assert_eq!((&push["outcome"], push["steps"].as_u64()), (&json!("finished"), Some(4)), "{push}");
    }
    fleet.relay.series("sluice_encoding_misses_total").await - before
}

/// WAV-6: an answer is encoded once for all clients of a step.
#[tokio::test]
async fn wav_6_four_waves_encode_a_push_once_each() {
    let plain = misses("").await;
    let step = |percent| format!("{{ percent: {percent}, bake: 1s }}");
    let steps = [25, 50, 75].map(step).join(", ");
    let waves = plan("percent: 1").replace("{ percent: 1, bake: 1s }", &steps);
    let by_waves = misses(&waves).await;
    // Two types and two variants. A client may be given the cluster a moment before the other change.
    assert!((4.0..=12.0).contains(&plain), "{plain}");
    assert!(by_waves <= plain * 5.0, "{by_waves} bodies by four waves, and {plain} without a plan");
}
