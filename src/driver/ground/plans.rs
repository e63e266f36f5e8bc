//! The plans in force, as sources and streams see them (WAV-12).
//!
//! A source tells the plan of changes, and a stream tells its end to all plans with a push under way. Both
//! leave a note and wake the plan's task. Without a plan, the cost is a branch per publication, and a branch
//! per end of a stream.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};

use crate::driver::ground::leavers::Leavers;
use sluice_engine::Time;
use sluice_engine::class::NodeClass;
use sluice_engine::downstream::{Session, SourceId};
use sluice_engine::lanes::Published;
use sluice_engine::snapshot::Snapshot;
use sluice_fleet::evidence::{
    Compared, Content, Ended, PushSet, PushStanding, PushUnit, RejectingNodes, Seen,
};
use sluice_fleet::rollout::ledger::JoinWord;
use sluice_fleet::rollout::{Admission, Command, CommandError, Plan, Refused, Seat, UnitId};
use sluice_xds::{Node, ResourceName};

/// The maximum number of noted ends between two tallies. So many ends have halted the push long before.
const ENDED_MAX: usize = 100_000;

/// The maximum number of late rejecters that the task has not been told of.
const LATE_MAX: usize = 10_000;

/// The process that decides about pushes: one at a time (HND-3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decider {
    /// The tasks of plans wait.
    Predecessor,
    #[default]
    Own,
    /// No push begins or goes on. A bad one is still taken back.
    Successor,
}

/// All plans, in the order of the configuration.
#[derive(Debug, Default)]
pub struct Plans {
    all: ArcSwap<Vec<Arc<PlanHandle>>>,
    turn: watch::Sender<Decider>,
}

impl Plans {
    pub fn all(&self) -> Arc<Vec<Arc<PlanHandle>>> {
        self.all.load_full()
    }

    pub fn is_empty(&self) -> bool {
        self.all.load().is_empty()
    }

    pub fn exchange(&self, plans: Vec<Arc<PlanHandle>>) {
        self.all.store(Arc::new(plans));
    }

    pub fn turn(&self) -> Decider {
        *self.turn.borrow()
    }

    pub fn give_turn(&self, turn: Decider) {
        self.turn.send_replace(turn);
        self.all.load().iter().for_each(|plan| plan.notes.wake.notify_one());
    }

    /// Resolves when the predecessor does not decide any more.
    pub async fn until_turn(&self) {
        // The sender lives as long as this.
        let _ = self.turn.subscribe().wait_for(|turn| *turn != Decider::Predecessor).await;
    }

    /// Resolves when a successor decides.
    pub async fn until_successor(&self) {
        let _ = self.turn.subscribe().wait_for(|turn| *turn == Decider::Successor).await;
    }

    /// Resolves when this process decides.
    pub async fn until_own_turn(&self) {
        let _ = self.turn.subscribe().wait_for(|turn| *turn == Decider::Own).await;
    }

    /// The plans with a push of the past that this node rejected, each with the latest push that went back or
    /// was halted.
    pub fn rejected_by(&self, node: &str) -> Vec<(Arc<PlanHandle>, u64)> {
        let plans = self.all.load();
        let rejected = |plan: &Arc<PlanHandle>| {
            let rejected = plan.rejected.load();
            rejected.has(node).then(|| (plan.clone(), rejected.push()))
        };
        plans.iter().filter_map(rejected).collect()
    }

    /// The plan of a shared source: the first match.
    pub fn of_source(&self, list: &str, class: &NodeClass) -> Option<Arc<PlanHandle>> {
        let plans = self.all.load();
        plans.iter().find(|handle| handle.plan().units.matches(list, &class.node)).cloned()
    }
}

/// A plan in force: the task's word for sources and streams, and their notes for the task.
#[derive(Debug)]
pub struct PlanHandle {
    plan: ArcSwap<Plan>,
    /// The clients that may have the candidate of a push (WAV-2).
    admission: ArcSwap<Admission>,
    /// The contents that the plan refuses, as the task last knew them.
    refused: ArcSwap<Refused>,
    /// The ledger's word for sources without stable content; `None` without a ledger (LDG-3).
    join_word: ArcSwapOption<JoinWord>,
    /// The latest push that went back, or that was halted.
    rejected: ArcSwap<RejectingNodes>,
    /// The push under way.
    watched: ArcSwapOption<PushWatch>,
    leavers: Leavers,
    /// The replica was beside the pushes of the ledger at some time: it has stable content, or none is under
    /// way.
    has_joined: AtomicBool,
    /// The configuration has no such plan any more.
    is_over: AtomicBool,
    notes: Notes,
}

