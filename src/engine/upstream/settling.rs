//! From when on the first answers of a stream are all there (DEL-26).
//!
//! Servers split what they have over several responses, and the protocol has no mark for the last one. So its end is found out,
//! and nothing is taken for whole while more is on its way: not while bytes of a further message have come ([`Input::Receiving`]),
//! and not before a round trip of the transport that began after the last message ([`Output::RoundTrip`]), before whose answer
//! everything arrives that the server had handed to its transport. After a large message there has to be silence for a while,
//! too: servers make the next part only when the one before has left. A server that sets marks says it itself
//! ([`super::marks`]), and then nothing is found out.
//!
//! ```text
//!   Unanswered ──small──▶ Due ──▶ Proving ──round trip──▶ Proven ──▶ Settled
//!        │                ▲ ▲─update─┤                       │
//!        └──────large──▶ Quiet ◀─────┴──────more of it───────┘
//!   Unanswered ──any, with marks──▶ Awaiting ──mark──▶ Proven ──▶ Settled
//! ```
//!
//! [`Input::Receiving`]: super::Input::Receiving
//! [`Output::RoundTrip`]: super::Output::RoundTrip

use std::time::Duration;

use crate::engine::Time;
use crate::engine::planted::{Bug, planted};

/// A first response that weighs less is most likely all that there is, since servers split by size. It waits for the round trip
/// only.
pub(super) const LARGE: usize = 1 << 20;

/// After a larger one, or a second one, nothing may come for so long. It is some ten times what a server needs to make the next
/// part of an answer.
pub(super) const QUIET: Duration = Duration::from_millis(200);

/// Updates of what came already have so many round trips begin anew. A server whose updates come faster than round trips end
/// would keep its clients waiting for ever otherwise.
pub(super) const REPEATED_MAX: u8 = 10;

/// Where the first answers to a type, or to a glob, stand on the present stream. The numbers say how many round trips were
/// repeated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Settling {
    #[default]
    Unanswered,
    Quiet {
        until: Time,
    },
    /// A round trip has to begin.
    Due(u8),
    /// It has begun after the last message.
    Proving(u8),
    Proven(u8),
    /// The server has begun to answer, and a mark will say when it is done ([`super::marks`]).
    Awaiting,
    Settled,
}

impl Settling {
    /// A response of `size` bytes came. `grows`: it brings what was not there, and is no update of what came before.
    pub(super) fn answered(&mut self, size: usize, grows: bool, now: Time) {
        let is_large = size >= LARGE;
        *self = match *self {
            Settling::Settled => Settling::Settled,
            Settling::Unanswered if !is_large => Settling::Due(0),
            running if running != Settling::Unanswered && !grows && !is_large => running.updated(),
            _ => Settling::Quiet { until: now + QUIET },
        };
    }

    /// An update of what came already. What follows it may be on its way behind it, so that a round trip that began before says
    /// nothing of that.
    pub(super) fn updated(self) -> Settling {
        match self {
            Settling::Proving(repeated) | Settling::Proven(repeated) if repeated < REPEATED_MAX => {
                Settling::Due(repeated + 1)
            }
            other => other,
        }
    }

    /// The server says itself when it is done. What ran so far stops.
    pub(super) fn expect_mark(&mut self) {
        if self.is_running() {
            *self = Settling::Awaiting;
        }
    }

    /// A response came from a server that says itself when it is done.
    pub(super) fn told(&mut self) {
        if *self != Settling::Settled {
            *self = Settling::Awaiting;
        }
    }

    /// Whether a mark may follow what came so far.
    pub(super) fn is_told(self) -> bool {
        matches!(self, Settling::Awaiting | Settling::Settled)
    }

    /// The server said that it is done.
    pub(super) fn mark(&mut self) {
        if *self != Settling::Settled {
            *self = Settling::Proven(0);
        }
    }

    /// A response came from which nothing can be derived: what there is, is to be found out by the next one.
    pub(super) fn interrupt(&mut self) {
        if *self != Settling::Settled {
            *self = Settling::Unanswered;
        }
    }

    pub(super) fn is_settled(self) -> bool {
        self == Settling::Settled
    }

    pub(super) fn is_running(self) -> bool {
        !matches!(self, Settling::Unanswered | Settling::Settled)
    }

    pub(super) fn due(self) -> Option<Time> {
        match self {
            Settling::Quiet { until } => Some(until),
            _ => None,
        }
    }

    pub(super) fn pass(&mut self, now: Time) {
        if self.due().is_some_and(|until| until <= now) {
            *self = Settling::Due(0);
        }
    }

    /// A round trip may begin. Whether it has to.
    pub(super) fn begin(&mut self) -> bool {
        let Settling::Due(repeated) = *self else { return false };
        let is_over = planted(Bug::WholeWithoutRoundTrip);
        *self = if is_over { Settling::Proven(repeated) } else { Settling::Proving(repeated) };
        true
    }

    pub(super) fn returned(&mut self) {
        if let Settling::Proving(repeated) = *self {
            *self = Settling::Proven(repeated);
        }
    }

    /// Whether it has just settled.
    pub(super) fn settle(&mut self) -> bool {
        let is_proven = matches!(self, Settling::Proven(_));
        if is_proven {
            *self = Settling::Settled;
        }
        is_proven
    }
}
