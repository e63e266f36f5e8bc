//! What the admin may see of the machine.

use crate::engine::Time;
use crate::engine::upstream::machine::Phase;
use crate::engine::upstream::machine::Upstream;
use crate::engine::upstream::subscription::Want;
use crate::xds::{ResourceName, Status, TypeUrl, Variant};

/// Where the stream stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing is wanted.
    Closed,
    /// The next attempt comes then.
    Waiting {
        until: Time,
    },
    Opening,
    Open,
}

/// One type of which something is wanted.
#[derive(Clone, Debug)]
pub struct TypeView<'a> {
    pub type_url: &'a TypeUrl,
    pub wildcard: bool,
    /// How many names are subscribed to; of a wildcard, how many members are held.
    pub names: usize,
    /// Of the last response on this stream.
    pub nonce: &'a str,
    /// SotW: the `version_info` accepted last.
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

    /// Whether the server answers, or may still do so: a stream is open, or polls of it go well.
    pub fn is_reached(&self) -> bool {
        matches!(self.phase, Phase::Open(_)) || (self.polls() && self.last_error.is_none())
    }

    /// When the state was entered.
    pub fn since(&self) -> Time {
        self.since
    }

    /// The server sets marks on the open stream (ADR 14).
    pub fn has_marks(&self) -> bool {
        matches!(&self.phase, Phase::Open(stream) if stream.has_marks)
    }

    /// The variant that is spoken, or will be by the next stream as things stand.
    pub fn variant(&self) -> Variant {
        self.variant
    }

    /// Why the server is unreachable, or why the last stream ended; `None` from the next response on.
    pub fn last_error(&self) -> Option<&Status> {
        self.last_error.as_ref()
    }

    /// What the server calls itself; it may change at any time.
    pub fn control_plane(&self) -> &str {
        &self.control_plane
    }

    /// The types of which something is wanted, in rank order.
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

    /// The names of a type that are wanted, those of globs too, sorted; none for a wildcard.
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
