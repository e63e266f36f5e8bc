//! The contents of the units of a plan: changes, cuts, and the releases that sources serve.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use crate::driver::ground::plans::PushWatch;
use crate::driver::rollout::condemner::learn;
use crate::driver::rollout::fleet::{Fleet, send, unit_of};
use crate::driver::rollout::inspect::Inspection;
use crate::driver::rollout::state::PlanState;
use crate::driver::source::handle::SourceHandle;
use crate::driver::source::lane_order::{LaneContent, LaneOrder};
use sluice_engine::Time;
use sluice_engine::downstream::SourceId;
use sluice_engine::snapshot::Snapshot;
use sluice_fleet::evidence::{self, KnownContents, PushSet, PushUnit, condemn, returned};
use sluice_fleet::rollout::{Plan, UnitId, UnitPush};

/// The maximum time from a publication to the note.
const LATE_NOTES: Duration = Duration::from_secs(10);

/// The units of a record have numbers from here on until their sources are there. Sources have smaller
/// numbers.
const RECORDED_FROM: u64 = 1 << 63;

/// Numbers for the units of a record.
pub(super) fn recorded_units() -> impl Iterator<Item = UnitId> {
    (RECORDED_FROM..).map(UnitId)
}

/// Whether a unit of a record is still missing.
pub(super) fn is_recorded(unit: UnitId) -> bool {
    unit.0 >= RECORDED_FROM
}

/// Gathers the changes of units, and cuts pushes from them.
pub(super) struct Gatherer {
    /// The content of units before the waiting changes. For `mode: observe`.
    before: BTreeMap<UnitId, Arc<Snapshot>>,
    pub(super) contents: KnownContents,
    /// The units without a reachable server.
    lost: BTreeSet<UnitId>,
    /// The latest cut, until its push begins.
    next: Option<NextPush>,
    latest: LatestCut,
    /// The releases of this process, each with the number of the last source at that time.
    released: BTreeMap<u64, u64>,
}

/// A push between its cut and its begin.
struct NextPush {
    number: u64,
    set: PushSet,
    /// The content of the units at the cut.
    after: BTreeMap<UnitId, Arc<Snapshot>>,
}

/// The content of units at the cut of the push under way, for late notes.
struct LatestCut {
    units: BTreeMap<UnitId, Arc<Snapshot>>,
    until: Instant,
}

impl LatestCut {
    /// The content of a unit before a change. The push may have the change already: its cut came between the
    /// publication and the note.
    fn before(&self, unit: UnitId, noted: Arc<Snapshot>) -> Arc<Snapshot> {
        let cut = self.units.get(&unit).filter(|cut| cut.last_change() >= noted.last_change());
        cut.cloned().unwrap_or(noted)
    }
}

impl Gatherer {
    pub(super) fn new() -> Gatherer {
        Gatherer {
            before: BTreeMap::new(),
            contents: KnownContents::default(),
            lost: BTreeSet::new(),
            next: None,
            latest: LatestCut { units: BTreeMap::new(), until: Instant::now() },
            released: BTreeMap::new(),
        }
    }

    /// The plan leads pushes by other rules: the content of an abandoned push is a change again.
    pub(super) fn begin_anew(&mut self, fleet: &Fleet) {
        self.before.clear();
        self.contents.clear();
        self.next = None;
        adopt(fleet);
    }

    /// Takes the notes of the sources.
    pub(super) fn take_changes(&mut self, state: &mut PlanState, fleet: &Fleet) {
        let changed = fleet.handle.take_changed();
        let sources = if changed.is_empty() { HashMap::new() } else { fleet.all_sources() };
        self.follow_anew(state, fleet);
        for (unit, before) in changed {
            let before = self.latest.before(unit, before);
            let now = fleet.now();
            match sources.get(&unit) {
                None => {
                    self.before.remove(&unit);
                    state.rollout.gone(unit, now);
                }
                Some(source) if state.enforces() => self.compare(source, state, now),
                Some(source) => self.observe(source, before, state, now),
            }
        }
    }

