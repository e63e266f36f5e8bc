//! Responses with too little content: FU18, FU19, FU23.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::site::quick;
use crate::support::control_plane::eventually;
use crate::support::{
    Ask, Attachment, CDS, Client, ControlPlane, EDS, Item, Proxy, RDS, Relay, Setup, Variant,
};

/// Names that sort in counting order.
fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("name-{number:03}")).collect()
}

/// FU18, SST-4: an empty wildcard response deletes everything, by the protocol; the operator is warned, once.
/// This is the default policy `honour`.
#[tokio::test]
async fn fu_18_mass_deletion() {
    for upstream in Variant::BOTH {
        let origin = ControlPlane::obedient().await;
        let relay = Relay::start(quick(origin.address).upstream(upstream)).await;
        let names = names(20);
        let resources: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
        origin.set_many(CDS, &resources);
        let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
        client.want(CDS, &["*"]);
        client.settle(CDS, &resources).await;
        // Ten of twenty are not more than half.
        origin.change(|world| names[10..].iter().for_each(|name| world.remove(CDS, name)));
        client.settle(CDS, &resources[..10]).await;
        assert_eq!(relay.log_lines("WARN"), [""; 0]);
        origin.set_many(CDS, &resources);
        client.settle(CDS, &resources).await;
        origin.change(|world| names.iter().for_each(|name| world.remove(CDS, name)));
        client.settle(CDS, &[]).await;
        let label = format!("server=\"{}\"", origin.address);
        relay
            .metric_reaches("sluice_upstream_mass_deletions_total", &[&label, "type=\"Cluster\""], 1.0)
            .await;
        let warnings = relay.warned(1).await;
        assert!(warnings[0].contains("removed=20") && warnings[0].contains("Cluster"), "{warnings:#?}");
    }
}

/// FU18: with `hold_then_honour` the relay serves the deleted resources on, to new clients too, and drops
/// them after the hold; resources that the control plane restores in between stay. Metrics show the number of
/// held resources.
#[tokio::test]
async fn fu_18_mass_deletion_held_back() {
    for upstream in Variant::BOTH {
        let origin = ControlPlane::obedient().await;
        let held = "mass_deletion: { policy: hold_then_honour, hold: 5s }";
        let relay = Relay::start(quick(origin.address).upstream(upstream).server_line(held)).await;
        let server = origin.address.to_string();
        let names = names(20);
        let all: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
        origin.set_many(CDS, &all);
        let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
        client.want(CDS, &["*"]);
        client.settle(CDS, &all).await;
        let start = Instant::now();
        origin.change(|world| names.iter().for_each(|name| world.remove(CDS, name)));
        let labels = [&format!("server=\"{server}\""), "type=\"Cluster\""];
        relay.metric_reaches("sluice_upstream_mass_deletions_total", &labels, 1.0).await;
        relay.metric_reaches("sluice_upstream_resources_held_back", &labels, 20.0).await;
        assert_eq!(relay.upstream(&server).await["held_back"], 20);
        let warnings = relay.warned(1).await;
        assert!(
            warnings[0].contains("holding the deletion back") && warnings[0].contains("removed=20"),
            "{warnings:#?}"
        );
        let mut newcomer = Client::open(&relay.address, Variant::Sotw, "two").await;
        newcomer.want(CDS, &["*"]);
        newcomer.settle(CDS, &all).await;
        let again: Vec<(&str, &str)> = all[..5].iter().map(|(name, _)| (*name, "2")).collect();
        origin.set_many(CDS, &again);
        client.settle(CDS, &[&again, &all[5..]].concat()).await;
        assert!(start.elapsed() < Duration::from_secs(5), "the machine was too slow to see it");
        for client in [&mut client, &mut newcomer] {
            client.settle(CDS, &again).await;
        }
        assert!(start.elapsed() >= Duration::from_secs(5), "removed after {:?}", start.elapsed());
        let warnings = relay.warned(2).await;
        assert!(warnings[1].contains("removed=15"), "{warnings:#?}");
        assert_eq!(relay.metric("sluice_upstream_mass_deletions_total", &labels).await, 1.0);
    }
}

