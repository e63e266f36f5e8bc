//! The machine of a plan: gathers changes to pushes, and leads each push through the steps (WAV-12, WAV-19).
//!
//! ```text
//!  Open ── change ──▶ Gathering ── cut ──▶ guards ──▶ Waving, step by step ──▶ Settling ──▶ Open
//!                                            │           │   ▲                    │
//!                                            ▼           ▼   └── evidence ── Paused
//!                                          Halted ◀──────┴────────────────────────┘
//! ```
//!
//! Only a tally moves a push to its next step: no timer promotes. One push is under way at a time; changes
//! meanwhile wait and become the next push (WAV-17). An observing plan holds nobody back, so a halted or
//! paused push ends with that verdict when the next push has been gathered: else one bad push would be the
//! last one that the plan observed. Under `mode: enforce` a halted push stands until the content of every
//! blamed unit has changed, and a paused push waits.
//!
//! In order: the outputs; the gathering; its cut; the guards; the evidence; the push under way, with its
//! gates and the clients that it asks for; the contents that are held; the commands, with freezes; and the
//! record that outlives the process.

mod api;
mod gather;
mod guards;
mod judge;
mod push;
mod held;
mod commands;
pub mod record;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::command::Until;
use super::hook::HookAnswer;
use super::ledger::{Consent, KeptOrders, Share, Sorted};
use super::plan::Plan;
use super::push::{Differs, UnitId, UnitPush};
use super::report::{Outcome, Pin, PushReport, Reason, RolloutReport, RolloutState};
use super::tally::Tally;
use commands::Freeze;
use gather::{GatheredPush, Gathering, NextPush, PromotedStep, PushStart};
use held::{ContentOrigin, Given, GivenRelease, HeldContents};
use push::Push;
use sluice_engine::Time;
use sluice_engine::time::ReceivedAt;

pub use api::{Output, RolloutEvent, What};
use record::{Millis, PinRecord, ReleaseRecord};
pub use record::{PinEnd, PushRecord, Record};

/// A plan at work.
#[derive(Debug)]
pub struct Rollout {
    plan: Arc<Plan>,
    /// The number of the latest push, from 1.
    last_push: u64,
    next: NextPush,
    push: Option<Push>,
    /// The latest first.
    past: VecDeque<Arc<PushReport>>,
    /// Units whose server is lost.
    lost: BTreeSet<UnitId>,
    /// Units of the push that belong to another plan now.
    taken: BTreeSet<UnitId>,
    held: HeldContents,
    stops: Stops,
    /// `None`: this replica decides alone.
    share: Option<Share>,
    /// The orders of all replicas before a restart, until [`Rollout::share`].
    kept_orders: Option<KeptOrders>,
    outputs: VecDeque<Output>,
}

/// The reasons of operators and processes why no push begins, whatever has been gathered.
#[derive(Debug, Default)]
struct Stops {
    frozen: Option<Freeze>,
    pin: Option<Pin>,
    /// Another process decides.
    is_succeeded: bool,
    /// The ledger is away, or not to be relied on (LDG-5).
    ledger: Option<Box<str>>,
}

impl Rollout {
    pub fn new(plan: Arc<Plan>) -> Rollout {
        Rollout {
            plan,
            last_push: 0,
            next: NextPush::default(),
            push: None,
            past: VecDeque::new(),
            lost: BTreeSet::new(),
            taken: BTreeSet::new(),
            held: HeldContents::default(),
            stops: Stops::default(),
            share: None,
            kept_orders: None,
            outputs: VecDeque::new(),
        }
    }

    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Another configuration has this plan under the same name. The push under way and the waiting changes
    /// end. Under `mode: enforce`, all clients have the stable content, and differences are gathered anew; a
    /// plan with `mode: observe` from now on lets all go.
    pub fn configure(&mut self, plan: Arc<Plan>, now: Time) {
        if plan.leads_as(&self.plan) {
            self.plan = plan;
            return self.forget_the_oldest();
        }
        let previous = mem::replace(&mut self.plan, plan);
        if previous.enforces()
            && self.plan.enforces()
            && let Some(push) = &mut self.push
        {
            push.withdraw(&mut self.outputs);
        }
        self.close(Outcome::Abandoned, now);
        if previous.gated != self.plan.gated {
            self.held.lose_the_past();
        }
        if self.next.cutting.take().is_some() {
            self.outputs.push_back(Output::Release { push: self.next.number });
        }
        self.next.gathering = None;
        self.next.promoted = None;
        if previous.enforces() && !self.plan.enforces() {
            self.let_go();
        }
        self.gather_held(now);
        self.advance(now);
    }

