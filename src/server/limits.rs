//! Every limit of the serving side, with its price.

use std::time::Duration;

use crate::wire::ReaderLimits;

const KIB: u32 = 1024;

/// What downstream peers may cost. Units are in the names, defaults in `Default`.
///
/// A limit always acts on the one who passed it: a stream is ended with a status, a connection with GOAWAY or by
/// closing it. None of them makes one client wait for another.
#[derive(Clone, Debug)]
pub struct ServerLimits {
    /// Connections over all listeners. One costs some 16 KB, and 4 KB more per stream. Above it, a new connection
    /// is accepted and closed at once, so that its client fails fast and tries elsewhere.
    pub connections_max: u64,
    /// Connections from one IP address; `None`: as many as there are places. One costs a look-up in a table.
    pub connections_per_ip_max: Option<u64>,
    /// File descriptors left for 128 connections of the admin listener, upstreams and disk: connections are refused above the
    /// soft `RLIMIT_NOFILE` minus this (FD21).
    pub fd_reserve: u64,
    /// From the accepted connection to the complete HTTP/2 preface (FD17). Costs one timer while it runs.
    pub preface_timeout: Duration,
    /// From the preface to the connection's first stream, and from a stream's headers to its first request (FD14).
    pub first_request_timeout: Duration,
    /// From the first byte of a request on a stream to its last. What has come of it is kept until then.
    pub request_timeout: Duration,
    /// What one connection may make the relay keep that no other shares: requests that have not come as a whole, names,
    /// documents that were polled. Also what it may leave unread before its streams are sent more.
    pub connection_bytes: u64,
    /// How long a client of HTTP/1.1 may take [`HTTP1_PROGRESS_BYTES`](super::transport) of an answer. HTTP/2 has its PINGs.
    pub http1_write_timeout: Duration,
    /// From the end of one request on an HTTP/1.1 connection to the end of the next one's headers: how long a REST client
    /// may rest between two polls, and how long one that dribbles its headers is listened to (FD14).
    pub http1_idle_timeout: Duration,
    /// `SETTINGS_MAX_CONCURRENT_STREAMS`. Works only together with `local_error_resets_max`: either one alone lets a
    /// single connection take gigabytes.
    pub streams_per_connection_max: u32,
    /// Streams of one connection that this side had to reset for the peer's errors before it sends GOAWAY
    /// (RUSTSEC-2024-0003, CVE-2025-8671).
    pub local_error_resets_max: usize,
    /// Streams of one connection that the peer reset before they were looked at, before GOAWAY (CVE-2023-44487).
    pub pending_accept_resets_max: usize,
    /// Decoded size of a request's headers. Bounds what open streams hold before their first byte of data.
    pub header_list_bytes_max: u32,
    /// Receive window of a connection: what a peer may send while its readers are held up. h2 allows half of it
    /// for small unread DATA frames, so less than 1 MiB would kill well-behaved clients that ACK a lot.
    pub connection_window_bytes: u32,
    /// Receive window of one stream: the largest piece of a request that is in flight unread. The connection's window
    /// bounds what all of them hold, so that a smaller one would save nothing; but it would have to be opened again, with
    /// a write, after every other request of an Envoy that says its 61 KB in each.
    pub stream_window_bytes: u32,
    /// Bytes of one stream that may stand in the HTTP/2 queue before the next message is built. Small, so that a
    /// slow client gets the newest state (FLW-2).
    pub send_queue_bytes: usize,
    /// Frames of one connection per second that are no use to anybody, as `meter` counts them; above, it is closed. A frame
    /// costs 0.1 to 0.3 µs, so that this many are a few thousandths of a core.
    pub control_frames_per_second_max: u32,
    /// A PING this long after the peer was last heard (KAL-1). 13 µs each.
    pub keepalive_interval: Duration,
    /// How long the peer may take to answer it.
    pub keepalive_timeout: Duration,
    /// A connection this old is asked to go (KAL-4), so that clients spread over replicas again. Costs its client
    /// one reconnect. `None`: it may stay.
    pub connection_age: Option<Duration>,
    /// The age of each connection is drawn from ± this part of `connection_age`, in percent.
    pub connection_age_jitter_percent: u8,
    /// From GOAWAY to the cut. The streams of the connection are ended at random moments of it.
    pub connection_age_grace: Duration,
    /// The same at shutdown, for all connections (FP1, RLY-77).
    pub drain_window: Duration,
    /// What one request may be.
    pub requests: ReaderLimits,
}

impl Default for ServerLimits {
    fn default() -> Self {
        ServerLimits {
            connections_max: 20_000,
            connections_per_ip_max: None,
            fd_reserve: 256,
            preface_timeout: Duration::from_secs(5),
            first_request_timeout: Duration::from_secs(15),
            request_timeout: Duration::from_secs(30),
            connection_bytes: 64 << 20,
            http1_write_timeout: Duration::from_secs(30),
            http1_idle_timeout: Duration::from_secs(90),
            streams_per_connection_max: 100,
            local_error_resets_max: 64,
            pending_accept_resets_max: 20,
            header_list_bytes_max: 8 * KIB,
            connection_window_bytes: 1024 * KIB,
            stream_window_bytes: 1024 * KIB,
            send_queue_bytes: 8 * 1024,
            control_frames_per_second_max: 10_000,
            keepalive_interval: Duration::from_secs(30),
            keepalive_timeout: Duration::from_secs(10),
            connection_age: Some(Duration::from_secs(30 * 60)),
            connection_age_jitter_percent: 20,
            connection_age_grace: Duration::from_secs(60),
            drain_window: Duration::from_secs(10),
            requests: ReaderLimits::default(),
        }
    }
}

impl ServerLimits {
    /// The age at which one connection goes, if it ever must; `random` is from 0 to 1.
    pub(super) fn draw_connection_age(&self, random: f64) -> Option<Duration> {
        let jitter = f64::from(self.connection_age_jitter_percent.min(100)) / 100.0;
        Some(self.connection_age?.mul_f64(1.0 + jitter * (2.0 * random - 1.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kal_4_the_age_is_jittered_both_ways() {
        let limits = ServerLimits::default();
        for (random, minutes) in [(0.0, 24), (0.5, 30), (1.0, 36)] {
            assert_eq!(limits.draw_connection_age(random), Some(Duration::from_secs(minutes * 60)));
        }
    }
}
