//! The lanes of the sources of a plan: admissions of clients, and orders to sources (WAV-2).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use futures_util::future::join_all;

use crate::driver::rollout::count::STREAMS_PER_TURN;
use crate::driver::rollout::task::{PlanTask, own_sources};
use crate::driver::source::handle::{SourceHandle, Subscriber};
use crate::driver::source::lane_order::LaneOrder;
use crate::driver::stream::state::StreamState;
use crate::engine::Time;
use crate::engine::downstream::SourceId;
use crate::engine::evidence;
use crate::engine::rollout::{Admission, RolloutState, UnitId};

impl PlanTask {
    /// Notes the content that an earlier task of the plan left held back.
    pub(super) fn adopt(&self) {
        for source in own_sources(&self.handle, &self.shared, &self.tables) {
            source.set_kept(false);
            if let Some(stable) = source.published().lanes.as_ref().and_then(|lanes| lanes.stable.as_ref()) {
                self.handle.note(UnitId(source.id().0), stable);
            }
        }
    }

    /// Compares the newest content of a unit with stable and the latest candidate.
    pub(super) fn compare(&mut self, unit: UnitId, source: &SourceHandle, now: Time) {
        let around = (self.rollout.keeps(unit), self.rollout.last_push());
        let compared = self.known.compare(&self.plan, unit, &source.published(), around);
        // A hold for names that the source forgot ends with the next rest.
        self.is_changed |= compared.has_forgotten;
        self.rollout.compared(unit, compared.differs, now);
    }

    /// Compares units whose server has not answered for all types since a restart.
    pub(super) fn look_at_awaited(&mut self) {
        let now = self.shared.clock.now();
        for source in own_sources(&self.handle, &self.shared, &self.tables) {
            let unit = UnitId(source.id().0);
            if self.known.awaits(unit) {
                self.compare(unit, &source, now);
                self.known.hear(&self.plan, unit, &source.published().live);
            }
            if self.rollout.recalled().any(|recalled| recalled == unit)
                && evidence::is_current(&self.plan, &source.snapshot())
            {
                self.compare(unit, &source, now);
                self.rollout.answered(unit);
            }
        }
    }

    /// Whether a cut would be put off. It is not made then if clients keep a halted push, because it takes the place of the push's content
    /// (WAV-16).
    pub(super) fn is_put_off(
        &mut self,
        units: &[UnitId],
        sources: &HashMap<UnitId, Arc<SourceHandle>>,
    ) -> bool {
        if !self.rollout.has_holders() {
            return false;
        }
        let looked = units.iter().filter_map(|unit| {
            let published = sources.get(unit)?.published();
            let stable = published.lanes.as_ref()?.stable.as_ref()?;
            let former = self.known.candidate(*unit);
            Some(evidence::unit_of(&self.plan, *unit, (stable, &published.live), former).1)
        });
        let looked = looked.collect();
        self.rollout.look(looked, self.shared.clock.now())
    }

    /// Ends holds without a difference once no push stands.
    pub(super) async fn rest(&mut self) {
        let is_open = self.rollout.state() == RolloutState::Open;
        let holds = |source: &Arc<SourceHandle>| source.published().lanes.is_some();
        if is_open && own_sources(&self.handle, &self.shared, &self.tables).iter().any(holds) {
            self.order(LaneOrder::Rest).await;
        }
    }

    /// Tells units that their hold outlives the names that they forget, once for each halt and each pin (WAV-8). A halt of before a restart
    /// has sent nobody back, so they know nothing of it.
    pub(super) async fn keep_holds(&mut self) {
        let is_pinned = self.rollout.state() == RolloutState::Pinned;
        if self.kept.is_empty() && !is_pinned && self.rollout.under_way().is_none() {
            return;
        }
        let is_kept = |source: &SourceHandle| self.rollout.keeps_hold(UnitId(source.id().0));
        let sources = own_sources(&self.handle, &self.shared, &self.tables);
        sources.iter().for_each(|source| source.set_kept(is_kept(source)));
        let kept: Vec<_> = sources.into_iter().filter(|source| is_kept(source)).collect();
        let new = kept.iter().filter(|source| !self.kept.contains(&UnitId(source.id().0)));
        join_all(new.map(|source| source.order(LaneOrder::Keep))).await;
        self.kept = kept.iter().map(|source| UnitId(source.id().0)).collect();
    }