    /// Keeps as many pushes and releases as the plan says.
    fn forget_the_oldest(&mut self) {
        self.past.truncate(self.plan.releases);
        self.held.keep(self.plan.releases);
    }

    /// The configuration has no such plan any more.
    pub fn end(&mut self, now: Time) {
        self.next.gathering = None;
        self.next.cutting = None;
        self.close(Outcome::Abandoned, now);
        if self.plan.enforces() {
            self.let_go();
        }
    }

    /// Nobody is held back any more.
    fn let_go(&mut self) {
        self.held = HeldContents::default();
        (self.stops.pin, self.stops.frozen) = (None, None);
        self.outputs.push_back(Output::Open);
    }

    /// A gated type of a unit changed in something that clients know. For `mode: observe`.
    pub fn changed(&mut self, unit: UnitId, now: Time) {
        self.next.add(unit, now);
        self.advance(now);
    }

    /// The content of a unit is again the content before the waiting changes. For `mode: observe`.
    pub fn returned(&mut self, unit: UnitId, now: Time) {
        self.next.remove(unit);
        self.advance(now);
    }

    /// The newest content of a unit, compared with the served contents: after each change, and after each
    /// output with other contents. For `mode: enforce`.
    pub fn compared(&mut self, unit: UnitId, differs: Differs, now: Time) {
        // Until the release of a pin is served, a unit is compared with the candidate from before the pin: a
        // difference from the candidate is no change then.
        let is_changed = self.held.compare(unit, differs, now) && !self.is_about_to_serve();
        if is_changed || differs.from_stable && !self.keeps(unit) {
            let is_known = self.next.has(unit);
            self.next.add(unit, now);
            if !is_known && self.stops.pin.is_some_and(|pin| pin.until == Until::NextPush) {
                self.end_pin(now);
            }
        } else if self.next.promoted.is_none() || !differs.from_stable {
            // A halted push with a promotion is gathered as it is.
            self.next.remove(unit);
        }
        self.withdraw(now);
        self.advance(now);
    }

    fn is_about_to_serve(&self) -> bool {
        self.outputs.iter().any(|output| matches!(output, Output::Serve { .. }))
    }

    /// Whether the held content of a unit is known: part of the push under way or of the next push, or
    /// waiting by an operator's word. Then only another content is news.
    pub fn keeps(&self, unit: UnitId) -> bool {
        let is_of_push = self.push.as_ref().is_some_and(|push| push.report.units.contains(&unit));
        // A unit that begins to hold after the cut waits for the next push (WAV-4).
        let is_cut = self.next.cutting.is_some() && self.next.cut_units.contains(&unit);
        is_of_push || is_cut || self.stops.pin.is_some() || self.held.barred.contains(&unit)
    }

    /// Whether the hold of a unit lasts although nobody asks for the names: an operator pinned the stable
    /// content, or the held content was halted. The first client of a waking class must not be given the held
    /// content (WAV-8).
    pub fn keeps_hold(&self, unit: UnitId) -> bool {
        let is_halted = |push: &Push| push.is_halted() && push.report.units.contains(&unit);
        self.stops.pin.is_some() || self.push.as_ref().is_some_and(is_halted)
    }

    /// The units that serve the release of [`Output::Serve`]. All other units go on with their content, and
    /// diverge (HIS-3).
    pub fn serves(&mut self, units: impl IntoIterator<Item = UnitId>) {
        self.held.pinned = units.into_iter().collect();
    }

    /// A unit gave a condemned content as a first answer. Its content is unproved until clients accept a push
    /// (QUA-5).
    pub fn gave_condemned(&mut self, unit: UnitId) {
        self.held.proved.remove(&unit);
    }

