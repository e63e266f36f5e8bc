//! The machine of a plan: gathers changes to pushes, and leads each push through the steps (WAV-12, WAV-19).
//!
//! ```text
//!  Open ── change ──▶ Gathering ── cut ──▶ guards ──▶ Waving, step by step ──▶ Settling ──▶ Open
//!                                            │           │   ▲                    │
//!                                            ▼           ▼   └── evidence ── Paused
//!                                          Halted ◀──────┴────────────────────────┘
//! ```
//!
//! Only a tally moves a push to its next step: no timer promotes. One push is under way at a time; changes meanwhile
//! wait and become the next push (WAV-17). Nobody is held back, so a halted or paused push ends with that verdict when the next
//! push has been gathered: else one bad push would be the last one that the plan observed.
//!
//! In order: the outputs; the gathering; the guards; the evidence; the push under way.

mod api;
mod gather;
mod guards;
mod judge;
mod push;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::mem;
use std::sync::Arc;

use super::plan::Plan;
use super::push::{UnitId, UnitPush};
use super::report::{Outcome, PUSHES_MAX, PushReport, Reason, RolloutReport, RolloutState};
use super::tally::Tally;
use crate::engine::Time;
use gather::Gathering;
use push::Push;

pub use api::{Admission, Output, RolloutEvent, What};

/// A plan at work.
#[derive(Debug)]
pub struct Rollout {
    plan: Arc<Plan>,
    /// The number of the latest push, from 1.
    last_push: u64,
    /// The changes for the next push.
    gathering: Option<Gathering>,
    /// The changes that the driver was asked to cut.
    cutting: Option<Gathering>,
    push: Option<Push>,
    /// The latest first.
    past: VecDeque<Arc<PushReport>>,
    /// Units whose server is lost.
    lost: BTreeSet<UnitId>,
    outputs: VecDeque<Output>,
}

impl Rollout {
    pub fn new(plan: Arc<Plan>) -> Rollout {
        Rollout {
            plan,
            last_push: 0,
            gathering: None,
            cutting: None,
            push: None,
            past: VecDeque::new(),
            lost: BTreeSet::new(),
            outputs: VecDeque::new(),
        }
    }

    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Another configuration has this plan under the same name. The push under way and the waiting changes end.
    pub fn configure(&mut self, plan: Arc<Plan>, now: Time) {
        if *plan == *self.plan {
            return;
        }
        self.close(Outcome::Abandoned, now);
        if self.cutting.take().is_some() {
            self.outputs.push_back(Output::Release { push: self.last_push + 1 });
        }
        self.gathering = None;
        self.plan = plan;
    }

    /// The configuration has no such plan any more.
    pub fn end(&mut self, now: Time) {
        self.gathering = None;
        self.cutting = None;
        self.close(Outcome::Abandoned, now);
    }

    /// A gated type of a unit changed in something that clients know.
    pub fn changed(&mut self, unit: UnitId, now: Time) {
        self.gathering.get_or_insert_with(|| Gathering::new(now)).add(unit, now);
        self.advance(now);
    }

    /// The content of a unit is again what it was before the changes that wait.
    pub fn returned(&mut self, unit: UnitId, now: Time) {
        self.gathering = self.gathering.take().and_then(|gathering| gathering.without(unit));
        self.advance(now);
    }

    /// The server of a unit cannot be heard (WAV-18).
    pub fn lost(&mut self, unit: UnitId, now: Time) {
        self.lost.insert(unit);
        self.stand_or_go(now);
    }

    /// The server of a unit can be heard again.
    pub fn heard(&mut self, unit: UnitId, now: Time) {
        self.lost.remove(&unit);
        self.stand_or_go(now);
    }

    /// A unit has ended.
    pub fn gone(&mut self, unit: UnitId, now: Time) {
        self.returned(unit, now);
        self.heard(unit, now);
    }

    /// The answer to [`Output::Cut`].
    pub fn ready(&mut self, units: Vec<UnitPush>, now: Time) {
        let Some(cut) = self.cutting.take() else { return };
        let number = self.last_push + 1;
        if units.iter().any(|unit| !unit.is_current) && now < cut.latest(&self.plan) {
            self.gathering = Some(cut.retry(self.gathering.take(), &self.plan, now));
            return;
        }
        let units: Vec<UnitPush> = units.into_iter().filter(|unit| !unit.is_empty()).collect();
        if units.is_empty() {
            self.outputs.push_back(Output::Release { push: number });
            return self.advance(now);
        }
        let verdict = self.push.as_ref().map(|push| push.outcome());
        self.close(verdict.unwrap_or(Outcome::Finished), now);
        self.last_push = number;
        self.push = Some(Push::begin(&self.plan, (number, cut.first), units, &mut self.outputs, now));
        self.stand_or_go(now);
    }

    /// The evidence of the clients. Ignored unless [`Rollout::wants_tally`].
    pub fn tally(&mut self, tally: Tally, now: Time) {
        if !self.wants_tally() {
            return;
        }
        let Some(push) = &mut self.push else { return };
        push.tally(&self.plan, tally, &mut self.outputs, now);
        if push.is_finished() {
            let outcome = push.outcome();
            self.close(outcome, now);
        }
        self.advance(now);
    }

    /// Whether the driver has to count the clients, once a second.
    pub fn wants_tally(&self) -> bool {
        self.push.as_ref().is_some_and(Push::is_watched)
    }

    pub fn handle_timeout(&mut self, now: Time) {
        self.advance(now);
    }

    /// When [`Rollout::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        if !self.may_cut() {
            return None;
        }
        self.gathering.as_ref().map(|gathering| gathering.due(&self.plan))
    }

    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    pub fn report(&self) -> RolloutReport {
        let waits = [&self.cutting, &self.gathering];
        let waiting: BTreeSet<UnitId> =
            waits.into_iter().flatten().flat_map(|gathering| gathering.units.iter().copied()).collect();
        let state = match &self.push {
            Some(push) => push.report.state,
            None if waiting.is_empty() => RolloutState::Open,
            None => RolloutState::Gathering,
        };
        RolloutReport {
            state,
            push: self.push.as_ref().map(|push| Arc::new(push.report.clone())),
            waiting: waiting.into_iter().collect(),
            past: self.past.iter().cloned().collect(),
        }
    }

    /// A push that goes on is not disturbed. One with a verdict only waits for its successor.
    fn may_cut(&self) -> bool {
        self.cutting.is_none() && self.push.as_ref().is_none_or(|push| push.report.verdict.is_some())
    }

    /// Asks for the snapshots of a gathering that is complete.
    fn advance(&mut self, now: Time) {
        if self.poll_timeout().is_none_or(|due| now < due) {
            return;
        }
        let Some(gathering) = self.gathering.take() else { return };
        let units = gathering.units.iter().copied().collect();
        self.outputs.push_back(Output::Cut { push: self.last_push + 1, units });
        self.cutting = Some(gathering);
    }

    /// The clocks of a push stand while the server of a unit is lost.
    fn stand_or_go(&mut self, now: Time) {
        let Some(push) = &mut self.push else { return };
        let lost = push.report.units.iter().find(|unit| self.lost.contains(unit)).copied();
        push.stand_or_go(lost.map(Reason::ServerLost), &mut self.outputs, now);
        self.advance(now);
    }

    /// The push under way is over.
    fn close(&mut self, outcome: Outcome, now: Time) {
        let Some(push) = mem::take(&mut self.push) else { return };
        self.past.push_front(Arc::new(push.close(outcome, &mut self.outputs, now)));
        self.past.truncate(PUSHES_MAX);
    }
}
