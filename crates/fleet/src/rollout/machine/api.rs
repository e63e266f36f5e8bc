//! Outputs of the machine.

use std::time::Duration;

use crate::rollout::admission::Admission;
use crate::rollout::hook::HookAnswer;
use crate::rollout::ledger::Write;
use crate::rollout::load::LoadJudgement;
use crate::rollout::push::{Content, UnitId};
use crate::rollout::report::{Note, Outcome, Verdict};

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
    /// This release is pinned at all replicas, and is not here: the stable content stays.
    Lacking(u64),
    /// No push begins for this time. Told at the begin, and each hour.
    Frozen(Duration),
    Unfrozen,
    /// No push begins, because the contents that are held take too many bytes.
    Full,
}
