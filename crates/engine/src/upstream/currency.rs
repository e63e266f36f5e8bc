//! The evidence of a stream about one type: its known state is current.
//!
//! A type is **current** once the server has answered the requests for the type on the present stream, or
//! after the same silence (I9, RLY-44). In delta the type becomes current when the first answers have settled
//! ([`super::settling`]); in SotW, when the response is full-state, or when every previously known name is
//! answered. Until then each answered name is current alone, so a silent name delays only sessions that want
//! the name. A response with a fault makes nothing current: the rejected resources are as old as before.
//! Heartbeats say nothing about existence (TTL-6). In REST a type is current while its polls are answered.

use crate::Time;

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

    pub(super) fn ask(&mut self, due: Time, signs: u64) {
        if *self != Currency::Current {
            *self = Currency::Asked { due, signs };
        }
    }

    /// A response arrived, and more is necessary.
    pub(super) fn note_response(&mut self, is_good: bool) {
        if *self != Currency::Current {
            *self = if is_good { Currency::Answering } else { Currency::Rejected };
        }
    }

    /// The first answers have settled.
    pub(super) fn settle(&mut self, is_rejected: bool) {
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
