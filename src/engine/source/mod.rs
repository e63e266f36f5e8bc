//! A source: one server, as one node class sees it.
//!
//! A source consists of the interest of its sessions, the cache, and the upstream streams or files that fill
//! the cache. Sessions pull: a source never hands out an update, but publishes a [`Snapshot`] and names the
//! sessions to wake. One task owns a source.
//!
//! Drive a source with [`Source::watch`], [`Source::unwatch`], [`Source::handle_upstream`],
//! [`Source::handle_files`] and [`Source::handle_timeout`]. After each call, drain [`Source::poll_output`]
//! and take [`Source::take_snapshot`].

mod attachment;
mod guard;
mod linger;
mod private;
mod suspects;
mod reach;
mod restore;
mod succession;
mod upkeep;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::Time;
use super::cache::slots::SlotId;
use super::cache::{Counts, Departed, GlobCache, NamedCache, News, SessionId, Stamp, WildcardCache};
use super::class::NameStyle;
use super::interest::{Interest, NameSet, Shape};
use super::snapshot::{Snapshot, TypeSnapshot};
use super::upstream::{self, Cause, Changes, Scope};
use super::view::View;
use crate::engine::planted::{Bug, planted};
use crate::setting::{Setting, bytes, hours, ms, seconds, settings, time};
use crate::xds::{Resource, ResourceName, TypeUrl};

pub use super::interest::Collection;
pub use attachment::{Attachment, Files, StreamIndex, Streams};
use guard::Guard;
pub use guard::is_mass;
use linger::{Linger, Lingering};
use private::Private;
use restore::Restoring;
pub use restore::{Image, Kept, RestoredType};
pub use suspects::Suspect;
use upkeep::Upkeep;

/// Resources kept without a session, per source: the maximum size. A client that returns within `linger` finds
/// them; under pressure the oldest go first.
pub const UNWATCHED_BYTES: Setting<usize> = Setting::new("unwatched_bytes", 64 << 20, bytes(0..=1 << 40));

settings! {
    /// The limits and delays of a source.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Settings {
        /// Updates that follow another update within this time are sent together (RLY-54). Zero: never. Above
        /// 200 ms, clients would notice the delay.
        coalescing: Duration = ms(10), time(ms(0)..=ms(200));
        /// The time that names, wildcards and streams outlive their last session (RLY-60): 30 s, so that a client
        /// that restarts finds its resources.
        linger: Duration = seconds(30), time(ms(0)..=hours(1));
    }
    fixed {
        /// See [`UNWATCHED_BYTES`].
        unwatched_bytes: usize = UNWATCHED_BYTES.default;
        /// Sessions are woken when the server is lost or heard again, because their choice of server depends on
        /// the event.
        tells_reach: bool = false;
        /// The source serves a single stream, and so may take resources that must not be shared (CCH-1).
        private: bool = false;
    }
}

/// An action for the driver.
#[derive(Debug)]
pub enum Output {
    /// For the stream with this index: open, close, send, probe, or an event to note.
    Upstream(StreamIndex, upstream::Output),
    /// A session wants this type, and the server has no service for the type: the names stay unknown.
    Unserved(TypeUrl),
    /// The snapshot has changes for these sessions. Sorted, without duplicates.
    Wake(Vec<SessionId>),
    /// The server forbids caching or sharing of these names, or (`None`) of members of the wildcard. These
    /// sessions wait for some of the resources, and have to ask for themselves (CCH-1).
    DoNotCache { type_url: TypeUrl, names: Vec<Option<ResourceName>>, sessions: Vec<SessionId> },
    /// The server has confirmed all resources that were restored after a restart of the relay (I14).
    Confirmed,
}

#[derive(Debug, Default)]
struct TypeCache {
    named: NamedCache,
    wildcard: Option<WildcardCache>,
    private: Private,
    globs: GlobCache,
}

