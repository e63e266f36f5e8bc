//! Timeouts and limits of the upstream side.

use std::time::Duration;

use crate::trust::client::HANDSHAKE_TIMEOUT;
use sluice_setting::{Backoff, Range, bytes, count, hours, minutes, ms, seconds, settings, time};

/// Timeouts of single steps. Longer ones would delay the attempt at another server.
const TIMEOUTS: Range = time(ms(100)..=seconds(300));

/// Times of TCP keepalive; the kernel counts whole seconds.
const KEEPALIVE: Range = time(seconds(1)..=hours(2));

/// How long a connection to a reserve server stays open without streams. The connection closes within a
/// second after the last client returned to a preferred server (RLY-60, I9), and survives the pause between
/// two streams.
pub const RESERVE_IDLE_TIMEOUT: Duration = ms(500);

settings! {
    /// The timeouts and limits of one server. The defaults are sluice's own. Each is read where it acts, also
    /// for open connections (ADR 21), except for those that a socket or stream keeps.
    #[derive(Clone, Debug, PartialEq)]
    pub struct ClientSettings {
        /// For name resolution, and for the TCP handshake with one address: 3 s each (FU2, FU6).
        connect_timeout: Duration = seconds(3), TIMEOUTS;
        /// From the TCP connection to the server's SETTINGS, which make the connection ready: 5 s (FU6,
        /// RLY-29).
        settings_timeout: Duration = seconds(5), TIMEOUTS;
        /// How long a stream may wait to send its request headers: 5 s.
        stream_open_timeout: Duration = seconds(5), TIMEOUTS;
        /// Streams on one connection: 30, or fewer if the server's SETTINGS demand it. Further streams get
        /// another connection.
        streams_per_connection: usize = 30, count(1..=1_000_000);
        /// The period of HTTP/2 PINGs while streams are open: 5 min, the shortest that unconfigured grpc-go
        /// servers permit (KAL-2). Doubled for the server when it says
        /// `too_many_pings` to such a PING (FU32).
        ping_interval: Duration = minutes(5), time(seconds(10)..=hours(24));
        /// REST: the time for the head of a response, and for each further part: 10 s.
        request_timeout: Duration = seconds(10), TIMEOUTS;
        /// The longest request message: 64 KiB less than the 4 MiB that gRPC servers accept by default.
        /// Longer delta requests are split (ADR 53). Read when a request is made.
        max_request_bytes: usize = (4 << 20) - (64 << 10), bytes(64 << 10..=1 << 30);
        /// The longest response message: 256 MiB (FU17). gRPC frames have at most 4 GiB. Read when a message
        /// begins.
        max_response_bytes: usize = 256 << 20, bytes(1 << 20..=4 << 30);
    }
    fixed {
        /// From the TCP connection to the end of the TLS handshake; then `settings_timeout` begins (TLS-7).
        handshake_timeout: Duration = HANDSHAKE_TIMEOUT.default;
        /// How half-open connections are noticed. Set on a socket when the connection opens.
        tcp_keepalive: TcpKeepalive = TcpKeepalive::default();
        /// The delay between failed attempts to connect.
        backoff: Backoff = Backoff::default();
        /// The delay before the next address of a name is tried in parallel: 250 ms (RFC 8305 section 8).
        address_stagger: Duration = ms(250);
        /// A PING or probe without an answer for 10 s ends the connection (RLY-29).
        ping_timeout: Duration = seconds(10);
        /// A connection without streams is closed after 10 s.
        idle_timeout: Duration = seconds(10);
        /// The receive window of one stream: 16 MiB.
        stream_window: u32 = 16 << 20;
        /// The receive window of one connection: 64 MiB, so that a stream with a waiting reader does not
        /// block its neighbours. Also sets the HTTP/2 library's budget for small DATA frames.
        connection_window: u32 = 64 << 20;
        /// Bytes queued for one stream while the server does not read: 64 MiB. Fits the first requests of
        /// several types with 100k names each (FU30). A message for an empty queue may be longer.
        queue_bytes_max: usize = 64 << 20;
        /// Messages queued for one stream: 1024.
        queue_messages_max: usize = 1024;
    }
}

settings! {
    /// TCP keepalive towards a server: a half-open connection must be noticed within seconds (FU3).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct TcpKeepalive {
        /// Silence before the first probe.
        time: Duration = seconds(5), KEEPALIVE;
        /// Between probes.
        interval: Duration = seconds(3), KEEPALIVE;
        /// Unanswered probes that end the connection.
        probes: u32 = 3, count(1..=100);
        /// How long sent data may stay unacknowledged (`TCP_USER_TIMEOUT`): 12 s, about as long as keepalive
        /// takes.
        user_timeout: Duration = seconds(12), KEEPALIVE;
    }
}

/// The delay after a failure with `failures` others before: ×1.6 each, up to a cap, with ±20 % of jitter
/// (CLI-4). `jitter` is from 0 to 1.
pub fn backoff(settings: &Backoff, failures: u32, jitter: f64) -> Duration {
    // Beyond this exponent, the delay has reached the cap.
    let factor = 1.6_f64.powi(failures.min(64) as i32);
    let seconds = (settings.initial.as_secs_f64() * factor).min(settings.max.as_secs_f64());
    Duration::from_secs_f64(seconds * (0.8 + 0.4 * jitter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cli_4_the_backoff_grows_to_its_cap_within_its_jitter() {
        let delays = |jitter| {
            let settings = Backoff::default();
            [0, 1, 2, 7, 8, 1_000_000].map(|failures| backoff(&settings, failures, jitter).as_millis())
        };
        assert_eq!(delays(0.5), [1000, 1600, 2560, 26843, 30000, 30000]);
        assert_eq!(delays(0.0), [800, 1280, 2048, 21474, 24000, 24000]);
        assert_eq!(delays(1.0), [1200, 1920, 3072, 32212, 36000, 36000]);
    }
}
