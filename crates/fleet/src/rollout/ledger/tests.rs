//! The machine between a plan and the ledger, by entries as another replica or a stranger wrote them. Whole
//! schedules of replicas are in the test `replicas` of this crate.

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::rollout::Admission;
use crate::rollout::shared::record::{
    CondemnedRecord, FORMAT, Orders, PastPush, SharedHalt, SharedPin, SharedPinEnd, SharedState, read, write,
};
use crate::rollout::shared::{
    BARRED_MAX, ChangeHash, CondemnedSet, ContentHash, ContentSet, OrderChange, PlanRecord, ReplicaTally,
    UnitChanges, UnitKey,
};
use sluice_engine::Time;
use sluice_xds::{ResourceName, TypeUrl, Version};

const LEASE: Duration = Duration::from_secs(15);

/// The end of a freeze.
const LATE: u64 = 1 << 50;

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

fn entry(key: &str, value: Vec<u8>, revision: u64) -> Entry {
    Entry { key: key.into(), value, revision }
}

/// A share whose ledger came at second 0 with these entries.
fn share(entries: Vec<Entry>) -> Share {
    let mut share =
        Share::new("edge", Replica { name: "a".into(), process: 1, lease: LEASE, join: JoinPolicy::Wait });
    share.handle(LedgerEvent::Loaded(entries), 0, at(0));
    share
}

fn record(push: u64, state: SharedState, step: u8) -> PlanRecord {
    let changed = [ChangeHash(7)].into_iter().collect();
    PlanRecord { version: FORMAT, push, state, step, threshold: 100, changed, ..PlanRecord::default() }
}

fn rules() -> Rules {
    Rules { hash: 0, quiet: Duration::from_secs(1) }
}

fn changes() -> BTreeSet<ChangeHash> {
    [ChangeHash(7)].into()
}

/// A push of this replica that asks for a step.
fn local(changes: &BTreeSet<ChangeHash>, number: u64, step: u8) -> LocalPush<'_> {
    let bid = Some(Bid { step, threshold: 500, is_finish: false });
    LocalPush { number, changes, promoted: None, halt: None, bid, is_urgent: false }
}

fn written(share: &mut Share, local: &LocalPush<'_>, seconds: u64) -> Option<PlanRecord> {
    let write = share.next_write(Some(local), rules(), at(seconds))?;
    assert_eq!(write.key, "plan/edge");
    Some(serde_json::from_slice(&write.value?).unwrap())
}

#[test]
fn ldg_4_after_the_return_of_the_ledger_the_others_may_write_first() {
    let moving = || vec![entry("plan/edge", write(&record(3, SharedState::Moving, 1)), 9)];
    let changes = changes();
    let mut early = share(moving());
    assert_eq!(written(&mut early, &local(&changes, 3, 2), 14), None);
    assert_eq!(early.poll_timeout(), Some(at(15)));
    assert_eq!(written(&mut early, &local(&changes, 3, 2), 15).map(|record| record.step), Some(2));
    assert_eq!(early.poll_timeout(), None, "a time that is over wakes nobody again and again");
    // A halt does not wait.
    let mut share = share(moving());
    let (replica, why, blamed) = ("a".into(), "2 of 3 clients rejected it".into(), Vec::new());
    let halt = crate::rollout::shared::record::SharedHalt { replica, why, blamed, ..Default::default() };
    let halted = LocalPush { halt: Some((halt, ContentSet::default())), ..local(&changes, 3, 1) };
    assert_eq!(written(&mut share, &halted, 1).map(|record| record.state), Some(SharedState::Halted));
}

#[test]
fn ldg_3_the_end_of_the_gathering_wakes_the_plan() {
    let mut share = share(vec![entry("plan/edge", write(&record(3, SharedState::Over, 0)), 9)]);
    let changes = changes();
    share.handle(
        LedgerEvent::Changed(entry("plan/edge", write(&record(4, SharedState::Gathering, 0)), 10)),
        0,
        at(20),
    );
    assert_eq!(written(&mut share, &local(&changes, 4, 1), 20), None);
    assert_eq!(share.poll_timeout(), Some(at(21)));
    assert_eq!(written(&mut share, &local(&changes, 4, 1), 21).map(|record| record.step), Some(1));
    assert_eq!(share.poll_timeout(), None);
}

#[test]
fn ldg_3_a_push_of_before_a_restart_is_joined_again() {
    let moving = entry("plan/edge", write(&record(3, SharedState::Moving, 1)), 9);
    let mut share = share(vec![moving]);
    // The checkpoint knows the number of the push, and the process has not begun it.
    assert_eq!(share.number(None, 3), Some(3));
    share.begun(3);
    assert_eq!(share.number(None, 3), None, "it has left the push");
    assert_eq!(share.number(Some(3), 3), None);
}

#[test]
fn ldg_5_the_next_push_comes_after_one_that_the_ledger_never_heard_of() {
    let share = share(vec![entry("plan/edge", write(&record(3, SharedState::Halted, 1)), 9)]);
    assert_eq!(share.number(None, 4), Some(3), "it may be joined");
    assert_eq!(share.number(Some(4), 4), Some(5));
}

#[test]
fn ldg_5_a_write_that_failed_is_tried_again_a_second_later() {
    let mut share = share(vec![entry("plan/edge", write(&record(3, SharedState::Moving, 1)), 9)]);
    let changes = changes();
    let local = local(&changes, 3, 2);
    let first = share.next_write(Some(&local), rules(), at(20)).unwrap();
    share.wrote(first.ticket, WriteResult::Failed, at(21));
    assert_eq!(written(&mut share, &local, 21), None);
    assert_eq!(share.next_tally(None, rules(), at(21)), None);
    assert_eq!(share.poll_timeout(), Some(at(22)));
    assert_eq!(written(&mut share, &local, 22).map(|record| record.step), Some(2));
    let tally = share.next_tally(None, rules(), at(22)).unwrap();
    share.wrote(tally.ticket, WriteResult::Failed, at(22));
    assert_eq!(share.next_tally(None, rules(), at(22)), None);
    // A ledger that has just come is written at once.
    share.handle(LedgerEvent::Loaded(Vec::new()), 0, at(22));
    assert!(share.next_tally(None, rules(), at(22)).is_some());
    // The end of a write of before does not put off those of now.
    share.wrote(tally.ticket, WriteResult::Failed, at(22));
    share.wrote(first.ticket, WriteResult::Failed, at(22));
    assert!(share.next_write(None, rules(), at(22)).is_none() && share.poll_timeout().is_none());
}

