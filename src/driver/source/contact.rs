//! The contact of a source with its server: the health of its streams, and the outage under way.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use crate::driver::api::status::SourceState;
use crate::driver::ground::clock::Clock;
use sluice_engine::Time;
use sluice_engine::last_word::Confirmed;
use sluice_engine::source::StreamIndex;
use sluice_engine::time::ReceivedAt;
use sluice_xds::{Status, TypeUrl};

pub struct Contact {
    pub health: Health,
    pub state: SourceState,
    pub since: Time,
    pub failures: u32,
    pub last_error: Option<Status>,
    /// The server has answered at least once.
    pub answered: bool,
    /// The server has left all requests unanswered for a while.
    pub is_mute: bool,
    /// Since when the server is unreachable (I14).
    pub stale_since: Option<Time>,
    /// The last confirmation of content from before a restart (RLY-7).
    pub restored: Option<SystemTime>,
    /// The kind of outage that was logged.
    pub warned: Option<OutageKind>,
    /// The type of the stream that was lost last, and whether the server was lost with the stream.
    pub lost_type: Option<(TypeUrl, bool)>,
    /// The types with a logged loss.
    pub warned_of: BTreeSet<TypeUrl>,
}

/// The kind of an outage. Each kind has a log line of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutageKind {
    Unreachable,
    EndsStreams,
    /// A response, or a file, cannot be read.
    Unreadable,
}

impl Contact {
    /// `is_whole`: the source has no server, and is complete.
    pub fn new(is_whole: bool, now: Time) -> Contact {
        Contact {
            health: Health::default(),
            state: if is_whole { SourceState::Connected } else { SourceState::Connecting },
            since: now,
            failures: 0,
            last_error: None,
            answered: is_whole,
            is_mute: false,
            stale_since: (!is_whole).then_some(now),
            restored: None,
            warned: None,
            lost_type: None,
            warned_of: BTreeSet::new(),
        }
    }

    /// Whether clients are served while the server is lost: it has answered before, or a checkpoint has its
    /// resources.
    pub fn has_content(&self) -> bool {
        self.answered || self.restored.is_some()
    }

    /// When the server itself last confirmed the content.
    pub fn confirmed(&self, clock: &Clock) -> Confirmed {
        let now = clock.now();
        let ago = self.restored.map(|since| clock.wall(now).duration_since(since).unwrap_or_default());
        match (ago, self.stale_since) {
            (Some(ago), _) => Confirmed::At(ReceivedAt::before(now, ago)),
            (None, None) => Confirmed::Now,
            (None, Some(since)) if self.answered => Confirmed::At(since.into()),
            (None, Some(_)) => Confirmed::Never,
        }
    }

    /// Whether no outage was logged. Notes the kind.
    pub fn is_first(&mut self, kind: OutageKind) -> bool {
        self.warned.replace(kind).is_none()
    }

    /// Whether a loss differs from the logged one: by its kind, or by the only type that is lost. Notes the
    /// loss.
    pub fn is_news(&mut self, kind: OutageKind, type_url: Option<&TypeUrl>) -> bool {
        let before = self.warned.replace(kind);
        let is_other_kind = matches!(
            (before, kind),
            (Some(OutageKind::Unreachable), OutageKind::EndsStreams)
                | (Some(OutageKind::EndsStreams), OutageKind::Unreachable)
        );
        let is_other_type = type_url.is_some_and(|type_url| self.warned_of.insert(type_url.clone()));
        before.is_none() || is_other_kind || is_other_type
    }

    /// The state of a source without any stream that is up.
    pub fn backoff(&self, stream: StreamIndex, delay: Duration) -> SourceState {
        let failures = self.failures;
        match (self.state, self.health.ended_by_server(stream)) {
            // The source is in this state already.
            (SourceState::EndsStreams { .. }, Some(lived)) => {
                SourceState::EndsStreams { failures, delay, lived }
            }
            _ => SourceState::Backoff { failures, delay },
        }
    }

    /// The time between two attempts.
    pub fn delay(&self) -> Duration {
        match self.state {
            SourceState::Backoff { delay, .. } | SourceState::EndsStreams { delay, .. } => delay,
            _ => Duration::ZERO,
        }
    }

