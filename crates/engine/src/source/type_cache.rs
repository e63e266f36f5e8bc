//! The caches of one type.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Time;
use crate::annotations::Lease;
use crate::cache::slots::WatchedInSets;
use crate::cache::{
    Departed, Entry, GlobCache, KindCache, NamedCache, PrivateNames, SessionId, UNWATCHED_BYTES,
    UnaskedNames, WildcardCache,
};
use crate::collection::CollectionKind;
use crate::commons::{Commons, ContentKey};
use crate::snapshot::{GlobsSnapshot, NamesSnapshot, TypeSnapshot, WildcardSnapshot};
use crate::source::attachment::Files;
use crate::time::ReceivedAt;
use crate::upstream::{Cause, Changes, ResourceSelection};
use sluice_xds::{Resource, ResourceName, TypeUrl};

#[derive(Debug, Default)]
pub(super) struct TypeCache {
    pub(super) named: NamedCache,
    pub(super) wildcard: Option<WildcardCache>,
    pub(super) private: PrivateNames,
    pub(super) globs: GlobCache,
    /// Unasked names (DEL-17). `None` for nearly all types.
    pub(super) unasked: Option<Arc<UnaskedNames>>,
    /// Names or globs were asked for, and wait for a check (ERR-10).
    pub(super) has_asked: bool,
}

impl TypeCache {
    pub(super) fn is_empty(&self) -> bool {
        self.named.is_empty() && self.wildcard.is_none() && self.globs.is_empty()
    }

    /// The cache of a kind; `None` without a wildcard. The only place, with [`Self::of_mut`], that tells the
    /// kinds apart: a cache says the rest.
    pub(super) fn of(&self, kind: CollectionKind) -> Option<&dyn KindCache> {
        match kind {
            CollectionKind::Wildcard => self.wildcard.as_ref().map(|wildcard| wildcard as _),
            CollectionKind::Globs => Some(&self.globs),
            CollectionKind::Names => Some(&self.named),
        }
    }

    pub(super) fn of_mut(&mut self, kind: CollectionKind) -> Option<&mut dyn KindCache> {
        match kind {
            CollectionKind::Wildcard => self.wildcard.as_mut().map(|wildcard| wildcard as _),
            CollectionKind::Globs => Some(&mut self.globs),
            CollectionKind::Names => Some(&mut self.named),
        }
    }

    /// The cache of the sets of names, or of globs.
    pub(super) fn sets_mut(&mut self, kind: CollectionKind) -> &mut dyn WatchedInSets {
        if kind == CollectionKind::Globs { &mut self.globs } else { &mut self.named }
    }

    fn all(&self) -> impl Iterator<Item = &dyn KindCache> {
        CollectionKind::ALL.into_iter().filter_map(|kind| self.of(kind))
    }

    /// All caches, in the order in which their changes are numbered.
    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut dyn KindCache> {
        let TypeCache { named, wildcard, globs, .. } = self;
        let named: &mut dyn KindCache = named;
        let globs: &mut dyn KindCache = globs;
        let wildcard = wildcard.as_mut().map(|wildcard| -> &mut dyn KindCache { wildcard });
        [Some(named), wildcard, Some(globs)].into_iter().flatten()
    }

    /// Applies the changes of one response or timer.
    pub(super) fn apply(&mut self, changes: &Changes, now: Time) {
        if let Some(cache) = self.of_mut(changes.kind) {
            cache.apply(changes, now.into());
        }
    }

    /// Takes what the files have of newly requested names, globs or members of the wildcard.
    pub(super) fn take_new(&mut self, type_url: &TypeUrl, selection: &ResourceSelection, files: &Files) {
        if let Some(members) = files.members(type_url) {
            let (none, read_at) = (BTreeMap::new(), files.read_at());
            let members = members.unwrap_or(&none);
            match selection {
                ResourceSelection::Wildcard => {
                    self.wildcard.iter_mut().for_each(|wildcard| wildcard.replace(members, read_at));
                }
                ResourceSelection::Globs(_) => self.globs.replace(members, read_at),
                ResourceSelection::Names(names) => {
                    names.iter().for_each(|name| self.take_named(type_url, name, files, read_at));
                }
            }
        }
        let asks_nobody = |name| Some((name, files.asks_nobody(name)?));
        let errors = selection.names().into_iter().flatten().filter_map(asks_nobody);
        if let Some(cache) = self.of_mut(selection.kind()) {
            errors.for_each(|(name, error)| cache.set_error(name, Some(&error)));
        }
    }

    fn take_named(&mut self, type_url: &TypeUrl, name: &ResourceName, files: &Files, read_at: ReceivedAt) {
        match files.named(type_url, name) {
            Some(resource) => self.named.put_as(name, &resource, read_at),
            None => self.named.put_absent(name, Cause::Omitted),
        }
    }

    /// Takes the state of the files over.
    pub(super) fn take_files(&mut self, type_url: &TypeUrl, files: &Files, now: Time) {
        let none = BTreeMap::new();
        let members = files.members(type_url).flatten().unwrap_or(&none);
        if let Some(wildcard) = &mut self.wildcard {
            wildcard.replace(members, now.into());
        }
        self.globs.replace(members, now.into());
        let names = self.named.entries().clone();
        names.keys().for_each(|name| self.take_named(type_url, name, files, now.into()));
    }

