//! The difference between two contents of a client.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluice_xds::{Resource, ResourceName};

/// The difference between the views that the client holds and the views that the client should hold, over all
/// parts.
#[derive(Debug, Default)]
pub(super) struct News {
    /// New and changed resources by name, each name once (SST-8, DEL-16).
    pub(super) put: BTreeMap<ResourceName, Arc<Resource>>,
    /// The own names of resources that go after all others, because others list their aliases, too.
    pub(super) last: BTreeSet<ResourceName>,
    /// Names whose removal a delta client must be told.
    pub(super) removed: BTreeSet<ResourceName>,
    /// A resource of the client is gone.
    pub(super) lost: bool,
    /// Some name is newly known to be absent.
    pub(super) told_absent: bool,
}

impl News {
    /// A complete set of resources, by the names under which they are wanted.
    pub(super) fn complete(put: BTreeMap<ResourceName, Arc<Resource>>) -> News {
        let mut all = News { put, ..News::default() };
        all.by_own_name();
        all
    }

    /// The resources in the order of sending, and the removals.
    pub(super) fn in_order(mut self) -> (impl Iterator<Item = Arc<Resource>>, BTreeSet<ResourceName>) {
        let last: Vec<_> = self.last.iter().filter_map(|name| self.put.remove(name)).collect();
        (self.put.into_values().chain(last), self.removed)
    }

    /// Merges the entries of a resource with several wanted aliases, or with a wanted alias and its own name
    /// (SST-8, DEL-16). The content of the own name counts, if another server supplies it than the alias.
    pub(super) fn by_own_name(&mut self) {
        if self.put.iter().any(|(name, resource)| *name != resource.name) {
            let (by_name, by_alias): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut self.put)
                .into_iter()
                .partition(|(name, resource)| *name == resource.name);
            self.put = by_alias.into_values().map(|resource| (resource.name.clone(), resource)).collect();
            self.put.extend(by_name);
            self.removed.retain(|name| !self.put.contains_key(name));
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use sluice_xds::{Any, Version};

    fn resource(version: u128) -> Arc<Resource> {
        Arc::new(Resource {
            name: "q".into(),
            version: Version(version),
            body: Any { type_url: Arc::from("t"), value: Bytes::new() },
            aliases: Box::default(),
            ttl: None,
            do_not_cache: false,
            body_has_name: true,
            metadata: None,
            endpoints: None,
            constraints: None,
        })
    }

    #[test]
    fn ali_1_the_content_of_the_own_name_counts_before_that_of_an_alias() {
        let put = [("q".into(), resource(165)), ("z".into(), resource(145))];
        let merged = News::complete(put.into_iter().collect());
        assert_eq!(merged.put.into_values().collect::<Vec<_>>(), [resource(165)]);
    }
}
