//! Timeouts and limits of the upstream side.

use std::time::Duration;

/// The timeouts and limits of one server. The defaults are sluice's own.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// For name resolution, and for the TCP handshake with one address: 3 s each (FU2, FU6).
    pub connect_timeout: Duration,
    /// From the TCP connection to the server's SETTINGS, which make the connection ready: 5 s (FU6, RLY-29).
    pub settings_timeout: Duration,
    /// The delay before the next address of a name is tried in parallel: 250 ms (RFC 8305 section 8).
    pub address_stagger: Duration,
    /// The delay after the first failed attempt to connect: 1 s, ×1.6 per further failure (CLI-4, FU1).
    pub backoff_initial: Duration,
    /// The maximum of this delay, before its jitter of ±20 %: 30 s.
    pub backoff_max: Duration,
    /// Draws the jitter: a number from 0 to below 1.
    pub jitter: fn() -> f64,
    /// TCP keepalive begins after 5 s of silence (FU3).
    pub keepalive_idle: Duration,
    /// TCP keepalive probes are 3 s apart.
    pub keepalive_interval: Duration,
    /// Unanswered TCP keepalive probes that end the connection: 3.
    pub keepalive_retries: u32,
    /// How long sent data may stay unacknowledged (`TCP_USER_TIMEOUT`): 12 s.
    pub user_timeout: Duration,
    /// The period of HTTP/2 PINGs while streams are open: 5 min, the shortest that unconfigured grpc-go
    /// servers permit (KAL-2). Doubled for the server at each `too_many_pings` (FU32).
    pub ping_interval: Duration,
    /// A PING or probe without an answer for 10 s ends the connection (RLY-29).
    pub ping_timeout: Duration,
    /// How long a stream may wait to send its request headers: 5 s.
    pub open_timeout: Duration,
    /// A connection without streams is closed after 10 s.
    pub idle_timeout: Duration,
    /// Streams on one connection: 30, or fewer if the server's SETTINGS demand it. Further streams get
    /// another connection.
    pub streams_per_connection: usize,
    /// The receive window of one stream: 16 MiB.
    pub stream_window: u32,
    /// The receive window of one connection: 64 MiB, so that a stream with a waiting reader does not block
    /// its neighbours. Also sets the HTTP/2 library's budget for small DATA frames.
    pub connection_window: u32,
    /// REST: the time for the head of a response, and for each further part: 10 s.
    pub request_timeout: Duration,
    /// The longest response message: 256 MiB (FU17).
    pub message_bytes_max: usize,
    /// Bytes queued for one stream while the server does not read: 64 MiB. Fits the first requests of several
    /// types with 100k names each (FU30). A message for an empty queue may be longer.
    pub queue_bytes_max: usize,
    /// Messages queued for one stream: 1024.
    pub queue_messages_max: usize,
}

impl Default for ClientSettings {
    fn default() -> Self {
        ClientSettings {
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
