//! The reachability of a server.

use super::Time;
use crate::xds::Status;

/// The reachability of a server (CLI-1), as seen by one stream or one source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// The server has no request yet, or the first attempt is still running.
    #[default]
    Pending,
    /// The server was heard after the last loss.
    Heard { since: Time },
    /// No connection, or a stream that ended before its first response, and no answer since.
    Lost { since: Time, status: Status },
}

impl Reach {
    pub fn is_lost(&self) -> bool {
        matches!(self, Reach::Lost { .. })
    }

    pub fn is_heard(&self) -> bool {
        matches!(self, Reach::Heard { .. })
    }

    /// The time of the change to heard or lost.
    pub fn since(&self) -> Option<Time> {
        match self {
            Reach::Pending => None,
            Reach::Heard { since } | Reach::Lost { since, .. } => Some(*since),
        }
    }

    /// Records a failure. A first failure after the server was heard sets the time of the loss.
    pub fn lose(&mut self, status: Status, now: Time) {
        let since = match self {
            Reach::Lost { since, .. } => *since,
            Reach::Pending | Reach::Heard { .. } => now,
        };
        *self = Reach::Lost { since, status };
    }

    pub fn hear(&mut self, now: Time) {
        if !self.is_heard() {
            *self = Reach::Heard { since: now };
        }
    }
}
