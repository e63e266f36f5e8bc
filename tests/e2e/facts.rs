//! `facts`: classes by what a registry knows of clients, in a file that changes.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::client::connect;
use crate::support::control_plane::{Recorded, eventually};
use crate::support::istiod::sidecar;
use crate::support::kubernetes::Api;
use crate::support::relay::run;
use crate::support::{CDS, Client, ControlPlane, Item, LDS, Relay, Setup, Variant};

fn write(file: &Path, facts: &str) {
    let staged = file.with_extension("new");
    fs::write(&staged, facts).unwrap();
    fs::rename(&staged, file).unwrap();
}

const RULES: &str =
    "node_classes: [{ split_by: { metadata: [NAMESPACE], facts: [labels] }, upstream_node: member }]";

async fn relay(origin: &ControlPlane, file: &Path) -> Relay {
    let facts = format!("facts: {{ key: {{ metadata: INSTANCE_IPS }}, file: {file:?} }}");
    Relay::start(Setup::of(origin.address).line("linger: 1s").line(RULES).line(&facts)).await
}

async fn client(relay: &Relay, pod: &str, address: &str) -> Client {
    Client::on(connect(&relay.address).await, Variant::Delta, Some(sidecar(pod, "prod", address)))
}

/// Clients `pod-1`, `pod-2`, … that have the only cluster.
async fn served(relay: &Relay, count: u8) -> Vec<Client> {
    let mut clients = Vec::new();
    for number in 1..=count {
        let mut client = client(relay, &format!("pod-{number}"), &format!("10.0.0.{number}")).await;
        client.want(CDS, &["*"]);
        client.settle(CDS, &[("a", "1")]).await;
        clients.push(client);
    }
    clients
}

fn id(pod: &str, address: &str) -> String {
    sidecar(pod, "prod", address).id
}

fn node_of(asked: &Recorded) -> String {
    asked.ask.node.clone().expect("the first request of a stream has a node").id
}

/// The nodes that the server saw, in the order of the streams.
fn shown(origin: &ControlPlane) -> Vec<String> {
    origin.log().into_iter().filter_map(|recorded| Some(recorded.ask.node?.id)).collect()
}

fn item(text: &str) -> Item {
    Item::new(LDS, "l", text, text)
}

/// A relabelled Pod alone gets the server's answer for the new labels. The server sees another member for the other Pods, because
/// the stream of the relabelled member is answered by the new labels.
#[tokio::test]
async fn rly_11_a_relabelled_client_moves_alone() {
    let (origin, directory) = (ControlPlane::scripted().await, tempfile::tempdir().unwrap());
    let file = directory.path().join("facts.yaml");
    let facts = |version: &str| {
        format!(
            "10.0.0.1: {{ labels: {{ version: {version} }} }}\n10.0.0.2: {{ labels: {{ version: v1 }} }}\n"
        )
    };
    write(&file, &facts("v1"));
    let relay = relay(&origin, &file).await;
    let (mut first, mut second) =
        (client(&relay, "one", "10.0.0.1").await, client(&relay, "two", "10.0.0.2").await);
    first.want(LDS, &["l"]);
    let asked = origin.expect(LDS).await;
    assert_eq!(node_of(&asked), id("one", "10.0.0.1"));
    origin.answer(&asked, "1", vec![item("of v1")], &[]);
    first.settle(LDS, &[("l", "of v1")]).await;
    second.want(LDS, &["l"]);
    second.settle(LDS, &[("l", "of v1")]).await;
    assert_eq!(origin.opened(), 1, "one class");

    write(&file, &facts("v2"));
    let mut moved = [
        origin.expect_that(LDS, |ask| ask.node.is_some()).await,
        origin.expect_that(LDS, |ask| ask.node.is_some()).await,
    ];
    moved.sort_by_key(node_of);
    let [alone, of_others] = &moved;
    assert_eq!((node_of(alone), node_of(of_others)), (id("one", "10.0.0.1"), id("two", "10.0.0.2")));
    origin.answer(of_others, "2", vec![item("of v1")], &[]);
    origin
        .wait_for("the stream with the relabelled member is closed", |origin| !origin.is_live(asked.stream))
        .await;
    origin.answer(alone, "1", vec![item("of v2, and DENY")], &[]);
    first.settle(LDS, &[("l", "of v2, and DENY")]).await;
    first.quiet().await;
    second.quiet().await;
    assert_eq!(relay.log_lines("WARN"), Vec::<String>::new());
}

