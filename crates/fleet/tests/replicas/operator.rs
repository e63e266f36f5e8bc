//! Orders of operators at the replicas of a world, some of them with `--here`, and what follows from them for the
//! promises. Only schedules from [`ORDERS_FROM`] on have operators.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sluice_fleet::rollout::command::{PinFor, Promotion};
use sluice_fleet::rollout::shared::record::{Orders, PlanRecord, SharedState};
use sluice_fleet::rollout::shared::{ChangeHash, ContentSet};
use sluice_fleet::rollout::{Command, Rollout};

use crate::judge::SEATS;
use crate::ledger::LEASE_MS;
use crate::replica::Replica;
use crate::world::Dice;

/// The first schedule with operators, with changes that are taken back, and with replicas that know different
/// names.
pub const ORDERS_FROM: u64 = 1 << 32;

/// The order for all replicas reaches each one that is connected for so long.
const REACH_MS: u64 = 3 * LEASE_MS;

/// An order of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Freeze,
    Pin,
    Pause,
}

/// What operators have said.
#[derive(Debug, Default)]
pub struct Operator {
    /// The largest step of each push that operators let all replicas begin; the step behind the last one ends it.
    pub promoted: BTreeMap<u64, u8>,
    /// Pushes that began by an operator's word, and the changes of promoted pushes.
    pub forced: BTreeSet<u64>,
    pub forced_changes: Vec<ChangeHash>,
    /// Replicas at which a halted push was promoted for all.
    pub anew: BTreeSet<usize>,
    /// The latest order for all, by replica and kind.
    said: BTreeMap<(usize, Kind), u64>,
    /// Orders with `--here`, as long as the replica acts otherwise than the record.
    said_here: BTreeSet<(usize, Kind)>,
    /// A freeze or pause with `--here`, taken back before the ledger was there again.
    taken_back: BTreeSet<(usize, Kind)>,
    /// Those that are not taken back yet, and that the ledger could not hear of.
    unheard: BTreeSet<(usize, Kind)>,
    /// The orders of the ledger.
    orders: Orders,
    /// Since when a replica does not do what all are to do.
    missed: BTreeMap<(usize, Kind), u64>,
}

/// A command, and whether it is for one replica alone.
pub fn order(dice: &mut Dice, rollout: &Rollout) -> (Command, bool) {
    let push = rollout.under_way().map_or(rollout.last_push(), |push| push.number);
    let seconds = |dice: &mut Dice| Duration::from_secs(4 + dice.roll(12));
    let command = match dice.roll(20) {
        0..=2 => Command::Pause { push },
        3..=5 => Command::Resume { push },
        6 => Command::Promote { push, to: Promotion::Anew },
        7 | 8 => Command::Promote { push, to: Promotion::Step(1 + dice.roll(3) as u8) },
        9 => Command::Promote { push, to: Promotion::All },
        10 => Command::Abort { push },
        11 | 12 => Command::Freeze { length: seconds(dice) },
        13 | 14 => Command::Unfreeze,
        15 => {
            let release = dice.roll(push + 1);
            let until = match dice.roll(3) {
                0 => PinFor::NextPush,
                1 => PinFor::Unpin,
                _ => PinFor::Length(seconds(dice)),
            };
            Command::Pin { release, until }
        }
        16 => Command::Rollback { push },
        _ => Command::Unpin,
    };
    (command, dice.roll(2) == 0)
}

fn kind(command: &Command) -> Option<Kind> {
    match command {
        Command::Pause { .. } | Command::Resume { .. } => Some(Kind::Pause),
        Command::Freeze { .. } | Command::Unfreeze => Some(Kind::Freeze),
        Command::Pin { .. } | Command::Unpin | Command::Rollback { .. } => Some(Kind::Pin),
        _ => None,
    }
}

impl Operator {
    /// A replica has carried out a command.
    pub fn said(&mut self, number: usize, replica: &Replica, command: &Command, is_here: bool, now: u64) {
        if let Command::Promote { .. } | Command::Pause { .. } | Command::Resume { .. } = command
            && !is_here
        {
            self.said.insert((number, Kind::Pause), now);
        }
        let Some(kind) = kind(command) else { return };
        let place = (number, kind);
        let is_back = matches!(command, Command::Resume { .. } | Command::Unfreeze | Command::Unpin);
        if !is_here {
            self.said.insert(place, now);
            self.taken_back.remove(&place);
            return;
        }
        self.said_here.insert(place);
        if is_back && self.unheard.remove(&place) {
            self.taken_back.insert(place);
        } else if !is_back {
            self.taken_back.remove(&place);
            if replica.is_away && kind != Kind::Pin {
                self.unheard.insert(place);
            }
        }
    }

