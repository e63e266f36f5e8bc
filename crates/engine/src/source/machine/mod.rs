//! The machine: the sessions of a source, the caches, and the attachment to the server.
//!
//! From top to bottom: the calls of the driver, the collections of sessions, lingering names, and
//! publication. [`server`] applies the words of the server.

mod server;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::mem::take;
use std::sync::Arc;

use crate::Time;
use crate::cache::slots::NamesAfter;
use crate::cache::watchers::SlotId;
use crate::cache::{CacheCounts, Departed, Entry, KindCache, SessionId, WildcardCache};
use crate::change::Change;
use crate::collection::{Collection, CollectionKey, CollectionKind, NameSet};
use crate::commons::Commons;
use crate::reachability::Reachability;
use crate::snapshot::Snapshot;
use crate::source::api::{SourceOutput, SourceSettings, StreamIndex};
use crate::source::attachment::Attachment;
use crate::source::checkpoint::Restoring;
use crate::source::content_bound::RefusedContent;
use crate::source::linger::{Linger, Lingering};
use crate::source::mass_deletion::DeletionGuard;
use crate::source::publication::Publication;
use crate::source::sessions::SourceSessions;
use crate::source::type_cache::TypeCache;
use crate::source::upkeep::Upkeep;
use crate::upstream::{self, ResourceSelection};
use crate::view::View;
use sluice_xds::{Resource, ResourceName, TypeUrl};

#[derive(Debug)]
pub struct Source {
    settings: SourceSettings,
    attachment: Attachment,
    /// In boxes: most sources have few types, and a node of the tree has places for eleven.
    types: BTreeMap<TypeUrl, Box<TypeCache>>,
    sessions: SourceSessions,
    /// The names and wildcards without sessions.
    linger: Linger,
    publication: Publication,
    /// The timers of resources and of unavailable names.
    upkeep: Upkeep,
    /// The unconfirmed content from before a restart.
    restoring: Restoring,
    /// The deletions that are held back.
    guard: DeletionGuard,
    /// The content that the bound keeps out.
    refused: RefusedContent,
    /// The number of the latest unasked resource.
    unasked: u64,
    outputs: VecDeque<SourceOutput>,
}

/// The calls of the driver.
impl Source {
    /// A new source without sessions. `id` is unique in the process and unguessable for clients: the ids of
    /// views contain the `id`, and equal ids stand for equal answers.
    pub fn new(id: u64, settings: SourceSettings, attachment: Attachment) -> Source {
        let attachment = attachment.set(&settings);
        Source {
            linger: Linger::new(settings.linger, settings.unwatched_bytes),
            settings,
            attachment,
            types: BTreeMap::new(),
            sessions: SourceSessions::default(),
            publication: Publication::new(id),
            upkeep: Upkeep::default(),
            restoring: Restoring::default(),
            guard: DeletionGuard::default(),
            refused: RefusedContent::default(),
            unasked: 0,
            outputs: VecDeque::new(),
        }
    }

    /// Takes other settings over: limits and new timers obey at once, and running timers end as they were
    /// set. `upstream` are the settings of the same server; only files have none.
    pub fn configure(
        &mut self,
        settings: SourceSettings,
        upstream: Option<&upstream::UpstreamSettings>,
        now: Time,
    ) {
        self.linger.configure(settings.linger, settings.unwatched_bytes);
        if let (Attachment::Streams(streams), Some(upstream)) = (&mut self.attachment, upstream) {
            streams.configure(settings.for_streams(upstream));
        }
        self.settings = settings;
        self.refused.retry_all(now);
        self.expire_linger(now);
        self.after(now);
    }

    /// See [`crate::source::Streams::set_node_bytes`].
    pub fn set_node_bytes(&mut self, node_bytes: usize) {
        if let Attachment::Streams(streams) = &mut self.attachment {
            streams.set_node_bytes(node_bytes);
        }
    }

    pub fn handle_upstream(&mut self, stream: StreamIndex, mut input: upstream::Input, now: Time) {
        match &mut input {
            upstream::Input::Received(response) => {
                self.bound_content(stream, response, now);
                self.publication.heard.insert(response.type_url().clone());
            }
            // A stream begins or ends for all of its names.
            upstream::Input::Opened
            | upstream::Input::NextOpened
            | upstream::Input::Closed { .. }
            | upstream::Input::Ended { .. } => self.publication.heard.extend(self.types.keys().cloned()),
            _ => {}
        }
        if let Attachment::Streams(streams) = &mut self.attachment {
            streams.handle(stream, input, now);
            streams.agree_on_server(now);
        }
        self.after(now);
    }