#[test]
fn ldg_6_a_record_of_a_later_build_or_of_a_stranger_is_not_acted_on() {
    let broken = [
        (b"{\"version\":2}".to_vec(), "version 2"),
        (b"nonsense".to_vec(), "expected"),
        (write(&record(u64::MAX, SharedState::Over, 0)), "push 18446744073709551615"),
    ];
    let changes = changes();
    for (value, words) in broken {
        let mut share = share(vec![entry("plan/edge", value, 9)]);
        let fault = share.stop(at(60)).unwrap();
        assert!(fault.contains(words) && share.is_away(), "{fault}");
        assert_eq!(written(&mut share, &local(&changes, 4, 1), 60), None);
        let sound = entry("plan/edge", write(&record(3, SharedState::Over, 0)), 10);
        share.handle(LedgerEvent::Changed(sound), 0, at(61));
        assert_eq!(share.stop(at(61)), None);
    }
    let later = br#"{"version":1,"push":3,"state":"over","step":0,"threshold":0,"changed":"","rules":"00000000000000000000000000000000","color":"red"}"#;
    let mut share = share(vec![entry("plan/edge", later.to_vec(), 9)]);
    let record = written(&mut share, &local(&changes, 4, 1), 60).unwrap();
    assert_eq!(record.others["color"], "red", "a field of a later build stays");
}

#[test]
fn ldg_2_an_impossible_tally_is_one_that_has_not_come() {
    let tally = |voices| ReplicaTally {
        version: FORMAT,
        push: 3,
        step: 1,
        threshold: 100,
        voices,
        ..Default::default()
    };
    for (voices, is_there) in [(2, true), (u64::MAX, false)] {
        let mut share = share(vec![
            entry("plan/edge", write(&record(3, SharedState::Moving, 1)), 9),
            entry("tally/edge/b", write(&tally(voices)), 10),
        ]);
        let push = crate::rollout::PushReport { number: 3, ..Default::default() };
        let others = share.count(&push, &crate::rollout::Tally::default());
        assert_eq!(others.are_all_there, is_there);
    }
}

#[test]
fn ldg_2_the_ledger_keeps_the_latest_pushes_only() {
    let past = write(&PastPush { version: FORMAT, ..PastPush::default() });
    let done = (1..=20).map(|push| entry(&format!("done/edge/{push}"), past.clone(), push));
    let halted = (1..=17).map(|push| entry(&format!("halted/edge/{push}/b"), past.clone(), 100 + push));
    let latest = entry("plan/edge", write(&record(20, SharedState::Over, 0)), 99);
    let mut share = share(done.chain(halted).chain([latest]).collect());
    let mut gone = Vec::new();
    while let Some(write) = share.next_write(None, rules(), at(60)) {
        assert_eq!(write.value, None);
        share.wrote(write.ticket, WriteResult::Written(200), at(60));
        share.handle(LedgerEvent::Gone { key: write.key.clone(), revision: 200 }, 0, at(60));
        gone.push(write.key);
    }
    assert_eq!(gone, ["done/edge/1", "done/edge/2", "done/edge/3", "done/edge/4", "halted/edge/1/b"]);
}

#[test]
fn ldg_4_two_replicas_of_one_name_do_not_write_both() {
    let other = ReplicaTally { version: FORMAT, process: 2, ..Default::default() };
    let mut share = share(vec![entry("tally/edge/a", write(&other), 9)]);
    assert_eq!(share.stop(at(60)).as_deref(), Some("another replica has the name a"));
    let changes = changes();
    assert_eq!(written(&mut share, &local(&changes, 1, 1), 60), None);
    assert_eq!(share.next_tally(None, rules(), at(60)), None);
    share.handle(LedgerEvent::Gone { key: "tally/edge/a".into(), revision: 10 }, 0, at(61));
    assert_eq!(share.stop(at(61)), None);
}

#[test]
fn ldg_3_a_halted_change_comes_again_once_another_has_replaced_it() {
    let unit = UnitKey(1);
    let place = 1u128 << 64;
    let halted = |content: u128| UnitChanges { unit, changes: [ChangeHash(place | content)].into() };
    let set = |content: u128| [ChangeHash(place | content)].into_iter().collect::<ContentSet>();
    let past = |content| {
        write(&PastPush { version: FORMAT, changed: set(content), blamed: vec![unit], is_assumed: false })
    };
    let mut entries = vec![
        entry("plan/edge", write(&record(5, SharedState::Over, 0)), 9),
        entry("halted/edge/4/b", past(3), 10),
    ];
    let sort = |entries: &[Entry], content| share(entries.to_vec()).sort(6, &[halted(content)], 0, false);
    assert_eq!(sort(&entries, 3), Sorted::Halted([unit].into()));
    assert_eq!(sort(&entries, 4), Sorted::Begin);
    entries.push(entry("done/edge/5", past(4), 11));
    assert_eq!(sort(&entries, 4), Sorted::Known, "all clients of a replica have it");
    assert_eq!(sort(&entries, 3), Sorted::Begin, "it goes by steps again");
    entries.push(entry("halted/edge/5/b", past(4), 12));
    assert_eq!(sort(&entries, 4), Sorted::Halted([unit].into()), "it was halted as it became done");
}

#[test]
fn ldg_4_halted_content_joins_the_push_of_another_replica_by_an_operator_alone() {
    let unit = [UnitChanges { unit: UnitKey(1), changes: changes() }];
    let sort = |record: PlanRecord, halts: &[Entry]| {
        let record = entry("plan/edge", write(&record), 9);
        share([&[record], halts].concat()).sort(4, &unit, 0, false)
    };
    let halt = [entry("halted/edge/3/b", past(&[7]), 8)];
    for state in [SharedState::Gathering, SharedState::Moving] {
        assert_eq!(sort(record(4, state, 0), &[]), Sorted::Begin);
        assert_eq!(sort(record(4, state, 0), &halt), Sorted::Halted([UnitKey(1)].into()));
        let promoted = PlanRecord { promoted: Some(1), ..record(4, state, 0) };
        assert_eq!(sort(promoted, &halt), Sorted::Begin);
    }
    // A replica without a part of the halt knows less of it than the one that halted.
    let changed = [ChangeHash(7), ChangeHash(8)].into_iter().collect();
    let assumed = PastPush { version: FORMAT, changed, is_assumed: true, ..PastPush::default() };
    let mut halts = vec![entry("halted/edge/3/c", write(&assumed), 8)];
    assert_eq!(sort(record(3, SharedState::Over, 0), &halts), Sorted::Halted([UnitKey(1)].into()));
    halts.push(entry("halted/edge/3/b", past(&[8]), 8));
    assert_eq!(sort(record(3, SharedState::Over, 0), &halts), Sorted::Begin);
}

