//! Answers in the client's spelling of names (NAM-8).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::collection::Collection;
use crate::downstream::answer::Answer;
use crate::downstream::answer::chunk::version_of;
use crate::downstream::answer::composition::Composition;
use crate::downstream::answer::spelling::Spellings;
use sluice_xds::{Resource, ResourceName, Variant};

impl Answer {
    /// The composition in this client's spelling.
    pub fn spelled(&self, mut composition: Composition) -> Composition {
        let Some(spellings) = &self.spellings else { return composition };
        for chunk in &mut composition.chunks {
            let ttls = std::mem::take(&mut chunk.ttls);
            for list in [&mut chunk.resources, &mut chunk.beats] {
                for resource in std::mem::take(list) {
                    let ttl = ttls.get(&resource.name);
                    let spelled = self.spelled_resource(spellings, resource, ttl.is_some());
                    chunk
                        .ttls
                        .extend(spelled.iter().filter_map(|resource| Some((resource.name.clone(), *ttl?))));
                    list.extend(spelled);
                }
            }
            if !chunk.resources.is_empty() {
                // The version of exactly this content (RLY-31), which may have one resource twice.
                chunk.version = version_of(&chunk.resources);
            }
            let errors = std::mem::take(&mut chunk.errors);
            chunk.errors.extend(errors.into_iter().flat_map(|(name, error)| {
                let all = self.spellings_of(spellings, &name).unwrap_or_else(|| BTreeSet::from([name]));
                all.into_iter().map(move |name| (name, error.clone()))
            }));
            let removed = std::mem::take(&mut chunk.removed);
            chunk.removed.extend(removed.into_iter().flat_map(
                |name| match self.spellings_of(spellings, &name) {
                    Some(all) => all.into_iter().collect(),
                    None => vec![name],
                },
            ));
        }
        composition
    }

    fn spellings_of(&self, spellings: &Spellings, name: &ResourceName) -> Option<BTreeSet<ResourceName>> {
        let by_itself = || {
            self.parts
                .iter()
                .any(|part| matches!(&part.collection, Collection::Names(names) if names.contains(name)))
        };
        spellings.of(name, by_itself())
    }

    /// `has_ttl`: a TTL goes with the resource, so the resource goes wrapped.
    fn spelled_resource(
        &self,
        spellings: &Spellings,
        resource: Arc<Resource>,
        has_ttl: bool,
    ) -> Vec<Arc<Resource>> {
        if self.variant == Variant::Sotw && !has_ttl && resource.names_itself(&self.type_url) {
            return vec![resource];
        }
        let names = self.spellings_of(spellings, &resource.name);
        let in_alias = resource.aliases.iter().any(|alias| self.spellings_of(spellings, alias).is_some());
        if names.is_none() && !in_alias {
            return vec![resource];
        }
        let aliases = resource.aliases.iter().flat_map(|alias| match self.spellings_of(spellings, alias) {
            Some(all) => all,
            None => BTreeSet::from([alias.clone()]),
        });
        let aliases: Box<[ResourceName]> = aliases.collect();
        let names = names.unwrap_or_else(|| BTreeSet::from([resource.name.clone()]));
        names
            .into_iter()
            .map(|name| Arc::new(Resource { name, aliases: aliases.clone(), ..(*resource).clone() }))
            .collect()
    }
}
