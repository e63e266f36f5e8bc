//! Resources that a control plane sends a client unasked: an on-demand ztunnel of istiod.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use tonic::Code;

use crate::support::client::{connect, node};
use crate::support::control_plane::Recorded;
use crate::support::relay::run;
use crate::support::{Ask, Client, ControlPlane, Item, Relay, SILENCE, Setup, Variant};

const ADDRESS: &str = "type.googleapis.com/istio.workload.Address";
const VIP: &str = "/10.96.0.9";
const SERVICE: &str = "shop/cart.shop.svc.cluster.local";
const LOCAL: &str = "c//Pod/shop/web-0";
const BEHIND: &str = "c//Pod/shop/cart-0";

/// The rule of `docs/recipes/istio.md`.
const RULES: &str = "node_classes: [{ match: { types: [istio.workload.Address, istio.workload.Workload] }, \
                     split_by: { id: true }, upstream_node: member }, { split_by: {} }]";

async fn ztunnel(relay: &Relay, id: &str) -> Client {
    Client::on(connect(&relay.address).await, Variant::Delta, Some(node(id)))
}

fn item(name: &str, text: &str) -> Item {
    Item::new(ADDRESS, name, &format!("v{text}"), text)
}

/// istiod answers the address of a Service by the Service, which has the address as an alias.
fn service(text: &str) -> Item {
    Item { aliases: vec![VIP.to_owned()], ..item(SERVICE, text) }
}

/// Subscribes to nothing, as ztunnel does, and states what it has by the versions alone.
fn begin(client: &mut Client, held: &[(&str, &str)]) {
    client.send(Ask::of(ADDRESS).subscribe(&["*"]).unsubscribe(&["*"]).initial(held));
}

fn demand(client: &mut Client, name: &str) {
    client.send(Ask::of(ADDRESS).subscribe(&[name]));
}

/// The first request of a stream with this name.
async fn opened(origin: &ControlPlane, name: &str) -> Recorded {
    origin
        .expect_that(ADDRESS, |ask| ask.node.is_some() && ask.subscribe.iter().any(|asked| asked == name))
        .await
}

fn names(asked: &Recorded) -> BTreeSet<&str> {
    asked.ask.subscribe.iter().map(String::as_str).collect()
}

/// The node's own workloads and those behind an address are one node's: they are passed on, changed, removed, and restated to the
/// control plane, and no other node is given them.
#[tokio::test]
async fn del_17_an_on_demand_ztunnel_is_given_what_it_did_not_name() {
    let origin = ControlPlane::scripted().await;
    let setup = Setup::of(origin.address).upstream(Variant::Delta).line("linger: 10s");
    let relay = Relay::start(setup.line(RULES)).await;
    let (mut first, mut second) = (ztunnel(&relay, "ztunnel-1").await, ztunnel(&relay, "ztunnel-2").await);
    for client in [&mut first, &mut second] {
        begin(client, &[]);
        demand(client, VIP);
    }
    let (one, other) = (opened(&origin, VIP).await, opened(&origin, VIP).await);
    let is_first = |asked: &Recorded| asked.ask.node.as_ref().unwrap().id == "ztunnel-1";
    let (one, other) = if is_first(&one) { (one, other) } else { (other, one) };
    assert!(is_first(&one) && !is_first(&other));

    origin.answer(&one, "", vec![service("1"), item(LOCAL, "1"), item(BEHIND, "1")], &[]);
    let answer = first.take(ADDRESS).await;
    assert_eq!(answer.names(), [BEHIND, LOCAL, SERVICE], "in one response");
    second.silence(SILENCE).await;
    origin.answer(&other, "", vec![service("1")], &[]);
    second.settle(ADDRESS, &[(SERVICE, "1")]).await;

    origin.answer(&one, "", vec![item(LOCAL, "2")], &[]);
    first.settle(ADDRESS, &[(SERVICE, "1"), (LOCAL, "2"), (BEHIND, "1")]).await;
    // Equal content is no news (RLY-36).
    origin.answer(&one, "", vec![item(LOCAL, "2"), service("1")], &[]);
    first.silence(SILENCE).await;
    let of_stream = |asked: &Recorded| asked.stream == one.stream && !asked.ask.subscribe.is_empty();
    let asked = origin.requests(ADDRESS).into_iter().filter(of_stream);
    assert_eq!(asked.count(), 1, "the server is not asked for what it sent by itself");

    // The next stream states them: what is held is not sent again, and what went meanwhile is told.
    origin.close_streams(Code::Unavailable);
    let again =
        origin.expect_that(ADDRESS, |ask| ask.node.as_ref().is_some_and(|of| of.id == "ztunnel-1")).await;
    assert_eq!(names(&again), BTreeSet::from([VIP, LOCAL, BEHIND]));
    let claimed: Vec<_> = again.ask.initial.iter().map(|(name, of)| (name.as_str(), of.as_str())).collect();
    assert_eq!(claimed, [(BEHIND, "v1"), (LOCAL, "v2"), (SERVICE, "v1")]);
    first.silence(SILENCE).await;
    origin.answer(&again, "", vec![], &[LOCAL]);
    first.settle(ADDRESS, &[(SERVICE, "1"), (BEHIND, "1")]).await;
    // The client comes again, and says what it has by the versions alone.
    let held = first.versions(ADDRESS);
    drop(first);
    let mut first = ztunnel(&relay, "ztunnel-1").await;
    let held: Vec<_> = held.iter().map(|(name, version)| (name.as_str(), version.as_str())).collect();
    begin(&mut first, &held);
    first.silence(SILENCE).await;
    origin.answer(&again, "", vec![item(BEHIND, "3"), item("c//Pod/shop/web-1", "1")], &[]);
    first.settle(ADDRESS, &[(BEHIND, "3"), ("c//Pod/shop/web-1", "1")]).await;
    second.silence(SILENCE).await;
    assert_eq!(relay.log_lines("WARN").iter().filter(|line| line.contains("unasked")).count(), 0);
}

