//! A message of an answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sluice_xds::{Constraints, Resource, ResourceName, Status, Version};

/// The maximum size of a message of a type with splittable answers. gRPC's default limit is 4 MiB (SST-13).
pub const CHUNK_BYTES: usize = 3 << 20;

/// One message.
#[derive(Clone, Debug, Default)]
pub struct Chunk {
    pub resources: Vec<Arc<Resource>>,
    pub removed: Vec<ResourceName>,
    /// Variants to remove by their constraints (DYN-6).
    pub removed_variants: Vec<(ResourceName, Arc<Constraints>)>,
    /// Delta only: heartbeats of resources, with name, version and TTL (TTL-4).
    pub beats: Vec<Arc<Resource>>,
    /// The remaining TTLs, for resources with a TTL.
    pub ttls: BTreeMap<ResourceName, Duration>,
    /// Unavailable names, and the reasons (ERR-1).
    pub errors: Vec<(ResourceName, Arc<Status>)>,
    /// The version of exactly this content (RLY-31).
    pub version: Version,
}

impl Chunk {
    pub(super) fn size(&self) -> usize {
        let resources: usize = self.resources.iter().map(|resource| resource.size()).sum();
        resources + self.removed.iter().map(size_of).sum::<usize>()
    }

    /// The names of its resources, heartbeats included.
    pub(in crate::downstream) fn names(&self) -> impl Iterator<Item = &ResourceName> {
        self.resources.iter().chain(&self.beats).map(|resource| &resource.name)
    }
}

/// The approximate size of an entry without content on the wire, in bytes.
pub(super) fn size_of(name: &ResourceName) -> usize {
    name.as_str().len() + 64
}

pub(super) fn version_of(resources: &[Arc<Resource>]) -> Version {
    resources.iter().fold(Version::default(), |sum, resource| sum.plus(resource.version))
}

/// Cuts an answer into messages below [`CHUNK_BYTES`] (SST-13). Removals come last, because something may
/// still refer to the names; with `removals_first`, where they make room for the rest (DEL-26), they come
/// first.
pub(super) fn split(
    resources: impl Iterator<Item = Arc<Resource>>,
    removed: BTreeSet<ResourceName>,
    removals_first: bool,
) -> Vec<Chunk> {
    let mut chunks: Vec<Chunk> = Vec::new();
    let mut bytes = 0;
    let (first, last) = if removals_first { (removed, BTreeSet::new()) } else { (BTreeSet::new(), removed) };
    let remove = |chunks: &mut Vec<Chunk>, bytes: &mut usize, names: BTreeSet<ResourceName>| {
        for name in names {
            // The name, a tag and a length.
            let chunk = open(chunks, bytes, name.as_str().len() + 8);
            chunk.removed.push(name);
        }
    };
    remove(&mut chunks, &mut bytes, first);
    for resource in resources {
        let chunk = open(&mut chunks, &mut bytes, resource.size());
        chunk.version = chunk.version.plus(resource.version);
        chunk.resources.push(resource);
    }
    remove(&mut chunks, &mut bytes, last);
    chunks
}

/// The message for `size` more bytes: the last message, or a new message if the last is full.
pub(super) fn open<'a>(chunks: &'a mut Vec<Chunk>, bytes: &mut usize, size: usize) -> &'a mut Chunk {
    if chunks.is_empty() || *bytes + size > CHUNK_BYTES {
        *bytes = 0;
        chunks.push(Chunk::default());
    }
    *bytes += size;
    let last = chunks.len() - 1;
    &mut chunks[last]
}
