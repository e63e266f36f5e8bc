//! The collections of sessions: names, globs and wildcards begin and end.

use std::collections::BTreeMap;

use super::Source;
use crate::engine::Time;
use crate::engine::cache::slots::{NamesAfter, SlotId, WatchedInSets};
use crate::engine::cache::{SessionId, WildcardCache};
use crate::engine::class::NameStyle;
use crate::engine::collection::{Collection, CollectionKey, CollectionKind, NameSet};
use crate::engine::source::api::Output;
use crate::engine::source::attachment::Attachment;
use crate::engine::source::watched::Watched;
use crate::engine::upstream::{self, Cause};
use crate::xds::{ResourceName, TypeUrl};

impl Source {
    /// As [`Source::watch_after`], without former names.
    #[cfg(test)]
    pub fn watch(&mut self, session: SessionId, type_url: &TypeUrl, collection: &Collection, now: Time) {
        self.watch_after(session, type_url, collection, None, now);
    }

    /// Sets one of a session's collections of one type: the wildcard, globs, or names of one style.
    /// [`Source::unwatch`] ends a collection; an empty list of names does not. `former`: see [`NamesAfter`]. With former
    /// names, the cost is that of the change; without, that of all names.
    pub fn watch_after(
        &mut self,
        session: SessionId,
        type_url: &TypeUrl,
        collection: &Collection,
        former: Option<&NameSet>,
        now: Time,
    ) {
        match (collection, collection.key()) {
            (Collection::Names(names), CollectionKey { style, .. }) => {
                self.watch_names(session, type_url, style, NamesAfter { names, former }, now);
            }
            (Collection::Globs(names), _) => {
                self.watch_globs(session, type_url, NamesAfter { names, former }, now);
            }
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
            self.divert_late(session, type_url, &Collection::Wildcard);
            return;
        }
        match &mut self.attachment {
            Attachment::Streams(streams) => {
                if !streams.subscribe(type_url, upstream::ResourceSelection::Wildcard, now) {
                    self.outputs.push_back(Output::Unserved(type_url.clone()));
                }
            }
            Attachment::Files(files) => {
                if let Some(members) = files.members(type_url) {
                    wildcard.replace(members.unwrap_or(&BTreeMap::new()), files.read_at());
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
        names: NamesAfter<'_>,
        now: Time,
    ) {
        let from = *self.watched(session, type_url).slot(style);
        let cache = self.types.entry(type_url.clone()).or_default();
        let moved = cache.named.watch(session, from, names, self.stamp.at(now));
        *self.watched(session, type_url).slot(style) = moved.slot;
        self.divert_late(session, type_url, &Collection::Names(names.names.clone()));
        for name in &moved.revived {
            self.linger.remove(&(type_url.clone(), Some(name.clone())));
        }
        if !moved.new.is_empty() {
            self.ask(type_url, moved.new, now);
        }
        self.start_linger(type_url, moved.unwatched, now);
        self.settle(type_url, now);
    }

    fn watch_globs(&mut self, session: SessionId, type_url: &TypeUrl, globs: NamesAfter<'_>, now: Time) {
        let from = self.watched(session, type_url).globs;
        let cache = self.types.entry(type_url.clone()).or_default();
        let moved = cache.globs.watch(session, from, globs, self.stamp.at(now));
        if !moved.new.is_empty() {
            match &mut self.attachment {
                Attachment::Streams(streams) => {
                    self.upkeep.asked(type_url, &moved.new, now);
                    if !streams.subscribe(type_url, upstream::ResourceSelection::Globs(moved.new), now) {
                        self.outputs.push_back(Output::Unserved(type_url.clone()));
                    }
                }
                Attachment::Files(files) => {
                    if let Some(members) = files.members(type_url) {
                        cache.globs.replace(members.unwrap_or(&BTreeMap::new()), files.read_at());
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
        self.divert_late(session, type_url, &Collection::Globs(globs.names.clone()));
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
                if !streams.subscribe(type_url, upstream::ResourceSelection::Names(names), now) {
                    self.outputs.push_back(Output::Unserved(type_url.clone()));
                }
            }
            Attachment::Files(files) => {
                let is_read = files.members(type_url).is_some();
                let Some(cache) = self.types.get_mut(type_url) else { return };
                for name in &names {
                    match files.named(type_url, name) {
                        _ if !is_read => {}
                        Some(resource) => cache.named.put_as(name, &resource, files.read_at()),
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
    pub fn unwatch(&mut self, session: SessionId, type_url: &TypeUrl, key: CollectionKey, now: Time) {
        let Some(list) = self.sessions.get_mut(&session) else { return };
        let Some(watched) = list.iter_mut().find(|watched| watched.type_url == *type_url) else { return };
        match key {
            CollectionKey::WILDCARD if std::mem::take(&mut watched.wildcard) => {
                self.drop_wildcard(session, type_url, now);
            }
            CollectionKey { kind: CollectionKind::Names, style } => {
                if let Some(slot) = watched.slot(style).take() {
                    self.drop_names(session, type_url, slot, now);
                }
            }
            CollectionKey { kind: CollectionKind::Globs, .. } => {
                if let Some(slot) = watched.globs.take() {
                    self.drop_globs(session, type_url, slot, now);
                }
            }
            CollectionKey { kind: CollectionKind::Wildcard, .. } => {}
        }
        self.let_go(session);
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
            if watched.wildcard {
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
}
