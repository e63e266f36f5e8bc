//! SotW requests: each has the complete list of names.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::authority::NameGroup;
use crate::authorization::Grant;
use crate::collection::{CollectionKind, HashSeed, NameSet};
use crate::downstream::answer::spelling::NonCanonicalNames;
use crate::downstream::subscription::part::Key;
use crate::downstream::subscription::{Change, NameSetChange, Presented, Subscription};
use sluice_xds::{ResourceName, SotwRequest, Version};

impl Subscription {
    /// Whether this is the list of the last SotW request that was taken.
    pub fn has_list(&self, names: &[ResourceName], seed: HashSeed) -> bool {
        self.seen && fingerprint_of(names, seed) == self.fingerprint
    }

    /// Handles a SotW request: its list is the complete set (SUB-1).
    pub fn take_sotw(
        &mut self,
        request: &SotwRequest,
        seed: HashSeed,
        group_of: &dyn Fn(&ResourceName) -> NameGroup,
        grant: &Grant,
    ) -> Change {
        let names = &request.resource_names;
        let first = !std::mem::replace(&mut self.seen, true);
        let fingerprint = fingerprint_of(names, seed);
        if !first && fingerprint == self.fingerprint {
            return Change::default();
        }
        self.fingerprint = fingerprint;
        self.note_dynamic_names(names);
        // A presented version describes the client's content only until the client gives something up
        // (STR-10).
        self.presented = None;
        self.named |= !names.is_empty();
        // The implicit wildcard lasts while every request is empty (SUB-9); an explicit list ends the
        // wildcard (SUB-11).
        let implicit = !self.named && self.legacy_wildcard;
        let (names, moved) = self.take_list(names, seed, grant);
        let mut change = Change { non_canonical: moved > 0, moved, ..Change::default() };
        let wildcard = implicit || names.iter().any(ResourceName::is_wildcard);
        if first && wildcard && names.len() <= 1 {
            self.presented =
                Version::parse(&request.version_info).map(|version| Box::new(Presented::Whole(version)));
        }
        if wildcard != self.is_wildcard() {
            change.wildcard = Some(wildcard);
        }
        let sets = self.by_key(names.iter(), seed, group_of);
        // Beside a wildcard the client keeps the content of given-up names: the wildcard may have them
        // (SUB-6).
        if !wildcard {
            if let Some(first) = &mut self.first {
                first.keep(&sets, seed);
            }
            self.forget_given_up(&sets);
        }
        for (place, wanted) in sets {
            let old = self.names_of(place);
            if wanted.id() != old.id() {
                let added: Vec<_> = wanted.minus(&old).cloned().collect();
                // The old set without the names that stay is gone.
                change.moved += 2 * added.len() + old.len() - wanted.len();
                if !added.is_empty() {
                    self.resubscribe(&added);
                }
                let left = old.minus(&wanted).filter(|name| wildcard || name.glob().is_some());
                change.left.extend(self.accepted_of(left));
                change.names.insert(place, NameSetChange(Arc::new(wanted)));
            }
        }
        change
    }

    /// Forgets the content of names and globs outside `wanted`, because the client has dropped the content.
    /// The client keeps a given-up name under a requested glob, and a requested name under a given-up glob
    /// (NAM-17).
    fn forget_given_up(&mut self, wanted: &BTreeMap<Key, NameSet>) {
        let asks = |kind: CollectionKind, name: &ResourceName| {
            wanted.iter().any(|((at, _), names)| *at == kind && names.contains(name))
        };
        let (mut gone, mut left, none) = (Vec::new(), Vec::new(), NameSet::default());
        for part in &self.parts {
            let (Some(old), new) = (part.names(), wanted.get(&part.key()).unwrap_or(&none)) else { continue };
            if old.id() == new.id() {
                continue;
            }
            if part.key().0 == CollectionKind::Globs {
                let is_given_up = |member: &&ResourceName| {
                    let is_left = |glob| old.contains(&glob) && !new.contains(&glob);
                    member.glob().is_some_and(is_left) && !asks(CollectionKind::Names, member)
                };
                gone.extend(part.held.names().filter(is_given_up).cloned());
                left.extend(old.minus(new).cloned());
            } else {
                let is_covered =
                    |name: &ResourceName| name.glob().is_some_and(|glob| asks(CollectionKind::Globs, &glob));
                gone.extend(old.minus(new).filter(|name| !is_covered(name)).cloned());
            }
        }
        left.extend(gone.iter().cloned());
        self.let_go_unanswered(&left);
        for name in &gone {
            self.interrupt();
            self.parts.iter_mut().for_each(|part| part.let_go(name));
        }
    }

    /// The canonical names of a complete list, and the number of changed spellings and new refusals.
    fn take_list<'a>(
        &mut self,
        names: &'a [ResourceName],
        seed: HashSeed,
        grant: &Grant,
    ) -> (Cow<'a, [ResourceName]>, usize) {
        let before = self.non_canonical.take();
        let grant = grant.of_type(&self.type_url).ok();
        let of_type = (&self.type_url, grant.as_ref());
        let (keys, after) = NonCanonicalNames::of_list(names, of_type, before.as_deref(), seed);
        let respelled = NonCanonicalNames::respelled(after.as_deref(), before.as_deref());
        let refused = after.as_ref().map_or(0, |after| after.refusals.untold().count());
        self.non_canonical = after;
        if !respelled.is_empty() {
            self.resubscribe(&respelled);
        }
        self.fresh |= refused > 0;
        (keys, refused + respelled.len())
    }
}

fn fingerprint_of(names: &[ResourceName], seed: HashSeed) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    seed.0.hash(&mut hasher);
    names.hash(&mut hasher);
    hasher.finish()
}
