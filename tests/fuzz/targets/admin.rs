//! Requests to the admin listener.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sluice::admin::entrance::{AdminPeer, Entrance, Guest, Proving};
use sluice::admin::reloading::{ConfigHistory, KeyChange, ReloadResult, Reloading, Report, Wanted};
use sluice::admin::{
    self, AdminSettings, NotUpgraded, PredecessorStatus, Process, Readiness, UpgradeWish, Upgraded, Upgrading,
};
use sluice::driver::api::change_name::ChangeName;
use sluice::driver::api::changes::{ChangeFilter, ChangeStatus, ChangesView};
use sluice::driver::api::clients::{ClientView, Explanation, Holding, NameStatuses, NodeExplanation};
use sluice::driver::api::content::ContentView;
use sluice::driver::api::control::{ConfirmedDeletion, Controls, DeletionFilter};
use sluice::driver::api::emptying::{AlreadyEmptying, Emptying, EmptyingPhase, EmptyingStatus};
use sluice::driver::api::load::{ClassLoadStatus, LoadRow, LoadsView, RowQuery};
use sluice::driver::api::proof::ProofView;
use sluice::driver::api::rollouts::RolloutsView;
use sluice::driver::api::status::{
    ResourceFilter, ResourcePlace, ResourceStatus, SessionStatus, SourceStatus, StatusView,
};
use sluice::driver::api::study::StudyView;
use sluice::driver::api::tail::TailView;
use sluice::telemetry::Metrics;
use sluice::telemetry::logging::{LogFilter, LogLevel};
use sluice_engine::class::NodeClasses;
use sluice_setting::InForce;
use sluice_xds::{Node, ResourceName, TypeUrl};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::time::{Duration, timeout};
use tokio_util::sync::CancellationToken;

use super::Target;

pub const ADMIN_QUERY: Target = Target {
    name: "admin_query",
    run,
    seeds: || {
        [
            "0/clients?node=a&type=cds&state=SYNCED&limit=5",
            "0/clients?q=a&why=held:order&server=a&class=b&listener=c&behind_for=5m&sort=behind&after=NQ&limit=all",
            "0/clients/7?type=cds&names=1&limit=5",
            "0/clients/7/diff?to=client:8&any_class=1",
            "0/clients/7/explain?type=Cluster&name=x",
            "0/who?type=Cluster&name=x&version=01234567",
            "0/classes?q=x",
            "2POST /classes/explain HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{\"id\":\"a\"}",
            "0/classes/c0ffee/samples?limit=3",
            "1/classes/learn?server=a&types=cds,eds&for=1m&streams=2&per_minute=60&check=1",
            "0/sources?server=a%20b&state=connected",
            "0/resources?name=x%2fy&limit=0&state=ACKED",
            "0/refused?limit=18446744073709551615",
            "1/confirm_deletions?server=a&type=b",
            "0/ready",
            "0/metrics",
            "2GET /clients HTTP/1.1\r\nHost: localhost\r\nX: y\r\n\r\n",
            "2PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nB.\0.1\r\nHost: locB.\0;.",
            "2POST /confirm_deletions HTTP/1.1\r\nHost: 127.0.0.1:1\r\nOrigin: http://evil\r\nContent-Length: 1\r\n\r\nx",
        ]
        .iter()
        .map(|text| text.as_bytes().to_vec())
        .collect()
    },
    words: &[
        "/clients",
        "/sources",
        "/resources",
        "/refused",
        "/load",
        "/confirm_deletions",
        "/healthz",
        "?",
        "&",
        "=",
        "%",
        "%00",
        "%ff",
        "+",
        "node=",
        "type=",
        "state=",
        "limit=",
        "server=",
        "name=",
        "SYNCED",
        "connected",
        "ACKED",
        "-1",
        "18446744073709551616",
        "HTTP/1.0",
        "Host: evil.example\r\n",
        "\r\n",
        "#",
        "//",
        "Transfer-Encoding: chunked\r\n",
    ],
    mutations: 2_500,
    memory: None,
};

/// A relay without clients and sources.
struct Empty;

impl StatusView for Empty {
    fn sources(&self) -> Vec<Arc<SourceStatus>> {
        Vec::new()
    }

    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }

    fn sessions_after(&self, _: Option<u64>) -> Box<dyn Iterator<Item = SessionStatus> + Send + '_> {
        Box::new(std::iter::empty())
    }

    fn resources_after(
        &self,
        _: &ResourceFilter,
        _: Option<ResourcePlace>,
    ) -> Box<dyn Iterator<Item = ResourceStatus> + Send + '_> {
        Box::new(std::iter::empty())
    }
}

