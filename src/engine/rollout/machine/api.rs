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
}

impl Admission {
    pub fn admits(&self, seat: Seat) -> bool {
        seat.bucket < self.threshold || seat.labelled_step.is_some_and(|step| step <= self.step)
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
