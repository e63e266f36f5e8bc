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
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use crate::driver::api::rollouts::LedgerStatus;
use crate::driver::ground::context::{DriverContext, LedgerParts};
use crate::ledger::{LedgerEntry, LedgerEvent as StoreEvent, LedgerSession, Precondition, Put, WriteError};
use sluice_checkpoint::StateFile;
use sluice_fleet::rollout::ledger::trust::{Belief, EPOCH_KEY, LedgerMemory, LedgerTrust, encode_memory};
use sluice_fleet::rollout::ledger::{Entry, Expected, LedgerEvent, Replica, Write, WriteResult};

/// Events that a plan has not taken. Beyond this number, the plan is told all entries instead.
const INBOX_MAX: usize = 1_000;

/// The time between two writes of the latest revision to disk.
const WRITTEN_EVERY: Duration = Duration::from_secs(10);

/// The time between a write of the epoch that failed and the next one.
const EPOCH_AGAIN: Duration = Duration::from_secs(2);

const NO_EPOCH: &str = "the ledger is new, and has no epoch yet";

/// How long an operator's word waits for the belief.
const INIT_WITHIN: Duration = Duration::from_secs(5);

/// How long an order waits for its write.
const ORDER_WITHIN: Duration = Duration::from_secs(2);

/// A write that failed longer ago is no news: a plan with something to write tries again each second, and
/// each write is over within 6 s.
const UNWRITTEN_FOR: Duration = Duration::from_secs(10);

/// The ledger of this process.
#[derive(Debug)]
pub struct LedgerHub {
    parts: LedgerParts,
    state: Mutex<HubState>,
    orders: mpsc::UnboundedSender<HubOrder>,
    /// Until the task takes it.
    queue: Mutex<Option<mpsc::UnboundedReceiver<HubOrder>>>,
}

#[derive(Debug)]
struct HubState {
    inboxes: BTreeMap<Box<str>, Arc<Inbox>>,
    content: HubContent,
    /// Why the latest write was not done, and when that was.
    unwritten: Option<(Box<str>, Instant)>,
}

#[derive(Debug)]
enum HubContent {
    /// In words.
    Away(Box<str>),
    /// Loaded, and not believed, in words.
    Unbelieved(Box<str>),
    /// All entries by key, with their revisions.
    Here(BTreeMap<String, (Bytes, u64)>),
}

#[derive(Debug)]
enum HubOrder {
    Write(PlanWrite, Write),
    /// An operator believes the present ledger (LDG-6). Answered once it is believed, or away.
    Init(oneshot::Sender<Result<(), Box<str>>>),
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
    /// The number of writes that are not over, without tallies.
    writes: watch::Sender<usize>,
}

/// A write of a plan that is not over.
#[derive(Debug)]
struct PlanWrite {
    inbox: Arc<Inbox>,
    is_tally: bool,
}

impl PlanWrite {
    fn new(inbox: &Arc<Inbox>, is_tally: bool) -> PlanWrite {
        inbox.writes.send_modify(|writes| *writes += usize::from(!is_tally));
        PlanWrite { inbox: inbox.clone(), is_tally }
    }
}

