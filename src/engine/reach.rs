//! Whether a server can be heard.

use super::Time;
use crate::xds::Status;

/// What is known of a server's reachability (CLI-1), from the side of one stream or of one source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Nothing was asked of it, or the first attempt is still under way.
    #[default]
    Pending,
    /// It was heard since it was last lost.
    Heard { since: Time },
    /// No connection, or a stream that ended before its first response, and nothing heard since.
    Lost { since: Time, status: Status },
}

impl Reach {
    pub fn is_lost(&self) -> bool {
        matches!(self, Reach::Lost { .. })
    }

    pub fn is_heard(&self) -> bool {
        matches!(self, Reach::Heard { .. })
    }

    /// Since when it is heard, or lost.
    pub fn since(&self) -> Option<Time> {
        match self {
            Reach::Pending => None,
            Reach::Heard { since } | Reach::Lost { since, .. } => Some(*since),
        }
    }

    /// A first failure after it was heard, or a further one.
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