/// Clients without an entry share with nobody, until the file has an entry. A bad file changes nothing, and the log has one line
/// about each fault.
#[tokio::test]
async fn rly_11_clients_without_facts_have_a_class_each_and_a_bad_file_changes_nothing() {
    let (origin, directory) = (ControlPlane::obedient().await, tempfile::tempdir().unwrap());
    origin.set(CDS, "a", "1");
    let file = directory.path().join("facts.yaml");
    let entry = |address: &str, version: &str| format!("{address}: {{ labels: {{ version: {version} }} }}\n");
    write(&file, &entry("10.0.0.1", "v1"));
    let relay = relay(&origin, &file).await;
    let mut clients = served(&relay, 3).await;
    let own = |number: u8| id(&format!("pod-{number}"), &format!("10.0.0.{number}"));
    assert_eq!(shown(&origin), [own(1), own(2), own(3)]);
    assert_eq!(relay.metric("sluice_facts_missed_total", &[]).await, 2.0);
    relay.logged("the table of `facts` has no entry for this client").await;

    write(&file, "10.0.0.1: { labels: { version: 1.10 } }");
    relay.logged("10.0.0.1.labels.version: found 1.1").await;
    assert_eq!(relay.metric("sluice_facts_failing", &[]).await, 1.0);
    fs::remove_file(&file).unwrap();
    relay.logged("No such file").await;
    // The fault of the table hinders no other change.
    let config = fs::read_to_string(relay.path("sluice.yaml")).unwrap();
    fs::write(relay.path("sluice.yaml"), format!("{config}\ndrain: 3s\n")).unwrap();
    let (status, answer) = relay.post("/reload").await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(relay.metric("sluice_facts_failing", &[]).await, 1.0, "the reload has not read the file");
    origin.set(CDS, "a", "2");
    for client in &mut clients {
        client.settle(CDS, &[("a", "2")]).await;
    }
    assert_eq!(origin.opened(), 3, "nobody has moved");

    write(&file, &[entry("10.0.0.1", "v1"), entry("10.0.0.2", "v1"), entry("10.0.0.3", "v2")].concat());
    origin.wait_for("two classes by facts", |origin| origin.live_streams() == 2).await;
    relay.metric_reaches("sluice_facts_entries", &[], 3.0).await;
    assert_eq!(relay.metric("sluice_facts_failing", &[]).await, 0.0);
    for client in &mut clients {
        client.quiet().await;
    }
    origin.set(CDS, "a", "3");
    for client in &mut clients {
        client.settle(CDS, &[("a", "3")]).await;
    }
}

/// A reload to another file takes the other table, and the text of a caller opens no file.
#[tokio::test]
async fn rly_11_a_reload_changes_the_table() {
    let (origin, directory) = (ControlPlane::obedient().await, tempfile::tempdir().unwrap());
    origin.set(CDS, "a", "1");
    let (file, other) = (directory.path().join("facts.yaml"), directory.path().join("other.yaml"));
    write(&file, "10.0.0.1: { labels: {} }\n10.0.0.2: { labels: {} }\n");
    let relay = relay(&origin, &file).await;
    let mut clients = served(&relay, 2).await;
    assert_eq!(origin.opened(), 1);
    let config = fs::read_to_string(relay.path("sluice.yaml")).unwrap();
    let next = config.replace("facts.yaml", "other.yaml");
    assert_ne!(config, next);
    let (status, answer) = relay.post_body("/reload?dry_run=1", &next).await;
    assert!(status != 200 && answer.contains("the text of a caller opens no file"), "{status} {answer}");
    fs::write(relay.path("sluice.yaml"), &next).unwrap();
    let (status, answer) = relay.post("/reload").await;
    assert!(status != 200 && answer.contains("facts.file: cannot read"), "{status} {answer}");
    write(&other, "10.0.0.1: { labels: { a: b } }\n10.0.0.2: { labels: { a: c } }\n");
    let (status, answer) = relay.post("/reload?yes=1").await;
    assert_eq!(status, 200, "{answer}");
    origin.wait_for("a class each", |origin| origin.opened() == 3 && origin.live_streams() == 2).await;
    // The former file means nothing any more, and the next one is watched.
    write(&file, "10.0.0.1: { labels: {} }\n10.0.0.2: { labels: {} }\n");
    write(&other, "10.0.0.1: { labels: { a: b } }\n10.0.0.2: { labels: { a: b } }\n");
    eventually("one class", async || origin.live_streams() == 1).await;
    for client in &mut clients {
        client.quiet().await;
    }
}

