//! The state of the machine for the admin listener.

use crate::engine::Time;
use crate::engine::upstream::machine::Phase;
use crate::engine::upstream::machine::Upstream;
use crate::engine::upstream::type_request::{TypeRequest, Want};
use crate::xds::{ResourceName, Status, TypeUrl, Variant};

/// The state of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing is wanted.
    Closed,
    /// The next attempt is at `until`.
    Waiting {
        until: Time,
    },
    Opening,
    Open,
}

/// A type with wanted resources.
#[derive(Clone, Debug)]
pub struct TypeView<'a> {
    pub type_url: &'a TypeUrl,
    pub wildcard: bool,
    /// The number of subscribed names; for a wildcard, the number of held members.
    pub names: usize,
    /// The nonce of the last response on this stream.
    pub nonce: &'a str,
    /// SotW: the last accepted `version_info`.
    pub version: &'a str,
    pub acks: u64,
    pub nacks: u64,
}

impl Upstream {
    pub fn state(&self) -> State {
        match &self.phase {
            Phase::Closed => State::Closed,
            Phase::Waiting { until } => State::Waiting { until: *until },
            Phase::Opening => State::Opening,
            Phase::Open(_) => State::Open,
        }
    }

    /// Returns true if the server answers, or may still answer: a stream is open, or polls succeed.
    pub fn is_reached(&self) -> bool {
        matches!(self.phase, Phase::Open(_)) || (self.polls() && self.last_error.is_none())
    }

    /// The time at which the state was entered.
    pub fn since(&self) -> Time {
        self.since
    }

    /// Returns true if a wildcard counts as whole, and more of it may come.
    pub(in crate::engine) fn is_provisional(&self, type_url: &TypeUrl) -> bool {
        let want = self.subscriptions.get(type_url).map(|of_type| &of_type.want);
        matches!(want, Some(Want::Wildcard(wildcard)) if wildcard.is_provisional())
    }

    /// The server sets marks on the open stream (ADR 14).
    pub fn has_marks(&self) -> bool {
        matches!(&self.phase, Phase::Open(stream) if stream.has_marks)
    }

    /// The variant of the stream, or of the next stream as things stand.
    pub fn variant(&self) -> Variant {
        self.variant
    }

    /// The reason for the unreachability, or for the end of the last stream. `None` from the next response
    /// on.
    pub fn last_error(&self) -> Option<&Status> {
        self.last_error.as_ref()
    }

    /// The server's own identifier, which may change at any time.
    pub fn control_plane(&self) -> &str {
        &self.control_plane
    }

    /// The types with wanted resources, in rank order.
    pub fn types(&self) -> impl Iterator<Item = TypeView<'_>> {
        let wanted = self.subscriptions.values().filter(|subscription| !subscription.wants_nothing());
        wanted.map(|subscription| TypeView {
            type_url: &subscription.type_url,
            wildcard: matches!(subscription.want, Want::Wildcard(_)),
            names: match &subscription.want {
                Want::Nothing => 0,
                Want::Names(names) => names.len(),
                Want::Globs(globs) => globs.len(),
                Want::Wildcard(wildcard) => wildcard.members.len(),
            },
            nonce: &subscription.said.nonce,
            version: &subscription.accepted,
            acks: subscription.acks,
            nacks: subscription.nacks,
        })
    }

    /// The bytes of all variants, which the machine keeps.
    pub fn variant_bytes(&self) -> usize {
        let of_type = |subscription: &TypeRequest| match &subscription.want {
            Want::Names(names) => names.variants.as_ref().map_or(0, |variants| variants.bytes()),
            _ => 0,
        };
        self.subscriptions.values().map(of_type).sum()
    }

    /// The wanted names of a type, including globs, sorted. Empty for a wildcard.
    pub fn names(&self, type_url: &TypeUrl) -> impl Iterator<Item = &ResourceName> {
        let want = self.subscriptions.get(type_url).map(|subscription| &subscription.want);
        let (names, globs) = match want {
            Some(Want::Names(names)) => (Some(names), None),
            Some(Want::Globs(globs)) => (None, Some(globs)),
            Some(Want::Nothing | Want::Wildcard(_)) | None => (None, None),
        };
        let names = names.into_iter().flat_map(|names| names.iter());
        names.chain(globs.into_iter().flat_map(|globs| globs.iter()))
    }
}