    /// Sends an order to all sources of the plan, waits for all publications, and compares the contents.
    pub(super) async fn order(&mut self, order: LaneOrder) {
        let sources = own_sources(&self.handle, &self.shared, &self.tables);
        if let LaneOrder::Settle(push) = order {
            // From now on stable is the candidate, also of what no comparison has seen yet.
            let is_of = |source: &&Arc<SourceHandle>| source.published().candidate_of(push).is_some();
            let settled = sources.iter().filter(is_of).map(|source| UnitId(source.id().0));
            settled.for_each(|unit| self.known.settle(unit));
        }
        join_all(sources.iter().map(|source| source.order(order.clone()))).await;
        match order {
            LaneOrder::Settle(push) => self.note_release(push, &sources),
            LaneOrder::Serve(release) => {
                // A source that began later has none of the release, and goes on with its content (HIS-3).
                let last = self.released.range(..=release).next_back().map(|(_, last)| *last);
                let had = |source: &&Arc<SourceHandle>| last.is_none_or(|last| source.id().0 <= last);
                self.rollout.serves(sources.iter().filter(had).map(|source| UnitId(source.id().0)));
            }
            _ => {}
        }
        match order {
            LaneOrder::Open => return self.known.clear(),
            // The contents are as they were.
            LaneOrder::Give(_) | LaneOrder::Stay(_) | LaneOrder::Refuse => return,
            _ => {}
        }
        for source in &sources {
            let unit = UnitId(source.id().0);
            if let LaneOrder::Serve(_) = order {
                self.known.know(unit, source.snapshot());
            }
            self.compare(unit, source, self.shared.clock.now());
        }
    }

    /// The content of a push is a release: of all sources so far.
    fn note_release(&mut self, push: u64, sources: &[Arc<SourceHandle>]) {
        let last = sources.iter().map(|source| source.id().0).max().unwrap_or_default();
        if self.released.is_empty() {
            // The content before the first push.
            self.released.insert(0, last);
        }
        self.released.insert(push, last);
        while self.released.len() > self.plan.releases + 1 {
            self.released.pop_first();
        }
    }

    /// A push went back, or was halted: clients with a rejection are restated its differences from now on.
    pub(super) async fn restate_of(&mut self, push: u64) {
        self.restates = Some(push);
        self.restate().await;
    }

    /// Restates the differences of the push to the clients with a rejection, on present and later streams. Their nodes stay noted when
    /// the clients are not counted any more, until another push takes the place of this one (WAV-10).
    pub(super) async fn restate(&mut self) {
        let late = self.handle.take_late_rejecters();
        let Some(push) = self.restates else { return };
        let clients = self.clients.as_ref().filter(|clients| clients.number == push);
        let counted = clients.map(|clients| clients.rejecting_nodes());
        if counted.is_none() && late.is_empty() {
            return;
        }
        let nodes = counted.into_iter().flatten().chain(late).collect();
        let nodes = self.handle.note_rejecters(push, nodes);
        if nodes.is_empty() {
            return;
        }
        self.is_changed = true;
        self.restate_to(push, &nodes).await;
    }

    pub(super) async fn restate_to(&self, push: u64, nodes: &BTreeSet<Arc<str>>) {
        self.each_stream(|stream| {
            if stream.node().is_some_and(|node| nodes.contains(&*node.id)) {
                stream.restate(&self.handle, push);
            }
        })
        .await;
    }

    /// Tells the machine whether the lanes of all plans weigh too much for another push (WAV-11).
    pub(super) fn weigh(&mut self) {
        if self.plan.enforces() {
            let weight = |sources: &[Arc<SourceHandle>]| {
                sources.iter().map(|source| source.held_bytes() as u64).sum::<u64>()
            };
            self.metrics.weigh(weight(&own_sources(&self.handle, &self.shared, &self.tables)));
            let most = self.shared.settings().limits.held_bytes;
            self.is_full = weight(&self.tables.sources.all()) > most;
            self.rollout.set_full(self.is_full, self.shared.clock.now());
        }
    }

    /// Admits clients. The releases are published already.
    pub(super) async fn admit(&mut self, admission: Admission) {
        if self.plan.enforces() {
            let before = self.handle.admit(admission);
            self.wake_moved(&before, &admission).await;
        }
    }

    /// Wakes the streams with another release by the new admission.
    async fn wake_moved(&self, before: &Admission, after: &Admission) {
        let units = self.units();
        let is_of = |(id, _): &(SourceId, Arc<SourceHandle>)| units.contains(&UnitId(id.0));
        let is_moved = |stream: &StreamState| {
            stream.look(|_, _, sources| {
                let seat = sources.seat_in(&self.plan).filter(|_| sources.iter().any(is_of));
                let served = sources.served_push();
                let had_has = seat.map(|seat| (before.admits(seat, served), after.admits(seat, served)));
                had_has.is_some_and(|(had, has)| had != has || before.push != after.push && has)
            })
        };
        self.each_stream(|stream| {
            if is_moved(stream) {
                stream.wake();
            }
        })
        .await;
    }

    async fn each_stream(&self, each: impl Fn(&StreamState)) {
        let (mut last, mut seen) = (None, 0);
        while let Some(stream) = self.tables.streams.next(last) {
            last = Some(stream.number());
            each(&stream);
            seen += 1;
            if seen % STREAMS_PER_TURN == 0 {
                tokio::task::yield_now().await;
            }
        }
    }
}