/// A cluster with a Node, and Pods `pod-1`, `pod-2`, … of a version.
async fn cluster(pods: u8) -> Api {
    let api = Api::start().await;
    api.node("n1", "z1");
    (1..=pods).for_each(|number| relabel(&api, number, "v1"));
    api
}

fn relabel(api: &Api, number: u8, version: &str) {
    api.pod(&format!("pod-{number}"), &format!("10.0.0.{number}"), "n1", &[("version", version)]);
}

async fn relay_of_cluster(origin: &ControlPlane, kubernetes: &str) -> Relay {
    let facts = format!("facts: {{ key: {{ metadata: INSTANCE_IPS }}, kubernetes: {kubernetes} }}");
    let mut setup = Setup::of(origin.address).line("linger: 1s").line(RULES).line(&facts);
    // The tests may run in a cluster.
    let outside = [("KUBERNETES_SERVICE_HOST", "nowhere"), ("KUBERNETES_SERVICE_PORT", "none")];
    setup.environment.extend(outside.map(|(key, value)| (key.to_owned(), value.to_owned())));
    Relay::start(setup).await
}

/// The cluster is the registry: who is relabelled there moves at once, and while its API server is away, everybody stays and a newcomer
/// shares with nobody.
#[tokio::test]
async fn rly_11_classes_follow_the_pods_of_a_cluster() {
    let (origin, directory) = (ControlPlane::obedient().await, tempfile::tempdir().unwrap());
    origin.set(CDS, "a", "1");
    let api = cluster(2).await;
    let file = api.kubeconfig(directory.path(), "token");
    let relay = relay_of_cluster(&origin, &format!("{{ kubeconfig: {file:?} }}")).await;
    let mut clients = served(&relay, 2).await;
    assert_eq!(
        (origin.opened(), relay.metric("sluice_facts_entries", &[]).await),
        (1, 4.0),
        "by name and by address"
    );
    relay.metric_reaches("sluice_facts_failing", &[], 0.0).await;

    let start = Instant::now();
    relabel(&api, 1, "v2");
    origin.wait_for("a stream of its own", |origin| origin.opened() == 3 && origin.live_streams() == 2).await;
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    for client in &mut clients {
        client.quiet().await;
    }

    api.refuse("pods", 503, "down for a while");
    relay.logged("cannot use the facts of clients; the last good ones stay in force").await;
    relay.logged("Pods: status 503: down for a while").await;
    assert_eq!(relay.metric("sluice_facts_failing", &[]).await, 1.0);
    let mut third = client(&relay, "pod-3", "10.0.0.3").await;
    third.want(CDS, &["*"]);
    third.settle(CDS, &[("a", "1")]).await;
    clients.push(third);
    assert_eq!(origin.live_streams(), 3, "a class of its own");
    origin.set(CDS, "a", "2");
    for client in &mut clients {
        client.settle(CDS, &[("a", "2")]).await;
    }

    api.allow("pods");
    relabel(&api, 3, "v1");
    origin.wait_for("two classes", |origin| origin.live_streams() == 2).await;
    relay.metric_reaches("sluice_facts_failing", &[], 0.0).await;
    for client in &mut clients {
        client.quiet().await;
    }
    let log = relay.log();
    assert!(!log.contains("hidden-text") && !log.contains("token"), "{log}");
}

/// Without a cluster, the relay serves, and says what that means.
#[tokio::test]
async fn rly_11_without_a_cluster_each_client_has_a_class() {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "a", "1");
    let relay = relay_of_cluster(&origin, "{}").await;
    relay.logged("each client has a class of its own until they are known").await;
    relay.logged(": not in a cluster: ").await;
    let mut clients = served(&relay, 3).await;
    assert_eq!(origin.live_streams(), 3);
    origin.set(CDS, "a", "2");
    for client in &mut clients {
        client.settle(CDS, &[("a", "2")]).await;
    }
}