    /// Takes the whole state of a file server: absent names do not exist (FIL-8), unless a mass deletion is
    /// held back.
    pub fn handle_files(&mut self, state: Vec<(TypeUrl, Vec<Arc<Resource>>)>, now: Time) {
        let Attachment::Files(files) = &mut self.attachment else { return };
        let events = files.replace(state, now);
        events.into_iter().for_each(|event| self.report(event));
        self.show_files(now);
        self.after(now);
    }

    /// The directory, or a file in it, cannot be used. The last good state stays.
    pub fn handle_bad_files(&mut self) {
        if let Attachment::Files(files) = &mut self.attachment {
            files.set_bad();
        }
    }

    /// Sets the treatment of mass deletions by files.
    pub fn hold_files(&mut self, hold: Option<upstream::Hold>) {
        if let Attachment::Files(files) = &mut self.attachment {
            files.set_hold(hold);
        }
    }

    pub fn poll_timeout(&self) -> Option<Time> {
        let machines = match &self.attachment {
            Attachment::Streams(streams) => streams.poll_timeout(),
            Attachment::Files(files) => files.poll_timeout(),
        };
        let departed = self.types.values().flat_map(|cache| cache.departed());
        let departed = departed.filter_map(Departed::poll_timeout).min();
        let times = [
            machines,
            departed,
            self.publication.wake_at(self.settings.coalescing),
            self.linger.poll_timeout(),
            self.upkeep.poll_timeout(),
            self.restoring.poll_timeout(),
            self.guard.poll_timeout(),
            self.refused.retry_at(|bytes| self.has_room(bytes)),
        ];
        times.into_iter().flatten().min()
    }

    pub fn handle_timeout(&mut self, now: Time) {
        if let Attachment::Streams(streams) = &mut self.attachment {
            streams.handle_timeout(now);
        }
        self.expire_linger(now);
        self.expire_departed(now);
        self.run_out(now);
        self.report_unreachable(now);
        self.carry_out_deletions(now);
        self.keep_restored(now);
        self.after(now);
    }

    /// Frees the last bytes of former members that no stream withholds any more.
    fn expire_departed(&mut self, now: Time) {
        let types = self.types.iter_mut();
        let expired = types.filter_map(|(url, cache)| cache.expire_departed(now).then(|| url.clone()));
        let expired: Vec<_> = expired.collect();
        for type_url in expired {
            self.settle(&type_url, now);
        }
    }

    pub fn poll_output(&mut self) -> Option<SourceOutput> {
        self.outputs.pop_front()
    }

    /// Takes equal maps of other sources over, where something changed since the last call (BOD-1). Private
    /// sources and Secrets share nothing (BOD-3). Due before [`Source::take_snapshot`].
    pub fn share(&mut self, commons: &dyn Commons) {
        let Publication { unshared, heard, .. } = &mut self.publication;
        let (changed, heard) = (take(unshared), take(heard));
        let is_common = |type_url: &&TypeUrl| !self.settings.private && !type_url.is_secret();
        for type_url in changed.iter().filter(is_common) {
            let Some(cache) = self.types.get_mut(type_url) else { continue };
            if cache.share(commons) {
                self.publication.renew(type_url, cache);
            }
        }
        let Attachment::Streams(streams) = &mut self.attachment else { return };
        for type_url in heard.iter().filter(is_common) {
            for (kind, content) in self.types.get(type_url).into_iter().flat_map(|cache| cache.content_keys())
            {
                streams.share(type_url, kind, content, commons);
            }
        }
    }

    /// The current snapshot, if there was a change since the last call.
    pub fn take_snapshot(&mut self) -> Option<Arc<Snapshot>> {
        self.publication.take_snapshot()
    }

    /// The current snapshot. Unlike [`Source::take_snapshot`], the call does not mark the snapshot as seen.
    pub fn snapshot(&self) -> &Snapshot {
        &self.publication.snapshot
    }