    /// Compares the newest content of a unit with the content before all waiting changes. For `mode:
    /// observe`.
    fn observe(&mut self, source: &SourceHandle, before: Arc<Snapshot>, state: &mut PlanState, now: Time) {
        let unit = unit_of(source);
        let before = self.before.entry(unit).or_insert(before);
        if PushUnit::differs(before, &source.snapshot(), &state.plan().gated) {
            state.rollout.changed(unit, now);
        } else {
            self.before.remove(&unit);
            state.rollout.returned(unit, now);
        }
    }

    /// Compares the newest content of a unit with the stable content and the latest candidate. For `mode:
    /// enforce`.
    fn compare(&mut self, source: &SourceHandle, state: &mut PlanState, now: Time) {
        let unit = unit_of(source);
        let (is_kept, last) = (state.rollout.keeps(unit), state.rollout.last_push());
        let compared = self.contents.compare(state.plan(), unit, &source.published(), is_kept, last);
        // A hold for names that the source forgot ends with the next rest.
        state.is_unsaved |= compared.has_forgotten;
        state.rollout.compared(unit, compared.differs, now);
    }

    fn compare_all(&mut self, sources: &[Arc<SourceHandle>], state: &mut PlanState, fleet: &Fleet) {
        sources.iter().for_each(|source| self.compare(source, state, fleet.now()));
    }

    /// Takes over the present numbers of units whose source began anew after a failure (WAV-8). Due after
    /// each look for their sources, and before a missing unit counts as ended.
    fn follow_anew(&mut self, state: &mut PlanState, fleet: &Fleet) {
        for (previous, unit) in fleet.handle.take_anew() {
            state.is_unsaved = true;
            self.before.remove(&previous);
            self.lost.remove(&previous);
            if state.rollout.began_anew(previous, unit, fleet.now()) {
                self.contents.begin_anew(previous, unit);
            }
        }
    }

    /// Tells the machine of lost servers, and of servers heard again, while a push is under way or waits.
    pub(super) fn follow_servers(&mut self, state: &mut PlanState, fleet: &Fleet) {
        let report = state.rollout.report();
        let pushed = report.push.iter().flat_map(|push| push.units.iter().copied());
        let units = pushed.chain(report.waiting).filter(|unit| !is_recorded(*unit));
        let units: BTreeSet<UnitId> = units.collect();
        let sources = fleet.all_sources();
        self.follow_anew(state, fleet);
        for unit in units {
            let now = fleet.now();
            match sources.get(&unit) {
                None => {
                    self.before.remove(&unit);
                    self.lost.remove(&unit);
                    state.rollout.gone(unit, now);
                }
                Some(source) if !fleet.owns(source) => {
                    self.before.remove(&unit);
                    state.rollout.taken(unit, now);
                }
                Some(source) => self.note_reach(source, state, now),
            }
        }
    }

    fn note_reach(&mut self, source: &SourceHandle, state: &mut PlanState, now: Time) {
        let unit = unit_of(source);
        if source.snapshot().standing().reach().is_lost() {
            if self.lost.insert(unit) {
                state.rollout.lost(unit, now);
            }
        } else if self.lost.remove(&unit) {
            state.rollout.heard(unit, now);
        }
    }

    /// Compares units whose server has not answered for all types since a restart.
    pub(super) fn look_at_awaited(&mut self, state: &mut PlanState, fleet: &Fleet) {
        let (now, plan) = (fleet.now(), state.plan().clone());
        for source in fleet.sources() {
            let unit = unit_of(&source);
            if self.contents.awaits(unit) {
                self.compare(&source, state, now);
                self.contents.hear(&plan, unit, &source.published().live);
            }
            if state.rollout.recalled().any(|recalled| recalled == unit)
                && evidence::is_current(&plan, &source.snapshot())
            {
                self.compare(&source, state, now);
                state.rollout.answered(unit);
            }
        }
    }

