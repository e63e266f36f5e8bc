//! Relays behind relays (ADR 14).

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::commands::sluice;
use crate::support::client::Event;
use crate::support::control_plane::{ControlPlane, Recorded, eventually};
use crate::support::relay::QUICK_BACKOFF;
use crate::support::words::Item;
use crate::support::{CDS, Client, DEADLINE, EDS, LDS, Relay, Setup, Variant, net};

/// The control plane sends its clusters in parts, and for a while the root does not know whether the set is
/// complete. The root sends the known part to relays downstream; these never serve a part as the whole,
/// however long the root is silent.
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

    // One element has no name: the root takes the other element, and knows that the set is incomplete.
    let nameless = Item { name: String::new(), ..Item::new(CDS, "", "1", "1") };
    origin.answer(&asked, "1", vec![Item::new(CDS, "a", "1", "1"), nameless], &[]);
    delta.settle(CDS, &[("a", "1")]).await;
    // The set of listeners is complete. Listeners follow the clusters, if any clusters can be sent.
    sotw.want(LDS, &["*"]);
    let listeners = origin.expect(LDS).await;
    origin.answer(&listeners, "1", vec![Item::new(LDS, "l", "1", "1")], &[]);
    assert_eq!(sotw.any().await.texts(), [("l".to_owned(), "1".to_owned())]);
    delta.quiet().await;

    // The root learns of one more cluster, and of an absent name.
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

/// A name that is unknown to the root is unknown to the leaf, too, after the leaf's own timer. By then a name
/// that the leaf requests from the control plane directly, later and with the same timer, is absent.
#[tokio::test]
async fn tmr_3_a_name_that_is_unknown_above_is_not_absent_below() {
    let (origin, other) = (ControlPlane::scripted().await, ControlPlane::scripted().await);
    let root = Relay::start(Setup::of(origin.address).resource_timeout(60)).await;
    let direct = format!(
        "authorities: {{ direct: {{ xds_servers: [ {{ server_uri: {:?}, api_type: AGGREGATED_DELTA_GRPC, \
         channel_creds: [ {{ type: insecure }} ], resource_timeout: 1s }} ] }} }}",
        other.address.to_string()
    );
    let leaf = Relay::start(Setup::of(&root.address).line(&direct)).await;
    let mut client = Client::open(&leaf.address, Variant::Delta, "one").await;
    client.want(EDS, &["there", "unknown"]);
    let asked = origin.expect(EDS).await;
    origin.answer(&asked, "1", vec![Item::new(EDS, "there", "1", "1")], &[]);
    client.settle(EDS, &[("there", "1")]).await;

    let name = |end: &str| format!("xdstp://direct/{}/{end}", EDS.rsplit('/').next().unwrap());
    let (there, absent) = (name("there"), name("absent"));
    client.want(EDS, &["there", "unknown", &there, &absent]);
    let asked = other.expect(EDS).await;
    other.answer(&asked, "1", vec![Item::new(EDS, &there, "1", "1")], &[]);
    client.settle(EDS, &[("there", "1"), (&there, "1")]).await;
    assert_eq!(client.take(EDS).await.removed, [absent]);
    let asked = origin.requests(EDS).pop().unwrap();
    origin.answer(&asked, "2", vec![], &["unknown"]);
    assert_eq!(client.take(EDS).await.removed, ["unknown"]);
}

/// The names in the `x-sluice-path` headers of a control plane's calls, without the numbers of instances.
fn paths(calls: &[HashMap<String, String>]) -> Vec<Vec<String>> {
    let ids = |path: &String| path.split(',').map(|id| id.split('~').next().unwrap().to_owned()).collect();
    calls.iter().filter_map(|call| call.get("x-sluice-path")).map(ids).collect()
}