/// FU18: with `hold_until_confirmed` the relay serves the deleted resources on until the operator confirms
/// the deletion.
#[tokio::test]
async fn fu_18_mass_deletion_until_it_is_confirmed() {
    for upstream in Variant::BOTH {
        let origin = ControlPlane::obedient().await;
        let held = "mass_deletion: { policy: hold_until_confirmed }";
        let relay = Relay::start(quick(origin.address).upstream(upstream).server_line(held)).await;
        let names = names(20);
        let all: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
        origin.set_many(CDS, &all);
        let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
        client.want(CDS, &["*"]);
        client.settle(CDS, &all).await;
        let (status, text) = relay.post("/confirm_deletions").await;
        assert_eq!(status, 404, "{text}");
        origin.change(|world| names[3..].iter().for_each(|name| world.remove(CDS, name)));
        let labels = [&format!("server=\"{}\"", origin.address), "type=\"Cluster\""];
        relay.metric_reaches("sluice_upstream_resources_held_back", &labels, 17.0).await;
        let warnings = relay.warned(1).await;
        assert!(warnings[0].contains("POST /confirm_deletions"), "{warnings:#?}");
        client.silence(Duration::from_secs(1)).await;
        // `/clients` shows the reason why a client has resources that its server lacks (ADM-7).
        let of = relay.json("/clients").await["clients"][0]["types"][0].clone();
        assert_eq!((&of["held"]["why"], &of["held"]["what"]), (&"deletion".into(), &Value::Null), "{of}");
        assert!(of["held"]["seconds"].as_f64().is_some_and(|seconds| (1.0..30.0).contains(&seconds)), "{of}");
        assert_eq!(of["state"], "STALE", "{of}");
        assert_eq!(relay.post("/confirm_deletions?type=Listener").await.0, 404);
        let (status, text) = relay.post("/confirm_deletions?type=Cluster").await;
        assert!(status == 200 && text.contains("\"removed\":17"), "{status}: {text}");
        client.settle(CDS, &all[..3]).await;
        eventually("nothing held back", || async {
            relay.metric("sluice_upstream_resources_held_back", &labels).await == 0.0
        })
        .await;
        relay.logged("the operator confirmed the deletion").await;
        let of = relay.json("/clients").await["clients"][0]["types"][0].clone();
        assert!(of["held"].is_null() && of["state"] == "SYNCED", "{of}");
        relay.warned(1).await;
    }
}

/// FU18: a directory that loses most of its resources is held back by the same policy, and without a policy is warned of.
#[tokio::test]
async fn fu_18_mass_deletion_by_files() {
    for (policy, is_held) in [("honour", false), ("hold_until_confirmed", true)] {
        let directory = tempfile::tempdir().unwrap();
        let write = |names: &[String]| {
            let of = names
                .iter()
                .map(|name| format!("  - {{ \"@type\": {CDS}, name: {name}, connect_timeout: 1s }}\n"));
            let yaml = format!("type_url: {CDS}\nresources:\n{}", of.collect::<String>());
            std::fs::write(directory.path().join(".next"), yaml).unwrap();
            std::fs::rename(directory.path().join(".next"), directory.path().join("clusters.yaml")).unwrap();
        };
        let names = names(20);
        write(&names);
        let server = format!("file:{}", directory.path().display());
        let line = format!("mass_deletion: {{ policy: {policy} }}");
        let relay = Relay::start(Setup::of(server.clone()).server_line(&line)).await;
        let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
        client.want(CDS, &["*"]);
        while client.holds(CDS).len() < 20 {
            client.take(CDS).await;
        }
        write(&names[..3]);
        let warnings = relay.warned(1).await;
        assert!(warnings[0].contains("removed=17") && warnings[0].contains("left=3"), "{warnings:#?}");
        let labels = [&*format!("server=\"{server}\""), "type=\"Cluster\""];
        relay.metric_reaches("sluice_upstream_mass_deletions_total", &labels, 1.0).await;
        if is_held {
            relay.metric_reaches("sluice_upstream_resources_held_back", &labels, 17.0).await;
            client.silence(Duration::from_secs(1)).await;
            let (status, text) = relay.post("/confirm_deletions?type=Cluster").await;
            assert!(status == 200 && text.contains("\"removed\":17"), "{status}: {text}");
        }
        while client.holds(CDS).len() > 3 {
            client.take(CDS).await;
        }
    }
}

/// RST-12: something answers `200 {}` in the place of a REST server. Only an answer that says what it is deletes anything.
#[tokio::test]
async fn rst_12_an_answer_that_says_nothing_of_itself_deletes_nothing() {
    let cluster = format!(r#"{{"@type": "{CDS}", "name": "a", "connect_timeout": "1s"}}"#);
    let full = format!(r#"{{"version_info": "1", "type_url": "{CDS}", "resources": [{cluster}]}}"#);
    let body = Arc::new(Mutex::new(full));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answers = body.clone();
    let server = tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 65536];
            let mut length = 0;
            while !request[..length].windows(4).any(|bytes| bytes == b"\r\n\r\n") {
                length += socket.read(&mut request[length..]).await.unwrap().max(1);
            }
            let body = answers.lock().unwrap().clone();
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            // The relay may have given the poll up.
            let _ = socket.write_all((head + &body).as_bytes()).await;
        }
    });
    let relay = Relay::start(Setup::of(format!("http://{address}")).upstream(Attachment::Rest)).await;
    let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
    client.want(CDS, &["*"]);
    assert_eq!(client.take(CDS).await.names(), ["a"]);
    *body.lock().unwrap() = "{}".to_owned();
    let labels = [&*format!("server=\"http://{address}\""), "type=\"Cluster\""];
    relay.metric_reaches("sluice_upstream_nacks_total", &labels, 2.0).await;
    let warnings = relay.warnings("neither a type_url nor a version_info");
    assert!(!warnings.is_empty(), "{:#?}", relay.log_lines("WARN"));
    assert_eq!(client.holds(CDS).len(), 1);
    *body.lock().unwrap() = r#"{"version_info": "2"}"#.to_owned();
    while !client.holds(CDS).is_empty() {
        client.take(CDS).await;
    }
    server.abort();
}

