//! Where the parts of a stream's subscriptions go: server lists, node classes and sources.

use std::sync::Arc;

use tracing::warn;

use super::aside::source_aside;
use super::servers::{ListId, Place};
use super::source::{Owner, SourceHandle, Subscriber};
use super::stream::StreamState;
use crate::engine::downstream::{Dialect, List, Router, SourceId};
use crate::engine::realm::{Realm, Space};
use crate::engine::view::View;
use crate::xds::{Code, Kind, Node, ResourceName, Status, TypeUrl, Variant};

/// Finds the source of each part of a subscription.
pub(super) struct Routes<'a> {
    pub stream: &'a StreamState,
    pub node: Option<&'a Node>,
    pub sources: &'a mut Vec<(SourceId, Arc<SourceHandle>)>,
}

impl Router for Routes<'_> {
    fn realm_of(&self, type_url: &TypeUrl, name: Option<&ResourceName>) -> Realm {
        let shared = &self.stream.shared;
        let lists = &shared.settings.lists;
        let space = name.map_or(Space::Old, |name| lists.authorities().space_of(name));
        Realm { space, private: shared.uncached.has(lists.route(type_url, space), type_url, name) }
    }

    fn list(&self, type_url: &TypeUrl, realm: Realm) -> u16 {
        self.stream.shared.settings.lists.route(type_url, realm.space).number()
    }

    fn fallback(&self, list: u16) -> Option<List> {
        self.stream.shared.settings.lists.list(ListId::of(list)).fallback(list)
    }

    fn source(&mut self, type_url: &TypeUrl, realm: Realm, server: u16) -> Result<SourceId, Status> {
        let (shared, tables) = (&self.stream.shared, self.stream.tables());
        let (place, owner) = self.place(type_url, realm, server)?;
        let class = shared.classify(self.node, type_url, realm.space.style(), place)?;
        let handle = tables.sources.get(place, class, owner, &|| tables.streams.len())?;
        let is_aside = realm.private && shared.server(place).is_local();
        let id = if is_aside { source_aside(handle.id()) } else { handle.id() };
        if !self.sources.iter().any(|(known, _)| *known == id) {
            self.sources.reserve_exact(1);
            self.sources.push((id, handle));
        }
        Ok(id)
    }

    fn presented(&self, view: View) -> Arc<View> {
        self.stream.shared.presented.share(view)
    }

    fn dialect(&self, type_url: &TypeUrl) -> Dialect {
        self.stream.shared.dialect(self.node, self.stream.kind().variant, type_url)
    }

    fn legacy_wildcard(&self, type_url: &TypeUrl) -> Result<bool, Status> {
        let shared = &self.stream.shared;
        if type_url.kind() == Kind::VirtualHost {
            // Whoever opens them asks for nothing yet, and the control plane has to see it (VHD-3).
            return Ok(true);
        }
        let place = shared.settings.lists.place(type_url, Space::Old);
        Ok(shared.classify(self.node, type_url, Space::Old.style(), place)?.legacy_wildcard)
    }
}

impl Routes<'_> {
    /// The server that is asked, and for whom.
    fn place(&self, type_url: &TypeUrl, realm: Realm, server: u16) -> Result<(Place, Owner), Status> {
        let (stream, shared) = (self.stream, &self.stream.shared);
        let place = Place { server, ..shared.settings.lists.place(type_url, realm.space) };
        if realm.space == Space::Unknown {
            self.warn("unknown authority", type_url, "names of an authority that is not under `authorities`");
        }
        let server = shared.server(place);
        let is_hosts = type_url.kind() == Kind::VirtualHost;
        if is_hosts && stream.kind().variant == Variant::Sotw {
            let text = "virtual hosts (VHDS) are served in the delta variant only";
            return Err(Status::new(Code::InvalidArgument, text));
        }
        if is_hosts && server.is_sotw() {
            self.warn(
                "hosts without delta",
                type_url,
                "virtual hosts, for which a server without delta cannot be asked",
            );
            return Ok((Place::NOBODY, Owner::Everyone));
        }
        // Virtual hosts are matched by prefix and answered by alias, for each client alone (RLY-20). A directory answers
        // everyone alike.
        let is_private = (is_hosts || realm.private) && !server.is_local();
        Ok((place, if is_private { Owner::Stream(stream.id()) } else { Owner::Everyone }))
    }

    fn warn(&self, key: &'static str, type_url: &TypeUrl, what: &str) {
        if let Some(suppressed) = self.stream.shared.throttle.allow(key) {
            let node = self.node.map_or("", |node| node.id.as_str());
            warn!(node, stream = self.stream.number(), %type_url, suppressed, "a client asks for {what}: they do not exist");
        }
    }
}
