//! What a stream proves of its server: that it can be heard, and that what is known of a type is what it has to say.
//!
//! A server is **heard** (CLI-1) from its first response on a stream. One that has nothing to say after a reconnect may send
//! nothing at all: to a client that states what it holds, silence is the answer (DEL-35, STR-10). It is heard, too, once its
//! stream has stayed open for the time of the resource timers after everything was asked, and the transport was found alive
//! after that. So an unreachable server that comes back unchanged does not stay unreachable.
//!
//! A server that answers and dies, over and over, is no error by A57 and A88, so that neither an error nor a fallback would
//! ever follow. Deliberately against CLI-1 and CLI-2, it counts as unreachable after several such streams in short time, and
//! is heard again only when a stream has lived for a while after its first response (FU9). Streams that the server asked to
//! be left, or that lived long enough, never count (RLY-48).
//!
//! A type is **current** once the server has answered on the present stream what is wanted of it, or after the same silence
//! (I9, RLY-44). In delta that is when the first answers have settled ([`super::settling`]); in SotW, when the response is
//! full-state, or when every name that was known before is answered. Until then each name that is answered is current by
//! itself, so that one of which the server never speaks keeps no session from returning that does not want it. A response with
//! a fault makes nothing current: what was rejected is as old as before. Heartbeats say nothing of what there is (TTL-6). In REST a type is current while polls of it
//! are answered.

use std::collections::VecDeque;

use super::backoff::BackoffSettings;

use crate::engine::Time;

/// What the present stream says of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Currency {
    #[default]
    Unasked,
    /// Not answered until now; the stream had given `signs` of life when it was asked.
    Asked {
        due: Time,
        signs: u64,
    },
    /// Silent until the timer ran out, on a stream that gave no sign of life since it was asked.
    Unproven,
    /// Silent for as long on a stream that is alive, by a server that will mark what is whole: it does not know that yet.
    Silent,
    /// The server speaks, so that there is no silence, and the rest of what it has to say is not there yet.
    Answering,
    /// A response was rejected.
    Rejected,
    Current,
}

impl Currency {
    /// When the server's silence becomes its answer.
    pub(super) fn due(self) -> Option<Time> {
        match self {
            Currency::Asked { due, .. } => Some(due),
            _ => None,
        }
    }

    pub(super) fn asked(&mut self, due: Time, signs: u64) {
        if *self != Currency::Current {
            *self = Currency::Asked { due, signs };
        }
    }

    /// A response came, and more is needed.
    pub(super) fn answering(&mut self, is_good: bool) {
        if *self != Currency::Current {
            *self = if is_good { Currency::Answering } else { Currency::Rejected };
        }
    }

    /// The first answers have settled.
    pub(super) fn settled(&mut self, is_rejected: bool) {
        if *self != Currency::Current {
            *self = if is_rejected { Currency::Rejected } else { Currency::Current };
        }
    }

    /// `silent`: what the silence of the server means.
    pub(super) fn run_out(&mut self, now: Time, stream_signs: u64, silent: Currency) {
        if let Currency::Asked { due, signs } = *self
            && due <= now
        {
            *self = if stream_signs > signs { silent } else { Currency::Unproven };
        }
    }
}

/// Streams that were answered and ended soon after, in the order of time.
#[derive(Debug, Default)]
pub(super) struct Flaps {
    pub(super) ends: VecDeque<Time>,
    /// There were too many of them, and no stream has lasted since.
    pub(super) is_unsteady: bool,
}

impl Flaps {
    /// Whether the server is found to be unsteady by this end.
    pub(super) fn add(&mut self, settings: &BackoffSettings, now: Time) -> bool {
        self.ends.push_back(now);
        while self.ends.front().is_some_and(|end| now.since(*end) > settings.unsteady_within) {
            self.ends.pop_front();
        }
        if self.is_unsteady || self.ends.len() < settings.unsteady_ends {
            return false;
        }
        self.ends.clear();
        self.is_unsteady = true;
        true
    }
}
