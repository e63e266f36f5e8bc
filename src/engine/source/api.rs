//! The settings of a source, and its actions for the driver.

use std::time::Duration;

use crate::engine::cache::SessionId;
use crate::engine::source::attachment::StreamIndex;
use crate::engine::upstream;
use crate::xds::{ResourceName, TypeUrl};

/// The limits and delays of a source.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The time that names, wildcards and streams outlive their last session (RLY-60).
    pub linger: Duration,
    /// The maximum size of all lingering resources.
    pub unwatched_bytes_max: usize,
    /// Updates that follow another update within this time are sent together (RLY-54). Zero: never.
    pub coalescing: Duration,
    /// Sessions are woken when the server is lost or heard again, because their choice of server depends on
    /// the event.
    pub tells_reach: bool,
    /// The source serves a single stream, and so may take resources that must not be shared (CCH-1).
    pub private: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            linger: Duration::from_secs(30),
            unwatched_bytes_max: 256 << 20,
            coalescing: Duration::from_millis(10),
            tells_reach: false,
            private: false,
        }
    }
}

/// An action for the driver.
#[derive(Debug)]
pub enum Output {
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
