//! The client side of the protocol.

mod api;
mod backoff;

pub use api::{Cause, Changes, Event, Input, Interest, Output, Scope, Settings, WildcardStyle};
pub use backoff::BackoffSettings;

use super::Time;
use crate::xds::{ResourceName, Status, TypeUrl, Variant};

/// Where the stream stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Closed,
    Waiting { until: Time },
    Opening,
    Open,
}

/// What the admin shows of one type.
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

#[derive(Debug)]
pub struct Upstream {}

impl Upstream {
    pub fn new(_settings: Settings) -> Self {
        Upstream {}
    }

    /// Adds to what is wanted. Names that are wanted already change nothing. To exchange names, subscribe first and
    /// unsubscribe after, else the stream may close in between.
    pub fn subscribe(&mut self, _type_url: &TypeUrl, _interest: Interest, _now: Time) {}

    /// Takes away from what is wanted and forgets what is held of it; late updates of it are ignored (RLY-61).
    pub fn unsubscribe(&mut self, _type_url: &TypeUrl, _interest: Interest, _now: Time) {}

    pub fn handle(&mut self, _input: Input, _now: Time) {}

    pub fn poll_output(&mut self) -> Option<Output> {
        None
    }

    pub fn poll_timeout(&self) -> Option<Time> {
        None
    }

    pub fn handle_timeout(&mut self, _now: Time) {}

    /// Nothing is wanted, and there is no stream.
    pub fn is_idle(&self) -> bool {
        true
    }

    pub fn state(&self) -> State {
        State::Closed
    }

    /// When the state was entered.
    pub fn since(&self) -> Time {
        Time::ZERO
    }

    pub fn variant(&self) -> Variant {
        Variant::Delta
    }

    /// Why the server is unreachable, or why the last stream ended; `None` from the first response on.
    pub fn last_error(&self) -> Option<&Status> {
        None
    }

    /// What the server calls itself (M4).
    pub fn control_plane(&self) -> &str {
        ""
    }

    pub fn types(&self) -> impl Iterator<Item = TypeView<'_>> {
        std::iter::empty()
    }

    /// The names of a type that are wanted, sorted; none for a wildcard.
    pub fn names(&self, _type_url: &TypeUrl) -> impl Iterator<Item = &ResourceName> {
        std::iter::empty()
    }
}
