//! Streams with types whose class has no room (RLY-14). Only these types are not served.

use std::sync::Arc;

use crate::driver::ground::registry::lock;
use crate::driver::ground::servers::Place;
use crate::driver::source::handle::Subscriber;
use crate::driver::stream::refusal::{GRACE, RETRY};
use crate::driver::stream::routes::Routes;
use crate::driver::stream::state::{Inner, StreamState};
use crate::engine::Time;
use crate::engine::downstream::SourceId;

#[cfg(test)]
mod tests;

impl StreamState {
    /// Searches for room when a search is due, and ends a stream without any served type. Returns when to look
    /// again.
    pub(crate) fn follow_refusal(&self, inner: &mut Inner, now: Time) -> Option<Time> {
        let refusal = inner.refusal.as_mut()?;
        let is_refused = |source: SourceId| {
            let handle = inner.sources.iter().find(|(id, _)| *id == source);
            handle.is_some_and(|(_, handle)| handle.key().place == Place::REFUSED)
        };
        let parts = || inner.session.subscriptions().iter().flat_map(|subscription| &subscription.parts);
        let Some(refused) = parts().map(|part| part.source()).find(|source| is_refused(*source)) else {
            // There was room, or the client has dropped the type.
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

    /// Asks again for a place for the types of this source.
    pub(crate) fn look_for_room(self: Arc<Self>, source: SourceId) {
        // Keeps the stream open until all sources are told. Otherwise nothing would remove a stream entering
        // a source after the end.
        let Some(held) = self.hold_open() else { return };
        tokio::spawn(async move {
            let _held = held;
            let _order = self.lock_watch_order().await;
            let left = {
                let inner = &mut *lock(&self.inner);
                let mut routes = Routes {
                    stream: &self,
                    settings: &inner.routing,
                    node: inner.node.as_deref(),
                    sources: &mut inner.sources,
                    refusal: Some(&mut inner.refusal),
                };
                let left = inner.session.leave(source, &mut routes);
                left.map(|watches| [watches, self.keep_moving(inner)].concat())
            };
            match left {
                Ok(watches) => self.send_watches(watches).await,
                Err(status) => self.end(status),
            }
            self.wake();
        });
    }
}