impl Drop for PlanWrite {
    fn drop(&mut self) {
        self.inbox.writes.send_modify(|writes| *writes -= usize::from(!self.is_tally));
    }
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
        Arc::new(LedgerHub { parts: parts.clone(), state, orders, queue: Mutex::new(Some(queue)) })
    }

    /// Opens the session, once. Must be called within a tokio runtime.
    pub fn start(self: &Arc<Self>, shared: &Arc<DriverContext>) {
        if let Some(queue) = self.queue.lock().take() {
            let trust = LedgerTrust::new(shared.durable.ledger.get());
            let task = HubTask {
                hub: self.clone(),
                shared: shared.clone(),
                trust,
                stored: None,
                epoch: None,
                believers: Vec::new(),
                written: None,
            };
            tokio::spawn(task.run(queue));
        }
    }

    pub fn replica(&self) -> &Replica {
        &self.parts.replica
    }

    fn place(&self) -> &str {
        self.parts.ledger.place()
    }

    pub fn status(&self) -> LedgerStatus {
        let state = self.state.lock();
        let (fault, entries, bytes) = match &state.content {
            HubContent::Away(why) | HubContent::Unbelieved(why) => (Some(why.clone()), 0, 0),
            HubContent::Here(entries) => {
                let bytes = entries.iter().map(|(key, (value, _))| key.len() + value.len()).sum();
                (None, entries.len(), bytes)
            }
        };
        LedgerStatus {
            place: self.place().to_owned(),
            replica: self.replica().name.clone(),
            fault,
            unwritten: state.unwritten.as_ref().map(|(why, _)| why.clone()),
            entries,
            bytes,
        }
    }

    /// An operator believes the present ledger (LDG-6). Waits for the belief for a while.
    ///
    /// # Errors
    /// Why there is no ledger to believe.
    pub async fn init(&self) -> Result<(), Box<str>> {
        if let HubContent::Away(why) = &self.state.lock().content {
            return Err(why.clone());
        }
        let (done, answer) = oneshot::channel();
        // The task lives as long as the process.
        let _ = self.orders.send(HubOrder::Init(done));
        // Without an answer the state tells how far the belief is.
        timeout(INIT_WITHIN, answer).await.map_or(Ok(()), |answer| answer.unwrap_or(Ok(())))
    }

    /// Why the ledger takes no writes, as far as its latest write tells.
    pub fn unwritten(&self) -> Option<Box<str>> {
        let state = self.state.lock();
        let (why, at) = state.unwritten.as_ref()?;
        (at.elapsed() < UNWRITTEN_FOR).then(|| why.clone())
    }

    /// Waits until the writes of a plan are over, for a while. Returns why the ledger has not taken them.
    pub async fn written(&self, plan: &str) -> Option<Box<str>> {
        let inbox = self.state.lock().inboxes.get(plan)?.clone();
        let mut writes = inbox.writes.subscribe();
        let is_late = timeout(ORDER_WITHIN, writes.wait_for(|writes| *writes == 0)).await.is_err();
        let late = is_late.then(|| format!("no answer within {ORDER_WITHIN:?}").into());
        self.status().fault.or(late).or_else(|| self.unwritten())
    }

    /// The ledger for a plan.
    pub(super) fn plan(self: &Arc<Self>, plan: &str) -> PlanLedger {
        let (plan, news, wake) = (plan.into(), Mutex::default(), Notify::new());
        let inbox = Arc::new(Inbox { plan, news, wake, writes: watch::Sender::new(0) });
        let mut state = self.state.lock();
        inbox.tell(state.content.all_of(&inbox.plan));
        state.inboxes.insert(inbox.plan.clone(), inbox.clone());
        PlanLedger { hub: self.clone(), inbox }
    }

    /// Empty while the ledger is away.
    fn entries(&self) -> BTreeMap<String, (Bytes, u64)> {
        match &self.state.lock().content {
            HubContent::Away(_) | HubContent::Unbelieved(_) => BTreeMap::new(),
            HubContent::Here(entries) => entries.clone(),
        }
    }

    fn tell_all(&self, inbox: &Inbox) {
        inbox.tell(self.state.lock().content.all_of(&inbox.plan));
    }

    fn is_away(&self, content: HubContent) {
        let mut state = self.state.lock();
        (state.content, state.unwritten) = (content, None);
        self.parts.believed.set(0);
        let HubState { inboxes, content, .. } = &*state;
        inboxes.values().for_each(|inbox| inbox.tell(content.all_of(&inbox.plan)));
    }

    fn is_here(&self, entries: BTreeMap<String, (Bytes, u64)>) {
        let mut state = self.state.lock();
        state.content = HubContent::Here(entries);
        self.parts.believed.set(1);
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
            HubContent::Away(why) | HubContent::Unbelieved(why) => LedgerEvent::Lost(why.clone()),
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
        self.hub.replica()
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
        let _ = self.hub.orders.send(HubOrder::Write(PlanWrite::new(&self.inbox, write.is_leased), write));
    }
}

/// Ends with a failure of the write, or at the time for the next one.
type EpochWrite = BoxFuture<'static, Option<WriteError>>;

type Writing = BoxFuture<'static, (PlanWrite, u64, Result<u64, WriteError>)>;

