//! The task of one plan.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::driver::api::rollouts::{RolloutStatus, UnitStatus};
use crate::driver::ground::context::DriverContext;
use crate::driver::ground::plans::{PlanHandle, Turn};
use crate::driver::rollout::count::Clients;
use crate::driver::rollout::cut::Next;
use crate::driver::rollout::hook::{Asking, answered};
use crate::driver::rollout::orders::Answer;
use crate::driver::rollout::records::{Recorded, is_recorded};
use crate::driver::rollout::refuses::Refuses;
use crate::driver::rollout::table::Shown;
use crate::driver::source::handle::SourceHandle;
use crate::driver::source::lane_order::LaneOrder;
use crate::driver::stream::state::Tables;
use crate::engine::Time;
use crate::engine::downstream::PushUnit;
use crate::engine::evidence::{KnownContents, Rejecters};
use crate::engine::rollout::{Admission, Output, Plan, Rollout, RolloutReport, RolloutState, UnitId};
use crate::engine::snapshot::Snapshot;
use crate::telemetry::metrics::PlanMetrics;
use crate::telemetry::rollouts;

/// The time between two tallies.
const TALLY_EVERY: Duration = Duration::from_secs(1);

/// The time between two tallies after a rejection of the push. A tally looks at all streams, and clients that reject all the time
/// must not keep the task busy.
const TALLY_AFTER_REJECTION: Duration = Duration::from_millis(100);

/// A plan at work.
pub(super) struct PlanTask {
    pub(super) handle: Arc<PlanHandle>,
    shown: Arc<Shown>,
    pub(super) shared: Arc<DriverContext>,
    pub(super) tables: Tables,
    pub(super) plan: Arc<Plan>,
    pub(super) metrics: PlanMetrics,
    pub(super) rollout: Rollout,
    /// The content of units before the waiting changes.
    pub(super) before: BTreeMap<UnitId, Arc<Snapshot>>,
    /// The content of units at the latest cut, for late notes.
    pub(super) cut: BTreeMap<UnitId, Arc<Snapshot>>,
    pub(super) cut_until: Instant,
    pub(super) next: Option<Next>,
    pub(super) known: KnownContents,
    pub(super) clients: Option<Clients>,
    pub(super) rejecters: Rejecters,
    /// The latest push that went back, or that was halted. Clients that rejected it are restated what differs.
    pub(super) restates: Option<u64>,
    /// The units of the state before a restart.
    pub(super) recorded: Recorded,
    /// Something is held back from some client, and its age is shown.
    is_behind: bool,
    /// The lanes weigh too much for another push.
    pub(super) is_full: bool,
    /// The state has changed since it was last kept.
    pub(super) is_changed: bool,
    admission: Admission,
    /// The units without a reachable server.
    pub(super) lost: BTreeSet<UnitId>,
    pub(super) tally_due: Instant,
    tallied_at: Instant,
    /// `None`: the plan has no hook.
    pub(super) asking: Option<Asking>,
    /// The contents that the sources know the plan to refuse.
    pub(super) refuses: Refuses,
    /// The units that know that their hold outlives their names.
    pub(super) kept: BTreeSet<UnitId>,
    /// The releases of this process, each with the number of the last source at that time.
    pub(super) released: BTreeMap<u64, u64>,
}

impl PlanTask {
    pub(super) fn new(
        handle: Arc<PlanHandle>,
        shown: Arc<Shown>,
        shared: Arc<DriverContext>,
        tables: Tables,
    ) -> PlanTask {
        let plan = handle.plan();
        handle.watch(None);
        PlanTask {
            metrics: shared.metrics.rollouts.plan(&plan.name),
            rollout: Rollout::new(plan.clone()),
            plan,
            handle,
            shown,
            shared,
            tables,
            before: BTreeMap::new(),
            cut: BTreeMap::new(),
            cut_until: Instant::now(),
            next: None,
            known: KnownContents::default(),
            clients: None,
            rejecters: Rejecters::default(),
            restates: None,
            recorded: Recorded::default(),
            is_behind: false,
            is_full: false,
            is_changed: false,
            admission: Admission::NOBODY,
            lost: BTreeSet::new(),
            tally_due: Instant::now(),
            tallied_at: Instant::now(),
            asking: None,
            refuses: Refuses::default(),
            kept: BTreeSet::new(),
            released: BTreeMap::new(),
        }
    }