    /// Sums up the changes of the units since their first.
    pub(super) async fn cut(&mut self, number: u64, units: &[UnitId], state: &mut PlanState, fleet: &Fleet) {
        let sources = fleet.all_sources();
        let present: Vec<_> = units.iter().filter_map(|unit| sources.get(unit)).collect();
        // A server may have been lost since the last tally (WAV-18).
        present.iter().for_each(|source| self.note_reach(source, state, fleet.now()));
        if self.is_put_off(&present, state, fleet.now()) {
            return;
        }
        let plan = state.plan().clone();
        let (mut changes, mut pushed, mut after) = (Vec::new(), Vec::<UnitPush>::new(), BTreeMap::new());
        let releases = present.iter().map(|source| (unit_of(source), self.releases(number, source, &plan)));
        for (unit, content) in together(releases).await {
            let LaneContent { stable, candidate, released } = content;
            let latest = self.contents.candidate(unit);
            let (difference, mut push) = evidence::sum_up(&plan, unit, &stable, &candidate, latest);
            push.returns_to = returned(&plan, released.iter(), &stable, &candidate);
            let (contents, guards) = (Inspection::new(&difference, &stable, &candidate), plan.guards);
            let inspected = tokio::task::spawn_blocking(move || contents.inspect(&guards)).await;
            push.findings = inspected.unwrap_or_default();
            let key = sources.get(&unit).and_then(|source| fleet.key(source));
            push.shared = key.map(|key| difference.shared(key));
            changes.push(difference);
            // Without a known change the unit is in no push.
            if !(plan.enforces() && push.is_empty()) {
                after.insert(unit, candidate);
            }
            pushed.push(push);
        }
        let set = PushSet::new(changes);
        learn(set.contents(), state, fleet);
        condemn(&mut pushed, state.rejecters.condemned_in(&set, fleet.now()));
        let before_cut = self.contents.candidates();
        if plan.enforces() {
            after.iter().for_each(|(unit, candidate)| self.contents.know(*unit, candidate.clone()));
            // The push has changes that were none of a push at the order before.
            let now = fleet.now();
            let cut = after.keys().filter_map(|unit| sources.get(unit));
            cut.for_each(|source| self.compare(source, state, now));
        }
        self.next = Some(NextPush { number, set, after });
        let blank = pushed.iter().filter(|push| push.is_empty()).map(|push| push.unit);
        let mut outside: Vec<_> = blank.filter_map(|unit| sources.get(&unit)).collect();
        if !state.rollout.ready(pushed, fleet.now()) {
            // The cut was put off: the content is part of no push yet, and must be found again.
            self.contents.restore(before_cut);
            outside = present;
        }
        for source in outside {
            // The number is that of a push without the unit, or becomes one.
            source.order(LaneOrder::PutOff(number)).await;
            // Names that the source forgot were only held for the cut.
            self.compare(source, state, fleet.now());
        }
    }

    /// Whether a cut would be put off. It is not made then if clients keep a halted push, because it takes
    /// the place of the push's content (WAV-16).
    fn is_put_off(&self, sources: &[&Arc<SourceHandle>], state: &mut PlanState, now: Time) -> bool {
        if !state.rollout.has_holders() {
            return false;
        }
        let plan = state.plan();
        let look = |source: &&Arc<SourceHandle>| {
            let (unit, published) = (unit_of(source), source.published());
            let stable = published.held()?;
            let latest = self.contents.candidate(unit);
            Some(evidence::sum_up(plan, unit, stable, &published.live, latest).1)
        };
        let units = sources.iter().filter_map(look).collect();
        state.rollout.look(units, now)
    }

    /// The two releases of a unit at the cut; `None` if the unit has nothing to push.
    async fn releases(&self, number: u64, source: &SourceHandle, plan: &Plan) -> Option<LaneContent> {
        if plan.enforces() {
            return source.order(LaneOrder::Cut(number)).await;
        }
        let stable = self.before.get(&unit_of(source))?.clone();
        Some(LaneContent { stable, candidate: source.snapshot(), released: Vec::new() })
    }

    /// The latest cut is the push under way from now on. Returns its content; `None` if the push has begun
    /// before.
    pub(super) fn begin(&mut self, number: u64, enforces: bool) -> Option<Arc<PushWatch>> {
        let next = self.next.take_if(|next| next.number == number)?;
        let mut candidates = BTreeMap::new();
        for (unit, after) in next.after {
            self.before.remove(&unit);
            self.contents.begin(unit);
            if enforces {
                candidates.insert(SourceId(unit.0), after.clone());
            }
            self.latest.units.insert(unit, after);
        }
        self.latest.until = Instant::now() + LATE_NOTES;
        Some(Arc::new(PushWatch::new(next.set, candidates)))
    }

