//! Unasked resources are offered to the sessions (DEL-17).
//!
//! Only in a source of one client: resources for one node are not for another node. An offered name has no session at
//! first, and lingers until a session adopts the name by its next collection, as if the client had asked.

use std::sync::Arc;
use std::time::Duration;

use super::Source;
use crate::engine::Time;
use crate::engine::cache::{Known, SessionId};
use crate::engine::collection::CollectionKind;
use crate::engine::source::watched::Watched;
use crate::engine::upstream::Changes;
use crate::xds::{ResourceName, TypeUrl};

/// The time that sessions have to adopt a name.
const PATIENCE: Duration = Duration::from_secs(10);

impl Source {
    /// Whether unasked resources of the type are the client's.
    pub(super) fn takes_unasked(&self, type_url: &TypeUrl) -> bool {
        type_url.is_sent_unasked() && self.settings.unasked_names.is_some()
    }

    /// Begins the unasked names of a response. Returns the names to offer.
    pub(super) fn begin_unasked(&mut self, changes: &Changes) -> Vec<ResourceName> {
        if changes.kind != CollectionKind::Names || !self.takes_unasked(&changes.type_url) {
            return Vec::new();
        }
        let Some(cache) = self.types.get_mut(&changes.type_url) else { return Vec::new() };
        let named = &mut cache.named;
        // Sessions gave the name up after a removal.
        let is_back = |name: &&ResourceName| {
            matches!(named.known().get(*name), Some(Known::Absent(_))) && !named.is_watched(name)
        };
        let back = changes.present.iter().map(|resource| &resource.name).filter(is_back);
        let offered = back.chain(&changes.unasked).cloned().collect();
        for name in &changes.unasked {
            named.adopt(name);
        }
        offered
    }

    /// Offers names to the sessions with names of the type.
    pub(super) fn offer(&mut self, type_url: &TypeUrl, names: Vec<ResourceName>, now: Time) {
        if names.is_empty() {
            return;
        }
        let until = now + self.settings.linger.max(PATIENCE);
        for name in names {
            let unwatched = self.types.get(type_url).and_then(|cache| cache.unwatched(&name));
            if let Some((bytes, has_content)) = unwatched {
                self.linger.add_until((type_url.clone(), Some(name.clone())), bytes, has_content, until);
            }
            self.note_offer(type_url, name);
        }
        let asks = |watched: &Watched| watched.type_url == *type_url && watched.has_names();
        let sessions = self.sessions.iter().filter(|(_, list)| list.iter().any(asks));
        let sessions: Vec<SessionId> = sessions.map(|(session, _)| *session).collect();
        self.news.first.extend(sessions);
    }

    /// Offers a name to later sessions.
    pub(super) fn note_offer(&mut self, type_url: &TypeUrl, name: ResourceName) {
        if let Some(cache) = self.types.get_mut(type_url) {
            self.unasked += 1;
            Arc::make_mut(cache.unasked.get_or_insert_default()).add(name, self.unasked);
        }
    }
}
