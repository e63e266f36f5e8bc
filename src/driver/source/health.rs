//! The health of a source's streams. If each type has a stream of its own, a single stream may fail.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sluice_engine::Time;
use sluice_engine::source::StreamIndex;

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