    /// The changes of content since the last call, in the order of their numbers. The driver takes them
    /// before it publishes the snapshot.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.publication.changes)
    }

    /// Whether the server can be heard for one type; `None` where all types share the answer.
    pub fn reach_of(&self, type_url: &TypeUrl) -> Option<Reachability> {
        self.attachment.reach_of(type_url)
    }

    pub fn attachment(&self) -> &Attachment {
        &self.attachment
    }

    /// Whether the source can be dropped: no sessions, and nothing lingers.
    pub fn is_idle(&self) -> bool {
        let streams_idle = match &self.attachment {
            Attachment::Streams(streams) => streams.machines().all(|(_, machine)| machine.is_idle()),
            Attachment::Files(_) => true,
        };
        self.sessions.is_empty() && self.types.is_empty() && self.linger.is_empty() && streams_idle
    }

    /// Each type with the counts of its named resources and members of globs, and the members of the wildcard
    /// if watched. The counts of states include members of the wildcard.
    pub fn types(&self) -> impl Iterator<Item = (&TypeUrl, CacheCounts, Option<&View>)> {
        self.types.iter().map(|(type_url, cache)| {
            let mut counts = cache.named.counts();
            counts.present += cache.globs.members().len();
            counts.bytes += cache.globs.bytes();
            let members = cache.globs.members();
            counts
                .states
                .add_members(members.len(), cache.globs.annotations(), |name| members.contains_key(name));
            if let Some(wildcard) = &cache.wildcard {
                let (members, annotations) = (wildcard.members(), wildcard.view().annotations());
                counts.states.add_members(members.len(), annotations, |name| members.contains_key(name));
            }
            (type_url, counts, cache.wildcard.as_ref().map(|wildcard| &**wildcard.view()))
        })
    }

    pub fn lingering_bytes(&self) -> usize {
        self.linger.bytes()
    }

    /// The number of names and wildcards that were evicted early because of `unwatched_bytes`.
    pub fn evicted(&self) -> u64 {
        self.linger.evicted()
    }

    /// Whether sessions will be woken for changes that the snapshot already has (RLY-54).
    pub fn owes_wakes(&self) -> bool {
        self.publication.wake_at(self.settings.coalescing).is_some()
    }

    /// Streams begin with another node from now on: new streams replace the open streams.
    pub fn succeed(&mut self, now: Time) {
        if let Attachment::Streams(streams) = &mut self.attachment {
            streams.machines_mut().for_each(|(_, machine)| machine.succeed());
        }
        self.after(now);
    }

    /// Tells the server of clients' rejections of a type. False: no stream has an accepted response.
    pub fn report_rejections(&mut self, type_url: &TypeUrl, words: &str, now: Time) -> bool {
        match &mut self.attachment {
            Attachment::Streams(streams) => streams.report_rejections(type_url, words, now),
            Attachment::Files(_) => false,
        }
    }
}

/// The collections of sessions: names, globs and wildcards begin and end.
impl Source {
    /// As [`Source::watch_after`], without previous names.
    #[cfg(any(test, feature = "bench"))]
    pub fn watch(&mut self, session: SessionId, type_url: &TypeUrl, collection: &Collection, now: Time) {
        self.watch_after(session, type_url, collection, None, now);
    }

    /// Sets one of a session's collections of one type: the wildcard, globs, or names of one style.
    /// [`Source::unwatch`] ends a collection; an empty list of names does not. `previous`: see
    /// [`NamesAfter`]. With previous names, the cost is that of the change; without, that of all names.
    pub fn watch_after(
        &mut self,
        session: SessionId,
        type_url: &TypeUrl,
        collection: &Collection,
        previous: Option<&NameSet>,
        now: Time,
    ) {
        match collection.names() {
            Some(names) => self.watch_set(session, type_url, collection, NamesAfter { names, previous }, now),
            None => self.watch_wildcard(session, type_url, now),
        }
        // A first answer is never delayed to join others (RLY-54).
        self.publication.news.first.push(session);
        self.after(now);
    }

    fn watch_wildcard(&mut self, session: SessionId, type_url: &TypeUrl, now: Time) {
        self.sessions.watched(session, type_url).wildcard = true;
        self.linger.remove(&(type_url.clone(), None));
        let cache = self.types.entry(type_url.clone()).or_default();
        let is_new = cache.wildcard.is_none();
        let wildcard =
            cache.wildcard.get_or_insert_with(|| WildcardCache::new(self.publication.stamp.at(now)));
        wildcard.watch(session);
        if !is_new {
            self.divert_late(session, type_url, &Collection::Wildcard);
            return;
        }
        self.ask(type_url, ResourceSelection::Wildcard, now);
        self.settle(type_url, now);
    }

    /// `names`: the names or globs of the collection.
    fn watch_set(
        &mut self,
        session: SessionId,
        type_url: &TypeUrl,
        collection: &Collection,
        names: NamesAfter<'_>,
        now: Time,
    ) {
        let key = collection.key();
        let from = *self.sessions.watched(session, type_url).slot(key);
        let sets = self.types.entry(type_url.clone()).or_default().sets_mut(key.kind);
        let moved = sets.watch(session, from, names, self.publication.stamp.at(now));
        *self.sessions.watched(session, type_url).slot(key) = moved.slot;
        self.divert_late(session, type_url, collection);
        for name in moved.revived {
            self.linger.remove(&(type_url.clone(), Some(name)));
        }
        if !moved.new.is_empty() {
            self.ask(type_url, key.kind.collection(moved.new), now);
        }
        self.start_linger(type_url, moved.unwatched.into_iter().map(Some), now);
        self.settle(type_url, now);
    }