impl ChangesView for Empty {
    fn changes(&self, _: ChangeFilter) -> BoxFuture<'_, Vec<ChangeStatus>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    fn change(&self, _: ChangeName) -> BoxFuture<'_, Option<ChangeStatus>> {
        Box::pin(std::future::ready(None))
    }

    fn latest_change(&self) -> Option<ChangeStatus> {
        None
    }
}

impl RolloutsView for Empty {}

impl StudyView for Empty {}

impl ProofView for Empty {}

impl TailView for Empty {}

impl ContentView for Empty {}

impl ClientView for Empty {
    fn session(&self, _: u64) -> Option<SessionStatus> {
        None
    }

    fn names(&self, _: u64, _: &TypeUrl, _: Option<ResourceName>) -> Option<NameStatuses> {
        None
    }

    fn explain(&self, _: u64, _: &TypeUrl, _: Option<&ResourceName>) -> Option<Explanation> {
        None
    }

    fn holdings<'a>(
        &'a self,
        _: &'a TypeUrl,
        _: &'a ResourceName,
    ) -> Box<dyn Iterator<Item = Holding> + Send + 'a> {
        Box::new(std::iter::empty())
    }

    fn knows(&self, _: &TypeUrl, _: &ResourceName) -> bool {
        true
    }

    fn classify_node(&self, _: &Node) -> Vec<NodeExplanation> {
        Vec::new()
    }
}

/// No process of a fuzz target starts another.
impl Upgrading for Empty {
    fn upgrade(&self, _: UpgradeWish) -> BoxFuture<'static, Result<Upgraded, NotUpgraded>> {
        std::future::ready(Err(NotUpgraded::Failed(String::new()))).boxed()
    }

    fn predecessor(&self) -> Option<PredecessorStatus> {
        None
    }
}

impl Emptying for Empty {
    fn empty(&self, _: Duration, _: Option<Duration>) -> Result<(), AlreadyEmptying> {
        Err(AlreadyEmptying)
    }

    fn admit(&self) -> bool {
        false
    }

    fn status(&self) -> EmptyingStatus {
        let left = Duration::ZERO;
        EmptyingStatus {
            phase: EmptyingPhase::Serving,
            connections: 0,
            streams: 0,
            streams_before: 0,
            cut: 0,
            left,
        }
    }

    fn announce(&self) {}

    fn is_emptying(&self) -> bool {
        false
    }
}

impl Reloading for Empty {
    fn reload(&self, _: Wanted) -> BoxFuture<'static, Report> {
        Box::pin(std::future::ready(Report::new(ReloadResult::Unchanged, 1)))
    }

    fn rules_of(&self, _: String) -> BoxFuture<'static, Result<NodeClasses, Vec<String>>> {
        Box::pin(std::future::ready(Ok(NodeClasses::default())))
    }

    fn status(&self) -> Arc<ConfigHistory> {
        let (generations, needs_process) = (Vec::new(), Vec::new());
        Arc::new(ConfigHistory { file: None, generations, last_reload: None, needs_process })
    }

    fn difference(&self, _: u64, _: u64) -> Option<Vec<KeyChange>> {
        None
    }
}

impl LoadsView for Empty {
    fn loads(&self) -> Vec<ClassLoadStatus> {
        Vec::new()
    }

    fn load_rows(&self, _number: u64, _query: &RowQuery<'_>) -> Vec<LoadRow> {
        Vec::new()
    }
}

impl Controls for Empty {
    fn refresh(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn confirm_deletions(&self, _: DeletionFilter) -> BoxFuture<'_, Vec<ConfirmedDeletion>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    fn first_answers_per_second(&self) -> u32 {
        1000
    }

    fn end_stream(&self, _: u64) -> bool {
        false
    }
}

struct InMemory(mpsc::UnboundedReceiver<DuplexStream>);

impl Entrance for InMemory {
    type Io = DuplexStream;

    async fn accept(&mut self) -> Proving<DuplexStream> {
        match self.0.recv().await {
            // A peer on loopback.
            Some(io) => {
                let address = Some(std::net::SocketAddr::from(([127, 0, 0, 1], 1)));
                let peer = AdminPeer { address, ..AdminPeer::default() };
                Box::pin(std::future::ready(Some(Guest {
                    io,
                    peer,
                    selected_http2: None,
                    end: Box::pin(std::future::pending()),
                })))
            }
            None => std::future::pending().await,
        }
    }
}

struct Host {
    runtime: Runtime,
    connections: mpsc::UnboundedSender<DuplexStream>,
}

