//! The ledger of this process: one session for all plans (LDG-1, LDG-6).
//!
//! The hub's task keeps the session, and gives each plan the entries under the plan's name. A plan's task
//! never waits for the ledger: writes go into a queue, events and results into an inbox.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::driver::api::rollouts::LedgerStatus;
use crate::driver::ground::context::{DriverContext, LedgerParts};
use crate::ledger::{
    Ledger, LedgerEntry, LedgerEvent as StoreEvent, LedgerSession, Precondition, Put, WriteError,
};
use sluice_checkpoint::StateFile;
use sluice_fleet::rollout::ledger::trust::{Belief, EPOCH_KEY, LedgerMemory, LedgerTrust, encode_memory};
use sluice_fleet::rollout::ledger::{Entry, Expected, LedgerEvent, Replica, Write, WriteResult};

/// Events that a plan has not taken. Beyond this number, the plan is told all entries instead.
const INBOX_MAX: usize = 1_000;

/// The time between two writes of the latest revision to disk.
const WRITTEN_EVERY: Duration = Duration::from_secs(10);

/// The ledger of this process.
#[derive(Debug)]
pub struct LedgerHub {
    ledger: Arc<dyn Ledger>,
    replica: Replica,
    state: Mutex<HubState>,
    orders: mpsc::UnboundedSender<HubOrder>,
    /// Until the task takes it.
    queue: Mutex<Option<mpsc::UnboundedReceiver<HubOrder>>>,
}

#[derive(Debug)]
struct HubState {
    inboxes: BTreeMap<Box<str>, Arc<Inbox>>,
    content: HubContent,
    /// Why the latest write was not done.
    unwritten: Option<Box<str>>,
}

#[derive(Debug)]
enum HubContent {
    /// Away, or not to be believed, in words.
    Away(Box<str>),
    /// All entries by key, with their revisions.
    Here(BTreeMap<String, (Bytes, u64)>),
}

#[derive(Debug)]
enum HubOrder {
    Write(Arc<Inbox>, Write),
    /// An operator believes the present ledger (LDG-6).
    Init,
}

/// News of the ledger for a plan.
#[derive(Debug)]
pub(super) enum LedgerNews {
    Event(LedgerEvent),
    Wrote(u64, WriteResult),
}

/// The news that a plan has not taken yet.
#[derive(Debug)]
struct Inbox {
    plan: Box<str>,
    news: Mutex<Vec<LedgerNews>>,
    wake: Notify,
}

/// The end of a plan's task.
#[derive(Clone, Debug)]
pub(super) struct PlanLedger {
    hub: Arc<LedgerHub>,
    inbox: Arc<Inbox>,
}

impl LedgerHub {
    pub fn new(parts: &LedgerParts) -> Arc<LedgerHub> {
        let (orders, queue) = mpsc::unbounded_channel();
        let content = HubContent::Away("no answer yet".into());
        let state = Mutex::new(HubState { inboxes: BTreeMap::new(), content, unwritten: None });
        let LedgerParts { ledger, replica } = parts.clone();
        Arc::new(LedgerHub { ledger, replica, state, orders, queue: Mutex::new(Some(queue)) })
    }

    /// Opens the session, once. Must be called within a tokio runtime.
    pub fn start(self: &Arc<Self>, shared: &Arc<DriverContext>) {
        if let Some(queue) = self.queue.lock().take() {
            let trust = LedgerTrust::new(shared.durable.ledger.get());
            let task =
                HubTask { hub: self.clone(), shared: shared.clone(), trust, stored: None, written: None };
            tokio::spawn(task.run(queue));
        }
    }

    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    pub fn status(&self) -> LedgerStatus {
        let state = self.state.lock();
        let (fault, entries, bytes) = match &state.content {
            HubContent::Away(why) => (Some(why.clone()), 0, 0),
            HubContent::Here(entries) => {
                let bytes = entries.iter().map(|(key, (value, _))| key.len() + value.len()).sum();
                (None, entries.len(), bytes)
            }
        };
        LedgerStatus {
            place: self.ledger.place().to_owned(),
            replica: self.replica.name.clone(),
            fault,
            unwritten: state.unwritten.clone(),
            entries,
            bytes,
        }
    }

