#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::*;
use crate::driver::api::control::{ConfirmedDeletion, DeletionFilter};
use crate::driver::api::downstream::Variant;
use crate::driver::api::status::{
    ClassStatus, ClientStatus, ConfigStatus, HeldStatus, NackStatus, ResourceFilter, ResourceStatus,
    SessionStatus, SessionTypeStatus, SourceState, SourceStatus, SourceTypeStatus, StatusView, WaitStatus,
};
use crate::xds::{Code, ResourceName, Status, TypeUrl, Version};

const SESSIONS: usize = 10_000;
const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";
/// More than the listener accepts, and fewer than the HTTP library's default.
const HEADERS_SENT: usize = 80;
const SECRET: &str = "envoy.extensions.transport_sockets.tls.v3.Secret";

/// A relay with many clients, of which every hundredth has NACKed.
#[derive(Default)]
struct FakeView {
    sources: Vec<Arc<SourceStatus>>,
    pulled: AtomicUsize,
    finished: AtomicUsize,
}

/// Counts the dropped iterators.
struct OnDrop<'a>(&'a AtomicUsize);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl StatusView for FakeView {
    fn sources(&self) -> Vec<Arc<SourceStatus>> {
        self.sources.clone()
    }

    fn sessions(&self) -> Box<dyn Iterator<Item = SessionStatus> + Send + '_> {
        let finished = OnDrop(&self.finished);
        Box::new((0..SESSIONS).map(move |n| {
            let _held = &finished;
            self.pulled.fetch_add(1, SeqCst);
            session(n)
        }))
    }

    fn resources(&self, filter: &ResourceFilter) -> Box<dyn Iterator<Item = ResourceStatus> + Send + '_> {
        let types = [CLUSTER, SECRET].map(TypeUrl::of_message);
        let wanted: Vec<_> = types.into_iter().filter(|url| filter.wants_type(url)).collect();
        Box::new(wanted.into_iter().flat_map(|url| (0..5).map(move |n| resource(&url, n))))
    }
}

impl Controls for FakeView {
    fn refresh(&self) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }

    fn confirm_deletions(&self, filter: DeletionFilter) -> BoxFuture<'_, Vec<ConfirmedDeletion>> {
        let sources = self.sources.iter().filter(|source| filter.concerns(source));
        let confirmed =
            sources.map(|source| ConfirmedDeletion { source: source.clone(), removed: 7 }).collect();
        std::future::ready(confirmed).boxed()
    }
}

fn session(n: usize) -> SessionStatus {
    let nacked = n.is_multiple_of(100);
    let nack = NackStatus {
        version: Some(Version(0xbad)),
        detail: "sniffed-detail".into(),
        at: SystemTime::UNIX_EPOCH,
    };
    let of = |message: &str| SessionTypeStatus {
        type_url: TypeUrl::of_message(message),
        server: Some("cp-1".into()),
        class: Some("c0ffee".into()),
        stale_since: None,
        wildcard: true,
        names: 0,
        version_sent: Some(Version(0xabc)),
        version_acked: None,
        nonce: Some("7".into()),
        state: if nacked { ConfigStatus::Error } else { ConfigStatus::Synced },
        server_refuses: None,
        refused: false,
        restored: false,
        unacked: nacked.then_some(Duration::from_secs(3)),
        waits: nacked.then(|| WaitStatus {
            name: ResourceName::new("owed"),
            server: Some("cp-2".into()),
            duration: Duration::from_secs(2),
        }),
        held: nacked.then(|| HeldStatus {
            why: "order",
            what: Some("type-before".into()),
            duration: Some(Duration::from_secs(4)),
        }),
        nack: nacked.then(|| nack.clone()),
    };
    SessionStatus {
        id: n as u64,
        node_id: format!("node-{n}").into(),
        node_cluster: "edge".into(),
        listener: "main".into(),
        peer: Some(([127, 0, 0, 1], 4000).into()),
        kind: Variant::Delta.into(),
        opened_at: wall_now(),
        types: vec![of(CLUSTER), of(SECRET)],
    }
}

fn resource(type_url: &TypeUrl, n: usize) -> ResourceStatus {
    ResourceStatus {
        type_url: type_url.clone(),
        name: ResourceName::from(format!("r{n}")),
        collection: "wildcard",
        version: Some(Version(0xabc)),
        bytes: 4711,
        error: None,
        expires_in: None,
        state: if n == 0 { ClientStatus::Nacked } else { ClientStatus::Acked },
        server: "cp-1".into(),
        class: "c0ffee".into(),
    }
}

