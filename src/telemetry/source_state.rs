//! How a source stands with its server, for the metrics and the admin listener.

use std::time::Duration;

/// Where a source stands with its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceState {
    Connecting,
    /// A stream is open, or the file or poll was read.
    Connected,
    /// Waiting for the next attempt.
    Backoff {
        /// Attempts that failed in a row.
        failures: u32,
        /// How long this wait is in all, counted from `since`.
        delay: Duration,
    },
    /// A stream is open and something was asked for a while, and no response ever came.
    Unanswered,
    /// The server can be connected to, and ends each stream: before it answers, or soon after it, over and
    /// over. Until it is heard.
    EndsStreams {
        /// Streams that it ended in a row.
        failures: u32,
        /// How long the wait for the next stream is in all.
        delay: Duration,
        /// How long the last stream lived.
        lived: Duration,
    },
}

impl SourceState {
    pub const NAMES: [&'static str; 5] = ["connecting", "connected", "backoff", "unanswered", "ends_streams"];

    /// The position in [`SourceState::NAMES`].
    pub fn index(self) -> usize {
        match self {
            SourceState::Connecting => 0,
            SourceState::Connected => 1,
            SourceState::Backoff { .. } => 2,
            SourceState::Unanswered => 3,
            SourceState::EndsStreams { .. } => 4,
        }
    }

    /// Whether a stream is open, or the file or poll was read.
    pub fn is_attached(self) -> bool {
        matches!(self, SourceState::Connected | SourceState::Unanswered)
    }

    pub fn name(self) -> &'static str {
        SourceState::NAMES[self.index()]
    }
}
