//! Variants of a name, and the choice among variants (TP2).
//!
//! A server may send several variants of one name. Each variant is for clients with parameters that the
//! variant's constraints accept (DYN-1). For each wanted set of parameters, and for the name without
//! parameters, the matching variant is the resource (DYN-2). So the machine keeps variants, unlike other
//! resources: a known variant may answer a later subscription with other parameters.
//!
//! Names without variants and without parameters have no entry in [`NameVariants`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluice_xds::{Parameters, Resource, ResourceName, Variant};

/// The maximum number of kept variants of one name. Beyond the maximum, a variant goes, if possible a variant
/// that no wanted name has.
const VARIANTS_MAX: usize = 1000;

/// The names of one type with variants or with parameters. In a box: nearly no type has such names.
#[derive(Debug, Default)]
pub(super) struct NameVariants(Option<Box<Variants>>);

/// By the plain name, the names with variants or with parameters.
#[derive(Debug, Default)]
pub(super) struct Variants {
    pub(super) families: BTreeMap<ResourceName, NameFamily>,
    /// Newly wanted names.
    pub(super) entered: BTreeSet<ResourceName>,
}

impl NameVariants {
    /// Adds a wanted name. `is_wanted`: whether a plain name is wanted.
    pub(super) fn enter(&mut self, name: &ResourceName, is_wanted: impl FnOnce(&ResourceName) -> bool) {
        if self.0.is_none() && !name.is_located() {
            return;
        }
        match (name.parameters(), &mut self.0) {
            (Some((plain, parameters)), _) => {
                let plain = ResourceName::new(plain);
                let variants = self.0.get_or_insert_default();
                let family = variants.families.entry(plain.clone()).or_default();
                if is_wanted(&plain) {
                    family.keys.entry(plain).or_default();
                }
                family.keys.entry(name.clone()).or_insert(VariantKey { parameters, ..VariantKey::default() });
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
    pub(super) fn leave(&mut self, name: &ResourceName) {
        let Some(variants) = &mut self.0 else { return };
        if let Some(family) = variants.families.get_mut(name.plain()) {
            family.keys.remove(name);
            if family.keys.is_empty() {
                variants.families.remove(name.plain());
            }
        }
        if variants.families.is_empty() {
            self.0 = None;
        }
    }

    /// The variant of a name was not refreshed in time: no other name is given the variant from now on
    /// (TTL-8).
    pub(super) fn expire(&mut self, name: &ResourceName) {
        let families = self.0.as_mut().map(|variants| &mut variants.families);
        let Some(family) = families.and_then(|families| families.get_mut(name.plain())) else { return };
        if let Some(chosen) = family.keys.get_mut(name).and_then(|key| key.chosen.take()) {
            family.offers.remove(&chosen);
        }
    }

    /// Variants from an old stream may not exist on the next stream.
    pub(super) fn end_stream(&mut self) {
        let families = self.0.iter_mut().flat_map(|variants| variants.families.values_mut());
        families.flat_map(|family| family.offers.values_mut()).for_each(|offer| offer.on_stream = false);
    }

    /// The wanted names of the family of a name.
    pub(super) fn family_names(&self, name: &ResourceName) -> impl Iterator<Item = &ResourceName> {
        let family = self.0.as_ref().and_then(|variants| variants.families.get(name.plain()));
        family.into_iter().flat_map(|family| family.keys.keys())
    }

    /// The family of a name, if there is a family. A variant of a wanted name creates a family.
    pub(super) fn family_mut(
        &mut self,
        name: &ResourceName,
        is_wanted: impl FnOnce(&ResourceName) -> bool,
    ) -> Option<&mut NameFamily> {
        if self.0.is_none() && !name.is_variant() {
            return None;
        }
        let plain = ResourceName::new(name.plain());
        if name.is_variant() && is_wanted(&plain) {
            let family = self.0.get_or_insert_default().families.entry(plain.clone()).or_default();
            family.keys.entry(plain).or_default();
            return Some(family);
        }
        self.0.as_mut()?.families.get_mut(&plain)
    }

    /// Takes the families out, for changes of names and families at once. [`Self::restore`] follows.
    pub(super) fn take(&mut self) -> Option<Box<Variants>> {
        self.0.take()
    }

    pub(super) fn restore(&mut self, variants: Box<Variants>) {
        self.0 = Some(variants);
    }

    /// The bytes of all variants.
    pub(super) fn bytes(&self) -> usize {
        let families = self.0.iter().flat_map(|variants| variants.families.values());
        families.flat_map(|family| family.offers.values()).map(|offer| offer.resource.size()).sum()
    }
}

#[derive(Debug, Default)]
pub(super) struct NameFamily {
    /// The wanted names, with or without parameters.
    pub(super) keys: BTreeMap<ResourceName, VariantKey>,
    /// By the name of the variant. A resource without constraints has the plain name.
    pub(super) offers: BTreeMap<ResourceName, VariantOffer>,
}

#[derive(Debug, Default)]
pub(super) struct VariantKey {
    pub(super) parameters: Parameters,
    /// The variant that the key was given.
    pub(super) chosen: Option<ResourceName>,
    pub(super) is_ambiguous: bool,
}

#[derive(Debug)]
pub(super) struct VariantOffer {
    pub(super) resource: Arc<Resource>,
    pub(super) version: Arc<str>,
    /// The variant was sent on the present stream. Other variants may have been withdrawn unheard.
    pub(super) on_stream: bool,
    /// The variant is in the current response.
    pub(super) is_news: bool,
}

impl VariantOffer {
    pub(super) fn matches(&self, parameters: &Parameters) -> bool {
        self.resource.constraints.as_ref().is_none_or(|constraints| constraints.matches(parameters))
    }

    /// The server still offers the variant. In SotW the arrival of another variant is the only sign of a
    /// withdrawal.
    pub(super) fn is_current(&self, variant: Variant) -> bool {
        match variant {
            Variant::Sotw => self.is_news,
            Variant::Delta => self.on_stream,
        }
    }

    /// The resource of a key: under the key's name, and with the constraints if the name is a locator
    /// (WIR-3). A client has the same parameters for the endpoints of a cluster as for the cluster (DYN-7).
    pub(super) fn as_resource_of(&self, key: &ResourceName) -> Arc<Resource> {
        let resource = &self.resource;
        Arc::new(Resource {
            name: key.clone(),
            constraints: resource.constraints.clone().filter(|_| key.is_located()),
            endpoints: resource.endpoints.as_ref().map(|endpoints| key.beside(endpoints)),
            ..(**resource).clone()
        })
    }
}

impl NameFamily {
    /// Returns true if a wanted name has the variant.
    fn is_chosen(&self, variant: &ResourceName) -> bool {
        self.keys.values().any(|key| key.chosen.as_ref() == Some(variant))
    }

    /// Adds a variant, or replaces the variant of the same name.
    pub(super) fn add(&mut self, name: &ResourceName, offer: VariantOffer) {
        if self.offers.len() >= VARIANTS_MAX && !self.offers.contains_key(name) {
            let spare = self.offers.keys().find(|name| !self.is_chosen(name)).cloned();
            let spare = spare.or_else(|| self.offers.keys().next().cloned());
            spare.map(|name| self.offers.remove(&name));
        }
        self.offers.insert(name.clone(), offer);
    }

    /// Drops variants that another variant replaces: a variant that matches the same key and is current on
    /// the server.
    pub(super) fn drop_replaced(&mut self, variant: Variant) {
        let mut replaced = BTreeSet::new();
        for key in self.keys.values() {
            let matching = || self.offers.iter().filter(|(_, offer)| offer.matches(&key.parameters));
            if matching().any(|(_, offer)| offer.is_current(variant)) {
                let old = matching().filter(|(_, offer)| !offer.is_current(variant));
                replaced.extend(old.map(|(name, _)| name.clone()));
            }
        }
        self.offers.retain(|name, _| !replaced.contains(name));
    }
}