fn source(server: &str, state: SourceState, stale: bool) -> Arc<SourceStatus> {
    let now = wall_now();
    let of = |message: &str| SourceTypeStatus {
        type_url: TypeUrl::of_message(message),
        names: 0,
        wildcard: true,
        present: 5,
        absent: 0,
        unknown: 1,
        held_back: 0,
        held_back_since: None,
        refused: None,
        lost: None,
        bytes: 4711,
        version: Some(Version(0xabc)),
    };
    Arc::new(SourceStatus {
        server: server.into(),
        list: "xds_servers".into(),
        stream: None,
        class: ClassStatus {
            digest: "c0ffee".into(),
            fields: Arc::from([("cluster".to_owned(), "edge".to_owned())]),
        },
        shown: "relay/c0ffee".into(),
        state,
        since: now,
        last_error: stale.then(|| Status::new(Code::Unavailable, "gone")),
        answered: true,
        restored: false,
        stale_since: stale.then_some(now - Duration::from_secs(60)),
        variant: Some(Variant::Delta),
        has_marks: false,
        types: vec![of(CLUSTER), of(SECRET)],
    })
}

/// Connections come from a channel. Both ends are in memory, so tests control the time.
struct MemoryListener(mpsc::UnboundedReceiver<DuplexStream>);

impl Listener for MemoryListener {
    type Io = DuplexStream;
    type Addr = ();

    async fn accept(&mut self) -> (DuplexStream, ()) {
        match self.0.recv().await {
            Some(io) => (io, ()),
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<()> {
        Ok(())
    }
}

struct Fixture {
    view: Arc<FakeView>,
    readiness: Arc<Readiness>,
    metrics: Arc<Metrics>,
    shutdown: CancellationToken,
    connections: mpsc::UnboundedSender<DuplexStream>,
    server: JoinHandle<()>,
}

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect(&self.body)
    }
}

impl Fixture {
    fn start(sources: Vec<Arc<SourceStatus>>, requires_upstream: bool) -> Fixture {
        let view = Arc::new(FakeView { sources, ..FakeView::default() });
        let readiness = Arc::new(Readiness::new(requires_upstream));
        let metrics = Arc::new(Metrics::new());
        let shutdown = CancellationToken::new();
        let (connections, accepted) = mpsc::unbounded_channel();
        let listener = MemoryListener(accepted);
        let admin = Admin::serve(
            listener,
            Vec::new(),
            view.clone(),
            readiness.clone(),
            metrics.clone(),
            shutdown.clone(),
        );
        let server = tokio::spawn(admin);
        Fixture { view, readiness, metrics, shutdown, connections, server }
    }

    fn connect(&self) -> DuplexStream {
        let (client, server) = duplex(1024);
        self.connections.send(server).unwrap();
        client
    }

    async fn send(&self, request: &str) -> Answer {
        let mut io = self.connect();
        io.write_all(request.as_bytes()).await.unwrap();
        read_answer(&mut io).await
    }

    async fn get(&self, target: &str) -> Answer {
        self.send(&get_request(target)).await
    }

    fn limit_hits(&self, limit: Limit) -> String {
        let text = self.metrics.encode().unwrap();
        let series = format!("sluice_limit_hits_total{{limit=\"{}\"}} ", limit.name());
        text.lines().find_map(|line| line.strip_prefix(&series)).unwrap().to_owned()
    }
}

fn get_request(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
}

/// Reads an answer until the connection ends, and joins its chunks.
async fn read_answer(io: &mut DuplexStream) -> Answer {
    let mut text = String::new();
    io.read_to_string(&mut text).await.unwrap();
    let (head, mut rest) = text.split_once("\r\n\r\n").expect(&text);
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let mut body = String::new();
    if head.contains("transfer-encoding: chunked") {
        loop {
            let (size, after) = rest.split_once("\r\n").expect("a chunk, or the last one");
            let size = usize::from_str_radix(size, 16).unwrap();
            if size == 0 {
                break;
            }
            body.push_str(&after[..size]);
            rest = &after[size + 2..];
        }
    } else {
        body.push_str(rest);
    }
    Answer { status, head: head.to_owned(), body }
}