/// The notes for the task of a plan. Each wakes the task.
#[derive(Debug, Default)]
struct Notes {
    /// The content of units before the first change without the task's knowledge.
    changed: Mutex<BTreeMap<UnitId, Arc<Snapshot>>>,
    /// The refused contents that units gave as first answers (QUA-5).
    given: Mutex<BTreeMap<UnitId, BTreeSet<Content>>>,
    /// The units with a source that began anew after a failure: the previous number, and the present number.
    anew: Mutex<Vec<(UnitId, UnitId)>>,
    /// The nodes with a rejection of a halted push after the end of the count.
    late: Mutex<BTreeSet<Arc<str>>>,
    orders: Mutex<Vec<PendingCommand>>,
    /// There is a state from before a restart.
    is_stored: AtomicBool,
    /// A client has rejected the push under way since the last tally began.
    is_rejected: AtomicBool,
    wake: Notify,
}

/// A command of an operator, with the place for the answer.
#[derive(Debug)]
pub struct PendingCommand {
    pub command: Command,
    /// Contents of the push that no later push may bring, each by the name of its type and its own name.
    pub condemn: Vec<(Box<str>, ResourceName)>,
    /// For this replica alone, whatever the ledger says.
    pub is_here: bool,
    pub done: oneshot::Sender<Result<(), CommandError>>,
}

/// A push under way, as streams see it at their end.
#[derive(Debug)]
pub struct PushWatch {
    pub set: PushSet,
    /// The content of the push, where the newest content is held back.
    candidates: BTreeMap<SourceId, Arc<Snapshot>>,
    /// Shared by all ends between two tallies.
    compared: Mutex<Compared>,
    ended: Mutex<Vec<NotedEnd>>,
    /// The first rejection of each stream since the last tally.
    rejected: Mutex<BTreeMap<u64, NotedRejection>>,
}

/// A stream and the node of its client.
#[derive(Clone, Debug)]
pub struct StreamClient {
    pub stream: u64,
    pub node: Option<Arc<Node>>,
}

/// The end of a stream.
#[derive(Debug)]
pub struct NotedEnd {
    pub ended: Ended,
    /// The sources of the stream.
    pub sources: Vec<SourceId>,
}

/// A rejection of content of the push.
#[derive(Debug)]
pub struct NotedRejection {
    pub seen: Seen,
    /// The sources of the stream.
    pub sources: Vec<SourceId>,
}

/// A publication of a source.
pub struct Publication<'a> {
    /// The newest content before and now, whatever is held back.
    pub before: &'a Arc<Snapshot>,
    pub after: &'a Snapshot,
    /// All releases that the source served before, and serves now.
    pub served: &'a Published,
    pub serves: &'a Published,
    /// The refused contents that the source gives for the first time.
    pub given: BTreeSet<Content>,
}

impl PlanHandle {
    pub fn new(plan: Arc<Plan>) -> PlanHandle {
        PlanHandle {
            plan: ArcSwap::new(plan),
            admission: ArcSwap::from_pointee(Admission::NOBODY),
            refused: ArcSwap::default(),
            join_word: ArcSwapOption::empty(),
            rejected: ArcSwap::default(),
            watched: ArcSwapOption::empty(),
            leavers: Leavers::default(),
            has_joined: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            notes: Notes::default(),
        }
    }

    pub fn plan(&self) -> Arc<Plan> {
        self.plan.load_full()
    }

    pub fn admission(&self) -> Arc<Admission> {
        self.admission.load_full()
    }

    /// Whether a client may have the content of a push: one of this replica, or one that is under way
    /// elsewhere, at a source without stable content.
    pub fn admits_to(&self, push: u64, seat: Seat, served: Option<u64>) -> bool {
        let elsewhere = || {
            self.join_word.load().as_ref().is_some_and(|word| word.admission.admits_to(push, seat, served))
        };
        self.admission.load().admits_to(push, seat, served) || elsewhere()
    }

    /// The ledger's word for sources without stable content. They must be told next.
    pub fn set_join_word(&self, word: Option<JoinWord>) {
        self.join_word.store(word.map(Arc::new));
    }

    pub fn join_word(&self) -> Option<Arc<JoinWord>> {
        self.join_word.load_full()
    }

    pub fn has_joined(&self) -> bool {
        self.has_joined.load(Ordering::Acquire)
    }

    pub fn set_joined(&self) {
        self.has_joined.store(true, Ordering::Release);
    }

    /// The clients of a source without stable content wait, or wait no longer.
    pub fn note_newcomer(&self) {
        self.notes.wake.notify_one();
    }

    /// Must come after the publication of the push's candidates, and returns the previous admission.
    pub fn admit(&self, admission: Admission) -> Arc<Admission> {
        self.admission.swap(Arc::new(admission))
    }

