//! Marks: how a sluice tells another one that an answer is whole (ADR 14).
//!
//! The protocol has no sign for the last of several responses (DEL-26), and a delta server may say what it has so far. A relay
//! below that has to serve complete sets would guess. So two sluices that both know of marks use them on delta streams, and
//! nobody else ever sees one.

use super::ResourceName;

/// In the headers of a request: the client reads marks. In the headers of its response: the server sets them on this stream.
pub const HEADER: &str = "sluice-set-marks";

/// The one value of the header. Another one is ignored, so that marks of another meaning can have another value.
pub const HEADER_VALUE: &str = "1";

/// The globs that one mark names at the most. The next mark names the rest, so that no mark weighs as much as a response.
pub const GLOBS_MAX: usize = 1000;

/// What a delta server says, beside a response, of the answers to one type on one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetMark {
    /// How many requests of the type it had read on the stream: it speaks of what these ask for.
    pub requests: u64,
    /// It has told all that is asked for: each wildcard and glob is known to it as a whole, and each name as present or absent.
    pub whole: bool,
    /// Globs of which it has told all members, though it may not be done with the others.
    pub globs: Vec<ResourceName>,
}