    pub fn enter(&mut self, state: SourceState, now: Time) {
        if self.state.index() != state.index() {
            self.since = now;
        }
        self.state = state;
        if matches!(state, SourceState::Backoff { .. } | SourceState::EndsStreams { .. }) {
            self.stale_since.get_or_insert(now);
        }
    }
}

/// The health of the streams. If each type has a stream of its own, a single stream may fail.
///
/// A stream is up from its opening or its first answer until its end. A stream is lost from a failure that
/// makes the server unreachable until the next answer.
#[derive(Debug, Default)]
pub struct Health {
    up: BTreeSet<StreamIndex>,
    lost: BTreeSet<StreamIndex>,
    /// The last opening of each stream.
    opened: BTreeMap<StreamIndex, Time>,
    /// The stream that the server ended with a status, and the stream's age at that time.
    ended: Option<(StreamIndex, Duration)>,
}

impl Health {
    pub fn connected(&mut self, stream: StreamIndex, now: Time) {
        self.up.insert(stream);
        self.opened.insert(stream, now);
    }

    /// Records a report about a stream. `is_ended_by_server`: the server ended the stream with a status, on a
    /// connection that goes on. The engine decides next whether such an end is a failure.
    pub fn reported(&mut self, stream: StreamIndex, is_ended_by_server: bool, now: Time) {
        let lived = self.opened.get(&stream).map_or(Duration::ZERO, |opened| now.since(*opened));
        self.ended = is_ended_by_server.then_some((stream, lived));
    }

    /// The age of the stream at its end, if the server has just ended it.
    pub fn ended_by_server(&self, stream: StreamIndex) -> Option<Duration> {
        self.ended.filter(|(ended, _)| *ended == stream).map(|(_, lived)| lived)
    }

    pub fn answered(&mut self, stream: StreamIndex) {
        self.up.insert(stream);
        self.lost.remove(&stream);
    }

    pub fn ended(&mut self, stream: StreamIndex) {
        self.up.remove(&stream);
    }

    pub fn unreachable(&mut self, stream: StreamIndex) {
        self.up.remove(&stream);
        self.lost.insert(stream);
    }

    /// The stream has no subscriptions any more, or is renewed.
    pub fn closed(&mut self, stream: StreamIndex) {
        self.up.remove(&stream);
        self.lost.remove(&stream);
        self.opened.remove(&stream);
    }

    pub fn is_lost(&self, stream: StreamIndex) -> bool {
        self.lost.contains(&stream)
    }

    pub fn is_any_up(&self) -> bool {
        !self.up.is_empty()
    }

    pub fn is_any_lost(&self) -> bool {
        !self.lost.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i14_one_stream_that_fails_makes_a_source_stale_and_not_disconnected() {
        let mut health = Health::default();
        health.connected(0, Time::ZERO);
        health.answered(0);
        health.unreachable(1);
        assert_eq!((health.is_any_up(), health.is_any_lost()), (true, true));
        health.answered(0);
        assert!(health.is_any_lost(), "an answer counts for its own stream");
        health.ended(0);
        assert!(!health.is_any_up());
        health.closed(1);
        assert!(!health.is_any_lost(), "a closed stream is not lost");
    }

    #[test]
    fn a_loss_is_news_by_its_kind_and_by_its_type() {
        let (mut contact, type_url) = (Contact::new(false, Time::ZERO), TypeUrl::of_message("t"));
        assert!(contact.is_news(OutageKind::Unreachable, None));
        assert!(!contact.is_news(OutageKind::Unreachable, None));
        assert!(contact.is_news(OutageKind::EndsStreams, None));
        assert!(contact.is_news(OutageKind::EndsStreams, Some(&type_url)));
        assert!(!contact.is_news(OutageKind::EndsStreams, Some(&type_url)));
        assert!(!contact.is_news(OutageKind::Unreadable, None), "the outage goes on");
        assert!(!contact.is_first(OutageKind::Unreadable));
    }

    #[test]
    fn only_the_end_of_this_stream_counts_and_only_the_last_report() {
        let (mut health, opened) = (Health::default(), Time::ZERO);
        health.connected(2, opened);
        health.reported(2, true, opened + Duration::from_millis(12));
        assert_eq!(health.ended_by_server(2), Some(Duration::from_millis(12)));
        assert_eq!(health.ended_by_server(1), None);
        health.reported(2, false, opened + Duration::from_millis(20));
        assert_eq!(health.ended_by_server(2), None, "a connect that fails next is another failure");
    }
}
