//! What replicas write into the ledger, and what they serve again.

use sluice_fleet::rollout::UnitId;
use sluice_fleet::rollout::shared::ContentSet;
use sluice_fleet::rollout::shared::record::{PastPush, PlanRecord, SharedState, read};

use super::{Dice, World};
use crate::judge::{EVIDENCE, GONE, HALTS, SEATS};
use crate::ledger::LEASE_MS;
use crate::operator::{Operator, changes_of};
use crate::replica::Replica;

impl World {
    /// All clients are given a release of the past.
    pub(super) fn serve_release(&mut self, number: usize, release: u64) {
        let replica = &mut self.replicas[number];
        let mut served = Vec::new();
        for (id, unit) in &mut replica.units {
            (unit.candidate, unit.latest) = (None, Some(unit.live.clone()));
            if let Some((_, content)) = unit.releases.range(..=release).next_back() {
                unit.stable = content.clone();
                served.push(UnitId(*id));
            }
        }
        replica.rollout.serves(served);
        self.compare(number);
    }

    /// A replica wrote the record.
    pub(super) fn recorded(&mut self, number: usize, before: Option<&PlanRecord>, record: &PlanRecord) {
        self.tell(|| {
            let PlanRecord { push, state, step, threshold, .. } = record;
            format!("r{number} writes push {push}: {state:?}, step {step}, threshold {threshold}")
        });
        let blank = PlanRecord::default();
        let before = before.unwrap_or(&blank);
        if record.push != before.push {
            self.counts[0] += 1;
            if matches!(before.state, SharedState::Gathering | SharedState::Moving) {
                self.fail("I30", format!("push {} begins, and {} is under way", record.push, before.push));
            }
        } else if (record.step, record.threshold) < (before.step, before.threshold) {
            self.fail("I30", format!("steps fall in push {}", record.push));
        } else if before.state == SharedState::Halted && record.state != SharedState::Halted {
            self.fail(HALTS, format!("push {} goes on after its halt", record.push));
        }
        if let Some((_, operator)) = &mut self.operator {
            let faults = operator.faults_of_record(number, before, record, self.now);
            if let Some(step) = record.promoted.filter(|_| record.push > before.push) {
                operator.forced.insert(record.push);
                operator.force(changes_of(&record.changed, &self.judge.published), step, record.push);
            }
            faults.into_iter().for_each(|words| self.fail(SEATS, format!("r{number}: {words}")));
        }
        let orders = record.orders.clone();
        let are_orders = PlanRecord { version: record.version, orders, ..before.clone() } == *record;
        if record.state != SharedState::Halted && !are_orders {
            self.check_return(number);
        }
        let done = self.ledger.value(&format!("done/edge/{}", record.push));
        match (record.state, done.map(|value| read::<PastPush>(value).unwrap())) {
            (SharedState::Moving, _) => self.judge.admit(record.push, &record.changed, record.threshold),
            (SharedState::Over, Some(done)) => {
                self.judge.admit(record.push, &done.changed, 10_000);
                self.counts[1] += u64::from(before.state != SharedState::Over);
            }
            (SharedState::Halted, _) => self.counts[2] += u64::from(before.state != SharedState::Halted),
            _ => {}
        }
        let goes_on =
            record.push == before.push && before.state == SharedState::Moving && record.step > before.step;
        let has_word = |(_, op): &(Dice, Operator)| op.has_promoted(record.push, record.step);
        let is_promoted = self.operator.as_ref().is_some_and(has_word);
        self.counts[3] += u64::from(goes_on);
        if goes_on && !is_promoted {
            self.check_evidence(number, before, &record.changed);
        }
        self.replicas[number].see(record, self.now);
    }

    /// Nobody brings a push forward before the others could write what they saw while the ledger was away.
    pub(super) fn check_return(&mut self, number: usize) {
        let Replica { here_since, is_away, .. } = self.replicas[number];
        if is_away || self.now < here_since + LEASE_MS {
            self.fail(GONE, format!("r{number} goes on, and the ledger is here since {here_since} ms"));
        }
    }

    /// No step goes on without its evidence.
    pub(super) fn check_evidence(&mut self, number: usize, before: &PlanRecord, changed: &ContentSet) {
        let faults = self.judge.faults_of_step(&self.replicas[number], number, before, changed, self.now);
        faults.into_iter().for_each(|words| self.fail(EVIDENCE, words));
    }
}
