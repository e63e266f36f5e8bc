//! The studies of a running relay: one for each server at a time, with the nodes of the connected clients.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::info;

use super::coarse::{Coarse, judge};
use super::findings::Findings;
use super::inquiry::{Inquiry, InquiryPace, Permit, inquire};
use super::nodes::{NodeList, Omission};
use crate::driver::api::study::{CheckedRules, LearnOrder, LearnRefusal, LearnState};
use crate::driver::ground::context::{DriverContext, DriverSettings};
use crate::driver::ground::proof_rules::ProofRules;
use crate::driver::ground::servers::{Attach, ListedServer, Place};
use crate::driver::source::asker::Asker;
use crate::driver::source::handle::Subscriber;
use crate::driver::stream::state::Tables;
use sluice_admin_api::learning::StudyReport;
use sluice_engine::authority::Authority;
use sluice_engine::class::{NameStyle, NodeClasses};
use sluice_proof::learning::{Fleet, StudyEnd, is_lossless, propose};

/// The first line of the rules, by which the command knows its files.
const HEAD: &str = "Written by `sluice classes learn`.";

/// The remembered orders.
const ORDERS_MAX: usize = 4;

/// An order that nobody asks about for so long is given up: its operator has left.
const WATCHED_FOR: Duration = Duration::from_secs(60);

/// The names in the distinct answers of a study: some 50 MB.
const NAMES_MAX: usize = 1_000_000;

/// The streams between two chances for other tasks of the thread.
const STREAMS_PER_TURN: u64 = 1_000;

/// The studies under way, and the latest ones.
#[derive(Default)]
pub struct Studies(Mutex<Orders>);

#[derive(Default)]
struct Orders {
    last: u64,
    studies: BTreeMap<u64, Arc<RunningStudy>>,
}

/// One study.
struct RunningStudy {
    place: Place,
    server: Arc<str>,
    nodes: AtomicUsize,
    asked: AtomicUsize,
    /// The last question for the progress.
    watched_at: Mutex<Instant>,
    result: OnceLock<Result<Arc<StudyReport>, Arc<str>>>,
}

impl Studies {
    /// See [`StudyView::learn`](crate::driver::api::study::StudyView::learn). Must be called within a tokio
    /// runtime.
    pub fn begin(
        &self,
        order: LearnOrder,
        shared: &Arc<DriverContext>,
        tables: &Tables,
    ) -> Result<u64, LearnRefusal> {
        let settings = shared.epoch();
        let listed = server_of(&settings, &order)?;
        let place = listed.place();
        if !matches!(listed.server().attach, Attach::Grpc { .. }) {
            return Err(LearnRefusal::NotAsked(
                "a directory tells all clients the same, and polls have no stream to ask on",
            ));
        }
        let sources = tables.sources.all();
        if sources.iter().any(|source| source.key().place == place && source.has_lifecycle()) {
            return Err(LearnRefusal::NotAsked(
                "the server registers clients when they connect, by its own words",
            ));
        }
        let mut orders = self.0.lock();
        let is_busy = |study: &RunningStudy| study.place == place && study.result.get().is_none();
        if let Some((number, _)) = orders.studies.iter().find(|(_, study)| is_busy(study)) {
            return Err(LearnRefusal::Busy(*number));
        }
        let study = Arc::new(RunningStudy {
            place,
            server: listed.server().uri.clone(),
            nodes: AtomicUsize::new(0),
            asked: AtomicUsize::new(0),
            watched_at: Mutex::new(Instant::now()),
            result: OnceLock::new(),
        });
        orders.last += 1;
        let number = orders.last;
        orders.studies.insert(number, study.clone());
        orders.forget();
        drop(orders);
        tokio::spawn(study.run(order, shared.clone(), tables.clone()));
        Ok(number)
    }

    /// See [`StudyView::learn_state`](crate::driver::api::study::StudyView::learn_state).
    pub fn state(&self, order: u64) -> Option<LearnState> {
        let study = self.0.lock().studies.get(&order)?.clone();
        *study.watched_at.lock() = Instant::now();
        Some(LearnState {
            server: study.server.clone(),
            nodes: study.nodes.load(Ordering::Relaxed),
            asked: study.asked.load(Ordering::Relaxed),
            result: study.result.get().cloned(),
        })
    }
}

impl Orders {
    /// Forgets the oldest orders that are over.
    fn forget(&mut self) {
        while self.studies.len() > ORDERS_MAX
            && let Some(number) =
                self.studies.iter().find(|(_, study)| study.result.get().is_some()).map(|(number, _)| *number)
        {
            self.studies.remove(&number);
        }
    }
}

/// The server that an order names, or the one that clients have their content from.
fn server_of<'a>(settings: &'a DriverSettings, order: &LearnOrder) -> Result<ListedServer<'a>, LearnRefusal> {
    let named = |uri: &String| settings.lists.configured().find(|listed| *listed.server().uri == **uri);
    let first = order.types.whole.first().or(order.types.named.first());
    let listed = match (&order.server, first) {
        (Some(uri), _) => named(uri),
        (None, Some(type_url)) => Some(settings.lists.route(type_url, Authority::None).at(0)),
        (None, None) => settings.lists.configured().next(),
    };
    listed.ok_or_else(|| {
        let servers = settings.lists.configured().map(|listed| listed.server().uri.clone());
        LearnRefusal::NoServer(servers.collect())
    })
}

