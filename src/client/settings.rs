//! What the upstream side may do, how long it waits, and what it holds at most.

use std::time::Duration;

/// The durations and limits of one server. The defaults are sluice's (`reliability.md` §3.1 and finding 7).
#[derive(Clone, Debug)]
pub struct Settings {
    /// Resolving a name, and TCP's handshake with one address: 3 s each (FU2, FU6).
    pub connect_timeout: Duration,
    /// A connection counts as ready only after the server's SETTINGS; they must come within 5 s (FU6, RLY-29).
    pub settings_timeout: Duration,
    /// The next address of a name is tried when the last one failed or after 250 ms (RFC 8305 section 8).
    pub address_stagger: Duration,
    /// Delay after the first failed attempt to connect: 1 s, ×1.6 per further failure (CLI-4, FU1).
    pub backoff_initial: Duration,
    /// Upper bound of that delay, before its jitter of ±20 %: 30 s.
    pub backoff_max: Duration,
    /// Draws the jitter: a number from 0 to below 1.
    pub jitter: fn() -> f64,
    /// TCP keepalive begins after 5 s of silence (FU3).
    pub keepalive_idle: Duration,
    /// TCP keepalive probes are 3 s apart.
    pub keepalive_interval: Duration,
    /// TCP keepalive probes without an answer that end the connection: 3.
    pub keepalive_retries: u32,
    /// Data may stay unacknowledged by the peer's kernel for 12 s (`TCP_USER_TIMEOUT`).
    pub user_timeout: Duration,
    /// Period of HTTP/2 PINGs while streams are open: 5 min, the shortest that stock grpc-go servers permit
    /// (KAL-2). Doubled for the server whenever it says `too_many_pings` (FU32).
    pub ping_interval: Duration,
    /// A PING or a probe that stays unanswered for 10 s ends the connection (RLY-29).
    pub ping_timeout: Duration,
    /// A stream whose request headers can't be sent within 5 s is an error.
    pub open_timeout: Duration,
    /// A connection without streams is closed after 10 s.
    pub idle_timeout: Duration,
    /// Streams on one connection: 30, or fewer if the server's SETTINGS say so; then a further connection.
    pub streams_per_connection: usize,
    /// Receive window of one stream: 16 MiB.
    pub stream_window: u32,
    /// Receive window of one connection: 64 MiB, so that one stream whose reader waits does not stop its
    /// neighbours. It also sets the HTTP/2 library's budget for small DATA frames.
    pub connection_window: u32,
    /// REST: the head of a response, and each further part of it, must come within 10 s.
    pub request_timeout: Duration,
    /// The longest response message: 256 MiB (FU17).
    pub message_bytes_max: usize,
    /// Bytes that may wait to be sent on one stream while the server does not read: 64 MiB, which holds the first
    /// requests of several types with 100k names each (FU30). A message that finds nothing waiting may be longer.
    pub queue_bytes_max: usize,
    /// Messages that may wait to be sent on one stream: 1024.
    pub queue_messages_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            connect_timeout: Duration::from_secs(3),
            settings_timeout: Duration::from_secs(5),
            address_stagger: Duration::from_millis(250),
            backoff_initial: Duration::from_secs(1),
            backoff_max: Duration::from_secs(30),
            jitter: fastrand::f64,
            keepalive_idle: Duration::from_secs(5),
            keepalive_interval: Duration::from_secs(3),
            keepalive_retries: 3,
            user_timeout: Duration::from_secs(12),
            ping_interval: Duration::from_secs(300),
            ping_timeout: Duration::from_secs(10),
            open_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(10),
            streams_per_connection: 30,
            stream_window: 16 << 20,
            connection_window: 64 << 20,
            request_timeout: Duration::from_secs(10),
            message_bytes_max: 256 << 20,
            queue_bytes_max: 64 << 20,
            queue_messages_max: 1024,
        }
    }
}
