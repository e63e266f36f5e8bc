//! The commands of operators (HIS-3 to HIS-5).

use std::time::Duration;

use super::push::UnitId;
use sluice_engine::Time;

/// The longest freeze (HIS-4).
pub const FREEZE_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);

/// A command to a plan that enforces. Each may come twice: the second has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Stops the clocks of the push. Admitted clients keep the push, and no step admits more clients.
    Pause {
        push: u64,
    },
    Resume {
        push: u64,
    },
    /// Goes on without evidence. A halted push begins anew, with all that waits, and without guards.
    Promote {
        push: u64,
        to: Promotion,
    },
    /// Halts the push, and sends all clients back.
    Abort {
        push: u64,
    },
    /// Lets the other units of a halted push go on. These wait until their content changes.
    Bar {
        push: u64,
        units: Vec<UnitId>,
    },
    /// Serves a release of the past to all clients at once, without steps.
    Pin {
        release: u64,
        until: PinFor,
    },
    Unpin,
    /// Pins the release before a push, until the next push.
    Rollback {
        push: u64,
    },
    /// Begins no push, and pauses the one under way.
    Freeze {
        length: Duration,
    },
    Unfreeze,
}

impl Command {
    /// The push that the command means.
    pub fn push(&self) -> Option<u64> {
        match *self {
            Command::Pause { push }
            | Command::Resume { push }
            | Command::Promote { push, .. }
            | Command::Abort { push }
            | Command::Bar { push, .. }
            | Command::Rollback { push } => Some(push),
            Command::Pin { .. } | Command::Unpin | Command::Freeze { .. } | Command::Unfreeze => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promotion {
    /// A halted push begins anew with its first step. For a moving push the command needs a step: without a
    /// step, a repeated command would promote twice.
    Anew,
    /// A step by its number, from 1.
    Step(u8),
    /// The step that admits all clients. The final bake follows.
    All,
}

/// The end of a pin, as commanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinFor {
    NextPush,
    Unpin,
    Length(Duration),
}

/// The end of a pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The first content that differs from the newest one at the begin of the pin.
    NextPush,
    Unpin,
    Time(Time),
}

/// The reason why a command had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// The plan holds nothing: `mode: observe`.
    Observes,
    /// The push that the command names is not under way; another one is, or none.
    AnotherPush(Option<u64>),
    /// The push is halted: only `promote`, `abort`, `bar`, `pin` and `rollback` mean something.
    Halted,
    /// The push is not halted.
    NotHalted,
    Frozen,
    /// A new process has taken over.
    Succeeded,
    /// The ledger is away: the other replicas would not hear of it.
    NoLedger,
    /// The server of a unit of the push is lost.
    ServerLost(UnitId),
    /// The push has fewer steps.
    NoSuchStep {
        steps: u8,
    },
    /// The push is not halted, so the command has to name a step.
    NoStep {
        reached: u8,
        steps: u8,
    },
    /// The plan does not remember the release.
    NoSuchRelease,
    /// The release is from before a restart, or from before another set of gated types: nobody has the
    /// content.
    LostRelease,
    /// The unit has no part in the push.
    NoSuchUnit,
    /// The ledger has no room for the bars of more units.
    TooManyBarred,
    /// The push changes no resource with the name that was to be condemned.
    NoSuchContent,
    /// As above, as far as is known: a content of the push was halted before a restart, and the server has
    /// not repeated the content.
    ContentNotKnown,
    /// Longer than [`FREEZE_MAX`].
    TooLong,
}
