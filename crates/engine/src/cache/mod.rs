//! The states of the resources of one source: PRESENT, ABSENT or UNKNOWN (RLY-2).
//!
//! Named resources, the wildcard's members and the members of globs are in separate caches that never answer
//! for each other (RLY-13).

pub mod aliased;
mod content;
mod unasked;
pub mod departed;
pub mod expiry;
pub(super) mod members;
pub mod slots;
pub mod watchers;
pub mod state;
pub mod named;
pub mod wildcard;
pub mod globs;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use imbl::OrdMap;

use super::Time;
use super::change::{Altered, Change};
use super::time::ReceivedAt;
use super::upstream::Cause;
use super::view::ViewId;
use sluice_xds::{Resource, ResourceName, TypeUrl, Version};

/// The approximate cost of a lingering name in all tables, beside its text and content. Measured as the
/// resident memory of a process with 100,000 lingering names.
pub const UNWATCHED_BYTES: usize = 850;

pub use departed::Departed;
pub use expiry::Expiry;
pub use globs::GlobCache;
pub use named::NamedCache;
pub use state::{EntryState, StateCounts};
pub use unasked::UnaskedNames;
pub use wildcard::WildcardCache;

/// One downstream stream, as a source knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// A resource in a cache, and the time at which this content arrived. Equal content that arrives again, a
/// heartbeat and the repetition after a reconnect leave the time as it is (RLY-36, ADM-21).
#[derive(Clone, Debug)]
pub struct CachedResource {
    pub resource: Arc<Resource>,
    pub received_at: ReceivedAt,
}

/// By content, whenever it arrived.
impl PartialEq for CachedResource {
    fn eq(&self, other: &Self) -> bool {
        self.resource.version == other.resource.version
    }
}

/// The state of a name. There is no fourth state, and only `Absent` may ever become a removal (RLY-2).
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Known {
    #[default]
    Unknown,
    Present(CachedResource),
    Absent(Cause),
}

/// Resources by name, sorted, persistent.
pub type Bodies = OrdMap<ResourceName, Arc<Resource>>;

/// As [`Bodies`], with the times of receipt.
pub type CachedBodies = OrdMap<ResourceName, CachedResource>;

/// Names and their states, sorted, persistent.
pub type Names = OrdMap<ResourceName, Known>;

impl Known {
    pub fn resource(&self) -> Option<&Arc<Resource>> {
        self.cached().map(|cached| &cached.resource)
    }

    pub fn cached(&self) -> Option<&CachedResource> {
        match self {
            Known::Present(cached) => Some(cached),
            Known::Unknown | Known::Absent(_) => None,
        }
    }
}

/// The number of names in each state, and the bytes of the present resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    pub present: usize,
    pub absent: usize,
    pub unknown: usize,
    pub bytes: usize,
    pub states: StateCounts,
}

impl CacheCounts {
    /// Counts the state of a name, or discounts the state that the name leaves.
    fn count(&mut self, entry: &Known, state: EntryState, joins: bool) {
        let add = |total: &mut usize, part: usize| if joins { *total += part } else { *total -= part };
        add(&mut self.states.0[state as usize], 1);
        match entry {
            Known::Unknown => add(&mut self.unknown, 1),
            Known::Absent(_) => add(&mut self.absent, 1),
            Known::Present(cached) => {
                add(&mut self.present, 1);
                add(&mut self.bytes, cached.resource.size());
            }
        }
    }
}

/// Sessions whose view changed. May name a session more than once.
#[derive(Debug, Default)]
pub struct News {
    /// A requested name has become known: first answers are never delayed to join others (RLY-54).
    pub first: Vec<SessionId>,
    /// A known name has changed.
    pub update: Vec<SessionId>,
    /// The changes of content.
    pub changes: Vec<CacheChange>,
}

/// A change of the content of one cache.
#[derive(Debug)]
pub struct CacheChange {
    number: u64,
    at: Time,
    altered: Altered,
    version: Version,
    sessions: usize,
}

impl CacheChange {
    pub fn of(self, type_url: &TypeUrl) -> Change {
        let CacheChange { number, at, altered, version, sessions } = self;
        Change { number, type_url: type_url.clone(), at, altered, version, sessions }
    }
}

impl News {
    /// Notes a change of content with this number, for the sessions that watch the content.
    fn note_change(
        &mut self,
        number: Option<u64>,
        altered: Option<Box<Altered>>,
        version: Version,
        sessions: usize,
        at: Time,
    ) {
        if let (Some(number), Some(altered)) = (number, altered) {
            self.changes.push(CacheChange { number, at, altered: *altered, version, sessions });
        }
    }
}

/// Gives each new view its id and the time of its content's last change.
#[derive(Debug)]
pub struct Stamp {
    source: u64,
    count: u64,
    now: Time,
    /// The number of changes of content so far.
    changes: u64,
}

impl Stamp {
    pub fn new(source: u64) -> Stamp {
        Stamp { source, count: 0, now: Time::ZERO, changes: 0 }
    }

    pub fn at(&mut self, now: Time) -> &mut Stamp {
        self.now = now;
        self
    }

    /// The number of the latest change of content.
    pub fn last_change(&self) -> u64 {
        self.changes
    }

    /// Numbers a change of content, if there is one.
    fn number(&mut self, altered: Option<&Altered>) -> Option<u64> {
        altered?;
        self.changes += 1;
        Some(self.changes)
    }

    fn next(&mut self) -> (ViewId, Time) {
        self.count += 1;
        (ViewId::fresh(self.source, self.count), self.now)
    }
}