    /// Runs until the configuration has no such plan.
    pub(super) async fn run(mut self) {
        self.restore();
        self.adopt();
        self.follow_hook();
        self.refuse().await;
        self.show();
        while !self.handle.is_over() {
            let clock = self.shared.clock;
            let timeout = self.rollout.poll_timeout().map(|due| clock.instant(due));
            let is_watched = self.rollout.wants_tally() || timeout.is_some();
            // Holds of before a restart are recalled until their servers have answered.
            let recalls = self.rollout.recalled().any(|unit| !is_recorded(unit));
            let looks = is_watched || self.is_changed || self.is_full || self.is_behind || recalls;
            let tally = looks.then_some(self.tally_due);
            let forgets = self.rejecters.next_end().map(|end| clock.instant(end));
            let due = [timeout, tally, forgets].into_iter().flatten().min();
            let said = tokio::select! {
                () = self.handle.noted() => None,
                () = wait_until(due) => None,
                said = answered(&mut self.asking) => Some(said),
            };
            self.shared.plans.until_turn().await;
            if self.handle.take_stored() {
                self.restore();
            }
            self.follow_configuration();
            self.rollout.set_succeeded(self.shared.plans.turn() == Turn::Successor, clock.now());
            self.find();
            self.take_changes();
            self.take_given();
            self.rollout.handle_timeout(clock.now());
            self.rejecters.forget(clock.now());
            said.into_iter().for_each(|said| self.hear(said));
            let answers = self.obey();
            self.restate_recorded().await;
            self.carry_out().await;
            if self.handle.has_late_rejecters() {
                self.restate().await;
            }
            self.keep_holds().await;
            if !answers.is_empty() {
                // An operator's word that was answered is not lost with the process.
                self.rest().await;
                self.is_changed = !self.keep().await;
            }
            if self.handle.is_rejected() {
                self.tally_due = self.tally_due.min(self.tallied_at + TALLY_AFTER_REJECTION);
            }
            if Instant::now() >= self.tally_due {
                self.handle.begin_tally();
                self.tallied_at = Instant::now();
                self.tally_due = self.tallied_at + TALLY_EVERY;
                self.follow_servers();
                self.look_at_awaited();
                self.weigh();
                self.tally().await;
                self.carry_out().await;
                self.keep_holds().await;
                if self.is_changed {
                    self.rest().await;
                    self.is_changed = !self.keep().await;
                }
            }
            self.show();
            answers.into_iter().for_each(Answer::send);
        }
        self.rollout.end(self.shared.clock.now());
        self.carry_out().await;
        self.shared.durable.plans.forget(&self.plan.name);
    }

    fn follow_configuration(&mut self) {
        let plan = self.handle.plan();
        if plan != self.plan {
            let leads_as_before = plan.leads_as(&self.plan);
            self.plan = plan.clone();
            self.rollout.configure(plan, self.shared.clock.now());
            self.follow_hook();
            if leads_as_before {
                return;
            }
            self.before.clear();
            // The content of an abandoned push is a change again.
            self.known.clear();
            self.next = None;
            self.adopt();
        }
    }

    /// Takes the notes of the sources.
    fn take_changes(&mut self) {
        let changed = self.handle.take_changed();
        let sources = if changed.is_empty() { HashMap::new() } else { self.sources() };
        self.follow_anew();
        for (unit, before) in changed {
            // The push may have the change already: its cut came between the publication and the note.
            let known = self.cut.get(&unit).filter(|cut| cut.last_change() >= before.last_change());
            let before = known.cloned().unwrap_or(before);
            let now = self.shared.clock.now();
            let Some(source) = sources.get(&unit) else {
                self.before.remove(&unit);
                self.rollout.gone(unit, now);
                continue;
            };
            if self.plan.enforces() {
                self.compare(unit, source, now);
                continue;
            }
            let before = self.before.entry(unit).or_insert(before).clone();
            if PushUnit::differs(&before, &source.snapshot(), &|url| self.plan.gated.contains(url)) {
                self.rollout.changed(unit, now);
            } else {
                self.before.remove(&unit);
                self.rollout.returned(unit, now);
            }
        }
    }

    /// Counts the refused contents that units gave because nothing older is known (QUA-5).
    fn take_given(&mut self) {
        for (unit, contents) in self.handle.take_given() {
            self.is_changed = true;
            self.rollout.gave_condemned(unit);
            let log = (&self.shared.metrics.events, &self.shared.throttle);
            rollouts::tell_given(log, (&self.metrics, self.rollout.last_push()), &contents);
        }
    }

    async fn carry_out(&mut self) {
        while let Some(output) = self.rollout.poll_output() {
            self.is_changed = true;
            match output {
                Output::Cut { push, units } => self.cut(push, &units).await,
                Output::Admit(admission) => {
                    self.begin(admission.push);
                    let is_begun = admission.push == self.admission.push && self.admission.step > 0;
                    let admits = admission.state != RolloutState::Halted && admission.step > 0;
                    if self.plan.enforces() && admits && !is_begun {
                        self.order(LaneOrder::Give(admission.push)).await;
                    }
                    self.admission = admission;
                    self.admit(admission).await;
                }
                Output::Ask { push, step } => self.ask(push, step),
                Output::Event(event) => {
                    let report = self.rollout.report();
                    rollouts::tell(&self.shared.metrics.events, &self.metrics, &event, &report);
                }
                Output::Release { push } => self.release(push),
                Output::Back { push } => {
                    self.order(LaneOrder::Back(push)).await;
                    self.restate_of(push).await;
                }
                Output::Stay { push } => {
                    self.order(LaneOrder::Stay(push)).await;
                    self.restate_of(push).await;
                }
                Output::Settle { push } => self.order(LaneOrder::Settle(push)).await,
                Output::Serve { release } => self.order(LaneOrder::Serve(release)).await,
                Output::Open => self.order(LaneOrder::Open).await,
            }
        }
        self.refuse().await;
    }