struct HubTask {
    hub: Arc<LedgerHub>,
    shared: Arc<DriverContext>,
    trust: LedgerTrust,
    /// A loaded ledger without belief.
    stored: Option<Unbelieved>,
    /// The write of the epoch that is under way, or the pause before the next one.
    epoch: Option<EpochWrite>,
    /// Operators who wait for the belief.
    believers: Vec<oneshot::Sender<Result<(), Box<str>>>>,
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
            let (session, mut events) = self.hub.parts.ledger.open();
            let mut writes: FuturesUnordered<Writing> = FuturesUnordered::new();
            loop {
                tokio::select! {
                    event = events.recv() => match event {
                        Some(event) => self.hear(event, &*session),
                        None => break,
                    },
                    Some(order) = queue.recv() => match order {
                        HubOrder::Write(owner, write) => writes.push(writing(&*session, owner, write)),
                        HubOrder::Init(done) => self.init(done, &*session),
                    },
                    failure = epoch_news(&mut self.epoch) => self.look_at_epoch(failure, &*session),
                    Some((owner, ticket, result)) = writes.next() => self.wrote(&owner, ticket, result),
                    () = shared.plans.until_successor() => break,
                }
            }
            self.lost("a new process decides");
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
            StoreEvent::Lost(why) => self.lost(&why),
        }
    }

    fn lost(&mut self, why: &str) {
        (self.stored, self.epoch) = (None, None);
        self.trust.lost();
        self.hub.is_away(HubContent::Away(why.into()));
        self.answer(&Err(why.into()));
    }

    /// Answers the operators who wait for the belief.
    fn answer(&mut self, answer: &Result<(), Box<str>>) {
        for done in self.believers.drain(..) {
            // An operator who has left needs no answer.
            let _ = done.send(answer.clone());
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
    fn init(&mut self, done: oneshot::Sender<Result<(), Box<str>>>, session: &dyn LedgerSession) {
        if done.is_closed() {
            return;
        }
        self.believers.push(done);
        match &self.stored {
            Some(_) => {
                self.trust.init();
                self.judge(session);
            }
            // Believed or lost while the word was on its way.
            None => {
                let fault = self.hub.status().fault;
                self.answer(&fault.map_or(Ok(()), Err));
            }
        }
    }

    /// Whether this replica knows the loaded ledger.
    fn judge(&mut self, session: &dyn LedgerSession) {
        self.epoch = None;
        let Some(stored) = self.stored.take() else { return };
        let epoch =
            stored.entries.get(EPOCH_KEY).map(|(value, _)| String::from_utf8_lossy(value).into_owned());
        let keys = stored.entries.keys().map(|key| &**key);
        match self.trust.loaded(&stored.identity, stored.revision, epoch.as_deref(), keys) {
            Belief::Believed => {
                info!(ledger = self.hub.place(), "the ledger is here");
                let revision = stored.revision;
                self.hub.is_here(stored.entries);
                self.remember(revision);
                self.answer(&Ok(()));
            }
            Belief::IsNew => {
                self.stored = Some(stored);
                self.hub.is_away(HubContent::Unbelieved(NO_EPOCH.into()));
                self.write_epoch(session);
            }
            Belief::Refused(why) => {
                warn!(ledger = self.hub.place(), "{why}");
                self.stored = Some(stored);
                self.hub.is_away(HubContent::Unbelieved(why));
            }
        }
    }

    fn write_epoch(&mut self, session: &dyn LedgerSession) {
        let value = Bytes::from(format!("{:016x}", self.hub.replica().process));
        let put = Put { key: EPOCH_KEY.into(), value, only_if: Precondition::Absent, leased: false };
        let writing = session.put(put);
        self.epoch = Some(Box::pin(async move {
            match writing.await {
                Err(error @ (WriteError::Refused(_) | WriteError::Failed(_))) => Some(error),
                // The event of this write, or of another replica's, tells the epoch.
                Ok(_) | Err(WriteError::Conflict { .. }) => {
                    sleep(EPOCH_AGAIN).await;
                    None
                }
            }
        }));
    }

    /// The ledger has no epoch yet. `failure`: of the write of a moment ago; `None`: the next one is due.
    fn look_at_epoch(&mut self, failure: Option<WriteError>, session: &dyn LedgerSession) {
        let Some(error) = failure else { return self.write_epoch(session) };
        let why = format!("the epoch cannot be written: {error}");
        if let Some(suppressed) = self.shared.throttle.allow("the epoch of the ledger") {
            warn!(suppressed, ledger = self.hub.place(), "{why}");
        }
        self.hub.is_away(HubContent::Unbelieved(why.into()));
        self.answer(&Ok(()));
        self.epoch = Some(Box::pin(async {
            sleep(EPOCH_AGAIN).await;
            None
        }));
    }

    /// A write is over. Its failure is for log and status: a store without space is read, and not written.
    fn wrote(&self, owner: &PlanWrite, ticket: u64, result: Result<u64, WriteError>) {
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
            warn!(suppressed, ledger = self.hub.place(), "a write to the ledger failed: {why}");
        }
        self.hub.state.lock().unwritten = why.map(|why| (why, Instant::now()));
        owner.inbox.wrote(ticket, result);
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

/// Pending without a write. Cancel-safe.
async fn epoch_news(epoch: &mut Option<EpochWrite>) -> Option<WriteError> {
    let Some(write) = epoch else { return std::future::pending().await };
    let failure = write.await;
    *epoch = None;
    failure
}

fn writing(session: &dyn LedgerSession, owner: PlanWrite, write: Write) -> Writing {
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
    Box::pin(async move { (owner, ticket, writing.await) })
}
