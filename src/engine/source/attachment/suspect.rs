//! The record of a type after whose request the server ended the stream (ADR 15).

use std::time::Duration;

use crate::engine::Time;
use crate::xds::Status;

/// A suspect that was moved back and blamed again waits before its next trial on the shared stream. The wait
/// doubles each time, up to the cap, so that the others are interrupted ever less often.
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(600);

/// Suspects are remembered for this long: a client that asks for the type again gets a separate stream at
/// once.
const MEMORY: Duration = Duration::from_secs(600);

/// A type after whose request the server ended the stream.
#[derive(Clone, Debug)]
pub struct Suspect {
    /// The time of the first end.
    pub since: Time,
    /// The number of ended streams.
    pub ends: u32,
    /// The status of the last end.
    pub status: Status,
    /// The type is requested on a stream of its own.
    pub is_alone: bool,
    /// The number of times that the shared stream ended.
    pub(super) interruptions: u32,
    pub(super) last: Time,
}

impl Suspect {
    pub(super) fn new(status: Status, now: Time) -> Suspect {
        Suspect { since: now, ends: 0, status, is_alone: true, interruptions: 0, last: now }
    }

    pub(super) fn ended(&mut self, status: &Status, now: Time) {
        self.ends = self.ends.saturating_add(1);
        (self.status, self.last, self.is_alone) = (status.clone(), now, true);
    }

    pub(super) fn wait(&self) -> Duration {
        match self.interruptions {
            0 | 1 => Duration::ZERO,
            // 2^10 s is above the cap.
            more => (AGAIN * (1 << (more - 2).min(10))).min(AGAIN_MAX),
        }
    }

    pub(super) fn is_old(&self, now: Time) -> bool {
        now.since(self.last) > MEMORY
    }
}
