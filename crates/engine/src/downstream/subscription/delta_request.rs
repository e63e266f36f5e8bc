//! Delta requests: each has names to subscribe to, and names to give up.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::authority::NameGroup;
use crate::authorization::{Grant, TypeGrant};
use crate::collection::{CollectionKind, HashSeed, NameSet};
use crate::downstream::answer::spelling::{canonical, key_of};
use crate::downstream::memory::weight;
use crate::downstream::subscription::part::Key;
use crate::downstream::subscription::{Change, NameSetChange, Presented, Subscription};
use crate::view::View;
use sluice_xds::{DeltaRequest, Kind, ResourceName, Version};

impl Subscription {
    /// The canonical name; `None` if the name is refused.
    fn take_name(&mut self, name: &ResourceName, grant: Option<&TypeGrant<'_>>) -> Option<ResourceName> {
        match key_of(name, (&self.type_url, grant)) {
            Ok(key) => Some(key.unwrap_or_else(|| name.clone())),
            Err(reason) => {
                self.interrupt();
                self.fresh = true;
                self.non_canonical.get_or_insert_default().refusals.insert(name, reason);
                None
            }
        }
    }

    /// Notes a spelling that the client uses for the name.
    fn spell(&mut self, key: &ResourceName, name: &ResourceName, wanted: bool, seed: HashSeed) {
        if key != name || self.non_canonical.is_some() {
            let non_canonical = self.non_canonical.get_or_insert_default();
            Arc::make_mut(&mut non_canonical.spellings).insert(key, name, wanted, seed);
        }
    }

    /// Notes that the client gives up a spelling. Returns the canonical name if no spelling is left.
    fn give_up(
        &mut self,
        name: &ResourceName,
        grant: Option<&TypeGrant<'_>>,
        seed: HashSeed,
    ) -> Option<ResourceName> {
        let key = match key_of(name, (&self.type_url, grant)) {
            Ok(key) => key.unwrap_or_else(|| name.clone()),
            Err(_) => {
                if let Some(non_canonical) = &mut self.non_canonical {
                    non_canonical.refusals.remove(name);
                }
                return None;
            }
        };
        let spellings =
            self.non_canonical.as_mut().map(|non_canonical| Arc::make_mut(&mut non_canonical.spellings));
        let still_wanted = spellings.map_or(key != *name, |spellings| spellings.remove(&key, name, seed));
        (!still_wanted).then_some(key)
    }

    /// Handles a delta request: `subscribe` before `unsubscribe` (DEL-4), with any nonce (DEL-2).
    pub fn take_delta(
        &mut self,
        request: &DeltaRequest,
        seed: HashSeed,
        group_of: &dyn Fn(&ResourceName) -> NameGroup,
        grant: &Grant,
    ) -> Change {
        let first = !std::mem::replace(&mut self.seen, true);
        let both_empty = request.subscribe.is_empty() && request.unsubscribe.is_empty();
        let type_url = self.type_url.clone();
        let grant = (!both_empty).then(|| grant.of_type(&type_url).ok()).flatten();
        let was_wildcard = self.is_wildcard();
        self.note_further(&request.subscribe, group_of);
        // The first request decides on the implicit wildcard (DEL-6, DEL-10); more names keep the wildcard
        // (DEL-7).
        let mut wildcard = was_wildcard || (first && both_empty && self.legacy_wildcard);
        let mut sets: BTreeMap<Key, NameSet> = BTreeMap::new();
        let mut departed = Vec::new();
        for name in request.subscribe.iter().chain(self.stated_by_version(request, first)) {
            if name.is_wildcard() {
                if was_wildcard {
                    self.resubscribe_wildcard();
                }
                wildcard = true;
                continue;
            }
            let Some(key) = self.take_name(name, grant.as_ref()) else { continue };
            self.note_stated(&key);
            // The new subscription answers for the name.
            if let Some(departed) = &mut self.departed {
                departed.remove(&key);
            }
            let place = self.holding(&key).unwrap_or_else(|| (CollectionKind::of(&key), group_of(&key)));
            let set = sets.entry(place).or_insert_with(|| (*self.names_of(place)).clone());
            let wanted = !set.insert(key.clone(), seed);
            self.spell(&key, name, wanted, seed);
            // A repeated subscription, or a name that the wildcard has brought: a forced resend (DEL-11).
            self.resubscribe(std::slice::from_ref(&key));
        }
        for name in &request.unsubscribe {
            if name.is_wildcard() {
                self.note_unread_members(CollectionKind::Wildcard, |_| true);
                wildcard = false;
                continue;
            }
            let Some(key) = self.give_up(name, grant.as_ref(), seed) else { continue };
            let place = self.holding(&key).unwrap_or_else(|| (CollectionKind::of(&key), group_of(&key)));
            let set = sets.entry(place).or_insert_with(|| (*self.names_of(place)).clone());
            if set.remove(&key, seed) {
                self.note_stated(&key);
                self.note_given_up(&key);
                departed.push(key);
            }
        }
        let left = self.accepted_of(departed.iter().filter(|name| wildcard || name.glob().is_some()));
        let shared = self.part_with(&departed);
        let is_covered = |this: &Subscription, name: &ResourceName| {
            name.glob().is_some_and(|glob| this.asks_for_glob(&glob, group_of(&glob), &sets))
        };
        departed.retain(|name| wildcard || shared.contains(name) || is_covered(self, name));
        self.wait_for_departed(departed, |this, name| wildcard || is_covered(this, name));
        self.non_canonical.take_if(|non_canonical| non_canonical.is_empty());
        let names = sets
            .into_iter()
            .filter(|(place, set)| set.id() != self.names_of(*place).id())
            .map(|(place, set)| (place, NameSetChange(Arc::new(set))))
            .collect();
        let wildcard = (wildcard != was_wildcard).then_some(wildcard);
        Change { wildcard, names, left, ..Change::default() }
    }

