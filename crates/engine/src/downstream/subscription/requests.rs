//! The requests of a client for one type. A SotW request has the complete list of names; a delta request has
//! names to subscribe to, and names to give up.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::Time;
use crate::authority::NameGroup;
use crate::authorization::{Grant, TypeGrant};
use crate::collection::{Collection, CollectionKind, HashSeed, NameSet};
use crate::downstream::answer::spelling::{NonCanonicalNames, canonical, key_of};
use crate::downstream::memory::weight;
use crate::downstream::sources::{Asked, SourceId};
use crate::downstream::subscription::name_wait::{First, FirstAnswer, Presented};
use crate::downstream::subscription::part::{Key, Part};
use crate::downstream::subscription::unasked::Unasked;
use crate::downstream::subscription::{InterestChange, NameSetChange, Subscription, unread};
use crate::snapshot::Snapshot;
use crate::view::View;
use sluice_xds::{DeltaRequest, Kind, ResourceName, SotwRequest, Version};

impl Subscription {
    /// Whether this is the list of the last SotW request that was taken.
    pub fn has_list(&self, names: &[ResourceName], seed: HashSeed) -> bool {
        self.interest.has_list(names, seed)
    }

    /// Handles a SotW request: its list is the complete set (SUB-1).
    pub(in crate::downstream) fn take_sotw(
        &mut self,
        request: &SotwRequest,
        seed: HashSeed,
        group_of: &dyn Fn(&ResourceName) -> NameGroup,
        grant: &Grant,
    ) -> InterestChange {
        let names = &request.resource_names;
        let is_first = self.interest.note_request();
        if !self.interest.note_list(names, is_first, seed) {
            return InterestChange::default();
        }
        self.exceptions.note_dynamic_names(names);
        self.end_presented();
        let implicit = self.interest.means_wildcard();
        let (names, moved) = self.take_list(names, seed, grant);
        let mut change = InterestChange { non_canonical: moved > 0, moved, ..InterestChange::default() };
        let wildcard = implicit || names.iter().any(ResourceName::is_wildcard);
        if is_first
            && wildcard
            && names.len() <= 1
            && let Some(version) = Version::parse(&request.version_info)
        {
            self.first_answer.get_or_insert_default().presented = Some(Presented::Whole(version));
        }
        if wildcard != self.is_wildcard() {
            change.wildcard = Some(wildcard);
        }
        let sets = self.parts.by_key(names.iter(), seed, group_of);
        // Beside a wildcard the client keeps the content of given-up names: the wildcard may have them
        // (SUB-6).
        if !wildcard {
            let first = self.first_answer.as_mut().and_then(|first_answer| first_answer.first.as_mut());
            if let Some(first) = first {
                first.keep(&sets, seed);
            }
            self.forget_given_up(&sets);
        }
        for (place, set) in sets {
            let before = self.parts.names_of(place);
            if set.id() != before.id() {
                let added: Vec<_> = set.minus(&before).cloned().collect();
                // The old set without the names that stay is gone.
                change.moved += 2 * added.len() + before.len() - set.len();
                if !added.is_empty() {
                    self.resubscribe(&added);
                }
                let left = before.minus(&set).filter(|name| wildcard || name.glob().is_some());
                change.left.extend(self.parts.accepted_of(left));
                change.names.insert(place, NameSetChange(Arc::new(set)));
            }
        }
        change
    }