    /// Notes the nodes with a rejection of a push that went back, or that was halted. Returns the new ones.
    pub fn note_rejecters(&self, push: u64, nodes: BTreeSet<Arc<str>>) -> BTreeSet<Arc<str>> {
        let present = self.rejected.load();
        let mut rejected = RejectingNodes::clone(&present);
        let new = rejected.note(push, nodes);
        if !new.is_empty() || present.push() != push {
            self.rejected.store(Arc::new(rejected));
        }
        new
    }

    /// A client with a halted push rejected content after the end of the count. Wakes the task (WAV-16).
    pub fn note_late_rejecter(&self, node: Arc<str>) {
        let mut late = self.notes.late.lock();
        if late.len() < LATE_MAX {
            late.insert(node);
            self.notes.wake.notify_one();
        }
    }

    pub fn has_late_rejecters(&self) -> bool {
        !self.notes.late.lock().is_empty()
    }

    pub fn take_late_rejecters(&self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut *self.notes.late.lock())
    }

    /// The latest push that went back or was halted, and the nodes with a rejection, also of an earlier push.
    pub fn rejecters(&self) -> (u64, BTreeSet<Arc<str>>) {
        let rejected = self.rejected.load();
        (rejected.push(), rejected.all())
    }

    /// Exchanges the plan for another with the same name.
    pub fn configure(&self, plan: Arc<Plan>) {
        self.plan.store(plan);
        self.notes.wake.notify_one();
    }

    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.notes.wake.notify_one();
    }

    /// The lost streams of clients without content of a push.
    pub fn leavers(&self) -> &Leavers {
        &self.leavers
    }

    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// A source has published. Called by the source's task, after the publication.
    pub fn published(&self, unit: UnitId, publication: Publication<'_>) {
        let Publication { before, after, served, serves, given } = publication;
        let plan = self.plan.load();
        if !given.is_empty() {
            self.notes.given.lock().entry(unit).or_default().extend(given);
            self.notes.wake.notify_one();
        }
        let (held, holds) = (served.held().is_some(), serves.held().is_some());
        if PushUnit::concerns(before, after, held, holds, &plan.gated) {
            self.note(unit, before);
        }
    }

    /// The contents that the plan refuses. The sources must be told next.
    pub fn refuse(&self, refused: Refused) {
        self.refused.store(Arc::new(refused));
    }

    pub fn refused(&self) -> Arc<Refused> {
        self.refused.load_full()
    }

    /// The refused contents that units gave as first answers since the last call.
    pub fn take_given(&self) -> BTreeMap<UnitId, BTreeSet<Content>> {
        std::mem::take(&mut *self.notes.given.lock())
    }

    /// A unit may differ from this content.
    pub fn note(&self, unit: UnitId, before: &Arc<Snapshot>) {
        self.notes.changed.lock().entry(unit).or_insert_with(|| before.clone());
        self.notes.wake.notify_one();
    }

    /// The source of a unit has begun anew, and has another number. Called before the previous source is
    /// missing for others.
    pub fn note_anew(&self, previous: UnitId, unit: UnitId) {
        self.notes.anew.lock().push((previous, unit));
        self.notes.wake.notify_one();
    }

    pub fn take_anew(&self) -> Vec<(UnitId, UnitId)> {
        std::mem::take(&mut *self.notes.anew.lock())
    }

    /// The state from before a restart has been read.
    pub fn note_stored(&self) {
        self.notes.is_stored.store(true, Ordering::Release);
        self.notes.wake.notify_one();
    }

    pub fn take_stored(&self) -> bool {
        self.notes.is_stored.swap(false, Ordering::AcqRel)
    }

    pub fn take_changed(&self) -> BTreeMap<UnitId, Arc<Snapshot>> {
        std::mem::take(&mut *self.notes.changed.lock())
    }

    /// A client has rejected the push under way. The first rejection after the begin of a tally wakes the
    /// task; the others do not.
    pub fn note_rejected(&self) {
        if !self.notes.is_rejected.swap(true, Ordering::AcqRel) {
            self.notes.wake.notify_one();
        }
    }

    pub fn is_rejected(&self) -> bool {
        self.notes.is_rejected.load(Ordering::Acquire)
    }

    /// A tally begins, and takes the rejections so far.
    pub fn begin_tally(&self) {
        self.notes.is_rejected.store(false, Ordering::Release);
    }

    /// Gives the task a command. The answer comes when readers see the state after it; never, if the plan
    /// ends before.
    pub fn command(
        &self,
        command: Command,
        condemn: Vec<(Box<str>, ResourceName)>,
        is_here: bool,
    ) -> oneshot::Receiver<Result<(), CommandError>> {
        let (done, answer) = oneshot::channel();
        self.notes.orders.lock().push(PendingCommand { command, condemn, is_here, done });
        self.notes.wake.notify_one();
        answer
    }

    pub fn take_orders(&self) -> Vec<PendingCommand> {
        std::mem::take(&mut *self.notes.orders.lock())
    }

    /// Resolves when there is a note for the task.
    pub async fn noted(&self) {
        self.notes.wake.notified().await;
    }

    pub fn watch(&self, watched: Option<Arc<PushWatch>>) {
        self.watched.store(watched);
    }

    /// The push under way, for the end of a stream.
    pub fn watched(&self) -> Option<Arc<PushWatch>> {
        self.watched.load_full()
    }
}

