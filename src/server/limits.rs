//! Every limit of the server, with its cost.

use std::time::Duration;

use crate::wire::ReaderLimits;

const KIB: u32 = 1024;

/// The limits on downstream peers. Units are in the names, defaults in `Default`.
///
/// A limit acts only on the peer that exceeds the limit: a stream ends with a status, a connection with GOAWAY or a
/// close. No limit makes one client wait for another.
#[derive(Clone, Debug)]
pub struct ServerLimits {
    /// Connections over all listeners. A connection costs some 16 KB, and 4 KB more per stream. Above the limit, a new
    /// connection is accepted and closed at once, so that its client fails fast and tries elsewhere.
    pub connections_max: u64,
    /// Connections from one IP address; `None`: only `connections_max` applies. The limit costs a look-up per
    /// connection.
    pub connections_per_ip_max: Option<u64>,
    /// File descriptors left for 128 connections of the admin listener, upstreams and disk. Connections are refused
    /// above the soft `RLIMIT_NOFILE` minus this number (FD21).
    pub fd_reserve: u64,
    /// From the accepted connection to the complete HTTP/2 preface (FD17). Costs a timer for this time.
    pub preface_timeout: Duration,
    /// From the preface to the first stream of a connection, and from the headers of a stream to its first request
    /// (FD14).
    pub first_request_timeout: Duration,
    /// From the first byte of a request on a stream to its last. The received bytes are kept until then.
    pub request_timeout: Duration,
    /// Memory of the relay that one connection may use alone: incomplete requests, names, polled documents. Also the
    /// number of unread bytes above which its streams get nothing more.
    pub connection_bytes: u64,
    /// The time in which a client of HTTP/1.1 has to read [`HTTP1_PROGRESS_BYTES`](super::transport) of a response.
    /// HTTP/2 has PINGs instead.
    pub http1_write_timeout: Duration,
    /// From the end of one request on an HTTP/1.1 connection to the end of the next headers. Bounds the pause of a REST
    /// client between two polls, and the time for headers that arrive byte by byte (FD14).
    pub http1_idle_timeout: Duration,
    /// `SETTINGS_MAX_CONCURRENT_STREAMS`. Protects only together with `local_error_resets_max`: with either limit
    /// alone, a single connection can use gigabytes.
    pub streams_per_connection_max: u32,
    /// Streams of one connection that the relay resets for errors of the peer before a GOAWAY (RUSTSEC-2024-0003,
    /// CVE-2025-8671).
    pub local_error_resets_max: usize,
    /// Streams of one connection that the peer resets unseen by the relay, before a GOAWAY (CVE-2023-44487).
    pub pending_accept_resets_max: usize,
    /// Decoded size of the headers of a request. Bounds the memory of open streams before their first byte of data.
    pub header_list_bytes_max: u32,
    /// Receive window of a connection: bytes that a peer may send while its readers are blocked. h2 allows half of the
    /// window for small unread DATA frames, so less than 1 MiB would close the connections of well-behaved clients that
    /// ACK a lot.
    pub connection_window_bytes: u32,
    /// Receive window of one stream: the largest part of a request in flight and unread. The window of the connection
    /// bounds the sum over its streams, so a smaller window would save nothing. But the relay would have to open a
    /// smaller window again, with a write, after every other request of an Envoy that repeats its 61 KB in each.
    pub stream_window_bytes: u32,
    /// Bytes of one stream in the HTTP/2 queue above which no further message is built. Small, so that a slow client
    /// gets the newest state (FLW-2).
    pub send_queue_bytes: usize,
    /// Useless frames of one connection per second, as `meter` counts them; the connection closes above the limit. A
    /// frame costs 0.1 to 0.3 µs, so the limit allows a few thousandths of a core.
    pub control_frames_per_second_max: u32,
    /// Silence of the peer before a PING (KAL-1). A PING costs 13 µs.
    pub keepalive_interval: Duration,
    /// Time for the peer to answer the PING.
    pub keepalive_timeout: Duration,
    /// Age at which a connection is asked to close (KAL-4), so that clients spread over replicas again. Costs the
    /// client one reconnect. `None`: no limit.
    pub connection_age: Option<Duration>,
    /// Percentage by which the age of each connection varies at random, in both directions.
    pub connection_age_jitter_percent: u8,
    /// From GOAWAY to the cut. The streams of the connection end at random moments of this time.
    pub connection_age_grace: Duration,
    /// The same at shutdown, for all connections (FP1, RLY-77).
    pub drain_window: Duration,
    /// The limits on one request.
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
    /// The age at which one connection closes; `None` if connections have no maximum age. `random` is from 0 to 1.
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
