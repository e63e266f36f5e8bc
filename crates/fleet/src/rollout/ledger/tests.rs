//! The machine between a plan and the ledger, by entries as another replica or a stranger wrote them. Whole
//! schedules of replicas are in the test `replicas` of this crate.

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::rollout::shared::record::{FORMAT, PastPush, SharedState, write};
use crate::rollout::shared::{ChangeHash, ContentSet, PlanRecord, ReplicaTally, UnitChanges, UnitKey};
use sluice_engine::Time;

const LEASE: Duration = Duration::from_secs(15);

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

fn entry(key: &str, value: Vec<u8>, revision: u64) -> Entry {
    Entry { key: key.into(), value, revision }
}

/// A share whose ledger came at second 0 with these entries.
fn share(entries: Vec<Entry>) -> Share {
    let mut share = Share::new("edge", Replica { name: "a".into(), process: 1, lease: LEASE });
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
    // A halt does not wait.
    let mut share = share(moving());
    let (replica, why, blamed) = ("a".into(), "2 of 3 clients rejected it".into(), Vec::new());
    let halt = crate::rollout::shared::record::SharedHalt { replica, why, blamed };
    let halted = LocalPush { halt: Some((halt, ContentSet::default())), ..local(&changes, 3, 1) };
    assert_eq!(written(&mut share, &halted, 1).map(|record| record.state), Some(SharedState::Halted));
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
    let past = write(&PastPush { version: FORMAT, changed: ContentSet::default(), blamed: Vec::new() });
    let done = (1..=20).map(|push| entry(&format!("done/edge/{push}"), past.clone(), push));
    let halted = (1..=17).map(|push| entry(&format!("halted/edge/{push}/b"), past.clone(), 100 + push));
    let mut share = share(done.chain(halted).collect());
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
    assert_eq!(share.next_tally(None, at(60)), None);
    share.handle(LedgerEvent::Gone { key: "tally/edge/a".into(), revision: 10 }, 0, at(61));
    assert_eq!(share.stop(at(61)), None);
}

#[test]
fn ldg_3_a_halted_change_comes_again_once_another_has_replaced_it() {
    let unit = UnitKey(1);
    let place = 1u128 << 64;
    let halted = |content: u128| UnitChanges { unit, changes: [ChangeHash(place | content)].into() };
    let set = |content: u128| [ChangeHash(place | content)].into_iter().collect::<ContentSet>();
    let past = |content| write(&PastPush { version: FORMAT, changed: set(content), blamed: vec![unit] });
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
}
