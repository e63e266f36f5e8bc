//! Resources that the server forbids to cache or share (CCH-1).
//!
//! A source that serves everyone never stores such a resource. The source reports the waiting sessions; each
//! has to ask for itself, through a source of its own. The source remembers the names: the server has
//! answered, and sends no second answer for sessions that join late.

use std::collections::BTreeSet;

use crate::xds::ResourceName;

/// The private names of one type that are subscribed to, and whether the wildcard has private members.
#[derive(Debug, Default)]
pub(super) struct Private {
    pub(super) names: BTreeSet<ResourceName>,
    pub(super) wildcard: bool,
}

impl Private {
    pub(super) fn forget(&mut self, names: &[ResourceName]) {
        for name in names {
            self.names.remove(name);
        }
    }
}
