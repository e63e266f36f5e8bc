//! Clients on their way from the old process to the new one.

use std::time::Duration;

use tonic::Code;

use super::site::Site;
use crate::support::control_plane::eventually;
use crate::support::{Ask, CDS, Client, EDS, SDS, Setup, Variant, relay};

const QUICK: &str = "handover: { drain: 300ms }";

/// HND-1, HND-3: the state is passed on, Secrets included, without a checkpoint on disk: the control plane is down, and the
/// new process serves everything. Delta clients that say what they have are sent nothing.
#[tokio::test]
async fn hnd_1_clients_find_the_new_process_warm() {
    let mut site = Site::start(&[QUICK]).await;
    site.origin.set_many(CDS, &[("a", "1"), ("b", "1")]);
    site.origin.set(EDS, "e", "1");
    site.origin.set(SDS, "s", "1");
    let mut delta = Client::open(&site.relay.address, Variant::Delta, "one").await;
    let mut sotw = Client::open(&site.relay.address, Variant::Sotw, "one").await;
    for client in [&mut delta, &mut sotw] {
        client.want(CDS, &["*"]);
        client.settle(CDS, &[("a", "1"), ("b", "1")]).await;
        client.want(EDS, &["e"]);
        client.settle(EDS, &[("e", "1")]).await;
        client.want(SDS, &["s"]);
        client.settle(SDS, &[("s", "1")]).await;
    }
    site.origin.down().await;
    let upgraded = site.upgrade("").await;
    assert!(upgraded["sources"].as_u64().unwrap() >= 1, "{upgraded}");
    assert_eq!(upgraded["predecessor"]["streams"], 2);
    let (versions, secrets) = (delta.versions(CDS), delta.versions(SDS));
    assert_eq!(delta.ended().await.code(), Code::Unavailable);
    assert_eq!(sotw.ended().await.code(), Code::Unavailable);

    let mut again = Client::open(&site.relay.address, Variant::Delta, "one").await;
    again.send(Ask { initial: versions, ..Ask::of(CDS).subscribe(&["*"]) });
    again.send(Ask { initial: secrets, ..Ask::of(SDS).subscribe(&["s"]) });
    again.silence(Duration::from_millis(300)).await;
    for variant in Variant::BOTH {
        let mut cold = Client::open(&site.relay.address, variant, "one").await;
        cold.want(CDS, &["*"]);
        cold.settle(CDS, &[("a", "1"), ("b", "1")]).await;
        cold.want(EDS, &["e"]);
        cold.settle(EDS, &[("e", "1")]).await;
        cold.want(SDS, &["s"]);
        cold.settle(SDS, &[("s", "1")]).await;
    }
    site.first_is_gone().await;
    again.silence(Duration::from_millis(100)).await;
}

/// The new process knows a class by parts of ids, and connects the source before any client comes.
#[tokio::test]
async fn hnd_1_a_class_by_parts_of_ids_is_found_again() {
    let rule = "node_classes: [{ split_by: { id: { separator: '-', parts: [0] } } }]";
    let mut site = Site::start(&[QUICK, rule]).await;
    site.origin.set(CDS, "a", "1");
    let mut first = Client::open(&site.relay.address, Variant::Sotw, "web-1").await;
    first.want(CDS, &["*"]);
    first.settle(CDS, &[("a", "1")]).await;
    assert_eq!(site.origin.opened(), 1);
    site.upgrade("").await;
    assert_eq!(site.origin.opened(), 2);
    let mut other = Client::open(&site.relay.address, Variant::Delta, "web-2").await;
    other.want(CDS, &["*"]);
    other.settle(CDS, &[("a", "1")]).await;
    site.first_is_gone().await;
    assert_eq!(site.origin.opened(), 2, "one class");
}

/// HND-1: changes during the hand-over reach clients of both processes, and nothing is removed.
#[tokio::test]
async fn hnd_1_no_change_is_lost_between_the_processes() {
    let mut site = Site::start(&["handover: { drain: 5s }"]).await;
    site.origin.set_many(CDS, &[("a", "1"), ("b", "1")]);
    let mut old = Client::open(&site.relay.address, Variant::Delta, "one").await;
    old.want(CDS, &["*"]);
    old.settle(CDS, &[("a", "1"), ("b", "1")]).await;
    site.upgrade("").await;
    let mut new = Client::open(&site.relay.address, Variant::Delta, "one").await;
    new.want(CDS, &["*"]);
    new.settle(CDS, &[("a", "1"), ("b", "1")]).await;
    site.origin.set(CDS, "a", "2");
    new.settle(CDS, &[("a", "2"), ("b", "1")]).await;
    let moved = tokio::time::timeout(Duration::from_secs(10), async {
        // Either the change comes first, or the end of the stream.
        let _ = old.event().await;
    });
    moved.await.unwrap();
    let mut again = Client::open(&site.relay.address, Variant::Delta, "one").await;
    again.send(Ask { initial: new.versions(CDS), ..Ask::of(CDS).subscribe(&["*"]) });
    again.quiet().await;
}

