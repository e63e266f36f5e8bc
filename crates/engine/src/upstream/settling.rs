//! Detects the end of the first answers of a stream (DEL-26).
//!
//! Servers split their resources over several responses, and the protocol has no mark for the last response.
//! So the machine detects the end. No set counts as whole while bytes of a further message have come
//! ([`Input::Receiving`]). A round trip of the transport has to begin after the last message, and to end
//! ([`Output::RoundTrip`]): everything that the server had handed to its transport arrives before the end of
//! the round trip. After a large message there has to be silence for a while, too: servers make the next part
//! only when the part before has left. A server with marks reports the end itself
//! (`type_request.rs`), and the machine detects nothing.
//!
//! ```text
//!   Unanswered ──small──▶ Due ──▶ Proving ──round trip──▶ Proven ──▶ Settled
//!        │                ▲ ▲─update─┤                       │
//!        └──────large──▶ Quiet ◀─────┴──────more of it───────┘
//!   Unanswered ──any, with marks──▶ Awaiting ──mark──▶ Proven ──▶ Settled
//!   Retaken ──round trip──▶ Fresh (as Unanswered), or Due after a response
//! ```
//!
//! [`Input::Receiving`]: super::Input::Receiving
//! [`Output::RoundTrip`]: super::Output::RoundTrip

use std::time::Duration;

use crate::Time;

/// A smaller first response is most likely complete, since servers split by size. It waits for the round trip
/// only.
pub(super) const LARGE: usize = 1 << 20;

/// The silence after a larger response, or after a second response. Servers need about a tenth of the time
/// for the next part of an answer.
pub(super) const QUIET: Duration = Duration::from_millis(200);

/// The maximum number of round trips that restart because of updates. A server whose updates come faster than
/// round trips end would otherwise keep its clients waiting for ever.
pub(super) const REPEATED_MAX: u8 = 10;

/// The progress of the first answers to a type, or to a glob, on the present stream. The numbers count
/// repeated round trips.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Settling {
    #[default]
    Unanswered,
    /// The stream had subscriptions that ended, and this one may be among them: responses may be older than
    /// the request until a round trip has ended that began after the request.
    Retaken {
        has_begun: bool,
        is_answered: bool,
    },
    /// As `Unanswered`, after this round trip.
    Fresh,
    Quiet {
        until: Time,
    },
    /// A round trip has to begin.
    Due(u8),
    /// A round trip has begun after the last message.
    Proving(u8),
    Proven(u8),
    /// The server has begun to answer, and a mark will report the end (`type_request.rs`).
    Awaiting,
    Settled,
}

impl Settling {
    /// A response of `size` bytes arrived. `grows`: the response brings new resources, not only updates.
    pub(super) fn note_response(&mut self, size: usize, grows: bool, now: Time) {
        let is_large = size >= LARGE;
        *self = match *self {
            Settling::Settled => Settling::Settled,
            Settling::Retaken { has_begun, .. } => Settling::Retaken { has_begun, is_answered: true },
            Settling::Unanswered | Settling::Fresh if !is_large => Settling::Due(0),
            running if running.is_answered() && !grows && !is_large => running.after_update(),
            _ => Settling::Quiet { until: now + QUIET },
        };
    }

    /// An update of a received resource. More responses may follow right behind the update, so that an
    /// earlier round trip proves nothing about later responses.
    fn after_update(self) -> Settling {
        match self {
            Settling::Proving(repeated) | Settling::Proven(repeated) if repeated < REPEATED_MAX => {
                Settling::Due(repeated + 1)
            }
            other => other,
        }
    }

    /// The server reports the end itself. The running detection stops.
    pub(super) fn expect_mark(&mut self) {
        if self.is_running() {
            *self = Settling::Awaiting;
        }
    }

    /// A response arrived from a server that reports the end itself.
    pub(super) fn await_mark(&mut self) {
        if *self != Settling::Settled {
            *self = Settling::Awaiting;
        }
    }

    fn is_answered(self) -> bool {
        !matches!(self, Settling::Unanswered | Settling::Fresh)
    }

    /// Returns true if a mark may follow the responses so far.
    pub(super) fn may_be_marked(self) -> bool {
        matches!(self, Settling::Awaiting | Settling::Settled)
    }

    /// The server reported the end.
    pub(super) fn mark(&mut self) {
        if *self != Settling::Settled {
            *self = Settling::Proven(0);
        }
    }

    /// An unusable response arrived: the detection starts again with the next response.
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

    /// Begins a round trip if necessary. Returns true if a round trip was necessary.
    pub(super) fn begin_round(&mut self) -> bool {
        *self = match *self {
            Settling::Due(repeated) => Settling::Proving(repeated),
            Settling::Retaken { has_begun: false, is_answered } => {
                Settling::Retaken { has_begun: true, is_answered }
            }
            _ => return false,
        };
        true
    }

    pub(super) fn end_round(&mut self) {
        *self = match *self {
            Settling::Proving(repeated) => Settling::Proven(repeated),
            Settling::Retaken { has_begun: true, is_answered: true } => Settling::Due(0),
            Settling::Retaken { has_begun: true, is_answered: false } => Settling::Fresh,
            other => other,
        };
    }

    /// Returns true if the answers have just settled.
    pub(super) fn settle(&mut self) -> bool {
        let is_proven = matches!(self, Settling::Proven(_));
        if is_proven {
            *self = Settling::Settled;
        }
        is_proven
    }
}
