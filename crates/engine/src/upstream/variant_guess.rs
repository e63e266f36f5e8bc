//! Guesses the variant of a server whose variant is not configured (RLY-25).
//!
//! A server that lacks the method of delta refuses the stream with UNIMPLEMENTED. No other status speaks of a
//! method: UNKNOWN is the status of any error that a server's code returns without one. After the refusal the
//! machine uses SotW for an hour. The refusal may also come from a proxy, or from a server that starts. So
//! SotW is a guess until the server has answered a SotW stream. If such a stream ends or stays silent without
//! an answer, the next stream tries delta again.

use std::time::Duration;

use crate::Time;

/// The time for which the machine uses SotW after a server's refusal of delta.
const SOTW_FOR: Duration = Duration::from_secs(3600);

/// The silence that refutes the first guess: above the resource timer, so that a silent server is heard
/// first. Doubled by each refuted guess, as the server may be slow or have nothing to say.
const SILENCE: Duration = Duration::from_secs(15);

/// The guess that a server lacks delta.
#[derive(Debug, Default)]
pub(super) struct VariantGuess {
    until: Option<Time>,
    /// The server has answered a SotW stream since the refusal.
    is_proven: bool,
    /// Guesses in sequence that silence refuted.
    refuted: u32,
}

impl VariantGuess {
    /// The server refuses delta.
    pub(super) fn begin(&mut self, now: Time) {
        (self.until, self.is_proven) = (Some(now + SOTW_FOR), false);
    }

    pub(super) fn holds(&self, now: Time) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// Returns true if the silence of a SotW stream would refute the guess.
    pub(super) fn is_refutable(&self) -> bool {
        self.until.is_some() && !self.is_proven
    }

    /// The server answers on the present stream.
    pub(super) fn prove(&mut self) {
        (self.is_proven, self.refuted) = (true, 0);
    }

    /// A stream ended without an answer.
    pub(super) fn end_unproven(&mut self) {
        if !self.is_proven {
            self.until = None;
        }
    }

    /// The silence has lasted for [`Self::patience`].
    pub(super) fn refute(&mut self) {
        (self.until, self.refuted) = (None, self.refuted.saturating_add(1));
    }

    /// The silence that refutes the guess.
    pub(super) fn patience(&self) -> Duration {
        SILENCE.saturating_mul(1 << self.refuted.min(16)).min(SOTW_FOR)
    }
}
