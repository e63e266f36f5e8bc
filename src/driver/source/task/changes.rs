//! The changes of the source: remembered, logged, and followed until they are over (ADM-10).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::audience::Audience;
use super::surroundings::Surroundings;
use crate::client::Arrival;
use crate::driver::source::changes::{Origin, TrackedChange};
use crate::driver::source::member::Member;
use crate::driver::source::report::Report;
use crate::telemetry::metrics::ChangeOutcome;
use sluice_engine::source::Source;
use sluice_xds::TypeUrl;

/// The looks at a change after its publication. Most clients answer within the first second. A change is over
/// after 30 s, whoever still waits.
const LOOKS: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(30)];

/// The changes that are followed at once. Each source remembers as many at most.
const FOLLOWED_MAX: usize = 64;

/// Follows the changes that are not over.
#[derive(Default)]
pub(super) struct ChangeFollower {
    followed: VecDeque<FollowedChange>,
    /// The response in hand.
    response: Option<ResponseInHand>,
}

/// A response that may bring changes.
struct ResponseInHand {
    /// The version, as the server calls it.
    version: String,
    arrival: Arrival,
}

/// A change that is not over.
struct FollowedChange {
    change: Arc<TrackedChange>,
    since: Instant,
    /// The number of looks so far.
    looks: usize,
}

impl FollowedChange {
    fn due(&self) -> Instant {
        self.since + LOOKS.get(self.looks).copied().unwrap_or_default()
    }
}

impl ChangeFollower {
    /// The changes until the next publication come from this response.
    pub(super) fn note_response(&mut self, version: String, arrival: Arrival) {
        self.response = Some(ResponseInHand { version, arrival });
    }

    /// Remembers the new changes, before a stream can see their content.
    pub(super) fn publish(
        &mut self,
        source: &mut Source,
        report: &mut Report,
        member: Option<&Member>,
        around: &Surroundings,
    ) {
        let response = self.response.take();
        let version = response.as_ref().map(|response| &*response.version);
        let arrival = response.as_ref().map(|response| response.arrival);
        for change in source.take_changes() {
            let origin = Origin { server: report.server_uri(), version, arrival };
            let change = Arc::new(TrackedChange::new(change, origin, around.now()));
            around.handle.changes.add(change.clone());
            report.published(&change, around.handle.id());
            if let Some(testimony) = member.and_then(|member| member.testimony(&change.change)) {
                report.testified(&change.change, testimony);
            }
            if self.followed.len() == FOLLOWED_MAX
                && let Some(oldest) = self.followed.pop_front()
            {
                close(&oldest.change, report, around);
            }
            self.followed.push_back(FollowedChange { change, since: Instant::now(), looks: 0 });
        }
    }

    /// A stream whose subscription comes after a change may have seen the content from before the change, and
    /// then owes an answer to the change, too. `seen`: the latest change that the stream has seen for
    /// certain.
    pub(super) fn count_newcomer(&self, type_url: &TypeUrl, seen: u64) {
        let changes = self.followed.iter().rev().map(|followed| &followed.change);
        let later = changes.take_while(|change| change.change.number > seen);
        later.filter(|change| change.change.type_url == *type_url).for_each(|change| change.joined());
    }

    /// When the next look is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.followed.iter().map(FollowedChange::due).min()
    }

    /// Closes the changes that are over.
    pub(super) fn look(&mut self, report: &mut Report, audience: &Audience, around: &Surroundings) {
        let now = Instant::now();
        if self.due().is_none_or(|due| due > now) {
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
            let waiting = audience.waiting(around.handle.id());
            for change in late {
                change.bound(waiting.get(&change.change.number).copied().unwrap_or_default());
                over.push(change);
            }
        }
        over.iter().for_each(|change| close(change, report, around));
    }

    /// The source ends, with all of its streams.
    pub(super) fn close_all(&mut self, report: &mut Report, around: &Surroundings) {
        self.followed.drain(..).for_each(|followed| close(&followed.change, report, around));
    }
}

fn close(change: &TrackedChange, report: &mut Report, around: &Surroundings) {
    let counts = change.counts(u32::MAX);
    let outcome = match (counts.rejected, counts.waiting, counts.acked, counts.superseded) {
        (1.., ..) => ChangeOutcome::Rejected,
        (_, 1.., ..) => ChangeOutcome::Unfinished,
        (_, _, 1.., _) => ChangeOutcome::Acked,
        (_, _, _, 1..) => ChangeOutcome::Superseded,
        _ => ChangeOutcome::Unwanted,
    };
    report.change_is_over(change, outcome, &around.handle);
}