/// A reload asks the cluster first. Where it does not answer, everything stays.
#[tokio::test]
async fn rly_11_a_reload_to_a_cluster_needs_its_pods() {
    let (origin, directory) = (ControlPlane::obedient().await, tempfile::tempdir().unwrap());
    origin.set(CDS, "a", "1");
    let file = directory.path().join("facts.yaml");
    write(&file, "10.0.0.1: { labels: { version: v1 } }\n10.0.0.2: { labels: { version: v1 } }\n");
    let relay = relay(&origin, &file).await;
    let mut clients = served(&relay, 2).await;
    let api = cluster(2).await;
    let kubeconfig = api.kubeconfig(directory.path(), "token");
    let config = fs::read_to_string(relay.path("sluice.yaml")).unwrap();
    let next =
        config.replace(&format!("file: {file:?}"), &format!("kubernetes: {{ kubeconfig: {kubeconfig:?} }}"));
    assert_ne!(config, next);
    let (status, answer) = relay.post_body("/reload?dry_run=1", &next).await;
    assert!(status != 200 && answer.contains("asks no cluster"), "{status} {answer}");
    fs::write(relay.path("sluice.yaml"), &next).unwrap();
    api.refuse("nodes", 403, "nodes is forbidden");
    let (status, answer) = relay.post("/reload").await;
    assert!(
        status != 200 && answer.contains("facts.kubernetes: Nodes: status 403: nodes is forbidden"),
        "{status} {answer}"
    );
    api.allow("nodes");
    relabel(&api, 2, "v2");
    let (status, answer) = relay.post("/reload?yes=1").await;
    assert_eq!(status, 200, "{answer}");
    origin.wait_for("a class each", |origin| origin.live_streams() == 2).await;
    // A reload that leaves the source alone keeps its facts and goes on with them.
    fs::write(relay.path("sluice.yaml"), format!("{next}\ndrain: 3s\n")).unwrap();
    let (status, answer) = relay.post("/reload").await;
    assert_eq!(status, 200, "{answer}");
    let lists = api.asked().iter().filter(|asked| asked.contains("limit")).count();
    relabel(&api, 2, "v1");
    origin.wait_for("one class", |origin| origin.live_streams() == 1).await;
    assert_eq!(api.asked().iter().filter(|asked| asked.contains("limit")).count(), lists, "no list anew");
    for client in &mut clients {
        client.quiet().await;
    }
}

#[test]
fn rly_11_check_tells_the_class_by_facts() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write("facts.yaml", "10.0.0.1: { zone: z1, labels: { app: web } }\n");
    write(
        "sluice.yaml",
        "xds_servers: [{ server_uri: 'localhost:1', channel_creds: [{ type: insecure }] }]\n\
         facts: { key: { id: { separator: '~', part: 1 } }, file: facts.yaml }\n\
         node_classes: [{ split_by: { facts: [zone, zoen, [labels, app]] } }]\n",
    );
    write("known.json", r#"{"id": "sidecar~10.0.0.1~a.b~c"}"#);
    write("unknown.json", r#"{"id": "sidecar~10.0.0.2~a.b~c"}"#);
    let check = |node: &str| run(&["check", "--config", "sluice.yaml", "--node", node], directory.path());
    let (code, text, errors) = check("known.json");
    assert_eq!(code, 0, "{errors}");
    assert!(text.contains(r#" facts.labels="{\"app\": \"web\"}" facts.zone="\"z1\"""#), "{text}");
    assert!(text.contains("no entry of `facts` has the field zoen"), "{text}");
    assert!(text.contains("\nfacts.key: \"10.0.0.1\"\n"), "{text}");
    let (_, text, _) = check("unknown.json");
    assert!(text.contains("\nfacts.key: no entry for \"10.0.0.2\"\n"), "{text}");
    assert!(text.contains(r#" id="sidecar~10.0.0.2~a.b~c" facts="unknown""#), "{text}");
    write("facts.yaml", "10.0.0.1: { zone: 1 }\n");
    let (code, _, errors) = check("known.json");
    assert_eq!(code, 64);
    assert!(errors.contains("facts.file: ") && errors.contains("facts.yaml:1:"), "{errors}");
    assert!(errors.contains("10.0.0.1.zone: found 1; expected text"), "{errors}");
}
