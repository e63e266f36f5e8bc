//! The cached copies of one resource, for the admin room.

use crate::driver::api::content::{CachedCopy, ContentView};
use crate::driver::api::status::{ResourceFilter, ResourceStatus};
use crate::driver::relay::Relay;
use crate::driver::relay::inspect::Walk;
use crate::engine::annotations::Annotations;
use crate::engine::cache::{CachedResource, EntryState};
use crate::xds::ResourceName;

impl ContentView for Relay {
    fn copies(&self, type_name: &str, name: &str) -> Vec<CachedCopy> {
        let filter = ResourceFilter { type_name: Some(type_name.to_owned()), ..ResourceFilter::default() };
        let name = ResourceName::new(name);
        let mut copies = Vec::new();
        for handle in self.tables.sources.all() {
            let (source, list) = (handle.id().0, handle.status().list.clone());
            let walk = Walk::new(&handle, &filter, None, self.shared.clock);
            let copy = |(status, cached): (ResourceStatus, Option<CachedResource>)| CachedCopy {
                source,
                list: list.clone(),
                status,
                resource: cached.map(|cached| cached.resource),
            };
            copies.extend(walk.copies_of(&name).into_iter().map(copy));
        }
        copies
    }
}

impl Walk {
    /// The entries of one name, in each type of the walk.
    fn copies_of(self, name: &ResourceName) -> Vec<(ResourceStatus, Option<CachedResource>)> {
        let mut copies = Vec::new();
        for type_url in self.types.as_slice() {
            let Some(types) = self.snapshot.of(type_url) else { continue };
            if let Some(known) = types.names.known.get(name) {
                let (cached, annotations) = (known.cached(), &types.names.annotations);
                let state = EntryState::of(known, name, annotations);
                let status = self.status(type_url, name, cached, state, annotations, "names");
                copies.push((status, cached.cloned()));
            }
            let none = Annotations::default();
            let annotations = types.wildcard.view.as_ref().map_or(&none, |view| view.annotations());
            let members = [
                ("wildcard", types.wildcard.members.get(name), annotations),
                ("globs", types.globs.members.get(name), &types.globs.annotations),
            ];
            for (collection, cached, annotations) in members {
                let Some(cached) = cached else { continue };
                let state = EntryState::of_member(name, annotations);
                let status = self.status(type_url, name, Some(cached), state, annotations, collection);
                copies.push((status, Some(cached.clone())));
            }
        }
        copies
    }
}
