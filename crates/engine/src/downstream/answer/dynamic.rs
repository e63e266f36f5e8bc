//! Answers to a client that asks with dynamic parameters (TP2).
//!
//! Inside the relay, a name with parameters is an ordinary name. The client is told the plain name and the
//! constraints of the variant. If the variant replaces another variant, the client is told of the removal,
//! too (DYN-5): to the client, the two are different resources (DYN-1). Several names of a client may have
//! the same variant.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::collection::Collection;
use crate::downstream::answer::Answer;
use crate::downstream::answer::chunk::{Chunk, version_of};
use crate::downstream::answer::composition::Composition;
use crate::downstream::answer::spelling::canonical;
use crate::downstream::answer::told_variants::{ToldVariant, ToldVariants};
use sluice_xds::{Resource, ResourceName, Variant};

impl Answer {
    /// The variants behind each name with parameters, for a client with the views of this answer.
    pub(in crate::downstream) fn variants(&self) -> BTreeMap<ResourceName, BTreeSet<ToldVariant>> {
        let names = self.parts.iter().filter_map(|part| match &part.collection {
            Collection::Names(names) => Some(names),
            Collection::Wildcard | Collection::Globs(_) => None,
        });
        let located = names.flat_map(|names| names.iter()).filter(|name| name.is_located());
        located.filter_map(|name| Some((name.clone(), self.variants_of(name)?))).collect()
    }

    fn variants_of(&self, name: &ResourceName) -> Option<BTreeSet<ToldVariant>> {
        let part = self.parts.iter().rev().find(|part| part.view.has(name))?;
        let version = part.view.version_of(name);
        match self.body(name).filter(|resource| version == Some(resource.version)) {
            Some(resource) => Some(BTreeSet::from([resource.constraints.clone()])),
            // The name is gone, and its removal is withheld (RLY-51): the client keeps its variants.
            None => self.told_variants.as_ref()?.held.get(name).cloned(),
        }
    }

    /// The composition for a client with parameters: plain names and constraints.
    pub fn with_plain_names(&self, mut composition: Composition) -> Composition {
        let Some(told_variants) = &self.told_variants else { return composition };
        let after = self.brought_to(&composition.targets).variants();
        let current =
            after.iter().flat_map(|(name, variants)| variants.iter().map(|variant| (name.plain(), variant)));
        let telling = Telling { answer: self, told_variants, current: current.collect() };
        let mut sent = BTreeSet::new();
        for chunk in &mut composition.chunks {
            telling.tell(chunk, &mut sent);
        }
        composition
    }

    fn key_of(&self, name: &ResourceName) -> ResourceName {
        canonical(name, &self.type_url).ok().flatten().unwrap_or_else(|| name.clone())
    }
}

struct Telling<'a> {
    answer: &'a Answer,
    told_variants: &'a ToldVariants,
    /// The client's variants after this answer, by canonical plain name.
    current: BTreeSet<(&'a str, &'a ToldVariant)>,
}

impl Telling<'_> {
    /// `sent`: the content of the messages before this message. Each resource and each removal is told once
    /// (SST-8, DEL-16).
    fn tell(&self, chunk: &mut Chunk, sent: &mut BTreeSet<(ResourceName, ToldVariant)>) {
        let mut gone = BTreeSet::new();
        let replaced = chunk.resources.iter().filter(|resource| resource.name.is_located());
        gone.extend(replaced.flat_map(|resource| self.replaced(&resource.name)));
        let ttls = std::mem::take(&mut chunk.ttls);
        for list in [&mut chunk.resources, &mut chunk.beats] {
            for resource in std::mem::take(list) {
                let (ttl, resource) = (ttls.get(&resource.name), plain(resource));
                if sent.insert((resource.name.clone(), resource.constraints.clone())) {
                    chunk.ttls.extend(ttl.map(|ttl| (resource.variant_name().into_owned(), *ttl)));
                    list.push(resource);
                }
            }
        }
        if !chunk.resources.is_empty() {
            chunk.version = version_of(&chunk.resources);
        }
        for name in std::mem::take(&mut chunk.removed) {
            if !name.is_located() {
                gone.insert((name, None));
                continue;
            }
            let replaced = self.replaced(&name);
            let was_told = self.told_variants.held.contains_key(&self.answer.key_of(&name));
            if replaced.is_empty() && !was_told && !self.is_current(&name, &None) {
                gone.insert((name.plain().into(), None));
            }
            gone.extend(replaced);
        }
        if self.answer.variant == Variant::Delta {
            for (name, constraints) in gone {
                if !sent.insert((name.clone(), constraints.clone())) {
                    continue;
                }
                match constraints {
                    Some(constraints) => chunk.removed_variants.push((name, constraints)),
                    None => chunk.removed.push(name),
                }
            }
        }
        tell_errors(chunk);
    }

    fn is_current(&self, name: &ResourceName, variant: &ToldVariant) -> bool {
        self.current.contains(&(self.answer.key_of(name).plain(), variant))
    }

    /// The variants that the client was told under a name, and that none of its names has after this answer.
    fn replaced(&self, name: &ResourceName) -> Vec<(ResourceName, ToldVariant)> {
        let held = self.told_variants.held.get(&self.answer.key_of(name)).into_iter().flatten();
        let gone = held.filter(|variant| !self.is_current(name, variant));
        gone.map(|variant| (name.plain().into(), variant.clone())).collect()
    }
}

/// The resource under its plain name.
fn plain(resource: Arc<Resource>) -> Arc<Resource> {
    if !resource.name.is_located() {
        return resource;
    }
    Arc::new(Resource { name: resource.name.plain().into(), ..(*resource).clone() })
}

/// Errors have no constraints: a plain name with several errors gets one error, and gets none beside a
/// resource or a removal without constraints (ERR-2).
fn tell_errors(chunk: &mut Chunk) {
    if chunk.errors.is_empty() {
        return;
    }
    let bare = chunk.resources.iter().chain(&chunk.beats).filter(|resource| resource.constraints.is_none());
    let mut named: BTreeSet<_> = bare.map(|resource| resource.name.clone()).collect();
    named.extend(chunk.removed.iter().cloned());
    let plain = std::mem::take(&mut chunk.errors).into_iter().map(|(name, error)| {
        let name = if name.is_located() { name.plain().into() } else { name };
        (name, error)
    });
    chunk.errors = plain.filter(|(name, _)| named.insert(name.clone())).collect();
}
