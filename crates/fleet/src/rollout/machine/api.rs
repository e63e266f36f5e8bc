//! Outputs of the machine.

use std::time::Duration;

use crate::rollout::hook::HookAnswer;
use crate::rollout::ledger::Write;
use crate::rollout::load::LoadJudgement;
use crate::rollout::push::{Content, UnitId};
use crate::rollout::report::{Note, Outcome, RolloutState, Verdict};
use crate::rollout::seat::Seat;

/// A request of the machine to its driver.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Keep the snapshots of the units before the first change and now, sum the differences up, and answer
    /// with [`Rollout::ready`](super::Rollout::ready). A later `Cut` of the same push replaces the former.
    Cut {
        push: u64,
        units: Vec<UnitId>,
    },
    /// Ask the hook of the plan whether the push may go on after the step, 0 before the first, and answer
    /// with [`Rollout::hook_said`](super::Rollout::hook_said). A later question replaces the former.
    Ask {
        push: u64,
        step: u8,
    },
    /// The clients that the step under way admits.
    Admit(Admission),
    /// All units of the push give the stable content to all clients: moves backwards get their marks
    /// (WAV-10). Under `mode: enforce` only, as the outputs below. Comes before the admission that takes the
    /// push away.
    Back {
        push: u64,
    },
    /// Clients keep the halted push that they have, until they are given another content: what they have to
    /// be restated then is known from now on (WAV-10, WAV-16). Comes before the admission of the halt.
    Stay {
        push: u64,
    },
    /// All units of the push: the candidate is the stable content from now on. The admission stays as it is.
    Settle {
        push: u64,
    },
    /// All units of the plan: the stable content is a release of the past, the unit's latest up to the
    /// number.
    Serve {
        release: u64,
    },
    /// All units of the plan: nobody is held back any more.
    Open,
    Event(RolloutEvent),
    /// Write to the ledger, and answer with [`Rollout::wrote`](super::Rollout::wrote).
    Write(Write),
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
    Condemned(Content),
    /// The hook gave another answer about a step than before.
    HookSaid {
        step: u8,
        answer: HookAnswer,
    },
    /// The last word of load reports about a step that is over (LRS-24). A step that they cannot tell about
    /// goes on by the plan's other evidence.
    LoadJudged {
        step: u8,
        judgement: LoadJudgement,
    },
    Over(Outcome),
    /// A unit waits, and the others go on.
    Barred(UnitId),
    /// All clients are served this release.
    Pinned(u64),
    Unpinned(u64),
    /// No push begins for this time. Told at the begin, and each hour.
    Frozen(Duration),
    Unfrozen,
    /// No push begins, because the contents that are held take too many bytes.
    Full,
}