    /// The contents that are held take more bytes than allowed, or no longer (WAV-11).
    pub fn set_full(&mut self, is_full: bool, now: Time) {
        if is_full && !self.held.is_full {
            self.tell(What::Full);
        }
        self.held.is_full = is_full;
        self.advance(now);
    }

    /// Another process decides, or does not after all. Meanwhile no push begins and none goes on, and a bad
    /// one is still taken back.
    pub fn set_succeeded(&mut self, is_succeeded: bool, now: Time) {
        if self.stops.is_succeeded != is_succeeded && self.plan.enforces() {
            self.stops.is_succeeded = is_succeeded;
            self.stand_or_go(now);
        }
    }

    /// A unit has ended.
    pub fn gone(&mut self, unit: UnitId, now: Time) {
        self.held.forget(unit);
        if let Some(push) = &mut self.push {
            push.report.blamed.retain(|blamed| *blamed != unit);
        }
        self.returned(unit, now);
        self.heard(unit, now);
        self.withdraw(now);
    }

    /// A unit belongs to another plan. A push without any unit left is abandoned.
    pub fn taken(&mut self, unit: UnitId, now: Time) {
        if let Some(push) = &self.push {
            self.taken.insert(unit);
            if push.report.units.iter().all(|unit| self.taken.contains(unit)) {
                self.close(Outcome::Abandoned, now);
            }
        }
        self.gone(unit, now);
    }

    /// The evidence of the clients. Ignored unless [`Rollout::wants_tally`].
    pub fn tally(&mut self, tally: Tally, now: Time) {
        if !self.wants_tally() {
            return;
        }
        let Some(push) = &mut self.push else { return };
        // Nobody else has a push that an operator began here alone.
        let share = self.share.as_mut().filter(|_| push.consent.is_some());
        let others = share.map(|share| share.count(&push.report, &tally));
        push.tally(&self.plan, tally, others.as_ref(), &mut self.outputs, now);
        if push.is_finished {
            let outcome = push.outcome();
            self.close(outcome, now);
        }
        self.advance(now);
        self.tell_ledger(now);
    }

    /// The answer to [`Output::Ask`]. An answer that nobody waits for has no effect.
    pub fn hook_said(&mut self, push: u64, step: u8, answer: HookAnswer, now: Time) {
        let is_awaiting = |under_way: &&mut Push| under_way.report.number == push && !under_way.is_halted();
        if let Some(under_way) = self.push.as_mut().filter(is_awaiting) {
            under_way.hear(&self.plan, step, answer, &mut self.outputs, now);
            self.advance(now);
        }
    }

    /// Whether the driver has to count the clients, once a second.
    pub fn wants_tally(&self) -> bool {
        self.push.as_ref().is_some_and(|push| push.is_watched)
    }

    pub fn handle_timeout(&mut self, now: Time) {
        self.follow_clocks(now);
        self.advance(now);
        self.follow_ledger(now);
    }

