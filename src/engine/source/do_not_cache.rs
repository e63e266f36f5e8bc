//! Resources that the server forbids to cache or share (CCH-1).
//!
//! A source that serves everyone never stores such a resource. The source reports the waiting sessions; each
//! has to ask for itself, through a source of its own. The source remembers the names: the server has
//! answered, and sends no second answer for sessions that join late.

use std::collections::BTreeSet;

use crate::engine::collection::Collection;
use crate::xds::ResourceName;

/// The private names of one type that are subscribed to, and whether the wildcard has private members.
#[derive(Debug, Default)]
pub(super) struct PrivateNames {
    pub(super) names: BTreeSet<ResourceName>,
    pub(super) wildcard: bool,
}

impl PrivateNames {
    /// The private names in a collection; `None` for the wildcard.
    pub(super) fn names_in(&self, collection: &Collection) -> Vec<Option<ResourceName>> {
        match collection {
            Collection::Wildcard => self.wildcard.then_some(None).into_iter().collect(),
            // Iterates over the smaller of the two.
            Collection::Globs(names) | Collection::Names(names) if self.names.len() < names.len() => {
                self.names.iter().filter(|name| names.contains(name)).cloned().map(Some).collect()
            }
            Collection::Globs(names) | Collection::Names(names) => {
                names.iter().filter(|name| self.names.contains(*name)).cloned().map(Some).collect()
            }
        }
    }

    pub(super) fn forget(&mut self, names: &[ResourceName]) {
        for name in names {
            self.names.remove(name);
        }
    }
}
