//! Variants of a name, and the choice among variants (TP2).
//!
//! A server may send several variants of one name. Each variant is for clients with parameters that the
//! variant's constraints accept (DYN-1). For each wanted set of parameters, and for the name without
//! parameters, the matching variant is the resource (DYN-2). So the machine keeps variants, unlike other
//! resources: a known variant may answer a later subscription with other parameters.
//!
//! Names without variants and without parameters have no entry in [`Variants`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::xds::{Parameters, Resource, ResourceName, Variant};

/// The maximum number of kept variants of one name. Beyond the maximum, a variant goes, if possible a variant
/// that no wanted name has.
pub(super) const VARIANTS_MAX: usize = 1000;

/// The names of one type with variants or with parameters, by the plain name.
#[derive(Debug, Default)]
pub(super) struct Variants {
    pub(super) families: BTreeMap<ResourceName, Family>,
    /// Newly wanted names.
    pub(super) entered: BTreeSet<ResourceName>,
}

impl Variants {
    /// The bytes of all variants.
    pub(super) fn bytes(&self) -> usize {
        let offers = self.families.values().flat_map(|family| family.variants.values());
        offers.map(|offer| offer.resource.size()).sum()
    }
}

#[derive(Debug, Default)]
pub(super) struct Family {
    /// The wanted names, with or without parameters.
    pub(super) keys: BTreeMap<ResourceName, Key>,
    /// By the name of the variant. A resource without constraints has the plain name.
    pub(super) variants: BTreeMap<ResourceName, Offer>,
}

#[derive(Debug, Default)]
pub(super) struct Key {
    pub(super) parameters: Parameters,
    /// The variant that the key was given.
    pub(super) chosen: Option<ResourceName>,
    pub(super) is_ambiguous: bool,
}

#[derive(Debug)]
pub(super) struct Offer {
    pub(super) resource: Arc<Resource>,
    pub(super) version: Box<str>,
    /// The variant was sent on the present stream. Other variants may have been withdrawn unheard.
    pub(super) on_stream: bool,
    /// The variant is in the current response.
    pub(super) is_news: bool,
}

impl Offer {
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

impl Family {
    pub(super) fn is_chosen(&self, own: &ResourceName) -> bool {
        self.keys.values().any(|key| key.chosen.as_ref() == Some(own))
    }

    pub(super) fn offer(&mut self, own: &ResourceName, offer: Offer) {
        if self.variants.len() >= VARIANTS_MAX && !self.variants.contains_key(own) {
            let spare = self.variants.keys().find(|own| !self.is_chosen(own)).cloned();
            let spare = spare.or_else(|| self.variants.keys().next().cloned());
            spare.map(|own| self.variants.remove(&own));
        }
        self.variants.insert(own.clone(), offer);
    }

    /// Drops variants that another variant replaces: a variant that matches the same key and is current on
    /// the server.
    pub(super) fn drop_replaced(&mut self, variant: Variant) {
        let mut replaced = BTreeSet::new();
        for key in self.keys.values() {
            let matching = || self.variants.iter().filter(|(_, offer)| offer.matches(&key.parameters));
            if matching().any(|(_, offer)| offer.is_current(variant)) {
                let old = matching().filter(|(_, offer)| !offer.is_current(variant));
                replaced.extend(old.map(|(own, _)| own.clone()));
            }
        }
        self.variants.retain(|own, _| !replaced.contains(own));
    }
}
