//! A source holds mass deletions back, and carries them out later (FU18).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Source;
use crate::engine::Time;
use crate::engine::collection::CollectionKind;
use crate::engine::source::api::Output;
use crate::engine::source::attachment::Attachment;
use crate::engine::source::mass_deletion::{Collection, Key, is_mass};
use crate::engine::source::type_cache::TypeCache;
use crate::engine::upstream::{self, Cause, Changes, Event, Hold};
use crate::xds::{ResourceName, TypeUrl};

impl TypeCache {
    fn holds(&self, kind: CollectionKind, name: &ResourceName) -> bool {
        match kind {
            CollectionKind::Wildcard => {
                self.wildcard.as_ref().is_some_and(|wildcard| wildcard.members().contains_key(name))
            }
            CollectionKind::Globs => self.globs.members().contains_key(name),
            CollectionKind::Names => {
                self.named.known().get(name).is_some_and(|known| known.resource().is_some())
            }
        }
    }

    fn held(&self, kind: CollectionKind) -> usize {
        match kind {
            CollectionKind::Wildcard => self.wildcard.as_ref().map_or(0, |wildcard| wildcard.members().len()),
            CollectionKind::Globs => self.globs.members().len(),
            CollectionKind::Names => self.named.counts().present,
        }
    }

    /// The held resources that a response removes because the server no longer has them.
    fn taken(&self, changes: &Changes) -> Vec<(ResourceName, Cause)> {
        let kind = changes.kind;
        let by_server = |cause: Cause| matches!(cause, Cause::Removed | Cause::Omitted);
        let absent =
            changes.absent.iter().filter(|(name, cause)| by_server(*cause) && self.holds(kind, name));
        let mut taken: Vec<_> = absent.cloned().collect();
        if changes.replaces
            && let Some(wildcard) = &self.wildcard
        {
            let present: BTreeSet<_> = changes.present.iter().map(|resource| &resource.name).collect();
            let gone = wildcard.members().keys().filter(|name| !present.contains(name));
            taken.extend(gone.map(|name| (name.clone(), Cause::Omitted)));
        }
        taken
    }
}

impl Source {
    /// The number of resources of a type that are served although the server removed them.
    pub fn held_back(&self, type_url: &TypeUrl) -> usize {
        match &self.attachment {
            Attachment::Files(files) => files.held_back(type_url),
            Attachment::Streams(_) => self.guard.len(type_url),
        }
    }

    /// The start of the oldest hold of a type.
    pub fn held_back_since(&self, type_url: &TypeUrl) -> Option<Time> {
        if let Attachment::Files(files) = &self.attachment {
            return files.held_back_since(type_url);
        }
        let of_type = self.guard.collections.iter().filter(|((url, _), _)| url == type_url);
        of_type.filter(|(_, collection)| !collection.held.is_empty()).map(|(_, it)| it.since).min()
    }

    /// Takes the held-back removals out of a response.
    pub(super) fn hold_back(&mut self, changes: &mut Changes, now: Time) {
        let Attachment::Streams(streams) = &mut self.attachment else { return };
        let Some(hold) = streams.mass_deletion_hold() else { return };
        // A timeout is no answer.
        let is_timer = |(_, cause): &(ResourceName, Cause)| *cause == Cause::Timeout;
        if !changes.absent.is_empty() && changes.absent.iter().all(is_timer) {
            return;
        }
        let (type_url, kind) = (changes.type_url.clone(), changes.kind);
        let key = (type_url.clone(), kind);
        let server = streams.placed(&type_url, kind).and_then(|index| streams.machine(index));
        let server = server.map_or(0, |machine| machine.server());
        let Some(cache) = self.types.get(&type_url) else { return };
        let collection = self.guard.collections.entry(key.clone());
        let collection =
            collection.or_insert_with(|| Collection { server, since: now, held: BTreeMap::new() });
        let is_other_server = std::mem::replace(&mut collection.server, server) != server;
        let taken = cache.taken(changes);
        let standing = cache.held(kind).saturating_sub(collection.held.len());
        let fresh = taken.iter().filter(|(name, _)| !collection.held.contains_key(name));
        let fresh: Vec<_> = fresh.cloned().collect();
        let own = changes.present.iter().map(|resource| &resource.name);
        let brought = own.chain(changes.by_alias.iter().map(|(alias, _)| alias));
        let is_back = |name: &&ResourceName| collection.held.remove(*name).is_some();
        let back = brought.filter(is_back).count();
        let mut events = Vec::new();
        if back > 0 {
            events.push(Event::DeletionWithdrawn { type_url: type_url.clone(), count: back });
        }
        if is_other_server {
            changes.absent.extend(
                std::mem::take(&mut collection.held).into_iter().map(|(name, (_, cause))| (name, cause)),
            );
        } else if is_mass(fresh.len(), standing) {
            let (count, left) = (fresh.len(), standing.saturating_sub(fresh.len()));
            let due = hold.end(now);
            if collection.held.is_empty() {
                collection.since = now;
            }
            collection.held.extend(fresh.into_iter().map(|(name, cause)| (name, (due, cause))));
            self.guard.queue.extend(due.map(|due| (due, key)));
            events.push(Event::DeletionHeld { type_url, count, left, hold });
        }
        if !collection.held.is_empty() {
            let is_held = |name: &ResourceName| collection.held.contains_key(name);
            changes.absent.retain(|(name, _)| !is_held(name));
            if std::mem::take(&mut changes.replaces) {
                // Leaving members are reported one by one, and so are errors that are over.
                let present: BTreeSet<_> = changes.present.iter().map(|resource| &resource.name).collect();
                let errors =
                    cache.wildcard.iter().flat_map(|wildcard| wildcard.view().annotations().errors());
                let over =
                    errors.map(|(name, _)| name).filter(|name| !present.contains(name) && !is_held(name));
                let gone = taken.into_iter().map(|(name, _)| name).filter(|name| !is_held(name));
                let gone: BTreeSet<_> = over.cloned().chain(gone).collect();
                changes.absent.extend(gone.into_iter().map(|name| (name, Cause::Omitted)));
            }
        }
        let told = events.into_iter().map(|event| Output::Upstream(0, upstream::Output::Event(event)));
        self.outputs.extend(told);
    }

