//! Names that a lane knows, and the source does not know any more, or not again yet (WAV-5).

use std::collections::BTreeMap;

use crate::cache::UNWATCHED_BYTES;
use sluice_xds::{Resource, ResourceName};

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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use sluice_xds::{Any, Version};

    fn name(number: u8) -> ResourceName {
        ResourceName::new(&number.to_string())
    }

    /// A little more than a quarter of the bound.
    fn quarter() -> Resource {
        Resource {
            name: name(0),
            version: Version(1),
            body: Any { type_url: Arc::from("T"), value: Bytes::from(vec![0; BYTES_MAX / 4]) },
            aliases: Box::default(),
            ttl: None,
            do_not_cache: false,
            body_has_name: true,
            metadata: None,
            endpoints: None,
            constraints: None,
        }
    }

    #[test]
    fn wav_5_beyond_the_bound_the_oldest_unwatched_names_go() {
        let is_watched = |watched: &ResourceName| *watched == name(2);
        let resource = quarter();
        let add = |few: &mut Forgotten, numbers: &[u8]| {
            numbers.iter().for_each(|number| few.add(&name(*number), Some(&resource)));
        };
        let mut few = Forgotten::default();
        add(&mut few, &[2, 1, 0]);
        assert!(few.evict(is_watched).is_empty() && few.len() == 3, "within the bound");
        // A name that comes back is not old.
        few.remove(&name(1));
        add(&mut few, &[3, 1, 3]);
        assert_eq!(few.evict(is_watched), [name(0)], "the oldest is watched, and one is enough");
        assert!(few.evict(is_watched).is_empty() && !few.contains(&name(0)));
        add(&mut few, &[4, 5]);
        assert_eq!(few.evict(is_watched), [name(3), name(1)]);
        assert_eq!(few.names().collect::<Vec<_>>(), [&name(2), &name(4), &name(5)]);
        add(&mut few, &[6]);
        assert!(few.evict(|_| true).is_empty() && few.len() == 4, "somebody asks for all of them");
    }
}
