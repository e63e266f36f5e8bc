//! One response, applied to names with variants.

use super::api::{Cause, Changes, Event, Output};
use super::names::{Held, Names};
use super::response::Digest;
use super::said::Said;
use super::type_request::{TypeRequest, Want};
use super::variants::{Family, Key, Offer};
use crate::engine::collection::CollectionKind;
use crate::xds::{BadElement, Received, ResourceName, Variant};
use std::collections::{BTreeMap, BTreeSet};

impl Names {
    /// Adds a wanted name.
    pub(super) fn enter_family(&mut self, name: &ResourceName) {
        match (name.parameters(), &mut self.variants) {
            (Some((plain, parameters)), _) => {
                let plain = ResourceName::new(plain);
                let has_plain = self.contains(&plain);
                let variants = self.variants.get_or_insert_default();
                let family = variants.families.entry(plain.clone()).or_default();
                if has_plain {
                    family.keys.entry(plain.clone()).or_default();
                }
                family.keys.entry(name.clone()).or_insert(Key { parameters, ..Key::default() });
                variants.entered.insert(name.clone());
            }
            (None, Some(variants)) => {
                if let Some(family) = variants.families.get_mut(name) {
                    family.keys.entry(name.clone()).or_default();
                    variants.entered.insert(name.clone());
                }
            }
            (None, None) => {}
        }
    }

    /// Removes a name that is no longer wanted.
    pub(super) fn leave_family(&mut self, name: &ResourceName) {
        let Some(variants) = &mut self.variants else { return };
        if let Some(family) = variants.families.get_mut(name.plain()) {
            family.keys.remove(name);
            if family.keys.is_empty() {
                variants.families.remove(name.plain());
            }
        }
        if variants.families.is_empty() {
            self.variants = None;
        }
    }

    /// The variant of a name was not refreshed in time: no other name is given the variant from now on
    /// (TTL-8).
    pub(super) fn expire_variant(&mut self, name: &ResourceName) {
        let families = self.variants.as_mut().map(|variants| &mut variants.families);
        let Some(family) = families.and_then(|families| families.get_mut(name.plain())) else { return };
        if let Some(own) = family.keys.get_mut(name).and_then(|key| key.chosen.take()) {
            family.variants.remove(&own);
        }
    }

    /// Variants from an old stream may not exist on the next stream.
    pub(super) fn variants_are_old(&mut self) {
        let families = self.variants.iter_mut().flat_map(|variants| variants.families.values_mut());
        families.flat_map(|family| family.variants.values_mut()).for_each(|offer| offer.on_stream = false);
    }

    /// The wanted names that a server can mean by `name`: the names that a resource `name` answers, and the
    /// family of the plain name.
    pub(super) fn meant_by(&self, name: &ResourceName) -> BTreeSet<ResourceName> {
        let mut meant = self.answered_by(name, &[]);
        let family = self.variants.as_ref().and_then(|variants| variants.families.get(name.plain()));
        meant.extend(family.into_iter().flat_map(|family| family.keys.keys().cloned()));
        meant
    }

    /// The family of a name, if there is a family. A variant of a wanted name creates a family.
    fn family_of(&mut self, name: &ResourceName) -> Option<&mut Family> {
        if self.variants.is_none() && !name.is_variant() {
            return None;
        }
        let plain = ResourceName::new(name.plain());
        if name.is_variant() && self.contains(&plain) {
            let family = self.variants.get_or_insert_default().families.entry(plain.clone()).or_default();
            family.keys.entry(plain).or_default();
            return Some(family);
        }
        self.variants.as_mut()?.families.get_mut(&plain)
    }
}

/// The effects of one response on a family.
#[derive(Debug, Default)]
struct Touched {
    /// A variant was withdrawn.
    withdrawn: Option<Cause>,
    /// The plain name does not exist, or not without constraints.
    plain_gone: Option<Cause>,
}

/// One response, applied to names with variants.
#[derive(Debug, Default)]
pub(super) struct VariantStep {
    touched: BTreeMap<ResourceName, Touched>,
}

impl VariantStep {
    fn touch(&mut self, name: &ResourceName) -> &mut Touched {
        self.touched.entry(name.plain().into()).or_default()
    }

    /// Returns true if the element belongs to a name with variants, so that its effect is settled at the end.
    pub(super) fn take(
        &mut self,
        names: &mut Names,
        received: &Received,
        variant: Variant,
        changes: &mut Changes,
    ) -> bool {
        let own = &received.name;
        let Some(family) = names.family_of(own) else { return own.is_variant() };
        let Some(resource) = &received.resource else {
            let known = family.variants.get(own);
            let is_same = known.is_some_and(|offer| {
                offer.on_stream && !offer.version.is_empty() && offer.version == received.upstream_version
            });
            if variant == Variant::Sotw || is_same {
                let refreshed =
                    family.keys.iter().filter(|(_, key)| known.is_some() && key.chosen.as_ref() == Some(own));
                changes.refreshed.extend(refreshed.map(|(name, _)| (name.clone(), received.ttl)));
            } else {
                self.lose(names, own, Cause::Removed);
            }
            return true;
        };
        let (resource, version) = (resource.clone(), received.upstream_version.clone());
        family.offer(own, Offer { resource, version, on_stream: true, is_news: true });
        self.touch(own);
        true
    }