/// Each relay on the way names itself in its calls, and sees which of its clients are relays.
#[tokio::test]
async fn tir_2_calls_name_the_relays_on_their_way() {
    let origin = ControlPlane::scripted().await;
    let root = Relay::start(Setup::of(origin.address)).await;
    let leaf = Relay::start(Setup::of(&root.address)).await;
    let mut below = Client::open(&leaf.address, Variant::Delta, "below").await;
    below.want(CDS, &["a"]);
    let asked = origin.expect(CDS).await;
    origin.answer(&asked, "1", vec![Item::new(CDS, "a", "1", "1")], &[]);
    let answer = below.take(CDS).await;
    let way = format!("sluice-test via sluice-test via {}", origin.address);
    assert_eq!((answer.texts(), answer.control_plane), (vec![("a".to_owned(), "1".to_owned())], way));
    assert_eq!(paths(&origin.headers()), [["sluice-test", "sluice-test"]]);

    let mut beside = Client::open(&root.address, Variant::Delta, "beside").await;
    beside.want(LDS, &["*"]);
    origin.expect(LDS).await;
    let (_, list) = root.get("/clients").await;
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let relays: Vec<_> = list["clients"].as_array().unwrap().iter().map(|client| &client["relays"]).collect();
    assert_eq!(relays.iter().filter(|relays| relays.is_null()).count(), 1, "{list}");
    let path: Vec<_> = relays.iter().filter_map(|relays| relays.as_array()).collect();
    assert_eq!((path.len(), path[0].len()), (1, 1), "{list}");
}

/// Two relays are each other's servers. The call that comes back to its origin is refused in words that name the
/// relays. They reach the client, and the log once.
#[tokio::test]
async fn tir_2_a_relay_refuses_its_own_call() {
    let nobody = format!("127.0.0.1:{}", net::free_port());
    let one = Relay::start(Setup::of(&nobody).server_line(QUICK_BACKOFF)).await;
    let other = Relay::start(Setup::of(&one.address).server_line(QUICK_BACKOFF)).await;
    let config = fs::read_to_string(one.path("sluice.yaml")).unwrap();
    fs::write(one.path("sluice.yaml"), config.replace(&nobody, &other.address)).unwrap();
    let (code, answer) = one.post("/reload").await;
    assert_eq!(code, 200, "{answer}");

    let mut client = Client::open(&one.address, Variant::Delta, "client").await;
    client.want(CDS, &["a"]);
    one.logged("loop through sluice-test, sluice-test, sluice-test: a server of this relay leads back").await;
    other.logged("FAILED_PRECONDITION").await;
    // The client hears of the loop late: after ten seconds on an idle machine.
    let Event::Answer(answer) = client.event_within(2 * DEADLINE).await else { panic!("the stream ended") };
    assert!(answer.errors["a"].message.contains("loop through"), "{answer:?}");
    let warnings = one.log_lines("WARN");
    assert_eq!(warnings.iter().filter(|line| line.contains("leads back")).count(), 1, "{warnings:?}");
}

/// A root and the relays below it, one after the other.
async fn tiers<const N: usize>(origin: &ControlPlane) -> [Relay; N] {
    let mut relays: Vec<Relay> = Vec::new();
    for _ in 0..N {
        let server = relays.last().map_or_else(|| origin.address.to_string(), |above| above.address.clone());
        relays.push(Relay::start(Setup::of(server).server_line(QUICK_BACKOFF)).await);
    }
    relays.try_into().unwrap_or_else(|_| panic!("{N} relays"))
}

/// The age of the only way to a server; `None` before the first word.
async fn age(relay: &Relay) -> Option<f64> {
    let (_, metrics) = relay.get("/metrics").await;
    let mut ages = metrics.lines().filter(|line| line.starts_with("sluice_tier_age_seconds{"));
    let (_, age) = ages.next()?.rsplit_once(' ')?;
    assert_eq!(ages.next(), None, "one way");
    age.parse().ok()
}

/// Relays tell the last word every five seconds: twice the time, and a busy machine.
const ALIVE: f64 = 12.0;