fn past(changed: &[u128]) -> Vec<u8> {
    let changed = changed.iter().map(|change| ChangeHash(*change)).collect();
    write(&PastPush { version: FORMAT, changed, ..PastPush::default() })
}

/// Foreign keys, and more replicas that halt one push than pushes are kept: no replica writes again and again.
#[test]
fn ldg_2_entries_of_strangers_and_of_many_replicas_cause_no_writes() {
    let keys = (1..=16).map(|push| format!("done/edge/{push}"));
    let foreign = ["done/edge/00", "done/edge/+1", "halted/edge/18446744073709551615/x", "halted/edge/07/b"];
    let of_many = (0..40).map(|replica| format!("halted/edge/20/r{replica}"));
    let keys = keys.chain(foreign.map(str::to_owned)).chain(of_many);
    let entries = keys.map(|key| entry(&key, past(&[7]), 5));
    let latest = entry("plan/edge", write(&record(20, SharedState::Halted, 1)), 99);
    let mut share = share(entries.chain([latest]).collect());
    assert_eq!(share.next_write(None, rules(), at(60)), None);
    // Pushes that the record never had go before older ones.
    let latest = entry("plan/edge", write(&record(10, SharedState::Halted, 1)), 99);
    let early = (1..=16).map(|push| entry(&format!("done/edge/{push}"), past(&[7]), 5));
    let mut stranger = self::share(early.chain([entry("done/edge/17", past(&[7]), 5), latest]).collect());
    let gone = stranger.next_write(None, rules(), at(60)).map(|write| write.key);
    assert_eq!(gone.as_deref(), Some("done/edge/17"), "the record never had it");
    // And before those of the record's push.
    for push in 100..117 {
        let key = format!("halted/edge/{push}/x");
        share.handle(LedgerEvent::Changed(entry(&key, past(&[7]), 100)), 0, at(60));
    }
    let gone: Vec<_> = std::iter::from_fn(|| {
        let write = share.next_write(None, rules(), at(60))?;
        share.wrote(write.ticket, WriteResult::Written(200), at(60));
        Some(write.key)
    })
    .take(50)
    .collect();
    assert_eq!(gone, ["halted/edge/116/x", "halted/edge/115/x"]);
}

#[test]
fn ldg_1_an_entry_of_the_past_is_written_once_although_the_watch_is_late() {
    let changes = changes();
    let halt = SharedHalt { replica: "a".into(), ..SharedHalt::default() };
    let halted = PlanRecord { halt: Some(halt.clone()), ..record(3, SharedState::Halted, 1) };
    let mut share = share(vec![entry("plan/edge", write(&halted), 9)]);
    let changed: ContentSet = changes.iter().copied().collect();
    let halted = LocalPush { halt: Some((halt, changed)), ..local(&changes, 3, 1) };
    let write = share.next_write(Some(&halted), rules(), at(60)).unwrap();
    assert_eq!(write.key, "halted/edge/3/a");
    share.wrote(write.ticket, WriteResult::Written(10), at(60));
    assert_eq!(share.next_write(Some(&halted), rules(), at(60)), None);
}

#[test]
fn ldg_1_an_own_tally_that_went_is_written_again() {
    let mut share = share(vec![entry("plan/edge", write(&record(3, SharedState::Moving, 0)), 9)]);
    let first = share.next_tally(None, rules(), at(60)).unwrap();
    share.wrote(first.ticket, WriteResult::Written(10), at(60));
    assert_eq!(share.next_tally(None, rules(), at(70)), None);
    share.handle(LedgerEvent::Gone { key: first.key.clone(), revision: 11 }, 0, at(70));
    assert_eq!(share.next_tally(None, rules(), at(70)).map(|write| write.key), Some(first.key));
}

/// As a replica that began anew, or that halted the push at its gate.
#[test]
fn ldg_4_a_replica_with_a_halted_push_tells_its_part_although_it_has_counted_nobody() {
    let (changes, mut share) =
        (changes(), share(vec![entry("plan/edge", write(&record(3, SharedState::Moving, 1)), 9)]));
    let push = local(&changes, 3, 1);
    assert_eq!(share.next_tally(Some(&push), rules(), at(60)), None, "the others wait for its count");
    let halted = entry("plan/edge", write(&record(3, SharedState::Halted, 1)), 10);
    share.handle(LedgerEvent::Changed(halted), 0, at(61));
    let tally = share.next_tally(Some(&push), rules(), at(61)).unwrap();
    assert!(read::<ReplicaTally>(&tally.value.unwrap()).unwrap().takes_part);
}

#[test]
fn ldg_7_an_order_says_only_what_its_operator_said() {
    let orders = Orders { paused: Some(3), ..Orders::default() };
    let frozen = |until| Orders { frozen_until: Some(until), ..Orders::default() };
    let moving = PlanRecord { orders: orders.clone(), ..record(3, SharedState::Moving, 1) };
    let mut share = share(vec![entry("plan/edge", write(&moving), 9)]);
    assert!(share.take_orders(Orders::default()).is_some());
    let freeze = OrderChange::between(&Orders::default(), &frozen(LATE));
    share.order(freeze.clone(), false);
    let write = share.next_write(None, rules(), at(1)).unwrap();
    let ordered = read::<PlanRecord>(write.value.as_ref().unwrap()).unwrap();
    assert_eq!(
        ordered.orders,
        Orders { paused: Some(3), ..frozen(LATE) },
        "the pause of another replica stays"
    );
    // Another replica was faster with the same word, and nothing of it is left to write.
    share.wrote(write.ticket, WriteResult::Conflict(Some(10)), at(2));
    share.handle(LedgerEvent::Changed(entry("plan/edge", self::write(&ordered), 10)), 0, at(2));
    let thawed = PlanRecord { orders, ..ordered };
    share.handle(LedgerEvent::Changed(entry("plan/edge", self::write(&thawed), 11)), 0, at(3));
    assert_eq!(share.next_write(None, rules(), at(3)), None, "the later word of the other replica stands");
    assert_eq!(share.take_orders(Orders::default()).map(|(_, orders)| orders.frozen_until), Some(None));
    // A later word of here goes before an earlier one.
    share.order(freeze.and(OrderChange::between(&frozen(LATE), &frozen(LATE + 2))), false);
    let write = share.next_write(None, rules(), at(4)).unwrap();
    assert_eq!(read::<PlanRecord>(&write.value.unwrap()).unwrap().orders.frozen_until, Some(LATE + 2));
}