    /// The ledger is there again for a replica.
    pub fn returned(&mut self, number: usize) {
        self.unheard.retain(|(replica, _)| *replica != number);
    }

    /// A replica has written the record.
    pub fn faults_of_record(
        &mut self,
        number: usize,
        before: &PlanRecord,
        record: &PlanRecord,
        now: u64,
    ) -> Vec<String> {
        let mut faults = Vec::new();
        let is_pinned = before.orders.pin.is_some() && record.orders.pin == before.orders.pin;
        let goes_on =
            (record.push, record.step, record.threshold) > (before.push, before.step, before.threshold);
        if is_pinned && goes_on && record.halt.is_none() {
            faults.push(format!("push {} goes on, and a release is pinned", record.push));
        }
        if record.push > before.push && record.promoted.is_some() && !self.anew.contains(&number) {
            faults.push(format!("push {} begins by the word of an operator for one replica", record.push));
        }
        let has_said = |kind| self.said.contains_key(&(number, kind));
        let ends = |kind, was: bool, is: bool| was && !is && !has_said(kind);
        let is_frozen = |orders: &Orders| orders.frozen_until.is_some_and(|until| until > now * 1_000);
        let is_paused = |orders: &Orders| orders.paused == Some(record.push);
        let (old, new) = (&before.orders, &record.orders);
        if ends(Kind::Freeze, is_frozen(old), is_frozen(new)) {
            faults.push("ends a freeze, and no operator of all said so".into());
        }
        // A pin ends the push.
        let ends_pause = ends(Kind::Pause, is_paused(old), is_paused(new)) && !has_said(Kind::Pin);
        let is_under_way = matches!(before.state, SharedState::Gathering | SharedState::Moving);
        if record.push == before.push && is_under_way && ends_pause {
            faults.push("ends a pause, and no operator of all said so".into());
        }
        let begins = [
            (Kind::Freeze, !is_frozen(old) && is_frozen(new)),
            (Kind::Pause, !is_paused(old) && is_paused(new)),
        ];
        for (kind, _) in begins.into_iter().filter(|(_, begins)| *begins) {
            if self.taken_back.contains(&(number, kind)) {
                faults.push(format!("writes a {kind:?} that was taken back before anybody heard of it"));
            }
        }
        self.orders = new.clone();
        faults
    }

    /// Whether a replica that is connected for long does not do what all replicas are to do.
    pub fn fault_of_reach(
        &mut self,
        number: usize,
        replica: &Replica,
        now: u64,
    ) -> Option<(&'static str, String)> {
        let report = replica.rollout.report();
        let is_frozen = self.orders.frozen_until.is_some_and(|until| until > now * 1_000);
        let release = self.orders.pin.as_ref().map(|pin| pin.release);
        let pinned = report.pin.map(|pin| pin.release);
        let differs =
            [(Kind::Freeze, report.frozen_until.is_some() != is_frozen), (Kind::Pin, pinned != release)];
        let mut fault = None;
        for (kind, differs) in differs {
            let place = (number, kind);
            let is_unwritten = report.shared.as_ref().is_some_and(|shared| shared.is_unwritten);
            if !differs && !replica.is_away && !is_unwritten {
                self.said_here.remove(&place);
            }
            if !differs || replica.is_away || self.said_here.contains(&place) {
                self.missed.remove(&place);
            } else if now > *self.missed.entry(place).or_insert(now) + REACH_MS {
                let orders = &self.orders;
                fault = Some((SEATS, format!("does not follow an order for long: {kind:?}; {orders:?}")));
            }
        }
        fault
    }

    /// Whether an operator let all replicas begin the step without evidence.
    pub fn has_promoted(&self, push: u64, step: u8) -> bool {
        self.promoted.get(&push).is_some_and(|promoted| step <= *promoted)
    }

    /// An operator wants a push at all replicas, whatever is known against it.
    pub fn force(&mut self, changes: impl Iterator<Item = ChangeHash>, step: u8, push: u64) {
        self.forced_changes.extend(changes);
        let promoted = self.promoted.entry(push).or_default();
        *promoted = step.max(*promoted);
    }

    pub fn is_forced(&self, change: ChangeHash) -> bool {
        self.forced_changes.contains(&change)
    }
}

/// The changes of a set among those that the control plane has sent.
pub fn changes_of<'a>(
    set: &'a ContentSet,
    published: &'a [ChangeHash],
) -> impl Iterator<Item = ChangeHash> + 'a {
    published.iter().copied().filter(|change| set.has(*change))
}
