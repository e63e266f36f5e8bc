//! A second stream replaces the open stream, because the node for new streams has changed.
//!
//! Make before break (RLY-48, FU10): the current stream stays until the second stream is open. The second
//! stream restates everything, as after a reconnect (DEL-35, STR-10): held resources stay held, and the
//! server has to send only the differences. Current types stay current, so that no session looks for another
//! server.

use crate::engine::Time;

/// The state of the stream that is to replace the open stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Next {
    #[default]
    Unwanted,
    Opening {
        failures: u32,
    },
    /// The stream could not be opened, `failures` times.
    Failed {
        failures: u32,
        retry_at: Time,
    },
}

impl Next {
    /// The time of the next attempt.
    pub(super) fn due(&self) -> Option<Time> {
        match self {
            Next::Failed { retry_at, .. } => Some(*retry_at),
            Next::Unwanted | Next::Opening { .. } => None,
        }
    }
}