impl TypeCache {
    fn is_empty(&self) -> bool {
        self.named.is_empty() && self.wildcard.is_none() && self.globs.is_empty()
    }

    /// The weight of a name or a glob without sessions, and whether the name has content; `None` if a session
    /// watches.
    fn unwatched(&self, name: &ResourceName) -> Option<(usize, bool)> {
        let (is_watched, weight, has_content) = match name.is_glob() {
            true => (self.globs.is_watched(name), self.globs.weight(name), self.globs.has_members(name)),
            false => {
                let has_content =
                    self.named.known().get(name).is_some_and(|known| known.resource().is_some());
                (self.named.is_watched(name), self.named.weight(name), has_content)
            }
        };
        (!is_watched).then_some((weight, has_content))
    }

    /// Routes may refer to departed resources of the cluster side (RLY-51). Nothing refers to departed
    /// resources of other types.
    fn keep_departed(&mut self, keep: bool) {
        self.named.departed.kept = keep;
        if let Some(wildcard) = &mut self.wildcard {
            wildcard.departed.kept = keep;
        }
        self.globs.departed.kept = keep;
    }

    fn departed(&self) -> impl Iterator<Item = &Departed> {
        let wildcard = self.wildcard.as_ref().map(|wildcard| &wildcard.departed);
        [&self.named.departed, &self.globs.departed].into_iter().chain(wildcard)
    }

    /// Frees the last bytes of resources that left long enough ago. Returns whether there were any.
    fn expire_departed(&mut self, now: Time) -> bool {
        let members = self.wildcard.as_mut().is_some_and(|wildcard| wildcard.departed.expire(now));
        self.globs.departed.expire(now) || members
    }
}

/// The interest of a session in one type.
#[derive(Debug)]
struct Watched {
    type_url: TypeUrl,
    wildcard: bool,
    globs: Option<SlotId>,
    old: Option<SlotId>,
    xdstp: Option<SlotId>,
}

impl Watched {
    fn slot(&mut self, style: NameStyle) -> &mut Option<SlotId> {
        match style {
            NameStyle::Old => &mut self.old,
            NameStyle::Xdstp => &mut self.xdstp,
        }
    }
}

#[derive(Debug)]
pub struct Source {
    settings: Settings,
    attachment: Attachment,
    types: BTreeMap<TypeUrl, TypeCache>,
    sessions: BTreeMap<SessionId, Vec<Watched>>,
    linger: Linger,
    stamp: Stamp,
    snapshot: Snapshot,
    snapshot_changed: bool,
    upkeep: Upkeep,
    restoring: Restoring,
    guard: Guard,
    news: News,
    woken_at: Option<Time>,
    /// A type, or a part of a type, became current. Sessions on another server may wait for the answer.
    has_answered: bool,
    outputs: VecDeque<Output>,
}

impl Source {
    /// A new source without sessions. `id` is unique in the process and unguessable for clients: the ids of
    /// views contain the `id`, and equal ids stand for equal answers.
    pub fn new(id: u64, settings: Settings, attachment: Attachment) -> Source {
        let attachment = attachment.lingering(settings.linger);
        Source {
            linger: Linger::new(settings.linger, settings.unwatched_bytes),
            settings,
            attachment,
            types: BTreeMap::new(),
            sessions: BTreeMap::new(),
            stamp: Stamp::new(id),
            snapshot: Snapshot::default(),
            snapshot_changed: false,
            upkeep: Upkeep::default(),
            restoring: Restoring::default(),
            guard: Guard::default(),
            news: News::default(),
            woken_at: None,
            has_answered: false,
            outputs: VecDeque::new(),
        }
    }

    // === what sessions want ===

