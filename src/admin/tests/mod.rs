#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod access;
mod acts;
mod changes;
mod classes;
mod clients;
mod connections;
mod content;
mod csds;
mod endpoints;
mod events;
mod golden;
mod learning;
mod lists;
mod loads;
mod orders;
mod overview;
mod proofs;
mod questions;
mod reloads;
mod rollouts;
mod slow;
mod tail;
mod ui;

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, SystemTime};

use futures_util::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;
use serde_json::Value;
use sluice_admin_api::endpoints::Endpoint;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::{sync::mpsc, task::JoinHandle, time::sleep};
use tokio_util::sync::CancellationToken;

use acts::{FakeProcess, FakeServer};
use classes::class_choice;
use connections::OnDrop;
use lists::resource;
use reloads::FakeReloads;

use super::entrance::{AdminPeer, Guest, Proving};
use super::*;
use crate::driver::api::clients::{
    ClassChoice, ClientTypes, ClientView, Explanation, HeldVersion, Holding, NameExplanation, NameStatus,
    NameStatuses, NearMiss, NodeExplanation, RuleText,
};
use crate::driver::api::control::{ConfirmedDeletion, DeletionFilter};
use crate::driver::api::downstream::Variant;
use crate::driver::api::emptying::Emptying as _;
use crate::driver::api::status::{
    ClassStatus, ClientStatus, ConfigStatus, Confirmed, HeldStatus, NackStatus, RefusalStatus,
    ResourceFilter, ResourcePlace, ResourceStatus, RuleId, SessionStatus, SessionTypeStatus, SourceState,
    SourceStatus, SourceTypeStatus, StatusView, TierStatus, WaitStatus, Why,
};
use crate::driver::api::tail::Tails;
use crate::driver::api::{change_name::ChangeName, changes::ChangeStatus};
use crate::telemetry::logging::{LogFilter, LogLevel};
use crate::trust::{rotation::Watched, tokens::Tokens};
use sluice_identity::Identity;
use sluice_xds::{Code, Node, ResourceName, Status, TypeUrl, Version};

const SESSIONS: usize = 10_000;
const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";
/// More than the listener accepts, and fewer than the HTTP library's default.
const HEADERS_SENT: usize = 80;
const SECRET: &str = "envoy.extensions.transport_sockets.tls.v3.Secret";

/// A relay with many clients, of which every hundredth has NACKed.
#[derive(Default)]
struct FakeView {
    clients: usize,
    sources: Vec<Arc<SourceStatus>>,
    tiers: Vec<TierStatus>,
    changes: Vec<ChangeStatus>,
    rollouts: Vec<Arc<crate::driver::api::rollouts::RolloutStatus>>,
    pulled: AtomicUsize,
    finished: AtomicUsize,
    /// The streams that an operator ended.
    ended: Mutex<Vec<u64>>,
    tails: Arc<Tails>,
    /// No source has the former version of a resource.
    is_old_gone: bool,
    is_ledger_away: bool,
    /// The ledger takes no writes.
    is_ledger_full: bool,
}

impl StatusView for FakeView {
    fn sources(&self) -> Vec<Arc<SourceStatus>> {
        self.sources.clone()
    }

    fn tiers(&self) -> Vec<TierStatus> {
        self.tiers.clone()
    }

    fn now(&self) -> SystemTime {
        now()
    }