impl RunningStudy {
    /// Runs to the end. A panic harms neither sources nor streams: its shadows close.
    async fn run(self: Arc<RunningStudy>, order: LearnOrder, shared: Arc<DriverContext>, tables: Tables) {
        let server = self.server.clone();
        info!(%server, "asks the upstream as the connected clients, on the order of an operator");
        let study = self.clone();
        let task = tokio::spawn(async move { study.learn(order, &shared, &tables).await });
        let result = task.await.unwrap_or_else(|_| Err("a fault of sluice; the log says more".into()));
        info!(%server, asked = self.asked.load(Ordering::Relaxed), "asks the upstream as clients no longer");
        // The study runs once.
        self.result.get_or_init(|| result);
    }

    async fn learn(
        &self,
        order: LearnOrder,
        shared: &Arc<DriverContext>,
        tables: &Tables,
    ) -> Result<Arc<StudyReport>, Arc<str>> {
        let settings = shared.epoch();
        let list = Arc::new(connected(&settings, &order, tables).await);
        if list.nodes.is_empty() {
            let account = list.account().join("; ");
            return Err(format!("no client to ask as, of {}; {account}", list.entries).into());
        }
        self.nodes.store(list.nodes.len(), Ordering::Relaxed);
        let nodes = list.nodes.clone();
        let fleet = Arc::new(apart(move || Fleet::new(nodes)).await?);
        let asker = Arc::new(Asker::of_relay(shared.clone(), tables.sources.clone(), self.place));
        let pace = InquiryPace {
            streams: order.streams,
            per_minute: order.per_minute,
            longest: order.longest,
            names_max: NAMES_MAX,
        };
        let look = |asked| {
            self.asked.store(asked, Ordering::Relaxed);
            self.permit(shared)
        };
        let inquiry = inquire(asker, &list, &fleet, order.types.clone(), pace, look).await;
        if inquiry.study.evidence().types().next().is_none() {
            return Err(inquiry.reason().into());
        }
        let rules = order.check.map(|check| match check {
            CheckedRules::InForce => shared.settings().classes.clone(),
            CheckedRules::Of(rules) => rules.with_facts(shared.settings().classes.facts.table.clone()),
        });
        let server = self.server.clone();
        apart(move || conclude(&server, &list, &fleet, &inquiry, rules.as_ref())).await?.map(Arc::new)
    }

    /// Whether another client may be asked as now (PRF-20).
    fn permit(&self, shared: &DriverContext) -> Permit {
        if shared.is_leaving() {
            return Permit::End(StudyEnd::Leaving);
        }
        if self.watched_at.lock().elapsed() > WATCHED_FOR {
            return Permit::End(StudyEnd::Abandoned);
        }
        if shared.clients.pressure.is_high() { Permit::Wait } else { Permit::Ask }
    }
}

/// The nodes of the connected clients, as the server sees them (PRF-4).
async fn connected(settings: &DriverSettings, order: &LearnOrder, tables: &Tables) -> NodeList {
    let none = ProofRules::default();
    let rules = settings.proof.as_deref().unwrap_or(&none);
    let (mut list, mut last, mut looked) = (NodeList::default(), None, 0_u64);
    while let Some(stream) = tables.streams.next(last) {
        last = Some(stream.number());
        looked += 1;
        if looked.is_multiple_of(STREAMS_PER_TURN) {
            tokio::task::yield_now().await;
        }
        // A client has several streams, and one without a node so far has nothing to ask.
        let Some(node) = stream.node().filter(|node| !list.has(&node.id)) else { continue };
        let identity = &stream.context.peer.identity;
        let place = format!("stream {}", stream.number());
        let first = order.types.whole.first().or(order.types.named.first());
        let class = first.and_then(|type_url| {
            settings.classes.classify(Some(&node), identity, type_url, NameStyle::Old).ok()
        });
        match class {
            None => {
                list.entries += 1;
                list.omit(Omission::Unclassified, &format!("{place} ({})", node.id), None);
            }
            Some(class) if class.identity_metadata.is_some() => {
                let shown = Arc::new(class.with_identity((*node).clone()));
                list.add(shown, identity.clone(), rules, &place);
            }
            Some(_) => list.add(node, identity.clone(), rules, &place),
        }
    }
    list
}

/// Searches for the rules, and compares others with the evidence.
fn conclude(
    server: &str,
    list: &NodeList,
    fleet: &Fleet,
    inquiry: &Inquiry,
    rules: Option<&NodeClasses>,
) -> Result<StudyReport, Arc<str>> {
    let evidence = inquiry.study.evidence();
    let proposal = propose(fleet, evidence);
    if !is_lossless(fleet, evidence, &proposal.rules) {
        return Err("a fault of sluice: the rules that were found lose answers".into());
    }
    let coarse: Option<Vec<Coarse>> = rules.map(|rules| judge(rules, fleet, &list.identities, evidence));
    let coarse = coarse.as_deref();
    Ok(Findings { server, list, fleet, inquiry, proposal: &proposal, coarse, head: HEAD }.report())
}

/// Runs a computation that may take a second, beside the workers.
async fn apart<T: Send + 'static>(compute: impl FnOnce() -> T + Send + 'static) -> Result<T, Arc<str>> {
    let computed = tokio::task::spawn_blocking(compute).await;
    computed.map_err(|_| "a fault of sluice; the log says more".into())
}