    /// Asks the server for names that have no subscription yet (RLY-57, RLY-58), for globs, or for the
    /// wildcard.
    fn ask(&mut self, type_url: &TypeUrl, selection: ResourceSelection, now: Time) {
        match &mut self.attachment {
            Attachment::Streams(streams) => {
                if let Some(names) = selection.names() {
                    self.types.get_mut(type_url).into_iter().for_each(|cache| cache.has_asked = true);
                    self.upkeep.note_asked(type_url, names, now);
                }
                if !streams.subscribe(type_url, selection, now) {
                    self.outputs.push_back(SourceOutput::Unserved(type_url.clone()));
                }
            }
            Attachment::Files(files) => {
                if let Some(cache) = self.types.get_mut(type_url) {
                    cache.take_new(type_url, &selection, files);
                }
            }
        }
    }

    /// A session no longer wants a collection of a type.
    pub fn unwatch(&mut self, session: SessionId, type_url: &TypeUrl, key: CollectionKey, now: Time) {
        let Some(watched) = self.sessions.get_mut(session, type_url) else { return };
        if key != CollectionKey::WILDCARD {
            let slot = watched.slot(key).take();
            slot.into_iter().for_each(|slot| self.drop_set(session, type_url, key.kind, slot, now));
        } else if std::mem::take(&mut watched.wildcard) {
            self.drop_wildcard(session, type_url, now);
        }
        self.sessions.remove_empty(session);
        self.after(now);
    }

    /// A session went back to a server of higher priority. After the last session nothing lingers: the
    /// streams close (RLY-60).
    pub fn dismiss(&mut self, session: SessionId, now: Time) {
        self.forget(session, now);
        if self.sessions.is_empty() {
            self.give_up_restored(now);
            let lingering = std::iter::from_fn(|| self.linger.pop_any()).collect();
            self.free(lingering, now);
            self.attachment.close_idle(now);
            self.after(now);
        }
    }

    /// A session has ended.
    pub fn forget(&mut self, session: SessionId, now: Time) {
        for watched in self.sessions.remove(session) {
            if watched.wildcard {
                self.drop_wildcard(session, &watched.type_url, now);
            }
            for (kind, slot) in watched.slots() {
                self.drop_set(session, &watched.type_url, kind, slot, now);
            }
        }
        self.after(now);
    }

    fn drop_wildcard(&mut self, session: SessionId, type_url: &TypeUrl, now: Time) {
        let Some(wildcard) = self.types.get_mut(type_url).and_then(|cache| cache.wildcard.as_mut()) else {
            return;
        };
        wildcard.unwatch(session);
        self.start_linger(type_url, [None], now);
    }

    fn drop_set(
        &mut self,
        session: SessionId,
        type_url: &TypeUrl,
        kind: CollectionKind,
        slot: SlotId,
        now: Time,
    ) {
        let Some(cache) = self.types.get_mut(type_url) else { return };
        let unwatched = cache.sets_mut(kind).unwatch(session, slot);
        self.start_linger(type_url, unwatched.into_iter().map(Some), now);
        self.settle(type_url, now);
    }

    /// A session asks for names that have turned out to be private earlier.
    fn divert_late(&mut self, session: SessionId, type_url: &TypeUrl, collection: &Collection) {
        let Some(cache) = self.types.get(type_url) else { return };
        let names = cache.private.entries_in(collection);
        if !names.is_empty() {
            let (type_url, sessions) = (type_url.clone(), vec![session]);
            self.outputs.push_back(SourceOutput::DoNotCache { type_url, names, sessions });
        }
    }
}

/// Names and wildcards without sessions linger, and are freed (RLY-59 to RLY-61).
impl Source {
    fn start_linger(&mut self, type_url: &TypeUrl, entries: impl IntoIterator<Item = Entry>, now: Time) {
        let Some(cache) = self.types.get(type_url) else { return };
        for entry in entries {
            // A session that moves between two sets leaves the old set after it joined the new set.
            let unwatched = cache.unwatched(entry.as_ref());
            let unwatched = unwatched.filter(|_| !self.is_kept(type_url, entry.as_ref()));
            if let Some((bytes, has_content)) = unwatched {
                self.linger.add((type_url.clone(), entry), bytes, has_content, now);
            }
        }
    }

