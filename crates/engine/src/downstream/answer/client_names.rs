//! Answers in a client's own names: in its spelling (NAM-8), and to a client with dynamic parameters (TP2) as
//! plain names with constraints.
//!
//! Inside the relay, a name with parameters is an ordinary name. The client is told the plain name and the
//! constraints of the variant. If the variant replaces another variant, the client is told of the removal,
//! too (DYN-5): to the client, the two are different resources (DYN-1). Several names of a client may have
//! the same variant.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::downstream::answer::Answer;
use crate::downstream::answer::chunk::{Chunk, version_of};
use crate::downstream::answer::compose::Composition;
use crate::downstream::answer::rest::{ToldVariant, ToldVariants};
use crate::downstream::answer::spelling::{Spellings, canonical};
use sluice_xds::{Resource, ResourceName, Variant};

/// The variants behind each name with parameters, for a client with the views of this answer.
pub(in crate::downstream) fn variants_after(answer: &Answer) -> ToldVariants {
    let names = answer.parts.iter().filter_map(|part| part.collection.named());
    let located = names.flat_map(|names| names.iter()).filter(|name| name.is_located());
    let held = located.filter_map(|name| Some((name.clone(), variants_of(answer, name)?)));
    ToldVariants { held: held.collect() }
}

fn variants_of(answer: &Answer, name: &ResourceName) -> Option<BTreeSet<ToldVariant>> {
    let version = answer.part_with(name)?.view.version_of(name);
    match answer.body(name).filter(|resource| version == Some(resource.version)) {
        Some(resource) => Some(BTreeSet::from([resource.constraints.clone()])),
        // The name is gone, and its removal is withheld (RLY-51): the client keeps its variants.
        None => answer.told_variants.as_ref()?.held.get(name).cloned(),
    }
}

impl Composition {
    /// The composition in this client's spelling.
    #[must_use]
    pub fn spelled(mut self, answer: &Answer) -> Composition {
        let Some(spellings) = &answer.spellings else { return self };
        let spelling = Spelling { answer, spellings };
        for chunk in &mut self.chunks {
            let ttls = std::mem::take(&mut chunk.ttls);
            for list in [&mut chunk.resources, &mut chunk.beats] {
                for resource in std::mem::take(list) {
                    let ttl = ttls.get(&resource.name);
                    let spelled = spelling.resource(resource, ttl.is_some());
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
                spelling.all(name).into_iter().map(move |name| (name, error.clone()))
            }));
            let removed = std::mem::take(&mut chunk.removed);
            chunk.removed.extend(removed.into_iter().flat_map(|name| spelling.all(name)));
        }
        self
    }

    /// The composition for a client with parameters: plain names and constraints.
    #[must_use]
    pub fn with_plain_names(mut self, answer: &Answer) -> Composition {
        let Some(told_variants) = &answer.told_variants else { return self };
        let after = variants_after(&answer.brought_to(&self.targets)).held;
        let current =
            after.iter().flat_map(|(name, variants)| variants.iter().map(|variant| (name.plain(), variant)));
        let telling = Telling { answer, told_variants, current: current.collect() };
        let mut sent = BTreeSet::new();
        for chunk in &mut self.chunks {
            telling.tell(chunk, &mut sent);
        }
        self
    }
}

/// The names of an answer in the client's spelling.
struct Spelling<'a> {
    answer: &'a Answer,
    spellings: &'a Spellings,
}

impl Spelling<'_> {
    fn of(&self, name: &ResourceName) -> Option<BTreeSet<ResourceName>> {
        self.spellings.of(name, self.answer.parts.iter().any(|part| part.collection.names_itself(name)))
    }

    fn all(&self, name: ResourceName) -> BTreeSet<ResourceName> {
        self.of(&name).unwrap_or_else(|| BTreeSet::from([name]))
    }

    /// `has_ttl`: a TTL goes with the resource, so the resource goes wrapped.
    fn resource(&self, resource: Arc<Resource>, has_ttl: bool) -> Vec<Arc<Resource>> {
        let (variant, type_url) = (self.answer.variant, &self.answer.type_url);
        if variant == Variant::Sotw && !has_ttl && resource.names_itself(type_url) {
            return vec![resource];
        }
        let names = self.of(&resource.name);
        let in_alias = resource.aliases.iter().any(|alias| self.of(alias).is_some());
        if names.is_none() && !in_alias {
            return vec![resource];
        }
        let aliases = resource.aliases.iter().flat_map(|alias| self.all(alias.clone()));
        let aliases: Box<[ResourceName]> = aliases.collect();
        let names = names.unwrap_or_else(|| BTreeSet::from([resource.name.clone()]));
        names
            .into_iter()
            .map(|name| Arc::new(Resource { name, aliases: aliases.clone(), ..(*resource).clone() }))
            .collect()
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
            let was_told = self.told_variants.held.contains_key(&self.key_of(&name));
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

    fn key_of(&self, name: &ResourceName) -> ResourceName {
        canonical(name, &self.answer.type_url).ok().flatten().unwrap_or_else(|| name.clone())
    }

    fn is_current(&self, name: &ResourceName, variant: &ToldVariant) -> bool {
        self.current.contains(&(self.key_of(name).plain(), variant))
    }

    /// The variants that the client was told under a name, and that none of its names has after this answer.
    fn replaced(&self, name: &ResourceName) -> Vec<(ResourceName, ToldVariant)> {
        let held = self.told_variants.held.get(&self.key_of(name)).into_iter().flatten();
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
