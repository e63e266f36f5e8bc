//! The clients that may have a push.

use super::report::RolloutState;
use super::seat::Seat;

/// The clients that may have a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    pub push: u64,
    /// Buckets below are admitted.
    pub threshold: u16,
    /// The step under way, from 1; 0 before the first step.
    pub step: u8,
    pub state: RolloutState,
    /// Clients with the halted push keep the push, and no other client gets the push (WAV-16).
    pub holders_only: bool,
    /// Clients with this halted push are admitted, whatever the seat (WAV-17).
    pub holders_of: Option<u64>,
}

impl Admission {
    /// Admits nobody to anything.
    pub const NOBODY: Admission = Admission {
        push: 0,
        threshold: 0,
        step: 0,
        state: RolloutState::Open,
        holders_only: false,
        holders_of: None,
    };

    /// Whether a client may have the candidate of the push. `served`: the latest push whose candidate the
    /// client was given.
    pub fn admits(&self, seat: Seat, served: Option<u64>) -> bool {
        if self.state == RolloutState::Halted {
            return self.holders_only && served == Some(self.push);
        }
        // A holder of the former push becomes a holder of the present push with the first content.
        let is_holder = |push| served == Some(push) || served == Some(self.push);
        self.gives(seat) || self.is_given() && self.holders_of.is_some_and(is_holder)
    }

    /// Whether seated clients have the push. Nobody has a push before its first step.
    fn is_given(&self) -> bool {
        let is_under_way =
            matches!(self.state, RolloutState::Waving | RolloutState::Paused | RolloutState::Settling);
        is_under_way && self.step > 0
    }

    /// Whether a step has given a seated client the push.
    pub fn gives(&self, seat: Seat) -> bool {
        self.is_given() && self.is_seated(seat)
    }

    /// Whether a label alone may have admitted the seat, and not chance.
    pub fn is_by_label(&self, seat: Seat) -> bool {
        seat.bucket >= self.threshold
    }

    /// The same for a push by its number: a push that is not under way admits nobody.
    pub fn admits_to(&self, push: u64, seat: Seat, served: Option<u64>) -> bool {
        push == self.push && self.admits(seat, served)
    }

    /// Whether clients keep a halted push, the former or the present push.
    pub fn has_holders(&self) -> bool {
        self.holders_only || self.holders_of.is_some()
    }

    /// Whether the steps so far have admitted the seat, whatever became of the push.
    pub fn is_seated(&self, seat: Seat) -> bool {
        seat.bucket < self.threshold || seat.labelled_step.is_some_and(|step| step <= self.step)
    }
}
