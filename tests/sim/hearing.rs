//! Whether a server counts as lost, by what happened on one stream to it (CLI-1, FU9).

use super::schedule::SECOND;

/// A stream that ends earlier than this after its first response may tell of a server that answers and dies.
const LASTING: u64 = 10 * SECOND;
/// So many ends within this time make a server unsteady.
const ENDS: usize = 5;
const WITHIN: u64 = 60 * SECOND;

#[derive(Debug, Default)]
pub struct Hearing {
    /// It could not be opened, or ended before a response, and none came since (CLI-1).
    is_unanswered: bool,
    /// So many streams ended one after the other that the server may count as lost until one has lasted, however long it
    /// takes until there is one (FU9).
    is_unsteady: bool,
    ends: Vec<u64>,
    /// When the first response on the present stream came.
    answered: Option<u64>,
}

impl Hearing {
    pub fn is_lost(&self, now: u64) -> bool {
        self.is_unanswered || (self.is_unsteady && !self.has_lasted(now))
    }

    fn has_lasted(&self, now: u64) -> bool {
        self.answered.is_some_and(|at| at + LASTING <= now)
    }

    /// A response came.
    pub fn answer(&mut self, now: u64) {
        self.is_unanswered = false;
        self.answered.get_or_insert(now);
    }

    /// No stream could be opened, or one ended before a response.
    pub fn fail(&mut self) {
        self.is_unanswered = true;
    }

    /// The relay left the stream.
    pub fn leave(&mut self, now: u64) {
        self.is_unsteady &= !self.has_lasted(now);
        self.answered = None;
    }

    /// A stream ended that had been answered, be it by silence.
    pub fn end(&mut self, now: u64) {
        self.leave(now);
        self.ends.retain(|at| at + WITHIN >= now);
        self.ends.push(now);
        self.is_unsteady |= self.ends.len() >= ENDS;
    }
}
