#![allow(clippy::unwrap_used)]

use super::*;
use crate::client::{Reading, Requests, Subscription, Wanted};
use crate::function::{Function, SELECTED};
use crate::run::Source;
use crate::stamp::Stamp;
use crate::xds::resource_name;

const MS: u64 = 1_000_000;

/// A tracker of connected clients; times are in milliseconds from here on.
fn tracker(clients: usize, odd: usize, edit: impl FnOnce(&mut Spec)) -> Tracker {
    let target = "127.0.0.1:1".parse().unwrap();
    let profile = Profile::plain(Variant::Delta, 10);
    let source = Source::Remote(target);
    let mut spec = Spec::rounds("test", target, profile, clients, source);
    edit(&mut spec);
    let mut tracker = Tracker::new(&spec, odd).unwrap();
    tracker.begin_phase("first", 0).unwrap();
    (0..clients).for_each(|client| tracker.opened(client, 0));
    tracker
}

fn changing(residue: usize, stride: usize) -> Change {
    Change { kind: Kind::Cluster, residue, stride }
}

fn p(histogram: &Histogram) -> (u64, f64, f64) {
    let found = histogram.percentiles().unwrap();
    (found.count, found.p50.round(), found.max)
}

#[test]
fn a_change_that_was_left_out_counts_until_the_newer_one_comes() {
    let mut tracker = tracker(2, 0, |_| ());
    for at in [10, 20, 30] {
        tracker.change(changing(0, 10), at * MS);
    }
    assert_eq!(tracker.due(), 6);
    tracker.arrived(0, 30 * MS, 35 * MS);
    assert_eq!(tracker.due(), 3);
    assert_eq!(p(&tracker.updates), (3, 15.0, 25.0), "5, 15 and 25 ms");
    tracker.arrived(0, 30 * MS, 90 * MS);
    tracker.arrived(0, 20 * MS, 90 * MS);
    assert_eq!(tracker.updates.count(), 3, "it has them already");
    tracker.arrived(1, 10 * MS, 12 * MS);
    assert_eq!(tracker.due(), 2);
    assert!(tracker.awaits(1) && !tracker.awaits(0));
    assert_eq!(tracker.last_clients().map(|ns| ns / MS).collect::<Vec<_>>(), [25, 15, 5]);
}

#[test]
fn what_never_comes_has_taken_until_the_end_at_least() {
    let mut tracker = tracker(2, 0, |_| ());
    tracker.change(changing(0, 10), 10 * MS);
    tracker.arrived(0, 10 * MS, 11 * MS);
    assert_eq!(tracker.give_up(1010 * MS), 1);
    assert_eq!(p(&tracker.updates), (2, 1.0, 1000.0));
    assert_eq!(tracker.due(), 0);
}

#[test]
fn a_change_of_several_resources_is_there_when_the_last_one_is() {
    let mut tracker = tracker(1, 0, |_| ());
    tracker.change(changing(0, 5), 10 * MS);
    tracker.arrived(0, 10 * MS, 11 * MS);
    assert_eq!(tracker.due(), 1);
    tracker.arrived(0, 10 * MS, 14 * MS);
    assert_eq!((tracker.due(), p(&tracker.updates)), (0, (1, 4.0, 4.0)));
}

#[test]
fn changes_of_other_resources_do_not_stand_in_for_each_other() {
    let mut tracker = tracker(1, 0, |spec| (spec.pace.stride, spec.pace.rotate) = (2, true));
    (0..4).for_each(|number| tracker.change(changing(number % 2, 2), (10 + number as u64) * MS));
    // Five resources of the change before the last, which replaced those of the first.
    (0..5).for_each(|_| tracker.arrived(0, 12 * MS, 20 * MS));
    assert_eq!(tracker.due(), 2);
    (0..5).for_each(|_| tracker.arrived(0, 13 * MS, 21 * MS));
    assert_eq!((tracker.due(), tracker.updates.count()), (0, 4));
}

#[test]
fn only_clients_that_want_it_are_waited_for() {
    let mut tracker = tracker(10, 0, |spec| {
        let wanted = Wanted::Names { count: 3, step: 1 };
        spec.profile.subscriptions = vec![Subscription { kind: Kind::Cluster, wanted }];
    });
    tracker.change(changing(0, 10), MS);
    assert_eq!(tracker.due(), 3);
    assert!(tracker.awaits(0) && tracker.awaits(8) && tracker.awaits(9) && !tracker.awaits(1));
}

#[test]
fn nobody_waits_for_odd_clients_once_they_are_loose() {
    let mut tracker = tracker(3, 2, |_| ());
    tracker.change(changing(0, 10), MS);
    tracker.start_misbehaving(Manner { nack: true, ..Manner::default() });
    assert_eq!(tracker.due(), 1);
    tracker.change(changing(0, 10), 2 * MS);
    assert_eq!(tracker.due(), 2);
    tracker.arrived(0, 2 * MS, 3 * MS);
    assert_eq!((tracker.due(), tracker.odd_updates.count(), tracker.updates.count()), (2, 2, 0));
    tracker.start_misbehaving(Manner { reading: Reading::Stopped, ..Manner::default() });
    tracker.change(changing(0, 10), 4 * MS);
    assert_eq!((tracker.due(), tracker.clients[1].awaited.len()), (3, 2));
}

#[test]
fn a_lost_client_is_waited_for_only_if_it_comes_back() {
    for retry in [false, true] {
        let mut tracker = tracker(2, 0, |spec| spec.retry = retry);
        tracker.change(changing(0, 10), MS);
        tracker.lost(1);
        tracker.change(changing(0, 10), 2 * MS);
        assert_eq!(tracker.due(), if retry { 4 } else { 2 });
    }
}

