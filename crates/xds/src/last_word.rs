//! The last word of a relay's servers (ADR 101).
//!
//! A relay below another relay sees that the relay above lives, and not whether the servers of that relay do.
//! So a relay tells the relays below it the age of the last word of its own servers, once in a while, in a
//! message of its own on each stream. No other peer ever sees such a message.

use std::time::Duration;

/// The header that negotiates last words. In a request: the client reads them. In the response: the server
/// tells them on the stream.
pub const HEADER: &str = "sluice-last-word";

/// The only value of [`HEADER`]. A peer ignores other values.
pub const HEADER_VALUE: &str = "1";

/// How long ago the servers of a relay confirmed what the relay serves on a stream; `None`: never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastWord(pub Option<Duration>);
