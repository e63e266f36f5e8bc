//! One stream of a client: the times and the words of its answers (LRS-19 to LRS-21, RLY-66).

use std::time::Duration;

use bytes::Bytes;

use crate::codec::{skips_first_cluster, takes_all_clusters, write_answer_for};
use crate::report::LoadReport;
use crate::wish::{Client, Clusters, INTERVAL_MIN, INTERVAL_UNSTATED, Wish, clusters_for, grown};
use sluice_engine::Time;

/// The longest wait of a client for the first word of a server (LRS-19).
const FIRST_WAIT: Duration = Duration::from_secs(3);
/// Lists shrink at most once in so many intervals (LRS-19).
const SHRINK_INTERVALS: u32 = 10;
/// A client with so many silent intervals has nothing to report (LRS-4). An answer restarts no timer of
/// importance, and without the answer the client might never report a new cluster.
const SILENT_INTERVALS: u32 = 3;
/// The largest share of an interval to leave out, in thousandths (LRS-20).
const SHORTENED_MAX: u64 = 100;

/// The wish as it is now, for one client.
#[derive(Clone, Copy)]
pub struct Asking<'a> {
    /// `None`: no server has spoken.
    pub wish: Option<&'a Wish>,
    /// Another number whenever the wish, or an answer of `client`, may have changed.
    pub number: u64,
    pub client: &'a dyn Client,
}

/// The latest answer.
#[derive(Clone, Debug)]
struct Answered {
    /// The wish as the client was asked, with the unshortened interval.
    wish: Wish,
    at: Time,
    /// The time of the latest answer with exactly the wish.
    exact_at: Time,
    number: u64,
    behind: Behind,
}

/// How the latest answer differs from the wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    No,
    /// The next answer is due at the next good moment.
    Due,
    /// Names too many, for a while.
    Shrinks,
}

/// The bytes of an interval.
#[derive(Clone, Copy, Debug, Default)]
struct Volume {
    since: Time,
    bytes: usize,
}

/// A stream of a client.
#[derive(Clone, Debug)]
pub struct Reporter {
    takes_all: bool,
    /// The client never reports the first cluster of a list.
    skips_first: bool,
    /// The share of the interval to leave out, in thousandths.
    shortened: u64,
    /// The latest message; `None` before the first.
    heard_at: Option<Time>,
    /// The client has just reported, so the client's timer has just begun anew.
    has_just_reported: bool,
    answered: Option<Answered>,
    volume: Volume,
}

impl Reporter {
    /// `random` spreads the reports of many new streams (LRS-20).
    pub fn new(random: u64, now: Time) -> Reporter {
        Reporter {
            takes_all: false,
            skips_first: false,
            shortened: random % (SHORTENED_MAX + 1),
            heard_at: None,
            has_just_reported: false,
            answered: None,
            volume: Volume { since: now, bytes: 0 },
        }
    }

    /// Bytes arrived. False: more than `bytes_max` in an interval, so the stream has to end.
    pub fn arrived(&mut self, bytes: usize, bytes_max: usize, now: Time) -> bool {
        if now.since(self.volume.since) >= self.interval() {
            self.volume = Volume { since: now, bytes: 0 };
        }
        self.volume.bytes = self.volume.bytes.saturating_add(bytes);
        self.volume.bytes <= bytes_max
    }

    /// A message was read to the end, and counted. [`Reporter::poll_answer`] comes next.
    pub fn reported(&mut self, report: &LoadReport<'_>, now: Time) {
        if self.heard_at.is_none() {
            self.takes_all = report.node.is_some_and(takes_all_clusters);
            self.skips_first = report.node.is_some_and(skips_first_cluster);
        }
        self.heard_at = Some(now);
        self.has_just_reported = true;
    }

    /// The client's interval.
    fn interval(&self) -> Duration {
        let wished = self.answered.as_ref().map_or(INTERVAL_UNSTATED, |answered| answered.wish.interval);
        self.shorten(wished)
    }

    fn shorten(&self, interval: Duration) -> Duration {
        let micros = interval.as_micros() as u64;
        let shorter = micros - micros / 1_000 * self.shortened;
        Duration::from_micros(shorter).max(INTERVAL_MIN)
    }

