//! Times and words of answers.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;
use crate::codec::read_answer;

struct Everything;

impl Client for Everything {
    fn may_have(&self, _: &str) -> bool {
        true
    }

    fn may_have_all(&self) -> bool {
        true
    }

    fn clusters(&self) -> Arc<BTreeSet<Arc<str>>> {
        Arc::new(["held"].map(Arc::from).into())
    }
}

const FEATURE: &str = "envoy.lrs.supports_send_all_clusters";

fn at(millis: u64) -> Time {
    Time::from_micros(millis * 1_000)
}

fn wish(names: &[&str], seconds: u64) -> Wish {
    Wish::new(Clusters::listed(names.iter().copied()), Duration::from_secs(seconds), false)
}

/// A reporter whose node has the feature or not, after its first message.
fn reporter(random: u64, takes_all: bool) -> Reporter {
    let mut node = vec![0x52, FEATURE.len() as u8];
    node.extend(FEATURE.as_bytes());
    let mut reporter = Reporter::new(random, at(0));
    let node = takes_all.then_some(&node[..]);
    reporter.reported(&LoadReport { node, ..LoadReport::default() }, at(0));
    reporter
}

fn poll(reporter: &mut Reporter, wish: Option<&Wish>, number: u64, now: Time) -> Option<Wish> {
    let bytes = reporter.poll_answer(Asking { wish, number, client: &Everything }, now)?;
    Some(read_answer(&bytes).unwrap())
}

fn report(reporter: &mut Reporter, wish: &Wish, number: u64, now: Time) -> Option<Wish> {
    reporter.reported(&LoadReport::default(), now);
    poll(reporter, Some(wish), number, now)
}

#[test]
fn lrs_1_and_19_the_first_answer_waits_for_the_request_and_three_seconds_for_a_server() {
    let mut silent = Reporter::new(0, at(0));
    assert_eq!(
        (poll(&mut silent, Some(&wish(&["a"], 5)), 1, at(9_000)), silent.poll_timeout()),
        (None, None)
    );
    let mut waiting = reporter(0, true);
    assert_eq!((poll(&mut waiting, None, 0, at(2_999)), waiting.poll_timeout()), (None, Some(at(3_000))));
    assert_eq!(poll(&mut waiting, None, 0, at(3_000)), Some(Wish::all()));
    assert!(waiting.is_asked_for_all());
    // A client that does not understand "all" is asked for the clusters that it has.
    assert_eq!(poll(&mut reporter(0, false), None, 0, at(3_000)), Some(wish(&["held"], 10)));
}

#[test]
fn lrs_20_intervals_are_shortened_by_a_tenth_at_most_and_never_below_a_second() {
    let told = |random, seconds| {
        poll(&mut reporter(random, true), Some(&wish(&["a"], seconds)), 1, at(0)).unwrap().interval
    };
    let intervals: BTreeSet<Duration> = (0..1_000).map(|random| told(random, 10)).collect();
    assert_eq!(intervals.len(), 101);
    assert_eq!(intervals.first().copied(), Some(Duration::from_secs(9)));
    assert_eq!(intervals.last().copied(), Some(Duration::from_secs(10)));
    assert_eq!(told(100, 1), Duration::from_secs(1));
}

#[test]
fn lrs_19_later_answers_follow_a_report_an_interval_apart_grow_at_once_and_shrink_late() {
    let mut reporter = reporter(0, true);
    assert!(poll(&mut reporter, Some(&wish(&["a"], 10)), 1, at(0)).is_some());
    let both = wish(&["b"], 10);
    assert_eq!(poll(&mut reporter, Some(&both), 2, at(5_000)), None, "the client's timer is running");
    assert_eq!(report(&mut reporter, &both, 2, at(6_000)), None, "an answer came six seconds ago");
    assert_eq!(report(&mut reporter, &both, 2, at(10_000)), Some(wish(&["a", "b"], 10)));
    assert_eq!(report(&mut reporter, &both, 2, at(20_000)), None, "nothing has changed");
    assert_eq!(report(&mut reporter, &both, 2, at(99_999)), None, "lists shrink late");
    assert_eq!(report(&mut reporter, &both, 2, at(110_000)), Some(both.clone()));
    assert_eq!(reporter.poll_timeout(), None);
    assert_eq!(report(&mut reporter, &both, 2, at(120_000)), None);
}

#[test]
fn lrs_21_a_client_that_was_asked_for_nothing_is_asked_at_once_when_the_server_is_back() {
    let mut reporter = reporter(0, true);
    let asked = wish(&["a"], 10);
    assert!(poll(&mut reporter, Some(&asked), 1, at(0)).is_some());
    let nothing = report(&mut reporter, &Wish::nothing(), 2, at(10_000)).unwrap();
    assert!(!nothing.clusters.has("a") && nothing.interval == Wish::nothing().interval);
    assert_eq!(poll(&mut reporter, Some(&asked), 3, at(12_000)), Some(asked.clone()));
}

