//! The client's answers to changes of its sources (ADM-10).

use crate::driver::source::changes::TrackedChange;
use crate::driver::stream::state::{Inner, StreamState, newest};
use crate::engine::Time;
use crate::engine::downstream::{ChangeId, RequestOutcome, SourceId, Unsettled, Verdict};

impl Inner {
    fn count(&self, ids: &[ChangeId], count: impl Fn(&TrackedChange)) {
        for id in ids {
            if let Some((_, source)) = self.sources.iter().find(|(known, _)| *known == id.source) {
                source.changes.with(id.number, &count);
            }
        }
    }

    /// Counts the changes of an answered response: one addition for most ACKs.
    pub(crate) fn count_verdict(&self, outcome: &RequestOutcome, stream: u64, now: Time) {
        let judged = &outcome.judged;
        self.count(&judged.overtaken, TrackedChange::superseded);
        match &outcome.verdict {
            Verdict::Ack { .. } => self.count(judged.carried.whole(), |change| change.acked(stream, now)),
            Verdict::Nack { status, .. } => {
                let node = self.node.as_ref().map_or("", |node| &node.id);
                self.count(judged.carried.rejected(), |change| {
                    change.rejected(&status.message, (stream, node), now);
                });
            }
            Verdict::Stale | Verdict::None => {}
        }
    }

    /// Counts the changes that the client needs no answer to.
    pub(crate) fn count_passed(&mut self) {
        if let Some(passed) = self.session.take_passed() {
            self.count(&passed.overtaken, TrackedChange::superseded);
            self.count(&passed.unneeded, TrackedChange::unneeded);
        }
    }

    /// The stream ends.
    pub(crate) fn give_up_changes(&self) {
        for change in self.session.unsettled_changes(&newest(&self.sources)) {
            self.count(&[change.id], TrackedChange::unneeded);
        }
    }
}

impl StreamState {
    /// The changes that the client has not answered or not been sent.
    pub(crate) fn unsettled_changes(&self) -> Vec<Unsettled> {
        self.look(|_, session, sources| session.unsettled_changes(&newest(sources)))
    }

    /// The numbers of the changes of one source that the client owes an answer to.
    pub(crate) fn awaited_of(&self, source: SourceId) -> Vec<u64> {
        let all = self.unsettled_changes().into_iter();
        let awaited = all.filter(|change| change.id.source == source && !change.is_overtaken);
        awaited.map(|change| change.id.number).collect()
    }
}