#[test]
fn changes_belong_to_the_phase_in_which_they_were_to_happen() {
    let mut tracker = tracker(1, 0, |_| ());
    tracker.change(changing(0, 10), MS);
    tracker.begin_phase("second", 2 * MS).unwrap();
    tracker.arrived(0, MS, 9 * MS);
    let counts: Vec<u64> = tracker.phases.iter().map(|phase| phase.updates.count()).collect();
    assert_eq!(counts, [1, 0]);
}

#[test]
fn new_names_are_there_when_all_of_them_are() {
    let mut tracker = tracker(1, 0, |spec| {
        let wanted = Wanted::Names { count: 3, step: 3 };
        spec.profile.subscriptions = vec![Subscription { kind: Kind::Cluster, wanted }];
    });
    tracker.change(changing(0, 10), 5 * MS);
    assert_eq!(tracker.due(), 1);
    // From 0, 1, 2 to 2, 3, 4: the changed resource is among the dropped names.
    tracker.moved(0, 10 * MS, 3, 2, changing(0, 10));
    assert_eq!(tracker.due(), 0);
    tracker.note_move(0, 3, 11 * MS);
    tracker.note_move(0, 2, 11 * MS);
    assert!(tracker.is_moving(0));
    tracker.note_move(0, 4, 17 * MS);
    assert_eq!((tracker.moving(), p(&tracker.moves)), (0, (1, 7.0, 7.0)));
    // Indices past the end wrap around.
    tracker.moved(0, 20 * MS, 9, 2, changing(0, 10));
    tracker.note_move(0, 9, 21 * MS);
    tracker.note_move(0, 0, 21 * MS);
    assert_eq!(tracker.moving(), 0);
}

#[test]
fn stamps_of_others_count_if_they_are_newer_than_the_client() {
    let mut tracker = tracker(1, 0, |spec| spec.source = Source::Foreign);
    tracker.opened(0, 10 * MS);
    tracker.arrived(0, 9 * MS, 12 * MS);
    tracker.arrived(0, 13 * MS, 14 * MS);
    tracker.arrived(0, 13 * MS, 15 * MS);
    assert_eq!(p(&tracker.updates), (1, 1.0, 1.0));
}

#[test]
fn names_of_a_client_are_those_that_are_expected_of_it() {
    let mut profile = Profile::plain(Variant::Delta, 7);
    let wanted = Wanted::Names { count: 3, step: 2 };
    profile.subscriptions = vec![Subscription { kind: Kind::Cluster, wanted }];
    let requests = Requests::new(profile);
    for client in 0..9 {
        for index in 0..7 {
            let named = (0..3).any(|name| requests.profile.name(client * 2 + name) == resource_name(index));
            let expected = requests.profile.wanted_of(Kind::Cluster, client, 0, index, 7) == 1;
            assert_eq!(named, expected, "client {client}, resource {index}");
        }
    }
}

/// A tracker of six clients with three apps and two teams, in which a rule selects client 4; and what arrives.
fn ruled() -> (Tracker, impl Fn(&mut Tracker, usize, usize, u64)) {
    let pairs = |pairs: &[(&str, &str)]| -> Vec<_> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let function =
        Function::new(&pairs(&[("app", "3"), ("team", "2")]), &pairs(&[("app", "1"), ("team", "1")]))
            .unwrap();
    let tracker = tracker(6, 0, |spec| spec.profile.function = function);
    let arrive = |tracker: &mut Tracker, client, audience, now| {
        let stamp = Stamp { time: 0, index: 0, audience };
        tracker.audiences.arrived(client, Kind::Cluster, stamp, now);
    };
    (tracker, arrive)
}

#[test]
fn content_of_before_the_rule_is_late_until_that_of_the_rule_has_come() {
    let (mut tracker, arrive) = ruled();
    arrive(&mut tracker, 4, 2, MS);
    tracker.put_rule_in_force(10 * MS);
    assert_eq!(tracker.due(), 1);
    arrive(&mut tracker, 4, 2, 11 * MS);
    arrive(&mut tracker, 1, 2, 11 * MS);
    assert_eq!((tracker.due(), tracker.audiences.misplaced), (1, 0));
    arrive(&mut tracker, 4, SELECTED, 13 * MS);
    assert_eq!((tracker.due(), tracker.audiences.misplaced), (0, 0));
    assert_eq!(p(&tracker.audiences.rule), (1, 3.0, 3.0));
    arrive(&mut tracker, 4, 2, 14 * MS);
    assert_eq!(tracker.audiences.misplaced, 1, "it went back");
}

#[test]
fn content_of_another_audience_is_misplaced() {
    let (mut tracker, arrive) = ruled();
    arrive(&mut tracker, 4, SELECTED, MS);
    arrive(&mut tracker, 0, 2, MS);
    assert_eq!(tracker.audiences.misplaced, 2, "the rule is not in force, and the other is of another app");
    tracker.put_rule_in_force(2 * MS);
    arrive(&mut tracker, 1, SELECTED, 3 * MS);
    assert_eq!(tracker.audiences.misplaced, 3, "its team is another");
    assert_eq!((tracker.audiences.give_up(5 * MS), tracker.due()), (1, 0));
}

#[test]
fn a_lost_client_is_not_waited_for() {
    let (mut tracker, _) = ruled();
    tracker.put_rule_in_force(MS);
    tracker.lost(4);
    assert_eq!((tracker.due(), tracker.audiences.give_up(2 * MS)), (0, 0));
}