    /// Sets a session's interest in one collection of one type: the wildcard, or these names of one style.
    /// [`Source::unwatch`] ends an interest; an empty list of names does not.
    pub fn watch(&mut self, session: SessionId, type_url: &TypeUrl, interest: &Interest, now: Time) {
        match (interest, interest.collection()) {
            (Interest::Names(names), Collection::Names(style)) => {
                self.watch_names(session, type_url, style, names, now);
            }
            (Interest::Globs(globs), _) => self.watch_globs(session, type_url, globs, now),
            _ => self.watch_wildcard(session, type_url, now),
        }
        // A first answer is never delayed to join others (RLY-54).
        self.news.first.push(session);
        self.after(now);
    }

    fn watched(&mut self, session: SessionId, type_url: &TypeUrl) -> &mut Watched {
        let list = self.sessions.entry(session).or_default();
        let index = list.iter().position(|watched| watched.type_url == *type_url).unwrap_or_else(|| {
            // The list has no spare capacity: there is a list per session, and most sessions have at most
            // four types.
            list.reserve_exact(1);
            list.push(Watched {
                type_url: type_url.clone(),
                wildcard: false,
                globs: None,
                old: None,
                xdstp: None,
            });
            list.len() - 1
        });
        &mut list[index]
    }

    fn watch_wildcard(&mut self, session: SessionId, type_url: &TypeUrl, now: Time) {
        self.watched(session, type_url).wildcard = true;
        self.linger.remove(&(type_url.clone(), None));
        let cache = self.types.entry(type_url.clone()).or_default();
        let is_new = cache.wildcard.is_none();
        let wildcard = cache.wildcard.get_or_insert_with(|| WildcardCache::new(self.stamp.at(now)));
        wildcard.watch(session);
        if !is_new {
            self.divert_late(session, type_url, &Interest::Wildcard);
            return;
        }
        match &mut self.attachment {
            Attachment::Streams(streams) => {
                if !streams.subscribe(type_url, upstream::Interest::Wildcard, now) {
                    self.outputs.push_back(Output::Unserved(type_url.clone()));
                }
            }
            Attachment::Files(files) => {
                if let Some(members) = files.members(type_url) {
                    wildcard.replace(members.unwrap_or(&BTreeMap::new()));
                }
            }
        }
        self.settle(type_url, now);
    }

    fn watch_names(
        &mut self,
        session: SessionId,
        type_url: &TypeUrl,
        style: NameStyle,
        names: &Arc<NameSet>,
        now: Time,
    ) {
        let from = *self.watched(session, type_url).slot(style);
        let cache = self.types.entry(type_url.clone()).or_default();
        let moved = cache.named.watch(session, from, names, self.stamp.at(now));
        *self.watched(session, type_url).slot(style) = moved.slot;
        self.divert_late(session, type_url, &Interest::Names(names.clone()));
        for name in &moved.revived {
            self.linger.remove(&(type_url.clone(), Some(name.clone())));
        }
        if !moved.new.is_empty() {
            self.ask(type_url, moved.new, now);
        }
        self.start_linger(type_url, moved.unwatched, now);
        self.settle(type_url, now);
    }

    fn watch_globs(&mut self, session: SessionId, type_url: &TypeUrl, globs: &Arc<NameSet>, now: Time) {
        let from = self.watched(session, type_url).globs;
        let cache = self.types.entry(type_url.clone()).or_default();
        let moved = cache.globs.watch(session, from, globs, self.stamp.at(now));
        if !moved.new.is_empty() {
            match &mut self.attachment {
                Attachment::Streams(streams) => {
                    self.upkeep.asked(type_url, &moved.new, now);
                    if !streams.subscribe(type_url, upstream::Interest::Globs(moved.new), now) {
                        self.outputs.push_back(Output::Unserved(type_url.clone()));
                    }
                }
                Attachment::Files(files) => {
                    if let Some(members) = files.members(type_url) {
                        cache.globs.replace(members.unwrap_or(&BTreeMap::new()));
                    }
                    for glob in &moved.new {
                        if let Some(error) = files.asks_nobody(glob) {
                            cache.globs.set_error(glob, Some(&error));
                        }
                    }
                }
            }
        }
        self.watched(session, type_url).globs = moved.slot;
        self.divert_late(session, type_url, &Interest::Globs(globs.clone()));
        for glob in moved.revived {
            self.linger.remove(&(type_url.clone(), Some(glob)));
        }
        self.start_linger(type_url, moved.unwatched, now);
        self.settle(type_url, now);
    }

