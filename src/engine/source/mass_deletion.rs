//! Mass deletions: resources that a server removed in one response, and that are still served for a while
//! (FU18).
//!
//! A response is held back if it removes more than [`NAMES_MIN`] resources of a collection and more than half
//! of them. Only the view of the clients is held back: the stream has accepted the response as sent.
//! So the relay never claims these resources to the server, on this stream or on the next (DEL-35); no later
//! response repeats their deletion; and a resource that the server sends again is a change. Held resources go
//! in one step, when their time is over or when the operator confirms the deletion.
//!
//! Other explicit removals are not held back: an expired time to live (TTL-8), NOT_FOUND in `resource_errors`
//! (ERR-5), a name without an answer (TMR-5). A first answer deletes nothing, so the guard ignores first
//! answers. After a failover, the first answer of the other server is obeyed, because the answer tells
//! nothing about the resources of the previous server.

use std::collections::{BTreeMap, VecDeque};

use crate::engine::Time;
use crate::engine::collection::CollectionKind;
use crate::engine::upstream::Cause;
use crate::xds::{ResourceName, TypeUrl};

/// Up to this many resources may leave in one response, whatever the size of the collection.
pub const NAMES_MIN: usize = 10;

/// Whether the removal of `removed` of `before` resources is a mass deletion.
pub fn is_mass(removed: usize, before: usize) -> bool {
    removed > NAMES_MIN && removed > before / 2
}

pub(super) type Key = (TypeUrl, CollectionKind);

/// The held-back resources of a source. Empty where responses are obeyed at once.
#[derive(Debug, Default)]
pub(super) struct Guard {
    pub(super) collections: BTreeMap<Key, Collection>,
    /// The times to check for expired holds, in the order of time.
    pub(super) queue: VecDeque<(Time, Key)>,
}

#[derive(Debug)]
pub(super) struct Collection {
    /// The number of the server that answered last.
    pub(super) server: u16,
    /// The start of the current, unbroken hold.
    pub(super) since: Time,
    /// The end of each hold; `None` until the operator confirms.
    pub(super) held: BTreeMap<ResourceName, (Option<Time>, Cause)>,
}

impl Guard {
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.queue.front().map(|(due, _)| *due)
    }

    pub(super) fn len(&self, type_url: &TypeUrl) -> usize {
        let of_type = self.collections.iter().filter(|((url, _), _)| url == type_url);
        of_type.map(|(_, collection)| collection.held.len()).sum()
    }

    /// These names are absent now for another reason than a mass deletion.
    pub(super) fn forget(&mut self, type_url: &TypeUrl, kind: CollectionKind, names: &[ResourceName]) {
        if let Some(collection) = self.collections.get_mut(&(type_url.clone(), kind)) {
            for name in names {
                collection.held.remove(name);
            }
        }
    }

    pub(super) fn forget_wildcard(&mut self, type_url: &TypeUrl) {
        self.collections.remove(&(type_url.clone(), CollectionKind::Wildcard));
    }

    pub(super) fn forget_type(&mut self, type_url: &TypeUrl) {
        if !self.collections.is_empty() {
            self.collections.retain(|(url, _), _| url != type_url);
        }
    }
}
