//! What the serving side counts. Plain atomics; the telemetry room gives them names and exports them.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn increment(&self) {
        self.add(1);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many there are now.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    pub(super) fn enter(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Enters if that leaves at most `max` inside.
    pub(super) fn try_enter(&self, max: u64) -> bool {
        let enter = |open: u64| (open < max).then_some(open + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enter).is_ok()
    }

    pub(super) fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The state and history of one server's connections and streams.
#[derive(Debug, Default)]
pub struct ServerMetrics {
    pub connections_open: Gauge,
    pub connections_accepted: Counter,
    /// Closed right after they were accepted: `connections_max`, or the reserve of file descriptors, was reached.
    pub connections_refused: Counter,
    /// `accept` failed for want of a resource (EMFILE, ENFILE, ENOBUFS, ENOMEM); the loop backed off.
    pub accept_failures: Counter,

    /// Closed: no complete preface in time (FD17).
    pub closed_preface_timeout: Counter,
    /// Closed: what came first was no HTTP/2 preface, or the peer left before it was complete.
    pub closed_not_http2: Counter,
    /// Closed: too many control frames (FD19).
    pub closed_control_flood: Counter,
    /// Closed: the peer broke HTTP/2, vanished, or didn't answer a PING.
    pub closed_error: Counter,
    /// Closed at the end of the window after GOAWAY, with streams still open.
    pub closed_cut: Counter,

    /// GOAWAY because of `connection_age` (KAL-4).
    pub goaways_age: Counter,
    /// GOAWAY because the server drains (RLY-77).
    pub goaways_drain: Counter,
    /// GOAWAY because the connection never opened a stream.
    pub goaways_idle: Counter,
    /// GOAWAY because the peer provoked resets or wasted frames (FD19).
    pub goaways_abuse: Counter,
    /// Times that a connection was old enough to go, but had a stream without any response yet (KAL-4).
    pub age_exemptions: Counter,

    /// xDS streams; the health service isn't counted.
    pub streams_open: Gauge,
    pub streams_opened_sotw: Counter,
    pub streams_opened_delta: Counter,
    /// Streams that ended because no request came in time (FD14).
    pub streams_without_request: Counter,
    /// Streams that ended because a request could not be read (FD16).
    pub streams_unreadable: Counter,
    /// Calls to paths that nobody serves.
    pub calls_unimplemented: Counter,

    /// Requests read, and their DATA bytes.
    pub requests: Counter,
    pub request_bytes: Counter,
    /// Messages handed to HTTP/2, and their bytes with gRPC framing.
    pub responses: Counter,
    pub response_bytes: Counter,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_lets_no_more_in_than_its_maximum() {
        let gauge = Gauge::default();
        assert!(gauge.try_enter(2) && gauge.try_enter(2) && !gauge.try_enter(2));
        gauge.leave();
        assert!(gauge.try_enter(2));
        assert_eq!(gauge.get(), 2);
    }
}