#[test]
fn ldg_7_bars_of_several_replicas_stand_beside_each_other_up_to_a_bound() {
    let barred =
        |units: std::ops::Range<u128>| Orders { barred: units.map(UnitKey).collect(), ..Orders::default() };
    let of = |record: &PlanRecord| record.orders.barred.len();
    let halted = PlanRecord { orders: barred(0..2), ..record(3, SharedState::Halted, 1) };
    let mut share = share(vec![entry("plan/edge", write(&halted), 9)]);
    assert!(share.take_orders(Orders::default()).is_some());
    // A replica bars units of its own, and does not have those of another.
    share.order(OrderChange::between(&barred(7..8), &barred(7..9)), false);
    let write = share.next_write(None, rules(), at(1)).unwrap();
    let ordered = read::<PlanRecord>(write.value.as_ref().unwrap()).unwrap();
    assert_eq!(ordered.orders.barred, [0, 1, 8].map(UnitKey));
    share.wrote(write.ticket, WriteResult::Written(10), at(1));
    assert!(share.may_bar(&barred(8..262).barred) && !share.may_bar(&barred(8..263).barred));
    // Another replica has barred many at the same time.
    let full = PlanRecord { orders: barred(1000..1250), ..halted };
    share.order(OrderChange::between(&barred(7..9), &barred(7..100)), false);
    share.handle(LedgerEvent::Changed(entry("plan/edge", self::write(&full), 11)), 0, at(2));
    let write = share.next_write(None, rules(), at(3)).unwrap();
    let ordered = read::<PlanRecord>(write.value.as_ref().unwrap()).unwrap();
    assert_eq!(of(&ordered), BARRED_MAX);
    share.wrote(write.ticket, WriteResult::Written(12), at(3));
    assert_eq!(share.next_write(None, rules(), at(4)), None, "no room is left for more");
    // The record has room for as many beside all changes and all blamed units.
    let halt = SharedHalt {
        blamed: (0..256).map(|unit| UnitKey(u128::MAX - unit)).collect(),
        why: "x".repeat(1000).into(),
        ..SharedHalt::default()
    };
    let changed: ContentSet = (0..2048).map(ChangeHash).collect();
    assert!(!changed.is_whole());
    let largest = PlanRecord { halt: Some(halt), changed, orders: barred(0..BARRED_MAX as u128), ..full };
    let bytes = self::write(&largest).len();
    assert!(bytes < 64 << 10, "{bytes}");
    share.order(OrderChange::between(&barred(7..9), &Orders::default()), false);
    let write = share.next_write(None, rules(), at(5)).unwrap();
    assert_eq!(of(&read(&write.value.unwrap()).unwrap()), 0, "a pin ends all bars");
}

/// Both began a push at the same time, and the replica with the record's push is gone.
#[test]
fn ldg_3_a_push_by_other_rules_has_no_part_of_the_records_push() {
    let (changes, apart) = (changes(), Rules { hash: 5, ..rules() });
    let gathering = entry("plan/edge", write(&record(3, SharedState::Gathering, 0)), 9);
    let mut share = share(vec![gathering.clone()]);
    let takes_part = |share: &mut Share, rules, seconds| {
        let write = share.next_tally(Some(&local(&changes, 3, 1)), rules, at(seconds)).unwrap();
        share.wrote(write.ticket, WriteResult::Written(10), at(seconds));
        read::<ReplicaTally>(&write.value.unwrap()).unwrap().takes_part
    };
    assert!(!takes_part(&mut share, apart, 20));
    assert!(takes_part(&mut share, rules(), 21));
    let units = [UnitChanges { unit: UnitKey(1), changes: changes.clone() }];
    assert_eq!(share.sort(3, &units, 5, false), Sorted::Wait);
    assert_eq!(share.next_write(Some(&local(&changes, 3, 1)), apart, at(22)), None);
    let write = share.next_write(Some(&local(&changes, 3, 1)), apart, at(22) + LEASE).unwrap();
    assert_eq!(read::<PlanRecord>(&write.value.unwrap()).unwrap().state, SharedState::Over, "nobody has it");

    // A halted push by other rules is another one, too.
    let mut share = self::share(vec![entry("plan/edge", self::write(&record(3, SharedState::Halted, 1)), 9)]);
    assert_eq!(share.number(None, 1), Some(3));
    assert_eq!(share.sort(3, &units, 5, false), Sorted::Wait);
    assert_eq!(share.number(None, 1), Some(4));
}

// === Newcomers ===

const UNIT: UnitKey = UnitKey(1);
const GATHERED_WITHIN: Duration = Duration::from_secs(11);

fn clusters() -> TypeUrl {
    TypeUrl::of_message("envoy.config.cluster.v3.Cluster")
}

/// The content of a cluster of the unit; version 0: it has none.
fn cluster(name: &str, version: u128) -> ChangeHash {
    let version = Some(Version(version)).filter(|version| version.0 > 0);
    ChangeHash::new(UNIT, &clusters(), &ResourceName::from(name), version)
}

fn content(contents: &[ChangeHash]) -> NewcomerContent {
    let contents = contents.iter().copied().collect();
    let types = vec![NewcomerType { type_url: clusters(), is_whole: true, contents }];
    NewcomerContent { types, is_newest: true }
}

fn moving(changed: &[ChangeHash]) -> PlanRecord {
    let changed = changed.iter().copied().collect();
    PlanRecord { changed, ..record(3, SharedState::Moving, 1) }
}

fn tally_of(push: u64) -> Entry {
    let tally =
        ReplicaTally { version: FORMAT, process: 2, push, takes_part: true, ..ReplicaTally::default() };
    entry("tally/edge/b", write(&tally), 4)
}

/// A replica that begins at second 0, and whose ledger has this record.
struct Joiner {
    share: Share,
    newcomer: Newcomer,
}

impl Joiner {
    fn new(entries: Vec<Entry>) -> Joiner {
        let mut share = share(entries);
        share.begin(at(0));
        Joiner { share, newcomer: Newcomer::new(UNIT) }
    }

