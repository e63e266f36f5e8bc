//! Variants of a name, and who gets which (TP2).
//!
//! The server may send several variants of one name, each for those whose parameters its constraints accept (DYN-1). For each
//! set of parameters with which the name is wanted, and for the name without any, the variant that matches is the resource
//! (DYN-2). Therefore variants, unlike other resources, are kept here: a name that is wanted with other parameters later may
//! be answered by one that is here already.
//!
//! There is nothing of this for names of which no variant was sent and that nobody wants with parameters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::xds::{Parameters, Resource, ResourceName, Variant};

/// Variants of one name that are kept; of more, one goes that nobody wants.
pub(super) const VARIANTS_MAX: usize = 1000;

/// The names of one type that have variants or are wanted with parameters, by the plain name.
#[derive(Debug, Default)]
pub(super) struct Variants {
    pub(super) families: BTreeMap<ResourceName, Family>,
    /// Names that are newly wanted.
    pub(super) entered: BTreeSet<ResourceName>,
}

#[derive(Debug, Default)]
pub(super) struct Family {
    /// What is wanted: the name with parameters, or without.
    pub(super) keys: BTreeMap<ResourceName, Key>,
    /// By the name of the variant; that of a resource without constraints is the plain one.
    pub(super) variants: BTreeMap<ResourceName, Offer>,
}

#[derive(Debug, Default)]
pub(super) struct Key {
    pub(super) parameters: Parameters,
    /// The variant that it was given.
    pub(super) chosen: Option<ResourceName>,
    pub(super) is_ambiguous: bool,
}

#[derive(Debug)]
pub(super) struct Offer {
    pub(super) resource: Arc<Resource>,
    pub(super) version: Box<str>,
    /// It was sent on the present stream. What was not may have been withdrawn unheard.
    pub(super) on_stream: bool,
    /// It is in the response at hand.
    pub(super) is_news: bool,
}

impl Offer {
    pub(super) fn matches(&self, parameters: &Parameters) -> bool {
        self.resource.constraints.as_ref().is_none_or(|constraints| constraints.matches(parameters))
    }

    /// The server stands by it. In SotW nothing else tells that a variant is withdrawn than that another one comes.
    pub(super) fn is_current(&self, variant: Variant) -> bool {
        match variant {
            Variant::Sotw => self.is_news,
            Variant::Delta => self.on_stream,
        }
    }

    /// As the resource of this key: under its name, and with the constraints if it was asked for by a locator (WIR-3). A
    /// client has the same parameters for the endpoints of a cluster as for the cluster (DYN-7).
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

    /// Drops what another variant takes the place of: one that matches the same key and that the server stands by.
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