thread_local! {
    static HOST: Host = {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (connections, accepted) = mpsc::unbounded_channel();
        let settings = InForce::new(AdminSettings::default());
        let log = LogLevel::new(LogFilter::without_log(), "off".to_owned());
        let (readiness, upgrading) = (Arc::new(Readiness::default()), Arc::new(Empty));
        let (emptying, reloading) = (Arc::new(Empty), Arc::new(Empty));
        let process = Process { readiness, emptying, log, upgrading, reloading };
        let (metrics, stop) = (Arc::new(Metrics::new()), CancellationToken::new());
        runtime.spawn(admin::serve(InMemory(accepted), settings, Arc::new(Empty), process, metrics, stop));
        Host { runtime, connections }
    };
}

/// The answer to a request; with `ends`, the client ends its side.
fn talk(request: &[u8], ends: bool) -> Vec<u8> {
    HOST.with(|host| {
        host.runtime.block_on(async {
            let (mut io, server) = duplex(1 << 20);
            host.connections.send(server).unwrap();
            let _ = io.write_all(request).await;
            if ends {
                let _ = io.shutdown().await;
            }
            let mut answer = Vec::new();
            let read = timeout(Duration::from_secs(8), io.read_to_end(&mut answer)).await;
            assert!(read.is_ok(), "the listener keeps an ended connection");
            answer
        })
    })
}

/// The preface of a client in HTTP/2 (RFC 9113, 3.4).
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const STATUSES: &[u16] = &[200, 400, 403, 404, 405, 408, 411, 413, 414, 421, 431, 503, 505];

fn run(data: &[u8]) {
    let Some((form, rest)) = data.split_first() else { return };
    let is_raw = form % 3 == 2;
    let method = if form % 3 == 1 { "POST" } else { "GET" };
    let head = [method.as_bytes(), b" ", rest, b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"]
        .concat();
    let answer = talk(if is_raw { rest } else { &head }, is_raw);
    if is_raw && rest.starts_with(HTTP2) {
        // The answer has frames.
        return;
    }
    let text = String::from_utf8_lossy(&answer);
    let status = text.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok());
    assert!(answer.is_empty() || status.is_some_and(|status| STATUSES.contains(&status)), "{text}");
    let is_plain = !rest.is_empty()
        && rest.iter().all(|byte| byte.is_ascii_alphanumeric() || b"/?&=%+-_.~".contains(byte));
    if is_raw || !is_plain || rest[0] != b'/' {
        return;
    }
    let target = String::from_utf8_lossy(rest);
    if let Some(is_good) = judge(method, &target) {
        // 404: nothing is held back.
        let is_right = if is_good { matches!(status, Some(200 | 404)) } else { status == Some(400) };
        assert!(is_right, "{method} {target}: {text}");
    }
}

/// Whether the endpoint takes the query; `None`: another status, or a type that may not exist.
fn judge(method: &str, target: &str) -> Option<bool> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (wanted, keys): (_, &[&str]) = match path {
        "/clients" => (
            "GET",
            &[
                "node",
                "q",
                "type",
                "state",
                "why",
                "server",
                "class",
                "listener",
                "behind_for",
                "sort",
                "after",
                "limit",
            ],
        ),
        "/sources" => ("GET", &["server", "type", "state", "after", "limit"]),
        "/resources" => ("GET", &["type", "name", "state", "after", "limit"]),
        "/refused" => ("GET", &["after", "limit"]),
        "/load" => ("GET", &["cluster", "server", "class", "sort", "after", "limit"]),
        "/confirm_deletions" => ("POST", &["server", "type"]),
        _ => return None,
    };
    let mut values: BTreeMap<String, String> = BTreeMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if values.insert(decoded(key), decoded(value)).is_some() {
            return (method == wanted).then_some(false);
        }
    }
    if method != wanted {
        return None;
    }
    if values.keys().any(|key| !keys.contains(&key.as_str())) {
        return Some(false);
    }
    let limit = values.get("limit");
    let is_limit = |limit: &str| {
        let number = limit.strip_prefix('+').unwrap_or(limit).parse::<usize>();
        limit == "all" || number.is_ok_and(|number| number <= 1_000)
    };
    if limit.is_some_and(|limit| !is_limit(limit)) {
        return Some(false);
    }
    // Types, words and cursors are judged by tables of the relay.
    let judged = ["type", "state", "why", "behind_for", "sort", "after"];
    let is_certain = !judged.iter().any(|key| values.contains_key(*key));
    is_certain.then_some(true)
}

fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(byte) = bytes.get(at) {
        let digits = text.get(at + 1..at + 3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let is_escape = *byte == b'%' && text.get(at + 1..at + 2) != Some("+");
        match (is_escape, digits) {
            (true, Some(value)) => {
                found.push(value);
                at += 2;
            }
            _ => found.push(if *byte == b'+' { b' ' } else { *byte }),
        }
        at += 1;
    }
    String::from_utf8_lossy(&found).into_owned()
}
