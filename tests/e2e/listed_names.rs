//! `match.resources`: some names of a type have a finer class than the others.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::support::client::connect;
use crate::support::control_plane::{Recorded, eventually};
use crate::support::relay::run;
use crate::support::{Attachment, Client, ControlPlane, EDS, Item, Relay, Setup, Variant};

/// The names of a node-local Service of istiod end in such a way.
fn rules(suffix: &str) -> String {
    let types = "types: [envoy.config.endpoint.v3.ClusterLoadAssignment]";
    format!(
        "node_classes: [{{ match: {{ {types}, resources: [{{ suffix: '{suffix}' }}] }}, split_by: {{ cluster: true }} }}, \
         {{ split_by: {{}} }}]"
    )
}

const LOCAL: &str = "outbound|80||local";
const SHARED: &str = "outbound|80||shared";
const NEAR: &str = "outbound|80||near";

async fn client(relay: &Relay, variant: Variant, cluster: &str) -> Client {
    Client::of_cluster(&connect(&relay.address).await, variant, cluster)
}

fn names(asked: &Recorded) -> BTreeSet<&str> {
    asked.ask.names.iter().chain(&asked.ask.subscribe).map(String::as_str).collect()
}

fn cluster(asked: &Recorded) -> String {
    asked.ask.node.clone().expect("the first request of a stream has a node").cluster
}

fn item(name: &str, text: &str) -> Item {
    Item::new(EDS, name, text, text)
}

/// Two clients share the stream for all names but a listed name, for which each has a class alone.
#[tokio::test]
async fn rly_11_a_listed_name_has_a_class_of_its_own() {
    for variant in [Variant::Delta, Variant::Sotw] {
        let origin = ControlPlane::scripted().await;
        let relay = Relay::start(Setup::of(origin.address).line(&rules("|local"))).await;
        let mut first = client(&relay, variant, "a").await;
        first.want(EDS, &[LOCAL, SHARED]);
        let begins = |name: &'static str| {
            let origin = &origin;
            async move {
                let asks =
                    |ask: &crate::support::Ask| ask.names.iter().chain(&ask.subscribe).any(|of| of == name);
                origin.expect_that(EDS, |ask| ask.node.is_some() && asks(ask)).await
            }
        };
        let (local, shared) = (begins(LOCAL).await, begins(SHARED).await);
        assert_eq!((names(&local), names(&shared)), (BTreeSet::from([LOCAL]), BTreeSet::from([SHARED])));
        assert_eq!(cluster(&local), "a");
        origin.answer(&local, "1", vec![item(LOCAL, "of a")], &[]);
        origin.answer(&shared, "1", vec![item(SHARED, "of all")], &[]);
        first.settle(EDS, &[(LOCAL, "of a"), (SHARED, "of all")]).await;

        let mut second = client(&relay, variant, "b").await;
        second.want(EDS, &[SHARED, LOCAL]);
        let local = begins(LOCAL).await;
        assert_eq!((names(&local), cluster(&local).as_str()), (BTreeSet::from([LOCAL]), "b"));
        origin.answer(&local, "1", vec![item(LOCAL, "of b")], &[]);
        second.settle(EDS, &[(LOCAL, "of b"), (SHARED, "of all")]).await;
        assert_eq!(origin.opened(), 3, "{variant:?}");
        // A change reaches the clients of its class.
        origin.answer(&shared, "2", vec![item(SHARED, "of all, again")], &[]);
        first.settle(EDS, &[(LOCAL, "of a"), (SHARED, "of all, again")]).await;
        second.settle(EDS, &[(LOCAL, "of b"), (SHARED, "of all, again")]).await;
        let (_, classes) = relay.get("/classes").await;
        assert!(classes.contains("*|local"), "{classes}");
    }
}

/// A reload with another list moves the listed names alone, tells how many clients move, and sends nothing twice.
#[tokio::test]
async fn rly_11_rel_6_a_reload_lists_other_names() {
    for variant in [Variant::Delta, Variant::Sotw] {
        let origin = ControlPlane::obedient().await;
        let all = [LOCAL, NEAR, SHARED];
        all.iter().for_each(|name| origin.set(EDS, name, "1"));
        let relay = Relay::start(Setup::of(origin.address).line("linger: 1s").line(&rules("|local"))).await;
        let mut clients = vec![client(&relay, variant, "a").await, client(&relay, variant, "b").await];
        for client in &mut clients {
            client.want(EDS, &all);
            client.settle(EDS, &[(LOCAL, "1"), (NEAR, "1"), (SHARED, "1")]).await;
        }
        assert_eq!(origin.opened(), 3);
        let file = relay.path("sluice.yaml");
        let config = fs::read_to_string(&file).unwrap();
        for (suffix, moved, streams) in
            [("|near", 2, 3), ("|nothing", 2, 1), ("|elsewhere", 0, 1), ("|local", 2, 3)]
        {
            fs::write(&file, config.replace("'|local'", &format!("'{suffix}'"))).unwrap();
            let (status, plan) = relay.post("/reload?dry_run=1").await;
            assert!(matches!(status, 200 | 409), "{plan}");
            let plan: Value = serde_json::from_str(&plan).unwrap();
            assert_eq!(plan.pointer("/moves/streams_moved"), Some(&Value::from(moved)), "{suffix} {plan:#}");
            let (status, answer) = relay.post("/reload?yes=1").await;
            assert_eq!(status, 200, "{answer}");
            eventually("the streams of the classes", async || origin.live_streams() == streams).await;
            for client in &mut clients {
                client.quiet().await;
            }
        }
        origin.set_many(EDS, &[(LOCAL, "2"), (SHARED, "2")]);
        for client in &mut clients {
            client.settle(EDS, &[(LOCAL, "2"), (NEAR, "1"), (SHARED, "2")]).await;
        }
    }
}

