//! Snapshots: what a source holds at a moment, immutable and cheap to share.

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::OrdMap;

use super::cache::Known;
use super::interest::{Interest, NameSet, SetId};
use super::remarks::Remarks;
use super::view::{Leaving, View};
use crate::xds::{Resource, ResourceName, TypeUrl};

/// Resources by name, sorted, persistent.
pub type Bodies = OrdMap<ResourceName, Arc<Resource>>;

/// Names and what is known of each, sorted, persistent.
pub type Names = OrdMap<ResourceName, Known>;

/// A set that somebody watches, and what it amounts to.
#[derive(Clone, Debug)]
pub struct WatchedSet {
    pub names: Arc<NameSet>,
    pub view: Arc<View>,
}

/// One type of a snapshot.
#[derive(Clone, Debug, Default)]
pub struct TypeSnapshot {
    pub named: Names,
    pub sets: OrdMap<SetId, WatchedSet>,
    pub members: Bodies,
    /// `None` while nobody watches the wildcard.
    pub wildcard: Option<Arc<View>>,
    /// What is said of names beside their content; of members, their view says it.
    pub remarks: Remarks,
}

impl TypeSnapshot {
    /// The body behind a name of a view of this snapshot.
    pub fn body(&self, leaving: Leaving, name: &ResourceName) -> Option<&Arc<Resource>> {
        match leaving {
            Leaving::Wildcard => self.members.get(name),
            Leaving::Names => self.named.get(name)?.resource(),
        }
    }

    /// What an interest amounts to; `None` until the source has taken note of it.
    pub fn view(&self, interest: &Interest) -> Option<&Arc<View>> {
        match interest {
            Interest::Wildcard => self.wildcard.as_ref(),
            Interest::Names(names) => self.sets.get(&names.id()).map(|set| &set.view),
        }
    }
}

/// All types of one source. Cloning copies a few pointers per type.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    types: BTreeMap<TypeUrl, TypeSnapshot>,
}

impl Snapshot {
    pub fn of(&self, type_url: &TypeUrl) -> Option<&TypeSnapshot> {
        self.types.get(type_url)
    }

    pub fn types(&self) -> impl Iterator<Item = (&TypeUrl, &TypeSnapshot)> {
        self.types.iter()
    }

    pub(super) fn replace(&mut self, type_url: &TypeUrl, snapshot: TypeSnapshot) {
        self.types.insert(type_url.clone(), snapshot);
    }

    pub(super) fn remove(&mut self, type_url: &TypeUrl) {
        self.types.remove(type_url);
    }
}
