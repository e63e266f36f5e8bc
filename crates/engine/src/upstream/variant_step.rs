//! One response, applied to names with variants.

use std::collections::{BTreeMap, BTreeSet};

use super::api::{Cause, Changes, Event, Output};
use super::names::{HeldResource, WantedNames};
use super::request_size::PendingNames;
use super::type_request::TypeRequest;
use super::variants::{VariantKey, VariantOffer};
use super::want::Want;
use crate::collection::CollectionKind;
use sluice_xds::{Received, ResourceName, Variant};

/// The effects of one response on a family.
#[derive(Debug, Default)]
struct FamilyChanges {
    /// A variant was withdrawn.
    withdrawn: Option<Cause>,
    /// The plain name does not exist, or not without constraints.
    plain_gone: Option<Cause>,
}

/// One response, applied to names with variants.
#[derive(Debug, Default)]
pub(super) struct VariantStep {
    /// By plain name, the changed families.
    changed: BTreeMap<ResourceName, FamilyChanges>,
}

impl VariantStep {
    fn change(&mut self, name: &ResourceName) -> &mut FamilyChanges {
        self.changed.entry(name.plain().into()).or_default()
    }

    /// Returns true if the element belongs to a name with variants. [`Self::finish`] then settles the effect.
    pub(super) fn take(
        &mut self,
        names: &mut WantedNames,
        received: &Received,
        variant: Variant,
        changes: &mut Changes,
    ) -> bool {
        let name = &received.name;
        let Some(family) = names.family_mut(name) else { return name.is_variant() };
        let Some(resource) = &received.resource else {
            let offer = family.offers.get(name);
            let is_same = offer.is_some_and(|offer| {
                offer.on_stream && !offer.version.is_empty() && offer.version == received.upstream_version
            });
            if variant == Variant::Sotw || is_same {
                let has_offer = offer.is_some();
                let refreshed =
                    family.keys.iter().filter(|(_, key)| has_offer && key.chosen.as_ref() == Some(name));
                changes.refreshed.extend(refreshed.map(|(name, _)| (name.clone(), received.ttl)));
            } else {
                self.lose(names, name, Cause::Removed);
            }
            return true;
        };
        let (resource, version) = (resource.clone(), received.upstream_version.clone());
        family.add(name, VariantOffer { resource, version, on_stream: true, is_news: true });
        self.change(name);
        true
    }

    /// The server reports that a variant, or a name, does not exist. Returns true if the name has variants.
    pub(super) fn lose(&mut self, names: &mut WantedNames, name: &ResourceName, cause: Cause) -> bool {
        let Some(family) = names.family_mut(name) else { return name.is_variant() };
        let was_there = family.offers.remove(name).is_some();
        if !name.is_variant() {
            // Variants of an earlier stream that the present stream has not repeated are gone, too.
            family.offers.retain(|_, offer| offer.on_stream);
            self.change(name).plain_gone = Some(cause);
        } else if was_there {
            self.change(name).withdrawn = Some(cause);
        }
        true
    }

    /// Gives each wanted name of the changed families a variant. `is_whole`: resources that the response
    /// lacks do not exist. `mentioned`: wanted names that exist according to the response.
    pub(super) fn finish(
        mut self,
        names: &mut WantedNames,
        pending: &PendingNames,
        variant: Variant,
        is_whole: bool,
        changes: &mut Changes,
        mentioned: &mut BTreeSet<ResourceName>,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        let Some(mut variants) = names.variants.take() else { return events };
        if is_whole {
            for (plain, family) in &mut variants.families {
                if family.keys.keys().all(|key| !mentioned.contains(key)) {
                    family.offers.retain(|_, offer| offer.is_news);
                    self.change(plain);
                }
            }
        }
        for (plain, family_changes) in &self.changed {
            let Some(family) = variants.families.get_mut(plain) else { continue };
            family.drop_replaced(variant);
            for (name, key) in &mut family.keys {
                let mut choice = VariantChoice { names, pending, changes, mentioned };
                events.extend(choice.choose(name, key, &family.offers, family_changes));
            }
            family.offers.values_mut().for_each(|offer| offer.is_news = false);
        }
        names.variants.restore(variants);
        events
    }
}

/// Known variants may answer new subscriptions to names (DYN-2).
pub(super) fn answer_new_names(subscription: &mut TypeRequest) -> Vec<Output> {
    let Want::Names(names) = &mut subscription.want else { return Vec::new() };
    let Some(mut variants) = names.variants.take() else { return Vec::new() };
    let mut changes = Changes::new(&subscription.type_url, CollectionKind::Names);
    let mut outputs = Vec::new();
    for name in std::mem::take(&mut variants.entered) {
        let Some(family) = variants.families.get_mut(name.plain()) else { continue };
        let Some(key) = family.keys.get_mut(&name) else { continue };
        let pending = &subscription.exchange.pending;
        let (changes, mentioned) = (&mut changes, &mut BTreeSet::new());
        let mut choice = VariantChoice { names, pending, changes, mentioned };
        let event = choice.choose(&name, key, &family.offers, &FamilyChanges::default());
        outputs.extend(event.map(Output::Event));
    }
    names.variants.restore(variants);
    if !changes.present.is_empty() {
        outputs.push(Output::Changes(changes));
    }
    outputs
}

/// The choice of a variant for a wanted name.
struct VariantChoice<'a> {
    names: &'a mut WantedNames,
    pending: &'a PendingNames,
    changes: &'a mut Changes,
    mentioned: &'a mut BTreeSet<ResourceName>,
}

impl VariantChoice<'_> {
    fn choose(
        &mut self,
        name: &ResourceName,
        key: &mut VariantKey,
        offers: &BTreeMap<ResourceName, VariantOffer>,
        family_changes: &FamilyChanges,
    ) -> Option<Event> {
        let is_listed = !self.pending.enter.contains(name);
        let mut matching = offers.iter().filter(|(_, offer)| offer.matches(&key.parameters));
        // The last of several variants by name wins, so that all relays agree (DYN-4). A variant without
        // constraints is the first.
        let Some((variant, offer)) = matching.next_back() else {
            let had = key.chosen.take().is_some();
            key.is_ambiguous = false;
            let cause = family_changes.withdrawn.filter(|_| had).or(family_changes.plain_gone);
            if let Some(cause) = cause
                && is_listed
                && self.names.set_absent(name)
            {
                self.changes.absent.push((name.clone(), cause));
            }
            return None;
        };
        let was_ambiguous = std::mem::replace(&mut key.is_ambiguous, matching.next_back().is_some());
        if offer.is_news || key.chosen.as_ref() != Some(variant) {
            self.names.hold(name, name, HeldResource::from_variant(&offer.version), is_listed);
            self.changes.present.push(offer.as_resource_of(name));
            self.mentioned.insert(name.clone());
            key.chosen = Some(variant.clone());
        }
        (key.is_ambiguous && !was_ambiguous)
            .then(|| Event::Ambiguous { type_url: self.changes.type_url.clone(), name: name.clone() })
    }
}
