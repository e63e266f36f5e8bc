//! The requests that were written about one type.

use std::collections::BTreeSet;

use super::repetition::Repetition;
use super::silence::Silence;
use super::unasked::Left;
use crate::engine::Time;
use crate::xds::ResourceName;

/// The record of a type's requests on the present stream. A new stream starts with an empty record (DEL-28).
#[derive(Debug, Default)]
pub(super) struct Said {
    /// The first request has been written.
    pub(super) asked: bool,
    /// The first request was for the wildcard.
    pub(super) for_wildcard: bool,
    /// The first request was for globs only.
    pub(super) for_globs: bool,
    /// The server has spoken of the type: a usable response arrived.
    pub(super) spoken: bool,
    /// SotW, names: a response without a fault arrived, so the answered names are current.
    pub(super) is_good: bool,
    /// The first request claims the held versions, so that a server may answer by silence (DEL-35, STR-10).
    pub(super) may_be_silent: bool,
    /// The server marks whole sets (`type_request/marks.rs`).
    pub(super) has_marks: bool,
    /// SotW: no more names fit into a request.
    pub(super) is_full: bool,
    /// The number of written requests of the type.
    pub(super) requests: u64,
    /// The nonce of the last response, or empty before the first response (ACK-9).
    pub(super) nonce: String,
    /// The last response was accepted.
    pub(super) is_accepted: bool,
    /// The time of the last request for new names, if no response of the type has arrived since.
    pub(super) unanswered: Option<Time>,
    /// SotW, names: the silence since a request for more names.
    pub(super) silence: Silence,
    /// The responses in close sequence, and the answer that waits because of them.
    pub(super) repetition: Repetition,
    /// Wanted names (`*` for the wildcard) that no request lists yet.
    pub(super) enter: BTreeSet<ResourceName>,
    /// The names of `enter` that go before all later ones, in the parts of a long request.
    pub(super) turn: BTreeSet<ResourceName>,
    /// Unwanted names that the last request lists.
    pub(super) leave: BTreeSet<ResourceName>,
    /// Types with unasked resources: the unsubscribed names of the stream.
    pub(super) left: Left,
}

impl Said {
    /// A name is no longer wanted. Returns true if no request has listed the name.
    pub(super) fn withdraw(&mut self, name: &ResourceName) -> bool {
        self.turn.remove(name);
        self.enter.remove(name)
    }
}
