//! Streams for some of whose types there is no room (RLY-14): such a type is not served, the others are.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use super::registry::lock;
use super::room::{Holder, Origin};
use super::routes::Routes;
use super::servers::Place;
use super::source::Subscriber;
use super::stream::{Inner, StreamState};
use crate::engine::Time;
use crate::engine::downstream::SourceId;
use crate::xds::Status;

/// A stream of which nothing at all can be served ends after this time, so that its client hears why and may turn to its
/// next server. Until then further types may come for which there is room.
const GRACE: Duration = Duration::from_secs(1);

/// How often it is looked whether there is room meanwhile. So a place that came free is taken soon, and ten thousand streams
/// that wait cost one look a millisecond.
const RETRY: Duration = Duration::from_secs(10);

/// That there is no room for the class of some of a stream's types.
#[derive(Debug)]
pub(super) struct Refusal {
    status: Status,
    since: Time,
    retry_at: Time,
}

impl Refusal {
    pub fn new(status: Status, now: Time) -> Refusal {
        Refusal { status, since: now, retry_at: now + RETRY.mul_f64(0.5 + fastrand::f64()) }
    }
}

impl StreamState {
    /// Whose the classes are that this stream uses.
    pub(super) fn holder(&self) -> Holder {
        Holder { origin: Origin::of(self.peer.address), connection: self.peer.connection.number() }
    }

    /// Looks for room when it is time to, and ends a stream that nothing can be served on. Gives when to look again.
    pub(super) fn follow_refusal(&self, inner: &mut Inner, now: Time) -> Option<Time> {
        let refusal = inner.refusal.as_mut()?;
        let is_refused = |source: SourceId| {
            let handle = inner.sources.iter().find(|(id, _)| *id == source);
            handle.is_some_and(|(_, handle)| handle.key().place == Place::REFUSED)
        };
        let parts = || inner.session.subscriptions().iter().flat_map(|subscription| &subscription.parts);
        let Some(refused) = parts().map(|part| part.source()).find(|source| is_refused(*source)) else {
            // There was room, or the client wants it no longer.
            inner.refusal = None;
            return None;
        };
        if refusal.retry_at <= now {
            refusal.retry_at = now + RETRY;
            if let Some(held) = self.hold_open() {
                held.state().clone().look_for_room(refused);
            }
        }
        let retry_at = refusal.retry_at;
        if parts().any(|part| !is_refused(part.source())) {
            return Some(retry_at);
        }
        let end_at = refusal.since + GRACE;
        if end_at <= now {
            let status = refusal.status.clone();
            inner.end.get_or_insert_with(|| Box::new(status));
        }
        Some(end_at.min(retry_at).max(now))
    }

    /// Asks anew for a place for what this source serves.
    pub(super) fn look_for_room(self: Arc<Self>, source: SourceId) {
        // Held until its sources know: one that a stream enters after its farewell would be kept by it for ever.
        let Some(held) = self.hold_open() else { return };
        tokio::spawn(async move {
            let _held = held;
            let _telling = self.tell_in_order().await;
            let left = {
                let inner = &mut *lock(&self.inner);
                let mut routes = Routes {
                    stream: &self,
                    node: inner.node.as_deref(),
                    sources: &mut inner.sources,
                    refusal: Some(&mut inner.refusal),
                };
                inner.session.leave(source, &mut routes)
            };
            match left {
                Ok(watches) => self.tell(watches).await,
                Err(status) => self.end(status),
            }
            self.wake();
        });
    }
}
