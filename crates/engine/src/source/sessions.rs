//! The collections of the sessions of a source.

use std::collections::BTreeMap;

use crate::cache::SessionId;
use crate::cache::watchers::SlotId;
use crate::class::NameStyle;
use crate::collection::{CollectionKey, CollectionKind};
use sluice_xds::TypeUrl;

/// The sessions with collections.
#[derive(Debug, Default)]
pub(super) struct SourceSessions(BTreeMap<SessionId, Vec<WatchedType>>);

impl SourceSessions {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = &SessionId> {
        self.0.keys()
    }

    /// The sessions with names of a type.
    pub(super) fn with_names(&self, type_url: &TypeUrl) -> impl Iterator<Item = SessionId> {
        let has_names = move |watched: &WatchedType| watched.type_url == *type_url && watched.has_names();
        let sessions = self.0.iter().filter(move |(_, types)| types.iter().any(has_names));
        sessions.map(|(session, _)| *session)
    }

    /// The collections of a session in one type, which begin here if there are none.
    pub(super) fn watched(&mut self, session: SessionId, type_url: &TypeUrl) -> &mut WatchedType {
        let types = self.0.entry(session).or_default();
        let index = types.iter().position(|watched| watched.type_url == *type_url).unwrap_or_else(|| {
            // The list has no spare capacity: there is a list per session, and most sessions have at most
            // four types.
            types.reserve_exact(1);
            types.push(WatchedType {
                type_url: type_url.clone(),
                wildcard: false,
                globs: None,
                old: None,
                xdstp: None,
            });
            types.len() - 1
        });
        &mut types[index]
    }

    /// The collections of a session in one type, if there are any.
    pub(super) fn get_mut(&mut self, session: SessionId, type_url: &TypeUrl) -> Option<&mut WatchedType> {
        self.0.get_mut(&session)?.iter_mut().find(|watched| watched.type_url == *type_url)
    }

    /// Drops the types in which a session has no collection any more.
    pub(super) fn remove_empty(&mut self, session: SessionId) {
        let Some(types) = self.0.get_mut(&session) else { return };
        types.retain(|watched| watched.wildcard || watched.globs.is_some() || watched.has_names());
        if types.is_empty() {
            self.0.remove(&session);
        }
    }

    /// Takes all collections of a session.
    pub(super) fn remove(&mut self, session: SessionId) -> Vec<WatchedType> {
        self.0.remove(&session).unwrap_or_default()
    }
}

/// The collections of a session in one type.
#[derive(Debug)]
pub(super) struct WatchedType {
    pub(super) type_url: TypeUrl,
    pub(super) wildcard: bool,
    globs: Option<SlotId>,
    old: Option<SlotId>,
    xdstp: Option<SlotId>,
}

impl WatchedType {
    fn has_names(&self) -> bool {
        self.old.is_some() || self.xdstp.is_some()
    }

    /// The slot of names or globs.
    pub(super) fn slot(&mut self, key: CollectionKey) -> &mut Option<SlotId> {
        match (key.kind, key.style) {
            (CollectionKind::Globs, _) => &mut self.globs,
            (_, NameStyle::Old) => &mut self.old,
            (_, NameStyle::Xdstp) => &mut self.xdstp,
        }
    }

    /// The slots of globs and names, with the kind of each.
    pub(super) fn slots(&self) -> impl Iterator<Item = (CollectionKind, SlotId)> {
        let names = [self.old, self.xdstp].map(|slot| (CollectionKind::Names, slot));
        let slots = std::iter::once((CollectionKind::Globs, self.globs)).chain(names);
        slots.filter_map(|(kind, slot)| Some((kind, slot?)))
    }
}