    /// The canonical names of a complete list, and the number of changed spellings and new refusals.
    fn take_list<'a>(
        &mut self,
        names: &'a [ResourceName],
        seed: HashSeed,
        grant: &Grant,
    ) -> (Cow<'a, [ResourceName]>, usize) {
        let before = self.exceptions.get_mut().and_then(|exceptions| exceptions.non_canonical.take());
        let grant = grant.of_type(&self.type_url).ok();
        let of_type = (&self.type_url, grant.as_ref());
        let (keys, after) = NonCanonicalNames::of_list(names, of_type, before.as_deref(), seed);
        let respelled = NonCanonicalNames::respelled(after.as_deref(), before.as_deref());
        let refused = after.as_ref().map_or(0, |after| after.refusals.untold().count());
        if after.is_some() {
            self.exceptions.make_mut().non_canonical = after;
        }
        self.exceptions.trim();
        if !respelled.is_empty() {
            self.resubscribe(&respelled);
        }
        self.delivery.fresh |= refused > 0;
        (keys, refused + respelled.len())
    }

    /// Forgets the content of names and globs outside these sets, because the client has dropped the content.
    /// The client keeps a given-up name under a requested glob, and a requested name under a given-up glob
    /// (NAM-17).
    fn forget_given_up(&mut self, sets: &BTreeMap<Key, NameSet>) {
        let asks = |kind: CollectionKind, name: &ResourceName| {
            sets.iter().any(|((set_kind, _), names)| *set_kind == kind && names.contains(name))
        };
        let (mut gone, mut left, none) = (Vec::new(), Vec::new(), NameSet::default());
        for part in &self.parts {
            let (Some(before), after) = (part.names(), sets.get(&part.key()).unwrap_or(&none)) else {
                continue;
            };
            if before.id() == after.id() {
                continue;
            }
            if part.kind() == CollectionKind::Globs {
                let is_given_up = |member: &&ResourceName| {
                    let is_left = |glob| before.contains(&glob) && !after.contains(&glob);
                    member.glob().is_some_and(is_left) && !asks(CollectionKind::Names, member)
                };
                gone.extend(part.held.names().filter(is_given_up).cloned());
                left.extend(before.minus(after).cloned());
            } else {
                let is_covered =
                    |name: &ResourceName| name.glob().is_some_and(|glob| asks(CollectionKind::Globs, &glob));
                gone.extend(before.minus(after).filter(|name| !is_covered(name)).cloned());
            }
        }
        left.extend(gone.iter().cloned());
        self.let_go_unanswered(&left);
        for name in &gone {
            self.interrupt();
            self.parts.iter_mut().for_each(|part| part.let_go(name));
        }
    }

    /// Notes the first SotW request of the type. Its names must be parts already.
    pub(in crate::downstream) fn begin(&mut self, request: &SotwRequest, now: Time) {
        let brings = !request.version_info.is_empty();
        let first = First::new(&self.parts, brings, now);
        self.first_answer.get_or_insert_default().first = Some(first);
        self.parts.iter_mut().for_each(|part| part.bring_if(brings));
    }

    /// Handles a delta request: `subscribe` before `unsubscribe` (DEL-4), with any nonce (DEL-2).
    pub(in crate::downstream) fn take_delta(
        &mut self,
        request: &DeltaRequest,
        seed: HashSeed,
        group_of: &dyn Fn(&ResourceName) -> NameGroup,
        grant: &Grant,
    ) -> InterestChange {
        let is_first = self.interest.note_request();
        let both_empty = request.subscribe.is_empty() && request.unsubscribe.is_empty();
        let type_url = self.type_url.clone();
        let grant = (!both_empty).then(|| grant.of_type(&type_url).ok()).flatten();
        let was_wildcard = self.is_wildcard();
        self.note_further(&request.subscribe, group_of);
        // The first request decides on the implicit wildcard (DEL-6, DEL-10); more names keep the wildcard
        // (DEL-7).
        let mut wildcard = was_wildcard || (is_first && both_empty && self.interest.legacy_wildcard);
        let mut sets: BTreeMap<Key, NameSet> = BTreeMap::new();
        let mut departed = Vec::new();
        let is_stated = is_first && self.type_url.is_sent_unasked();
        for name in request.subscribe.iter().chain(stated_by_version(request, is_stated)) {
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
            self.exceptions.remove_departed(&key);
            let place = self.parts.place_of(&key, group_of);
            let set = sets.entry(place).or_insert_with(|| (*self.parts.names_of(place)).clone());
            let was_asked_for = !set.insert(key.clone(), seed);
            self.spell(&key, name, was_asked_for, seed);
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
            let place = self.parts.place_of(&key, group_of);
            let set = sets.entry(place).or_insert_with(|| (*self.parts.names_of(place)).clone());
            if set.remove(&key, seed) {
                self.note_stated(&key);
                self.note_given_up(&key);
                departed.push(key);
            }
        }
        let left = departed.iter().filter(|name| wildcard || name.glob().is_some());
        let left = self.parts.accepted_of(left);
        let shared = self.part_with(&departed);
        let is_covered = |this: &Subscription, name: &ResourceName| {
            name.glob().is_some_and(|glob| this.asks_for_glob(&glob, group_of(&glob), &sets))
        };
        departed.retain(|name| wildcard || shared.contains(name) || is_covered(self, name));
        self.wait_for_departed(departed, |this, name| wildcard || is_covered(this, name));
        self.exceptions.end_non_canonical();
        let names = sets
            .into_iter()
            .filter(|(place, set)| set.id() != self.parts.names_of(*place).id())
            .map(|(place, set)| (place, NameSetChange(Arc::new(set))))
            .collect();
        let wildcard = (wildcard != was_wildcard).then_some(wildcard);
        InterestChange { wildcard, names, left, ..InterestChange::default() }
    }

    /// The canonical name; `None` if the name is refused.
    fn take_name(&mut self, name: &ResourceName, grant: Option<&TypeGrant<'_>>) -> Option<ResourceName> {
        match key_of(name, (&self.type_url, grant)) {
            Ok(key) => Some(key.unwrap_or_else(|| name.clone())),
            Err(reason) => {
                self.interrupt();
                self.delivery.fresh = true;
                let non_canonical = self.exceptions.make_mut().non_canonical.get_or_insert_default();
                non_canonical.refusals.insert(name, reason);
                None
            }
        }
    }

    /// Notes a spelling that the client uses for the name.
    fn spell(&mut self, key: &ResourceName, name: &ResourceName, was_asked_for: bool, seed: HashSeed) {
        if key != name || self.exceptions.non_canonical.is_some() {
            let non_canonical = self.exceptions.make_mut().non_canonical.get_or_insert_default();
            Arc::make_mut(&mut non_canonical.spellings).insert(key, name, was_asked_for, seed);
        }
    }

    /// Notes that the client gives up a spelling. Returns the canonical name if no spelling is left.
    fn give_up(
        &mut self,
        name: &ResourceName,
        grant: Option<&TypeGrant<'_>>,
        seed: HashSeed,
    ) -> Option<ResourceName> {
        let key = key_of(name, (&self.type_url, grant));
        let non_canonical =
            self.exceptions.get_mut().and_then(|exceptions| exceptions.non_canonical.as_mut());
        let key = match key {
            Ok(key) => key.unwrap_or_else(|| name.clone()),
            Err(_) => {
                if let Some(non_canonical) = non_canonical {
                    non_canonical.refusals.remove(name);
                }
                return None;
            }
        };
        let spellings = non_canonical.map(|non_canonical| Arc::make_mut(&mut non_canonical.spellings));
        let is_left = spellings.map_or(key != *name, |spellings| spellings.remove(&key, name, seed));
        (!is_left).then_some(key)
    }

    /// The client asks for names again, and must be sent them again, whatever its content (SUB-3, DEL-11).
    fn resubscribe(&mut self, names: &[ResourceName]) {
        self.interrupt();
        for name in names {
            self.forget_name(name);
        }
        self.delivery.fresh = true;
    }

    fn resubscribe_wildcard(&mut self) {
        self.interrupt();
        self.parts.forget_members();
        self.delivery.greeting = true;
        self.delivery.fresh = true;
    }

    /// The client has given up the last spelling of a name or a glob. Names beside a glob keep the members
    /// that the glob brought, as they are (NAM-17).
    fn note_given_up(&mut self, key: &ResourceName) {
        if key.is_glob() {
            self.note_unread_members(CollectionKind::Globs, |name| name.glob().as_ref() == Some(key));
        } else {
            self.note_unread(key);
            self.forget_name(key);
            // The client may drop it.
            self.parts.iter_mut().for_each(|part| View::unlearn(&mut part.held, key));
        }
    }

    /// Whether a glob is requested. `changed` holds the sets that the request changes.
    fn asks_for_glob(&self, glob: &ResourceName, group: NameGroup, changed: &BTreeMap<Key, NameSet>) -> bool {
        let place = self.parts.holding(glob).unwrap_or((CollectionKind::Globs, group));
        let is_requested = || self.parts.names_of(place).contains(glob);
        changed.get(&place).map_or_else(is_requested, |globs| globs.contains(glob))
    }

    /// Notes names that were given up, and still need an answer.
    fn wait_for_departed(
        &mut self,
        departed: Vec<ResourceName>,
        is_covered: impl Fn(&Subscription, &ResourceName) -> bool,
    ) {
        // Names that already wait interrupt no answer: each ACK would restart the answer, for ever.
        let has_aliases = self.type_url.kind() == Kind::VirtualHost;
        let is_over = |name: &&ResourceName| !has_aliases && !is_covered(self, name);
        let over: Vec<_> = self.exceptions.departed().filter(is_over).cloned().collect();
        if !over.is_empty() {
            self.exceptions.retain_departed(|name| !over.contains(name));
        }
        for name in &departed {
            self.depart(name);
        }
    }

    /// A name was given up beside the wildcard or its glob. The client must learn whether the wildcard or
    /// glob still has the name (DEL-19, NAM-17).
    fn depart(&mut self, name: &ResourceName) {
        self.exceptions.add_departed(name);
        self.interrupt();
        self.delivery.fresh = true;
    }

    /// Notes the versions of a reconnecting delta client (DEL-29 to DEL-31) in the parts that cover the
    /// names. A name with a source of its own is none of the wildcard's.
    pub(in crate::downstream) fn present(
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
        if bytes > 0 {
            self.first_answer =
                Some(Box::new(FirstAnswer { first: None, presented: Some(Presented::Names(bytes)) }));
        }
        let by_name = self.parts.iter().filter(|part| !part.is_broad() && self.parts.len() > 1);
        let by_name: Vec<_> = by_name.map(|part| (part.collection.clone(), part.source())).collect();
        for part in &mut self.parts {
            let (source, is_broad) = (part.source(), part.is_broad());
            let is_elsewhere = |name: &ResourceName| {
                is_broad && by_name.iter().any(|(names, other)| *other != source && names.covers(name))
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

    /// Notes a delta request of a client that reads marks.
    pub(in crate::downstream) fn note_marked_requests(&mut self, requests: u64, request: &DeltaRequest) {
        let marks = self.exceptions.make_mut().set_marks.get_or_insert_default();
        marks.note_requests(requests, request, &self.type_url);
    }

    // Content on its way to a delta client that has given it up.

    /// The nonce of the latest response, if some response is unanswered.
    fn begin_to_note(&mut self) -> Option<u64> {
        let latest = self.nonces.latest().filter(|_| self.nonces.is_waiting())?;
        // The messages sent so far count.
        self.interrupt();
        Some(latest)
    }

    /// Notes a name that the client gives up, if unanswered responses have content of it.
    fn note_unread(&mut self, name: &ResourceName) {
        let Some(latest) = self.begin_to_note() else { return };
        if unread::is_unread(&self.parts, &self.exceptions.stages, name) {
            let unread = self.exceptions.make_mut().unread.get_or_insert_default();
            unread.note_given_up(vec![name.clone()], latest);
        }
    }

    /// As [`Self::note_unread`], for the members of a glob or of the wildcard.
    fn note_unread_members(&mut self, kind: CollectionKind, is_member: impl Fn(&ResourceName) -> bool) {
        let Some(latest) = self.begin_to_note() else { return };
        let names = unread::unread_members(&self.parts, &self.exceptions.stages, kind, is_member);
        if !names.is_empty() {
            self.exceptions.make_mut().unread.get_or_insert_default().note_given_up(names, latest);
        }
    }

    /// The client asks for these names.
    fn note_further(&mut self, names: &[ResourceName], group_of: &dyn Fn(&ResourceName) -> NameGroup) {
        self.exceptions.note_dynamic_names(names);
        // No resource lists a glob as its alias.
        let names = names.iter().filter(|name| !name.is_glob());
        let authorities: BTreeSet<_> = names.map(|name| group_of(name).authority).collect();
        let has_aliases = self.type_url.kind() == Kind::VirtualHost;
        if authorities.is_empty() || !has_aliases || self.begin_to_note().is_none() {
            return;
        }
        let late = unread::read_late(&self.parts, &self.exceptions.stages, &authorities);
        if !late.is_empty() {
            self.exceptions.make_mut().unread.get_or_insert_default().note_read_late(late);
        }
        // Content on its way that the client has given up may list the further names, too.
        let unread = self.exceptions.unread.as_ref();
        let given_up = unread.map_or_else(Vec::new, |unread| unread.given_up_in(&authorities, group_of));
        given_up.iter().for_each(|name| self.depart(name));
    }

    /// The client gave names up. Returns those under which it may keep a resource for an alias (ALI-2): names
    /// with content that the client has not answered for, or had not when it asked for others, and names that
    /// had the same content as another requested name before.
    fn part_with(&mut self, given_up: &[ResourceName]) -> BTreeSet<ResourceName> {
        let mut shared = BTreeSet::new();
        if !given_up.is_empty() && self.type_url.kind() == Kind::VirtualHost {
            let unread = self.exceptions.get_mut().and_then(|exceptions| exceptions.unread.as_mut());
            if let Some(unread) = unread {
                shared.append(&mut unread.take_read_late(given_up));
            }
            if self.nonces.is_waiting() {
                let stages = &self.exceptions.stages;
                shared.append(&mut unread::shared_by_aliases(&self.parts, stages, given_up));
            }
        }
        self.let_go_unanswered(given_up);
        shared
    }

    fn let_go_unanswered(&mut self, given_up: &[ResourceName]) {
        if !given_up.is_empty() && self.nonces.is_waiting() {
            self.nonces.lose_names();
            let stages = self.exceptions.get_mut().map(|exceptions| &mut exceptions.stages);
            unread::let_go_unanswered(&mut self.parts, stages, given_up);
        }
    }

    // Adopted names (DEL-17).

    /// Whether the session should adopt names, or give some up.
    pub(in crate::downstream) fn owes_unasked(
        &self,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
    ) -> bool {
        Unasked::is_owed(self.exceptions.unasked.as_deref(), &self.parts, &self.type_url, latest)
    }

    /// The unasked names since the last look.
    pub(in crate::downstream) fn take_unasked(
        &mut self,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
        group_of: &dyn Fn(&ResourceName) -> NameGroup,
        grant: Option<&TypeGrant<'_>>,
    ) -> Vec<ResourceName> {
        let unasked = self.exceptions.make_mut().unasked.get_or_insert_default();
        unasked.take_new(&self.parts, &self.type_url, latest, group_of, grant)
    }

    /// The adopted names to give up: absent for the client and at the source.
    pub(in crate::downstream) fn take_gone(
        &mut self,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
    ) -> Vec<ResourceName> {
        let unasked = self.exceptions.get_mut().and_then(|exceptions| exceptions.unasked.as_mut());
        unasked.map_or_else(Vec::new, |unasked| unasked.take_gone(&self.parts, &self.type_url, latest))
    }

    /// Notes adopted names.
    pub(in crate::downstream) fn note_adopted(&mut self, names: Vec<ResourceName>) {
        self.exceptions.make_mut().unasked.get_or_insert_default().adopt(names);
    }

    /// The client stated the name, or gave it up.
    fn note_stated(&mut self, name: &ResourceName) {
        if let Some(exceptions) = self.exceptions.get_mut()
            && let Some(unasked) = &mut exceptions.unasked
        {
            unasked.note_stated(name);
        }
    }

    // Changes of the parts.

    /// Sets the collection of a part; `None` removes the part. The client's content stays. Returns
    /// the former sources of the part.
    pub(in crate::downstream) fn set_part(
        &mut self,
        group: NameGroup,
        collection: Option<(Asked, Collection)>,
        kind: CollectionKind,
    ) -> Vec<SourceId> {
        self.interrupt();
        let is_there = collection.is_some();
        let change = self.parts.set(group, collection, kind);
        self.delivery.fresh |= change.is_wider;
        if kind == CollectionKind::Wildcard && change.collection.is_some() != is_there {
            self.delivery.greeting = is_there;
        }
        if let Some(unread) = &self.exceptions.unread {
            unread.expect(&mut self.parts, (kind, group), change.collection.as_ref());
        }
        change.sources
    }

    /// The client gave names up. Of those that the wildcard or a glob covers, it has accepted what it had,
    /// and has yet to answer for the rest (TRU-1).
    pub(in crate::downstream) fn keep_left(&mut self, left: &[(ResourceName, Version)]) {
        if !left.is_empty() {
            self.parts.keep_left(left, self.nonces.is_waiting());
        }
    }

    /// The change of a session's collections for names whose group has changed.
    pub(in crate::downstream) fn divert(
        &self,
        seed: HashSeed,
        group_of: &dyn Fn(&ResourceName) -> NameGroup,
    ) -> InterestChange {
        let sets: Vec<_> = self.parts.iter().filter_map(Part::names).collect();
        let sets = self.parts.by_key(sets.iter().flat_map(|names| names.iter()), seed, group_of);
        let moved = sets.into_iter().filter(|(place, set)| set.id() != self.parts.names_of(*place).id());
        let names = moved.map(|(place, set)| (place, NameSetChange(Arc::new(set)))).collect();
        InterestChange { names, ..InterestChange::default() }
    }

    /// The client's content of names and globs, by part.
    pub(in crate::downstream) fn held_by_names(&self) -> Vec<(CollectionKind, Arc<View>)> {
        let named = self.parts.iter().filter(|part| !part.is_wildcard());
        named.map(|part| (part.kind(), part.held.clone())).collect()
    }
}

/// The names that a first request states by versions alone. An on-demand client states its resources so, and
/// istiod counts the names as subscribed. `is_stated`: the request may state names so.
fn stated_by_version(request: &DeltaRequest, is_stated: bool) -> impl Iterator<Item = &ResourceName> {
    let has_all = |list: &[ResourceName]| list.iter().any(ResourceName::is_wildcard);
    let is_of_all =
        request.subscribe.is_empty() || has_all(&request.subscribe) && !has_all(&request.unsubscribe);
    let names = request.initial_resource_versions.iter().map(|(name, _)| name);
    names.filter(move |name| is_stated && !is_of_all && !name.is_wildcard())
}