    fn with(record: &PlanRecord) -> Joiner {
        Joiner::new(vec![entry("plan/edge", write(record), 9), tally_of(record.push)])
    }

    fn hear(&mut self, key: &str, value: Vec<u8>, revision: u64, seconds: u64) {
        self.share.handle(LedgerEvent::Changed(entry(key, value, revision)), 0, at(seconds));
        self.word(seconds);
    }

    fn word(&mut self, seconds: u64) -> JoinWord {
        self.share.join_word(None, 0, GATHERED_WITHIN, at(seconds))
    }

    fn look(&mut self, contents: &[ChangeHash], seconds: u64) -> JoinStanding {
        let word = self.word(seconds);
        self.newcomer.look(&word, |_| content(contents), at(seconds))
    }

    /// Whether clients wait, and when another look is due.
    fn wait(&mut self, contents: &[ChangeHash], seconds: u64) -> Option<(bool, Option<Time>)> {
        match self.look(contents, seconds) {
            JoinStanding::Waits(wait) => Some((wait.is_of_push, wait.due)),
            JoinStanding::Settled | JoinStanding::Free => None,
        }
    }
}

#[test]
fn ldg_3_a_newcomer_waits_with_content_of_the_push_and_no_other() {
    let mut joiner = Joiner::with(&moving(&[cluster("a", 2), cluster("gone", 0)]));
    let (a, b, gone) = (cluster("a", 2), cluster("b", 1), cluster("gone", 1));
    let waits = JoinWait { push: Some(3), types: Some([clusters()].into()), is_of_push: true, due: None };
    assert_eq!(joiner.look(&[a, b], 1), JoinStanding::Waits(waits));
    assert_eq!(joiner.wait(&[b], 1), Some((true, None)), "the push takes a name away");
    assert_eq!(
        joiner.look(&[b, gone], 1).clone(),
        JoinStanding::Waits(JoinWait {
            push: Some(3),
            types: Some([clusters()].into()),
            is_of_push: false,
            due: None,
        }),
        "other content in a place of the push may be newer"
    );
    let mut other = Newcomer::new(UnitKey(2));
    let word = joiner.word(1);
    let served = other.look(&word, |_| content(&[cluster("c", 1)]), at(1));
    assert_eq!(served, JoinStanding::Free, "content of another class");
    // What all clients have does not wait for a later push.
    let (one, two) = (cluster("b", 1), cluster("c", 1));
    let mut joiner = Joiner::with(&moving(&[cluster("a", 2)]));
    assert_eq!(joiner.look(&[one], 1), JoinStanding::Free);
    let next = PlanRecord { push: 4, ..moving(&[cluster("b", 2), cluster("c", 2), cluster("d", 0)]) };
    joiner.hear("plan/edge", write(&next), 12, 2);
    let rest = Some((false, Some(at(2) + GATHERED_WITHIN)));
    let former = [one, cluster("a", 2)];
    assert_eq!(joiner.wait(&former, 3), rest, "the rest of the push before may be in a later one");
    assert_eq!(joiner.look(&former, 13), JoinStanding::Free);
    assert_eq!(joiner.look(&[one], 3), JoinStanding::Free);
    assert_eq!(joiner.wait(&[one, two], 3), Some((false, None)), "nobody had it");
    let mut joiner = Joiner::with(&moving(&[cluster("a", 2), cluster("gone", 0)]));
    assert_eq!((word.admission.push, word.admission.threshold, word.admission.step), (3, 100, 1));
    assert!(word.is_in_the_way(at(1)));
    let elsewhere = joiner.share.join_word(None, 7, GATHERED_WITHIN, at(1));
    assert_eq!(elsewhere.admission, Admission::NOBODY, "seats by other rules");
    let halted_here = joiner.share.join_word(Some(3), 0, GATHERED_WITHIN, at(1));
    assert_eq!(halted_here.admission, Admission::NOBODY);
}

/// At a step the record keeps only what live replicas have: a replica that is away has the rest as a change.
#[test]
fn ldg_3_content_that_a_push_lost_on_its_way_waits_for_its_end() {
    let (kept, lost) = (cluster("a", 2), cluster("b", 2));
    let mut joiner = Joiner::with(&moving(&[kept, lost]));
    assert_eq!(joiner.wait(&[lost], 1), Some((true, None)));
    let next = PlanRecord { step: 2, ..moving(&[kept]) };
    joiner.hear("plan/edge", write(&next), 12, 2);
    assert_eq!(joiner.wait(&[lost], 100), Some((false, None)), "as long as the push is under way");
    let third = PlanRecord { step: 3, ..moving(&[]) };
    joiner.hear("plan/edge", write(&third), 13, 101);
    assert_eq!(joiner.wait(&[lost], 102), Some((false, None)), "with what was lost later");
    assert_eq!(joiner.wait(&[kept], 102), Some((false, None)));
    let over = PlanRecord { state: SharedState::Over, ..third };
    joiner.hear("plan/edge", write(&over), 14, 200);
    let due = Some((false, Some(at(200) + GATHERED_WITHIN)));
    assert_eq!((joiner.wait(&[lost], 200), joiner.wait(&[kept], 201)), (due, due));
    assert_eq!(joiner.look(&[lost], 212), JoinStanding::Settled);
}

#[test]
fn ldg_3_a_newcomer_is_one_until_the_push_is_over_and_none_can_follow_with_its_content() {
    let mut joiner = Joiner::with(&moving(&[cluster("a", 2)]));
    assert_eq!(joiner.wait(&[cluster("a", 3)], 1), Some((false, None)));
    let over = PlanRecord { state: SharedState::Over, ..moving(&[cluster("a", 2)]) };
    let done = PastPush { version: FORMAT, changed: over.changed.clone(), ..PastPush::default() };
    joiner.hear("done/edge/3", write(&done), 10, 20);
    joiner.hear("plan/edge", write(&over), 11, 20);
    assert_eq!(joiner.look(&[cluster("a", 2)], 21), JoinStanding::Free, "all clients have it");
    assert!(!joiner.word(21).is_in_the_way(at(21)));
    let due = at(20) + GATHERED_WITHIN;
    assert_eq!(joiner.wait(&[cluster("a", 3)], 21), Some((false, Some(due))), "the next push has it");
    assert_eq!(joiner.look(&[], 31), JoinStanding::Settled);
    assert_eq!(joiner.look(&[cluster("a", 3)], 31), JoinStanding::Settled, "nobody else has it");
    let next = PlanRecord { push: 4, state: SharedState::Gathering, ..moving(&[cluster("a", 3)]) };
    joiner.hear("plan/edge", write(&next), 12, 30);
    joiner.newcomer = Newcomer::new(UNIT);
    assert_eq!(joiner.wait(&[cluster("a", 3)], 31), Some((true, None)));
    assert_eq!(joiner.look(&[cluster("a", 2)], 31), JoinStanding::Free, "known to be older");
}

