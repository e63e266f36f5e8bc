//! The client's answers to changes of its sources (ADM-10).

use std::sync::Arc;

use crate::driver::source::changes::TrackedChange;
use crate::driver::stream::context::node_id;
use crate::driver::stream::own_sources::{OwnSources, newest};
use sluice_engine::Time;
use sluice_engine::downstream::{Answer, ChangeId, RequestOutcome, Session, Verdict};
use sluice_xds::{Node, Request};

fn count(sources: &OwnSources, ids: &[ChangeId], count: impl Fn(&TrackedChange)) {
    for id in ids {
        if let Some(source) = sources.get(id.source) {
            source.changes.with(id.number, &count);
        }
    }
}

/// Counts the changes of an answered response: one addition for most ACKs. The client's node is in memory of
/// its own, which no ACK needs in the caches.
pub(crate) fn count_verdict(
    sources: &OwnSources,
    outcome: &RequestOutcome,
    stream: u64,
    client: Option<&Node>,
    now: Time,
) {
    let judged = &outcome.judged;
    count(sources, &judged.overtaken, TrackedChange::superseded);
    note_skipped(sources, stream, judged.carried.rejected(), &judged.overtaken);
    match &outcome.verdict {
        Verdict::Ack { .. } => count(sources, judged.carried.whole(), |change| change.acked(stream, now)),
        Verdict::Nack { status, .. } => {
            count(sources, judged.carried.rejected(), |change| {
                change.rejected(&status.message, stream, node_id(client), now);
            });
        }
        Verdict::Stale | Verdict::None => {}
    }
}

/// Passes a rejection to its sources, whose servers may want to know. A relay below rejects a response for
/// its clients after it has accepted the response itself.
pub(crate) fn pass_rejection(
    session: &Session,
    sources: &OwnSources,
    client: Option<&Node>,
    request: &Request,
    outcome: &RequestOutcome,
) {
    let is_new = match &outcome.verdict {
        Verdict::Nack { repeated, .. } => !repeated,
        Verdict::None => !outcome.is_report && !outcome.reports_error,
        Verdict::Ack { .. } | Verdict::Stale => false,
    };
    let Some(error) = request.error().filter(|_| is_new) else { return };
    let (type_url, rejected) = (&outcome.type_url, outcome.judged.carried.rejected());
    let mut subscriptions = session.subscriptions().iter();
    let subscription = subscriptions.find(|subscription| subscription.type_url == *type_url);
    let Some(subscription) = subscription else { return };
    let words = type_url.quote(&error.message);
    for (id, source) in sources.iter() {
        let is_meant = match rejected.is_empty() {
            // The client rejects its first content, which is no change.
            true => subscription.parts.iter().any(|part| part.source() == *id),
            false => rejected.iter().any(|change| change.source == *id),
        };
        if is_meant {
            source.reject(type_url, node_id(client), &words);
        }
    }
}

/// Counts the changes without a need for an answer. `index`: the last answered subscription.
pub(crate) fn count_passed(session: &mut Session, sources: &OwnSources, stream: u64, index: usize) {
    if let Some(passed) = session.take_passed() {
        count(sources, &passed.overtaken, TrackedChange::superseded);
        count(sources, &passed.unneeded, TrackedChange::unneeded);
        let answered = session.subscriptions().get(index);
        let sent = answered.map_or(&[][..], |subscription| subscription.nonces.latest_changes());
        note_skipped(sources, stream, sent, &passed.overtaken);
    }
}

/// Notes that the client was sent changes in place of the skipped ones (OBS-3).
fn note_skipped(sources: &OwnSources, stream: u64, sent: &[ChangeId], skipped: &[ChangeId]) {
    for id in sent.iter().filter(|_| !skipped.is_empty()) {
        let of_source = skipped.iter().filter(|earlier| earlier.source == id.source);
        count(sources, &[*id], |change| {
            change.skipped(stream, of_source.clone().map(|earlier| earlier.number));
        });
    }
}

/// The changes in a body for this answer.
pub(crate) fn changes_in(
    session: &Session,
    sources: &OwnSources,
    index: usize,
    answer: &Answer,
) -> Vec<Arc<TrackedChange>> {
    let Some(subscription) = session.subscriptions().get(index) else { return Vec::new() };
    let find = |id: ChangeId| sources.get(id.source)?.changes.find(id.number);
    subscription.changes_in(answer).filter_map(find).collect()
}

/// Counts the changes that need no answer any more, because the stream ends.
pub(crate) fn give_up(session: &Session, sources: &OwnSources) {
    for change in session.unsettled_changes(&newest(sources)) {
        count(sources, &[change.id], TrackedChange::unneeded);
    }
}