    /// Takes private resources out of a response. Returns the entries of the resources, and the waiting
    /// sessions. A session is told once for all names of a response.
    pub(super) fn give_up_private(&mut self, changes: &mut Changes) -> (Vec<Entry>, Vec<SessionId>) {
        let (resources, rest): (Vec<Arc<Resource>>, _) =
            std::mem::take(&mut changes.present).into_iter().partition(|resource| resource.do_not_cache);
        changes.present = rest;
        let mut private = std::mem::take(&mut self.private);
        let cache = self.of(changes.kind);
        let given_up =
            cache.map(|cache| cache.give_up_private(&resources, changes, &mut private)).unwrap_or_default();
        self.private = private;
        given_up
    }

    /// The resource of a name or a member.
    pub(super) fn resource(&self, kind: CollectionKind, name: &ResourceName) -> Option<&Arc<Resource>> {
        self.of(kind)?.resource(name)
    }

    /// The weight of all resources.
    pub(super) fn content_bytes(&self) -> usize {
        self.all().map(|cache| cache.bytes() + cache.resources_len() * UNWATCHED_BYTES).sum()
    }

    pub(super) fn set_lease(&mut self, kind: CollectionKind, name: &ResourceName, lease: Option<Lease>) {
        if let Some(cache) = self.of_mut(kind) {
            cache.set_lease(name, lease);
        }
    }

    /// Whether the state of a name or a glob is unknown, and no error says why.
    pub(super) fn is_unknown(&self, name: &ResourceName) -> bool {
        let is_unknown =
            |cache: &dyn KindCache| cache.is_unknown(name) && cache.annotations().error(name).is_none();
        self.of(CollectionKind::of(name)).is_some_and(is_unknown)
    }

    /// Whether no state of a name or a glob is unknown.
    pub(super) fn knows_all(&self) -> bool {
        self.named.counts().unknown == 0 && self.globs.complete().len() == self.globs.len()
    }

    /// The weight of an entry without sessions, and whether the entry has content; `None` if a session
    /// watches.
    pub(super) fn unwatched(&self, entry: Option<&ResourceName>) -> Option<(usize, bool)> {
        self.of(CollectionKind::of_entry(entry))?.unwatched(entry)
    }

    /// Routes may refer to departed resources of the cluster side (RLY-51). Nothing refers to departed
    /// resources of other types.
    pub(super) fn keep_departed(&mut self, keep: bool) {
        self.all_mut().for_each(|cache| cache.departed_mut().kept = keep);
    }

    /// Takes equal maps of other sources over. Returns whether a map of the snapshot has other nodes.
    pub(super) fn share(&mut self, commons: &dyn Commons) -> bool {
        let is_wildcard_shared = self.wildcard.as_mut().is_some_and(|wildcard| wildcard.share(commons));
        self.named.share(commons) | is_wildcard_shared | self.globs.refill()
    }

    /// The completely known contents that are worth sharing.
    pub(super) fn content_keys(&self) -> impl Iterator<Item = (CollectionKind, ContentKey)> {
        let wildcard = self.wildcard.as_ref().and_then(|wildcard| wildcard.view().content_key());
        let wildcard = wildcard.map(|content| (CollectionKind::Wildcard, content));
        wildcard.into_iter().chain(self.named.content_key().map(|content| (CollectionKind::Names, content)))
    }

    /// The content for a snapshot.
    pub(super) fn snapshot(&self) -> TypeSnapshot {
        let wildcard = self.wildcard.as_ref().map(|wildcard| WildcardSnapshot {
            members: wildcard.members().clone(),
            view: Some(wildcard.view().clone()),
            departed: wildcard.departed().bodies().clone(),
        });
        TypeSnapshot {
            names: NamesSnapshot {
                entries: self.named.entries().clone(),
                aliases: self.named.aliases().clone(),
                sets: self.named.sets().clone(),
                departed: self.named.departed().bodies().clone(),
                annotations: self.named.annotations().clone(),
                unasked: self.unasked.clone(),
            },
            globs: GlobsSnapshot {
                members: self.globs.members().clone(),
                complete: self.globs.complete().clone(),
                sets: self.globs.sets().clone(),
                departed: self.globs.departed().bodies().clone(),
                annotations: self.globs.annotations().clone(),
            },
            wildcard: wildcard.unwrap_or_default(),
            evicted: self.departed().map(Departed::evicted).sum(),
            lasts: None,
        }
    }

    pub(super) fn departed(&self) -> impl Iterator<Item = &Departed> {
        self.all().map(KindCache::departed)
    }

    /// Frees the last bytes of resources that left long enough ago. Returns whether there were any.
    pub(super) fn expire_departed(&mut self, now: Time) -> bool {
        let mut has_expired = false;
        for cache in self.all_mut() {
            has_expired |= cache.departed_mut().expire(now);
        }
        has_expired
    }
}