#[test]
fn ldg_3_a_newcomer_with_halted_content_waits_until_its_server_has_other_content() {
    let (bad, rest) = (cluster("a", 3), cluster("b", 2));
    let halted = |blamed: &[UnitKey]| {
        let halt = SharedHalt {
            replica: "b".into(),
            why: "why".into(),
            blamed: blamed.to_vec(),
            ..Default::default()
        };
        let state = SharedState::Halted;
        PlanRecord { state, halt: Some(halt), ..moving(&[bad, rest]) }
    };
    let mut joiner = Joiner::with(&halted(&[]));
    assert_eq!(joiner.wait(&[bad, rest], 1_000), Some((true, None)));
    let due = |from| Some(at(from) + GATHERED_WITHIN);
    let mended = [cluster("a", 4), rest];
    assert_eq!(joiner.wait(&mended, 900), Some((false, None)), "others hold the rest of the push");
    assert!(joiner.word(900).is_in_the_way(at(900)), "a live replica has the halted push");
    joiner.share.handle(LedgerEvent::Gone { key: "tally/edge/b".into(), revision: 12 }, 0, at(1_000));
    assert_eq!(joiner.wait(&mended, 1_000), Some((false, due(1_000))), "others may gather it");
    assert_eq!(joiner.look(&mended, 1_011), JoinStanding::Free, "nobody else has it");
    joiner.newcomer = Newcomer::new(UNIT);
    let older = NewcomerContent { is_newest: false, ..content(&mended) };
    let word = joiner.word(1_100);
    let standing = joiner.newcomer.look(&word, |_| older, at(1_100));
    assert!(matches!(standing, JoinStanding::Waits(_)), "the server says the halted content now");

    // Not blamed, and nobody is there who would go on with it.
    let mut joiner = Joiner::with(&halted(&[UnitKey(2)]));
    assert_eq!(joiner.wait(&[rest], 1), Some((true, None)));
    joiner.share.handle(LedgerEvent::Gone { key: "tally/edge/b".into(), revision: 12 }, 0, at(50));
    assert_eq!(joiner.wait(&[rest], 50), Some((true, due(50))));
    assert_eq!(joiner.look(&[rest], 61), JoinStanding::Free);
    assert!(!joiner.word(61).is_in_the_way(at(61)));

    // A later push is under way.
    let past = PastPush {
        version: FORMAT,
        changed: [bad].into_iter().collect(),
        blamed: vec![UNIT],
        is_assumed: false,
    };
    let later = PlanRecord { push: 4, state: SharedState::Over, ..moving(&[rest]) };
    let mut joiner =
        Joiner::new(vec![entry("plan/edge", write(&later), 9), entry("halted/edge/3/b", write(&past), 8)]);
    joiner.word(0);
    assert_eq!(joiner.wait(&[bad], 100), Some((false, None)), "nobody is given halted content");
    assert_eq!(joiner.look(&[cluster("a", 4)], 100), JoinStanding::Settled);
    let replaced = PastPush { version: FORMAT, changed: [cluster("a", 4)].into_iter().collect(), ..past };
    joiner.hear("done/edge/4", write(&replaced), 12, 101);
    assert_eq!(joiner.look(&[bad], 101), JoinStanding::Settled, "it may be tried again");
}

#[test]
fn ldg_5_a_newcomer_waits_for_the_first_word_of_the_ledger_for_a_lease() {
    let replica = Replica { name: "a".into(), process: 1, lease: LEASE, join: JoinPolicy::Wait };
    let mut joiner = Joiner { share: Share::new("edge", replica), newcomer: Newcomer::new(UNIT) };
    joiner.share.begin(at(2));
    let unheard = JoinWait { push: None, types: None, is_of_push: false, due: Some(at(17)) };
    assert_eq!(joiner.look(&[cluster("a", 1)], 16), JoinStanding::Waits(unheard));
    assert!(joiner.word(16).is_in_the_way(at(16)) && !joiner.word(17).is_in_the_way(at(17)));
    assert_eq!(
        joiner.newcomer.look(
            &joiner.share.join_word(None, 0, GATHERED_WITHIN, at(17)),
            |_| NewcomerContent { types: Vec::new(), is_newest: true },
            at(17)
        ),
        JoinStanding::Free
    );
    assert_eq!(joiner.look(&[cluster("a", 1)], 17), JoinStanding::Settled);
    // The ledger comes with a push, and is lost: nobody new is admitted anywhere.
    joiner.share.handle(LedgerEvent::Loaded(Vec::new()), 0, at(20));
    joiner.hear("plan/edge", write(&moving(&[cluster("a", 2)])), 5, 21);
    assert_eq!(joiner.wait(&[cluster("a", 2)], 22), Some((true, None)));
    joiner.share.handle(LedgerEvent::Lost("cut".into()), 0, at(23));
    assert_eq!(joiner.wait(&[cluster("a", 2)], 9_000), Some((true, None)));
}

#[test]
fn ldg_3_a_newcomer_waits_for_a_push_that_is_too_large_to_list() {
    let many = (0..3_000).map(|number| cluster(&number.to_string(), 2));
    let record = PlanRecord { changed: many.collect(), ..moving(&[]) };
    assert!(record.changed.is_whole());
    assert_eq!(Joiner::with(&record).wait(&[cluster("x", 1)], 1), Some((true, None)));
}

