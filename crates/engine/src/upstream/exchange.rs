//! The exchange of requests and responses about one type on the present stream.

use std::collections::BTreeSet;

use super::repetition::Repetition;
use super::request_size::PendingNames;
use crate::Time;
use sluice_xds::ResourceName;

/// The record of a type on the present stream. A new stream starts with an empty record (DEL-28).
#[derive(Debug, Default)]
pub(super) struct TypeExchange {
    pub(super) requests: WrittenRequests,
    pub(super) responses: ReceivedResponses,
    /// The names that wait for the next request.
    pub(super) pending: PendingNames,
    /// The server marks whole sets ([`super::type_request`]).
    pub(super) has_marks: bool,
    /// SotW, names: the silence since a request for more names.
    pub(super) silence: TypeSilence,
    /// The responses in close sequence, and the answer that waits because of them.
    pub(super) repetition: Repetition,
}

/// The requests of one type.
#[derive(Debug, Default)]
pub(super) struct WrittenRequests {
    pub(super) count: u64,
    /// The first request was for the wildcard.
    pub(super) for_wildcard: bool,
    /// The first request was for globs only.
    pub(super) for_globs: bool,
    /// The first request claims the held versions, so that a server may answer by silence (DEL-35, STR-10).
    pub(super) may_be_silent: bool,
    /// The time of the last request for new names, if no response of the type has arrived since.
    pub(super) unanswered: Option<Time>,
}

impl WrittenRequests {
    /// The first request has been written.
    pub(super) fn is_asked(&self) -> bool {
        self.count > 0
    }

    /// The server has answered the last request for new names.
    pub(super) fn is_answered(&self) -> bool {
        self.is_asked() && self.unanswered.is_none()
    }
}

/// The responses of one type.
#[derive(Debug, Default)]
pub(super) struct ReceivedResponses {
    /// The nonce of the last response, or empty before the first response (ACK-9).
    pub(super) nonce: String,
    /// The last response was accepted.
    pub(super) is_accepted: bool,
    /// The server has spoken of the type: a usable response arrived.
    pub(super) has_usable: bool,
    /// SotW, names: a response without a fault arrived, so the answered names are current.
    pub(super) has_good: bool,
    /// A response was rejected.
    pub(super) has_rejected: bool,
}

/// The silence of a server about a type since a request for more names (ADR 54).
#[derive(Debug, Default)]
pub(super) struct TypeSilence {
    /// The names that requests have added since the last response, without the names of the first request,
    /// which lists everything.
    pub(super) added: BTreeSet<ResourceName>,
    wait: Option<AnswerWait>,
}

#[derive(Clone, Copy, Debug)]
struct AnswerWait {
    /// The end of the time for an answer; `None` after the end.
    due: Option<Time>,
    /// The number of the stream's signs of life at the request.
    signs: u64,
}

impl TypeSilence {
    /// A request adds names. The first such request since the last response counts.
    pub(super) fn begin(&mut self, due: Time, signs: u64) {
        self.wait.get_or_insert(AnswerWait { due: Some(due), signs });
    }

    pub(super) fn due(&self) -> Option<Time> {
        self.wait.and_then(|wait| wait.due)
    }

    /// Returns true if the time for an answer is over on a stream without a sign of life since the request.
    pub(super) fn run_out(&mut self, now: Time, signs: u64) -> bool {
        let Some(wait) = &mut self.wait else { return false };
        if wait.due.is_some_and(|due| due <= now) {
            wait.due = None;
        }
        wait.due.is_none() && signs <= wait.signs
    }

    /// Returns true if the server had its time for an answer, and the stream is alive.
    pub(super) fn is_proven(&self, signs: u64) -> bool {
        self.wait.is_some_and(|wait| wait.due.is_none() && signs > wait.signs)
    }

    /// Waits no longer: nothing is in doubt, whatever the server says.
    pub(super) fn end(&mut self) {
        self.wait = None;
    }
}