#[tokio::test]
async fn endpoints_are_listed_and_everything_else_is_refused() {
    let admin = Fixture::start(vec![], false);
    let index = admin.get("/").await;
    assert_eq!((index.status, index.body.as_str()), (200, ENDPOINTS));
    for path in ["/healthz", "/ready", "/metrics", "/clients", "/sources", "/resources", "/refused"] {
        assert!(index.body.contains(&format!("GET {path} ")), "{path}");
        let posted = admin.send(&get_request(path).replace("GET", "POST")).await;
        assert_eq!(posted.status, 405, "{path}");
        assert!(posted.head.contains("allow: GET,HEAD"), "{}", posted.head);
    }
    for path in ["/nothing", "/clients/1", "/debug/pprof"] {
        let answer = admin.get(path).await;
        assert_eq!(answer.status, 404, "{path}");
        assert!(answer.body.ends_with(ENDPOINTS));
    }
    assert!(index.body.contains("POST /confirm_deletions "));
    let answer = admin.get("/confirm_deletions").await;
    assert_eq!(answer.status, 405);
    assert!(answer.head.contains("allow: POST"), "{}", answer.head);
    let with_body = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n";
    assert_eq!(admin.send(with_body).await.status, 413);
}

#[tokio::test]
async fn fu_18_deletions_are_confirmed_by_tools_and_not_by_pages() {
    let holding = |server: &str, held_back| {
        let mut source = SourceStatus::clone(&source(server, SourceState::Connected, false));
        source.types[0].held_back = held_back;
        Arc::new(source)
    };
    let admin = Fixture::start(vec![holding("cp-1", 7), holding("cp-2", 7), holding("cp-3", 0)], false);
    let post = |target: &str| get_request(target).replacen("GET", "POST", 1);
    let from_page =
        post("/confirm_deletions").replace("\r\n\r\n", "\r\nOrigin: https://evil.example\r\n\r\n");
    let answer = admin.send(&from_page).await;
    assert_eq!(answer.status, 403, "{}", answer.body);

    let confirmed = admin.send(&post("/confirm_deletions")).await;
    assert_eq!(confirmed.status, 200, "{}", confirmed.body);
    let went = |answer: &Answer| {
        let all = answer.json()["confirmed"].as_array().unwrap().clone();
        all.iter()
            .map(|of| (of["server"].as_str().unwrap().to_owned(), of["removed"].as_u64()))
            .collect::<Vec<_>>()
    };
    assert_eq!(went(&confirmed), [("cp-1".to_owned(), Some(7)), ("cp-2".to_owned(), Some(7))]);
    let one = admin.send(&post("/confirm_deletions?server=cp-2&type=Cluster")).await;
    assert_eq!(went(&one), [("cp-2".to_owned(), Some(7))]);

    for target in ["?type=Listener", "?server=cp-3", "?server=cp-9"] {
        let answer = admin.send(&post(&format!("/confirm_deletions{target}"))).await;
        assert_eq!(answer.status, 404, "{target}");
        assert!(answer.body.contains("no matching deletion"), "{}", answer.body);
    }
    let answer = admin.send(&post("/confirm_deletions?tpye=Cluster")).await;
    assert_eq!(
        (answer.status, answer.body.contains("allowed: server, type")),
        (400, true),
        "{}",
        answer.body
    );
}

#[tokio::test]
async fn a_server_that_never_answered_has_a_state_of_its_own() {
    let mut silent = SourceStatus::clone(&source("cp-1", SourceState::Unanswered, false));
    silent.answered = false;
    let admin = Fixture::start(vec![Arc::new(silent)], true);
    admin.readiness.advance(State::Ready);
    let ready = admin.get("/ready").await;
    assert_eq!(ready.status, 200, "it can be reached");
    let upstream = &ready.json()["upstreams"]["cp-1"];
    assert_eq!((&upstream["unanswered"], &upstream["connected"]), (&Value::from(1), &Value::from(0)));
    let found = &admin.get("/sources?state=unanswered").await.json()["sources"][0];
    assert_eq!((&found["state"], &found["answered"]), (&Value::from("unanswered"), &Value::from(false)));
    assert_eq!(
        (&found["class"], &found["upstream_id"]),
        (&Value::from("c0ffee"), &Value::from("relay/c0ffee"))
    );
}