#[test]
fn ldg_2_a_field_of_a_later_build_is_kept_and_written_back() {
    let mut value: serde_json::Value =
        serde_json::from_slice(&write(&record(3, SharedState::Moving, 1))).unwrap();
    value["later"] = serde_json::json!({ "a": [1] });
    // A record of an earlier build may lack what has a default.
    value.as_object_mut().unwrap().remove("orders");
    let mut share = share(vec![entry("plan/edge", value.to_string().into_bytes(), 9)]);
    let changes = changes();
    let next = written(&mut share, &local(&changes, 3, 2), 15).unwrap();
    assert_eq!((next.step, &next.others["later"]), (2, &value["later"]));
    value["orders"] =
        serde_json::json!({ "pin": { "release": 2, "until": "unpin", "later": [2] }, "later": 3 });
    let mut share = self::share(vec![entry("plan/edge", value.to_string().into_bytes(), 10)]);
    assert!(share.take_orders(Orders::default()).is_some());
    let frozen = Orders { frozen_until: Some(LATE), ..Orders::default() };
    share.order(OrderChange::between(&Orders::default(), &frozen), false);
    let next = share.next_write(None, rules(), at(16)).unwrap().value.unwrap();
    let next: serde_json::Value = serde_json::from_slice(&next).unwrap();
    assert_eq!((&next["orders"]["pin"]["later"][0], &next["orders"]["later"]), (&2.into(), &3.into()));
}

/// The unit was blamed with content that the push did not bring: a unit that began without older content has it.
#[test]
fn ldg_4_a_unit_that_a_later_push_has_changed_may_try_its_halted_content_again() {
    let (halted, mended) = (ChangeHash(7), ChangeHash(9 << 64));
    let unit = |changes: &[ChangeHash]| {
        [UnitChanges { unit: UnitKey(1), changes: changes.iter().copied().collect() }]
    };
    let past = |change, blamed: &[UnitKey]| {
        write(&PastPush {
            version: FORMAT,
            changed: [change].into_iter().collect(),
            blamed: blamed.to_vec(),
            is_assumed: false,
        })
    };
    let mut share = share(vec![
        entry("plan/edge", write(&record(4, SharedState::Over, 3)), 9),
        entry("halted/edge/3/b", past(halted, &[UnitKey(1)]), 7),
        entry("done/edge/4", past(mended, &[]), 8),
    ]);
    assert_eq!(share.sort(5, &unit(&[halted]), 0, false), Sorted::Halted([UnitKey(1)].into()));
    assert_eq!(share.sort(5, &unit(&[halted, mended]), 0, false), Sorted::Begin);
    assert_eq!(share.sort(5, &unit(&[mended]), 0, false), Sorted::Known);
}

fn condemned(number: u64) -> ContentHash {
    ContentHash::new(&TypeUrl::of_message("t"), &ResourceName::from("a"), Version(u128::from(number)))
}

/// The condemned contents that the share writes, of the first three numbers.
fn written_condemned(share: &mut Share, seconds: u64) -> Option<(Write, Vec<u64>)> {
    let write = share.next_write(None, rules(), at(seconds))?;
    assert_eq!(write.key, "condemned/edge");
    let record: CondemnedRecord = serde_json::from_slice(write.value.as_ref()?).unwrap();
    let is_there = |number: &u64| {
        let (type_url, name) = (TypeUrl::of_message("t"), ResourceName::from("a"));
        record.contents.end(&type_url, &name, Version(u128::from(*number))).is_some()
    };
    Some((write, (0..3).filter(is_there).collect()))
}

fn condemned_entry(number: u64, end: u32, revision: u64) -> Entry {
    let mut contents = CondemnedSet::default();
    contents.merge([(condemned(number), end)], 0);
    let record = CondemnedRecord { version: FORMAT, contents, ..CondemnedRecord::default() };
    entry("condemned/edge", write(&record), revision)
}

#[test]
fn qua_2_what_is_condemned_here_stands_in_the_ledger_whoever_wrote_before() {
    let mut share = share(Vec::new());
    assert_eq!(written_condemned(&mut share, 1), None, "nothing is condemned");
    share.condemn(vec![(condemned(0), at(1_000))]);
    // Not even the time after the return of the ledger is waited for.
    let (first, contents) = written_condemned(&mut share, 1).unwrap();
    assert_eq!((first.expected, contents), (Expected::Absent, vec![0]));
    assert_eq!(written_condemned(&mut share, 1), None, "one write at a time");
    share.wrote(first.ticket, WriteResult::Conflict(Some(9)), at(2));
    assert_eq!(written_condemned(&mut share, 2), None, "the winner's entry has not come");
    share.handle(LedgerEvent::Changed(condemned_entry(1, 5_000, 9)), 2_000_000, at(2));
    let (second, contents) = written_condemned(&mut share, 2).unwrap();
    assert_eq!((second.expected, contents), (Expected::Revision(9), vec![0, 1]));
    share.wrote(second.ticket, WriteResult::Failed, at(3));
    assert_eq!(written_condemned(&mut share, 3), None, "a failed write is left alone for a second");
    let (third, contents) = written_condemned(&mut share, 4).unwrap();
    assert_eq!((third.expected, contents), (Expected::Revision(9), vec![0, 1]));
    share.wrote(third.ticket, WriteResult::Written(10), at(4));
    assert_eq!(written_condemned(&mut share, 4), None, "all of it stands there");
    // A loss, as by an operator's hand.
    share.handle(LedgerEvent::Gone { key: "condemned/edge".into(), revision: 11 }, 5_000_000, at(5));
    assert_eq!(written_condemned(&mut share, 5).map(|(_, contents)| contents), Some(vec![0]));
}

#[test]
fn qua_5_a_condemned_content_of_another_replica_is_written_until_its_end() {
    let mut share = share(vec![condemned_entry(1, 100, 9)]);
    let held = |share: &Share| share.condemned().len();
    assert_eq!(held(&share), 1);
    share.condemn(vec![(condemned(0), at(1_000))]);
    let (write, contents) = written_condemned(&mut share, 100).unwrap();
    assert_eq!(contents, [0]);
    share.wrote(write.ticket, WriteResult::Written(10), at(100));
    assert_eq!(held(&share), 1);
    // An entry that was on its way is older than the one of here.
    share.handle(LedgerEvent::Changed(condemned_entry(1, 100, 9)), 101_000_000, at(101));
    assert_eq!(written_condemned(&mut share, 101), None);
}

