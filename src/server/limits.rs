//! Every limit of the server, with its cost.

use std::time::Duration;

use crate::trust::server::ChainLimits;
use sluice_setting::{Range, SOME, Setting, bytes, count, hours, minutes, ms, seconds, settings, time};
use sluice_wire::ReaderLimits;

const KIB: u32 = 1024;

/// Timeouts of single steps. Below 100 ms a busy host or a far client would exceed them.
const TIMEOUTS: Range = time(ms(100)..=hours(1));

/// The longest time of a shutdown, with all its streams (RLY-77). 10 s is below the 30 s after which
/// Kubernetes kills a process. `0s` ends at once.
pub const DRAIN: Setting<Duration> = Setting::new("drain", seconds(10), time(ms(0)..=hours(1)));

/// The time between SIGTERM and the drain, in which the relay is not ready and serves as before (HND-8). In
/// Kubernetes, a pod gets connections for some seconds after the signal. Elsewhere nobody needs the delay.
pub const DRAIN_DELAY: Setting<Duration> = Setting::new("drain_delay", ms(0), time(ms(0)..=hours(1)));

settings! {
    /// The limits on downstream peers.
    ///
    /// A limit acts only on the peer that exceeds the limit: a stream ends with a status, a connection with
    /// GOAWAY or a close. No limit makes one client wait for another.
    ///
    /// Each limit is read where it acts, also for open connections (ADR 21). Those that say so are read when
    /// a connection opens, because the transport or the account keeps them.
    #[derive(Clone, Debug, PartialEq)]
    pub struct ServerLimits {
        /// Connections over all listeners. A connection costs some 16 KB, and 4 KB more per stream. Above the
        /// limit, a new connection is accepted and closed at once, so that its client fails fast and tries
        /// elsewhere.
        connections: u64 = 20_000, SOME;
        /// Connections from one IP address; `None`: only `connections` applies. The limit costs a look-up per
        /// connection. Off by default, as clients behind one NAT share an address.
        connections_per_ip: Option<u64> = None, SOME;
        /// Connections of one identity that a certificate proves; `None`: no limit (SEC-9). Decided after the
        /// handshake, so that nobody can use up the places of another. Off by default, as a workload's
        /// replicas share an identity.
        connections_per_identity: Option<u64> = None, SOME;
        /// From the accepted connection to the complete HTTP/2 preface (FD17). Costs a timer for this time.
        preface_timeout: Duration = seconds(5), TIMEOUTS;
        /// From the accepted connection to the end of its TLS handshake (SEC-3). The wait for a turn does not
        /// count.
        tls_handshake_timeout: Duration = seconds(5), TIMEOUTS;
        /// Memory for TLS handshakes that wait for their clients, in handshakes of the largest size, 36 KiB:
        /// for 1,400 usual ones, or for 10,000 clients that have not sent their ClientHello yet. Above the
        /// limit the oldest ends, so that silent peers cannot keep others out (SEC-1).
        tls_handshakes: u64 = 640, count(16..=1_000_000);
        /// TLS handshakes a second that the relay computes, over all listeners. Each takes 0.3 to 0.5 ms of a
        /// core, so this is a bound for hosts with more than two cores; smaller hosts may lower the number
        /// (SEC-2).
        tls_handshakes_per_second: u32 = 4000, count(1..=1_000_000);
        /// From the preface to the first stream of a connection, and from the headers of a stream to its
        /// first request (FD14).
        first_request_timeout: Duration = seconds(15), TIMEOUTS;
        /// From the first byte of a request on a stream to its last. The received bytes are kept until then.
        request_timeout: Duration = seconds(30), TIMEOUTS;
        /// Memory of the relay that one connection may use alone: incomplete requests, names, polled
        /// documents. Also the number of unread bytes above which its streams get nothing more. Read when a
        /// connection opens.
        connection_bytes: u64 = 128 << 20, bytes(1 << 20..=1 << 40);
        /// Requests that are not whole yet, over all connections: a hundred connections with half a request
        /// of `request_bytes` are within their own limits. Above it the heaviest end, those with the most
        /// bytes for the longest time. At most a quarter of `memory_bytes`.
        unfinished_bytes: u64 = 256 << 20, bytes(1 << 20..=1 << 40);
        /// `SETTINGS_MAX_CONCURRENT_STREAMS`. Protects only together with `local_error_reset_streams`: with
        /// either limit alone, a single connection can use gigabytes. A process of gRPC's C-core has a stream
        /// for each target, all on one connection, and lets further ones wait without a word (ADR 66). Each
        /// stream costs 8 KiB of `connection_bytes`. Read when a connection opens.
        streams_per_connection: u32 = 1_200, count(1..=1_000_000);
        /// Streams of one connection that the peer resets unseen by the relay, before a GOAWAY
        /// (CVE-2023-44487). Read when a connection opens.
        pending_reset_streams: usize = 20, count(1..=10_000);
        /// Streams of one connection that the relay resets for errors of the peer before a GOAWAY
        /// (RUSTSEC-2024-0003, CVE-2025-8671). Read when a connection opens.
        local_error_reset_streams: usize = 64, count(1..=10_000);
        /// Decoded size of the headers of a request. Bounds the memory of open streams before their first
        /// byte of data. Read when a connection opens.
        header_list_bytes: u32 = 8 * KIB, bytes(1 << 10..=1 << 20);
        /// Silence of the peer before a PING (KAL-1). A PING costs 13 µs.
        keepalive_interval: Duration = seconds(30), time(seconds(1)..=hours(24));
        /// Time for the peer to answer the PING.
        keepalive_timeout: Duration = seconds(10), TIMEOUTS;
        /// Age at which a connection is asked to close (KAL-4), so that clients spread over replicas again.
        /// Costs the client one reconnect. `None`: no limit. Drawn when a connection opens.
        connection_age: Option<Duration> = Some(minutes(30)), time(seconds(1)..=hours(24 * 30));
        /// From GOAWAY to the cut. The streams of the connection end at random moments of this time.
        connection_age_grace: Duration = seconds(60), time(ms(0)..=hours(1));
    }
    fixed {
        /// File descriptors left for 128 connections of the admin listener, upstreams and disk. Connections
        /// are refused above the soft `RLIMIT_NOFILE` minus this number (FD21).
        fd_reserve: u64 = 256;
        /// The time in which a client of HTTP/1.1 has to read [`HTTP1_PROGRESS_BYTES`](super::transport) of a
        /// response. HTTP/2 has PINGs instead.
        http1_write_timeout: Duration = seconds(30);
        /// From the end of one request on an HTTP/1.1 connection to the end of the next headers. Bounds the
        /// pause of a REST client between two polls, and the time for headers that arrive byte by byte
        /// (FD14).
        http1_idle_timeout: Duration = seconds(90);
        /// Receive window of a connection: bytes that a peer may send while its readers are blocked. h2
        /// allows half of the window for small unread DATA frames, so less than 1 MiB would close the
        /// connections of well-behaved clients that ACK a lot.
        connection_window_bytes: u32 = 1024 * KIB;
        /// Receive window of one stream: the largest part of a request in flight and unread. The window of
        /// the connection bounds the sum over its streams, so a smaller window would save nothing. But the
        /// relay would have to open a smaller window again, with a write, after every other request of an
        /// Envoy that repeats its 61 KB in each.
        stream_window_bytes: u32 = 1024 * KIB;
        /// Bytes of one stream in the HTTP/2 queue above which no further message is built. Small, so that a
        /// slow client gets the newest state (FLW-2).
        send_queue_bytes: usize = 8 * 1024;
        /// Useless frames of one connection per second, as `meter` counts them; the connection closes above
        /// the limit. A frame costs 0.1 to 0.3 µs, so the limit allows a few thousandths of a core.
        control_frames_per_second_max: u32 = 10_000;
        /// Percentage by which the age of each connection varies at random, in both directions.
        connection_age_jitter_percent: u8 = 20;
        /// The part of [`DRAIN`] for connections, from GOAWAY to the cut (FP1, RLY-77).
        drain_window: Duration = DRAIN.default;
        /// The limits on the certificates of clients.
        client_chain: ChainLimits = ChainLimits::default();
        /// The limits on one request.
        requests: ReaderLimits = ReaderLimits::default();
    }
}

impl ServerLimits {
    /// The age at which one connection closes; `None` if connections have no maximum age. `random` is from 0
    /// to 1.
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