    /// Forgets the content of the latest cut once all notes of changes before it have come.
    pub(super) fn forget_latest_cut(&mut self) {
        if Instant::now() >= self.latest.until {
            self.latest.units.clear();
        }
    }

    /// A push is over. `is_counted`: the clients of the push were counted until now.
    pub(super) fn release(&mut self, number: u64, is_counted: bool) {
        if is_counted {
            self.latest.units.clear();
        }
        if let Some(next) = self.next.take_if(|next| next.number == number) {
            // The changes went back before the push began.
            next.after.keys().for_each(|unit| drop(self.before.remove(unit)));
        }
    }

    /// Takes a push back: all clients have the stable content.
    pub(super) async fn take_back(&mut self, push: u64, state: &mut PlanState, fleet: &Fleet) {
        let sources = fleet.sources();
        send(&sources, LaneOrder::Back(push)).await;
        self.compare_all(&sources, state, fleet);
    }

    /// The content of a push is the stable content from now on.
    pub(super) async fn settle(&mut self, push: u64, state: &mut PlanState, fleet: &Fleet) {
        let sources = fleet.sources();
        // Stable is the candidate, also of content that no comparison has seen yet.
        let is_pushed = |source: &&Arc<SourceHandle>| source.published().candidate_of(push).is_some();
        sources.iter().filter(is_pushed).for_each(|source| self.contents.settle(unit_of(source)));
        send(&sources, LaneOrder::Settle(push)).await;
        self.note_release(push, &sources, state.plan());
        self.compare_all(&sources, state, fleet);
    }

    /// The content of a push is a release of all sources so far.
    fn note_release(&mut self, push: u64, sources: &[Arc<SourceHandle>], plan: &Plan) {
        let last = sources.iter().map(|source| source.id().0).max().unwrap_or_default();
        if self.released.is_empty() {
            // The content before the first push.
            self.released.insert(0, last);
        }
        self.released.insert(push, last);
        while self.released.len() > plan.releases + 1 {
            self.released.pop_first();
        }
    }

    /// Serves a release of the past to all clients (HIS-3).
    pub(super) async fn serve(&mut self, release: u64, state: &mut PlanState, fleet: &Fleet) {
        let sources = fleet.sources();
        send(&sources, LaneOrder::Serve(release)).await;
        // A source that began later has none of the release, and goes on with its content.
        let last = self.released.range(..=release).next_back().map(|(_, last)| *last);
        let units = sources.iter().map(|source| unit_of(source));
        state.rollout.serves(units.filter(|unit| last.is_none_or(|last| unit.0 <= last)));
        for source in &sources {
            self.contents.know(unit_of(source), source.snapshot());
            self.compare(source, state, fleet.now());
        }
    }

    /// Nobody is held back any more.
    pub(super) async fn open(&mut self, fleet: &Fleet) {
        send(&fleet.sources(), LaneOrder::Open).await;
        self.contents.clear();
    }

    /// Ends holds without a difference.
    pub(super) async fn rest(&mut self, state: &mut PlanState, fleet: &Fleet) {
        let sources = fleet.sources();
        if sources.iter().any(|source| source.published().held().is_some()) {
            send(&sources, LaneOrder::Rest).await;
            self.compare_all(&sources, state, fleet);
        }
    }
}

/// Notes the content that an earlier task of the plan left held back.
pub(super) fn adopt(fleet: &Fleet) {
    for source in fleet.sources() {
        source.set_kept(false);
        if let Some(stable) = source.published().held() {
            fleet.handle.note(unit_of(&source), stable);
        }
    }
}

/// The contents of all units at one moment (WAV-4). No unit waits until another has answered, and none until
/// guards have read another's content: changes meanwhile belong to the next push.
async fn together<C>(
    cuts: impl Iterator<Item = (UnitId, impl Future<Output = Option<C>>)>,
) -> Vec<(UnitId, C)> {
    let cuts = cuts.map(|(unit, content)| async move { Some((unit, content.await?)) });
    join_all(cuts).await.into_iter().flatten().collect()
}