    fn drop_globs(&mut self, session: SessionId, type_url: &TypeUrl, slot: SlotId, now: Time) {
        let Some(cache) = self.types.get_mut(type_url) else { return };
        let unwatched = cache.globs.unwatch(session, slot);
        self.start_linger(type_url, unwatched, now);
        self.settle(type_url, now);
    }

    /// Asks the server for names that have no subscription yet (RLY-57, RLY-58).
    fn ask(&mut self, type_url: &TypeUrl, names: Vec<ResourceName>, now: Time) {
        match &mut self.attachment {
            Attachment::Streams(streams) => {
                self.upkeep.asked(type_url, &names, now);
                if !streams.subscribe(type_url, upstream::Interest::Names(names), now) {
                    self.outputs.push_back(Output::Unserved(type_url.clone()));
                }
            }
            Attachment::Files(files) => {
                let is_read = files.members(type_url).is_some();
                let Some(cache) = self.types.get_mut(type_url) else { return };
                for name in &names {
                    match files.named(type_url, name) {
                        _ if !is_read => {}
                        Some(resource) => cache.named.put_as(name, &resource),
                        None => cache.named.put_absent(name, Cause::Omitted),
                    }
                    if let Some(error) = files.asks_nobody(name) {
                        cache.named.set_error(name, Some(&error));
                    }
                }
            }
        }
    }

    /// A session no longer wants a collection of a type.
    pub fn unwatch(&mut self, session: SessionId, type_url: &TypeUrl, collection: Collection, now: Time) {
        let Some(list) = self.sessions.get_mut(&session) else { return };
        let Some(watched) = list.iter_mut().find(|watched| watched.type_url == *type_url) else { return };
        match collection {
            Collection::Wildcard if std::mem::take(&mut watched.wildcard) => {
                self.drop_wildcard(session, type_url, now);
            }
            Collection::Names(style) => {
                if let Some(slot) = watched.slot(style).take() {
                    self.drop_names(session, type_url, slot, now);
                }
            }
            Collection::Globs(_) => {
                if let Some(slot) = watched.globs.take() {
                    self.drop_globs(session, type_url, slot, now);
                }
            }
            Collection::Wildcard => {}
        }
        self.let_go(session);
        self.after(now);
    }

    /// A session went back to a server of higher priority. After the last session nothing lingers: the
    /// streams close (RLY-60).
    pub fn dismiss(&mut self, session: SessionId, now: Time) {
        self.forget(session, now);
        if self.sessions.is_empty() && !planted(Bug::LowerServerLingers) {
            self.give_up_restored(now);
            let lingering = std::iter::from_fn(|| self.linger.pop_any()).collect();
            self.free(lingering, now);
            self.attachment.close_idle(now);
            self.after(now);
        }
    }

    /// Drops the names that a session no longer watches.
    fn let_go(&mut self, session: SessionId) {
        let Some(list) = self.sessions.get_mut(&session) else { return };
        list.retain(|watched| {
            watched.wildcard || [watched.globs, watched.old, watched.xdstp].iter().any(Option::is_some)
        });
        if list.is_empty() {
            self.sessions.remove(&session);
        }
    }

    /// A session has ended.
    pub fn forget(&mut self, session: SessionId, now: Time) {
        for watched in self.sessions.remove(&session).unwrap_or_default() {
            if watched.wildcard && !planted(Bug::ForgottenWildcardStays) {
                self.drop_wildcard(session, &watched.type_url, now);
            }
            if let Some(slot) = watched.globs {
                self.drop_globs(session, &watched.type_url, slot, now);
            }
            for slot in [watched.old, watched.xdstp].into_iter().flatten() {
                self.drop_names(session, &watched.type_url, slot, now);
            }
        }
        self.after(now);
    }

