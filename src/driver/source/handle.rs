//! A source as streams and the admin listener see it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::mpsc::error::SendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

use crate::client::TakenConnection;
use crate::driver::api::content::UpstreamVersions;
use crate::driver::api::estate::Estate;
use crate::driver::api::proof::Replica;
use crate::driver::api::status::SourceStatus;
use crate::driver::ground::context::DriverContext;
use crate::driver::ground::plans::{PlanHandle, Plans};
use crate::driver::ground::servers::Server;
use crate::driver::ground::source_key::{Owner, SourceKey};
use crate::driver::source::changes::ChangeRing;
use crate::driver::source::lane_order::{LaneContent, LaneOrder, Ordered};
use crate::driver::source::losses::Losses;
use crate::driver::source::rejected::Rejected;
use sluice_engine::Time;
use sluice_engine::cache::SessionId;
use sluice_engine::class::UpstreamNode;
use sluice_engine::collection::{Collection, NameSet};
use sluice_engine::downstream::SourceId;
use sluice_engine::lanes::Published;
use sluice_engine::last_word::Confirmed;
use sluice_engine::snapshot::Snapshot;
use sluice_engine::source::CollectionKey;
use sluice_fleet::rollout::{Plan, Seat};
use sluice_xds::{Code, Node, RelayPath, Status, TypeUrl};

/// The maximum number of changes in a source's queue. Streams with more changes wait.
const COMMANDS_MAX: usize = 4096;

/// The table of sources.
pub trait SourceListing: Send + Sync {
    /// Removes a source from the table if nobody uses it, and returns whether it was removed. Called by the
    /// source's own task.
    fn retire(&self, source: &Arc<SourceHandle>) -> bool;

    /// Removes a source after a failed begin, to make room for a new source.
    fn forget(&self, source: &SourceHandle);

    /// The sources of the same class and list at other servers, those in use first, and of these the latest
    /// first.
    fn siblings(&self, source: &SourceHandle) -> Vec<Arc<SourceHandle>>;

    /// Removes a source after a failure of the task. Under an enforcing plan, another source takes the place
    /// at once, and begins with the stable content (WAV-8).
    fn begin_anew(self: Arc<Self>, failed: &SourceHandle, shared: &Arc<DriverContext>);
}

/// The end of a stream after a failure of the source. The client reconnects (FP11).
pub fn failed() -> Status {
    Status::new(Code::Internal, "internal error of the relay; reconnect")
}

/// A stream as its sources see it.
pub trait Subscriber: Send + Sync {
    fn id(&self) -> SessionId;

    /// The source may have something new.
    fn wake(&self);

    /// Ends the stream. The first reason stands.
    fn end(&self, status: Status);

    /// The node of the client's requests.
    fn node(&self) -> Option<Arc<Node>>;

    /// The relays on the way, if the client is a relay (TIR-2).
    fn relays(&self) -> Option<&RelayPath>;

    /// The numbers of the source's changes that the client owes an answer to.
    fn awaited_changes(&self, source: SourceId) -> Vec<u64>;

    /// Some names of a type need a private source (CCH-1).
    fn divert(self: Arc<Self>, type_url: TypeUrl);

    /// This source gave its place to another class (RLY-14).
    fn displaced(self: Arc<Self>, source: SourceId);

    /// Whether the client is on its way to other sources than this one.
    fn is_leaving(&self, _source: SourceId) -> bool {
        false
    }
}

/// A message of a stream to a source.
pub enum Command {
    Watch {
        stream: Arc<dyn Subscriber>,
        type_url: TypeUrl,
        collection: Collection,
        /// See [`Watch::Watch`](sluice_engine::downstream::Watch).
        previous: Option<Arc<NameSet>>,
        /// The source's latest change that the stream has seen for certain ([`SourceHandle::shown_change`]).
        seen: u64,
    },
    /// Like several `Watch` commands, without an answer in between: the server gets all requests at once.
    WatchAll {
        stream: Arc<dyn Subscriber>,
        parts: Vec<(TypeUrl, Collection)>,
    },
    Unwatch {
        session: SessionId,
        type_url: TypeUrl,
        key: CollectionKey,
    },
    /// The stream has ended.
    Forget(SessionId),
    /// The process ends: write the content, then drop the sender.
    Save(oneshot::Sender<()>),
    /// The stream went back to a server of higher priority.
    Dismiss(SessionId),
    /// The source is off the table, because another class has its place.
    Displace,
    /// A client of the source is on its way to another class.
    Leaving(SessionId),
    /// There is a new configuration in force.
    Configure,
    /// The successor of the process has died: streams to servers may be opened again.
    Reconnect,
    /// Bring the status up to date for a reader.
    Show(oneshot::Sender<()>),
    /// Clients have rejected something, and the server wants to know ([`SourceHandle::rejected`]).
    Rejected,
    /// The state, for a successor of the process. Without an answer there is nothing to pass on.
    PassOn(oneshot::Sender<Estate>),
    /// The server's versions of the cached resources, for a reader.
    Versions(oneshot::Sender<UpstreamVersions>),
    /// The plan of the source moves its lanes.
    Order(Ordered),
    /// The operator confirms held deletions of these types, or of all types (FU18).
    ConfirmDeletions {
        type_name: Option<Arc<str>>,
        /// Gets the number of removed resources.
        done: oneshot::Sender<usize>,
    },
}