/// A control plane without news confirms all the same. After the loss of the control plane the age grows at all tiers below,
/// although the relays between live, and falls after the return. Clients are sent nothing.
#[tokio::test]
async fn tir_2_each_tier_says_how_old_the_word_of_the_control_plane_is() {
    let mut origin = ControlPlane::obedient().await;
    origin.set(CDS, "a", "1");
    let [root, middle, leaf] = tiers(&origin).await;
    let mut clients = [
        Client::open(&leaf.address, Variant::Delta, "one").await,
        Client::open(&root.address, Variant::Delta, "two").await,
    ];
    for client in &mut clients {
        client.want(CDS, &["a"]);
        client.settle(CDS, &[("a", "1")]).await;
    }
    eventually("the first word", async || age(&leaf).await.is_some()).await;
    assert_eq!(age(&root).await, Some(0.0), "a quiet control plane that is heard");
    // Two further words: each makes the age fall.
    let (mut before, mut falls, mut oldest) = (0.0, 0, 0.0_f64);
    let quiet = Instant::now();
    while falls < 2 && quiet.elapsed() < 2 * DEADLINE {
        let now = age(&leaf).await.unwrap();
        falls += usize::from(now < before);
        (before, oldest) = (now, oldest.max(now));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(falls == 2 && oldest < ALIVE, "{falls} words, and an age of {oldest} s without news");

    origin.down().await;
    eventually("an old word at the root", async || age(&root).await > Some(1.0)).await;
    let path = format!("sluice-test via sluice-test via {}", origin.address);
    let tier = async || leaf.json("/ready?verbose").await["tiers"][0].clone();
    let is_old = async || tier().await["age_seconds"].as_f64() > Some(ALIVE + 1.0);
    for _ in 0..2 {
        // Longer than one deadline, at a loaded machine.
        if is_old().await {
            break;
        }
        let grown = age(&leaf).await.map(|age| age + 5.0);
        eventually("a growing age", async || is_old().await || age(&leaf).await > grown).await;
    }
    eventually("an old word at the leaf", is_old).await;
    assert_eq!(tier().await["path"], Value::from(path.clone()));
    for relay in [&middle, &leaf] {
        let upstream = relay.json("/ready?verbose").await["upstreams"].clone();
        let above = upstream.as_object().unwrap().values().next().unwrap().clone();
        assert_eq!((&above["connected"], &above["stale"]), (&json!(1), &json!(0)), "the relay above lives");
    }
    let status = sluice(&leaf.admin, &["status"]).await;
    assert!(status.out.contains(&format!("{path}  confirmed ")), "{status:?}");
    let (_, page) = leaf.get("/ui/").await;
    assert!(page.contains("Ways through other relays") && page.contains(&path), "{page}");

    origin.up().await;
    eventually("a young word", async || age(&leaf).await < Some(ALIVE)).await;
    for client in &mut clients {
        assert!(client.try_event().is_none(), "clients are sent nothing");
        client.quiet().await;
    }
}

/// A root that begins anew without a control plane confirms nothing: the content of leaves does not become younger.
#[tokio::test]
async fn tir_2_a_root_that_knows_nothing_makes_no_leaf_young() {
    let mut origin = ControlPlane::obedient().await;
    origin.set(CDS, "a", "1");
    let [mut root, leaf] = tiers(&origin).await;
    let mut client = Client::open(&leaf.address, Variant::Delta, "one").await;
    client.want(CDS, &["a"]);
    client.settle(CDS, &[("a", "1")]).await;
    eventually("the first word", async || age(&leaf).await.is_some()).await;
    origin.down().await;
    root.signal("KILL");
    root.exit().await;
    let config = root.path("sluice.yaml");
    let before = age(&leaf).await.unwrap();
    let mut command = std::process::Command::new(crate::support::relay::BINARY);
    command.args(["serve", "--config"]).arg(&config);
    let (address, admin) = (root.address.clone(), root.admin.clone());
    let mut root = Relay::spawn(command, tempfile::tempdir().unwrap(), address, admin);
    root.ready().await;
    let connected = async || leaf.upstream(&root.address).await["connected"] == 1;
    eventually("the leaf at the new root", connected).await;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(7) {
        let now = age(&leaf).await.unwrap();
        assert!(now >= before, "{now} after {before}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    origin.up().await;
    eventually("a young word", async || age(&leaf).await < Some(before + 5.0)).await;
}

/// A plan of the root with a step for each of two regions.
const REGIONS: &str = "rollouts: [ { name: regions, mode: enforce, relays: true, gather: { quiet: 100ms, max: 1s }, \
                       steps: [ { clients: { locality: { region: one } }, bake: 1h }, \
                       { clients: { locality: { region: two } }, bake: 1h } ], final_bake: 1s } ]";

async fn order(relay: &Relay, words: &str) {
    let words: Vec<&str> = ["rollout"].into_iter().chain(words.split(' ')).collect();
    let done = sluice(&relay.admin, &words).await;
    assert_eq!(done.code, 0, "{done:?}");
}

/// TIR-1: a push reaches one region after the other. An abort in the first region spares the second region.
#[tokio::test]
async fn tir_1_a_plan_leads_a_push_region_by_region() {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "a", "1");
    let root = Relay::start(Setup::of(origin.address).line(REGIONS)).await;
    let (mut leaves, mut clients) = (Vec::new(), Vec::new());
    for region in ["one", "two"] {
        let node = format!("id: leaf-{region}, cluster: kit, locality: {{ region: {region} }}");
        let leaf = Relay::start(Setup { node, ..Setup::of(&root.address) }).await;
        let mut client = Client::open(&leaf.address, Variant::Delta, region).await;
        client.want(CDS, &["a"]);
        client.settle(CDS, &[("a", "1")]).await;
        leaves.push(leaf);
        clients.push(client);
    }
    let [one, two] = &mut clients[..] else { panic!("two clients") };
    let plan = async || root.json("/rollouts/regions").await;

    origin.set(CDS, "a", "2");
    one.settle(CDS, &[("a", "2")]).await;
    eventually("the first step", async || plan().await["unjudged"] == 1).await;
    let found = plan().await;
    assert_eq!(
        (&found["state"], &found["step"], &found["accepted"]),
        (&json!("waving"), &json!(1), &json!(0))
    );
    two.quiet().await;
    let seats = root.json("/clients?limit=all").await;
    let leaf = |place: &str| {
        let all = seats["clients"].as_array().unwrap();
        all.iter().filter(|client| client["seats"][0]["lane"] == place).count()
    };
    assert_eq!((leaf("candidate"), leaf("stable")), (1, 1), "{seats}");

    order(&root, "promote regions --push 1 --step 2").await;
    two.settle(CDS, &[("a", "2")]).await;
    order(&root, "promote regions --push 1 --all").await;
    eventually("the end", async || plan().await["state"] == "open").await;
    let push = root.json("/rollouts/regions/pushes/1").await;
    assert_eq!((&push["outcome"], &push["accepted"]), (&json!("finished"), &json!(0)), "{push}");

    origin.set(CDS, "a", "3");
    one.settle(CDS, &[("a", "3")]).await;
    order(&root, "abort regions --push 2").await;
    one.settle(CDS, &[("a", "2")]).await;
    // The leaf comes back to the content of before.
    leaves[1] = {
        let node = "id: leaf-two, cluster: kit, locality: { region: two }".to_owned();
        Relay::start(Setup { node, ..Setup::of(&root.address) }).await
    };
    let mut anew = Client::open(&leaves[1].address, Variant::Delta, "two").await;
    anew.want(CDS, &["a"]);
    assert_eq!(anew.take(CDS).await.texts(), [("a".to_owned(), "2".to_owned())]);
    for event in std::iter::from_fn(|| two.try_event()) {
        assert!(
            !matches!(event, Event::Answer(_)),
            "the second region never had the third content: {event:?}"
        );
    }
}