/// A class of several nodes cannot know whose they are.
#[tokio::test]
async fn fu_15_a_shared_class_ignores_what_nobody_asked_for() {
    let origin = ControlPlane::scripted().await;
    let setup = Setup::of(origin.address).upstream(Variant::Delta);
    let relay = Relay::start(setup.line("node_classes: [{ split_by: {} }]")).await;
    let (mut first, mut second) = (ztunnel(&relay, "ztunnel-1").await, ztunnel(&relay, "ztunnel-2").await);
    for client in [&mut first, &mut second] {
        begin(client, &[]);
        demand(client, VIP);
    }
    let asked = opened(&origin, VIP).await;
    origin.answer(&asked, "", vec![service("1"), item(LOCAL, "1"), item(BEHIND, "1")], &[]);
    for client in [&mut first, &mut second] {
        client.settle(ADDRESS, &[(SERVICE, "1")]).await;
    }
    relay.logged("may mean one of them").await;
    origin.answer(&asked, "", vec![item(LOCAL, "2")], &[]);
    first.silence(SILENCE).await;
    let told = relay.log_lines("nobody asked for");
    assert!(told.len() == 1 && told[0].contains("split_by: { id: true }"), "{told:?}");
    assert!(!relay.get("/resources").await.1.contains("web-0"));
}

/// Names beyond the limit are left out, and all else is served.
#[tokio::test]
async fn del_17_the_names_count_against_the_limit() {
    let origin = ControlPlane::scripted().await;
    let setup = Setup::of(origin.address).upstream(Variant::Delta).line(RULES);
    let limits = "limits: { names_per_stream: 2, names_per_request: 2 }";
    let relay = Relay::start(setup.line(limits)).await;
    let mut client = ztunnel(&relay, "ztunnel-1").await;
    begin(&mut client, &[]);
    demand(&mut client, VIP);
    let asked = opened(&origin, VIP).await;
    let pods = (0..5).map(|pod| item(&format!("pod-{pod}"), "1"));
    origin.answer(&asked, "", [service("1")].into_iter().chain(pods).collect(), &[]);
    client.settle(ADDRESS, &[(SERVICE, "1"), ("pod-0", "1")]).await;
    relay.logged("more than limits.names_per_stream names").await;
    relay.metric_reaches("sluice_limit_hits_total", &["limit=\"names_per_stream\""], 1.0).await;
    origin.answer(&asked, "", vec![item("pod-0", "2"), item("pod-4", "2")], &[]);
    client.settle(ADDRESS, &[(SERVICE, "1"), ("pod-0", "2")]).await;
    client.silence(Duration::from_millis(100)).await;
}

#[test]
fn fu_15_check_tells_whether_a_class_takes_what_comes_unasked() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    let server = "xds_servers: [{ server_uri: 'localhost:1', channel_creds: [{ type: insecure }] }]\n";
    write("node.json", r#"{"id": "ztunnel~10.0.0.1~z.istio-system~istio-system.svc.cluster.local"}"#);
    for (split_by, words) in [("id: true", "takes"), ("cluster: true", "ignores")] {
        write("sluice.yaml", &format!("{server}{}\n", RULES.replace("id: true", split_by)));
        let (code, text, errors) =
            run(&["check", "--config", "sluice.yaml", "--node", "node.json"], directory.path());
        assert_eq!(code, 0, "{errors}");
        let told =
            text.lines().filter(|line| line.ends_with(&format!("({words} what the server sends unasked)")));
        assert_eq!(told.count(), 4, "two types, with two styles of names: {text}");
    }
}