    /// An operator believes the present ledger (LDG-6).
    pub fn init(&self) {
        // The task lives as long as the process.
        let _ = self.orders.send(HubOrder::Init);
    }

    /// The ledger for a plan.
    pub(super) fn plan(self: &Arc<Self>, plan: &str) -> PlanLedger {
        let inbox = Arc::new(Inbox { plan: plan.into(), news: Mutex::default(), wake: Notify::new() });
        let mut state = self.state.lock();
        inbox.tell(state.content.all_of(plan));
        state.inboxes.insert(plan.into(), inbox.clone());
        PlanLedger { hub: self.clone(), inbox }
    }

    /// Empty while the ledger is away.
    fn entries(&self) -> BTreeMap<String, (Bytes, u64)> {
        match &self.state.lock().content {
            HubContent::Away(_) => BTreeMap::new(),
            HubContent::Here(entries) => entries.clone(),
        }
    }

    fn tell_all(&self, inbox: &Inbox) {
        inbox.tell(self.state.lock().content.all_of(&inbox.plan));
    }

    fn is_away(&self, why: &str) {
        let mut state = self.state.lock();
        (state.content, state.unwritten) = (HubContent::Away(why.into()), None);
        state.inboxes.values().for_each(|inbox| inbox.tell(LedgerEvent::Lost(why.into())));
    }

    fn is_here(&self, entries: BTreeMap<String, (Bytes, u64)>) {
        let mut state = self.state.lock();
        state.content = HubContent::Here(entries);
        let HubState { inboxes, content, .. } = &*state;
        inboxes.values().for_each(|inbox| inbox.tell(content.all_of(&inbox.plan)));
    }

    fn changed(&self, key: String, value: Option<Bytes>, revision: u64) {
        let mut state = self.state.lock();
        let HubState { inboxes, content, .. } = &mut *state;
        let HubContent::Here(entries) = content else { return };
        match &value {
            Some(value) => drop(entries.insert(key.clone(), (value.clone(), revision))),
            None => drop(entries.remove(&key)),
        }
        let Some(inbox) = plan_of(&key).and_then(|plan| inboxes.get(plan)) else { return };
        let event = match value {
            Some(value) => LedgerEvent::Changed(Entry { key, value: value.to_vec(), revision }),
            None => LedgerEvent::Gone { key, revision },
        };
        if !inbox.tell_if_room(event) {
            inbox.tell(content.all_of(&inbox.plan));
        }
    }
}

impl HubContent {
    fn all_of(&self, plan: &str) -> LedgerEvent {
        match self {
            HubContent::Away(why) => LedgerEvent::Lost(why.clone()),
            HubContent::Here(entries) => {
                let entries = entries.iter().filter(|(key, _)| plan_of(key) == Some(plan));
                let entry = |(key, (value, revision)): (&String, &(Bytes, u64))| Entry {
                    key: key.clone(),
                    value: value.to_vec(),
                    revision: *revision,
                };
                LedgerEvent::Loaded(entries.map(entry).collect())
            }
        }
    }
}

/// The plan of a key: its second part.
fn plan_of(key: &str) -> Option<&str> {
    key.split('/').nth(1)
}

impl Inbox {
    /// Tells the state as a whole: earlier events are out of date, and results are not.
    fn tell(&self, event: LedgerEvent) {
        let mut news = self.news.lock();
        // An unheard loss is a loss, too: the other replicas have a lease for their writes (LDG-5).
        let is_loss = |news: &LedgerNews| matches!(news, LedgerNews::Event(LedgerEvent::Lost(_)));
        let lost = news.iter().rposition(is_loss);
        let mut at = 0..;
        news.retain(|news| at.next() == lost || matches!(news, LedgerNews::Wrote(..)));
        news.push(LedgerNews::Event(event));
        self.wake.notify_one();
    }

    fn tell_if_room(&self, event: LedgerEvent) -> bool {
        let mut news = self.news.lock();
        let has_room = news.len() < INBOX_MAX;
        if has_room {
            news.push(LedgerNews::Event(event));
            self.wake.notify_one();
        }
        has_room
    }

    fn wrote(&self, ticket: u64, result: WriteResult) {
        // One write of a kind is under way at a time.
        self.news.lock().push(LedgerNews::Wrote(ticket, result));
        self.wake.notify_one();
    }
}

