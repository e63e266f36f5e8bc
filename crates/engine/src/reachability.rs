//! The reachability of a server.

use super::Time;
use sluice_xds::Status;

/// The reachability of a server (CLI-1), as seen by one stream or one source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reachability {
    /// The server has no request yet, or the first attempt is still running.
    #[default]
    Pending,
    /// The server was heard after the last loss.
    Heard { since: Time },
    /// No connection, or a stream that ended before its first response, and no answer since.
    Lost { since: Time, status: Status },
}

impl Reachability {
    pub fn is_lost(&self) -> bool {
        matches!(self, Reachability::Lost { .. })
    }

    pub fn is_heard(&self) -> bool {
        matches!(self, Reachability::Heard { .. })
    }

    /// The time of the change to heard or lost.
    pub fn since(&self) -> Option<Time> {
        match self {
            Reachability::Pending => None,
            Reachability::Heard { since } | Reachability::Lost { since, .. } => Some(*since),
        }
    }

    /// Records a failure. A first failure after the server was heard sets the time of the loss.
    pub fn lose(&mut self, status: Status, now: Time) {
        let since = match self {
            Reachability::Lost { since, .. } => *since,
            Reachability::Pending | Reachability::Heard { .. } => now,
        };
        *self = Reachability::Lost { since, status };
    }

    pub fn hear(&mut self, now: Time) {
        if !self.is_heard() {
            *self = Reachability::Heard { since: now };
        }
    }
}