/// Between a relay and its server in an identifier.
pub const VIA: &str = " via ";

/// The bytes of the way above a server: eight relays with usual names.
const WAY_MAX: usize = 1_024;

pub type Queued = (Command, Option<OwnedSemaphorePermit>);

/// The wait of a source's clients for a push that is under way elsewhere (LDG-3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewcomerWait {
    /// `None`: for the first word of the ledger.
    pub push: Option<u64>,
    /// `None`: all types that the plan holds.
    pub types: Option<BTreeSet<TypeUrl>>,
    pub since: Time,
    /// The clients are given the content all the same, as configured.
    pub is_served: bool,
}

/// A handle to a source, for streams and the admin room. The task ends once nobody holds a handle and nothing
/// lingers.
///
/// Wide because each field has an atomic or a lock of its own: the source's task writes one at a time, and
/// streams read `published` on the hot path.
pub struct SourceHandle {
    id: SourceId,
    key: Arc<SourceKey>,
    /// The text of `control_plane.identifier` in responses from this source (RLY-76), for each server that
    /// may serve: `relay via server`.
    identifiers: Box<[Arc<str>]>,
    /// The text with the relays above the serving server (TIR-2), and the number of this server.
    way: ArcSwapOption<(u16, Arc<str>)>,
    /// The servers that may serve, with their settings: at least one.
    pub(super) servers: ArcSwap<Vec<Arc<Server>>>,
    /// The server of the last answer, as a number that counts from the server of the place. Not 0 only on the
    /// failover server.
    pub(super) serving: AtomicU16,
    /// The connection of the latest stream to the server.
    pub(super) connection: Arc<TakenConnection>,
    /// The name that the server gives itself.
    control_plane: ArcSwapOption<String>,
    commands: mpsc::UnboundedSender<Queued>,
    /// Bounds the queue of commands. Commands that end a stream's use need no permit: a stream sends at most
    /// one.
    permits: Arc<Semaphore>,
    /// The node that the server sees; `None` before the first.
    pub(super) shown: ArcSwapOption<Node>,
    /// The server registers clients that connect, by its own words (PRF-5).
    has_lifecycle: AtomicBool,
    /// The releases of the source (WAV-2).
    pub(super) published: ArcSwap<Published>,
    /// The bytes of content that the server has replaced and some client may still get (WAV-11), at most a
    /// second old.
    pub(super) held_bytes: AtomicUsize,
    pub(super) waits: ArcSwapOption<NewcomerWait>,
    /// The source has no stable content yet, and its plan a ledger.
    pub(super) is_newcomer: AtomicBool,
    /// The source begins anew after a failure, and the hold is to come.
    begins_anew: AtomicBool,
    /// The plan wants the hold of the source to last.
    is_kept: AtomicBool,
    /// The plan of the source, for the seats of clients; `None`: nothing is judged.
    pub(super) judged_by: ArcSwapOption<PlanHandle>,
    pub(super) status: ArcSwap<SourceStatus>,
    /// The latest changes of the content.
    pub changes: ChangeRing,
    /// The number of the latest change in the published content.
    pub(super) shown_change: AtomicU64,
    pub losses: Losses,
    pub rejected: Rejected,
    pub(super) loaded: watch::Sender<Option<Result<(), Status>>>,
}