impl PlanLedger {
    pub(super) fn replica(&self) -> &Replica {
        &self.hub.replica
    }

    /// The plan begins with nothing known of the ledger.
    pub(super) fn begin(&self) {
        self.hub.tell_all(&self.inbox);
    }

    /// The news since the last call.
    pub(super) fn take(&self) -> Vec<LedgerNews> {
        std::mem::take(&mut *self.inbox.news.lock())
    }

    /// Resolves when there is something to take.
    pub(super) async fn news(&self) {
        self.inbox.wake.notified().await;
    }

    /// Puts a write into the queue.
    pub(super) fn write(&self, write: Write) {
        let _ = self.hub.orders.send(HubOrder::Write(self.inbox.clone(), write));
    }
}

type Writing = BoxFuture<'static, (Arc<Inbox>, u64, Result<u64, WriteError>)>;

struct HubTask {
    hub: Arc<LedgerHub>,
    shared: Arc<DriverContext>,
    trust: LedgerTrust,
    /// A loaded ledger without belief.
    stored: Option<Unbelieved>,
    /// The latest memory on disk, and when it was written.
    written: Option<(LedgerMemory, Instant)>,
}

struct Unbelieved {
    identity: String,
    revision: u64,
    entries: BTreeMap<String, (Bytes, u64)>,
}

impl HubTask {
    /// One process of a name at a time: a successor opens a session when the predecessor's is closed (HND-3).
    async fn run(mut self, mut queue: mpsc::UnboundedReceiver<HubOrder>) {
        let shared = self.shared.clone();
        loop {
            shared.plans.until_own_turn().await;
            let (session, mut events) = self.hub.ledger.open();
            let mut writes: FuturesUnordered<Writing> = FuturesUnordered::new();
            loop {
                tokio::select! {
                    event = events.recv() => match event {
                        Some(event) => self.hear(event, &*session),
                        None => break,
                    },
                    Some(order) = queue.recv() => match order {
                        HubOrder::Write(inbox, write) => writes.push(writing(&*session, inbox, write)),
                        HubOrder::Init => self.init(&*session),
                    },
                    Some((inbox, ticket, result)) = writes.next() => self.wrote(&inbox, ticket, result),
                    () = shared.plans.until_successor() => break,
                }
            }
            self.stored = None;
            self.hub.is_away("a new process decides");
            session.close().await;
        }
    }

    fn hear(&mut self, event: StoreEvent, session: &dyn LedgerSession) {
        match event {
            StoreEvent::Loaded { identity, revision, entries } => {
                let entry = |entry: LedgerEntry| (entry.key, (entry.value, entry.revision));
                let entries = entries.into_iter().map(entry).collect();
                self.stored = Some(Unbelieved { identity, revision, entries });
                self.judge(session);
            }
            StoreEvent::Changed(LedgerEntry { key, value, revision }) => {
                self.change(key, Some(value), revision, session);
            }
            StoreEvent::Gone { key, revision } => self.change(key, None, revision, session),
            StoreEvent::Lost(why) => {
                self.stored = None;
                self.trust.lost();
                self.hub.is_away(&why);
            }
        }
    }

    fn change(&mut self, key: String, value: Option<Bytes>, revision: u64, session: &dyn LedgerSession) {
        let (is_epoch, is_gone) = (key == EPOCH_KEY, value.is_none());
        if let Some(stored) = &mut self.stored {
            // The entries of a store may come out of order among each other.
            stored.revision = stored.revision.max(revision);
            match value {
                Some(value) => drop(stored.entries.insert(key, (value, revision))),
                None => drop(stored.entries.remove(&key)),
            }
            if is_epoch {
                self.judge(session);
            }
            return;
        }
        let is_lost = is_gone && self.trust.gone(&key);
        if !is_gone {
            self.trust.came(&key);
        }
        self.hub.changed(key, value, revision);
        match self.trust.memory().filter(|_| is_epoch || is_lost) {
            Some(memory) => {
                // A believed ledger keeps epoch and records. Otherwise the ledger counts as loaded anew.
                let (identity, entries) = (memory.identity.clone(), self.hub.entries());
                self.stored = Some(Unbelieved { identity, revision, entries });
                self.judge(session);
            }
            None => self.remember(revision),
        }
    }

