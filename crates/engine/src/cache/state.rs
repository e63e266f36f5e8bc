//! The states of names: PRESENT, ABSENT or UNKNOWN (RLY-2), and as gRFC A88 names them (DAT-5, DAT-8). The
//! number of names in each state.

use std::sync::Arc;

use imbl::OrdMap;

use crate::annotations::{Annotations, ErrorKind};
use crate::time::ReceivedAt;
use crate::upstream::Cause;
use sluice_xds::{Code, Resource, ResourceName};

/// The approximate cost of a lingering name in all tables, beside its text and content. Measured as the
/// resident memory of a process with 100,000 lingering names.
pub const UNWATCHED_BYTES: usize = 850;

/// The bytes of a resource, with its part of all tables.
pub fn weight(resource: &Arc<Resource>) -> usize {
    resource.size() + UNWATCHED_BYTES
}

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

/// The state of one name, and whether a copy is held. There is no `does_not_exist_but_cached`: a deletion
/// drops the copy, and each client decides about its own copy (DAT-4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryState {
    Requested,
    DoesNotExist,
    Acked,
    Nacked,
    NackedButCached,
    Timeout,
    ReceivedError,
    ReceivedErrorButCached,
}

impl EntryState {
    pub const ALL: [EntryState; 8] = [
        EntryState::Requested,
        EntryState::DoesNotExist,
        EntryState::Acked,
        EntryState::Nacked,
        EntryState::NackedButCached,
        EntryState::Timeout,
        EntryState::ReceivedError,
        EntryState::ReceivedErrorButCached,
    ];

    /// The state of a name, from its entry and its error.
    ///
    /// An unreachable server is no state, because the resource may be unaffected. A second error for the
    /// absence of a name is no state either.
    pub fn of(entry: &Known, name: &ResourceName, annotations: &Annotations) -> EntryState {
        let kind = annotations.error_kind(name);
        match (entry, kind) {
            (Known::Present(_), _) => EntryState::of_member(name, annotations),
            (_, Some(ErrorKind::Malformed)) => EntryState::Nacked,
            (Known::Unknown, Some(ErrorKind::Timeout)) => EntryState::Timeout,
            (Known::Unknown, Some(ErrorKind::Reported)) => EntryState::ReceivedError,
            (Known::Unknown, Some(ErrorKind::Unreachable) | None) => EntryState::Requested,
            (Known::Absent(_), Some(ErrorKind::Reported)) if !is_not_found(name, annotations) => {
                EntryState::ReceivedError
            }
            (Known::Absent(_), _) => EntryState::DoesNotExist,
        }
    }

    /// The state of a held resource.
    pub fn of_member(name: &ResourceName, annotations: &Annotations) -> EntryState {
        match annotations.error_kind(name) {
            Some(ErrorKind::Malformed) => EntryState::NackedButCached,
            Some(ErrorKind::Reported) => EntryState::ReceivedErrorButCached,
            Some(ErrorKind::Timeout | ErrorKind::Unreachable) | None => EntryState::Acked,
        }
    }

    /// The value of the metric (DAT-8).
    pub fn label(self) -> &'static str {
        match self {
            EntryState::Requested => "requested",
            EntryState::DoesNotExist => "does_not_exist",
            EntryState::Acked => "acked",
            EntryState::Nacked => "nacked",
            EntryState::NackedButCached => "nacked_but_cached",
            EntryState::Timeout => "timeout",
            EntryState::ReceivedError => "received_error",
            EntryState::ReceivedErrorButCached => "received_error_but_cached",
        }
    }
}

fn is_not_found(name: &ResourceName, annotations: &Annotations) -> bool {
    annotations.error(name).is_some_and(|error| error.code == Code::NotFound)
}

/// The number of names in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateCounts([usize; EntryState::ALL.len()]);

impl StateCounts {
    pub fn get(&self, state: EntryState) -> usize {
        self.0[state as usize]
    }

    pub fn add(&mut self, state: EntryState, count: usize) {
        self.0[state as usize] += count;
    }

    pub fn sub(&mut self, state: EntryState, count: usize) {
        self.0[state as usize] -= count;
    }

    /// Counts the members of a collection, at the cost of its errors. `is_member` separates members from
    /// other names with errors.
    pub fn add_members(
        &mut self,
        len: usize,
        annotations: &Annotations,
        is_member: impl Fn(&ResourceName) -> bool,
    ) {
        self.add(EntryState::Acked, len);
        for (name, _) in annotations.errors().filter(|(name, _)| is_member(name)) {
            self.sub(EntryState::Acked, 1);
            self.add(EntryState::of_member(name, annotations), 1);
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
    pub(super) fn count(&mut self, entry: &Known, state: EntryState, joins: bool) {
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
