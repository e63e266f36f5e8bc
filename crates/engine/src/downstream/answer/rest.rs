//! The rest of an answer with several messages.
//!
//! All messages are built together with the first message, and the sender keeps them. From then on the
//! stream needs no snapshot for the rest, only names, in case the answer begins anew before the last
//! message. So a client that stops reading in the middle keeps no resources alive that every other client
//! has moved on from (RLY-55).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use crate::downstream::answer::chunk::Chunk;
use crate::view::View;
use sluice_xds::{Constraints, Resource, ResourceName, Version};

/// The names in a message of a longer answer, shared by all clients of the message.
#[derive(Debug)]
pub struct ToldNames {
    /// Resources under their own names and their aliases.
    pub(in crate::downstream) sent: Box<[(ResourceName, Version)]>,
    pub(in crate::downstream) beats: Box<[ResourceName]>,
    pub(in crate::downstream) removed: Box<[ResourceName]>,
    pub(in crate::downstream) errors: Box<[ResourceName]>,
    /// The aliases among the names.
    aliases: BTreeSet<ResourceName>,
    /// The content after this message of a client with the content that the answer began with, by part. The
    /// first client that needs the content makes it for all clients.
    so_far: Box<[OnceLock<Arc<View>>]>,
}

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

fn names(resource: &Arc<Resource>) -> impl Iterator<Item = &ResourceName> {
    std::iter::once(&resource.name).chain(&resource.aliases)
}

impl ToldNames {
    /// `parts`: the number of parts of the answer.
    pub(super) fn of(chunk: &Chunk, parts: usize) -> ToldNames {
        let with_version = |resource| names(resource).map(|name| (name.clone(), resource.version));
        let aliases = chunk.resources.iter().chain(&chunk.beats).flat_map(|resource| &resource.aliases);
        ToldNames {
            sent: chunk.resources.iter().flat_map(with_version).collect(),
            beats: chunk.beats.iter().flat_map(names).cloned().collect(),
            removed: chunk.removed.iter().cloned().collect(),
            errors: chunk.errors.iter().map(|(name, _)| name.clone()).collect(),
            aliases: aliases.cloned().collect(),
            so_far: (0..parts).map(|_| OnceLock::new()).collect(),
        }
    }

    /// The content of a part after this message, for a client that has the content of [`Self::so_far`] of the
    /// message before. `None` if the message has aliases, because these make a part due again.
    pub(in crate::downstream) fn so_far(
        &self,
        part: usize,
        make: impl FnOnce() -> Arc<View>,
    ) -> Option<&Arc<View>> {
        let so_far = self.so_far.get(part).filter(|_| self.aliases.is_empty())?;
        Some(so_far.get_or_init(make))
    }

    pub(in crate::downstream) fn names(&self) -> impl Iterator<Item = &ResourceName> {
        self.sent.iter().map(|(name, _)| name)
    }

    /// The aliases of the resources in the message.
    pub(in crate::downstream) fn aliases(&self) -> impl Iterator<Item = &ResourceName> {
        self.aliases.iter()
    }

    /// The names whose state the message tells: present, refreshed or removed.
    pub(in crate::downstream) fn answered(&self) -> BTreeSet<&ResourceName> {
        let names = self.names().chain(&self.beats).filter(|name| !self.aliases.contains(*name));
        names.chain(&self.removed).collect()
    }
}