impl SourceHandle {
    /// A handle, and the queue of its commands.
    pub fn new(
        id: SourceId,
        key: Arc<SourceKey>,
        identifiers: Box<[Arc<str>]>,
        servers: &[Arc<Server>],
        status: SourceStatus,
    ) -> (SourceHandle, mpsc::UnboundedReceiver<Queued>) {
        let (commands, queue) = mpsc::unbounded_channel();
        let handle = SourceHandle {
            id,
            key,
            identifiers,
            way: ArcSwapOption::empty(),
            servers: ArcSwap::from_pointee(servers.to_vec()),
            serving: AtomicU16::new(0),
            connection: Arc::default(),
            control_plane: ArcSwapOption::empty(),
            shown: ArcSwapOption::empty(),
            has_lifecycle: AtomicBool::new(false),
            commands,
            permits: Arc::new(Semaphore::new(COMMANDS_MAX)),
            published: ArcSwap::from_pointee(Published::default()),
            held_bytes: AtomicUsize::new(0),
            waits: ArcSwapOption::empty(),
            is_newcomer: AtomicBool::new(false),
            begins_anew: AtomicBool::new(false),
            is_kept: AtomicBool::new(false),
            judged_by: ArcSwapOption::empty(),
            status: ArcSwap::from_pointee(status),
            changes: ChangeRing::default(),
            shown_change: AtomicU64::new(0),
            losses: Losses::default(),
            rejected: Rejected::default(),
            loaded: watch::Sender::new(None),
        };
        (handle, queue)
    }

    /// Marks a source as one that begins anew.
    pub(super) fn anew(self) -> SourceHandle {
        SourceHandle { begins_anew: AtomicBool::new(true), ..self }
    }

    /// The source has the former content again.
    pub(super) fn has_begun(&self) {
        self.begins_anew.store(false, Ordering::Relaxed);
    }

    pub(super) fn begins_anew(&self) -> bool {
        self.begins_anew.load(Ordering::Relaxed)
    }

    /// Whether the plan wants the hold of the source to last: for a halt, or a pin.
    pub fn set_kept(&self, is_kept: bool) {
        self.is_kept.store(is_kept, Ordering::Relaxed);
    }

    /// Whether something is held back from clients, or has to be: a new source in the same place would give
    /// clients everything (WAV-8).
    pub fn has_hold(&self) -> bool {
        let is_kept = self.is_kept.load(Ordering::Relaxed) || self.begins_anew();
        is_kept || self.published.load().lanes.is_some()
    }

    pub fn id(&self) -> SourceId {
        self.id
    }

    pub fn key(&self) -> &SourceKey {
        &self.key
    }

    /// Whether the sources have the same class and list, and different servers.
    pub(super) fn is_sibling(&self, other: &SourceHandle) -> bool {
        let (key, others) = (self.key(), other.key());
        key.place != others.place
            && (key.owner, &key.class) == (others.owner, &others.class)
            && self.status().list == other.status().list
    }

    /// The plan that judges the pushes of the source. A source of one client has none.
    pub fn plan(&self, plans: &Plans) -> Option<Arc<PlanHandle>> {
        let is_shared = self.key.owner == Owner::Everyone && !self.server(0).is_made_up();
        is_shared.then(|| plans.of_source(&self.status.load().list, &self.key.class))?
    }

    pub fn identifier(&self) -> Arc<str> {
        let serving = self.serving.load(Ordering::Relaxed);
        match &*self.way.load() {
            Some(way) if way.0 == serving => way.1.clone(),
            _ => self.identifiers.get(usize::from(serving)).cloned().unwrap_or_default(),
        }
    }

    /// A server that is a relay names the way to its own server in each response (TIR-2). Clients are told
    /// the whole way, so that a client's own dump shows the relays: `leaf-3 via root-1 via cp:15010`. Texts
    /// that are too long for a way are left out.
    pub(super) fn hear(&self, control_plane: &str) {
        let is_told = self.control_plane.load().as_ref().is_some_and(|before| **before == *control_plane);
        if !is_told && !control_plane.is_empty() && control_plane.len() <= WAY_MAX {
            self.control_plane.store(Some(Arc::new(control_plane.to_owned())));
        }
        if is_registry(control_plane) {
            self.has_lifecycle.store(true, Ordering::Relaxed);
        }
        let serving = self.serving.load(Ordering::Relaxed);
        let identifier =
            self.identifiers.get(usize::from(serving)).and_then(|identifier| identifier.rsplit_once(VIA));
        let is_way = control_plane.contains(VIA) && control_plane.len() <= WAY_MAX;
        let way = identifier.filter(|_| is_way).map(|(relay, _)| [relay, VIA, control_plane]);
        let present = self.way.load();
        let is_known = match (&*present, &way) {
            (None, None) => true,
            (Some(present), Some(way)) => present.0 == serving && *present.1 == *way.concat(),
            _ => false,
        };
        if !is_known {
            self.way.store(way.map(|way| Arc::new((serving, way.concat().into()))));
        }
    }