/// Other words for the same list: the server is never asked for a listed name on the stream of the other names.
#[tokio::test]
async fn rly_11_rel_6_no_class_is_asked_for_names_of_another() {
    for variant in [Variant::Delta, Variant::Sotw] {
        let origin = ControlPlane::obedient().await;
        [LOCAL, SHARED].iter().for_each(|name| origin.set(EDS, name, "1"));
        let relay = Relay::start(Setup::of(origin.address).line("linger: 0s").line(&rules("|local"))).await;
        let mut client = client(&relay, variant, "a").await;
        client.want(EDS, &[LOCAL, SHARED]);
        client.settle(EDS, &[(LOCAL, "1"), (SHARED, "1")]).await;
        let file = relay.path("sluice.yaml");
        let config = fs::read_to_string(&file).unwrap();
        fs::write(&file, config.replace("'|local'", "'local'")).unwrap();
        let (status, answer) = relay.post("/reload?yes=1").await;
        assert_eq!(status, 200, "{answer}");
        origin
            .wait_for("a stream for the list", |origin| origin.opened() == 3 && origin.live_streams() == 2)
            .await;
        client.quiet().await;
        let asked = origin.requests(EDS);
        let of_shared = asked.iter().find(|asked| names(asked).contains(SHARED)).unwrap().stream;
        let mut of_stream = asked.iter().filter(|asked| asked.stream == of_shared);
        assert!(of_stream.all(|asked| !names(asked).contains(LOCAL)), "{asked:#?}");
    }
}

/// A directory gives all clients the same, whatever a rule lists: no name of a client is left without an answer.
#[tokio::test]
async fn rly_11_listed_names_of_a_directory() {
    let origin = ControlPlane::with_files().await;
    [LOCAL, SHARED].iter().for_each(|name| origin.set(EDS, name, "1"));
    let setup = Setup::of(origin.server_uri(Attachment::Files)).upstream(Attachment::Files);
    let relay = Relay::start(setup.line(&rules("|local"))).await;
    for variant in [Variant::Delta, Variant::Sotw] {
        let mut clients = vec![client(&relay, variant, "a").await, client(&relay, variant, "b").await];
        for client in &mut clients {
            client.want(EDS, &[LOCAL, SHARED]);
            client.settle(EDS, &[(LOCAL, "1"), (SHARED, "1")]).await;
        }
    }
}

#[test]
fn rly_11_check_tells_the_class_of_listed_names() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    let server = "xds_servers: [{ server_uri: 'localhost:1', channel_creds: [{ type: insecure }] }]\n";
    write("node.json", r#"{"id": "n", "cluster": "web"}"#);
    let check = |rules: &str| {
        write("sluice.yaml", &format!("{server}{rules}\n"));
        run(&["check", "--config", "sluice.yaml", "--node", "node.json"], directory.path())
    };
    let (code, text, errors) = check(&rules("|local"));
    assert_eq!(code, 0, "{errors}");
    let lines: Vec<_> = text.lines().filter(|line| line.starts_with("ClusterLoadAssignment ")).collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(
        lines[2].contains("node_classes[0]") && lines[2].contains(r#"resources="*|local" cluster="web""#),
        "{text}"
    );
    let eds = "envoy.config.endpoint.v3.ClusterLoadAssignment";
    for (condition, fault) in [
        ("resources: [a]".to_owned(), "needs `types`"),
        (format!("types: [{eds}], resources: []"), "at least one name"),
        (format!("types: [{eds}], resources: [{{ prefix: a, suffix: b }}]"), "one of `prefix` and `suffix`"),
        (format!("types: [{eds}], names: xdstp, resources: [a]"), "mean the same for every client"),
        ("types: [envoy.config.route.v3.VirtualHost], resources: [a]".to_owned(), "which have aliases"),
    ] {
        let (code, _, errors) =
            check(&format!("node_classes: [{{ match: {{ {condition} }}, split_by: {{}} }}]"));
        assert!(code == 64 && errors.contains(fault) && errors.contains("node_classes[0].match"), "{errors}");
    }
}