    /// The message to send now, if any. The caller asks after each report, after each change of the wish, and
    /// at [`Reporter::poll_timeout`].
    pub fn poll_answer(&mut self, asking: Asking<'_>, now: Time) -> Option<Bytes> {
        // LRS-1: not before the first request.
        let heard_at = self.heard_at?;
        let has_just_reported = std::mem::take(&mut self.has_just_reported);
        let Some(answered) = &mut self.answered else {
            let is_late = now.since(heard_at) >= FIRST_WAIT;
            let unstated = Wish::all();
            let wish = asking.wish.or(is_late.then_some(&unstated))?;
            let clusters = clusters_for(&wish.clusters, self.takes_all, asking.client);
            return Some(self.answer(Wish { clusters, ..wish.clone() }, None, asking.number, now));
        };
        if answered.number == asking.number && answered.behind == Behind::No {
            return None;
        }
        let Some(wish) = asking.wish else {
            // The client has changed to a class with a silent server: the latest answer stands.
            answered.behind = Behind::No;
            return None;
        };
        let clusters = clusters_for(&wish.clusters, self.takes_all, asking.client);
        let may_shrink = now.since(answered.exact_at) >= answered.wish.interval * SHRINK_INTERVALS;
        // LRS-21: an empty wish has a long interval. A client that kept its names would keep this interval,
        // and hear late that the server is back.
        let may_shrink = may_shrink || wish.asks_for_nothing();
        let next = Wish {
            clusters: grown(&answered.wish.clusters, &clusters, may_shrink, asking.client),
            ..wish.clone()
        };
        let is_exact = next.clusters == clusters;
        answered.number = asking.number;
        answered.behind = match (next == answered.wish, is_exact) {
            (false, _) => Behind::Due,
            (true, false) => Behind::Shrinks,
            (true, true) => Behind::No,
        };
        if answered.behind != Behind::Due {
            return None;
        }
        // LRS-19: each answer restarts the client's timer, so an answer follows a report, and never sooner
        // than an interval after the answer before.
        let (answered_at, exact_at) = (answered.at, answered.exact_at);
        let asked_nothing = answered.wish.asks_for_nothing();
        let interval = self.interval();
        // A much shorter interval ends well before the running one does, so the answer delays no report.
        let ends_at = heard_at.max(answered_at) + interval;
        let is_sooner = now + self.shorten(next.interval) * 2 < ends_at && now >= answered_at + INTERVAL_MIN;
        let is_silent = now.since(heard_at) >= interval * SILENT_INTERVALS;
        let is_good = (has_just_reported || is_silent) && now.since(answered_at) >= interval;
        // A client that was asked for nothing counts nothing, so an answer delays no report.
        if !is_good && !asked_nothing && !is_sooner {
            return None;
        }
        Some(self.answer(next, (!is_exact).then_some(exact_at), asking.number, now))
    }

    /// `exact_at`: the time of the latest answer with exactly the wish; `None`: now.
    fn answer(&mut self, wish: Wish, exact_at: Option<Time>, number: u64, now: Time) -> Bytes {
        let shorter = Wish { interval: self.shorten(wish.interval), ..wish.clone() };
        let behind = if exact_at.is_some() { Behind::Shrinks } else { Behind::No };
        self.answered = Some(Answered { wish, at: now, exact_at: exact_at.unwrap_or(now), number, behind });
        write_answer_for(&shorter, self.skips_first)
    }

    /// The next time for [`Reporter::poll_answer`].
    pub fn poll_timeout(&self) -> Option<Time> {
        let heard_at = self.heard_at?;
        let Some(answered) = &self.answered else { return Some(heard_at + FIRST_WAIT) };
        let interval = self.interval();
        let free_at = (heard_at + interval * SILENT_INTERVALS).max(answered.at + interval);
        match answered.behind {
            Behind::No => None,
            Behind::Due => Some(free_at),
            Behind::Shrinks => {
                Some(free_at.max(answered.exact_at + answered.wish.interval * SHRINK_INTERVALS))
            }
        }
    }

    /// Whether the client understands `send_all_clusters`.
    pub fn takes_all(&self) -> bool {
        self.takes_all
    }

    /// Whether the client was asked for all clusters, for operators.
    pub fn is_asked_for_all(&self) -> bool {
        self.answered.as_ref().is_some_and(|answered| answered.wish.clusters == Clusters::All)
    }
}

#[cfg(test)]
mod tests {
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

        fn clusters(&self) -> BTreeSet<Arc<str>> {
            ["held"].map(Arc::from).into()
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

    #[test]
    fn lrs_21_a_client_that_was_asked_for_nothing_is_asked_at_once_when_that_changes() {
        let mut reporter = reporter(0, true);
        assert!(poll(&mut reporter, Some(&Wish::nothing()), 1, at(0)).is_some());
        assert_eq!(poll(&mut reporter, Some(&wish(&["a"], 10)), 2, at(1)), Some(wish(&["a"], 10)));
        assert_eq!(
            poll(&mut reporter, Some(&wish(&["b"], 10)), 3, at(2)),
            None,
            "the timer of a client runs"
        );
    }

    #[test]
    fn a_client_that_sends_too_much_in_an_interval_is_refused() {
        let mut reporter = reporter(0, true);
        assert!(reporter.arrived(60, 100, at(0)) && reporter.arrived(40, 100, at(9_999)));
        assert!(reporter.arrived(100, 100, at(10_000)));
        assert!(!reporter.arrived(1, 100, at(11_000)));
    }
}
