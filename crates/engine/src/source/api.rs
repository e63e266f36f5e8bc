//! The settings of a source, and its actions for the driver.

use std::time::Duration;

use crate::cache::SessionId;
use crate::upstream::{self, UnaskedRule, UpstreamSettings};
use sluice_setting::{Setting, bytes, hours, ms, seconds, settings, time};
use sluice_xds::{ResourceName, TypeUrl};

/// Resources kept without a session, per source: the maximum size. A client that returns within `linger`
/// finds them; under pressure the oldest go first.
pub const UNWATCHED_BYTES: Setting<usize> = Setting::new("unwatched_bytes", 64 << 20, bytes(0..=1 << 40));

settings! {
    /// The limits and delays of a source.
    #[derive(Clone, Debug, PartialEq)]
    pub struct SourceSettings {
        /// Updates that follow another update within this time are sent together (RLY-54). Zero: never. Above
        /// 200 ms, clients would notice the delay.
        coalescing: Duration = ms(10), time(ms(0)..=ms(200));
        /// The time that names, wildcards and streams outlive their last session (RLY-60): 30 s, so that a
        /// client that restarts finds its resources.
        linger: Duration = seconds(30), time(ms(0)..=hours(1));
    }
    fixed {
        /// In place of `linger` for a class of a single client (RLY-60): to the server, the client has left.
        /// A second, so that a client finds the resources on another stream, if opened at once. The stated
        /// `linger` holds for all classes.
        linger_of_one: Duration = seconds(1);
        /// See [`UNWATCHED_BYTES`].
        unwatched_bytes: usize = UNWATCHED_BYTES.default;
        /// The maximum weight of the content (ADR 68). `None`: there is no maximum.
        content_bytes: Option<usize> = None;
        /// Sessions are woken when the server is lost or heard again, because their choice of server depends
        /// on the event.
        tells_reach: bool = false;
        /// For a source of one client: the maximum number of names of a type with unasked resources (DEL-17).
        unasked_names: Option<usize> = None;
        /// The source serves a single stream, and so may take resources that must not be shared (CCH-1).
        private: bool = false;
    }
}

impl SourceSettings {
    /// The settings of the source's streams.
    pub(super) fn for_streams(&self, settings: &UpstreamSettings) -> UpstreamSettings {
        let taken = |names_max| UnaskedRule::Taken { names_max };
        let unasked = self.unasked_names.map_or(UnaskedRule::Ignored, taken);
        // Streams without subscriptions stay as long as lingering names.
        UpstreamSettings { linger: self.linger, unasked, ..settings.clone() }
    }
}

/// Up to this many resources may leave in one response, whatever the size of the collection.
pub const NAMES_MIN: usize = 10;

/// Whether the removal of `removed` of `before` resources is a mass deletion.
pub fn is_mass(removed: usize, before: usize) -> bool {
    removed > NAMES_MIN && removed > before / 2
}

/// The index of a stream within its source.
pub type StreamIndex = usize;

/// An action for the driver.
#[derive(Debug)]
pub enum SourceOutput {
    /// For the stream with this index: open, close, send, probe, or an event to note.
    Upstream(StreamIndex, upstream::Output),
    /// A session wants this type, and the server has no service for the type: the names stay unknown.
    Unserved(TypeUrl),
    /// The snapshot has changes for these sessions. Sorted, without duplicates.
    Wake(Vec<SessionId>),
    /// The server forbids caching or sharing of these names, or (`None`) of members of the wildcard. These
    /// sessions wait for some of the resources, and have to ask for themselves (CCH-1).
    DoNotCache { type_url: TypeUrl, names: Vec<Option<ResourceName>>, sessions: Vec<SessionId> },
    /// The server has confirmed all resources that were restored after a restart of the relay (I14).
    Confirmed,
}