    fn sessions_after(&self, after: Option<u64>) -> Box<dyn Iterator<Item = SessionStatus> + Send + '_> {
        let finished = OnDrop(&self.finished);
        let first = after.map_or(0, |after| after as usize + 1);
        Box::new((first..self.clients).map(move |n| {
            let _held = &finished;
            self.pulled.fetch_add(1, SeqCst);
            session(n)
        }))
    }

    fn resources_after(
        &self,
        filter: &ResourceFilter,
        after: Option<ResourcePlace>,
    ) -> Box<dyn Iterator<Item = ResourceStatus> + Send + '_> {
        let types = [CLUSTER, SECRET].map(TypeUrl::of_message);
        let wanted: Vec<_> = types.into_iter().filter(|url| filter.wants_type(url)).collect();
        let all = wanted.into_iter().flat_map(|url| (0..5).map(move |n| resource(&url, n)));
        let key = |place: &ResourcePlace| (place.type_url.clone(), place.name.clone());
        Box::new(all.filter(move |of| after.as_ref().is_none_or(|after| key(&of.place()) > key(after))))
    }

    fn refusals(&self) -> Vec<RefusalStatus> {
        let refusal = |number| RefusalStatus {
            number,
            limit: "node_classes",
            node_id: format!("refused-{number}"),
            node_cluster: "edge".to_owned(),
            type_url: TypeUrl::of_message(CLUSTER),
            stream: number,
            peer: None,
            count: 1,
            last: now(),
        };
        (0..5).rev().map(refusal).collect()
    }
}

impl ClientView for FakeView {
    fn session(&self, id: u64) -> Option<SessionStatus> {
        (id < self.clients as u64).then(|| session(id as usize))
    }

    /// Five names: in sync, rejected, unACKed, withheld and unknown.
    fn names(&self, id: u64, type_url: &TypeUrl, after: Option<ResourceName>) -> Option<NameStatuses> {
        self.session(id)?.types.iter().find(|of| of.type_url == *type_url)?;
        let (old, new) = (Some(HeldVersion::Known(Version(1))), Some(Version(2)));
        let names = [
            ("a", Some(HeldVersion::Known(Version(2))), new, None),
            ("b", old, new, Some(Why::Rejected)),
            ("c", None, new, Some(Why::Unacked)),
            ("d", old, None, Some(Why::Withheld)),
            ("e", Some(HeldVersion::Unknown), None, Some(Why::Unknown)),
        ];
        let names = names.into_iter().map(|(name, has, should, why)| NameStatus {
            name: ResourceName::new(name),
            has,
            should,
            why,
            refused: None,
        });
        Some(Box::new(names.filter(move |of| after.as_ref().is_none_or(|after| of.name > *after))))
    }

    fn explain(&self, id: u64, type_url: &TypeUrl, name: Option<&ResourceName>) -> Option<Explanation> {
        let mut session = self.session(id)?;
        session.types.retain(|of| of.type_url == *type_url);
        let at_client = |name: &ResourceName| self.names(id, type_url, None)?.find(|of| of.name == *name);
        Some(Explanation {
            session,
            class: class_choice(),
            list: "xds_servers".into(),
            servers: vec!["cp-1".into(), "cp-2".into()],
            server: Some("cp-1".into()),
            source: self.sources.first().cloned(),
            name: name.map(|name| NameExplanation {
                name: name.clone(),
                at_client: at_client(name),
                collection: Some("wildcard"),
                state: "PRESENT",
                entry: Some("acked"),
                cause: None,
                error: None,
                received_at: Some(now()),
            }),
        })
    }

    /// Every third client asks for nothing.
    fn holdings<'a>(
        &'a self,
        type_url: &'a TypeUrl,
        name: &'a ResourceName,
    ) -> Box<dyn Iterator<Item = Holding> + Send + 'a> {
        Box::new((0..self.clients as u64).map(move |id| {
            let names = self.names(id, type_url, None).filter(|_| !id.is_multiple_of(3));
            let name = names.into_iter().flatten().find(|of| of.name == *name);
            let (user_agent, nack) = questions::version_verdict(id);
            Holding { id, node_id: format!("node-{id}").into(), user_agent, name, nack }
        }))
    }

    fn type_states(&self) -> Box<dyn Iterator<Item = ClientTypes> + Send + '_> {
        Box::new((0..self.clients as u64).map(questions::type_states))
    }

    fn lost_streams(&self, _: &TypeUrl) -> Vec<(u64, u64)> {
        self.sources.iter().map(|source| (source.id, 9)).collect()
    }

    fn knows(&self, _: &TypeUrl, name: &ResourceName) -> bool {
        ["a", "b", "c", "d", "e"].contains(&name.as_str())
    }

    fn classify_node(&self, node: &Node) -> Vec<NodeExplanation> {
        let mut class = class_choice();
        class.rule.as_mut().unwrap().splits = format!("cluster={:?}", node.cluster);
        vec![NodeExplanation { type_url: TypeUrl::of_message(CLUSTER), names: "old", class, refused: None }]
    }
}

