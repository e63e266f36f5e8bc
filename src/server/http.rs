//! The two protocols of HTTP, as a connection serves them.

use std::pin::Pin;
use std::task::{Context, Poll};

use crate::telemetry::Limit;
use crate::telemetry::metrics::DownstreamMetrics;

/// A connection of either protocol.
pub(super) trait HttpConnection {
    /// Whether a request on its way is answered after [`HttpConnection::shut_down`]. Otherwise only a
    /// response can announce the end of the connection.
    const ANSWERS_LATE: bool;

    /// Serves until the end of the connection.
    fn poll_end(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), ConnectionFault>>;

    /// Refuses new requests: by GOAWAY, or by the end of keep-alive. A second call has no effect.
    fn shut_down(self: Pin<&mut Self>);
}

/// The reason for the end of a connection, other than a normal close by the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionFault {
    /// No request came for a long time.
    Idle,
    /// The peer did not read its response (HTTP/1.1).
    SlowReader,
    /// The peer gave no sign of life.
    KeepaliveTimeout,
    /// The peer sent too many control frames.
    ControlFlood,
    /// The peer passed a limit of HTTP/2 itself, and was told so by a GOAWAY.
    Abuse,
    Other,
}

impl From<h2::Error> for ConnectionFault {
    fn from(error: h2::Error) -> Self {
        tracing::debug!(%error, "connection ended");
        let is_abuse = error.is_library() && error.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM);
        if is_abuse { ConnectionFault::Abuse } else { ConnectionFault::Other }
    }
}

impl ConnectionFault {
    /// Whether the relay ends the connection, because the peer passed a limit.
    pub(super) fn is_limit(&self) -> bool {
        matches!(self, ConnectionFault::SlowReader | ConnectionFault::ControlFlood | ConnectionFault::Abuse)
    }

    pub(super) fn count(self, metrics: &DownstreamMetrics) {
        let (ended, limit) = match self {
            ConnectionFault::Idle => (&metrics.closed_idle, None),
            ConnectionFault::KeepaliveTimeout => (&metrics.closed_keepalive, Some(Limit::KeepaliveTimeout)),
            ConnectionFault::ControlFlood => (&metrics.closed_control_flood, Some(Limit::ControlFrames)),
            ConnectionFault::Abuse => (&metrics.goaways_abuse, Some(Limit::Http2Abuse)),
            ConnectionFault::SlowReader => (&metrics.closed_error, Some(Limit::Http1Write)),
            ConnectionFault::Other => (&metrics.closed_error, None),
        };
        ended.inc();
        if let Some(limit) = limit {
            metrics.limit_hit(limit);
        }
    }
}
