//! Marks: how one sluice tells another that an answer is complete (ADR 14).
//!
//! The protocol has no sign for the last of several responses (DEL-26), and a delta server may send partial
//! answers. A relay below such a server must serve complete sets, and would have to guess. Two sluices that
//! both support marks therefore use them on delta streams. No other peer ever sees a mark.

use super::ResourceName;

/// The header that negotiates marks. In a request: the client reads marks. In the response: the server sets
/// marks on the stream.
pub const HEADER: &str = "sluice-set-marks";

/// The only value of [`HEADER`]. A peer ignores other values, so a later kind of mark can use another value.
pub const HEADER_VALUE: &str = "1";

/// The maximum number of globs in one mark. The next mark names the rest, so that no mark grows as large as a
/// response.
pub const GLOBS_MAX: usize = 1000;

/// The state of a delta server's answers for one type on one stream. Sent beside a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetMark {
    /// The number of requests of the type that the server had read on the stream. The mark covers exactly
    /// these requests.
    pub requests: u64,
    /// All answers are complete: the server has sent each wildcard and glob as a whole, and knows each name
    /// as present or absent.
    pub whole: bool,
    /// Globs with all members sent, while other collections may still be incomplete.
    pub globs: Vec<ResourceName>,
}