/// FU18: an empty first answer deletes nothing, and causes no warning.
#[tokio::test]
async fn fu_18_nothing_to_begin_with() {
    let origin = ControlPlane::obedient().await;
    let relay = Relay::start(quick(origin.address)).await;
    let mut client = Client::open(&relay.address, Variant::Sotw, "one").await;
    client.want(CDS, &["*"]);
    assert_eq!(client.take(CDS).await.names(), [""; 0]);
    assert_eq!(relay.log_lines("WARN"), [""; 0]);
}

/// FU19, SST-6: outside full-state types an empty response has no meaning.
#[tokio::test]
async fn fu_19_an_empty_response_of_endpoints_and_routes() {
    for type_url in [EDS, RDS] {
        let origin = ControlPlane::scripted().await;
        let relay = Relay::start(quick(origin.address).upstream(Variant::Sotw)).await;
        let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
        client.want(type_url, &["a"]);
        let asked = origin.expect(type_url).await;
        origin.answer(&asked, "1", vec![Item::new(type_url, "a", "", "1")], &[]);
        client.settle(type_url, &[("a", "1")]).await;
        origin.answer(&asked, "2", vec![], &[]);
        origin.expect_that(type_url, |ask| ask.version == "2").await;
        client.quiet().await;
        let mut newcomer = Client::open(&relay.address, Variant::Sotw, "two").await;
        newcomer.want(type_url, &["a"]);
        assert_eq!(newcomer.take(type_url).await.names(), ["a"]);
    }
}

/// FU23, RLY-2, TMR-3: a name without an answer is absent after its timer, on a connected stream; a cached
/// name never is.
#[tokio::test]
async fn fu_23_no_answer_for_a_name() {
    for upstream in Variant::BOTH {
        let origin = ControlPlane::scripted().await;
        let relay = Relay::start(quick(origin.address).upstream(upstream).resource_timeout(2)).await;
        let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
        client.want(EDS, &["cached"]);
        let asked = origin.expect(EDS).await;
        origin.answer(&asked, "1", vec![Item::new(EDS, "cached", "1", "1")], &[]);
        client.take(EDS).await;
        let start = Instant::now();
        client.want(EDS, &["cached", "missing"]);
        let answer = client.take(EDS).await;
        let took = start.elapsed();
        assert_eq!((answer.names(), answer.removed.as_slice()), (vec![], &["missing".to_owned()][..]));
        assert!(took >= Duration::from_millis(1900), "absent after {took:?}");
        // The timer does not run for known names, however long the server is silent.
        client.silence(Duration::from_secs(3)).await;
        assert_eq!(client.holds(EDS).len(), 1);
        // TMR-6: the resource may come later.
        let items = vec![Item::new(EDS, "missing", "1", "late")];
        origin.answer(&asked, "2", items, &[]);
        assert_eq!(client.take(EDS).await.get("missing").text(), "late");
        assert_eq!(relay.log_lines("WARN"), [""; 0]);
    }
}

/// DEL-26, RLY-5, I4: a wildcard that arrives in parts over a slow path is complete with its last part. Until
/// then a full-state answer waits, and a client that reconnects gets no removal.
#[tokio::test]
async fn del_26_a_wildcard_in_slow_parts_is_whole_at_its_end() {
    let origin = ControlPlane::scripted().await;
    let proxy = Proxy::start(origin.address).await;
    let relay = Relay::start(Setup::of(proxy.address)).await;
    let mut sotw = Client::open(&relay.address, Variant::Sotw, "one").await;
    sotw.want(CDS, &["*"]);
    let asked = origin.expect(CDS).await;
    // The parts are further apart than any pause that could count as the end.
    proxy.throttle(6_000_000);
    let text = "x".repeat(30_000);
    let names: Vec<String> = (0..400).map(|number| format!("c{number}")).collect();
    for part in names.chunks(100) {
        let items = part.iter().map(|name| Item::new(CDS, name, name, &text));
        origin.answer(&asked, "v", items.collect(), &[]);
    }
    let mut delta = Client::open(&relay.address, Variant::Delta, "two").await;
    let versions: BTreeMap<_, _> = names.iter().map(|name| (name.clone(), "old".to_owned())).collect();
    delta.send(Ask { initial: versions, ..Ask::of(CDS).subscribe(&["*"]) });
    assert_eq!(sotw.take(CDS).await.items.len(), names.len());
    let mut came = 0;
    while came < names.len() {
        let answer = delta.take(CDS).await;
        assert_eq!(answer.removed, [""; 0]);
        came += answer.items.len();
    }
    delta.quiet().await;
}
