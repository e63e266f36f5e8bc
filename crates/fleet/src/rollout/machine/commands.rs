//! The commands of operators (HIS-3 to HIS-5).

use std::time::Duration;

use super::gather::Gathering;
use super::{Output, Push, Rollout, What};
use crate::rollout::command::{Command, CommandError, FREEZE_MAX, PinFor, Promotion, Until};
use crate::rollout::push::UnitId;
use crate::rollout::report::{Outcome, Pin};
use sluice_engine::Time;

type Done = Result<(), CommandError>;

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
        if !self.plan.enforces() {
            return Err(CommandError::Observes);
        }
        self.follow_clocks(now);
        match command {
            Command::Pause { push } => self.set_paused(push, true, now),
            Command::Resume { push } => self.set_paused(push, false, now),
            Command::Promote { push, to } => self.promote(push, to, now),
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
            self.unpin(now);
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

    fn promote(&mut self, number: u64, to: Promotion, now: Time) -> Done {
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
            self.begin_again(step, now);
            return Ok(());
        }
        // Everybody has the push already: a repeated promotion does not shorten the final bake of a moving
        // push.
        let is_over = push.is_settling() && step == push.number_of_step() && push.report.verdict.is_some();
        push.is_paused = false;
        self.stand_or_go(now);
        if let Some(push) = &mut self.push {
            push.promote(&plan, step, &mut self.outputs, now);
            if is_over {
                let outcome = push.outcome();
                self.close(outcome, now);
                self.advance(now);
            }
        }
        Ok(())
    }

    /// A halted push begins anew as another push: with the newest content, and whatever the guards say.
    /// Clients with a rejection are known rejecters (QUA-4).
    fn begin_again(&mut self, step: u8, now: Time) {
        self.next.promoted = Some(step);
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
        let until = match until {
            PinFor::NextPush => Until::NextPush,
            PinFor::Unpin => Until::Unpin,
            PinFor::Length(length) => Until::Time(now + length),
        };
        self.stops.pin = Some(Pin { release, from: now, until });
        if is_pinned {
            return Ok(());
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
        self.held.serve(release);
        self.outputs.push_back(Output::Serve { release });
        self.tell(What::Pinned(release));
        Ok(())
    }

    pub(super) fn unpin(&mut self, now: Time) {
        if let Some(pin) = self.stops.pin.take() {
            self.held.pinned.clear();
            self.tell(What::Unpinned(pin.release));
            self.gather_held(now);
            self.advance(now);
        }
    }

    fn unfreeze(&mut self, now: Time) {
        if self.stops.frozen.take().is_some() {
            self.tell(What::Unfrozen);
            self.stand_or_go(now);
        }
    }
}