    /// The word is for a loaded ledger that is not believed. It is none for a later ledger.
    fn init(&mut self, session: &dyn LedgerSession) {
        if self.stored.is_some() {
            self.trust.init();
            self.judge(session);
        }
    }

    /// Whether this replica knows the loaded ledger.
    fn judge(&mut self, session: &dyn LedgerSession) {
        let Some(stored) = self.stored.take() else { return };
        let epoch =
            stored.entries.get(EPOCH_KEY).map(|(value, _)| String::from_utf8_lossy(value).into_owned());
        let keys = stored.entries.keys().map(|key| &**key);
        match self.trust.loaded(&stored.identity, stored.revision, epoch.as_deref(), keys) {
            Belief::Believed => {
                info!(ledger = self.hub.ledger.place(), "the ledger is here");
                let revision = stored.revision;
                self.hub.is_here(stored.entries);
                self.remember(revision);
            }
            Belief::IsNew => {
                self.stored = Some(stored);
                let value = Bytes::from(format!("{:016x}", self.hub.replica.process));
                let put = Put { key: EPOCH_KEY.into(), value, only_if: Precondition::Absent, leased: false };
                self.hub.is_away("the ledger is new, and has no epoch yet");
                let (hub, writing) = (self.hub.clone(), session.put(put));
                tokio::spawn(async move {
                    // The event of this write, or of another replica's, tells the epoch.
                    if let Err(error @ (WriteError::Refused(_) | WriteError::Failed(_))) = writing.await {
                        warn!(ledger = hub.ledger.place(), "the epoch cannot be written: {error}");
                        if hub.status().fault.is_some() {
                            hub.is_away(&format!("the epoch cannot be written: {error}"));
                        }
                    }
                });
            }
            Belief::Refused(why) => {
                warn!(ledger = self.hub.ledger.place(), "{why}");
                self.stored = Some(stored);
                self.hub.is_away(&why);
            }
        }
    }

    /// A write is over. Its failure is for log and status: a store without space is read, and not written.
    fn wrote(&self, inbox: &Inbox, ticket: u64, result: Result<u64, WriteError>) {
        let (result, why) = match result {
            Ok(revision) => (WriteResult::Written(revision), None),
            Err(WriteError::Conflict { revision }) => (WriteResult::Conflict(revision), None),
            Err(WriteError::Refused(why) | WriteError::Failed(why)) => {
                (WriteResult::Failed, Some(why.into_boxed_str()))
            }
        };
        if let Some(why) = &why
            && let Some(suppressed) = self.shared.throttle.allow("a write to the ledger")
        {
            warn!(suppressed, ledger = self.hub.ledger.place(), "a write to the ledger failed: {why}");
        }
        self.hub.state.lock().unwritten = why;
        inbox.wrote(ticket, result);
    }

    /// Keeps epoch and records on disk, and the revision once in a while: nobody waits for the disk.
    fn remember(&mut self, revision: u64) {
        self.trust.saw(revision);
        let Some(memory) = self.trust.memory() else { return };
        self.shared.durable.ledger.put(Some(memory.clone()));
        let is_fresh = self
            .written
            .as_ref()
            .is_some_and(|(written, at)| written.is_like(memory) && at.elapsed() < WRITTEN_EVERY);
        if let Some(checkpoint) = self.shared.durable.checkpoint.as_ref().filter(|_| !is_fresh) {
            self.written = Some((memory.clone(), Instant::now()));
            let shared = self.shared.clone();
            let newest = move || shared.durable.ledger.get().as_ref().map(encode_memory).unwrap_or_default();
            tokio::spawn(checkpoint.clone().write_state(StateFile::Ledger, newest));
        }
    }
}

fn writing(session: &dyn LedgerSession, inbox: Arc<Inbox>, write: Write) -> Writing {
    let Write { ticket, key, value, expected, is_leased } = write;
    let only_if = match expected {
        Expected::Absent => Precondition::Absent,
        Expected::Revision(revision) => Precondition::Revision(revision),
        Expected::Any => Precondition::Any,
    };
    let writing = match value {
        Some(value) => session.put(Put { key, value: value.into(), only_if, leased: is_leased }),
        None => session.delete(key, only_if),
    };
    Box::pin(async move { (inbox, ticket, writing.await) })
}
