//! Guesses the variant of a server whose variant is not configured (RLY-25).
//!
//! A server that lacks the method of delta refuses the stream with UNIMPLEMENTED. No other status speaks of a method:
//! UNKNOWN is the status of any error that a server's code returns without one. After the refusal the machine uses SotW
//! for an hour. The refusal may also come from a proxy, or from a server that starts. So SotW is a guess until the server
//! has answered a SotW stream. If such a stream ends or stays silent without an answer, the next stream tries delta
//! again.

use std::time::Duration;

use crate::engine::Time;
use crate::engine::upstream::api::Event;
use crate::engine::upstream::machine::{Phase, Upstream};
use crate::xds::{Code, Status, Variant};

/// The time for which the machine uses SotW after a server's refusal of delta.
const SOTW_FOR: Duration = Duration::from_secs(3600);

/// The silence that refutes the first guess: above the resource timer, so that a silent server is heard first. Doubled
/// by each refuted guess, as the server may be slow or have nothing to say.
const SILENCE: Duration = Duration::from_secs(15);

/// The guess that a server lacks delta.
#[derive(Debug, Default)]
pub(super) struct Guess {
    until: Option<Time>,
    /// The server has answered a SotW stream since the refusal.
    is_proven: bool,
    /// Guesses in sequence that silence refuted.
    refuted: u32,
}

impl Guess {
    fn patience(&self) -> Duration {
        SILENCE.saturating_mul(1 << self.refuted.min(16)).min(SOTW_FOR)
    }
}

impl Upstream {
    fn guess(&self) -> &Guess {
        let [primary, failover] = &self.guesses;
        if self.failover.server == 0 { primary } else { failover }
    }

    fn guess_mut(&mut self) -> &mut Guess {
        let [primary, failover] = &mut self.guesses;
        if self.failover.server == 0 { primary } else { failover }
    }

    /// The variant of the next stream.
    pub(super) fn next_variant(&self, now: Time) -> Variant {
        if self.guess().until.is_some_and(|until| now < until) {
            Variant::Sotw
        } else {
            self.settings.variant
        }
    }

    /// Returns true if the end of a stream without an answer says that the server lacks delta. The next stream is SotW
    /// then.
    pub(super) fn guess_sotw(&mut self, status: &Status, now: Time) -> bool {
        let may_guess = self.variant == Variant::Delta && self.settings.fall_back_to_sotw;
        let is_refusal = may_guess && status.code == Code::Unimplemented;
        if is_refusal {
            let guess = self.guess_mut();
            (guess.until, guess.is_proven) = (Some(now + SOTW_FOR), false);
        }
        is_refusal
    }

    /// The server answers on the present stream.
    pub(super) fn prove_guess(&mut self) {
        let guess = self.guess_mut();
        (guess.is_proven, guess.refuted) = (true, 0);
    }

    /// A stream ended without an answer.
    pub(super) fn end_guess(&mut self) {
        let guess = self.guess_mut();
        if !guess.is_proven {
            guess.until = None;
        }
    }

    /// The time at which the silence of the present stream refutes the guess.
    pub(super) fn doubted_at(&self) -> Option<Time> {
        let Phase::Open(stream) = &self.phase else { return None };
        let guess = self.guess();
        let is_open = guess.until.is_some() && !guess.is_proven && self.variant == Variant::Sotw;
        let asked = stream.asked.filter(|_| is_open && !stream.is_receiving && self.idle_until.is_none())?;
        Some(asked + guess.patience())
    }

    /// Tries delta again, if the server is silent in SotW.
    pub(super) fn doubt_guess(&mut self, now: Time) {
        if self.doubted_at().is_none_or(|at| at > now) {
            return;
        }
        let guess = self.guess_mut();
        (guess.until, guess.refuted) = (None, guess.refuted.saturating_add(1));
        self.event(Event::BackToDelta);
        self.renew(now);
    }
}