#[tokio::test]
async fn readiness_follows_the_process_and_not_its_upstreams() {
    let down = SourceState::Backoff { failures: 3, delay: Duration::from_secs(4) };
    let sources = vec![
        source("cp-1", down, true),
        source("cp-1", SourceState::Connected, false),
        source("cp-2", SourceState::Connecting, false),
    ];
    let admin = Fixture::start(sources, false);
    let ready = admin.get("/ready").await;
    assert_eq!((ready.status, &ready.json()["state"]), (503, &Value::from("starting")));
    assert_eq!(admin.get("/healthz").await.status, 200);

    admin.readiness.advance(State::Ready);
    let ready = admin.get("/ready").await;
    assert_eq!(ready.status, 200);
    let report = ready.json();
    assert_eq!((&report["state"], &report["ready"]), (&Value::from("ready"), &Value::from(true)));
    let first = &report["upstreams"]["cp-1"];
    let counts = ["connected", "connecting", "backoff", "stale"].map(|key| first[key].as_u64());
    assert_eq!(counts, [1, 0, 1, 1].map(Some));
    assert!((60.0..70.0).contains(&first["stale_seconds"].as_f64().unwrap()), "{first}");
    assert_eq!(first["last_error"], "UNAVAILABLE: gone");
    assert_eq!(report["upstreams"]["cp-2"]["stale_seconds"], Value::Null);
    assert_eq!(report["upstreams"]["cp-2"]["last_error"], Value::Null);

    admin.readiness.advance(State::Draining);
    admin.readiness.advance(State::Ready);
    let ready = admin.get("/ready").await;
    assert_eq!((ready.status, &ready.json()["state"]), (503, &Value::from("draining")));
    assert_eq!(admin.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn readiness_requires_an_upstream_only_where_asked_to() {
    let down = SourceState::Backoff { failures: 1, delay: Duration::from_secs(1) };
    let cases = [
        (vec![source("cp-1", down, true)], false, 200),
        (vec![source("cp-1", down, true)], true, 503),
        (vec![source("cp-1", down, true), source("cp-2", SourceState::Connected, false)], true, 200),
        (vec![], true, 200),
    ];
    for (sources, requires_upstream, status) in cases {
        let admin = Fixture::start(sources, requires_upstream);
        admin.readiness.advance(State::Ready);
        assert_eq!(admin.get("/ready").await.status, status);
    }
}

#[tokio::test]
async fn metrics_are_openmetrics() {
    let admin = Fixture::start(vec![], false);
    let stream = admin.metrics.downstream.stream(Variant::Sotw);
    let answer = admin.get("/metrics").await;
    assert_eq!(answer.status, 200);
    assert!(answer.head.contains(&format!("content-type: {CONTENT_TYPE}")), "{}", answer.head);
    assert!(answer.body.lines().any(|line| line == r#"sluice_downstream_streams{variant="sotw"} 1"#));
    assert!(answer.body.ends_with("# EOF\n"));
    drop(stream);
}

#[tokio::test]
async fn clients_are_filtered() {
    let admin = Fixture::start(vec![], false);
    let cases = [
        ("", SESSIONS, false),
        ("?limit=3", 3, true),
        ("?limit=0", 0, true),
        ("?node=node-42", 1, false),
        ("?node=node-42&state=ERROR", 0, false),
        ("?state=ERROR", SESSIONS / 100, false),
        ("?type=Cluster&state=SYNCED", SESSIONS - SESSIONS / 100, false),
        ("?type=Listener", 0, false),
    ];
    for (query, count, truncated) in cases {
        let list = admin.get(&format!("/clients{query}")).await.json();
        assert_eq!(list["clients"].as_array().unwrap().len(), count, "{query}");
        assert_eq!(list["count"], count, "{query}");
        assert_eq!(list["truncated"], truncated, "{query}");
    }
    let list = admin.get("/clients?node=node-100&type=Cluster").await.json();
    let client = &list["clients"][0];
    assert_eq!(client["variant"], "delta");
    assert_eq!(client["service"], "ADS");
    assert_eq!(client["peer"], "127.0.0.1:4000");
    let types = client["types"].as_array().unwrap();
    assert_eq!(types.len(), 1);
    assert_eq!(types[0]["state"], "ERROR");
    assert_eq!(types[0]["version_sent"], Version(0xabc).to_string());
    assert_eq!(types[0]["unacked_seconds"], 3.0);
    assert_eq!(types[0]["waits"], serde_json::json!({"name": "owed", "server": "cp-2", "seconds": 2.0}));
    assert_eq!(types[0]["held"], serde_json::json!({"why": "order", "what": "type-before", "seconds": 4.0}));
    assert_eq!(types[0]["nack"]["detail"], "sniffed-detail");
    assert_eq!(types[0]["nack"]["version"], Version(0xbad).to_string());
}

#[tokio::test]
async fn resources_and_sources_are_filtered() {
    let down = SourceState::Backoff { failures: 3, delay: Duration::from_secs(4) };
    let admin = Fixture::start(
        vec![source("cp-1", down, true), source("cp-2", SourceState::Connected, false)],
        false,
    );
    let cases = [
        ("/resources", "resources", 10),
        ("/resources?type=Cluster", "resources", 5),
        ("/resources?name=r3", "resources", 2),
        ("/resources?state=NACKED", "resources", 1),
        ("/resources?type=Cluster&state=ACKED&limit=2", "resources", 2),
        ("/sources", "sources", 2),
        ("/sources?state=backoff", "sources", 1),
        ("/sources?server=cp-2&type=Secret", "sources", 1),
        ("/sources?type=Listener", "sources", 0),
    ];
    for (target, name, count) in cases {
        let list = admin.get(target).await.json();
        assert_eq!(list[name].as_array().unwrap().len(), count, "{target}");
    }
    let list = admin.get("/resources?type=Cluster&name=r0").await.json();
    let resource = &list["resources"][0];
    assert_eq!((&resource["state"], &resource["bytes"]), (&Value::from("NACKED"), &Value::from(4711)));
    let list = admin.get("/resources?type=Cluster&name=r1").await.json();
    let resource = &list["resources"][0];
    assert_eq!(resource["state"], "ACKED", "by the relay");
    assert_eq!(resource["rejecting_clients"], SESSIONS / 100);
    assert_eq!(resource["rejected"], "sniffed-detail");
    let list = admin.get("/sources?server=cp-1").await.json();
    let source = &list["sources"][0];
    assert_eq!(source["last_error"], "UNAVAILABLE: gone");
    assert_eq!((&source["failures"], &source["backoff_seconds"]), (&Value::from(3), &Value::from(4.0)));
    assert_eq!(source["class_fields"][0][1], "edge");
}

#[tokio::test]
async fn a_secret_shows_only_its_name() {
    let admin = Fixture::start(vec![source("cp-1", SourceState::Connected, false)], false);
    let list = admin.get("/resources?type=Secret&name=r0").await.json();
    assert_eq!(list["resources"], serde_json::json!([{ "type": SECRET, "name": "r0" }]));
    for target in ["/resources?type=Secret", "/clients?node=node-100&type=Secret", "/sources?type=Secret"] {
        let body = admin.get(target).await.body;
        assert!(body.contains(SECRET), "{body}");
        for hidden in ["abc", "bad", "4711", "sniffed", "version", "bytes"] {
            assert!(!body.contains(hidden), "{hidden} in {body}");
        }
    }
}

#[tokio::test]
async fn an_invalid_query_is_refused_with_the_allowed_values() {
    let admin = Fixture::start(vec![], false);
    let cases = [
        ("/clients?name=x", r#"unknown query key "name"; allowed: node, type, state, limit"#),
        ("/clients?state=ACKED", r#"unknown state "ACKED"; allowed: SYNCED, NOT_SENT, STALE, ERROR"#),
        ("/clients?limit=-1", r#"limit is "-1"; allowed: a whole number"#),
        ("/clients?node=a&node=b", r#"duplicate query key "node""#),
        (
            "/sources?state=up",
            r#"unknown state "up"; allowed: connecting, connected, backoff, unanswered, ends_streams"#,
        ),
        ("/resources?node=x", r#"unknown query key "node"; allowed: type, name, state, limit"#),
        (
            "/resources?state=",
            "unknown state \"\"; allowed: REQUESTED, DOES_NOT_EXIST, ACKED, NACKED, RECEIVED_ERROR, TIMEOUT",
        ),
    ];
    for (target, reason) in cases {
        let answer = admin.get(target).await;
        assert_eq!((answer.status, answer.body.trim_end()), (400, reason), "{target}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_pulls_items_one_by_one_and_then_gets_them_all() {
    let admin = Fixture::start(vec![], false);
    let mut io = admin.connect();
    io.write_all(get_request("/clients").as_bytes()).await.unwrap();
    sleep(Duration::from_secs(10)).await;
    let pulled = admin.view.pulled.load(SeqCst);
    // Three chunks and the connection's buffer, at more than 500 bytes per client.
    assert!((1..200).contains(&pulled), "{pulled}");
    sleep(Duration::from_secs(10)).await;
    assert_eq!(admin.view.pulled.load(SeqCst), pulled, "nothing moves while nobody reads");

    let mut first = vec![0; 64 << 10];
    io.read_exact(&mut first).await.unwrap();
    sleep(Duration::from_secs(10)).await;
    let more = admin.view.pulled.load(SeqCst);
    assert!((pulled + 1..pulled + 200).contains(&more), "{pulled} -> {more}");

    let mut rest = Vec::new();
    io.read_to_end(&mut rest).await.unwrap();
    assert_eq!(admin.view.pulled.load(SeqCst), SESSIONS);
    assert!(String::from_utf8_lossy(&rest).contains("\"count\":10000,\"truncated\":false}"));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_stops_is_given_up_and_its_permit_comes_back() {
    let admin = Fixture::start(vec![], false);
    let mut stuck: Vec<_> = (0..REQUESTS_MAX).map(|_| admin.connect()).collect();
    for io in &mut stuck {
        io.write_all(get_request("/clients").as_bytes()).await.unwrap();
    }
    sleep(connection::STALL_TIMEOUT / 2).await;
    let refused = admin.get("/clients").await;
    assert_eq!(refused.status, 503);
    assert!(refused.head.contains("retry-after: 1"), "{}", refused.head);
    assert_eq!(admin.get("/metrics").await.status, 503);
    assert_eq!(admin.get("/healthz").await.status, 200, "probes are never starved");
    assert_eq!(admin.limit_hits(Limit::AdminRequests), "2");

    sleep(connection::STALL_TIMEOUT).await;
    assert_eq!(admin.view.finished.load(SeqCst), REQUESTS_MAX, "every iterator was dropped");
    assert_eq!(admin.get("/clients?limit=1").await.status, 200);
    let mut cut = String::new();
    stuck[0].read_to_string(&mut cut).await.unwrap();
    assert!(!cut.ends_with("0\r\n\r\n"), "a part does not look whole");
}

#[tokio::test(start_paused = true)]
async fn a_list_whose_view_fails_does_not_look_whole() {
    let response = list::respond("items", 10, |writer| async move { drop(writer) });
    assert!(response.into_body().collect().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn connections_are_bounded_in_number_and_in_waiting() {
    let admin = Fixture::start(vec![], false);
    let mut idle: Vec<_> = (0..CONNECTIONS_MAX).map(|_| admin.connect()).collect();
    idle[0].write_all(b"GET /healthz HTTP/1.1\r\nHost:").await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(admin.get("/healthz").await.status, 200, "in the place of the one that waits longest");
    assert_eq!(admin.limit_hits(Limit::AdminConnections), "1");
    sleep(Duration::from_secs(6)).await;
    assert_eq!(admin.get("/healthz").await.status, 200, "idle connections were closed");
}

#[tokio::test]
async fn large_heads_are_refused() {
    let admin = Fixture::start(vec![], false);
    let many: String = (0..HEADERS_SENT).map(|n| format!("h{n}: x\r\n")).collect();
    let mut io = admin.connect();
    let head = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{many}\r\n");
    // The connection may close before the whole head is written.
    let _ = io.write_all(head.as_bytes()).await;
    assert_eq!(read_answer(&mut io).await.status, 431);
    let mut io = admin.connect();
    let _ = io.write_all(format!("GET /{} HTTP/1.1\r\n", "x".repeat(64 << 10)).as_bytes()).await;
    let status = read_answer(&mut io).await.status;
    assert!([414, 431].contains(&status), "{status}");
}

#[tokio::test(start_paused = true)]
async fn shutdown_finishes_answers_under_way_and_waits_for_nothing_else() {
    let admin = Fixture::start(vec![], false);
    let mut reading = admin.connect();
    reading.write_all(get_request("/clients?limit=100").as_bytes()).await.unwrap();
    let mut stuck = admin.connect();
    stuck.write_all(get_request("/clients").as_bytes()).await.unwrap();
    let _idle = admin.connect();
    sleep(Duration::from_millis(10)).await;
    admin.shutdown.cancel();
    let list = read_answer(&mut reading).await.json();
    assert_eq!(list["count"], 100);
    let began = tokio::time::Instant::now();
    admin.server.await.unwrap();
    assert!(began.elapsed() <= SHUTDOWN_TIMEOUT);
}

#[tokio::test]
async fn tcp_and_unix_sockets_both_serve() {
    let view = Arc::new(FakeView::default());
    let metrics = Arc::new(Metrics::new());
    let readiness = Arc::new(Readiness::new(false));
    let shutdown = CancellationToken::new();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("admin.sock");
    let unix = tokio::net::UnixListener::bind(&path).unwrap();
    let tcp = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = tcp.local_addr().unwrap();
    tokio::spawn(Admin::serve(
        tcp,
        Vec::new(),
        view.clone(),
        readiness.clone(),
        metrics.clone(),
        shutdown.clone(),
    ));
    tokio::spawn(Admin::serve(unix, Vec::new(), view, readiness, metrics, shutdown));
    let mut by_tcp = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut by_unix = tokio::net::UnixStream::connect(&path).await.unwrap();
    by_tcp.write_all(get_request("/healthz").as_bytes()).await.unwrap();
    by_unix.write_all(get_request("/healthz").as_bytes()).await.unwrap();
    let (mut over_tcp, mut over_unix) = (String::new(), String::new());
    by_tcp.read_to_string(&mut over_tcp).await.unwrap();
    by_unix.read_to_string(&mut over_unix).await.unwrap();
    assert!(over_tcp.starts_with("HTTP/1.1 200 OK") && over_tcp.ends_with("ok\n"), "{over_tcp}");
    assert!(over_unix.starts_with("HTTP/1.1 200 OK") && over_unix.ends_with("ok\n"), "{over_unix}");
}

/// ADM-2: a web page that points its own name at this listener gets no answer, whatever the path.
#[tokio::test]
async fn adm_2_a_foreign_host_is_answered_nothing() {
    let admin = Fixture::start(vec![], false);
    for path in ["/", "/healthz", "/ready", "/metrics", "/clients", "/sources", "/resources", "/nothing"] {
        let ours = get_request(path);
        for host in ["evil.example", "evil.example:19000", "localhost.evil.example"] {
            let answer = admin.send(&ours.replace("localhost", host)).await;
            assert_eq!(answer.status, 421, "{path} {host}");
        }
    }
    assert_eq!(admin.send("GET /clients HTTP/1.0\r\n\r\n").await.status, 421);
    assert_eq!(admin.send(&get_request("/clients").replace("localhost", "[::1]:19000")).await.status, 200);
}

#[tokio::test]
async fn a_type_that_does_not_exist_is_no_empty_list() {
    let admin = Fixture::start(vec![], false);
    for list in ["/clients", "/sources", "/resources"] {
        let answer = admin.get(&format!("{list}?type=Clusterr&limit=1")).await;
        assert_eq!(answer.status, 400, "{list}");
        assert!(answer.body.contains("\"Clusterr\"") && answer.body.contains("Cluster"), "{}", answer.body);
        assert_eq!(admin.get(&format!("{list}?type=Cluster&limit=1")).await.status, 200, "{list}");
    }
}

/// ADM-14: a reader that takes an answer byte by byte holds its place for a bounded time.
#[tokio::test(start_paused = true)]
async fn adm_14_an_answer_has_a_deadline() {
    let admin = Fixture::start(vec![], false);
    let mut io = admin.connect();
    io.write_all(get_request("/clients").as_bytes()).await.unwrap();
    let begun = tokio::time::Instant::now();
    let mut bytes = [0; 1];
    while let Ok(1) = io.read(&mut bytes).await {
        // The buffer between both ends is read after the deadline, too.
        if begun.elapsed() < connection::ANSWER_TIMEOUT * 2 {
            sleep(connection::STALL_TIMEOUT / 2).await;
        }
    }
    assert_eq!(admin.view.finished.load(SeqCst), 1, "the walk has ended");
    assert!(admin.view.pulled.load(SeqCst) < SESSIONS, "before all was written");
}