#[test]
fn lrs_19_a_much_shorter_interval_delays_no_report_and_goes_out_at_once() {
    let mut reporter = reporter(0, true);
    let [day, long, short] = [86_400, 60_000, 10].map(|seconds| wish(&["a"], seconds));
    assert!(poll(&mut reporter, Some(&day), 1, at(0)).is_some());
    assert_eq!(poll(&mut reporter, Some(&long), 2, at(2_000)), None, "more than half of the time");
    assert_eq!(poll(&mut reporter, Some(&short), 3, at(3_000)), Some(short.clone()));
    assert_eq!(poll(&mut reporter, Some(&wish(&["a"], 1)), 4, at(3_500)), None, "within a second");
}

#[test]
fn lrs_4_a_client_that_has_nothing_to_report_hears_of_new_clusters() {
    let mut reporter = reporter(0, true);
    let (first, grown) = (wish(&["a"], 10), wish(&["a", "b"], 10));
    assert!(poll(&mut reporter, Some(&first), 1, at(0)).is_some());
    assert_eq!(poll(&mut reporter, Some(&grown), 2, at(29_999)), None);
    assert_eq!(reporter.poll_timeout(), Some(at(30_000)));
    assert_eq!(poll(&mut reporter, Some(&grown), 2, at(30_000)), Some(grown));
}

#[derive(Default)]
struct Growing(std::cell::RefCell<BTreeSet<Arc<str>>>, std::cell::Cell<u32>);

impl Client for Growing {
    fn may_have(&self, _: &str) -> bool {
        true
    }

    fn may_have_all(&self) -> bool {
        true
    }

    fn clusters(&self) -> Arc<BTreeSet<Arc<str>>> {
        self.1.set(self.1.get() + 1);
        Arc::new(self.0.borrow().clone())
    }
}

/// Nobody wakes a reporter when a class has a new cluster.
#[test]
fn lrs_4_a_silent_client_without_a_word_for_all_looks_for_new_clusters_by_itself() {
    let mut reporter = reporter(0, false);
    let client = Growing::default();
    let mut look = |number, now| {
        let bytes =
            reporter.poll_answer(Asking { wish: Some(&Wish::all()), number, client: &client }, at(now));
        (bytes.map(|bytes| read_answer(&bytes).unwrap().clusters), reporter.poll_timeout())
    };
    assert_eq!(look(1, 0), (Some(Clusters::listed(["sluice.no-cluster"])), Some(at(10_000))));
    assert_eq!(look(1, 10_000), (None, Some(at(20_000))));
    client.0.borrow_mut().insert("a".into());
    assert_eq!(look(2, 20_000), (Some(Clusters::listed(["a"])), Some(at(50_000))));
    assert_eq!(look(2, 50_000), (None, Some(at(80_000))));
    client.0.borrow_mut().insert("b".into());
    assert_eq!(look(3, 80_000).0, Some(Clusters::listed(["a", "b"])));
}

/// A list may have thousands of names, and a server may change its wish all the time.
#[test]
fn lrs_19_lists_are_made_once_in_an_interval_whatever_the_wishes() {
    let (mut reporter, client) = (reporter(0, false), Growing::default());
    client.0.borrow_mut().insert("a".into());
    for number in 0..100 {
        let asking = Asking { wish: Some(&Wish::all()), number, client: &client };
        reporter.poll_answer(asking, at(100 * number));
    }
    assert_eq!(client.1.get(), 1);
}

#[test]
fn lrs_21_a_client_that_was_asked_for_nothing_is_asked_at_once_when_that_changes() {
    let mut reporter = reporter(0, true);
    assert!(poll(&mut reporter, Some(&Wish::nothing()), 1, at(0)).is_some());
    assert_eq!(poll(&mut reporter, Some(&wish(&["a"], 10)), 2, at(1)), Some(wish(&["a"], 10)));
    assert_eq!(poll(&mut reporter, Some(&wish(&["b"], 10)), 3, at(2)), None, "the timer of a client runs");
}

#[test]
fn a_client_that_sends_too_much_in_an_interval_is_refused() {
    let mut reporter = reporter(0, true);
    assert!(reporter.arrived(60, 100, at(0)) && reporter.arrived(40, 100, at(9_999)));
    assert!(reporter.arrived(100, 100, at(10_000)));
    assert!(!reporter.arrived(1, 100, at(11_000)));
}
