//! The silence of a server about a type since a request for more names (ADR 54).

use std::collections::BTreeSet;

use crate::engine::Time;
use crate::xds::ResourceName;

/// The names that requests have added since the last response of the type on the present stream.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// Without the names of the first request, which lists everything.
    pub(super) added: BTreeSet<ResourceName>,
    wait: Option<Wait>,
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    /// The end of the time for an answer; `None` after the end.
    due: Option<Time>,
    /// The number of the stream's signs of life at the request.
    signs: u64,
}

impl Silence {
    /// A request adds names. The first such request since the last response counts.
    pub(super) fn asked(&mut self, due: Time, signs: u64) {
        self.wait.get_or_insert(Wait { due: Some(due), signs });
    }

    pub(super) fn due(&self) -> Option<Time> {
        self.wait.and_then(|wait| wait.due)
    }

    /// Returns true if the time for an answer is over on a stream without a sign of life since the request.
    pub(super) fn run_out(&mut self, now: Time, signs: u64) -> bool {
        let Some(wait) = &mut self.wait else { return false };
        if wait.due.is_some_and(|due| due <= now) {
            wait.due = None;
        }
        wait.due.is_none() && signs <= wait.signs
    }

    /// Returns true if the server had its time for an answer, and the stream is alive.
    pub(super) fn is_proven(&self, signs: u64) -> bool {
        self.wait.is_some_and(|wait| wait.due.is_none() && signs > wait.signs)
    }

    /// Waits no longer: nothing is in doubt, whatever the server says.
    pub(super) fn end(&mut self) {
        self.wait = None;
    }
}
