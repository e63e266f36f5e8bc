//! The client's answers to changes of its sources (ADM-10).

use std::sync::Arc;

use crate::driver::source::changes::TrackedChange;
use crate::driver::stream::own_sources::newest;
use crate::driver::stream::state::{Inner, StreamState};
use crate::engine::Time;
use crate::engine::downstream::{Answer, ChangeId, RequestOutcome, SourceId, Unsettled, Verdict};
use crate::xds::Request;

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
        self.note_skipped(stream, judged.carried.rejected(), &judged.overtaken);
        match &outcome.verdict {
            Verdict::Ack { .. } => self.count(judged.carried.whole(), |change| change.acked(stream, now)),
            Verdict::Nack { status, .. } => {
                let node = self.node.as_ref().map_or("", |node| &node.id);
                self.count(judged.carried.rejected(), |change| {
                    change.rejected(&status.message, stream, node, now);
                });
            }
            Verdict::Stale | Verdict::None => {}
        }
    }

    /// Tells the sources of rejected resources, whose servers may want to know. A relay below rejects a response for its clients after
    /// it has accepted the response itself.
    pub(crate) fn tell_servers(&self, request: &Request, outcome: &RequestOutcome) {
        let is_new = match &outcome.verdict {
            Verdict::Nack { repeated, .. } => !repeated,
            Verdict::None => !outcome.is_report && !outcome.reports_error,
            Verdict::Ack { .. } | Verdict::Stale => false,
        };
        let Some(error) = request.error().filter(|_| is_new) else { return };
        let (type_url, rejected) = (&outcome.type_url, outcome.judged.carried.rejected());
        let mut subscriptions = self.session.subscriptions().iter();
        let Some(of_type) = subscriptions.find(|of| of.type_url == *type_url) else { return };
        let client = self.node.as_ref().map_or("", |node| &node.id);
        let words = type_url.quote(&error.message);
        for (id, source) in self.sources.iter() {
            let is_meant = match rejected.is_empty() {
                // The client rejects its first content, which is no change.
                true => of_type.parts.iter().any(|part| part.source() == *id),
                false => rejected.iter().any(|change| change.source == *id),
            };
            if is_meant {
                source.reject(type_url, client, &words);
            }
        }
    }

    /// Counts the changes without a need for an answer. `index`: of the last answered subscription.
    pub(crate) fn count_passed(&mut self, stream: u64, index: usize) {
        if let Some(passed) = self.session.take_passed() {
            self.count(&passed.overtaken, TrackedChange::superseded);
            self.count(&passed.unneeded, TrackedChange::unneeded);
            let answered = self.session.subscriptions().get(index);
            let sent = answered.map_or(&[][..], |subscription| subscription.nonces.latest_changes());
            self.note_skipped(stream, sent, &passed.overtaken);
        }
    }

    /// The client was sent these changes in place of the skipped ones (OBS-3).
    fn note_skipped(&self, stream: u64, sent: &[ChangeId], skipped: &[ChangeId]) {
        for id in sent.iter().filter(|_| !skipped.is_empty()) {
            let of_source = skipped.iter().filter(|earlier| earlier.source == id.source);
            self.count(&[*id], |change| {
                change.skipped(stream, of_source.clone().map(|earlier| earlier.number))
            });
        }
    }

    /// The changes in a body for this answer.
    pub(crate) fn changes_in(&self, index: usize, answer: &Answer) -> Vec<Arc<TrackedChange>> {
        let Some(subscription) = self.session.subscriptions().get(index) else { return Vec::new() };
        let find = |id: ChangeId| {
            let (_, source) = self.sources.iter().find(|(known, _)| *known == id.source)?;
            source.changes.find(id.number)
        };
        subscription.changes_in(answer).filter_map(find).collect()
    }

    /// The stream ends.
    pub(crate) fn give_up_changes(&self) {
        for change in self.session.unsettled_changes(&newest(&self.sources)) {
            self.count(&[change.id], TrackedChange::unneeded);
        }
    }
}

impl StreamState {
    /// The changes without an answer, or not sent yet.
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
