//! A plan with a ledger that takes each write at once (LDG-4).

use super::*;
use crate::rollout::command::{Command, CommandError, Promotion};
use crate::rollout::ledger::{Entry, JoinPolicy, LedgerEvent, Replica, Share, Write, WriteResult};
use crate::rollout::shared::record::{
    FORMAT, Orders, PastPush, PlanRecord, ReplicaTally, SharedHalt, SharedPin, SharedPinEnd, SharedState,
    read, write,
};
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
    cuts: Vec<u64>,
    /// The written keys, without tallies, and the latest tally.
    keys: Vec<String>,
    tallied: ReplicaTally,
}

impl Shared {
    fn run(&mut self, ms: u64, call: impl FnOnce(&mut Rollout, Time)) {
        call(&mut self.rollout, at(ms));
        while let Some(output) = self.rollout.poll_output() {
            if let Output::Cut { push, .. } = &output {
                self.cuts.push(*push);
            }
            if let Output::Write(Write { ticket, key, value, .. }) = output {
                if key.starts_with("tally/") {
                    self.tallied = read(value.as_ref().unwrap()).unwrap();
                } else {
                    self.keys.push(key.clone());
                }
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
        let mut rollout = Rollout::new(Arc::new(plan));
        rollout.share(Shared::share(), &BTreeMap::new(), at(0));
        let mut shared = Shared {
            rollout,
            record: PlanRecord::default(),
            revision: 0,
            is_slow: false,
            late: None,
            cuts: Vec::new(),
            keys: Vec::new(),
            tallied: ReplicaTally::default(),
        };
        shared.run(0, |rollout, now| rollout.hear_ledger(LedgerEvent::Loaded(Vec::new()), 0, now));
        shared.run(LEASE_MS, Rollout::handle_timeout);
        let differs = Differs { from_stable: true, from_candidate: true };
        shared.run(LEASE_MS, |rollout, now| rollout.compared(unit(1), differs, now));
        shared.run(2_000, Rollout::handle_timeout);
        shared.cut(2_000);
        shared
    }

    fn share() -> Share {
        let lease = Duration::from_millis(LEASE_MS);
        Share::new("edge", Replica { name: "a".into(), process: 1, lease, join: JoinPolicy::Wait })
    }

    /// The answer to a cut.
    fn cut(&mut self, ms: u64) {
        let changes = UnitChanges { unit: UnitKey(1), changes: [ChangeHash(7)].into() };
        let push = UnitPush { shared: Some(changes), ..unit_push(1) };
        self.run(ms, |rollout, now| assert!(rollout.ready(vec![push], now)));
    }

    fn lose(&mut self, ms: u64) {
        self.run(ms, |rollout, now| {
            rollout.hear_ledger(LedgerEvent::Lost("cut off".into()), ms * 1_000, now);
        });
    }

    /// The ledger is back, with the record.
    fn load(&mut self, ms: u64) {
        self.revision += 1;
        let entry = Entry { key: RECORD.into(), value: write(&self.record), revision: self.revision };
        self.run(ms, |rollout, now| {
            rollout.hear_ledger(LedgerEvent::Loaded(vec![entry]), ms * 1_000, now);
        });
    }

    fn here(&mut self, ms: u64, command: Command) {
        self.run(ms, |rollout, now| rollout.command_here(command, now).unwrap());
    }

    /// A new process, without a word of the ledger.
    fn restart(&mut self, ms: u64) {
        let record = self.rollout.record(at(ms));
        let record = serde_json::from_str(&serde_json::to_string(&record).unwrap()).unwrap();
        self.rollout = Rollout::restore(self.rollout.plan().clone(), record, Duration::ZERO, at(ms));
        self.run(ms, |rollout, now| rollout.share(Shared::share(), &BTreeMap::new(), now));
    }

    /// The step and the threshold of here.
    fn reached(&self) -> (u8, u16) {
        let push = self.rollout.under_way().unwrap();
        push.steps.last().map_or((0, 0), |step| (step.number, step.threshold))
    }

    fn diverged(&self) -> Vec<String> {
        let shared = self.rollout.report().shared.unwrap();
        shared.diverged.iter().map(ToString::to_string).collect()
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

fn freeze() -> Command {
    Command::Freeze { length: Duration::from_secs(3_600) }
}

#[test]
fn ldg_5_a_promotion_of_here_acts_at_once_and_spreads_to_nobody() {
    let mut shared = Shared::at_first_step();
    shared.here(5_000, Command::Promote { push: 1, to: Promotion::Step(2) });
    assert_eq!((shared.reached(), shared.step()), ((2, 5_000), (1, 1_000)));
    assert_eq!(shared.diverged(), ["step 2 of push 1 was begun for it alone"]);
    // The clients of here count as those of the record's step, which goes on by their evidence.
    shared.other(5_100, 1);
    shared.tally(6_000, 9);
    let ReplicaTally { step, threshold, admitted, is_diverged, .. } = shared.tallied.clone();
    assert_eq!((step, threshold, admitted.accepted, is_diverged), (1, 1_000, 9, true));
    shared.tally(9_900, 9);
    assert_eq!(shared.step(), (1, 1_000));
    // The evidence of a bid is of the clients that the record admitted then.
    shared.is_slow = true;
    shared.tally(10_000, 9);
    shared.write(10_000, |record| record.threshold = 1_045);
    shared.is_slow = false;
    let lost = WriteResult::Conflict(Some(shared.revision));
    let ticket = shared.late.unwrap();
    shared.run(10_000, |rollout, now| rollout.wrote(ticket, lost, now));
    assert_eq!(shared.step(), (1, 1_045));
    shared.other(10_000, 1);
    shared.tally(10_000, 9);
    assert_eq!((shared.reached(), shared.step()), ((2, 5_000), (2, 5_000)));
    shared.other(10_100, 1);
    shared.tally(14_900, 9);
    assert_eq!((shared.step(), shared.diverged()), ((2, 5_000), Vec::new()), "it bakes for all");
    shared.tally(15_000, 9);
    assert_eq!(shared.step(), (3, 10_000));
}

#[test]
fn ldg_5_a_promotion_of_here_without_the_ledger_stays_here_when_it_is_back() {
    let mut shared = Shared::at_first_step();
    shared.other(4_500, 0);
    shared.lose(5_000);
    shared.here(5_000, Command::Promote { push: 1, to: Promotion::All });
    assert_eq!(shared.reached(), (3, 10_000));
    shared.load(9_000);
    shared.other(9_100, 0);
    let silent = || Tally { admitted: Counts { silent: 9, ..Counts::default() }, ..Tally::default() };
    for second in 10..100 {
        shared.run(second * 1_000, |rollout, now| rollout.tally(silent(), now));
    }
    assert_eq!((shared.reached(), shared.step()), ((3, 10_000), (1, 1_000)), "there is no evidence");
    // The bake before the evidence has passed.
    shared.tally(200_000, 9);
    assert_eq!(shared.step(), (2, 5_000), "not the step of here");
    shared.tally(201_000, 9);
    assert_eq!(shared.step(), (2, 5_000));
}

#[test]
fn ldg_5_a_halted_push_that_is_promoted_here_stays_halted_everywhere_else() {
    for is_away in [false, true] {
        let mut shared = Shared::at_first_step();
        shared.run(5_000, |rollout, now| rollout.command(Command::Abort { push: 1 }, now).unwrap());
        assert_eq!(shared.record.state, SharedState::Halted);
        shared.run(5_000, Rollout::handle_timeout);
        if is_away {
            shared.lose(5_500);
        }
        let (before, keys) = (shared.record.clone(), shared.keys.len());
        shared.here(6_000, Command::Promote { push: 1, to: Promotion::Anew });
        assert_eq!(shared.cuts.last(), Some(&2), "away: {is_away}");
        shared.cut(6_000);
        assert_eq!(shared.reached(), (1, 1_000));
        assert_eq!(shared.diverged(), ["push 2 was begun for it alone"]);
        shared.here(6_100, Command::Pause { push: 2 });
        shared.here(6_200, Command::Resume { push: 2 });
        if is_away {
            shared.load(6_500);
            shared.run(7_500, Rollout::handle_timeout);
        }
        for second in 8..120 {
            shared.tally(second * 1_000, 9);
        }
        assert!(shared.rollout.under_way().is_none(), "all clients of here have it");
        assert_eq!((&shared.record, shared.keys.len()), (&before, keys));
    }
}

#[test]
fn ldg_5_a_freeze_of_here_that_is_taken_back_in_the_same_outage_spreads_to_nobody() {
    let orders = [(freeze(), Command::Unfreeze), (Command::Pause { push: 1 }, Command::Resume { push: 1 })];
    for (order, back) in orders {
        let mut shared = Shared::at_first_step();
        shared.lose(5_000);
        shared.here(5_000, order.clone());
        shared.here(6_000, back.clone());
        shared.load(9_000);
        assert_eq!(shared.record.orders, Orders::default());
        shared.run(20_000, Rollout::handle_timeout);
        assert_eq!((shared.rollout.state(), shared.diverged()), (RolloutState::Waving, Vec::new()));
        // An order of all of before stands for the others, and is taken back here alone.
        let mut shared = Shared::at_first_step();
        shared.run(4_500, |rollout, now| rollout.command(order.clone(), now).unwrap());
        let all = shared.record.orders.clone();
        shared.lose(5_000);
        shared.here(5_000, order);
        shared.here(6_000, back);
        shared.load(9_000);
        shared.run(20_000, Rollout::handle_timeout);
        assert_eq!((&shared.record.orders, shared.rollout.state()), (&all, RolloutState::Waving));
        assert_eq!(shared.diverged().len(), 1);
    }
}

/// What another replica's operator has said meanwhile stands.
#[test]
fn ldg_5_an_order_of_here_from_an_outage_loosens_nothing_when_the_ledger_is_back() {
    let later = Some(20_000_000_000);
    let mut shared = Shared::at_first_step();
    shared.lose(5_000);
    shared.here(5_000, freeze());
    shared.record.orders.frozen_until = later;
    shared.load(9_000);
    assert_eq!(shared.record.orders.frozen_until, later, "the longer freeze");
    assert_eq!(shared.rollout.report().frozen_until, Some(at(20_000_000)));
    // Its freeze is over before the ledger is back.
    let mut shared = Shared::at_first_step();
    shared.lose(5_000);
    shared.here(5_000, Command::Freeze { length: Duration::from_secs(10) });
    shared.run(15_000, Rollout::handle_timeout);
    shared.load(20_000);
    assert_eq!((&shared.record.orders, shared.diverged()), (&Orders::default(), Vec::new()));
    // Another push was promoted here, and the pause is taken back all the same.
    let mut shared = Shared::at_first_step();
    shared.lose(5_000);
    shared.here(5_000, Command::Pause { push: 1 });
    shared.here(5_100, Command::Promote { push: 1, to: Promotion::Step(2) });
    shared.here(5_200, Command::Resume { push: 1 });
    shared.load(9_000);
    assert_eq!(shared.record.orders.paused, None);
    // The push is over.
    let mut shared = Shared::at_first_step();
    shared.lose(5_000);
    shared.here(5_000, Command::Pause { push: 1 });
    (shared.record.push, shared.record.orders.paused) = (4, Some(4));
    shared.load(9_000);
    assert_eq!(shared.record.orders.paused, Some(4));
    assert!(!shared.rollout.report().shared.unwrap().is_unwritten);
}

#[test]
fn ldg_4_an_operator_promotes_the_push_that_the_command_names_and_no_other() {
    for (of, is_meant) in [(None, true), (Some(1), true), (Some(2), false)] {
        let mut shared = Shared::at_first_step();
        shared.run(5_000, |rollout, now| rollout.command(Command::Abort { push: 1 }, now).unwrap());
        let cuts = shared.cuts.len();
        shared.write(6_000, |record| {
            (record.push, record.state, record.halt) = (3, SharedState::Gathering, None);
            (record.promoted, record.promoted_of) = (Some(1), of);
        });
        assert_eq!(shared.cuts.len(), cuts + usize::from(is_meant), "{of:?}");
    }
    // The word is for the push that began by it, and for no later one.
    let mut shared = Shared::at_first_step();
    shared.run(5_000, |rollout, now| rollout.command(Command::Abort { push: 1 }, now).unwrap());
    shared.write(6_000, |record| {
        (record.push, record.state, record.halt) = (2, SharedState::Gathering, None);
        (record.promoted, record.promoted_of) = (Some(1), Some(1));
    });
    shared.write(6_100, |record| record.state = SharedState::Over);
    let changes = UnitChanges { unit: UnitKey(1), changes: [ChangeHash(7)].into() };
    let push = UnitPush { shared: Some(changes), is_former: true, ..unit_push(1) };
    shared.run(6_200, |rollout, now| assert!(!rollout.ready(vec![push], now)));
    assert_eq!(shared.rollout.state(), RolloutState::Halted);
}

#[test]
fn ldg_7_orders_of_here_that_differ_from_the_record_are_told() {
    let mut shared = Shared::at_first_step();
    shared.here(5_000, freeze());
    assert!(shared.record.orders.frozen_until.is_some() && shared.diverged().is_empty());
    shared.here(6_000, Command::Unfreeze);
    shared.here(6_000, Command::Pause { push: 1 });
    shared.here(6_000, Command::Resume { push: 1 });
    assert_eq!(shared.diverged(), ["push 1 is not paused here", "it is not frozen"]);
    shared.run(7_000, Rollout::handle_timeout);
    assert!(shared.tallied.is_diverged);
    shared.run(8_000, |rollout, now| rollout.command(freeze(), now).unwrap());
    shared.run(8_000, |rollout, now| rollout.command(Command::Unfreeze, now).unwrap());
    shared.run(8_000, |rollout, now| rollout.command(Command::Resume { push: 1 }, now).unwrap());
    assert_eq!((shared.diverged(), &shared.record.orders), (Vec::new(), &Orders::default()));
}

/// At another replica the release before the push has this number.
fn rolled_back() -> Option<SharedPin> {
    Some(SharedPin { release: 7, until: SharedPinEnd::Unpin, others: serde_json::Map::new() })
}

#[test]
fn his_3_a_replica_without_a_pinned_release_takes_the_push_back_and_begins_none() {
    let mut shared = Shared::at_first_step();
    shared.write(5_000, |record| record.orders.pin = rolled_back());
    assert!(shared.rollout.under_way().is_none(), "its clients are back");
    assert_eq!(shared.rollout.state(), RolloutState::Pinned);
    assert_eq!(shared.diverged(), ["release 7 is not here, so its clients stay with what they have"]);
    assert!(shared.rollout.report().pinned.is_empty());
    let cuts = shared.cuts.len();
    let differs = Differs { from_stable: true, from_candidate: true };
    shared.run(6_000, |rollout, now| rollout.compared(unit(1), differs, now));
    shared.restart(10_000);
    assert_eq!(shared.rollout.state(), RolloutState::Pinned);
    shared.load(20_000);
    shared.run(60_000, Rollout::handle_timeout);
    assert_eq!((shared.cuts.len(), shared.diverged().len()), (cuts, 1));
    shared.write(61_000, |record| record.orders.pin = None);
    shared.run(61_000, |rollout, now| rollout.compared(unit(1), differs, now));
    shared.run(63_000, Rollout::handle_timeout);
    assert_eq!((shared.cuts.len(), shared.diverged()), (cuts + 1, Vec::new()));
}

#[test]
fn ldg_7_an_order_that_was_taken_back_while_a_replica_was_down_is_news_to_it() {
    for is_of_earlier_build in [false, true] {
        let mut shared = Shared::at_first_step();
        shared.run(5_000, |rollout, now| rollout.command(freeze(), now).unwrap());
        assert!(shared.record.orders.frozen_until.is_some());
        if is_of_earlier_build {
            let mut record = shared.rollout.record(at(6_000));
            record.shared = None;
            let plan = shared.rollout.plan().clone();
            shared.rollout = Rollout::restore(plan, record, Duration::ZERO, at(6_000));
            shared.run(6_000, |rollout, now| rollout.share(Shared::share(), &BTreeMap::new(), now));
        } else {
            shared.restart(6_000);
        }
        assert_eq!(shared.rollout.state(), RolloutState::Frozen, "the ledger is not waited for");
        shared.record.orders.frozen_until = None;
        shared.load(7_000);
        assert_ne!(shared.rollout.state(), RolloutState::Frozen);
    }
}

#[test]
fn ldg_5_orders_of_here_outlive_the_process() {
    // Not frozen here, as an operator said.
    let mut shared = Shared::at_first_step();
    shared.run(5_000, |rollout, now| rollout.command(freeze(), now).unwrap());
    shared.here(5_500, Command::Unfreeze);
    shared.restart(6_000);
    shared.load(7_000);
    assert_eq!(shared.diverged(), ["it is not frozen"]);
    // A freeze of here that the ledger has not heard of yet.
    let mut shared = Shared::at_first_step();
    shared.lose(5_000);
    shared.here(5_500, freeze());
    shared.restart(6_000);
    shared.load(7_000);
    assert_eq!(shared.rollout.state(), RolloutState::Frozen);
    assert!(shared.record.orders.frozen_until.is_some());
}

#[test]
fn ldg_6_no_step_of_a_ledger_with_an_entry_of_a_later_build_is_followed() {
    let mut shared = Shared::at_first_step();
    shared.hear(5_000, "halted/edge/1/b", b"{\"version\":2}".to_vec());
    shared.write(5_100, |record| (record.step, record.threshold) = (2, 5_000));
    assert_eq!(shared.reached(), (1, 1_000), "it may be the word of a halt");
    let refused = shared.rollout.command(Command::Pause { push: 1 }, at(5_200));
    assert_eq!(refused, Err(CommandError::NoLedger));
    let changed = [ChangeHash(7)].into_iter().collect();
    let past = write(&PastPush { version: FORMAT, changed, ..PastPush::default() });
    shared.hear(6_000, "halted/edge/1/b", past);
    assert_eq!(shared.reached(), (2, 5_000));
    shared.hear(7_000, "done/edge/1", b"{\"version\":2}".to_vec());
    shared.write(7_200, |record| {
        (record.state, record.halt) = (SharedState::Halted, Some(SharedHalt::default()));
    });
    assert_eq!(shared.rollout.state(), RolloutState::Halted, "a halt counts all the same");
}