    /// The server with this number: 0 is the server of the place, 1 is the failover server.
    pub fn server(&self, number: u16) -> Arc<Server> {
        let servers = self.servers.load();
        servers.get(usize::from(number)).unwrap_or(&servers[0]).clone()
    }

    /// The way to the server, as clients are told (TIR-2): `root-1 via cp:15010`.
    pub fn path(&self) -> Arc<str> {
        let (identifier, serving) = (self.identifier(), self.serving_server());
        let end = self.identifiers.get(usize::from(self.serving.load(Ordering::Relaxed)));
        let relay = end.and_then(|identifier| identifier.strip_suffix(&*serving.uri)).unwrap_or_default();
        identifier.strip_prefix(relay).unwrap_or(&identifier).into()
    }

    /// When the content was last confirmed, over all tiers (ADR 101).
    pub fn confirmed(&self) -> Confirmed {
        self.status.load().confirmed
    }

    pub fn serving_server(&self) -> Arc<Server> {
        self.server(self.serving.load(Ordering::Relaxed))
    }

    /// The newest content, as the server supplied it.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.published.load().live.clone()
    }

    /// All releases of the source.
    pub fn published(&self) -> Arc<Published> {
        self.published.load_full()
    }

    /// The number of the latest change that every stream sees which looks at the content from now on.
    pub fn shown_change(&self) -> u64 {
        self.shown_change.load(Ordering::Acquire)
    }

    /// The bytes that only the lanes of the source have.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// The plan in force, as the source knows it.
    pub fn judge(&self) -> Option<Arc<PlanHandle>> {
        self.judged_by.load_full()
    }

    /// The content for one client. `seat`: the seat of the client in a plan, and the push of the latest sent
    /// candidate; `None` for a relay, which gets the newest content (TIR-1).
    pub fn served(&self, seat: impl FnOnce(&Arc<Plan>) -> Option<(Seat, Option<u64>)>) -> Arc<Snapshot> {
        let published = self.published.load();
        if published.lanes.is_none() {
            return published.live.clone();
        }
        // A plan that has left the configuration opens its sources soon.
        let judged_by = self.judged_by.load();
        let Some(plan) = &*judged_by else { return published.live.clone() };
        match seat(&plan.plan()) {
            Some((seat, served)) => published.pick(|push| plan.admits_to(push, seat, served)).clone(),
            None => published.live.clone(),
        }
    }

    pub fn is_newcomer(&self) -> bool {
        self.is_newcomer.load(Ordering::Acquire)
    }

    /// Whether a client waits for a type. `served`: the content of the source for the client.
    pub fn wait_for(&self, type_url: &TypeUrl, served: &Snapshot) -> Option<Arc<NewcomerWait>> {
        let wait = self.waits().filter(|wait| !wait.is_served)?;
        let is_meant = wait.types.as_ref().is_none_or(|types| types.contains(type_url));
        (is_meant && served.of(type_url).is_none() && self.snapshot().of(type_url).is_some()).then_some(wait)
    }

    /// The wait of clients for a push that is under way elsewhere (LDG-3).
    pub fn waits(&self) -> Option<Arc<NewcomerWait>> {
        self.waits.load_full()
    }

    pub fn status(&self) -> Arc<SourceStatus> {
        self.status.load_full()
    }

    /// Whether the other server of the place serves (failover by Envoy's rules).
    pub fn is_on_failover(&self) -> bool {
        self.serving.load(Ordering::Relaxed) != 0
    }

    /// Whether a connection is an act for the server, by its own words: a shadow must not be one (PRF-5).
    pub fn has_lifecycle(&self) -> bool {
        self.has_lifecycle.load(Ordering::Relaxed)
    }

    /// The node that the server sees; `None` before the first.
    pub fn shown(&self) -> Option<Arc<Node>> {
        self.shown.load_full()
    }

    /// The connection of the latest stream to the server; 0: no stream yet.
    pub fn connection(&self) -> u64 {
        self.connection.number()
    }

    /// The replica of the server that answers the source.
    pub fn replica(&self) -> Replica {
        let control_plane = self.control_plane.load();
        Replica {
            address: self.connection.address(),
            control_plane: control_plane.as_ref().map(|text| text.as_str().into()),
        }
    }

    /// Makes a silent stream the source's client. Only for a source without other clients: the command has no
    /// permit.
    pub fn watch_all(&self, stream: Arc<dyn Subscriber>, parts: Vec<(TypeUrl, Collection)>) {
        if self.commands.send((Command::WatchAll { stream: stream.clone(), parts }, None)).is_err() {
            // The task has failed meanwhile.
            stream.end(failed());
        }
    }

    /// Sends a change of a session's collections to the source, or the session's end. Waits while the queue
    /// is full.
    pub async fn send(&self, command: Command) {
        // The semaphore is never closed, and the task outlives its handles.
        let permit = self.permits.clone().acquire_owned().await.ok();
        let sent = self.commands.send((command, permit));
        if let Err(SendError((Command::Watch { stream, .. }, _))) = sent {
            // The task has failed meanwhile.
            stream.end(failed());
        }
    }

    /// A stream has ended.
    pub fn forget(&self, session: SessionId) {
        let _ = self.commands.send((Command::Forget(session), None));
    }

    /// A stream went back to a server of higher priority.
    pub fn dismiss(&self, session: SessionId) {
        let _ = self.commands.send((Command::Dismiss(session), None));
    }

    /// The source is off the table.
    pub fn displace(&self) {
        let _ = self.commands.send((Command::Displace, None));
    }

    /// The successor of the process has died.
    pub fn reconnect(&self) {
        let _ = self.commands.send((Command::Reconnect, None));
    }

    /// A client of the source is on its way to another class, and may be the member that the server sees.
    pub fn note_leaving(&self, session: SessionId) {
        if self.key.class.upstream_node == UpstreamNode::Member {
            let _ = self.commands.send((Command::Leaving(session), None));
        }
    }

    /// A client has rejected resources of a type. `words` may go to the server.
    pub fn reject(&self, type_url: &TypeUrl, client: &str, words: &str) {
        let server = self.serving_server();
        let is_wanted = server.upstream_settings().is_some_and(|settings| settings.reports_rejections);
        if is_wanted && self.rejected.add(type_url, client, words) {
            let _ = self.commands.send((Command::Rejected, None));
        }
    }

    /// There is a new configuration in force.
    pub fn configure(&self) {
        let _ = self.commands.send((Command::Configure, None));
    }

    /// Moves the lanes. Returns the releases after the publication; `None` for a source without a hold.
    pub async fn order(&self, order: LaneOrder) -> Option<LaneContent> {
        let (done, content) = oneshot::channel();
        let _ = self.commands.send((Command::Order(Ordered { order, done }), None));
        content.await.ok()?
    }

    /// Brings the status up to date. The receiver resolves when the status is current.
    pub fn show(&self) -> oneshot::Receiver<()> {
        let (done, shown) = oneshot::channel();
        let _ = self.commands.send((Command::Show(done), None));
        shown
    }

    /// The state, for a successor of the process; `None` for a source that is not passed on.
    pub async fn estate(&self) -> Option<Estate> {
        let (done, estate) = oneshot::channel();
        let _ = self.commands.send((Command::PassOn(done), None));
        estate.await.ok()
    }

    /// Waits for the first state of a `file:` server.
    pub async fn loaded(&self) -> Result<(), Status> {
        let mut loaded = self.loaded.subscribe();
        let state = loaded.wait_for(Option::is_some).await;
        let ended = || Err(Status::new(Code::Internal, "the task of the source has ended"));
        state.map_or_else(|_| ended(), |state| state.clone().unwrap_or(Ok(())))
    }
}

/// Whether a server names itself as one that registers clients while they are connected.
fn is_registry(control_plane: &str) -> bool {
    let words = control_plane.split(|letter: char| !letter.is_ascii_alphanumeric());
    words.into_iter().any(|word| word.eq_ignore_ascii_case("kuma"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prf_5_a_server_that_calls_itself_kuma_registers_clients() {
        assert!(is_registry("kuma-cp") && is_registry("{\"Identifier\":\"Kuma\"}"));
        assert!(!is_registry("istiod-7d9") && !is_registry("kumara") && !is_registry(""));
    }
}
