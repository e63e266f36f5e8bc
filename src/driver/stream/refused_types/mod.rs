//! The types of a stream whose class has no room (RLY-14). Only these types are not served.

use std::time::Duration;

use crate::driver::ground::servers::Place;
use crate::driver::stream::own_sources::OwnSources;
use sluice_engine::Time;
use sluice_engine::downstream::{Session, SourceId};
use sluice_xds::Status;

#[cfg(test)]
mod tests;

/// A stream without any served type ends after this time. Its client learns the reason, and may use its next
/// server. Until then, the client may ask for types whose class has room.
const GRACE: Duration = Duration::from_secs(1);

/// The time between two searches for room. A free place is found soon, and 10,000 waiting streams cause one
/// search per millisecond.
pub(crate) const RETRY: Duration = Duration::from_secs(10);

/// The types without room. Boxed: few streams have any.
#[derive(Debug, Default)]
pub(crate) struct RefusedTypes(Option<Box<RoomSearch>>);

#[derive(Debug)]
struct RoomSearch {
    status: Status,
    since: Time,
    retry_at: Time,
}

/// The next steps of a stream with refused types.
#[derive(Debug, Default)]
pub(crate) struct RefusedStep {
    /// The source of refused types, if a search for room is due.
    pub room_for: Option<SourceId>,
    /// The status with which the stream has to end.
    pub end: Option<Status>,
    /// When to look again.
    pub look_at: Option<Time>,
}

impl RefusedTypes {
    pub fn has_any(&self) -> bool {
        self.0.is_some()
    }

    /// Notes a refused type. The first reason stands.
    pub fn note(&mut self, status: Status, now: Time) {
        self.0.get_or_insert_with(|| {
            let retry_at = now + RETRY.mul_f64(0.5 + fastrand::f64());
            Box::new(RoomSearch { status, since: now, retry_at })
        });
    }

    /// Decides about the next search, and about the end of a stream without any served type.
    pub fn follow(&mut self, session: &Session, sources: &OwnSources, now: Time) -> RefusedStep {
        let Some(search) = self.0.as_mut() else { return RefusedStep::default() };
        let is_refused =
            |source: SourceId| sources.get(source).is_some_and(|handle| handle.key().place == Place::REFUSED);
        let parts = || session.subscriptions().iter().flat_map(|subscription| &subscription.parts);
        let Some(refused) = parts().map(|part| part.source()).find(|source| is_refused(*source)) else {
            // There was room, or the client has dropped the type.
            self.0 = None;
            return RefusedStep::default();
        };
        let mut step = RefusedStep::default();
        if search.retry_at <= now {
            search.retry_at = now + RETRY;
            step.room_for = Some(refused);
        }
        step.look_at = Some(search.retry_at);
        if parts().any(|part| !is_refused(part.source())) {
            return step;
        }
        let end_at = search.since + GRACE;
        if end_at <= now {
            step.end = Some(search.status.clone());
        }
        step.look_at = Some(end_at.min(search.retry_at).max(now));
        step
    }
}
