//! Confirms a set that counts as whole since the end of the first answers ([`super::settling`]).
//!
//! A server that is itself starting sends what it knows, and the rest some milliseconds later. No round trip
//! shows that more is to come. So a set is *provisional* at first: clients without content are served, as
//! they lose nothing by what they get later. For clients that bring content from elsewhere, nothing counts as
//! gone from a provisional set. The set is confirmed once the server has sent nothing new for the time of a
//! resource timer, and a round trip of the transport has shown that nothing is on the way. A server that
//! sends new resources all the time is not waited for without end.
//!
//! ```text
//!   Quiet ──▶ Due ──▶ Proving ──round trip──▶ Proven
//!     ▲─────────┴─────────┘ new resources
//! ```

use std::time::Duration;

use crate::Time;

/// The maximum time until the confirmation, as a multiple of the required silence.
const WITHIN: u32 = 6;

/// The wait for the confirmation of one set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Confirmation {
    quiet: Duration,
    latest: Time,
    step: ConfirmationStep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConfirmationStep {
    Quiet { until: Time },
    Due,
    Proving,
    Proven,
}

impl Confirmation {
    /// Begins when the first answers have settled.
    pub(super) fn new(quiet: Duration, now: Time) -> Confirmation {
        let (latest, step) = (now + quiet * WITHIN, ConfirmationStep::Quiet { until: now + quiet });
        Confirmation { quiet, latest, step }
    }

    /// New resources arrived, or a response that nothing can be derived from.
    pub(super) fn interrupt(&mut self, now: Time) {
        if now < self.latest {
            self.step = ConfirmationStep::Quiet { until: (now + self.quiet).min(self.latest) };
        }
    }

    pub(super) fn due(self) -> Option<Time> {
        match self.step {
            ConfirmationStep::Quiet { until } => Some(until),
            ConfirmationStep::Due | ConfirmationStep::Proving | ConfirmationStep::Proven => None,
        }
    }

    pub(super) fn pass(&mut self, now: Time) {
        if self.due().is_some_and(|until| until <= now) {
            self.step = ConfirmationStep::Due;
        }
    }

    /// Begins a round trip if necessary. Returns true if a round trip was necessary.
    pub(super) fn begin_round(&mut self) -> bool {
        let is_due = self.step == ConfirmationStep::Due;
        if is_due {
            self.step = ConfirmationStep::Proving;
        }
        is_due
    }

    pub(super) fn end_round(&mut self) {
        if self.step == ConfirmationStep::Proving {
            self.step = ConfirmationStep::Proven;
        }
    }

    pub(super) fn is_proven(self) -> bool {
        self.step == ConfirmationStep::Proven
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn del_26_news_begin_the_silence_anew_but_not_without_end() {
        let mut confirmation = Confirmation::new(Duration::from_secs(10), at(0));
        for second in [9, 18, 27, 36, 45, 54] {
            confirmation.pass(at(second));
            assert!(!confirmation.begin_round(), "silent for 9 s only");
            confirmation.interrupt(at(second));
        }
        assert_eq!(confirmation.due(), Some(at(60)));
        confirmation.pass(at(60));
        assert!(confirmation.begin_round());
        confirmation.interrupt(at(61));
        confirmation.end_round();
        assert!(confirmation.is_proven());
    }
}