    /// Tells the machine of lost servers, and of servers heard again, while a push is under way or waits.
    fn follow_servers(&mut self) {
        let report = self.rollout.report();
        let of_push = report.push.iter().flat_map(|push| push.units.iter().copied());
        let units = of_push.chain(report.waiting).filter(|unit| !is_recorded(*unit));
        let units: BTreeSet<UnitId> = units.collect();
        let sources = self.sources();
        self.follow_anew();
        for unit in units {
            let now = self.shared.clock.now();
            let Some(source) = sources.get(&unit) else {
                self.before.remove(&unit);
                self.lost.remove(&unit);
                self.rollout.gone(unit, now);
                continue;
            };
            if !self.owns(source) {
                self.before.remove(&unit);
                self.rollout.taken(unit, now);
                continue;
            }
            self.note_reach(unit, source);
        }
    }

    pub(super) fn note_reach(&mut self, unit: UnitId, source: &SourceHandle) {
        let now = self.shared.clock.now();
        if source.snapshot().standing().reach().is_lost() {
            if self.lost.insert(unit) {
                self.rollout.lost(unit, now);
            }
        } else if self.lost.remove(&unit) {
            self.rollout.heard(unit, now);
        }
    }

    fn owns(&self, source: &SourceHandle) -> bool {
        source.plan(&self.shared.plans).is_some_and(|plan| Arc::ptr_eq(&plan, &self.handle))
    }

    async fn tally(&mut self) {
        if !self.rollout.wants_tally() {
            return;
        }
        if Instant::now() >= self.cut_until {
            self.cut.clear();
        }
        let units = self.units();
        let Some(clients) = &mut self.clients else { return };
        let memory = (&mut self.rejecters, self.handle.leavers());
        let around = (&*self.shared, &self.tables);
        let tally = clients.tally(&self.plan, &units, self.admission, memory, around).await;
        self.rollout.tally(tally, self.shared.clock.now());
        // A rejection of a push that went back, or that was halted, may come late.
        self.restate().await;
    }

    /// The units of the plan.
    pub(super) fn units(&self) -> BTreeSet<UnitId> {
        let own = own_sources(&self.handle, &self.shared, &self.tables);
        own.iter().map(|source| UnitId(source.id().0)).collect()
    }

    pub(super) fn sources(&self) -> HashMap<UnitId, Arc<SourceHandle>> {
        let all = self.tables.sources.all().into_iter();
        all.map(|source| (UnitId(source.id().0), source)).collect()
    }

    fn show(&mut self) {
        let report = self.rollout.report();
        let is_behind = report.behind_from.is_some();
        // The next process has to know since when.
        self.is_changed |= std::mem::replace(&mut self.is_behind, is_behind) != is_behind;
        let is_kept = !self.plan.enforces() || self.admission.has_holders();
        self.handle.leavers().pause(report.state == RolloutState::Halted && is_kept);
        self.metrics.show(&report, self.shared.clock.now());
        let mut units = self.shown.units_of(&report);
        let new: Vec<_> = named(&report).into_iter().filter(|unit| !units.contains_key(unit)).collect();
        let sources = if new.is_empty() { HashMap::new() } else { self.sources() };
        units.extend(new.into_iter().filter_map(|unit| Some((unit, unit_status(sources.get(&unit)?)))));
        let origin = self.shared.clock.wall(Time::ZERO);
        let (plan, condemned) = (self.plan.clone(), self.rejecters.condemned().clone());
        self.shown.show(RolloutStatus::of(plan, report, units, (condemned, origin)));
    }
}

/// The units in a report.
pub(super) fn named(report: &RolloutReport) -> BTreeSet<UnitId> {
    let pushes = report.push.iter().chain(&report.past);
    let named = pushes.flat_map(|push| push.units.iter().chain(&push.blamed));
    named.chain(&report.waiting).copied().collect()
}

pub(super) fn unit_status(source: &SourceHandle) -> UnitStatus {
    let status = source.status();
    UnitStatus { server: status.server.clone(), list: status.list.clone(), class: status.class.clone() }
}

/// The shared sources of a plan.
pub(super) fn own_sources(
    handle: &Arc<PlanHandle>,
    shared: &DriverContext,
    tables: &Tables,
) -> Vec<Arc<SourceHandle>> {
    let mut sources = tables.sources.all();
    sources.retain(|source| source.plan(&shared.plans).is_some_and(|plan| Arc::ptr_eq(&plan, handle)));
    sources
}

async fn wait_until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}
