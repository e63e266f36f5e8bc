//! An operator's drain: the relay loses its clients, and its process goes on (HND-9).

use std::time::Duration;

/// The drain, as the admin room sees it. The server implements this trait.
pub trait Emptying: Send + Sync + 'static {
    /// Waits for `after`, then ends each stream at a moment of `over`, and closes new connections until
    /// [`Emptying::admit`]. Without `over`, the drain takes as long as that at the end of the process. Must
    /// be called within a tokio runtime.
    ///
    /// # Errors
    /// Another drain is under way.
    fn empty(&self, after: Duration, over: Option<Duration>) -> Result<(), AlreadyEmptying>;

    /// Admits connections again; false if there was no drain. Streams that are told to leave leave
    /// nevertheless.
    fn admit(&self) -> bool;

    /// Tells health watchers that the relay will leave soon. Nothing else changes.
    fn announce(&self);

    fn status(&self) -> EmptyingStatus;

    /// Whether the relay is out of service for an operator's drain.
    fn is_emptying(&self) -> bool;
}

/// A drain is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlreadyEmptying;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmptyingPhase {
    /// Without a drain.
    Serving,
    /// The relay is not ready, and serves as before: load balancers have time to notice.
    Announced,
    /// Streams end, and nobody is admitted.
    Leaving,
    /// The last stream has ended.
    Empty,
}

impl EmptyingPhase {
    pub fn name(self) -> &'static str {
        match self {
            EmptyingPhase::Serving => "serving",
            EmptyingPhase::Announced => "announced",
            EmptyingPhase::Leaving => "leaving",
            EmptyingPhase::Empty => "empty",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmptyingStatus {
    pub phase: EmptyingPhase,
    pub connections: u64,
    pub streams: u64,
    /// Streams at the begin of the drain.
    pub streams_before: u64,
    /// Connections that were cut since then, because their clients stayed.
    pub cut: u64,
    /// The time until the last stream has ended. Without a drain, the length of a drain that would begin now.
    pub left: Duration,
}

/// The time of other relays with the same `limits.first_answers_per_second` for the first answers of so many
/// clients (HND-9).
pub fn floor(streams: u64, first_answers_per_second: u32) -> Duration {
    Duration::from_secs(streams / u64::from(first_answers_per_second.max(1)))
}
