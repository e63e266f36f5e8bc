//! The events of a stream.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use sluice_xds::{LastWord, Response, SetMark, Status, TypeUrl};

/// The times of a response, or of a directory, on its way in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When the last byte was read; of a directory, when the relay began to read it.
    pub at: Instant,
    /// The time to decode; of a directory, with the time to read.
    pub decoding: Duration,
}

impl Arrival {
    /// A response with this last byte, or a directory, decoded by now.
    pub(super) fn decoded(at: Instant) -> Arrival {
        Arrival { at, decoding: at.elapsed() }
    }
}

/// An event of one upstream stream, in order.
///
/// ```text
/// ConnectFailed* ─► Opened ─► Marks? ─► (Response | Alive | Flushed | GoingAway | Undecodable)* ─► Closed
///        └──────────────────────────────────────────────────────────────────────► Closed
/// ```
///
/// From a relay, `TellsLastWords` follows `Marks`, and `LastWord` may stand between responses.
///
/// A poll is a stream, too: `Opened`, then at most one of `Response`, `Unchanged`, `Undecodable` and, without
/// a connection, `ConnectFailed`, then `Closed`, with the status OK after the first two, or `Ended` with the
/// server's refusal.
#[derive(Debug)]
pub enum StreamEvent {
    /// An attempt to connect failed; the stream continues to wait for a connection (CLI-7). If the server is
    /// known to be unreachable, a new stream gets the last failure at once.
    ConnectFailed(Status),
    /// The request stream is open, on a connection with the server's SETTINGS (TMR-2, RLY-29).
    Opened,
    /// The server marks complete answers on this stream.
    Marks,
    /// The server is a relay that tells the age of the last word of its own servers (ADR 101).
    TellsLastWords,
    LastWord(LastWord),
    /// In a box: a channel has room for many events, and nearly always has none.
    Response(Box<Response>, Arrival),
    /// A message of another service than discovery, in the place of a response.
    Message(Bytes),
    /// The mark of the preceding `Response`, with its type.
    Marked(TypeUrl, SetMark),
    /// The first bytes of a response have arrived, but not all. Reported once per response. `Response`
    /// follows, or the end.
    Receiving,
    /// The server answered 304 (RST-4).
    Unchanged,
    /// A message is undecodable or too long. The stream ends: `Closed` follows with the same status (FU11,
    /// FU17).
    Undecodable(Status),
    /// The answer to [`super::StreamHandle::probe`].
    Alive,
    /// The answer to [`super::StreamHandle::round_trip`].
    Returned,
    /// The answer to [`super::StreamHandle::flush`].
    Flushed,
    /// The server sent a GOAWAY on the connection. The stream stays open until there is another connection,
    /// or until the server ends the stream. A following `Closed` is no failure of the server, even without a
    /// response (KAL-5, FU10, FU32).
    GoingAway,
    /// The stream ended; no event follows. The status is the server's, or gRPC's status for this kind of end.
    Closed(Status),
    /// Like `Closed`, but the server itself sent the status, and the connection continues.
    Ended(Status),
}
