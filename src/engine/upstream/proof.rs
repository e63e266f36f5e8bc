//! The evidence of a stream about its server: the server can be heard, and the known state of a type is
//! current.
//!
//! A server is **heard** (CLI-1) from its first response on a stream. A server without news may send nothing
//! at all after a reconnect: to a client that states its held versions, silence is the answer (DEL-35,
//! STR-10). A silent server is heard if the stream has stayed open for the time of the resource timers after
//! all requests, and the transport was found alive afterwards. So an unreachable server that comes back
//! unchanged does not stay unreachable.
//!
//! A server that answers and dies, over and over, is no error by A57 and A88, so that neither an error nor a
//! fallback would ever follow. Deliberately against CLI-1 and CLI-2, the server counts as unreachable after
//! several short streams in short time. The server is heard again only when a stream has lived for a while
//! after the first response (FU9). Streams that the server asked the relay to leave, and streams that lived
//! long enough, never count (RLY-48).
//!
//! A type is **current** once the server has answered the requests for the type on the present stream, or
//! after the same silence (I9, RLY-44). In delta the type becomes current when the first answers have settled
//! ([`super::settling`]); in SotW, when the response is full-state, or when every previously known name is
//! answered. Until then each answered name is current alone, so a silent name delays only sessions that want
//! the name. A response with a fault makes nothing current: the rejected resources are as old as before.
//! Heartbeats say nothing about existence (TTL-6). In REST a type is current while its polls are answered.

use std::collections::VecDeque;

use super::backoff::BackoffSettings;

use crate::engine::Time;

/// The evidence of the present stream about one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Currency {
    #[default]
    Unasked,
    /// Not answered so far. `signs`: the number of the stream's signs of life at the request.
    Asked {
        due: Time,
        signs: u64,
    },
    /// Silent until the timer expired, on a stream without a sign of life since the request.
    Unproven,
    /// Equally silent, on a live stream, by a server that marks whole sets: the server does not know the
    /// whole set yet.
    Silent,
    /// The server speaks, so that there is no silence, and the rest of the answer is outstanding.
    Answering,
    /// A response was rejected.
    Rejected,
    Current,
}

impl Currency {
    /// The time at which the server's silence becomes an answer.
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

    /// A response arrived, and more is necessary.
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

    /// `silent`: the meaning of a proven silence.
    pub(super) fn run_out(&mut self, now: Time, stream_signs: u64, silent: Currency) {
        if let Currency::Asked { due, signs } = *self
            && due <= now
        {
            *self = if stream_signs > signs { silent } else { Currency::Unproven };
        }
    }
}

/// Answered streams that ended soon afterwards, in the order of time.
#[derive(Debug, Default)]
pub(super) struct Flaps {
    pub(super) ends: VecDeque<Time>,
    /// There were too many such ends, and no stream has lasted since.
    pub(super) is_unsteady: bool,
}

impl Flaps {
    /// Returns true if the end makes the server unsteady.
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