/// HND-5: one at a time; `--now` ends the predecessor; the new process tells of it.
#[tokio::test]
async fn hnd_5_a_second_upgrade_waits_or_ends_the_predecessor() {
    let mut site = Site::start(&["handover: { drain: 1h }"]).await;
    site.origin.set(CDS, "a", "1");
    // Each stream ends at a random moment of the hour: hardly all three within this test.
    let mut clients = Vec::new();
    for name in ["one", "two", "three"] {
        let mut client = Client::open(&site.relay.address, Variant::Delta, name).await;
        client.want(CDS, &["*"]);
        client.take(CDS).await;
        clients.push(client);
    }
    let admin = site.relay.admin.clone();
    let directory = site.relay.directory.path().to_owned();
    let sluice = |arguments: &[&str]| relay::run(&[arguments, &["--relay", &admin]].concat(), &directory);
    let (code, tried, _) = sluice(&["upgrade", "--dry-run"]);
    assert_eq!((code, tried.contains("accepts the configuration")), (0, true), "{tried}");
    assert_eq!(site.relay.get("/ready").await.0, 200);
    site.upgrade("").await;
    eventually("the streams of the predecessor", || async {
        (1.0..=3.0).contains(&site.relay.metric("sluice_handover_predecessor_streams", &[]).await)
    })
    .await;
    let overview = site.relay.get("/overview").await.1;
    let streams = |count: usize| format!("\"streams\":{count},\"connections\":{count}");
    assert!((1..=3).any(|count| overview.contains(&streams(count))), "{overview}");
    let (status, text) = site.relay.post("/upgrade").await;
    assert_eq!(status, 409);
    assert!(text.contains("still drains") && text.contains("s left"), "{text}");
    let (code, _, told) = sluice(&["upgrade"]);
    assert_eq!((code, told.contains("still drains")), (64, true), "{told}");

    let (code, tried, _) = sluice(&["upgrade", "--now", "--dry-run"]);
    assert_eq!((code, tried.contains("accepts the configuration")), (0, true), "{tried}");
    clients.retain_mut(|client| client.try_event().is_none());
    assert!(
        !clients.is_empty() && !site.relay.log().contains("wants this one to end now"),
        "{}",
        site.relay.log()
    );
    site.upgrade("?now=1").await;
    for client in &mut clients {
        assert_eq!(client.ended().await.code(), Code::Unavailable);
    }
    site.first_is_gone().await;
}

/// HND-5, CMD-2: the command says what has happened.
#[tokio::test]
async fn hnd_5_the_command_names_both_processes() {
    let mut site = Site::start(&[QUICK]).await;
    let directory = site.relay.directory.path().to_owned();
    let (code, told, errors) = relay::run(&["upgrade", "--relay", &site.relay.admin], &directory);
    assert_eq!(code, 0, "{told}{errors}");
    let pid = told.strip_prefix("upgraded: process ").and_then(|rest| rest.split(' ').next()).unwrap();
    site.processes.push(pid.parse().unwrap());
    assert!(told.contains(&format!("process {} has 0 streams", site.processes[0])), "{told}");
    site.first_is_gone().await;
    assert_eq!(site.relay.get("/ready").await.0, 200);
}

/// HND-6: SIGUSR2, as the main process of a unit gets it.
#[tokio::test]
async fn hnd_6_a_signal_upgrades() {
    let mut site = Site::start(&[QUICK]).await;
    site.relay.signal("USR2");
    site.first_is_gone().await;
    let log = site.relay.log();
    let serves = log.lines().find(|line| line.contains("a new process serves in place")).unwrap();
    let pid = serves.split("pid=").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    site.processes.push(pid.parse().unwrap());
    assert_eq!(site.relay.get("/ready").await.0, 200);
}

