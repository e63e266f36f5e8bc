//! Another stream in the place of the open one, because the node with which streams begin has changed.
//!
//! Make before break (RLY-48, FU10): the stream in use stays until the other one is open. That one restates everything, as
//! after a reconnect (DEL-35, STR-10): what is held stays held, and the server has to say only what differs. Nothing that was
//! current is less so by it, so that no session looks for another server.

use crate::engine::Time;

/// Where the stream stands that is to take the place of the open one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Next {
    #[default]
    Unwanted,
    Opening {
        failures: u32,
    },
    /// It could not be opened, so many times.
    Failed {
        failures: u32,
        retry_at: Time,
    },
}

impl Next {
    /// When to try again.
    pub(super) fn due(&self) -> Option<Time> {
        match self {
            Next::Failed { retry_at, .. } => Some(*retry_at),
            Next::Unwanted | Next::Opening { .. } => None,
        }
    }
}