    /// Unsubscribes and frees names whose linger is over (RLY-61).
    fn expire_linger(&mut self, now: Time) {
        let lingered = std::iter::from_fn(|| self.linger.pop(now)).collect();
        self.free(lingered, now);
    }

    fn free(&mut self, lingered: Vec<Lingering>, now: Time) {
        let mut names: BTreeMap<TypeUrl, Vec<ResourceName>> = BTreeMap::new();
        for (type_url, name) in lingered {
            match name {
                Some(name) => names.entry(type_url).or_default().push(name),
                None => self.expire_wildcard(&type_url, now),
            }
        }
        for (type_url, names) in names {
            let Some(cache) = self.types.get_mut(&type_url) else { continue };
            let (globs, names): (Vec<_>, Vec<_>) = names.into_iter().partition(ResourceName::is_glob);
            let names: Vec<_> = names.into_iter().filter(|name| cache.named.free(name)).collect();
            let mut members = Vec::new();
            let globs: Vec<_> =
                globs.into_iter().filter(|glob| cache.globs.free(glob, &mut members)).collect();
            cache.private.forget(&names);
            cache.private.forget(&globs);
            if let Some(unasked) = &mut cache.unasked {
                let unasked = Arc::make_mut(unasked);
                names.iter().for_each(|name| unasked.remove(name));
            }
            let (no_names, no_globs) = (cache.named.is_empty(), cache.globs.is_empty());
            for (kind, freed) in [(CollectionKind::Names, &names), (CollectionKind::Globs, &members)] {
                self.upkeep.free(&type_url, kind, freed);
                self.guard.forget(&type_url, kind, freed);
            }
            if let Attachment::Streams(streams) = &mut self.attachment {
                streams.unsubscribe(&type_url, ResourceSelection::Names(names), no_names, now);
                streams.unsubscribe(&type_url, ResourceSelection::Globs(globs), no_globs, now);
            }
            self.settle(&type_url, now);
        }
        let types = &self.types;
        let count = types.values().map(|cache| cache.named.entries().len() + cache.globs.len()).sum();
        self.upkeep.forget_asked(count, |type_url, name| {
            types.get(type_url).is_some_and(|cache| cache.is_unknown(name))
        });
    }

    fn expire_wildcard(&mut self, type_url: &TypeUrl, now: Time) {
        let Some(cache) = self.types.get_mut(type_url) else { return };
        if cache.wildcard.as_ref().is_none_or(WildcardCache::is_watched) {
            return;
        }
        cache.wildcard = None;
        cache.private.wildcard = false;
        self.upkeep.free_wildcard(type_url);
        self.guard.forget_wildcard(type_url);
        if let Attachment::Streams(streams) = &mut self.attachment {
            streams.unsubscribe(type_url, ResourceSelection::Wildcard, true, now);
        }
        self.settle(type_url, now);
    }
}

/// Publication.
impl Source {
    /// Ends every public call: applies the reports of the streams, and wakes the affected sessions.
    fn after(&mut self, now: Time) {
        self.ask_for_refused(now);
        while let Attachment::Streams(streams) = &mut self.attachment
            && let Some((index, output)) = streams.poll_output()
        {
            self.take_stream_output(index, output, now);
        }
        self.give_up_unless_watched(now);
        let (attachment, types, sessions) = (&self.attachment, &self.types, &self.sessions);
        self.publication.note_standing(attachment, types, sessions, &self.settings, &mut self.linger);
        self.confirm_silence(now);
        let first = self.publication.take_first();
        self.wake(first);
        let due = self.publication.take_due(&self.sessions, self.settings.coalescing, now);
        self.wake(due);
        self.check_invariants();
    }

    fn wake(&mut self, sessions: Vec<SessionId>) {
        if !sessions.is_empty() {
            self.outputs.push_back(SourceOutput::Wake(sessions));
        }
    }

    /// Updates the snapshot of one type from the caches.
    fn settle(&mut self, type_url: &TypeUrl, now: Time) {
        let Some(cache) = self.types.get_mut(type_url) else { return };
        let is_restored = self.restoring.has_type(type_url);
        if cache.has_asked && cache.knows_all() {
            cache.has_asked = false;
            self.upkeep.end_asked(type_url);
        }
        if !self.publication.settle(type_url, cache, is_restored, now) {
            self.types.remove(type_url);
            self.guard.forget_type(type_url);
            self.refused.forget_type(type_url);
        }
    }

    fn check_invariants(&self) {
        if cfg!(debug_assertions) {
            for cache in self.types.values() {
                cache.named.check_invariants();
                cache.globs.check_invariants();
            }
        }
    }
}