#[test]
fn ldg_6_condemned_contents_of_a_later_build_are_not_acted_on() {
    for (value, words) in
        [(&b"{\"version\":2}"[..], "version 2"), (b"{\"version\":1,\"contents\":\"A\"}", "")]
    {
        let mut share = share(vec![entry("condemned/edge", value.to_vec(), 9)]);
        let fault = share.stop(at(60)).unwrap();
        assert!(fault.starts_with("the condemned contents: ") && fault.contains(words), "{fault}");
        share.condemn(vec![(condemned(0), at(1_000))]);
        assert_eq!(written_condemned(&mut share, 60), None);
        share.handle(LedgerEvent::Changed(condemned_entry(1, 5_000, 10)), 61_000_000, at(61));
        assert_eq!(share.stop(at(61)), None);
        assert_eq!(written_condemned(&mut share, 61).map(|(_, contents)| contents), Some(vec![0, 1]));
    }
    let later = br#"{"version":1,"contents":"","color":"red"}"#;
    let mut share = share(vec![entry("condemned/edge", later.to_vec(), 9)]);
    share.condemn(vec![(condemned(0), at(1_000))]);
    let record = written_condemned(&mut share, 1).unwrap().0.value.unwrap();
    assert_eq!(serde_json::from_slice::<CondemnedRecord>(&record).unwrap().others["color"], "red");
}

#[test]
fn ldg_6_an_entry_of_a_later_build_counts_as_no_ledger_whatever_it_is() {
    let moving = || entry("plan/edge", write(&record(3, SharedState::Moving, 1)), 9);
    let changes = changes();
    for key in ["done/edge/2", "halted/edge/3/b", "tally/edge/b"] {
        let mut share = share(vec![moving(), entry(key, b"{\"version\":2}".to_vec(), 10)]);
        let fault = share.stop(at(60)).unwrap();
        assert!(fault.contains(key) && fault.contains("version 2") && share.is_away(), "{fault}");
        assert_eq!(written(&mut share, &local(&changes, 3, 2), 60), None);
        let sound = match key {
            "tally/edge/b" => write(&ReplicaTally { version: FORMAT, ..ReplicaTally::default() }),
            _ => past(&[9]),
        };
        share.handle(LedgerEvent::Changed(entry(key, sound, 11)), 0, at(61));
        assert_eq!(share.stop(at(61)), None, "{key} can be read");
        share.handle(LedgerEvent::Changed(entry(key, b"nonsense".to_vec(), 12)), 0, at(62));
        assert!(share.stop(at(62)).is_some());
        share.handle(LedgerEvent::Gone { key: key.into(), revision: 13 }, 0, at(63));
        assert_eq!(share.stop(at(63)), None, "{key} is gone");
    }
    // Keys that are none of a replica.
    let foreign =
        ["done/edge/x", "halted/edge/3", "halted/edge/03/b", "tally/edge/b/c", "other/edge", "edge"];
    let foreign = foreign.map(|key| entry(key, b"nonsense".to_vec(), 10));
    assert_eq!(share([&[moving()], &foreign[..]].concat()).stop(at(60)), None);
}

#[test]
fn ldg_6_many_entries_that_cannot_be_read_are_known_up_to_a_bound() {
    let mut share = share(Vec::new());
    let key = |push: u64| format!("done/edge/{push}");
    for push in 1..=100 {
        share.handle(LedgerEvent::Changed(entry(&key(push), Vec::new(), push)), 0, at(20));
    }
    for push in 1..=100 {
        assert!(share.stop(at(20)).is_some(), "{push}");
        share.handle(LedgerEvent::Gone { key: key(push), revision: 200 }, 0, at(20));
    }
    assert!(share.stop(at(20)).is_some(), "it does not know which ones were left");
    share.handle(LedgerEvent::Loaded(Vec::new()), 0, at(21));
    assert_eq!(share.stop(at(21)), None);
}

#[test]
fn ldg_4_known_content_that_joins_a_push_on_its_way_does_not_end_it() {
    let changes = changes();
    let finish = || LocalPush { bid: Some(Bid::finish(3)), is_urgent: true, ..local(&changes, 3, 1) };
    for (state, step, ends) in
        [(SharedState::Gathering, 0, true), (SharedState::Moving, 2, false), (SharedState::Moving, 3, true)]
    {
        let mut share = share(vec![entry("plan/edge", write(&record(3, state, step)), 9)]);
        let key = share.next_write(Some(&finish()), rules(), at(60)).map(|write| write.key);
        assert_eq!(key.as_deref(), Some("done/edge/3").filter(|_| ends), "{state:?} {step}");
    }
}

#[test]
fn ldg_4_a_pinned_plan_goes_on_nowhere() {
    let changes = changes();
    let pin = SharedPin { release: 2, until: SharedPinEnd::Unpin, others: serde_json::Map::new() };
    let orders = Orders { pin: Some(pin), ..Orders::default() };
    for state in [SharedState::Moving, SharedState::Over] {
        let pinned = PlanRecord { orders: orders.clone(), ..record(3, state, 1) };
        let mut share = share(vec![entry("plan/edge", write(&pinned), 9)]);
        assert_eq!(written(&mut share, &local(&changes, 3, 2), 60), None);
        assert_eq!(written(&mut share, &local(&changes, 4, 1), 60), None);
        let finish = Some(Bid::finish(3));
        assert_eq!(written(&mut share, &LocalPush { bid: finish, ..local(&changes, 3, 2) }, 60), None);
    }
}

#[test]
fn ldg_7_a_replica_whose_lease_has_run_out_is_told_as_silent_for_a_while() {
    let mut share = share(vec![tally_of(3)]);
    let silent = |share: &mut Share, seconds| {
        assert_eq!(share.next_write(None, rules(), at(seconds)), None);
        share.report(&None, None).silent.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(silent(&mut share, 20), [""; 0]);
    share.handle(LedgerEvent::Gone { key: "tally/edge/b".into(), revision: 9 }, 0, at(20));
    assert_eq!(silent(&mut share, 139), ["b"]);
    assert_eq!(silent(&mut share, 140), [""; 0]);
    share.handle(LedgerEvent::Changed(tally_of(3)), 0, at(150));
    share.handle(LedgerEvent::Loaded(Vec::new()), 0, at(160));
    assert_eq!(silent(&mut share, 160), ["b"], "a load shows it, too");
    share.handle(LedgerEvent::Changed(tally_of(3)), 0, at(161));
    assert_eq!(silent(&mut share, 161), [""; 0]);
    for other in 0..100 {
        let tally = write(&ReplicaTally { version: FORMAT, ..ReplicaTally::default() });
        let key = format!("tally/edge/r{other}");
        share.handle(LedgerEvent::Changed(entry(&key, tally, 9)), 0, at(162));
        share.handle(LedgerEvent::Gone { key, revision: 9 }, 0, at(162));
    }
    assert_eq!(silent(&mut share, 163).len(), 64);
}