impl PushWatch {
    /// `candidates`: the content of the push where the newest content is held back.
    pub fn new(set: PushSet, candidates: BTreeMap<SourceId, Arc<Snapshot>>) -> PushWatch {
        PushWatch {
            set,
            candidates,
            compared: Mutex::default(),
            ended: Mutex::default(),
            rejected: Mutex::default(),
        }
    }

    /// The client's standing towards the push. `latest` as in [`Session::poll_answer`].
    pub fn standing(
        &self,
        session: &Session,
        compared: &mut Compared,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
        now: Time,
    ) -> PushStanding {
        // A client outside of the push's steps is served older content.
        let due = |id| self.candidates.get(&id).cloned().or_else(|| latest(id));
        PushStanding::of_client(session, &self.set, compared, &due, now)
    }

    /// Notes a lost stream, and the rejection of any stream. `latest` as in [`Session::poll_answer`].
    pub fn note_end(
        &self,
        client: StreamClient,
        is_lost: bool,
        session: &Session,
        sources: Vec<SourceId>,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
        at: Time,
    ) {
        let standing = self.standing(session, &mut self.compared.lock(), latest, at);
        if !is_lost && standing.rejections.is_empty() {
            return;
        }
        let mut ended = self.ended.lock();
        if ended.len() < ENDED_MAX {
            let StreamClient { stream, node } = client;
            ended.push(NotedEnd { ended: Ended { stream, node, at, standing }, sources });
        }
    }

    /// Notes a rejection of content of the push, and returns whether it was one. By the next tally the client
    /// may have gone back, and its session may have forgotten the rejection. `latest` as in
    /// [`Session::poll_answer`].
    pub fn note_rejection(
        &self,
        client: StreamClient,
        session: &Session,
        sources: impl Iterator<Item = SourceId>,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
        now: Time,
    ) -> bool {
        let StreamClient { stream, node } = client;
        let is_room = |noted: &BTreeMap<u64, _>| noted.len() < ENDED_MAX && !noted.contains_key(&stream);
        if !is_room(&self.rejected.lock()) {
            return false;
        }
        let standing = self.standing(session, &mut self.compared.lock(), latest, now);
        if standing.rejections.is_empty() {
            return false;
        }
        // A plan hears of the rejections of relays only where they count (TIR-1).
        let seen = Seen { stream, node, standing, is_relay: false };
        self.rejected.lock().insert(stream, NotedRejection { seen, sources: sources.collect() });
        true
    }

    pub fn take_rejected(&self) -> impl Iterator<Item = NotedRejection> {
        std::mem::take(&mut *self.rejected.lock()).into_values()
    }

    pub fn take_ended(&self) -> Vec<NotedEnd> {
        *self.compared.lock() = Compared::default();
        std::mem::take(&mut *self.ended.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WAV-10, WAV-16: a rejection of a halted push counts after the end of the count, and each rejecter is
    /// new once.
    #[test]
    fn wav_10_late_rejecters_join_those_of_their_push() {
        let plan = PlanHandle::new(Arc::new(Plan::new("edge")));
        let nodes = |all: &[&str]| all.iter().map(|node| Arc::from(*node)).collect::<BTreeSet<Arc<str>>>();
        assert_eq!(plan.note_rejecters(1, nodes(&["a"])), nodes(&["a"]));
        plan.note_late_rejecter("b".into());
        assert_eq!(plan.note_rejecters(1, plan.take_late_rejecters()), nodes(&["b"]));
        assert_eq!(plan.rejecters(), (1, nodes(&["a", "b"])), "nobody is forgotten");
        assert!(
            plan.note_rejecters(1, nodes(&["a", "b"])).is_empty() && plan.take_late_rejecters().is_empty()
        );
        plan.note_rejecters(2, nodes(&["c"]));
        assert_eq!(plan.rejecters(), (2, nodes(&["a", "b", "c"])), "those of earlier pushes stay");
    }
}
