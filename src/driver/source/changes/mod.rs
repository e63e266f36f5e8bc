//! The latest changes of a source, and the clients' answers to them (ADM-10).
//!
//! The source's task adds changes. Streams count in them, each with a few relaxed additions for an answer.

mod journal;
mod rejections;
mod tally;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::client::Arrival;
use crate::driver::api::changes::{ChangeCounts, ChangeRejection, ChangedNames};
use crate::driver::ground::encoder::BodyTimes;
use crate::telemetry::traces::change::Delivery;
use journal::Journal;
use rejections::RejectionGroups;
use sluice_engine::Time;
use sluice_engine::change::{Change, NameList};
use tally::AnswerTally;

/// The remembered changes of a source with many clients. The marks of views reach as far back.
const CHANGES_MAX: usize = 64;

/// The remembered changes of a source with few clients, of which there may be thousands. A change takes some
/// 450 bytes beside its names, and 4 for each client up to 808; its names take at most 6 KiB.
const CHANGES_MIN: usize = 4;

/// The kept length of a server's version.
const VERSION_CHARS_MAX: usize = 128;

/// A change, and the answers to it.
#[derive(Debug)]
pub struct TrackedChange {
    pub change: Change,
    /// The server that published the change.
    pub server: Arc<str>,
    pub upstream_version: Option<Arc<str>>,
    /// The times of the response that brought the change.
    pub arrival: Option<Arrival>,
    /// The change has a trace.
    pub is_traced: AtomicBool,
    /// The streams that settle the change, at most.
    sessions_max: AtomicU32,
    tally: AnswerTally,
    rejections: Mutex<RejectionGroups>,
    /// Kept for a trace only.
    journal: Mutex<Journal>,
    /// When streams could see the change.
    published_at: Time,
}

/// The source of a change.
#[derive(Debug)]
pub struct Origin<'a> {
    pub server: Arc<str>,
    /// The server's version of the content.
    pub version: Option<&'a str>,
    pub arrival: Option<Arrival>,
}

impl TrackedChange {
    pub fn new(change: Change, origin: Origin<'_>, published_at: Time) -> TrackedChange {
        let Origin { server, version, arrival } = origin;
        let version = version.filter(|version| !version.is_empty());
        TrackedChange {
            server,
            arrival,
            is_traced: AtomicBool::new(false),
            journal: Mutex::default(),
            upstream_version: version
                .map(|text| text.chars().take(VERSION_CHARS_MAX).collect::<String>().into()),
            sessions_max: AtomicU32::new(u32::try_from(change.sessions).unwrap_or(u32::MAX)),
            tally: AnswerTally::new(change.sessions),
            rejections: Mutex::default(),
            published_at,
            change,
        }
    }

    pub fn acked(&self, stream: u64, now: Time) {
        self.tally.ack(stream, now.since(self.change.at));
    }

    /// `stream`, `node`: the client.
    pub fn rejected(&self, text: &str, stream: u64, node: &str, now: Time) {
        self.tally.rejected.fetch_add(1, Ordering::Relaxed);
        self.rejections.lock().add(text, stream, node, now.since(self.change.at));
    }

    pub fn superseded(&self) {
        self.tally.superseded.fetch_add(1, Ordering::Relaxed);
    }

    /// A stream has ended without an answer, or has the content already.
    pub fn unneeded(&self) {
        self.tally.unneeded.fetch_add(1, Ordering::Relaxed);
    }

    /// A body with the change was made.
    pub fn encoded(&self, times: BodyTimes) {
        self.journal.lock().encoded(times);
    }

    /// The stream was sent this change in place of earlier ones.
    pub fn skipped(&self, stream: u64, earlier: impl Iterator<Item = u64>) {
        self.journal.lock().skipped(stream, self.change.number, earlier);
    }

    pub fn journal(&self) -> Journal {
        self.journal.lock().clone()
    }

    /// Whether no client had the change by itself: a later one took its place everywhere.
    pub fn is_unseen(&self) -> bool {
        let load = |count: &AtomicU32| count.load(Ordering::Relaxed);
        load(&self.tally.acked) + load(&self.tally.rejected) == 0 && load(&self.tally.superseded) > 0
    }

    /// Whether some streams may not have settled the change.
    pub fn is_open(&self) -> bool {
        self.tally.settled() < self.sessions_max.load(Ordering::Relaxed)
    }

