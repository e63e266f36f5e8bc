//! The client's interest in a type, as its requests state it, and the effect of a request on the parts.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::collection::{HashSeed, NameSet};
use crate::downstream::answer::client_features::ClientFeatures;
use crate::downstream::subscription::part::Key;
use sluice_xds::{ResourceName, Version};

/// Memory of the requests of a type so far.
#[derive(Debug)]
pub(in crate::downstream) struct Interest {
    /// A hash of the last SotW list, so that an ACK with the same list costs no comparison of sets.
    fingerprint: u64,
    /// A request of the type came.
    is_seen: bool,
    /// Some request had a non-empty list: from then on an empty list means no names (SUB-10).
    has_named: bool,
    /// An empty first request means the wildcard (SUB-9, SUB-15).
    pub(in crate::downstream) legacy_wildcard: bool,
    /// The client's capabilities for the type.
    pub(in crate::downstream) features: ClientFeatures,
}

impl Default for Interest {
    fn default() -> Interest {
        let features = ClientFeatures::default();
        Interest { fingerprint: 0, is_seen: false, has_named: false, legacy_wildcard: true, features }
    }
}

impl Interest {
    /// Whether no request of the type came yet.
    pub(super) fn is_new(&self) -> bool {
        !self.is_seen
    }

    /// Notes a request. Returns whether it is the first.
    pub(super) fn note_request(&mut self) -> bool {
        !std::mem::replace(&mut self.is_seen, true)
    }

    /// Whether this is the list of the last SotW request that was taken.
    pub(super) fn has_list(&self, names: &[ResourceName], seed: HashSeed) -> bool {
        self.is_seen && fingerprint_of(names, seed) == self.fingerprint
    }

    /// Notes the list of a SotW request. Returns whether the list differs from the last one.
    pub(super) fn note_list(&mut self, names: &[ResourceName], is_first: bool, seed: HashSeed) -> bool {
        let fingerprint = fingerprint_of(names, seed);
        if !is_first && fingerprint == self.fingerprint {
            return false;
        }
        self.fingerprint = fingerprint;
        self.has_named |= !names.is_empty();
        true
    }

    /// Whether an empty list of a SotW client means the wildcard. The implicit wildcard lasts while every
    /// request is empty (SUB-9); an explicit list ends the wildcard (SUB-11).
    pub(super) fn means_wildcard(&self) -> bool {
        !self.has_named && self.legacy_wildcard
    }
}

fn fingerprint_of(names: &[ResourceName], seed: HashSeed) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    seed.0.hash(&mut hasher);
    names.hash(&mut hasher);
    hasher.finish()
}

/// The change of a session's collections in a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::downstream) struct InterestChange {
    pub(in crate::downstream) wildcard: Option<bool>,
    /// The changed sets of names and globs, by part.
    pub(in crate::downstream) names: BTreeMap<Key, NameSetChange>,
    /// Spellings have changed, or names were refused.
    pub(super) non_canonical: bool,
    /// In SotW, the number of names that came or went, or are newly refused or spelled otherwise.
    pub(in crate::downstream) moved: usize,
    /// Names that the client gave up, and that the wildcard or a glob may cover, with the versions that it
    /// accepted.
    pub(in crate::downstream) left: Vec<(ResourceName, Version)>,
}

/// The new set of names.
#[derive(Debug)]
pub(in crate::downstream) struct NameSetChange(pub(in crate::downstream) Arc<NameSet>);

impl PartialEq for NameSetChange {
    fn eq(&self, other: &Self) -> bool {
        self.0.id() == other.0.id()
    }
}

impl Eq for NameSetChange {}
