//! What a stream reports.

use crate::xds::{Response, SetMark, Status, TypeUrl};

/// News of one upstream stream, in order.
///
/// ```text
/// ConnectFailed* ─► Opened ─► Marks? ─► (Response | Alive | GoingAway | Undecodable)* ─► Closed
///        └──────────────────────────────────────────────────────────────────────► Closed
/// ```
///
/// A poll is a stream, too: `Opened`, then at most one of `Response`, `Unchanged`, `Undecodable` and, where there was no
/// connection, `ConnectFailed`, then `Closed`, with the status OK after the first two, or `Ended` with the server's refusal.
#[derive(Debug)]
pub enum StreamEvent {
    /// An attempt to connect failed while the stream waits for a connection; it goes on waiting (CLI-7). A stream
    /// that begins to wait while the server is known to be unreachable hears of the last failure at once.
    ConnectFailed(Status),
    /// The request stream is established, on a connection whose SETTINGS arrived (TMR-2, RLY-29).
    Opened,
    /// The server marks on this stream what is whole.
    Marks,
    Response(Response),
    /// The mark of the `Response` before it, which is of this type.
    Marked(TypeUrl, SetMark),
    /// The first bytes of a response have come, and not all of it; told once for each. `Response` follows, or the end.
    Receiving,
    /// The server answered 304 (RST-4).
    Unchanged,
    /// A message could not be decoded, or is longer than the limit. The stream ends: `Closed` follows with the
    /// same status (FU11, FU17).
    Undecodable(Status),
    /// The answer to [`super::StreamHandle::probe`].
    Alive,
    /// The answer to [`super::StreamHandle::round_trip`].
    Returned,
    /// The server asked with a GOAWAY for its connection to be left. The stream lives on until there is another connection
    /// or its server ends it; `Closed` is then no failure of the server even if there was no response (KAL-5, FU10, FU32).
    GoingAway,
    /// The stream ended; nothing follows. The status is the server's, or what gRPC makes of the way it ended.
    Closed(Status),
    /// As `Closed`: the server ended the stream by a status that it sent, on a connection that goes on.
    Ended(Status),
}