    /// A stream that was not counted may have seen the content from before the change.
    pub fn joined(&self) {
        self.sessions_max.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that all streams were looked at, and so many still wait.
    pub fn bound(&self, waiting: u32) {
        self.sessions_max.store(self.tally.settled().saturating_add(waiting), Ordering::Relaxed);
    }

    /// `waiting`: the streams that still owe an answer.
    pub fn counts(&self, waiting: u32) -> ChangeCounts {
        let load = |count: &AtomicU32| count.load(Ordering::Relaxed);
        let (acked, rejected) = (load(&self.tally.acked), load(&self.tally.rejected));
        let superseded = load(&self.tally.superseded);
        // A stream may have answered since it was looked at.
        let waiting = waiting.min(load(&self.sessions_max).saturating_sub(self.tally.settled()));
        ChangeCounts { total: acked + rejected + superseded + waiting, acked, rejected, waiting, superseded }
    }

    pub fn tally(&self) -> &AnswerTally {
        &self.tally
    }

    pub fn rejections(&self) -> Vec<ChangeRejection> {
        self.rejections.lock().all()
    }

    /// The first rejections, for a trace.
    pub fn first_rejections(&self) -> Vec<Delivery> {
        self.rejections.lock().first().to_vec()
    }

    /// From the receipt to the publication.
    pub fn published_after(&self) -> Duration {
        self.published_at.since(self.change.at)
    }
}

impl From<&NameList> for ChangedNames {
    fn from(list: &NameList) -> ChangedNames {
        ChangedNames { names: list.names.clone(), count: list.count }
    }
}

/// The latest changes, by rising numbers.
#[derive(Debug, Default)]
pub struct ChangeRing(ArcSwap<Vec<Arc<TrackedChange>>>);

impl ChangeRing {
    /// Adds the next change. Called by the source's task only.
    pub fn add(&self, change: Arc<TrackedChange>) {
        let all = self.0.load();
        let most = all.iter().map(|tracked| tracked.change.sessions).max().unwrap_or_default();
        let kept = most.max(change.change.sessions).clamp(CHANGES_MIN, CHANGES_MAX);
        let forgotten = (all.len() + 1).saturating_sub(kept);
        let mut next = Vec::with_capacity(all.len() + 1 - forgotten);
        next.extend(all.iter().skip(forgotten).cloned());
        next.push(change);
        self.0.store(Arc::new(next));
    }

    /// The number of the latest change; 0 if there was none.
    pub fn latest(&self) -> u64 {
        self.0.load().last().map_or(0, |tracked| tracked.change.number)
    }

    /// Looks at a change. Mostly, the change is the last.
    pub fn with<T>(&self, number: u64, look: impl FnOnce(&TrackedChange) -> T) -> Option<T> {
        let all = self.0.load();
        let last = all.last()?;
        if last.change.number == number {
            return Some(look(last));
        }
        let index = all.binary_search_by_key(&number, |tracked| tracked.change.number).ok()?;
        all.get(index).map(|tracked| look(tracked))
    }

    pub fn find(&self, number: u64) -> Option<Arc<TrackedChange>> {
        let all = self.0.load();
        let index = all.binary_search_by_key(&number, |tracked| tracked.change.number).ok()?;
        all.get(index).cloned()
    }

    pub fn all(&self) -> Arc<Vec<Arc<TrackedChange>>> {
        self.0.load_full()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_engine::change::Altered;
    use sluice_xds::{TypeUrl, Version};

    fn change(number: u64, sessions: usize) -> Arc<TrackedChange> {
        let type_url = TypeUrl::of_message("envoy.config.cluster.v3.Cluster");
        let (at, altered, version) = (Time::ZERO, Altered::default(), Version::default());
        let change = Change { number, type_url, at, altered, version, sessions };
        let origin = Origin { server: "cp".into(), version: Some("v1"), arrival: None };
        Arc::new(TrackedChange::new(change, origin, at))
    }

    fn filled(sessions: usize) -> ChangeRing {
        let ring = ChangeRing::default();
        (1..=200).for_each(|number| ring.add(change(number, sessions)));
        ring
    }

    #[test]
    fn adm_10_a_source_with_few_clients_remembers_few_changes() {
        let numbers =
            |ring: &ChangeRing| ring.all().iter().map(|tracked| tracked.change.number).collect::<Vec<_>>();
        assert_eq!(numbers(&filled(1)), [197, 198, 199, 200]);
        assert_eq!(numbers(&filled(10_000)), (137..=200).collect::<Vec<_>>());
        assert!(filled(1).with(196, |_| ()).is_none() && filled(1).with(197, |_| ()).is_some());
        // The bound of the documentation: 4 changes of one client take less than 4 KiB beside their names.
        assert!(size_of::<TrackedChange>() <= 700, "{}", size_of::<TrackedChange>());
    }

    #[test]
    fn adm_10_the_counts_add_up_and_a_rejecting_client_does_not_have_the_change() {
        let change = change(1, 10);
        (0..5).for_each(|stream| change.acked(stream, Time::from_micros(1000)));
        change.rejected("bad", 1, "node", Time::from_micros(1000));
        change.superseded();
        change.unneeded();
        assert!(change.is_open());
        let counts = change.counts(2);
        assert_eq!(counts, ChangeCounts { total: 9, acked: 5, rejected: 1, waiting: 2, superseded: 1 });
        assert_eq!(change.counts(5).waiting, 2, "two streams at most are left");
        change.joined();
        assert_eq!(change.counts(5).waiting, 3, "a stream came at the moment of the change");
        change.bound(0);
        assert!(!change.is_open());
        assert_eq!(change.counts(2).waiting, 0);
    }
}
