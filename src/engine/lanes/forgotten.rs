//! Names that a lane knows and the source does not know any more, or not again yet (WAV-5).

use std::collections::BTreeMap;

use crate::engine::cache::UNWATCHED_BYTES;
use crate::xds::{Resource, ResourceName};

/// The bound for one type of a lane. Beyond the bound the oldest names go.
const BYTES_MAX: usize = 64 << 20;

#[derive(Clone, Debug, Default)]
pub(super) struct Forgotten {
    /// In the order in which the source forgot them.
    queue: BTreeMap<u64, ResourceName>,
    places: BTreeMap<ResourceName, (u64, usize)>,
    count: u64,
    bytes: usize,
}

impl Forgotten {
    pub fn add(&mut self, name: &ResourceName, resource: Option<&Resource>) {
        if self.places.contains_key(name) {
            return;
        }
        let bytes = resource.map_or(0, Resource::size) + name.as_str().len() + UNWATCHED_BYTES;
        self.count += 1;
        self.bytes += bytes;
        self.queue.insert(self.count, name.clone());
        self.places.insert(name.clone(), (self.count, bytes));
    }

    pub fn remove(&mut self, name: &ResourceName) {
        if let Some((place, bytes)) = self.places.remove(name) {
            self.queue.remove(&place);
            self.bytes -= bytes;
        }
    }

    pub fn contains(&self, name: &ResourceName) -> bool {
        self.places.contains_key(name)
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn names(&self) -> impl Iterator<Item = &ResourceName> {
        self.places.keys()
    }

    /// Takes the oldest unwatched names beyond the bound out.
    pub fn evict(&mut self, is_watched: impl Fn(&ResourceName) -> bool) -> Vec<ResourceName> {
        if self.bytes <= BYTES_MAX {
            return Vec::new();
        }
        let mut over = self.bytes - BYTES_MAX;
        let mut gone = Vec::new();
        for name in self.queue.values().filter(|name| !is_watched(name)) {
            if over == 0 {
                break;
            }
            over = over.saturating_sub(self.places.get(name).map_or(0, |(_, bytes)| *bytes));
            gone.push(name.clone());
        }
        gone.iter().for_each(|name| self.remove(name));
        gone
    }
}