    /// The client has given up the last spelling of a name or a glob.
    fn note_given_up(&mut self, key: &ResourceName) {
        match CollectionKind::of(key) {
            CollectionKind::Globs => {
                self.note_unread_members(CollectionKind::Globs, |name| name.glob().as_ref() == Some(key));
            }
            _ => self.note_unread(key),
        }
        self.forget_left(key);
    }

    /// The client asks for these names.
    fn note_further(&mut self, names: &[ResourceName], group_of: &dyn Fn(&ResourceName) -> NameGroup) {
        self.note_dynamic_names(names);
        // No resource lists a glob as its alias.
        let names = names.iter().filter(|name| !name.is_glob());
        self.note_read_late(&names.map(|name| group_of(name).authority).collect(), group_of);
    }

    /// Notes names that were given up, and still need an answer.
    fn wait_for_departed(
        &mut self,
        departed: Vec<ResourceName>,
        is_covered: impl Fn(&Subscription, &ResourceName) -> bool,
    ) {
        // Names that already wait interrupt no answer: each ACK would restart the answer, for ever.
        if let Some(mut waiting) = self.departed.take() {
            let has_aliases = self.type_url.kind() == Kind::VirtualHost;
            waiting.retain(|name| has_aliases || is_covered(self, name));
            self.departed = Some(waiting).filter(|waiting| !waiting.is_empty());
        }
        for name in &departed {
            self.depart(name);
        }
    }

    /// Whether a glob is requested. `changed` holds the sets that the request changes.
    fn asks_for_glob(&self, glob: &ResourceName, group: NameGroup, changed: &BTreeMap<Key, NameSet>) -> bool {
        let place = self.holding(glob).unwrap_or((CollectionKind::Globs, group));
        changed.get(&place).map_or_else(|| self.names_of(place).contains(glob), |globs| globs.contains(glob))
    }

    fn resubscribe_wildcard(&mut self) {
        self.interrupt();
        for part in self.parts.iter_mut().filter(|part| part.is_wildcard()) {
            let mut held = part.held.clone();
            View::forget_all(&mut held);
            part.hold(held);
        }
        self.greeting = true;
        self.fresh = true;
    }

    /// A name was given up beside the wildcard or its glob. The client must learn whether the wildcard or
    /// glob still has the name (DEL-19, NAM-17).
    pub(super) fn depart(&mut self, name: &ResourceName) {
        self.departed.get_or_insert_default().insert(name.clone());
        self.interrupt();
        self.fresh = true;
    }

    /// Notes the versions of a reconnecting delta client (DEL-29 to DEL-31) in the parts that cover the
    /// names. A name with a source of its own is none of the wildcard's.
    pub fn present(
        &mut self,
        versions: &[(ResourceName, String)],
        seed: HashSeed,
        share: &dyn Fn(View) -> Arc<View>,
    ) {
        let key = |name: &ResourceName| {
            canonical(name, &self.type_url).ok().flatten().unwrap_or_else(|| name.clone())
        };
        let versions: Vec<_> = versions.iter().map(|(name, version)| (key(name), version)).collect();
        let bytes: usize = versions.iter().map(|(name, _)| weight(name)).sum();
        self.presented = (bytes > 0).then(|| Box::new(Presented::Names(bytes)));
        let by_name = self.parts.iter().filter(|part| !part.is_broad() && self.parts.len() > 1);
        let by_name: Vec<_> = by_name.map(|part| (part.collection.clone(), part.source())).collect();
        for part in &mut self.parts {
            let (source, is_broad) = (part.source(), part.is_broad());
            let is_elsewhere = |name: &ResourceName| {
                is_broad && by_name.iter().any(|(names, of)| *of != source && names.covers(name))
            };
            let held =
                versions.iter().filter(|(name, _)| part.collection.covers(name) && !is_elsewhere(name));
            // A version from another server matches no content (RLY-32).
            let held =
                held.map(|(name, version)| (name.clone(), Version::parse(version).unwrap_or_default()));
            part.hold(share(View::presented(held, seed)));
            part.bring_if(!part.held.is_empty());
        }
    }
}
