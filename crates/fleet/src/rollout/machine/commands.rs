//! The words of operators (HIS-3 to HIS-5), and of the ledger (LDG-3 to LDG-5).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::gather::{Gathering, PromotedStep};
use super::{Output, Push, Rollout, What};
use crate::rollout::command::{Command, CommandError, FREEZE_MAX, PinFor, Promotion, Until};
use crate::rollout::ledger::{
    Consent, JoinWord, LedgerEvent, Rules, Share, Sorted, Word, WriteResult, shared,
};
use crate::rollout::plan::BUCKETS;
use crate::rollout::push::{UnitId, UnitPush};
use crate::rollout::report::{Outcome, Pin, Reason};
use crate::rollout::shared::record::{Orders, SharedHalt, SharedPin, SharedPinEnd};
use crate::rollout::shared::{CondemnedSet, ContentHash, OrderChange, UnitKey};
use serde_json::Map;
use sluice_engine::Time;

type Done = Result<(), CommandError>;

/// Two ends of a freeze within this time are one.
const MOMENT: Duration = Duration::from_secs(1);

/// The time between two events about a freeze.
const ANNOUNCED_EVERY: Duration = Duration::from_secs(3_600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Freeze {
    pub until: Time,
    announced: Time,
}

impl Freeze {
    pub(super) fn new(until: Time, now: Time) -> Freeze {
        Freeze { until, announced: now }
    }

    pub(super) fn due(&self) -> Time {
        self.until.min(self.announced + ANNOUNCED_EVERY)
    }

    /// Whether the freeze has to be told again.
    pub(super) fn tell(&mut self, now: Time) -> bool {
        let is_due = now >= self.announced + ANNOUNCED_EVERY;
        if is_due {
            self.announced = now;
        }
        is_due
    }
}

impl Rollout {
    /// Carries out a command. A command that has been carried out already has no effect.
    ///
    /// # Errors
    /// The reason why nothing was done.
    pub fn command(&mut self, command: Command, now: Time) -> Done {
        if self.share.as_ref().is_some_and(Share::is_away) && self.plan.enforces() {
            return Err(CommandError::NoLedger);
        }
        if let (Command::Bar { units, .. }, Some(share)) = (&command, &self.share)
            && let Some(consent) = self.push.as_ref().and_then(|push| push.consent.as_ref())
            && !share.may_bar(&consent.keys_of(units))
        {
            return Err(CommandError::TooManyBarred);
        }
        self.follow_clocks(now);
        let before = self.orders_before(&command);
        self.carry_out(command, false, now)?;
        self.spread_orders(&before, false, now);
        Ok(())
    }

    /// Carries out a command at this replica alone, whatever the ledger says. A pause and a freeze restrain,
    /// so the others follow them when the ledger is back, unless they are taken back before (LDG-5).
    ///
    /// # Errors
    /// The reason why nothing was done.
    pub fn command_here(&mut self, command: Command, now: Time) -> Done {
        let restrains = matches!(command, Command::Pause { .. } | Command::Freeze { .. });
        let takes_back = matches!(command, Command::Resume { .. } | Command::Unfreeze | Command::Unpin);
        self.follow_clocks(now);
        let before = self.orders_before(&command);
        self.carry_out(command, true, now)?;
        if restrains {
            self.spread_orders(&before, true, now);
        } else if takes_back {
            let change = OrderChange::between(&before, &self.orders());
            self.share.iter_mut().for_each(|share| share.take_back(&change));
        }
        self.tell_ledger(now);
        Ok(())
    }

    /// `is_here`: at this replica alone.
    fn carry_out(&mut self, command: Command, is_here: bool, now: Time) -> Done {
        if !self.plan.enforces() {
            return Err(CommandError::Observes);
        }
        match command {
            Command::Pause { push } => self.set_paused(push, true, now),
            Command::Resume { push } => self.set_paused(push, false, now),
            Command::Promote { push, to } => self.promote(push, to, is_here, now),
            Command::Abort { push } => self.abort(push, now),
            Command::Bar { push, units } => self.bar(push, &units, now),
            Command::Pin { release, until } => self.pin(release, until, now),
            Command::Rollback { push } => self.rollback(push, now),
            Command::Unpin => {
                self.unpin(now);
                Ok(())
            }
            Command::Freeze { length } if length > FREEZE_MAX => Err(CommandError::TooLong),
            Command::Freeze { length } => {
                self.stops.frozen = Some(Freeze::new(now + length, now));
                self.tell(What::Frozen(length));
                self.stand_or_go(now);
                Ok(())
            }
            Command::Unfreeze => {
                self.unfreeze(now);
                Ok(())
            }
        }
    }

    /// The clocks of freezes and pins (GRD-2).
    pub(super) fn follow_clocks(&mut self, now: Time) {
        if let Some(frozen) = &mut self.stops.frozen {
            let until = frozen.until;
            if now >= until {
                self.unfreeze(now);
            } else if frozen.tell(now) {
                self.tell(What::Frozen(until.since(now)));
            }
        }
        if self.stops.pin.is_some_and(|pin| matches!(pin.until, Until::Time(until) if now >= until)) {
            self.end_pin(now);
        }
    }

    /// The push under way, by its number.
    fn named(&mut self, number: u64) -> Result<&mut Push, CommandError> {
        let under_way = self.push.as_ref().map(|push| push.report.number);
        self.push
            .as_mut()
            .filter(|push| push.report.number == number)
            .ok_or(CommandError::AnotherPush(under_way))
    }

    fn set_paused(&mut self, number: u64, is_paused: bool, now: Time) -> Done {
        let push = self.named(number)?;
        if push.is_halted() {
            return Err(CommandError::Halted);
        }
        push.is_paused = is_paused;
        self.stand_or_go(now);
        Ok(())
    }

    fn promote(&mut self, number: u64, to: Promotion, is_here: bool, now: Time) -> Done {
        let plan = self.plan.clone();
        let (is_frozen, lost) = (self.stops.frozen.is_some(), self.lost.clone());
        let push = self.named(number)?;
        let steps = plan.step_count();
        let step = match to {
            Promotion::Step(step) if !(1..=steps).contains(&step) => {
                return Err(CommandError::NoSuchStep { steps });
            }
            Promotion::Step(step) => step,
            Promotion::Anew if push.is_halted() => 1,
            Promotion::Anew => return Err(CommandError::NoStep { reached: push.number_of_step(), steps }),
            Promotion::All => steps,
        };
        if is_frozen {
            return Err(CommandError::Frozen);
        }
        if let Some(unit) = push.report.units.iter().find(|unit| lost.contains(unit)) {
            return Err(CommandError::ServerLost(*unit));
        }
        if push.is_halted() {
            let is_here = is_here && self.share.is_some();
            self.begin_again(PromotedStep { step, halted: number, joins: None, is_here }, now);
            return Ok(());
        }
        // Everybody has the push already: a repeated promotion does not shorten the final bake of a moving
        // push.
        let is_everywhere = push.is_settling() && !push.is_ahead();
        let is_over = is_everywhere && step == push.number_of_step() && push.report.verdict.is_some();
        push.is_paused = false;
        self.stand_or_go(now);
        if let Some(push) = &mut self.push {
            push.promote(&plan, step, is_here, &mut self.outputs, now);
            match &mut push.consent {
                // The end is one for all replicas.
                Some(_) if is_here => {}
                Some(consent) if is_over => consent.promoted = Some(step + 1),
                None if is_over => {
                    let outcome = push.outcome();
                    self.close(outcome, now);
                    self.advance(now);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A halted push begins anew as another push: with the newest content, and whatever the guards say.
    /// Clients with a rejection are known rejecters (QUA-4).
    fn begin_again(&mut self, promoted: PromotedStep, now: Time) {
        self.next.promoted = Some(promoted);
        self.gather_held(now);
        self.next.gathering.get_or_insert_with(|| Gathering::new(now)).hurry();
        self.advance(now);
    }

    fn abort(&mut self, number: u64, now: Time) -> Done {
        self.named(number)?;
        // A cut takes the place of a halted content. Clients with the halted content are sent back before.
        self.recall_cut();
        self.next.promoted = None;
        if let Some(push) = &mut self.push {
            push.abort(&mut self.outputs, now);
        }
        self.stand_or_go(now);
        Ok(())
    }

    /// All units at once: the other units go on with the next cut.
    fn bar(&mut self, number: u64, units: &[UnitId], now: Time) -> Done {
        let push = self.named(number)?;
        if !push.is_halted() {
            return Err(CommandError::NotHalted);
        }
        if units.iter().any(|unit| !push.report.units.contains(unit)) {
            return Err(CommandError::NoSuchUnit);
        }
        // Without evidence, all units are blamed.
        let is_known = push.report.verdict.as_ref().is_some_and(|verdict| verdict.reason.names_units());
        let blamed = push.report.blamed.clone();
        let mut barred: Vec<_> = units.iter().copied().filter(|unit| !self.next.has(*unit)).collect();
        barred.retain(|unit| self.held.barred.insert(*unit));
        if barred.is_empty() {
            return Ok(());
        }
        barred.into_iter().for_each(|unit| self.tell(What::Barred(unit)));
        // Another blamed unit waits for its change all the same (WAV-17).
        for innocent in self.held.units().into_iter().filter(|unit| !is_known || !blamed.contains(unit)) {
            self.next.add(innocent, now);
        }
        self.advance(now);
        Ok(())
    }

    fn rollback(&mut self, number: u64, now: Time) -> Done {
        let under_way = self.push.as_ref().map(|push| push.report.number);
        if number != under_way.unwrap_or(self.last_push) {
            return Err(CommandError::AnotherPush(under_way));
        }
        let release = self.held.before(number).ok_or(CommandError::NoSuchRelease)?;
        if self.stops.pin.is_some_and(|pin| pin.release == release) {
            return Ok(());
        }
        self.pin(release, PinFor::NextPush, now)
    }

    fn pin(&mut self, release: u64, until: PinFor, now: Time) -> Done {
        let is_pinned = self.stops.pin.is_some_and(|pin| pin.release == release);
        // A content that no unit has cannot be served (HIS-3).
        if !is_pinned && !self.held.servable().any(|servable| servable == release) {
            let is_known = self.held.releases().any(|known_release| known_release.push == release);
            return Err(if is_known { CommandError::LostRelease } else { CommandError::NoSuchRelease });
        }
        if self.hold(release, until, now) {
            self.held.serve(release);
            self.outputs.push_back(Output::Serve { release });
            self.tell(What::Pinned(release));
        }
        Ok(())
    }

    /// A pin: nothing begins, and all clients have the stable content. Returns whether another release was
    /// pinned before, or none.
    fn hold(&mut self, release: u64, until: PinFor, now: Time) -> bool {
        let is_pinned = self.stops.pin.is_some_and(|pin| pin.release == release);
        let until = match until {
            PinFor::NextPush => Until::NextPush,
            PinFor::Unpin => Until::Unpin,
            PinFor::Length(length) => Until::Time(now + length),
        };
        self.stops.pin = Some(Pin { release, from: now, until });
        if is_pinned {
            return false;
        }
        // The release takes the place of a candidate. A cut before would begin a push that nobody could be
        // given.
        self.recall_cut();
        if let Some(push) = &mut self.push {
            push.abort(&mut self.outputs, now);
            self.close(Outcome::Halted, now);
        }
        (self.next.gathering, self.next.promoted) = (None, None);
        self.held.barred.clear();
        true
    }

    pub(super) fn unpin(&mut self, now: Time) {
        if let Some(pin) = self.stops.pin.take() {
            self.held.pinned.clear();
            self.tell(What::Unpinned(pin.release));
            self.gather_held(now);
            self.advance(now);
        }
    }

    /// A pin is over, at all replicas.
    pub(super) fn end_pin(&mut self, now: Time) {
        let before = self.orders();
        self.unpin(now);
        self.spread_orders(&before, false, now);
    }

    fn unfreeze(&mut self, now: Time) {
        if self.stops.frozen.take().is_some() {
            self.tell(What::Unfrozen);
            self.stand_or_go(now);
        }
    }

    // === The ledger ===

    /// Other replicas share the decisions about the plan from now on. `keys`: the units of a push from before
    /// a restart, of which only the units are known.
    pub fn share(&mut self, mut share: Share, keys: &BTreeMap<UnitId, UnitKey>, now: Time) {
        share.begin(now);
        if let Some(push) = &mut self.push {
            let units = push.report.units.iter().filter_map(|unit| Some((*unit, *keys.get(unit)?)));
            push.consent.get_or_insert_with(|| Consent::restored(units));
        }
        if let Some(orders) = self.kept_orders.take() {
            share.remember(orders);
        }
        self.share = Some(share);
        self.follow_ledger(now);
    }

    /// The ledger tells something. `wall`: microseconds since 1970, now.
    pub fn hear_ledger(&mut self, event: LedgerEvent, wall: u64, now: Time) {
        let Some(share) = &mut self.share else { return };
        let is_evidence = share.is_of_others(&event);
        share.handle(event, wall, now);
        if let Some(push) = self.push.as_mut().filter(|_| is_evidence) {
            // The next tally bids by the evidence as it is now.
            push.take_back_bid();
        }
        self.follow_ledger(now);
    }

    /// The result of [`Output::Write`].
    pub fn wrote(&mut self, ticket: u64, result: WriteResult, now: Time) {
        if let Some(share) = &mut self.share {
            share.wrote(ticket, result, now);
            self.follow_ledger(now);
        }
    }

    /// All condemned contents of this replica, for the others.
    pub fn condemn(&mut self, contents: Vec<(ContentHash, Time)>, now: Time) {
        if let Some(share) = &mut self.share {
            share.condemn(contents);
            self.tell_ledger(now);
        }
    }

    /// The contents that replicas have condemned, as the ledger has them. `None`: the plan shares nothing.
    pub fn condemned_by_all(&self) -> Option<&Arc<CondemnedSet>> {
        self.share.as_ref().filter(|_| self.plan.enforces()).map(Share::condemned)
    }

    /// The time of the plan at a time of the ledger, in seconds since 1970.
    pub fn time_of(&self, seconds: u32) -> Option<Time> {
        self.share.as_ref().map(|share| share.time(u64::from(seconds) * 1_000_000))
    }

    /// The word for units without stable content. `None`: the plan holds nothing, or shares nothing.
    pub fn join_word(&mut self, now: Time) -> Option<JoinWord> {
        let share = self.share.as_mut().filter(|_| self.plan.enforces())?;
        let halted = self.push.as_ref().filter(|push| push.is_halted()).map(|push| push.report.number);
        // Changes that waited for the end of a push are cut after another quiet while at most.
        let gathered_within = self.plan.gather.max + self.plan.gather.quiet;
        Some(share.join_word(halted, self.plan.shared_rules(), gathered_within, now))
    }

    /// The number of the next push. `None`: the ledger lets none begin.
    pub(super) fn next_number(&self) -> Option<u64> {
        let Some(share) = self.share.as_ref().filter(|_| self.plan.enforces()) else {
            return Some(self.last_push + 1);
        };
        if self.next.is_of_here() {
            return Some(share.next_number(self.last_push));
        }
        share.number(self.push.as_ref().map(|push| push.report.number), self.last_push)
    }

    /// The fate of a cut, as far as the ledger decides.
    pub(super) fn sort(&mut self, number: u64, units: &[UnitPush]) -> Sorted {
        let may_begin = self.next_number() == Some(number);
        let rules = self.plan.shared_rules();
        let is_promoted = self.next.promoted.is_some();
        match self.share.as_mut().filter(|_| self.plan.enforces()) {
            None => Sorted::Begin,
            Some(_) if !may_begin => Sorted::Wait,
            Some(_) if self.next.is_of_here() => Sorted::Begin,
            Some(share) => share.sort(number, &shared(units), rules, is_promoted),
        }
    }

    /// Follows the record.
    pub(super) fn follow_ledger(&mut self, now: Time) {
        let present = self.orders();
        let Some(share) = self.share.as_mut().filter(|_| self.plan.enforces()) else { return };
        self.stops.ledger = share.stop(now);
        if let Some((before, orders)) = share.take_orders(present) {
            self.follow_orders(&before, &orders, now);
        }
        self.follow_word(now);
        self.stand_or_go(now);
        self.tell_ledger(now);
    }

    fn follow_word(&mut self, now: Time) {
        let rules = self.plan.shared_rules();
        let (Some(share), Some(push)) = (&self.share, &mut self.push) else { return };
        let (number, Some(consent)) = (push.report.number, &push.consent) else { return };
        if push.is_halted() {
            if !share.is_readable() {
                return;
            }
            self.next.promoted.take_if(|promoted| promoted.joins.is_some_and(|push| !share.promotes(push)));
            let promoted = share.promoted_after(number).filter(|_| self.next.promoted.is_none());
            if let Some((step, push)) = promoted {
                self.begin_again(
                    PromotedStep { step, halted: number, joins: Some(push), is_here: false },
                    now,
                );
            } else if push.is_halted_elsewhere() && share.is_innocent(number, consent.units.values()) {
                push.withdraw(&mut self.outputs);
                self.close(Outcome::Halted, now);
                self.gather_held(now);
            }
            return;
        }
        // Another replica was faster with a push that is not for this plan, or with the word of a halt.
        let is_off = |word: &Word| {
            matches!(word, Word::Moving { .. }) && share.has_other_rules(rules)
                || push.promoted_of.is_none() && share.bars(number, consent.units.values())
        };
        let is_admitted = consent.recorded.0 > 0;
        match share.word(number, &consent.changes) {
            // Only a halt counts of a ledger that counts as away.
            Word::Gate | Word::Moving { .. } | Word::Finished | Word::Ended if !share.is_readable() => {}
            word @ (Word::Gate | Word::Moving { .. }) if !is_admitted && is_off(&word) => {
                push.withdraw(&mut self.outputs);
                self.close(Outcome::Abandoned, now);
                self.gather_held(now);
            }
            Word::Gate => {}
            Word::Moving { step, threshold } => {
                push.follow(&self.plan, step, threshold, &mut self.outputs, now);
            }
            Word::Halted(SharedHalt { replica, why, blamed, .. }) => {
                push.report.blamed = consent.units(&blamed);
                push.halt(Reason::Replica { replica, why }, &mut self.outputs, now);
            }
            Word::Finished => {
                let outcome = if push.is_at_gate() { Outcome::Restored } else { push.outcome_everywhere() };
                push.follow(&self.plan, self.plan.step_count(), BUCKETS, &mut self.outputs, now);
                self.close(outcome, now);
            }
            Word::Ended => {
                push.withdraw(&mut self.outputs);
                self.close(Outcome::Abandoned, now);
                self.gather_held(now);
            }
        }
    }

    /// Writes the facts that the record lacks.
    pub(super) fn tell_ledger(&mut self, now: Time) {
        let apart = self.apart(now);
        let Some(share) = self.share.as_mut().filter(|_| self.plan.enforces()) else { return };
        share.note_apart(apart);
        let rules = Rules { hash: self.plan.shared_rules(), quiet: self.plan.gather.quiet };
        let local = self.push.as_ref().and_then(|push| push.local(&self.plan, share.name()));
        let record = share.next_write(local.as_ref(), rules, now);
        let tally = share.next_tally(local.as_ref(), rules, now);
        self.outputs.extend(record.into_iter().chain(tally).map(Output::Write));
    }

    /// The orders that this replica carries out.
    fn orders(&self) -> Orders {
        let Some(share) = &self.share else { return Orders::default() };
        let until = |until| match until {
            Until::NextPush => SharedPinEnd::NextPush,
            Until::Unpin => SharedPinEnd::Unpin,
            Until::Time(until) => SharedPinEnd::Time(share.wall(until)),
        };
        // The others know nothing of a push that an operator began here alone.
        let push = self.push.as_ref().filter(|push| push.consent.is_some());
        let barred: Vec<UnitId> = self.held.barred.iter().copied().collect();
        Orders {
            paused: push.filter(|push| push.is_paused).map(|push| push.report.number),
            frozen_until: self.stops.frozen.map(|frozen| share.wall(frozen.until)),
            pin: self.stops.pin.map(|Pin { release, until: end, .. }| SharedPin {
                release,
                until: until(end),
                others: Map::new(),
            }),
            barred: push
                .and_then(|push| push.consent.as_ref())
                .map_or_else(Vec::new, |consent| consent.keys_of(&barred)),
            ..Orders::default()
        }
    }

    /// The orders before a command for all replicas. Where this one acts otherwise than the others, the
    /// command may be news to these alone.
    fn orders_before(&self, command: &Command) -> Orders {
        let present = self.orders();
        let Some(followed) = self.share.as_ref().and_then(Share::followed) else { return present };
        match command {
            Command::Pause { push } | Command::Resume { push } | Command::Promote { push, .. } => {
                Orders { paused: followed.paused.filter(|paused| paused == push), ..present }
            }
            Command::Pin { .. } | Command::Unpin | Command::Rollback { .. } => {
                Orders { pin: followed.pin.clone(), ..present }
            }
            Command::Freeze { .. } | Command::Unfreeze => {
                Orders { frozen_until: followed.frozen_until, ..present }
            }
            Command::Abort { .. } | Command::Bar { .. } => present,
        }
    }

    /// In words, the ways in which this replica acts otherwise than the others, by orders for it alone, or
    /// because it cannot follow theirs (LDG-7).
    fn apart(&self, now: Time) -> Vec<Box<str>> {
        let Some(share) = &self.share else { return Vec::new() };
        let mut apart = Vec::new();
        let mut say = |is_so: bool, words: String| apart.extend(is_so.then(|| Box::<str>::from(words)));
        if let Some(push) = self.push.as_ref().filter(|push| !push.is_halted()) {
            let (number, step) = (push.report.number, push.number_of_step());
            let is_alone = push.consent.is_none();
            say(is_alone, format!("push {number} was begun for it alone"));
            say(push.is_ahead(), format!("step {step} of push {number} was begun for it alone"));
            let is_paused = share.pauses(number);
            say(is_paused && !push.is_paused && !is_alone, format!("push {number} is not paused here"));
            say(push.is_paused && !is_paused && !is_alone, format!("push {number} is paused here alone"));
        }
        let (is_frozen, all_frozen) = (self.stops.frozen.is_some(), share.freezes(now));
        say(all_frozen && !is_frozen, "it is not frozen".into());
        say(is_frozen && !all_frozen, "it alone is frozen".into());
        let (pinned, all_pinned) = (self.stops.pin.map(|pin| pin.release), share.pins());
        match (pinned, all_pinned) {
            (Some(release), all) if all != Some(release) => {
                say(true, format!("release {release} is pinned here alone"));
            }
            (None, Some(release)) => say(true, format!("release {release} is not pinned here")),
            (Some(release), _) => say(
                self.held.is_other_than(release),
                format!("release {release} is not here, so its clients stay with what they have"),
            ),
            (None, None) => {}
        }
        apart
    }

    /// The changes of the orders here are for all replicas.
    fn spread_orders(&mut self, before: &Orders, is_here: bool, now: Time) {
        let change = OrderChange::between(before, &self.orders());
        let Some(share) = self.share.as_mut().filter(|_| self.plan.enforces()) else { return };
        share.order(change, is_here);
        self.tell_ledger(now);
    }

    fn follow_orders(&mut self, before: &Orders, orders: &Orders, now: Time) {
        let Some(share) = &self.share else { return };
        let frozen = orders.frozen_until.map(|until| share.time(until)).filter(|until| *until > now);
        let pin = orders.pin.as_ref().map(|pin| {
            let until = match pin.until {
                SharedPinEnd::NextPush => PinFor::NextPush,
                SharedPinEnd::Unpin => PinFor::Unpin,
                SharedPinEnd::Time(until) => PinFor::Length(share.time(until).since(now)),
            };
            (pin.release, until)
        });
        if let Some(push) = self.push.as_mut().filter(|_| before.paused != orders.paused) {
            push.is_paused = orders.paused == Some(push.report.number);
        }
        if before.frozen_until != orders.frozen_until {
            match frozen {
                Some(until) => {
                    let before = self.stops.frozen.replace(Freeze::new(until, now));
                    // The clocks of two processes differ by a moment.
                    if before
                        .is_none_or(|before| until.since(before.until) + before.until.since(until) > MOMENT)
                    {
                        self.tell(What::Frozen(until.since(now)));
                    }
                }
                None => self.unfreeze(now),
            }
        }
        if before.pin != orders.pin {
            match pin {
                Some((release, until)) => {
                    let is_unknown = self.pin(release, until, now).is_err();
                    // All replicas take the push back, and the units of this one diverge (HIS-3).
                    if is_unknown && self.hold(release, until, now) {
                        self.held.pinned.clear();
                        self.tell(What::Lacking(release));
                    }
                }
                None => self.unpin(now),
            }
        }
        let halted = self.push.as_ref().filter(|push| push.is_halted() && before.barred != orders.barred);
        if let Some((number, consent)) =
            halted.and_then(|push| Some((push.report.number, push.consent.as_ref()?)))
        {
            let units = consent.units(&orders.barred);
            // Each of them is a unit of the push.
            let _ = self.bar(number, &units, now);
        }
    }
}