    /// When [`Rollout::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        let cut = self
            .next
            .gathering
            .as_ref()
            .filter(|_| self.may_cut())
            .map(|gathering| gathering.due(&self.plan));
        let pin = self.stops.pin.and_then(|pin| match pin.until {
            Until::Time(until) => Some(until),
            Until::NextPush | Until::Unpin => None,
        });
        let ledger = self.share.as_ref().filter(|_| self.plan.enforces()).and_then(Share::poll_timeout);
        [cut, pin, ledger, self.stops.frozen.map(|frozen| frozen.due())].into_iter().flatten().min()
    }

    /// The number of the latest push that has begun.
    pub fn last_push(&self) -> u64 {
        self.last_push
    }

    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    pub fn report(&self) -> RolloutReport {
        RolloutReport {
            state: self.state(),
            push: self.push.as_ref().map(|push| Arc::new(push.report.clone())),
            waiting: self.waiting().into_iter().collect(),
            past: self.past.iter().cloned().collect(),
            behind_from: self.behind_from(),
            barred: self.held.barred.iter().copied().collect(),
            pin: self.stops.pin,
            frozen_until: self.stops.frozen.map(|frozen| frozen.until),
            releases: self.held.servable().collect(),
            is_full: self.held.is_full,
            left_out: self.left_out(),
            waits_for_server: self.waits_for_server(),
            proved: self.held.proved.clone(),
            pinned: self.held.pinned.clone(),
            shared: self
                .share
                .as_ref()
                .map(|share| share.report(&self.stops.ledger, self.push.as_ref().map(|push| &push.report))),
        }
    }

    /// The push under way.
    pub fn under_way(&self) -> Option<&PushReport> {
        self.push.as_ref().map(|push| &push.report)
    }

    /// The state of the push under way, unless a pin holds all clients.
    pub fn state(&self) -> RolloutState {
        match &self.push {
            _ if self.stops.pin.is_some() => RolloutState::Pinned,
            Some(push) => push.report.state,
            None if self.stops.frozen.is_some() => RolloutState::Frozen,
            None if self.waiting().is_empty() => RolloutState::Open,
            None => RolloutState::Gathering,
        }
    }

    /// The units whose changes wait for the next push.
    fn waiting(&self) -> BTreeSet<UnitId> {
        let gathered = [&self.next.cutting, &self.next.gathering].into_iter().flatten();
        let gathered = gathered.flat_map(|gathering| gathering.units.keys().copied());
        let of_push =
            |unit: &&UnitId| self.push.as_ref().is_some_and(|push| push.report.units.contains(unit));
        gathered.chain(self.held.away.keys().filter(|unit| !of_push(unit)).copied()).collect()
    }

    /// The oldest change that is held from somebody. What all clients are given is not held.
    fn behind_from(&self) -> Option<ReceivedAt> {
        let given = self.push.as_ref().filter(|push| push.is_settling());
        let is_given = |unit: &UnitId| given.is_some_and(|push| push.report.units.contains(unit));
        let changed = |unit: &UnitId| self.next.gathering.as_ref()?.units.get(unit).copied();
        let held = self.held.away.iter().filter_map(|(unit, since)| match is_given(unit) {
            true => changed(unit).map(ReceivedAt::from),
            false => Some(*since),
        });
        held.min()
    }

    /// Nothing begins, whatever has been gathered.
    fn stands_still(&self) -> bool {
        let Stops { frozen, pin, is_succeeded, ledger } = &self.stops;
        let is_away = ledger.is_some() && !self.next.is_of_here();
        frozen.is_some() || pin.is_some() || *is_succeeded || is_away || self.held.is_full
    }

    /// A push that goes on is not disturbed. A push with a verdict only waits for the next push; under `mode:
    /// enforce`, the content of all blamed units must have changed.
    fn may_cut(&self) -> bool {
        let waits = self.stands_still() || self.waits_for_server() || self.next_number().is_none();
        if self.next.cutting.is_some() || waits {
            return false;
        }
        let Some(push) = &self.push else { return true };
        let has_changed = |unit: &UnitId| self.held.barred.contains(unit) || self.next.has(*unit);
        match self.plan.enforces() {
            false => push.report.verdict.is_some(),
            true => {
                push.is_halted()
                    && (self.next.promoted.is_some() || push.report.blamed.iter().all(has_changed))
            }
        }
    }

    /// Asks for the snapshots of a gathering that is complete.
    fn advance(&mut self, now: Time) {
        let may_cut = self.may_cut();
        if let Some(gathering) = &mut self.next.gathering {
            gathering.allow(may_cut, now);
        }
        let Some(gathering) =
            self.next.gathering.take_if(|gathering| may_cut && now >= gathering.due(&self.plan))
        else {
            return;
        };
        let units = match self.plan.enforces() {
            true => self.heard_units(),
            false => gathering.units.keys().copied().collect(),
        };
        if units.is_empty() {
            return;
        }
        self.next.cut_units.clone_from(&units);
        self.next.number = self.next_number().unwrap_or(self.last_push + 1);
        self.outputs.push_back(Output::Cut { push: self.next.number, units });
        self.next.cutting = Some(gathering);
    }

    /// Gathers what is held, for another push.
    fn gather_held(&mut self, now: Time) {
        self.held.units().into_iter().for_each(|unit| self.next.add(unit, now));
    }

    /// The servers took all of the push back (WAV-17).
    fn withdraw(&mut self, now: Time) {
        let Some(push) = self.push.as_mut().filter(|_| self.plan.enforces()) else { return };
        if push.report.units.iter().any(|unit| self.held.away.contains_key(unit)) {
            return;
        }
        push.withdraw(&mut self.outputs);
        // The operator's word was for this push only.
        self.next.promoted = None;
        let units = push.report.units.clone();
        self.close(Outcome::Withdrawn, now);
        units.into_iter().for_each(|unit| self.next.remove(unit));
    }

    /// The push under way is over.
    fn close(&mut self, outcome: Outcome, now: Time) {
        let Some(push) = mem::take(&mut self.push) else { return };
        self.taken.clear();
        let is_given = matches!(outcome, Outcome::Finished | Outcome::Unjudged | Outcome::Restored);
        if push.is_halted() {
            self.held.give_up(push.blamed());
        }
        if self.plan.enforces() && is_given {
            self.held.prove(&push.report.units, outcome);
            self.outputs.push_back(Output::Settle { push: push.report.number });
            let waiting =
                self.next.gathering.as_ref().map(|gathering| gathering.units.clone()).unwrap_or_default();
            self.held.settle(&push.report, &waiting, self.plan.releases);
        }
        self.past.push_front(Arc::new(push.close(outcome, &mut self.outputs, now)));
        self.past.truncate(self.plan.releases);
    }

    // === The cut of the gathered changes, and the reasons to put it off ===

    /// Whether clients keep a halted push. Each cut takes its place, so the driver looks at the units before
    /// ([`Rollout::look`]).
    pub fn has_holders(&self) -> bool {
        self.push.as_ref().is_some_and(|push| push.holders().is_some())
    }

    /// A look at the units of [`Output::Cut`] as they are, before anything is cut. Returns whether the cut is
    /// put off: then this was the answer, and clients keep the halted push (WAV-16).
    pub fn look(&mut self, units: Vec<UnitPush>, now: Time) -> bool {
        let Some(cut) = &self.next.cutting else { return false };
        let is_put_off = self.is_stale(cut, &units, now)
            || self.stands_still()
            || self.has_lost_one_of(&units)
            || units.iter().all(UnitPush::is_empty)
            || !self.returned_to_halted(&units, &Sorted::Begin).is_empty();
        if is_put_off {
            self.ready(units, now);
        }
        is_put_off
    }

    /// Takes back a cut that the driver has not been asked for yet: an operator's word of the same moment
    /// comes first. The gathered changes wait for the next cut.
    pub(super) fn recall_cut(&mut self) {
        let is_cut = |output: &Output| matches!(output, Output::Cut { .. });
        if self.outputs.iter().any(is_cut) {
            self.outputs.retain(|output| !is_cut(output));
            if let Some(cut) = self.next.cutting.take() {
                self.next.gathering = Some(cut.with(self.next.gathering.take()));
            }
        }
    }

    /// The answer to [`Output::Cut`]. Returns whether the push has begun: otherwise the cut is put off, or
    /// was of no use.
    pub fn ready(&mut self, units: Vec<UnitPush>, now: Time) -> bool {
        let Some(cut) = self.next.cutting.take() else { return false };
        let number = self.next.number;
        let sorted = self.sort(number, &units);
        let returned = self.returned_to_halted(&units, &sorted);
        let may_not = self.stands_still() || self.has_lost_one_of(&units) || sorted == Sorted::Wait;
        if may_not || self.is_stale(&cut, &units, now) || !returned.is_empty() {
            let is_ledgers = matches!(sorted, Sorted::Wait | Sorted::Halted(_));
            // However long the ledger has another word, each look is a while after the last.
            let cut = if is_ledgers { cut.begin_anew(now) } else { cut };
            let again = Some(cut.retry(self.next.gathering.take(), &self.plan, now));
            self.next.gathering =
                returned.into_iter().fold(again, |gathering, unit| gathering?.without(unit));
            self.advance(now);
            return false;
        }
        let (blank, units): (Vec<UnitPush>, Vec<UnitPush>) = units.into_iter().partition(UnitPush::is_empty);
        if units.is_empty() && self.next.promoted.take().is_some() {
            self.let_go_of_forgotten(now);
        }
        self.gather_blank(&cut, &blank, now);
        if units.is_empty() {
            self.outputs.push_back(Output::Release { push: number });
            self.advance(now);
            return false;
        }
        let holders_of = self.push.as_ref().and_then(Push::holders);
        let verdict = self.push.as_ref().map(|push| push.outcome());
        self.close(verdict.unwrap_or(Outcome::Finished), now);
        self.last_push = number;
        self.share.iter_mut().for_each(|share| share.begun(number));
        let promoted = self.next.promoted.take();
        let start = match promoted {
            Some(PromotedStep { step, halted, .. }) => PushStart::Promoted { step, halted },
            None if sorted == Sorted::Known => PushStart::Restored,
            None if self.plan.enforces() && self.held.knows(&units) => PushStart::Restored,
            None => PushStart::Judged,
        };
        self.held.begin(&units);
        let is_of_here = promoted.is_some_and(|promoted| promoted.is_here);
        let consent = self.share.as_ref().filter(|_| !is_of_here).map(|_| Consent::of(&units));
        let gathered = GatheredPush { number, from: cut.first, units, holders_of, start, consent };
        let push = self.push.insert(Push::begin(&self.plan, gathered, &mut self.outputs, now));
        // A push that is joined late may be paused already.
        push.is_paused = self.share.as_ref().is_some_and(|share| share.pauses(number));
        if start == PushStart::Restored && !push.is_halted() && push.consent.is_none() {
            self.close(Outcome::Restored, now);
        }
        self.stand_or_go(now);
        self.follow_ledger(now);
        if let Some(push) = self.push.as_mut().filter(|push| push.is_at_gate()) {
            // The hook is asked once the clocks run.
            push.leave_gate(&self.plan, &mut self.outputs, now);
        }
        true
    }

    /// Whether a unit is not current, and may become so.
    fn is_stale(&self, cut: &Gathering, units: &[UnitPush], now: Time) -> bool {
        units.iter().any(|unit| !unit.is_current) && now < cut.latest(&self.plan)
    }

    /// The blamed units of a halted push with the same content again, after a change and a change back before
    /// the cut (WAV-17).
    fn returned_to_halted(&self, units: &[UnitPush], sorted: &Sorted) -> Vec<UnitId> {
        if let Sorted::Halted(keys) = sorted {
            let is_of =
                |unit: &&UnitPush| unit.shared.as_ref().is_some_and(|shared| keys.contains(&shared.unit));
            return units.iter().filter(is_of).map(|unit| unit.unit).collect();
        }
        let halted = self.push.as_ref().filter(|push| push.is_halted() && self.plan.enforces());
        let Some(push) = halted.filter(|_| self.next.promoted.is_none()) else { return Vec::new() };
        let is_blamed = |unit: &&UnitPush| push.report.blamed.contains(&unit.unit);
        let is_waited_for = |unit: &&UnitPush| !self.held.barred.contains(&unit.unit);
        let returned = units.iter().filter(is_blamed).filter(is_waited_for).filter(|unit| unit.is_former);
        returned.map(|unit| unit.unit).collect()
    }

    /// An operator promotes a halted push, and nobody asks any more for the changed names: no content is left
    /// to be given.
    fn let_go_of_forgotten(&mut self, now: Time) {
        if let Some(push) = &mut self.push {
            push.withdraw(&mut self.outputs);
            self.held.away.retain(|unit, _| !push.report.units.contains(unit));
        }
        self.close(Outcome::Halted, now);
    }

    /// Units that hold something back, and have no known change: a collection is not complete yet, as after a
    /// restart. The next push looks at them again.
    fn gather_blank(&mut self, cut: &Gathering, blank: &[UnitPush], now: Time) {
        let since = |unit| cut.units.get(&unit).copied().unwrap_or(now);
        let away = blank.iter().map(|part| part.unit).filter(|unit| self.held.away.contains_key(unit));
        let units: BTreeMap<UnitId, Time> = away.map(|unit| (unit, since(unit))).collect();
        if self.plan.enforces() && !units.is_empty() {
            // However long the unit stays so, each look is a while after the last.
            let mut cut = cut.clone().begin_anew(now);
            cut.units = units;
            self.next.gathering = Some(cut.retry(self.next.gathering.take(), &self.plan, now));
        }
    }

    // === Units with a lost server: the clients stay (WAV-18) ===

    /// The server of a unit cannot be heard.
    pub fn lost(&mut self, unit: UnitId, now: Time) {
        self.lost.insert(unit);
        self.stand_or_go(now);
    }

    /// The server of a unit can be heard again. A push that began meanwhile left the unit out.
    pub fn heard(&mut self, unit: UnitId, now: Time) {
        if self.lost.remove(&unit) && self.plan.enforces() && self.is_left(unit) {
            self.next.add(unit, now);
        }
        self.stand_or_go(now);
    }

    /// Whether a unit holds something back that is not of the push under way.
    fn is_left(&self, unit: UnitId) -> bool {
        let is_of_push = self.push.as_ref().is_some_and(|push| push.report.units.contains(&unit));
        !is_of_push && self.stops.pin.is_none() && self.held.units().contains(&unit)
    }

    /// The units of the next push of a plan that enforces. No push begins with a unit at a lost server: the
    /// first step would move clients.
    fn heard_units(&self) -> Vec<UnitId> {
        self.held.units().into_iter().filter(|unit| !self.lost.contains(unit)).collect()
    }

    /// The units that the next push leaves out.
    fn left_out(&self) -> Vec<UnitId> {
        let lost = self.lost.iter().filter(|unit| self.plan.enforces() && self.is_left(**unit));
        lost.copied().collect()
    }

    /// Whether the next push waits for a server. Clients with a halted push would move if another push took
    /// over.
    fn waits_for_server(&self) -> bool {
        if !self.plan.enforces() || self.lost.is_empty() {
            return false;
        }
        let kept = self.push.as_ref().filter(|push| push.has_holders);
        kept.is_some_and(|push| push.report.units.iter().any(|unit| self.lost.contains(unit)))
            || self.heard_units().is_empty() && !self.held.units().is_empty()
    }

    /// Whether a unit of a cut was lost since.
    fn has_lost_one_of(&self, units: &[UnitPush]) -> bool {
        self.plan.enforces() && units.iter().any(|unit| self.lost.contains(&unit.unit))
    }

    /// The clocks of a push stand while the server of a unit is lost, and while an operator wants it.
    pub(super) fn stand_or_go(&mut self, now: Time) {
        if let Some(push) = &mut self.push {
            let lost = push.report.units.iter().find(|unit| self.lost.contains(unit)).copied();
            let reason = match lost {
                _ if self.stops.frozen.is_some() => Some(Reason::Frozen),
                _ if push.is_paused => Some(Reason::Operator),
                _ if self.stops.is_succeeded => Some(Reason::Succeeded),
                _ if self.stops.ledger.is_some() => self.stops.ledger.clone().map(Reason::Ledger),
                lost => lost.map(Reason::ServerLost),
            };
            push.stand_or_go(reason, &mut self.outputs, now);
        }
        self.advance(now);
    }

    fn tell(&mut self, what: What) {
        self.outputs.push_back(Output::Event(RolloutEvent { push: self.last_push, what }));
    }

    // === The record that outlives the process (WAV-8) ===

    pub fn record(&self, now: Time) -> Record {
        let trusted = |release: &GivenRelease| {
            let trusted = release.units.iter().filter(|(_, given)| given.is_trusted);
            trusted.map(|(unit, given)| (*unit, given.content)).collect()
        };
        let release = |release: &GivenRelease| ReleaseRecord { push: release.push, units: trusted(release) };
        let end = |until| match until {
            Until::NextPush => PinEnd::NextPush,
            Until::Unpin => PinEnd::Unpin,
            Until::Time(until) => PinEnd::Left(until.since(now)),
        };
        Record {
            last_push: self.last_push,
            push: self.push.as_ref().and_then(|push| push.record(&self.held.digests)),
            releases: self.held.releases().map(release).collect(),
            barred: self.held.barred.iter().copied().collect(),
            proved: self.held.proved.iter().copied().collect(),
            away_ms: self.held.ages(now).map(|(unit, age)| (unit, Millis(age))).collect(),
            frozen_ms: self.stops.frozen.map(|frozen| Millis(frozen.until.since(now))),
            pin: self.stops.pin.map(|pin| PinRecord { release: pin.release, until: end(pin.until) }),
            served: Some(self.held.served),
            shared: self.share.as_ref().and_then(Share::kept_orders).or_else(|| self.kept_orders.clone()),
            ..Record::default()
        }
    }

    /// The plan as recorded. `passed`: the time since the record was written, for what ends by a clock. Tell
    /// of each unit by [`Rollout::found`].
    pub fn restore(plan: Arc<Plan>, record: Record, passed: Duration, now: Time) -> Rollout {
        let mut rollout = Rollout::new(plan);
        (rollout.last_push, rollout.kept_orders) = (record.last_push, record.shared);
        let stable =
            || record.pin.map(|pin| pin.release).or(record.releases.first().map(|release| release.push));
        rollout.held.served = record.served.or_else(stable).unwrap_or_default();
        for entry in record.releases.into_iter().rev() {
            let given = |content| Given::new(content, ContentOrigin::Carried);
            let units = entry.units.into_iter().map(|(unit, content)| (unit, given(content))).collect();
            let release = GivenRelease { push: entry.push, units, is_here: true };
            rollout.held.add(release, rollout.plan.releases);
        }
        rollout.held.lose_the_past();
        rollout.held.barred = record.barred.into_iter().collect();
        rollout.held.proved = record.proved.into_iter().collect();
        let since = |age: Duration| ReceivedAt::before(now, age.saturating_add(passed));
        rollout.held.recall(record.away_ms.into_iter().map(|(unit, Millis(age))| (unit, since(age))));
        let left = |left: Duration| now + left.saturating_sub(passed);
        rollout.stops.frozen = record.frozen_ms.map(|Millis(length)| Freeze::new(left(length), now));
        rollout.stops.pin = record.pin.map(|pin| Pin {
            release: pin.release,
            from: now,
            until: match pin.until {
                PinEnd::NextPush => Until::NextPush,
                PinEnd::Unpin => Until::Unpin,
                PinEnd::Left(length) => Until::Time(left(length)),
            },
        });
        if let Some(push_record) = record.push {
            let digests = push_record.units.iter().map(|unit| (unit.unit, (unit.stable, unit.candidate)));
            rollout.held.digests = digests.collect();
            // Nothing is known to be back at the stable content.
            let differs = Differs { from_stable: true, from_candidate: false };
            for unit in &push_record.units {
                rollout.held.compare(unit.unit, differs, now);
            }
            let push = rollout.push.insert(Push::restored(&rollout.plan, push_record, now));
            push.admit(&mut rollout.outputs);
        }
        rollout.stand_or_go(now);
        rollout
    }

    /// Units with held content before a restart, and without an answer of the server since.
    pub fn recalled(&self) -> impl Iterator<Item = UnitId> {
        self.held.recalled()
    }

    /// The server of a unit has answered for all gated types since a restart, and its content has been
    /// compared.
    pub fn answered(&mut self, unit: UnitId) {
        self.held.answered(unit);
    }

    /// The source of a unit failed, and began anew from the stable content under another number. Returns
    /// whether the held content stays known. A push on its way goes on without the unit, and the content is
    /// gathered again.
    pub fn began_anew(&mut self, previous: UnitId, unit: UnitId, now: Time) -> bool {
        let is_barred = self.held.barred.contains(&previous);
        let stays = self.keeps_hold(previous) || is_barred;
        match stays {
            true => self.found(previous, unit),
            false => self.gone(previous, now),
        }
        if self.lost.remove(&previous) {
            self.stand_or_go(now);
        }
        stays
    }

    /// A unit of the record is here again, by another number.
    pub fn found(&mut self, recorded: UnitId, unit: UnitId) {
        self.held.rename(recorded, unit);
        if self.stops.pin.is_some_and(|pin| !self.held.is_other_than(pin.release)) {
            self.held.pinned.insert(unit);
        }
        let Some(push) = &mut self.push else { return };
        let lists = [&mut push.report.units, &mut push.report.blamed];
        for listed in lists.into_iter().flatten().filter(|listed| **listed == recorded) {
            *listed = unit;
        }
    }
}
