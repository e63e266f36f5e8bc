//! A plan with a ledger that takes each write at once (LDG-4).

use super::*;
use crate::rollout::command::{Command, CommandError};
use crate::rollout::ledger::{Entry, JoinPolicy, LedgerEvent, Replica, Share, Write, WriteResult};
use crate::rollout::shared::record::{FORMAT, PastPush, PlanRecord, ReplicaTally, read, write};
use crate::rollout::shared::{BARRED_MAX, ChangeHash, UnitChanges, UnitKey};

const RECORD: &str = "plan/edge";
const LEASE_MS: u64 = 1_000;

/// A replica, and the record as the ledger has it.
struct Shared {
    rollout: Rollout,
    record: PlanRecord,
    revision: u64,
    /// The next write loses a race, and its result comes late.
    is_slow: bool,
    late: Option<u64>,
}

impl Shared {
    fn run(&mut self, ms: u64, call: impl FnOnce(&mut Rollout, Time)) {
        call(&mut self.rollout, at(ms));
        while let Some(output) = self.rollout.poll_output() {
            if let Output::Write(Write { ticket, key, value, .. }) = output {
                if self.is_slow && key == RECORD {
                    self.late = Some(ticket);
                    continue;
                }
                self.revision += 1;
                if key == RECORD {
                    self.record = read(&value.unwrap()).unwrap();
                }
                self.rollout.wrote(ticket, WriteResult::Written(self.revision), at(ms));
            }
        }
    }

    fn hear(&mut self, ms: u64, key: &str, value: Vec<u8>) {
        self.revision += 1;
        let entry = Entry { key: key.into(), value, revision: self.revision };
        self.run(ms, |rollout, now| rollout.hear_ledger(LedgerEvent::Changed(entry), ms * 1_000, now));
    }

    /// Another replica writes the record.
    fn write(&mut self, ms: u64, change: impl FnOnce(&mut PlanRecord)) {
        change(&mut self.record);
        self.hear(ms, RECORD, write(&self.record.clone()));
    }

    /// The clients of the other replica, all with the push.
    fn other(&mut self, ms: u64, accepted: u64) {
        let PlanRecord { push, step, threshold, .. } = self.record;
        let admitted = Counts { accepted, ..Counts::default() };
        let tally = ReplicaTally {
            version: FORMAT,
            process: 2,
            push,
            step,
            threshold,
            admitted,
            ..Default::default()
        };
        self.hear(ms, "tally/edge/b", write(&tally));
    }

    fn tally(&mut self, ms: u64, count: u64) {
        self.run(ms, |rollout, now| rollout.tally(admitted(accepted(count)), now));
    }

    fn step(&self) -> (u8, u16) {
        (self.record.step, self.record.threshold)
    }

    /// A push that is gathered from 2 s on.
    fn at_gate() -> Shared {
        let step = |threshold| Step { clients: None, threshold, at_least: 1, bake: Duration::from_secs(5) };
        let plan = Plan { steps: vec![step(1_000), step(5_000)], ..enforcing() };
        let replica = Replica {
            name: "a".into(),
            process: 1,
            lease: Duration::from_millis(LEASE_MS),
            join: JoinPolicy::Wait,
        };
        let mut rollout = Rollout::new(Arc::new(plan));
        rollout.share(Share::new("edge", replica), &BTreeMap::new(), at(0));
        let mut shared =
            Shared { rollout, record: PlanRecord::default(), revision: 0, is_slow: false, late: None };
        shared.run(0, |rollout, now| rollout.hear_ledger(LedgerEvent::Loaded(Vec::new()), 0, now));
        shared.run(LEASE_MS, Rollout::handle_timeout);
        let differs = Differs { from_stable: true, from_candidate: true };
        shared.run(LEASE_MS, |rollout, now| rollout.compared(unit(1), differs, now));
        shared.run(2_000, Rollout::handle_timeout);
        let changes = UnitChanges { unit: UnitKey(1), changes: [ChangeHash(7)].into() };
        let push = UnitPush { shared: Some(changes), ..unit_push(1) };
        shared.run(2_000, |rollout, now| assert!(rollout.ready(vec![push], now)));
        shared
    }

    /// A push whose first step begins at 4 s. It bakes for 5 s.
    fn at_first_step() -> Shared {
        let mut shared = Shared::at_gate();
        shared.other(3_000, 0);
        shared.tally(4_000, 0);
        assert_eq!(shared.step(), (1, 1_000));
        shared
    }
}

#[test]
fn ldg_4_a_step_needs_the_evidence_of_all_clients_that_the_record_admits() {
    let mut shared = Shared::at_first_step();
    // All of the evidence is there, and another replica is faster with a write that admits more clients.
    shared.other(5_000, 1);
    shared.tally(5_000, 1);
    shared.is_slow = true;
    shared.tally(9_100, 1);
    let ticket = shared.late.unwrap();
    shared.write(9_200, |record| record.threshold = 2_000);
    shared.is_slow = false;
    let lost = WriteResult::Conflict(Some(shared.revision));
    shared.run(9_300, |rollout, now| rollout.wrote(ticket, lost, now));
    assert_eq!(shared.step(), (1, 2_000), "nobody has counted these clients");
    shared.tally(9_600, 1);
    assert_eq!(shared.step(), (1, 2_000), "the other replica has not counted");
    shared.other(9_700, 1);
    shared.tally(9_800, 1);
    assert_eq!(shared.step(), (2, 5_000));
}

