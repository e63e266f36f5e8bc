//! The changes of the source: remembered, logged, and followed until they are over (ADM-10).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::SourceTask;
use crate::driver::source::changes::{Origin, TrackedChange};
use crate::telemetry::metrics::ChangeOutcome;
use crate::xds::TypeUrl;

/// The looks at a change after its publication. Most clients answer within the first second. A change is over after
/// 30 s, whoever still waits.
const LOOKS: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(30)];

/// The changes that are followed at once. Each source remembers as many at most.
const FOLLOWED_MAX: usize = 64;

/// A change that is not over.
pub(super) struct Followed {
    change: Arc<TrackedChange>,
    since: Instant,
    /// The number of looks so far.
    looks: usize,
}

impl Followed {
    fn due(&self) -> Instant {
        self.since + LOOKS.get(self.looks).copied().unwrap_or_default()
    }
}

impl SourceTask {
    /// Remembers the new changes, before a stream can see their content.
    pub(super) fn publish_changes(&mut self) {
        let (version, arrival) = self.response.take().unzip();
        for change in self.source.take_changes() {
            let published_at = self.shared.clock.now();
            let origin = Origin { server: self.report.server_uri(), version: version.as_deref(), arrival };
            let change = Arc::new(TrackedChange::new(change, origin, published_at));
            self.handle.changes.add(change.clone());
            self.report.published(&change, self.handle.id());
            let member = self.member.as_ref();
            if let Some(testimony) = member.and_then(|member| member.testimony(&change.change)) {
                self.report.testified(&change.change, testimony);
            }
            if self.followed.len() == FOLLOWED_MAX
                && let Some(oldest) = self.followed.pop_front()
            {
                self.close(&oldest.change);
            }
            self.followed.push_back(Followed { change, since: Instant::now(), looks: 0 });
        }
    }

    /// A stream whose subscription comes after a change may have seen the content from before the change, and then owes
    /// an answer to the change, too.
    pub(super) fn count_newcomer(&self, type_url: &TypeUrl, seen: u64) {
        let later = self.followed.iter().rev().take_while(|followed| followed.change.change.number > seen);
        later.filter(|of| of.change.change.type_url == *type_url).for_each(|of| of.change.joined());
    }

    pub(super) fn changes_due(&self) -> Option<Instant> {
        self.followed.iter().map(Followed::due).min()
    }

    /// Closes the changes that are over.
    pub(super) fn look_at_changes(&mut self) {
        let now = Instant::now();
        if self.changes_due().is_none_or(|due| due > now) {
            return;
        }
        let (mut over, mut late) = (Vec::new(), Vec::new());
        self.followed.retain_mut(|followed| {
            if !followed.change.is_open() {
                over.push(followed.change.clone());
                return false;
            }
            while followed.looks < LOOKS.len() && followed.due() <= now {
                followed.looks += 1;
            }
            let is_late = followed.looks == LOOKS.len();
            if is_late {
                late.push(followed.change.clone());
            }
            !is_late
        });
        if !late.is_empty() {
            let waiting = self.waiting();
            for change in late {
                change.bound(waiting.get(&change.change.number).copied().unwrap_or_default());
                over.push(change);
            }
        }
        over.iter().for_each(|change| self.close(change));
    }

    /// The number of streams that owe an answer to each change. Locks one stream at a time.
    fn waiting(&self) -> HashMap<u64, u32> {
        let mut waiting = HashMap::new();
        for stream in self.streams.values() {
            for number in stream.awaited_changes(self.handle.id()) {
                *waiting.entry(number).or_default() += 1;
            }
        }
        waiting
    }

    /// The source ends, with all of its streams.
    pub(super) fn close_changes(&mut self) {
        while let Some(followed) = self.followed.pop_front() {
            self.close(&followed.change);
        }
    }

    fn close(&mut self, change: &TrackedChange) {
        let counts = change.counts(u32::MAX);
        let outcome = match (counts.rejected, counts.waiting, counts.acked, counts.superseded) {
            (1.., ..) => ChangeOutcome::Rejected,
            (_, 1.., ..) => ChangeOutcome::Unfinished,
            (_, _, 1.., _) => ChangeOutcome::Acked,
            (_, _, _, 1..) => ChangeOutcome::Superseded,
            _ => ChangeOutcome::Unwanted,
        };
        self.report.change_is_over(change, outcome, &self.handle);
    }
}
