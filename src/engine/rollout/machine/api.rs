//! Outputs of the machine.

use crate::engine::rollout::push::{Condemned, UnitId};
use crate::engine::rollout::report::{Note, Outcome, RolloutState, Verdict};
use crate::engine::rollout::seat::Seat;

/// A request of the machine to its driver.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Keep the snapshots of these units before their first change and now, sum up their differences, and answer with
    /// [`Rollout::ready`](super::Rollout::ready). A later `Cut` of the same push replaces the former.
    Cut {
        push: u64,
        units: Vec<UnitId>,
    },
    /// The clients that the step under way admits.
    Admit(Admission),
    Event(RolloutEvent),
    /// No tally of the push will be asked for: its snapshots may go.
    Release {
        push: u64,
    },
}

/// The clients that may have a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    pub push: u64,
    /// Buckets below are admitted.
    pub threshold: u16,
    /// The step under way, from 1; 0 before the first step.
    pub step: u8,
    pub state: RolloutState,
    /// Clients that have the push keep it, and nobody else is given it (WAV-16).
    pub holders_only: bool,
}

impl Admission {
    /// Whether a client may have the push. `served`: the push that the client was last served.
    pub fn admits(&self, seat: Seat, served: Option<u64>) -> bool {
        match self.holders_only {
            true => served == Some(self.push),
            false => seat.bucket < self.threshold || seat.labelled_step.is_some_and(|step| step <= self.step),
        }
    }
}

/// A change of the state, for the log and the list of events.
#[derive(Clone, Debug, PartialEq)]
pub struct RolloutEvent {
    pub push: u64,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// The push begins: so many units and changed resources.
    Gathered {
        units: usize,
        resources: usize,
    },
    /// A step begins. The step after the last one of the plan admits all clients, and is told as `Settling`.
    StepBegun {
        step: u8,
        steps: u8,
        threshold: u16,
    },
    Settling,
    Note(Note),
    Halted(Verdict),
    Paused(Verdict),
    /// A paused push goes on.
    Resumed,
    Condemned(Condemned),
    Over(Outcome),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wav_16_after_a_halt_that_stays_only_those_who_have_the_push_may_have_it() {
        let seat = Seat { bucket: 5, labelled_step: None };
        let waving =
            Admission { push: 7, threshold: 6, step: 1, state: RolloutState::Waving, holders_only: false };
        let halted = Admission { holders_only: true, ..waving };
        assert!(waving.admits(seat, None) && !Admission { threshold: 5, ..waving }.admits(seat, Some(7)));
        assert_eq!([None, Some(6), Some(7)].map(|served| halted.admits(seat, served)), [false, false, true]);
    }
}