#[test]
fn ldg_5_the_clocks_of_a_step_that_began_in_an_outage_stand_since_its_begin() {
    let mut shared = Shared::at_first_step();
    shared.run(5_000, |rollout, now| rollout.hear_ledger(LedgerEvent::Lost("cut off".into()), 0, now));
    let hour = 3_600_000;
    let record = PlanRecord { step: 2, threshold: 5_000, ..shared.record.clone() };
    shared.record = record.clone();
    shared.revision += 1;
    let entry = Entry { key: RECORD.into(), value: write(&record), revision: shared.revision };
    shared.run(hour, |rollout, now| {
        rollout.hear_ledger(LedgerEvent::Loaded(vec![entry]), hour * 1_000, now);
    });
    shared.run(hour + LEASE_MS, Rollout::handle_timeout);
    shared.tally(hour + LEASE_MS, 1);
    shared.tally(hour + LEASE_MS + 4_900, 1);
    assert_eq!(shared.record.step, 2);
    shared.tally(hour + LEASE_MS + 5_100, 1);
    assert_eq!(shared.record.step, 3, "not an hour later");
}

#[test]
fn ldg_5_a_pause_of_here_spreads_when_the_ledger_is_back_and_an_unpin_does_not() {
    let mut shared = Shared::at_first_step();
    shared.write(4_100, |record| record.orders.frozen_until = Some(u64::MAX));
    shared.run(5_000, |rollout, now| rollout.hear_ledger(LedgerEvent::Lost("cut off".into()), 0, now));
    shared.run(5_000, |rollout, now| rollout.command_here(Command::Pause { push: 1 }, now).unwrap());
    shared.run(5_000, |rollout, now| rollout.command_here(Command::Unfreeze, now).unwrap());
    assert_eq!(shared.record.orders.paused, None);
    let entry = Entry { key: RECORD.into(), value: write(&shared.record), revision: shared.revision };
    shared.run(9_000, |rollout, now| {
        rollout.hear_ledger(LedgerEvent::Loaded(vec![entry]), 9_000_000, now);
    });
    assert_eq!(shared.record.orders.paused, Some(1));
    assert_eq!(shared.record.orders.frozen_until, Some(u64::MAX), "an order of before stands");
}

#[test]
fn ldg_4_a_push_at_its_gate_goes_back_when_the_ledger_says_that_its_content_was_halted() {
    for is_promoted in [false, true] {
        let mut shared = Shared::at_gate();
        shared.write(2_100, |record| record.promoted = is_promoted.then_some(1));
        let changed = [ChangeHash(7)].into_iter().collect();
        let halt = PastPush { version: FORMAT, changed, ..PastPush::default() };
        shared.hear(2_200, "halted/edge/0/b", write(&halt));
        assert_eq!(shared.rollout.under_way().is_some(), is_promoted);
        shared.other(3_000, 0);
        shared.tally(4_000, 0);
        assert_eq!(shared.step().0, u8::from(is_promoted));
    }
}

#[test]
fn ldg_4_a_halt_of_many_units_fits_into_the_record() {
    let mut shared = Shared::at_first_step();
    shared.run(5_000, |rollout, now| rollout.command(Command::Abort { push: 1 }, now).unwrap());
    assert_eq!(shared.record.halt.as_ref().unwrap().blamed, [], "all of them");
}

#[test]
fn ldg_4_a_paused_push_stays_paused_at_a_step_that_another_replica_began() {
    let mut shared = Shared::at_first_step();
    shared.write(4_100, |record| record.orders.paused = Some(1));
    shared.write(4_200, |record| (record.step, record.threshold) = (2, 5_000));
    assert_eq!(
        (shared.rollout.state(), shared.rollout.under_way().unwrap().reached()),
        (RolloutState::Paused, 2)
    );
    shared.run(4_300, |rollout, now| rollout.command(Command::Resume { push: 1 }, now).unwrap());
    assert_eq!((shared.rollout.state(), shared.record.orders.paused), (RolloutState::Waving, None));
}

#[test]
fn ldg_7_a_bar_that_the_record_has_no_room_for_is_refused() {
    let mut shared = Shared::at_first_step();
    shared.run(5_000, |rollout, now| rollout.command(Command::Abort { push: 1 }, now).unwrap());
    let bar = || Command::Bar { push: 1, units: vec![unit(1)] };
    let others = |count: usize| (0..count).map(|other| UnitKey(1_000 + other as u128)).collect();
    shared.write(5_100, |record| record.orders.barred = others(BARRED_MAX));
    shared.run(5_200, |rollout, now| {
        assert_eq!(rollout.command(bar(), now), Err(CommandError::TooManyBarred));
    });
    shared.write(5_300, |record| record.orders.barred = others(BARRED_MAX - 1));
    shared.run(5_400, |rollout, now| rollout.command(bar(), now).unwrap());
    assert_eq!(shared.record.orders.barred.len(), BARRED_MAX);
    assert_eq!(shared.record.orders.barred.last(), Some(&UnitKey(1)));
}