    /// The server reports that a variant, or a name, does not exist. Returns true if the name has variants.
    pub(super) fn lose(&mut self, names: &mut Names, name: &ResourceName, cause: Cause) -> bool {
        let Some(family) = names.family_of(name) else { return name.is_variant() };
        let was_there = family.variants.remove(name).is_some();
        if !name.is_variant() {
            // Variants of an earlier stream that the present stream has not repeated are gone, too.
            family.variants.retain(|_, offer| offer.on_stream);
            self.touch(name).plain_gone = Some(cause);
        } else if was_there {
            self.touch(name).withdrawn = Some(cause);
        }
        true
    }

    /// Gives each wanted name of the touched families a variant. `is_whole`: resources that the response
    /// lacks do not exist. `mentioned`: wanted names that exist according to the response.
    pub(super) fn finish(
        mut self,
        names: &mut Names,
        said: &Said,
        (variant, is_whole): (Variant, bool),
        changes: &mut Changes,
        mentioned: &mut BTreeSet<ResourceName>,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        let Some(mut variants) = names.variants.take() else { return events };
        if is_whole {
            for (plain, family) in &mut variants.families {
                if family.keys.keys().all(|key| !mentioned.contains(key)) {
                    family.variants.retain(|_, offer| offer.is_news);
                    self.touch(plain);
                }
            }
        }
        for (plain, touched) in &self.touched {
            let Some(family) = variants.families.get_mut(plain) else { continue };
            family.drop_replaced(variant);
            let Family { keys, variants } = family;
            for (name, key) in keys {
                let mut settling = Settling { names, said, changes, mentioned };
                events.extend(settling.settle(name, key, variants, touched));
            }
            variants.values_mut().for_each(|offer| offer.is_news = false);
        }
        names.variants = Some(variants);
        events
    }
}

/// A wanted name, and the variant for the name.
struct Settling<'a> {
    names: &'a mut Names,
    said: &'a Said,
    changes: &'a mut Changes,
    mentioned: &'a mut BTreeSet<ResourceName>,
}

impl Settling<'_> {
    fn settle(
        &mut self,
        name: &ResourceName,
        key: &mut Key,
        variants: &BTreeMap<ResourceName, Offer>,
        touched: &Touched,
    ) -> Option<Event> {
        let is_listed = !self.said.enter.contains(name);
        let mut matching = variants.iter().filter(|(_, offer)| offer.matches(&key.parameters));
        // The last of several variants by name wins, so that all relays agree (DYN-4). A variant without
        // constraints is the first.
        let Some((own, offer)) = matching.next_back() else {
            let had = key.chosen.take().is_some();
            key.is_ambiguous = false;
            let cause = touched.withdrawn.filter(|_| had).or(touched.plain_gone);
            if let Some(cause) = cause
                && is_listed
                && self.names.set_absent(name)
            {
                self.changes.absent.push((name.clone(), cause));
            }
            return None;
        };
        let was_ambiguous = std::mem::replace(&mut key.is_ambiguous, matching.next_back().is_some());
        if offer.is_news || key.chosen.as_ref() != Some(own) {
            self.names.hold(name, name, Held::of_variant(&offer.version), is_listed);
            self.changes.present.push(offer.as_resource_of(name));
            self.mentioned.insert(name.clone());
            key.chosen = Some(own.clone());
        }
        (key.is_ambiguous && !was_ambiguous)
            .then(|| Event::Ambiguous { type_url: self.changes.type_url.clone(), name: name.clone() })
    }
}

impl Digest {
    /// A wildcard and globs have one resource for each name. Resources for some of the subscribers only are
    /// refused.
    pub(super) fn refuse_variants(&mut self) {
        for element in &mut self.resources {
            if let Ok(received) = element
                && received.name.is_variant()
            {
                let reason = "dynamic parameter constraints are not supported in wildcards and globs";
                let name = Some(received.name.plain().into());
                *element = Err(BadElement { name, reason: reason.to_owned(), is_instance: true });
            }
        }
        self.removed.retain(|name| !name.is_variant());
    }
}

impl TypeRequest {
    /// Known variants may answer new subscriptions to names (DYN-2).
    pub(super) fn answer_from_variants(&mut self) -> Vec<Output> {
        let Want::Names(names) = &mut self.want else { return Vec::new() };
        let Some(mut variants) = names.variants.take() else { return Vec::new() };
        let mut changes = Changes::new(&self.type_url, CollectionKind::Names);
        let mut outputs = Vec::new();
        for name in std::mem::take(&mut variants.entered) {
            let Some(family) = variants.families.get_mut(name.plain()) else { continue };
            let Some(key) = family.keys.get_mut(&name) else { continue };
            let (said, changes, mentioned) = (&self.said, &mut changes, &mut BTreeSet::new());
            let mut settling = Settling { names, said, changes, mentioned };
            let event = settling.settle(&name, key, &family.variants, &Touched::default());
            outputs.extend(event.map(Output::Event));
        }
        names.variants = Some(variants);
        if !changes.present.is_empty() {
            outputs.push(Output::Changes(changes));
        }
        outputs
    }
}