/// HND-2: the lock of the checkpoint goes along; the new process neither starts cold nor loses the directory.
#[tokio::test]
async fn hnd_2_the_checkpoint_changes_hands() {
    let kept = tempfile::tempdir().unwrap();
    let line = format!("checkpoint: {{ directory: {:?}, interval: 100ms }}", kept.path().join("checkpoint"));
    let mut site = Site::start(&[QUICK, &line]).await;
    site.origin.set(CDS, "a", "1");
    let mut client = Client::open(&site.relay.address, Variant::Delta, "one").await;
    client.want(CDS, &["*"]);
    client.take(CDS).await;
    site.upgrade("").await;
    site.first_is_gone().await;
    let mut client = Client::open(&site.relay.address, Variant::Delta, "one").await;
    client.want(CDS, &["*"]);
    client.take(CDS).await;
    site.origin.set(CDS, "a", "2");
    client.take(CDS).await;
    eventually("a write", || async { site.relay.metric("sluice_checkpoint_writes_total", &[]).await >= 1.0 })
        .await;
    assert_eq!(site.relay.log_lines("WARN"), Vec::<String>::new());
}

/// HND-1: polls, too. The version of a document is its content, so the new process has nothing to send.
#[tokio::test]
async fn hnd_1_a_poller_notices_nothing() {
    let mut site = Site::start(&[QUICK]).await;
    site.origin.set(CDS, "a", "1");
    let poll = async |version: &str| rest_poll(&site.relay.address, version).await;
    let (status, version) = poll("").await;
    assert_eq!(status, 200);
    site.upgrade("").await;
    site.first_is_gone().await;
    assert_eq!(rest_poll(&site.relay.address, &version).await.0, 304);
}

/// HND-1: a poll that is held when the process steps back ends as unchanged, and a poll on a connection that the old process
/// accepted without having read from it is answered, too.
#[tokio::test]
async fn hnd_1_polls_on_their_way_are_answered() {
    let mut site = Site::of(|setup| {
        Setup { listener: "rest_hold: 1m".to_owned(), ..setup }.line("handover: { drain: 4s }")
    })
    .await;
    site.origin.set(CDS, "a", "1");
    let address = site.relay.address.clone();
    let (status, version) = rest_poll(&address, "").await;
    assert_eq!(status, 200);
    let opened = tokio::net::TcpStream::connect(&address).await.unwrap();
    let (held, presented) = (address.clone(), version.clone());
    let held = tokio::spawn(async move { rest_poll(&held, &presented).await });
    eventually("the held poll", || async { site.relay.get("/clients").await.1.contains("\"count\":1") })
        .await;
    site.upgrade("").await;
    assert_eq!(rest_poll_on(opened, "").await, (200, version));
    assert_eq!(held.await.unwrap().0, 304);
    site.first_is_gone().await;
}

/// A poll for all clusters: the status, and the version of the answer.
async fn rest_poll(address: &str, version: &str) -> (u16, String) {
    rest_poll_on(tokio::net::TcpStream::connect(address).await.unwrap(), version).await
}

async fn rest_poll_on(mut io: tokio::net::TcpStream, version: &str) -> (u16, String) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let body = serde_json::json!({ "node": { "id": "one" }, "version_info": version }).to_string();
    let head = format!(
        "POST /v3/discovery:clusters HTTP/1.1\r\nhost: relay\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    io.write_all(head.as_bytes()).await.unwrap();
    io.write_all(body.as_bytes()).await.unwrap();
    let mut answer = String::new();
    io.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let version = answer.split("\"version_info\":\"").nth(1).and_then(|rest| rest.split('"').next());
    (status, version.unwrap_or_default().to_owned())
}

/// PRF-32: a split of a class goes to the new process, without a checkpoint on disk.
#[tokio::test]
async fn hnd_3_a_split_class_stays_split() {
    let rule = "node_classes: [{ split_by: {}, upstream_node: member }]";
    let mut site = Site::start(&[QUICK, rule]).await;
    site.origin.set(CDS, "a", "1");
    let client = async |site: &Site, id: &str| {
        let mut client = Client::open(&site.relay.address, Variant::Delta, id).await;
        client.want(CDS, &["*"]);
        client.settle(CDS, &[("a", "1")]).await;
        client
    };
    let _before = (client(&site, "one").await, client(&site, "two").await);
    let class = site.relay.json("/classes").await["classes"][0]["class"].as_str().unwrap().to_owned();
    let (status, text) = site.relay.post(&format!("/classes/split?class={class}&by=id")).await;
    assert_eq!(status, 200, "{text}");
    site.upgrade("").await;
    assert_eq!(site.relay.json("/classes/splits").await["splits"][0]["by"][0], "id");
    let _after = (client(&site, "one").await, client(&site, "two").await);
    let classes = site.relay.json("/classes").await;
    let split = classes["classes"].as_array().unwrap().iter();
    let split = split
        .filter(|class| class["clients"].as_u64() == Some(1) && class.to_string().contains("split by id"));
    assert_eq!(split.count(), 2, "{classes}");
}
