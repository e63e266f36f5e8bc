//! The requests that were written about one type.

use std::collections::BTreeSet;

use crate::engine::Time;
use crate::xds::ResourceName;

/// What has been said about a type on the present stream. A new stream starts with nothing said (DEL-28).
#[derive(Debug, Default)]
pub(super) struct Said {
    /// The first request has been written.
    pub(super) asked: bool,
    /// It was for the wildcard.
    pub(super) for_wildcard: bool,
    /// It was for globs only.
    pub(super) for_globs: bool,
    /// The server has spoken of the type: a response came from which something can be derived.
    pub(super) spoken: bool,
    /// SotW, names: a response without a fault came, so that the names it answers are current.
    pub(super) is_good: bool,
    /// The first request claims what is held, so that a server may answer it by silence (DEL-35, STR-10).
    pub(super) may_be_silent: bool,
    /// The server marks what is whole ([`super::marks`]).
    pub(super) has_marks: bool,
    /// How many requests of the type were written.
    pub(super) requests: u64,
    /// Of the last response, empty before (ACK-9).
    pub(super) nonce: String,
    /// When something was asked for last, if no response of the type came since.
    pub(super) unanswered: Option<Time>,
    /// Wanted names (`*` for the wildcard) that no request lists yet.
    pub(super) enter: BTreeSet<ResourceName>,
    /// Names that the last request lists but that are no longer wanted.
    pub(super) leave: BTreeSet<ResourceName>,
}
