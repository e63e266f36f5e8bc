//! The variants that a client with dynamic parameters was told (TP2).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluice_xds::{Constraints, ResourceName};

/// The constraints of a variant; `None` for a resource without constraints.
pub(super) type ToldVariant = Option<Arc<Constraints>>;

/// The variants that a client was told under its names with parameters. For SotW clients, only the existence
/// of this value matters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ToldVariants {
    pub(in crate::downstream) held: BTreeMap<ResourceName, BTreeSet<ToldVariant>>,
}

impl ToldVariants {
    pub(in crate::downstream) fn add(&mut self, other: ToldVariants) {
        for (name, constraints) in other.held {
            self.held.entry(name).or_default().extend(constraints);
        }
    }
}
