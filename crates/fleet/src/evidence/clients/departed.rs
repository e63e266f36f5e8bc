//! Clients that are gone. An acceptance outlives its stream, and a lost stream is evidence for a while
//! (WAV-12).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::TallyInMaking;
use crate::evidence::excuses::WINDOW;
use crate::rollout::{Seat, UnitId};
use sluice_engine::Time;

/// The time for which a lost stream is evidence. A client with a crash at each start comes back in time:
/// Kubernetes waits up to five minutes.
const LOST_FOR: Duration = WINDOW;

/// The maximum number of lost streams that count. So many have halted the push long before.
const LOST_MAX: usize = 10_000;

/// Ends of streams without the push that are so close together are forgotten together.
const SLOT: Duration = Duration::from_secs(10);

/// The maximum number of nodes with an acceptance and no stream. Nothing is decided by their number beyond.
const NODES_MAX: usize = 1_000;

/// The clients of a push that are gone.
#[derive(Debug, Default)]
pub(super) struct DepartedClients {
    /// The lost streams with the push, the latest last.
    lost: VecDeque<LostStream>,
    /// The ends of streams without the push: the first time of each slot, and the number.
    without: VecDeque<(Time, u64)>,
    /// The nodes with an acceptance of the push, and without a stream now. Each node counts once.
    accepted: BTreeMap<Arc<str>, Seat>,
}

#[derive(Debug)]
struct LostStream {
    at: Time,
    seat: Seat,
    /// The source of the push for the stream.
    unit: Option<UnitId>,
}

/// The content of a push at one stream.
#[derive(Debug, Default)]
pub(super) struct SentPush {
    /// The time of the acceptance of all that the client asks for; `None` while some content is outstanding.
    pub whole: Option<Time>,
    /// The client's node and seat, once it accepted the push.
    pub accepted: Option<(Arc<str>, Seat)>,
}

impl DepartedClients {
    /// A stream with the push was lost. Earlier acceptances of the client do not speak for the push.
    pub(super) fn lose(&mut self, node: &str, at: Time, seat: Seat, unit: Option<UnitId>) {
        self.accepted.remove(node);
        self.lost.push_back(LostStream { at, seat, unit });
        if self.lost.len() > LOST_MAX {
            self.lost.pop_front();
        }
    }

    /// A stream without the push was lost.
    pub(super) fn lose_without(&mut self, at: Time) {
        match self.without.back_mut().filter(|(first, _)| at.since(*first) < SLOT) {
            Some((_, count)) => *count += 1,
            None => self.without.push_back((at, 1)),
        }
    }

    /// A client with an acceptance of the push has no stream left.
    pub(super) fn depart(&mut self, sent: Option<SentPush>, count: &TallyInMaking<'_>) {
        let accepted = sent.and_then(|sent| sent.accepted);
        let accepted = accepted.filter(|(_, seat)| count.admission.is_seated(*seat));
        if let Some((node, seat)) = accepted
            && (self.accepted.len() < NODES_MAX || self.accepted.contains_key(&node))
        {
            self.accepted.insert(node, seat);
        }
    }

    /// Whether the node accepted the push by a stream before.
    pub(super) fn has_accepted(&self, node: &str) -> bool {
        self.accepted.contains_key(node)
    }

    /// Counts the clients without a stream. `speaks`: whether the node counts already, by another stream or
    /// by a rejection.
    pub(super) fn count(&mut self, count: &mut TallyInMaking<'_>, speaks: impl Fn(&Arc<str>) -> bool) {
        let is_over = |at: Time| count.now.since(at) >= LOST_FOR;
        while self.lost.pop_front_if(|lost| is_over(lost.at)).is_some() {}
        while self.without.pop_front_if(|(first, _)| is_over(*first)).is_some() {}
        for lost in &self.lost {
            count.group(lost.seat).lost += 1;
            count.blamed.extend(lost.unit);
        }
        count.tally.control.lost = self.without.iter().map(|(_, count)| count).sum();
        for (_, seat) in self.accepted.iter().filter(|(node, _)| !speaks(node)) {
            count.group(*seat).departed += 1;
        }
    }
}