impl Controls for FakeView {
    fn refresh(&self) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }

    fn confirm_deletions(&self, filter: DeletionFilter) -> BoxFuture<'_, Vec<ConfirmedDeletion>> {
        let sources = self.sources.iter().filter(|source| filter.concerns(source));
        let done = sources.map(|source| ConfirmedDeletion { source: source.clone(), removed: 7 }).collect();
        std::future::ready(done).boxed()
    }

    fn first_answers_per_second(&self) -> u32 {
        2
    }

    fn end_stream(&self, id: u64) -> bool {
        self.ended.lock().push(id);
        id < SESSIONS as u64
    }
}

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_100_000)
}

fn session(n: usize) -> SessionStatus {
    let nacked = n.is_multiple_of(100);
    let nack = NackStatus {
        version: Some(Version(0xbad)),
        detail: "sniffed-detail".into(),
        at: SystemTime::UNIX_EPOCH,
        names: vec![ResourceName::new("b")],
    };
    let of = |message: &str| SessionTypeStatus {
        type_url: TypeUrl::of_message(message),
        server: Some("cp-1".into()),
        class: Some(if n == SESSIONS - 1 { "c1a55" } else { "c0ffee" }.into()),
        rules: vec![RuleId { entry: 1, is_default: true }],
        fallback: false,
        change: Some(ChangeName { source: 3, number: 9 }),
        stale_since: None,
        wildcard: true,
        names: 0,
        version_sent: Some(Version(0xabc)),
        version_acked: (n == csds::ACKED).then_some(Version(0xabc)),
        nonce: Some("7".into()),
        state: if nacked { ConfigStatus::Error } else { ConfigStatus::Synced },
        why: nacked.then_some(Why::Rejected),
        // The longest behind has neither the first nor the last id.
        since: SystemTime::UNIX_EPOCH + Duration::from_secs((n as u64 * 7_919) % 100_003),
        has: Some(Version(0xabc)),
        should: Some(Version(0xdef)),
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
            why: Why::Order,
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
        identity: Arc::new(Identity::Unix { uid: 7 }),
        relays: None,
        kind: Variant::Delta.into(),
        opened_at: SystemTime::UNIX_EPOCH + Duration::from_secs((n as u64 * 104_729) % 100_003),
        seats: Vec::new(),
        types: vec![of(CLUSTER), of(SECRET)],
    }
}

fn source(server: &str, state: SourceState, stale: bool) -> Arc<SourceStatus> {
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
        silent: None,
        no_room: None,
        lost: None,
        bytes: 4711,
        version: Some(Version(0xabc)),
    };
    let fields = Arc::from([("cluster".to_owned(), "edge".to_owned())]);
    Arc::new(SourceStatus {
        id: server.bytes().map(u64::from).sum(),
        server: server.into(),
        list: "xds_servers".into(),
        stream: None,
        is_shadow: false,
        class: ClassStatus { digest: "c0ffee".into(), fields },
        shown: "relay/c0ffee".into(),
        evidence: None,
        state,
        since: now(),
        last_error: stale.then(|| Status::new(Code::Unavailable, "gone")),
        answered: true,
        restored: false,
        stale_since: stale.then_some(now() - Duration::from_secs(60)),
        confirmed: Confirmed::Now,
        variant: Some(Variant::Delta),
        has_marks: false,
        types: vec![of(CLUSTER), of(SECRET)],
    })
}