    fn drop_wildcard(&mut self, session: SessionId, type_url: &TypeUrl, now: Time) {
        let Some(wildcard) = self.types.get_mut(type_url).and_then(|cache| cache.wildcard.as_mut()) else {
            return;
        };
        wildcard.unwatch(session);
        let (is_watched, bytes) = (wildcard.is_watched(), wildcard.view().bytes());
        if !is_watched && !self.is_kept(type_url, None) {
            self.linger.add((type_url.clone(), None), bytes, bytes > 0, now);
        }
    }

    fn drop_names(&mut self, session: SessionId, type_url: &TypeUrl, slot: SlotId, now: Time) {
        let Some(cache) = self.types.get_mut(type_url) else { return };
        let unwatched = cache.named.unwatch(session, slot);
        self.start_linger(type_url, unwatched, now);
        self.settle(type_url, now);
    }

    fn start_linger(&mut self, type_url: &TypeUrl, names: Vec<ResourceName>, now: Time) {
        let Some(cache) = self.types.get(type_url) else { return };
        for name in names {
            // A session that moves between two sets leaves the old set after it joined the new set.
            let unwatched = cache.unwatched(&name).filter(|_| !self.is_kept(type_url, Some(&name)));
            if let Some((bytes, has_content)) = unwatched {
                self.linger.add((type_url.clone(), Some(name)), bytes, has_content, now);
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
            let (no_names, no_globs) = (cache.named.is_empty(), cache.globs.is_empty());
            for (shape, freed) in [(Shape::Names, &names), (Shape::Globs, &members)] {
                self.upkeep.freed(&type_url, shape, freed);
                self.guard.forget(&type_url, shape, freed);
            }
            if let Attachment::Streams(streams) = &mut self.attachment {
                streams.unsubscribe(&type_url, upstream::Interest::Names(names), no_names, now);
                streams.unsubscribe(&type_url, upstream::Interest::Globs(globs), no_globs, now);
            }
            self.settle(&type_url, now);
        }
    }

    fn expire_wildcard(&mut self, type_url: &TypeUrl, now: Time) {
        let Some(cache) = self.types.get_mut(type_url) else { return };
        if cache.wildcard.as_ref().is_none_or(WildcardCache::is_watched) {
            return;
        }
        cache.wildcard = None;
        cache.private.wildcard = false;
        self.upkeep.freed_wildcard(type_url);
        self.guard.forget_wildcard(type_url);
        if let Attachment::Streams(streams) = &mut self.attachment {
            streams.unsubscribe(type_url, upstream::Interest::Wildcard, true, now);
        }
        self.settle(type_url, now);
    }

    // === what the server says ===

    pub fn handle_upstream(&mut self, stream: StreamIndex, input: upstream::Input, now: Time) {
        if let Attachment::Streams(streams) = &mut self.attachment {
            streams.handle(stream, input, now);
            streams.agree_on_server(now);
        }
        self.after(now);
    }

    /// Takes the whole state of a file server: absent names do not exist (FIL-8).
    pub fn handle_files(&mut self, state: Vec<(TypeUrl, Vec<Arc<Resource>>)>, now: Time) {
        let Attachment::Files(files) = &mut self.attachment else { return };
        files.replace(state);
        let none = BTreeMap::new();
        for (type_url, cache) in &mut self.types {
            let members = files.members(type_url).flatten().unwrap_or(&none);
            if let Some(wildcard) = &mut cache.wildcard {
                wildcard.replace(members);
            }
            cache.globs.replace(members);
            let names = cache.named.known().clone();
            for name in names.keys() {
                match files.named(type_url, name) {
                    Some(resource) => cache.named.put_as(name, &resource),
                    None => cache.named.put_absent(name, Cause::Omitted),
                }
            }
        }
        let types: Vec<_> = self.types.keys().cloned().collect();
        for type_url in types {
            self.settle(&type_url, now);
        }
        self.after(now);
    }

    /// Applies one upstream response as one step (I7b).
    fn apply(&mut self, mut changes: Changes, now: Time) {
        self.give_up_private(&mut changes);
        self.hold_back(&mut changes, now);
        self.carry_out(&changes, now);
    }

    fn carry_out(&mut self, changes: &Changes, now: Time) {
        let Some(cache) = self.types.get_mut(&changes.type_url) else { return };
        match changes.scope {
            Scope::Wildcard => {
                if let Some(wildcard) = &mut cache.wildcard {
                    wildcard.apply(changes);
                }
            }
            Scope::Globs => cache.globs.apply(changes),
            Scope::Names => {
                for resource in &changes.present {
                    cache.named.put(resource);
                }
                for (alias, resource) in &changes.by_alias {
                    cache.named.put_as(alias, resource);
                }
                for (name, cause) in &changes.absent {
                    cache.named.put_absent(name, *cause);
                }
            }
        }
        self.lease(changes, now);
        self.settle(&changes.type_url, now);
    }

    /// Handles changes as if a stream had received them.
    #[cfg(test)]
    pub(super) fn handle_changes(&mut self, changes: Changes, now: Time) {
        self.apply(changes, now);
        self.after(now);
    }

    /// Handles an event as if a stream had reported it.
    #[cfg(test)]
    pub(super) fn handle_event(&mut self, event: &upstream::Event, now: Time) {
        self.take_errors(0, event, now);
        self.after(now);
    }

    // === time ===

    pub fn poll_timeout(&self) -> Option<Time> {
        let machines = match &self.attachment {
            Attachment::Streams(streams) => streams.poll_timeout(),
            Attachment::Files(_) => None,
        };
        let departed = self.types.values().flat_map(TypeCache::departed);
        let departed = departed.filter_map(Departed::poll_timeout).min();
        let own = [self.linger.poll_timeout(), self.upkeep.poll_timeout(), self.restoring.poll_timeout()];
        [machines, departed, self.wake_at(), self.guard.poll_timeout()].into_iter().chain(own).flatten().min()
    }

    pub fn handle_timeout(&mut self, now: Time) {
        if let Attachment::Streams(streams) = &mut self.attachment {
            streams.handle_timeout(now);
        }
        self.expire_linger(now);
        self.expire_departed(now);
        self.keep_up(now);
        self.let_deletions_go(now);
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

    // === what comes out ===

    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The current snapshot, if there was a change since the last call.
    pub fn take_snapshot(&mut self) -> Option<Arc<Snapshot>> {
        let snapshot = std::mem::take(&mut self.snapshot_changed).then(|| Arc::new(self.snapshot.clone()));
        if planted(Bug::SnapshotsLeak) {
            std::mem::forget(snapshot.clone());
        }
        snapshot
    }

    /// The current snapshot. Unlike [`Source::take_snapshot`], the call does not mark the snapshot as seen.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
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
    pub fn types(&self) -> impl Iterator<Item = (&TypeUrl, Counts, Option<&View>)> {
        self.types.iter().map(|(type_url, cache)| {
            let mut counts = cache.named.counts();
            counts.present += cache.globs.members().len();
            counts.bytes += cache.globs.bytes();
            let members = cache.globs.members();
            counts
                .states
                .add_members(members.len(), cache.globs.remarks(), |name| members.contains_key(name));
            if let Some(wildcard) = &cache.wildcard {
                let (members, remarks) = (wildcard.members(), wildcard.view().remarks());
                counts.states.add_members(members.len(), remarks, |name| members.contains_key(name));
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

    // === inside ===

    /// Ends every public call: applies the reports of the streams, and wakes the affected sessions.
    fn after(&mut self, now: Time) {
        while let Attachment::Streams(streams) = &mut self.attachment
            && let Some((index, output)) = streams.poll_output()
        {
            self.note_output(index, &output, now);
            match output {
                upstream::Output::Changes(changes) => self.apply(changes, now),
                upstream::Output::Event(event) => {
                    self.take_errors(index, &event, now);
                    let told = self.told(index, event).map(upstream::Output::Event);
                    self.outputs.extend(told.map(|event| Output::Upstream(index, event)));
                }
                other => self.outputs.push_back(Output::Upstream(index, other)),
            }
        }
        self.given_up_unless_watched(now);
        self.note_reach();
        self.confirm_silence(now);
        let first = std::mem::take(&mut self.news.first);
        self.wake(first);
        if planted(Bug::CoalescingLosesLast) && self.wake_at().is_some_and(|due| due > now) {
            self.news.update.clear();
        }
        if self.wake_at().is_some_and(|due| due <= now) {
            self.woken_at = Some(now);
            let mut update = std::mem::take(&mut self.news.update);
            if std::mem::take(&mut self.has_answered) && !planted(Bug::ReachNotTold) {
                update.extend(self.sessions.keys());
            }
            self.wake(update);
        }
        self.check_invariants();
    }

    /// The time to wake sessions with changes: at once after a quiet period, else gathered (RLY-54).
    fn wake_at(&self) -> Option<Time> {
        if self.news.update.is_empty() && !self.has_answered {
            return None;
        }
        Some(self.woken_at.map_or(Time::ZERO, |last| last + self.settings.coalescing))
    }

    fn wake(&mut self, mut sessions: Vec<SessionId>) {
        if sessions.is_empty() {
            return;
        }
        sessions.sort_unstable();
        sessions.dedup();
        self.outputs.push_back(Output::Wake(sessions));
    }

    /// Updates the snapshot of one type from the caches.
    fn settle(&mut self, type_url: &TypeUrl, now: Time) {
        let Some(cache) = self.types.get_mut(type_url) else { return };
        let stamp = self.stamp.at(now);
        cache.keep_departed(type_url.kind().is_cluster_side());
        cache.named.settle(stamp, &mut self.news);
        if let Some(wildcard) = &mut cache.wildcard {
            wildcard.settle(stamp, &mut self.news);
        }
        cache.globs.settle(stamp, &mut self.news);
        self.snapshot_changed = true;
        if cache.is_empty() {
            self.types.remove(type_url);
            self.guard.forget_type(type_url);
            self.snapshot.remove(type_url);
            return;
        }
        let published = self.snapshot.of(type_url);
        let snapshot = TypeSnapshot {
            // As published before: `note_reach` detects the change.
            is_current: published.is_some_and(|types| types.is_current),
            answered: published.and_then(|types| types.answered.clone()),
            reach: published.and_then(|types| types.reach.clone()),
            named: cache.named.known().clone(),
            aliases: cache.named.aliases().clone(),
            sets: cache.named.sets().clone(),
            members: cache.wildcard.as_ref().map(|wildcard| wildcard.members().clone()).unwrap_or_default(),
            wildcard: cache.wildcard.as_ref().map(|wildcard| wildcard.view().clone()),
            glob_members: cache.globs.members().clone(),
            glob_sets: cache.globs.sets().clone(),
            departed_names: cache.named.departed.bodies().clone(),
            departed_members: cache
                .wildcard
                .as_ref()
                .map(|wildcard| wildcard.departed.bodies().clone())
                .unwrap_or_default(),
            departed_glob_members: cache.globs.departed.bodies().clone(),
            evicted: cache.departed().map(Departed::evicted).sum(),
            remarks: cache.named.remarks().clone(),
            glob_remarks: cache.globs.remarks().clone(),
            restored: self.restoring.has_type(type_url),
        };
        self.snapshot.replace(type_url, snapshot);
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