    /// Carries out deletions whose hold is over. While the server cannot be heard, it cannot send the
    /// resources again either: the hold starts anew.
    pub(super) fn let_deletions_go(&mut self, now: Time) {
        if let Attachment::Files(files) = &mut self.attachment {
            let over = files.expire(now);
            let carried_out = |type_url, count| Event::DeletionCarriedOut { type_url, count };
            self.let_files_go(over, carried_out, now);
        }
        while self.guard.poll_timeout().is_some_and(|due| due <= now) {
            let Some((_, key)) = self.guard.queue.pop_front() else { return };
            let Some(collection) = self.guard.collections.get_mut(&key) else { continue };
            if let Attachment::Streams(streams) = &self.attachment
                && let Some(Hold::For(time)) = streams.mass_deletion_hold()
                && self.attachment.is_lost_for(&key.0)
            {
                self.put_off(key, now, time);
                continue;
            }
            let is_over =
                |_: &ResourceName, held: &mut (Option<Time>, Cause)| held.0.is_some_and(|due| due <= now);
            let over =
                collection.held.extract_if(.., is_over).map(|(name, (_, cause))| (name, cause)).collect();
            let type_url = key.0.clone();
            let count = self.carry_out_deletion(key, over, now);
            if count > 0 {
                self.tell(Event::DeletionCarriedOut { type_url, count });
            }
        }
    }

    /// The operator confirms the deletions of these types, with or without a deadline: the held resources go.
    /// Returns the number of resources.
    pub fn confirm_deletions(&mut self, of: impl Fn(&TypeUrl) -> bool, now: Time) -> usize {
        if let Attachment::Files(files) = &mut self.attachment {
            let over = files.confirm(of);
            let confirmed = |type_url, count| Event::DeletionConfirmed { type_url, count };
            return self.let_files_go(over, confirmed, now);
        }
        let collections = self.guard.collections.iter_mut().filter(|((type_url, _), _)| of(type_url));
        let held: Vec<_> = collections.map(|(key, it)| (key.clone(), std::mem::take(&mut it.held))).collect();
        let mut total = 0;
        for (key, held) in held {
            let type_url = key.0.clone();
            let held = held.into_iter().map(|(name, (_, cause))| (name, cause)).collect();
            let count = self.carry_out_deletion(key, held, now);
            if count > 0 {
                self.tell(Event::DeletionConfirmed { type_url, count });
            }
            total += count;
        }
        total
    }

    /// Resources of files whose hold is over have left the state. Returns their number.
    fn let_files_go(
        &mut self,
        over: Vec<(TypeUrl, usize)>,
        event: impl Fn(TypeUrl, usize) -> Event,
        now: Time,
    ) -> usize {
        if over.is_empty() {
            return 0;
        }
        let total = over.iter().map(|(_, count)| count).sum();
        over.into_iter().for_each(|(type_url, count)| self.tell(event(type_url, count)));
        self.show_files(now);
        total
    }

    /// Carries out the removal of these names in one step. Returns the number of names.
    fn carry_out_deletion(
        &mut self,
        (type_url, kind): Key,
        names: Vec<(ResourceName, Cause)>,
        now: Time,
    ) -> usize {
        let count = names.len();
        if count > 0 {
            let mut changes = Changes::new(&type_url, kind);
            changes.absent = names;
            self.carry_out(&changes, now);
        }
        count
    }

    pub(super) fn tell(&mut self, event: Event) {
        self.outputs.push_back(Output::Upstream(0, upstream::Output::Event(event)));
    }

    fn put_off(&mut self, key: Key, now: Time, hold: Duration) {
        let Some(collection) = self.guard.collections.get_mut(&key) else { return };
        let over = collection.held.values_mut().filter(|(due, _)| due.is_some_and(|due| due <= now));
        if over.map(|held| held.0 = Some(now + hold)).count() > 0 {
            self.guard.queue.push_back((now + hold, key));
        }
    }
}