/// Connections come from a channel, each with its peer. Both ends are in memory, so tests control the time.
struct MemoryEntrance(mpsc::UnboundedReceiver<Guest<DuplexStream>>);

impl Entrance for MemoryEntrance {
    type Io = DuplexStream;

    async fn accept(&mut self) -> Proving<DuplexStream> {
        match self.0.recv().await {
            Some(guest) => std::future::ready(Some(guest)).boxed(),
            None => std::future::pending().await,
        }
    }
}

struct Fixture {
    view: Arc<FakeView>,
    settings: InForce<AdminSettings>,
    readiness: Arc<Readiness>,
    emptying: Arc<FakeServer>,
    process: Arc<FakeProcess>,
    log: Arc<LogLevel>,
    reloading: Arc<FakeReloads>,
    metrics: Arc<Metrics>,
    shutdown: CancellationToken,
    connections: mpsc::UnboundedSender<Guest<DuplexStream>>,
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
        let settings =
            AdminSettings { ready_requires_upstream: requires_upstream, ..AdminSettings::default() };
        Fixture::with(sources, settings, None)
    }

    fn with(
        sources: Vec<Arc<SourceStatus>>,
        settings: AdminSettings,
        tokens: Option<Watched<Tokens>>,
    ) -> Fixture {
        Fixture::of(
            FakeView {
                clients: SESSIONS,
                sources,
                changes: changes::some(),
                rollouts: rollouts::some(),
                ..FakeView::default()
            },
            settings,
            tokens,
        )
    }

    /// A relay with this many clients.
    fn of_clients(clients: usize) -> Fixture {
        let view = FakeView { clients, ..FakeView::default() };
        Fixture::of(view, AdminSettings::default(), None)
    }

    fn of(view: FakeView, settings: AdminSettings, tokens: Option<Watched<Tokens>>) -> Fixture {
        let view = Arc::new(view);
        let emptying = Arc::new(FakeServer::default());
        let drain = emptying.clone();
        let readiness = Arc::new(Readiness::default().with_drain(move || drain.is_emptying()));
        let log = LogLevel::new(LogFilter::without_log(), "info".to_owned());
        let (process, reloading) = (Arc::new(FakeProcess::default()), Arc::new(FakeReloads::default()));
        let parts = Process {
            readiness: readiness.clone(),
            emptying: emptying.clone(),
            log: log.clone(),
            upgrading: process.clone(),
            reloading: reloading.clone(),
        };
        let settings = InForce::new(AdminSettings { tokens, ..settings });
        let metrics = Arc::new(Metrics::new());
        let shutdown = CancellationToken::new();
        let (connections, accepted) = mpsc::unbounded_channel();
        let admin = serve(
            MemoryEntrance(accepted),
            settings.clone(),
            view.clone(),
            parts,
            metrics.clone(),
            shutdown.clone(),
        );
        let server = tokio::spawn(admin);
        Fixture {
            view,
            settings,
            readiness,
            emptying,
            process,
            log,
            reloading,
            metrics,
            shutdown,
            connections,
            server,
        }
    }

    fn connect(&self) -> DuplexStream {
        self.connect_as(AdminPeer::default())
    }

    fn connect_as(&self, peer: AdminPeer) -> DuplexStream {
        let (client, io) = duplex(1024);
        let guest = Guest { io, peer, selected_http2: None, end: std::future::pending().boxed() };
        assert!(self.connections.send(guest).is_ok());
        client
    }

    async fn send(&self, request: &str) -> Answer {
        self.send_as(AdminPeer::default(), request).await
    }

    async fn send_as(&self, peer: AdminPeer, request: &str) -> Answer {
        let mut io = self.connect_as(peer);
        io.write_all(request.as_bytes()).await.unwrap();
        read_answer(&mut io).await
    }

    async fn get(&self, target: &str) -> Answer {
        self.send(&get_request(target)).await
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
